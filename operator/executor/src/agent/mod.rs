//! Turns of language models: a trait, and the providers behind it.
//!
//! It must not keep a conversation, decide whether to call again, or log: prompts, answers and keys
//! pass through and leave no trace. What a turn cost is in its reply.

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

use std::{fmt, sync::Arc};
use std::time::Duration;

use async_trait::async_trait;
use signoff_api::journal::Usage;
use signoff_api::turn::{OpaqueParts, RequestedCall};
use signoff_api::workflow::{OpenAiApi, Provider, ProviderKind};
use signoff_engine::transition::{Message, Role, ToolOffer};

use self::{
    anthropic::Messages, chat::ChatCompletions, dialect::Dialects, gemini::GenerateContent, ollama::OllamaChat,
    protocol::Protocol, responses::Responses, server::ModelServer,
};
use crate::error::CallError;
use crate::http::HttpClient;
use crate::room::AnswerRoom;
use crate::secrets::SecretText;

/// One turn: the whole conversation so far, to be answered by one message.
#[derive(Clone)]
pub struct TurnRequest {
    /// Where to send it.
    pub provider: Provider,
    /// The provider's name of the model.
    pub model: String,
    /// The agent's system prompt, rendered.
    pub system: Option<String>,
    /// Oldest first; those after the model's last one are to be answered.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<ToolOffer>,
    /// The most tokens of the answer; `None` for the provider's default.
    pub max_tokens: Option<u32>,
    /// `None` for the provider's default.
    pub temperature: Option<f64>,
    /// The time for the whole turn.
    pub timeout: Duration,
    /// The key, where the provider needs one.
    pub key: Option<SecretText>,
}

/// The answer of a model.
#[derive(Clone, PartialEq, Eq)]
pub struct TurnReply {
    /// The answer's text; empty only beside calls.
    pub text: String,
    /// The calls that the model asks for, in its order; empty where no tools were offered.
    pub calls: Vec<RequestedCall>,
    /// The number of further calls, which are not kept.
    pub dropped: usize,
    /// The parts that only the provider can read, and that it wants back with the calls.
    pub opaque: Option<OpaqueParts>,
    /// The tokens used, or `None` where the provider does not report them.
    pub usage: Option<Usage>,
    /// Whether the answer was cut at `max_tokens` or the model's own limit.
    pub truncated: bool,
}

/// A model that answers turns.
#[async_trait]
pub trait Model: Send + Sync {
    /// Answers one turn. A request that the server refuses because of an optional field is sent again without it.
    /// `room`: the memory for the answer.
    ///
    /// # Errors As the call's [`CallError`]; a turn has no effects, so every retryable error may
    /// be repeated.
    async fn turn(&self, request: TurnRequest, room: &dyn AnswerRoom) -> Result<TurnReply, CallError>;
}

/// Every provider there is, each turn going to the one it names.
#[derive(Clone, Debug)]
pub struct Providers {
    http: HttpClient,
    dialects: Arc<Dialects>,
}

impl Providers {
    /// Providers that call out through `http`, and so only where it may go.
    #[must_use]
    pub fn new(http: HttpClient) -> Self {
        Self { http, dialects: Arc::default() }
    }
}

#[async_trait]
impl Model for Providers {
    async fn turn(&self, request: TurnRequest, room: &dyn AnswerRoom) -> Result<TurnReply, CallError> {
        let Some(kind) = request.provider.kind() else {
            return Err(CallError::invalid(format!("provider {}: {}", request.provider.name, Provider::ONE_KIND)));
        };
        let protocol: &dyn Protocol = match kind {
            ProviderKind::Scripted(script) => return scripted::answer(&script.replies, &request),
            ProviderKind::OpenAi(openai) => match openai.api.unwrap_or_default() {
                OpenAiApi::Chat => &ChatCompletions,
                OpenAiApi::Responses => &Responses,
            },
            ProviderKind::Anthropic(_) => &Messages,
            ProviderKind::Gemini(_) => &GenerateContent,
            ProviderKind::Ollama(_) => &OllamaChat,
        };
        let base_url = kind.endpoint().unwrap_or_default();
        let server = ModelServer { http: &self.http, dialects: &self.dialects, protocol, base_url };
        server.turn(&request, room).await
    }
}

impl TurnRequest {
    /// Returns the messages to answer: those after the model's last one.
    fn unanswered(&self) -> &[Message] {
        let answered = self.messages.iter().rposition(|message| message.role == Role::Assistant);
        &self.messages[answered.map_or(0, |last| last + 1)..]
    }

    /// Every text that must not leave by way of an error: also arguments of calls and results of tools.
    fn prompts(&self) -> impl Iterator<Item = &str> {
        let messages = self.messages.iter().flat_map(|message| {
            let arguments = message.calls.iter().map(|call| call.arguments.as_str());
            std::iter::once(message.text.as_str()).chain(arguments)
        });
        self.system.as_deref().into_iter().chain(messages)
    }
}

impl fmt::Debug for TurnRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The provider stays out: a script is as confidential as an answer.
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
