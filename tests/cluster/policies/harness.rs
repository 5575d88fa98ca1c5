//! The harness of one test: a namespace of its own, Approvals created as the operator creates them, and people who act.
//! It returns the answers of the API server.

use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::{Approval, ApprovalRequest, ApprovalSpec, ApprovalStatus, Workflow, names};
use signoff_engine::{
    Now,
    approval::{OwnerState, tally},
};
use signoff_tests::control_plane::{Cluster, Namespace, named};

/// The answer of the API server: the object, or its refusal.
pub(crate) type Answer<T> = Result<T, String>;

/// One test's namespace, and the operator's own client.
pub(crate) struct Harness {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: Namespace,
    pub(crate) operator: Client,
    asked: AtomicU32,
}

impl Harness {
    pub(crate) async fn open(prefix: &str) -> Self {
        let cluster = Cluster::shared().unwrap();
        let namespace = cluster.namespace(prefix).await.unwrap();
        let operator = cluster.operator_client().await.unwrap();
        Self { cluster, namespace, operator, asked: AtomicU32::new(0) }
    }

    /// Returns a client of a person of the cast.
    pub(crate) async fn client(&self, who: &str) -> Client {
        self.cluster.token_client(who).await.unwrap()
    }

    pub(crate) async fn approvals(&self, who: &str) -> Api<Approval> {
        Api::namespaced(self.client(who).await, &self.namespace.name)
    }

    pub(crate) fn approvals_of_operator(&self) -> Api<Approval> {
        Api::namespaced(self.operator.clone(), &self.namespace.name)
    }

    pub(crate) async fn workflows(&self, who: &str) -> Api<Workflow> {
        Api::namespaced(self.client(who).await, &self.namespace.name)
    }

    /// Creates an Approval for alice and bob (threshold 1), with these further fields of the request. Two equal
    /// questions are two visits of the gate, as they would be in a run.
    pub(crate) async fn ask(&self, mut fields: Value) -> Approval {
        let visit = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        fields["gate"] = json!({"name": "review", "type": "step", "path": "review", "visit": visit});
        let approval = approval(fields);
        self.approvals_of_operator().create(&PostParams::default(), &approval).await.unwrap()
    }

    /// Records a decision of a person of the cast under their own name, by a plain merge patch.
    pub(crate) async fn decide(&self, who: &str, approval: &Approval, decision: Value) -> Answer<Approval> {
        let user = named(who).unwrap().user;
        self.patch(who, approval, json!({"spec": {"decisions": {user: decision}}})).await
    }

