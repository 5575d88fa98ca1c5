//! Turns of language models: a trait, and the providers behind it. `api/src/workflow/provider.rs` has their fields in a
//! Workflow.
//!
//! Prompts, answers and keys are neither stored nor logged. The cost of a turn is in its reply. The caller keeps the
//! conversation and decides about another attempt.

mod anthropic;
mod chat;
mod collected;
mod dialect;
mod documents;
mod fields;
mod gemini;
mod merged;
mod ollama;
mod protocol;
mod requested;
mod responses;
mod scripted;
mod server;
#[cfg(test)]
mod tested;

use std::time::Duration;
use std::{fmt, sync::Arc};

use async_trait::async_trait;
use signoff_api::journal::Usage;
use signoff_api::turn::{OpaqueParts, RequestedCall};
use signoff_api::workflow::{OpenAiApi, Provider, ProviderKind};
use signoff_engine::transition::{Message, Role, ToolOffer};

use self::{
    anthropic::Messages,
    chat::ChatCompletions,
    dialect::{Dialects, ServerKey},
    gemini::GenerateContent,
    ollama::OllamaChat,
    protocol::Protocol,
    responses::Responses,
    server::ModelServer,
};
use crate::error::CallError;
use crate::http::HttpClient;
use crate::room::AnswerRoom;
use crate::secrets::SecretText;

/// One turn: the conversation so far, to be answered by one message.
#[derive(Clone)]
pub struct TurnRequest {
    /// The provider to send the turn to. Its kind selects the protocol.
    pub provider: Provider,
    /// The namespace of the run. Fields that a server refuses are learned per namespace.
    pub namespace: String,
    /// The name of the model at the provider.
    pub model: String,
    /// The rendered system prompt of the agent.
    pub system: Option<String>,
    /// The messages, oldest first. Those after the last message of the model are to be answered.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<ToolOffer>,
    /// The maximum length of the answer, in tokens; `None` for the provider's default.
    pub max_tokens: Option<u32>,
    /// The sampling temperature; `None` for the provider's default.
    pub temperature: Option<f64>,
    /// The time for the whole turn.
    pub timeout: Duration,
    /// The key, if the provider needs one.
    pub key: Option<SecretText>,
}

/// The answer of a model.
#[derive(Clone, PartialEq, Eq)]
pub struct TurnReply {
    /// The answer's text; empty only beside calls.
    pub text: String,
    /// The calls of the model in order; empty if no tools were offered.
    pub calls: Vec<RequestedCall>,
    /// The number of further calls, which were dropped.
    pub dropped: usize,
    /// The parts that only the provider can read, and that it needs back with the calls.
    pub opaque: Option<OpaqueParts>,
    /// The used tokens, or `None` if the provider does not report them.
    pub usage: Option<Usage>,
    /// Whether the answer was cut at `max_tokens` or the model's own limit.
    pub truncated: bool,
}

/// A model that answers turns.
#[async_trait]
pub trait Model: Send + Sync {
    /// Answers one turn. A request that the server refuses because of an optional field is sent again without the
    /// field. `room` reserves the memory for the answer.
    ///
    /// # Errors
    /// The [`CallError`] of the call. A turn has no effects, so it may be repeated after every retryable error.
    async fn turn(&self, request: TurnRequest, room: &dyn AnswerRoom) -> Result<TurnReply, CallError>;
}

/// The providers, among which each turn names one.
#[derive(Clone, Debug)]
pub struct Providers {
    http: HttpClient,
    dialects: Arc<Dialects>,
}

impl Providers {
    /// Returns providers that make all calls through `http`, with its checks of addresses.
    #[must_use]
    pub fn new(http: HttpClient) -> Self {
        Self { http, dialects: Arc::default() }
    }

