//! ConfigMaps that another user makes first at the name of a value of a run. These tests must not stop the operator.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Digest, Workflow, names};
use signoff_tests::control_plane::Cluster;

use crate::policies::stage::{refused, said, workflow};
use crate::runs::Runs;

/// Longer than what stands in a Workflow.
fn long() -> String {
    "All that was said about ACME. ".repeat(200)
}

fn object(name: &str, labels: Value, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "data": {"value": value}})).unwrap()
}

#[tokio::test]
async fn a_configmap_that_edit_made_first_at_the_name_of_a_value_stops_no_run() {
    let runs = Runs::on(Cluster::operated().unwrap(), "planted").await;
    let gate = json!({"prompt": "Go on?", "approvers": [{"kind": "User", "name": "alice@example.com"}]});
    let steps = json!([
        {"name": "report", "set": {"value": long()}},
        {"name": "review", "hitl": gate},
        {"name": "act", "set": {"value": "{{ steps.report.response | length }}"}},
    ]);
    let suspended = workflow("planted", json!({"suspend": true, "pattern": {"chain": {"steps": steps}}}));
    let dana = runs.as_a::<Workflow>("dana").await;
    let made = dana.create(&PostParams::default(), &serde_json::from_value(suspended).unwrap()).await.unwrap();
    let digest = Digest::of_bytes(long().as_bytes());
    let first = names::blob("planted", &made.uid().unwrap(), &digest);

    let nina = runs.as_a::<ConfigMap>("nina").await;
    let params = PostParams::default();
    let labels = json!({"signoff.dev/workflow": "planted", "signoff.dev/workflow-uid": made.uid()});
    let forged = nina.create(&params, &object(&first, labels, "42 EUR")).await;
    refused(said(forged), "made and changed by the operator only");
    let theirs = nina.create(&params, &object(&first, json!({}), "42 EUR")).await.unwrap();

    let go_on = Patch::Merge(json!({"spec": {"suspend": false}}));
    dana.patch("planted", &PatchParams::default(), &go_on).await.unwrap();
    let approval = runs.asked("planted").await;
    let recorded = runs.see::<Workflow>().get("planted").await.unwrap().status.unwrap().value_names;
    let stored = runs.see::<ConfigMap>().get(&recorded[&digest]).await.unwrap();
    assert_eq!(stored.data.unwrap()["value"], long());
    assert_eq!(stored.metadata.labels.unwrap()["signoff.dev/workflow"], "planted");
    runs.alice_approves(&approval).await.unwrap();
    let ended = runs.ended("planted").await.status.unwrap();
    assert_eq!(ended.phase, WorkflowPhase::Succeeded);
    assert_eq!(runs.see::<ConfigMap>().get(&first).await.unwrap().data, theirs.data);
}
