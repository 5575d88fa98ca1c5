//! Servers of a Workflow that are commands: only a run with a confirmation starts them.

use std::fs;

use rexpect::{
    process::WaitStatus,
    session::{PtySession, spawn_command},
};

use crate::Home;

/// The longest wait for a text on the terminal, in milliseconds. It is long enough for a busy machine.
const TIMEOUT_MS: u64 = 60_000;

const WORKFLOW: &str = r#"
apiVersion: signoff.dev/v1alpha1
kind: Workflow
metadata: {name: look}
spec:
  servers:
  - {name: files, command: [sh, server.sh, "two words", "\e[31m"], read: [list]}
  steps:
  - {name: look, mcp: {server: files, tool: list}}
"#;

/// A server that logs its start, and answers line by line.
const SERVER: &str = r#"
echo started >> starts
env > environment
next() { read -r line && printf '%s\n' "$line" >> log; }
next; echo '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"]}}'
next; echo '{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[{"name":"list","inputSchema":{"type":"object"}}]}}'
next; echo '{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","content":[{"type":"text","text":"two files"}]}}'
next
"#;

/// Returns a folder with a Workflow and the script of its server.
fn create_home() -> Home {
    let home = Home::new();
    home.file("look.yaml", WORKFLOW);
    home.file("server.sh", SERVER);
    home
}

/// Returns how many times the server was started.
fn count_starts(home: &Home) -> usize {
    fs::read_to_string(home.path().join("starts")).map_or(0, |text| text.lines().count())
}

fn run_at_terminal(home: &Home) -> PtySession {
    spawn_command(home.signoff(&["run", "look.yaml", "--allow-commands"]), Some(TIMEOUT_MS)).unwrap()
}

/// Returns the rest of the output, and the exit code.
fn wait_for_end(mut session: PtySession) -> (String, i32) {
    let rest = session.exp_eof().unwrap();
    match session.process().wait().unwrap() {
        WaitStatus::Exited(_, code) => (rest, code),
        other => panic!("{other:?} after {rest}"),
    }
}

#[test]
fn no_command_but_run_starts_a_server() {
    let home = create_home();
    for (arguments, code, words) in [
        (&["validate", "look.yaml"][..], 3, "a command is started in local runs only"),
        (&["plan", "look.yaml"][..], 0, ""),
        (&["tools", "look.yaml"][..], 18, "Only `signoff run --allow-commands` starts servers that are commands"),
        (&["run", "look.yaml"][..], 3, "signoff run --allow-commands"),
    ] {
        let ended = home.run(arguments).with(code);
        assert!(format!("{}{}", ended.out, ended.err).contains(words), "{arguments:?}: {ended:#?}");
    }
    assert_eq!(count_starts(&home), 0);
}

#[test]
fn without_a_terminal_a_command_starts_only_with_its_digest() {
    let home = create_home();
    let refused = home.run(&["run", "look.yaml", "--allow-commands"]).with(18);
    for line in ["  \"server.sh\"\n", "  \"two words\"\n", "  \"\\u{1b}[31m\"\n", "\nDigest: sha256:"] {
        assert!(refused.err.contains(line), "{line}: {}", refused.err);
    }
    assert!(refused.err.contains("the command of the server files is not confirmed, and there is no terminal"));
    assert_eq!(count_starts(&home), 0);
    let digest = refused.err.split("--confirm-command ").nth(1).unwrap().trim().to_owned();
    let other = format!("sha256:{}", "0".repeat(64));
    home.run(&["run", "look.yaml", "--allow-commands", "--confirm-command", &other]).with(18);
    home.run(&["run", "look.yaml", "--confirm-command", &digest]).with(2);
    let ran = home.run(&["run", "look.yaml", "--allow-commands", "--confirm-command", &digest]).with(0);
    assert!(ran.out.contains("two files"), "{ran:?}");
    assert_eq!(count_starts(&home), 1);
    let log = fs::read_to_string(home.path().join("log")).unwrap();
    assert!(log.contains("\"tools/list\"") && log.contains("\"tools/call\""), "{log}");
    let environment = fs::read_to_string(home.path().join("environment")).unwrap();
    assert!(!environment.contains("SIGNOFF_SESSIONS_DIR"), "{environment}");
    // A changed command has another digest, which is not confirmed.
    home.file("look.yaml", &WORKFLOW.replace("two words", "three words"));
    home.run(&["run", "look.yaml", "--allow-commands", "--confirm-command", &digest]).with(18);
    assert_eq!(count_starts(&home), 1);
}

#[test]
fn a_person_confirms_a_command_once() {
    let home = create_home();
    let mut person = run_at_terminal(&home);
    person.exp_string("The server files is a command.").unwrap();
    person.exp_string("[y/N] ").unwrap();
    person.send_line("n").unwrap();
    let (rest, code) = wait_for_end(person);
    assert_eq!((code, count_starts(&home)), (18, 0), "{rest}");
    let mut person = run_at_terminal(&home);
    person.exp_string("[y/N] ").unwrap();
    person.send_line("y").unwrap();
    let (rest, code) = wait_for_end(person);
    assert_eq!((code, count_starts(&home)), (0, 1), "{rest}");
    let (rest, code) = wait_for_end(run_at_terminal(&home));
    assert!(!rest.contains("[y/N]"), "{rest}");
    assert_eq!((code, count_starts(&home)), (0, 2), "{rest}");
    // The confirmation also holds without a terminal.
    home.run(&["run", "look.yaml", "--allow-commands"]).with(0);
    assert_eq!(count_starts(&home), 3);
}

#[test]
fn a_package_without_a_version_is_named_and_a_missing_program_too() {
    let home = create_home();
    let npx = home.file("npx", "");
    let command = format!("[{:?}, -y, \"@scope/server\"]", npx.to_str().unwrap());
    let with = |command: &str| WORKFLOW.replace("[sh, server.sh, \"two words\", \"\\e[31m\"]", command);
    assert_ne!(with(&command), WORKFLOW);
    home.file("look.yaml", &with(&command));
    let named = home.run(&["run", "look.yaml", "--allow-commands"]).with(18);
    assert!(named.err.contains("fetches @scope/server in whatever version is the newest"), "{named:?}");
    home.file("look.yaml", &with("[no-such-program-here]"));
    let missing = home.run(&["run", "look.yaml", "--allow-commands"]).with(18);
    assert!(missing.err.contains("there is no program no-such-program-here"), "{missing:?}");
    assert!(!home.path().join("sessions").exists(), "nothing was begun");
}
