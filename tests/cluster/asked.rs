//! A namespace with Approvals as the operator would create them, for tests of how people decide.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures::StreamExt;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::approval::Invalid;
use signoff_api::{Approval, ApprovalRequest, ApprovalSpec, Blob, Digest, Workflow};
use signoff_engine::Now;
use signoff_engine::approval::{OwnerState, tally};
use signoff_tests::control_plane::{Cluster, Finished, Invocation, Namespace, named, program};
use tokio::sync::OnceCell;

/// Waits until the API server allows what `question` asks. A new binding takes effect by a watch, which no event
/// reports.
///
/// # Panics
/// The API server still refuses after 1,000 questions.
pub(crate) async fn wait_until_allowed(cluster: &Cluster, question: &SubjectAccessReview) {
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.admin().await.unwrap());
    for _ in 0..1000 {
        let answer = reviews.create(&PostParams::default(), question).await.unwrap();
        if answer.status.is_some_and(|status| status.allowed) {
            return;
        }
    }
    panic!("not allowed after 1000 questions: {:?}", question.spec);
}

/// The namespace of one test.
pub(crate) struct Place {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: Namespace,
    operator: Client,
    /// The uid of the run of all requests, once it exists.
    run: OnceCell<String>,
    asked: AtomicU32,
    counts: AtomicBool,
}

impl Place {
    /// Creates a namespace on the suite's control plane, on which no operator runs.
    pub(crate) async fn shared(prefix: &str) -> Self {
        Self::on(Cluster::shared().unwrap(), prefix).await
    }

    /// Creates a namespace on this cluster, on which the chart is installed.
    pub(crate) async fn on(cluster: Cluster, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await.unwrap();
        let operator = cluster.operator_client().await.unwrap();
        Self {
            cluster,
            namespace,
            operator,
            run: OnceCell::new(),
            asked: AtomicU32::new(1),
            counts: AtomicBool::new(false),
        }
    }

    /// Creates an Approval about a refund with the approvers alice and the group finance, threshold 1, every verdict,
    /// and a deadline after a day. `change` changes it before it gets its digest and name. Returns the name. Every
    /// Approval names a spec of its own, so that equal questions have different names.
    pub(crate) async fn ask(&self, change: impl FnOnce(&mut ApprovalRequest)) -> String {
        let mut request = refund();
        let run = self.run.get_or_init(|| create_run(&self.cluster, &self.namespace.name)).await;
        request.workflow.uid.clone_from(run);
        request.spec_digest = Digest::of_bytes(&self.asked.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        change(&mut request);
        request.digest = request.digest_of_the_rest().unwrap();
        let name = format!("refund-4711-review-{}", request.digest.short(10));
        let mut approval = Approval::new(&name, ApprovalSpec { request, decisions: [].into() });
        approval.metadata.namespace = Some(self.namespace.name.clone());
        self.approvals().create(&PostParams::default(), &approval).await.unwrap();
        name
    }

    /// Replaces the conditions of the run of all requests, as the operator.
    pub(crate) async fn set_run_conditions(&self, conditions: Value) {
        let runs: Api<Workflow> = Api::namespaced(self.operator.clone(), &self.namespace.name);
        let mut run = serde_json::to_value(runs.get("refund-4711").await.unwrap()).unwrap();
        run["status"]["conditions"] = conditions;
        let run: Workflow = serde_json::from_value(run).unwrap();
        runs.replace_status("refund-4711", &PostParams::default(), &run).await.unwrap();
    }

    /// Gives the Git controller of the cast the verb `delegate` on one person in this namespace, and waits until the
    /// binding takes effect.
    pub(crate) async fn let_flux_decide_for(&self, person: &str) {
        let flux = "--serviceaccount=flux-system:kustomize-controller";
        let namespace = self.namespace.name.as_str();
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "speaks", "namespace": namespace},
            "rules": [{"apiGroups": ["signoff.dev"], "resources": ["people"], "resourceNames": [person], "verbs": ["delegate"]}],
        });
        self.cluster.kubectl(["apply", "-f", "-"]).input(role.to_string()).run().await.unwrap().ok().unwrap();
        let bind = ["create", "rolebinding", "speaks", "--role=speaks", flux, "--namespace", namespace];
        self.cluster.kubectl(bind).run().await.unwrap().ok().unwrap();
        let flux = "system:serviceaccount:flux-system:kustomize-controller";
        let question: SubjectAccessReview = serde_json::from_value(json!({"spec": {"user": flux, "resourceAttributes": {
            "namespace": namespace, "group": "signoff.dev", "resource": "people", "verb": "delegate", "name": person,
        }}}))
        .unwrap();
        wait_until_allowed(&self.cluster, &question).await;
    }

    /// Returns the Approvals of the namespace, as the operator.
    pub(crate) fn approvals(&self) -> Api<Approval> {
        Api::namespaced(self.operator.clone(), &self.namespace.name)
    }

    /// Returns the Blobs of the namespace, as the operator.
    pub(crate) fn blobs(&self) -> Api<Blob> {
        Api::namespaced(self.operator.clone(), &self.namespace.name)
    }

    /// Returns one Approval as it is stored now.
    pub(crate) async fn stored(&self, name: &str) -> Approval {
        self.approvals().get(name).await.unwrap()
    }

    /// Records a decision of a person of the cast by a plain merge patch.
    pub(crate) async fn record(&self, person: &str, name: &str, decision: Value) {
        let approvals: Api<Approval> =
            Api::namespaced(self.cluster.token_client(person).await.unwrap(), &self.namespace.name);
        let patch = json!({"spec": {"decisions": {named(person).unwrap().user: decision}}});
        approvals.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Marks the first attempt of a person of the cast as invalid, as the operator.
    pub(crate) async fn invalidate(&self, person: &str, name: &str, why: &str) {
        let mut found = self.stored(name).await;
        let invalid = Invalid { attempt: 1, why: why.to_owned() };
        found.status.get_or_insert_default().invalid.insert(named(person).unwrap().user.to_owned(), invalid);
        self.approvals().replace_status(name, &PostParams::default(), &found).await.unwrap();
    }

    /// Waits until a decision was found invalid by [`Place::start_counting`].
    pub(crate) async fn wait_until_found_invalid(&self, name: &str) {
        let is_invalid = |found: Option<&Approval>| {
            found.and_then(|found| found.status.as_ref()).is_some_and(|status| !status.invalid.is_empty())
        };
        let waiting = await_condition(self.approvals(), name, is_invalid);
        tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await.unwrap().unwrap();
    }

    /// Counts decisions here as the operator does, and by the same function, until the result is dropped. An
    /// operator would cancel the Approvals instead, because the journal of their run does not name them.
    pub(crate) fn start_counting(&self) -> Counting {
        self.counts.store(true, Ordering::Relaxed);
        let approvals = self.approvals();
        Counting(tokio::spawn(async move {
            let mut changed = pin!(watcher(approvals.clone(), watcher::Config::default()).applied_objects());
            while let Some(found) = changed.next().await {
                let Ok(mut approval) = found else { continue };
                if approval.spec.decisions.is_empty() {
                    continue;
                }
                let now = Now::new(jiff::Timestamp::now().into(), approval.guard_epoch().to_owned());
                let counted = tally(&approval, OwnerState::Live, &now);
                if counted.changed {
                    approval.status = Some(counted.status);
                    // A conflict is another change, which the watch reports.
                    let name = approval.name_any();
                    let _ = approvals.replace_status(&name, &PostParams::default(), &approval).await;
                }
            }
        }))
    }

    /// Returns a call of `kubectl approve …` by the real kubectl, as this person, in this namespace.
    pub(crate) fn plugin(&self, person: &str, arguments: &[&str]) -> Invocation {
        let program = plugin();
        let folder = program.parent().unwrap();
        let mut words = vec!["approve"];
        words.extend(arguments);
        words.extend(["--namespace", &self.namespace.name]);
        let invocation = self.cluster.kubectl(words).search(folder).person(person);
        // On a busy machine the decisions may be counted late.
        if self.counts.load(Ordering::Relaxed) { invocation.env("SIGNOFF_DEFAULT_WAIT", "1m") } else { invocation }
    }

    /// Runs `kubectl approve …` as this person, in this namespace.
    pub(crate) async fn approve(&self, person: &str, arguments: &[&str]) -> Finished {
        self.plugin(person, arguments).run().await.unwrap()
    }
}

