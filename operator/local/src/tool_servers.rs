//! The servers of tools of one run: over HTTP, or confirmed commands.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use signoff_executor::{
    CallError, ErrorClass, ListedTools, ServerAddress, ToolReply, ToolRequest, ToolServer, ToolServers,
};
use signoff_mcp::{McpClient, deadline_after, stdio::StdioServer};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, timeout_at},
};

use crate::commands::WorkflowCommand;

/// The servers of a run. The commands end when the value is dropped.
pub(crate) struct LocalToolServers {
    http: Arc<McpClient>,
    /// The servers that are commands, by name.
    commands: BTreeMap<String, CommandServer>,
}

/// A server that is a command. It starts with its first request, and handles one request at a time.
struct CommandServer {
    command: WorkflowCommand,
    running: Mutex<Option<StdioServer>>,
}

impl LocalToolServers {
    /// Returns the servers of a run with these commands.
    pub(crate) fn new(http: Arc<McpClient>, commands: BTreeMap<String, WorkflowCommand>) -> Self {
        let of_command = |command| CommandServer { command, running: Mutex::new(None) };
        Self { http, commands: commands.into_iter().map(|(name, command)| (name, of_command(command))).collect() }
    }

    /// Returns the confirmed command of a server.
    fn find_command(&self, server: &ToolServer, words: &[String]) -> Result<&CommandServer, CallError> {
        let confirmed = self.commands.get(&server.name).filter(|confirmed| confirmed.command.words() == words);
        confirmed.ok_or_else(|| {
            let why =
                format!("the command of the server {} was not confirmed: resume the run, and confirm it", server.name);
            CallError::refused(why)
        })
    }
}

#[async_trait]
impl ToolServers for LocalToolServers {
    async fn catalogue(&self, server: &ToolServer, timeout: Duration) -> Result<ListedTools, CallError> {
        match &server.address {
            ServerAddress::Url(_) => self.http.catalogue(server, timeout).await,
            ServerAddress::Command(words) => self.find_command(server, words)?.catalogue(timeout).await,
        }
    }

    async fn call(&self, server: &ToolServer, request: ToolRequest, timeout: Duration) -> Result<ToolReply, CallError> {
        match &server.address {
            ServerAddress::Url(_) => self.http.call(server, request, timeout).await,
            ServerAddress::Command(words) => self.find_command(server, words)?.call(request, timeout).await,
        }
    }
}

impl CommandServer {
    async fn catalogue(&self, timeout: Duration) -> Result<ListedTools, CallError> {
        let deadline = deadline_after(timeout)?;
        let mut running = self.lock_idle(deadline).await?;
        let server = self.ensure_started(&mut running, deadline).await?;
        let listed = server.catalogue(time_left(deadline)).await;
        let protocol = server.protocol().version();
        let listed = listed.map(|catalogue| ListedTools { protocol, catalogue });
        end_if_broken(&listed, &mut running);
        listed
    }

    async fn call(&self, request: ToolRequest, timeout: Duration) -> Result<ToolReply, CallError> {
        let deadline = deadline_after(timeout)?;
        let mut running = self.lock_idle(deadline).await?;
        let server = self.ensure_started(&mut running, deadline).await?;
        let reply = server.call(request, time_left(deadline)).await;
        end_if_broken(&reply, &mut running);
        reply
    }

    /// Waits until no other request is in flight.
    async fn lock_idle(&self, deadline: Instant) -> Result<MutexGuard<'_, Option<StdioServer>>, CallError> {
        timeout_at(deadline, self.running.lock()).await.map_err(|_| {
            let why =
                format!("the server {} was not asked: it is still busy with another request", self.command.server());
            CallError::new(ErrorClass::Timeout, false, why)
        })
    }

    /// Returns the running server. Starts it first if it does not run, but only if its command is still the confirmed
    /// one.
    async fn ensure_started<'s>(
        &self,
        running: &'s mut Option<StdioServer>,
        deadline: Instant,
    ) -> Result<&'s mut StdioServer, CallError> {
        match running {
            Some(server) => Ok(server),
            not_started => {
                let command = self.command.resolve_confirmed().map_err(|why| CallError::refused(why.to_string()))?;
                let server = StdioServer::start(self.command.server(), &command, time_left(deadline)).await?;
                Ok(not_started.insert(server))
            }
        }
    }
}

/// Ends a server whose streams have ended or are out of sync. The next request starts it again.
fn end_if_broken<T>(result: &Result<T, CallError>, running: &mut Option<StdioServer>) {
    let is_over = |error: &CallError| matches!(error.class, ErrorClass::Protocol | ErrorClass::Unreachable);
    if result.as_ref().is_err_and(is_over) {
        *running = None;
    }
}

/// Returns the time until a deadline, which is zero after the deadline.
fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
