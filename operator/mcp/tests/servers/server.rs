//! A server on loopback that sends exactly the bytes of its test, and records its requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use signoff_api::{Digest, catalogue::Listing};
use signoff_executor::http::HttpSettings;
use signoff_executor::{
    AddressSettings, CallError, HttpClient, ServerAddress, ToolEnding, ToolOutput, ToolReply, ToolRequest, ToolServer,
    ToolServers as _,
};
use signoff_mcp::McpClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// A request as received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl Received {
    /// Returns the method of JSON-RPC, or the method of HTTP if there is no body.
    pub(crate) fn asks(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.method)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// These bytes, then the end of the connection.
    Bytes(Vec<u8>),
    /// These bytes, then this piece without end.
    Endless(String, String),
    /// These bytes, then no more.
    Hang(String),
}

type Behaviour = Arc<dyn Fn(&Received) -> Reply + Send + Sync>;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: watch::Receiver<Vec<Received>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(behaviour: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, log) = watch::channel(Vec::new());
        let sender = Arc::new(sender);
        let behaviour: Behaviour = Arc::new(behaviour);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&behaviour), Arc::clone(&sender)));
            }
        });
        Self { address, log, task }
    }

    /// Returns the methods of the requests so far, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.log.borrow().iter().map(|request| request.asks().to_owned()).collect()
    }

    pub(crate) fn log(&self) -> Vec<Received> {
        self.log.borrow().clone()
    }

    /// Waits until this number of calls of tools has arrived.
    pub(crate) async fn was_called(&self, times: usize) {
        let mut log = self.log.clone();
        let calls = |log: &Vec<Received>| log.iter().filter(|request| request.asks() == "tools/call").count();
        let called = log.wait_for(|log| calls(log) >= times);
        tokio::time::timeout(TIMEOUT, called).await.unwrap().unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Returns the address of the server for the client.
    pub(crate) fn tools(&self) -> ToolServer {
        let address = ServerAddress::Url(self.url());
        ToolServer { namespace: "team".into(), name: "crm".into(), address, key: None }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour, log: Arc<watch::Sender<Vec<Received>>>) {
    let Some(request) = read(&mut stream).await else { return };
    let reply = behaviour(&request);
    log.send_modify(|log| log.push(request));
    // If the client closes the connection, writing fails.
    match reply {
        Reply::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Endless(head, piece) => {
            let _ = stream.write_all(head.as_bytes()).await;
            while stream.write_all(piece.as_bytes()).await.is_ok() {}
        }
        Reply::Hang(head) => {
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.read(&mut [0; 1]).await;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lines = head.lines();
            let method = lines.next()?.split(' ').next()?.to_owned();
            let pairs = lines.filter_map(|line| line.split_once(": "));
            let headers: BTreeMap<String, String> =
                pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
            let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return Some(Received { method, headers, body: serde_json::from_str(body).unwrap_or_default() });
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Returns a whole answer.
pub(crate) fn http(status: &str, headers: &str, body: &str) -> Reply {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    Reply::Bytes([head.as_bytes(), body.as_bytes()].concat())
}

/// The head of an answer with a stream of events.
pub(crate) const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// Returns the message with the answer to a request.
pub(crate) fn message(request: &Received, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result}).to_string()
}

pub(crate) fn event(message: &str) -> String {
    format!("event: message\ndata: {message}\n\n")
}

pub(crate) fn answer(request: &Received, result: &Value) -> Reply {
    http("200 OK", "content-type: application/json\r\n", &message(request, result))
}

pub(crate) fn error(status: &str, request: &Received, error: &Value) -> Reply {
    let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error}).to_string();
    http(status, "content-type: application/json\r\n", &body)
}

/// Answers like a server of 2026-07-28.
pub(crate) fn stateless(request: &Received, tools: &Value, result: &Value) -> Reply {
    let complete = |mut result: Value| {
        result["resultType"] = json!("complete");
        answer(request, &result)
    };
    match request.asks() {
        "server/discover" => complete(json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})),
        "tools/list" => complete(json!({"tools": tools})),
        "tools/call" => complete(result.clone()),
        _ => error("404 Not Found", request, &json!({"code": -32601, "message": "Method not found"})),
    }
}

/// The session id of servers of the older version.
pub(crate) const SESSION: &str = "session-0123456789";

/// Answers like a server of 2025-11-25.
pub(crate) fn with_session(request: &Received, tools: &Value, result: &Value) -> Reply {
    let is_open = request.header("mcp-session-id") == SESSION;
    match request.asks() {
        "initialize" => {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}});
            let headers = format!("content-type: application/json\r\nMcp-Session-Id: {SESSION}\r\n");
            http("200 OK", &headers, &message(request, &result))
        }
        _ if !is_open => {
            let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}"#;
            http("400 Bad Request", "content-type: application/json\r\n", body)
        }
        "tools/list" => answer(request, &json!({"tools": tools})),
        "tools/call" => answer(request, result),
        "DELETE" => http("200 OK", "", ""),
        _ => http("202 Accepted", "", ""),
    }
}

/// Returns a tool that changes something.
pub(crate) fn refund() -> Value {
    json!({"name": "refund", "description": "Pays back.", "inputSchema": {"type": "object"},
           "annotations": {"destructiveHint": true}})
}

pub(crate) fn tools() -> Value {
    json!([refund(), {"name": "get_customer", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}])
}

pub(crate) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

pub(crate) fn digest(tool: &Value) -> Digest {
    let mut listing = Listing::default();
    listing.add(&tool.to_string(), |_| None).unwrap();
    listing.end().tools()[0].digest()
}

/// Returns a client that may reach loopback.
pub(crate) fn client() -> McpClient {
    let addresses = AddressSettings::default().with_loopback();
    McpClient::new(HttpClient::new(HttpSettings { addresses, ..HttpSettings::default() }).unwrap())
}

/// Returns a call that was approved with this definition.
pub(crate) fn decided(tool: &Value) -> ToolRequest {
    let name = tool["name"].as_str().unwrap().to_owned();
    let arguments = json!({"amount": 420});
    ToolRequest { tool: name, arguments, definition: Some(digest(tool)), schema: None, depth: 0 }
}

/// Returns a call that needs no approval.
pub(crate) fn unasked(tool: &str) -> ToolRequest {
    ToolRequest { tool: tool.into(), arguments: json!({}), definition: None, schema: None, depth: 0 }
}

pub(crate) async fn call(server: &Server, request: ToolRequest) -> Result<ToolReply, CallError> {
    client().call(&server.tools(), request, TIMEOUT).await
}

pub(crate) fn output(reply: ToolReply) -> ToolOutput {
    match reply.ending {
        ToolEnding::Result(output) => output,
        other => panic!("{other:?}"),
    }
}

/// Returns the calls of tools among the requests.
pub(crate) fn calls(server: &Server) -> Vec<Received> {
    server.log().into_iter().filter(|request| request.asks() == "tools/call").collect()
}
