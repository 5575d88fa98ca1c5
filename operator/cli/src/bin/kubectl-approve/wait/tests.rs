//! What a status says about a decision, and when a wait ends.
#![allow(clippy::unwrap_used)]
use serde_json::json;
use signoff_api::{
    Decision,
    approval::{ApprovalPhase, Invalid},
};

use super::*;
use crate::sample;

const ME: &str = "alice@example.com";

fn entry(attempt: Option<i32>) -> Entry {
    Entry { key: ME.into(), decision: Decision { attempt, ..Decision::new(Verdict::Approve) } }
}

fn vote(attempt: i32) -> signoff_api::approval::Vote {
    serde_json::from_value(json!({"key": ME, "user": ME, "verdict": "Approve", "attempt": attempt,
        "at": "2026-11-22T10:00:00Z", "epoch": "epoch-1"}))
    .unwrap()
}

fn escalate() -> Entry {
    Entry { key: ME.into(), decision: Decision::new(Verdict::Escalate) }
}

/// An Approval with these counted votes and this number of escalations.
fn counted(votes: &[i32], level: i32) -> Approval {
    let mut approval = sample::approval();
    approval.metadata.uid = Some("uid-1".into());
    let status = approval.status.get_or_insert_default();
    status.votes = votes.iter().map(|attempt| vote(*attempt)).collect();
    status.level = (level > 0).then_some(level);
    approval
}

#[test]
fn a_decision_is_counted_by_its_own_attempt_only() {
    let mut approval = sample::approval();
    let said = |approval: &Approval, attempt| state(approval, &entry(attempt), Some(0));
    assert_eq!(said(&approval, None), DecisionState::Recorded);
    approval.status.get_or_insert_default().votes = vec![vote(1)];
    assert_eq!(said(&approval, None), DecisionState::Counted);
    assert_eq!(said(&approval, Some(2)), DecisionState::Recorded);
    let invalid = Invalid { attempt: 2, why: "no such field".into() };
    approval.status.get_or_insert_default().invalid.insert(ME.into(), invalid);
    assert_eq!(said(&approval, Some(2)), DecisionState::Invalid("no such field".into()));
    assert_eq!(said(&approval, Some(3)), DecisionState::Recorded);
}

#[test]
fn an_outcome_says_whether_the_decision_is_among_its_votes() {
    let mut approval = sample::approval();
    let outcome = Outcome { verdict: Some(Verdict::Approve), source: Source::Human, ..Outcome::default() };
    let status = approval.status.get_or_insert_default();
    status.outcome = Some(outcome.clone());
    status.votes = vec![vote(1)];
    status.invalid.insert(ME.into(), Invalid { attempt: 2, why: "no such field".into() });
    for (attempt, is_counted, invalid) in
        [(None, true, None), (Some(2), false, Some("no such field")), (Some(3), false, None)]
    {
        let expected = DecisionState::Closed {
            outcome: Box::new(outcome.clone()),
            is_counted,
            invalid: invalid.map(str::to_owned),
        };
        assert_eq!(state(&approval, &entry(attempt), Some(0)), expected, "{attempt:?}");
    }
}

#[test]
fn an_escalation_is_seen_by_the_level_before_its_vote() {
    let escalated = |received: &[Approval]| {
        let mut waited = Waited::new(received[0].clone(), &escalate());
        received[1..].iter().for_each(|approval| waited.apply(Some(approval.clone()), &escalate()));
        waited.state
    };
    assert_eq!(escalated(&[counted(&[], 0), counted(&[1], 1)]), DecisionState::Escalated);
    assert_eq!(escalated(&[counted(&[], 0), counted(&[1], 0)]), DecisionState::NotEscalated);
    // The gate was escalated by a timeout before the vote was stored, or before it was counted.
    assert_eq!(escalated(&[counted(&[], 1), counted(&[1], 1)]), DecisionState::NotEscalated);
    assert_eq!(escalated(&[counted(&[], 0), counted(&[], 1), counted(&[1], 1)]), DecisionState::NotEscalated);
    assert_eq!(escalated(&[counted(&[], 1), counted(&[1], 2)]), DecisionState::Escalated);
    // A vote that was counted before the command began.
    assert_eq!(escalated(&[counted(&[1], 1)]), DecisionState::Counted);
    assert_eq!(escalated(&[counted(&[1], 0)]), DecisionState::NotEscalated);
}

#[test]
fn an_approval_that_was_created_again_does_not_have_the_decision() {
    let mut waited = Waited::new(counted(&[], 0), &entry(None));
    waited.apply(Some(counted(&[], 0)), &entry(None));
    assert_eq!(waited.state, DecisionState::Recorded);
    let mut again = counted(&[1], 0);
    again.metadata.uid = Some("uid-2".into());
    waited.apply(Some(again), &entry(None));
    assert_eq!(waited.state, DecisionState::Deleted);
    assert_eq!(waited.approval.metadata.uid.as_deref(), Some("uid-1"));
}

#[test]
fn an_outcome_is_as_voted_with_the_same_verdict_and_payload() {
    let outcome = |verdict, by: &str, source| Outcome {
        verdict: Some(verdict),
        decided_by: vec![by.to_owned()],
        source,
        ..Outcome::default()
    };
    assert!(is_as_voted(&outcome(Verdict::Approve, ME, Source::Human), &entry(None)));
    assert!(is_as_voted(&outcome(Verdict::Approve, "bob", Source::Human), &entry(None)), "more agreed than needed");
    let mut modify = entry(None);
    modify.decision.verdict = Verdict::Modify;
    assert!(is_as_voted(&outcome(Verdict::Modify, ME, Source::Human), &modify));
    assert!(!is_as_voted(&outcome(Verdict::Modify, "bob", Source::Human), &modify));
    assert!(!is_as_voted(&outcome(Verdict::Reject, ME, Source::Human), &entry(None)));
    assert!(!is_as_voted(&outcome(Verdict::Approve, ME, Source::Timeout), &entry(None)));
    let mut delegated = entry(None);
    delegated.key = format!("bob via {ME}");
    delegated.decision.on_behalf_of = Some("bob".into());
    assert!(is_as_voted(&outcome(Verdict::Approve, "bob", Source::Human), &delegated));
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
    let left = end(&approval, Some(Wait::UntilDeadline), DEFAULT_WAIT, begun) - begun;
    assert!(left > Duration::from_secs(3590) && left < Duration::from_secs(3660), "{left:?}");
    assert_eq!(end(&approval, None, DEFAULT_WAIT, begun) - begun, DEFAULT_WAIT);
    assert_eq!(end(&approval, Some(Wait::AtMost(Duration::ZERO)), DEFAULT_WAIT, begun), begun);
}
