//! The client of MCP servers against servers that others wrote: two of npm, and rmcp's own in both versions.
//!
//! The spoken version is read from the transport: by a relay before servers over HTTP, by `tee` around a command.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use signoff_api::{catalogue::Catalogue, tool::Effects};
use signoff_executor::{
    AddressSettings, HttpClient, ServerAddress, ToolEnding, ToolOutput, ToolReply, ToolRequest, ToolServer,
    ToolServers as _, http::HttpSettings,
};
use signoff_mcp::{
    McpClient, Protocol,
    stdio::{ServerCommand, StdioServer},
};
use signoff_tests::{
    mcp::McpVersion,
    npm_servers::{EVERYTHING, EverythingServer, FILESYSTEM, command_line},
    rmcp_server::RmcpServer,
    wire::{Wire, WireRequest},
};

const TIMEOUT: Duration = Duration::from_secs(60);
const NEWER: &str = "2026-07-28";
const OLDER: &str = "2025-11-25";
/// The field of `_meta` that names the version of a request.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Returns a client that can reach loopback.
fn client() -> McpClient {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let addresses = AddressSettings::default().with_loopback();
    McpClient::new(HttpClient::new(HttpSettings { addresses, ..HttpSettings::default() }).unwrap())
}

/// Returns the server behind a relay.
fn server_behind(wire: &Wire) -> ToolServer {
    let address = ServerAddress::Url(wire.url("/mcp"));
    ToolServer { namespace: "team".to_owned(), name: "real".to_owned(), address, key: None }
}

/// Returns a call that people decided about, with its definition in a catalogue.
fn decided_request(catalogue: &Catalogue, tool: &str, arguments: Value) -> ToolRequest {
    let definition = Some(catalogue.tool(tool).unwrap().digest().clone());
    ToolRequest { tool: tool.to_owned(), arguments, definition, schema: None, depth: 0 }
}

/// Returns a call that needs no decision, with the recorded schema.
fn unasked_request(catalogue: &Catalogue, tool: &str, arguments: Value) -> ToolRequest {
    let schema = catalogue.tool(tool).unwrap().definition().get("inputSchema").cloned();
    ToolRequest { tool: tool.to_owned(), arguments, definition: None, schema, depth: 0 }
}

fn output(reply: ToolReply) -> ToolOutput {
    match reply.ending {
        ToolEnding::Result(output) => output,
        other => panic!("{other:?}"),
    }
}

fn names(catalogue: &Catalogue) -> Vec<&str> {
    catalogue.tools().iter().map(|tool| tool.name()).collect()
}

