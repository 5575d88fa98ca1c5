//! The long values of a run on a real API server: no other user can create them first, and they are deleted with their
//! run.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Blob, Digest, Workflow, names};
use signoff_tests::control_plane::Cluster;

use crate::policies::harness::{assert_refused, to_answer, workflow};
use crate::runs::Runs;

/// Returns a text that is too long for a Workflow.
fn long() -> String {
    "All that was said about ACME. ".repeat(200)
}

#[tokio::test]
async fn users_cannot_create_a_blob_under_the_name_of_a_value() {
    let runs = Runs::on(Cluster::operated().unwrap(), "planted").await;
    let gate = json!({"prompt": "Go on?", "approvers": [{"kind": "User", "name": "alice@example.com"}]});
    let steps = json!([
        {"name": "report", "set": {"value": long()}},
        {"name": "review", "hitl": gate},
        {"name": "act", "set": {"value": "{{ steps.report.response | length }}"}},
    ]);
    let suspended = workflow("planted", json!({"suspend": true, "steps": steps}));
    let dana = runs.api_as::<Workflow>("dana").await;
    let made = dana.create(&PostParams::default(), &serde_json::from_value(suspended).unwrap()).await.unwrap();
    let (uid, digest) = (made.uid().unwrap(), Digest::of_bytes(long().as_bytes()));
    let first = names::blob("planted", &uid, &digest);

    let mut forged = Blob::of_run(&runs.namespace.name, "planted", &uid, b"42 EUR".to_vec());
    forged.metadata.name = Some(first.clone());
    let create = async |api: Api<Blob>| to_answer(api.create(&PostParams::default(), &forged).await);
    assert_refused(create(runs.api_as("nina").await).await, "cannot create resource \"blobs\"");
    assert_refused(create(runs.api()).await, "only the operator can create Blobs");

    let go_on = Patch::Merge(json!({"spec": {"suspend": false}}));
    dana.patch("planted", &PatchParams::default(), &go_on).await.unwrap();
    let approval = runs.wait_for_gate("planted").await;
    let recorded = runs.api::<Workflow>().get("planted").await.unwrap().status.unwrap().value_names;
    assert!(recorded.is_empty(), "{recorded:?}");
    let stored = runs.api::<Blob>().get(&first).await.unwrap();
    assert!(stored.is_of_run("planted", &uid));
    assert_eq!(stored.spec.data.as_deref(), Some(&*long()));
    runs.alice_approves(&approval).await.unwrap();
    assert_eq!(runs.wait_for_end("planted").await.status.unwrap().phase, WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn blobs_are_deleted_with_their_run() {
    let runs = Runs::on(Cluster::operated().unwrap(), "values").await;
    let steps = json!([{"name": "report", "set": {"value": long()}}]);
    let dana = runs.api_as::<Workflow>("dana").await;
    for propagation in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        let run = workflow("values", json!({"steps": steps}));
        dana.create(&PostParams::default(), &serde_json::from_value(run).unwrap()).await.unwrap();
        let run = runs.wait_for_end("values").await;
        let name = names::blob("values", &run.uid().unwrap(), &Digest::of_bytes(long().as_bytes()));
        let blob = runs.api::<Blob>().get(&name).await.unwrap();
        let how = DeleteParams { propagation_policy: Some(propagation), ..DeleteParams::default() };
        dana.delete("values", &how).await.unwrap();
        let uids = [run.uid().unwrap(), blob.uid().unwrap()];
        let gone = async {
            await_condition(runs.api::<Blob>(), &name, conditions::is_deleted(&uids[1])).await.unwrap();
            await_condition(dana.clone(), "values", conditions::is_deleted(&uids[0])).await.unwrap();
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.unwrap();
    }
}
