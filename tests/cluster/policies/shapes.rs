//! The rules of the types, which the CRDs leave to admission: each broken shape is refused whichever way it is sent, and
//! its honest twin is stored. `tests/contract/shapes.json` has the shapes; the engine's tests refuse the same by themselves.
//! These tests must not run a Workflow.

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use signoff_api::{Approval, Workflow};

use super::stage::{self, Answer, Stage, refused, said, user};

fn table(part: &str) -> Vec<Value> {
    let table: Value = serde_json::from_str(include_str!("../../contract/shapes.json")).unwrap();
    table[part].as_array().unwrap().clone()
}

fn text<'v>(row: &'v Value, field: &str) -> &'v str {
    row[field].as_str().unwrap()
}

/// The fields of a spec that a row is about.
fn fields(row: &Value, what: &str) -> Value {
    match row.get("step") {
        Some(_) => json!({"steps": [row[what]]}),
        None => row[what].clone(),
    }
}

fn broken(row: &Value) -> Value {
    fields(row, if row.get("step").is_some() { "step" } else { "spec" })
}

async fn apply_workflow(stage: &Stage, name: &str, fields: Value) -> Answer<Workflow> {
    let object = stage::workflow(name, fields);
    let patch = PatchParams::apply("kustomize-controller").force();
    said(stage.workflows("dana").await.patch(name, &patch, &Patch::Apply(object)).await)
}

#[tokio::test]
async fn a_workflow_of_a_broken_shape_is_refused_by_create_and_by_apply_and_its_twin_is_stored() {
    let stage = Stage::open("shapes").await;
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["create"], "resourceNames": []});
    stage.grant("dana@example.com", rule).await;
    let rows = table("workflow");
    signoff_tests::tried(rows.len() * 2, "shapes of Workflows");
    for (at, row) in rows.iter().enumerate() {
        for answer in
            [stage.request("dana", "broken", broken(row)).await, apply_workflow(&stage, "broken", broken(row)).await]
        {
            refused(answer, text(row, "rule"));
        }
        stage.request("dana", &format!("created-{at}"), fields(row, "honest")).await.unwrap();
        apply_workflow(&stage, &format!("applied-{at}"), fields(row, "honest")).await.unwrap();
    }
}

#[tokio::test]
async fn a_refusal_names_the_step_or_the_place() {
    let stage = Stage::open("shapes").await;
    let steps = json!([
        {"name": "first", "set": {"value": "x"}},
        {"name": "second", "hitl": {"prompt": "?", "approvers": [user("alice"), {"kind": "Group", "name": "system:masters"}]}},
        {"name": "third"},
    ]);
    let answer = stage.request("dana", "broken", json!({"steps": steps})).await.unwrap_err();
    let second = answer.contains("second: system users and groups cannot decide");
    assert!(second || answer.contains("third: a step does exactly one thing"), "{answer}");
    // A person who is called like the group is not the group.
    let gate = |subject: Value| {
        let hitl = json!({"prompt": "?", "approvers": [subject], "requiredFrom": [{"group": "finance", "min": 1}]});
        json!({"steps": [{"name": "ask", "hitl": hitl}]})
    };
    let person = json!({"kind": "User", "name": "finance"});
    refused(
        stage.request("dana", "broken", gate(person)).await,
        "every group of requiredFrom must be among the approvers",
    );
    stage.request("dana", "honest", gate(json!({"kind": "Group", "name": "finance"}))).await.unwrap();
    let provider = json!({"providers": [{"name": "models"}]});
    refused(stage.request("dana", "broken", provider).await, "spec.providers models: a provider is exactly one of");
}

