//! Approvals that are stored without a quorum, as the CRD allowed before quorums existed, and runs whose steps a newer
//! CRD dropped: no one can decide them, and the runs show it. The control plane is the tests' own, because a CRD is
//! shared by a whole cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use signoff_api::{Approval, Workflow, workflow::WorkflowPhase};
use signoff_tests::control_plane::{Cluster, OperatorOptions, OperatorProcess, named};

use crate::policies::harness::assert_refused;
use crate::runs::Runs;

const CRD: &str = "approvals.signoff.dev";
const BINDINGS: [&str; 2] =
    ["validatingadmissionpolicybinding/signoff-approvals", "validatingadmissionpolicybinding/signoff-workflows"];
const REQUEST: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/request";

async fn run_kubectl(cluster: &Cluster, words: &[&str]) -> String {
    cluster.kubectl(words).run().await.unwrap().ok().unwrap()
}

async fn read_object(cluster: &Cluster, object: &str) -> Value {
    serde_json::from_str(&run_kubectl(cluster, &["get", object, "--output=json"]).await).unwrap()
}

async fn set_schema(cluster: &Cluster, request: &Value) {
    let patch = json!([{"op": "replace", "path": REQUEST, "value": request}]).to_string();
    run_kubectl(cluster, &["patch", "crd", CRD, "--type=json", "--patch", &patch]).await;
}

/// Gives a stored Approval a vote of bob, and these quorums or no field `quorums`, while no rule is enforced.
async fn plant(runs: &Runs, approval: &str, quorums: Option<Value>) {
    let mut change = vec![
        json!({"op": "remove", "path": "/spec/request/quorums"}),
        json!({"op": "add", "path": "/spec/decisions", "value": {"bob@example.com": {"verdict": "Approve"}}}),
    ];
    change.extend(quorums.map(|list| json!({"op": "add", "path": "/spec/request/quorums", "value": list})));
    patch_until_stored::<Approval>(runs, approval, change).await;
}

/// Sends a JSON patch of an object as the administrator.
async fn change<K: Resource<DynamicType = ()>>(
    runs: &Runs,
    name: &str,
    change: &[Value],
) -> kube::Result<DynamicObject> {
    let (admin, resource) = (runs.cluster.admin().await.unwrap(), ApiResource::erase::<K>(&()));
    let api: Api<DynamicObject> = Api::namespaced_with(admin, &runs.namespace.name, &resource);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(json!(change)).unwrap());
    api.patch(name, &PatchParams::default(), &patch).await
}

/// Sends a JSON patch of an object until the API server accepts it, while no rule is enforced.
async fn patch_until_stored<K: Resource<DynamicType = ()>>(runs: &Runs, name: &str, operations: Vec<Value>) {
    // The API server applies the loosened rules a moment after they were stored, and no event tells when.
    let mut refusal = None;
    for _ in 0..1000 {
        match change::<K>(runs, name, &operations).await {
            Ok(_) => return,
            Err(why) => refusal = Some(why),
        }
    }
    panic!("still refused after 1000 requests: {refusal:?}");
}

