//! Tests of events that are derived from stored objects.
#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};

use super::*;

const UID: &str = "00000000-0000-0000-0000-000000000002";
const OWNER: &str = "00000000-0000-0000-0000-000000000001";

/// Returns the Approval of the second visit of a gate with a reminder every ten seconds, after an escalation at 10:01.
fn approval(status: Value) -> Approval {
    let mut approval: Approval = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval",
        "metadata": {"name": "w-g", "namespace": "n", "uid": UID, "creationTimestamp": "2030-01-01T10:00:01Z"},
        "spec": {"request": {
            "workflow": {"name": "w", "uid": OWNER}, "gate": {"name": "g", "type": "step", "path": "g#2", "visit": 2},
            "specDigest": Digest::of_bytes(b""), "guardEpoch": "e", "deadline": "2030-01-01T10:01:00Z", "prompt": "?",
            "allowedVerdicts": ["Approve"], "quorums": [], "requestedBy": "dana", "digest": Digest::of_bytes(b"request"),
            "timeout": {"after": "60s", "reminderInterval": "10s"},
        }},
        "status": status,
    }))
    .unwrap();
    approval.spec.request.digest = approval.spec.request.digest_of_the_rest().unwrap();
    approval
}

fn moment(text: &str) -> Moment {
    serde_json::from_value(json!(text)).unwrap()
}

/// Returns each event with its key, its number and the second of its time.
fn event_lines(approval: &Approval) -> Vec<(GateEvent, String, i64, String)> {
    let again: Approval = serde_json::from_value(json!(approval)).unwrap();
    let events = Occurrence::all_of(approval);
    assert_eq!(Occurrence::all_of(&again), events, "derived again from what is stored");
    for event in &events {
        let digest = Some(approval.spec.request.digest.clone());
        assert_eq!((&*event.name, &*event.uid, &event.digest), ("w-g", UID, &digest));
    }
    let row = |e: Occurrence<GateEvent>| (e.event, e.key, e.number, e.at.to_string()[11..].to_owned());
    events.into_iter().map(row).collect()
}

fn row(event: GateEvent, key: &str, number: i64, at: &str) -> (GateEvent, String, i64, String) {
    (event, key.to_owned(), number, at.to_owned())
}

#[test]
fn an_open_gate_has_events_of_its_request_and_reminders() {
    let asked = row(GateEvent::Asked, "asked", 2, "10:00:01Z");
    assert_eq!(event_lines(&approval(json!({}))), std::slice::from_ref(&asked));
    let reminded = row(GateEvent::Reminded, "reminder-0-3", 3, "10:00:30Z");
    assert_eq!(event_lines(&approval(json!({"reminders": 3}))), [asked.clone(), reminded]);
    assert_eq!(event_lines(&approval(json!({"phase": "Overdue"}))), [asked], "an overdue gate is open");
}

#[test]
fn reminders_of_a_further_level_count_from_its_beginning() {
    let status =
        json!({"level": 1, "levelAt": "2030-01-01T10:01:00.25Z", "deadline": "2030-01-01T12:00:00Z", "reminders": 2});
    let expected = [
        row(GateEvent::Asked, "asked", 2, "10:00:01Z"),
        row(GateEvent::Escalated, "escalated-1", 1, "10:01:00.25Z"),
        row(GateEvent::Reminded, "reminder-1-2", 2, "10:01:21Z"),
    ];
    assert_eq!(event_lines(&approval(status)), expected);
    // An earlier version escalated it without storing the time: the start of the level follows from the deadline.
    let old = event_lines(&approval(json!({"level": 1, "deadline": "2030-01-01T10:02:00Z", "reminders": 2})));
    assert_eq!(old[1..], [row(GateEvent::Reminded, "reminder-1-2", 2, "10:01:20Z")]);
}

#[test]
fn an_approval_with_a_changed_request_has_only_an_end_without_a_verdict() {
    let changed = |status: Value| {
        let mut changed = approval(status);
        changed.spec.request.gate.visit = 7;
        event_lines(&changed)
    };
    assert_eq!(changed(json!({"reminders": 1})), []);
    let end = |phase: &str, verdict: Value| json!({"outcome": {"phase": phase, "verdict": verdict, "source": "Policy", "decidedAt": "2030-01-01T10:00:40Z"}});
    assert_eq!(changed(end("Approved", json!("Approve"))), []);
    assert_eq!(changed(end("Superseded", json!(null))), [row(GateEvent::Superseded, "decided", 7, "10:00:40Z")]);
}

#[test]
fn forged_times_and_levels_cause_no_panic() {
    for at in [jiff::Timestamp::MAX, jiff::Timestamp::MIN].map(Moment::from) {
        for (level, reminders) in [(0, 1000), (1, 1), (64, i32::MAX), (i32::MAX, 0), (i32::MIN, -1)] {
            let status = json!({"level": level, "levelAt": at, "reminders": reminders});
            let events = Occurrence::all_of(&approval(status));
            assert!(events.iter().all(|event| event.number <= i64::from(i32::MAX)), "{events:?}");
        }
    }
}

