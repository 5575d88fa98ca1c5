//! Tests of votes that do not count any more: of another epoch, or too old.

use signoff_api::Outcome;

use super::*;

fn reason(approval: &Approval) -> String {
    let outcome = approval.status.as_ref().and_then(|status| status.outcome.clone()).unwrap();
    assert_eq!((outcome.phase, outcome.verdict), (ApprovalPhase::Superseded, None));
    outcome.reason.unwrap()
}

/// Returns an Approval with a quorum of two, whose votes count together for 30 s.
fn approval_with_vote_age(more: Value) -> Approval {
    let mut fields = json!({"threshold": 2, "maxVoteAge": "30s"});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    approval(fields)
}

#[test]
fn a_voided_vote_is_named_in_the_reason_and_in_an_event() {
    let mut open = approval(json!({"threshold": 2}));
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 1);
    add_vote(&mut open, "bob", "Reject");
    let result = tally_in_epoch(&mut open, "e2");
    assert!(reason(&open).contains("the votes of alice, bob cannot be trusted"), "{}", reason(&open));
    assert!(reason(&open).starts_with(Outcome::UNGUARDED));
    let voided: Vec<_> = result.events.iter().filter(|event| event.reason.name() == "VotesVoided").collect();
    assert_eq!(voided.len(), 1);
    assert!(
        voided[0].reason.is_warning() && voided[0].message.ends_with("the votes of alice (Approve), bob (Reject)"),
        "{voided:?}"
    );
}

#[test]
fn an_approval_without_votes_reports_no_void_votes() {
    let mut open = approval(json!({}));
    open.spec.request.quorums[0].approvers = users(&["mallory"]);
    let result = tally_in_epoch(&mut open, "e2");
    assert!(result.events.iter().all(|event| event.reason.name() != "VotesVoided"), "{:?}", result.events);
}

#[test]
fn a_quorum_counts_only_votes_within_the_maximum_age() {
    let mut open = approval_with_vote_age(json!({}));
    add_vote(&mut open, "alice", "Approve");
    assert_eq!(tally_and_store(&mut open, 1).wake_at, Some(at(31).at), "the moment at which the vote is too old");
    add_vote(&mut open, "bob", "Approve");
    let result = tally_and_store(&mut open, 31);
    assert!(reason(&open).starts_with(Outcome::VOTES_TOO_OLD) && reason(&open).contains("the votes of alice, bob;"));
    assert_eq!(result.due, Some(at(31).at), "compared with the API server's own time");
    assert_eq!(open.spec.decisions.len(), 2, "no vote is removed");

    let mut open = approval_with_vote_age(json!({}));
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 1);
    add_vote(&mut open, "bob", "Approve");
    tally_and_store(&mut open, 30);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn an_old_vote_counts_without_a_maximum_age() {
    let mut open = approval(json!({"threshold": 2}));
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 1);
    add_vote(&mut open, "bob", "Approve");
    tally_and_store(&mut open, 59);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn rejects_by_threshold_can_be_too_old_and_a_single_reject_cannot() {
    let mut open = approval_with_vote_age(json!({"rejectPolicy": "threshold"}));
    add_vote(&mut open, "alice", "Reject");
    tally_and_store(&mut open, 1);
    add_vote(&mut open, "bob", "Reject");
    tally_and_store(&mut open, 31);
    assert!(reason(&open).starts_with(Outcome::VOTES_TOO_OLD));

    let further = json!({"source": "policy", "approvers": users(&["olga"]), "threshold": 1, "rejectPolicy": "any"});
    let mut open = approval_with_vote_age(json!({"rejectPolicy": "threshold", "further": [further]}));
    add_vote(&mut open, "alice", "Reject");
    tally_and_store(&mut open, 1);
    add_vote(&mut open, "olga", "Reject");
    tally_and_store(&mut open, 40);
    assert_eq!(verdict(&open), Some(Verdict::Reject), "one no is enough there, however old the other one is");

    for no in ["Reject", "Abort"] {
        let mut open = approval_with_vote_age(json!({}));
        add_vote(&mut open, "alice", "Approve");
        tally_and_store(&mut open, 1);
        add_vote(&mut open, "bob", no);
        tally_and_store(&mut open, 40);
        assert_eq!(verdict(&open).map(Verdict::name), Some(no));
    }
}

#[test]
fn an_earlier_deadline_decides_before_old_votes_are_void() {
    let mut open = approval_with_vote_age(json!({"maxVoteAge": "90s"}));
    add_vote(&mut open, "alice", "Approve");
    assert_eq!(tally_and_store(&mut open, 1).wake_at, Some(at(60).at));
    tally_and_store(&mut open, 60);
    assert_eq!(verdict(&open), Some(Verdict::Reject));

    // The delay of the tally does not matter.
    for (second, expected) in [(false, Verdict::Reject), (true, Verdict::Approve)] {
        let mut open = approval_with_vote_age(json!({"maxVoteAge": "90s", "closesAt": at(60).at}));
        add_vote(&mut open, "alice", "Approve");
        tally_and_store(&mut open, 1);
        if second {
            add_vote(&mut open, "bob", "Approve");
        }
        tally_and_store(&mut open, 200);
        assert_eq!(verdict(&open), Some(expected), "{second}");
    }
    let approves = json!({"after": "60s", "action": "Approve"});
    let mut open = approval_with_vote_age(
        json!({"maxVoteAge": "90s", "closesAt": at(60).at, "rejectPolicy": "threshold", "timeout": approves}),
    );
    add_vote(&mut open, "alice", "Reject");
    tally_and_store(&mut open, 1);
    add_vote(&mut open, "bob", "Reject");
    tally_and_store(&mut open, 200);
    assert_eq!(verdict(&open), Some(Verdict::Reject), "two said no in time");
    let mut open =
        approval_with_vote_age(json!({"maxVoteAge": "90s", "timeout": {"after": "60s", "action": "Expire"}}));
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 1);
    add_vote(&mut open, "bob", "Approve");
    tally_and_store(&mut open, 200);
    assert!(reason(&open).starts_with(Outcome::VOTES_TOO_OLD), "the second vote may be from long after the first");

    let mut open = approval_with_vote_age(json!({"timeout": {"after": "60s", "action": "Expire"}}));
    tally_and_store(&mut open, 60);
    add_vote(&mut open, "alice", "Retry");
    assert_eq!(tally_and_store(&mut open, 70).wake_at, Some(at(100).at));
    tally_and_store(&mut open, 100);
    assert!(reason(&open).starts_with(Outcome::VOTES_TOO_OLD));
}

#[test]
fn an_escalate_does_not_become_too_old() {
    let mut open = approval_with_vote_age(json!({"escalateTo": users(&["frank"])}));
    add_vote(&mut open, "alice", "Escalate");
    tally_and_store(&mut open, 1);
    let result = tally_and_store(&mut open, 40);
    assert_eq!((result.status.phase, result.status.level), (ApprovalPhase::Pending, Some(1)));
}
