//! Tests of the tally, by votes and times.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use serde_json::{Value, json};
use signoff_api::{
    Approval, Decision, Digest, Moment, Verdict,
    approval::{ApprovalPhase, Source, TallyStatus},
    conditions,
    gate::Subject,
};

use super::*;
use crate::transition::Now;

mod occurrences;
mod time;
mod void;

fn start() -> Moment {
    Moment::from(jiff::Timestamp::from_second(1_800_000_000).unwrap())
}

fn at(seconds: u64) -> Now {
    Now::new(start().after(Duration::from_secs(seconds)), "e1")
}

/// Returns a quorum that one of the approvers meets.
fn quorum(source: &str, approvers: &[&str]) -> Value {
    json!({"source": source, "approvers": users(approvers), "threshold": 1})
}

/// Returns an Approval with a deadline 60 s after the start. Fields of a quorum belong to the first quorum; `further`
/// lists more quorums.
fn approval(more: Value) -> Approval {
    let deadline = start().after(Duration::from_secs(60));
    let mut request = json!({
        "workflow": {"name": "w", "uid": "00000000-0000-0000-0000-000000000001"},
        "gate": {"name": "g", "type": "step", "path": "g", "visit": 1},
        "specDigest": Digest::of_bytes(b"spec"), "guardEpoch": "e1", "deadline": deadline, "prompt": "go?",
        "allowedVerdicts": Verdict::ALL, "quorums": [quorum("gate g", &["alice", "bob", "carol"])],
        "requestedBy": "dana", "timeout": {"after": "60s"}, "form": {"questions": [{"id": "answer"}]},
        "digest": Digest::of_bytes(b"request"),
    });
    for (key, value) in more.as_object().unwrap() {
        match key.as_str() {
            "approvers" | "threshold" | "requiredFrom" | "rejectPolicy" | "excludeRequester" => {
                request["quorums"][0][key] = value.clone();
            }
            "further" => request["quorums"].as_array_mut().unwrap().extend(value.as_array().unwrap().clone()),
            _ => request[key] = value.clone(),
        }
    }
    let mut approval: Approval = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "a", "generation": 1},
        "spec": {"request": request},
    }))
    .unwrap();
    approval.spec.request.digest = approval.spec.request.digest_of_the_rest().unwrap();
    approval
}

fn users(names: &[&str]) -> Vec<Subject> {
    names.iter().map(|name| Subject::user(name)).collect()
}

fn vote(approval: &mut Approval, key: &str, decision: Value) {
    let decision: Decision = serde_json::from_value(decision).unwrap();
    approval.spec.decisions.insert(key.into(), decision);
}

/// Adds a vote without a payload.
fn add_vote(approval: &mut Approval, key: &str, verdict: &str) {
    vote(approval, key, json!({"verdict": verdict}));
}

/// Tallies an Approval and stores the new status. Checks that a second tally at the same time changes nothing.
fn tally_and_store(approval: &mut Approval, seconds: u64) -> TallyResult {
    let result = tally(approval, OwnerState::Live, &at(seconds));
    approval.status = Some(result.status.clone());
    let again = tally(approval, OwnerState::Live, &at(seconds));
    assert!(!again.changed, "a second look at the same moment finds nothing new: {:?}", again.status);
    result
}

fn verdict(approval: &Approval) -> Option<Verdict> {
    approval.status.as_ref().and_then(|s| s.outcome.as_ref()).and_then(|o| o.verdict)
}

#[test]
fn a_tally_without_votes_changes_nothing() {
    let mut open = approval(json!({}));
    let result = tally_and_store(&mut open, 1);
    assert!(!result.changed);
    assert_eq!(result.wake_at, Some(at(60).at));
}

#[test]
fn one_approve_decides_with_a_threshold_of_one() {
    let mut open = approval(json!({}));
    vote(&mut open, "alice", json!({"verdict": "Approve", "reason": "checked"}));
    tally_and_store(&mut open, 1);
    let outcome = open.status.as_ref().unwrap().outcome.clone().unwrap();
    assert_eq!((outcome.verdict, outcome.decided_by), (Some(Verdict::Approve), vec!["alice".to_owned()]));
    assert_eq!(outcome.reason.as_deref(), Some("checked"));
    assert_eq!(open.status.as_ref().unwrap().phase, ApprovalPhase::Approved);
}