#[test]
fn every_end_is_one_event_with_the_time_of_its_outcome() {
    for phase in ApprovalPhase::ALL {
        let status = json!({"outcome": {"phase": phase, "source": "Policy", "decidedAt": "2030-01-01T10:00:40Z"}});
        let ends: Vec<_> = event_lines(&approval(status)).into_iter().skip(1).collect();
        let expected = match phase {
            ApprovalPhase::Pending | ApprovalPhase::Overdue => None,
            ApprovalPhase::Expired => Some(GateEvent::Expired),
            ApprovalPhase::Superseded => Some(GateEvent::Superseded),
            decided => Some(GateEvent::Decided(decided)),
        };
        let expected = expected.map(|event| row(event, "decided", 2, "10:00:40Z"));
        assert_eq!(ends, expected.clone().into_iter().collect::<Vec<_>>(), "{phase:?}");
        let stored = expected.and_then(|(event, ..)| event.stored_end());
        assert_eq!(stored, Some(phase).filter(|phase| phase.is_end()), "{phase:?}");
    }
}

#[test]
fn a_copy_of_an_approval_has_no_events_of_the_original() {
    let end = json!({"phase": "Approved", "source": "Human", "decidedAt": "2030-01-01T10:01:40Z"});
    let mut copy = approval(json!({"level": 1, "levelAt": "2030-01-01T10:01:00Z", "outcome": end}));
    let row_of_end = row(GateEvent::Decided(ApprovalPhase::Approved), "decided", 2, "10:01:40Z");
    assert_eq!(event_lines(&copy)[1..], [row(GateEvent::Escalated, "escalated-1", 1, "10:01:00Z"), row_of_end.clone()]);
    assert_eq!(Occurrence::end(&copy).map(|end| end.key), Some("decided".to_owned()));
    copy.metadata.creation_timestamp = serde_json::from_value(json!("2030-01-01T10:01:20Z")).unwrap();
    assert_eq!(event_lines(&copy)[1..], [row_of_end], "it ended itself");
    copy.metadata.creation_timestamp = serde_json::from_value(json!("2030-01-02T00:00:00Z")).unwrap();
    assert_eq!((event_lines(&copy).len(), Occurrence::end(&copy)), (1, None));
}

#[test]
fn a_record_with_an_outcome_has_a_taken_event() {
    let record = |more: Value| -> StepRecord {
        let mut record = json!({
            "path": "g", "attempt": 1, "kind": "hitl", "phase": "Waiting", "seq": 4, "at": "2030-01-01T10:00:00Z",
            "object": "w-g",
            "request": {"digest": Digest::of_bytes(b"request"), "deadline": "2030-01-01T10:01:00Z", "guardEpoch": "e"},
        });
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(record).unwrap()
    };
    let decision = json!({"phase": "Approved", "verdict": "Approve", "source": "Human"});
    let ended =
        record(json!({"phase": "Succeeded", "done": 7, "finishedAt": "2030-01-01T10:00:50Z", "decision": decision}));
    let taken = Occurrence::taken(&ended, UID).unwrap();
    let expected = Occurrence {
        event: GateEvent::Taken(ApprovalPhase::Approved),
        name: "w-g".to_owned(),
        uid: UID.to_owned(),
        digest: Some(Digest::of_bytes(b"request")),
        key: "taken".to_owned(),
        number: 7,
        at: moment("2030-01-01T10:00:50Z"),
    };
    assert_eq!(taken, expected);
    assert_eq!(Occurrence::taken(&record(json!({})), UID), None, "it waits");
    let missing = json!({"phase": "Failed", "done": 7, "finishedAt": "2030-01-01T10:00:50Z"});
    assert_eq!(Occurrence::taken(&record(missing), UID), None, "its Approval was deleted");
}

#[test]
fn a_run_has_events_of_its_acceptance_and_end() {
    let workflow = |status: Value| -> Workflow {
        serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "uid": OWNER},
            "spec": {"requestedBy": "dana", "steps": [{"name": "one", "set": {"value": "x"}}]}, "status": status,
        }))
        .unwrap()
    };
    let digest = Digest::of_bytes(b"spec");
    let running =
        workflow(json!({"phase": "Running", "seq": 3, "specDigest": digest, "startedAt": "2030-01-01T10:00:00Z"}));
    let accepted = Occurrence::accepted(&running).unwrap();
    assert_eq!((accepted.event, &*accepted.key, accepted.number), (RunEvent::Accepted, "accepted", 0));
    assert_eq!((accepted.at, &accepted.digest), (moment("2030-01-01T10:00:00Z"), &Some(digest.clone())));
    assert_eq!(Occurrence::ended(&running), None);
    let ended = workflow(json!({
        "phase": "Failed", "seq": 9, "specDigest": digest,
        "startedAt": "2030-01-01T10:00:00Z", "finishedAt": "2030-01-01T10:05:00Z",
    }));
    assert_eq!(Occurrence::accepted(&ended), Some(accepted), "derived again from a later status");
    let end = Occurrence::ended(&ended).unwrap();
    assert_eq!((end.event, end.number, end.digest), (RunEvent::Ended(WorkflowPhase::Failed), 9, Some(digest)));
    let mut copy = ended.clone();
    copy.metadata.creation_timestamp = serde_json::from_value(json!("2030-01-02T00:00:00Z")).unwrap();
    assert_eq!((Occurrence::accepted(&copy), Occurrence::ended(&copy)), (None, None), "another object's events");
    copy.status.as_mut().unwrap().finished_at = Some(moment("2030-01-02T00:01:00Z"));
    assert_eq!(Occurrence::ended(&copy).unwrap().number, 9, "it was cancelled itself");
    let refused = workflow(json!({"phase": "Failed", "seq": 0, "finishedAt": "2030-01-01T10:00:00Z"}));
    assert_eq!(Occurrence::accepted(&refused), None);
    assert_eq!(Occurrence::ended(&refused).unwrap().digest, None);
}
