//! The gates in the lines after an approval, compared with the gates at which the engine then asks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signoff_api::{
    approval::ApprovalPhase,
    journal::{StepKind, StepRecord},
};
use signoff_engine::{
    Control, Fact, Journal, Now, Transition, advance,
    transition::{Ask, Blobs, Command, Reply},
};

use super::*;
use crate::sample;

/// A run in which every gate is approved and every call succeeds.
struct Replay {
    workflow: Workflow,
    journal: Journal,
    blobs: Blobs,
    /// The requests without a decision, the oldest first.
    open: Vec<Ask>,
    asked: BTreeSet<String>,
    /// The gates whose lines said that they ask in any case.
    certain: BTreeSet<String>,
}

impl Replay {
    fn new(mut spec: Value, added: &[Value]) -> Self {
        spec["requestedBy"] = json!("dana@example.com");
        spec["inputs"] = json!([{"name": "a", "value": "x"}]);
        spec["providers"] = json!([{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}]);
        let agents = ["writer", "critic", "lead", "clerk"].map(|name| json!({"name": name, "system": "be brief"}));
        spec["agents"] = json!(agents);
        let workflow = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "w", "namespace": "n", "uid": "6f1c3e5a-0000-4000-8000-000000000001"}, "spec": spec,
            "status": {"addedSteps": added}});
        let mut workflow: Workflow = serde_json::from_value(workflow).unwrap();
        workflow.status.as_mut().unwrap().spec_digest = Some(spec_digest(&workflow.spec).unwrap());
        let (asked, certain) = (BTreeSet::new(), BTreeSet::new());
        Self { workflow, journal: Journal::default(), blobs: Blobs::new(), open: Vec::new(), asked, certain }
    }

    /// Applies facts and commits the transition.
    fn take(&mut self, facts: Vec<Fact>) -> Transition {
        let plan = Plan::of(&self.workflow, &Settings::default(), &Arc::default());
        let plan = plan.unwrap_or_else(|why| panic!("{why:?}"));
        let now = Now::new(sample::now(), "epoch");
        let transition = advance(&plan, Control::default(), self.journal.clone(), facts, &self.blobs, &now);
        assert!(transition.missing.is_empty());
        self.blobs.extend(transition.blobs.iter().cloned());
        let records = serde_json::to_value(transition.journal.records()).unwrap();
        let records: Vec<StepRecord> = serde_json::from_value(records).unwrap();
        self.journal = Journal::new(transition.journal.seq(), records);
        transition
    }

    /// Lets calls succeed until people are asked or the run has ended, and returns whether it has ended.
    fn run_calls(&mut self, facts: Vec<Fact>) -> bool {
        let mut facts = facts;
        loop {
            let transition = self.take(facts);
            for command in &transition.commands {
                if let Command::Ask(ask) = command {
                    self.asked.insert(ask.request.gate.name.clone());
                    self.open.push((**ask).clone());
                }
            }
            if transition.end.is_some() {
                return true;
            }
            let calls = self.journal.records().iter().filter(|record| !record.phase.is_end());
            facts = calls.filter(|record| record.kind != StepKind::Hitl).map(succeed).collect();
            if facts.is_empty() {
                return false;
            }
        }
    }

    /// Approves one gate after the other, and fails if the lines of a gate did not name the gate that asks next.
    fn approve_all(mut self) -> BTreeSet<String> {
        let mut has_ended = self.run_calls(Vec::new());
        let mut rounds = 0;
        while !has_ended {
            rounds += 1;
            assert!(rounds < 50, "it asks for ever: {:?}", self.asked);
            let ask = self.open.remove(0);
            let planned = PlannedRun::of(&self.workflow).expect("a plan");
            let lines = lines(&ask.request, Some(&planned), Verdict::Approve);
            let listed = gates_in(&lines);
            drop(planned);
            let before = self.open.len();
            let outcome = Outcome {
                verdict: Some(Verdict::Approve),
                phase: ApprovalPhase::of(Verdict::Approve),
                decided_by: vec!["alice".to_owned()],
                decided_at: Some(sample::now()),
                ..Outcome::default()
            };
            let path = ask.path.clone();
            has_ended = self.run_calls(vec![Fact::ApprovalDecided { path, outcome: Box::new(outcome) }]);
            let next = self.open.get(before..).unwrap_or_default().iter().map(|ask| ask.request.gate.name.clone());
            for next in next {
                let is_listed = listed.iter().any(|(name, _)| *name == next) || lines.contains(&OPEN.to_owned());
                assert!(is_listed, "{} is approved, gate {next} asks, and that was not told: {lines:#?}", ask.path);
            }
            self.certain.extend(listed.into_iter().filter(|(_, is_certain)| *is_certain).map(|(name, _)| name));
        }
        let missing: Vec<_> = self.certain.difference(&self.asked).collect();
        assert!(missing.is_empty(), "told for certain, and not asked: {missing:?}");
        self.asked
    }
}

