//! A server of tools on loopback that speaks MCP 2026-07-28 over HTTP. Its tools can change while it runs, and it
//! records its requests.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::response::Response;
use serde_json::{Value, json};

use super::{Loopback, Received};

/// A running server. Dropping it ends it.
pub struct ToolServer {
    server: Loopback,
    tools: Arc<Mutex<Value>>,
}

impl ToolServer {
    /// Starts a server that lists these definitions, and answers each call with the text that `answer` returns.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(tools: Value, answer: impl Fn(&Received) -> String + Send + Sync + 'static) -> Result<Self> {
        let tools = Arc::new(Mutex::new(tools));
        let listed = Arc::clone(&tools);
        let server = Loopback::start(move |_, request| {
            let tools = listed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            respond(request, &tools, &answer)
        });
        Ok(Self { server: server.await?, tools })
    }

    /// Returns the address of its tools.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}/mcp", self.server.url())
    }

    /// Returns the address as `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn origin(&self) -> String {
        self.server.url()
    }

    /// Lists these definitions from now on.
    pub fn set_tools(&self, tools: Value) {
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }

    /// Returns all requests so far, in order.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.server.received()
    }

    /// Returns the methods of all requests so far, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.received().iter().map(|request| text(&message(request)["method"])).collect()
    }

    /// Returns the calls of tools so far, in order, each with its name and its arguments.
    #[must_use]
    pub fn calls(&self) -> Vec<(String, Value)> {
        let messages = self.received().into_iter().map(|request| message(&request));
        let calls = messages.filter(|message| message["method"] == "tools/call");
        calls.map(|call| (text(&call["params"]["name"]), call["params"]["arguments"].clone())).collect()
    }
}

fn message(request: &Received) -> Value {
    serde_json::from_str(&request.body).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn respond(request: &Received, tools: &Value, answer: &impl Fn(&Received) -> String) -> Response {
    let message = message(request);
    let mut result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
        "tools/list" => json!({"tools": tools}),
        "tools/call" => json!({"content": [{"type": "text", "text": answer(request)}]}),
        _ => return super::text(404, "there is no such method"),
    };
    result["resultType"] = json!("complete");
    super::json(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}
