//! Tests of the time for decisions: deadlines, the effect of an Escalate on them, and requests that were late or could
//! not be read.

use super::*;

#[test]
fn an_escalate_by_a_person_does_not_shorten_the_timeout() {
    let further_levels = json!([{"after": "10s", "to": users(&["olga"])}]);
    let mut open = approval(json!({"timeout": {"after": "60s", "action": "Escalate", "escalation": further_levels}}));
    vote(&mut open, "carol", json!({"verdict": "Escalate"}));
    let result = tally_and_store(&mut open, 5);
    assert_eq!((result.status.level, result.status.deadline), (Some(1), Some(at(60).at)), "not after 15 s");
    assert_eq!(result.status.closes_at, Some(at(60).at));
}

#[test]
fn an_escalate_by_a_person_keeps_the_maximum_timeout() {
    let escalated = |max: u64| {
        let mut open = approval(json!({"escalateTo": users(&["olga"])}));
        open.metadata.creation_timestamp = Some(serde_json::from_value(json!(start())).unwrap());
        vote(&mut open, "carol", json!({"verdict": "Escalate", "escalateTo": users(&["olga"])}));
        let now = Now { max_gate_timeout: Duration::from_secs(max), ..at(50) };
        tally(&open, OwnerState::Live, &now).status.deadline
    };
    assert_eq!(escalated(600), Some(at(110).at), "60 s from now");
    assert_eq!(escalated(100), Some(at(100).at), "100 s from the request");
    assert_eq!(escalated(30), Some(at(60).at), "the deadline that it had");
}

fn superseded(status: &signoff_api::ApprovalStatus) -> Option<&str> {
    let outcome = status.outcome.as_ref()?;
    assert_eq!((outcome.phase, outcome.verdict), (ApprovalPhase::Superseded, None));
    outcome.reason.as_deref()
}

/// Returns an Approval whose time began at the start and that was created some seconds later.
fn approval_created_after(seconds: u64, action: &str) -> Approval {
    let mut open = approval(json!({"timeout": {"after": "60s", "action": action}}));
    open.metadata.creation_timestamp = Some(serde_json::from_value(json!(at(seconds).at)).unwrap());
    open
}

#[test]
fn a_late_request_is_superseded_with_its_whole_timeout() {
    for action in ["Approve", "Reject", "Escalate", "Expire"] {
        for (seconds, is_late) in [(0, false), (5, false), (6, true), (59, true), (90, true)] {
            let open = approval_created_after(seconds, action);
            let result = tally(&open, OwnerState::Live, &at(seconds));
            assert_eq!(superseded(&result.status).is_some(), is_late, "{action} after {seconds} s");
        }
    }
    // Short gates: a request that is created at its deadline was never shown to people.
    let mut short = approval(json!({"timeout": {"after": "2s", "action": "Approve"}, "deadline": at(2).at}));
    short.metadata.creation_timestamp = Some(serde_json::from_value(json!(at(2).at)).unwrap());
    assert!(superseded(&tally(&short, OwnerState::Live, &at(2)).status).is_some());
}

#[test]
fn a_late_second_request_can_be_decided_until_its_deadline() {
    let mut open = approval_created_after(30, "Approve");
    open.spec.request.gate.visit = 2;
    assert!(tally(&open, OwnerState::Live, &at(30)).status.outcome.is_none(), "people can decide it");
    assert!(superseded(&tally(&open, OwnerState::Live, &at(60)).status).is_some(), "no deadline decides it");
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 40);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn a_late_request_with_a_decision_is_counted_and_never_times_out() {
    let mut open = approval_created_after(30, "Approve");
    open.spec.request.quorums[0].threshold = 2;
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 31);
    assert_eq!(verdict(&open), None, "it waits for another one");
    let mut decided = open.clone();
    add_vote(&mut decided, "bob", "Approve");
    tally_and_store(&mut decided, 32);
    assert_eq!(verdict(&decided), Some(Verdict::Approve));
    tally_and_store(&mut open, 60);
    assert!(superseded(open.status.as_ref().unwrap()).is_some());
}

