//! The examples on a real API server. Those that need only people and time are run with the operator; those with
//! containers need a kubelet, and are run in `tests/pods`. Only the timeouts of gates and the address of the model are
//! changed.

use std::path::{Path, PathBuf};

use futures::StreamExt;
use kube::api::{Api, ListParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use signoff_api::approval::ApprovalPhase;
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::{Cluster, Namespace, OPERATOR_ACCOUNT, OPERATOR_NAMESPACE, named};
use signoff_tests::crm::Crm;

use crate::story::{Example, examples, story};

/// The longest time in which an example may do nothing.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// One example in a namespace of its own on the cluster with an operator.
struct Running {
    cluster: Cluster,
    namespace: Namespace,
    name: String,
}

impl Running {
    /// Applies the example as dana; gates that wait for seconds wait for one.
    async fn start(file: &str) -> Self {
        Self::of(file, &std::fs::read_to_string(folder().join(file)).unwrap()).await
    }

    async fn of(file: &str, text: &str) -> Self {
        let run = Self::in_new_namespace(file).await;
        run.apply(text).await;
        run
    }

    /// Creates the namespace alone, for examples that need other objects in it.
    async fn in_new_namespace(file: &str) -> Self {
        let cluster = Cluster::operated().unwrap();
        let name = Path::new(file).file_stem().unwrap().to_str().unwrap().to_owned();
        let namespace = cluster.namespace(&name).await.unwrap();
        Self { cluster, namespace, name }
    }

    async fn apply(&self, text: &str) {
        // The timeout is shorter, but longer than an API server takes to create an Approval, because a gate that asks
        // late asks again.
        let text = text.replace("after: 10s", "after: 4s");
        let words = ["apply", "--filename", "-", "--namespace", &self.namespace.name];
        self.cluster.kubectl(words).person("dana").input(text).run().await.unwrap().ok().unwrap();
    }

    /// Runs kubectl as an administrator of the namespace.
    async fn run_as_admin(&self, words: &[&str]) {
        let words = [words, &["--namespace", &self.namespace.name]].concat();
        self.cluster.kubectl(words).run().await.unwrap().ok().unwrap();
    }

    async fn wait_until(&self, what: &str, object: &str) {
        let words = ["wait", &format!("--for={what}"), object, "--timeout=60s", "--namespace", &self.namespace.name];
        let wait = self.cluster.kubectl(words).run().await.unwrap();
        if wait.code != 0 {
            let words = ["get", "workflows,approvals", "--output=yaml", "--namespace", &self.namespace.name];
            let objects = self.cluster.kubectl(words).run().await.unwrap();
            panic!("{object} never came to {what}: {}\n{}", wait.stderr, objects.stdout);
        }
    }

    /// Returns the Approval of this visit of a gate, once the run waits for it.
    async fn wait_for_gate(&self, path: &str) -> String {
        let waits = format!(r#"jsonpath={{.status.steps[?(@.path=="{path}")].phase}}=Waiting"#);
        self.wait_until(&waits, &format!("workflow/{}", self.name)).await;
        let records = self.workflow().await.status.unwrap().steps;
        let name = records.into_iter().find(|record| record.path == path).unwrap().object.unwrap();
        self.wait_until("create", &format!("approval/{name}")).await;
        name
    }

    /// Sends a decision of a person of the cast as a plain merge patch. Returns the API server's answer or refusal.
    async fn decide(&self, who: &str, approval: &str, decision: Value) -> Result<String, String> {
        let patch = json!({"spec": {"decisions": {named(who).unwrap().user: decision}}}).to_string();
        let words =
            ["patch", "approval", approval, "--type=merge", "--patch", &patch, "--namespace", &self.namespace.name];
        let finished = self.cluster.kubectl(words).person(who).run().await.unwrap();
        if finished.code == 0 { Ok(finished.stdout) } else { Err(finished.stderr) }
    }

    async fn workflow(&self) -> Workflow {
        Api::namespaced(self.cluster.admin().await.unwrap(), &self.namespace.name).get(&self.name).await.unwrap()
    }

    /// Returns the phases of all Approvals by the path of their gates, in order.
    async fn approval_phases(&self) -> Vec<(String, ApprovalPhase)> {
        let approvals: Api<Approval> = Api::namespaced(self.cluster.admin().await.unwrap(), &self.namespace.name);
        let mut phases: Vec<_> = approvals
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .map(|approval| (approval.spec.request.gate.path, approval.status.unwrap_or_default().phase))
            .collect();
        phases.sort();
        phases
    }

    /// Waits until the run has succeeded, and returns its outputs.
    async fn wait_for_output(&self) -> String {
        self.wait_until("condition=Complete", &format!("workflow/{}", self.name)).await;
        self.workflow().await.status.unwrap().outputs.unwrap_or_default()
    }
}

#[tokio::test]
async fn every_example_is_accepted_by_the_api_server() {
    let cluster = Cluster::shared().unwrap();
    let namespace = cluster.namespace("examples").await.unwrap();
    // A document with the answers of people is not an object, so each document is applied alone.
    let mut all = String::new();
    for folder in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if !file.display().to_string().ends_with(".answers.yaml") {
                all.push_str(&format!("---\n{}\n", std::fs::read_to_string(file).unwrap()));
            }
        }
    }
    let words = ["create", "--dry-run=server", "--validate=strict", "--filename", "-", "--output=name"];
    let words = [&words[..], &["--namespace", &namespace.name]].concat();
    let created = cluster.kubectl(words).input(all).run().await.unwrap().ok().unwrap();
    assert!(created.lines().count() >= 43, "{created}");
}

