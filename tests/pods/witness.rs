//! Runs with Pods, for tests. The witness of a start is a file on the node, to which each container appends a line when
//! it begins, independent of the operator.

use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Value, json};
use signoff_api::journal::StepRecord;
use signoff_api::{Approval, Digest, Workflow, names};
use signoff_tests::control_plane::{Cluster, named};
use tempfile::TempDir;

use crate::harness::Harness;

/// The time within which an object must be deleted.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A namespace in which dana can create Pods.
pub(crate) struct Pods {
    pub(crate) harness: Harness,
    witness: TempDir,
}

impl Deref for Pods {
    type Target = Harness;

    fn deref(&self) -> &Harness {
        &self.harness
    }
}

/// Returns a step that runs a script in busybox, with these further fields of its container.
pub(crate) fn step(name: &str, script: &str, more: Value) -> Value {
    let pod =
        json!({"image": "busybox:1.36", "command": ["sh", "-c", script], "securityContext": {"runAsUser": 65534}});
    json!({"name": name, "pod": with(pod, more)})
}

/// Returns an object with more fields.
pub(crate) fn with(mut object: Value, more: Value) -> Value {
    for (field, value) in more.as_object().unwrap() {
        object[field] = value.clone();
    }
    object
}

/// Returns the newest record at a path.
pub(crate) fn record<'w>(run: &'w Workflow, path: &str) -> &'w StepRecord {
    let steps = &run.status.as_ref().unwrap().steps;
    steps.iter().rev().find(|record| record.path == path).unwrap_or_else(|| panic!("no record {path}: {steps:#?}"))
}

pub(crate) fn error_class(record: &StepRecord) -> &str {
    record.error.as_ref().map_or("", |error| &error.class)
}