#[test]
fn a_quorum_needs_as_many_people_as_its_threshold() {
    let mut open = approval(json!({"threshold": 2}));
    add_vote(&mut open, "alice", "Approve");
    let result = tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    assert_eq!(result.status.tally, Some(TallyStatus { needed: 2, have: 1 }));
    assert_eq!((result.status.have, result.status.decided_by), (1, None));
    add_vote(&mut open, "bob", "Approve");
    let result = tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
    assert_eq!((result.status.have, result.status.decided_by.as_deref()), (2, Some("alice, bob")));
}

#[test]
fn votes_count_together_only_with_an_equal_payload() {
    let mut open = approval(json!({"threshold": 2}));
    vote(&mut open, "alice", json!({"verdict": "Modify", "parameters": {"response": "x"}}));
    vote(&mut open, "bob", json!({"verdict": "Modify", "parameters": {"response": "y"}}));
    tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    vote(&mut open, "carol", json!({"verdict": "Modify", "parameters": {"response": "y"}}));
    tally_and_store(&mut open, 2);
    assert_eq!(open.status.as_ref().unwrap().outcome.as_ref().unwrap().decided_by, ["bob", "carol"]);
}

#[test]
fn all_votes_are_evaluated_together_in_any_order() {
    for (a, b, winner) in [
        ("Approve", "Reject", Verdict::Reject),
        ("Reject", "Abort", Verdict::Abort),
        ("Approve", "Abort", Verdict::Abort),
        ("Approve", "Defer", Verdict::Defer),
        ("Defer", "Reject", Verdict::Reject),
    ] {
        for (first, second) in [(a, b), (b, a)] {
            let mut open = approval(json!({}));
            for (who, what) in [("alice", first), ("bob", second)] {
                let mut decision = json!({"verdict": what});
                if what == "Defer" {
                    decision["guidance"] = json!("look again");
                }
                vote(&mut open, who, decision);
            }
            tally_and_store(&mut open, 1);
            assert_eq!(verdict(&open), Some(winner), "{first} and {second}");
        }
    }
}

#[test]
fn a_reject_by_threshold_needs_as_many_people_as_the_threshold() {
    let mut open = approval(json!({"threshold": 2, "rejectPolicy": "threshold"}));
    add_vote(&mut open, "alice", "Reject");
    tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    add_vote(&mut open, "bob", "Reject");
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Reject));
}