    /// Returns the names of the models that a provider offers, at most 1,000.
    ///
    /// # Errors
    /// The error of the call. The provider may have no such list.
    pub async fn offered(
        &self,
        provider: &Provider,
        key: Option<&SecretText>,
        timeout: Duration,
    ) -> Result<Vec<String>, CallError> {
        let (protocol, base_url) = protocol_of(provider)?;
        let server = ModelServer { http: &self.http, dialects: &self.dialects, protocol, base_url };
        server.list_models(key, timeout).await
    }

    /// Returns the optional fields that are left out for a model, because a server refused them in this namespace.
    #[must_use]
    pub fn left_out(&self, namespace: &str, provider: &Provider, model: &str) -> Vec<String> {
        let Ok((protocol, base_url)) = protocol_of(provider) else { return Vec::new() };
        let server = ServerKey::new(namespace, protocol, base_url, model);
        self.dialects.fields_left_out(&server).into_iter().collect()
    }
}

#[async_trait]
impl Model for Providers {
    async fn turn(&self, request: TurnRequest, room: &dyn AnswerRoom) -> Result<TurnReply, CallError> {
        if let Some(ProviderKind::Scripted(script)) = request.provider.kind() {
            return scripted::answer(&script.replies, &request);
        }
        let (protocol, base_url) = protocol_of(&request.provider)?;
        let server = ModelServer { http: &self.http, dialects: &self.dialects, protocol, base_url };
        server.turn(&request, room).await
    }
}

/// Returns the protocol and the base URL of a provider.
fn protocol_of(provider: &Provider) -> Result<(&'static dyn Protocol, &str), CallError> {
    let invalid = |why: &str| CallError::invalid(format!("provider {}: {why}", provider.name));
    let kind = provider.try_kind().map_err(|why| invalid(&why))?;
    if let Some(why) = kind.base_url_error() {
        return Err(invalid(&format!("baseURL: {why}")));
    }
    let protocol: &dyn Protocol = match kind {
        ProviderKind::OpenAi(openai) => match openai.api.unwrap_or_default() {
            OpenAiApi::Chat => &ChatCompletions,
            OpenAiApi::Responses => &Responses,
        },
        ProviderKind::Anthropic(_) => &Messages,
        ProviderKind::Gemini(_) => &GenerateContent,
        ProviderKind::Ollama(_) => &OllamaChat,
        ProviderKind::Scripted(_) => return Err(invalid("a scripted provider has no server")),
    };
    Ok((protocol, kind.endpoint().unwrap_or_default()))
}

impl TurnRequest {
    /// Returns the messages to answer: those after the model's last one.
    fn unanswered(&self) -> &[Message] {
        let answered = self.messages.iter().rposition(|message| message.role == Role::Assistant);
        &self.messages[answered.map_or(0, |last| last + 1)..]
    }

    /// Returns all texts that an error must not quote, including arguments of calls and results of tools.
    fn prompts(&self) -> impl Iterator<Item = &str> {
        let messages = self.messages.iter().flat_map(|message| {
            let arguments = message.calls.iter().map(|call| call.arguments.as_str());
            std::iter::once(message.text.as_str()).chain(arguments)
        });
        self.system.as_deref().into_iter().chain(messages)
    }
}

impl TurnRequest {
    /// Returns the parts that only the provider can read, which an error must not quote either.
    fn opaque(&self) -> impl Iterator<Item = &str> {
        let parts = self.messages.iter().filter_map(|message| message.opaque.as_ref()).flat_map(|opaque| &opaque.parts);
        parts.map(|part| part.json())
    }
}

impl fmt::Debug for TurnRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the provider: a script is as confidential as an answer.
        f.debug_struct("TurnRequest")
            .field("model", &self.model)
            .field("messages", &self.messages)
            .field("timeout", &self.timeout)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TurnReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnReply")
            .field("bytes", &self.text.len())
            .field("calls", &self.calls.len())
            .field("dropped", &self.dropped)
            .field("opaque", &self.opaque)
            .field("usage", &self.usage)
            .field("truncated", &self.truncated)
            .finish()
    }
}