/// Runs an example with its answers to its end.
async fn run_with_answers(mut example: Example) -> (String, Value) {
    let run = Running::of(&format!("{}.yaml", example.name), &example.text).await;
    let approvals: Api<Approval> = Api::namespaced(run.cluster.token_client("bob").await.unwrap(), &run.namespace.name);
    let workflows: Api<Workflow> = Api::namespaced(run.cluster.admin().await.unwrap(), &run.namespace.name);
    let mut asked = std::collections::BTreeSet::new();
    loop {
        let open = |workflow: &Workflow| {
            let status = workflow.status.as_ref()?;
            let gates = status.steps.iter().filter(|r| r.object.is_some() && !r.phase.is_end());
            gates.filter_map(|r| r.object.clone()).find(|name| !asked.contains(name))
        };
        let over = |workflow: &Workflow| workflow.status.as_ref().is_some_and(|status| status.phase.is_end());
        let moves = |workflow: Option<&Workflow>| workflow.is_some_and(|w| over(w) || open(w).is_some());
        let waiting = tokio::time::timeout(TIMEOUT, await_condition(workflows.clone(), &run.name, moves)).await;
        let Ok(found) = waiting else {
            panic!("{} neither asks nor ends: {:#?}", example.name, run.workflow().await.status)
        };
        let found = found.unwrap().unwrap();
        let Some(name) = open(&found).filter(|_| !over(&found)) else {
            assert_eq!(example.unused(), [""; 0], "{}: answers that nobody asked for", example.name);
            return (example.name, story(&found));
        };
        let there = |approval: Option<&Approval>| approval.is_some();
        let approval = await_condition(approvals.clone(), &name, there).await.unwrap().unwrap();
        let gate = &approval.spec.request.gate;
        let answer = example.answer(&gate.path, &gate.name);
        let answer = answer.unwrap_or_else(|| panic!("{}: nobody answers at {}", example.name, gate.path));
        run.decide("bob", &name, answer).await.unwrap_or_else(|why| panic!("{}: {why}", example.name));
        asked.insert(name);
    }
}

#[tokio::test]
async fn every_example_has_the_same_result_on_a_cluster_and_locally() {
    let together = futures::stream::iter(examples().into_iter().map(|example| async move {
        let record = std::fs::read_to_string(example.record()).unwrap();
        (record, run_with_answers(example).await)
    }));
    let ended: Vec<_> = together.buffer_unordered(6).collect().await;
    assert!(ended.len() >= 30, "{} examples: where are they?", ended.len());
    for (record, (name, on_a_cluster)) in ended {
        let record: Value = serde_json::from_str(&record).unwrap();
        let without: Workflow = serde_json::from_value(record["workflow"].clone()).unwrap();
        assert_eq!(on_a_cluster, story(&without), "{name}");
    }
}

