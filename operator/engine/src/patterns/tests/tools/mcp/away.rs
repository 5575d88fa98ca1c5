//! Tests of servers that are unreachable when a step begins: its gates still ask before anything is sent, and a skipped
//! step does not need the server.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_api::{FailureClass, Verdict, journal::StepPhase};

use super::{TOOLS, definition, fails, lists, refund, step};
use crate::tests::test_run::{TestRun, decided, gate};

const START: &str = "pay/.start";

/// Returns a run of a step whose tool is pinned, with a gate before it. `more` are further fields of the step.
fn gated(more: Value) -> TestRun {
    let pins = json!({"pins": [{"tool": "refund", "definition": refund("Refunds.")}]});
    let gates = json!([
        {"name": "sure", "type": "stepStart", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Skip"]}))},
        {"name": "help", "type": "errorEscalation", "steps": ["pay"], "hitl": gate(json!({"allowedVerdicts": ["Retry", "Abort"]}))},
    ]);
    let mut spec = step(pins, gates);
    spec["steps"][0].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    TestRun::of(spec)
}

fn is_away(run: &mut TestRun, attempt: i32) {
    fails(run, TOOLS, attempt, FailureClass::Unreachable, BTreeMap::new());
}

fn is_back(run: &mut TestRun, attempt: i32) {
    run.reply(TOOLS, attempt, &json!({"tools": [definition("refund", "Refunds.")]}).to_string());
}

#[test]
fn a_retry_after_a_server_was_away_does_not_pass_the_gate_that_could_not_ask() {
    let mut run = gated(json!({"onError": "escalate", "retry": {"limit": 0}}));
    is_away(&mut run, 1);
    run.decide("pay/.error", decided(Verdict::Retry));
    assert_eq!(run.calls(), [".tools/crm@2"]);
    is_back(&mut run, 2);
    assert_eq!((run.calls(), run.open()), (Vec::new(), vec![START.to_owned()]));
    run.approve(START);
    assert_eq!(run.calls(), ["pay@2"]);
}

#[test]
fn a_gate_that_asks_about_a_further_attempt_is_not_taken_for_one_of_the_attempt_that_failed() {
    for (verdict, calls) in [(Verdict::Approve, vec!["pay@2".to_owned()]), (Verdict::Skip, Vec::new())] {
        let mut run = gated(json!({"retry": {"limit": 1, "backoff": {"base": "1m", "jitter": 0}}}));
        is_away(&mut run, 1);
        assert_eq!((run.calls(), run.open()), (Vec::new(), Vec::new()), "it waits as `retry` says");
        run.later(120);
        assert_eq!(run.calls(), [".tools/crm@2"]);
        is_back(&mut run, 2);
        assert_eq!(run.open(), [START]);
        run.decide(START, decided(verdict));
        assert_eq!((run.calls(), run.open()), (calls, Vec::new()), "{verdict:?}");
        run.later(1);
        assert_eq!(run.journal.get("pay", 1).unwrap().phase, StepPhase::Failed);
        if verdict == Verdict::Skip {
            assert_eq!(run.record("pay").phase, StepPhase::Skipped);
        }
    }
}

#[test]
fn a_step_that_its_condition_leaves_out_does_not_fail_because_its_server_is_away() {
    for gates in [json!([]), json!([{"name": "sure", "type": "stepStart", "hitl": gate(json!({}))}])] {
        let pins = json!({"pins": [{"tool": "refund", "definition": refund("Refunds.")}]});
        let mut spec = step(pins, gates);
        spec["steps"][0]["skipIf"] = json!("inputs.customer == '7'");
        let mut run = TestRun::of(spec);
        is_away(&mut run, 1);
        assert_eq!(run.record("pay").phase, StepPhase::Skipped);
        assert_eq!(run.succeeded(), "");
    }
}

#[test]
fn two_tools_that_a_model_could_not_tell_apart_are_not_offered() {
    let long = "a".repeat(64);
    let twin = crate::tools::names::wire(&format!("crm.{long}")).trim_start_matches("crm__").to_owned();
    let mut run = TestRun::of(super::spec(json!({}), super::asks(json!({}))));
    lists(&mut run, TOOLS, &[definition(&long, "One."), definition(&twin, "Other."), definition("refund", "Refunds.")]);
    assert_eq!(super::offered(&run, "handle"), ["crm__refund"]);
}
