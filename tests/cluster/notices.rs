//! Notices of the real operator on a real API server, to servers on loopback that answer as Slack, Teams, PagerDuty and
//! receivers of webhooks do. What takes hours, and the condition after a minute, is tested in `sim/`.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use kube::ResourceExt;
use serde_json::{Value, json};
use signoff_api::{Approval, Workflow, approval::ApprovalPhase};
use signoff_tests::control_plane::{
    Cluster, Finished, OPERATOR_NAMESPACE, OperatorOptions, OperatorProcess, named, program,
};
use tempfile::TempDir;
use tokio::time::sleep;
use wiremock::{Mock, MockServer, Request, ResponseTemplate, matchers::method};

use crate::runs::Runs;

/// The deadline of every wait on a slow and busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);
/// A part of every token, key and address of these tests.
const SECRET: &str = "SECRET";
/// A signing secret of Standard Webhooks.
const SIGNS: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request as a receiver got it.
#[derive(Clone, Debug)]
struct Sent {
    path: String,
    id: Option<String>,
    signature: Option<String>,
    body: Value,
}

impl Sent {
    fn of(request: &Request) -> Self {
        let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Self {
            path: request.url.path().to_owned(),
            id: header("webhook-id"),
            signature: header("webhook-signature"),
            body: serde_json::from_slice(&request.body).unwrap_or_default(),
        }
    }

