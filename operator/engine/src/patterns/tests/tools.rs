//! Tests of agents that call tools: gates, verdicts, results, limits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod after;
mod again;
mod bound;
mod by_people;
mod equal;
mod escalated;
mod gate_types;
mod mcp;
mod meanwhile;
mod merge;
mod no_room;
mod old_words;
mod replayed;
mod servers;
mod stored;
mod turns;
mod verdicts;

use serde_json::{Value, json};
use signoff_api::{Verdict, approval::ActionKind, gate::GateType, journal::StepPhase};

pub(super) use self::turns::turn;
use self::turns::{messages_to_agent, raw_turn, result, turn_with};
use crate::{
    End,
    tests::test_run::{TestRun, agent, decided, errors, gate, plan_of},
    transition::Role,
};

/// Returns a spec whose only step is an agent that may look up, refund, and ask.
pub(super) fn spec(gates: Value) -> Value {
    json!({
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": [{"name": "clerk", "system": "be brief", "tools": ["lookup", "refund", "ask-human"]}],
        "tools": [
            {"name": "lookup", "step": "find", "description": "Finds a customer.", "effects": "read",
             "parameters": {"type": "object", "properties": {"name": {"type": "string"}}}},
            {"name": "refund", "step": "pay", "description": "Pays back.", "effects": "irreversible",
             "parameters": {"type": "object", "required": ["amount"], "additionalProperties": false,
                            "properties": {"amount": {"type": "number"}, "to": {"type": "string"}}}},
        ],
        "gates": gates,
        "steps": [
            agent("handle", "clerk", "help"),
            {"name": "find", "set": {"value": "found {{ args.name | default('') }}"}},
            {"name": "pay", "http": {"method": "POST", "url": "https://bank.example/refunds", "body": "{{ args.amount }}"}},
        ],
    })
}

pub(super) fn gates(more: Value) -> Value {
    let mut list = vec![json!({"name": "questions", "type": "question", "hitl": gate(json!({}))})];
    list.extend(more.as_array().unwrap().iter().cloned());
    Value::Array(list)
}

fn money() -> Value {
    json!({"name": "money", "type": "specificTools", "tools": ["refund"], "hitl": gate(json!({}))})
}

fn run(more: Value) -> TestRun {
    TestRun::of(spec(gates(more)))
}

const GATE: &str = "handle/.turn-1/.call-1/.gate";
const PAY: &str = "handle/.turn-1/.call-1/pay";

