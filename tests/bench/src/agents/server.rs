//! A model provider and a tool in one server: as a provider it calls the tool in each turn, and answers after the last one.
//! It must not compute anything that a run could wait for: its only pause is the latency that it is given.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The address: the API server is at 127.0.0.1, which no run may call.
const ADDRESS: &str = "127.0.0.6";
/// The characters of the answer of the tool.
const RESULT: usize = 200;
/// The last answer of the model.
pub(super) const ANSWER: &str = "all is done";
/// The tool that the model calls.
pub(super) const TOOL: &str = "lookup";

/// A running server. It ends when it is dropped.
pub(super) struct Server {
    port: u16,
    _tasks: JoinSet<()>,
}

/// The turns with calls before the answer, and the calls of each.
struct Script {
    turns: usize,
    calls: usize,
    latency: Duration,
}

/// The part of a request for a turn that is read.
#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Message>,
}

/// The part of a message that is read.
#[derive(Deserialize)]
struct Message {
    role: String,
}

impl Server {
    pub(super) async fn start(turns: usize, calls: usize, latency: Duration) -> Result<Self> {
        let listener = TcpListener::bind((ADDRESS, 0)).await?;
        let port = listener.local_addr()?.port();
        let script = Arc::new(Script { turns, calls, latency });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let script = Arc::clone(&script);
                // A connection that breaks is the caller's to report: its call fails.
                connections.spawn(async move { drop(serve(connection, &script).await) });
            }
        });
        Ok(Self { port, _tasks: tasks })
    }

    /// Returns the base URL of the provider.
    pub(super) fn provider(&self) -> String {
        format!("http://{ADDRESS}:{}/v1", self.port)
    }

    /// Returns the URL of the tool, without the id.
    pub(super) fn tool(&self) -> String {
        format!("http://{ADDRESS}:{}/orders/", self.port)
    }
}

impl Script {
    /// Returns the answer to a conversation: calls until it has all turns with calls, then a text.
    fn turn(&self, body: &[u8]) -> Result<String> {
        let conversation: Conversation = serde_json::from_slice(body)?;
        let made = conversation.messages.iter().filter(|message| message.role == "assistant").count();
        let call = |at: usize| {
            let arguments = json!({"id": made * self.calls + at}).to_string();
            json!({"id": format!("call_{made}_{at}"), "type": "function", "function": {"name": TOOL, "arguments": arguments}})
        };
        let message = match made < self.turns {
            true => {
                json!({"role": "assistant", "content": null, "tool_calls": (0..self.calls).map(call).collect::<Vec<Value>>()})
            }
            false => json!({"role": "assistant", "content": ANSWER}),
        };
        Ok(json!({
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        })
        .to_string())
    }
}

/// Answers the requests of one connection until the caller closes it.
async fn serve(connection: TcpStream, script: &Script) -> Result<()> {
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            if connection.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await?;
        // Only turns have a body.
        let (kind, answer) = if body.is_empty() {
            ("text/plain", "x".repeat(RESULT))
        } else {
            tokio::time::sleep(script.latency).await;
            ("application/json", script.turn(&body)?)
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", answer.len());
        connection.write_all((head + &answer).as_bytes()).await?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn the_model_calls_until_all_turns_are_made_and_then_answers() {
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
        assert_eq!(result.len(), RESULT);
    }
}
