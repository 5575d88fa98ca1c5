//! Tests that long runs stay small and cheap. Bytes and read records are counted, and no time is measured.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use signoff_api::{Moment, Outcome, Verdict, Workflow, WorkflowStatus, journal};

use crate::{
    Control, Fact, Journal, JournalLimits, Now, Plan, Segments, Settings, Transition, advance,
    journal::{read_segment, reads},
    tests::test_run::decided,
    transition::{Blobs, Command, Reply},
};

/// The state of a run.
struct Grown {
    workflow: Workflow,
    plan: Plan,
    transition: Transition,
    segments: Segments,
    blobs: Blobs,
    /// The maximum size of the Workflow, in bytes.
    object: usize,
}

impl Grown {
    /// Computes the first transition.
    fn begin(spec: &Value) -> Self {
        let mut spec = spec.clone();
        spec["requestedBy"] = json!("dana");
        let workflow: Workflow = serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "uid": "u"}, "spec": spec,
        }))
        .unwrap();
        let plan = Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap();
        let transition = take(&plan, Journal::default(), Vec::new(), &Blobs::new());
        Self { workflow, plan, transition, segments: Segments::new(), blobs: Blobs::new(), object: 0 }
    }

    /// Commits the transition, reads it again as the next reconcile does, and computes the next one with these results.
    fn go_on(&mut self, facts: Vec<Fact>) {
        self.blobs.extend(self.transition.blobs.iter().cloned());
        let journal = &mut self.transition.journal;
        for folded in journal.fold_finished(&JournalLimits::default()).unwrap() {
            self.segments.insert(folded.digest, read_segment(&folded.text).unwrap());
        }
        let status = WorkflowStatus {
            seq: journal.seq(),
            steps: journal.steps(),
            segments: journal.segments().to_vec(),
            journal_version: Some(journal::version(journal.records().iter(), journal.segments())),
            ..WorkflowStatus::default()
        };
        let spec = serde_json::to_vec(&self.workflow.spec).unwrap().len();
        let size = serde_json::to_vec(&status).unwrap().len();
        self.object = self.object.max(spec + size);
        self.transition = take(&self.plan, Journal::of(&status, &self.segments).unwrap(), facts, &self.blobs);
    }

    /// Returns results of up to this number of the calls in flight.
    fn results(&self, most: usize) -> Vec<Fact> {
        let reply = Reply { response: "what came of it, in some words".repeat(10).into(), ..Reply::default() };
        let calls = self.transition.commands.iter().filter_map(|command| match command {
            Command::Call(call) => Some(&**call),
            Command::Ask(_) => None,
        });
        let ended = |call: &crate::transition::Call| Fact::CallFinished {
            path: call.path.clone(),
            attempt: call.attempt,
            result: Ok(reply.clone()),
            at: Moment::from(jiff::Timestamp::UNIX_EPOCH),
        };
        calls.take(most).map(ended).collect()
    }

    /// Runs to the end, and returns the number of records.
    fn finish(&mut self) -> usize {
        while self.transition.end.is_none() {
            let results = self.results(usize::MAX);
            assert!(!results.is_empty(), "nothing is under way: {:?}", self.transition.phase);
            self.go_on(results);
        }
        self.go_on(Vec::new());
        self.transition.journal.records().len()
    }
}

fn take(plan: &Plan, journal: Journal, facts: Vec<Fact>, blobs: &Blobs) -> Transition {
    let now = Now::new(Moment::from(jiff::Timestamp::UNIX_EPOCH), "e");
    let transition = advance(plan, Control::default(), journal, facts, blobs, &now);
    assert!(transition.missing.is_empty(), "all that was stored is at hand");
    transition
}

fn call(at: usize) -> Value {
    let url = if at == 0 { "http://x/" } else { "http://x/{{ last_response[:9] }}" };
    json!({"name": format!("step-{at}"), "http": {"url": url}})
}

fn set(at: usize) -> Value {
    json!({"name": format!("step-{at}"), "set": {"value": format!("{{{{ 'what came of it' }}}} {}", "word ".repeat(40))}})
}

fn chain(steps: impl IntoIterator<Item = Value>) -> Value {
    json!({"steps": steps.into_iter().collect::<Vec<_>>()})
}

fn parallel(branches: usize, steps: usize) -> Value {
    let step = |branch: usize, at: usize| {
        let mut step = call(at);
        step["branch"] = json!(format!("branch-{branch}"));
        step
    };
    let all = (0..branches).flat_map(|branch| (0..steps).map(move |at| step(branch, at)));
    json!({"pattern": {"parallel": {}}, "steps": all.collect::<Vec<_>>()})
}

/// Returns a graph that goes to and fro until its limit of visits.
fn graph(visits: usize) -> Value {
    let node = |name: &str| json!({"name": name, "set": {"value": "what came of it".repeat(20)}});
    let edge = |from: &str, to: &str| {
        let when = format!("steps.{from}.status == 'succeeded'");
        json!({"from": from, "choose": [{"when": when, "to": to}, {"when": "else", "to": "end"}]})
    };
    let edges = [edge("ping", "pong"), edge("pong", "ping")];
    json!({
        "pattern": {"graph": {"edges": edges, "maxIterations": 1000, "maxSteps": visits}},
        "steps": [node("ping"), node("pong"), node("end")],
    })
}

#[track_caller]
fn stays_small(spec: &Value, records: usize) {
    let mut run = Grown::begin(spec);
    let made = run.finish();
    assert!(made >= records, "{made} records");
    assert!(run.object < 384 * 1024, "{} bytes of object", run.object);
    assert!(!run.transition.journal.segments().is_empty(), "{made} records in one object: this tests nothing");
}

