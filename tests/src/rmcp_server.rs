//! The server of the crate rmcp on loopback, in each version of the protocol: an MCP server that others wrote, with
//! tools that are defined here.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
    InputRequest, InputRequests, InputRequiredResult, JsonObject, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::mcp::McpVersion;

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct RmcpServer {
    address: SocketAddr,
    server: JoinHandle<std::io::Result<()>>,
}

impl RmcpServer {
    /// Starts a server that speaks this version only, on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(version: McpVersion) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("a port on loopback")?;
        let address = listener.local_addr()?;
        let sessions = Arc::new(LocalSessionManager::default());
        let settings = StreamableHttpServerConfig::default();
        let service = StreamableHttpService::new(move || Ok(OfferedTools(version)), sessions, settings);
        let router = Router::new().nest_service("/mcp", service);
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, server })
    }

    /// Returns the address at which the server listens; the path of its tools is `/mcp`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RmcpServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The tools of the server: one reads, one refunds, and one needs input before it does anything.
#[derive(Clone, Copy, Debug)]
struct OfferedTools(McpVersion);

impl ServerHandler for OfferedTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Owned(vec![match self.0 {
            McpVersion::Stateless => ProtocolVersion::V_2026_07_28,
            McpVersion::Session => ProtocolVersion::V_2025_11_25,
        }])
    }

    /// Returns the definition of a tool, with which rmcp compares the headers of a call with its arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        match request.name.as_ref() {
            "get_customer" => {
                let text = format!("{} is a customer", arguments["name"].as_str().unwrap_or_default());
                Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
            }
            "refund" => Ok(CallToolResult::structured(json!({"refunded": arguments["amount"]})).into()),
            "close_account" => ask_for_input().map(CallToolResponse::from),
            _ => Err(ErrorData::invalid_params("there is no such tool", None)),
        }
    }
}

fn tools() -> Vec<Tool> {
    let name = json!({"name": {"type": "string", "x-mcp-header": "Customer"}});
    let tool = |name: &'static str, description: &'static str, properties: Value, reads: bool| {
        let schema = json!({"type": "object", "properties": properties});
        let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
        Tool::new(name, description, schema).with_annotations(ToolAnnotations::new().read_only(reads))
    };
    vec![
        tool("get_customer", "Finds a customer.", name, true),
        tool("refund", "Pays back.", json!({"amount": {"type": "number"}}), false),
        tool("close_account", "Closes an account.", json!({}), false),
    ]
}

/// Returns the input that the server needs before it continues: a form, and a web page.
fn ask_for_input() -> Result<InputRequiredResult, ErrorData> {
    let form = json!({"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]});
    let internal = |why: serde_json::Error| ErrorData::internal_error(why.to_string(), None);
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "Why?".to_owned(),
        requested_schema: serde_json::from_value(form).map_err(internal)?,
    };
    let page = ElicitRequestParams::UrlElicitationParams {
        meta: None,
        message: "Confirm it there.".to_owned(),
        url: "https://example.com/confirm".to_owned(),
        elicitation_id: "1".to_owned(),
    };
    let request = |params| InputRequest::Elicitation(ElicitRequest::new(params));
    let requests = InputRequests::from([("page".to_owned(), request(page)), ("reason".to_owned(), request(form))]);
    Ok(InputRequiredResult::new(Some(requests), Some("1".to_owned())))
}