#[test]
fn required_groups_are_counted_by_the_groups_in_the_votes() {
    let mut open = approval(json!({
        "threshold": 2, "requiredFrom": [{"group": "leads", "min": 1}],
        "approvers": [{"kind": "Group", "name": "finance"}, {"kind": "Group", "name": "leads"}],
    }));
    add_vote(&mut open, "alice", "Approve");
    add_vote(&mut open, "bob", "Approve");
    tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    vote(&mut open, "carol", json!({"verdict": "Approve", "groups": ["leads"]}));
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn the_requester_and_the_excluded_do_not_count() {
    let mut open = approval(json!({"excludeRequester": true, "excluded": ["bob"], "requestedFor": "erin",
        "approvers": users(&["dana", "erin", "bob", "alice"])}));
    for who in ["dana", "erin", "bob"] {
        add_vote(&mut open, who, "Approve");
    }
    tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn an_earlier_requester_is_excluded_like_the_requester() {
    for (excludes, verdicts) in [(true, None), (false, Some(Verdict::Approve))] {
        let mut open = approval(json!({"excludeRequester": excludes, "earlierRequesters": ["carol", "erin"],
            "approvers": users(&["carol", "erin", "alice"]), "threshold": 2}));
        for who in ["carol", "erin"] {
            add_vote(&mut open, who, "Approve");
        }
        tally_and_store(&mut open, 1);
        assert_eq!(verdict(&open), verdicts);
    }
}

#[test]
fn a_vote_on_behalf_counts_for_the_person_and_fills_no_group() {
    let mut open = approval(json!({"threshold": 2, "requiredFrom": [{"group": "leads", "min": 1}],
        "approvers": [{"kind": "User", "name": "bob"}, {"kind": "Group", "name": "leads"}]}));
    vote(&mut open, "bob via bot", json!({"verdict": "Approve", "onBehalfOf": "bob", "groups": ["leads"]}));
    add_vote(&mut open, "bob", "Approve");
    tally_and_store(&mut open, 1);
    assert_eq!(open.status.as_ref().unwrap().tally.unwrap().have, 1, "one person, whatever the entry");
    assert_eq!(verdict(&open), None);
}

#[test]
fn a_person_with_two_names_counts_once_with_the_more_cautious_vote() {
    let mut open = approval(json!({"threshold": 2,
        "persons": [{"pattern": "oidc:([a-z]+)", "person": "$1"}, {"pattern": "([a-z]+)", "person": "$1"}],
        "approvers": [{"kind": "Group", "name": "g"}]}));
    add_vote(&mut open, "alice", "Approve");
    add_vote(&mut open, "oidc:alice", "Approve");
    tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    add_vote(&mut open, "X-9", "Approve");
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), None, "a name that no rule matches does not count");
    add_vote(&mut open, "bob", "Approve");
    add_vote(&mut open, "oidc:bob", "Reject");
    tally_and_store(&mut open, 3);
    assert_eq!(verdict(&open), Some(Verdict::Reject));
}

#[test]
fn every_quorum_of_a_policy_must_be_met() {
    let mut open = approval(json!({"further": [quorum("policy", &["olga"])]}));
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    add_vote(&mut open, "olga", "Approve");
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
    let mut refused = approval(json!({"further": [quorum("policy", &["olga"])]}));
    add_vote(&mut refused, "alice", "Approve");
    add_vote(&mut refused, "olga", "Reject");
    tally_and_store(&mut refused, 1);
    assert_eq!(verdict(&refused), Some(Verdict::Reject));
}