#[tokio::test]
async fn the_example_quorum_requires_two_people_and_a_lead() {
    let run = Running::start("gates/quorum.yaml").await;
    let approval = run.wait_for_gate("review").await;
    let in_group = |group: &str| json!({"verdict": "Approve", "groups": [group]});
    run.decide("bob", &approval, in_group("finance")).await.unwrap();
    run.decide("carol", &approval, in_group("finance")).await.unwrap();
    run.wait_until("jsonpath={.status.tally.have}=2", &format!("approval/{approval}")).await;
    assert_eq!(run.approval_phases().await, [("review".to_owned(), ApprovalPhase::Pending)]);
    run.decide("alice", &approval, in_group("finance-leads")).await.unwrap();
    let output = run.wait_for_output().await;
    assert!(output.starts_with("released by ") && output.contains("alice@example.com"), "{output}");
}

#[tokio::test]
async fn an_answer_outside_of_the_options_is_refused() {
    let run = Running::start("gates/options.yaml").await;
    let approval = run.wait_for_gate("ask").await;
    let choose = |carrier: &str, extras: &[&str]| json!({"verdict": "Respond", "answers": {"carrier": {"options": [carrier]}, "extras": {"options": extras}}});
    let refused = run.decide("bob", &approval, choose("ship", &[])).await.unwrap_err();
    assert!(refused.contains("options of carrier must be among: road, rail, air"), "{refused}");
    run.decide("bob", &approval, choose("rail", &["insured", "express"])).await.unwrap();
    assert_eq!(run.wait_for_output().await, "rail, insured, express");
}

#[tokio::test]
async fn a_refused_answer_names_the_hint_of_the_pattern() {
    let run = Running::start("gates/pattern.yaml").await;
    let approval = run.wait_for_gate("ask").await;
    let answer = |ticket: &str| json!({"verdict": "Respond", "answers": {"ticket": {"text": ticket}}});
    let refused = run.decide("erin", &approval, answer("4711")).await.unwrap_err();
    assert!(refused.contains("a ticket looks like CHG-4711"), "{refused}");
    run.decide("erin", &approval, answer("CHG-4711")).await.unwrap();
    assert_eq!(run.wait_for_output().await, "runs under CHG-4711");
}

#[tokio::test]
async fn a_modified_text_replaces_the_reviewed_text() {
    let run = Running::start("gates/modify.yaml").await;
    let approval = run.wait_for_gate("review").await;
    let edit = json!({"verdict": "Modify", "parameters": {"response": "Closed on Monday and Tuesday."}});
    run.decide("bob", &approval, edit).await.unwrap();
    assert_eq!(run.wait_for_output().await, "Closed on Monday and Tuesday. (it was: Closed on Monday.)");
}

#[tokio::test]
async fn a_deferred_draft_is_written_again_and_asked_about_again() {
    let run = Running::start("gates/defer.yaml").await;
    let first = run.wait_for_gate("review").await;
    run.decide("bob", &first, json!({"verdict": "Defer", "guidance": "Much shorter, please."})).await.unwrap();
    let second = run.wait_for_gate("review#2").await;
    assert_ne!(first, second);
    run.decide("bob", &second, json!({"verdict": "Approve"})).await.unwrap();
    assert_eq!(run.wait_for_output().await, "Closed on Monday.");
}

#[tokio::test]
async fn a_reject_that_does_not_end_the_run_is_an_output() {
    let run = Running::start("gates/reject-continue.yaml").await;
    let approval = run.wait_for_gate("review").await;
    run.decide("bob", &approval, json!({"verdict": "Reject", "reason": "not before the audit"})).await.unwrap();
    assert_eq!(run.wait_for_output().await, "kept, because: not before the audit");
}

#[tokio::test]
async fn timeouts_can_default_skip_and_approve() {
    let run = Running::start("gates/timeout-goes-on.yaml").await;
    assert_eq!(run.wait_for_output().await, "colour blue, wish skipped, printing approved");
    let expired = |gate: &str| (gate.to_owned(), ApprovalPhase::Expired);
    assert_eq!(run.approval_phases().await, [expired("colour"), expired("harmless"), expired("wish")]);
}

#[tokio::test]
async fn timeouts_can_reject_and_abort() {
    let run = Running::start("gates/timeout-stops.yaml").await;
    run.wait_until("condition=Finished", "workflow/timeout-stops").await;
    let status = run.workflow().await.status.unwrap();
    assert_eq!(status.phase.name(), "Aborted", "{:?}", status.message);
    let expired = |gate: &str| (gate.to_owned(), ApprovalPhase::Expired);
    assert_eq!(run.approval_phases().await, [expired("first"), expired("second")]);
}

