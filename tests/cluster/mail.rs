//! Notices by mail from the real operator to a real mail server, aiosmtpd on loopback: STARTTLS and AUTH, and the
//! failures that can follow. `notices` tests the other channels.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::{
    control_plane::{Cluster, OperatorOptions, OperatorProcess, named},
    mail_server::{Mail, MailServer, PASSWORD, USER},
};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::runs::Runs;

/// The deadline of every wait on a slow and busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The most memory that an endless answer may cost, in KiB.
const MAX_ANSWER_KIB: u64 = 96 * 1024;

/// A cluster with a mail server, and an operator that uses it.
struct Stage {
    runs: Runs,
    server: MailServer,
    operator: OperatorProcess,
    _folder: TempDir,
}

impl Stage {
    /// Starts the mail server and the operator. `people` has the names of the cast with their mailboxes.
    async fn open(people: &[(&str, &str)], password: &str) -> Self {
        let server = MailServer::start().await.unwrap();
        let cluster = Cluster::own().await.unwrap();
        cluster.install(&[("notifications.inbox", "https://signoff.example.com")]).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.display().to_string()
        };
        let users: String = people
            .iter()
            .map(|(name, mailbox)| format!("  {}: {{mail: {mailbox}@example.com}}\n", named(name).unwrap().user))
            .collect();
        let people = write("people.yaml", &format!("users:\n{users}"));
        let (user, password) = (write("user", USER), write("password", password));
        let (url, address) = (server.url(), server.address());
        let smtp = format!("{{url: \"{url}\", userFile: {user}, passwordFile: {password}, from: signoff@example.com}}");
        let text = format!(
            "inbox: https://signoff.example.com\nallowedAddresses: [\"{address}\"]\nchannels: [{{name: mail, smtp: {smtp}}}]\n\
             people: {{file: {people}}}\nroutes: [{{to: [mail]}}]\n"
        );
        let file = write("notifications.yaml", &text);
        let arguments = ["--no-lease", "--notifications", &file].map(str::to_owned).to_vec();
        let authority = server.authority().display().to_string();
        let environment = vec![("SSL_CERT_FILE".to_owned(), authority)];
        let options = OperatorOptions { arguments, environment, ..OperatorOptions::default() };
        let operator = OperatorProcess::start(&cluster, options).await.unwrap();
        Self { runs: Runs::on(cluster, "mail").await, server, operator, _folder: folder }
    }

    /// Waits for this number of mails to a mailbox, and returns them.
    async fn wait_for_mails(&self, mailbox: &str, number: usize) -> Vec<Mail> {
        let begin = Instant::now();
        let address = format!("{mailbox}@example.com");
        loop {
            let mails = self.server.mails().unwrap();
            let found: Vec<Mail> = mails.iter().filter(|mail| mail.to == [address.clone()]).cloned().collect();
            if found.len() >= number {
                return found;
            }
            let log = || self.server.log_tail();
            assert!(begin.elapsed() < TIMEOUT, "{} of {number} mails to {mailbox}: {mails:#?}\n{}", found.len(), log());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the Approval reports a failure of its notices, and returns the message.
    async fn wait_for_failure(&self, approval: &str, reason: &str) -> String {
        let is_reported = |approval: Option<&Approval>| {
            let conditions =
                approval.and_then(|approval| approval.status.as_ref()).map(|status| &status.conditions[..]);
            conditions
                .unwrap_or_default()
                .iter()
                .any(|condition| condition.type_ == "Notified" && condition.reason == reason)
        };
        let approval = self.runs.until(self.runs.api(), approval, "tells what failed", is_reported).await;
        let conditions = approval.status.unwrap().conditions;
        conditions.into_iter().find(|condition| condition.type_ == "Notified").unwrap().message
    }

    /// Returns the largest memory use of the operator so far, in KiB.
    fn max_memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.operator.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// Returns a gate with these approvers.
fn gate(people: &[&str]) -> Value {
    let approvers = people.iter().map(|name| json!({"kind": "User", "name": named(name).unwrap().user}));
    json!({"approvers": approvers.collect::<Vec<_>>()})
}

#[tokio::test]
async fn a_failure_of_the_mail_server_delays_only_its_own_recipient() {
    let people = [("alice", "alice"), ("bob", "refused"), ("carol", "dies"), ("erin", "endless"), ("dana", "dana")];
    let stage = Stage::open(&people, PASSWORD).await;
    let before = stage.max_memory_kib();
    stage.runs.request("refund", gate(&["alice", "bob", "carol", "erin"])).await;
    let approval = stage.runs.wait_for_gate("refund").await;

    let asked = stage.wait_for_mails("alice", 1).await.remove(0);
    assert!(asked.tls && asked.user.as_deref() == Some(USER) && asked.from == "signoff@example.com", "{asked:#?}");
    let of_gate = format!("review of {}/refund", stage.runs.namespace.name);
    assert_eq!(asked.header("Subject"), format!("Decision needed: {of_gate}"));
    let link = format!("https://signoff.example.com/n/{}/a/{}?d=", stage.runs.namespace.name, approval.name_any());
    assert!(asked.body().contains(&link), "{asked:#?}");
    let id = asked.header("Message-ID");
    assert!(id.ends_with("@example.com>"), "{id}");

    // The server accepts the mail, and the answer is lost. The mail is sent once more, under the same id.
    let twice = stage.wait_for_mails("dies", 2).await;
    assert_eq!(twice[0].header("Message-ID"), twice[1].header("Message-ID"));
    let told = stage.wait_for_failure(&approval.name_any(), "GivenUp").await;
    assert!(told.contains("channel mail: ") && told.contains("550") && !told.contains('@'), "{told}");

    stage.runs.alice_approves(&approval).await.unwrap();
    stage.runs.wait_for_end("refund").await;
    let outcome = stage.wait_for_mails("alice", 2).await.remove(1);
    assert_eq!(outcome.header("Subject"), format!("approved: {of_gate}"));
    assert_eq!((outcome.header("In-Reply-To"), outcome.header("References")), (id.clone(), id));
    let of_dana = stage.wait_for_mails("dana", 2).await;
    let is_end = |mail: &Mail| mail.header("Subject").starts_with("Run ended, succeeded: ");
    assert!(of_dana.iter().any(is_end), "{of_dana:#?}");

    // By now the operator has read as much of the endless answer as it accepts.
    sleep(Duration::from_secs(20)).await;
    let memory = stage.max_memory_kib();
    assert!(memory < before + MAX_ANSWER_KIB, "{before} KiB before, {memory} KiB with an answer without end");
    stage.runs.another_gate_is_decided_in_time("other").await;
    assert_eq!(stage.server.mails().unwrap().iter().filter(|mail| mail.to == ["refused@example.com"]).count(), 0);
    let (log, metrics) =
        (std::fs::read_to_string(stage.operator.log()).unwrap(), stage.operator.get("/metrics").await.unwrap());
    for secret in [PASSWORD, "refused@", "dies@", "endless@"] {
        assert!(!log.contains(secret) && !metrics.contains(secret), "{secret}: {log}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_reported_with_the_remedy_and_never_written() {
    let stage = Stage::open(&[("alice", "alice")], "SECRET-of-yesterday").await;
    stage.runs.request("refund", gate(&["alice"])).await;
    let approval = stage.runs.wait_for_gate("refund").await;
    let told = stage.wait_for_failure(&approval.name_any(), "NotDelivered").await;
    assert!(told.contains("535") && told.contains("it refuses user and password"), "{told}");
    assert!(stage.server.mails().unwrap().is_empty());
    let log = std::fs::read_to_string(stage.operator.log()).unwrap();
    assert!(!log.contains("SECRET") && !told.contains("SECRET"), "{log}");
}
