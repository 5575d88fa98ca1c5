//! Servers of tools (MCP): the trait by which a run lists and calls the tools of a server.
//!
//! A server has a URL, or is a command. The client over HTTP refuses commands; local runs give the executor an
//! implementation that starts them too.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use signoff_api::{Digest, catalogue::Catalogue};

use crate::{error::CallError, http::HeaderSecret};

/// Lists and calls the tools of servers.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// Returns the tools that a server offers. The request can be repeated.
    ///
    /// # Errors
    /// `Unreachable` where the server is away; `Refused` where the list passes a bound.
    async fn catalogue(&self, server: &ToolServer, timeout: Duration) -> Result<ListedTools, CallError>;

    /// Calls a tool, once. `timeout`: for all requests that the call takes.
    ///
    /// # Errors
    /// No answer to the call. Unless the tool only reads, the call may have happened wherever `sent` is true, whatever
    /// the class is.
    async fn call(&self, server: &ToolServer, request: ToolRequest, timeout: Duration) -> Result<ToolReply, CallError>;
}

/// A server of `spec.servers`, as a call needs it.
#[derive(Clone, Debug)]
pub struct ToolServer {
    /// The namespace of the run: what is learnt of a server is kept by namespace.
    pub namespace: String,
    /// The name in `spec.servers`.
    pub name: String,
    /// The way to the server.
    pub address: ServerAddress,
    /// The header that carries the key, if the server has one.
    pub key: Option<HeaderSecret>,
}

/// The way to a server of tools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerAddress {
    /// A URL.
    Url(String),
    /// The program and its arguments: a process on standard streams, in local runs only.
    Command(Vec<String>),
}

impl ToolServer {
    /// Returns the URL.
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
    /// The server's own name of the tool.
    pub tool: String,
    /// The arguments, an object.
    pub arguments: Value,
    /// The definition that was decided about. The server is asked for it right before the call, and the call is sent
    /// only if it is the same. `None` for a call that needs no decision.
    pub definition: Option<Digest>,
    /// The recorded schema of the arguments, where no definition is compared: it can have arguments sent as headers.
    pub schema: Option<Value>,
    /// The depth of runs that start runs, from 0.
    pub depth: u32,
}

/// The tools of a server, as they were listed.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTools {
    /// The version of the protocol that was spoken.
    pub protocol: &'static str,
    /// The tools.
    pub catalogue: Catalogue,
}

/// The end of a call that was answered, or that was not sent because its tool has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReply {
    /// The version of the protocol that was spoken.
    pub protocol: &'static str,
    /// The way in which the call ended.
    pub ending: ToolEnding,
}

/// The way in which a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolEnding {
    /// The tool has a result, which may be an error.
    Result(ToolOutput),
    /// The server refused the request, by an error of JSON-RPC.
    Error {
        /// The code of the error.
        code: i64,
        /// The text of the server, at most 2000 characters.
        message: String,
    },
    /// The server asked for something that is declined: `sampling`, `elicitation`, `roots`, `tasks` or another word.
    AskedBack(Vec<String>),
    /// The call was not sent: the tool has another definition than was decided about, or `None` if it is not offered.
    Changed(Option<Digest>),
}

/// The result of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// The structured content as JSON, otherwise the texts with a marker for each attachment.
    pub response: Value,
    /// Whether the tool says that it failed.
    pub is_error: bool,
    /// The parts that are no texts.
    pub attachments: Vec<Attachment>,
    /// The bytes of the result, as they were received.
    pub bytes: usize,
}

/// A part of a result that is no text. Its content is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The kind: `image`, `audio`, `resource` or `link`; otherwise the server's word.
    pub kind: String,
    /// The media type as the server names it, or an empty text.
    pub media_type: String,
    /// The bytes of the content; of a link, those of its address.
    pub bytes: usize,
    /// The digest of the same bytes.
    pub digest: Digest,
}

impl ToolEnding {
    /// Returns a sentence for the model about a call without a result.
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
