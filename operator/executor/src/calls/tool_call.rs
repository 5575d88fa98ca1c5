//! Requests to servers of tools (MCP): lists of tools, calls, and the meaning of their endings for a run.
//!
//! **Invariant:** a call that was sent has no certain failure unless the tool only reads. The engine decides whether
//! people were asked about a call, when its attempt begins.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;
use signoff_api::{
    FailureClass, Moment,
    glob::is_like,
    journal::{FACT_CHANGED, FACT_UNKNOWN},
};
use signoff_engine::transition::{Failure, McpCall, McpRequest, McpToolCall, Reply, SentSecret};
use signoff_expr::text::display;

use super::{DefaultCaller, RunRef, to_failure, with_key_advice};
use crate::{
    Attachment, CallError, ErrorClass, ListedTools, ServerAddress, ToolEnding, ToolReply, ToolRequest, ToolServer,
    ToolServers,
};

/// The fact with the version of the protocol.
const FACT_PROTOCOL: &str = "protocol";
/// The fact with the parts of a result that are not texts.
const FACT_ATTACHMENTS: &str = "attachments";
/// The maximum length of a fact, in characters.
const MAX_FACT: usize = 253;
/// The maximum length of a message with text of a server, in characters.
const MAX_MESSAGE: usize = 1000;

/// The conditions under which a failed call may be repeated.
#[derive(Clone, Copy)]
struct Standing {
    /// Whether the call may be repeated with the same input.
    is_idempotent: bool,
    /// Whether a sent call may have changed something.
    may_change: bool,
}

impl DefaultCaller {
    /// Makes a request to a server of tools. `limits`: whether the request may be repeated, and its timeout.
    /// `facts` receives the version of the read Secret and the version of the protocol, also if the request fails.
    pub(super) async fn call_tool_server(
        &self,
        run: &RunRef,
        call: McpCall,
        limits: (bool, Duration),
        facts: &mut BTreeMap<String, String>,
    ) -> Result<Reply, Failure> {
        let (is_idempotent, limit) = limits;
        let may_change = match &call.request {
            McpRequest::Call(tool) => !tool.reads,
            McpRequest::Catalogue { .. } => false,
        };
        let standing = Standing { is_idempotent, may_change };
        let entries: Vec<_> = call.key.iter().map(|entry| entry.name.clone()).collect();
        let fail = |error| standing.to_failure(with_key_advice(error, &entries), self.clock.now().into());
        let (servers, server, left) = self.prepare_tool_server(run, &call, limit, facts).await.map_err(fail)?;
        match call.request {
            McpRequest::Catalogue { only } => {
                let listed = servers.catalogue(&server, left).await.map_err(fail)?;
                facts.insert(FACT_PROTOCOL.to_owned(), listed.protocol.to_owned());
                record_catalogue(listed, &only).map_err(fail)
            }
            McpRequest::Call(tool) => {
                let (request, name) = (to_request(tool), call.server);
                let tool = request.tool.clone();
                let ToolReply { protocol, ending } = servers.call(&server, request, left).await.map_err(fail)?;
                facts.insert(FACT_PROTOCOL.to_owned(), protocol.to_owned());
                standing.conclude(&name, &tool, ending).map_err(|failure| *failure)
            }
        }
    }

