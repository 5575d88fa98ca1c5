//! Refusing and confirming, without a cluster.
use signoff_api::{Decision, Verdict};

use super::*;
use crate::sample;

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
fn a_changed_decision_is_reported_field_by_field() {
    let entry = Entry { key: "alice".into(), decision: Decision::new(Verdict::Approve) };
    let text = tampered(&entry, &["verdict: sent \"Approve\", stored \"Reject\"".into()]).to_string();
    assert!(text.contains("WHAT WAS STORED IS NOT WHAT YOU SENT, under alice:\n  | verdict: sent"), "{text}");
}