#[test]
fn a_call_without_a_gate_runs_and_its_result_goes_back_under_its_id() {
    let mut run = run(json!([money()]));
    assert_eq!(messages_to_agent(&run, "handle").len(), 1);
    turn(&mut run, "handle", &[("c1", "lookup", r#"{"name": "ACME"}"#)]);
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "found ACME");
    let roles: Vec<_> = messages_to_agent(&run, "handle/.turn-2").into_iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
    run.reply("handle/.turn-2", 1, "ACME exists");
    assert_eq!(run.expect_success(), "ACME exists");
}

#[test]
fn a_request_names_the_tool_and_the_outcome_of_every_earlier_call() {
    let mut run = run(json!([money()]));
    let calls = [("c1", "lookup", "{}"), ("c2", "refund", r#"{"amount":1}"#), ("c3", "refund", r#"{"amount":2}"#)];
    turn(&mut run, "handle", &calls);
    run.decide("handle/.turn-1/.call-2/.gate", decided(Verdict::Reject));
    run.approve("handle/.turn-1/.call-3/.gate");
    run.fail("handle/.turn-1/.call-3/pay", 1, false, false);
    turn(&mut run, "handle/.turn-2", &[("c4", "refund", r#"{"amount":3}"#)]);
    let action = run.asked("handle/.turn-2/.call-1/.gate").request.action.clone().unwrap();
    assert_eq!(
        action.done,
        ["lookup {}: Succeeded", r#"refund {"amount":1}: Rejected"#, r#"refund {"amount":2}: Failed"#]
    );
}

#[test]
fn a_gated_call_waits_and_runs_as_it_was_approved() {
    let mut run = run(json!([money()]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"to":"ACME","amount":420}"#)]);
    assert_eq!(run.calls(), Vec::<String>::new(), "nothing runs");
    let request = run.asked(GATE).request.clone();
    let action = request.action.unwrap();
    assert_eq!((action.kind, action.tool.as_str(), action.agent.as_str()), (ActionKind::ToolCall, "refund", "clerk"));
    assert_eq!(action.target.as_deref(), Some("POST https://bank.example/refunds"));
    assert_eq!(action.gates[0].because, "refund is listed");
    assert_eq!(request.gate.type_, GateType::SpecificTools);
    assert_eq!(request.reviews.unwrap().response, r#"{"amount":420,"to":"ACME"}"#);
    assert_eq!(request.says.as_deref(), Some("let me see"));
    run.approve(GATE);
    assert_eq!(run.calls(), [format!("{PAY}@1")]);
    run.reply(PAY, 1, "paid");
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "paid");
}

#[test]
fn a_long_argument_hides_no_other_argument() {
    let mut spec = spec(gates(json!([money()])));
    spec["tools"][1]["parameters"] = json!({"type": "object"});
    spec["steps"][2]["http"]["body"] = json!("x");
    let mut run = TestRun::of(spec);
    let arguments = json!({"aaa": "x".repeat(5000), "amount": 1_000_000}).to_string();
    turn(&mut run, "handle", &[("c1", "refund", &arguments)]);
    let reviews = run.asked(GATE).request.reviews.clone().unwrap();
    assert!(reviews.response.contains("\namount: 1000000\n"), "{}", reviews.response);
    assert_eq!((reviews.response.len() <= 4096, reviews.ref_.is_some()), (true, true));
    assert_eq!(reviews.digest, signoff_api::Digest::of_bytes(arguments.as_bytes()));
    run.approve(GATE);
    run.reply(PAY, 1, "paid");
    let mut many: serde_json::Map<_, _> = (0..70).map(|at| (format!("a{at}"), json!("y".repeat(60)))).collect();
    many.insert("zz_amount".to_owned(), json!(1_000_000));
    turn(&mut run, "handle/.turn-2", &[("c2", "refund", &Value::Object(many).to_string())]);
    let response = run.asked("handle/.turn-2/.call-1/.gate").request.reviews.clone().unwrap().response;
    assert!(response.contains("\nzz_amount: 1000000\n") && response.contains("a69: … 60 bytes"), "{response}");
}

#[test]
fn a_rejected_call_is_not_run_and_not_asked_about_again() {
    let mut run = run(json!([money()]));
    let call = [("c1", "refund", r#"{"amount":420}"#)];
    turn(&mut run, "handle", &call);
    let mut outcome = decided(Verdict::Reject);
    outcome.reason = Some("not this customer".into());
    run.decide(GATE, outcome);
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "Denied by a human: not this customer");
    // The same arguments in another order and another notation of the number.
    turn(&mut run, "handle/.turn-2", &[("c2", "refund", r#"{ "amount": 420.0 }"#)]);
    assert_eq!(run.open(), Vec::<String>::new(), "nothing is asked");
    assert_eq!(result(&run, "handle/.turn-3", "c2"), "Already refused by a human: not this customer");
}

#[test]
fn a_tool_rejected_three_times_is_refused_without_a_gate_about_failures() {
    let mut run = run(json!([money()]));
    let mut path = "handle".to_owned();
    for turn_number in 1..=3 {
        turn(&mut run, &path, &[(&format!("c{turn_number}"), "refund", &format!(r#"{{"amount":{turn_number}}}"#))]);
        run.decide(&format!("handle/.turn-{turn_number}/.call-1/.gate"), decided(Verdict::Reject));
        path = format!("handle/.turn-{}", turn_number + 1);
    }
    turn(&mut run, &path, &[("c4", "refund", r#"{"amount":4}"#)]);
    assert_eq!(run.open(), Vec::<String>::new(), "nothing is asked: {:?}", run.transition.end);
    assert!(result(&run, "handle/.turn-5", "c4").starts_with("Refused: calls of refund were rejected 3 times"));
}

#[test]
fn edited_arguments_are_asked_about_again_and_their_author_is_no_approver() {
    let finance_hitl = gate(json!({"approvers": [{"kind": "Group", "name": "finance"}]}));
    let gate = json!({"name": "money", "type": "specificTools", "tools": ["refund"], "hitl": finance_hitl});
    let mut run = run(json!([gate]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    run.modify(GATE, json!({"arguments": {"amount": 42}}));
    assert_eq!(run.calls(), Vec::<String>::new(), "nothing runs yet");
    let second_request = run.asked(&format!("{GATE}#2")).request.clone();
    assert_eq!(second_request.excluded, ["alice"]);
    let reviews = second_request.reviews.unwrap();
    assert_eq!(reviews.response, r#"{"amount":42}"#);
    let [edit] = <[_; 1]>::try_from(reviews.by).unwrap();
    assert_eq!((edit.by, edit.gate.as_str(), edit.path.as_str()), (vec!["alice".to_owned()], "money", GATE));
    assert_eq!(edit.original, signoff_api::Digest::of_bytes(br#"{"amount":420}"#));
    assert_eq!(second_request.action.unwrap().done, [r#"this call, changed by alice; before: {"amount":420}"#]);
    run.approve(&format!("{GATE}#2"));
    run.reply(PAY, 1, "paid");
    let tool_result = result(&run, "handle/.turn-2", "c1");
    assert_eq!(tool_result, "A human changed the arguments. This ran: {\"amount\":42}\npaid");
}

#[test]
fn an_edit_below_the_condition_of_a_gate_runs_without_that_gate() {
    let custom = json!({"name": "large", "type": "custom", "condition": "args.amount > 50", "hitl": gate(json!({}))});
    let mut run = run(json!([custom]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    run.modify(GATE, json!({"arguments": {"amount": 42}}));
    assert_eq!(run.calls(), [format!("{PAY}@1")]);
}

#[test]
fn a_gate_asks_when_its_condition_reads_a_missing_value() {
    let custom = json!({"name": "large", "type": "custom", "condition": "args.missing > 50", "hitl": gate(json!({}))});
    let mut run = run(json!([custom]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    assert!(
        run.asked(GATE).request.action.as_ref().unwrap().gates[0]
            .because
            .contains("its condition could not be evaluated")
    );
}

#[test]
fn each_verdict_on_a_call_gives_the_agent_its_own_result() {
    let verdicts = json!(["Approve", "Reject", "Modify", "Respond", "Defer", "Skip", "Abort"]);
    for (verdict, wanted) in [
        (Verdict::Respond, "use the old one"),
        (Verdict::Defer, "Not now. Try another approach: ask first"),
        (Verdict::Skip, "Skipped by a human"),
        (Verdict::Reject, "Denied by a human: no reason was given"),
    ] {
        let gate = json!({"name": "money", "type": "specificTools", "tools": ["refund"],
            "hitl": gate(json!({"allowedVerdicts": verdicts}))});
        let mut run = run(json!([gate]));
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
        let mut outcome = decided(verdict);
        outcome.response = (verdict == Verdict::Respond).then(|| "use the old one".to_owned());
        outcome.guidance = (verdict == Verdict::Defer).then(|| "ask first".to_owned());
        run.decide(GATE, outcome);
        assert_eq!(result(&run, "handle/.turn-2", "c1"), wanted);
    }
    let mut run = run(json!([money()]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    run.decide(GATE, decided(Verdict::Abort));
    assert!(matches!(run.transition.end, Some(End::Aborted(_))));
}

#[test]
fn a_reject_ends_the_run_where_the_gate_says_so() {
    let gate = json!({"name": "money", "type": "specificTools", "tools": ["refund"],
        "hitl": gate(json!({"onReject": "stop"}))});
    let mut run = run(json!([gate]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    run.decide(GATE, decided(Verdict::Reject));
    assert!(matches!(run.transition.end, Some(End::Rejected(_))));
}

#[test]
fn gates_on_one_call_share_a_request_that_needs_all_quorums() {
    let ops_hitl = gate(json!({"approvers": [{"kind": "Group", "name": "ops"}], "threshold": 2,
        "timeout": {"after": "4m", "action": "Abort"}}));
    let gate_of_all_tools =
        json!({"name": "every", "type": "toolExecution", "allowedTools": ["lookup"], "hitl": ops_hitl});
    let mut run = run(json!([money(), gate_of_all_tools]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#), ("c2", "lookup", "{}")]);
    let request = &run.asked(GATE).request;
    let sources: Vec<_> = request.quorums.iter().map(|quorum| (quorum.source.as_str(), quorum.threshold)).collect();
    assert_eq!(sources, [("gate every", 2), ("gate money", 1)], "the most careful timeout comes first");
    assert_eq!(request.timeout.after.unwrap().duration().as_secs(), 240);
    assert_eq!(request.action.as_ref().unwrap().siblings.len(), 1);
    assert_eq!(run.open(), [GATE], "the lookup is allowed");
}

#[test]
fn gates_without_a_verdict_in_common_ask_one_after_the_other() {
    let gate_with_verdict = |name: &str, verdict: &str| {
        json!({"name": name, "type": "specificTools", "tools": ["refund"],
            "hitl": gate(json!({"allowedVerdicts": [verdict, "Reject", "Abort"]}))})
    };
    let mut run = run(json!([gate_with_verdict("one", "Approve"), gate_with_verdict("two", "Skip")]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    run.approve(GATE);
    assert_eq!(run.open(), [format!("{GATE}#2")]);
    assert_eq!(run.calls(), Vec::<String>::new());
}

#[test]
fn an_excluded_tool_always_asks_and_an_allowed_one_never() {
    let gate_of_all_tools = |allowed: Value| json!([{"name": "every", "type": "toolExecution", "allowedTools": allowed, "hitl": gate(json!({}))}]);
    for (allowed, is_asked) in
        [(json!(["*"]), false), (json!(["*", "!refund"]), true), (json!(["refund"]), false), (json!([]), true)]
    {
        let more_gates = gate_of_all_tools(allowed.clone());
        let mut run = run(more_gates);
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
        assert_eq!(run.open() == [GATE], is_asked, "{allowed}");
    }
}

#[test]
fn a_question_is_answered_under_its_call_id_and_approves_nothing() {
    let mut run = run(json!([money()]));
    let ask = r#"{"questions":[{"id":"how","question":"How much?"}],"context":"order 7"}"#;
    turn(&mut run, "handle", &[("c1", "ask-human", ask), ("c2", "refund", r#"{"amount":1}"#)]);
    let request = &run.asked(GATE).request;
    assert!(request.prompt.starts_with("This answers the agent; it approves nothing. Do not enter secrets."));
    assert_eq!(request.allowed_verdicts, [Verdict::Respond, Verdict::Skip, Verdict::Abort]);
    assert_eq!((&request.reviews, request.says.as_deref()), (&None, Some("let me see\n\norder 7")));
    let id = request.form.as_ref().unwrap().questions[0].id.clone();
    let mut outcome = decided(Verdict::Respond);
    outcome.response = Some("420".into());
    outcome.answers = serde_json::from_value(json!({id: {"text": "420"}})).map(Some).unwrap();
    run.decide(GATE, outcome);
    assert_eq!(run.open(), ["handle/.turn-1/.call-2/.gate"], "the answer decides nothing else");
    run.decide("handle/.turn-1/.call-2/.gate", decided(Verdict::Skip));
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "420");
}

#[test]
fn invalid_calls_of_a_model_are_error_results_and_do_not_run() {
    let mut run = run(json!([money()]));
    turn(
        &mut run,
        "handle",
        &[
            ("c1", "refund", "{"),
            ("c2", "refund", r#"{"amount":1,"amount":2}"#),
            ("c3", "refund", r#"{"amount":"much"}"#),
            ("c4", "drop-database", "{}"),
            ("c5", "refund", r#"{"amount":9007199254740993}"#),
            ("c1", "lookup", r#"{"name":"twice the same id"}"#),
        ],
    );
    assert_eq!((run.open().len(), run.calls()), (0, vec!["handle/.turn-2@1".to_owned()]));
    for id in ["c1", "c2", "c3", "c4", "c5"] {
        assert!(result(&run, "handle/.turn-2", id).starts_with("Error: "), "{id}");
    }
    assert_eq!(result(&run, "handle/.turn-2", "c1-6"), "found twice the same id", "no call vanishes");
}

#[test]
fn two_hundred_calls_in_a_turn_are_bounded_and_each_is_answered_in_order() {
    let mut run = run(json!([money()]));
    let ids: Vec<_> = (0..200).map(|n| format!("c{n}")).collect();
    let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "lookup", "{}")).collect();
    turn(&mut run, "handle", &calls);
    let messages = messages_to_agent(&run, "handle/.turn-2");
    let answered: Vec<_> = messages.iter().filter_map(|message| message.answers.clone()).collect();
    assert_eq!(answered, ids);
    assert!(result(&run, "handle/.turn-2", "c199").contains("at most 32 calls"));
    let error_message = run.record("handle/.turn-1/.call-33/.check").error.clone().unwrap().message;
    assert!(error_message.ends_with("in a later turn (167 more calls after it are not made)"), "{error_message}");
}

#[test]
fn at_most_eight_calls_wait_for_people_at_once() {
    let mut run = run(json!([money()]));
    let arguments_by_id: Vec<_> = (1..=12).map(|n| (format!("c{n}"), format!(r#"{{"amount":{n}}}"#))).collect();
    let calls: Vec<_> =
        arguments_by_id.iter().map(|(id, arguments)| (id.as_str(), "refund", arguments.as_str())).collect();
    turn(&mut run, "handle", &calls);
    assert_eq!(run.open().len(), 8);
    run.decide(GATE, decided(Verdict::Skip));
    assert_eq!(run.open().len(), 8);
}

#[test]
fn at_most_eight_gates_before_the_steps_of_tools_wait_for_people_at_once() {
    let mut run = run(json!([{"name": "start", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))}]));
    let arguments_by_id: Vec<_> = (1..=12).map(|n| (format!("c{n}"), format!(r#"{{"amount":{n}}}"#))).collect();
    let calls: Vec<_> =
        arguments_by_id.iter().map(|(id, arguments)| (id.as_str(), "refund", arguments.as_str())).collect();
    turn(&mut run, "handle", &calls);
    assert_eq!(run.open().len(), 8);
    run.approve(&format!("{PAY}/.start"));
    assert_eq!(run.open().len(), 8);
}

#[test]
fn equal_calls_of_a_turn_each_need_their_own_approval() {
    let mut run = run(json!([money()]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#), ("c2", "refund", r#"{"amount":1}"#)]);
    assert_eq!(run.open(), [GATE]);
    run.approve(GATE);
    assert_eq!(run.open(), Vec::<String>::new(), "the second waits for the end of the first");
    run.reply(PAY, 1, "paid");
    assert_eq!(run.open(), ["handle/.turn-1/.call-2/.gate"]);
    run.decide("handle/.turn-1/.call-2/.gate", decided(Verdict::Skip));
    assert_eq!(result(&run, "handle/.turn-2", "c2"), "Skipped by a human");
}

#[test]
fn a_truncated_turn_runs_nothing() {
    let mut run = run(json!([]));
    raw_turn(
        &mut run,
        "handle",
        json!({"text": "", "truncated": true, "calls": [{"id": "c1", "tool": "refund", "arguments": "{\"amount\":1}"}]}),
    );
    assert_eq!(run.calls(), ["handle/.turn-2@1"]);
    assert!(result(&run, "handle/.turn-2", "c1").contains("was cut"));
}

#[test]
fn an_endless_chain_of_turns_ends_at_the_limit() {
    let mut spec = spec(gates(json!([])));
    spec["agents"][0]["limits"] = json!({"turns": 3});
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "lookup", "{}")]);
    turn(&mut run, "handle/.turn-2", &[("c1", "lookup", "{}")]);
    turn(&mut run, "handle/.turn-3", &[("c1", "lookup", "{}")]);
    assert!(run.expect_failure().contains("its limit is 3 turns"), "{}", run.expect_failure());
}

#[test]
fn calls_over_the_limit_are_error_results() {
    let mut spec = spec(gates(json!([])));
    spec["agents"][0]["limits"] = json!({"calls": 2});
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "lookup", r#"{"name":"a"}"#)]);
    turn(&mut run, "handle/.turn-2", &[("c2", "lookup", r#"{"name":"b"}"#), ("c3", "lookup", r#"{"name":"c"}"#)]);
    assert_eq!(result(&run, "handle/.turn-3", "c2"), "found b");
    assert!(result(&run, "handle/.turn-3", "c3").contains("the limit of 2 calls"));
}

#[test]
fn a_failed_call_is_an_error_result_and_an_unknown_one_fails_the_run() {
    let mut failed_run = run(json!([]));
    turn(&mut failed_run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    failed_run.fail(PAY, 1, false, false);
    assert!(result(&failed_run, "handle/.turn-2", "c1").starts_with("Error: "));
    let mut unknown_run = run(json!([]));
    turn(&mut unknown_run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    unknown_run.fail(PAY, 1, false, true);
    assert!(unknown_run.expect_failure().contains("must not be repeated"), "{}", unknown_run.expect_failure());
}

#[test]
fn a_retry_of_an_unknown_outcome_is_asked_about_at_the_gate_too() {
    let errors = json!({"name": "errors", "type": "errorEscalation", "hitl": gate(json!({}))});
    let mut run = run(json!([money(), errors]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    run.fail(PAY, 1, false, true);
    let error_gate = format!("{PAY}/.error");
    assert_eq!(run.open(), [error_gate.as_str()]);
    run.decide(&error_gate, decided(Verdict::Retry));
    assert_eq!(run.open(), [format!("{GATE}#2")], "the people of the gate approve a further attempt");
    run.approve(&format!("{GATE}#2"));
    assert_eq!(run.calls(), [format!("{PAY}@2")]);
}

/// Adds the step `lead` of the agent boss, who delegates to clerk.
fn with_boss(mut spec: Value) -> Value {
    spec["agents"].as_array_mut().unwrap().push(json!({"name": "boss", "system": "lead", "tools": ["delegate"]}));
    spec["tools"].as_array_mut().unwrap().push(json!({"name": "delegate", "step": "sub", "description": "Delegates.",
        "parameters": {"type": "object", "properties": {"task": {"type": "string"}}}}));
    spec["steps"][0] = agent("lead", "boss", "go");
    spec["steps"].as_array_mut().unwrap().push(agent("sub", "clerk", "{{ args.task }}"));
    spec
}

#[test]
fn a_gate_of_an_agent_asks_about_the_calls_of_its_subagents() {
    let spec_with_condition = |condition: &str| {
        let gate = json!({"name": "own", "type": "specificTools", "tools": ["refund"], "condition": condition, "hitl": gate(json!({}))});
        with_boss(spec(gates(json!([gate]))))
    };
    let open_after = |condition: &str| {
        let mut run = TestRun::of(spec_with_condition(condition));
        turn(&mut run, "lead", &[("c1", "delegate", r#"{"task":"refund it"}"#)]);
        turn(&mut run, "lead/.turn-1/.call-1/sub", &[("n1", "refund", r#"{"amount":1}"#)]);
        (run.open().len(), run.plan.warnings().iter().any(|warning| warning.contains("use agents")))
    };
    assert_eq!(open_after("'boss' in agents"), (1, false));
    assert_eq!(open_after("agents == ['boss', 'clerk']"), (1, false));
    assert_eq!(open_after("'olga' in agents"), (0, false));
    assert_eq!(
        open_after("agent == 'boss'"),
        (0, true),
        "the one that makes the call is clerk, and the author is told"
    );
}

#[test]
fn the_call_limit_of_an_agent_counts_the_calls_of_its_subagents() {
    let mut spec = with_boss(spec(gates(json!([]))));
    spec["agents"][1]["limits"] = json!({"calls": 2});
    let mut run = TestRun::of(spec);
    turn(&mut run, "lead", &[("c1", "delegate", r#"{"task":"look"}"#)]);
    let sub = "lead/.turn-1/.call-1/sub";
    turn(&mut run, sub, &[("n1", "lookup", "{}"), ("n2", "lookup", r#"{"name":"b"}"#)]);
    assert_eq!(result(&run, &format!("{sub}/.turn-2"), "n1"), "found ");
    let refused = result(&run, &format!("{sub}/.turn-2"), "n2");
    assert!(refused.contains("the limit of 2 calls is reached"), "{refused}");
}

#[test]
fn an_agent_as_a_tool_has_its_own_conversation_and_the_same_gates() {
    let mut run = TestRun::of(with_boss(spec(gates(json!([money()])))));
    turn(&mut run, "lead", &[("c1", "delegate", r#"{"task":"refund it"}"#)]);
    let sub = "lead/.turn-1/.call-1/sub";
    assert_eq!(messages_to_agent(&run, sub)[0].text, "refund it");
    turn(&mut run, sub, &[("n1", "refund", r#"{"amount":1}"#)]);
    let gate = format!("{sub}/.turn-1/.call-1/.gate");
    assert_eq!(run.open(), [gate.as_str()]);
    let earlier_calls = |run: &TestRun, gate: &str| run.asked(gate).request.action.as_ref().unwrap().done.clone();
    assert_eq!(earlier_calls(&run, &gate), [] as [&str; 0], "the agent that asks has not ended");
    run.approve(&gate);
    run.reply(&format!("{sub}/.turn-1/.call-1/pay"), 1, "paid");
    run.reply(&format!("{sub}/.turn-2"), 1, "refunded");
    assert_eq!(result(&run, "lead/.turn-2", "c1"), "refunded");
    turn(&mut run, "lead/.turn-2", &[("c2", "delegate", r#"{"task":"once more"}"#)]);
    let sub = "lead/.turn-2/.call-1/sub";
    turn(&mut run, sub, &[("n2", "refund", r#"{"amount":2}"#)]);
    let gate = format!("{sub}/.turn-1/.call-1/.gate");
    assert_eq!(
        earlier_calls(&run, &gate),
        [r#"refund {"amount":1}: Succeeded"#, r#"delegate {"task":"refund it"}: Succeeded"#]
    );
    run.decide(&gate, decided(Verdict::Skip));
    run.reply(&format!("{sub}/.turn-2"), 1, "not refunded");
    run.reply("lead/.turn-3", 1, "all done");
    assert_eq!(run.expect_success(), "all done");
}

#[test]
fn the_answer_of_a_step_that_called_tools_is_its_last_text() {
    let mut spec = spec(gates(json!([])));
    spec["steps"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "after", "set": {"value": "{{ steps.handle.response }}!"}}));
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "lookup", "{}")]);
    run.reply("handle/.turn-2", 1, "done");
    assert_eq!(run.expect_success(), "done!");
    assert_eq!(run.record("handle/.answer").phase, StepPhase::Succeeded);
}

#[test]
fn a_reject_does_not_affect_a_call_of_another_tool() {
    let mut run = run(json!([money()]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#), ("c2", "lookup", "{}")]);
    run.decide(GATE, decided(Verdict::Reject));
    assert_eq!(result(&run, "handle/.turn-2", "c2"), "found ");
}

#[test]
fn invalid_tools_gates_and_agents_are_refused_before_the_run() {
    let assert_refused = |change: &dyn Fn(&mut Value), part: &str| {
        let mut spec = spec(gates(json!([money()])));
        change(&mut spec);
        let found_errors = errors(spec);
        assert!(found_errors.iter().any(|error| error.contains(part)), "{part}: {found_errors:?}");
    };
    assert_refused(&|s| s["agents"][0]["tools"] = json!(["refunds"]), "there is no tool refunds");
    assert_refused(&|s| s["tools"][0]["step"] = json!("nowhere"), "there is no step nowhere");
    assert_refused(&|s| s["tools"][0]["name"] = json!("ask-human"), "built-in tool");
    assert_refused(&|s| s["gates"] = json!([money()]), "needs a gate of the type question");
    assert_refused(&|s| s["gates"][1]["tools"] = json!(["refundd"]), "there is no tool refundd");
    assert_refused(&|s| s["tools"][1]["parameters"] = json!({"type": "string"}), "type: object");
    assert_refused(
        &|s| s["steps"][1] = json!({"name": "find", "agent": {"name": "clerk", "input": "x"}}),
        "would call itself",
    );
    assert_refused(&|s| s["agents"][0]["tools"] = json!([]), "no agent has tools");
    assert_refused(&|s| s["steps"][1]["set"]["value"] = json!("{{ steps.handle.response }}"), "steps");
}

#[test]
fn a_preset_adds_gates_that_carry_its_name() {
    let preset = json!([{"name": "guard", "preset": "strict", "hitl": gate(json!({}))}]);
    let mut run = run(preset);
    turn(&mut run, "handle", &[("c1", "lookup", "{}")]);
    assert_eq!(run.asked(GATE).request.action.as_ref().unwrap().gates[0].name, "guard.tools");
    run.approve(GATE);
    run.reply("handle/.turn-2", 1, "done");
    assert_eq!(run.open(), [".final"]);
}

#[test]
fn a_tool_that_may_change_something_and_has_no_gate_is_a_warning() {
    let plan = plan_of(spec(gates(json!([]))));
    assert!(plan.warnings().iter().any(|warning| warning.contains("calls of refund can change something")));
    let plan = plan_of(spec(gates(json!([money()]))));
    assert!(!plan.warnings().iter().any(|warning| warning.contains("refund")));
}
