//! Tests that a turn for whose answer there was no memory is repeated automatically, and does not end a run.

use serde_json::{Value, json};

use super::{equal::CALL, gates, meanwhile::fail_call, result, spec, turn};
use crate::tests::test_run::TestRun;

/// Returns a run whose agent has paid, and whose steps have one attempt.
fn run_after_payment(change: impl Fn(&mut Value)) -> TestRun {
    let mut spec = spec(gates(json!([])));
    spec["steps"][0]["retry"] = json!({"limit": 0});
    change(&mut spec);
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", CALL)]);
    run.reply("handle/.turn-1/.call-1/pay", 1, "paid");
    run
}

#[test]
fn a_turn_without_memory_is_repeated_without_a_limit() {
    let mut run = run_after_payment(|_| {});
    for attempt in 1..=10 {
        assert_eq!(run.calls(), [format!("handle/.turn-2@{attempt}")]);
        fail_call(&mut run, "handle/.turn-2", attempt, "TooLarge", &[], true);
        run.wait(3600);
    }
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "paid", "what it was told stays the same");
    run.reply("handle/.turn-2", 11, "done");
    assert_eq!(run.expect_success(), "done");
}

#[test]
fn an_answer_above_the_size_limit_is_not_requested_again() {
    let mut run = run_after_payment(|_| {});
    fail_call(&mut run, "handle/.turn-2", 1, "TooLarge", &[], false);
    run.wait(3600);
    assert!(run.calls().is_empty(), "{:?}", run.calls());
}

#[test]
fn failures_without_memory_do_not_count_as_attempts() {
    let mut run = run_after_payment(|spec| spec["steps"][0]["retry"] = json!({"limit": 1}));
    for (attempt, class) in [(1, "TooLarge"), (2, "Unreachable"), (3, "TooLarge")] {
        assert_eq!(run.calls(), [format!("handle/.turn-2@{attempt}")]);
        fail_call(&mut run, "handle/.turn-2", attempt, class, &[], true);
        run.wait(3600);
    }
    assert_eq!(run.calls(), ["handle/.turn-2@4"]);
    fail_call(&mut run, "handle/.turn-2", 4, "Unreachable", &[], true);
    run.wait(3600);
    assert!(run.calls().is_empty(), "{:?}", run.calls());
}
