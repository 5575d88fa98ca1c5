//! Tests of calls that fail, are repeated, or cannot be asked about, and of their limits.

use std::collections::BTreeMap;

use serde_json::json;
use signoff_api::{Verdict, journal::StepPhase};

use super::{GATE, PAY, gates, messages_to_agent, money, result, run, spec, turn};
use crate::{
    Fact,
    tests::test_run::{TestRun, agent, decided, gate},
    transition::{Failure, Reply},
};

/// Returns a failure after which the effect of the call is unknown.
fn timeout_failure() -> Failure {
    Failure {
        class: "Timeout".into(),
        message: "no answer".into(),
        retryable: true,
        unknown: false,
        not_before: None,
        facts: BTreeMap::new(),
        log: None,
    }
}

#[test]
fn a_retry_after_an_uncertain_outcome_is_asked_about() {
    let mut run = run_with_retries(2, money());
    assert_eq!(run.asked(GATE).request.action.as_ref().unwrap().attempts, Some(3));
    run.approve(GATE);
    // Without an answer the effect of the first attempt is unknown.
    fail_without_answer(&mut run, 1);
    assert_eq!(run.open(), [format!("{GATE}#2")]);
    let second_action = run.asked(&format!("{GATE}#2")).request.action.clone().unwrap();
    assert_eq!(second_action.done.last().unwrap(), "this call, attempt 1: Failed: Timeout: no answer");
    assert!(second_action.is_repeated(), "a deadline does not let it be made again");
}