/// Returns the fact that a call succeeded with an answer that its place in a pattern can read.
fn succeed(record: &StepRecord) -> Fact {
    let place = RecordPath::new(&record.path).place();
    let text = match &*place {
        ".router" => r#"{"route": "left"}"#,
        ".evaluator" => r#"{"score": 10}"#,
        ".orchestrator" => r#"[{"task": "one"}, {"task": "two"}]"#,
        _ => "done",
    };
    let reply = Reply { response: json!(text), ..Reply::default() };
    Fact::CallFinished { path: record.path.clone(), attempt: record.attempt, result: Ok(reply), at: sample::now() }
}

/// Returns the gates in lines, each with whether it asks in any case.
fn gates_in(lines: &[String]) -> Vec<(String, bool)> {
    let parts = lines.iter().flat_map(|line| line.split("gate ").skip(1));
    let gate = |part: &str| {
        let name = part.split(' ').next().unwrap_or_default().to_owned();
        let (sure, open) = (part.find(" asks "), part.find(" may ask "));
        Some((name, sure.is_some_and(|sure| open.is_none_or(|open| sure < open)))).filter(|_| sure.or(open).is_some())
    };
    parts.filter_map(gate).collect()
}

fn gate(name: &str, fields: &Value) -> Value {
    let approvers = json!([{"kind": "User", "name": "alice"}]);
    let mut step = json!({"name": name, "hitl": {"prompt": "Go on?", "approvers": approvers}});
    fields.as_object().unwrap().iter().for_each(|(field, value)| step[field] = value.clone());
    step
}

fn policy_gates() -> Vec<Value> {
    let place = |name: &str, field: &str, value: Value| json!({"source": "ClusterApprovalPolicy prod", "step": with_field(ask(name), field, value)});
    vec![
        place("intake", "at", json!("Start")),
        place("second", "at", json!("Start")),
        place("guard", "before", json!({"kinds": ["egress"]})),
        place("watch", "before", json!({"kinds": ["http"]})),
        place("exit", "at", json!("End")),
    ]
}

fn call(name: &str) -> Value {
    json!({"name": name, "http": {"url": format!("http://{name}.svc/run")}})
}

fn turn(name: &str) -> Value {
    json!({"name": name, "agent": {"name": "writer", "input": "x"}})
}

fn text(name: &str) -> Value {
    json!({"name": name, "set": {"value": "x"}})
}

fn with_field(mut step: Value, field: &str, value: Value) -> Value {
    step[field] = value;
    step
}

fn ask(name: &str) -> Value {
    gate(name, &json!({}))
}

/// Returns gates by type: before the call of `apply`, about the answer of `draft`, and before the result is published.
/// `condition`: the condition of the first two.
fn typed_gates(condition: Option<&str>) -> Value {
    let typed = |name: &str, type_: &str, steps: Value| {
        let gate = gate(name, &json!({"type": type_, "steps": steps}));
        condition.map_or(gate.clone(), |condition| with_field(gate, "condition", json!(condition)))
    };
    let release = gate("release", &json!({"type": "finalResponse"}));
    json!([typed("look", "stepStart", json!(["apply"])), typed("read", "outputValidation", json!(["draft"])), release])
}

#[track_caller]
fn assert_gates_asked(spec: Value, added: &[Value], expected: &[&str]) {
    let asked = Replay::new(spec, added).approve_all();
    let expected: BTreeSet<String> = expected.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(asked, expected);
}

#[test]
fn every_gate_of_a_chain_is_listed_before_it_asks() {
    let steps = json!([turn("draft"), ask("review"), text("note"), call("apply"), ask("after"), call("last")]);
    let own = ["review", "after"];
    assert_gates_asked(json!({"steps": steps}), &[], &own);
    let typed = ["review", "after", "look", "read", "release"];
    assert_gates_asked(json!({"steps": steps, "gates": typed_gates(None)}), &[], &typed);
    assert_gates_asked(json!({"steps": steps, "gates": typed_gates(Some("inputs.a == 'x'"))}), &[], &typed);
    let untyped = ["review", "after", "release"];
    assert_gates_asked(json!({"steps": steps, "gates": typed_gates(Some("inputs.a == 'y'"))}), &[], &untyped);
    let guards = ["guard-draft", "guard-apply", "watch-apply", "guard-last", "watch-last"];
    let all = [typed.as_slice(), &guards, &["intake", "second", "exit"]].concat();
    assert_gates_asked(json!({"steps": steps, "gates": typed_gates(None)}), &policy_gates(), &all);
}

