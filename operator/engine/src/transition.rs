//! The types of the engine's interface: facts in, a transition of records and commands out.
//!
//! Facts are events of the past, commands are effects to be executed. The types have no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value};
use signoff_api::{
    ApprovalRequest, Digest, FailureClass, Moment, Outcome,
    journal::{StepError, StepKind, StepPhase, StepRecord, Usage},
    pod::PodStep,
    sent_method::SentMethod,
    turn::OpaqueParts,
    workflow::{Price, Provider, SecretEntry, WorkflowPhase},
};

use crate::{field_error::FieldError, journal::Journal};

/// Whether an attempt is a turn of a model that failed because the operator had no memory for the answer. Such a turn
/// is repeated automatically and does not count as an attempt.
#[must_use]
pub fn had_no_room(attempt: &StepRecord) -> bool {
    let is_meant = |error: &StepError| error.is(FailureClass::TooLarge) && error.retryable;
    attempt.kind == StepKind::Agent
        && attempt.phase == StepPhase::Failed
        && attempt.error.as_ref().is_some_and(is_meant)
}

/// The fetched long values by digest.
pub type Blobs = BTreeMap<Digest, String>;

/// The default maximum timeout of a gate.
pub(crate) const MAX_GATE_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The moment of a transition: the engine's only clock.
#[derive(Clone, Debug)]
pub struct Now {
    /// The current time. Deadlines and pauses are compared with this time.
    pub at: Moment,
    /// The guard's epoch, written into new requests.
    pub guard_epoch: String,
    /// The maximum time from the creation of an Approval to a deadline after a person's Escalate.
    pub max_gate_timeout: Duration,
    /// The times in which the API server could not be reached, as start and end.
    pub outages: Vec<(Moment, Moment)>,
}

impl Now {
    /// Returns a moment in an epoch of the guard, with the default maximum timeout of gates.
    #[must_use]
    pub fn new(at: Moment, guard_epoch: impl Into<String>) -> Self {
        Self { at, guard_epoch: guard_epoch.into(), max_gate_timeout: MAX_GATE_TIMEOUT, outages: Vec::new() }
    }
}

/// A fact from outside: the result of a call, or the outcome of an Approval.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A call finished.
    CallFinished {
        /// The path of the call's record.
        path: String,
        /// The attempt of the call's record, from 1.
        attempt: i32,
        /// The reply of the call, or its failure.
        result: Result<Reply, Failure>,
        /// The time at which the call ended.
        at: Moment,
    },
    /// An Approval has an outcome.
    ApprovalDecided {
        /// The path of the gate's record.
        path: String,
        /// The outcome in the status of the Approval.
        outcome: Box<Outcome>,
    },
    /// The Approval of a waiting gate does not exist.
    ApprovalMissing {
        /// The path of the gate's record.
        path: String,
    },
    /// A call that must not be repeated was started by an earlier process, and its result is lost.
    CallLost {
        /// The path of the call's record.
        path: String,
        /// The attempt of the call's record, from 1.
        attempt: i32,
    },
    /// The input or the answer of an activity is too costly to evaluate, so the activity fails without an evaluation.
    TooCostly {
        /// The path of the activity's record, which need not exist yet.
        path: String,
        /// The attempt of the activity's record, from 1.
        attempt: i32,
        /// The exceeded limit, as a sentence for people.
        why: String,
    },
}

impl Fact {
    /// Returns the path and attempt of the record that the fact changes.
    #[must_use]
    pub fn key(&self) -> (&str, i32) {
        match self {
            Self::CallFinished { path, attempt, .. }
            | Self::CallLost { path, attempt }
            | Self::TooCostly { path, attempt, .. } => (path, *attempt),
            Self::ApprovalDecided { path, .. } | Self::ApprovalMissing { path } => (path, 1),
        }
    }
}

/// The reply of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// The answer: a JSON string with the text, or another JSON value.
    pub response: Value,
    /// Further facts: `statusCode` of an http call.
    pub facts: BTreeMap<String, String>,
    /// The parts of an answer with calls that only its provider can read.
    pub opaque: Option<Box<OpaqueParts>>,
    /// The used tokens, if a model was called.
    pub usage: Option<Usage>,
    /// The log of a container.
    pub log: Option<String>,
}

