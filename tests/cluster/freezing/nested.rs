//! Users can write JSON that nests deeper than the operator reads. Such objects neither stop runs nor hide others.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::Cluster;

use crate::policies::harness::{assert_refused, to_answer, workflow};
use crate::runs::Runs;

/// Returns managed fields that nest 400 levels deep. The API server stores those of a ConfigMap as they were sent.
fn nested_managed_fields(api_version: &str) -> Value {
    let fields = (0..400).fold(json!({}), |inner, _| json!({"f:a": inner}));
    json!([{"manager": "mallory", "operation": "Update", "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields}])
}

fn dynamic_object(object: Value) -> DynamicObject {
    serde_json::from_value(object).unwrap()
}

#[tokio::test]
async fn a_nested_config_map_of_another_namespace_stops_no_run() {
    let runs = Runs::on(Cluster::operated().unwrap(), "nested").await;
    let elsewhere = runs.cluster.namespace("elsewhere").await.unwrap();
    let resource = ApiResource::erase::<ConfigMap>(&());
    let config = {
        let file = kube::config::Kubeconfig::read_from(runs.cluster.kubeconfig_of("nina").unwrap()).unwrap();
        kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap()
    };
    let nina = signoff_cluster::connect(config).unwrap();
    let config_maps: Api<DynamicObject> = Api::namespaced_with(nina.clone(), &elsewhere.name, &resource);
    let metadata = json!({"name": "deep", "managedFields": nested_managed_fields("v1")});
    let deep = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}});
    config_maps.create(&PostParams::default(), &dynamic_object(deep)).await.unwrap();

    // The nesting is too deep for a client that reads the list directly: it cannot decode the list.
    let plain: Api<ConfigMap> = Api::namespaced(runs.cluster.token_client("nina").await.unwrap(), &elsewhere.name);
    assert!(plain.list(&ListParams::default()).await.is_err(), "the API server cuts it now: this test proves nothing");
    let tolerant: Api<ConfigMap> = Api::namespaced(nina, &elsewhere.name);
    let names: Vec<_> =
        tolerant.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert!(names.contains(&"deep".to_owned()) && names.len() > 1, "{names:?}");

    runs.another_gate_is_decided_in_time("beside").await;
}

#[tokio::test]
async fn a_workflow_or_approval_with_nested_managed_fields_is_refused() {
    let runs = Runs::on(Cluster::operated().unwrap(), "nested").await;
    let dana = runs.cluster.token_client("dana").await.unwrap();
    let resource = ApiResource::erase::<Workflow>(&());
    let workflows: Api<DynamicObject> = Api::namespaced_with(dana, &runs.namespace.name, &resource);
    let mut deep = workflow("deep", json!({}));
    deep["metadata"]["managedFields"] = nested_managed_fields("signoff.dev/v1alpha1");
    assert_refused(
        to_answer(workflows.create(&PostParams::default(), &dynamic_object(deep)).await),
        "nested too deeply",
    );

    runs.request("asked", json!({})).await;
    let approval = runs.wait_for_gate("asked").await;
    let bob = runs.cluster.token_client("bob").await.unwrap();
    let resource = ApiResource::erase::<Approval>(&());
    let approvals: Api<DynamicObject> = Api::namespaced_with(bob, &runs.namespace.name, &resource);
    let mut deep = approvals.get(&approval.name_any()).await.unwrap();
    deep.metadata.managed_fields = serde_json::from_value(nested_managed_fields("signoff.dev/v1alpha1")).unwrap();
    let answer = to_answer(approvals.replace(&approval.name_any(), &PostParams::default(), &deep).await);
    assert!(answer.is_err(), "an approver wrote managedFields");
    runs.alice_approves(&approval).await.unwrap();
    runs.wait_for_end("asked").await;
    runs.another_gate_is_decided_in_time("beside").await;
}
