//! Tests that count decisions without a cluster.
#![allow(clippy::unwrap_used)]
use signoff_api::{
    Decision,
    gate::{RejectPolicy, RequiredFrom},
};

use super::*;
use crate::sample;

fn line_after(approval: &mut Approval, user: &str, decision: Decision) -> String {
    let entry = Entry { key: user.into(), decision };
    *approval = with(approval, &entry);
    let counted = Counter::start(1).unwrap().wait(approval, sample::now()).unwrap();
    reached(approval, Some(&counted), &entry).line(&entry)
}

fn unusable_reason(approval: &Approval, entry: &Entry) -> Result<Option<String>, CountError> {
    let counted = Counter::start(1)?.wait(&with(approval, entry), sample::now())?;
    Ok(unusable(&counted, entry))
}

#[test]
fn a_quorum_is_counted_as_the_operator_counts() {
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].threshold = 2;
    assert_eq!(line_after(&mut approval, "alice", Decision::new(Verdict::Approve)), "Approve recorded (1 of 2)");
    assert_eq!(line_after(&mut approval, "bob", Decision::new(Verdict::Skip)), "Skip recorded (1 of 2)");
    assert_eq!(line_after(&mut approval, "carol", Decision::new(Verdict::Approve)), "approved");
    assert_eq!(line_after(&mut approval, "dora", Decision::new(Verdict::Abort)), "aborted");
    assert_eq!(
        line_after(&mut approval, "erin", Decision::new(Verdict::Approve)),
        "Approve recorded (Abort by dora takes precedence)"
    );
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].threshold = 2;
    approval.spec.request.quorums[0].reject_policy = Some(RejectPolicy::Threshold);
    assert_eq!(
        line_after(&mut approval, "dora", Decision::new(Verdict::Reject)),
        "Reject recorded (2 people are needed)"
    );
}

/// The page foresees the effect of each verdict before a reason is typed.
#[test]
fn a_decision_without_a_reason_is_counted_where_the_gate_requires_one() {
    let mut approval = sample::approval();
    approval.spec.request.require_reason = Some(true);
    sample::seal(&mut approval);
    assert_eq!(line_after(&mut approval, "alice", Decision::new(Verdict::Approve)), "approved");
}

#[test]
fn groups_that_are_still_needed_are_named() {
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].required_from = vec![RequiredFrom { group: "leads".into(), min: 1 }];
    assert_eq!(
        line_after(&mut approval, "bob", Decision::new(Verdict::Approve)),
        "Approve recorded (1 of 1; not yet met of: 1 of group leads)"
    );
    let lead = Decision { groups: vec!["leads".into()], ..Decision::new(Verdict::Approve) };
    assert_eq!(line_after(&mut approval, "alice", lead), "approved");
}

#[test]
fn a_payload_that_the_operator_could_not_use_is_unusable() {
    let approval = sample::approval();
    let modify = |json: serde_json::Value| Decision {
        parameters: serde_json::from_value(json).ok(),
        ..Decision::new(Verdict::Modify)
    };
    let entry = |decision| Entry { key: "alice@example.com".into(), decision };
    assert_eq!(unusable_reason(&approval, &entry(modify(serde_json::json!({"response": "better"})))).unwrap(), None);
    let refusal = unusable_reason(&approval, &entry(modify(serde_json::json!({"respnse": "better"}))));
    assert!(refusal.unwrap().is_some_and(|why| why.contains("response")));
}

#[test]
fn an_answer_that_costs_too_much_is_refused_and_does_not_hang() {
    let mut approval = sample::approval();
    let request = &mut approval.spec.request;
    request.allowed_verdicts.push(Verdict::Respond);
    request.form = serde_json::from_value(serde_json::json!({"questions": [{"id": "why"}]})).ok();
    assert!(request.form.is_some());
    sample::seal(&mut approval);
    let entry = |text: &str| Entry {
        key: "alice@example.com".into(),
        decision: Decision { response: Some(text.to_owned()), ..Decision::new(Verdict::Respond) },
    };
    for mark in ["endless", "deaf"] {
        let refusal = unusable_reason(&approval, &entry(&format!("[[{mark}:answer]]")));
        assert!(refusal.is_err_and(|error| error.to_string().contains("CPU time")), "{mark}");
    }
    assert_eq!(unusable_reason(&approval, &entry("because")).unwrap(), None);
}

#[test]
fn the_represented_user_is_named() {
    let mut approval = sample::approval();
    let decision = Decision { on_behalf_of: Some("bob".into()), ..Decision::new(Verdict::Abort) };
    assert_eq!(line_after(&mut approval, "bob via me", decision), "aborted on behalf of bob");
}

#[tokio::test]
async fn the_effect_of_each_verdict_is_counted_without_blocking() {
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].threshold = 2;
    let counter = Counter::start(1).unwrap();
    for (verdict, expected) in [
        (Verdict::Approve, Reached::Open("1 of 2".into())),
        (Verdict::Reject, Reached::Decided),
        (Verdict::Escalate, Reached::Escalated),
    ] {
        let entry = Entry { key: "alice@example.com".into(), decision: Decision::new(verdict) };
        let counted = counter.count(&with(&approval, &entry), sample::now()).await.unwrap();
        assert_eq!(reached(&with(&approval, &entry), Some(&counted), &entry), expected, "{verdict}");
    }
}