/// The failure of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The name of a [`FailureClass`]; of a container also the reason of the kubelet or scheduler.
    pub class: String,
    /// The failure as one sentence for people.
    pub message: String,
    /// Whether another attempt can succeed.
    pub retryable: bool,
    /// Whether the call may have had its effect and must not be repeated.
    pub unknown: bool,
    /// The time before which the called server asks for no further attempt (`Retry-After`).
    pub not_before: Option<Moment>,
    /// Further facts: `statusCode` of an http call, `exitCode` of a container.
    pub facts: BTreeMap<String, String>,
    /// The log of a container.
    pub log: Option<String>,
}

/// The result of the engine for a journal and new facts: new records and commands.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The journal with everything that this transition added.
    pub journal: Journal,
    /// The effects to execute after the journal is committed. Each transition repeats the calls that are not finished.
    pub commands: Vec<Command>,
    /// The long values that the journal refers to by digest, to be stored before the commit.
    pub blobs: Vec<(Digest, String)>,
    /// The long values that have to be fetched before another evaluation. If there are any, the rest of the transition
    /// does not count.
    pub missing: BTreeSet<Digest>,
    /// The end of the run, once it has ended.
    pub end: Option<End>,
    /// The time at which to evaluate again without a new fact.
    pub wake_at: Option<Moment>,
    /// The phase of the run after the transition.
    pub phase: WorkflowPhase,
    /// The reasons why gates do not ask, such as conflicts with policies.
    pub blocked: Vec<FieldError>,
    /// The names of the open Approvals, in the journal's order.
    pub pending: Vec<String>,
    /// The relative path and the content of each file of a successful run.
    pub artifacts: Vec<(String, String)>,
    /// The artifacts of a successful run that were skipped because their `skipIf` could not be evaluated: each with its
    /// path and the reason.
    pub left_out: Vec<String>,
}

/// A command of a transition, executed after it is committed.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Create this Approval if it does not exist.
    Ask(Box<Ask>),
    /// Call a model, a container or an address.
    Call(Box<Call>),
}

/// An Approval to be created. Only the transition that opens the gate contains the command, and a transition after
/// [`Fact::ApprovalMissing`].
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The path of the gate's record.
    pub path: String,
    /// The name of the Approval, derived from the digest of the request.
    pub name: String,
    /// The `spec.request` of the Approval, with its digest.
    pub request: ApprovalRequest,
    /// The digest of the call or the release that the approval permits, if there is one.
    pub binds: Option<Digest>,
    /// The facts of the gate's record: the tool and the digest of the arguments, if the gate is about a call.
    pub facts: BTreeMap<String, String>,
    /// The notification channels of the gate. They are not part of the request.
    pub channels: Vec<String>,
}

/// A call to be made. Every transition contains the call until its record is finished. The caller tracks the calls in
/// flight.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The path of the call's record.
    pub path: String,
    /// The attempt of the call's record, from 1.
    pub attempt: i32,
    /// Whether the call may be repeated with the same input if its result is lost.
    pub idempotent: bool,
    /// The time after which the caller stops this attempt.
    pub timeout: Duration,
    /// The rendered input, by the kind of the call.
    pub content: CallContent,
}

/// The content of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallContent {
    /// One turn of an agent.
    Agent(Box<AgentCall>),
    /// One container.
    Pod(Box<PodCall>),
    /// One HTTP request.
    Http(HttpCall),
    /// One request to an MCP server.
    Mcp(Box<McpCall>),
}

/// One turn of an agent, rendered.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct AgentCall {
    /// The name of the agent in the Workflow.
    pub agent: String,
    /// The entry of `spec.providers` with the address of the model.
    pub provider: Provider,
    /// The Secret with the key for the provider; `None` if the provider needs no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SecretEntry>,
    /// The name of the model at the provider.
    pub model: Option<String>,
    /// The rendered `system` prompt; `None` if the agent has none.
    pub system: Option<String>,
    /// The conversation, oldest message first. The last message is from the user.
    pub messages: Vec<Message>,
    /// The sampling temperature; `None` for the provider's default.
    pub temperature: Option<f64>,
    /// The maximum length of the answer, in tokens.
    pub max_tokens: Option<i32>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolOffer>,
    /// The prices of the model. They are neither sent nor part of a digest.
    #[serde(skip)]
    pub price: Option<Price>,
}

