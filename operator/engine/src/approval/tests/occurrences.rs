//! Tests of typed events: those of a tally are equal to those derived again from the stored Approval.

use signoff_api::occurrence::{GateEvent, Occurrence};

use super::*;

/// Tallies an Approval, stores the new status, and returns the typed events. Each event can also be derived from the
/// stored Approval.
fn typed_events(open: &mut Approval, now: &Now, owner: OwnerState) -> Vec<Occurrence<GateEvent>> {
    let result = tally(open, owner, now);
    open.status = Some(result.status);
    let stored: Approval = serde_json::from_value(json!(open)).unwrap();
    let events = result.events.into_iter().filter_map(|event| event.gate);
    let occurrences: Vec<_> = events.map(|event| Occurrence::stored(event, &stored).unwrap()).collect();
    for event in &occurrences {
        assert!(Occurrence::all_of(&stored).contains(event), "{event:?}: {:?}", Occurrence::all_of(&stored));
    }
    occurrences
}

/// Returns each event with its number and its time, in seconds from the start.
fn rows(events: &[Occurrence<GateEvent>]) -> Vec<(GateEvent, i64, u64)> {
    events.iter().map(|event| (event.event, event.number, event.at.since(start()).as_secs())).collect()
}

fn approval_with_escalation() -> Approval {
    let chain = json!([{"after": "60s", "to": users(&["olga"])}]);
    approval(json!({"timeout": {"after": "60s", "action": "Escalate", "escalation": chain, "reminderInterval": "20s"}}))
}

#[test]
fn a_tally_reports_each_event_of_a_typical_history() {
    let mut open = approval_with_escalation();
    let mut history = Vec::new();
    for second in [1, 25, 26, 61, 90, 95] {
        history.extend(typed_events(&mut open, &at(second), OwnerState::Live));
    }
    add_vote(&mut open, "olga", "Approve");
    history.extend(typed_events(&mut open, &at(100), OwnerState::Live));
    history.extend(typed_events(&mut open, &at(101), OwnerState::Live));
    let expected = [
        (GateEvent::Reminded, 1, 20),
        (GateEvent::Escalated, 1, 61),
        (GateEvent::Reminded, 1, 81),
        (GateEvent::Decided(ApprovalPhase::Approved), 1, 100),
    ];
    assert_eq!(rows(&history), expected);
    let mut keys: Vec<_> = history.iter().map(|event| event.key.clone()).collect();
    keys.dedup();
    assert_eq!(keys, ["reminder-0-1", "escalated-1", "reminder-1-1", "decided"]);
}

#[test]
fn a_tally_reports_the_kind_of_an_end_without_a_decision() {
    let mut expired = approval(json!({"timeout": {"after": "60s", "action": "Reject"}}));
    assert_eq!(rows(&typed_events(&mut expired, &at(60), OwnerState::Live)), [(GateEvent::Expired, 1, 60)]);
    let mut cancelled = approval(json!({}));
    let cancel = GateEvent::Decided(ApprovalPhase::Cancelled);
    assert_eq!(rows(&typed_events(&mut cancelled, &at(5), OwnerState::Finished)), [(cancel, 1, 5)]);
    let mut void = approval(json!({"threshold": 2}));
    add_vote(&mut void, "alice", "Approve");
    let other = Now::new(at(5).at, "e2");
    assert_eq!(rows(&typed_events(&mut void, &other, OwnerState::Live)), [(GateEvent::Superseded, 1, 5)]);
    let mut overdue = approval(json!({"timeout": {"after": "60s", "action": "Expire"}}));
    assert_eq!(typed_events(&mut overdue, &at(60), OwnerState::Live), [], "it stays open");
}

#[test]
fn an_invalid_decision_is_no_event_of_the_gate() {
    let mut open = approval(json!({}));
    vote(&mut open, "alice", json!({"verdict": "Modify", "parameters": {"respones": "typo"}}));
    let result = tally_and_store(&mut open, 1);
    let reasons: Vec<_> = result.events.iter().map(|event| (event.reason.name(), event.gate.is_some())).collect();
    assert_eq!(reasons, [("InvalidDecision", false)]);
}

#[test]
fn the_time_of_a_level_is_the_time_of_its_escalation() {
    let mut open = approval_with_escalation();
    assert_eq!(tally_and_store(&mut open, 25).status.level_at, None);
    assert_eq!(tally_and_store(&mut open, 60).status.level_at, Some(at(60).at));
    add_vote(&mut open, "alice", "Approve");
    assert_eq!(tally_and_store(&mut open, 70).status.level_at, Some(at(60).at), "also at its end");
}

#[test]
fn a_level_without_a_recorded_time_reminds_from_its_deadline() {
    let mut open = approval_with_escalation();
    open.status = Some(serde_json::from_value(json!({"level": 1, "deadline": at(121).at})).unwrap());
    open.status.as_mut().unwrap().guard_epoch.clone_from(&Some(open.spec.request.guard_epoch.clone()));
    for (second, expected) in [(62, None), (80, None), (81, Some(1)), (90, None), (101, Some(2))] {
        let events = rows(&typed_events(&mut open, &at(second), OwnerState::Live));
        assert_eq!(
            events.first().map(|(event, number, _)| (*event, *number)),
            expected.map(|n| (GateEvent::Reminded, n))
        );
    }
}

#[test]
fn reminders_of_a_level_with_a_shortened_deadline_are_on_time() {
    let chain = json!([{"after": "24h", "to": users(&["olga"])}]);
    let mut open = approval(
        json!({"timeout": {"after": "60s", "action": "Reject", "escalation": chain, "reminderInterval": "20s"}}),
    );
    open.metadata.creation_timestamp = serde_json::from_value(json!(start())).unwrap();
    add_vote(&mut open, "alice", "Escalate");
    let longest = |seconds| Now { max_gate_timeout: Duration::from_secs(3600), ..at(seconds) };
    assert_eq!(rows(&typed_events(&mut open, &longest(10), OwnerState::Live)), [(GateEvent::Escalated, 1, 10)]);
    assert_eq!(open.status.as_ref().unwrap().deadline, Some(at(3600).at));
    assert_eq!(typed_events(&mut open, &longest(11), OwnerState::Live), [], "none is due a second after it was asked");
    assert_eq!(rows(&typed_events(&mut open, &longest(30), OwnerState::Live)), [(GateEvent::Reminded, 1, 30)]);
}
