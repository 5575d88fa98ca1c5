//! Tests of equal calls that are made while people decide, or while a call waits for its next attempt.

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, approval::Source};

use super::{
    equal::{CALL, PAY, is_repetition_notice, refund_again, run_of_two_clerks, spec_of_two_clerks, spec_with_review},
    money, result, turn,
};
use crate::tests::test_run::{TestRun, decided, gate};

#[test]
fn a_gate_asks_again_when_an_equal_call_was_made_meanwhile() {
    for is_at_once in [true, false] {
        let mut run = run_of_two_clerks(json!([money()]));
        turn(&mut run, "handle", &[("b1", "ask-clerk", r#"{"what":"a"}"#), ("b2", "ask-clerk", r#"{"what":"b"}"#)]);
        for call in 1..=2 {
            turn(&mut run, &format!("handle/.turn-1/.call-{call}/clerk"), &[("c", "refund", CALL)]);
        }
        assert_eq!(run.open(), [clerk_path(1, ".gate"), clerk_path(2, ".gate")]);
        let approval_at =
            |path: String| crate::Fact::ApprovalDecided { path, outcome: Box::new(decided(Verdict::Approve)) };
        if is_at_once {
            run.take(vec![approval_at(clerk_path(1, ".gate")), approval_at(clerk_path(2, ".gate"))]);
        } else {
            run.approve(&clerk_path(1, ".gate"));
            run.approve(&clerk_path(2, ".gate"));
        }
        assert!(!run.calls().contains(&format!("{}@1", clerk_path(2, "pay"))), "it waits: {:?}", run.calls());
        run.reply(&clerk_path(1, "pay"), 1, "paid");
        assert_eq!(run.open(), [clerk_path(2, ".gate#2")], "people did not know of the first payment");
        let done = run.asked(&clerk_path(2, ".gate#2")).request.action.clone().unwrap().done;
        assert!(done.iter().any(|line| line.starts_with("this call was made at ")), "{done:?}");
        run.approve(&clerk_path(2, ".gate#2"));
        assert!(run.calls().contains(&format!("{}@1", clerk_path(2, "pay"))), "{:?}", run.calls());
    }
}

/// Finishes a call with a failure of this class.
pub(super) fn fail_call(
    run: &mut TestRun,
    path: &str,
    attempt: i32,
    class: &str,
    facts: &[(&str, &str)],
    retryable: bool,
) {
    let failure = crate::transition::Failure {
        class: class.into(),
        message: "it failed".into(),
        retryable,
        unknown: false,
        not_before: None,
        facts: facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        log: None,
    };
    let at = run.clock;
    run.take(vec![crate::Fact::CallFinished { path: path.into(), attempt, result: Err(failure), at }]);
}

/// Returns the path of a record below the only call of a clerk. `call` is the number of the call of that clerk.
fn clerk_path(call: i32, record: &str) -> String {
    format!("handle/.turn-1/.call-{call}/clerk/.turn-1/.call-1/{record}")
}

/// Returns a run in which two clerks make the same refund at the same time. `change` changes the spec of the run.
fn run_of_two_refunds(more_gates: Value, change: impl Fn(&mut Value)) -> TestRun {
    let mut spec = spec_of_two_clerks(more_gates);
    change(&mut spec);
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("b1", "ask-clerk", r#"{"what":"a"}"#), ("b2", "ask-clerk", r#"{"what":"b"}"#)]);
    for call in 1..=2 {
        turn(&mut run, &format!("handle/.turn-1/.call-{call}/clerk"), &[("c", "refund", CALL)]);
    }
    run
}

#[test]
fn a_retry_is_not_made_when_an_equal_call_was_made_in_its_pause() {
    let retry =
        |spec: &mut Value| spec["steps"][2]["retry"] = json!({"limit": 2, "backoff": {"base": "10s", "jitter": 0}});
    let mut run = run_of_two_refunds(json!([]), retry);
    fail_call(&mut run, &clerk_path(1, "pay"), 1, "Unreachable", &[], true);
    assert!(run.calls().contains(&format!("{}@1", clerk_path(2, "pay"))), "nothing was sent: {:?}", run.calls());
    run.reply(&clerk_path(2, "pay"), 1, "paid");
    run.wait(20);
    assert!(!run.calls().iter().any(|call| call.contains("/pay@")), "{:?}", run.calls());
    assert!(is_repetition_notice(&result(&run, "handle/.turn-1/.call-1/clerk/.turn-2", "c")));
    // The valid counterpart: no call was made in the pause.
    let mut run = run_of_two_refunds(json!([]), retry);
    fail_call(&mut run, &clerk_path(1, "pay"), 1, "Unreachable", &[], true);
    fail_call(&mut run, &clerk_path(2, "pay"), 1, "Invalid", &[], false);
    run.wait(20);
    assert!(run.calls().contains(&format!("{}@2", clerk_path(1, "pay"))), "{:?}", run.calls());
}

#[test]
fn an_approval_covers_no_retry_after_an_equal_call_was_made() {
    let retry =
        |spec: &mut Value| spec["steps"][2]["retry"] = json!({"limit": 2, "backoff": {"base": "10s", "jitter": 0}});
    let mut run = run_of_two_refunds(json!([money()]), retry);
    run.approve(&clerk_path(1, ".gate"));
    fail_call(&mut run, &clerk_path(1, "pay"), 1, "RateLimited", &[("statusCode", "429")], true);
    run.approve(&clerk_path(2, ".gate"));
    assert_eq!(run.open(), [clerk_path(2, ".gate#2")], "people did not know of the first attempt");
    run.approve(&clerk_path(2, ".gate#2"));
    run.reply(&clerk_path(2, "pay"), 1, "paid");
    run.wait(20);
    assert!(!run.calls().iter().any(|call| call.contains("/pay@")), "{:?}", run.calls());
    assert_eq!(run.open(), [clerk_path(1, ".gate#2")]);
}

#[test]
fn a_gate_before_the_step_asks_again_after_an_equal_call_was_made() {
    let start = json!([{"name": "start", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))}]);
    for is_at_once in [true, false] {
        let mut run = run_of_two_refunds(start.clone(), |_| {});
        let (first, second) = (clerk_path(1, "pay/.start"), clerk_path(2, "pay/.start"));
        assert_eq!(run.open(), [first.clone(), second.clone()]);
        let approval_at = |path: &str| crate::Fact::ApprovalDecided {
            path: path.into(),
            outcome: Box::new(decided(Verdict::Approve)),
        };
        if is_at_once {
            run.take(vec![approval_at(&first), approval_at(&second)]);
        } else {
            run.approve(&first);
            run.approve(&second);
        }
        assert!(!run.calls().contains(&format!("{}@1", clerk_path(2, "pay"))), "{:?}", run.calls());
        run.reply(&clerk_path(1, "pay"), 1, "paid");
        assert_eq!(run.open(), [clerk_path(2, "pay/.start#2")]);
        run.approve(&clerk_path(2, "pay/.start#2"));
        assert!(run.calls().contains(&format!("{}@1", clerk_path(2, "pay"))), "{:?}", run.calls());
    }
}

#[test]
fn a_retry_at_a_gate_before_the_step_approves_no_repetition() {
    let start = json!({"name": "start", "type": "stepStart", "steps": ["pay"],
        "hitl": gate(json!({"allowedVerdicts": ["Approve", "Reject", "Retry"], "timeout": {"after": "1m", "action": "Approve"}}))});
    let mut run = TestRun::of(spec_with_review(|spec| spec["gates"].as_array_mut().unwrap().push(start.clone())));
    refund_again(&mut run, "handle", "c1");
    run.approve("handle/.turn-1/.call-1/pay/.start");
    run.reply(PAY, 1, "paid");
    run.reply("handle/.turn-2", 1, "done");
    run.defer("review", "again");
    refund_again(&mut run, "handle#2", "c1");
    let gate_path = "handle#2/.turn-1/.call-1/pay/.start";
    run.decide(gate_path, decided(Verdict::Retry));
    run.decide(&format!("{gate_path}#2"), Outcome { source: Source::Timeout, ..decided(Verdict::Approve) });
    assert_eq!(run.calls(), ["handle#2/.turn-2@1"], "a deadline does not repeat it");
}
