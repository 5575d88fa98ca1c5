//! Tests of equal calls: a call that can change something is made once, unless people approve another one.

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, Workflow, WorkflowStatus, approval::Source, journal::StepPhase};

use super::{gates, messages_to_agent, money, raw_turn, result, run, spec, turn};
use crate::{
    Blobs, Control, Journal, Now, Plan, Settings, advance,
    plan::spec_digest,
    tests::test_run::{TestRun, agent, decided, errors, gate, hitl, start, workflow},
};

pub(super) const CALL: &str = r#"{"amount":420}"#;
pub(super) const PAY: &str = "handle/.turn-1/.call-1/pay";

/// Returns a spec with an agent without gates before its tools, and a review that can repeat it.
pub(super) fn spec_with_review(change: impl Fn(&mut Value)) -> Value {
    let mut spec = spec(gates(json!([])));
    let review = hitl("review", json!({"allowedVerdicts": ["Approve", "Reject", "Defer", "Abort"]}));
    spec["steps"].as_array_mut().unwrap().push(review);
    change(&mut spec);
    spec
}

/// Begins a run whose spec counts as accepted by an earlier version, so that newer rules of plans do not refuse it.
fn begin_accepted_run(spec: Value) -> TestRun {
    let mut workflow: Workflow = workflow(spec);
    let digest = spec_digest(&workflow.spec).unwrap();
    workflow.status = Some(WorkflowStatus { spec_digest: Some(digest), ..WorkflowStatus::default() });
    let plan = Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap();
    let now = Now::new(start(), "epoch");
    let transition = advance(&plan, Control::default(), Journal::default(), Vec::new(), &Blobs::new(), &now);
    let (journal, blobs, control) = (Journal::default(), Blobs::new(), Control::default());
    let mut run = TestRun { plan, journal, blobs, control, clock: start(), transition };
    run.commit();
    run
}

/// Makes the refund `CALL` in the turn at `path`.
pub(super) fn refund_again(run: &mut TestRun, path: &str, id: &str) {
    turn(run, path, &[(id, "refund", CALL)]);
}

pub(super) fn is_repetition_notice(result: &str) -> bool {
    result.starts_with("Not made again: an equal call was made at ") && result.ends_with("Its result was:\npaid")
}

