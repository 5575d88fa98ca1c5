//! Tests of decisions that only people make: no deadline repeats a call, an edited call is recognized by its input, and
//! requests name the earlier attempts and calls.

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, approval::Source};

use super::{
    equal::{CALL, PAY},
    gates, messages_to_agent, money, run, spec, turn,
};
use crate::tests::test_run::{TestRun, agent, chain_of, decided, gate};

/// Returns an outcome by the deadline.
fn by_timeout(verdict: Verdict) -> Outcome {
    Outcome { source: Source::Timeout, decided_by: Vec::new(), ..decided(verdict) }
}

fn pay_step() -> Value {
    json!({"name": "pay", "http": {"method": "POST", "url": "https://bank.example/refunds", "body": "420"}})
}

/// Returns a run with the step `pay` and a gate about `pay`. `gate_type`: the type of the gate. `hitl`: further fields
/// of the gate's `hitl`.
fn run_with_payment(gate_type: &str, pay: Value, hitl: Value) -> TestRun {
    let mut spec = chain_of(json!([pay]));
    spec["gates"] = json!([{"name": "about", "type": gate_type, "steps": ["pay"], "hitl": gate(hitl)}]);
    TestRun::of(spec)
}

fn retry_at_the_deadline() -> Value {
    json!({"timeout": {"after": "5m", "action": "Retry"}})
}

#[test]
fn a_deadline_does_not_repeat_a_post_whose_outcome_is_unknown() {
    let mut run = run_with_payment("errorEscalation", pay_step(), retry_at_the_deadline());
    run.fail("pay", 1, false, true);
    run.decide("pay/.error", by_timeout(Verdict::Retry));
    assert_eq!(run.calls(), Vec::<String>::new(), "no person decided that it is paid again");
}

/// The timeout action Default does not count as a decision of a person.
#[test]
fn a_default_answer_does_not_repeat_a_post_whose_outcome_is_unknown() {
    let hitl = json!({"allowedVerdicts": ["Retry", "Respond", "Reject"],
        "timeout": {"after": "5m", "action": "Default", "default": "go on"}});
    let mut run = run_with_payment("errorEscalation", pay_step(), hitl);
    run.fail("pay", 1, false, true);
    run.decide("pay/.error", Outcome { response: Some("go on".into()), ..by_timeout(Verdict::Respond) });
    assert_eq!(run.calls(), Vec::<String>::new(), "no person decided that it is paid again");
}

#[test]
fn a_deadline_at_an_output_gate_does_not_repeat_a_successful_post() {
    let mut run = run_with_payment("outputValidation", pay_step(), retry_at_the_deadline());
    run.reply("pay", 1, "paid");
    run.decide("pay/.output", by_timeout(Verdict::Retry));
    assert_eq!(run.calls(), Vec::<String>::new(), "no person decided that it is paid again");
}