#[test]
fn an_escalation_replaces_the_approvers_of_the_first_quorum_only() {
    let further = json!([quorum("policy", &["pia"])]);
    let mut open = approval(json!({"threshold": 2, "escalateTo": users(&["olga"]), "further": further}));
    vote(&mut open, "alice", json!({"verdict": "Escalate", "escalateTo": [{"kind": "User", "name": "olga"}]}));
    tally_and_store(&mut open, 1);
    add_vote(&mut open, "olga", "Approve");
    add_vote(&mut open, "bob", "Approve");
    let result = tally_and_store(&mut open, 2);
    assert_eq!(result.status.tally, Some(TallyStatus { needed: 2, have: 2 }));
    assert_eq!(verdict(&open), None, "nobody of the policy's quorum has approved");
    add_vote(&mut open, "pia", "Approve");
    tally_and_store(&mut open, 3);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn a_vote_that_names_a_group_counts_after_an_escalation() {
    let groups = |names: &[&str]| names.iter().map(|name| Subject::group(name)).collect::<Vec<_>>();
    let further = json!([{"source": "policy", "approvers": groups(&["sre", "leads"]), "threshold": 1}]);
    let mut open = approval(json!({"threshold": 2, "approvers": groups(&["finance", "leads"]), "further": further,
        "escalateTo": users(&["olga"])}));
    let named = open.groups_of_voter(&["leads".to_owned(), "sre".to_owned(), "finance".to_owned()]);
    assert_eq!(named, ["finance", "sre"]);
    vote(&mut open, "alice", json!({"verdict": "Approve", "groups": named}));
    vote(&mut open, "bob", json!({"verdict": "Escalate", "groups": ["finance"]}));
    assert_eq!(tally_and_store(&mut open, 1).status.level, Some(1));
    add_vote(&mut open, "olga", "Approve");
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn the_requester_counts_in_no_quorum_if_the_first_one_excludes_them() {
    let further = json!([quorum("policy", &["dana", "olga"])]);
    let mut open = approval(json!({"excludeRequester": true, "further": further}));
    add_vote(&mut open, "alice", "Approve");
    add_vote(&mut open, "dana", "Approve");
    tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    add_vote(&mut open, "olga", "Approve");
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn the_requester_does_not_count_in_a_further_quorum_that_excludes_them() {
    let mut policy = quorum("policy", &["dana", "olga"]);
    policy["excludeRequester"] = json!(true);
    let mut open = approval(json!({"approvers": users(&["dana"]), "further": [policy]}));
    add_vote(&mut open, "dana", "Approve");
    let result = tally_and_store(&mut open, 1);
    assert_eq!(result.status.tally, Some(TallyStatus { needed: 1, have: 1 }), "in the first one they count");
    assert_eq!(verdict(&open), None);
    add_vote(&mut open, "olga", "Approve");
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn an_approval_without_quorums_ends_only_with_its_run() {
    for owner in [OwnerState::Live, OwnerState::Finished, OwnerState::Missing] {
        let mut open = approval(json!({"timeout": {"after": "60s", "action": "Approve"}}));
        open.spec.request.quorums.clear();
        for (who, what) in [("alice", "Approve"), ("bob", "Reject"), ("carol", "Abort")] {
            add_vote(&mut open, who, what);
        }
        let result = tally(&open, owner, &at(4000));
        assert_eq!((result.wake_at, result.status.votes.len(), result.status.tally), (None, 0, None), "{owner:?}");
        let ended = result.status.outcome.map(|end| (end.phase, end.source, end.verdict, end.decided_by));
        if owner == OwnerState::Live {
            assert!(!result.changed && result.events.is_empty() && ended.is_none(), "{ended:?}: {:?}", result.events);
        } else {
            assert_eq!(ended, Some((ApprovalPhase::Cancelled, Source::Policy, None, Vec::new())), "{owner:?}");
        }
    }
}

#[test]
fn a_vote_with_an_invalid_payload_can_be_corrected() {
    let mut open = approval(json!({}));
    vote(&mut open, "alice", json!({"verdict": "Modify", "parameters": {"respones": "typo"}}));
    let result = tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    assert!(result.status.invalid["alice"].why.contains("respones"));
    assert_eq!(result.status.invalid["alice"].attempt, 1);
    vote(&mut open, "alice", json!({"verdict": "Modify", "attempt": 2, "parameters": {"response": "text"}}));
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Modify));
    assert!(open.status.as_ref().unwrap().invalid.is_empty());
}

#[test]
fn an_escalate_adds_approvers_and_time_and_keeps_votes() {
    let mut open = approval(json!({"threshold": 2, "escalateTo": users(&["olga"]), "excluded": ["bob"]}));
    add_vote(&mut open, "alice", "Approve");
    vote(&mut open, "carol", json!({"verdict": "Escalate", "escalateTo": [{"kind": "User", "name": "olga"}]}));
    let result = tally_and_store(&mut open, 50);
    assert_eq!(result.status.level, Some(1));
    assert_eq!(result.status.deadline, Some(at(110).at));
    assert_eq!(result.status.closes_at, Some(at(110).at));
    assert!(
        result.status.approvers.contains(&Subject::user("olga"))
            && result.status.approvers.contains(&Subject::user("alice"))
    );
    add_vote(&mut open, "olga", "Approve");
    tally_and_store(&mut open, 55);
    assert_eq!(verdict(&open), Some(Verdict::Approve), "earlier votes stand");
}

#[test]
fn an_undecidable_approval_ends_immediately() {
    let mut open = approval(json!({"threshold": 2, "rejectPolicy": "threshold", "approvers": users(&["alice", "bob"]),
        "allowedVerdicts": ["Approve", "Reject"]}));
    add_vote(&mut open, "alice", "Approve");
    add_vote(&mut open, "bob", "Reject");
    tally_and_store(&mut open, 1);
    let status = open.status.as_ref().unwrap();
    assert!(conditions::holds(&status.conditions, conditions::UNDECIDABLE));
    assert_eq!((status.phase, verdict(&open)), (ApprovalPhase::Expired, Some(Verdict::Reject)));
}

#[test]
fn an_approval_ends_with_its_workflow_before_any_vote() {
    for owner in [OwnerState::Finished, OwnerState::Missing] {
        let mut open = approval(json!({}));
        add_vote(&mut open, "alice", "Approve");
        let result = tally(&open, owner, &at(1));
        assert_eq!(result.status.phase, ApprovalPhase::Cancelled);
        assert_eq!(result.status.outcome.unwrap().verdict, None);
    }
}

#[test]
fn a_decided_approval_does_not_change() {
    let mut open = approval(json!({}));
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 1);
    add_vote(&mut open, "bob", "Abort");
    assert!(!tally(&open, OwnerState::Finished, &at(100)).changed);
}

#[test]
fn a_vote_that_does_not_count_cannot_stop_or_escalate() {
    for verdict in ["Abort", "Reject", "Escalate", "Defer"] {
        let mut open = approval(json!({"excludeRequester": true, "escalateTo": users(&["olga"]),
            "persons": [{"pattern": "(?:oidc:)?([a-z]+)", "person": "$1"}]}));
        let mut decision = json!({"verdict": verdict});
        if verdict == "Defer" {
            decision["guidance"] = json!("again");
        }
        vote(&mut open, "oidc:dana", decision);
        let result = tally_and_store(&mut open, 1);
        assert_eq!((result.status.outcome, result.status.level), (None, None), "{verdict}");
    }
}

/// The API server reads `bob-1` as `bob`, because it takes the text before `-?[0-9]*`; the group matches the whole
/// name.
const TWO_READINGS: &str = r#"[{"pattern": "(.+)-?[0-9]*", "person": "$1"}]"#;

#[test]
fn a_name_of_two_persons_can_stop_but_not_continue_a_run() {
    let rules: serde_json::Value = serde_json::from_str(TWO_READINGS).unwrap();
    for stopping in ["Reject", "Abort"] {
        let mut open = approval(json!({"persons": rules, "approvers": [{"kind": "Group", "name": "g"}]}));
        add_vote(&mut open, "bob-1", stopping);
        tally_and_store(&mut open, 1);
        assert_eq!(verdict(&open).map(Verdict::name), Some(stopping));
    }
    let mut open = approval(json!({"persons": rules, "approvers": [{"kind": "Group", "name": "g"}]}));
    add_vote(&mut open, "bob-1", "Approve");
    tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
    let why = &open.status.as_ref().unwrap().invalid["bob-1"].why;
    assert!(why.contains("spec.request.persons") && why.contains("bob-1") && why.contains("two persons"), "{why}");
    add_vote(&mut open, "bob", "Approve");
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Approve), "the name that reads in one way");
}

