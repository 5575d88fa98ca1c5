//! `signoff tools` and `signoff plan --catalogue`, against a server on loopback that records its requests.

use std::{fs, net::TcpListener};

use serde_json::{Value, json};

use crate::{
    Ended, Home,
    mcp_server::{Server, digest, refund, stateless, text, with_session},
};

const VALUE: &str = "crm-hunter2-hunter2";

fn customer() -> Value {
    json!({"name": "get_customer", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}})
}

fn drop_table() -> Value {
    json!({"name": "drop", "description": "x", "inputSchema": {"type": "object"}})
}

/// Starts a server with three tools, and a fourth one whose invalid name would colour a terminal.
async fn start_server() -> Server {
    let hostile = json!({"name": "admin\u{202e}\u{1b}[31m", "inputSchema": {"type": "object"}});
    let tools = json!([refund(), customer(), drop_table(), hostile]);
    Server::start(move |request| stateless(request, &tools, &text("called"))).await
}

fn url(server: &Server) -> String {
    format!("http://{}/mcp", server.address)
}

/// Returns a Workflow whose agent `clerk` has the tools of a server. `more`: further lines of the server.
fn workflow(url: &str, more: &str) -> String {
    format!(
        r#"apiVersion: signoff.dev/v1alpha1
kind: Workflow
metadata: {{name: clerk}}
spec:
  providers: [{{name: models, scripted: {{replies: [{{text: done}}]}}}}]
  servers:
  - name: crm   # ours
    url: "{url}"
{more}  agents:
  - {{name: clerk, tools: ["crm.*"]}}
  gates:
  - name: money
    type: specificTools
    tools: [crm.refund]
    hitl: {{prompt: "Refund?", approvers: [{{kind: Group, name: finance}}]}}
  steps:
  - {{name: handle, agent: {{name: clerk, input: x}}}}
"#
    )
}

