//! The Approval as an object: what it holds is its makers', whoever else may write it.
//! These tests may not know anything about the verdicts.

use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Value, json};
use signoff_api::Approval;

use super::stage::{self, Stage, refused, said, user};

#[tokio::test]
async fn the_name_carries_the_digest_of_the_request() {
    let stage = Stage::open("objects").await;
    let api = stage.approvals_of_operator();
    let mut approval = stage::approval(json!({}));
    let honest = approval.name_any();
    approval.metadata.name = Some("refund-review-0000000000".into());
    let answer = said(api.create(&PostParams::default(), &approval).await);
    refused(answer, "metadata.name must end with the first ten hex digits");
    approval.metadata.name = Some(honest);
    api.create(&PostParams::default(), &approval).await.unwrap();
}

#[tokio::test]
async fn a_decision_typed_for_one_request_cannot_land_on_another() {
    let stage = Stage::open("objects").await;
    let one = stage.ask(json!({"prompt": "Send 10 EUR?"})).await;
    let other = stage.ask(json!({"prompt": "Send 10000 EUR?"})).await;
    assert_ne!(one.name_any(), other.name_any());
}

#[tokio::test]
async fn nobody_changes_the_request_not_even_the_operator() {
    let stage = Stage::open("objects").await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let approval = stage.ask(json!({"form": {"questions": [{"id": "answer", "schema": schema}]}})).await;
    let changes: [Value; 4] = [
        json!({"prompt": "Something else?"}),
        json!({"threshold": 2}),
        json!({"closesAt": "2100-01-01T00:00:00Z"}),
        // Inside free-form JSON, where a schema's own comparison does not look at what one side lacks.
        json!({"form": {"questions": [{"id": "answer", "schema": {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}}}]}}),
    ];
    for change in changes {
        let patch = json!({"spec": {"request": change}});
        refused(stage.patch("alice", &approval, patch.clone()).await, "immutable");
        // The operator holds no right to write spec at all; the administrator does, and the rule stands for them too.
        refused(stage.patch("admin", &approval, patch).await, "immutable");
    }
    stage.decide("alice", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn only_approvers_put_labels_on_it_and_none_of_signoffs() {
    let stage = Stage::open("objects").await;
    let approval = stage.ask(json!({"approvers": [user("alice")]})).await;
    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    refused(
        stage.patch("bob", &approval, label("team")).await,
        "only an approver of this gate may change this Approval",
    );
    refused(
        stage.patch("alice", &approval, label("signoff.dev/workflow")).await,
        "labels and annotations of signoff.dev are the operator's",
    );
    let note = json!({"metadata": {"annotations": {"signoff.dev/decided": "yes"}}});
    refused(stage.patch("alice", &approval, note).await, "labels and annotations of signoff.dev are the operator's");
    stage.patch("alice", &approval, label("team")).await.unwrap();
}

#[tokio::test]
async fn at_most_24_labels() {
    let stage = Stage::open("objects").await;
    let approval = stage.ask(json!({})).await;
    let labels = |count: usize| json!({"metadata": {"labels": (0..count).map(|n| (format!("l{n}"), json!(""))).collect::<serde_json::Map<_, _>>()}});
    refused(stage.patch("alice", &approval, labels(25)).await, "at most 24 labels");
    stage.patch("alice", &approval, labels(24)).await.unwrap();
}

#[tokio::test]
async fn owners_and_finalizers_are_the_operators() {
    let stage = Stage::open("objects").await;
    let approval = stage.ask(json!({})).await;
    let dangling = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-4000-8000-000000000001"}]);
    refused(
        stage.patch("alice", &approval, json!({"metadata": {"ownerReferences": dangling}})).await,
        "owner references and finalizers",
    );
    refused(
        stage.patch("alice", &approval, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await,
        "owner references and finalizers",
    );
    stage.decide("alice", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn one_vote_neither_fills_the_object_nor_nests_without_end() {
    let stage = Stage::open("objects").await;
    let approval = stage.ask(json!({})).await;
    let modify = |parameters: Value| json!({"verdict": "Modify", "parameters": parameters});
    let deep = |levels: usize| (1..levels).fold(json!({"x": 1}), |inner, _| json!({"x": inner}));
    let words = "a decision may hold 16 KiB in all, and parameters at most five levels";
    refused(stage.decide("alice", &approval, modify(json!({"response": "x".repeat(16_400)}))).await, words);
    refused(stage.decide("alice", &approval, modify(deep(6))).await, words);
    stage.decide("alice", &approval, modify(deep(5))).await.unwrap();
    stage.decide("bob", &approval, modify(json!({"response": "x".repeat(16_000)}))).await.unwrap();
}

#[tokio::test]
async fn when_the_object_is_nearly_full_small_votes_still_fit() {
    let stage = Stage::open("objects").await;
    let users: Vec<_> = (0..9).map(|n| format!("voter-{n}@example.com")).collect();
    let subjects: Vec<_> = users.iter().map(|name| json!({"kind": "User", "name": name})).collect();
    let approval = stage.ask(json!({"approvers": subjects})).await;
    let vote = async |n: usize, size: usize| {
        let client = stage.cluster.client(&users[n], &["system:masters"]).await.unwrap();
        let api: kube::Api<Approval> = kube::Api::namespaced(client, &stage.namespace.name);
        let decision = json!({"verdict": "Modify", "parameters": {"response": "x".repeat(size)}});
        let patch = kube::api::Patch::Merge(json!({"spec": {"decisions": {&users[n]: decision}}}));
        said(api.patch(&approval.name_any(), &Default::default(), &patch).await)
    };
    for n in 0..6 {
        vote(n, 16_000).await.unwrap();
    }
    refused(vote(6, 16_000).await, "the decisions of this Approval are full");
    vote(7, 900).await.unwrap();
    vote(8, 900).await.unwrap();
}

#[tokio::test]
async fn managed_fields_nested_to_blind_other_clients_are_refused() {
    let stage = Stage::open("objects").await;
    stage
        .grant(
            "alice@example.com",
            json!({"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": ["update"]}),
        )
        .await;
    let approval = stage.ask(json!({})).await;
    let api = stage.approvals("alice").await;
    let put = async |levels: usize| {
        let mut forged = api.get(&approval.name_any()).await.unwrap();
        let fields = (0..levels).fold(json!({}), |inner, _| json!({"f:x": inner}));
        let entry = json!({"manager": "deep", "operation": "Update", "apiVersion": "signoff.dev/v1alpha1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}});
        forged.metadata.managed_fields.get_or_insert_default().push(serde_json::from_value(entry).unwrap());
        forged.metadata.labels = Some([(format!("levels-{levels}"), String::new())].into());
        said(api.replace(&forged.name_any(), &PostParams::default(), &forged).await)
    };
    refused(put(60).await, "metadata.managedFields is nested too deeply");
    put(3).await.unwrap();
}

#[tokio::test]
async fn nobody_deletes_an_approval_by_hand() {
    let stage = Stage::open("objects").await;
    let approval = stage.ask(json!({})).await;
    for who in ["admin", "alice"] {
        let answer = stage.delete_approval(who, &approval).await;
        assert!(answer.is_err(), "{who} deleted an Approval");
    }
    refused(stage.delete_approval("admin", &approval).await, "an Approval is deleted with its Workflow");
    let admin = stage.approvals("admin").await;
    let all = said(admin.delete_collection(&DeleteParams::default(), &Default::default()).await);
    refused(all.map(drop), "an Approval is deleted with its Workflow");
}

#[tokio::test]
async fn an_approval_goes_with_its_workflow() {
    let stage = Stage::open("objects").await;
    let workflow = stage.request("dana", "refund", json!({})).await.unwrap();
    let mut approval = stage::approval(json!({"workflow": {"name": "refund", "uid": workflow.uid().unwrap()}}));
    approval.metadata.owner_references = Some(vec![kube::Resource::controller_owner_ref(&workflow, &()).unwrap()]);
    let api = stage.approvals_of_operator();
    let approval = api.create(&PostParams::default(), &approval).await.unwrap();
    let (name, uid) = (approval.name_any(), approval.uid().unwrap());
    let gone = await_condition(api, &name, conditions::is_deleted(&uid));
    stage.workflows("dana").await.delete("refund", &DeleteParams::background()).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(30), gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_approval_goes_with_its_namespace() {
    let stage = Stage::open("objects").await;
    let approval = stage.ask(json!({})).await;
    let (name, uid) = (approval.name_any(), approval.uid().unwrap());
    stage.namespace.delete().await.unwrap();
    let gone = await_condition(stage.approvals_of_operator(), &name, conditions::is_deleted(&uid));
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_workflow_is_not_deleted_away_from_its_approvals() {
    let stage = Stage::open("objects").await;
    stage.request("dana", "refund", json!({})).await.unwrap();
    let workflows = stage.workflows("dana").await;
    let delete = async |parameters: DeleteParams| said(workflows.delete("refund", &parameters).await).map(drop);
    refused(delete(DeleteParams::orphan()).await, "--cascade=orphan is refused");
    let hold = kube::api::Patch::Merge(json!({"metadata": {"finalizers": ["orphan"]}}));
    let answer = said(workflows.patch("refund", &Default::default(), &hold).await);
    refused(answer, "the finalizer orphan would leave this Workflow's Approvals behind");
    delete(DeleteParams::foreground()).await.unwrap();
}

#[tokio::test]
async fn status_is_the_operators_word() {
    let stage = Stage::open("objects").await;
    let approval = stage.ask(json!({})).await;
    let outcome = json!({"status": {"phase": "Approved", "outcome": {"phase": "Approved", "verdict": "Approve", "source": "Human"}}});
    let patch = kube::api::Patch::Merge(&outcome);
    for who in ["admin", "alice"] {
        let api = stage.approvals(who).await;
        let answer = said(api.patch_status(&approval.name_any(), &Default::default(), &patch).await);
        assert!(answer.is_err(), "{who} wrote status: {answer:?}");
    }
    let admin = stage.approvals("admin").await;
    refused(
        said(admin.patch_status(&approval.name_any(), &Default::default(), &patch).await),
        "only the operator, from its pod, writes status",
    );
    stage.request("dana", "refund", json!({})).await.unwrap();
    let workflows = stage.workflows("admin").await;
    let done = kube::api::Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    refused(
        said(workflows.patch_status("refund", &Default::default(), &done).await),
        "only the operator, from its pod, writes status",
    );
    stage.status(&approval, outcome["status"].clone()).await.unwrap();
}

#[tokio::test]
async fn an_outcome_is_written_once_by_the_operator_too() {
    let stage = Stage::open("objects").await;
    let approval = stage.ask(json!({})).await;
    let outcome = json!({"phase": "Modified", "verdict": "Modify", "source": "Human", "parameters": {"response": "x", "more": 1}});
    stage.status(&approval, json!({"phase": "Modified", "outcome": outcome})).await.unwrap();
    for change in [
        json!({"verdict": "Reject"}),
        json!(null),
        json!({"parameters": {"more": null}}),
        json!({"parameters": {"third": 3}}),
    ] {
        refused(stage.status(&approval, json!({"outcome": change})).await, "status.outcome is final");
    }
    let other = json!({"conditions": [], "observedGeneration": 1});
    stage.status(&approval, other).await.unwrap();
}
