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
fn within(of_run: u64, steps: Value) -> TestRun {
    let values = ValueLimits { of_run, ..ValueLimits::default() };
    TestRun::under(chain_of(steps), Control { values, ..Control::default() })
}

fn bytes_of(run: &TestRun) -> Option<i64> {
    after(&workflow(chain_of(json!([]))), &run.plan, &run.transition, false, crate::tests::test_run::start())
        .value_bytes
}

#[test]
fn each_value_counts_once_however_often_it_is_referred_to() {
    let long = "x".repeat(5000);
    let run = within(5000, json!([set("one", &long), set("two", &long), set("three", "short"), set("last", &long)]));
    assert!(matches!(run.transition.end, Some(End::Succeeded(_))), "{:?}", run.transition.end);
    assert_eq!(bytes_of(&run), Some(5000), "the output is the same value once more");
    assert_eq!(bytes_of(&within(0, json!([set("one", "short")]))), None);
}

#[test]
fn a_value_for_which_there_is_no_room_fails_its_step_and_says_what_to_do() {
    let run = within(6000, json!([set("one", &"x".repeat(5000)), set("two", &"y".repeat(5000)), set("last", "z")]));
    let record = run.record("two");
    let error = record.error.as_ref().unwrap();
    assert_eq!((record.phase, error.class.as_str()), (StepPhase::Failed, "TooLarge"));
    for words in ["10000 bytes", "the maximum is 6000", "--max-value-bytes-per-workflow"] {
        assert!(error.message.contains(words), "{words} in {}", error.message);
    }
    assert!(run.failed().contains("two"), "{}", run.failed());
    assert_eq!(bytes_of(&run), Some(5000), "what was refused is not stored");
}

#[test]
fn what_the_other_runs_of_the_namespace_leave_is_a_limit_too() {
    let values = ValueLimits { left_in_namespace: 4000, ..ValueLimits::default() };
    let run =
        TestRun::under(chain_of(json!([set("one", &"x".repeat(5000))])), Control { values, ..Control::default() });
    let message = run.record("one").error.clone().unwrap().message;
    for words in ["5000 bytes", "leave 4000", "delete Workflows", "--max-value-bytes-per-namespace"] {
        assert!(message.contains(words), "{words} in {message}");
    }
}

#[test]
fn a_gate_whose_context_has_no_room_does_not_ask() {
    let shown = gate(json!({"contextDisplay": "x".repeat(5000)}));
    let run = within(4999, json!([{"name": "ask", "hitl": shown}]));
    let error = run.record("ask").error.clone().unwrap();
    assert!(error.message.contains("the maximum is 4999"), "{}", error.message);
    let fits = within(5000, json!([{"name": "ask", "hitl": shown}]));
    assert_eq!(fits.transition.pending.len(), 1);
    assert_eq!(bytes_of(&fits), Some(5000), "a gate's context counts while it waits, and after");
}

#[test]
fn outputs_for_which_there_is_no_room_fail_the_run() {
    let mut spec = chain_of(json!([set("one", &"x".repeat(900))]));
    spec["outputs"] = json!({"from": "{% for n in range(6) %}{{ steps.one.response }}{{ n }}{% endfor %}"});
    let values = ValueLimits { of_run: 5000, ..ValueLimits::default() };
    let run = TestRun::under(spec, Control { values, ..Control::default() });
    let why = run.failed();
    assert!(why.contains("outputs") && why.contains("the maximum is 5000"), "{why}");
    assert_eq!(bytes_of(&run), None);
}

#[test]
fn what_people_decided_is_kept_whatever_room_there_is() {
    let mut run = within(0, json!([{"name": "ask", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Reject"]}))}]));
    run.decide("ask", signoff_api::Outcome { reason: Some("r".repeat(2000)), ..decided(Verdict::Approve) });
    let record = run.record("ask");
    assert_eq!(record.phase, StepPhase::Succeeded);
    assert!(record.decision_ref.is_some() && bytes_of(&run) > Some(2000));
}

#[test]
fn a_lower_limit_takes_nothing_from_a_run() {
    let run = within(5000, json!([set("one", &"x".repeat(5000))]));
    let limits = ValueLimits { of_run: 10, ..ValueLimits::default() };
    let known =
        References::of(&Journal::new(run.journal.seq(), run.journal.records().iter().cloned().collect()), limits);
    let same = "x".repeat(5000);
    assert_eq!(known.check_fit([same.as_str()]), Ok(()));
    assert!(known.check_fit(["something else that is long enough"]).is_err());
}