/// Returns the cells of a tool's row.
fn find_row<'t>(ended: &'t Ended, tool: &str) -> Vec<&'t str> {
    let row = ended.out.lines().find(|line| line.starts_with(&format!("{tool} ")));
    row.unwrap_or_else(|| panic!("no row of {tool}: {ended:#?}")).split_whitespace().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tools_of_a_url_are_listed_with_hints_size_and_digest_and_none_is_called() {
    let (home, server) = (Home::new(), start_server().await);
    let ended = home.run(&["tools", &url(&server)]).with(0);
    assert!(ended.out.starts_with(&format!("Server server ({}), protocol 2026-07-28\n", url(&server))), "{ended:?}");
    for (tool, hints) in [(refund(), "irreversible"), (customer(), "read"), (drop_table(), "unknown")] {
        let (bytes, digest) = (tool.to_string().len().to_string(), digest(&tool).to_string());
        let name = tool["name"].as_str().unwrap();
        assert_eq!(find_row(&ended, name), [name, hints, &bytes, "none", &digest]);
    }
    assert!(ended.out.contains("  server lists a tool that is not offered, admin"), "{ended:?}");
    assert!(ended.out.contains("its name is not 1 to 64 letters, digits, _ and -"), "{ended:?}");
    assert!(!ended.out.contains(['\u{1b}', '\u{202e}']), "{ended:?}");
    assert_eq!(server.asked(), ["tools/list"]);
    let ended = home.run(&["tools", &url(&server), "--server", "crm", "--tool", "get_*", "-o", "json"]).with(0);
    let page: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&page["servers"][0]["server"], &page["agents"]), (&json!("crm"), &Value::Null));
    let tools = json!([{"name": "get_customer", "hints": "read", "bytes": customer().to_string().len(), "pin": "none",
        "definition": digest(&customer())}]);
    assert_eq!(page["servers"][0]["tools"], tools);
    assert!(!ended.out.contains(['\u{1b}', '\u{202e}']), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_the_older_version_is_ended() {
    let home = Home::new();
    let tools = json!([refund()]);
    let server = Server::start(move |request| with_session(request, &tools, &text(""))).await;
    let ended = home.run(&["tools", &url(&server)]).with(0);
    assert!(ended.out.contains("protocol 2025-11-25\n"), "{ended:?}");
    assert_eq!(server.asked().last().map(String::as_str), Some("DELETE"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_sent_only_to_the_hosts_of_its_secret_and_never_printed() {
    let (home, server) = (Home::new(), start_server().await);
    let hosts = format!("http://{}", server.address);
    let run = |arguments: &[&str], hosts: &str| {
        let mut command = home.signoff(arguments);
        command.env("SIGNOFF_SECRET_CRM_TOKEN", VALUE).env("SIGNOFF_SECRET_CRM_ALLOWED_HOSTS", hosts);
        Ended::of(&command.output().unwrap())
    };
    let url = url(&server);
    let refused = run(&["tools", &url, "--key", "crm/token"], "127.0.0.1").with(2);
    assert!(refused.err.contains(&format!("if it belongs there, add {hosts}")), "{refused:?}");
    assert!(server.asked().is_empty());
    let bearer = run(&["tools", &url, "--key", "crm/token"], &hosts).with(0);
    let own = run(&["tools", &url, "--key", "crm/token", "--header", "X-Api-Key"], &hosts).with(0);
    let log = server.log();
    assert_eq!(log[0].header("authorization"), format!("Bearer {VALUE}"));
    assert_eq!((log[1].header("x-api-key"), log[1].header("authorization")), (VALUE, ""));
    let more = "    key: crm\n  secrets: [{name: crm, secret: crm, key: token}]\n";
    home.file("w.yaml", &workflow(&url, more));
    let of_file = run(&["tools", "w.yaml"], &hosts).with(0);
    assert_eq!(server.log()[2].header("authorization"), format!("Bearer {VALUE}"));
    assert!(!format!("{refused:?}{bearer:?}{own:?}{of_file:?}").contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tools_of_a_file_are_listed_with_the_gates_for_each_agent() {
    let (home, server) = (Home::new(), start_server().await);
    let pins = format!(
        "    read: [\"get_*\"]\n    pins:\n    - {{tool: refund, definition: \"{}\"}}\n    - {{tool: gone, definition: \"{}\"}}\n",
        digest(&customer()),
        digest(&customer())
    );
    home.file("w.yaml", &workflow(&url(&server), &pins));
    let ended = home.run(&["tools", "w.yaml"]).with(0);
    assert_eq!(find_row(&ended, "refund")[3], "changed");
    for lines in [
        "\nTools of agent clerk\n  crm.drop: tool of the server crm\n    effects unknown, treated as irreversible\n    refused: ",
        "\n  crm.get_customer: tool of the server crm\n    effects read\n    runs unasked: it is known to change nothing\n",
        "    gate money (specificTools) asks\n",
        "\nGates of tools\n  money\n    1 of group finance\n",
        "  crm.refund has changed since it was pinned: the pin is sha256:",
        "  crm.gone is pinned, and the server does not list it\n",
    ] {
        assert!(ended.out.contains(lines), "{lines}: {}", ended.out);
    }
    let page = home.run(&["tools", "w.yaml", "-o", "json"]).with(0);
    let page: Value = serde_json::from_str(&page.out).unwrap();
    assert_eq!(page["servers"][0]["changedPins"].as_array().unwrap().len(), 2);
    assert_eq!(page["agents"][0]["tools"][0]["name"], "crm.drop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_are_written_beside_the_comments_of_the_file() {
    let (home, server) = (Home::new(), start_server().await);
    let before = workflow(&url(&server), "    read: [\"get_*\"]   # look only\n");
    let file = home.file("w.yaml", &before);
    let first = home.run(&["tools", "w.yaml", "--tool", "refund", "--pin"]).with(0);
    assert!(
        first.err.contains("w.yaml: pinned crm.refund. A pinned tool runs unasked where no gate asks"),
        "{first:?}"
    );
    let pin = |tool: &Value| {
        format!("    - {{tool: \"{}\", definition: \"{}\"}}\n", tool["name"].as_str().unwrap(), digest(tool))
    };
    let one = before.replace("# look only\n", &format!("# look only\n    pins:\n{}", pin(&refund())));
    assert_eq!(fs::read_to_string(&file).unwrap(), one);
    home.run(&["tools", "w.yaml", "--pin"]).with(0);
    let all = one.replace(&pin(&refund()), &(pin(&refund()) + &pin(&drop_table()) + &pin(&customer())));
    assert_eq!(fs::read_to_string(&file).unwrap(), all);
    home.run(&["validate", "w.yaml"]).with(0);
    let again = home.run(&["tools", "w.yaml", "--pin"]).with(0);
    assert!(again.err.contains("w.yaml has these pins already"), "{again:?}");
    assert_eq!(find_row(&again, "refund")[3], "same");
    assert!(again.out.contains("    runs unasked: its definition is pinned\n"), "{again:?}");
    // A file that cannot be edited stays unchanged.
    let twice = before.replace("  - name: crm   # ours\n", "  - &a\n    name: crm\n");
    let utf16: Vec<u8> = "\u{feff}".encode_utf16().chain(before.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    for bytes in [utf16, twice.replace("  agents:\n", "  - {<<: *a, name: erp}\n  agents:\n").into_bytes()] {
        fs::write(&file, &bytes).unwrap();
        let refused = home.run(&["tools", "w.yaml", "--pin", "--server", "crm"]);
        assert!([Some(12), Some(3)].contains(&refused.code), "{refused:?}");
        assert_eq!(fs::read(&file).unwrap(), bytes);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_with_saved_catalogues_is_exact_and_asks_no_server() {
    let (home, server) = (Home::new(), start_server().await);
    home.file("w.yaml", &workflow(&url(&server), ""));
    let saved = home.run(&["tools", "w.yaml", "--catalogue", "c.json"]).with(0);
    assert!(saved.err.contains("the catalogues are saved in c.json"), "{saved:?}");
    let asked = server.asked().len();
    let taken = home.run(&["tools", "w.yaml", "--catalogue", "c.json"]).with(12);
    assert!(taken.err.contains("c.json exists: overwrite it with --force"), "{taken:?}");
    home.run(&["tools", "w.yaml", "--catalogue", "c.json", "--force"]).with(0);
    assert_eq!(server.asked().len(), asked + 2);
    let rough = home.run(&["plan", "w.yaml"]).with(0);
    assert!(rough.out.contains("  crm.*: tools of the server at http://"), "{rough:?}");
    let exact = home.run(&["plan", "w.yaml", "--catalogue", "c.json"]).with(0);
    assert!(exact.out.contains("  crm.drop: tool of the server crm\n    effects unknown"), "{exact:?}");
    assert!(exact.out.contains("    refused: it may change something, and its definition is not pinned. Add a gate"));
    assert!(exact.err.contains("warning: crm lists a tool that is not offered, admin"), "{exact:?}");
    assert!(!format!("{}{}", exact.out, exact.err).contains(['\u{1b}', '\u{202e}']));
    assert_eq!(server.asked().len(), asked + 2, "a plan asks no server");
    home.run(&["plan", "w.yaml", "--catalogue", "none.json"]).with(2);
    home.file("bad.json", "[]");
    let bad = home.run(&["plan", "w.yaml", "--catalogue", "bad.json"]).with(3);
    assert!(bad.err.contains("bad.json has no catalogues as `signoff tools --catalogue` saves them"), "{bad:?}");
}

#[test]
fn validate_warns_of_tools_that_are_neither_asked_about_nor_pinned() {
    let home = Home::new();
    let pin = format!("    pins: [{{tool: drop, definition: \"{}\"}}]\n", digest(&drop_table()));
    let all = "    hitl: {prompt: \"Refund?\"";
    for (listed, more, gate, warned) in [
        ("\"crm.*\"", "", "", Some("crm.*")),
        ("crm.drop, crm.refund", "", "", Some("crm.drop")),
        ("crm.drop, crm.refund", pin.as_str(), "", None),
        ("crm.drop, crm.refund", "    read: [\"d*\"]\n", "", None),
        ("\"crm.*\"", "    read: [\"*\"]\n", "", None),
        ("\"crm.*\"", "", "toolExecution", None),
        ("\"crm.*\"", "", "destructiveActions", None),
    ] {
        let mut text = workflow("https://crm.example.com/mcp", more).replace("[\"crm.*\"]", &format!("[{listed}]"));
        if !gate.is_empty() {
            let specific = format!("    type: specificTools\n    tools: [crm.refund]\n{all}");
            text = text.replace(&specific, &format!("    type: {gate}\n{all}"));
            assert!(text.contains(gate));
        }
        home.file("w.yaml", &text);
        let ended = home.run(&["validate", "w.yaml", "--format", "line"]).with(0);
        let words =
            warned.map(|entry| format!("spec.servers[0]: no gate asks about all calls of {entry}: a call that may"));
        assert_eq!(ended.out.contains("no gate asks"), warned.is_some(), "{listed} {more}: {ended:?}");
        assert!(words.is_none_or(|words| ended.out.contains(&words)), "{listed} {more}: {ended:?}");
    }
}

#[test]
fn every_failure_has_its_exit_code_and_says_the_remedy() {
    let home = Home::new();
    // A port on which no server listens.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (url, place) = (format!("http://{address}/mcp"), address.to_string());
    home.file("w.yaml", &workflow(&url, ""));
    home.file("plain.yaml", crate::LETTER);
    home.file("wrong.yaml", "kind: Workflow\n");
    let command = workflow(&url, "").replace(&format!("url: \"{url}\""), "command: [no-such-program]");
    home.file("command.yaml", &command);
    for (arguments, code, words) in [
        (&["tools", &url][..], 10, place.as_str()),
        (&["tools", "w.yaml", "--pin"][..], 10, place.as_str()),
        (&["tools", "w.yaml", "--server", "erp"][..], 2, "w.yaml has no server erp: it has crm"),
        (&["tools", "w.yaml", "--key", "crm/token"][..], 2, "a file names the keys of its servers"),
        (&["tools", &url, "--pin"][..], 2, "name that file instead of a URL"),
        (&["tools", &url, "--key", "token"][..], 2, "--key is a Secret and a key of it"),
        (&["tools", "https://dana:hunter2@crm.example.com/mcp"][..], 2, "it has a user name or a password"),
        (&["tools", "none.yaml"][..], 2, "none.yaml: "),
        (&["tools", "plain.yaml"][..], 2, "plain.yaml has no servers"),
        (&["tools", "wrong.yaml"][..], 3, "wrong.yaml: "),
        (&["tools", "command.yaml"][..], 18, "not asked: crm. Only `signoff run --allow-commands` starts"),
    ] {
        let ended = home.run(arguments).with(code);
        assert!(ended.err.contains(words) && !ended.err.contains("hunter2"), "{arguments:?}: {ended:#?}");
    }
    assert_eq!(fs::read_to_string(home.path().join("w.yaml")).unwrap(), workflow(&url, ""));
}
