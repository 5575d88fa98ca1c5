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

/// The maximum size of a Workflow in all tests of this file, in bytes.
const MAX_OBJECT_BYTES: usize = 384 * 1024;

/// A run with all that it has stored, and the size of its largest state.
struct GrowingRun {
    workflow: Workflow,
    plan: Plan,
    transition: Transition,
    segments: Segments,
    blobs: Blobs,
    /// The size of the largest Workflow that was stored, in bytes.
    object: usize,
}

impl GrowingRun {
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

    /// Stores the transition, reads it as the next reconcile does, and computes the next transition with these facts.
    fn commit_and_advance(&mut self, facts: Vec<Fact>) {
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

    /// Returns the results of at most `maximum` calls in flight.
    fn results(&self, maximum: usize) -> Vec<Fact> {
        let reply = Reply { response: "what came of it, in some words".repeat(10).into(), ..Reply::default() };
        let calls = self.transition.commands.iter().filter_map(|command| match command {
            Command::Call(call) => Some(&**call),
            Command::Ask(_) => None,
        });
        let finish = |call: &crate::transition::Call| Fact::CallFinished {
            path: call.path.clone(),
            attempt: call.attempt,
            result: Ok(reply.clone()),
            at: Moment::from(jiff::Timestamp::UNIX_EPOCH),
        };
        calls.take(maximum).map(finish).collect()
    }

    /// Runs to the end, and returns the number of records.
    fn finish(&mut self) -> usize {
        while self.transition.end.is_none() {
            let results = self.results(usize::MAX);
            assert!(!results.is_empty(), "nothing is under way: {:?}", self.transition.phase);
            self.commit_and_advance(results);
        }
        self.commit_and_advance(Vec::new());
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
    let branch_steps = (0..branches).flat_map(|branch| (0..steps).map(move |at| step(branch, at)));
    json!({"pattern": {"parallel": {}}, "steps": branch_steps.collect::<Vec<_>>()})
}

/// Returns a graph in which two nodes lead to each other, until `visits` steps have run.
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
fn assert_stays_small(spec: &Value, records: usize) {
    let mut run = GrowingRun::begin(spec);
    let number_of_records = run.finish();
    assert!(number_of_records >= records, "{number_of_records} records");
    assert!(run.object < MAX_OBJECT_BYTES, "{} bytes of object", run.object);
    assert!(
        !run.transition.journal.segments().is_empty(),
        "{number_of_records} records in one object: this tests nothing"
    );
}

#[test]
fn a_chain_of_a_thousand_steps_stays_small() {
    assert_stays_small(&chain((0..1000).map(set)), 1000);
}

#[test]
fn a_hundred_branches_of_ten_steps_stay_small() {
    assert_stays_small(&parallel(100, 10), 1000);
}

#[test]
fn a_graph_at_its_most_steps_stays_small() {
    assert_stays_small(&graph(1000), 1000);
}

#[test]
fn many_open_records_do_not_lead_to_many_segments() {
    let mut spec = parallel(128, 8);
    spec["pattern"] = json!({"parallel": {"maxParallel": 128}});
    let mut run = GrowingRun::begin(&spec);
    let mut turns = 0;
    while run.transition.end.is_none() {
        let results = run.results(1);
        assert_eq!(results.len(), 1, "one result to take in");
        run.commit_and_advance(results);
        turns += 1;
    }
    let segments = run.transition.journal.segments();
    assert_eq!(turns, 1024);
    assert!((2..=32).contains(&segments.len()), "{} segments", segments.len());
}

/// Returns the number of records of a run after `turns` transitions, and the number of records that the next transition
/// with one result reads.
fn count_read_records(spec: &Value, turns: usize) -> (usize, usize) {
    let mut run = GrowingRun::begin(spec);
    (0..turns).for_each(|_| run.commit_and_advance(run.results(usize::MAX)));
    let journal = Journal::new(run.transition.journal.seq(), run.transition.journal.records().to_vec());
    let facts = run.results(1);
    assert_eq!(facts.len(), 1, "one result to take in");
    let records = journal.records().len();
    let (_, read_records) = reads::of(|| take(&run.plan, journal, facts, &run.blobs));
    (records, read_records)
}

#[test]
fn a_transition_of_a_chain_reads_each_record_at_most_12_times() {
    for steps in [10, 100, 1000] {
        let spec = chain((0..steps).map(set).chain([call(steps), call(steps + 1)]));
        let (records, read_records) = count_read_records(&spec, 0);
        assert_eq!(records, steps + 1);
        assert!(read_records <= 12 * records, "{read_records} looks at {records} records");
    }
}

#[test]
fn a_transition_of_branches_reads_each_record_at_most_24_times() {
    for branches in [10, 100] {
        let (records, read_records) = count_read_records(&parallel(branches, 10), 5);
        assert_eq!(records, branches * 6);
        assert!(read_records <= 24 * records, "{read_records} looks at {records} records");
    }
}

#[test]
fn the_reads_of_a_transition_grow_linearly_with_the_branches() {
    // Each branch has its own scope: ten times the branches are ten times the work, not a hundred times.
    let counts = [10, 100].map(|branches| reads::of(|| GrowingRun::begin(&parallel(branches, 4))).1);
    assert!(counts[1] <= 12 * counts[0], "{counts:?}");
}

/// Returns a chain of `steps` texts, each of which renders the expression `read_before(position)`. After the first text
/// it can be edited at the gate `edit`, and after the last text the gate `last` asks about it.
fn chain_of_texts(steps: usize, read_before: impl Fn(usize) -> String) -> Value {
    let hitl =
        |reviews: &str| json!({"reviews": reviews, "prompt": "?", "approvers": [{"kind": "User", "name": "bob"}]});
    let text = |position: usize| {
        let value = format!("{{{{ {} }}}}", read_before(position));
        json!({"name": format!("step-{position}"), "set": {"value": value}})
    };
    let mut all_steps =
        vec![json!({"name": "step-0", "set": {"value": "x"}}), json!({"name": "edit", "hitl": hitl("step-0")})];
    all_steps.extend((1..steps).map(text));
    all_steps.push(json!({"name": "call", "http": {"url": "http://x/"}}));
    all_steps.push(json!({"name": "last", "hitl": hitl(&format!("step-{}", steps - 1))}));
    chain(all_steps)
}

/// Edits the first text of a chain of texts at the gate `edit`.
fn edit_first_text(run: &mut GrowingRun) {
    let outcome = Outcome {
        parameters: Some(serde_json::from_value(json!({"response": "y"})).unwrap()),
        decided_by: vec!["bob".to_owned()],
        ..decided(Verdict::Modify)
    };
    run.commit_and_advance(vec![Fact::ApprovalDecided { path: "edit".into(), outcome: Box::new(outcome) }]);
}

/// Returns the number of records of a run of a chain of texts, and the number of records that the transition reads in
/// which the last gate asks.
fn count_records_read_for_gate(steps: usize, read_before: impl Fn(usize) -> String) -> (usize, usize) {
    let mut run = GrowingRun::begin(&chain_of_texts(steps, read_before));
    edit_first_text(&mut run);
    let journal = Journal::new(run.transition.journal.seq(), run.transition.journal.records().to_vec());
    let (facts, records) = (run.results(1), journal.records().len());
    let (transition, read_records) = reads::of(|| take(&run.plan, journal, facts, &run.blobs));
    let [Command::Ask(ask)] = transition.commands.as_slice() else { panic!("{:?}", transition.commands) };
    assert_eq!(ask.request.reviews.as_ref().unwrap().by.len(), 1, "the edit is found at the other end");
    (records, read_records)
}

#[test]
fn a_gate_about_a_chain_of_texts_reads_each_record_at_most_48_times() {
    let expressions: [fn(usize) -> String; 4] = [
        |at| format!("steps['step-{}'].response", at - 1),
        // The step after the first text is the gate about it, so the second text skips that gate.
        |at| if at == 1 { "steps[0].response".into() } else { format!("steps[{at}].response") },
        |at| if at == 1 { "steps[-2].response".into() } else { "steps[-1].response".into() },
        |at| if at == 1 { "hitl.parameters.response".into() } else { "last_response".into() },
    ];
    for read_before in expressions {
        for steps in [10, 100, 1000] {
            let (records, read_records) = count_records_read_for_gate(steps, read_before);
            assert!(read_records <= 48 * records, "{read_records} looks at {records} records: {}", read_before(2));
        }
    }
}
