//! The failures that `--wait` ends with.
use signoff_api::{Decision, Outcome, approval::Source};

use super::*;

fn entry(verdict: Verdict) -> Entry {
    Entry { key: "alice@example.com".into(), decision: Decision::new(verdict) }
}

#[test]
fn a_decision_that_is_not_among_the_votes_is_a_failure_whatever_the_outcome() {
    let entry = entry(Verdict::Approve);
    let approved = |is_counted, invalid: Option<&str>| {
        let (phase, verdict, source) = (ApprovalPhase::Approved, Some(Verdict::Approve), Source::Human);
        let outcome = Outcome { verdict, phase, decided_by: vec!["bob".into()], source, ..Outcome::default() };
        DecisionState::Closed { outcome: Box::new(outcome), is_counted, invalid: invalid.map(str::to_owned) }
    };
    assert!(failure(&approved(true, None), &entry).is_none());
    assert!(matches!(failure(&approved(false, None), &entry), Some(Failure::DecidedOtherwise)));
    assert!(matches!(failure(&approved(false, Some("no such field")), &entry), Some(Failure::DecidedOtherwise)));
    assert!(matches!(failure(&DecisionState::Counted, &entry), Some(Failure::NotDecided)));
}

#[test]
fn an_escalation_without_further_approvers_is_a_failure() {
    for (state, code) in [(DecisionState::Escalated, None), (DecisionState::NotEscalated, Some(5))] {
        assert_eq!(failure(&state, &entry(Verdict::Escalate)).map(|failure| failure.code()), code, "{state:?}");
    }
}
