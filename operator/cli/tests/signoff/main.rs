//! The program `signoff`: its exit codes, its terminal, its files.
//!
//! The tests need no cluster, and no network beyond this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod api_keys;
mod colours;
mod commands;
mod crashes;
mod endless;
#[allow(dead_code, reason = "the tests of the client use all of it")]
#[path = "../../../mcp/tests/servers/server.rs"]
mod mcp_server;
mod models;
mod patterns;
mod paused;
mod server;
mod terminal;
mod tools;
mod validate;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// The program under test.
const SIGNOFF: &str = env!("CARGO_BIN_EXE_signoff");

/// A Workflow with a draft, a gate about it, and a step with the results of both.
const LETTER: &str = r#"
apiVersion: signoff.dev/v1alpha1
kind: Workflow
metadata: {name: letter}
spec:
  inputs: [{name: customer, value: ACME}]
  providers: [{name: models, scripted: {replies: [{text: Dear customer}]}}]
  agents: [{name: writer}]
  steps:
  - {name: draft, agent: {name: writer, input: "Write to {{ inputs.customer }}"}}
  - name: review
    hitl:
      prompt: "Send this to {{ inputs.customer }}?"
      contextDisplay: "{{ steps.draft.response }}"
      approvers: [{kind: Group, name: finance}]
      allowedVerdicts: [Approve, Reject, Modify, Respond, Abort]
  - {name: done, set: {value: "{{ steps.draft.response }}: {{ hitl_response }}"}}
"#;

/// A Workflow with a gate in each branch.
const BRANCHES: &str = r#"
apiVersion: signoff.dev/v1alpha1
kind: Workflow
metadata: {name: branches}
spec:
  pattern: {parallel: {}}
  steps:
  - {name: ask, branch: left, hitl: {prompt: Left?, approvers: [{kind: User, name: dana}]}}
  - {name: ask, branch: right, hitl: {prompt: Right?, approvers: [{kind: User, name: dana}]}}
"#;

/// The folder of a test, with its files and sessions.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path().join(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// Returns a command of the program in this folder, without settings of the user who runs the test.
    fn signoff(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(SIGNOFF);
        command.args(arguments);
        self.set_environment(&mut command);
        command
    }

    fn set_environment(&self, command: &mut Command) {
        command.current_dir(self.path()).env("SIGNOFF_SESSIONS_DIR", self.path().join("sessions"));
        for name in ["EDITOR", "VISUAL"] {
            command.env_remove(name);
        }
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&self.signoff(arguments).output().unwrap())
    }

    /// Returns the ID of the only session.
    fn id(&self) -> String {
        let mut ids = fs::read_dir(self.path().join("sessions")).unwrap();
        let id = ids.next().expect("there is a session").unwrap().file_name().into_string().unwrap();
        assert!(ids.next().is_none(), "there is one session");
        id
    }

    /// Returns the folder of the only session.
    fn session(&self) -> PathBuf {
        self.path().join("sessions").join(self.id())
    }

    /// Returns the files of the only session's Approvals.
    fn approvals(&self) -> Vec<PathBuf> {
        fs::read_dir(self.session().join("approvals")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

/// The exit code and the output of the program.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    #[track_caller]
    fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}
