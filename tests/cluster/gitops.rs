//! Decisions and Workflows from Git: the requests that Flux and Argo CD send, one by one, against the enforced rules.
//! No operator runs.

use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::control_plane::named;

use crate::policies::harness::{Harness, approval, workflow};

const ALICE: &str = "alice@example.com";
const NOT_THERE: &str = "(not asked yet, or its run is gone): remove this file";
const TTL: &str = "spec.ttlAfterFinished must be absent from a Workflow that Flux or Argo CD applies";

/// A controller that applies files, and can decide on behalf of alice.
struct Controller {
    harness: Harness,
    client: Client,
}

impl Controller {
    async fn open(prefix: &str) -> Self {
        let harness = Harness::open(prefix).await;
        let rule = json!({"apiGroups": ["signoff.dev"], "resources": ["people"], "resourceNames": [ALICE], "verbs": ["delegate"]});
        harness.grant(flux_user(), rule).await;
        let client = harness.client("flux").await;
        Self { harness, client }
    }

    /// Sends a request to a path below the namespace; returns the object, or the code and the message of the refusal.
    async fn send(
        &self,
        client: &Client,
        method: &str,
        path: &str,
        content: &str,
        body: &Value,
    ) -> Result<Value, (u16, String)> {
        let uri = format!("/apis/signoff.dev/v1alpha1/namespaces/{}/{path}", self.harness.namespace.name);
        let request = http::Request::builder().method(method).uri(uri).header("content-type", content);
        match client.request_text(request.body(body.to_string().into_bytes()).unwrap()).await {
            Ok(text) => Ok(serde_json::from_str(&text).unwrap()),
            Err(kube::Error::Api(status)) => Err((status.code, status.message)),
            Err(other) => panic!("{other}"),
        }
    }

    /// Applies a file as Flux does: as a dry run first, which decides whether anything is applied, then with force.
    async fn apply_by_flux(&self, file: &Value) -> Result<Value, (u16, String)> {
        let path = |more: &str| {
            let kind = file["kind"].as_str().unwrap().to_lowercase();
            let name = file["metadata"]["name"].as_str().unwrap();
            format!("{kind}s/{name}?fieldManager=kustomize-controller&force=true{more}")
        };
        let content = "application/apply-patch+yaml";
        self.send(&self.client, "PATCH", &path("&dryRun=All"), content, file).await?;
        self.send(&self.client, "PATCH", &path(""), content, file).await
    }

    /// Applies a file as Argo CD does without server-side apply: it creates a missing object, and patches differences.
    async fn apply_by_argo(&self, name: &str, patch: &Value) -> Result<Value, (u16, String)> {
        let path = format!("approvals/{name}?fieldManager=argocd-controller");
        match self.send(&self.client, "PATCH", &path, "application/merge-patch+json", patch).await {
            Err((404, _)) => {
                let mut file = decision_file(name, json!({}));
                json_patch::merge(&mut file, patch);
                let path = "approvals?fieldManager=argocd-controller";
                self.send(&self.client, "POST", path, "application/json", &file).await
            }
            answer => answer,
        }
    }

    /// Records as the operator that a gate is decided.
    async fn record_outcome(&self, approval: &Approval) {
        let outcome = json!({"phase": "Approved", "verdict": "Approve", "source": "Human"});
        self.harness.status(approval, json!({"phase": "Approved", "outcome": outcome})).await.unwrap();
    }
}

fn flux_user() -> &'static str {
    named("flux").unwrap().user
}

fn flux_key() -> String {
    format!("{ALICE} via {}", flux_user())
}

/// Returns a decision file with this metadata.
fn decision_file(name: &str, metadata: Value) -> Value {
    let mut file = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": metadata});
    file["metadata"]["name"] = json!(name);
    file["spec"] = json!({"decisions": {flux_key(): {"verdict": "Approve", "onBehalfOf": ALICE}}});
    file
}

