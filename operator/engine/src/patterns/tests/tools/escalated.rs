//! Tests of a tool with three rejected calls: the fourth call is escalated to the gate about failures, with quorums at
//! least as strong as those of the gates before.

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, approval::Source, gate::GateType};

use super::{gates, money, result, run, spec, turn};
use crate::{
    End,
    tests::test_run::{TestRun, decided, gate},
};

const ERROR_GATE: &str = "handle/.turn-4/.call-1/.error";
const GATE: &str = "handle/.turn-4/.call-1/.gate";

fn error_gate(more: Value) -> Value {
    let mut hitl = json!({"allowedVerdicts": ["Retry", "Skip", "Defer", "Respond", "Reject", "Abort"], "approvers": [{"kind": "User", "name": "olga"}]});
    for (key, value) in more.as_object().unwrap() {
        hitl[key] = value.clone();
    }
    json!({"name": "help", "type": "errorEscalation", "hitl": gate(hitl)})
}

/// Calls the tool `refund` in the turn `number`, with `number` as the amount.
fn call_refund(run: &mut TestRun, number: i32) {
    let path = if number == 1 { "handle".to_owned() } else { format!("handle/.turn-{number}") };
    turn(run, &path, &[(&format!("c{number}"), "refund", &format!(r#"{{"amount":{number}}}"#))]);
}

/// Returns a run in which three calls of the tool were rejected and the agent makes a fourth.
fn run_with_three_rejects(more: Value) -> TestRun {
    let mut run = run(more);
    for number in 1..=3 {
        call_refund(&mut run, number);
        run.decide(&format!("handle/.turn-{number}/.call-1/.gate"), decided(Verdict::Reject));
    }
    call_refund(&mut run, 4);
    run
}

#[test]
fn the_fourth_call_asks_at_the_gate_about_failures_and_shows_the_call() {
    let run = run_with_three_rejects(json!([money(), error_gate(json!({}))]));
    assert_eq!(run.open(), [ERROR_GATE]);
    let request = &run.asked(ERROR_GATE).request;
    let action = request.action.as_ref().unwrap();
    assert_eq!((request.gate.type_, action.tool.as_str()), (GateType::ErrorEscalation, "refund"));
    assert_eq!(action.gates[0].because, "calls of refund were rejected 3 times in this run");
    assert_eq!(request.reviews.as_ref().unwrap().response, r#"{"amount":4}"#);
    assert!(request.parameters.is_none(), "nothing of the call can be changed here");
}

#[test]
fn the_escalation_needs_the_quorums_of_every_gate_of_the_tool() {
    let strict = json!({"name": "strict", "type": "toolExecution", "allowedTools": ["lookup"], "hitl": gate(json!({"threshold": 2, "approvers": [{"kind": "Group", "name": "finance"}], "excluded": ["bob"]}))});
    let other = json!({"name": "other", "type": "specificTools", "tools": ["lookup"], "hitl": gate(json!({}))});
    let run = run_with_three_rejects(json!([money(), strict, other, error_gate(json!({}))]));
    let request = &run.asked(ERROR_GATE).request;
    let quorums: Vec<_> = request.quorums.iter().map(|quorum| (quorum.source.as_str(), quorum.threshold)).collect();
    assert_eq!(quorums, [("gate help", 1), ("gate money", 1), ("gate strict", 2)]);
    assert_eq!(request.excluded, ["bob"]);
}

#[test]
fn retry_asks_the_gates_of_the_call_and_resets_the_count() {
    let mut run = run_with_three_rejects(json!([money(), error_gate(json!({}))]));
    run.decide(ERROR_GATE, decided(Verdict::Retry));
    assert_eq!(run.open(), [GATE], "the call itself is not approved");
    run.decide(GATE, decided(Verdict::Reject));
    call_refund(&mut run, 5);
    assert_eq!(run.open(), ["handle/.turn-5/.call-1/.gate"], "one rejection since then");
}

#[test]
fn each_other_verdict_answers_the_agent_or_ends_the_run() {
    let result_after = |outcome: Outcome| {
        let mut run = run_with_three_rejects(json!([money(), error_gate(json!({}))]));
        run.decide(ERROR_GATE, outcome);
        result(&run, "handle/.turn-5", "c4")
    };
    assert_eq!(result_after(decided(Verdict::Skip)), "Skipped by a human");
    assert_eq!(
        result_after(Outcome { guidance: Some("write a letter".into()), ..decided(Verdict::Defer) }),
        "Not now. Try another approach: write a letter"
    );
    assert_eq!(
        result_after(Outcome { response: Some("it was paid by hand".into()), ..decided(Verdict::Respond) }),
        "it was paid by hand"
    );

    let mut run = run_with_three_rejects(json!([money(), error_gate(json!({}))]));
    run.decide(ERROR_GATE, decided(Verdict::Reject));
    assert!(
        run.expect_failure().contains("calls of refund were rejected 3 times in this run; given up at gate help"),
        "{}",
        run.expect_failure()
    );

    let mut run = run_with_three_rejects(json!([money(), error_gate(json!({}))]));
    run.decide(ERROR_GATE, decided(Verdict::Abort));
    assert!(matches!(run.transition.end, Some(End::Aborted(_))), "{:?}", run.transition.end);
}

#[test]
fn a_timeout_does_not_allow_a_rejected_tool_again() {
    let mut run = run_with_three_rejects(json!([money(), error_gate(json!({"timeout": {"action": "Retry"}}))]));
    run.decide(ERROR_GATE, Outcome { source: Source::Timeout, ..decided(Verdict::Retry) });
    assert_eq!(run.open(), [format!("{ERROR_GATE}#2")]);
}

/// Rejects three calls of the tool. The gate of the third call first ends with `repetition`, and asks again.
fn reject_three_calls(run: &mut TestRun, repetition: Outcome) {
    for number in 1..=3 {
        call_refund(run, number);
        let gate = format!("handle/.turn-{number}/.call-1/.gate");
        if number == 3 {
            run.decide(&gate, repetition.clone());
            run.decide(&format!("{gate}#2"), decided(Verdict::Reject));
        } else {
            run.decide(&gate, decided(Verdict::Reject));
        }
    }
}

#[test]
fn a_deadline_at_a_gate_of_the_tool_does_not_reset_the_count() {
    let repeated_gate = json!({"name": "money", "type": "specificTools", "tools": ["refund"],
        "hitl": gate(json!({"timeout": {"action": "Retry"}}))});
    let mut run = run(json!([repeated_gate, error_gate(json!({}))]));
    reject_three_calls(&mut run, Outcome { source: Source::Timeout, ..decided(Verdict::Retry) });
    call_refund(&mut run, 4);
    assert_eq!(run.open(), [ERROR_GATE]);
}

#[test]
fn a_retry_of_an_overdue_gate_does_not_reset_the_count() {
    let expiring_gate = json!({"name": "money", "type": "specificTools", "tools": ["refund"],
        "hitl": gate(json!({"timeout": {"action": "Expire"}}))});
    let mut run = run(json!([expiring_gate, error_gate(json!({}))]));
    reject_three_calls(&mut run, decided(Verdict::Retry));
    call_refund(&mut run, 4);
    assert_eq!(run.open(), [ERROR_GATE]);
}

#[test]
fn a_call_equal_to_a_rejected_one_is_refused_without_escalation() {
    let mut run = run_with_three_rejects(json!([money(), error_gate(json!({}))]));
    run.decide(ERROR_GATE, decided(Verdict::Skip));
    turn(&mut run, "handle/.turn-5", &[("c5", "refund", r#"{"amount":2}"#)]);
    assert!(result(&run, "handle/.turn-6", "c5").starts_with("Already refused by a human"));
}

#[test]
fn another_tool_is_not_escalated() {
    let gate_of_all_tools = json!({"name": "every", "type": "toolExecution", "hitl": gate(json!({}))});
    let mut run = TestRun::of(spec(gates(json!([gate_of_all_tools, error_gate(json!({}))]))));
    for number in 1..=3 {
        call_refund(&mut run, number);
        run.decide(&format!("handle/.turn-{number}/.call-1/.gate"), decided(Verdict::Reject));
    }
    turn(&mut run, "handle/.turn-4", &[("c4", "lookup", "{}")]);
    assert_eq!(run.open(), [GATE]);
}
