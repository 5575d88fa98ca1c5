//! A server that a local run starts as a command, with requests over its standard streams.
//!
//! **Invariant:** used by local runs only, after a person has confirmed the command; the operator starts no command.

mod command;
mod process;

pub use command::{ResolvedCommand, ServerCommand};

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use signoff_api::catalogue::Catalogue;
use signoff_executor::{CallError, ErrorClass, ToolReply, ToolRequest, excerpt};
use tokio::time::{Instant, timeout_at};

use crate::{
    connection::{Connection, Question},
    conversation::{as_unsent, call, check, list},
    deadline::deadline_after,
    message::{Answered, Unreadable, notification, read, request},
    protocol::{Protocol, initialize_params, spoken_version},
};
use process::ServerProcess;

/// The time in which a server of the newer version must answer the first request.
const PROBE: Duration = Duration::from_secs(10);
/// The time in which a server must take the notification that a call is cancelled.
const CANCEL: Duration = Duration::from_secs(2);

/// A server that runs as a command. When it is dropped, it ends with every process of its group.
pub struct StdioServer {
    process: ServerProcess,
    protocol: Protocol,
    /// The name of the server for people.
    target: String,
    next_id: u64,
    deadline: Instant,
    /// Whether a message was written or read only in part. A broken server gets no further request.
    is_broken: bool,
}

impl StdioServer {
    /// Starts a server and detects its version of the protocol.
    ///
    /// # Errors
    /// The command does not start, or does not answer like a server.
    pub async fn start(name: &str, command: &ResolvedCommand, timeout: Duration) -> Result<Self, CallError> {
        let target = format!("MCP server {name} (a command)");
        let process = ServerProcess::start(command).map_err(|why| {
            CallError::new(ErrorClass::Unreachable, false, format!("{target} was not started: {why}"))
        })?;
        let deadline = deadline_after(timeout)?;
        let mut server =
            Self { process, protocol: Protocol::Stateless, target, next_id: 1, deadline, is_broken: false };
        server.deadline = deadline.min(Instant::now() + PROBE);
        let probed = server.ask(Question::new("server/discover")).await;
        server.deadline = deadline;
        let protocol = match probed {
            // The failure of a server whose streams have ended is not a timeout.
            Err(error) if server.is_broken => return Err(as_unsent(error)),
            Err(_) => Protocol::Session,
            Ok(answered) => match spoken_version(200, Some(&answered)) {
                Some(protocol) => protocol,
                None => return Err(server.unknown_version()),
            },
        };
        server.protocol = protocol;
        match protocol {
            Protocol::Stateless => {}
            Protocol::Session => server.begin_session().await.map_err(as_unsent)?,
        }
        Ok(server)
    }

    /// Returns the version of the protocol.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the tools that the server offers.
    ///
    /// # Errors
    /// The server does not answer, or its list exceeds a limit.
    pub async fn catalogue(&mut self, timeout: Duration) -> Result<Catalogue, CallError> {
        self.deadline = deadline_after(timeout)?;
        list(self, None, None).await
    }

    /// Calls a tool, once.
    ///
    /// # Errors
    /// As [`signoff_executor::ToolServers::call`].
    pub async fn call(&mut self, request: ToolRequest, timeout: Duration) -> Result<ToolReply, CallError> {
        check(&request)?;
        self.deadline = deadline_after(timeout)?;
        let listed = match request.definition {
            Some(_) => Some(list(self, None, Some(&request.tool)).await?),
            None => None,
        };
        call(self, request, listed.as_ref()).await
    }

    async fn begin_session(&mut self) -> Result<(), CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Initialized {
            protocol_version: String,
        }
        let question = Question { params: initialize_params(), ..Question::new("initialize") };
        let result = self.ask(question).await?.result(&self.target)?;
        let version = serde_json::from_str::<Initialized>(&result).map(|answer| answer.protocol_version);
        match version {
            Ok(version) if version == Protocol::Session.version() => {
                self.write(&notification("notifications/initialized", &json!({}))).await
            }
            Ok(version) => Err(CallError::refused(format!(
                "{} speaks the protocol {}, and this client {} and {}",
                self.target,
                excerpt(&version, []),
                Protocol::Stateless.version(),
                Protocol::Session.version()
            ))),
            Err(_) => Err(self.unknown_version()),
        }
    }

    fn unknown_version(&self) -> CallError {
        let why = format!("{} does not say which version of the protocol it speaks", self.target);
        CallError::new(ErrorClass::Protocol, false, why)
    }

    async fn write(&mut self, message: &str) -> Result<(), CallError> {
        // A partly written message breaks the connection, also if the caller stops waiting.
        self.is_broken = true;
        match timeout_at(self.deadline, self.process.write(message)).await {
            Ok(Ok(())) => {
                self.is_broken = false;
                Ok(())
            }
            Ok(Err(_)) => Err(self.end_error().await),
            Err(_) => Err(self.mark_broken("it did not take the request in time")),
        }
    }

    /// Reads the answer to a request. Answers to earlier, canceled requests are ignored.
    async fn read_answer(&mut self, id: u64) -> Result<Answered, CallError> {
        loop {
            let line = match timeout_at(self.deadline, self.process.read_line()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => return Err(self.end_error().await),
                Ok(Err(why)) => return Err(self.mark_broken(&why.to_string())),
                Err(_) => {
                    let why = format!("{} gave no answer in time", self.target);
                    return Err(CallError::new(ErrorClass::Timeout, true, why));
                }
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            match read(&line, id) {
                Ok(Some(answered)) => return Ok(answered),
                Ok(None) => {}
                Err(Unreadable::OtherId(Some(other))) if other < id => {}
                Err(why) => {
                    self.is_broken = true;
                    return Err(why.into_error(&self.target));
                }
            }
        }
    }

    /// Returns the error of a server that has ended, with the end of its error output.
    async fn end_error(&mut self) -> CallError {
        let output = self.process.error_output().await;
        let output = if output.is_empty() { output } else { format!(": {output}") };
        self.mark_broken(&format!("it has ended{output}"))
    }

    /// Marks the server as broken, and returns the error with the reason `why`.
    fn mark_broken(&mut self, why: &str) -> CallError {
        self.is_broken = true;
        CallError::new(ErrorClass::Protocol, true, format!("{}: {}", self.target, excerpt(why, [])))
    }
}

#[async_trait]
impl Connection for StdioServer {
    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn target(&self) -> &str {
        &self.target
    }

    async fn ask(&mut self, question: Question) -> Result<Answered, CallError> {
        if self.is_broken {
            let why = format!("{} is not asked any more: it failed before", self.target);
            return Err(CallError::new(ErrorClass::Unreachable, false, why));
        }
        let id = self.next_id;
        self.next_id += 1;
        let params = self.protocol.with_meta(question.params, question.depth);
        self.write(&request(id, question.method, &params)).await?;
        let answered = self.read_answer(id).await;
        let is_open = matches!(&answered, Ok(Answered::AskedBack(_)) | Err(_));
        if is_open && !self.is_broken {
            let params = json!({"requestId": id, "reason": "the call ended without an answer"});
            self.deadline = Instant::now() + CANCEL;
            let _ = self.write(&notification("notifications/cancelled", &params)).await;
        }
        answered
    }
}
