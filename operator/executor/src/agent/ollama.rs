//! Ollama's chat: a stream of lines, each a JSON object.
//!
//! Calls arrive whole. Their numbers are ignored, because some versions of Ollama give all calls the same one.

use serde::Serialize;
use serde_json::{json, value::RawValue};
use signoff_api::{
    journal::Usage,
    turn::{OpaquePart, TurnCalls},
};
use signoff_engine::transition::{Message, Role, ToolCall, ToolOffer};

use super::{
    TurnRequest,
    collected::{CallPiece, Collected, Finish, MAX_OPAQUE},
    dialect::LeftOut,
    fields::Fields,
    protocol::{
        ModelList, Protocol, Reading, Unreadable, Written, arguments_object, foreign_tool, incomplete, opaque_of,
        parse_object,
    },
    requested::escaped_size,
};
use crate::error::CallError;

const FUNCTION: &str = "function";
const TEMPERATURE: &str = "temperature";
const NUM_PREDICT: &str = "num_predict";
const STREAM: &str = "stream";
const THINKING: &str = "thinking";

/// The chat API of Ollama, `POST /api/chat`.
pub(super) struct OllamaChat;

#[derive(Serialize)]
struct OllamaRequest<'a> {
    model: &'a str,
    messages: Vec<OllamaMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OllamaTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Options>,
}

#[derive(Default, PartialEq, Serialize)]
struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
}

#[derive(Default, Serialize)]
struct OllamaMessage<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<OllamaCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    /// Newer versions of Ollama read the ids of calls, older ones only the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct OllamaCall<'a> {
    id: &'a str,
    function: OllamaFunction<'a>,
}

#[derive(Serialize)]
struct OllamaFunction<'a> {
    name: &'a str,
    arguments: Box<RawValue>,
}

/// A function. Ollama knows no other tools.
#[derive(Serialize)]
struct OllamaTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: &'a ToolOffer,
}

impl Protocol for OllamaChat {
    fn answer(&self) -> &'static str {
        "an answer of Ollama's chat"
    }

    fn has_lines(&self) -> bool {
        true
    }

    fn write(&self, turn: &TurnRequest, left_out: &LeftOut) -> Result<Written, CallError> {
        let takes = |field: &str| !left_out.contains(field);
        let messages = write_messages(turn, takes(THINKING));
        let options = Options {
            temperature: turn.temperature.filter(|_| takes(TEMPERATURE)),
            num_predict: turn.max_tokens.filter(|_| takes(NUM_PREDICT)),
        };
        let sent = [
            (TEMPERATURE, options.temperature.is_some()),
            (NUM_PREDICT, options.num_predict.is_some()),
            (STREAM, takes(STREAM)),
            (THINKING, messages.iter().any(|message| message.thinking.is_some())),
        ];
        let request = OllamaRequest {
            model: &turn.model,
            messages,
            tools: turn.tools.iter().map(|function| OllamaTool { kind: FUNCTION, function }).collect(),
            stream: takes(STREAM).then_some(true),
            options: Some(options).filter(|options| *options != Options::default()),
        };
        let body =
            serde_json::to_string(&request).map_err(|_| CallError::invalid("the turn cannot be written as JSON"))?;
        let optional = sent.into_iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| name.to_owned());
        Ok(Written {
            path: "/api/chat".to_owned(),
            headers: self.headers(turn.key.as_ref()),
            body,
            optional: optional.collect(),
        })
    }

    fn models(&self) -> ModelList {
        ModelList { path: "/api/tags", list: "models", name: "name" }
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::<Chat>::default()
    }
}

/// Writes the conversation. `with_thinking` says whether the server accepts the thinking of earlier answers.
fn write_messages(turn: &TurnRequest, with_thinking: bool) -> Vec<OllamaMessage<'_>> {
    let system =
        turn.system.as_deref().map(|content| OllamaMessage { role: "system", content, ..OllamaMessage::default() });
    let mut answer = None;
    let conversation = turn.messages.iter().map(|message| match message.role {
        Role::User => OllamaMessage { role: "user", content: &message.text, ..OllamaMessage::default() },
        Role::Assistant => {
            answer = Some(message);
            let thinking = thinking_of(message, turn).filter(|_| with_thinking);
            OllamaMessage { thinking, ..OllamaMessage::of_answer(message) }
        }
        Role::Tool => OllamaMessage::of_result(message, answer),
    });
    system.into_iter().chain(conversation).collect()
}

/// Returns the thinking of the model before an answer, unchanged.
fn thinking_of<'a>(message: &'a Message, turn: &TurnRequest) -> Option<&'a RawValue> {
    opaque_of(message, turn).iter().find_map(|part| match part {
        OpaquePart::Message(json) => Fields::of(json).ok()?.get(THINKING),
        OpaquePart::Item(_) | OpaquePart::Call(..) => None,
    })
}