/// Sends a change of a stored object in every way; each answer with the name of its way.
async fn changed<K>(stage: &Stage, who: &str, stored: &K, change: &Value) -> Vec<(&'static str, Answer<K>)>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let (client, name) = (stage.client(who).await, stored.name_any());
    let api: Api<K> = Api::namespaced(client.clone(), &stage.namespace.name);
    let mut whole = serde_json::to_value(stored).unwrap();
    whole["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    json_patch::merge(&mut whole, change);
    // What a JSON patch replaces is the whole of what changes.
    let operations: Vec<_> = change["spec"]
        .as_object()
        .unwrap()
        .keys()
        .map(|field| json!({"op": "add", "path": format!("/spec/{field}"), "value": whole["spec"][field]}))
        .collect();
    let operations: json_patch::Patch = serde_json::from_value(operations.into()).unwrap();
    let mut applied = change.clone();
    applied["apiVersion"] = json!("signoff.dev/v1alpha1");
    applied["kind"] = json!(K::kind(&()));
    applied["metadata"] = json!({"name": name});
    let path = format!("{}/{name}", K::url_path(&(), Some(&stage.namespace.name)));
    whole["metadata"]["resourceVersion"] = json!(api.get(&name).await.unwrap().resource_version());
    let put = http::Request::put(path).body(whole.to_string().into_bytes()).unwrap();
    let params = PatchParams::default();
    vec![
        ("merge patch", said(api.patch(&name, &params, &Patch::Merge(change)).await)),
        ("JSON patch", said(api.patch(&name, &params, &Patch::Json::<()>(operations)).await)),
        ("apply", said(api.patch(&name, &PatchParams::apply("shapes").force(), &Patch::Apply(&applied)).await)),
        ("PUT", said(client.request::<K>(put).await)),
    ]
}

#[tokio::test]
async fn a_stored_workflow_gets_no_broken_shape_by_any_write() {
    let stage = Stage::open("shapes").await;
    let stored = stage.request("dana", "refund", json!({})).await.unwrap();
    let of_operator: Api<Workflow> = Api::namespaced(stage.operator.clone(), &stage.namespace.name);
    for row in table("workflow") {
        let change = json!({"spec": broken(&row)});
        for (way, answer) in changed(&stage, "dana", &stored, &change).await {
            let why = answer.expect_err(way);
            assert!(why.contains("spec is immutable"), "{way}: {why}");
        }
        // The operator's way in is the status: what else such a write carries is not stored.
        let mut with_status = change;
        with_status["status"] = json!({"message": row["rule"]});
        let patch = Patch::Merge(with_status);
        let written = of_operator.patch_status("refund", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(written.spec, stored.spec, "{row:#}");
        assert_eq!(written.status.unwrap().message.as_deref(), row["rule"].as_str());
    }
    // The honest twin: what may change changes.
    let api = stage.workflows("dana").await;
    for field in [json!({"suspend": true}), json!({"ttlAfterFinished": "1h"}), json!({"cancel": true})] {
        api.patch("refund", &PatchParams::default(), &Patch::Merge(json!({"spec": field}))).await.unwrap();
    }
}

#[tokio::test]
async fn a_decision_of_a_broken_shape_is_refused_by_every_write_and_its_twin_is_recorded() {
    let stage = Stage::open("shapes").await;
    let rule = json!({"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": ["grant", "update"], "resourceNames": []});
    stage.grant("alice@example.com", rule).await;
    let request = json!({"form": {"questions": [{"id": "answer"}]}, "escalateTo": [{"kind": "User", "name": "carol@example.com"}]});
    let rows = table("decision");
    signoff_tests::tried(rows.len() * 4, "shapes of decisions");
    for row in rows {
        let change = |what: &str| json!({"spec": {"decisions": {"alice@example.com": row[what]}}});
        let asked = stage.ask(request.clone()).await;
        for (way, answer) in changed(&stage, "alice", &asked, &change("decision")).await {
            let why = answer.expect_err(way);
            assert!(why.contains(text(&row, "rule")), "{way}: {why}");
        }
        stage.decide("alice", &asked, row["honest"].clone()).await.unwrap_or_else(|why| panic!("{row:#}: {why}"));
    }
}

#[tokio::test]
async fn a_request_of_a_broken_shape_is_refused_to_the_operator_too() {
    let stage = Stage::open("shapes").await;
    let create =
        async |object: &Approval| said(stage.approvals_of_operator().create(&PostParams::default(), object).await);
    for row in table("request") {
        refused(create(&stage::approval(row["request"].clone())).await, text(&row, "rule"));
        create(&stage::approval(row["honest"].clone())).await.unwrap();
    }
    let mut misnamed = stage::approval(json!({"prompt": "Another question?"}));
    misnamed.metadata.name = Some("refund-review-0000000000".to_owned());
    refused(create(&misnamed).await, "metadata.name must end with the first ten hex digits of spec.request.digest");
}
