//! Runs with a gate each, in a namespace of their own on the suite's cluster, and their results.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::{Cluster, Namespace, named};

/// The longest wait for the operator. A wait usually takes a fraction of a second, but test machines are busy.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A namespace with runs.
pub(crate) struct Runs {
    pub(crate) namespace: Namespace,
    cluster: Cluster,
    admin: Client,
}

impl Runs {
    /// Creates a namespace whose name begins with `prefix`.
    pub(crate) async fn create(cluster: &Cluster, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await.unwrap();
        Self { namespace, cluster: cluster.clone(), admin: cluster.admin().await.unwrap() }
    }

    /// Returns the name of the namespace.
    pub(crate) fn name(&self) -> &str {
        &self.namespace.name
    }

    /// Starts a run with this spec, as a person of the cast.
    pub(crate) async fn start_as(&self, who: &str, name: &str, mut spec: Value) {
        spec["requestedBy"] = json!("");
        let object =
            json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec});
        let api: Api<Workflow> = Api::namespaced(self.cluster.token_client(who).await.unwrap(), self.name());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    /// Starts a run as dana: a draft, a gate for alice with these further fields, and a step after it. Returns the
    /// request.
    pub(crate) async fn start_gate(&self, name: &str, fields: Value) -> Approval {
        self.start_as("dana", name, spec(fields)).await;
        self.wait_for_request(name).await
    }

    /// Waits until a run waits for a decision, and returns the request.
    pub(crate) async fn wait_for_request(&self, run: &str) -> Approval {
        let pending_name = |workflow: &Workflow| workflow.status.as_ref()?.pending.first().cloned();
        let is_pending = |workflow: Option<&Workflow>| workflow.and_then(pending_name).is_some();
        let workflow = self.wait_until::<Workflow>(run, "asks", is_pending).await;
        self.wait_until(&pending_name(&workflow).unwrap(), "is there", |found: Option<&Approval>| found.is_some()).await
    }

    /// Waits until a run asks for this number of decisions at once. Returns the requests in the order of their paths.
    pub(crate) async fn wait_for_requests(&self, run: &str, count: usize) -> Vec<Approval> {
        let has_pending = |workflow: Option<&Workflow>| {
            workflow.and_then(|workflow| workflow.status.as_ref()).is_some_and(|status| status.pending.len() == count)
        };
        let workflow: Workflow = self.wait_until(run, "asks", has_pending).await;
        let mut approvals = Vec::new();
        for name in workflow.status.unwrap().pending {
            approvals.push(self.wait_until(&name, "is there", |found: Option<&Approval>| found.is_some()).await);
        }
        approvals.sort_by_key(|approval| approval.spec.request.gate.path.clone());
        approvals
    }

    /// Waits until a run asks again, and returns the request, which is not `before`.
    pub(crate) async fn wait_for_next_request(&self, run: &str, before: &Approval) -> Approval {
        let new_name = |workflow: &Workflow| {
            let pending = &workflow.status.as_ref()?.pending;
            pending.iter().find(|name| **name != before.name_any()).cloned()
        };
        let is_pending = |workflow: Option<&Workflow>| workflow.and_then(new_name).is_some();
        let workflow = self.wait_until::<Workflow>(run, "asks again", is_pending).await;
        self.wait_until(&new_name(&workflow).unwrap(), "is there", |found: Option<&Approval>| found.is_some()).await
    }

    /// Waits until a user may list Approvals of all namespaces. A binding takes effect only after the API server has
    /// received it from a watch, which no event reports.
    pub(crate) async fn wait_until_allowed_everywhere(&self, user: &str) {
        let question: SubjectAccessReview =
            serde_json::from_value(json!({"spec": {"user": user, "resourceAttributes": {
                "group": "signoff.dev", "resource": "approvals", "verb": "list",
            }}}))
            .unwrap();
        let reviews: Api<SubjectAccessReview> = Api::all(self.admin.clone());
        for _ in 0..1000 {
            let answer = reviews.create(&PostParams::default(), &question).await.unwrap();
            if answer.status.is_some_and(|status| status.allowed) {
                return;
            }
        }
        panic!("{user} may not list Approvals after 1000 questions");
    }

    /// Waits until a run has ended, and returns it.
    pub(crate) async fn wait_for_end(&self, run: &str) -> Workflow {
        let has_ended = |workflow: Option<&Workflow>| {
            workflow.and_then(|workflow| workflow.status.as_ref()).is_some_and(|status| status.phase.is_end())
        };
        self.wait_until(run, "ends", has_ended).await
    }

    /// Waits until a run has ended, and returns its result. Fails unless the run has succeeded.
    pub(crate) async fn wait_for_result(&self, run: &str) -> String {
        let status = self.wait_for_end(run).await.status.unwrap();
        assert_eq!(status.phase, WorkflowPhase::Succeeded, "{run}: {:?}", status.message);
        status.outputs.unwrap_or_default()
    }

    /// Returns a request as it is stored now.
    pub(crate) async fn read_request(&self, approval: &Approval) -> Approval {
        Api::namespaced(self.admin.clone(), self.name()).get(&approval.name_any()).await.unwrap()
    }

    /// Returns the stored decision of a person of the cast, or `null`.
    pub(crate) async fn read_decision(&self, approval: &Approval, who: &str) -> Value {
        let stored = self.read_request(approval).await;
        serde_json::to_value(stored.spec.decisions.get(named(who).unwrap().user)).unwrap()
    }

    /// Sends a decision of a person of the cast as kubectl does: with a merge patch.
    pub(crate) async fn decide_as(&self, who: &str, approval: &Approval, decision: Value) {
        let api: Api<Approval> = Api::namespaced(self.cluster.token_client(who).await.unwrap(), self.name());
        let patch = json!({"spec": {"decisions": {named(who).unwrap().user: decision}}});
        api.patch(&approval.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Waits until `holds` is true of an object, and returns it.
    pub(crate) async fn wait_until<K>(&self, name: &str, what: &str, holds: impl Fn(Option<&K>) -> bool) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + 'static,
    {
        let api: Api<K> = Api::namespaced(self.admin.clone(), self.name());
        match tokio::time::timeout(WAIT_TIMEOUT, await_condition(api.clone(), name, holds)).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => panic!("{name} never {what}: {:#?}", api.get_opt(name).await),
        }
    }

    /// Waits until a request is deleted.
    pub(crate) async fn wait_until_deleted(&self, name: &str) {
        let gone = await_condition(self.api::<Approval>(), name, |found: Option<&Approval>| found.is_none());
        tokio::time::timeout(WAIT_TIMEOUT, gone).await.unwrap().unwrap();
    }

    /// Returns the API of a kind in the namespace, as the administrator.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), self.name())
    }
}

/// Returns the spec of a run: a draft, a gate for alice with these further fields, and a step after it.
pub(crate) fn spec(fields: Value) -> Value {
    let mut gate = json!({"prompt": "Go on?", "approvers": [user("alice")]});
    for (field, value) in fields.as_object().into_iter().flatten() {
        gate[field] = value.clone();
    }
    json!({"steps": [
        {"name": "draft", "set": {"value": "a draft"}},
        {"name": "review", "hitl": gate},
        {"name": "act", "set": {"value": "done"}},
    ]})
}

/// Returns a person of the cast, as an approver.
pub(crate) fn user(who: &str) -> Value {
    json!({"kind": "User", "name": named(who).unwrap().user})
}

/// Returns the path of the page of a request.
pub(crate) fn path(approval: &Approval) -> String {
    format!("/n/{}/a/{}", approval.namespace().unwrap(), approval.name_any())
}