/// Proposes a call in each of two turns, which people edit and approve, and a call in a third turn. `call_of_turn`
/// returns the tool and the arguments of the call of a turn.
fn propose_after_two_edits(mut run: TestRun, call_of_turn: &dyn Fn(usize) -> (&'static str, String)) -> TestRun {
    for number in 1..=3 {
        let path = if number == 1 { "handle".to_owned() } else { format!("handle/.turn-{number}") };
        let (tool, arguments) = call_of_turn(number);
        turn(&mut run, &path, &[("c", tool, &arguments)]);
        if number < 3 {
            let gate = format!("handle/.turn-{number}/.call-1/.gate");
            run.modify(&gate, json!({"arguments": {"amount": 40 + number}}));
            run.approve(&format!("{gate}#2"));
            run.reply(&format!("handle/.turn-{number}/.call-1/pay"), 1, "paid");
        }
    }
    run
}

#[test]
fn a_call_edited_twice_is_recognized_by_the_data_that_it_sends() {
    // The step does not send `to`.
    let call_of_turn = |number| ("refund", format!(r#"{{"amount":420,"to":"note {number}"}}"#));
    let run = propose_after_two_edits(run(json!([money()])), &call_of_turn);
    assert_eq!(run.open(), Vec::<String>::new(), "the third equal call is refused: 420 is sent by all of them");
}

#[test]
fn a_call_edited_twice_is_recognized_for_another_tool_of_its_step() {
    let mut spec = spec(gates(json!([{"name": "all", "type": "toolExecution", "hitl": gate(json!({}))}])));
    spec["tools"].as_array_mut().unwrap().push(json!({"name": "pay-out", "step": "pay", "description": "The same.",
        "effects": "irreversible", "parameters": {"type": "object"}}));
    spec["agents"][0]["tools"] = json!(["refund", "pay-out", "ask-human"]);
    let call_of_turn = |number| (if number == 2 { "pay-out" } else { "refund" }, CALL.to_owned());
    let run = propose_after_two_edits(TestRun::of(spec), &call_of_turn);
    assert_eq!(run.open(), Vec::<String>::new(), "the third proposal of the same request is refused");
}

#[test]
fn a_call_whose_arguments_left_the_conversation_is_not_made_again() {
    let mut spec = spec(gates(json!([])));
    spec["tools"][1]["effects"] = json!("write");
    spec["tools"][0]["parameters"] = json!({"type": "object"});
    let mut run = TestRun::of(spec);
    let pay_arguments = json!({"amount": 420, "to": "x".repeat(300)}).to_string();
    let long_arguments = json!({"name": "x".repeat(65_400)}).to_string();
    turn(&mut run, "handle", &[("c1", "refund", &pay_arguments), ("c2", "lookup", &long_arguments)]);
    run.reply(PAY, 1, "paid");
    let messages = messages_to_agent(&run, "handle/.turn-2");
    let model_message = messages.iter().find(|message| !message.calls.is_empty()).unwrap();
    assert!(
        model_message.calls[0].arguments.contains("left_out"),
        "the model is not told what it paid: {}",
        model_message.calls[0].arguments
    );
    turn(&mut run, "handle/.turn-2", &[("c3", "refund", &pay_arguments)]);
    assert!(
        !run.calls().contains(&"handle/.turn-2/.call-1/pay@1".to_owned()),
        "paid twice, and no person was asked: {:?}",
        run.calls()
    );
}

#[test]
fn a_gate_about_a_failed_turn_shows_the_input_of_the_agent() {
    let mut spec = spec(json!([
        {"name": "questions", "type": "question", "hitl": gate(json!({}))},
        {"name": "help", "type": "errorEscalation", "steps": ["handle"], "afterAttempts": 1, "hitl": gate(json!({}))},
    ]));
    spec["tools"][0]["parameters"] = json!({"type": "object"});
    spec["steps"][0] = agent("handle", "clerk", "REFUND EVERYBODY");
    let mut run = TestRun::of(spec);
    let mut path = "handle".to_owned();
    for number in 2..=7 {
        let long = json!({"name": "x".repeat(60_000)}).to_string();
        turn(&mut run, &path, &[("l", "lookup", &long)]);
        path = format!("handle/.turn-{number}");
    }
    run.fail(&path, 1, false, false);
    let sent = run.asked(&format!("{path}/.error")).request.sends.clone().unwrap();
    assert!(sent.text.contains("REFUND EVERYBODY"), "{}", sent.text);
}

#[test]
fn a_deadline_does_not_repeat_a_post_whose_answer_was_malformed() {
    let mut pay = pay_step();
    pay["outputSchema"] = json!({"type": "object", "required": ["id"]});
    let mut run = run_with_payment("errorEscalation", pay, retry_at_the_deadline());
    run.reply("pay", 1, "paid, thank you");
    run.decide("pay/.error", by_timeout(Verdict::Retry));
    assert_eq!(run.calls(), Vec::<String>::new(), "it was answered 2xx, and no person decided that it is paid again");
}

#[test]
fn a_gate_before_the_step_of_a_tool_counts_the_equal_calls_of_the_turn() {
    let start = json!({"name": "start", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))});
    let mut run = run(json!([start]));
    turn(&mut run, "handle", &[("c1", "refund", CALL), ("c2", "refund", CALL), ("c3", "refund", CALL)]);
    run.approve("handle/.turn-1/.call-1/pay/.start");
    run.reply(PAY, 1, "paid");
    let request = run.asked("handle/.turn-1/.call-2/pay/.start").request.clone();
    let shown = format!("{:?} {:?}", request.context, request.reviews);
    assert!(shown.contains("this call was made at "), "the premise: {shown}");
    assert!(shown.contains("call 2 of 3 equal calls"), "{shown}");
}

/// `docs/security/calls.md`: people approve a further attempt at a `stepStart` gate, and the timeout action Approve
/// does not.
#[test]
fn a_deadline_before_the_step_of_a_tool_approves_no_further_attempt() {
    let start = json!({"name": "start", "type": "stepStart", "steps": ["pay"],
        "hitl": gate(json!({"timeout": {"after": "5m", "action": "Approve"}}))});
    let mut spec = spec(gates(json!([start])));
    spec["steps"][2]["http"]["idempotent"] = json!(true);
    spec["steps"][2]["retry"] = json!({"limit": 2});
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", CALL)]);
    run.approve("handle/.turn-1/.call-1/pay/.start");
    let failure = crate::transition::Failure {
        class: "Timeout".into(),
        message: "no answer".into(),
        retryable: true,
        unknown: false,
        not_before: None,
        facts: std::collections::BTreeMap::new(),
        log: None,
    };
    let at = run.clock;
    run.take(vec![crate::Fact::CallFinished { path: PAY.into(), attempt: 1, result: Err(failure), at }]);
    let context = run.asked("handle/.turn-1/.call-1/pay/.start#2").request.context.clone().unwrap();
    let lines: Vec<_> = context.lines().collect();
    assert_eq!(lines[3], signoff_api::approval::Action::BY_PEOPLE);
    assert!(lines[4].starts_with("this call, attempt 1: Failed: Timeout: no answer"), "{context}");
    run.decide("handle/.turn-1/.call-1/pay/.start#2", by_timeout(Verdict::Approve));
    assert!(!run.calls().contains(&format!("{PAY}@2")), "no person approved another attempt: {:?}", run.calls());
}

/// Defer repeats the nodes between the reviewed one and the gate. If a POST is among them, Defer is refused in a graph
/// and a dag like in a chain.
#[test]
fn defer_over_a_post_is_refused_in_graphs_and_dags() {
    use crate::tests::test_run::{errors, hitl, of_pattern};
    let review = || hitl("review", json!({"reviews": "draft", "allowedVerdicts": ["Approve", "Reject", "Defer"]}));
    let graph = of_pattern(json!({
        "pattern": {"graph": {"entry": "draft", "edges": [{"from": "draft", "to": "pay"}, {"from": "pay", "to": "review"}]}},
        "steps": [agent("draft", "a", "write"), pay_step(), review()],
    }));
    let (mut pay, mut gate) = (pay_step(), review());
    pay["dependsOn"] = json!(["draft"]);
    gate["dependsOn"] = json!(["pay"]);
    let dag = of_pattern(json!({"pattern": {"dag": {}}, "steps": [agent("draft", "a", "write"), pay, gate]}));
    for (name, spec) in [("graph", graph), ("dag", dag)] {
        let found_errors = errors(spec);
        assert!(
            found_errors.iter().any(|error| error.contains("Defer runs step pay again")),
            "{name}: {found_errors:?}"
        );
    }
}

/// Defer repeats the reviewed step `draft`, and not the POST before it.
#[test]
fn defer_in_a_graph_does_not_pay_again() {
    use crate::tests::test_run::{hitl, of_pattern};
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"graph": {"entry": "pay", "edges": [{"from": "pay", "to": "draft"}, {"from": "draft", "to": "review"}]}},
        "steps": [pay_step(), agent("draft", "a", "write"),
            hitl("review", json!({"reviews": "draft", "allowedVerdicts": ["Approve", "Reject", "Defer"]}))],
    })));
    run.reply("pay", 1, "paid");
    run.reply("draft", 1, "x");
    run.defer("review", "again");
    assert_eq!(run.calls(), ["draft#2@1"]);
}