    /// Sends any merge patch of a person of the cast.
    pub(crate) async fn patch(&self, who: &str, approval: &Approval, patch: Value) -> Answer<Approval> {
        let api = self.approvals(who).await;
        to_answer(api.patch(&approval.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    /// Writes a status as the operator, by a merge patch.
    pub(crate) async fn status(&self, approval: &Approval, status: Value) -> Answer<Approval> {
        let patch = Patch::Merge(json!({"status": status}));
        let api = self.approvals_of_operator();
        to_answer(api.patch_status(&approval.name_any(), &PatchParams::default(), &patch).await)
    }

    /// Creates a one-step Workflow of a person of the cast, with these further fields of the spec.
    pub(crate) async fn request(&self, who: &str, name: &str, fields: Value) -> Answer<Workflow> {
        let workflow = serde_json::from_value(workflow(name, fields)).unwrap();
        to_answer(self.workflows(who).await.create(&PostParams::default(), &workflow).await)
    }

    /// Grants a rule of a ClusterRole to one user in the namespace, and waits until it is effective.
    pub(crate) async fn grant(&self, user: &str, rule: Value) {
        let admin = self.client("admin").await;
        let role = json!({"metadata": {"generateName": "signoff-test-"}, "rules": [rule]});
        let roles: Api<ClusterRole> = Api::all(admin.clone());
        let role = roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
        self.namespace.bind(&role.name_any(), user).await.unwrap();
        // The authorizer follows roles by another watch than bindings, and neither has an event to wait for.
        let first = |field: &str| rule[field][0].clone();
        let question = json!({"spec": {"user": user, "resourceAttributes": {
            "namespace": self.namespace.name, "group": first("apiGroups"), "resource": first("resources"),
            "verb": first("verbs"), "name": first("resourceNames"),
        }}});
        let question: SubjectAccessReview = serde_json::from_value(question).unwrap();
        let reviews: Api<SubjectAccessReview> = Api::all(admin);
        for _ in 0..1000 {
            let answer = reviews.create(&PostParams::default(), &question).await.unwrap();
            if answer.status.is_some_and(|status| status.allowed) {
                return;
            }
        }
        panic!("{rule} is not in force for {user} after 1000 questions");
    }
}

/// Returns the answer, or the API server's refusal.
pub(crate) fn to_answer<T>(answer: kube::Result<T>) -> Answer<T> {
    answer.map_err(|error| match error {
        kube::Error::Api(status) => status.message,
        other => panic!("not an answer of the API server: {other}"),
    })
}

/// Returns the status to which the votes of an Approval lead now.
pub(crate) fn count_votes(approval: &Approval) -> ApprovalStatus {
    let now = Now::new(jiff::Timestamp::now().into(), approval.guard_epoch().to_owned());
    tally(approval, OwnerState::Live, &now).status
}

/// Asserts that the API server refused with these words.
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(answer: Answer<T>, words: &str) {
    match answer {
        Err(message) => assert!(message.contains(words), "refused, but not because of {words:?}: {message}"),
        Ok(object) => panic!("accepted, and should have been refused with {words:?}: {object:?}"),
    }
}

/// Returns an Approval as the operator would create it. Fields of a quorum are those of the first one; `further` lists
/// more quorums.
pub(crate) fn approval(fields: Value) -> Approval {
    let mut request = json!({
        "workflow": {"name": "refund", "uid": "00000000-0000-4000-8000-000000000000"},
        "gate": {"name": "review", "type": "step", "path": "review", "visit": 1},
        "specDigest": format!("sha256:{}", "0".repeat(64)),
        "guardEpoch": "epoch",
        "deadline": "2100-01-01T00:00:00Z",
        "prompt": "Send it?",
        "allowedVerdicts": ["Approve", "Reject", "Modify", "Respond", "Defer", "Escalate", "Abort", "Skip", "Retry"],
        "quorums": [{"source": "gate review", "approvers": [user("alice"), user("bob")], "threshold": 1}],
        "requestedBy": "dana@example.com",
        "timeout": {"after": "24h", "action": "Reject"},
        "digest": format!("sha256:{}", "0".repeat(64)),
    });
    for (name, value) in fields.as_object().into_iter().flatten() {
        match name.as_str() {
            "approvers" | "threshold" | "requiredFrom" | "rejectPolicy" | "excludeRequester" => {
                request["quorums"][0][name] = value.clone();
            }
            "further" => request["quorums"].as_array_mut().unwrap().extend(value.as_array().unwrap().clone()),
            _ => request[name] = value.clone(),
        }
    }
    let mut request: ApprovalRequest = serde_json::from_value(request).unwrap();
    request.digest = request.digest_of_the_rest().unwrap();
    let name = names::approval("refund", "review", &request.digest);
    Approval::new(&name, ApprovalSpec { request, decisions: Default::default() })
}

/// Returns a Workflow as a person would write it; `requestedBy` is empty, so it is stamped.
pub(crate) fn workflow(name: &str, fields: Value) -> Value {
    let mut spec = json!({"requestedBy": "", "steps": [{"name": "only", "set": {"value": "1"}}]});
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec})
}

/// Returns a person of the cast as an approver by user name.
pub(crate) fn user(who: &str) -> Value {
    json!({"kind": "User", "name": named(who).unwrap().user})
}

/// Returns a group as an approver.
pub(crate) fn group(name: &str) -> Value {
    json!({"kind": "Group", "name": name})
}