    /// Reads the key of a server of tools. Returns the client, the server with its key, and the remaining time of
    /// `limit`.
    ///
    /// # Errors
    /// This program calls no servers of tools, or the key cannot be read.
    async fn prepare_tool_server(
        &self,
        run: &RunRef,
        call: &McpCall,
        limit: Duration,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(Arc<dyn ToolServers>, ToolServer, Duration), CallError> {
        let Some(servers) = &self.servers else {
            let name = &call.server;
            let why = format!("server {name} was not asked: this program calls no MCP servers; report this as a bug");
            return Err(CallError::invalid(why));
        };
        let (address, key, left) = match &call.url {
            Some(url) => {
                let headers =
                    call.key.iter().map(|entry| SentSecret::of_server(entry, call.header.as_deref())).collect();
                let (mut keys, left) = self.read_secret_headers(run, url, headers, limit, facts).await?;
                (ServerAddress::Url(url.clone()), keys.pop(), left)
            }
            None => (ServerAddress::Command(call.command.clone()), None, limit),
        };
        let server = ToolServer { namespace: run.namespace.clone(), name: call.server.clone(), address, key };
        Ok((Arc::clone(servers), server, left))
    }
}

/// Returns the tools that the run can use, as the journal records them.
fn record_catalogue(listed: ListedTools, only: &[String]) -> Result<Reply, CallError> {
    let exists = |name: &str| only.is_empty() || only.iter().any(|glob| is_like(glob, name));
    let catalogue = serde_json::to_string(&listed.catalogue.only(exists));
    let catalogue = catalogue.map_err(|why| CallError::invalid(format!("the tools cannot be recorded: {why}")))?;
    Ok(Reply { response: catalogue.into(), ..Reply::default() })
}

/// Returns the request of a call. A call that is not compared has the recorded schema instead of a definition.
fn to_request(call: McpToolCall) -> ToolRequest {
    let McpToolCall { tool, arguments, definition, is_compared, needs_people: _, reads: _, described, depth } = call;
    ToolRequest {
        tool,
        arguments: Value::Object(arguments),
        definition: is_compared.then_some(definition),
        schema: if is_compared { None } else { described.get("inputSchema").cloned() },
        depth,
    }
}

impl Standing {
    /// Converts the error of a request without an answer to a failure.
    fn to_failure(self, mut error: CallError, now: Moment) -> Failure {
        let was_sent = error.sent;
        // To a run, these three classes mean that nothing was sent.
        if was_sent && matches!(error.class, ErrorClass::Invalid | ErrorClass::Refused | ErrorClass::Unreachable) {
            error.class = ErrorClass::Protocol;
        }
        self.with_outcome(to_failure(error, self.is_idempotent, now), was_sent)
    }

    /// Returns the reply or the failure of a run's call for the ending of the request.
    fn conclude(self, server: &str, tool: &str, ending: ToolEnding) -> Result<Reply, Box<Failure>> {
        let why = ending.remedy().unwrap_or_default();
        let failed = |class: FailureClass, retryable, message: String| Failure {
            class: class.name().to_owned(),
            message,
            retryable,
            unknown: false,
            not_before: None,
            facts: BTreeMap::new(),
            log: None,
        };
        match ending {
            ToolEnding::Result(output) if output.is_error => {
                let text = match &output.response {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let message = format!("{server}.{tool} says that it failed: {text}");
                let mut failure = failed(FailureClass::Failed, self.is_idempotent, display(&message, MAX_MESSAGE));
                failure.facts.extend(attachments_fact(&output.attachments));
                Err(Box::new(self.with_outcome(failure, true)))
            }
            ToolEnding::Result(output) => {
                let facts = attachments_fact(&output.attachments).into_iter().collect();
                Ok(Reply { response: output.response, facts, ..Reply::default() })
            }
            ToolEnding::Error { .. } => {
                let message = display(&format!("{server}.{tool}: {why}"), MAX_MESSAGE);
                Err(Box::new(self.with_outcome(failed(FailureClass::Failed, self.is_idempotent, message), true)))
            }
            ToolEnding::AskedBack(_) => {
                let failure = failed(FailureClass::Failed, false, format!("{server}.{tool}: {why}"));
                Err(Box::new(self.with_outcome(failure, true)))
            }
            ToolEnding::Changed(now) => {
                let mut failure = failed(FailureClass::ToolChanged, true, format!("{server}.{tool}: {why}"));
                let changed = McpCall::changed(server, tool, now.as_ref());
                failure.facts.insert(FACT_CHANGED.to_owned(), changed);
                Err(Box::new(failure))
            }
        }
    }

    /// Sets whether the outcome of a failed call is unknown, and keeps a failure retryable only if the outcome is
    /// known.
    fn with_outcome(self, mut failure: Failure, was_sent: bool) -> Failure {
        failure.unknown = was_sent && self.may_change;
        failure.retryable &= !failure.unknown;
        if failure.unknown {
            failure.facts.insert(FACT_UNKNOWN.to_owned(), "true".to_owned());
        } else {
            failure.facts.remove(FACT_UNKNOWN);
        }
        failure
    }
}

/// Returns the fact about the parts of a result that are not texts, if there are any.
fn attachments_fact(parts: &[Attachment]) -> Option<(String, String)> {
    let described = parts.iter().map(|Attachment { kind, media_type, bytes, digest }| {
        let space = if media_type.is_empty() { "" } else { " " };
        format!("{kind}{space}{media_type}, {bytes} bytes, {digest}")
    });
    let described = described.collect::<Vec<_>>().join("; ");
    (!parts.is_empty()).then(|| (FACT_ATTACHMENTS.to_owned(), display(&described, MAX_FACT)))
}

#[cfg(test)]
#[path = "tool_call_tests.rs"]
mod tests;
