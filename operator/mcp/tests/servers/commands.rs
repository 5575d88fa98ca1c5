//! Tests of servers that are commands: a shell that answers line by line.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use signoff_executor::{ErrorClass, ToolEnding};
use signoff_mcp::stdio::{ServerCommand, StdioServer};

use crate::server::{SHORT, TIMEOUT, decided, output, refund, unasked};

const DISCOVERED: &str =
    r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"]}}"#;
const LISTED: &str = concat!(
    r#""result":{"resultType":"complete","tools":[{"name":"refund","description":"Pays back.","#,
    r#""inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}}]}}"#
);

/// Returns a shell command with this script, which writes every received line to a file.
fn shell(log: &Path, script: &str) -> ServerCommand {
    let next = r#"next() { read -r line && printf '%s\n' "$line" >> "$LOG"; }"#;
    let env = BTreeMap::from([("LOG".to_owned(), log.to_str().unwrap().to_owned())]);
    ServerCommand { program: "sh".into(), arguments: vec!["-c".into(), format!("{next}\n{script}")], env }
}

async fn start(command: ServerCommand) -> Result<StdioServer, signoff_executor::CallError> {
    StdioServer::start("files", &command.resolve().unwrap(), TIMEOUT).await
}

#[tokio::test]
async fn a_command_of_the_newer_version_is_listed_and_called() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = format!(
        "next; echo '{DISCOVERED}'\nnext; echo '{{\"jsonrpc\":\"2.0\",\"id\":2,{LISTED}'\n\
         next; echo '{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}}'\n\
         echo '{{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"paid\"}}]}}}}'\nnext"
    );
    let mut server = start(shell(&log, &script)).await.unwrap();
    let reply = server.call(decided(&refund()), TIMEOUT).await.unwrap();
    assert_eq!((reply.protocol, output(reply).response), ("2026-07-28", json!("paid")));
    let sent = fs::read_to_string(&log).unwrap();
    let methods: Vec<_> =
        sent.lines().map(|line| line.parse::<serde_json::Value>().unwrap()["method"].clone()).collect();
    assert_eq!(methods, ["server/discover", "tools/list", "tools/call"].map(|method| json!(method)));
}

#[tokio::test]
async fn a_command_of_the_older_version_has_its_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = r#"
        next; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}'
        next; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
        next
        next; echo '{"jsonrpc":"2.0","id":"s","method":"roots/list"}'
        next"#;
    let mut server = start(shell(&log, script)).await.unwrap();
    let reply = server.call(unasked("refund"), TIMEOUT).await.unwrap();
    assert_eq!((reply.protocol, reply.ending), ("2025-11-25", ToolEnding::AskedBack(vec!["roots".to_owned()])));
    let sent = fs::read_to_string(&log).unwrap();
    assert!(
        sent.contains("notifications/initialized") && sent.contains("\"protocolVersion\":\"2025-11-25\""),
        "{sent}"
    );
}

#[tokio::test]
async fn a_command_sees_path_home_and_its_own_variables_only() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = r#"env | sort > "$LOG"; exit 3"#;
    let failed = start(shell(&log, script)).await.err().unwrap();
    assert!(!failed.sent && failed.message.contains("it has ended"), "{failed:?}");
    let sent = fs::read_to_string(&log).unwrap();
    let names: Vec<_> = sent.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    // The last three are set by the shell itself.
    assert!(names.iter().all(|name| ["HOME", "LOG", "PATH", "PWD", "SHLVL", "_"].contains(name)), "{names:?}");
}

#[tokio::test]
async fn a_failed_command_is_reported_with_its_error_output() {
    let folder = tempfile::tempdir().unwrap();
    let failed =
        start(shell(&folder.path().join("log"), "echo 'no module \u{1b}[31mfound' >&2; exit 1")).await.err().unwrap();
    assert!(failed.message.ends_with("it has ended: no module [31mfound"), "{failed}");
    assert!(failed.class == ErrorClass::Protocol && !failed.sent, "{failed:?}");
}

#[tokio::test]
async fn a_command_with_invalid_output_gets_no_further_request() {
    let folder = tempfile::tempdir().unwrap();
    for script in [
        "echo 'Server started'",
        "while :; do printf '%s' xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
    ] {
        let script = format!("next; echo '{DISCOVERED}'; next; {script}; next");
        let mut server = start(shell(&folder.path().join("log"), &script)).await.unwrap();
        let failed = server.call(unasked("refund"), TIMEOUT).await.unwrap_err();
        assert!(failed.class == ErrorClass::Protocol && failed.sent, "{failed:?}");
        let again = server.call(unasked("refund"), TIMEOUT).await.unwrap_err();
        assert!(again.class == ErrorClass::Unreachable && !again.sent, "{again:?}");
    }
}

#[tokio::test]
async fn a_late_answer_is_not_the_answer_to_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let late = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"late"}]}}"#;
    let own = r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"own"}]}}"#;
    // The call, its cancellation, and the next call.
    let script = format!("next; echo '{DISCOVERED}'; next; next; next; echo '{late}'; echo '{own}'; next");
    let mut server = start(shell(&log, &script)).await.unwrap();
    let failed = server.call(unasked("refund"), SHORT).await.unwrap_err();
    assert!(failed.class == ErrorClass::Timeout && failed.sent, "{failed:?}");
    assert_eq!(output(server.call(unasked("refund"), TIMEOUT).await.unwrap()).response, json!("own"));
    assert!(fs::read_to_string(&log).unwrap().contains("notifications/cancelled"));
}

#[tokio::test]
async fn every_process_of_a_command_ends_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    // The writer is a child of the shell.
    let script = format!("next; echo '{DISCOVERED}'; (sleep 300 & echo $! > \"$LOG.pid\"; wait) & next");
    let server = start(shell(&log, &script)).await.unwrap();
    let pid = folder.path().join("log.pid");
    assert!(wait_until(|| fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'))).await);
    drop(server);
    let number = fs::read_to_string(&pid).unwrap();
    // A process that has ended and was not waited for counts as ended.
    let has_ended = || {
        let state = fs::read_to_string(format!("/proc/{}/stat", number.trim())).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    };
    assert!(wait_until(has_ended).await);
}

/// Waits up to five seconds until a condition holds. There is no event for the process of another program.
async fn wait_until(is_true: impl Fn() -> bool) -> bool {
    for _ in 0..500 {
        if is_true() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}
