//! Servers of tools (MCP): the trait by which a run lists and calls the tools of a server.
//!
//! A server has a URL, or is a command. The client over HTTP refuses commands. Local runs have an implementation that
//! also starts commands.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use signoff_api::{Digest, catalogue::Catalogue};

use crate::{error::CallError, http::HeaderSecret};

/// The interface for the tools of servers.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// Returns the tools that a server offers. The request can be repeated.
    ///
    /// # Errors
    /// `Unreachable` if the server cannot be reached; `Refused` if the list exceeds a limit.
    async fn catalogue(&self, server: &ToolServer, timeout: Duration) -> Result<ListedTools, CallError>;

    /// Calls a tool, once. `timeout` is for all requests of the call together.
    ///
    /// # Errors
    /// The call has no answer. Unless the tool only reads, the call may have had its effect if `sent` is true, whatever
    /// the class.
    async fn call(&self, server: &ToolServer, request: ToolRequest, timeout: Duration) -> Result<ToolReply, CallError>;
}

/// A server of `spec.servers` with the data for a call.
#[derive(Clone, Debug)]
pub struct ToolServer {
    /// The namespace of the run. Learned facts about a server are kept by namespace.
    pub namespace: String,
    /// The name in `spec.servers`.
    pub name: String,
    /// The URL, or the command that starts the server.
    pub address: ServerAddress,
    /// The header with the key, if the server has one.
    pub key: Option<HeaderSecret>,
}

/// The address of a server of tools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerAddress {
    /// The URL of a server over HTTP.
    Url(String),
    /// The program and its arguments: a process on standard streams, in local runs only.
    Command(Vec<String>),
}

impl ToolServer {
    /// Returns the URL of the server.
    ///
    /// # Errors
    /// The server is a command, which this program does not start.
    pub fn url(&self) -> Result<&str, CallError> {
        match &self.address {
            ServerAddress::Url(url) => Ok(url),
            ServerAddress::Command(_) => Err(CallError::refused(format!(
                "server {} is a command, which is started in local runs only: give its url, or run the Workflow with \
                 `signoff run --allow-commands`",
                self.name
            ))),
        }
    }
}

/// A call of a tool of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRequest {
    /// The name of the tool on the server.
    pub tool: String,
    /// The arguments as an object.
    pub arguments: Value,
    /// The definition that was approved. The server is asked for its definition right before the call, and the call is
    /// sent only if the two are equal. `None` for a call that needs no approval.
    pub definition: Option<Digest>,
    /// The recorded schema of the arguments if no definition is compared. Arguments can be sent as headers by it.
    pub schema: Option<Value>,
    /// The number of runs before the calling run, in the chain in which each run started the next.
    pub depth: u32,
}

/// The tools of a server as listed.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTools {
    /// The version of MCP that the server speaks, such as `2026-07-28`.
    pub protocol: &'static str,
    /// The usable tools, and the names of the tools that were left out.
    pub catalogue: Catalogue,
}

/// The end of a call that was answered, or that was not sent because the definition of its tool has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReply {
    /// The version of MCP that the server speaks, such as `2026-07-28`.
    pub protocol: &'static str,
    /// The result, an error, or the reason why the call was not sent.
    pub ending: ToolEnding,
}

/// The ending of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolEnding {
    /// The tool has a result, which may be an error.
    Result(ToolOutput),
    /// The server refused the request with an error of JSON-RPC.
    Error {
        /// The code of JSON-RPC, such as -32602.
        code: i64,
        /// The text of the server, at most 2000 characters.
        message: String,
    },
    /// The server made requests that are declined: `sampling`, `elicitation`, `roots`, `tasks` or another word.
    AskedBack(Vec<String>),
    /// The call was not sent: the tool has this other definition, or `None` if the server does not offer it.
    Changed(Option<Digest>),
}

/// The result of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// The structured content as JSON, otherwise the texts with a marker for each attachment.
    pub response: Value,
    /// Whether the tool reports a failure.
    pub is_error: bool,
    /// The parts that are not texts.
    pub attachments: Vec<Attachment>,
    /// The size of the result as received, in bytes.
    pub bytes: usize,
}

/// A part of a result that is not a text. Its content is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The kind: `image`, `audio`, `resource` or `link`; otherwise the server's word.
    pub kind: String,
    /// The media type from the server, or an empty text.
    pub media_type: String,
    /// The size of the content in bytes; for a link, the size of its address.
    pub bytes: usize,
    /// The digest of the same bytes.
    pub digest: Digest,
}

impl ToolEnding {
    /// Returns a sentence for the model about a call without a result, or `None` for a result.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Result(_) => None,
            Self::Error { code, message } => Some(format!("the server answered with error {code}: {message}")),
            Self::AskedBack(wanted) => Some(format!(
                "the server asked for {}, which is declined here, and may have done a part of its work; to ask people, call ask-human",
                wanted.join(", ")
            )),
            Self::Changed(Some(_)) => Some(
                "the call was not sent: the definition of the tool has changed since it was decided about".to_owned(),
            ),
            Self::Changed(None) => {
                Some("the call was not sent: the server does not offer the tool any more".to_owned())
            }
        }
    }
}