/// Calls tools of `server-everything`, over any transport.
async fn play_everything(catalogue: &Catalogue, mut call: impl AsyncFnMut(ToolRequest) -> ToolReply) {
    // A tool that needs input is registered for clients that answer; a tool that runs only as a task is skipped.
    let offered = names(catalogue);
    assert!(["echo", "get-sum", "get-structured-content", "get-tiny-image"].iter().all(|name| offered.contains(name)));
    let asks_back = |name: &&str| ["sampling", "elicitation", "roots"].iter().any(|word| name.contains(word));
    assert!(!offered.iter().any(asks_back), "{offered:?}");
    let left_out: Vec<_> = catalogue.left_out().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(left_out, ["simulate-research-query"]);
    assert_eq!(catalogue.tool("echo").unwrap().hinted_effects(), Some(Effects::Read));

    let reply = call(decided_request(catalogue, "echo", json!({"message": "hello ü"}))).await;
    assert_eq!((reply.protocol, output(reply).response), (OLDER, json!("Echo: hello ü")));
    let sum = output(call(unasked_request(catalogue, "get-sum", json!({"a": 2, "b": 40}))).await);
    assert_eq!((sum.response, sum.is_error), (json!("The sum of 2 and 40 is 42."), false));
    let weather =
        output(call(unasked_request(catalogue, "get-structured-content", json!({"location": "Chicago"}))).await);
    assert_eq!(weather.response, json!({"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}));

    let image = output(call(unasked_request(catalogue, "get-tiny-image", json!({}))).await);
    let [attachment] = image.attachments.as_slice() else { panic!("{image:?}") };
    assert_eq!((attachment.kind.as_str(), attachment.media_type.as_str()), ("image", "image/png"));
    let text = image.response.as_str().unwrap();
    assert!(text.contains("[image image/png, ") && !text.contains("iVBOR"), "{text}");

    let wrong = output(call(unasked_request(catalogue, "get-sum", json!({"a": "x", "b": 1}))).await);
    assert!(wrong.is_error && wrong.response.as_str().unwrap().contains("expected number"), "{wrong:?}");
    let renamed = ToolRequest { tool: "no-such-tool".to_owned(), ..decided_request(catalogue, "echo", json!({})) };
    assert_eq!(call(renamed).await.ending, ToolEnding::Changed(None));
}

fn count(sent: &[WireRequest], asks: &str) -> usize {
    sent.iter().filter(|request| request.asks() == asks).count()
}

/// Checks that a server got one request in the newer version, and all others in the older one.
fn assert_older_on_wire(wire: &Wire) {
    let sent = wire.sent();
    let (probe, others) = sent.split_first().unwrap();
    assert_eq!((probe.asks(), probe.header("mcp-protocol-version")), ("tools/list", NEWER));
    for request in others {
        match request.asks() {
            "initialize" => assert_eq!(request.body["params"]["protocolVersion"], OLDER),
            asks => {
                assert_eq!(request.header("mcp-protocol-version"), OLDER, "{asks}");
                assert!(!request.header("mcp-session-id").is_empty(), "{asks}");
            }
        }
        assert_eq!(request.body["params"]["_meta"].get(VERSION), None);
    }
    assert!(wire.received().contains(&format!(r#""protocolVersion":"{OLDER}""#)));
    let sessions = count(&sent, "initialize");
    assert!(sessions > 0);
    assert_eq!((count(&sent, "notifications/initialized"), count(&sent, "DELETE")), (sessions, sessions));
}

/// Checks that all requests were in the newer version.
fn assert_newer_on_wire(wire: &Wire) {
    let sent = wire.sent();
    assert!(!sent.is_empty());
    for request in &sent {
        let version = &request.body["params"]["_meta"][VERSION];
        assert_eq!((request.header("mcp-protocol-version"), version), (NEWER, &json!(NEWER)), "{}", request.asks());
        assert_eq!(request.header("mcp-method"), request.asks());
        assert!(!request.headers.contains_key("mcp-session-id"));
    }
    assert_eq!((count(&sent, "initialize"), count(&sent, "DELETE")), (0, 0));
    assert!(wire.received().contains(r#""resultType":"complete""#));
}

#[tokio::test]
async fn everything_over_http_speaks_2025_11_25() {
    let server = EverythingServer::start().await.unwrap();
    let wire = Wire::start(server.address()).await.unwrap();
    let (client, server) = (client(), server_behind(&wire));
    let (catalogue, protocol) = client.list(&server, TIMEOUT).await.unwrap();
    assert_eq!(protocol, Protocol::Session);
    play_everything(&catalogue, async |request| client.call(&server, request, TIMEOUT).await.unwrap()).await;
    client.settled().await;
    assert_older_on_wire(&wire);
    // Each was sent once, and the renamed one not at all.
    assert_eq!(count(&wire.sent(), "tools/call"), 5);
}

/// Returns a command of a server that records its input and its output in two files beside `log`.
async fn command(package: &str, arguments: &[&str], log: &Path) -> ServerCommand {
    let tee = r#"tee "$LOG.in" | "$0" "$@" | tee "$LOG.out""#;
    let own = command_line(package, arguments).await.unwrap();
    let arguments = ["-c".to_owned(), tee.to_owned()].into_iter().chain(own).collect();
    let env = BTreeMap::from([("LOG".to_owned(), log.to_str().unwrap().to_owned())]);
    ServerCommand { program: "sh".to_owned(), arguments, env }
}

/// Checks that a command got the first request in the newer version, and answered in the older one.
fn assert_older_on_streams(log: &Path) {
    let messages = |end: &str| -> Vec<Value> {
        let text = fs::read_to_string(log.with_extension(end)).unwrap();
        // The last line may be incomplete.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let (sent, received) = (messages("in"), messages("out"));
    let methods: Vec<_> = sent.iter().map(|message| message["method"].as_str().unwrap()).collect();
    assert_eq!(methods[..4], ["server/discover", "initialize", "notifications/initialized", "tools/list"]);
    assert_eq!(sent[0]["params"]["_meta"][VERSION], NEWER);
    assert_eq!(sent[1]["params"]["protocolVersion"], OLDER);
    assert!(sent[1..].iter().all(|message| message["params"]["_meta"].get(VERSION).is_none()));
    assert!(received.iter().any(|message| message["result"]["protocolVersion"] == OLDER), "{received:?}");
}

#[tokio::test]
async fn everything_over_standard_streams_speaks_2025_11_25() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let command = command(EVERYTHING, &["stdio"], &log).await.resolve().unwrap();
    let mut server = StdioServer::start("everything", &command, TIMEOUT).await.unwrap();
    let catalogue = server.catalogue(TIMEOUT).await.unwrap();
    play_everything(&catalogue, async |request| server.call(request, TIMEOUT).await.unwrap()).await;
    assert_older_on_streams(&log);
}

#[tokio::test]
async fn filesystem_over_standard_streams_writes_what_was_decided_and_nothing_outside() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    let (log, shared) = (root.join("log"), root.join("shared"));
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("order.txt"), "order 4711").unwrap();
    fs::write(root.join("secret.txt"), "hunter2").unwrap();
    let path = |file: &Path| file.to_str().unwrap().to_owned();
    let command = command(FILESYSTEM, &[&path(&shared)], &log).await.resolve().unwrap();
    let mut server = StdioServer::start("files", &command, TIMEOUT).await.unwrap();
    let catalogue = server.catalogue(TIMEOUT).await.unwrap();
    let effects = |tool: &str| catalogue.tool(tool).unwrap().hinted_effects();
    assert_eq!((effects("read_text_file"), effects("write_file")), (Some(Effects::Read), Some(Effects::Irreversible)));

    let read = |file: &Path| unasked_request(&catalogue, "read_text_file", json!({"path": path(file)}));
    let order = server.call(read(&shared.join("order.txt")), TIMEOUT).await.unwrap();
    assert_eq!((order.protocol, output(order).response), (OLDER, json!({"content": "order 4711"})));
    let secret = output(server.call(read(&root.join("secret.txt")), TIMEOUT).await.unwrap());
    assert!(secret.is_error && secret.response.as_str().unwrap().starts_with("Access denied"), "{secret:?}");

    let letter = shared.join("letter.txt");
    let write = decided_request(&catalogue, "write_file", json!({"path": path(&letter), "content": "Dear ACME"}));
    assert!(!output(server.call(write.clone(), TIMEOUT).await.unwrap()).is_error);
    assert_eq!(fs::read_to_string(&letter).unwrap(), "Dear ACME");
    // A decision about another definition is no decision about this one.
    let other = decided_request(&catalogue, "edit_file", json!({}));
    let wrong = ToolRequest {
        definition: other.definition,
        arguments: json!({"path": path(&letter), "content": "Dear Mallory"}),
        ..write
    };
    let reply = server.call(wrong, TIMEOUT).await.unwrap();
    assert!(matches!(reply.ending, ToolEnding::Changed(Some(_))), "{reply:?}");
    assert_eq!(fs::read_to_string(&letter).unwrap(), "Dear ACME");
    assert_older_on_streams(&log);
}

#[tokio::test]
async fn rmcp_speaks_either_version_and_what_it_asks_for_is_declined() {
    for (version, protocol, text) in
        [(McpVersion::Stateless, Protocol::Stateless, NEWER), (McpVersion::Session, Protocol::Session, OLDER)]
    {
        let rmcp = RmcpServer::start(version).await.unwrap();
        let wire = Wire::start(rmcp.address()).await.unwrap();
        let (client, server) = (client(), server_behind(&wire));
        let (catalogue, spoken) = client.list(&server, TIMEOUT).await.unwrap();
        assert_eq!(spoken, protocol);
        assert_eq!(names(&catalogue), ["close_account", "get_customer", "refund"]);

        let customer = unasked_request(&catalogue, "get_customer", json!({"name": "Müller"}));
        let reply = client.call(&server, customer, TIMEOUT).await.unwrap();
        assert_eq!((reply.protocol, output(reply).response), (text, json!("Müller is a customer")));
        let refund = decided_request(&catalogue, "refund", json!({"amount": 420}));
        let reply = client.call(&server, refund, TIMEOUT).await.unwrap();
        assert_eq!((reply.protocol, output(reply).response), (text, json!({"refunded": 420})));

        let close = decided_request(&catalogue, "close_account", json!({}));
        let ending = client.call(&server, close, TIMEOUT).await.unwrap().ending;
        match version {
            McpVersion::Stateless => {
                let asked = ["elicitation", "elicitation by a web page"].map(str::to_owned);
                assert_eq!(ending, ToolEnding::AskedBack(asked.to_vec()));
                assert!(wire.received().contains(r#""resultType":"input_required""#));
            }
            // rmcp has no such result in the older version.
            McpVersion::Session => assert!(matches!(ending, ToolEnding::Error { code: -32600, .. }), "{ending:?}"),
        }
        client.settled().await;
        match version {
            McpVersion::Stateless => assert_newer_on_wire(&wire),
            McpVersion::Session => assert_older_on_wire(&wire),
        }
        // No requested input is sent, and no call is sent again.
        let sent = wire.sent();
        let calls: Vec<_> = sent.iter().filter(|request| request.asks() == "tools/call").collect();
        assert_eq!(calls.len(), 3);
        assert!(calls.iter().all(|call| call.body["params"].get("inputResponses").is_none()));
        let header = if version == McpVersion::Stateless { "=?base64?TcO8bGxlcg==?=" } else { "" };
        let customer = calls.iter().find(|call| call.body["params"]["name"] == "get_customer").unwrap();
        assert_eq!(customer.header("mcp-param-customer"), header);
    }
}
