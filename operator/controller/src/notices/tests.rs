//! Tests of the notices of typed events, and of their recipients.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use signoff_api::{
    Approval, Digest, Moment, Workflow,
    approval::ApprovalPhase,
    gate::Subject,
    occurrence::{GateEvent, Occurrence},
};
use signoff_notify::{NoticeEvent, Occasion};

use super::occasion;

pub(super) const UID: &str = "00000000-0000-0000-0000-000000000001";

/// Returns an Approval of alice, bob and dana with a status. bob is excluded, and dana is the requester.
pub(super) fn approval(status: Value) -> Approval {
    let user = |name: &str| json!({"kind": "User", "name": name});
    serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval",
        "metadata": {
            "name": "w-review-0123456789", "namespace": "pay", "uid": "uid-1", "creationTimestamp": "2030-01-01T00:00:00Z",
        },
        "spec": {"request": {
            "workflow": {"name": "w", "uid": UID}, "gate": {"name": "review", "type": "step", "path": "review", "visit": 1},
            "specDigest": Digest::of_bytes(b""), "guardEpoch": "e", "deadline": "2030-01-02T00:00:00Z",
            "prompt": "Refund it?", "allowedVerdicts": ["Approve"],
            "quorums": [
                {
                    "source": "gate review", "approvers": [user("alice"), user("bob"), user("dana")], "threshold": 1,
                    "excludeRequester": true,
                },
                {"source": "policy", "approvers": [{"kind": "Group", "name": "board"}], "threshold": 1},
            ],
            "requestedBy": "system:serviceaccount:ci:bot", "requestedFor": "dana", "excluded": ["bob"],
            "timeout": {"after": "24h", "action": "Escalate"}, "digest": Digest::of_bytes(b"request"),
        }},
        "status": status,
    }))
    .unwrap()
}

pub(super) fn at(text: &str) -> Moment {
    serde_json::from_value(json!(text)).unwrap()
}

fn notice_of(event: GateEvent, approval: &Approval) -> Option<Occasion> {
    occasion::of_gate(&Occurrence::stored(event, approval)?, approval)
}

fn names(occasion: &Occasion) -> Vec<String> {
    occasion.audience.iter().map(Subject::to_string).collect()
}

#[test]
fn a_gate_asks_those_who_can_decide() {
    let asked = notice_of(GateEvent::Asked, &approval(json!({}))).unwrap();
    assert_eq!((asked.event, asked.key.as_str()), (NoticeEvent::Asked, "asked"));
    assert_eq!(names(&asked), ["alice", "group board"], "neither the excluded bob nor the requester dana");
    assert_eq!((asked.requester.as_str(), asked.run.as_str(), asked.namespace.as_str()), ("dana", "w", "pay"));
    assert_eq!((asked.deadline, asked.at), (Some(at("2030-01-02T00:00:00Z")), at("2030-01-01T00:00:00Z")));
    assert_eq!(asked.then.as_deref(), Some("more people may decide; without more people it is rejected"));
}

#[test]
fn an_escalation_is_sent_to_the_new_approvers() {
    let user = |name: &str| json!({"kind": "User", "name": name});
    let approvers = [user("alice"), user("bob"), user("olga")];
    let status = json!({"level": 1, "levelAt": "2030-01-02T00:00:00Z", "approvers": approvers});
    assert_eq!(names(&notice_of(GateEvent::Escalated, &approval(status)).unwrap()), ["olga"]);
}

#[test]
fn an_outcome_is_announced_after_the_run_has_taken_it() {
    let ended = |phase: &str| json!({"phase": phase, "outcome": {"phase": phase, "source": "Human", "decidedAt": "2030-01-01T01:00:00Z"}});
    let approved = approval(ended("Approved"));
    assert_eq!(notice_of(GateEvent::Decided(ApprovalPhase::Approved), &approved), None);
    let taken = occasion::notice_of_outcome(&approved, ApprovalPhase::Approved, at("2030-01-01T01:00:01Z")).unwrap();
    assert_eq!(
        (taken.event, taken.key.as_str(), taken.outcome.as_deref()),
        (NoticeEvent::Taken, "taken", Some("approved"))
    );
    assert_eq!(
        names(&taken),
        ["alice", "bob", "dana", "group board", "dana"],
        "all who heard of it, and the requester"
    );
    assert_eq!((taken.deadline, taken.then), (None, None));
    // The end of a run ends its gates. The approvers get a notice with the id of an outcome.
    let cancelled = notice_of(GateEvent::Decided(ApprovalPhase::Cancelled), &approval(ended("Cancelled"))).unwrap();
    assert_eq!((cancelled.event, cancelled.key), (NoticeEvent::Taken, taken.key));
}

#[test]
fn a_void_vote_is_announced_to_its_voter() {
    let status = |votes: Value| {
        let outcome = json!({
            "phase": "Superseded", "source": "Policy", "reason": "recorded while unguarded: x",
            "decidedAt": "2030-01-01T01:00:00Z",
        });
        json!({"phase": "Superseded", "votes": votes, "outcome": outcome})
    };
    let vote = json!({
        "key": "alice via bot", "user": "alice", "verdict": "Approve", "attempt": 1, "at": "2030-01-01T00:30:00Z",
        "epoch": "e",
    });
    let voided = notice_of(GateEvent::Superseded, &approval(status(json!([vote])))).unwrap();
    assert_eq!((voided.event, names(&voided)), (NoticeEvent::VoteVoided, vec!["alice".to_owned()]));
    assert_eq!(notice_of(GateEvent::Superseded, &approval(status(json!([])))), None);
}

#[test]
fn the_end_of_a_run_is_announced_to_its_requester() {
    let workflow: Workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "pay", "uid": UID, "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {"requestedBy": "system:serviceaccount:ci:bot", "requestedFor": "dana", "steps": []},
        "status": {"phase": "Rejected", "seq": 7, "finishedAt": "2030-01-01T02:00:00Z"},
    }))
    .unwrap();
    let ended = occasion::of_run(&Occurrence::ended(&workflow).unwrap(), &workflow).unwrap();
    assert_eq!((names(&ended), ended.outcome.as_deref()), (vec!["dana".to_owned()], Some("rejected")));
    assert!(ended.approval.is_none() && ended.details.is_none());
}

#[test]
fn a_long_question_is_cut_and_marked() {
    let mut long = approval(json!({}));
    long.spec.request.prompt = "x".repeat(40 * 1024);
    let details = notice_of(GateEvent::Asked, &long).unwrap().details.unwrap();
    assert!(details.chars().count() < 3100 && details.ends_with(signoff_notify::CUT), "{details}");
}
