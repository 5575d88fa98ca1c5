//! A model provider and a tool in one server: as a provider it calls the tool in each turn, and answers after the last
//! one. A hostile tenant calls other paths: a provider with the longest answers, an address that never answers, and one
//! that fails. The only pause is the configured latency.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use signoff_tests::mcp::{self, McpVersion};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The address; the API server is at 127.0.0.1, which no run may call.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
/// The bytes of the arguments in the longest answer. An answer with calls has at most 8 MiB.
const LONGEST_BYTES: usize = (8 << 20) - 1024;
/// The characters of the answer of the tool.
const RESULT_CHARACTERS: usize = 200;
/// The last answer of the model.
pub(super) const ANSWER: &str = "all is done";
/// The tool that the model calls.
pub(super) const TOOL: &str = "lookup";
/// The name in Workflows of the MCP server that also has the tool.
pub(super) const SERVER: &str = "orders";

/// A running server. It ends when it is dropped.
pub(super) struct Server {
    address: Ipv4Addr,
    port: u16,
    _tasks: JoinSet<()>,
}

/// The turns with calls before the answer, and the calls of each.
struct Script {
    turns: usize,
    calls: usize,
    latency: Duration,
}

/// A request for a turn, without the fields that are not read.
#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Message>,
}

/// A message, without the fields that are not read.
#[derive(Deserialize)]
struct Message {
    role: String,
}

impl Server {
    pub(super) async fn start(turns: usize, calls: usize, latency: Duration) -> Result<Self> {
        Self::start_at(ADDRESS, turns, calls, latency).await
    }

    /// Starts a server at another loopback address, which is another host for the operator's limits of calls.
    pub(super) async fn start_at(address: Ipv4Addr, turns: usize, calls: usize, latency: Duration) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let port = listener.local_addr()?.port();
        let script = Arc::new(Script { turns, calls, latency });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let script = Arc::clone(&script);
                // The caller reports a connection that breaks: its call fails.
                connections.spawn(async move { drop(serve(connection, &script).await) });
            }
        });
        Ok(Self { address, port, _tasks: tasks })
    }

    /// Returns the base URL of the provider.
    pub(super) fn provider(&self) -> String {
        self.url("v1")
    }

    /// Returns the base URL of the provider whose model calls the tool of the MCP server.
    pub(super) fn provider_of_server(&self) -> String {
        self.url("served")
    }

    /// Returns the URL of the MCP server.
    pub(super) fn mcp(&self, version: McpVersion) -> String {
        self.url(match version {
            McpVersion::Stateless => "mcp",
            McpVersion::Session => "mcp-session",
        })
    }

    /// Returns the base URL of a provider whose answers have 8 MiB.
    pub(super) fn provider_of_long_answers(&self) -> String {
        self.url("long")
    }

    /// Returns a URL that never answers.
    pub(super) fn never(&self) -> String {
        self.url("never")
    }

    /// Returns a URL that always answers with an error.
    pub(super) fn failing(&self) -> String {
        self.url("failing")
    }

    /// Returns the URL of the tool, without the id.
    pub(super) fn tool(&self) -> String {
        self.url("orders/")
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}:{}/{path}", self.address, self.port)
    }
}

impl Script {
    /// Returns the answer to a conversation: calls of a tool until it has all turns with calls, then a text.
    fn turn(&self, body: &[u8], tool: &str) -> Result<String> {
        let conversation: Conversation = serde_json::from_slice(body)?;
        let turns_made = conversation.messages.iter().filter(|message| message.role == "assistant").count();
        let call = |index: usize| {
            let arguments = json!({"id": turns_made * self.calls + index}).to_string();
            json!({"id": format!("call_{turns_made}_{index}"), "type": "function", "function": {"name": tool, "arguments": arguments}})
        };
        let message = match turns_made < self.turns {
            true => {
                json!({"role": "assistant", "content": null, "tool_calls": (0..self.calls).map(call).collect::<Vec<Value>>()})
            }
            false => json!({"role": "assistant", "content": ANSWER}),
        };
        Ok(answer(&message))
    }
}

