//! Votes that do not count any more: those of another epoch.

use signoff_api::Outcome;

use super::*;

fn reason(approval: &Approval) -> String {
    let outcome = approval.status.as_ref().and_then(|status| status.outcome.clone()).unwrap();
    assert_eq!((outcome.phase, outcome.verdict), (ApprovalPhase::Superseded, None));
    outcome.reason.unwrap()
}

#[test]
fn a_voided_vote_is_named_in_the_reason_and_in_an_event() {
    let mut open = approval(json!({"threshold": 2}));
    says(&mut open, "alice", "Approve");
    count(&mut open, 1);
    says(&mut open, "bob", "Reject");
    let result = count_in(&mut open, "e2");
    assert!(reason(&open).contains("the votes of alice, bob cannot be trusted"), "{}", reason(&open));
    assert!(reason(&open).starts_with(Outcome::UNGUARDED));
    let told: Vec<_> = result.events.iter().filter(|event| event.reason == "VotesVoided").collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].warning && told[0].message.ends_with("the votes of alice (Approve), bob (Reject)"), "{told:?}");
}

#[test]
fn without_a_vote_no_event_says_that_one_is_lost() {
    let mut open = approval(json!({}));
    open.spec.request.quorums[0].approvers = users(&["mallory"]);
    let result = count_in(&mut open, "e2");
    assert!(result.events.iter().all(|event| event.reason != "VotesVoided"), "{:?}", result.events);
}