#[test]
fn an_excluded_person_cannot_stop_a_run_under_an_ambiguous_name() {
    let rules: serde_json::Value = serde_json::from_str(TWO_READINGS).unwrap();
    let mut open =
        approval(json!({"persons": rules, "excluded": ["bob"], "approvers": [{"kind": "Group", "name": "g"}]}));
    add_vote(&mut open, "bob-1", "Reject");
    tally_and_store(&mut open, 1);
    assert_eq!(verdict(&open), None);
}

#[test]
fn an_escalation_makes_an_undecidable_approval_decidable() {
    let mut open = approval(json!({"threshold": 2, "approvers": users(&["alice"]), "allowedVerdicts": ["Approve"],
        "timeout": {"after": "60s", "action": "Escalate", "escalation": [{"to": users(&["olga"])}]}}));
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 1);
    let status = open.status.as_ref().unwrap();
    assert_eq!((status.level, status.outcome.as_ref()), (Some(1), None));
    assert!(!conditions::holds(&status.conditions, conditions::UNDECIDABLE));
    add_vote(&mut open, "olga", "Approve");
    tally_and_store(&mut open, 2);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

/// Tallies an Approval in another epoch than that of its request.
fn tally_in_epoch(approval: &mut Approval, epoch: &str) -> TallyResult {
    let result = tally(approval, OwnerState::Live, &Now { guard_epoch: epoch.into(), ..at(2) });
    approval.status = Some(result.status.clone());
    result
}