#[tokio::test]
async fn an_approval_without_a_quorum_is_reported_and_not_counted() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let operator = OperatorProcess::start(&cluster, OperatorOptions::default()).await.unwrap();
    let runs = Runs::on(cluster, "quorumless").await;
    for run in ["absent", "empty", "pruned"] {
        runs.request(run, json!({})).await;
    }
    let absent = runs.wait_for_gate("absent").await;
    let empty = runs.wait_for_gate("empty").await;
    let pruned = runs.wait_for_gate("pruned").await;
    operator.stop().await.unwrap();

    let mut bindings = [read_object(&runs.cluster, BINDINGS[0]).await, read_object(&runs.cluster, BINDINGS[1]).await];
    let shipped = read_object(&runs.cluster, &format!("crd/{CRD}")).await.pointer(REQUEST).unwrap().clone();
    run_kubectl(&runs.cluster, &["delete", BINDINGS[0], BINDINGS[1]]).await;
    let mut loose = shipped.clone();
    loose.as_object_mut().unwrap().remove("required").expect("the rule is in the schema");
    loose["properties"]["quorums"].as_object_mut().unwrap().remove("minItems").expect("the bound is in the schema");
    set_schema(&runs.cluster, &loose).await;
    plant(&runs, &absent.name_any(), None).await;
    plant(&runs, &empty.name_any(), Some(json!([]))).await;
    let without_steps = vec![
        json!({"op": "remove", "path": "/spec/steps"}),
        json!({"op": "add", "path": "/spec/pattern", "value": {}}),
    ];
    patch_until_stored::<Workflow>(&runs, "pruned", without_steps).await;
    let before = runs.api::<Workflow>().get("pruned").await.unwrap().status.unwrap();
    // The lock in the CRD holds although the policies are absent.
    let digest =
        json!({"op": "replace", "path": "/spec/request/digest", "value": format!("sha256:{}", "0".repeat(64))});
    let refusal = change::<Approval>(&runs, &pruned.name_any(), &[digest]).await.unwrap_err().to_string();
    assert!(refusal.contains("request is immutable, and so is its digest"), "{refusal}");
    set_schema(&runs.cluster, &shipped).await;
    for binding in &mut bindings {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
            binding["metadata"].as_object_mut().unwrap().remove(field);
        }
        let create = runs.cluster.kubectl(["create", "--filename=-"]).input(binding.to_string());
        create.run().await.unwrap().ok().unwrap();
    }
    runs.cluster.in_force().await.unwrap();

    let alice = runs.cluster.token_client("alice").await.unwrap();
    let user = named("alice").unwrap().user;
    for approval in [&absent, &empty] {
        for verdict in ["Approve", "Reject", "Abort"] {
            let vote = runs.decide(&alice, user, &approval.name_any(), json!({"verdict": verdict})).await;
            assert_refused(vote, "quorum");
        }
    }

    let operator = OperatorProcess::start(&runs.cluster, OperatorOptions::default()).await.unwrap();
    for (run, kind, reason) in [("absent", "Waiting", "ApprovalUnreadable"), ("empty", "Stalled", "ForeignObject")] {
        let says = |run: Option<&Workflow>| {
            let conditions = run.and_then(|run| run.status.as_ref()).map(|status| &status.conditions);
            let holds = |c: &&Condition| {
                c.type_ == kind && c.status == "True" && c.reason == reason && c.message.contains("quorum")
            };
            conditions.is_some_and(|all| all.iter().filter(holds).count() == 1)
        };
        let run = runs.until(runs.api::<Workflow>(), run, "says that nobody can decide", says).await;
        let status = run.status.unwrap();
        assert!(!status.phase.is_end(), "{status:#?}");
        assert!(!status.steps.iter().any(|step| step.path == "act"), "{status:#?}");
    }
    let undecided: Approval = runs.api().get(&empty.name_any()).await.unwrap();
    assert!(undecided.status.is_none_or(|status| status.outcome.is_none() && status.votes.is_empty()));
    let accepted = |run: Option<&Workflow>| {
        let status = run.and_then(|run| run.status.clone()).unwrap_or_default();
        let of_kind = |c: Condition| (c.type_ == "Accepted").then_some((c.status, c.reason));
        status.conditions.into_iter().find_map(of_kind)
    };
    let old = Some(("False".to_owned(), "OldShape".to_owned()));
    runs.until(runs.api::<Workflow>(), "pruned", "says that it is of the old shape", |run| accepted(run) == old).await;
    runs.alice_approves(&pruned).await.unwrap();
    let decided =
        |found: Option<&Approval>| found.is_some_and(|a| a.status.as_ref().is_some_and(|s| s.outcome.is_some()));
    runs.until(runs.api::<Approval>(), &pruned.name_any(), "is decided", decided).await;
    runs.another_gate_is_decided_in_time("beside").await;
    let stands = runs.api::<Workflow>().get("pruned").await.unwrap();
    assert_eq!(accepted(Some(&stands)), old);
    let status = stands.status.unwrap();
    assert_eq!((status.phase, &status.steps, &status.pending), (before.phase, &before.steps, &before.pending));
    assert_eq!(status.conditions.len(), 1, "{:#?}", status.conditions);
    assert_eq!(runs.events("pruned", "OldShape").await.len(), 1, "it is told once");
    let dana = runs.api_as::<Workflow>("dana").await;
    let cancel = Patch::Merge(json!({"spec": {"cancel": true}}));
    dana.patch("pruned", &PatchParams::default(), &cancel).await.unwrap();
    let ended = runs.wait_for_end("pruned").await.status.unwrap();
    assert_eq!(ended.phase, WorkflowPhase::Cancelled);
    assert!(!ended.steps.iter().any(|step| step.path == "act"), "{:#?}", ended.steps);
    let namespace = runs.namespace.name.clone();
    // The command returns when the object is gone.
    run_kubectl(&runs.cluster, &["delete", "workflow", "pruned", "--namespace", &namespace, "--timeout=60s"]).await;
    operator.stop().await.unwrap();
}