#[tokio::test]
async fn a_gate_that_asks_again_does_so_three_times() {
    let run = Running::start("gates/timeout-asks-again.yaml").await;
    run.wait_until("condition=Finished", "workflow/timeout-asks-again").await;
    assert_eq!(run.workflow().await.status.unwrap().phase.name(), "Rejected");
    let visits = ["closed", "closed#2", "closed#3", "closed#4"];
    assert_eq!(run.approval_phases().await, visits.map(|visit| (visit.to_owned(), ApprovalPhase::Expired)));
}

#[tokio::test]
async fn an_overdue_gate_waits_and_can_only_be_asked_again() {
    let run = Running::start("gates/timeout-waits.yaml").await;
    let overdue = run.wait_for_gate("out").await;
    run.wait_until("jsonpath={.status.phase}=Overdue", &format!("approval/{overdue}")).await;
    let refused = run.decide("erin", &overdue, json!({"verdict": "Approve"})).await.unwrap_err();
    assert!(refused.contains("verdict must be one of Retry, Reject, Abort"), "{refused}");
    run.decide("erin", &overdue, json!({"verdict": "Retry"})).await.unwrap();
    run.wait_for_gate("out#2").await;
}

#[tokio::test]
async fn people_are_reminded_as_often_as_the_gate_says() {
    let text = std::fs::read_to_string(folder().join("gates/reminders.yaml")).unwrap();
    let text = text.replace("after: 2m", "after: 6s").replace("reminderInterval: 20s", "reminderInterval: 1s");
    let run = Running::of("gates/reminders.yaml", &text).await;
    let approval = run.wait_for_gate("review").await;
    run.wait_until("jsonpath={.status.reminders}=2", &format!("approval/{approval}")).await;
    run.wait_until("condition=Finished", "workflow/reminders").await;
    assert_eq!(run.workflow().await.status.unwrap().phase.name(), "Rejected");
    let words = ["get", "events", "--namespace", &run.namespace.name, "--output=jsonpath={.items[*].reason}"];
    let reasons = run.cluster.kubectl(words).run().await.unwrap().ok().unwrap();
    assert_eq!(reasons.split_whitespace().filter(|reason| *reason == "Reminder").count(), 2, "{reasons}");
}

