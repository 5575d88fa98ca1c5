//! The quickstart example with the operator running: created, refused, decided by plain kubectl, continued; and its
//! behavior when it is cancelled, deleted, suspended or wrong.

use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Workflow, conditions};
use signoff_tests::control_plane::{Cluster, Finished, Namespace};
use signoff_tests::quickstart::{self, Letterbox, Posted};

const WORKFLOW: &str = "refund-4711";

/// One test's namespace on the cluster with an operator, and its letter box.
struct Scene {
    cluster: Cluster,
    namespace: Namespace,
    letterbox: Letterbox,
}

impl Scene {
    async fn open(prefix: &str) -> Self {
        let cluster = Cluster::operated().unwrap();
        let namespace = cluster.namespace(prefix).await.unwrap();
        Self { cluster, namespace, letterbox: Letterbox::open(0).await.unwrap() }
    }

    /// Opens the scene with a run of dana that waits. Also returns the Approval's name.
    async fn with_waiting_run(prefix: &str) -> (Self, String) {
        let scene = Self::open(prefix).await;
        let mut manifest = quickstart::manifest().unwrap();
        *quickstart::input(&mut manifest, "letterbox").unwrap() = scene.letterbox.url().into();
        let applied = scene.apply("dana", &manifest).await.ok().unwrap();
        assert_eq!(applied, "workflow.signoff.dev/refund-4711 created\n");
        scene.wait_until("condition=Waiting", &format!("workflow/{WORKFLOW}")).await;
        let approval = scene.workflow().await.status.unwrap().pending[0].clone();
        scene.wait_until("create", &format!("approval/{approval}")).await;
        (scene, approval)
    }

    async fn kubectl(&self, person: &str, words: &[&str]) -> Finished {
        let words = [words, &["--namespace", &self.namespace.name]].concat();
        self.cluster.kubectl(words).person(person).run().await.unwrap()
    }

    async fn apply(&self, person: &str, manifest: &Value) -> Finished {
        let words = ["apply", "--filename", "-", "--namespace", &self.namespace.name];
        self.cluster.kubectl(words).person(person).input(manifest.to_string()).run().await.unwrap()
    }

    async fn patch(&self, person: &str, object: &str, patch: Value) -> Finished {
        self.kubectl(person, &["patch", object, "--type=merge", "--patch", &patch.to_string()]).await
    }

    /// Writes a decision under a user name, by a plain merge patch.
    async fn decide(&self, person: &str, approval: &str, user: &str, decision: Value) -> Finished {
        self.patch(person, &format!("approval/{approval}"), json!({"spec": {"decisions": {user: decision}}})).await
    }

    /// Waits with `kubectl wait`, as people do.
    async fn wait_until(&self, what: &str, object: &str) {
        let wait = self.kubectl("admin", &["wait", &format!("--for={what}"), object, "--timeout=60s"]).await;
        if wait.code != 0 {
            let objects = self.kubectl("admin", &["get", "workflows,approvals", "--output=yaml"]).await;
            panic!("{object} never came to {what}: {}\n{}", wait.stderr, objects.stdout);
        }
    }

    async fn workflow(&self) -> Workflow {
        let workflows = Api::namespaced(self.cluster.admin().await.unwrap(), &self.namespace.name);
        workflows.get(WORKFLOW).await.unwrap()
    }

    async fn approval(&self, name: &str) -> Approval {
        Api::namespaced(self.cluster.admin().await.unwrap(), &self.namespace.name).get(name).await.unwrap()
    }

    async fn wait_for_event(&self, name: &str, reason: &str) -> String {
        let admin = self.cluster.admin().await.unwrap();
        quickstart::told(admin, &self.namespace.name, name, reason).await.unwrap()
    }
}