#[test]
fn a_chain_of_a_thousand_steps_stays_small() {
    stays_small(&chain((0..1000).map(set)), 1000);
}

#[test]
fn a_hundred_branches_of_ten_steps_stay_small() {
    stays_small(&parallel(100, 10), 1000);
}

#[test]
fn a_graph_at_its_most_steps_stays_small() {
    stays_small(&graph(1000), 1000);
}

#[test]
fn many_open_records_do_not_make_a_segment_of_each_finished_one() {
    let mut spec = parallel(128, 8);
    spec["pattern"] = json!({"parallel": {"maxParallel": 128}});
    let mut run = Grown::begin(&spec);
    let mut turns = 0;
    while run.transition.end.is_none() {
        let results = run.results(1);
        assert_eq!(results.len(), 1, "one result to take in");
        run.go_on(results);
        turns += 1;
    }
    let segments = run.transition.journal.segments();
    assert_eq!(turns, 1024);
    assert!((2..=32).contains(&segments.len()), "{} segments", segments.len());
}

/// Returns how many records a transition with one result reads, with the number of records of its journal.
fn looked_at(spec: &Value, turns: usize) -> (usize, usize) {
    let mut run = Grown::begin(spec);
    (0..turns).for_each(|_| run.go_on(run.results(usize::MAX)));
    let journal = Journal::new(run.transition.journal.seq(), run.transition.journal.records().to_vec());
    let facts = run.results(1);
    assert_eq!(facts.len(), 1, "one result to take in");
    let records = journal.records().len();
    let (_, looked) = reads::of(|| take(&run.plan, journal, facts, &run.blobs));
    (records, looked)
}

#[test]
fn a_turn_of_a_chain_looks_at_each_record_a_few_times_however_many_there_are() {
    for steps in [10, 100, 1000] {
        let spec = chain((0..steps).map(set).chain([call(steps), call(steps + 1)]));
        let (records, looked) = looked_at(&spec, 0);
        assert_eq!(records, steps + 1);
        assert!(looked <= 12 * records, "{looked} looks at {records} records");
    }
}

#[test]
fn a_turn_of_many_branches_looks_at_each_record_a_few_times_however_many_there_are() {
    for branches in [10, 100] {
        let (records, looked) = looked_at(&parallel(branches, 10), 5);
        assert_eq!(records, branches * 6);
        assert!(looked <= 24 * records, "{looked} looks at {records} records");
    }
}

#[test]
fn a_turn_that_adds_a_branch_does_not_look_at_the_others() {
    // Each branch has its own scope: ten times the branches are ten times the work, not a hundred times.
    let looks = [10, 100].map(|branches| reads::of(|| Grown::begin(&parallel(branches, 4))).1);
    assert!(looks[1] <= 12 * looks[0], "{looks:?}");
}

/// Returns how many records the transition that asks at the last gate of a chain reads, with the number of records of
/// its journal. Each text of the chain reads the one before it, and the first one was edited.
fn looked_at_by_gate(steps: usize, reads: impl Fn(usize) -> String) -> (usize, usize) {
    let hitl =
        |reviews: &str| json!({"reviews": reviews, "prompt": "?", "approvers": [{"kind": "User", "name": "bob"}]});
    let text = |at: usize| json!({"name": format!("step-{at}"), "set": {"value": format!("{{{{ {} }}}}", reads(at))}});
    let mut all =
        vec![json!({"name": "step-0", "set": {"value": "x"}}), json!({"name": "edit", "hitl": hitl("step-0")})];
    all.extend((1..steps).map(text));
    all.push(json!({"name": "call", "http": {"url": "http://x/"}}));
    all.push(json!({"name": "last", "hitl": hitl(&format!("step-{}", steps - 1))}));
    let mut run = Grown::begin(&chain(all));
    let outcome = Outcome {
        parameters: Some(serde_json::from_value(json!({"response": "y"})).unwrap()),
        decided_by: vec!["bob".to_owned()],
        ..decided(Verdict::Modify)
    };
    run.go_on(vec![Fact::ApprovalDecided { path: "edit".into(), outcome: Box::new(outcome) }]);
    let journal = Journal::new(run.transition.journal.seq(), run.transition.journal.records().to_vec());
    let (facts, records) = (run.results(1), journal.records().len());
    let (asking, looked) = reads::of(|| take(&run.plan, journal, facts, &run.blobs));
    let [Command::Ask(ask)] = asking.commands.as_slice() else { panic!("{:?}", asking.commands) };
    assert_eq!(ask.request.reviews.as_ref().unwrap().by.len(), 1, "the edit is found at the other end");
    (records, looked)
}

#[test]
fn a_gate_about_a_long_chain_of_texts_looks_at_each_record_a_few_times() {
    let ways: [fn(usize) -> String; 4] = [
        |at| format!("steps['step-{}'].response", at - 1),
        // The gate about the first text is the next step.
        |at| if at == 1 { "steps[0].response".into() } else { format!("steps[{at}].response") },
        |at| if at == 1 { "steps[-2].response".into() } else { "steps[-1].response".into() },
        |at| if at == 1 { "hitl.parameters.response".into() } else { "last_response".into() },
    ];
    for reads in ways {
        for steps in [10, 100, 1000] {
            let (records, looked) = looked_at_by_gate(steps, reads);
            assert!(looked <= 48 * records, "{looked} looks at {records} records: {}", reads(2));
        }
    }
}