#[test]
fn a_deadline_does_not_approve_after_an_outage_of_half_the_time() {
    let verdict_after = |action: &str, outages: &[(u64, u64)]| {
        let open = approval(json!({"timeout": {"after": "60s", "action": action, "default": "later"}}));
        let outages = outages.iter().map(|(from, to)| (at(*from).at, at(*to).at)).collect();
        let result = tally(&open, OwnerState::Live, &Now { outages, ..at(70) });
        superseded_or_verdict(&result.status)
    };
    for action in ["Approve", "Default", "Skip"] {
        assert_eq!(verdict_after(action, &[(10, 41)]), None, "{action}: 31 of 60 s");
        assert_eq!(verdict_after(action, &[(0, 16), (40, 56)]), None, "{action}: 32 of 60 s in two");
        assert!(verdict_after(action, &[(10, 40)]).is_some(), "{action}: half of it");
        assert!(verdict_after(action, &[(60, 70)]).is_some(), "{action}: after its time");
    }
    for action in ["Reject", "Abort", "Retry"] {
        assert!(verdict_after(action, &[(0, 60)]).is_some(), "{action} lets nothing through");
    }
}

fn superseded_or_verdict(status: &signoff_api::ApprovalStatus) -> Option<Verdict> {
    let outcome = status.outcome.as_ref().unwrap();
    if outcome.verdict.is_none() {
        assert_eq!(outcome.phase, ApprovalPhase::Superseded);
    }
    outcome.verdict
}

#[test]
fn a_deadline_ends_an_approval_with_its_action() {
    for (action, expected) in [
        ("Reject", Verdict::Reject),
        ("Approve", Verdict::Approve),
        ("Retry", Verdict::Retry),
        ("Abort", Verdict::Abort),
        ("Skip", Verdict::Skip),
        ("Default", Verdict::Respond),
    ] {
        let mut open = approval(json!({"timeout": {"after": "60s", "action": action, "default": "later"}}));
        tally_and_store(&mut open, 59);
        assert_eq!(verdict(&open), None, "{action}");
        tally_and_store(&mut open, 60);
        let status = open.status.as_ref().unwrap();
        assert_eq!(status.phase, ApprovalPhase::Expired);
        let outcome = status.outcome.as_ref().unwrap();
        assert_eq!((outcome.verdict, outcome.source), (Some(expected), Source::Timeout));
        if action == "Default" {
            assert_eq!(outcome.response.as_deref(), Some("later"));
        }
    }
}

#[test]
fn a_decision_before_the_expiry_is_committed_wins() {
    let mut open = approval(json!({}));
    add_vote(&mut open, "alice", "Approve");
    tally_and_store(&mut open, 4000);
    assert_eq!(verdict(&open), Some(Verdict::Approve));
}

#[test]
fn escalation_by_timeout_goes_level_by_level_and_then_rejects() {
    let chain = json!([{"after": "10s", "to": users(&["olga"])}, {"to": users(&["pia"])}]);
    let mut open = approval(json!({"timeout": {"after": "60s", "action": "Escalate", "escalation": chain}}));
    let first = tally_and_store(&mut open, 60);
    assert_eq!((first.status.level, first.status.deadline), (Some(1), Some(at(70).at)));
    assert_eq!(first.status.closes_at, None, "it goes on to another level");
    let second = tally_and_store(&mut open, 70);
    assert_eq!((second.status.level, second.status.closes_at), (Some(2), Some(at(130).at)));
    tally_and_store(&mut open, 130);
    assert_eq!(verdict(&open), Some(Verdict::Reject), "never Approve");
}

#[test]
fn an_expired_timeout_keeps_the_approval_open() {
    let mut open = approval(json!({"timeout": {"after": "60s", "action": "Expire"}}));
    let result = tally_and_store(&mut open, 60);
    assert_eq!((result.status.phase, result.wake_at), (ApprovalPhase::Overdue, None));
    add_vote(&mut open, "alice", "Retry");
    tally_and_store(&mut open, 99999);
    assert_eq!(verdict(&open), Some(Verdict::Retry));
}

#[test]
fn reminders_are_on_time_and_limited() {
    let mut open = approval(json!({"timeout": {"after": "60s", "reminderInterval": "10s", "maxReminders": 2}}));
    assert_eq!(tally_and_store(&mut open, 0).wake_at, Some(at(10).at));
    assert_eq!(tally_and_store(&mut open, 10).events[0].reason.name(), "Reminder");
    assert_eq!(tally_and_store(&mut open, 20).status.reminders, Some(2));
    let last = tally_and_store(&mut open, 45);
    assert!(!last.changed);
    assert_eq!(last.wake_at, Some(at(60).at));
}
