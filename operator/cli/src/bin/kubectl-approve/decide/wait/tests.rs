//! Tests of a wait: the events after which the wait continues, and the events that end it.
#![allow(clippy::unwrap_used)]
use serde_json::json;
use signoff_api::{Decision, Outcome, approval::ApprovalPhase};
use signoff_review::sample;

use super::*;

const ME: &str = "alice@example.com";

fn entry(attempt: Option<i32>) -> Entry {
    Entry { key: ME.into(), decision: Decision { attempt, ..Decision::new(Verdict::Approve) } }
}

fn vote(attempt: i32) -> signoff_api::approval::Vote {
    serde_json::from_value(json!({"key": ME, "user": ME, "verdict": "Approve", "attempt": attempt,
        "at": "2026-11-22T10:00:00Z", "epoch": "epoch-1"}))
    .unwrap()
}

fn escalation_entry() -> Entry {
    Entry { key: ME.into(), decision: Decision::new(Verdict::Escalate) }
}

/// Returns an Approval with these counted votes, by their attempts, and this number of escalations.
fn voted_approval(votes: &[i32], level: i32) -> Approval {
    let mut approval = sample::approval();
    approval.metadata.uid = Some("uid-1".into());
    let status = approval.status.get_or_insert_default();
    status.votes = votes.iter().map(|attempt| vote(*attempt)).collect();
    status.level = (level > 0).then_some(level);
    approval
}

#[test]
fn an_escalation_is_seen_by_the_level_before_its_vote() {
    let escalated = |received: &[Approval]| {
        let mut waited = Waited::new(received[0].clone(), &escalation_entry());
        received[1..].iter().for_each(|approval| waited.apply(Some(approval.clone()), &escalation_entry()));
        waited.state
    };
    assert_eq!(escalated(&[voted_approval(&[], 0), voted_approval(&[1], 1)]), DecisionState::Escalated);
    assert_eq!(escalated(&[voted_approval(&[], 0), voted_approval(&[1], 0)]), DecisionState::NotEscalated);
    // The gate was escalated by a timeout before the vote was stored, or before it was counted.
    assert_eq!(escalated(&[voted_approval(&[], 1), voted_approval(&[1], 1)]), DecisionState::NotEscalated);
    assert_eq!(
        escalated(&[voted_approval(&[], 0), voted_approval(&[], 1), voted_approval(&[1], 1)]),
        DecisionState::NotEscalated
    );
    assert_eq!(escalated(&[voted_approval(&[], 1), voted_approval(&[1], 2)]), DecisionState::Escalated);
    // A vote that was counted before the command began.
    assert_eq!(escalated(&[voted_approval(&[1], 1)]), DecisionState::Counted);
    assert_eq!(escalated(&[voted_approval(&[1], 0)]), DecisionState::NotEscalated);
}

#[test]
fn an_approval_that_was_created_again_does_not_have_the_decision() {
    let mut waited = Waited::new(voted_approval(&[], 0), &entry(None));
    waited.apply(Some(voted_approval(&[], 0)), &entry(None));
    assert_eq!(waited.state, DecisionState::Recorded);
    let mut again = voted_approval(&[1], 0);
    again.metadata.uid = Some("uid-2".into());
    waited.apply(Some(again), &entry(None));
    assert_eq!(waited.state, DecisionState::Deleted);
    assert_eq!(waited.approval.metadata.uid.as_deref(), Some("uid-1"));
}

#[test]
fn a_plain_call_ends_with_the_count_and_a_wait_with_the_outcome() {
    let wait = Some(Wait::UntilDeadline);
    assert!(is_final(&DecisionState::Counted, Verdict::Approve, None));
    assert!(!is_final(&DecisionState::Counted, Verdict::Approve, wait));
    assert!(is_final(&DecisionState::Counted, Verdict::Escalate, wait), "an earlier escalation has no outcome");
    assert!(!is_final(&DecisionState::Recorded, Verdict::Approve, None));
    let outcome = Box::new(Outcome { phase: ApprovalPhase::Superseded, ..Outcome::default() });
    let closed = DecisionState::Closed { outcome, is_counted: true, invalid: None };
    for state in [closed, DecisionState::NotEscalated, DecisionState::Invalid(String::new()), DecisionState::Deleted] {
        assert!(is_final(&state, Verdict::Approve, wait), "{state:?}");
    }
}

#[test]
fn a_bare_wait_ends_shortly_after_the_deadline_in_force() {
    let (mut approval, begun) = (sample::approval(), Instant::now());
    let deadline = clock::now().after(Duration::from_secs(3600));
    approval.status.get_or_insert_default().deadline = Some(deadline);
    let left = wait_end(&approval, Some(Wait::UntilDeadline), DEFAULT_WAIT, begun) - begun;
    assert!(left > Duration::from_secs(3590) && left < Duration::from_secs(3660), "{left:?}");
    assert_eq!(wait_end(&approval, None, DEFAULT_WAIT, begun) - begun, DEFAULT_WAIT);
    assert_eq!(wait_end(&approval, Some(Wait::AtMost(Duration::ZERO)), DEFAULT_WAIT, begun), begun);
}