    fn at(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// The settings that all receivers share.
#[derive(Default)]
struct Answers {
    is_away: AtomicBool,
    /// Whether Slack answers that the channel does not exist.
    is_channel_missing: AtomicBool,
    messages: AtomicU32,
}

impl Answers {
    /// Answers as the real services do.
    fn answer(&self, request: &Request) -> ResponseTemplate {
        if self.is_away.load(Ordering::Relaxed) {
            return ResponseTemplate::new(503);
        }
        let sent = Sent::of(request);
        let Some(of_slack) = sent.path.strip_prefix("/slack/") else {
            return ResponseTemplate::new(if sent.path == "/pagerduty" { 202 } else { 200 });
        };
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        let answer = match of_slack {
            "conversations.open" => json!({"ok": true, "channel": {"id": sent.at("/users").replacen('U', "D", 1)}}),
            _ if self.is_channel_missing.load(Ordering::Relaxed) => json!({"ok": false, "error": "channel_not_found"}),
            "chat.postMessage" => {
                let channel = sent.at("/channel");
                let channel = if channel.starts_with('#') { "C0FINANCE" } else { channel };
                json!({"ok": true, "channel": channel, "ts": format!("1700000000.{number:06}")})
            }
            _ => json!({"ok": true, "channel": sent.at("/channel"), "ts": sent.at("/ts")}),
        };
        ResponseTemplate::new(200).set_body_json(answer)
    }
}

/// A cluster whose administrator has configured four channels, with their receivers.
struct Stage {
    runs: Runs,
    server: MockServer,
    answers: Arc<Answers>,
    folder: TempDir,
}

impl Stage {
    async fn open() -> Self {
        let cluster = Cluster::own().await.unwrap();
        cluster.install(&[("notifications.inbox", "https://signoff.example.com")]).await.unwrap();
        let runs = Runs::on(cluster, "notices").await;
        let (server, answers) = (MockServer::start().await, Arc::<Answers>::default());
        let answering = Arc::clone(&answers);
        let answer = move |request: &Request| answering.answer(request);
        Mock::given(method("POST")).respond_with(answer).mount(&server).await;
        let stage = Self { runs, server, answers, folder: tempfile::tempdir().unwrap() };
        stage.configure();
        stage
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("notifications.yaml")
    }

    fn write(&self, name: &str, text: &str) -> String {
        let file = self.folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn configure(&self) {
        let url = self.server.uri();
        let token = self.write("token", "xoxb-SECRET");
        let key = self.write("key", "SECRET-key");
        let teams = self.write("teams", &format!("{url}/teams/SECRET"));
        let hook = self.write("hook", &format!("{url}/hook/SECRET"));
        let signs = self.write("signs", SIGNS);
        let users: String = ["alice", "bob", "carol", "dana"]
            .iter()
            .map(|name| format!("  {}: {{slack: U0{}}}\n", named(name).unwrap().user, name.to_uppercase()))
            .collect();
        let people = self.write("people.yaml", &format!("users:\n{users}"));
        let address = self.server.address();
        let text = format!(
            "inbox: https://signoff.example.com\n\
             allowedAddresses: [\"{address}\"]\n\
             channels:\n\
             - {{name: finance, slack: {{tokenFile: {token}, channel: \"#finance\", directMessages: true, api: \"{url}/slack\"}}}}\n\
             - {{name: teams, webhook: {{urlFile: {teams}, format: teams}}}}\n\
             - {{name: oncall, pagerduty: {{routingKeyFile: {key}, api: \"{url}/pagerduty\"}}}}\n\
             - {{name: hook, webhook: {{urlFile: {hook}, secretFile: {signs}, format: standard}}}}\n\
             people: {{file: {people}}}\n\
             routes: [{{to: [finance, teams, oncall, hook]}}]\n"
        );
        self.write("notifications.yaml", &text);
    }

    /// Starts an operator without a Lease, so that the next process begins at once.
    async fn start_operator(&self) -> OperatorProcess {
        let notifications = self.file().display().to_string();
        let arguments = ["--no-lease", "--notifications", &notifications].map(str::to_owned).to_vec();
        let options = OperatorOptions { arguments, ..OperatorOptions::default() };
        OperatorProcess::start(&self.runs.cluster, options).await.unwrap()
    }

    /// Returns all requests so far, in order.
    async fn requests(&self) -> Vec<Sent> {
        self.server.received_requests().await.unwrap().iter().map(Sent::of).collect()
    }

    /// Waits for this number of matching requests, and returns them.
    async fn wait_for_requests(&self, what: &str, number: usize, fits: impl Fn(&Sent) -> bool) -> Vec<Sent> {
        let begin = Instant::now();
        loop {
            let sent = self.requests().await;
            let found: Vec<Sent> = sent.iter().filter(|sent| fits(sent)).cloned().collect();
            if found.len() >= number {
                return found;
            }
            assert!(begin.elapsed() < TIMEOUT, "{what}: {} of {number} arrived: {sent:#?}", found.len());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits for a Slack message with this title to a conversation.
    async fn wait_for_slack(&self, conversation: &str, title: &str) -> Sent {
        let fits = |sent: &Sent| {
            let is_message = matches!(sent.path.as_str(), "/slack/chat.postMessage" | "/slack/chat.update");
            is_message && sent.at("/channel") == conversation && sent.at("/text") == title
        };
        self.wait_for_requests(&format!("{title:?} to {conversation}"), 1, fits).await.remove(0)
    }

    /// Waits for a notice of the signed webhook about a run.
    async fn wait_for_hook(&self, event: &str, run: &str) -> Sent {
        let fits = |sent: &Sent| is_of_hook(sent, event, run);
        self.wait_for_requests(&format!("{event} of {run} to the webhook"), 1, fits).await.remove(0)
    }
}

fn is_of_hook(sent: &Sent, event: &str, run: &str) -> bool {
    sent.path == "/hook/SECRET" && sent.at("/type") == event && sent.at("/data/run") == run
}

/// Returns a gate for alice and bob that reminds them and then lets carol decide too.
fn escalating() -> Value {
    json!({
        "approvers": [
            {"kind": "User", "name": "alice@example.com"}, {"kind": "User", "name": "bob@example.com"},
        ],
        "timeout": {"after": "9s", "action": "Escalate", "reminderInterval": "4s", "maxReminders": 1,
            "escalation": [{"after": "10m", "to": [{"kind": "User", "name": "carol@example.com"}]}]},
    })
}

#[tokio::test]
async fn each_channel_notifies_approvers_requester_and_webhook() {
    let stage = Stage::open().await;
    let operator = stage.start_operator().await;
    let namespace = &stage.runs.namespace.name;
    stage.runs.request("refund", escalating()).await;
    let approval = stage.runs.wait_for_gate("refund").await;
    let of_gate = format!("review of {namespace}/refund");
    let asked = format!("Decision needed: {of_gate}");

    let in_channel = stage.wait_for_slack("#finance", &asked).await;
    let link = format!("https://signoff.example.com/n/{namespace}/a/{}?d=", approval.name_any());
    assert!(in_channel.body.to_string().contains(&link), "{in_channel:#?}");
    assert!(!in_channel.body.to_string().contains("Go on?"), "text of others needs details: full");
    for person in ["D0ALICE", "D0BOB"] {
        stage.wait_for_slack(person, &asked).await;
    }
    let begun = stage.wait_for_requests("an incident", 1, |sent| sent.path == "/pagerduty").await.remove(0);
    assert_eq!((begun.at("/event_action"), begun.at("/routing_key")), ("trigger", "SECRET-key"));
    let card = stage.wait_for_requests("a card", 1, |sent| sent.path == "/teams/SECRET").await.remove(0);
    assert!(card.body.to_string().contains(&asked), "{card:#?}");
    let first = stage.wait_for_hook("approval.asked", "refund").await;
    assert!(first.id.is_some() && first.signature.as_ref().is_some_and(|signature| signature.starts_with("v1,")));

    stage.wait_for_hook("approval.reminded", "refund").await;
    stage.wait_for_hook("approval.escalated", "refund").await;
    stage.wait_for_slack("D0CAROL", &format!("Escalated, decision needed: {of_gate}")).await;
    stage.runs.alice_approves(&approval).await.unwrap();
    stage.runs.wait_for_end("refund").await;

    let outcome = format!("approved: {of_gate}");
    let changed = stage.wait_for_slack("C0FINANCE", &outcome).await;
    assert_eq!(changed.path, "/slack/chat.update", "the message itself is changed");
    stage.wait_for_slack("D0BOB", &outcome).await;
    stage.wait_for_slack("D0DANA", &outcome).await;
    stage.wait_for_slack("D0DANA", &format!("Run ended, succeeded: {namespace}/refund")).await;
    let taken = stage.wait_for_hook("approval.taken", "refund").await;
    assert_eq!(taken.at("/data/correlationId"), first.at("/data/correlationId"));
    stage.wait_for_hook("run.ended", "refund").await;
    let resolves = |sent: &Sent| sent.path == "/pagerduty" && sent.at("/event_action") == "resolve";
    let resolved = stage.wait_for_requests("a resolution", 1, resolves).await.remove(0);
    assert_eq!(resolved.at("/dedup_key"), begun.at("/dedup_key"), "the incident that the question began");

    let approval = stage.runs.api::<Approval>().get(&approval.name_any()).await.unwrap();
    let conditions = approval.status.unwrap().conditions;
    assert!(conditions.iter().all(|condition| condition.type_ != "Notified"), "{conditions:?}");
    let (log, metrics) = (std::fs::read_to_string(operator.log()).unwrap(), operator.get("/metrics").await.unwrap());
    assert!(!log.contains(SECRET) && !metrics.contains(SECRET), "{log}");
    for channel in ["finance", "hook", "oncall", "teams"] {
        let delivered = format!("signoff_notices_total{{channel=\"{channel}\",result=\"delivered\"}}");
        assert!(metrics.contains(&delivered), "{delivered}: {metrics}");
    }
    operator.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_operator_sends_pending_notices_under_the_same_ids() {
    let stage = Stage::open().await;
    let operator = stage.start_operator().await;
    // The operator is killed after the notice was stored and before it was delivered.
    stage.answers.is_away.store(true, Ordering::Relaxed);
    stage.runs.request("first", json!({})).await;
    let attempted = stage.wait_for_hook("approval.asked", "first").await;
    operator.kill();
    stage.answers.is_away.store(false, Ordering::Relaxed);
    let is_first = |sent: &Sent| is_of_hook(sent, "approval.asked", "first");
    let attempts = stage.requests().await.iter().filter(|sent| is_first(sent)).count();
    let operator = stage.start_operator().await;
    let again = stage.wait_for_requests("the same notice", attempts + 1, is_first).await;
    assert!(attempted.id.is_some() && again.iter().all(|sent| sent.id == attempted.id), "{again:#?}");

    // The operator is killed after a delivery and before it was marked as delivered.
    stage.runs.request("second", json!({})).await;
    let delivered = stage.wait_for_hook("approval.asked", "second").await;
    operator.kill();
    let operator = stage.start_operator().await;
    stage.runs.request("third", json!({})).await;
    stage.wait_for_hook("approval.asked", "third").await;
    let all = stage.requests().await;
    let seconds: Vec<_> = all.iter().filter(|sent| is_of_hook(sent, "approval.asked", "second")).collect();
    assert!(seconds.len() <= 2 && seconds.iter().all(|sent| sent.id == delivered.id), "{seconds:#?}");
    let mut ids: Vec<_> = ["first", "second", "third"].iter().map(|run| id_of_notice(&all, run)).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each event has an id of its own: {ids:?}");

    // Slack refuses permanently.
    stage.answers.is_channel_missing.store(true, Ordering::Relaxed);
    stage.runs.request("fourth", json!({})).await;
    let approval = stage.runs.wait_for_gate("fourth").await.name_any();
    let is_told = |approval: Option<&Approval>| {
        let conditions = approval.and_then(|approval| approval.status.as_ref()).map(|status| &status.conditions[..]);
        let mut conditions = conditions.unwrap_or_default().iter();
        conditions.any(|known| known.type_ == "Notified" && known.status == "False" && known.reason == "GivenUp")
    };
    let told = stage.runs.until(stage.runs.api(), &approval, "tells what failed", is_told).await;
    let text = serde_json::to_string(&told.status.unwrap().conditions).unwrap();
    assert!(
        text.contains("channel finance: ") && text.contains("channel_not_found") && !text.contains(SECRET),
        "{text}"
    );
    operator.stop().await.unwrap();
}

/// Returns the id of the notice that asks for a decision on a run.
fn id_of_notice(all: &[Sent], run: &str) -> Option<String> {
    all.iter().find(|sent| is_of_hook(sent, "approval.asked", run)).and_then(|sent| sent.id.clone())
}

#[tokio::test]
async fn only_the_voter_gets_the_notice_of_a_void_vote() {
    let stage = Stage::open().await;
    let operator = stage.start_operator().await;
    let gate = json!({"threshold": 2, "approvers": [
        {"kind": "User", "name": "alice@example.com"}, {"kind": "User", "name": "bob@example.com"},
    ]});
    stage.runs.request("refund", gate).await;
    let first = stage.runs.wait_for_gate("refund").await;
    stage.runs.alice_approves(&first).await.unwrap();
    let binding = async |actions: &str| {
        let patch = format!(r#"{{"spec": {{"validationActions": {actions}}}}}"#);
        let words =
            ["patch", "validatingadmissionpolicybinding", "signoff-approvals", "--type", "merge", "--patch", &patch];
        stage.runs.cluster.kubectl(words).run().await.unwrap().ok().unwrap();
    };
    binding(r#"["Audit"]"#).await;
    let is_unguarded = |run: Option<&Workflow>| {
        let conditions = run.and_then(|run| run.status.as_ref()).map(|status| &status.conditions[..]);
        conditions.unwrap_or_default().iter().any(|known| known.type_ == "Guarded" && known.status == "False")
    };
    stage.runs.until(stage.runs.api(), "refund", "is not guarded", is_unguarded).await;
    binding(r#"["Deny", "Audit"]"#).await;
    let is_void = |approval: Option<&Approval>| {
        let status = approval.and_then(|approval| approval.status.as_ref());
        status.is_some_and(|status| status.phase == ApprovalPhase::Superseded)
    };
    stage.runs.until(stage.runs.api(), &first.name_any(), "is superseded", is_void).await;
    let title = format!("Your vote was voided: review of {}/refund", stage.runs.namespace.name);
    stage.wait_for_slack("D0ALICE", &title).await;
    let others = stage.requests().await;
    let wrong: Vec<_> =
        others.iter().filter(|sent| sent.at("/text") == title && sent.at("/channel") != "D0ALICE").collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    operator.stop().await.unwrap();
}

/// Runs `kubectl approve doctor --notify hook`; returns the exit code, and standard error without its line breaks.
async fn doctor(cluster: &Cluster, person: &str) -> (i32, String) {
    let (plugin, kubectl) = (crate::asked::plugin(), cluster.clients().kubectl.clone());
    // The plugin runs kubectl in its turn.
    let call = cluster.kubectl(["approve", "doctor", "--notify", "hook"]).search(plugin.parent().unwrap());
    let finished = call.search(kubectl.parent().unwrap()).person(person).run().await.unwrap();
    (finished.code, finished.stderr.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Runs `signoff-operator notify test`, as it runs in the operator's Pod.
async fn test_notice(stage: &Stage, channel: &str, state: &Path) -> Finished {
    let cluster = &stage.runs.cluster;
    let identity = cluster.operator_identity("signoff-operator-outside").await.unwrap();
    let operator = program("signoff-controller", "signoff-operator").unwrap();
    let (kubeconfig, file) = (identity.kubeconfig().display().to_string(), stage.file().display().to_string());
    let state = state.display().to_string();
    let words = ["notify", "test", channel, "--kubeconfig", &kubeconfig, "--namespace", OPERATOR_NAMESPACE];
    let words = [&words[..], &["--notifications", &file, "--state-dir", &state]].concat();
    cluster.run(&operator, words).run().await.unwrap()
}

#[tokio::test]
async fn a_test_notice_requires_the_verb_administer() {
    let stage = Stage::open().await;
    let cluster = &stage.runs.cluster;
    let state = tempfile::tempdir().unwrap();
    let delivered = test_notice(&stage, "hook", state.path()).await;
    assert_eq!(delivered.code, 0, "{delivered:?}");
    for stage in ["configuration", "recipient", "secrets", "address", "connection", "notice"] {
        assert!(delivered.stdout.contains(&format!("ok      {stage}: ")), "{stage}: {delivered:?}");
    }
    assert!(!format!("{delivered:?}").contains(SECRET), "{delivered:?}");
    let title = format!("Test notice, no decision is needed, in {OPERATOR_NAMESPACE}");
    stage.wait_for_requests("the test notice", 1, |sent| sent.at("/data/title") == title).await;
    let soon = test_notice(&stage, "hook", state.path()).await;
    assert!(soon.code != 0 && soon.stderr.contains("one test a minute is made"), "{soon:?}");
    let other = tempfile::tempdir().unwrap();
    let unknown = test_notice(&stage, "hoook", other.path()).await;
    let why = "FAILED  configuration: channels: no channel \"hoook\"; there are: finance, teams, oncall, hook";
    assert!(unknown.code != 0 && unknown.stdout.contains(why), "{unknown:?}");

    // A Pod of the operator that no kubelet runs: the API server admits the command, and then finds no node.
    let ready = r#"{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}"#;
    let pod =
        ["patch", "pod", "signoff-operator-outside", "--namespace", OPERATOR_NAMESPACE, "--subresource", "status"];
    let pod = [&pod[..], &["--type", "merge", "--patch", ready]].concat();
    cluster.kubectl(pod).run().await.unwrap().ok().unwrap();
    let (code, why) = doctor(cluster, "admin").await;
    assert!(code != 0 && why.contains("does not have a host assigned"), "{why}");

    // Every right on Pods of the operator's namespace but the verb administer.
    let role = |kind: &str, rules: Value| {
        let metadata = json!({"name": "nearly", "namespace": OPERATOR_NAMESPACE});
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules})
    };
    let reads = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    let pods = json!([{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["*"]}]);
    for object in [role("ClusterRole", reads), role("Role", pods)] {
        cluster.kubectl(["apply", "-f", "-"]).input(object.to_string()).run().await.unwrap().ok().unwrap();
    }
    let user = format!("--user={}", named("nina").unwrap().user);
    let reads = ["create", "clusterrolebinding", "nearly", "--clusterrole=nearly", &user];
    cluster.kubectl(reads).run().await.unwrap().ok().unwrap();
    let runs = ["create", "rolebinding", "nearly", "--role=nearly", &user, "--namespace", OPERATOR_NAMESPACE];
    cluster.kubectl(runs).run().await.unwrap().ok().unwrap();
    // A new binding takes effect by a watch, which no event reports.
    let begin = Instant::now();
    let (code, why) = loop {
        let (code, why) = doctor(cluster, "nina").await;
        if why.contains("administer") || begin.elapsed() > TIMEOUT {
            break (code, why);
        }
    };
    assert!(code != 0 && why.contains("lacks the verb administer on installations.signoff.dev"), "{why}");
}
