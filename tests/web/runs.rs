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

/// The deadline of every wait for the operator, which takes a fraction of a second; test machines are slow and busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace with runs.
pub(crate) struct Runs {
    pub(crate) namespace: Namespace,
    cluster: Cluster,
    admin: Client,
}

impl Runs {
    /// Creates a namespace whose name begins with `prefix`.
    pub(crate) async fn of(cluster: &Cluster, prefix: &str) -> Self {
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
    pub(crate) async fn gate(&self, name: &str, fields: Value) -> Approval {
        self.start_as("dana", name, spec(fields)).await;
        self.asked(name).await
    }

    /// Returns the request that a run waits for.
    pub(crate) async fn asked(&self, run: &str) -> Approval {
        let waits = |workflow: &Workflow| workflow.status.as_ref()?.pending.first().cloned();
        let is_asked = |workflow: Option<&Workflow>| workflow.and_then(waits).is_some();
        let found = self.until::<Workflow>(run, "asks", is_asked).await;
        self.until(&waits(&found).unwrap(), "is there", |found: Option<&Approval>| found.is_some()).await
    }

    /// Waits until a run asks for this number of decisions at once. Returns the requests in the order of their paths.
    pub(crate) async fn asks_all(&self, run: &str, count: usize) -> Vec<Approval> {
        let asks = |workflow: Option<&Workflow>| {
            workflow.and_then(|workflow| workflow.status.as_ref()).is_some_and(|status| status.pending.len() == count)
        };
        let found: Workflow = self.until(run, "asks", asks).await;
        let mut asked = Vec::new();
        for name in found.status.unwrap().pending {
            asked.push(self.until(&name, "is there", |found: Option<&Approval>| found.is_some()).await);
        }
        asked.sort_by_key(|one| one.spec.request.gate.path.clone());
        asked
    }

    /// Waits until a run asks again, with another request than this one.
    pub(crate) async fn asked_again(&self, run: &str, before: &Approval) -> Approval {
        let other = |workflow: &Workflow| {
            let pending = &workflow.status.as_ref()?.pending;
            pending.iter().find(|one| **one != before.name_any()).cloned()
        };
        let is_asked = |workflow: Option<&Workflow>| workflow.and_then(other).is_some();
        let found = self.until::<Workflow>(run, "asks again", is_asked).await;
        self.until(&other(&found).unwrap(), "is there", |found: Option<&Approval>| found.is_some()).await
    }

    /// Waits until a user may list Approvals of all namespaces. A binding takes effect by a watch, which no event
    /// reports.
    pub(crate) async fn allowed_everywhere(&self, user: &str) {
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
    pub(crate) async fn ended(&self, run: &str) -> Workflow {
        let ends = |workflow: Option<&Workflow>| {
            workflow.and_then(|workflow| workflow.status.as_ref()).is_some_and(|status| status.phase.is_end())
        };
        self.until(run, "ends", ends).await
    }

    /// Returns the result of a run that has to succeed.
    pub(crate) async fn result(&self, run: &str) -> String {
        let status = self.ended(run).await.status.unwrap();
        assert_eq!(status.phase, WorkflowPhase::Succeeded, "{run}: {:?}", status.message);
        status.outputs.unwrap_or_default()
    }

    /// Returns a request as it is stored now.
    pub(crate) async fn stored(&self, approval: &Approval) -> Approval {
        Api::namespaced(self.admin.clone(), self.name()).get(&approval.name_any()).await.unwrap()
    }

    /// Returns the stored decision of a person of the cast, or `null`.
    pub(crate) async fn decision(&self, approval: &Approval, who: &str) -> Value {
        let stored = self.stored(approval).await;
        serde_json::to_value(stored.spec.decisions.get(named(who).unwrap().user)).unwrap()
    }

    /// Sends a decision of a person of the cast as with kubectl: by a merge patch.
    pub(crate) async fn decides(&self, who: &str, approval: &Approval, decision: Value) {
        let api: Api<Approval> = Api::namespaced(self.cluster.token_client(who).await.unwrap(), self.name());
        let patch = json!({"spec": {"decisions": {named(who).unwrap().user: decision}}});
        api.patch(&approval.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Waits until `holds` is true of an object, and returns it.
    pub(crate) async fn until<K>(&self, name: &str, what: &str, holds: impl Fn(Option<&K>) -> bool) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + 'static,
    {
        let api: Api<K> = Api::namespaced(self.admin.clone(), self.name());
        match tokio::time::timeout(PATIENCE, await_condition(api.clone(), name, holds)).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => panic!("{name} never {what}: {:#?}", api.get_opt(name).await),
        }
    }

    /// Waits until a request is deleted.
    pub(crate) async fn until_gone(&self, name: &str) {
        let gone = await_condition(self.all::<Approval>(), name, |found: Option<&Approval>| found.is_none());
        tokio::time::timeout(PATIENCE, gone).await.unwrap().unwrap();
    }

    /// Returns all objects of a kind here, as the administrator.
    pub(crate) fn all<K>(&self) -> Api<K>
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