/// Returns status, reason and message of a condition.
pub(crate) fn condition(run: Option<&Workflow>, kind: &str) -> Option<(String, String, String)> {
    let all = &run?.status.as_ref()?.conditions;
    let found = all.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

impl Pods {
    /// Opens a namespace on the suite's node.
    pub(crate) async fn open(prefix: &str) -> Self {
        Self::of(Harness::open(prefix).await, true).await
    }

    /// Opens a namespace on the suite's node, in which dana can create Workflows but no Pods.
    pub(crate) async fn without_rights(prefix: &str) -> Self {
        Self::of(Harness::open(prefix).await, false).await
    }

    /// Opens a namespace on a node of the test's own.
    pub(crate) async fn on(cluster: &Cluster, prefix: &str) -> Self {
        Self::of(Harness::on(cluster, prefix).await, true).await
    }

    async fn of(harness: Harness, rights: bool) -> Self {
        if rights {
            harness.namespace.bind("edit", named("dana").unwrap().user).await.unwrap();
        }
        let witness = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::set_permissions(witness.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        Self { harness, witness }
    }

    /// Returns the step with a container that first appends to the witness.
    pub(crate) fn with_witness(&self, mut step: Value) -> Value {
        let script = step["pod"]["command"][2].as_str().unwrap();
        step["pod"]["command"][2] = json!(format!("echo started >>/witness/starts; {script}"));
        let template = &mut step["pod"]["podTemplate"];
        template["spec"]["volumes"] = json!([{"name": "witness", "hostPath": {"path": self.witness.path()}}]);
        template["spec"]["containers"] =
            json!([{"name": "step", "volumeMounts": [{"name": "witness", "mountPath": "/witness"}]}]);
        step
    }

    /// Returns the step with a container that lives on until [`Self::let_go`]. The containerd of these tests (1.6.20)
    /// loses the output of a container in the moment in which it ends.
    pub(crate) fn hold_open(&self, mut step: Value) -> Value {
        let script = step["pod"]["command"][2].as_str().unwrap();
        step["pod"]["command"][2] = json!(format!("{script}; until [ -e /witness/go ]; do sleep 0.1; done"));
        self.with_witness(step)
    }

    /// Lets the held containers end.
    pub(crate) fn let_go(&self) {
        std::fs::write(self.witness.path().join("go"), "").unwrap();
    }

    /// Waits until the log of a run's container on the node has this line.
    pub(crate) async fn wait_for_line(&self, run: &str, line: &str) {
        let pod = self.wait_until_running(run).await.name_any();
        let follow = LogParams { follow: true, ..LogParams::default() };
        let mut lines = self.see::<Pod>().log_stream(&pod, &follow).await.unwrap().lines();
        let find_line = async {
            while let Some(written) = lines.try_next().await.unwrap() {
                if written == line {
                    return;
                }
            }
            panic!("{pod} ended without it");
        };
        let waited = tokio::time::timeout(TIMEOUT, find_line).await;
        waited.unwrap_or_else(|_| panic!("{pod} never wrote {line}"));
    }

    /// Returns how many containers have begun.
    pub(crate) fn starts(&self) -> usize {
        std::fs::read_to_string(self.witness.path().join("starts")).unwrap_or_default().lines().count()
    }

    /// Returns the Pods of a run, by the label that people use.
    pub(crate) async fn list(&self, run: &str) -> Vec<Pod> {
        let of_run = ListParams::default().labels(&format!("{}={run}", names::LABEL_WORKFLOW));
        self.see::<Pod>().list(&of_run).await.unwrap().items
    }

    /// Waits until the container of a run runs, and returns its Pod.
    pub(crate) async fn wait_until_running(&self, run: &str) -> Pod {
        let has_begun = |run: Option<&Workflow>| {
            let steps =
                run.and_then(|run| run.status.as_ref()).map(|status| status.steps.as_slice()).unwrap_or_default();
            steps.iter().any(|record| record.phase == signoff_api::journal::StepPhase::Started)
        };
        let run = self.until::<Workflow>(run, "begins a Pod", has_begun).await;
        let steps = run.status.unwrap().steps;
        let record = steps.iter().find(|record| record.phase == signoff_api::journal::StepPhase::Started).unwrap();
        let runs = |pod: Option<&Pod>| {
            let statuses =
                pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.container_statuses.as_ref());
            statuses.is_some_and(|statuses| {
                statuses.iter().any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
            })
        };
        self.until::<Pod>(record.object.as_deref().unwrap(), "runs", runs).await
    }

    /// Returns the run as it is now.
    pub(crate) async fn run(&self, name: &str) -> Workflow {
        self.see::<Workflow>().get(name).await.unwrap()
    }

    pub(crate) async fn approve(&self, approval: &Approval) {
        self.decides("alice", approval, json!({"verdict": "Approve"})).await;
    }

    /// Sends a decision, and returns the API server's answer.
    pub(crate) async fn try_decide(&self, who: &str, approval: &Approval, decision: Value) -> kube::Result<Approval> {
        let patch = json!({"spec": {"decisions": {named(who).unwrap().user: decision}}});
        let api = self.as_a::<Approval>(who).await;
        api.patch(&approval.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await
    }

    /// Creates a run as dana, and returns the API server's answer.
    pub(crate) async fn try_request(&self, name: &str, spec: Value) -> kube::Result<Workflow> {
        let spec = with(spec, json!({"requestedBy": ""}));
        let workflow =
            json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec});
        let api = self.as_a::<Workflow>("dana").await;
        api.create(&PostParams::default(), &serde_json::from_value(workflow).unwrap()).await
    }

    /// Changes a run as dana.
    pub(crate) async fn patch(&self, run: &str, patch: Value) {
        let api = self.as_a::<Workflow>("dana").await;
        api.patch(run, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Returns the output of kubectl.
    pub(crate) async fn kubectl(&self, words: &[&str]) -> String {
        let words = [&["-n", &self.namespace.name], words].concat();
        self.cluster.kubectl(words).run().await.unwrap().ok().unwrap()
    }

    /// Waits until no container of a run runs.
    pub(crate) async fn wait_until_none_runs(&self, run: &str) {
        for pod in self.list(run).await {
            let over =
                |pod: Option<&Pod>| pod.is_none() || matches!(crate::harness::phase(pod), Some("Failed" | "Succeeded"));
            let name = pod.name_any();
            let waited = tokio::time::timeout(TIMEOUT, await_condition(self.see::<Pod>(), &name, over)).await;
            waited.unwrap_or_else(|_| panic!("{name} still runs")).unwrap();
        }
    }

    /// Waits until a run has no Pod any more.
    pub(crate) async fn wait_until_no_pod(&self, run: &str) {
        for pod in self.list(run).await {
            let (name, uid) = (pod.name_any(), pod.uid().unwrap());
            let gone = conditions::is_deleted(&uid);
            let waited = tokio::time::timeout(TIMEOUT, await_condition(self.see::<Pod>(), &name, gone)).await;
            waited.unwrap_or_else(|_| panic!("{name} stays")).unwrap();
        }
        assert!(self.list(run).await.is_empty());
    }

    /// Waits until all Pods but those of these steps are deleted, and checks that each of these steps has one.
    pub(crate) async fn wait_for_remaining(&self, run: &str, steps: &[&str]) {
        let label = |pod: &Pod| pod.labels().get(names::LABEL_STEP).cloned().unwrap_or_default();
        for pod in self.list(run).await.into_iter().filter(|pod| !steps.contains(&label(pod).as_str())) {
            let (name, uid) = (pod.name_any(), pod.uid().unwrap());
            let gone = conditions::is_deleted(&uid);
            let waited = tokio::time::timeout(TIMEOUT, await_condition(self.see::<Pod>(), &name, gone)).await;
            waited.unwrap_or_else(|_| panic!("{name} stays")).unwrap();
        }
        let mut remaining: Vec<_> = self.list(run).await.iter().map(label).collect();
        remaining.sort();
        assert_eq!(remaining, steps, "{run}");
    }

    /// Returns a large value of a run.
    pub(crate) async fn value(&self, run: &Workflow, digest: &str) -> String {
        let digest: Digest = serde_json::from_value(json!(digest)).unwrap();
        let name = names::blob(&run.name_any(), run.uid().as_deref().unwrap(), &digest);
        let blob = self.see::<signoff_api::Blob>().get(&name).await.unwrap();
        String::from_utf8(blob.spec.into_bytes()).unwrap()
    }

    /// Waits until the namespace is gone.
    pub(crate) async fn wait_until_namespace_is_gone(&self) {
        let api: Api<Namespace> = Api::all(self.cluster.admin().await.unwrap());
        let name = &self.namespace.name;
        let gone = |namespace: Option<&Namespace>| namespace.is_none();
        let waited = tokio::time::timeout(TIMEOUT, await_condition(api.clone(), name, gone)).await;
        if waited.is_err() {
            panic!("{:#?}", api.get_opt(name).await);
        }
    }
}
