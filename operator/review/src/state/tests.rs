//! Tests of the state of a decision by a status.
#![allow(clippy::unwrap_used)]
use serde_json::json;
use signoff_api::{Decision, approval::Invalid};

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
    let state_at = |approval: &Approval, attempt| state(approval, &entry(attempt), Some(0));
    assert_eq!(state_at(&approval, None), DecisionState::Recorded);
    approval.status.get_or_insert_default().votes = vec![vote(1)];
    assert_eq!(state_at(&approval, None), DecisionState::Counted);
    assert_eq!(state_at(&approval, Some(2)), DecisionState::Recorded);
    let invalid = Invalid { attempt: 2, why: "no such field".into() };
    approval.status.get_or_insert_default().invalid.insert(ME.into(), invalid);
    assert_eq!(state_at(&approval, Some(2)), DecisionState::Invalid("no such field".into()));
    assert_eq!(state_at(&approval, Some(3)), DecisionState::Recorded);
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
