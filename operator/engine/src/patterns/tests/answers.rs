//! Tests of answers on which a run has already continued: a later stopped replay does not make them too costly.

use serde_json::{Value, json};
use signoff_api::journal::StepPhase;

use crate::{
    Fact, Journal,
    tests::test_run::{TestRun, agent, chain_of, gate, hitl, in_branch, of_pattern, start, workflow},
    transition::Reply,
};

/// Returns the fact that the evaluation of an answer was stopped, because it took the most time in a replay.
fn stopped() -> Fact {
    Fact::TooCostly { path: "rate".into(), attempt: 1, why: "it took too long".into() }
}

fn answered(path: &str, text: &str) -> Fact {
    let reply = Reply { response: json!(text), ..Reply::default() };
    Fact::CallFinished { path: path.into(), attempt: 1, result: Ok(reply), at: start() }
}

/// Returns a spec with an agent whose answer has a schema, and a gate after it. `more` are gates of the run.
fn spec(more: Value) -> Value {
    let mut rate = agent("rate", "writer", "rate it");
    rate["outputSchema"] =
        json!({"type": "object", "required": ["stars"], "properties": {"stars": {"type": "integer"}}});
    let mut spec = chain_of(json!([rate, hitl("review", json!({}))]));
    spec["gates"] = more;
    spec
}

fn run(more: Value) -> TestRun {
    TestRun::of(spec(more))
}

/// Checks that a stopped replay with this answer as its cause does not change the run.
#[track_caller]
fn changes_nothing(run: &mut TestRun) {
    let (before, open, calls) = (run.journal.clone(), run.open(), run.calls());
    run.take(vec![stopped()]);
    assert_eq!(run.journal.records(), before.records(), "open: {open:?}");
    assert!(run.transition.end.is_none() || before.records().iter().all(|record| record.phase.is_end()));
    assert!(run.calls().iter().all(|call| calls.contains(call)), "{:?}", run.calls());
}

#[track_caller]
fn costs_too_much(run: &mut TestRun) {
    assert!(run.failed().contains("it took too long"), "{}", run.failed());
    assert_eq!(run.record("rate/.answer").phase, StepPhase::Failed);
    changes_nothing(run);
}

#[test]
fn an_answer_that_the_next_step_rests_on_does_not_fail_because_a_replay_was_stopped() {
    let mut run = run(json!([]));
    run.reply("rate", 1, r#"{"stars": 3}"#);
    assert_eq!(run.open(), ["review"]);
    changes_nothing(&mut run);
    run.approve("review");
    assert_eq!(run.succeeded(), "approved");
    changes_nothing(&mut run);
}

#[test]
fn an_answer_that_was_requested_again_does_not_fail_because_a_replay_was_stopped() {
    let mut run = run(json!([]));
    run.reply("rate", 1, "good");
    assert_eq!(run.calls(), ["rate/.ask-2@1"]);
    changes_nothing(&mut run);
    run.reply("rate/.ask-2", 1, r#"{"stars": 3}"#);
    changes_nothing(&mut run);
    assert_eq!(run.open(), ["review"]);
}

#[test]
fn an_answer_that_people_are_asked_about_does_not_fail_because_a_replay_was_stopped() {
    let mut run =
        run(json!([{"name": "output", "type": "outputValidation", "steps": ["rate"], "hitl": gate(json!({}))}]));
    run.reply("rate", 1, r#"{"stars": 3}"#);
    assert_eq!(run.open(), ["rate/.output"]);
    changes_nothing(&mut run);
    run.approve("rate/.output");
    assert_eq!(run.open(), ["review"]);
    changes_nothing(&mut run);
}

#[test]
fn an_answer_that_was_just_given_can_cost_too_much() {
    let mut run = run(json!([]));
    run.take(vec![answered("rate", r#"{"stars": 3}"#), stopped()]);
    costs_too_much(&mut run);
}

#[test]
fn an_answer_that_was_just_given_again_can_cost_too_much() {
    let mut run = run(json!([]));
    run.reply("rate", 1, "good");
    run.take(vec![answered("rate/.ask-2", r#"{"stars": 3}"#), stopped()]);
    costs_too_much(&mut run);
}

#[test]
fn an_answer_that_was_recorded_in_quarantine_can_cost_too_much() {
    let mut run = run(json!([]));
    let spec = workflow(spec(json!([]))).spec;
    let recorded =
        crate::advance_quarantined(&spec, run.journal.clone(), vec![answered("rate", r#"{"stars": 3}"#)], start());
    run.journal = Journal::new(recorded.journal.seq(), recorded.journal.records().iter().cloned().collect());
    run.take(vec![stopped()]);
    costs_too_much(&mut run);
}

#[test]
fn an_answer_beside_a_branch_that_waits_can_cost_too_much() {
    let mut rate = agent("rate", "a", "rate it");
    rate["outputSchema"] = json!({"type": "object", "required": ["stars"]});
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"parallel": {}},
        "steps": [in_branch("a", rate), in_branch("b", hitl("ask", json!({})))],
    })));
    assert_eq!(run.open(), ["b/ask"]);
    let why = Fact::TooCostly { path: "a/rate".into(), attempt: 1, why: "it took too long".into() };
    run.take(vec![answered("a/rate", r#"{"stars": 3}"#), why]);
    assert_eq!(run.record("a/rate/.answer").phase, StepPhase::Failed);
}