/// Returns the labels that Flux sets on every object, and the further labels `more`.
fn labels_of_flux(more: Value) -> Value {
    let mut labels = json!({"kustomize.toolkit.fluxcd.io/name": "decisions", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
    json_patch::merge(&mut labels, &more);
    labels
}

#[track_caller]
fn assert_forbidden(answer: Result<Value, (u16, String)>, words: &str) {
    let (code, message) = answer.unwrap_err();
    assert!(code == 403 && message.contains(words), "{code}: {message}");
}

#[tokio::test]
async fn the_refusal_of_a_decision_file_without_approval_says_to_remove_it() {
    let controller = Controller::open("gitops").await;
    let never_asked = approval(json!({})).name_any();
    assert_forbidden(
        controller.apply_by_flux(&decision_file(&never_asked, json!({"labels": labels_of_flux(json!({}))}))).await,
        NOT_THERE,
    );
    let annotated = json!({"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "decisions:x"}}});
    assert_forbidden(controller.apply_by_argo(&never_asked, &annotated).await, NOT_THERE);
    // Flux applies the same file after the gate has asked.
    let asked = controller.harness.ask(json!({})).await.name_any();
    controller.apply_by_flux(&decision_file(&asked, json!({"labels": labels_of_flux(json!({}))}))).await.unwrap();
}

#[tokio::test]
async fn flux_can_apply_a_decision_again_after_the_outcome() {
    let controller = Controller::open("gitops").await;
    // A gate has no closing time when the first timeout escalates.
    for closes_at in [json!("2100-01-01T00:00:00Z"), Value::Null] {
        check_label_changes(&controller, &controller.harness.ask(json!({"closesAt": closes_at})).await).await;
    }
}

/// Checks that Flux can change its labels and apply again, before and after the outcome.
async fn check_label_changes(controller: &Controller, asked: &Approval) {
    let file = |labels: Value| decision_file(&asked.name_any(), json!({"labels": labels_of_flux(labels)}));
    let first = controller.apply_by_flux(&file(json!({"team": "a", "owner": "x", "old": "y"}))).await.unwrap();
    assert_eq!(first["spec"]["decisions"][flux_key()]["verdict"], "Approve");
    let again = controller.apply_by_flux(&file(json!({"team": "a", "owner": "x", "old": "y"}))).await.unwrap();
    assert_eq!(again["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"], "nothing has changed");
    // The times are set to long ago, because times have whole seconds: a new time would be equal. `old` is removed in
    // the same request, because the API server does not store times alone.
    let mut entries = again["metadata"]["managedFields"].clone();
    entries.as_array_mut().unwrap().iter_mut().for_each(|entry| entry["time"] = json!("2020-01-01T00:00:00Z"));
    let path = format!("approvals/{}?fieldManager=kustomize-controller", asked.name_any());
    let past = json!({"metadata": {"managedFields": entries, "labels": {"old": null}}});
    let past =
        controller.send(&controller.client, "PATCH", &path, "application/merge-patch+json", &past).await.unwrap();
    assert_eq!(past["metadata"]["managedFields"][0]["time"], "2020-01-01T00:00:00Z", "{past}");
    let removed = controller.apply_by_flux(&file(json!({"team": "a"}))).await.unwrap();
    assert_eq!(removed["metadata"]["labels"].get("owner"), None, "before the outcome: {removed}");
    controller.record_outcome(asked).await;
    let changed = controller.apply_by_flux(&file(json!({"team": "b", "more": "y"}))).await.unwrap();
    assert_eq!(changed["metadata"]["labels"]["team"], "b");
    let removed = controller.apply_by_flux(&file(json!({}))).await.unwrap();
    assert_eq!(removed["metadata"]["labels"].get("team"), None, "after the outcome: {removed}");
    assert_forbidden(
        controller.apply_by_flux(&file(json!({"signoff.dev/workflow": "other"}))).await,
        "only the operator can change labels and annotations of signoff.dev",
    );
    assert_eq!(removed["spec"]["request"], serde_json::to_value(&asked.spec.request).unwrap());
}

#[tokio::test]
async fn a_late_decision_is_refused_under_every_name_of_its_manager() {
    let controller = Controller::open("gitops").await;
    let answer = async |closes_at: &str, manager: &str| {
        let asked = controller.harness.ask(json!({"closesAt": closes_at})).await.name_any();
        let path = format!("approvals/{asked}?fieldManager={manager}&force=true");
        let file = decision_file(&asked, json!({}));
        controller.send(&controller.client, "PATCH", &path, "application/apply-patch+yaml", &file).await
    };
    for manager in ["kustomize-controller", "ancient-changes"] {
        assert_forbidden(answer("2020-01-01T00:00:00Z", manager).await, "too late: this gate closed at 2020-01-01");
        answer("2100-01-01T00:00:00Z", manager).await.unwrap();
    }
}

#[tokio::test]
async fn flux_applies_its_decision_beside_those_that_people_sent_with_kubectl() {
    let controller = Controller::open("gitops").await;
    let name = controller.harness.ask(json!({"threshold": 2})).await.name_any();
    let bob = controller.harness.client("bob").await;
    let vote = json!({"spec": {"decisions": {"bob@example.com": {"verdict": "Approve"}}}});
    let path = format!("approvals/{name}?fieldManager=kubectl-patch");
    controller.send(&bob, "PATCH", &path, "application/merge-patch+json", &vote).await.unwrap();
    let merge =
        json!({"labels": labels_of_flux(json!({})), "annotations": {"kustomize.toolkit.fluxcd.io/ssa": "Merge"}});
    let applied = controller.apply_by_flux(&decision_file(&name, merge)).await.unwrap();
    assert_eq!(applied["spec"]["decisions"].as_object().unwrap().len(), 2, "{applied}");
}

#[tokio::test]
async fn argo_cd_patches_a_decision_and_its_annotations_before_and_after_the_outcome() {
    let controller = Controller::open("gitops").await;
    let asked = controller.harness.ask(json!({})).await;
    let name = asked.name_any();
    let tracked = |id: &str, rest: Value| {
        let applied = "kubectl.kubernetes.io/last-applied-configuration";
        let mut patch = json!({"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": id, applied: id}}});
        json_patch::merge(&mut patch, &rest);
        patch
    };
    let spec = json!({"spec": decision_file(&name, json!({}))["spec"]});
    controller.apply_by_argo(&name, &tracked("decisions:1", spec)).await.unwrap();
    controller
        .apply_by_argo(&name, &tracked("decisions:2", json!({"metadata": {"labels": {"team": "a"}}})))
        .await
        .unwrap();
    controller.record_outcome(&asked).await;
    let mut patch = tracked("decisions:3", json!({}));
    patch["metadata"]["labels"] = json!({"team": null});
    let after = controller.apply_by_argo(&name, &patch).await.unwrap();
    assert_eq!(after["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"], "decisions:3");
    assert_eq!(after["metadata"]["labels"].get("team"), None);
    // By server-side apply, as with its option ServerSideApply=true.
    let file = decision_file(&name, json!({"annotations": {"argocd.argoproj.io/tracking-id": "decisions:4"}}));
    let path = format!("approvals/{name}?fieldManager=argocd-controller&force=true");
    let content = "application/apply-patch+yaml";
    controller.send(&controller.client, "PATCH", &path, content, &file).await.unwrap();
}

#[tokio::test]
async fn a_workflow_of_a_reconciler_does_not_delete_itself() {
    let controller = Controller::open("gitops").await;
    let rule = json!({"apiGroups": ["signoff.dev"], "resources": ["workflows"], "verbs": ["patch", "create"]});
    controller.harness.grant(flux_user(), rule).await;
    let file = |name: &str, labels: Value, fields: Value| {
        let mut file = workflow(name, fields);
        file["spec"]["requestedBy"] = json!(flux_user());
        file["metadata"]["labels"] = labels;
        file
    };
    let ttl = || json!({"ttlAfterFinished": "1h"});
    assert_forbidden(controller.apply_by_flux(&file("both", labels_of_flux(json!({})), ttl())).await, TTL);
    controller.apply_by_flux(&file("flux", labels_of_flux(json!({})), json!({}))).await.unwrap();
    assert_forbidden(controller.apply_by_flux(&file("flux", labels_of_flux(json!({})), ttl())).await, TTL);
    let helm = || json!({"app.kubernetes.io/instance": "refunds"});
    controller.apply_by_flux(&file("helm", helm(), ttl())).await.unwrap();
    let instance = json!({"app.kubernetes.io/instance": "refunds", "argocd.argoproj.io/instance": "refunds"});
    assert_forbidden(controller.apply_by_flux(&file("helm", instance, ttl())).await, TTL);
    controller.apply_by_flux(&file("helm", helm(), json!({"ttlAfterFinished": "2h"}))).await.unwrap();
}
