//! Tests with objects that can be stored while no policy is in force: the plan refuses each of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use serde_json::{Value, json};

use super::{DECISION, SPEC, ValueRules};
use crate::{
    Plan, Settings,
    approval::{OwnerState, tally},
};

fn errors(steps: Value, more: Value) -> Vec<String> {
    let mut spec = json!({"requestedBy": "dana", "steps": steps});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec,
    }))
    .unwrap();
    Plan::of(&workflow, &Settings::default(), &Arc::default()).err().iter().flatten().map(ToString::to_string).collect()
}

fn list_twice(item: Value) -> Value {
    json!([item, item])
}

#[test]
fn a_duplicate_item_of_a_set_list_is_refused_with_its_field() {
    let alice = json!({"kind": "User", "name": "alice"});
    let gate = |field: &str, value: Value| {
        let mut hitl = json!({"prompt": "go?", "approvers": [{"kind": "Group", "name": "finance"}, alice]});
        hitl[field] = value;
        json!([{"name": "ask", "hitl": hitl}])
    };
    let container = |field: &str, value: Value| {
        let mut pod = json!({"image": "tool:1"});
        pod[field] = value;
        json!([{"name": "run", "pod": pod}])
    };
    let choices = json!([{"id": "q", "options": list_twice(json!({"id": "a"}))}]);
    let volume = json!({"name": "v", "mountPath": "/v", "emptyDir": {}});
    let set = json!([{"name": "s", "set": {"value": "x"}}]);
    let fetched = |field: &str, value: Value| {
        let mut step = json!({"name": "get", "http": {"url": "http://x/"}, "retry": {"limit": 1}});
        step.pointer_mut(field.rsplit_once('/').unwrap().0).unwrap()[field.rsplit_once('/').unwrap().1] = value;
        json!([step])
    };
    let provider = json!({"name": "p", "scripted": {"replies": [{"text": "x"}]}});
    let table = [
        (list_twice(set[0].clone()), json!({}), "[1].name: duplicate name s"),
        (
            set.clone(),
            json!({"inputs": list_twice(json!({"name": "i", "value": "x"}))}),
            "spec.inputs[1].name: duplicate name i",
        ),
        (set.clone(), json!({"providers": list_twice(provider.clone())}), "spec.providers[1].name: duplicate p"),
        (
            set.clone(),
            json!({"providers": [provider], "agents": list_twice(json!({"name": "a"}))}),
            "spec.agents[1].name: duplicate name a",
        ),
        (
            gate("requiredFrom", list_twice(json!({"group": "finance", "min": 1}))),
            json!({}),
            "hitl.requiredFrom[1].group: duplicate finance",
        ),
        (gate("excluded", json!(["eve", "eve"])), json!({}), "hitl.excluded[1]: duplicate eve"),
        (
            gate("allowedVerdicts", json!(["Approve", "Approve"])),
            json!({}),
            "hitl.allowedVerdicts[1]: duplicate Approve",
        ),
        (
            gate("form", json!({"questions": list_twice(json!({"id": "q"}))})),
            json!({}),
            "hitl.form.questions[1].id: duplicate q",
        ),
        (gate("form", json!({"questions": choices})), json!({}), "questions[0].options[1].id: duplicate a"),
        (
            container("env", list_twice(json!({"name": "A", "value": "x"}))),
            json!({}),
            "pod.env[1].name: duplicate name A",
        ),
        (container("volumes", list_twice(volume)), json!({}), "pod.volumes[1].name: duplicate name v"),
        (
            container("files", list_twice(json!({"path": "/a", "content": "x"}))),
            json!({}),
            "pod.files[1].path: duplicate path /a: paths",
        ),
        (
            container("securityContext", json!({"capabilities": {"add": ["CHOWN", "CHOWN"]}})),
            json!({}),
            "capabilities.add[1]: duplicate CHOWN",
        ),
        (fetched("/http/expect", json!({"status": [200, 200]})), json!({}), "http.expect.status[1]: duplicate 200"),
        (
            fetched("/retry/onReasons", json!(["Timeout", "Timeout"])),
            json!({}),
            "retry.onReasons[1]: duplicate Timeout",
        ),
    ];
    for (steps, more, words) in table {
        let found = errors(steps.clone(), more);
        assert!(found.iter().any(|error| error.contains(words)), "{words}: {found:#?}\n{steps:#}");
    }
}

#[test]
fn a_rule_that_an_accepted_spec_breaks_does_not_stop_its_run() {
    let mut workflow = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
        "spec": {"requestedBy": "dana", "steps": [{"name": "ask", "hitl": {
            "prompt": "go?", "approvers": [{"kind": "User", "name": "alice"}], "excluded": ["eve", "eve"]}}]},
    });
    let plan = |workflow: &Value| {
        let workflow: signoff_api::Workflow = serde_json::from_value(workflow.clone()).unwrap();
        let digest = crate::plan::spec_digest(&workflow.spec).unwrap();
        (digest, Plan::of(&workflow, &Settings::default(), &Arc::default()))
    };
    let (digest, refused) = plan(&workflow);
    let refused: Vec<_> = refused.unwrap_err().iter().map(ToString::to_string).collect();
    assert!(matches!(&refused[..], [one] if one.contains("excluded[1]: duplicate eve")), "{refused:?}");
    // The status that an operator without that rule wrote.
    workflow["status"] = json!({"phase": "Waiting", "seq": 1, "specDigest": digest});
    assert_eq!(*plan(&workflow).1.unwrap().spec_digest(), digest);
    // The plan still refuses what it cannot read, and a changed spec has another digest.
    workflow["spec"]["steps"][0]["hitl"]["excluded"] = json!(["eve", "eve", "mallory"]);
    assert_ne!(*plan(&workflow).1.unwrap().spec_digest(), digest);
    workflow["spec"]["steps"][0]["hitl"]["prompt"] = json!("{{ ");
    assert!(plan(&workflow).1.is_err());
}