#[test]
fn a_deferred_agent_does_not_pay_again() {
    for is_fresh in [true, false] {
        let spec = spec_with_review(|spec| {
            if is_fresh {
                spec["steps"][0]["agent"]["conversation"] = json!("fresh");
            }
        });
        let mut run = begin_accepted_run(spec);
        refund_again(&mut run, "handle", "c1");
        run.reply(PAY, 1, "paid");
        run.reply("handle/.turn-2", 1, "done");
        for visit in 2..=3 {
            let review = if visit == 2 { "review".to_owned() } else { format!("review#{}", visit - 1) };
            run.defer(&review, "again");
            let handle = format!("handle#{visit}");
            refund_again(&mut run, &handle, "c1");
            assert_eq!(run.calls(), [format!("{handle}/.turn-2@1")], "nothing is sent, fresh: {is_fresh}");
            let id = if is_fresh { "c1".to_owned() } else { format!("c1-{visit}") };
            let tool_result = result(&run, &format!("{handle}/.turn-2"), &id);
            assert!(is_repetition_notice(&tool_result), "{tool_result}");
            let check = run.record(&format!("{handle}/.turn-1/.call-1/.check"));
            assert_eq!(check.error.as_ref().unwrap().class, "Repeated");
            run.reply(&format!("{handle}/.turn-2"), 1, "done");
        }
        // With another amount the call is not equal.
        run.defer("review#3", "again");
        turn(&mut run, "handle#4", &[("c1", "refund", r#"{"amount":42}"#)]);
        assert_eq!(run.calls(), ["handle#4/.turn-1/.call-1/pay@1"]);
    }
}

#[test]
fn defer_over_a_fresh_agent_that_can_change_something_is_refused() {
    let make_fresh = |spec: &mut Value| spec["steps"][0]["agent"]["conversation"] = json!("fresh");
    let found_errors = errors(spec_with_review(make_fresh));
    assert!(found_errors.iter().any(|error| error.contains("Defer runs step handle again")), "{found_errors:?}");
    // A call of a tool that only reads is repeated.
    let reads = spec_with_review(|spec| {
        make_fresh(spec);
        spec["agents"][0]["tools"] = json!(["lookup", "ask-human"]);
    });
    assert_eq!(errors(reads), Vec::<String>::new());
    assert_eq!(errors(spec_with_review(|_| {})), Vec::<String>::new(), "one that remembers what it did is too");
}

#[test]
fn a_request_about_a_repeated_call_names_the_earlier_call() {
    let spec = spec_with_review(|spec| spec["gates"].as_array_mut().unwrap().push(money()));
    let mut run = TestRun::of(spec);
    refund_again(&mut run, "handle", "c1");
    let first = run.asked("handle/.turn-1/.call-1/.gate").request.action.clone().unwrap();
    assert_eq!(first.done, Vec::<String>::new());
    run.approve("handle/.turn-1/.call-1/.gate");
    run.reply(PAY, 1, "paid");
    run.reply("handle/.turn-2", 1, "done");
    run.defer("review", "again");
    refund_again(&mut run, "handle#2", "c1");
    let gate = "handle#2/.turn-1/.call-1/.gate";
    let done = run.asked(gate).request.action.clone().unwrap().done;
    assert_eq!(done.len(), 2, "{done:?}");
    assert_eq!(done[0], r#"refund {"amount":420}: Succeeded"#);
    assert!(done[1].starts_with("this call was made at ") && done[1].ends_with(": Succeeded, with this result: paid"));
    run.approve(gate);
    assert_eq!(run.calls(), ["handle#2/.turn-1/.call-1/pay@1"], "people decided about exactly it");
}

#[test]
fn a_deadline_that_approves_does_not_approve_a_repetition() {
    let approving_gate = json!({"name": "money", "type": "specificTools", "tools": ["refund"],
        "hitl": gate(json!({"timeout": {"after": "1m", "action": "Approve"}}))});
    let approve_by_timeout = || Outcome { source: Source::Timeout, ..decided(Verdict::Approve) };
    let mut run =
        TestRun::of(spec_with_review(|spec| spec["gates"].as_array_mut().unwrap().push(approving_gate.clone())));
    refund_again(&mut run, "handle", "c1");
    run.decide("handle/.turn-1/.call-1/.gate", approve_by_timeout());
    assert_eq!(run.calls(), [format!("{PAY}@1")], "the first one is its author's business");
    run.reply(PAY, 1, "paid");
    run.reply("handle/.turn-2", 1, "done");
    run.defer("review", "again");
    refund_again(&mut run, "handle#2", "c1");
    run.decide("handle#2/.turn-1/.call-1/.gate", approve_by_timeout());
    assert_eq!(run.calls(), ["handle#2/.turn-2@1"]);
    assert!(is_repetition_notice(&result(&run, "handle#2/.turn-2", "c1-2")));
}

#[test]
fn a_failed_call_is_made_again_only_if_it_was_not_sent() {
    use crate::transition::Failure;
    for (class, unknown, is_made_again) in [
        ("Status", false, false),
        ("Auth", false, false),
        ("RateLimited", false, false),
        ("TooLarge", false, false),
        ("Unreachable", false, true),
        ("Invalid", false, true),
        ("Refused", false, true),
    ] {
        let mut run = TestRun::of(spec_with_review(|_| {}));
        refund_again(&mut run, "handle", "c1");
        let failure = Failure {
            class: class.into(),
            message: "it failed".into(),
            retryable: false,
            unknown,
            not_before: None,
            facts: std::collections::BTreeMap::new(),
            log: None,
        };
        let at = run.clock;
        run.take(vec![crate::Fact::CallFinished { path: PAY.into(), attempt: 1, result: Err(failure), at }]);
        run.reply("handle/.turn-2", 1, "done");
        run.defer("review", "again");
        refund_again(&mut run, "handle#2", "c1");
        assert_eq!(run.calls() == ["handle#2/.turn-1/.call-1/pay@1"], is_made_again, "{class}: {:?}", run.calls());
    }
}

#[test]
fn a_call_that_only_reads_is_made_again() {
    let mut run = TestRun::of(spec_with_review(|spec| {
        spec["steps"][1] = json!({"name": "find", "http": {"url": "https://bank.example/{{ args.name }}"}});
    }));
    turn(&mut run, "handle", &[("c1", "lookup", r#"{"name":"ACME"}"#)]);
    run.reply("handle/.turn-1/.call-1/find", 1, "found");
    run.reply("handle/.turn-2", 1, "done");
    run.defer("review", "again");
    turn(&mut run, "handle#2", &[("c1", "lookup", r#"{"name":"ACME"}"#)]);
    assert_eq!(run.calls(), ["handle#2/.turn-1/.call-1/find@1"]);
}

#[test]
fn a_repeatable_tool_makes_equal_calls_again() {
    let mut run = TestRun::of(spec_with_review(|spec| spec["tools"][1]["repeatable"] = json!(true)));
    turn(&mut run, "handle", &[("c1", "refund", CALL), ("c2", "refund", CALL)]);
    run.reply(PAY, 1, "paid");
    assert_eq!(run.calls(), ["handle/.turn-1/.call-2/pay@1"], "equal calls run one after the other");
    run.reply("handle/.turn-1/.call-2/pay", 1, "paid");
    run.reply("handle/.turn-2", 1, "done");
    run.defer("review", "again");
    refund_again(&mut run, "handle#2", "c1");
    assert_eq!(run.calls(), ["handle#2/.turn-1/.call-1/pay@1"]);
}

#[test]
fn only_the_first_of_equal_calls_of_a_turn_is_made() {
    let mut run = run(json!([]));
    turn(&mut run, "handle", &[("c1", "refund", CALL), ("c2", "refund", CALL), ("c3", "refund", CALL)]);
    assert_eq!(run.calls(), [format!("{PAY}@1")]);
    run.reply(PAY, 1, "paid");
    assert_eq!(run.calls(), ["handle/.turn-2@1"]);
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "paid");
    for id in ["c2", "c3"] {
        assert!(is_repetition_notice(&result(&run, "handle/.turn-2", id)));
    }
    let checks = run.journal.records().iter().filter(|record| record.path.ends_with("/.check"));
    assert_eq!(
        checks.map(|record| record.path.as_str()).collect::<Vec<_>>(),
        ["handle/.turn-1/.call-2/.check", "handle/.turn-1/.call-3/.check"]
    );
}

#[test]
fn calls_of_a_turn_that_send_the_same_request_are_equal() {
    let mut spec = spec(gates(json!([])));
    spec["tools"][1]["parameters"] = json!({"type": "object"});
    spec["tools"].as_array_mut().unwrap().push(json!({"name": "pay-out", "step": "pay", "description": "The same.",
        "parameters": {"type": "object"}}));
    spec["agents"][0]["tools"] = json!(["refund", "pay-out", "ask-human"]);
    let mut run = TestRun::of(spec);
    let calls = [
        ("c1", "refund", r#"{"amount":420,"note":"a"}"#),
        ("c2", "refund", r#"{"amount":420,"note":"b"}"#),
        ("c3", "pay-out", r#"{"amount":420}"#),
    ];
    turn(&mut run, "handle", &calls);
    assert_eq!(run.calls(), [format!("{PAY}@1")], "the others wait");
    run.reply(PAY, 1, "paid");
    assert_eq!(run.calls(), ["handle/.turn-2@1"]);
    assert!(
        is_repetition_notice(&result(&run, "handle/.turn-2", "c2"))
            && is_repetition_notice(&result(&run, "handle/.turn-2", "c3"))
    );
}

#[test]
fn an_equal_call_of_a_later_turn_is_made_unless_it_is_irreversible() {
    for (effects, is_made_again) in [(json!("irreversible"), false), (json!("write"), true), (Value::Null, true)] {
        let mut spec = spec(gates(json!([])));
        spec["tools"][1]["effects"] = effects.clone();
        let mut run = TestRun::of(spec);
        refund_again(&mut run, "handle", "c1");
        run.reply(PAY, 1, "paid");
        refund_again(&mut run, "handle/.turn-2", "c2");
        assert_eq!(run.calls() == ["handle/.turn-2/.call-1/pay@1"], is_made_again, "{effects}: {:?}", run.calls());
    }
}

#[test]
fn a_call_that_left_the_conversation_is_not_made_again() {
    let mut spec = spec(gates(json!([])));
    spec["tools"][1]["effects"] = json!("write");
    spec["tools"][0]["parameters"] = json!({"type": "object"});
    let mut run = TestRun::of(spec);
    refund_again(&mut run, "handle", "c1");
    run.reply(PAY, 1, "paid");
    let mut path = "handle/.turn-2".to_owned();
    for number in 3..=8 {
        let long = json!({"name": "x".repeat(60_000)}).to_string();
        turn(&mut run, &path, &[("l", "lookup", &long)]);
        path = format!("handle/.turn-{number}");
    }
    assert!(
        messages_to_agent(&run, &path)
            .iter()
            .any(|message| message.text.contains("turns of this conversation are left out"))
    );
    turn(&mut run, &path, &[("c2", "refund", CALL)]);
    assert!(is_repetition_notice(&result(&run, "handle/.turn-9", "c2")));
}

#[test]
fn a_repeated_answer_and_a_revision_do_not_pay_again() {
    let mut spec = spec(json!([
        {"name": "questions", "type": "question", "hitl": gate(json!({}))},
        {"name": "check", "type": "outputValidation", "steps": ["handle"], "hitl": gate(json!({"allowedVerdicts": ["Approve", "Defer", "Retry", "Reject"]}))},
        {"name": "final", "type": "finalResponse", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Defer", "Reject"]}))},
    ]));
    spec["steps"].as_array_mut().unwrap().truncate(3);
    let mut run = TestRun::of(spec);
    refund_again(&mut run, "handle", "c1");
    run.reply(PAY, 1, "paid");
    run.reply("handle/.turn-2", 1, "done");
    for (verdict, visit, gate) in [(Verdict::Retry, 2, "handle/.output"), (Verdict::Defer, 3, "handle/.output#2")] {
        let guidance = (verdict == Verdict::Defer).then(|| "again".to_owned());
        run.decide(gate, Outcome { guidance, ..decided(verdict) });
        let calls = json!([{"id": "c", "tool": "refund", "arguments": CALL}]);
        let facts = std::collections::BTreeMap::from([("calls".to_owned(), "1".to_owned())]);
        let reply =
            crate::transition::Reply { response: json!({"text": "", "calls": calls}), facts, ..Default::default() };
        let at = run.clock;
        run.take(vec![crate::Fact::CallFinished { path: "handle".into(), attempt: visit, result: Ok(reply), at }]);
        assert_eq!(run.calls(), [format!("handle/.turn-2#{visit}@1")]);
        assert!(is_repetition_notice(&result(&run, &format!("handle/.turn-2#{visit}"), "c")));
        run.reply(&format!("handle/.turn-2#{visit}"), 1, "done");
    }
    run.approve("handle/.output#3");
    run.defer(".final", "warmer");
    refund_again(&mut run, ".revision", "c");
    assert_eq!(run.calls(), [".revision/.turn-2@1"]);
    assert!(is_repetition_notice(&result(&run, ".revision/.turn-2", "c")));
}

/// Returns a spec of an agent that can call two clerks in one turn. The clerks are agents that can refund.
pub(super) fn spec_of_two_clerks(more_gates: Value) -> Value {
    let mut spec = spec(gates(more_gates));
    spec["agents"] =
        json!([{"name": "boss", "tools": ["ask-clerk", "ask-human"]}, {"name": "clerk", "tools": ["refund"]}]);
    spec["tools"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "ask-clerk", "step": "clerk", "description": "Asks the clerk.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}}));
    spec["steps"][0] = agent("handle", "boss", "help");
    spec["steps"].as_array_mut().unwrap().push(agent("clerk", "clerk", "{{ args.what }}"));
    spec
}

pub(super) fn run_of_two_clerks(more_gates: Value) -> TestRun {
    TestRun::of(spec_of_two_clerks(more_gates))
}

#[test]
fn an_agent_called_twice_or_at_the_same_time_pays_only_once() {
    let mut run = run_of_two_clerks(json!([]));
    turn(&mut run, "handle", &[("b1", "ask-clerk", r#"{"what":"a"}"#), ("b2", "ask-clerk", r#"{"what":"b"}"#)]);
    let clerk = |call: i32| format!("handle/.turn-1/.call-{call}/clerk");
    assert_eq!(run.calls(), [format!("{}@1", clerk(1)), format!("{}@1", clerk(2))]);
    refund_again(&mut run, &clerk(1), "c");
    refund_again(&mut run, &clerk(2), "c");
    let first = format!("{}/.turn-1/.call-1/pay", clerk(1));
    assert!(!run.calls().contains(&format!("{}/.turn-1/.call-1/pay@1", clerk(2))), "{:?}", run.calls());
    run.reply(&first, 1, "paid");
    assert!(is_repetition_notice(&result(&run, &format!("{}/.turn-2", clerk(2)), "c")));
    run.reply(&format!("{}/.turn-2", clerk(1)), 1, "done");
    run.reply(&format!("{}/.turn-2", clerk(2)), 1, "done");
    turn(&mut run, "handle/.turn-2", &[("b3", "ask-clerk", r#"{"what":"c"}"#)]);
    refund_again(&mut run, "handle/.turn-2/.call-1/clerk", "c");
    assert!(is_repetition_notice(&result(&run, "handle/.turn-2/.call-1/clerk/.turn-2", "c")));
}

#[test]
fn a_retry_at_a_gate_about_failures_of_the_agent_does_not_pay_again() {
    let mut spec = spec(json!([
        {"name": "questions", "type": "question", "hitl": gate(json!({}))},
        {"name": "help", "type": "errorEscalation", "steps": ["handle"], "afterAttempts": 1, "hitl": gate(json!({}))},
    ]));
    spec["tools"][1]["effects"] = json!("irreversible");
    let mut run = TestRun::of(spec);
    refund_again(&mut run, "handle", "c1");
    run.reply(PAY, 1, "paid");
    run.fail("handle/.turn-2", 1, false, false);
    run.decide("handle/.turn-2/.error", decided(Verdict::Retry));
    refund_in_second_attempt(&mut run);
    assert!(is_repetition_notice(&result(&run, "handle/.turn-3", "c2")));
}

#[test]
fn a_retry_of_the_agents_step_does_not_pay_again() {
    let mut spec = spec(gates(json!([])));
    spec["tools"][1]["effects"] = json!("irreversible");
    spec["steps"][0]["retry"] = json!({"limit": 2});
    let mut run = TestRun::of(spec);
    refund_again(&mut run, "handle", "c1");
    run.reply(PAY, 1, "paid");
    run.fail("handle/.turn-2", 1, true, false);
    run.wait(600);
    assert_eq!(run.calls(), ["handle/.turn-2@2"], "the turn is made once more");
    refund_in_second_attempt(&mut run);
    assert!(is_repetition_notice(&result(&run, "handle/.turn-3", "c2")));
    assert_eq!(run.calls(), ["handle/.turn-3@1"], "nothing is paid");
}

/// Makes the same refund in the second attempt at the second turn.
fn refund_in_second_attempt(run: &mut TestRun) {
    let calls = json!([{"id": "c2", "tool": "refund", "arguments": CALL}]);
    let facts = std::collections::BTreeMap::from([("calls".to_owned(), "1".to_owned())]);
    let reply = crate::transition::Reply { response: json!({"text": "", "calls": calls}), facts, ..Default::default() };
    let at = run.clock;
    run.take(vec![crate::Fact::CallFinished { path: "handle/.turn-2".into(), attempt: 2, result: Ok(reply), at }]);
}

#[test]
fn a_gate_before_the_step_decides_about_a_repetition() {
    let start = json!({"name": "start", "type": "stepStart", "steps": ["pay"], "condition": "args.amount > 100",
        "hitl": gate(json!({"timeout": {"after": "1m", "action": "Approve"}}))});
    let gate_path = "handle#2/.turn-1/.call-1/pay/.start";
    let run_with_second_refund = |amount: i32| {
        let mut run = TestRun::of(spec_with_review(|spec| spec["gates"].as_array_mut().unwrap().push(start.clone())));
        let call = json!({"amount": amount}).to_string();
        turn(&mut run, "handle", &[("c1", "refund", &call)]);
        if amount > 100 {
            run.approve("handle/.turn-1/.call-1/pay/.start");
        }
        run.reply(PAY, 1, "paid");
        run.reply("handle/.turn-2", 1, "done");
        run.defer("review", "again");
        turn(&mut run, "handle#2", &[("c1", "refund", &call)]);
        run
    };
    let mut approved = run_with_second_refund(420);
    assert!(approved.asked(gate_path).request.context.as_ref().unwrap().contains("this call was made at "));
    approved.approve(gate_path);
    assert_eq!(approved.calls(), ["handle#2/.turn-1/.call-1/pay@1"]);
    let mut overdue = run_with_second_refund(420);
    overdue.decide(gate_path, Outcome { source: Source::Timeout, ..decided(Verdict::Approve) });
    assert_eq!(overdue.calls(), ["handle#2/.turn-2@1"], "a deadline does not repeat it");
    assert!(is_repetition_notice(&result(&overdue, "handle#2/.turn-2", "c1-2")));
    let unasked = run_with_second_refund(42);
    assert_eq!(unasked.calls(), ["handle#2/.turn-2@1"], "its condition does not hold, so nobody was asked");
}

#[test]
fn a_request_lists_earlier_calls_of_the_turn_and_counts_equal_calls() {
    let mut run = run(json!([money()]));
    turn(
        &mut run,
        "handle",
        &[("c1", "refund", CALL), ("c2", "refund", CALL), ("c3", "refund", CALL), ("c4", "lookup", "{}")],
    );
    assert_eq!(run.open(), ["handle/.turn-1/.call-1/.gate"], "equal calls are asked about one after the other");
    run.approve("handle/.turn-1/.call-1/.gate");
    run.reply(PAY, 1, "paid");
    let done = run.asked("handle/.turn-1/.call-2/.gate").request.action.clone().unwrap().done;
    assert!(done.contains(&r#"refund {"amount":420}: Succeeded"#.to_owned()), "{done:?}");
    assert!(done.contains(&"lookup {}: Succeeded".to_owned()), "{done:?}");
    assert_eq!(done.last().unwrap(), "this is call 2 of 3 equal calls of this turn, 1 of them ran");
    run.decide("handle/.turn-1/.call-2/.gate", decided(Verdict::Reject));
    let check = run.record("handle/.turn-1/.call-3/.check").error.clone().unwrap();
    assert_eq!(
        (check.class.as_str(), check.message.as_str()),
        ("Refused", "it is equal to call 2 of this turn, which was not made")
    );
    assert!(result(&run, "handle/.turn-2", "c3").starts_with("Denied by a human"));
}

#[test]
fn a_rejected_call_has_one_record_for_all_later_equal_calls() {
    let mut run = run(json!([money()]));
    let ids: Vec<String> = (1..=32).map(|at| format!("c{at}")).collect();
    let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "refund", CALL)).collect();
    turn(&mut run, "handle", &calls);
    run.decide("handle/.turn-1/.call-1/.gate", decided(Verdict::Reject));
    let checks: Vec<_> =
        run.journal.records().iter().filter(|record| record.path.ends_with("/.check")).cloned().collect();
    assert_eq!(checks.len(), 1);
    let message = &checks[0].error.as_ref().unwrap().message;
    assert_eq!(
        message,
        "it is equal to call 1 of this turn, which was not made, and the same holds for 30 more equal calls"
    );
}

#[test]
fn a_call_edited_twice_is_refused_without_a_gate_about_failures() {
    let mut run = run(json!([money()]));
    let mut path = "handle".to_owned();
    for number in 1..=2 {
        turn(&mut run, &path, &[("c", "refund", CALL)]);
        let gate = format!("handle/.turn-{number}/.call-1/.gate");
        run.modify(&gate, json!({"arguments": {"amount": 40 + number}}));
        run.approve(&format!("{gate}#2"));
        run.reply(&format!("handle/.turn-{number}/.call-1/pay"), 1, "paid");
        path = format!("handle/.turn-{}", number + 1);
    }
    turn(&mut run, &path, &[("c", "refund", CALL)]);
    assert_eq!((run.open(), run.calls()), (vec![], vec!["handle/.turn-4@1".to_owned()]));
    let tool_result = result(&run, "handle/.turn-4", "c-3");
    assert_eq!(
        tool_result,
        "Refused: people changed the arguments of this call of refund 2 times in this run; do not call it again"
    );
    // A gate asks about another call of the tool.
    turn(&mut run, "handle/.turn-4", &[("d", "refund", r#"{"amount":7}"#)]);
    assert_eq!(run.open(), ["handle/.turn-4/.call-1/.gate"]);
}

#[test]
fn a_call_edited_twice_within_one_turn_is_escalated() {
    let help = json!({"name": "help", "type": "errorEscalation", "steps": ["pay"], "hitl": gate(json!({"approvers": [{"kind": "User", "name": "olga"}]}))});
    let mut run = run(json!([money(), help]));
    turn(&mut run, "handle", &[("c1", "refund", CALL), ("c2", "refund", CALL), ("c3", "refund", CALL)]);
    for number in 1..=2 {
        let gate = format!("handle/.turn-1/.call-{number}/.gate");
        run.modify(&gate, json!({"arguments": {"amount": 40 + number}}));
        run.approve(&format!("{gate}#2"));
        run.reply(&format!("handle/.turn-1/.call-{number}/pay"), 1, "paid");
    }
    let error_gate = "handle/.turn-1/.call-3/.error";
    assert_eq!(run.open(), [error_gate]);
    let quorums: Vec<_> = run.asked(error_gate).request.quorums.iter().map(|quorum| quorum.source.clone()).collect();
    assert_eq!(quorums, ["gate help", "gate money"]);
    run.decide(error_gate, decided(Verdict::Retry));
    assert_eq!(run.open(), ["handle/.turn-1/.call-3/.gate"]);
}

#[test]
fn a_call_refused_for_its_arguments_or_a_limit_has_a_record() {
    let assert_refused = |call: (&str, &str, &str), class: &str, part_of_message: &str| {
        let mut run = run(json!([money()]));
        turn(&mut run, "handle", &[call]);
        let check = run.record("handle/.turn-1/.call-1/.check").error.clone().unwrap();
        assert!(check.class == class && check.message.contains(part_of_message), "{check:?}");
        assert!(result(&run, "handle/.turn-2", "c").starts_with("Error: "));
    };
    assert_refused(("c", "refund", r#"{"amount":1234567890123456789}"#), "Arguments", "2^53");
    assert_refused(("c", "refund", r#"{"amount":"many"}"#), "Arguments", "do not fit the tool refund");
    assert_refused(("c", "transfer", "{}"), "NoTool", "there is no tool transfer");
    let mut spec = spec(gates(json!([])));
    spec["agents"][0]["limits"] = json!({"calls": 2});
    let mut run = TestRun::of(spec);
    let calls: Vec<_> =
        (1..=5).map(|at| json!({"id": format!("c{at}"), "tool": "lookup", "arguments": "{}"})).collect();
    raw_turn(&mut run, "handle", json!({"text": "", "calls": calls, "dropped": 3}));
    let checks = run.journal.records().iter().filter(|record| record.path.ends_with("/.check"));
    assert_eq!(checks.map(|record| record.path.as_str()).collect::<Vec<_>>(), ["handle/.turn-1/.call-3/.check"]);
    assert!(
        result(&run, "handle/.turn-2", "c5")
            .ends_with("[3 further calls of your message were not kept, and none of them was made]")
    );
}

#[test]
fn a_record_of_a_call_has_its_arguments() {
    let mut run = run(json!([]));
    refund_again(&mut run, "handle", "c1");
    run.reply(PAY, 1, "paid");
    assert_eq!(run.record(PAY).facts["given"], CALL);
    assert_eq!(run.record(PAY).phase, StepPhase::Succeeded);
}

#[test]
fn the_strictest_tool_of_a_step_determines_its_effects() {
    let mut spec = spec(gates(json!([])));
    spec["tools"].as_array_mut().unwrap().push(json!({"name": "pay-out", "step": "pay", "description": "The same.",
        "effects": "write", "parameters": {"type": "object"}}));
    spec["agents"][0]["tools"] = json!(["refund", "pay-out", "ask-human"]);
    let mut run = TestRun::of(spec);
    refund_again(&mut run, "handle", "c1");
    run.reply(PAY, 1, "paid");
    turn(&mut run, "handle/.turn-2", &[("c2", "pay-out", CALL)]);
    assert!(is_repetition_notice(&result(&run, "handle/.turn-3", "c2")), "refund says that the step is irreversible");
}

#[test]
fn a_step_is_repeatable_only_if_all_of_its_tools_are() {
    for (is_refund_repeatable, is_made_again) in [(false, false), (true, true)] {
        let mut spec = spec(gates(json!([])));
        spec["tools"][1]["repeatable"] = json!(is_refund_repeatable);
        spec["tools"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "pay-out", "step": "pay", "description": "The same.",
            "repeatable": true, "parameters": {"type": "object"}}));
        spec["agents"][0]["tools"] = json!(["refund", "pay-out", "ask-human"]);
        let mut run = TestRun::of(spec);
        refund_again(&mut run, "handle", "c1");
        run.reply(PAY, 1, "paid");
        turn(&mut run, "handle/.turn-2", &[("c2", "pay-out", CALL)]);
        assert_eq!(run.calls() == ["handle/.turn-2/.call-1/pay@1"], is_made_again, "{:?}", run.calls());
    }
}

#[test]
fn a_call_refused_after_an_earlier_reject_has_a_record() {
    let mut run = run(json!([money()]));
    refund_again(&mut run, "handle", "c1");
    run.decide("handle/.turn-1/.call-1/.gate", decided(Verdict::Reject));
    refund_again(&mut run, "handle/.turn-2", "c2");
    assert!(result(&run, "handle/.turn-3", "c2").starts_with("Already refused by a human"));
    let check = run.record("handle/.turn-2/.call-1/.check").error.clone().unwrap();
    assert!(check.class == "Refused" && check.message.starts_with("Already refused by a human"), "{check:?}");
}