#[tokio::test]
async fn a_letter_is_sent_once_after_another_person_approved_it() {
    let (scene, approval) = Scene::with_waiting_run("quickstart").await;
    let got = scene.kubectl("viktor", &["get", "workflows,approvals"]).await.ok().unwrap();
    for column in ["PHASE", "REQUESTER", "MESSAGE", "waiting for", "HAVE", "NEED", "DEADLINE", "AGE"] {
        assert!(got.contains(column), "{got}");
    }
    let wide = scene.kubectl("viktor", &["get", "approvals", "-o", "wide"]).await.ok().unwrap();
    assert!(["WORKFLOW", "GATE", "DECIDED BY", "EXTENDED TO"].iter().all(|column| wide.contains(column)), "{wide}");
    assert!(got.contains("Waiting") && got.contains("Pending") && got.contains("dana@example.com"), "{got}");

    let approve = json!({"verdict": "Approve"});
    let outsider = scene.decide("mallory", &approval, "mallory@example.com", approve.clone()).await.refused().unwrap();
    assert!(outsider.contains("\"mallory@example.com\" cannot"), "{outsider}");
    scene.namespace.bind("signoff-approver", "dana@example.com").await.unwrap();
    let requester = scene.decide("dana", &approval, "dana@example.com", approve.clone()).await.refused().unwrap();
    assert!(requester.contains("the requester must not decide this gate (excludeRequester)"), "{requester}");
    let other = scene.decide("bob", &approval, "alice@example.com", approve.clone()).await.refused().unwrap();
    assert!(other.contains("only under your own user name"), "{other}");
    assert!(scene.approval(&approval).await.spec.decisions.is_empty());
    assert_eq!(scene.letterbox.posted(), []);

    scene.decide("alice", &approval, "alice@example.com", approve).await.ok().unwrap();
    scene.wait_until("condition=Complete", &format!("workflow/{WORKFLOW}")).await;
    let status = scene.workflow().await.status.unwrap();
    assert_eq!(status.outputs.as_deref(), Some("letter 1 posted, approved by alice@example.com"));
    assert_eq!(status.phase, WorkflowPhase::Succeeded);
    let letter = scene.approval(&approval).await.spec.request.reviews.unwrap().response;
    let body = json!({"to": "ACME Ltd", "letter": letter});
    let posted = scene.letterbox.posted();
    let [Posted { what, content_type, body: sent }] = posted.as_slice() else { panic!("{posted:?}") };
    assert_eq!((what.as_str(), content_type.as_str()), ("POST /letters", "application/json"));
    assert_eq!(serde_json::from_str::<Value>(sent).unwrap(), body);

    let got = scene.kubectl("viktor", &["get", "workflows,approvals", "-o", "wide"]).await.ok().unwrap();
    assert!(got.contains("Succeeded") && got.contains("alice@example.com"), "{got}");
    assert!(scene.wait_for_event(WORKFLOW, "ApprovalRequested").await.contains("Send this letter to ACME Ltd?"));
    scene.wait_for_event(WORKFLOW, "Succeeded").await;
    assert!(scene.wait_for_event(&approval, "Approved").await.contains("alice@example.com"));
    let described = scene.kubectl("admin", &["describe", "approval", &approval]).await.ok().unwrap();
    assert!(described.contains("Approve by alice@example.com") && described.contains("Source:   Human"), "{described}");
}

#[tokio::test]
async fn a_rejected_letter_is_never_sent() {
    let (scene, approval) = Scene::with_waiting_run("rejected").await;
    let no = json!({"verdict": "Reject", "reason": "wrong amount"});
    scene.decide("bob", &approval, "bob@example.com", no).await.ok().unwrap();
    scene.wait_until("condition=Failed", &format!("workflow/{WORKFLOW}")).await;
    let status = scene.workflow().await.status.unwrap();
    assert_eq!(status.phase, WorkflowPhase::Rejected);
    let message = status.message.unwrap();
    assert!(message.contains("bob@example.com") && message.contains("wrong amount"), "{message}");
    assert_eq!(scene.letterbox.posted(), []);
}

#[tokio::test]
async fn an_edited_letter_is_sent_as_it_was_edited() {
    let (scene, approval) = Scene::with_waiting_run("edited").await;
    // A text of people is data: it has the characters of a template and of the end of a JSON string.
    let text = "Dear ACME, {{ inputs.amount }} \"}, {\"to\": \"Mallory";
    let edit = json!({"verdict": "Modify", "parameters": {"response": text}});
    scene.decide("carol", &approval, "carol@example.com", edit).await.ok().unwrap();
    scene.wait_until("condition=Complete", &format!("workflow/{WORKFLOW}")).await;
    let posted = scene.letterbox.posted();
    assert_eq!(posted.len(), 1);
    assert_eq!(serde_json::from_str::<Value>(&posted[0].body).unwrap(), json!({"to": "ACME Ltd", "letter": text}));
}

