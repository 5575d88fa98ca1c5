//! A small MCP server without a network: it returns the answer to one message, in either version of the protocol.

use serde_json::{Map, Value, json};

/// The field of `_meta` that names the version of a request.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpVersion {
    /// 2026-07-28: no message depends on another.
    Stateless,
    /// 2025-11-25: a session, which begins with a handshake.
    Session,
}

impl McpVersion {
    /// Returns the version as messages write it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Stateless => "2026-07-28",
            Self::Session => "2025-11-25",
        }
    }
}

/// The answer to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpAnswer {
    /// The HTTP status code, such as 202 for a notification.
    pub status: u16,
    /// The number of the new session, or `None`.
    pub session: Option<&'static str>,
    /// The body of the answer; empty for a notification.
    pub body: String,
}

/// Returns the answer of a server that offers `tools`, a list of definitions. `call` runs a tool with its arguments,
/// and returns the text of its result or of its error.
pub fn answer(
    version: McpVersion,
    message: &Value,
    tools: &Value,
    call: impl FnOnce(&str, &Value) -> Result<String, String>,
) -> McpAnswer {
    let params = &message["params"];
    if let Some(why) = refusal(version, message) {
        return failed(message, 400, &why);
    }
    match (version, message["method"].as_str().unwrap_or_default()) {
        (McpVersion::Stateless, "server/discover") => {
            let result = json!({"supportedVersions": [version.text()], "capabilities": {"tools": {}}});
            complete(version, message, result)
        }
        (McpVersion::Session, "initialize") => {
            let server = json!({"name": "signoff-tests", "version": "1"});
            let result =
                json!({"protocolVersion": version.text(), "capabilities": {"tools": {}}, "serverInfo": server});
            McpAnswer { session: Some("session-0123456789"), ..complete(version, message, result) }
        }
        (_, "tools/list") => complete(version, message, json!({"tools": tools})),
        (_, "tools/call") => {
            let result = call(params["name"].as_str().unwrap_or_default(), &params["arguments"]);
            let (text, is_error) = match result {
                Ok(text) => (text, false),
                Err(why) => (why, true),
            };
            let content = json!([{"type": "text", "text": text}]);
            complete(version, message, json!({"content": content, "isError": is_error}))
        }
        // The request that ends a session has no message.
        (McpVersion::Session, _) if message.get("id").is_none() => {
            McpAnswer { status: 202, session: None, body: String::new() }
        }
        (_, _) => failed(message, 404, &json!({"code": -32601, "message": "Method not found"})),
    }
}

/// Returns the error for a request of another version, or `None` for a request of this version.
fn refusal(version: McpVersion, message: &Value) -> Option<Value> {
    let requested = message["params"]["_meta"].get(VERSION);
    match version {
        McpVersion::Stateless if requested != Some(&json!(version.text())) => {
            let data = json!({"supported": [version.text()], "requested": requested});
            Some(json!({"code": -32022, "message": "Unsupported protocol version", "data": data}))
        }
        McpVersion::Session if requested.is_some() => {
            Some(json!({"code": -32000, "message": "Bad Request: Server not initialized"}))
        }
        McpVersion::Stateless | McpVersion::Session => None,
    }
}

fn complete(version: McpVersion, message: &Value, result: Value) -> McpAnswer {
    let mut fields = match result {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    if version == McpVersion::Stateless {
        fields.insert("resultType".to_owned(), json!("complete"));
    }
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": fields}).to_string();
    McpAnswer { status: 200, session: None, body }
}

fn failed(message: &Value, status: u16, error: &Value) -> McpAnswer {
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "error": error}).to_string();
    McpAnswer { status, session: None, body }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn send(version: McpVersion, message: &Value) -> (u16, Value) {
        let answer = answer(version, message, &json!([{"name": "echo"}]), |tool, arguments| match tool {
            "echo" => Ok(arguments["text"].as_str().unwrap_or_default().to_owned()),
            _ => Err("there is no such tool".to_owned()),
        });
        (answer.status, serde_json::from_str(&answer.body).unwrap_or_default())
    }

    #[test]
    fn each_version_refuses_requests_of_the_other_version() {
        let newer = json!({"_meta": {VERSION: "2026-07-28"}});
        let list = |params: &Value| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});
        let (status, answered) = send(McpVersion::Stateless, &list(&newer));
        assert_eq!((status, &answered["result"]["resultType"]), (200, &json!("complete")));
        let (status, answered) = send(McpVersion::Session, &list(&json!({})));
        assert_eq!((status, answered["result"].get("resultType")), (200, None));
        let (status, answered) = send(McpVersion::Stateless, &list(&json!({})));
        assert_eq!((status, &answered["error"]["code"]), (400, &json!(-32022)));
        let (status, answered) = send(McpVersion::Session, &list(&newer));
        assert_eq!((status, &answered["error"]["code"]), (400, &json!(-32000)));
    }

    #[test]
    fn a_call_returns_a_text_or_an_error() {
        let call = |tool: &str| {
            let params = json!({"name": tool, "arguments": {"text": "hello"}});
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        };
        let (_, answered) = send(McpVersion::Session, &call("echo"));
        assert_eq!(answered["result"], json!({"content": [{"type": "text", "text": "hello"}], "isError": false}));
        assert_eq!(send(McpVersion::Session, &call("rm")).1["result"]["isError"], true);
        assert_eq!(send(McpVersion::Session, &Value::Null), (202, Value::Null));
    }
}
