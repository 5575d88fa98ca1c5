//! Tests that each value of a run is counted once, and refused beyond a limit.
#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};
use signoff_api::{Verdict, journal::StepPhase};

use crate::{
    Control, Journal,
    journal::values::*,
    status::after,
    tests::test_run::{TestRun, chain_of, decided, gate, workflow},
    transition::End,
};

fn set(name: &str, value: &str) -> Value {
    json!({"name": name, "set": {"value": value}})
}

/// Returns a run whose values have this limit, in bytes.
fn run_with_limit(of_run: u64, steps: Value) -> TestRun {
    let values = ValueLimits { of_run, ..ValueLimits::default() };
    TestRun::with_control(chain_of(steps), Control { values, ..Control::default() })
}

fn bytes_of(run: &TestRun) -> Option<i64> {
    after(&workflow(chain_of(json!([]))), &run.plan, &run.transition, false, crate::tests::test_run::start())
        .value_bytes
}

#[test]
fn a_value_that_is_used_several_times_counts_once() {
    let long = "x".repeat(5000);
    let run =
        run_with_limit(5000, json!([set("one", &long), set("two", &long), set("three", "short"), set("last", &long)]));
    assert!(matches!(run.transition.end, Some(End::Succeeded(_))), "{:?}", run.transition.end);
    assert_eq!(bytes_of(&run), Some(5000), "the output is the same value once more");
    assert_eq!(bytes_of(&run_with_limit(0, json!([set("one", "short")]))), None);
}

#[test]
fn a_value_above_the_limit_of_the_run_fails_its_step_with_a_remedy() {
    let run =
        run_with_limit(6000, json!([set("one", &"x".repeat(5000)), set("two", &"y".repeat(5000)), set("last", "z")]));
    let record = run.record("two");
    let error = record.error.as_ref().unwrap();
    assert_eq!((record.phase, error.class.as_str()), (StepPhase::Failed, "TooLarge"));
    for expected in ["10000 bytes", "the maximum is 6000", "--max-value-bytes-per-workflow"] {
        assert!(error.message.contains(expected), "{expected} in {}", error.message);
    }
    assert!(run.expect_failure().contains("two"), "{}", run.expect_failure());
    assert_eq!(bytes_of(&run), Some(5000), "what was refused is not stored");
}

#[test]
fn a_value_above_the_rest_of_the_namespace_fails_its_step() {
    let values = ValueLimits { left_in_namespace: 4000, ..ValueLimits::default() };
    let run = TestRun::with_control(
        chain_of(json!([set("one", &"x".repeat(5000))])),
        Control { values, ..Control::default() },
    );
    let message = run.record("one").error.clone().unwrap().message;
    for expected in ["5000 bytes", "leave 4000", "delete Workflows", "--max-value-bytes-per-namespace"] {
        assert!(message.contains(expected), "{expected} in {message}");
    }
}

#[test]
fn a_gate_whose_context_exceeds_the_limit_does_not_ask() {
    let hitl = gate(json!({"contextDisplay": "x".repeat(5000)}));
    let run = run_with_limit(4999, json!([{"name": "ask", "hitl": hitl}]));
    let error = run.record("ask").error.clone().unwrap();
    assert!(error.message.contains("the maximum is 4999"), "{}", error.message);
    let run_at_limit = run_with_limit(5000, json!([{"name": "ask", "hitl": hitl}]));
    assert_eq!(run_at_limit.transition.pending.len(), 1);
    assert_eq!(bytes_of(&run_at_limit), Some(5000), "a gate's context counts while it waits, and after");
}

#[test]
fn outputs_above_the_limit_fail_the_run() {
    let mut spec = chain_of(json!([set("one", &"x".repeat(900))]));
    spec["outputs"] = json!({"from": "{% for n in range(6) %}{{ steps.one.response }}{{ n }}{% endfor %}"});
    let values = ValueLimits { of_run: 5000, ..ValueLimits::default() };
    let run = TestRun::with_control(spec, Control { values, ..Control::default() });
    let why = run.expect_failure();
    assert!(why.contains("outputs") && why.contains("the maximum is 5000"), "{why}");
    assert_eq!(bytes_of(&run), None);
}

#[test]
fn decisions_of_people_are_stored_above_the_limit() {
    let mut run =
        run_with_limit(0, json!([{"name": "ask", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Reject"]}))}]));
    run.decide("ask", signoff_api::Outcome { reason: Some("r".repeat(2000)), ..decided(Verdict::Approve) });
    let record = run.record("ask");
    assert_eq!(record.phase, StepPhase::Succeeded);
    assert!(record.decision_ref.is_some() && bytes_of(&run) > Some(2000));
}

#[test]
fn a_lower_limit_keeps_the_values_that_are_already_stored() {
    let run = run_with_limit(5000, json!([set("one", &"x".repeat(5000))]));
    let limits = ValueLimits { of_run: 10, ..ValueLimits::default() };
    let references =
        References::of(&Journal::new(run.journal.seq(), run.journal.records().iter().cloned().collect()), limits);
    let stored_text = "x".repeat(5000);
    assert_eq!(references.check_fit([stored_text.as_str()]), Ok(()));
    assert!(references.check_fit(["something else that is long enough"]).is_err());
}