impl AgentCall {
    /// Returns the approximate size of the call in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_call = |call: &ToolCall| call.id.len() + call.tool.len() + call.arguments.len();
        let of_message = |message: &Message| {
            let opaque = message.opaque.as_ref().map_or(0, |opaque| opaque.bytes());
            message.text.len() + opaque + message.calls.iter().map(of_call).sum::<usize>()
        };
        let of_tool = |tool: &ToolOffer| tool.name.len() + tool.description.len() + bytes_of(&tool.parameters);
        self.system.as_ref().map_or(0, String::len)
            + self.messages.iter().map(of_message).sum::<usize>()
            + self.tools.iter().map(of_tool).sum::<usize>()
    }
}

/// Returns the approximate size of a value as JSON, in bytes.
#[must_use]
pub fn bytes_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(bytes_of).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + bytes_of(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

/// A tool as it is described to a model.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ToolOffer {
    /// The unique name on the wire: letters, digits, `_` and `-`, at most 64 characters.
    pub name: String,
    /// The description for the model, as the Workflow or the server wrote it.
    pub description: String,
    /// The JSON Schema of its arguments, of type object.
    pub parameters: Value,
}

/// One message of a conversation. Its `Debug` shows the length only.
#[derive(Clone, PartialEq, Eq, serde::Serialize)]
pub struct Message {
    /// The role of the sender.
    pub role: Role,
    /// The text. For a [`Role::Tool`] message it is the result of a call.
    pub text: String,
    /// The calls that the model made with this message; only of [`Role::Assistant`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// The id of the call that this message answers. Only and always set for [`Role::Tool`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<String>,
    /// The parts that only the provider can read, only for [`Role::Assistant`]. They are neither digested nor shown.
    #[serde(skip)]
    pub opaque: Option<Arc<OpaqueParts>>,
}

impl Message {
    /// Returns a message without calls.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: text.into(), calls: Vec::new(), answers: None, opaque: None }
    }

    /// Returns a message with the result of a call.
    #[must_use]
    pub fn result(call: impl Into<String>, text: impl Into<String>) -> Self {
        Self { answers: Some(call.into()), ..Self::text(Role::Tool, text) }
    }
}

/// A call of a tool, as the model made it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ToolCall {
    /// The id that the model gave. The result is sent back under the same id.
    pub id: String,
    /// The name of the tool on the wire.
    pub tool: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}({} bytes)", self.role, self.text.len())
    }
}

/// The role of a message in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Role {
    /// The run sends the message: an input or feedback.
    User,
    /// The model wrote the message.
    Assistant,
    /// The message is the result of a call of a tool.
    Tool,
}

/// One container, rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct PodCall {
    /// The name of the Pod, which is different for each attempt.
    pub name: String,
    /// The rendered container. Its digest identifies the call, and is the same for every attempt.
    pub spec: PodStep,
}

/// One HTTP request, rendered, as people approve it: its digest covers the names of Secrets, and no value. The executor
/// makes an `HttpRequest` from this call. Requests that need no approval are `HttpRequest`s too.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HttpCall {
    /// The method: `GET`, `POST`, …
    pub method: String,
    /// The rendered URL, with its query.
    pub url: String,
    /// The rendered values of the headers by name.
    pub headers: BTreeMap<String, String>,
    /// The headers whose values are keys of Secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secret_headers: Vec<SentSecret>,
    /// The rendered body; `None` for a request without a body.
    pub body: Option<String>,
    /// The status codes of a success; 200 to 299 if empty.
    pub expect_status: Vec<u16>,
}

impl HttpCall {
    /// Returns the method as the server may interpret it.
    #[must_use]
    pub fn sent_method(&self) -> SentMethod {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        SentMethod::new(&self.method, headers, self.body.is_some())
    }
}

/// A header whose value is a key of a Secret. It contains names only; the value is read when the call is made.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SentSecret {
    /// The name of the header.
    pub header: String,
    /// The text before the value, such as `Bearer `.
    pub prefix: String,
    /// The entry of `spec.secrets` whose key is the value.
    pub entry: SecretEntry,
}