#[tokio::test]
async fn a_models_key_is_read_from_a_secret_by_requester_and_operator() {
    let run = Running::in_new_namespace("steps/secret.yaml").await;
    let (to, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let answer = move |headers: axum::http::HeaderMap, body: String| {
        to.send((headers["authorization"].to_str().unwrap().to_owned(), body)).unwrap();
        let choice = json!({"message": {"content": "Closed on Monday."}, "finish_reason": "stop"});
        std::future::ready(axum::Json(json!({"choices": [choice]})))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let model = axum::Router::new().route("/v1/chat/completions", axum::routing::post(answer));
    tokio::spawn(async { axum::serve(listener, model).await });
    run.run_as_admin(&["create", "secret", "generic", "models", "--from-literal=token=sesame-open"]).await;
    run.run_as_admin(&["annotate", "secret", "models", &format!("signoff.dev/allowed-hosts={address}")]).await;
    run.run_as_admin(&["create", "role", "reader", "--verb=get", "--resource=secrets", "--resource-name=models"]).await;
    let dana = format!("--user={}", named("dana").unwrap().user);
    run.run_as_admin(&["create", "rolebinding", "reader", "--role=reader", &dana]).await;
    let text = std::fs::read_to_string(folder().join("steps/secret.yaml")).unwrap();
    let text = text.replace("https://models.example.com/v1", &format!("http://{address}/v1"));
    // The operator has no right to read the namespace's Secrets: the step names the command that grants it.
    run.apply(&text).await;
    run.wait_until("condition=Failed", "workflow/secret").await;
    let steps = run.workflow().await.status.unwrap().steps;
    let said = steps[0].error.as_ref().unwrap().message.clone();
    let line = said.split_once("kubectl ").expect(&said).1;
    assert_eq!(
        line,
        format!(
            "create rolebinding signoff-operator-secrets -n {} --clusterrole=signoff-operator-secrets \
             --serviceaccount=signoff-system:signoff-operator",
            run.namespace.name
        )
    );
    heard.try_recv().expect_err("nothing was sent");
    run.run_as_admin(&["delete", "workflow", "secret"]).await;
    run.cluster.kubectl(line.split(' ')).run().await.unwrap().ok().unwrap();
    let operator = format!("--as=system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}");
    let asks = ["auth", "can-i", "get", "secrets", &operator, "--namespace", &run.namespace.name];
    // No event tells when the authorizer knows a binding.
    for _ in 0..100 {
        if run.cluster.kubectl(asks).run().await.unwrap().stdout.trim() == "yes" {
            break;
        }
    }
    run.apply(&text).await;
    let approval = run.wait_for_gate("review").await;
    let (key, asked) = heard.recv().await.unwrap();
    assert_eq!(key, "Bearer sesame-open");
    assert!(asked.contains("closed on Monday") && asked.contains(r#""model":"small""#), "{asked}");
    run.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
    run.wait_until("condition=Complete", "workflow/secret").await;
    let words = ["get", "workflows,approvals,blobs", "--output=yaml", "--namespace", &run.namespace.name];
    let story = run.cluster.kubectl(words).run().await.unwrap().ok().unwrap();
    assert!(!story.contains("sesame"), "the key is written nowhere");
}

#[tokio::test]
async fn a_requests_key_comes_from_a_secret_and_is_in_no_object_and_no_event() {
    const KEY: &str = "sesame-open-sesame";
    let run = Running::in_new_namespace("steps/api-key.yaml").await;
    let (to, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let echo = move |headers: axum::http::HeaderMap| {
        to.send(headers["authorization"].to_str().unwrap().to_owned()).unwrap();
        std::future::ready(format!("{headers:?}"))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = axum::Router::new().route("/customers/{name}", axum::routing::post(echo));
    tokio::spawn(async { axum::serve(listener, server).await });
    run.run_as_admin(&["create", "secret", "generic", "letters", &format!("--from-literal=token={KEY}")]).await;
    run.run_as_admin(&["annotate", "secret", "letters", &format!("signoff.dev/allowed-hosts=http://{address}")]).await;
    run.run_as_admin(&["create", "role", "reader", "--verb=get", "--resource=secrets", "--resource-name=letters"])
        .await;
    let dana = format!("--user={}", named("dana").unwrap().user);
    let text = std::fs::read_to_string(folder().join("steps/api-key.yaml")).unwrap();
    let text = text.replace("https://letters.example.com", &format!("http://{address}"));
    // A user who cannot read a Secret cannot send it.
    let words = ["apply", "--filename", "-", "--namespace", &run.namespace.name];
    let refused = run.cluster.kubectl(words).person("dana").input(text.clone()).run().await.unwrap().ok().unwrap_err();
    assert!(format!("{refused:?}").contains("lacks the RBAC verb get on the Secrets"), "{refused:?}");
    run.run_as_admin(&["create", "rolebinding", "reader", "--role=reader", &dana]).await;
    let operator = format!("--serviceaccount={OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}");
    run.run_as_admin(&["create", "rolebinding", "operator", "--clusterrole=signoff-operator-secrets", &operator]).await;
    let account = format!("--as=system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}");
    let asks = ["auth", "can-i", "get", "secrets", &account, "--namespace", &run.namespace.name];
    // No event tells when the authorizer knows a binding.
    for _ in 0..100 {
        if run.cluster.kubectl(asks).run().await.unwrap().stdout.trim() == "yes" {
            break;
        }
    }
    run.apply(&text).await;
    let approval = run.wait_for_gate("send/.start").await;
    heard.try_recv().expect_err("nothing was sent before the approval");
    run.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), format!("Bearer {KEY}"));
    let output = run.wait_for_output().await;
    assert!(output.contains("Bearer [redacted]"), "{output}");
    let records = run.workflow().await.status.unwrap().steps;
    let sent = records.iter().find(|record| record.path == "send").unwrap();
    assert!(sent.facts["secret:letters"].starts_with("uid "), "{:?}", sent.facts);
    let words = ["get", "workflows,approvals,blobs,events", "--output=yaml", "--namespace", &run.namespace.name];
    let story = run.cluster.kubectl(words).run().await.unwrap().ok().unwrap();
    assert!(story.contains("‹Secret letters/token›") && !story.contains(KEY), "the key is written nowhere");
}

/// Starts the example with its server at a CRM of the test.
async fn with_crm(file: &str) -> (Running, Crm) {
    let crm = Crm::start().await.unwrap();
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let run = Running::of(file, &text.replace("https://crm.example.com/mcp", &crm.url())).await;
    (run, crm)
}

/// Returns the called tools of the CRM, in order.
fn called_tools(crm: &Crm) -> Vec<String> {
    crm.calls().iter().filter_map(|call| call.split(' ').next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_tool_of_a_server_is_called_after_people_have_approved_it() {
    for (file, gate) in [
        ("servers/server-tools.yaml", "handle/.turn-1/.call-1/.gate"),
        ("servers/narrow-tool.yaml", "handle/.turn-1/.call-1/.gate"),
    ] {
        let (run, crm) = with_crm(file).await;
        let approval = run.wait_for_gate(gate).await;
        assert_eq!(called_tools(&crm), [] as [&str; 0], "{file}");
        run.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
        assert_eq!(run.wait_for_output().await, "The customer has the money.", "{file}");
        assert_eq!(called_tools(&crm), ["refund"], "{file}");
    }
}

#[tokio::test]
async fn a_pinned_or_reading_tool_runs_without_a_gate() {
    for file in ["servers/pins.yaml", "servers/hints.yaml"] {
        let (run, crm) = with_crm(file).await;
        let approval = run.wait_for_gate("handle/.turn-2/.call-1/.gate").await;
        assert_eq!(called_tools(&crm), ["get_customer"], "{file}");
        run.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
        assert_eq!(run.wait_for_output().await, "The customer has the money.", "{file}");
        assert_eq!(called_tools(&crm), ["get_customer", "refund"], "{file}");
    }
}

#[tokio::test]
async fn a_step_calls_a_tool_of_a_server_without_a_model() {
    let (run, crm) = with_crm("servers/without-a-model.yaml").await;
    let approval = run.wait_for_gate("refund/.start").await;
    assert_eq!(called_tools(&crm), ["get_customer"]);
    run.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
    assert_eq!(run.wait_for_output().await, "refund 1 is on its way");
    let refund = crm.calls().pop().unwrap();
    assert!(refund.contains(r#""amount":420"#), "a number stays one: {refund}");
}

#[tokio::test]
async fn a_server_that_is_a_command_is_refused_on_a_cluster_with_the_remedy() {
    let run = Running::start("servers/files.yaml").await;
    run.wait_until("condition=Accepted=False", "workflow/files").await;
    let status = run.workflow().await.status.unwrap();
    let accepted = status.conditions.iter().find(|condition| condition.type_ == "Accepted").unwrap();
    assert!(accepted.message.contains("`signoff run --allow-commands`"), "{}", accepted.message);
}

#[tokio::test]
async fn an_approver_can_escalate_to_more_people() {
    let run = Running::start("gates/escalation.yaml").await;
    let approval = run.wait_for_gate("review").await;
    run.decide("erin", &approval, json!({"verdict": "Approve"})).await.unwrap_err();
    let sre = json!([{"kind": "Group", "name": "sre"}]);
    run.decide("bob", &approval, json!({"verdict": "Escalate", "escalateTo": sre})).await.unwrap();
    run.wait_until("jsonpath={.status.level}=1", &format!("approval/{approval}")).await;
    run.decide("erin", &approval, json!({"verdict": "Approve"})).await.unwrap();
    assert_eq!(run.wait_for_output().await, "switched over by erin@example.com");
}

#[tokio::test]
async fn a_gate_whose_condition_is_false_is_skipped() {
    let run = Running::start("steps/skip-if.yaml").await;
    assert_eq!(run.wait_for_output().await, "refunded 40 EUR (skipped)");
    assert_eq!(run.approval_phases().await, []);
}

#[tokio::test]
async fn a_model_that_fails_is_tried_again_and_then_replaced_by_a_person() {
    let run = Running::start("steps/retry.yaml").await;
    let approval = run.wait_for_gate("ask").await;
    let attempts = run.workflow().await.status.unwrap().steps.iter().filter(|record| record.path == "draft").count();
    assert_eq!(attempts, 3);
    run.decide("bob", &approval, json!({"verdict": "Respond", "response": "Closed on Monday."})).await.unwrap();
    assert_eq!(run.wait_for_output().await, "Closed on Monday.");
}
