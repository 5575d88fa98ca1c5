//! The stored bytes of a run and of its Approval, and how many of them are `managedFields`: each write, watch event and
//! cache contains these bytes.

use kube::ResourceExt;
use serde_json::json;
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::Cluster;

use crate::runs::Runs;

/// Returns the bytes of an object as JSON, and of its `managedFields`.
fn bytes<K: kube::Resource + serde::Serialize>(object: &K) -> (usize, usize) {
    let managed = serde_json::to_vec(&object.meta().managed_fields).unwrap().len();
    (serde_json::to_vec(object).unwrap().len(), managed)
}

#[tokio::test]
async fn a_finished_run_of_one_gate_and_its_approval_are_small() {
    let runs = Runs::on(Cluster::operated().unwrap(), "bytes").await;
    runs.request("refund", json!({})).await;
    let asked = runs.wait_for_gate("refund").await;
    runs.alice_approves(&asked).await.unwrap();
    let workflow: Workflow = runs.wait_for_end("refund").await;
    let approval: Approval = runs.api().get(&asked.name_any()).await.unwrap();
    let (of_workflow, of_approval) = (bytes(&workflow), bytes(&approval));
    // One entry for the author and one for the operator, whatever the number of records and conditions.
    assert!(of_workflow.1 < 600, "{of_workflow:?}: {:#?}", workflow.metadata.managed_fields);
    assert!(of_approval.1 < 900, "{of_approval:?}: {:#?}", approval.metadata.managed_fields);
    assert!(of_workflow.0 < 3_200, "{of_workflow:?}");
    assert!(of_approval.0 < 2_900, "{of_approval:?}");
}