#[test]
fn an_approval_without_decisions_moves_to_a_new_epoch() {
    let mut open = approval(json!({}));
    let result = tally_in_epoch(&mut open, "e2");
    assert_eq!((result.changed, open.guard_epoch(), result.status.phase), (true, "e2", ApprovalPhase::Pending));
    add_vote(&mut open, "alice", "Approve");
    tally_in_epoch(&mut open, "e2");
    assert_eq!(verdict(&open), Some(Verdict::Approve));
    assert_eq!(open.status.unwrap().votes[0].epoch, "e2");
}

#[test]
fn a_changed_request_is_superseded_in_a_new_epoch() {
    let mut open = approval(json!({}));
    open.spec.request.quorums[0].approvers = users(&["mallory"]);
    tally_in_epoch(&mut open, "e2");
    let outcome = open.status.unwrap().outcome.unwrap();
    assert_eq!((outcome.phase, outcome.verdict), (ApprovalPhase::Superseded, None));
}

#[test]
fn decisions_of_another_epoch_are_void() {
    for recorded_before in [true, false] {
        let mut open = approval(json!({"threshold": 2}));
        add_vote(&mut open, "alice", "Approve");
        if recorded_before {
            tally_and_store(&mut open, 1);
        }
        add_vote(&mut open, "bob", "Approve");
        tally_in_epoch(&mut open, "e2");
        let outcome = open.status.unwrap().outcome.unwrap();
        assert_eq!((outcome.phase, outcome.verdict), (ApprovalPhase::Superseded, None));
        assert!(outcome.reason.unwrap().contains("recorded while unguarded"));
    }
}

#[test]
fn a_forged_status_is_superseded_in_a_new_epoch() {
    for forged in [
        json!({"approvers": users(&["mallory"]), "level": 1}),
        json!({"deadline": start()}),
        json!({"level": 1, "closesAt": start()}),
        json!({"levelAt": start()}),
    ] {
        let mut open = approval(json!({}));
        open.status = Some(serde_json::from_value(forged).unwrap());
        assert_eq!(tally_in_epoch(&mut open, "e2").status.phase, ApprovalPhase::Superseded);
    }
}

#[test]
fn a_run_that_has_ended_cancels_its_approval_in_any_epoch() {
    let mut open = approval(json!({}));
    add_vote(&mut open, "alice", "Approve");
    let result = tally(&open, OwnerState::Finished, &Now { guard_epoch: "e2".into(), ..at(2) });
    assert_eq!(result.status.phase, ApprovalPhase::Cancelled);
}

#[test]
fn an_approve_does_not_count_when_the_approval_is_overdue() {
    let mut open = approval(json!({"timeout": {"after": "60s", "action": "Expire"}}));
    tally_and_store(&mut open, 61);
    assert_eq!(open.status.as_ref().unwrap().phase, ApprovalPhase::Overdue);
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 62);
    assert_eq!(verdict(&open), None);
    add_vote(&mut open, "bob", "Retry");
    tally_and_store(&mut open, 63);
    assert_eq!(verdict(&open), Some(Verdict::Retry));
}

#[test]
fn the_progress_of_each_quorum_counts_its_own_approvers() {
    let mut open = approval(json!({"requiredFrom": [{"group": "leads", "min": 1}], "further": [
        {"source": "gate two", "approvers": users(&["olga", "pia"]), "threshold": 2},
    ]}));
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 1);
    let own = QuorumProgress { have: 1, needed: 1, missing: vec![("leads".to_owned(), 1)] };
    assert_eq!(progress(&open), [own, QuorumProgress { have: 0, needed: 2, missing: Vec::new() }]);
    vote(&mut open, "bob", json!({"verdict": "Approve", "groups": ["leads"]}));
    add_vote(&mut open, "olga", "Approve");
    tally_and_store(&mut open, 2);
    assert_eq!(progress(&open).iter().map(|one| (one.have, one.is_met())).collect::<Vec<_>>(), [(2, true), (1, false)]);
}
