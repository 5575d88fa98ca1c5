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

#[test]
fn a_decision_is_counted_by_its_own_attempt_only() {
    let mut approval = sample::approval();
    assert_eq!(state(&approval, &entry(None)), DecisionState::Recorded);
    approval.status.get_or_insert_default().votes = vec![vote(1)];
    assert_eq!(state(&approval, &entry(None)), DecisionState::Counted);
    assert_eq!(state(&approval, &entry(Some(2))), DecisionState::Recorded);
    let invalid = Invalid { attempt: 2, why: "no such field".into() };
    approval.status.get_or_insert_default().invalid.insert(ME.into(), invalid);
    assert_eq!(state(&approval, &entry(Some(2))), DecisionState::Invalid("no such field".into()));
    assert_eq!(state(&approval, &entry(Some(3))), DecisionState::Recorded);
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
    assert!(is_final(&DecisionState::Counted, Verdict::Escalate, wait), "an escalation has no outcome");
    assert!(!is_final(&DecisionState::Recorded, Verdict::Approve, None));
    let closed = DecisionState::Closed(Box::new(Outcome { phase: ApprovalPhase::Superseded, ..Outcome::default() }));
    for state in [closed, DecisionState::Invalid(String::new()), DecisionState::Deleted] {
        assert!(is_final(&state, Verdict::Approve, wait), "{state:?}");
    }
}

#[test]
fn a_bare_wait_ends_shortly_after_the_deadline_in_force() {
    let (mut approval, begun) = (sample::approval(), Instant::now());
    let deadline = clock::now().after(Duration::from_secs(3600));
    approval.status.get_or_insert_default().deadline = Some(deadline);
    let left = end(&approval, Some(Wait::UntilDeadline), begun) - begun;
    assert!(left > Duration::from_secs(3590) && left < Duration::from_secs(3660), "{left:?}");
    assert_eq!(end(&approval, None, begun) - begun, DEFAULT);
    assert_eq!(end(&approval, Some(Wait::AtMost(Duration::ZERO)), begun), begun);
}
