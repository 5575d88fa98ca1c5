//! The harness of these tests: the control plane whose rules may be changed, an operator, runs that wait at a gate, and
//! a user who forges votes.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::approval::ApprovalPhase;
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::{Cluster, Namespace, OperatorOptions, OperatorProcess, named};
use tokio::sync::MutexGuard;

use crate::policies::harness::{Answer, to_answer, workflow};

/// The deadline of every wait: a changed rule is tried after five seconds at the earliest.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The control plane whose rules one test at a time may change, with a new namespace.
pub(super) struct Harness {
    pub(super) cluster: Cluster,
    pub(super) namespace: Namespace,
    pub(super) admin: Client,
    /// The lock under which only this test changes the rules.
    _turn: MutexGuard<'static, ()>,
}

impl Harness {
    pub(super) async fn open() -> Self {
        let (cluster, turn) = Cluster::alone().await.unwrap();
        let admin = cluster.admin().await.unwrap();
        let namespace = cluster.namespace("guard").await.unwrap();
        Self { cluster, namespace, admin, _turn: turn }
    }

    /// Starts an operator and waits until it is ready. It has no Lease, because an operator with a Lease ends when it
    /// is stopped for too long, which another test covers.
    pub(super) async fn start_operator(&self, arguments: &[&str]) -> OperatorProcess {
        let arguments = ["--no-lease"].iter().chain(arguments).map(|argument| (*argument).to_owned()).collect();
        OperatorProcess::start(&self.cluster, OperatorOptions { arguments, ..OperatorOptions::default() })
            .await
            .unwrap()
    }

    /// Starts an operator that holds the Lease and waits until it is ready, for tests of its reports to people.
    pub(super) async fn start_operator_with_lease(&self) -> OperatorProcess {
        OperatorProcess::start(&self.cluster, OperatorOptions::default()).await.unwrap()
    }

    pub(super) async fn approvals(&self, who: &str) -> Api<Approval> {
        Api::namespaced(self.cluster.token_client(who).await.unwrap(), &self.namespace.name)
    }

    pub(super) fn workflows(&self) -> Api<Workflow> {
        Api::namespaced(self.admin.clone(), &self.namespace.name)
    }

