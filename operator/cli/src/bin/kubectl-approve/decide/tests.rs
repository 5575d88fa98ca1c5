//! Counting, refusing and confirming, without a cluster.
use signoff_api::{
    Decision,
    gate::{RejectPolicy, RequiredFrom},
};

use super::*;
use crate::sample;

fn after(approval: &mut Approval, user: &str, decision: Decision) -> String {
    approval.spec.decisions.insert(user.into(), decision.clone());
    reached(approval, &Entry { key: user.into(), decision }, sample::now())
}

#[test]
fn a_quorum_is_counted_as_the_operator_counts() {
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].threshold = 2;
    assert_eq!(after(&mut approval, "alice", Decision::new(Verdict::Approve)), "Approve recorded (1 of 2)");
    assert_eq!(after(&mut approval, "bob", Decision::new(Verdict::Skip)), "Skip recorded (1 of 2)");
    assert_eq!(after(&mut approval, "carol", Decision::new(Verdict::Approve)), "approved");
    assert_eq!(after(&mut approval, "dora", Decision::new(Verdict::Abort)), "aborted");
    assert_eq!(
        after(&mut approval, "erin", Decision::new(Verdict::Approve)),
        "Approve recorded (Abort by dora goes before it)"
    );
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].threshold = 2;
    approval.spec.request.quorums[0].reject_policy = Some(RejectPolicy::Threshold);
    assert_eq!(after(&mut approval, "dora", Decision::new(Verdict::Reject)), "Reject recorded (it takes 2)");
}

#[test]
fn groups_that_are_still_needed_are_named() {
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].required_from = vec![RequiredFrom { group: "leads".into(), min: 1 }];
    assert_eq!(
        after(&mut approval, "bob", Decision::new(Verdict::Approve)),
        "Approve recorded (1 of 1; not yet met of: 1 of group leads)"
    );
    let lead = Decision { groups: vec!["leads".into()], ..Decision::new(Verdict::Approve) };
    assert_eq!(after(&mut approval, "alice", lead), "approved");
}

#[test]
fn a_payload_that_the_operator_could_not_use_is_refused_before_it_costs_an_attempt() {
    let approval = sample::approval();
    let modify = |json: serde_json::Value| Decision {
        parameters: serde_json::from_value(json).ok(),
        ..Decision::new(Verdict::Modify)
    };
    let entry = |decision| Entry { key: "alice@example.com".into(), decision };
    assert!(usable(&approval, &entry(modify(serde_json::json!({"response": "better"}))), sample::now()).is_ok());
    let refusal = usable(&approval, &entry(modify(serde_json::json!({"respnse": "better"}))), sample::now());
    assert!(refusal.is_err_and(|failure| failure.to_string().contains("response")));
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
        let refusal = usable(&approval, &entry(&format!("[[{mark}:answer]]")), sample::now());
        assert!(refusal.is_err_and(|failure| failure.to_string().contains("CPU time")), "{mark}");
    }
    assert!(usable(&approval, &entry("because"), sample::now()).is_ok());
}

#[test]
fn whom_one_speaks_for_is_said() {
    let mut approval = sample::approval();
    let decision = Decision { on_behalf_of: Some("bob".into()), ..Decision::new(Verdict::Abort) };
    assert_eq!(after(&mut approval, "bob via me", decision), "aborted on behalf of bob");
}

#[test]
fn a_changed_decision_is_reported_field_by_field() {
    let entry = Entry { key: "alice".into(), decision: Decision::new(Verdict::Approve) };
    let text = tampered(&entry, &["verdict: sent \"Approve\", stored \"Reject\"".into()]).to_string();
    assert!(text.contains("WHAT WAS STORED IS NOT WHAT YOU SENT, under alice:\n  | verdict: sent"), "{text}");
}
