//! The harness of one test: the suite's one node with Signoff and an operator, a namespace of its own, and people who
//! act.

use std::ops::Deref;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::{Cluster, Namespace, OperatorOptions, OperatorProcess, named};
use signoff_tests::node::Node;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The longest time of a wait. Each takes seconds, and test machines are slow and busy.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The node of the suite and its operator. They are never dropped: they end with the machine.
struct Suite {
    node: Node,
    #[expect(dead_code, reason = "it runs as long as this is there")]
    operator: OperatorProcess,
}

/// One test's namespace.
pub(crate) struct Harness {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: Namespace,
    admin: Client,
}

/// Returns the node of the suite, with Signoff installed and an operator, started by the first caller. A test that
/// kills an operator, or runs it with other settings, needs a [`Node`] of its own.
pub(crate) async fn shared() -> &'static Node {
    static SUITE: OnceCell<Suite> = OnceCell::const_new();
    let suite = SUITE.get_or_init(|| async {
        let node = Node::start().await.unwrap();
        node.cluster().install(&[]).await.unwrap();
        let operator = operator(node.cluster(), &[]).await;
        Suite { node, operator }
    });
    &suite.await.node
}

/// Starts a node of the test's own, with nothing installed. There is one at a time: an operator whose machine is too
/// busy to renew its Lease ends.
pub(crate) async fn own() -> Own {
    static ALONE: Mutex<()> = Mutex::const_new(());
    let alone = ALONE.lock().await;
    Own { node: Node::start().await.unwrap(), _alone: alone }
}

/// A node that no other test uses.
pub(crate) struct Own {
    node: Node,
    _alone: MutexGuard<'static, ()>,
}

impl Deref for Own {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

/// Starts an operator as a process beside a cluster on which Signoff is installed, and waits until it is ready.
pub(crate) async fn operator(cluster: &Cluster, arguments: &[&str]) -> OperatorProcess {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    OperatorProcess::start(cluster, OperatorOptions { arguments, ..OperatorOptions::default() }).await.unwrap()
}

impl Harness {
    /// Opens a namespace on the suite's node.
    pub(crate) async fn open(prefix: &str) -> Self {
        Self::on(shared().await.cluster(), prefix).await
    }

    /// Opens a namespace on a node of the test's own.
    pub(crate) async fn on(cluster: &Cluster, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await.unwrap();
        let admin = cluster.admin().await.unwrap();
        Self { cluster: cluster.clone(), namespace, admin }
    }

    /// Returns all objects of a kind here, as the administrator.
    pub(crate) fn see<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), &self.namespace.name)
    }

    /// Returns all objects of a kind here, as a person of the cast.
    pub(crate) async fn as_a<K>(&self, who: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.token_client(who).await.unwrap(), &self.namespace.name)
    }

    /// Waits until `holds` is true of an object, and returns it.
    pub(crate) async fn until<K>(&self, name: &str, what: &str, holds: impl Fn(Option<&K>) -> bool) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    {
        let api = self.see::<K>();
        let waiting = await_condition(api.clone(), name, holds);
        match tokio::time::timeout(TIMEOUT, waiting).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => panic!("{name} never {what}: {:#?}", api.get_opt(name).await),
        }
    }

    /// Creates a pod as the administrator, with one container of busybox that runs this script, and with these further
    /// fields of the container.
    pub(crate) async fn pod(&self, name: &str, script: &str, fields: Value) -> Pod {
        let mut container = json!({"name": "main", "image": "busybox:1.36", "command": ["sh", "-c", script]});
        for (field, value) in fields.as_object().into_iter().flatten() {
            container[field] = value.clone();
        }
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.see::<Pod>().create(&PostParams::default(), &pod).await.unwrap()
    }

    /// Waits until a pod's container has ended, and returns the pod.
    pub(crate) async fn pod_ended(&self, name: &str) -> Pod {
        let over = |pod: Option<&Pod>| matches!(phase(pod), Some("Succeeded" | "Failed"));
        self.until(name, "ends", over).await
    }

    /// Returns the log of a pod's container so far.
    pub(crate) async fn log(&self, pod: &str) -> String {
        self.see::<Pod>().logs(pod, &LogParams::default()).await.unwrap()
    }

    /// Creates a run as dana; `requestedBy` is empty, so it is stamped.
    pub(crate) async fn request(&self, name: &str, mut spec: Value) -> Workflow {
        spec["requestedBy"] = json!("");
        let workflow = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec,
        });
        let workflow = serde_json::from_value(workflow).unwrap();
        self.as_a::<Workflow>("dana").await.create(&PostParams::default(), &workflow).await.unwrap()
    }

    /// Returns the Approval of the gate of a run at this path, once it exists.
    pub(crate) async fn asked(&self, run: &str, path: &str) -> Approval {
        let object = |workflow: &Workflow| {
            let steps = &workflow.status.as_ref()?.steps;
            steps.iter().rev().find(|step| step.path == path)?.object.clone()
        };
        let asks = |workflow: Option<&Workflow>| workflow.and_then(object).is_some();
        let workflow = self.until::<Workflow>(run, "asks", asks).await;
        self.until(&object(&workflow).unwrap(), "is there", |found: Option<&Approval>| found.is_some()).await
    }

    /// Sends a decision of a person of the cast as a plain merge patch through their own client.
    pub(crate) async fn decides(&self, who: &str, approval: &Approval, decision: Value) -> Approval {
        let patch = json!({"spec": {"decisions": {named(who).unwrap().user: decision}}});
        let api = self.as_a::<Approval>(who).await;
        api.patch(&approval.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Waits until a run has ended, and returns it.
    pub(crate) async fn ended(&self, run: &str) -> Workflow {
        let over = |workflow: Option<&Workflow>| {
            workflow.and_then(|workflow| workflow.status.as_ref()).is_some_and(|status| status.phase.is_end())
        };
        self.until(run, "ends", over).await
    }
}

/// Returns the phase of a pod.
pub(crate) fn phase(pod: Option<&Pod>) -> Option<&str> {
    pod?.status.as_ref()?.phase.as_deref()
}
