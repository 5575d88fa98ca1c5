//! Tests of the deadline of a gate that asks again after voided votes: it keeps the rest of its time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use serde_json::json;
use signoff_api::{Moment, Outcome, approval::ApprovalPhase};

use super::test_run::{TestRun, hitl};

const HOUR: u64 = 3600;

fn superseded_outcome(run: &TestRun, why: &str) -> Outcome {
    let reason = Some(format!("{why}: for a test"));
    Outcome { phase: ApprovalPhase::Superseded, reason, decided_at: Some(run.clock), ..Outcome::default() }
}

/// Supersedes the gate after some seconds, and returns the timeout of its next visit.
fn supersede_after(run: &mut TestRun, path: &str, after: u64, why: &str, next: &str) -> Duration {
    run.clock = run.clock.after(Duration::from_secs(after));
    let outcome = superseded_outcome(run, why);
    run.decide(path, outcome);
    let left = deadline(run, next).since(run.clock);
    // The timeout that people are told, which also determines whether a request is late.
    assert_eq!(run.asked(next).request.timeout.after.unwrap().duration(), left);
    left
}

fn deadline(run: &TestRun, path: &str) -> Moment {
    run.asked(path).request.deadline
}

fn run_with_timeout(after: &str) -> TestRun {
    TestRun::new(json!([hitl("review", json!({"timeout": {"after": after, "action": "Approve"}}))]))
}

#[test]
fn a_gate_with_voided_votes_keeps_the_remaining_time() {
    for why in [Outcome::UNGUARDED, Outcome::VOTES_TOO_OLD] {
        let mut run = run_with_timeout("24h");
        let left = supersede_after(&mut run, "review", 4 * HOUR, why, "review#2");
        assert_eq!(left, Duration::from_secs(20 * HOUR), "{why}");
        let record = run.journal.superseded_before("review#2").unwrap();
        assert_eq!(record.path, "review");
    }
}

#[test]
fn a_repeated_gate_has_at_least_an_hour_or_its_own_shorter_time() {
    let mut run = run_with_timeout("24h");
    assert_eq!(
        supersede_after(&mut run, "review", 23 * HOUR + 3590, Outcome::UNGUARDED, "review#2"),
        Duration::from_secs(HOUR)
    );
    let mut run = run_with_timeout("10m");
    assert_eq!(supersede_after(&mut run, "review", 590, Outcome::UNGUARDED, "review#2"), Duration::from_secs(600));
}

#[test]
fn repeated_gates_end_at_most_seven_days_after_the_first_request() {
    const DAY: u64 = 24 * HOUR;
    let mut run = run_with_timeout("168h");
    let (mut path, begun) = ("review".to_owned(), run.clock);
    // The maximum is 7 days. The run is suspended between two requests, and a suspended run does not ask.
    supersede_after(&mut run, &path, HOUR, Outcome::UNGUARDED, "review#2");
    path = "review#2".to_owned();
    for (seconds, left) in [(DAY, 6 * DAY - HOUR), (5 * DAY, DAY - HOUR)] {
        let next = format!("review#{}", path.trim_start_matches("review#").parse::<i32>().unwrap() + 1);
        assert_eq!(supersede_after(&mut run, &path, seconds, Outcome::VOTES_TOO_OLD, &next), Duration::from_secs(left));
        path = next;
    }
    assert_eq!(deadline(&run, &path).since(begun), Duration::from_secs(7 * DAY));
}

#[test]
fn a_gate_repeated_long_after_its_first_request_has_an_hour() {
    let mut run = run_with_timeout("24h");
    // For most of that time no request was open, because the run was suspended.
    let left = supersede_after(&mut run, "review", 8 * 24 * HOUR, Outcome::UNGUARDED, "review#2");
    assert_eq!(
        left,
        Duration::from_secs(HOUR),
        "nothing is approved by a deadline a minute after people are asked again"
    );
}

#[test]
fn a_gate_repeated_for_another_reason_has_its_full_time() {
    let mut run = run_with_timeout("24h");
    let left = supersede_after(&mut run, "review", 23 * HOUR, "asked too late", "review#2");
    assert_eq!(left, Duration::from_secs(24 * HOUR));
}

#[test]
fn the_levels_of_an_escalation_keep_their_time() {
    let escalation = json!([{"to": [{"kind": "User", "name": "carol"}]}]);
    let timeout = json!({"after": "24h", "action": "Escalate", "escalation": escalation});
    let mut run = TestRun::new(json!([hitl("review", json!({"timeout": timeout}))]));
    supersede_after(&mut run, "review", 20 * HOUR, Outcome::UNGUARDED, "review#2");
    let level = &run.asked("review#2").request.timeout.escalation[0];
    assert_eq!(level.after.unwrap().duration(), Duration::from_secs(24 * HOUR));
}
