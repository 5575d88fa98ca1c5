//! Tests of equal calls that are made while people decide, or while a call waits for its next attempt.

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, approval::Source};

use super::{
    equal::{CALL, PAY, clerks, marked, pays_again, reviewed, two_clerks},
    money, result, turn,
};
use crate::tests::test_run::{TestRun, decided, gate};

#[test]
fn an_approval_of_an_equal_call_that_was_made_meanwhile_is_asked_for_again() {
    let clerk = |call: i32, more: &str| format!("handle/.turn-1/.call-{call}/clerk/.turn-1/.call-1/{more}");
    for at_once in [true, false] {
        let mut run = two_clerks(json!([money()]));
        turn(&mut run, "handle", &[("b1", "ask-clerk", r#"{"what":"a"}"#), ("b2", "ask-clerk", r#"{"what":"b"}"#)]);
        for call in 1..=2 {
            turn(&mut run, &format!("handle/.turn-1/.call-{call}/clerk"), &[("c", "refund", CALL)]);
        }
        assert_eq!(run.open(), [clerk(1, ".gate"), clerk(2, ".gate")]);
        let approves =
            |path: String| crate::Fact::ApprovalDecided { path, outcome: Box::new(decided(Verdict::Approve)) };
        if at_once {
            run.take(vec![approves(clerk(1, ".gate")), approves(clerk(2, ".gate"))]);
        } else {
            run.approve(&clerk(1, ".gate"));
            run.approve(&clerk(2, ".gate"));
        }
        assert!(!run.calls().contains(&format!("{}@1", clerk(2, "pay"))), "it waits: {:?}", run.calls());
        run.reply(&clerk(1, "pay"), 1, "paid");
        assert_eq!(run.open(), [clerk(2, ".gate#2")], "people did not know of the first payment");
        let done = run.asked(&clerk(2, ".gate#2")).request.action.clone().unwrap().done;
        assert!(done.iter().any(|line| line.starts_with("this call was made at ")), "{done:?}");
        run.approve(&clerk(2, ".gate#2"));
        assert!(run.calls().contains(&format!("{}@1", clerk(2, "pay"))), "{:?}", run.calls());
    }
}

/// Finishes a call with this failure.
pub(super) fn ended(run: &mut TestRun, path: &str, attempt: i32, class: &str, facts: &[(&str, &str)], retryable: bool) {
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

fn clerk(call: i32, more: &str) -> String {
    format!("handle/.turn-1/.call-{call}/clerk/.turn-1/.call-1/{more}")
}

/// Returns a run of two clerks that refund the same at the same time, with these gates and a change of the spec.
fn both_refund(more: Value, change: impl Fn(&mut Value)) -> TestRun {
    let mut spec = clerks(more);
    change(&mut spec);
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("b1", "ask-clerk", r#"{"what":"a"}"#), ("b2", "ask-clerk", r#"{"what":"b"}"#)]);
    for call in 1..=2 {
        turn(&mut run, &format!("handle/.turn-1/.call-{call}/clerk"), &[("c", "refund", CALL)]);
    }
    run
}

#[test]
fn a_retry_of_a_call_is_not_made_after_an_equal_one_was_made_in_its_pause() {
    let retry =
        |spec: &mut Value| spec["steps"][2]["retry"] = json!({"limit": 2, "backoff": {"base": "10s", "jitter": 0}});
    let mut run = both_refund(json!([]), retry);
    ended(&mut run, &clerk(1, "pay"), 1, "Unreachable", &[], true);
    assert!(run.calls().contains(&format!("{}@1", clerk(2, "pay"))), "nothing was sent: {:?}", run.calls());
    run.reply(&clerk(2, "pay"), 1, "paid");
    run.later(20);
    assert!(!run.calls().iter().any(|call| call.contains("/pay@")), "{:?}", run.calls());
    assert!(marked(&result(&run, "handle/.turn-1/.call-1/clerk/.turn-2", "c")));
    // The valid counterpart: no call was made in the pause.
    let mut run = both_refund(json!([]), retry);
    ended(&mut run, &clerk(1, "pay"), 1, "Unreachable", &[], true);
    ended(&mut run, &clerk(2, "pay"), 1, "Invalid", &[], false);
    run.later(20);
    assert!(run.calls().contains(&format!("{}@2", clerk(1, "pay"))), "{:?}", run.calls());
}

#[test]
fn an_approval_covers_no_retry_after_an_equal_call_was_made() {
    let retry =
        |spec: &mut Value| spec["steps"][2]["retry"] = json!({"limit": 2, "backoff": {"base": "10s", "jitter": 0}});
    let mut run = both_refund(json!([money()]), retry);
    run.approve(&clerk(1, ".gate"));
    ended(&mut run, &clerk(1, "pay"), 1, "RateLimited", &[("statusCode", "429")], true);
    run.approve(&clerk(2, ".gate"));
    assert_eq!(run.open(), [clerk(2, ".gate#2")], "people did not know of the first attempt");
    run.approve(&clerk(2, ".gate#2"));
    run.reply(&clerk(2, "pay"), 1, "paid");
    run.later(20);
    assert!(!run.calls().iter().any(|call| call.contains("/pay@")), "{:?}", run.calls());
    assert_eq!(run.open(), [clerk(1, ".gate#2")]);
}

#[test]
fn an_approval_before_the_step_is_asked_for_again_after_an_equal_call_was_made() {
    let start = json!([{"name": "start", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))}]);
    for at_once in [true, false] {
        let mut run = both_refund(start.clone(), |_| {});
        let (first, second) = (clerk(1, "pay/.start"), clerk(2, "pay/.start"));
        assert_eq!(run.open(), [first.clone(), second.clone()]);
        let approves = |path: &str| crate::Fact::ApprovalDecided {
            path: path.into(),
            outcome: Box::new(decided(Verdict::Approve)),
        };
        if at_once {
            run.take(vec![approves(&first), approves(&second)]);
        } else {
            run.approve(&first);
            run.approve(&second);
        }
        assert!(!run.calls().contains(&format!("{}@1", clerk(2, "pay"))), "{:?}", run.calls());
        run.reply(&clerk(1, "pay"), 1, "paid");
        assert_eq!(run.open(), [clerk(2, "pay/.start#2")]);
        run.approve(&clerk(2, "pay/.start#2"));
        assert!(run.calls().contains(&format!("{}@1", clerk(2, "pay"))), "{:?}", run.calls());
    }
}

#[test]
fn a_retry_at_a_gate_before_the_step_is_no_decision_about_a_repetition() {
    let start = json!({"name": "start", "type": "stepStart", "steps": ["pay"],
        "hitl": gate(json!({"allowedVerdicts": ["Approve", "Reject", "Retry"], "timeout": {"after": "1m", "action": "Approve"}}))});
    let mut run = TestRun::of(reviewed(|spec| spec["gates"].as_array_mut().unwrap().push(start.clone())));
    pays_again(&mut run, "handle", "c1");
    run.approve("handle/.turn-1/.call-1/pay/.start");
    run.reply(PAY, 1, "paid");
    run.reply("handle/.turn-2", 1, "done");
    run.defer("review", "again");
    pays_again(&mut run, "handle#2", "c1");
    let at = "handle#2/.turn-1/.call-1/pay/.start";
    run.decide(at, decided(Verdict::Retry));
    run.decide(&format!("{at}#2"), Outcome { source: Source::Timeout, ..decided(Verdict::Approve) });
    assert_eq!(run.calls(), ["handle#2/.turn-2@1"], "a deadline does not repeat it");
}