#[test]
fn a_step_that_its_condition_leaves_out_is_not_asked_about() {
    let skipped = with_field(call("apply"), "skipIf", json!("inputs.a == 'x'"));
    let gated = with_field(ask("maybe"), "skipIf", json!("inputs.a == 'x'"));
    let steps = json!([turn("draft"), ask("review"), skipped, gated, ask("after")]);
    let expected = ["intake", "second", "guard-draft", "read", "review", "after", "release", "exit"];
    assert_gates_asked(json!({"steps": steps, "gates": typed_gates(None)}), &policy_gates(), &expected);
}

#[test]
fn every_gate_of_branches_a_dag_and_a_graph_is_listed_before_it_asks() {
    let release = json!([gate("release", &json!({"type": "finalResponse"}))]);
    let in_branch = |branch: &str, step: Value| with_field(step, "branch", json!(branch));
    let steps = json!([
        in_branch("left", ask("review")),
        in_branch("left", call("more")),
        in_branch("right", text("other")),
        call("merge"),
    ]);
    let parallel = json!({"pattern": {"parallel": {"reduce": "merge"}}, "steps": steps, "gates": release});
    let before = ["guard-more", "watch-more", "guard-merge", "watch-merge"];
    let ends = ["intake", "second", "review", "release", "exit"];
    assert_gates_asked(parallel, &policy_gates(), &[before.as_slice(), &ends].concat());

    let after = with_field(call("apply"), "dependsOn", json!(["review"]));
    let dag = json!({"pattern": {"dag": {}}, "steps": [text("draft"), ask("review"), after], "gates": release});
    assert_gates_asked(dag, &policy_gates(), &[["guard-apply", "watch-apply"].as_slice(), &ends].concat());

    let edges = json!([{"from": "draft", "to": "review"},
        {"from": "review", "choose": [{"when": "inputs.a == 'x'", "to": "apply"}, {"when": "else", "to": "draft"}]}]);
    let steps = json!([text("draft"), ask("review"), call("apply")]);
    let graph = json!({"pattern": {"graph": {"edges": edges}}, "steps": steps, "gates": release});
    assert_gates_asked(graph, &policy_gates(), &[["guard-apply", "watch-apply"].as_slice(), &ends].concat());
}

#[test]
fn every_gate_between_the_agents_of_a_pattern_is_listed_before_it_asks() {
    let in_branch = |branch: &str, step: Value| with_field(step, "branch", json!(branch));
    let router = json!({"agent": "clerk", "input": "which?", "review": "route"});
    let steps = json!([in_branch("left", call("more")), in_branch("right", text("other"))]);
    let spec = json!({"pattern": {"routing": {"router": router}}, "steps": steps, "gates": [ask("route")]});
    assert_gates_asked(spec.clone(), &[], &["route"]);
    let guards = ["intake", "second", "guard-router", "route", "guard-more", "watch-more", "exit"];
    assert_gates_asked(spec, &policy_gates(), &guards);

    let drafts = json!({"producer": "writer", "evaluator": {"agent": "critic"}, "reviewGate": "look"});
    let spec = json!({"pattern": {"evaluatorOptimizer": drafts}, "gates": [ask("look")]});
    assert_gates_asked(
        spec,
        &policy_gates(),
        &["intake", "second", "guard-producer", "guard-evaluator", "look", "exit"],
    );

    let parts = json!({"orchestrator": {"agent": "lead"}, "worker": {"agent": "clerk"}, "decompositionReview": "parts",
        "reduceReview": "look", "reduce": "merge"});
    for condition in ["inputs.a == 'x'", "inputs.a == 'y'"] {
        let look = with_field(ask("look"), "condition", json!(condition));
        let pattern = json!({"orchestratorWorkers": parts});
        let spec = json!({"pattern": pattern, "steps": [call("merge")], "gates": [ask("parts"), look]});
        let mut all = vec!["intake", "second", "guard-orchestrator", "parts", "guard-worker", "exit"];
        all.extend(["guard-merge", "watch-merge"]);
        all.extend((condition == "inputs.a == 'x'").then_some("look"));
        assert_gates_asked(spec, &policy_gates(), &all);
    }
}
