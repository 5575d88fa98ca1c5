//! Sessions of a person at a terminal, as pictures: the output of `kubectl approve` at 80 and at 120 columns, in color
//! and without. The pages are compared whole; only names, digests and times that differ from run to run are replaced.

use std::process::Command;

use kube::ResourceExt;
use regex::Regex;
use rexpect::session::spawn_command;
use serde_json::json;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::control_plane::Cluster;
use signoff_tests::snapshot::matches_snapshot;

use crate::asked::plugin;
use crate::runs::Runs;

/// The longest wait for a page, in milliseconds: long, for a machine that is busy with other tests.
const TIMEOUT: u64 = 60_000;

/// The environment variables that could change colors.
const COLOURS: [&str; 4] = ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"];

/// A terminal of one size, on which pages are collected.
struct Terminal<'r> {
    runs: &'r Runs,
    columns: usize,
    coloured: bool,
    pages: String,
}

impl Terminal<'_> {
    /// Runs a command of the plugin as a person of the cast. Each question is answered by the text after it.
    fn run(&mut self, person: &str, words: &[&str], dialog: &[(&str, &str)]) {
        let line = format!("stty cols {} rows 50 && exec \"$0\" \"$@\"", self.columns);
        let mut command = Command::new("sh");
        command.args(["-c", &line]).arg(plugin()).args(words).args(["-n", &self.runs.namespace.name]);
        command.env("KUBECONFIG", self.runs.cluster.kubeconfig_of(person).unwrap()).env("TERM", "xterm");
        for name in COLOURS {
            command.env_remove(name);
        }
        if !self.coloured {
            command.env("NO_COLOR", "1");
        }
        let mut session = spawn_command(command, Some(TIMEOUT)).unwrap();
        let mut seen = String::new();
        for (question, answer) in dialog {
            seen += &session.exp_string(question).unwrap();
            seen += question;
            session.send_line(answer).unwrap();
        }
        seen += &session.exp_eof().unwrap();
        // rexpect makes a character of every byte.
        let bytes = seen.chars().map(|c| u8::try_from(c).unwrap()).collect();
        let text = String::from_utf8(bytes).unwrap().replace("\r\n", "\n");
        self.pages +=
            &format!("$ kubectl approve {} -n {}   # {person}\n{text}\n", words.join(" "), self.runs.namespace.name);
    }

    /// Returns the pages without the parts that differ from run to run.
    fn normalized(self) -> String {
        let replaced = self.pages.replace(&self.runs.namespace.name, &"n".repeat(self.runs.namespace.name.len()));
        let rules = [
            (r"-review-[0-9a-f]{10}", "-review-0a1b2c3d4e"),
            (r"sha256:[0-9a-f]{64}", "sha256:00000000000000000000000000000000000000000000000000000000000000ff"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-11-24T09:30:00Z"),
            (r"in 2[34]h", "in 23h"),
            // A cell with an age is as wide as its column, whatever the age. The codes of colors are no ages.
            (r"(^|[^\[;0-9A-Za-z]|\x1b\[[0-9;]*m)(?:\d+m)?\d+[sm]( ago)?   +", "${1}0s$2   "),
            (r"(^|[^\[;0-9A-Za-z]|\x1b\[[0-9;]*m)(?:\d+m)?\d+[sm]\b", "${1}0s"),
            (r"\b(STATE|STARTED|TOOK|AGE)   +", "$1   "),
            // A busy operator may count after more than two seconds.
            (r"approval\.signoff\.dev/\S+ \w+ (recorded|counted)[^\n]*; still waiting\n", ""),
            (r"\x1b", "^["),
        ];
        rules
            .iter()
            .fold(replaced, |text, (pattern, with)| Regex::new(pattern).unwrap().replace_all(&text, *with).into_owned())
    }
}

/// Plays the session of an approver on a terminal of this size.
async fn check_session(columns: usize, coloured: bool) {
    let runs = Runs::on(Cluster::operated().unwrap(), "terminal").await;
    let context = "Dear ACME,\n\nwe refund 420 EUR for your order 4711, which arrived damaged on Monday; the amount is on its way to your account.";
    runs.request("letter", json!({"prompt": "Send this letter to ACME?", "contextDisplay": context})).await;
    let approval = runs.wait_for_gate("letter").await.name_any();
    let waits = |run: Option<&signoff_api::Workflow>| {
        run.and_then(|run| run.status.as_ref()).is_some_and(|status| status.phase == WorkflowPhase::Waiting)
    };
    runs.until(runs.api(), "letter", "waits", waits).await;
    let mut terminal = Terminal { runs: &runs, columns, coloured, pages: String::new() };
    tokio::task::block_in_place(|| {
        terminal.run("alice", &["list"], &[]);
        terminal.run("dana", &["status", "letter"], &[]);
        terminal.run("alice", &["show", &approval], &[]);
        terminal.run("bob", &["show", "letter/review"], &[]);
        terminal.run("alice", &["reject", "letter/review"], &[("[y/N]", "n")]);
        terminal.run(
            "alice",
            &["approve", "letter/review", "--reason", "the numbers are right", "--wait=60s"],
            &[("[y/N]", "y")],
        );
        terminal.run("alice", &["approve", &approval], &[]);
        terminal.run("alice", &["show", "no-such-approval"], &[]);
    });
    runs.wait_for_end("letter").await;
    tokio::task::block_in_place(|| {
        terminal.run("dana", &["status", "letter"], &[]);
        terminal.run("dana", &["cancel", "letter"], &[("[y/N]", "y")]);
    });
    let look = if coloured { "coloured" } else { "plain" };
    matches_snapshot(&format!("cluster/snapshots/terminal-{columns}-{look}.txt"), &terminal.normalized());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_at_80_columns_in_colour_looks_as_it_did() {
    check_session(80, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_at_80_columns_without_colour_looks_as_it_did() {
    check_session(80, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_at_120_columns_in_colour_looks_as_it_did() {
    check_session(120, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_at_120_columns_without_colour_looks_as_it_did() {
    check_session(120, false).await;
}
