//! A CRM on loopback whose tools are called by MCP 2026-07-28: one finds a customer, one refunds.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::loopback::{Loopback, Received};
use crate::mcp::{self, McpAnswer, McpVersion};

/// A running CRM. Dropping it ends it.
pub struct Crm(Loopback);

impl Crm {
    /// Starts a CRM on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start() -> Result<Self> {
        let (tools, refunds) = (tools(), AtomicUsize::new(0));
        let server = Loopback::start(move |_, request| {
            let answer = mcp::answer(McpVersion::Stateless, &message(request), &tools, |tool, arguments| match tool {
                "get_customer" => match arguments["name"].as_str() {
                    Some("ACME") => Ok("ACME: a customer since 2019, with two orders".to_owned()),
                    _ => Err("there is no such customer".to_owned()),
                },
                "refund" => Ok(format!("refund {} is on its way", refunds.fetch_add(1, Ordering::SeqCst) + 1)),
                _ => Err("there is no such tool".to_owned()),
            });
            response(answer)
        });
        Ok(Self(server.await?))
    }

    /// Returns the URL of the MCP endpoint, as `spec.servers` has it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}/mcp", self.0.url())
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Returns the calls of its tools so far, in order: the tool and its arguments.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        let messages = self.0.received().iter().map(message).collect::<Vec<_>>();
        let calls = messages.iter().filter(|message| message["method"] == "tools/call");
        let line = |call: &Value| {
            let params = &call["params"];
            format!("{} {}", params["name"].as_str().unwrap_or_default(), params["arguments"])
        };
        calls.map(line).collect()
    }
}

fn message(request: &Received) -> Value {
    serde_json::from_str(&request.body).unwrap_or_default()
}

fn response(answer: McpAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [("content-type", "application/json")], answer.body).into_response()
}

fn tools() -> Value {
    json!([
        {
            "name": "get_customer", "description": "Find a customer by name.", "annotations": {"readOnlyHint": true},
            "inputSchema": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        },
        {
            "name": "refund", "description": "Refund an amount for an order.", "annotations": {"destructiveHint": true},
            "inputSchema": {
                "type": "object", "required": ["order", "amount"],
                "properties": {"amount": {"type": "number"}, "order": {"type": "string"}},
            },
        },
    ])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn each_call_is_in_the_log_of_the_crm() {
        let crm = Crm::start().await.unwrap();
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
        for method in ["tools/list", "tools/call", "tools/call"] {
            let params = json!({"name": "refund", "arguments": {"order": "1", "amount": 2}, "_meta": meta});
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            let answer = reqwest::Client::new().post(crm.url()).json(&message).send().await.unwrap();
            assert_eq!(answer.status(), 200);
        }
        assert_eq!(crm.calls(), [r#"refund {"order":"1","amount":2}"#; 2]);
    }
}