    /// Creates a run as dana with a gate for alice and bob, of whom `threshold` must decide, and with a step after the
    /// gate.
    pub(super) async fn request(&self, name: &str, threshold: i32) {
        let gate = json!({
            "name": "review",
            "hitl": {"prompt": "Go on?", "threshold": threshold, "approvers": [
                {"kind": "User", "name": "alice@example.com"}, {"kind": "User", "name": "bob@example.com"}
            ]},
        });
        let steps = json!([gate, {"name": "act", "set": {"value": "done"}}]);
        let object = workflow(name, json!({"steps": steps}));
        let api: Api<Workflow> =
            Api::namespaced(self.cluster.token_client("dana").await.unwrap(), &self.namespace.name);
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    /// Returns the Approval of this visit of a run's gate, once it exists.
    pub(super) async fn wait_for_gate(&self, run: &str, path: &str) -> Approval {
        let record = |workflow: &Workflow| {
            let steps = &workflow.status.as_ref()?.steps;
            steps.iter().find(|record| record.path == path).and_then(|record| record.object.clone())
        };
        let waits = |workflow: Option<&Workflow>| workflow.is_some_and(|workflow| record(workflow).is_some());
        let found = self.until(self.workflows(), run, &format!("asks at {path}"), waits).await;
        let name = record(&found).unwrap();
        let approvals = Api::namespaced(self.admin.clone(), &self.namespace.name);
        self.until(approvals, &name, "is there", |approval: Option<&Approval>| approval.is_some()).await
    }

    pub(super) async fn wait_for_phase(&self, approval: &Approval, phase: ApprovalPhase) -> Approval {
        let approvals = Api::namespaced(self.admin.clone(), &self.namespace.name);
        let comes = move |approval: Option<&Approval>| {
            approval.and_then(|approval| approval.status.as_ref()).is_some_and(|status| status.phase == phase)
        };
        self.until(approvals, &approval.name_any(), &format!("is {}", phase.name()), comes).await
    }

    pub(super) async fn wait_for_end(&self, run: &str) -> Workflow {
        let ends = |workflow: Option<&Workflow>| {
            workflow.and_then(|workflow| workflow.status.as_ref()).is_some_and(|status| status.phase.is_end())
        };
        self.until(self.workflows(), run, "ends", ends).await
    }

    /// Waits until a run's condition has this status, and returns the message.
    pub(super) async fn wait_for_condition(&self, run: &str, kind: &str, status: &str) -> String {
        let message = |workflow: &Workflow| {
            let conditions = &workflow.status.as_ref()?.conditions;
            conditions.iter().find(|c| c.type_ == kind && c.status == status).map(|c| c.message.clone())
        };
        let says = |workflow: Option<&Workflow>| workflow.is_some_and(|workflow| message(workflow).is_some());
        let found = self.until(self.workflows(), run, &format!("says {kind}={status}"), says).await;
        message(&found).unwrap()
    }

    /// Waits until a run no longer has a condition.
    pub(super) async fn wait_for_no_condition(&self, run: &str, kind: &str) {
        let gone = |workflow: Option<&Workflow>| {
            let status = workflow.and_then(|workflow| workflow.status.as_ref());
            status.is_some_and(|status| status.conditions.iter().all(|condition| condition.type_ != kind))
        };
        self.until(self.workflows(), run, &format!("says {kind} no more"), gone).await;
    }

    async fn until<K>(&self, api: Api<K>, name: &str, what: &str, holds: impl Fn(Option<&K>) -> bool) -> K
    where
        K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    {
        let waiting = await_condition(api.clone(), name, holds);
        match tokio::time::timeout(TIMEOUT, waiting).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => panic!("{name} never {what}: {:#?}\noperator: {}", api.get_opt(name).await, self.logs()),
        }
    }

    fn logs(&self) -> String {
        let logs = std::fs::read_dir(self.cluster.logs()).unwrap().map(|entry| entry.unwrap().path());
        let ours = logs.filter(|path| path.to_string_lossy().contains("signoff-operator"));
        ours.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    /// Sends a decision by a plain merge patch.
    pub(super) async fn decide(&self, who: &str, approval: &Approval, verdict: &str) -> Answer<Approval> {
        self.vote(who, named(who).unwrap().user, approval, verdict).await
    }

    /// Approves each open visit of a run's gate as a person of the cast, until the run ends. A vote before the operator
    /// has tried the last change of a rule is also void, and the gate asks again.
    pub(super) async fn approve_until_end(&self, who: &str, run: &str) {
        let open = |workflow: &Workflow, answered: &BTreeSet<String>| {
            let steps = &workflow.status.as_ref()?.steps;
            let gates = steps.iter().filter(|record| !record.phase.is_end());
            gates.filter_map(|record| record.object.clone()).find(|name| !answered.contains(name))
        };
        let ends = |workflow: &Workflow| workflow.status.as_ref().is_some_and(|status| status.phase.is_end());
        let approvals: Api<Approval> = Api::namespaced(self.admin.clone(), &self.namespace.name);
        let mut answered = BTreeSet::new();
        loop {
            let asks_or_ends = |workflow: Option<&Workflow>| {
                workflow.is_some_and(|workflow| ends(workflow) || open(workflow, &answered).is_some())
            };
            let found = self.until(self.workflows(), run, "asks or ends", asks_or_ends).await;
            let Some(name) = open(&found, &answered) else { return };
            let asked = self.until(approvals.clone(), &name, "is there", |approval| approval.is_some()).await;
            // Refused only if it was closed in this moment; the next event shows it.
            drop(self.decide(who, &asked, "Approve").await);
            answered.insert(name);
        }
    }

    /// Votes in alice's name as erin, who is no approver, until the vote is accepted.
    pub(super) async fn forge_vote(&self, approval: &Approval) {
        self.repeat_until_accepted("alice's vote by erin", || {
            self.vote("erin", "alice@example.com", approval, "Approve")
        })
        .await;
    }

    /// Repeats `attempt` until it succeeds, and returns its result. Panics after the deadline; `what` names the
    /// attempt.
    pub(super) async fn repeat_until_accepted<T, F: Future<Output = Answer<T>>>(
        &self,
        what: &str,
        attempt: impl Fn() -> F,
    ) -> T {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            // No event tells which rules an API server applies.
            match attempt().await {
                Ok(done) => return done,
                Err(why) => assert!(tokio::time::Instant::now() < deadline, "{what} was never accepted: {why}"),
            }
        }
    }