/// After three deadlines that repeat the gate, a Retry of a person still repeats the call.
#[test]
fn deadlines_do_not_use_up_the_retries_of_people() {
    let mut run = run_with_payment("errorEscalation", pay_step(), retry_at_the_deadline());
    run.fail("pay", 1, false, true);
    for path in ["pay/.error", "pay/.error#2", "pay/.error#3"] {
        run.decide(path, by_timeout(Verdict::Retry));
    }
    run.decide("pay/.error#4", decided(Verdict::Retry));
    assert_eq!(run.calls(), ["pay@2"]);
}

/// People edit two calls of a turn into the third one, and then into other calls. The third call can still be approved.
#[test]
fn a_gated_call_is_not_refused_because_other_calls_were_edited() {
    let mut run = run(json!([money()]));
    let arguments_of = |amount: i64| format!(r#"{{"amount":{amount},"to":"ACME"}}"#);
    let calls = [arguments_of(420), arguments_of(430), arguments_of(440)];
    turn(&mut run, "handle", &[("a", "refund", &calls[0]), ("b", "refund", &calls[1]), ("c", "refund", &calls[2])]);
    let third_gate = "handle/.turn-1/.call-3/.gate";
    for number in [1, 2] {
        let gate = format!("handle/.turn-1/.call-{number}/.gate");
        run.modify(&gate, json!({"arguments": {"amount": 440, "to": "ACME"}}));
        run.modify(&format!("{gate}#2"), json!({"arguments": {"amount": 500 + number, "to": "ACME"}}));
    }
    assert!(run.open().contains(&third_gate.to_owned()), "{:?}", run.open());
    run.approve(third_gate);
    assert!(run.calls().contains(&"handle/.turn-1/.call-3/pay@1".to_owned()), "{:?}", run.calls());
}
