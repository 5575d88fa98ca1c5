//! An Approval and its Workflow are deleted and created again while the approver types: a vote for the old Approval
//! must not count for the new one. The names alone ensure it, without an operator.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;
use signoff_api::{Approval, Workflow};

use crate::policies::harness::{self, Harness, assert_refused, to_answer};

/// Creates an Approval that this Workflow owns, as the operator does.
async fn create_approval(harness: &Harness, workflow: &Workflow) -> Approval {
    let uid = workflow.uid().unwrap();
    let mut approval = harness::approval(json!({"workflow": {"name": workflow.name_any(), "uid": uid}}));
    approval.metadata.owner_references = Some(vec![kube::Resource::controller_owner_ref(workflow, &()).unwrap()]);
    harness.approvals_of_operator().create(&PostParams::default(), &approval).await.unwrap()
}

/// Waits until this object is gone.
async fn wait_until_gone<K>(api: Api<K>, object: &K)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let (name, uid) = (object.name_any(), object.uid().unwrap());
    let gone = await_condition(api, &name, conditions::is_deleted(&uid));
    tokio::time::timeout(std::time::Duration::from_secs(30), gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_vote_for_a_deleted_run_is_refused_by_a_new_run_of_its_name() {
    let harness = Harness::open("recreated").await;
    let first = harness.request("dana", "refund", json!({})).await.unwrap();
    let old = create_approval(&harness, &first).await;
    harness.workflows("dana").await.delete("refund", &DeleteParams::foreground()).await.unwrap();
    wait_until_gone(harness.approvals_of_operator(), &old).await;
    wait_until_gone(harness.workflows("dana").await, &first).await;

    let second = harness.request("dana", "refund", json!({})).await.unwrap();
    let new = create_approval(&harness, &second).await;
    assert_ne!(old.name_any(), new.name_any(), "the same question of another run has another name");
    let vote = json!({"verdict": "Approve", "requestDigest": old.spec.request.digest});
    assert_refused(harness.decide("alice", &old, vote.clone()).await, "not found");
    assert_refused(harness.decide("alice", &new, vote).await, "stale: requestDigest");
    harness.decide("alice", &new, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn a_vote_with_the_uid_of_a_deleted_approval_is_refused() {
    let harness = Harness::open("recreated").await;
    let old = harness.ask(json!({})).await;
    let collector =
        harness.cluster.client("system:serviceaccount:kube-system:generic-garbage-collector", &["system:masters"]);
    let collected: Api<Approval> = Api::namespaced(collector.await.unwrap(), &harness.namespace.name);
    collected.delete(&old.name_any(), &DeleteParams::default()).await.unwrap();
    wait_until_gone(collected, &old).await;
    let again = Approval::new(&old.name_any(), old.spec.clone());
    let again = harness.approvals_of_operator().create(&PostParams::default(), &again).await.unwrap();
    assert_ne!(again.uid(), old.uid());
    let vote = async |uid: Option<String>| {
        let patch = Patch::Merge(
            json!({"metadata": {"uid": uid}, "spec": {"decisions": {"alice@example.com": {"verdict": "Approve"}}}}),
        );
        to_answer(harness.approvals("alice").await.patch(&old.name_any(), &PatchParams::default(), &patch).await)
    };
    assert_refused(vote(old.uid()).await, "metadata.uid: Invalid value");
    vote(again.uid()).await.unwrap();
}
