//! Tests of the entry that is sent, and of its comparison with the stored one.
#![allow(clippy::unwrap_used, clippy::panic)]
use serde_json::json;
use signoff_api::{JsonObject, Verdict};

use super::*;
use crate::sample;

fn alice() -> Me {
    sample::me("alice@example.com", &["finance", "finance-leads"])
}

fn modify(parameters: Value) -> Decision {
    let parameters = JsonObject(parameters.as_object().unwrap().clone());
    Decision { parameters: Some(parameters), ..Decision::new(Verdict::Modify) }
}

fn merge_patch(entry: &Entry, decisions: Option<&Value>) -> Value {
    match change(entry, decisions).unwrap() {
        Change::Merge(patch) => patch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_decision_has_the_key_of_its_voter_the_digest_and_counted_groups() {
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].required_from =
        vec![signoff_api::gate::RequiredFrom { group: "finance-leads".into(), min: 1 }];
    sample::seal(&mut approval);
    let decision = Decision { reason: Some("checked".into()), ..Decision::new(Verdict::Approve) };
    let entry = Entry::new(decision, None, &approval, &alice()).unwrap();
    assert_eq!(
        merge_patch(&entry, None),
        json!({"spec": {"decisions": {"alice@example.com": {
            "verdict": "Approve",
            "reason": "checked",
            "requestDigest": approval.spec.request.digest.as_str(),
            "groups": ["finance-leads"],
        }}}})
    );
}

#[test]
fn a_decision_on_behalf_of_a_user_has_both_names_and_no_groups() {
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].required_from =
        vec![signoff_api::gate::RequiredFrom { group: "finance".into(), min: 1 }];
    let decision = Decision::new(Verdict::Reject);
    let entry = Entry::new(decision, Some("bob@example.com"), &approval, &alice()).unwrap();
    assert_eq!(entry.key, "bob@example.com via alice@example.com");
    assert_eq!(entry.decision.on_behalf_of.as_deref(), Some("bob@example.com"));
    assert!(entry.decision.groups.is_empty());
}

#[test]
fn the_next_attempt_replaces_the_whole_entry() {
    let mut approval = sample::approval();
    let before = modify(json!({"respnse": "x", "deep": {"a": 1, "b": 2}}));
    approval.spec.decisions.insert("alice@example.com".into(), before.clone());
    let invalid = signoff_api::approval::Invalid { attempt: 1, why: "no response".into() };
    approval.status.get_or_insert_default().invalid.insert("alice@example.com".into(), invalid);
    let again = modify(json!({"response": "y", "deep": {"a": 1}, "id": "0042"}));
    let entry = Entry::new(again, None, &approval, &alice()).unwrap();
    assert_eq!(entry.decision.attempt, Some(2));
    let mut merged = json!({"spec": {"decisions": {"alice@example.com": before}}});
    let patch = merge_patch(&entry, Some(&merged["spec"]["decisions"]));
    merge(&mut merged, &patch);
    assert_eq!(merged["spec"]["decisions"]["alice@example.com"], serde_json::to_value(&entry.decision).unwrap());
    assert_eq!(change(&entry, Some(&merged["spec"]["decisions"])).unwrap(), Change::Nothing);
}

/// Applies a merge patch (RFC 7396), as the API server does.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in fields {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[test]
fn an_entry_with_null_is_a_json_patch_that_replaces_no_other_decision() {
    let approval = sample::approval();
    for parameters in [json!({"arguments": {"note": null}}), json!({"arguments": {"notes": [{"a": null}]}})] {
        let mut me = alice();
        me.user = "oidc:a/b~c@x".to_owned();
        let entry = Entry::new(modify(parameters.clone()), None, &approval, &me).unwrap();
        let add = json!({"op": "add", "path": "/spec/decisions/oidc:a~1b~0c@x", "value": entry.decision});
        assert_eq!(add["value"]["parameters"], parameters);
        let others = json!({"bob@example.com": {"verdict": "Approve"}});
        assert_eq!(change(&entry, Some(&others)).unwrap(), Change::Json(json!([add])));
        let first = json!([
            {"op": "test", "path": "/spec/decisions", "value": null},
            {"op": "add", "path": "/spec/decisions", "value": {}},
            add,
        ]);
        assert_eq!(change(&entry, None).unwrap(), Change::Json(first));
        let recorded = json!({"oidc:a/b~c@x": entry.decision});
        assert_eq!(change(&entry, Some(&recorded)).unwrap(), Change::Nothing);
    }
}

#[test]
fn the_stored_entry_is_compared_with_the_sent_entry() {
    let approval = sample::approval();
    let decision = Decision { reason: Some("checked".into()), ..modify(json!({"amount": 420.0, "id": "0042"})) };
    let sent = Entry::new(decision, None, &approval, &alice()).unwrap();
    let honest = json!({"verdict": "Modify", "reason": "checked", "requestDigest": approval.spec.request.digest.as_str(),
        "parameters": {"id": "0042", "amount": 420}, "groups": ["finance"]});
    assert_eq!(differences(&sent, Some(&honest), &alice()), [] as [&str; 0]);
    let mut flipped = honest.clone();
    flipped["parameters"]["amount"] = json!(42000);
    flipped["groups"] = json!(["directors"]);
    flipped["grant"] = json!({"scope": "namespace"});
    let found = differences(&sent, Some(&flipped), &alice());
    assert_eq!(found.len(), 3);
    assert!(
        found[0].starts_with("grant: sent nothing, stored") && found[1].starts_with("groups: sent nothing"),
        "{found:?}"
    );
    assert_eq!(differences(&sent, None, &alice()), ["it is not there"]);
}
