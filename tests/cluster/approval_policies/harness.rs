//! One test's namespace on the cluster with an operator, policies that hold only there, and runs under them. A run
//! that a policy refuses shows that the operator applies the policy.

use std::sync::atomic::{AtomicU32, Ordering};

use kube::{
    Client, ResourceExt,
    api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use signoff_api::{Approval, ApprovalPolicy, ApprovalRequest, ClusterApprovalPolicy, Workflow, conditions};
use signoff_tests::control_plane::{Cluster, Finished, Namespace, named};

use crate::asked::plugin;

/// The tags of the policies of a test. The policy of a tag forbids the host of its tag, and allows the hosts of the
/// other tags. A run that calls the host thus shows whether the operator applies the policy.
const TAGS: [&str; 3] = ["alpha", "beta", "gamma"];

pub(crate) struct Harness {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: Namespace,
    admin: Client,
    canaries: AtomicU32,
}

fn canary_host(tag: &str) -> String {
    format!("{tag}.canary.test")
}

/// Returns a `hitl` step that the group finance decides, with further fields.
pub(crate) fn gate(name: &str, more: Value) -> Value {
    let mut hitl = json!({"prompt": "Go on?", "approvers": [{"kind": "Group", "name": "finance"}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        hitl[field] = value.clone();
    }
    json!({"name": name, "hitl": hitl})
}

/// Returns a decision that names a group, as `kubectl approve` does.
pub(crate) fn approve(groups: &[&str]) -> Value {
    json!({"verdict": "Approve", "groups": groups})
}

impl Harness {
    pub(crate) async fn open(prefix: &str) -> Self {
        let cluster = Cluster::operated().unwrap();
        let namespace = cluster.namespace(prefix).await.unwrap();
        let admin = cluster.admin().await.unwrap();
        Self { cluster, namespace, admin, canaries: AtomicU32::new(0) }
    }

    pub(crate) fn workflows(&self) -> Api<Workflow> {
        Api::namespaced(self.admin.clone(), &self.namespace.name)
    }

    pub(crate) fn approvals(&self) -> Api<Approval> {
        Api::namespaced(self.admin.clone(), &self.namespace.name)
    }

    fn policies(&self) -> Api<ClusterApprovalPolicy> {
        Api::all(self.admin.clone())
    }

    /// Returns the name of a policy of the cluster, which no other test has.
    pub(crate) fn policy_name(&self, tag: &str) -> String {
        format!("{}-{tag}", self.namespace.name)
    }

    /// Sets a policy of the cluster for this namespace, and waits until the operator applies it.
    pub(crate) async fn create_cluster_policy(&self, tag: &str, mut spec: Value) {
        spec["match"]["namespaceSelector"] =
            json!({"matchLabels": {"kubernetes.io/metadata.name": self.namespace.name}});
        let policy =
            ClusterApprovalPolicy::new(&self.policy_name(tag), serde_json::from_value(add_hosts(tag, spec)).unwrap());
        self.policies().create(&PostParams::default(), &policy).await.unwrap();
        self.wait_until_applied(tag, true).await;
    }

    /// Sets the policy of an example for this namespace.
    pub(crate) async fn create_example_policy(&self, tag: &str, file: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/policies").join(file);
        let policy: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        self.create_cluster_policy(tag, policy["spec"].clone()).await;
    }

    /// Sets a policy in this namespace, and waits until the operator applies it.
    pub(crate) async fn create_namespace_policy(&self, tag: &str, spec: Value) {
        let policy = ApprovalPolicy::new(tag, serde_json::from_value(add_hosts(tag, spec)).unwrap());
        let policies: Api<ApprovalPolicy> = Api::namespaced(self.admin.clone(), &self.namespace.name);
        policies.create(&PostParams::default(), &policy).await.unwrap();
        self.wait_until_applied(tag, true).await;
    }

    pub(crate) async fn delete_cluster_policy(&self, tag: &str) {
        self.policies().delete(&self.policy_name(tag), &DeleteParams::default()).await.unwrap();
        self.wait_until_applied(tag, false).await;
    }

    /// Waits until the operator applies a policy (`holds`), or no longer applies it. Each attempt creates and deletes a
    /// run that the policy refuses.
    async fn wait_until_applied(&self, tag: &str, holds: bool) {
        for _ in 0..200 {
            let name = format!("canary-{}", self.canaries.fetch_add(1, Ordering::Relaxed));
            let call = json!({"name": "call", "http": {"url": format!("https://{}/", canary_host(tag))}});
            self.create_run_as("dana", &name, json!({"suspend": true, "steps": [call]})).await;
            let run = self.wait_for_workflow(&name, |run| reason(run, conditions::ACCEPTED).is_some()).await;
            self.workflows().delete(&name, &DeleteParams::default()).await.unwrap();
            if (reason(&run, conditions::ACCEPTED).as_deref() == Some("NotAllowed")) == holds {
                return;
            }
        }
        panic!("after 200 questions the operator does not go by {tag} ({holds})");
    }

    /// Creates a run as a person of the cast.
    pub(crate) async fn create_run_as(&self, who: &str, name: &str, mut spec: Value) -> Workflow {
        let client = self.cluster.token_client(who).await.unwrap();
        spec["requestedBy"] = json!(named(who).unwrap().user);
        let workflow =
            json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec});
        let workflows: Api<Workflow> = Api::namespaced(client, &self.namespace.name);
        workflows.create(&PostParams::default(), &serde_json::from_value(workflow).unwrap()).await.unwrap()
    }

    /// Creates a run of these steps as dana.
    pub(crate) async fn create_run(&self, name: &str, steps: Value) {
        self.create_run_as("dana", name, json!({"steps": steps})).await;
    }

    pub(crate) async fn wait_for_workflow(&self, name: &str, is: impl Fn(&Workflow) -> bool) -> Workflow {
        let found = await_condition(self.workflows(), name, |run: Option<&Workflow>| run.is_some_and(&is));
        found.await.unwrap().unwrap()
    }

    pub(crate) async fn wait_for_end(&self, name: &str) -> Workflow {
        self.wait_for_workflow(name, |run| run.status.as_ref().is_some_and(|status| status.phase.is_end())).await
    }

    /// Returns the request of a gate, once the run waits for it.
    pub(crate) async fn wait_for_gate(&self, name: &str, path: &str) -> (String, ApprovalRequest) {
        let waits = |run: &Workflow| {
            let records = run.status.iter().flat_map(|status| &status.steps);
            let record = records.into_iter().find(|record| record.path == path && !record.phase.is_end());
            record.and_then(|record| record.object.clone())
        };
        let run = self.wait_for_workflow(name, |run| waits(run).is_some()).await;
        let object = waits(&run).unwrap();
        let there = |approval: Option<&Approval>| approval.is_some();
        let request = await_condition(self.approvals(), &object, there).await.unwrap().unwrap().spec.request;
        (object, request)
    }

    /// Sends a decision of a person of the cast as a plain merge patch. Returns the API server's refusal as the error.
    pub(crate) async fn decide(&self, who: &str, approval: &str, decision: Value) -> Result<(), String> {
        let client = self.cluster.token_client(who).await.unwrap();
        let approvals: Api<Approval> = Api::namespaced(client, &self.namespace.name);
        let patch = json!({"spec": {"decisions": {named(who).unwrap().user: decision}}});
        match approvals.patch(approval, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(other) => panic!("not an answer of the API server: {other}"),
        }
    }

    /// Waits until the operator has counted the vote under this key.
    pub(crate) async fn wait_until_counted(&self, approval: &str, key: &str) -> Approval {
        let is = |approval: Option<&Approval>| {
            approval.and_then(|a| a.status.as_ref()).is_some_and(|s| s.votes.iter().any(|vote| vote.key == key))
        };
        await_condition(self.approvals(), approval, is).await.unwrap().unwrap()
    }

    /// Returns the number of Approvals of a run.
    pub(crate) async fn count_of_approvals(&self, run: &str) -> usize {
        let all = self.approvals().list(&ListParams::default()).await.unwrap();
        all.items.iter().filter(|approval| approval.spec.request.workflow.name == run).count()
    }

    /// Runs `kubectl approve …` by the real kubectl.
    pub(crate) async fn plugin(&self, who: &str, arguments: &[&str]) -> Finished {
        let program = plugin();
        let words = [&["approve"], arguments, &["--namespace", &self.namespace.name]].concat();
        self.cluster.kubectl(words).search(program.parent().unwrap()).person(who).run().await.unwrap()
    }

    /// Runs `kubectl create` of one object as a person of the cast.
    pub(crate) async fn create(&self, who: &str, object: &Value) -> Finished {
        let words = ["create", "-f", "-", "--namespace", &self.namespace.name];
        self.cluster.kubectl(words).person(who).input(object.to_string()).run().await.unwrap()
    }
}

/// Adds the hosts of the other tags to the allowed hosts of a policy.
fn add_hosts(tag: &str, mut spec: Value) -> Value {
    let others = TAGS.into_iter().filter(|other| *other != tag).map(canary_host);
    let mut hosts: Vec<Value> = others.map(Value::from).collect();
    hosts.extend(spec["allowedHosts"].as_array().cloned().unwrap_or_default());
    spec["allowedHosts"] = hosts.into();
    spec
}

/// Returns the reason of one of a run's conditions.
pub(crate) fn reason(run: &Workflow, kind: &str) -> Option<String> {
    let conditions = &run.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.reason.clone())
}

/// Returns a run's message, or its name without one.
pub(crate) fn message(run: &Workflow) -> String {
    run.status.as_ref().and_then(|status| status.message.clone()).unwrap_or_else(|| run.name_any())
}