impl<'a> OllamaMessage<'a> {
    fn of_answer(message: &'a Message) -> Self {
        let called = |call: &'a ToolCall| OllamaCall {
            id: &call.id,
            function: OllamaFunction { name: &call.tool, arguments: arguments_object(&call.arguments) },
        };
        let tool_calls = message.calls.iter().map(called).collect();
        Self { role: "assistant", content: &message.text, tool_calls, ..Self::default() }
    }

    /// Returns the result of a call of `answer`.
    fn of_result(result: &'a Message, answer: Option<&'a Message>) -> Self {
        let id = result.answers.as_deref();
        let call = answer.and_then(|answer| answer.calls.iter().find(|call| Some(call.id.as_str()) == id));
        let tool_name = call.map(|call| call.tool.as_str());
        Self { role: "tool", content: &result.text, tool_name, tool_call_id: id, ..Self::default() }
    }
}

/// An answer while it is received.
#[derive(Default)]
struct Chat {
    collected: Collected,
    has_message: bool,
    /// The number of calls, including dropped ones.
    calls: u64,
    /// The thinking; empty if it is too long to be sent back.
    thinking: String,
    /// The size of the thinking within a JSON string in bytes, including thinking that is not kept.
    thinking_bytes: usize,
}

impl Reading for Chat {
    fn take(&mut self, document: &[u8]) -> Result<(), Unreadable> {
        let document = parse_object(document)?;
        if document.get("message").is_some() {
            self.has_message = true;
            self.add_message(&document.object("message")?)?;
        }
        let usage = Usage {
            input_tokens: document.count("prompt_eval_count"),
            output_tokens: document.count("eval_count"),
            ..Usage::default()
        };
        if usage != Usage::default() {
            self.collected.set_usage(usage);
        }
        if document.is_true("done") {
            self.collected.finish = Some(read_done_reason(&document.text("done_reason")?.unwrap_or_default())?);
            self.collected.is_complete = true;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.collected.bytes() + self.thinking.len()
    }

    fn end(self: Box<Self>, _is_done: bool) -> Result<Collected, Unreadable> {
        let Self { mut collected, has_message, thinking, thinking_bytes, .. } = *self;
        match (has_message, collected.is_complete) {
            (true, true) => {}
            (true, false) => return Err(incomplete()),
            (false, _) => return Err(Unreadable::Because("answered without a message".to_owned())),
        }
        if collected.count() > 0 && thinking_bytes > 0 {
            let is_kept = thinking_bytes <= MAX_OPAQUE;
            let kept = if is_kept { Ok(json!({THINKING: thinking}).to_string()) } else { Err(thinking_bytes) };
            collected.add_fields(Some(kept), OpaquePart::Message);
        }
        Ok(collected)
    }
}

impl Chat {
    /// Adds a whole message, or a piece of a streamed message.
    fn add_message(&mut self, message: &Fields<'_>) -> Result<(), Unreadable> {
        if message.get("images").is_some_and(|images| images.get() != "[]") {
            return Err(Unreadable::Because("answered with something other than text".to_owned()));
        }
        self.collected.text.push_str(&message.text("content")?.unwrap_or_default());
        self.add_thinking(&message.text(THINKING)?.unwrap_or_default());
        let calls = message.list::<{ TurnCalls::MAX_CALLS }>("tool_calls")?;
        self.collected.add_dropped(calls.dropped);
        for call in &calls.kept {
            self.add_call(call)?;
        }
        Ok(())
    }

    /// Adds a piece of thinking.
    fn add_thinking(&mut self, piece: &str) {
        self.thinking_bytes = self.thinking_bytes.saturating_add(escaped_size(piece));
        if self.thinking_bytes <= MAX_OPAQUE {
            self.thinking.push_str(piece);
        } else {
            self.thinking = String::new();
        }
    }

    /// Adds a call, which always arrives whole.
    fn add_call(&mut self, call: &Fields<'_>) -> Result<(), Unreadable> {
        if let Some(kind) = call.text("type")?.filter(|kind| !matches!(kind.as_str(), "" | FUNCTION)) {
            return Err(foreign_tool(&kind));
        }
        if call.get(FUNCTION).is_none() {
            let others = call.others(&["id", "type"]);
            return Err(foreign_tool(others.names().next().unwrap_or("a call without a function")));
        }
        let function = call.object(FUNCTION)?;
        self.calls += 1;
        self.collected.add_call(CallPiece {
            place: Some(self.calls),
            id: call.text("id")?.unwrap_or_default(),
            tool: function.text("name")?.unwrap_or_default(),
            arguments: Some(function.arguments("arguments")?)
                .filter(|text| !text.is_empty())
                .unwrap_or_else(|| "{}".to_owned()),
        });
        Ok(())
    }
}

/// Returns the end of an answer by its reason, which older versions of Ollama do not give.
fn read_done_reason(reason: &str) -> Result<Finish, Unreadable> {
    match reason {
        "length" => Ok(Finish::Cut),
        "load" | "unload" => Err(Unreadable::Because("loaded or unloaded its model instead of an answer".to_owned())),
        _ => Ok(Finish::Usual),
    }
}

#[cfg(test)]
mod tests;