#[test]
fn a_request_lists_the_newest_sixteen_earlier_calls() {
    let mut run = TestRun::of(repeatable_spec(2, money()));
    let lookups: Vec<_> = (0..20).map(|at| (format!("c{at}"), format!(r#"{{"name":"{at}"}}"#))).collect();
    let lookups: Vec<_> = lookups.iter().map(|(id, arguments)| (id.as_str(), "lookup", arguments.as_str())).collect();
    turn(&mut run, "handle", &lookups);
    turn(&mut run, "handle/.turn-2", &[("d1", "refund", r#"{"amount":420}"#)]);
    let (gate, pay) = ("handle/.turn-2/.call-1/.gate", "handle/.turn-2/.call-1/pay");
    run.modify(gate, json!({"arguments": {"amount": 42}}));
    run.approve(&format!("{gate}#2"));
    let at = run.clock;
    run.take(vec![Fact::CallFinished { path: pay.into(), attempt: 1, result: Err(timeout_failure()), at }]);
    let done = run.asked(&format!("{gate}#3")).request.action.clone().unwrap().done;
    assert_eq!((done.len(), done.last().unwrap().as_str()), (16, "this call, attempt 1: Failed: Timeout: no answer"));
    assert_eq!(done[14], r#"this call, changed by alice; before: {"amount":420}"#);
}

/// Returns a spec in which the step of the tool `refund` is retried up to `limit` times. `gate` is before the tool.
fn repeatable_spec(limit: i32, gate: serde_json::Value) -> serde_json::Value {
    let mut spec = spec(gates(json!([gate])));
    spec["steps"][2]["retry"] = json!({"limit": limit});
    spec["steps"][2]["http"]["idempotent"] = json!(true);
    spec
}

/// Returns a run of `repeatable_spec` in which the tool was called.
fn run_with_retries(limit: i32, gate: serde_json::Value) -> TestRun {
    let mut run = TestRun::of(repeatable_spec(limit, gate));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run
}

fn fail_without_answer(run: &mut TestRun, attempt: i32) {
    let at = run.clock;
    run.take(vec![Fact::CallFinished { path: PAY.into(), attempt, result: Err(timeout_failure()), at }]);
}

#[test]
fn a_new_approval_does_not_reset_the_retry_limit() {
    let mut run = run_with_retries(2, money());
    for (attempt, visit, attempts) in [(1, "", 3), (2, "#2", 2), (3, "#3", 1)] {
        let gate = format!("{GATE}{visit}");
        assert_eq!(run.asked(&gate).request.action.as_ref().unwrap().attempts, Some(attempts));
        run.approve(&gate);
        assert_eq!(run.calls(), [format!("{PAY}@{attempt}")]);
        fail_without_answer(&mut run, attempt);
    }
    assert_eq!((run.open().len(), result(&run, "handle/.turn-2", "c1")), (0, "Error: no answer".to_owned()));
}

#[test]
fn a_retry_that_people_order_is_one_attempt() {
    let errors = json!({"name": "errors", "type": "errorEscalation", "afterAttempts": 3, "steps": ["pay"], "hitl": gate(json!({}))});
    let mut spec = spec(gates(json!([money(), errors])));
    spec["steps"][2]["onError"] = json!("escalate");
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    run.fail(PAY, 1, false, false);
    run.decide(&format!("{PAY}/.error"), decided(Verdict::Retry));
    assert_eq!(run.asked(&format!("{GATE}#2")).request.action.as_ref().unwrap().attempts, Some(1));
}

#[test]
fn a_deadline_that_approves_covers_no_further_attempt() {
    let approving_gate = json!({"name": "money", "type": "specificTools", "tools": ["refund"],
        "hitl": gate(json!({"timeout": {"after": "1m", "action": "Approve"}}))});
    let by_timeout = || signoff_api::Outcome {
        source: signoff_api::approval::Source::Timeout,
        decided_by: Vec::new(),
        ..decided(Verdict::Approve)
    };
    let mut run = run_with_retries(1, approving_gate.clone());
    run.decide(GATE, by_timeout());
    assert_eq!(run.calls(), [format!("{PAY}@1")], "it approves the first attempt");
    fail_without_answer(&mut run, 1);
    run.decide(&format!("{GATE}#2"), by_timeout());
    assert_eq!(run.calls(), ["handle/.turn-2@1"]);
    let tool_result = result(&run, "handle/.turn-2", "c1");
    assert!(tool_result.starts_with("Error: no human approved another attempt at this call"), "{tool_result}");

    let mut approved_run = run_with_retries(1, approving_gate);
    approved_run.decide(GATE, by_timeout());
    fail_without_answer(&mut approved_run, 1);
    approved_run.approve(&format!("{GATE}#2"));
    assert_eq!(approved_run.calls(), [format!("{PAY}@2")]);
}

#[test]
fn a_retry_at_the_output_gate_is_asked_about_before_the_tool() {
    let output_hitl = gate(json!({"allowedVerdicts": ["Approve", "Retry", "Reject", "Abort"]}));
    let output_gate = json!({"name": "look", "type": "outputValidation", "steps": ["pay"], "hitl": output_hitl});
    let mut run = run(json!([money(), output_gate]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    run.reply(PAY, 1, "paid");
    run.decide(&format!("{PAY}/.output"), decided(Verdict::Retry));
    assert_eq!(run.open(), [format!("{GATE}#2")]);
    assert_eq!(run.calls(), Vec::<String>::new());
}

#[test]
fn a_policy_gate_before_requests_asks_about_requests_of_tools() {
    let policy: signoff_api::policy::ClusterApprovalPolicySpec = serde_json::from_value(json!({"steps": [
        {"name": "prod", "before": {"kinds": ["http"]}, "hitl": gate(json!({}))}]}))
    .unwrap();
    let policies = crate::Policies::of(&BTreeMap::new(), [("prod", &policy)], []);
    let workflow = crate::tests::test_run::workflow(spec(gates(json!([]))));
    let plan = crate::Plan::of(&workflow, &crate::Settings::default(), &std::sync::Arc::new(policies)).unwrap();
    let mut run = TestRun::of(spec(gates(json!([]))));
    run.plan = plan;
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    let gate = format!("{PAY}/prod-pay");
    assert_eq!((run.open(), run.calls()), (vec![gate.clone()], Vec::new()));
    run.approve(&gate);
    assert_eq!(run.calls(), [format!("{PAY}@1")]);
}

#[test]
fn a_retry_that_a_new_policy_forbids_mentions_the_first_attempt() {
    let mut spec = repeatable_spec(2, money());
    spec["steps"][2]["http"]["url"] = json!("https://{{ args.to | default('bank') }}.example/refunds");
    let mut run = TestRun::of(spec.clone());
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    let policy: signoff_api::policy::ClusterApprovalPolicySpec =
        serde_json::from_value(json!({"tools": {"never": [{"hosts": ["bank.example"]}]}})).unwrap();
    let policies = std::sync::Arc::new(crate::Policies::of(&BTreeMap::new(), [("prod", &policy)], []));
    run.plan =
        crate::Plan::of(&crate::tests::test_run::workflow(spec), &crate::Settings::default(), &policies).unwrap();
    fail_without_answer(&mut run, 1);
    let tool_result = result(&run, "handle/.turn-2", "c1");
    assert!(
        tool_result.contains("forbids calls of tools") && tool_result.ends_with("had an effect is not certain"),
        "{tool_result}"
    );
}

#[test]
fn an_unknown_outcome_fails_the_run_when_its_gate_does_not_apply() {
    let errors = json!({"name": "errors", "type": "errorEscalation", "condition": "error.class == 'Other'", "hitl": gate(json!({}))});
    let mut run = run(json!([errors]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.fail(PAY, 1, false, true);
    assert!(run.expect_failure().contains("must not be repeated"), "{}", run.expect_failure());
}

#[test]
fn a_request_states_the_maximum_number_of_attempts() {
    let errors = json!({"name": "errors", "type": "errorEscalation", "steps": ["pay"], "hitl": gate(json!({}))});
    let mut spec = spec(gates(json!([money(), errors])));
    spec["steps"][2]["http"]["idempotent"] = json!(true);
    spec["steps"][2]["onError"] = json!("escalate");
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    assert_eq!(
        run.asked(GATE).request.action.as_ref().unwrap().attempts,
        Some(3),
        "until the gate about failures asks"
    );
}

#[test]
fn the_call_limit_applies_to_a_revision_of_the_final_response() {
    let mut spec = spec(gates(
        json!([{"name": "end", "type": "finalResponse", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Defer"]}))}]),
    ));
    spec["agents"][0]["limits"] = json!({"calls": 1});
    let mut run = TestRun::of(spec);
    run.reply("handle", 1, "done");
    let mut defer = decided(Verdict::Defer);
    defer.guidance = Some("once more".into());
    run.decide(".final", defer);
    turn(&mut run, ".revision", &[("c1", "lookup", "{}"), ("c2", "lookup", r#"{"name":"b"}"#)]);
    assert_eq!(result(&run, ".revision/.turn-2", "c1"), "found ");
    assert!(result(&run, ".revision/.turn-2", "c2").contains("the limit of 1 calls is reached"));
}

#[test]
fn a_call_whose_prompt_cannot_be_rendered_is_an_error_result() {
    let gate = json!({"name": "money", "type": "specificTools", "tools": ["refund"],
        "hitl": gate(json!({"prompt": "Pay {{ args.to }}?"}))});
    let mut run = run(json!([gate]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    assert_eq!((run.open().len(), run.calls()), (0, vec!["handle/.turn-2@1".to_owned()]));
    assert!(result(&run, "handle/.turn-2", "c1").starts_with("Error: people cannot be asked"));
}

#[test]
fn a_retry_after_an_uncertain_outcome_is_asked_about_before_the_step() {
    let start = json!({"name": "start", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))});
    let mut spec = spec(gates(json!([start])));
    spec["steps"][2]["retry"] = json!({"limit": 2});
    spec["steps"][2]["http"]["idempotent"] = json!(true);
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(&format!("{PAY}/.start"));
    let at = run.clock;
    run.take(vec![Fact::CallFinished { path: PAY.into(), attempt: 1, result: Err(timeout_failure()), at }]);
    assert_eq!((run.open(), run.calls()), (vec![format!("{PAY}/.start#2")], Vec::new()));
    run.approve(&format!("{PAY}/.start#2"));
    assert_eq!(run.calls(), [format!("{PAY}@2")]);
}

#[test]
fn the_oldest_turns_are_left_out_of_a_conversation_that_is_too_long() {
    let mut spec = spec(gates(json!([])));
    spec["steps"][1] = json!({"name": "find", "http": {"url": "https://orders.example/"}});
    let mut run = TestRun::of(spec);
    let mut path = "handle".to_owned();
    for number in 1..=4 {
        let arguments_by_id: Vec<_> =
            (1..=4).map(|call| (format!("t{number}-c{call}"), format!(r#"{{"name":"{call}"}}"#))).collect();
        let calls: Vec<_> =
            arguments_by_id.iter().map(|(id, arguments)| (id.as_str(), "lookup", arguments.as_str())).collect();
        turn(&mut run, &path, &calls);
        for call in 1..=4 {
            run.reply(&format!("handle/.turn-{number}/.call-{call}/find"), 1, &"x".repeat(30_000));
        }
        path = format!("handle/.turn-{}", number + 1);
    }
    let messages = messages_to_agent(&run, "handle/.turn-5");
    let called: Vec<_> = messages.iter().flat_map(|message| message.calls.iter().map(|call| call.id.clone())).collect();
    let answered: Vec<_> = messages.iter().filter_map(|message| message.answers.clone()).collect();
    assert_eq!(called, answered, "each call with its result");
    assert!(called.contains(&"t4-c4".to_owned()) && called.contains(&"t3-c1".to_owned()), "{called:?}");
    assert!(!called.iter().any(|id| id.starts_with("t1-") || id.starts_with("t2-")), "{called:?}");
    let note = "[the oldest 2 turns of this conversation are left out, because it has more than 262144 bytes]";
    assert!(
        messages.iter().any(|message| message.text == note),
        "{:?}",
        messages.iter().map(|m| m.text.len()).collect::<Vec<_>>()
    );
}

#[test]
fn the_newest_turn_is_kept_and_its_results_are_cut_to_the_limit() {
    let mut spec = spec(gates(json!([])));
    spec["steps"][1] = json!({"name": "find", "http": {"url": "https://orders.example/"}});
    let mut run = TestRun::of(spec);
    let arguments_by_id: Vec<_> = (0..12).map(|n| (format!("c{n}"), format!(r#"{{"name":"{n}"}}"#))).collect();
    let calls: Vec<_> =
        arguments_by_id.iter().map(|(id, arguments)| (id.as_str(), "lookup", arguments.as_str())).collect();
    turn(&mut run, "handle", &calls);
    for n in 1..=12 {
        run.reply(&format!("handle/.turn-1/.call-{n}/find"), 1, &"x".repeat(60_000));
    }
    let messages = messages_to_agent(&run, "handle/.turn-2");
    assert_eq!(messages.iter().filter(|message| message.answers.is_some()).count(), 12);
    assert!(messages.iter().map(|message| message.text.len()).sum::<usize>() < 256 * 1024);
    assert!(messages.last().unwrap().text.contains("[cut: "));
}

#[test]
fn a_call_without_a_name_is_an_error_result_and_in_no_request() {
    let mut run = run(json!([money()]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#), ("c2", "", "{}"), ("c3", "\u{7}", "{}")]);
    let action = run.asked(GATE).request.action.clone().unwrap();
    assert!(action.siblings.iter().all(|sibling| !sibling.tool.is_empty()), "{:?}", action.siblings);
    run.decide(GATE, decided(Verdict::Skip));
    assert!(result(&run, "handle/.turn-2", "c2").starts_with("Error: there is no tool"));
}

#[test]
fn an_unknown_outcome_is_not_repeated_by_a_timeout() {
    let errors = json!({"name": "errors", "type": "errorEscalation",
        "hitl": gate(json!({"timeout": {"after": "5m", "action": "Retry"}}))});
    let mut run = run(json!([errors]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.fail(PAY, 1, false, true);
    let mut by_timeout = decided(Verdict::Retry);
    by_timeout.source = signoff_api::approval::Source::Timeout;
    by_timeout.decided_by = Vec::new();
    for visit in ["", "#2", "#3"] {
        run.decide(&format!("{PAY}/.error{visit}"), by_timeout.clone());
        assert_eq!(run.calls(), Vec::<String>::new(), "nothing runs{visit}");
    }
    run.decide(&format!("{PAY}/.error#4"), by_timeout);
    assert!(run.transition.end.is_some(), "it is not asked for ever");
}

#[test]
fn people_can_order_three_retries_of_a_call() {
    let errors = json!({"name": "errors", "type": "errorEscalation", "hitl": gate(json!({}))});
    let mut run = run(json!([errors]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    for (attempt, visit) in (1..=4).zip(["", "#2", "#3", "#4"]) {
        run.fail(PAY, attempt, false, true);
        run.decide(&format!("{PAY}/.error{visit}"), decided(Verdict::Retry));
    }
    assert!(run.transition.end.is_some(), "{:?}", run.calls());
}

#[test]
fn a_retry_of_a_turn_does_not_restart_the_called_agent() {
    let mut spec = spec(gates(
        json!([{"name": "every", "type": "specificTools", "tools": ["delegate"], "hitl": gate(json!({}))}]),
    ));
    spec["agents"].as_array_mut().unwrap().push(json!({"name": "boss", "system": "lead", "tools": ["delegate"]}));
    spec["tools"].as_array_mut().unwrap().push(json!({"name": "delegate", "step": "sub", "description": "Delegates."}));
    spec["steps"][0] = agent("lead", "boss", "go");
    let mut sub_step = agent("sub", "clerk", "do it");
    sub_step["retry"] = json!({"limit": 1, "backoff": {"base": "1ms"}});
    spec["steps"].as_array_mut().unwrap().push(sub_step);
    let mut run = TestRun::of(spec);
    turn(&mut run, "lead", &[("c1", "delegate", "{}")]);
    run.approve("lead/.turn-1/.call-1/.gate");
    let sub_path = "lead/.turn-1/.call-1/sub";
    turn(&mut run, sub_path, &[("n1", "refund", r#"{"amount":1}"#)]);
    run.reply(&format!("{sub_path}/.turn-1/.call-1/pay"), 1, "paid");
    let at = run.clock;
    run.take(vec![Fact::CallFinished {
        path: format!("{sub_path}/.turn-2"),
        attempt: 1,
        result: Err(timeout_failure()),
        at,
    }]);
    run.wait(5);
    assert_eq!((run.open().len(), run.calls()), (0, vec![format!("{sub_path}/.turn-2@2")]));
}

#[test]
fn a_question_that_exceeds_the_limits_is_an_error_result() {
    let mut spec =
        spec(json!([{"name": "questions", "type": "question", "hitl": gate(json!({"prompt": "{{ inputs.note }}"}))}]));
    spec["inputs"] = json!([{"name": "note", "value": " "}]);
    let mut run = TestRun::of(spec);
    // There is room for the turn, but not for the text of the request.
    run.control.values.of_run = 30_000;
    let long = "x".repeat(20_000);
    turn(&mut run, "handle", &[("c1", "ask-human", &format!(r#"{{"questions":[{{"question":"{long}"}}]}}"#))]);
    assert!(run.open().is_empty());
    assert!(result(&run, "handle/.turn-2", "c1").starts_with("Error: "));
}

#[test]
fn a_call_whose_step_cannot_be_rendered_is_a_recorded_error_result() {
    let mut spec = spec(gates(json!([money()])));
    spec["steps"][2]["http"]["body"] = json!("{{ args.to }}");
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    let result = result(&run, "handle/.turn-2", "c1");
    assert!(result.starts_with("Error: refund cannot be called with these arguments: "), "{result}");
    let check = run.journal.get("handle/.turn-1/.call-1/.check", 1).unwrap();
    assert_eq!(
        (check.phase, &result["Error: ".len()..]),
        (StepPhase::Failed, check.error.as_ref().unwrap().message.as_str())
    );
}

#[test]
fn a_call_id_of_an_earlier_turn_gets_a_suffix() {
    let mut run = run(json!([]));
    turn(&mut run, "handle", &[("c1", "lookup", r#"{"name":"a"}"#)]);
    turn(&mut run, "handle/.turn-2", &[("c1", "lookup", r#"{"name":"b"}"#)]);
    assert_eq!(result(&run, "handle/.turn-3", "c1"), "found a");
    assert_eq!(result(&run, "handle/.turn-3", "c1-2"), "found b");
    // The new id can also be one that the model uses.
    turn(&mut run, "handle/.turn-3", &[("c1-2", "lookup", r#"{"name":"c"}"#)]);
    turn(&mut run, "handle/.turn-4", &[("c1", "lookup", r#"{"name":"d"}"#)]);
    assert_eq!(result(&run, "handle/.turn-5", "c1-2-2"), "found c");
    assert_eq!(result(&run, "handle/.turn-5", "c1-3"), "found d");
}

#[test]
fn call_ids_are_unique_across_the_steps_that_the_agent_remembers() {
    let mut spec = spec(gates(json!([])));
    spec["steps"].as_array_mut().unwrap().push(agent("check", "clerk", "check it"));
    let mut run = TestRun::of(spec);
    // One model gives no ids, and another begins with the same id in each step.
    turn(&mut run, "handle", &[("", "lookup", r#"{"name":"a"}"#), ("c1", "lookup", r#"{"name":"b"}"#)]);
    run.reply("handle/.turn-2", 1, "done");
    turn(&mut run, "check", &[("", "lookup", r#"{"name":"c"}"#), ("c1", "lookup", r#"{"name":"d"}"#)]);
    let messages = messages_to_agent(&run, "check/.turn-2");
    let calls: Vec<_> = messages.iter().flat_map(|message| &message.calls).map(|call| call.id.clone()).collect();
    let answered: Vec<_> =
        messages.iter().filter_map(|message| Some((message.answers.clone()?, message.text.as_str()))).collect();
    assert_eq!(calls, ["call-1", "c1", "call-1-2", "c1-2"]);
    let results = ["found a", "found b", "found c", "found d"];
    assert_eq!(answered, calls.into_iter().zip(results).collect::<Vec<_>>());
}

#[test]
fn arguments_that_cost_too_much_are_an_error_result_at_every_replay() {
    let mut run = run(json!([money()]));
    let calls = json!([{"id": "c1", "tool": "refund", "arguments": "{\"amount\":1}"}]);
    let reply = Reply {
        response: json!({"text": "", "calls": calls}),
        facts: BTreeMap::from([("calls".to_owned(), "1".to_owned())]),
        ..Reply::default()
    };
    let at = run.clock;
    let check = "handle/.turn-1/.call-1/.check".to_owned();
    run.take(vec![
        Fact::CallFinished { path: "handle".into(), attempt: 1, result: Ok(reply), at },
        Fact::TooCostly { path: check.clone(), attempt: 1, why: "it took too long".into() },
    ]);
    assert_eq!(run.record(&check).phase, StepPhase::Failed);
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "Error: the arguments cost too much to check: it took too long");
    run.reply("handle/.turn-2", 1, "done");
    assert_eq!(run.expect_success(), "done");
}

#[test]
fn a_failed_call_fails_the_run_after_the_other_calls_of_its_turn() {
    let mut spec = spec(gates(json!([money()])));
    spec["tools"].as_array_mut().unwrap().push(json!({"name": "post", "step": "send", "description": "Posts."}));
    spec["agents"][0]["tools"] = json!(["refund", "post"]);
    spec["steps"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "send", "onError": "fail", "http": {"method": "POST", "url": "https://mail.example/"}}));
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#), ("c2", "post", "{}")]);
    run.fail("handle/.turn-1/.call-2/send", 1, false, true);
    assert_eq!((run.open(), run.transition.end.is_none()), (vec![GATE.to_owned()], true));
    run.decide(GATE, decided(Verdict::Skip));
    assert!(run.expect_failure().contains("must not be repeated"), "{}", run.expect_failure());
}

#[test]
fn empty_lines_in_the_text_of_a_model_are_removed_from_a_request() {
    let mut run = run(json!([money()]));
    let says = format!("first\r\n{}last", "\n \t\n".repeat(1500));
    let call = json!({"id": "c1", "tool": "refund", "arguments": r#"{"amount":1}"#});
    super::raw_turn(&mut run, "handle", json!({"text": says, "calls": [call]}));
    assert_eq!(run.asked(GATE).request.says.as_deref(), Some("first\n\nlast"));
}
