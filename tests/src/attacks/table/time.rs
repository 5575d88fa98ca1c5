//! Votes in time and late votes, by the clock of the API server.

use serde_json::{Value, json};

use crate::attacks::Actor::{Approver, Delegate, Operator, SecondApprover};
use crate::attacks::{CHANGES, Object, REMOVALS, Row, Way, approve, own};

const PAST: &str = "2020-01-01T00:00:00Z";
const FUTURE: &str = "2100-01-01T00:00:00Z";
const LATE: &str = "too late: this gate closed at 2020-01-01T00:00:00Z";

const STAMPS: &str = "metadata.managedFields tell when a decision was made";

/// Returns a vote with forged managedFields.
fn forged_vote(managed_fields: Value) -> Value {
    let mut vote = own(approve());
    vote["metadata"] = json!({"managedFields": managed_fields});
    vote
}

fn update_entry(time: &str) -> Value {
    json!({"manager": "clock", "operation": "Update", "apiVersion": "signoff.dev/v1alpha1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:request": {"f:prompt": {}}}}})
}

/// Returns a managedFields entry of server-side apply that owns the vote under `key`.
fn apply_entry(time: &str, key: &str) -> Value {
    json!({"manager": "clock", "operation": "Apply", "apiVersion": "signoff.dev/v1alpha1", "time": time, "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:decisions": {format!("f:{key}"): {".": {}, "f:verdict": {}}}}}})
}

/// Returns a vote with more managedFields entries than the API server keeps apart.
fn vote_with_many_entries() -> Value {
    let entry = |n: usize| {
        let mut entry = update_entry(FUTURE);
        entry["manager"] = json!(format!("clock-{n}"));
        entry
    };
    forged_vote((0..12).map(entry).collect())
}

pub(super) fn rows() -> Vec<Row> {
    let carried = json!({"spec": {"decisions": {
        "alice@example.com via {me}": {"verdict": "Approve", "onBehalfOf": "alice@example.com"},
    }}});
    let expiry = json!({"status": {"phase": "Expired", "outcome": {"phase": "Expired", "verdict": "Reject", "source": "Timeout"}}});
    let late = |what, who, how: &[Way], change: Value| {
        Row::new(what, [who], [Way::Merge], change)
            .ways(how)
            .with_request(json!({"closesAt": PAST}))
            .refused(LATE)
            .honest("the operator's record that time is up", expiry.clone())
            .by(Operator)
            .way(Way::Merge)
            .about(Object::Sub("status"))
    };
    let forged = |what, fields: Value| {
        let mut entry = update_entry(FUTURE);
        entry["fieldsV1"] = json!({"f:spec": {"f:decisions": fields}});
        let row = Row::new(what, [Approver], REMOVALS, forged_vote(json!([entry]))).refused(STAMPS);
        row.honest("the vote alone", own(approve()))
    };
    vec![
        late("votes after closing time", Approver, &CHANGES, own(approve())),
        late("votes after closing time,", SecondApprover, &CHANGES, own(json!({"verdict": "Reject"}))),
        late("carries a vote after closing time", Delegate, &CHANGES, carried),
        late("votes late without the API server's stamps", Approver, &REMOVALS, forged_vote(json!([{}]))),
        late("votes late with no managedFields at all", Approver, &REMOVALS, forged_vote(json!([]))),
        late(
            "votes late with an earlier time typed for it",
            Approver,
            &REMOVALS,
            forged_vote(json!([update_entry("2019-01-01T00:00:00Z")])),
        ),
        late(
            "votes late and types an earlier time of server-side apply for it",
            Approver,
            &REMOVALS,
            forged_vote(json!([apply_entry("2019-01-01T00:00:00Z", "alice@example.com")])),
        ),
        late(
            "votes late and types a time from the future",
            Approver,
            &REMOVALS,
            forged_vote(json!([update_entry(FUTURE)])),
        ),
        late(
            "votes late and types no time",
            Approver,
            &REMOVALS,
            forged_vote(json!([{
                "manager": "clock", "operation": "Update", "apiVersion": "signoff.dev/v1alpha1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:decisions": {"f:alice@example.com": {}}}},
            }])),
        ),
        Row::new("votes after the closing time that an escalation set", [Approver], CHANGES, own(approve()))
            .with_request(json!({"closesAt": FUTURE}))
            .with_status(json!({"level": 1, "closesAt": PAST}))
            .refused(LATE)
            .honest("the operator's record that time is up", expiry.clone())
            .by(Operator)
            .way(Way::Merge)
            .about(Object::Sub("status")),
        Row::new("takes a later closing time in the status for the request's", [Approver], CHANGES, own(approve()))
            .with_request(json!({"closesAt": PAST}))
            .with_status(json!({"level": 0, "closesAt": FUTURE}))
            .refused(LATE)
            .honest("the operator's record that time is up", expiry)
            .by(Operator)
            .way(Way::Merge)
            .about(Object::Sub("status")),
        Row::new(
            "takes away the stamps by which time is told",
            [Approver],
            REMOVALS,
            json!({
                "metadata": {"labels": {"team": "finance"}, "managedFields": [{}]},
            }),
        )
        .refused(STAMPS)
        .honest("a label alone", json!({"metadata": {"labels": {"team": "finance"}}})),
        Row::new(
            "types a time from the future on a gate that may close later",
            [Approver, SecondApprover],
            REMOVALS,
            json!({
                "metadata": {"labels": {"team": "finance"}, "managedFields": [update_entry(FUTURE)]},
            }),
        )
        .refused(STAMPS)
        .honest("a label alone", json!({"metadata": {"labels": {"team": "finance"}}})),
        Row::new(
            "types a time from the future and changes nothing else",
            [Approver],
            REMOVALS,
            json!({
                "metadata": {"managedFields": [update_entry(FUTURE)]},
            }),
        )
        .refused(STAMPS)
        .honest("a label alone", json!({"metadata": {"labels": {"team": "finance"}}})),
        Row::new(
            "types times from the future until its own stamp is merged with them",
            [Approver],
            REMOVALS,
            vote_with_many_entries(),
        )
        .refused(STAMPS)
        .honest("the vote alone", own(approve())),
        Row::new(
            "types a time from the future while voting",
            [Approver],
            REMOVALS,
            forged_vote(json!([update_entry(FUTURE)])),
        )
        .refused(STAMPS)
        .honest("the vote alone", own(approve())),
        forged(
            "types a time from the future for a field of its own vote that is not there",
            json!({"f:alice@example.com": {"f:reason": {}}}),
        ),
        forged(
            "types a time from the future for the first of the decisions",
            json!({".": {}, "f:nobody@example.com": {}}),
        ),
        Row::new("takes away the stamps while voting", [Approver], REMOVALS, forged_vote(json!([{}])))
            .refused(STAMPS)
            .honest("the vote alone", own(approve())),
        Row::new("approves when only Retry, Reject and Abort are left", [Approver], CHANGES, own(approve()))
            .with_status(json!({"phase": "Overdue"}))
            .refused("verdict must be one of Retry, Reject, Abort")
            .honest("a Reject", own(json!({"verdict": "Reject"}))),
    ]
}
