//! Tests of servers that are unreachable when a step begins: its gates still ask before anything is sent, and a skipped
//! step does not need the server.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_api::{FailureClass, Verdict, journal::StepPhase};

use super::{TOOLS, definition, digest_of_refund, fail_call, finish_listing, spec_with_step};
use crate::tests::test_run::{TestRun, decided, gate};

const START: &str = "pay/.start";

/// Returns a run of a step whose tool is pinned, with a gate before it. `more` are further fields of the step.
fn run_with_gate(more: Value) -> TestRun {
    let pins = json!({"pins": [{"tool": "refund", "definition": digest_of_refund("Refunds.")}]});
    let gates = json!([
        {"name": "sure", "type": "stepStart", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Skip"]}))},
        {"name": "help", "type": "errorEscalation", "steps": ["pay"], "hitl": gate(json!({"allowedVerdicts": ["Retry", "Abort"]}))},
    ]);
    let mut spec = spec_with_step(pins, gates);
    spec["steps"][0].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    TestRun::of(spec)
}

fn fail_listing(run: &mut TestRun, attempt: i32) {
    fail_call(run, TOOLS, attempt, FailureClass::Unreachable, BTreeMap::new());
}

fn answer_listing(run: &mut TestRun, attempt: i32) {
    run.reply(TOOLS, attempt, &json!({"tools": [definition("refund", "Refunds.")]}).to_string());
}

#[test]
fn a_retry_after_an_outage_still_asks_the_gate_before_the_step() {
    let mut run = run_with_gate(json!({"onError": "escalate", "retry": {"limit": 0}}));
    fail_listing(&mut run, 1);
    run.decide("pay/.error", decided(Verdict::Retry));
    assert_eq!(run.calls(), [".tools/crm@2"]);
    answer_listing(&mut run, 2);
    assert_eq!((run.calls(), run.open()), (Vec::new(), vec![START.to_owned()]));
    run.approve(START);
    assert_eq!(run.calls(), ["pay@2"]);
}

#[test]
fn a_gate_decides_only_about_the_attempt_that_it_asked_about() {
    for (verdict, calls) in [(Verdict::Approve, vec!["pay@2".to_owned()]), (Verdict::Skip, Vec::new())] {
        let mut run = run_with_gate(json!({"retry": {"limit": 1, "backoff": {"base": "1m", "jitter": 0}}}));
        fail_listing(&mut run, 1);
        assert_eq!((run.calls(), run.open()), (Vec::new(), Vec::new()), "it waits as `retry` says");
        run.wait(120);
        assert_eq!(run.calls(), [".tools/crm@2"]);
        answer_listing(&mut run, 2);
        assert_eq!(run.open(), [START]);
        run.decide(START, decided(verdict));
        assert_eq!((run.calls(), run.open()), (calls, Vec::new()), "{verdict:?}");
        run.wait(1);
        assert_eq!(run.journal.get("pay", 1).unwrap().phase, StepPhase::Failed);
        if verdict == Verdict::Skip {
            assert_eq!(run.record("pay").phase, StepPhase::Skipped);
        }
    }
}

#[test]
fn a_skipped_step_does_not_fail_because_of_an_outage() {
    for gates in [json!([]), json!([{"name": "sure", "type": "stepStart", "hitl": gate(json!({}))}])] {
        let pins = json!({"pins": [{"tool": "refund", "definition": digest_of_refund("Refunds.")}]});
        let mut spec = spec_with_step(pins, gates);
        spec["steps"][0]["skipIf"] = json!("inputs.customer == '7'");
        let mut run = TestRun::of(spec);
        fail_listing(&mut run, 1);
        assert_eq!(run.record("pay").phase, StepPhase::Skipped);
        assert_eq!(run.expect_success(), "");
    }
}

#[test]
fn two_tools_with_the_same_wire_name_are_not_offered() {
    let long = "a".repeat(64);
    let twin = crate::tools::names::wire(&format!("crm.{long}")).trim_start_matches("crm__").to_owned();
    let mut run = TestRun::of(super::spec(json!({}), super::gate_of_all_tools(json!({}))));
    finish_listing(
        &mut run,
        TOOLS,
        &[definition(&long, "One."), definition(&twin, "Other."), definition("refund", "Refunds.")],
    );
    assert_eq!(super::offered_tools(&run, "handle"), ["crm__refund"]);
}
