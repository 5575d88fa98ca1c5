//! Runs with a gate each, in a namespace of their own on a cluster with an operator, for tests of disturbances.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::{Cluster, Namespace, named};

use crate::policies::harness::{Answer, to_answer, workflow};

/// The longest time of a gate from its request to the end of its run. It takes a fraction of a second without load;
/// test machines are slow and busy.
const IN_TIME: Duration = Duration::from_secs(60);
/// The deadline of every other wait.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The runs of one test, in a namespace of their own.
pub(crate) struct Runs {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: Namespace,
    admin: Client,
    dana: Client,
    alice: Client,
}

impl Runs {
    pub(crate) async fn on(cluster: Cluster, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await.unwrap();
        let admin = cluster.admin().await.unwrap();
        let (dana, alice) = (cluster.token_client("dana").await.unwrap(), cluster.token_client("alice").await.unwrap());
        Self { cluster, namespace, admin, dana, alice }
    }

    /// Returns a client for the objects of a kind in the namespace, as the administrator, who only reads.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), &self.namespace.name)
    }

    /// Returns a client for the objects of a kind in the namespace, as a person of the cast.
    pub(crate) async fn api_as<K>(&self, who: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.token_client(who).await.unwrap(), &self.namespace.name)
    }

    /// Creates a run as dana: a text to review, a gate for alice with these further fields, and a step after it.
    pub(crate) async fn request(&self, name: &str, fields: Value) -> Workflow {
        let mut gate = json!({"prompt": "Go on?", "approvers": [{"kind": "User", "name": "alice@example.com"}]});
        for (field, value) in fields.as_object().into_iter().flatten() {
            gate[field] = value.clone();
        }
        let steps = json!([
            {"name": "draft", "set": {"value": "a draft"}},
            {"name": "review", "hitl": gate},
            {"name": "act", "set": {"value": "done"}},
        ]);
        let object = workflow(name, json!({"steps": steps}));
        let api: Api<Workflow> = Api::namespaced(self.dana.clone(), &self.namespace.name);
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// Returns the Approval of a run's gate, once it exists.
    pub(crate) async fn wait_for_gate(&self, run: &str) -> Approval {
        let record = |workflow: &Workflow| {
            workflow
                .status
                .as_ref()?
                .steps
                .iter()
                .find(|step| step.path == "review")
                .and_then(|step| step.object.clone())
        };
        let asks = |workflow: Option<&Workflow>| workflow.is_some_and(|workflow| record(workflow).is_some());
        let found = self.until(self.api(), run, "asks", asks).await;
        self.until(self.api(), &record(&found).unwrap(), "is there", |found: Option<&Approval>| found.is_some()).await
    }

    /// Waits until a run has ended, and returns it.
    pub(crate) async fn wait_for_end(&self, run: &str) -> Workflow {
        let ends = |workflow: Option<&Workflow>| {
            workflow.and_then(|workflow| workflow.status.as_ref()).is_some_and(|status| status.phase.is_end())
        };
        self.until(self.api(), run, "ends", ends).await
    }

    /// Waits until `holds` is true of an object, and returns it.
    pub(crate) async fn until<K>(&self, api: Api<K>, name: &str, what: &str, holds: impl Fn(Option<&K>) -> bool) -> K
    where
        K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    {
        let waiting = await_condition(api.clone(), name, holds);
        match tokio::time::timeout(TIMEOUT, waiting).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => panic!("{name} never {what}: {:#?}", api.get_opt(name).await),
        }
    }

    /// Sends a decision by a plain merge patch with this client.
    pub(crate) async fn decide(&self, who: &Client, user: &str, approval: &str, decision: Value) -> Answer<Approval> {
        let api: Api<Approval> = Api::namespaced(who.clone(), &self.namespace.name);
        let patch = Patch::Merge(json!({"spec": {"decisions": {user: decision}}}));
        to_answer(api.patch(approval, &PatchParams::default(), &patch).await)
    }

    /// Sends alice's approval.
    pub(crate) async fn alice_approves(&self, approval: &Approval) -> Answer<Approval> {
        let approve = json!({"verdict": "Approve"});
        self.decide(&self.alice, named("alice").unwrap().user, &approval.name_any(), approve).await
    }

    /// Checks that a new gate is asked, decided and continued in time.
    pub(crate) async fn another_gate_is_decided_in_time(&self, run: &str) {
        let decide = async {
            self.request(run, json!({})).await;
            let approval = self.wait_for_gate(run).await;
            self.alice_approves(&approval).await.unwrap();
            self.wait_for_end(run).await
        };
        let began = std::time::Instant::now();
        let ended = decide.await;
        assert!(began.elapsed() < IN_TIME, "{run} took {:?}", began.elapsed());
        assert_eq!(ended.status.unwrap().phase, WorkflowPhase::Succeeded);
    }

    /// Opens and decides new gates one after the other until `done` is ready: at least two of them.
    pub(crate) async fn other_gates_are_decided_while<T>(&self, prefix: &str, done: impl Future<Output = T>) -> T {
        let gates = async {
            for n in 0.. {
                self.another_gate_is_decided_in_time(&format!("{prefix}-{n}")).await;
            }
        };
        let twice = async {
            let two = ["first", "second"].map(|which| format!("{prefix}-{which}"));
            join_all(two.iter().map(|run| self.another_gate_is_decided_in_time(run))).await;
        };
        let both = async { tokio::join!(done, twice).0 };
        tokio::select! {
            value = both => value,
            () = gates => unreachable!("they go on for ever"),
        }
    }

    /// Returns the Events with this reason about an object.
    pub(crate) async fn events(&self, about: &str, reason: &str) -> Vec<Event> {
        let all = self.api::<Event>().list(&ListParams::default()).await.unwrap();
        let concerned = |event: &Event| {
            let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
            regarding == Some(about) && event.reason.as_deref() == Some(reason)
        };
        all.items.into_iter().filter(concerned).collect()
    }
}