/// Returns the rows of a part of `shapes.json`: invalid and valid objects, which another test sends to the API server.
fn table(part: &str) -> Vec<Value> {
    let table: Value = serde_json::from_str(include_str!("../../../tests/contract/shapes.json")).unwrap();
    table[part].as_array().unwrap().clone()
}

/// Returns the errors of the plan about the field `what` of a row.
fn errors_of_row(row: &Value, what: &str) -> Vec<String> {
    match row.get("step") {
        Some(_) => errors(json!([if what == "honest" { &row["honest"] } else { &row["step"] }]), json!({})),
        None => {
            let fields = if what == "honest" { &row["honest"] } else { &row["spec"] };
            errors(json!([{"name": "only", "set": {"value": "1"}}]), fields.clone())
        }
    }
}

/// Collects the messages of the rules of a schema that concern an object alone.
fn collect_messages(shape: &ValueRules, found: &mut std::collections::BTreeSet<String>) {
    found.extend(shape.rules.iter().map(|rule| rule.message.clone()));
    let inner = shape.fields.values().chain(shape.items.as_deref()).chain(shape.values.as_deref());
    inner.for_each(|inner| collect_messages(inner, found));
}

#[test]
fn the_plan_refuses_every_shape_that_admission_refuses() {
    let mut rules = std::collections::BTreeSet::new();
    collect_messages(&SPEC, &mut rules);
    assert!(rules.len() >= 18, "{rules:#?}");
    for row in table("workflow") {
        assert_ne!(errors_of_row(&row, "broken"), [] as [String; 0], "{row:#}");
        assert_eq!(errors_of_row(&row, "honest"), [] as [String; 0], "{row:#}");
        let message = row["rule"].as_str().unwrap();
        assert!(rules.iter().any(|rule| rule.starts_with(message)), "no rule says: {message}");
    }
    let tried: Vec<String> = table("workflow").iter().map(|row| row["rule"].as_str().unwrap().to_owned()).collect();
    let untried: Vec<_> = rules.iter().filter(|rule| !tried.iter().any(|message| rule.starts_with(message))).collect();
    assert!(untried.is_empty(), "write a row for each: {untried:#?}");
}

#[test]
fn the_tally_counts_no_decision_of_a_shape_that_admission_refuses() {
    let mut rules = std::collections::BTreeSet::new();
    collect_messages(&DECISION, &mut rules);
    let tried: Vec<String> = table("decision").iter().map(|row| row["rule"].as_str().unwrap().to_owned()).collect();
    let untried: Vec<_> = rules.iter().filter(|rule| !tried.iter().any(|message| rule.starts_with(message))).collect();
    assert!(rules.len() >= 8 && untried.is_empty(), "write a row for each: {untried:#?}");
    for row in table("decision") {
        let outcome = |decision: &Value| {
            let mut request = json!({
                "workflow": {"name": "w", "uid": "00000000-0000-4000-8000-000000000000"},
                "gate": {"name": "g", "type": "step", "path": "g", "visit": 1}, "guardEpoch": "e", "prompt": "?",
                "deadline": "2100-01-01T00:00:00Z", "specDigest": format!("sha256:{}", "0".repeat(64)),
                "allowedVerdicts": ["Approve", "Reject", "Modify", "Respond", "Defer", "Escalate"],
                "quorums": [{"source": "gate g", "approvers": [{"kind": "User", "name": "alice"}], "threshold": 1}],
                "requestedBy": "dana",
                "form": {"questions": [{"id": "answer"}]}, "escalateTo": [{"kind": "User", "name": "carol@example.com"}],
                "timeout": {"after": "24h"}, "digest": format!("sha256:{}", "0".repeat(64)),
            });
            request["reviews"] = json!({"path": "s", "response": "x", "digest": format!("sha256:{}", "0".repeat(64))});
            let approval = serde_json::from_value(json!({
                "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "a"},
                "spec": {"request": request, "decisions": {"alice": decision}},
            }))
            .unwrap();
            let now = crate::Now::new(crate::tests::test_run::start(), "e");
            tally(&approval, OwnerState::Live, &now).status
        };
        let broken = outcome(&row["decision"]);
        assert_eq!((broken.votes.len(), broken.invalid.len(), broken.outcome), (0, 1, None), "{row:#}");
        let honest = outcome(&row["honest"]);
        assert_eq!((honest.votes.len(), honest.invalid.len()), (1, 0), "{row:#}: {:?}", honest.invalid);
    }
}