/// The task that counts decisions until it is dropped.
pub(crate) struct Counting(tokio::task::JoinHandle<()>);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the plugin's path, and builds it if it is missing.
pub(crate) fn plugin() -> std::path::PathBuf {
    program("signoff-cli", "kubectl-approve").unwrap()
}

/// Creates the run of the requests, which no operator starts, and returns its uid.
async fn create_run(cluster: &Cluster, namespace: &str) -> String {
    let run = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "refund-4711"},
        "spec": {"requestedBy": "dana@example.com", "steps": [{"name": "only", "set": {"value": "1"}}]}});
    let runs: Api<Workflow> = Api::namespaced(cluster.token_client("dana").await.unwrap(), namespace);
    let run = runs.create(&PostParams::default(), &serde_json::from_value(run).unwrap()).await.unwrap();
    run.uid().unwrap()
}

fn refund() -> ApprovalRequest {
    let deadline = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24);
    let zeros = format!("sha256:{}", "0".repeat(64));
    let letter = "Dear ACME,\nwe refund 420 EUR.";
    serde_json::from_value(json!({
        "workflow": {"name": "refund-4711", "uid": "6f1c3e5a-0000-4000-8000-000000000001"},
        "gate": {"name": "review", "type": "step", "path": "review", "visit": 1},
        "specDigest": zeros,
        "guardEpoch": "epoch-of-a-test",
        "deadline": deadline.to_string(),
        "prompt": "Send this letter to ACME?",
        "context": "Dear ACME,\nwe refund 420 EUR.",
        "reviews": {"path": "draft", "response": letter, "digest": Digest::of_bytes(letter.as_bytes())},
        "allowedVerdicts": ["Approve", "Reject", "Modify", "Respond", "Defer", "Escalate", "Abort", "Skip", "Retry"],
        "quorums": [{
            "source": "gate review",
            "approvers": [{"kind": "User", "name": "alice@example.com"}, {"kind": "Group", "name": "finance"}],
            "threshold": 1,
        }],
        "requestedBy": "dana@example.com",
        "form": {"questions": [{"id": "answer"}]},
        "timeout": {"after": "24h", "action": "Reject"},
        "escalateTo": [{"kind": "Group", "name": "sre"}],
        "digest": zeros,
    }))
    .unwrap()
}
