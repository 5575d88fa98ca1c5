//! The two kinds of patches, on objects and on their status, with the `test` on which every fenced write depends.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::super::ApiServer;
use super::{refusal, stored, workflow, workflows};

fn json_patch(patch: Value) -> Patch<Value> {
    Patch::Json(serde_json::from_value(patch).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_whose_test_fails_changes_nothing() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    let created = api.create(&PostParams::default(), &workflow("w")).await.unwrap();
    let fenced = |seq: u64| {
        json_patch(json!([
            {"op": "test", "path": "/metadata/uid", "value": created.metadata.uid},
            {"op": "test", "path": "/status/seq", "value": seq},
            {"op": "replace", "path": "/status", "value": {"phase": "Running", "seq": seq + 1}},
        ]))
    };
    let won = api.patch_status("w", &PatchParams::default(), &fenced(0)).await.unwrap();
    assert_eq!(won.data["status"], json!({"phase": "Running", "seq": 1}));
    assert_eq!(refusal(api.patch_status("w", &PatchParams::default(), &fenced(0)).await), (422, "Invalid".into()));
    let nowhere = json_patch(json!([{"op": "replace", "path": "/status/none/there", "value": 1}]));
    assert_eq!(refusal(api.patch_status("w", &PatchParams::default(), &nowhere).await), (422, "Invalid".into()));
    assert_eq!(stored(&server, "workflows", "w").unwrap()["status"]["seq"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_merge_patch_sets_and_removes_the_fields_that_it_names() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    api.create(&PostParams::default(), &workflow("w")).await.unwrap();
    let patch = |value: Value| Patch::Merge(value);
    let once = api
        .patch("w", &PatchParams::default(), &patch(json!({"spec": {"cancel": true}, "status": {"phase": "Failed"}})))
        .await
        .unwrap();
    assert_eq!(once.data["spec"], json!({"suspend": false, "cancel": true}));
    assert_eq!(once.data["status"]["phase"], "Pending", "the status has its own path");
    let twice = api.patch("w", &PatchParams::default(), &patch(json!({"spec": {"cancel": null}}))).await.unwrap();
    assert_eq!(twice.data["spec"], json!({"suspend": false}));
    assert_eq!(twice.metadata.generation, Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_names_a_version_must_name_the_latest() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    let created = api.create(&PostParams::default(), &workflow("w")).await.unwrap();
    let version = created.metadata.resource_version.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": {"cancel": true}}));
    api.patch("w", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(refusal(api.patch("w", &PatchParams::default(), &patch).await), (409, "Conflict".into()));
}

#[tokio::test(start_paused = true)]
async fn server_side_apply_is_refused_as_not_implemented() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    api.create(&PostParams::default(), &workflow("w")).await.unwrap();
    let apply =
        Patch::Apply(json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}}));
    assert_eq!(refusal(api.patch("w", &PatchParams::apply("test"), &apply).await), (501, "NotImplemented".into()));
}
