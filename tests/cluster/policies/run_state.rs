//! What carries a run's label is the run's state: nobody makes, changes or unlabels it by hand.
//! These tests may not run a Workflow.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::stage::{Stage, refused, said};

const WORDS: &str = "what carries the label signoff.dev/workflow is made and changed by the operator only";

fn value(name: &str, labels: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "data": {"value": "x"}})).unwrap()
}

#[tokio::test]
async fn values_of_a_run_are_the_operators_to_make_change_and_delete() {
    let stage = Stage::open("state").await;
    let labels = json!({"signoff.dev/workflow": "refund"});
    let own: Api<ConfigMap> = Api::namespaced(stage.operator.clone(), &stage.namespace.name);
    let nina: Api<ConfigMap> = Api::namespaced(stage.client("nina").await, &stage.namespace.name);
    refused(said(nina.create(&PostParams::default(), &value("forged", labels.clone())).await), WORDS);
    own.create(&PostParams::default(), &value("real", labels)).await.unwrap();

    let patch = async |patch: Value| said(nina.patch("real", &PatchParams::default(), &Patch::Merge(patch)).await);
    refused(patch(json!({"data": {"value": "forged"}})).await, WORDS);
    refused(patch(json!({"metadata": {"labels": {"signoff.dev/workflow": null}}})).await, WORDS);
    refused(said(nina.delete("real", &DeleteParams::default()).await).map(drop), WORDS);

    nina.create(&PostParams::default(), &value("hers", json!({}))).await.unwrap();
    let adopt = Patch::Merge(json!({"metadata": {"labels": {"signoff.dev/workflow": "refund"}}}));
    refused(said(nina.patch("hers", &PatchParams::default(), &adopt).await), WORDS);
    own.delete("real", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn pods_of_a_run_are_not_made_by_hand() {
    let stage = Stage::open("state").await;
    let pods: Api<Pod> = Api::namespaced(stage.client("nina").await, &stage.namespace.name);
    let pod = |name: &str, labels: Value| -> Pod {
        let spec = json!({"schedulerName": "never", "containers": [{"name": "c", "image": "c"}]});
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).unwrap()
    };
    let labels = json!({"signoff.dev/workflow": "refund"});
    refused(said(pods.create(&PostParams::default(), &pod("signoff-step-refund-0123456789", labels)).await), WORDS);
    pods.create(&PostParams::default(), &pod("hers", json!({}))).await.unwrap();
}

#[tokio::test]
async fn a_shell_in_a_steps_pod_needs_the_verb_debug() {
    let stage = Stage::open("state").await;
    let pods: Api<Pod> = Api::namespaced(stage.client("nina").await, &stage.namespace.name);
    let spec = json!({"schedulerName": "never", "containers": [{"name": "c", "image": "c"}]});
    for name in ["signoff-step-refund-0123456789", "hers"] {
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let exec = async |name: &str| {
        let asked = stage.cluster.kubectl(["exec", name, "-n", &stage.namespace.name, "--", "true"]).person("nina");
        asked.run().await.unwrap().refused().unwrap()
    };
    // No kubelet runs here: a request that passes admission finds the Pod on no node.
    let unscheduled = "does not have a host assigned";
    let words = "lacks the verb debug on workflows.signoff.dev";
    let answer = exec("signoff-step-refund-0123456789").await;
    assert!(answer.contains(words), "{answer}");
    let answer = exec("hers").await;
    assert!(answer.contains(unscheduled), "{answer}");
    stage
        .grant(
            "nina@example.com",
            json!({"apiGroups": ["signoff.dev"], "resources": ["workflows"], "verbs": ["debug"]}),
        )
        .await;
    let answer = exec("signoff-step-refund-0123456789").await;
    assert!(answer.contains(unscheduled), "{answer}");
}
