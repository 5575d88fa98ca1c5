//! Tests that a stopped replay does not fail an answer that the run has already used.

use serde_json::{Value, json};
use signoff_api::journal::StepPhase;

use crate::{
    Fact, Journal,
    tests::test_run::{TestRun, agent, chain_of, gate, hitl, in_branch, of_pattern, start, workflow},
    transition::Reply,
};

/// Returns the fact that the evaluation of an answer was stopped, because it took the most time in a replay.
fn stopped_evaluation() -> Fact {
    Fact::TooCostly { path: "rate".into(), attempt: 1, why: "it took too long".into() }
}

fn answer_of_call(path: &str, text: &str) -> Fact {
    let reply = Reply { response: json!(text), ..Reply::default() };
    Fact::CallFinished { path: path.into(), attempt: 1, result: Ok(reply), at: start() }
}

/// Returns a spec with an agent whose answer has a schema, and a gate after it. `more_gates` is the field `gates`.
fn spec(more_gates: Value) -> Value {
    let mut rate = agent("rate", "writer", "rate it");
    rate["outputSchema"] =
        json!({"type": "object", "required": ["stars"], "properties": {"stars": {"type": "integer"}}});
    let mut spec = chain_of(json!([rate, hitl("review", json!({}))]));
    spec["gates"] = more_gates;
    spec
}

fn run(more_gates: Value) -> TestRun {
    TestRun::of(spec(more_gates))
}

/// Checks that a stopped replay with this answer as its cause does not change the run.
#[track_caller]
fn assert_stop_changes_nothing(run: &mut TestRun) {
    let (before, open, calls) = (run.journal.clone(), run.open(), run.calls());
    run.take(vec![stopped_evaluation()]);
    assert_eq!(run.journal.records(), before.records(), "open: {open:?}");
    assert!(run.transition.end.is_none() || before.records().iter().all(|record| record.phase.is_end()));
    assert!(run.calls().iter().all(|call| calls.contains(call)), "{:?}", run.calls());
}

#[track_caller]
fn assert_costs_too_much(run: &mut TestRun) {
    assert!(run.expect_failure().contains("it took too long"), "{}", run.expect_failure());
    assert_eq!(run.record("rate/.answer").phase, StepPhase::Failed);
    assert_stop_changes_nothing(run);
}

#[test]
fn a_stopped_replay_does_not_fail_an_answer_that_the_next_step_uses() {
    let mut run = run(json!([]));
    run.reply("rate", 1, r#"{"stars": 3}"#);
    assert_eq!(run.open(), ["review"]);
    assert_stop_changes_nothing(&mut run);
    run.approve("review");
    assert_eq!(run.expect_success(), "approved");
    assert_stop_changes_nothing(&mut run);
}

#[test]
fn a_stopped_replay_does_not_fail_an_answer_that_was_requested_again() {
    let mut run = run(json!([]));
    run.reply("rate", 1, "good");
    assert_eq!(run.calls(), ["rate/.ask-2@1"]);
    assert_stop_changes_nothing(&mut run);
    run.reply("rate/.ask-2", 1, r#"{"stars": 3}"#);
    assert_stop_changes_nothing(&mut run);
    assert_eq!(run.open(), ["review"]);
}

#[test]
fn a_stopped_replay_does_not_fail_an_answer_at_an_output_gate() {
    let mut run =
        run(json!([{"name": "output", "type": "outputValidation", "steps": ["rate"], "hitl": gate(json!({}))}]));
    run.reply("rate", 1, r#"{"stars": 3}"#);
    assert_eq!(run.open(), ["rate/.output"]);
    assert_stop_changes_nothing(&mut run);
    run.approve("rate/.output");
    assert_eq!(run.open(), ["review"]);
    assert_stop_changes_nothing(&mut run);
}

#[test]
fn a_new_answer_can_cost_too_much() {
    let mut run = run(json!([]));
    run.take(vec![answer_of_call("rate", r#"{"stars": 3}"#), stopped_evaluation()]);
    assert_costs_too_much(&mut run);
}

#[test]
fn a_new_answer_to_a_repeated_request_can_cost_too_much() {
    let mut run = run(json!([]));
    run.reply("rate", 1, "good");
    run.take(vec![answer_of_call("rate/.ask-2", r#"{"stars": 3}"#), stopped_evaluation()]);
    assert_costs_too_much(&mut run);
}

#[test]
fn an_answer_that_was_recorded_in_quarantine_can_cost_too_much() {
    let mut run = run(json!([]));
    let spec = workflow(spec(json!([]))).spec;
    let transition = crate::advance_quarantined(
        &spec,
        run.journal.clone(),
        vec![answer_of_call("rate", r#"{"stars": 3}"#)],
        start(),
    );
    run.journal = Journal::new(transition.journal.seq(), transition.journal.records().iter().cloned().collect());
    run.take(vec![stopped_evaluation()]);
    assert_costs_too_much(&mut run);
}

#[test]
fn an_answer_beside_a_waiting_branch_can_cost_too_much() {
    let mut rate = agent("rate", "a", "rate it");
    rate["outputSchema"] = json!({"type": "object", "required": ["stars"]});
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"parallel": {}},
        "steps": [in_branch("a", rate), in_branch("b", hitl("ask", json!({})))],
    })));
    assert_eq!(run.open(), ["b/ask"]);
    let stopped_in_branch = Fact::TooCostly { path: "a/rate".into(), attempt: 1, why: "it took too long".into() };
    run.take(vec![answer_of_call("a/rate", r#"{"stars": 3}"#), stopped_in_branch]);
    assert_eq!(run.record("a/rate/.answer").phase, StepPhase::Failed);
}