/// Returns the path and the body of the next request, or `None` when the caller has closed the connection.
async fn read_request(connection: &mut BufReader<TcpStream>) -> Result<Option<(String, Vec<u8>)>> {
    let (mut length, mut path, mut line) = (0, None, String::new());
    loop {
        line.clear();
        if connection.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        if line == "\r\n" {
            break;
        }
        // The first line is a method, a path and a version.
        path.get_or_insert_with(|| line.split(' ').nth(1).unwrap_or_default().to_owned());
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    Ok(Some((path.unwrap_or_default(), body)))
}

/// Answers the requests of one connection until the caller closes the connection.
async fn serve(connection: TcpStream, script: &Script) -> Result<()> {
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    loop {
        let Some((path, body)) = read_request(&mut connection).await? else { return Ok(()) };
        let mut session = None;
        if path == "/never" {
            // The caller closes the connection at its deadline.
            connection.read_u8().await?;
            return Ok(());
        }
        let (status, kind, answer) = match path.as_str() {
            "/failing" => ("500 Internal Server Error", "text/plain", Cow::Borrowed("it fails")),
            "/long/chat/completions" => ("200 OK", "application/json", Cow::Borrowed(long_answer())),
            "/mcp" | "/mcp-session" => {
                let version = if path == "/mcp" { McpVersion::Stateless } else { McpVersion::Session };
                let (status, body) = mcp_answer(version, &body, &mut session);
                (status, "application/json", Cow::Owned(body))
            }
            // Only turns have a body.
            _ if body.is_empty() => ("200 OK", "text/plain", Cow::Owned("x".repeat(RESULT_CHARACTERS))),
            _ => {
                tokio::time::sleep(script.latency).await;
                let tool =
                    if path.starts_with("/served/") { Cow::Owned(name_for_models()) } else { Cow::Borrowed(TOOL) };
                ("200 OK", "application/json", Cow::Owned(script.turn(&body, &tool)?))
            }
        };
        let length = answer.len();
        let session = session.map(|number| format!("mcp-session-id: {number}\r\n")).unwrap_or_default();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{session}content-length: {length}\r\n\r\n");
        // Small answers are sent in one piece, and long ones are not copied.
        if length <= RESULT_CHARACTERS * 16 {
            connection.write_all((head + &answer).as_bytes()).await?;
        } else {
            connection.write_all(head.as_bytes()).await?;
            connection.write_all(answer.as_bytes()).await?;
        }
    }
}

/// Returns the status and the body of an answer of the MCP server. Its tool answers as the tool at its own URL does.
fn mcp_answer(version: McpVersion, body: &[u8], session: &mut Option<&'static str>) -> (&'static str, String) {
    let parameters = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}});
    let tools = json!([{"name": TOOL, "description": "Finds an order.", "inputSchema": parameters}]);
    let message = serde_json::from_slice(body).unwrap_or_default();
    let answer = mcp::answer(version, &message, &tools, |_, _| Ok("x".repeat(RESULT_CHARACTERS)));
    *session = answer.session;
    let status = match answer.status {
        200 => "200 OK",
        202 => "202 Accepted",
        404 => "404 Not Found",
        _ => "400 Bad Request",
    };
    (status, answer.body)
}

/// Returns the name under which models call the tool of the MCP server.
fn name_for_models() -> String {
    format!("{SERVER}__{TOOL}")
}

/// Returns an answer with one call whose arguments have the largest possible length.
fn long_answer() -> &'static str {
    static LONG: OnceLock<String> = OnceLock::new();
    LONG.get_or_init(|| {
        let arguments = json!({"id": "x".repeat(LONGEST_BYTES)}).to_string();
        let call = json!({"id": "call_0", "type": "function", "function": {"name": TOOL, "arguments": arguments}});
        answer(&json!({"role": "assistant", "content": null, "tool_calls": [call]}))
    })
}

/// Returns a completion with this message.
fn answer(message: &Value) -> String {
    json!({
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn the_model_calls_in_each_turn_and_then_answers() {
        let server = Server::start(1, 3, Duration::ZERO).await.unwrap();
        let client = reqwest::Client::new();
        let url = format!("{}/chat/completions", server.provider());
        let mut messages = vec![json!({"role": "user", "content": "help"})];
        let ask = async |messages: &[Value]| {
            let answer = client.post(&url).json(&json!({"messages": messages})).send().await.unwrap();
            answer.json::<Value>().await.unwrap()["choices"][0]["message"].take()
        };
        let first = ask(&messages).await;
        assert_eq!(first["tool_calls"].as_array().unwrap().len(), 3);
        messages.push(first);
        assert_eq!(ask(&messages).await["content"], ANSWER);
        let result = client.get(format!("{}7", server.tool())).send().await.unwrap().text().await.unwrap();
        assert_eq!(result.len(), RESULT_CHARACTERS);
    }

    #[tokio::test]
    async fn the_tool_of_the_mcp_server_answers_in_both_versions() {
        let server = Server::start(1, 1, Duration::ZERO).await.unwrap();
        let client = reqwest::Client::new();
        for version in [McpVersion::Stateless, McpVersion::Session] {
            let meta = match version {
                McpVersion::Stateless => json!({"io.modelcontextprotocol/protocolVersion": version.text()}),
                McpVersion::Session => json!({}),
            };
            let ask = async |method: &str| {
                let params = json!({"name": TOOL, "arguments": {"id": 7}, "_meta": meta});
                let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
                client.post(server.mcp(version)).json(&message).send().await.unwrap()
            };
            let called: Value = ask("tools/call").await.json().await.unwrap();
            assert_eq!(called["result"]["content"][0]["text"].as_str().unwrap().len(), RESULT_CHARACTERS);
            let begun = ask("initialize").await;
            assert_eq!(begun.headers().contains_key("mcp-session-id"), version == McpVersion::Session);
        }
        assert_eq!(client.delete(server.mcp(McpVersion::Session)).send().await.unwrap().status(), 202);
        let url = format!("{}/chat/completions", server.provider_of_server());
        let first: Value = client.post(url).json(&json!({"messages": []})).send().await.unwrap().json().await.unwrap();
        assert_eq!(first["choices"][0]["message"]["tool_calls"][0]["function"]["name"], name_for_models());
    }

    #[tokio::test]
    async fn the_hostile_paths_answer_long_with_an_error_or_never() {
        let server = Server::start(1, 1, Duration::ZERO).await.unwrap();
        let client = reqwest::Client::new();
        let url = format!("{}/chat/completions", server.provider_of_long_answers());
        let long = client.post(&url).json(&json!({"messages": []})).send().await.unwrap().bytes().await.unwrap();
        assert!(long.len() > 8_000_000 && long.len() <= 8 << 20, "{}", long.len());
        assert_eq!(client.get(server.failing()).send().await.unwrap().status(), 500);
        let waiting = client.get(server.never()).timeout(Duration::from_millis(100)).send().await;
        assert!(waiting.unwrap_err().is_timeout());
    }
}
