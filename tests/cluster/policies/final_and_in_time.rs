//! A decision is final, and is in time by the API server's clock.

use serde_json::{Value, json};

use super::harness::{Harness, assert_refused, user};

const PAST: &str = "2020-01-01T00:00:00Z";
const FUTURE: &str = "2100-01-01T00:00:00Z";

fn approve() -> Value {
    json!({"verdict": "Approve"})
}

#[tokio::test]
async fn only_the_attempt_that_was_found_invalid_is_replaced_by_the_next_one() {
    let harness = Harness::open("final").await;
    let approval = harness.ask(json!({})).await;
    let modify =
        |attempt: i32, to: &str| json!({"verdict": "Modify", "attempt": attempt, "parameters": {"response": to}});
    assert_refused(harness.decide("alice", &approval, modify(2, "early")).await, "a decision is final");
    harness.decide("alice", &approval, modify(1, "bad")).await.unwrap();
    assert_refused(harness.decide("alice", &approval, modify(2, "eager")).await, "a decision is final");

    harness
        .status(&approval, json!({"invalid": {"alice@example.com": {"attempt": 1, "why": "not that"}}}))
        .await
        .unwrap();
    assert_refused(harness.decide("alice", &approval, modify(1, "same number")).await, "a decision is final");
    assert_refused(harness.decide("alice", &approval, modify(3, "skipped one")).await, "a decision is final");
    harness.decide("alice", &approval, modify(2, "good")).await.unwrap();
    // An `invalid` entry for attempt 1 does not apply to attempt 2.
    assert_refused(harness.decide("alice", &approval, modify(3, "again")).await, "a decision is final");
}

#[tokio::test]
async fn a_vote_after_the_closing_time_is_refused_without_an_operator() {
    let harness = Harness::open("time").await;
    let closed = harness.ask(json!({"closesAt": PAST})).await;
    assert_refused(harness.decide("alice", &closed, approve()).await, "too late: this gate closed at 2020-01-01");
    let open = harness.ask(json!({"closesAt": FUTURE})).await;
    harness.decide("alice", &open, approve()).await.unwrap();
}

#[tokio::test]
async fn a_gate_stays_open_when_its_deadline_does_not_end_it() {
    let harness = Harness::open("time").await;
    let overdue = harness.ask(json!({"deadline": PAST, "timeout": {"action": "Expire"}})).await;
    harness.decide("alice", &overdue, approve()).await.unwrap();
}

#[tokio::test]
async fn only_the_new_closing_time_counts_after_an_escalation() {
    let harness = Harness::open("time").await;
    let escalated = async |request: Value, status: Value| {
        let approval = harness.ask(request).await;
        harness.status(&approval, status).await.unwrap();
        harness.decide("alice", &approval, approve()).await
    };
    escalated(json!({"closesAt": PAST}), json!({"level": 1})).await.unwrap();
    escalated(json!({"closesAt": PAST}), json!({"level": 1, "closesAt": FUTURE})).await.unwrap();
    assert_refused(escalated(json!({"closesAt": FUTURE}), json!({"level": 1, "closesAt": PAST})).await, "too late");
    assert_refused(escalated(json!({"closesAt": PAST}), json!({"level": 0, "closesAt": FUTURE})).await, "too late");
}

#[tokio::test]
async fn forged_managed_fields_do_not_close_a_gate() {
    let harness = Harness::open("time").await;
    let later = "2090-01-01T00:00:00Z";
    let typed = json!([{"manager": "clock", "operation": "Update", "apiVersion": "signoff.dev/v1alpha1", "time": FUTURE,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:request": {"f:prompt": {}}}}}]);
    for closes_at in [Value::Null, json!(later)] {
        // A time later than the closing time, and no stamps at all, after which the API server writes no more of them.
        for doctored in [typed.clone(), json!([{}])] {
            let approval = harness.ask(json!({"closesAt": closes_at})).await;
            let with_a_label = json!({"metadata": {"managedFields": doctored, "labels": {"team": "finance"}}});
            let answer = harness.patch("alice", &approval, with_a_label).await;
            harness.status(&approval, json!({"level": 1, "closesAt": later})).await.unwrap();
            harness.decide("bob", &approval, approve()).await.unwrap();
            assert_refused(answer, "metadata.managedFields tell when a decision was made");
        }
    }
}

#[tokio::test]
async fn times_of_server_side_apply_do_not_change_the_time_of_a_vote() {
    let harness = Harness::open("time").await;
    let later = "2090-01-01T00:00:00Z";
    let entry = |time: &str, operation: &str, fields: Value| {
        json!({"manager": "clock", "operation": operation, "apiVersion": "signoff.dev/v1alpha1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let vote =
        |user: &str| json!({"f:spec": {"f:decisions": {".": {}, format!("f:{user}"): {".": {}, "f:verdict": {}}}}});
    let labels = json!({"f:metadata": {"f:labels": {"f:team": {}}}});
    // With entries for a label, and for votes of others and of its own that do not exist yet.
    let planted = json!([
        entry(FUTURE, "Apply", labels),
        entry(FUTURE, "Apply", vote("bob@example.com")),
        entry(FUTURE, "Apply", vote("alice@example.com")),
    ]);
    for entries in [planted.clone(), json!([planted[1]]), json!([planted[2]])] {
        let approval = harness.ask(json!({"approvers": [user("alice"), user("bob")], "threshold": 2})).await;
        let stamps = serde_json::to_value(&approval.metadata.managed_fields).unwrap();
        let all: Vec<Value> = [stamps, entries].into_iter().flat_map(|list| list.as_array().unwrap().clone()).collect();
        let forged = json!({"metadata": {"managedFields": all, "labels": {"team": "finance"}}});
        harness.patch("alice", &approval, forged).await.unwrap();
        harness.status(&approval, json!({"level": 1, "closesAt": later})).await.unwrap();
        for who in ["bob", "alice"] {
            harness.decide(who, &approval, approve()).await.unwrap();
        }
    }
    // An update that a client sends is still bound to the stamps.
    let approval = harness.ask(json!({})).await;
    let stamps = serde_json::to_value(&approval.metadata.managed_fields).unwrap();
    let mut all = stamps.as_array().unwrap().clone();
    all.push(entry(FUTURE, "Update", vote("bob@example.com")));
    let forged = json!({"metadata": {"managedFields": all, "labels": {"team": "finance"}}});
    assert_refused(
        harness.patch("alice", &approval, forged).await,
        "metadata.managedFields tell when a decision was made",
    );
}

#[tokio::test]
async fn an_overdue_gate_accepts_only_retry_reject_and_abort() {
    let harness = Harness::open("time").await;
    for verdict in ["Retry", "Reject", "Abort"] {
        let approval = harness.ask(json!({"allowedVerdicts": ["Approve"], "approvers": [user("alice")]})).await;
        harness.status(&approval, json!({"phase": "Overdue"})).await.unwrap();
        let words = "verdict must be one of Retry, Reject, Abort";
        assert_refused(harness.decide("alice", &approval, approve()).await, words);
        harness.decide("alice", &approval, json!({"verdict": verdict})).await.unwrap();
    }
}