impl SentSecret {
    /// Returns the header for the key of a server: a bearer token, or the key alone in a header of another name.
    #[must_use]
    pub fn of_server(entry: &SecretEntry, header: Option<&str>) -> Self {
        let (header, prefix) = header.map_or(("Authorization", "Bearer "), |header| (header, ""));
        Self { header: header.to_owned(), prefix: prefix.to_owned(), entry: entry.clone() }
    }
}

/// One rendered request to an MCP server. The request is sent to this server only, because the digest covers the
/// server.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct McpCall {
    /// The name of the server in the Workflow.
    pub server: String,
    /// The URL of the server; `None` if the server is a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The program and its arguments; empty if the server has a URL.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The Secret with the key that is sent; `None` for a server without a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SecretEntry>,
    /// The header of the key. Default: `Authorization`, as a bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The request to the server: the list of its tools, or one call.
    #[serde(flatten)]
    pub request: McpRequest,
}

/// A request to an MCP server, without the server.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum McpRequest {
    /// The list of the server's tools. The response is a [`signoff_api::catalogue::Catalogue`] as JSON.
    #[serde(rename_all = "camelCase")]
    Catalogue {
        /// The tools that the run can use, by name or glob; all if empty.
        only: Vec<String>,
    },
    /// One call of a tool.
    Call(McpToolCall),
}

/// One call of a tool of an MCP server.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct McpToolCall {
    /// The name of the tool on the server.
    pub tool: String,
    /// The arguments, as they are sent.
    pub arguments: Map<String, Value>,
    /// The digest of the definition of the tool: see [`signoff_api::catalogue::ServerTool::digest`].
    pub definition: Digest,
    /// Whether the tools are listed right before the call, and the call is sent only if the tool still has this
    /// definition. Otherwise it fails with the class `ToolChanged` and the fact `changed`: see [`McpCall::changed`].
    #[serde(skip)]
    pub is_compared: bool,
    /// Whether the call is sent only if people were asked about it, because it may change something and its definition
    /// is not pinned.
    #[serde(skip)]
    pub needs_people: bool,
    /// Whether the call changes nothing, so that the failure of a sent call is certain. Always false if policies have
    /// gates before it.
    #[serde(skip)]
    pub reads: bool,
    /// The recorded definition with the schema of the arguments, as people see it. Its digest is `definition`.
    #[serde(skip)]
    pub described: Arc<Map<String, Value>>,
    /// The number of runs before the calling run, in the chain in which each run started the next.
    #[serde(skip)]
    pub depth: u32,
}

impl McpCall {
    /// Returns the approximate size of the call's arguments in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.request {
            McpRequest::Catalogue { .. } => 0,
            McpRequest::Call(call) => call.arguments.iter().map(|(name, value)| name.len() + bytes_of(value)).sum(),
        }
    }

    /// Returns the value of the fact `changed` for a call that is not sent: the tool, and the digest of its current
    /// definition, if the server still has the tool.
    #[must_use]
    pub fn changed(server: &str, tool: &str, now: Option<&Digest>) -> String {
        match now {
            Some(now) => format!("{server}.{tool} {now}"),
            None => format!("{server}.{tool}"),
        }
    }
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Succeeded with this result.
    Succeeded(String),
    /// Failed with an error: one sentence that names the step.
    Failed(String),
    /// Rejected by a person, or by a timeout that rejects.
    Rejected(String),
    /// Aborted by a person.
    Aborted(String),
    /// Canceled by `spec.cancel`.
    Cancelled,
}

impl End {
    /// Returns the phase of a run with this end.
    #[must_use]
    pub fn phase(&self) -> WorkflowPhase {
        match self {
            Self::Succeeded(_) => WorkflowPhase::Succeeded,
            Self::Failed(_) => WorkflowPhase::Failed,
            Self::Rejected(_) => WorkflowPhase::Rejected,
            Self::Aborted(_) => WorkflowPhase::Aborted,
            Self::Cancelled => WorkflowPhase::Cancelled,
        }
    }

    /// Returns the end as one sentence for people.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Succeeded(_) => "every step is done",
            Self::Failed(why) | Self::Rejected(why) | Self::Aborted(why) => why,
            Self::Cancelled => "cancelled by spec.cancel",
        }
    }
}
