//! Tests that a stopped replay does not refuse a call that has already begun.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict};

use super::{GATE, PAY, gates, money, result, spec, turn};
use crate::{
    Fact,
    tests::test_run::{TestRun, decided, gate},
    transition::Reply,
};

const CHECK: &str = "handle/.turn-1/.call-1/.check";

/// Returns the fact that the check of a call was stopped, because it took the most time in a replay.
fn stopped_check(path: &str) -> Fact {
    Fact::TooCostly { path: path.into(), attempt: 1, why: "it took too long".into() }
}

/// Returns a run with more gates in which the tool was called. `step_fields` are added to the step of the tool.
fn run_with_call(more_gates: Value, step_fields: Value) -> TestRun {
    let mut spec = spec(gates(more_gates));
    for (field, value) in step_fields.as_object().unwrap() {
        spec["steps"][2][field] = value.clone();
    }
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run
}

/// Checks that a stopped replay with the check at `path` as its cause does not change the run.
#[track_caller]
fn assert_stop_changes_nothing(run: &mut TestRun, path: &str) {
    let (before, open, calls) = (run.journal.clone(), run.open(), run.calls());
    run.take(vec![stopped_check(path)]);
    assert_eq!(run.journal.records(), before.records(), "open: {open:?}");
    assert!(run.calls().iter().all(|call| calls.contains(call)), "{:?}", run.calls());
}

#[test]
fn a_stopped_replay_refuses_no_call_that_waits_runs_or_ran() {
    let mut run = run_with_call(json!([money()]), json!({}));
    assert_stop_changes_nothing(&mut run, CHECK);
    run.approve(GATE);
    assert_stop_changes_nothing(&mut run, CHECK);
    run.reply(PAY, 1, "paid");
    assert_stop_changes_nothing(&mut run, CHECK);
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "paid");
}

#[test]
fn a_stopped_replay_refuses_no_call_without_a_gate() {
    let mut run = run_with_call(json!([]), json!({"retry": {"limit": 1}}));
    assert_eq!(run.calls(), [format!("{PAY}@1")]);
    assert_stop_changes_nothing(&mut run, CHECK);
    run.fail(PAY, 1, true, false);
    assert_stop_changes_nothing(&mut run, CHECK);
}

#[test]
fn a_stopped_replay_refuses_no_call_at_a_gate_of_its_step() {
    let start = json!({"name": "before", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))});
    let mut run = run_with_call(json!([start]), json!({}));
    assert_eq!(run.open(), [format!("{PAY}/.start")]);
    assert_stop_changes_nothing(&mut run, CHECK);
}

#[test]
fn a_stopped_replay_keeps_the_error_result_of_a_call() {
    let mut run = TestRun::of(spec(gates(json!([money()]))));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":"much"}"#)]);
    let tool_result = result(&run, "handle/.turn-2", "c1");
    assert_stop_changes_nothing(&mut run, CHECK);
    assert_eq!(result(&run, "handle/.turn-2", "c1"), tool_result);
}

#[test]
fn a_stopped_replay_refuses_no_call_that_is_asked_about_again() {
    let errors = json!({"name": "errors", "type": "errorEscalation", "hitl": gate(json!({}))});
    let mut run = run_with_call(json!([money(), errors]), json!({}));
    run.approve(GATE);
    run.fail(PAY, 1, false, true);
    run.decide(&format!("{PAY}/.error"), decided(Verdict::Retry));
    assert_eq!(run.open(), [format!("{GATE}#2")]);
    for check in [CHECK.to_owned(), format!("{CHECK}#2")] {
        assert_stop_changes_nothing(&mut run, &check);
    }
    run.approve(&format!("{GATE}#2"));
    assert_stop_changes_nothing(&mut run, &format!("{CHECK}#2"));
}

#[test]
fn edited_arguments_that_cost_too_much_are_an_error_result() {
    let mut run = run_with_call(json!([money()]), json!({}));
    let parameters = serde_json::from_value(json!({"arguments": {"amount": 2}})).map(Some).unwrap();
    let outcome = Box::new(Outcome { parameters, ..decided(Verdict::Modify) });
    let check = format!("{CHECK}#2");
    run.take(vec![Fact::ApprovalDecided { path: GATE.into(), outcome }, stopped_check(&check)]);
    let tool_result = result(&run, "handle/.turn-2", "c1");
    assert_eq!(
        tool_result,
        "A human changed the arguments, and the changed call was refused. Error: the arguments cost too much to check: it took too long"
    );
    assert_stop_changes_nothing(&mut run, &check);
    run.reply("handle/.turn-2", 1, "done");
    assert_eq!(run.expect_success(), "done");
}

#[test]
fn a_call_beside_a_waiting_call_can_cost_too_much_to_check() {
    let mut run = TestRun::of(spec(gates(json!([money()]))));
    let calls =
        [1, 2].map(|n| json!({"id": format!("c{n}"), "tool": "refund", "arguments": format!("{{\"amount\":{n}}}")}));
    let facts = BTreeMap::from([("calls".to_owned(), "2".to_owned())]);
    let reply = Reply { response: json!({"text": "", "calls": calls}), facts, ..Reply::default() };
    let at = run.clock;
    run.take(vec![
        Fact::CallFinished { path: "handle".into(), attempt: 1, result: Ok(reply), at },
        stopped_check("handle/.turn-1/.call-2/.check"),
    ]);
    assert_eq!(run.open(), [GATE]);
    run.decide(GATE, decided(Verdict::Skip));
    assert!(result(&run, "handle/.turn-2", "c2").starts_with("Error: the arguments cost too much"));
}
