//! The chart as people install it: the operator itself and the page run as pods, from the image that `cargo xtask
//! image` writes. The node is the test's own, because of two operators of one installation only one works.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::control_plane::{OPERATOR_ACCOUNT, OPERATOR_NAMESPACE, program};
use signoff_tests::image::{IMAGE_FOLDER, Layout, OPERATOR_IMAGE, operator_image};

use crate::harness::{Harness, own};

/// Returns the image in the folder that `cargo xtask test pods --image DIR` names. Without it: the debug program with
/// its libraries, because a release build takes minutes.
fn image() -> Layout {
    if let Some(folder) = std::env::var_os(IMAGE_FOLDER) {
        return Layout::read(folder.as_ref()).unwrap();
    }
    let operator = program("signoff-controller", "signoff-operator").unwrap();
    let page = program("signoff-web", "signoff-web").unwrap();
    operator_image(&operator, &page).unwrap().layout(OPERATOR_IMAGE).unwrap()
}

#[tokio::test]
async fn the_operator_of_the_chart_runs_as_a_pod_and_finishes_a_run() {
    let node = own().await;
    let layout = tokio::task::spawn_blocking(image).await.unwrap();
    let image = node.take_in(&layout).await.unwrap();
    // The node cannot pull images: the image must be the one that the chart's defaults name.
    let values = [("operator.enabled", "true"), ("web.enabled", "true"), ("web.url", "https://signoff.example.com")];
    node.cluster().install(&values).await.unwrap();
    let admin = node.cluster().admin().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(admin.clone(), OPERATOR_NAMESPACE);
    let harness = Harness::on(node.cluster(), "chart").await;
    for name in ["signoff-operator", "signoff-web"] {
        let available = await_condition(deployments.clone(), name, conditions::is_deployment_completed());
        let waited = tokio::time::timeout(std::time::Duration::from_secs(120), available).await;
        waited.unwrap_or_else(|_| panic!("the Pods of {name} are available")).unwrap();
    }

    let pods: Api<Pod> = Api::namespaced(admin.clone(), OPERATOR_NAMESPACE);
    let ours = pods.list(&ListParams::default().labels("app.kubernetes.io/component=operator")).await.unwrap();
    let [pod] = &ours.items[..] else { panic!("one pod of the operator: {:#?}", ours.items) };
    assert_eq!(pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()), Some(OPERATOR_ACCOUNT));
    let container = &pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default()[0];
    assert_eq!(container.image, image.name);
    let pages = pods.list(&ListParams::default().labels("app.kubernetes.io/component=web")).await.unwrap().items;
    assert_eq!(pages.len(), 2, "{pages:#?}");
    for page in &pages {
        // The service account is not enough: the API server must not have added a token of it.
        assert!(!serde_json::to_string(page).unwrap().contains("serviceAccountToken"), "{page:#?}");
    }
    let leases: Api<Lease> = Api::namespaced(admin, OPERATOR_NAMESPACE);
    let leases = leases.list(&ListParams::default()).await.unwrap().items;
    let [lease] = &leases[..] else { panic!("one Lease: {leases:#?}") };
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    assert!(holder.starts_with(pod.metadata.uid.as_deref().unwrap()), "{holder}");

    // The policies let only a token that is bound to the operator's pod ask, count and continue.
    let steps = json!([
        {"name": "draft", "set": {"value": "a draft"}},
        {"name": "review", "hitl": {"prompt": "Go on?", "approvers": [{"kind": "User", "name": "alice@example.com"}]}},
        {"name": "act", "set": {"value": "done"}},
    ]);
    harness.request("letter", json!({"steps": steps})).await;
    let approval = harness.asked("letter", "review").await;
    harness.decides("alice", &approval, json!({"verdict": "Approve"})).await;
    assert_eq!(harness.ended("letter").await.status.unwrap().phase, WorkflowPhase::Succeeded);
}