#[tokio::test]
async fn a_cancelled_run_ends_and_a_late_approval_is_refused() {
    let (scene, approval) = Scene::with_waiting_run("cancelled").await;
    let workflow = format!("workflow/{WORKFLOW}");
    scene.patch("dana", &workflow, json!({"spec": {"cancel": true}})).await.ok().unwrap();
    scene.wait_until("condition=Finished", &workflow).await;
    scene.wait_until("jsonpath={.status.phase}=Cancelled", &format!("approval/{approval}")).await;
    let late =
        scene.decide("alice", &approval, "alice@example.com", json!({"verdict": "Approve"})).await.refused().unwrap();
    assert!(late.contains("too late: this gate was already decided"), "{late}");
    let status = scene.workflow().await.status.unwrap();
    assert_eq!((status.phase, status.pending.len()), (WorkflowPhase::Cancelled, 0));
    assert_eq!(scene.letterbox.posted(), []);
}

#[tokio::test]
async fn approvals_are_deleted_with_their_workflow() {
    let (scene, approval) = Scene::with_waiting_run("deleted").await;
    scene.kubectl("dana", &["delete", "workflow", WORKFLOW]).await.ok().unwrap();
    scene.wait_until("delete", &format!("approval/{approval}")).await;
    let late =
        scene.decide("alice", &approval, "alice@example.com", json!({"verdict": "Approve"})).await.refused().unwrap();
    assert!(late.contains("not found"), "{late}");
    assert_eq!(scene.letterbox.posted(), []);
}

#[tokio::test]
async fn a_suspended_run_can_be_decided_and_goes_on_when_it_is_resumed() {
    let (scene, approval) = Scene::with_waiting_run("suspended").await;
    let workflow = format!("workflow/{WORKFLOW}");
    scene.patch("dana", &workflow, json!({"spec": {"suspend": true}})).await.ok().unwrap();
    scene.wait_until("jsonpath={.status.phase}=Suspended", &workflow).await;
    scene.decide("alice", &approval, "alice@example.com", json!({"verdict": "Approve"})).await.ok().unwrap();
    scene.wait_until("jsonpath={.status.phase}=Approved", &format!("approval/{approval}")).await;
    scene.wait_for_event(&approval, "Approved").await;
    assert_eq!(scene.workflow().await.status.unwrap().phase, WorkflowPhase::Suspended);
    assert_eq!(scene.letterbox.posted(), []);

    scene.patch("dana", &workflow, json!({"spec": {"suspend": false}})).await.ok().unwrap();
    scene.wait_until("condition=Complete", &workflow).await;
    assert_eq!(scene.letterbox.posted().len(), 1);
    scene.wait_for_event(WORKFLOW, "Suspended").await;
    scene.wait_for_event(WORKFLOW, "Resumed").await;
}

#[tokio::test]
async fn an_invalid_spec_is_not_accepted_and_every_complaint_names_its_field() {
    let scene = Scene::open("invalid").await;
    let steps = json!([
        {"name": "draft", "agent": {"name": "writer", "input": "Write."}},
        {"name": "review", "skipIf": "inputs.amuont < 100", "hitl": {
            "prompt": "Send {{ steps.darft.response }}?", "approvers": [{"kind": "Group", "name": "finance"}], "reviews": "nothing"}},
        {"name": "done", "set": {"value": "{{ steps.review.respones }}"}},
    ]);
    let spec = json!({"steps": steps});
    let mut manifest =
        json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": WORKFLOW}, "spec": spec});
    scene.apply("dana", &manifest).await.ok().unwrap();
    scene.wait_until("condition=Accepted=False", &format!("workflow/{WORKFLOW}")).await;
    let workflow = scene.workflow().await;
    let status = workflow.status.clone().unwrap();
    let accepted = status.conditions.iter().find(|condition| condition.type_ == conditions::ACCEPTED).unwrap();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "Invalid"));
    for field in ["[0].agent.name", "[1].skipIf", "[1].hitl.prompt", "[1].hitl.reviews", "[2].set.value"] {
        let field = format!("spec.steps{field}: ");
        assert!(accepted.message.contains(&field), "{field} is not in: {}", accepted.message);
    }
    assert_eq!(status.phase, WorkflowPhase::Failed);
    assert!(conditions::holds(&status.conditions, conditions::FAILED), "{}", workflow.name_any());

    // An error that the schema can see is refused at once, by name.
    manifest["spec"]["patern"] = json!({});
    manifest["spec"]["steps"][0]["set"] = json!({"value": "two things at once"});
    let refused = scene.apply("dana", &manifest).await.refused().unwrap();
    assert!(refused.contains("unknown field \"spec.patern\""), "{refused}");
    manifest["spec"].as_object_mut().unwrap().remove("patern");
    manifest["metadata"]["name"] = json!("two-things");
    let refused = scene.apply("dana", &manifest).await.refused().unwrap();
    assert!(refused.contains("spec.steps draft: ") && refused.contains("must have exactly one of"), "{refused}");
}
