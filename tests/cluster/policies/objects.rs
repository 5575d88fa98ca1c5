//! The Approval as an object: its content is its creators', even if other users can write it.

use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;
use signoff_api::Approval;

use super::harness::{self, Harness, assert_refused, to_answer};

#[tokio::test]
async fn small_votes_fit_when_the_approval_is_nearly_full() {
    let harness = Harness::open("objects").await;
    let users: Vec<_> = (0..9).map(|n| format!("voter-{n}@example.com")).collect();
    let subjects: Vec<_> = users.iter().map(|name| json!({"kind": "User", "name": name})).collect();
    let approval = harness.ask(json!({"approvers": subjects})).await;
    let vote = async |n: usize, size: usize| {
        let client = harness.cluster.client(&users[n], &["system:masters"]).await.unwrap();
        let api: kube::Api<Approval> = kube::Api::namespaced(client, &harness.namespace.name);
        let decision = json!({"verdict": "Modify", "parameters": {"response": "x".repeat(size)}});
        let patch = kube::api::Patch::Merge(json!({"spec": {"decisions": {&users[n]: decision}}}));
        to_answer(api.patch(&approval.name_any(), &Default::default(), &patch).await)
    };
    for n in 0..6 {
        vote(n, 16_000).await.unwrap();
    }
    assert_refused(vote(6, 16_000).await, "spec.decisions is full");
    vote(7, 900).await.unwrap();
    vote(8, 900).await.unwrap();
}

#[tokio::test]
async fn an_approval_is_deleted_with_its_workflow() {
    let harness = Harness::open("objects").await;
    let workflow = harness.request("dana", "refund", json!({})).await.unwrap();
    let mut approval = harness::approval(json!({"workflow": {"name": "refund", "uid": workflow.uid().unwrap()}}));
    approval.metadata.owner_references = Some(vec![kube::Resource::controller_owner_ref(&workflow, &()).unwrap()]);
    let api = harness.approvals_of_operator();
    let approval = api.create(&PostParams::default(), &approval).await.unwrap();
    let (name, uid) = (approval.name_any(), approval.uid().unwrap());
    let gone = await_condition(api, &name, conditions::is_deleted(&uid));
    harness.workflows("dana").await.delete("refund", &DeleteParams::background()).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(30), gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_approval_is_deleted_with_its_namespace() {
    let harness = Harness::open("objects").await;
    let approval = harness.ask(json!({})).await;
    let (name, uid) = (approval.name_any(), approval.uid().unwrap());
    harness.namespace.delete().await.unwrap();
    let gone = await_condition(harness.approvals_of_operator(), &name, conditions::is_deleted(&uid));
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.unwrap().unwrap();
}
