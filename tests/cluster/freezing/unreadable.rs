//! Stored objects that the operator cannot decode: it names them and goes on with all others. The control plane is the
//! tests' own, because a CRD is shared by a whole cluster.

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::{Cluster, OperatorOptions, OperatorProcess};

use crate::runs::Runs;

/// Removes the list of phases from the schema of a CRD, so that the status accepts any word as a phase. Returns the
/// list.
async fn remove_phases(cluster: &Cluster, crd: &str) -> Value {
    let stored = cluster.kubectl(["get", "crd", crd, "--output=json"]).run().await.unwrap().ok().unwrap();
    let stored: Value = serde_json::from_str(&stored).unwrap();
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/phase/enum";
    let phases = stored.pointer(path).expect("the phases stand in the schema").clone();
    let patch = json!([{"op": "remove", "path": path}]).to_string();
    cluster.kubectl(["patch", "crd", crd, "--type=json", "--patch", &patch]).run().await.unwrap().ok().unwrap();
    phases
}

async fn restore_phases(cluster: &Cluster, crd: &str, phases: &Value) {
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/phase/enum";
    let patch = json!([{"op": "add", "path": path, "value": phases}]).to_string();
    cluster.kubectl(["patch", "crd", crd, "--type=json", "--patch", &patch]).run().await.unwrap().ok().unwrap();
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_named_and_stops_no_other_run() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let operator = OperatorProcess::start(&cluster, OperatorOptions::default()).await.unwrap();
    let runs = Runs::on(cluster, "unreadable").await;
    for run in ["odd", "waits", "fine"] {
        runs.request(run, json!({})).await;
    }
    let approval = runs.wait_for_gate("waits").await.name_any();
    runs.wait_for_gate("fine").await;

    // The status has a phase that this version does not know, as if a later version had written it.
    let crds = ["workflows.signoff.dev", "approvals.signoff.dev"];
    let phases = [remove_phases(&runs.cluster, crds[0]).await, remove_phases(&runs.cluster, crds[1]).await];
    let operators = runs.cluster.operator_client().await.unwrap();
    for (resource, name) in
        [(ApiResource::erase::<Workflow>(&()), "odd"), (ApiResource::erase::<Approval>(&()), approval.as_str())]
    {
        let api: Api<DynamicObject> = Api::namespaced_with(operators.clone(), &runs.namespace.name, &resource);
        let patch = Patch::Merge(json!({"status": {"phase": "Dancing"}}));
        // The API server applies the loosened schema a moment after it was stored, and no event tells when.
        while api.patch_status(name, &PatchParams::default(), &patch).await.is_err() {}
    }
    for (crd, phases) in crds.iter().zip(&phases) {
        restore_phases(&runs.cluster, crd, phases).await;
    }

    // Doctor names both objects, and the run that waits for the Approval reports the problem.
    for name in ["odd", &approval] {
        let events = async { while runs.events(name, "Unreadable").await.is_empty() {} };
        tokio::time::timeout(std::time::Duration::from_secs(60), events).await.expect("no Event names it");
        let told = runs.events(name, "Unreadable").await;
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].note.as_deref().unwrap_or_default().contains("Dancing"), "{told:#?}");
    }
    let says = |run: Option<&Workflow>| {
        let conditions = run.and_then(|run| run.status.as_ref()).map(|status| &status.conditions);
        conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Waiting" && c.reason == "ApprovalUnreadable"))
    };
    runs.until(runs.api::<Workflow>(), "waits", "says that its Approval cannot be read", says).await;
    // The rules were changed and restored: other gates are decided as soon as the operator has tried the rules.
    let fine = runs.wait_for_gate("fine").await;
    runs.alice_approves(&fine).await.unwrap();
    runs.wait_for_end("fine").await;
    runs.another_gate_is_decided_in_time("beside").await;
    assert!(operator.get("/metrics").await.unwrap().contains("signoff_unreadable_objects_total"));
    operator.stop().await.unwrap();
}