    async fn vote(&self, who: &str, key: &str, approval: &Approval, verdict: &str) -> Answer<Approval> {
        let patch = Patch::Merge(json!({"spec": {"decisions": {key: {"verdict": verdict}}}}));
        let approvals = self.approvals(who).await;
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            match approvals.patch(&approval.name_any(), &PatchParams::default(), &patch).await {
                // While an API server replaces a CRD, it answers for none of its objects.
                Err(error) if !is_answer(&error) && tokio::time::Instant::now() < deadline => {}
                answer => return to_answer(answer),
            }
        }
    }

    /// Returns a client for the objects of one kind of rule, such as `ValidatingAdmissionPolicy`.
    pub(super) fn rules(&self, kind: &str) -> Api<DynamicObject> {
        let group = match kind {
            "CustomResourceDefinition" => "apiextensions.k8s.io",
            "APIService" => "apiregistration.k8s.io",
            _ => "admissionregistration.k8s.io",
        };
        Api::all_with(self.admin.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
    }

    /// Changes an object, or deletes the object if `change` returns `false`. Repeats after a conflict. Returns the
    /// object as it was before.
    pub(super) async fn change_or_delete(
        &self,
        kind: &str,
        name: &str,
        change: impl Fn(&mut Value) -> bool,
    ) -> DynamicObject {
        let api = self.rules(kind);
        loop {
            let before = api.get(name).await.unwrap();
            let mut changed = before.clone();
            let done = if change(&mut changed.data) {
                api.replace(name, &PostParams::default(), &changed).await.map(drop)
            } else {
                api.delete(name, &DeleteParams::default()).await.map(drop)
            };
            match done {
                Ok(()) => return before,
                Err(error) => assert!(is_conflict(&error), "{error}"),
            }
        }
    }

    /// Restores an object exactly as it was.
    pub(super) async fn restore(&self, kind: &str, before: DynamicObject) {
        let api = self.rules(kind);
        let name = before.name_any();
        let mut restored = before;
        restored.metadata.managed_fields = None;
        loop {
            let now = api.get_opt(&name).await.unwrap();
            restored.metadata.resource_version = now.as_ref().and_then(|now| now.metadata.resource_version.clone());
            let done = if now.is_some() {
                api.replace(&name, &PostParams::default(), &restored).await
            } else {
                restored.metadata.uid = None;
                api.create(&PostParams::default(), &restored).await
            };
            match done {
                Ok(_) => return,
                Err(error) => assert!(is_conflict(&error), "{error}"),
            }
        }
    }
}

/// Returns whether an error is a conflict: the API server's own controllers also write the status of rules.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Returns whether an error is the refusal of a request, and not a failure to answer.
fn is_answer(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 401 | 403 | 409 | 422))
}

/// Checks that the run has not passed its gate.
pub(super) async fn assert_waits_at_gate(harness: &Harness, run: &str) {
    let workflow = harness.workflows().get(run).await.unwrap();
    let status = workflow.status.unwrap();
    assert_eq!(status.phase, WorkflowPhase::Waiting, "{run}");
    assert!(status.steps.iter().all(|record| record.path != "act"), "{run}: {:#?}", status.steps);
}
