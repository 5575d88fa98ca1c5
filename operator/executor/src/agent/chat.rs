//! OpenAI's chat completions, which many servers offer.
//!
//! Fields of an answer that this protocol does not define are kept with a turn that has calls, and are sent back
//! unchanged.

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::value::RawValue;
use signoff_api::{
    journal::Usage,
    turn::{OpaquePart, TurnCalls},
};
use signoff_engine::transition::{Message, Role, ToolCall, ToolOffer};

use super::{
    TurnRequest,
    collected::{CallPiece, Collected, Finish},
    dialect::LeftOut,
    fields::Fields,
    merged::Merged,
    protocol::{ModelList, Protocol, Reading, Unreadable, Written, foreign_tool, incomplete, opaque_of, parse_object},
};
use crate::error::CallError;

/// The fields of a message that the protocol defines.
const OF_MESSAGE: [&str; 8] =
    ["role", "content", "refusal", "tool_calls", "function_call", "audio", "annotations", EXECUTED_TOOLS];
/// The fields of a call that the protocol defines.
const OF_CALL: [&str; 4] = ["id", "type", "index", FUNCTION];
/// The fields of a function that the protocol defines.
const OF_FUNCTION: [&str; 2] = ["name", "arguments"];
const FUNCTION: &str = "function";
/// The field of tools that a server ran itself.
const EXECUTED_TOOLS: &str = "executed_tools";
const MAX_TOKENS: &str = "max_tokens";
const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";
const TEMPERATURE: &str = "temperature";
const STREAM: &str = "stream";
const STREAM_OPTIONS: &str = "stream_options";
/// The finish reasons after which an answer is incomplete.
const BROKEN_OFF: [&str; 9] = [
    "error",
    "abort",
    "aborted",
    "cancelled",
    "canceled",
    "timeout",
    "time_limit",
    "network_error",
    "insufficient_system_resource",
];

/// The chat completions API, `POST /chat/completions`.
pub(super) struct ChatCompletions;

#[derive(Serialize)]
struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<ChatMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ChatTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct ChatMessage<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    /// Null only beside calls.
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChatCall<'a>>,
    #[serde(flatten)]
    own: Fields<'a>,
}

struct ChatCall<'a> {
    call: &'a ToolCall,
    own: Fields<'a>,
}

/// A function: the only kind of tool that the API defines.
#[derive(Serialize)]
struct ChatTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: &'a ToolOffer,
}

impl Protocol for ChatCompletions {
    fn answer(&self) -> &'static str {
        "a chat completion"
    }

    fn write(&self, turn: &TurnRequest, left_out: &LeftOut) -> Result<Written, CallError> {
        let takes = |field: &str| !left_out.contains(field);
        let system = turn.system.as_deref().map(|content| ChatMessage::text("system", content));
        let conversation = turn.messages.iter().map(|message| ChatMessage::of(message, turn, left_out));
        let messages: Vec<_> = system.into_iter().chain(conversation).collect();
        let own = messages.iter().flat_map(|message| message.own_names().map(str::to_owned)).collect::<Vec<_>>();
        let streams = takes(STREAM);
        let request = ChatRequest {
            model: &turn.model,
            messages,
            tools: turn.tools.iter().map(|function| ChatTool { kind: FUNCTION, function }).collect(),
            // The older name first: every server knows it, except those that ask for the newer one.
            max_tokens: turn.max_tokens.filter(|_| takes(MAX_TOKENS)),
            max_completion_tokens: turn.max_tokens.filter(|_| !takes(MAX_TOKENS) && takes(MAX_COMPLETION_TOKENS)),
            temperature: turn.temperature.filter(|_| takes(TEMPERATURE)),
            stream: streams.then_some(true),
            stream_options: (streams && takes(STREAM_OPTIONS)).then_some(StreamOptions { include_usage: true }),
        };
        let sent = [
            (MAX_TOKENS, request.max_tokens.is_some()),
            (MAX_COMPLETION_TOKENS, request.max_completion_tokens.is_some()),
            (TEMPERATURE, request.temperature.is_some()),
            (STREAM, request.stream.is_some()),
            (STREAM_OPTIONS, request.stream_options.is_some()),
        ];
        let optional = sent.into_iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| name.to_owned()).chain(own);
        let body =
            serde_json::to_string(&request).map_err(|_| CallError::invalid("the turn cannot be written as JSON"))?;
        let (path, headers) = ("/chat/completions".to_owned(), self.headers(turn.key.as_ref()));
        Ok(Written { path, headers, optional: optional.collect(), body })
    }

    fn models(&self) -> ModelList {
        ModelList { path: "/models", list: "data", name: "id" }
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::<Completion>::default()
    }
}

impl<'a> ChatMessage<'a> {
    fn text(role: &'static str, content: &'a str) -> Self {
        Self { role, tool_call_id: None, content: Some(content), tool_calls: Vec::new(), own: Fields::default() }
    }

    fn of(message: &'a Message, turn: &TurnRequest, left_out: &LeftOut) -> Self {
        let text = message.text.as_str();
        match message.role {
            Role::User => Self::text("user", text),
            Role::Assistant => Self::of_answer(message, turn, left_out),
            Role::Tool => Self { tool_call_id: message.answers.as_deref(), ..Self::text("tool", text) },
        }
    }

    /// Returns an earlier answer of the model, with the fields that the protocol does not define.
    fn of_answer(message: &'a Message, turn: &TurnRequest, left_out: &LeftOut) -> Self {
        let (mut own, mut of_calls) = (Fields::default(), vec![Fields::default(); message.calls.len()]);
        let fields = |json: &'a str| Fields::of(json).unwrap_or_default().without_unsupported(left_out);
        for part in opaque_of(message, turn) {
            match part {
                OpaquePart::Message(json) => own = fields(json),
                OpaquePart::Call(number, json) => {
                    if let Some(of_call) = of_calls.get_mut(*number) {
                        *of_call = fields(json);
                    }
                }
                OpaquePart::Item(_) => {}
            }
        }
        let text = message.text.as_str();
        let calls = message.calls.iter().zip(of_calls).map(|(call, own)| ChatCall { call, own });
        Self {
            content: (message.calls.is_empty() || !text.is_empty()).then_some(text),
            tool_calls: calls.collect(),
            own,
            ..Self::text("assistant", text)
        }
    }

    /// Returns the names of the fields that the protocol does not define.
    fn own_names(&self) -> impl Iterator<Item = &str> {
        let of_calls = self.tool_calls.iter().flat_map(|called| called.own.names()).filter(|name| *name != FUNCTION);
        self.own.names().chain(of_calls)
    }
}

impl Serialize for ChatCall<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ChatFunction<'a> {
            name: &'a str,
            arguments: &'a str,
            #[serde(flatten)]
            own: Fields<'a>,
        }
        let ToolCall { id, tool, arguments } = self.call;
        let mut call = to.serialize_map(None)?;
        call.serialize_entry("id", id)?;
        call.serialize_entry("type", FUNCTION)?;
        let own = self.own.object(FUNCTION).unwrap_or_default();
        call.serialize_entry(FUNCTION, &ChatFunction { name: tool, arguments, own })?;
        for (name, value) in self.own.clone().without(&[FUNCTION]) {
            call.serialize_entry(&name, value)?;
        }
        call.end()
    }
}

/// A completion while it is received.
#[derive(Default)]
struct Completion {
    collected: Collected,
    is_stream: bool,
    has_choice: bool,
    has_message: bool,
    refusal: String,
    /// The fields of the message that the protocol does not define.
    own: Merged,
    /// The fields of each kept call that the protocol does not define, by the position of the call.
    of_calls: Vec<Merged>,
}

impl Reading for Completion {
    fn begin_stream(&mut self) {
        self.is_stream = true;
    }

    fn take(&mut self, document: &[u8]) -> Result<(), Unreadable> {
        let document = parse_object(document)?;
        if document.get("usage").is_some() {
            self.collected.set_usage(read_usage(&document.object("usage")?)?);
        }
        // Of several choices the first one is used.
        let Some(choice) = document.list::<1>("choices")?.kept.into_iter().next() else { return Ok(()) };
        if choice.count("index") > 0 {
            return Ok(());
        }
        self.has_choice = true;
        let has_delta = !choice.object("delta")?.is_empty();
        // Some servers send the whole text so far beside each piece of a stream.
        let is_whole = choice.get("message").is_some() && !(self.is_stream && has_delta);
        if is_whole || has_delta {
            self.has_message = true;
            self.add_message(&choice.object(if is_whole { "message" } else { "delta" })?)?;
        }
        self.read_finish_reason(&choice)?;
        self.collected.is_complete |= is_whole;
        Ok(())
    }

    fn bytes(&self) -> usize {
        let own: usize = self.of_calls.iter().map(Merged::kept).sum();
        self.collected.bytes() + self.refusal.len() + self.own.kept() + own
    }

    fn end(self: Box<Self>, is_done: bool) -> Result<Collected, Unreadable> {
        let Self { mut collected, has_choice, has_message, refusal, own, of_calls, .. } = *self;
        if !has_choice && (is_done || collected.usage.is_some() || !has_message) {
            return Err(Unreadable::Because("answered without any choice".to_owned()));
        }
        if !has_message {
            return Err(Unreadable::Because("answered a choice without a message".to_owned()));
        }
        // The end of a stream does not say whether its last call is complete.
        if !collected.is_complete && (!is_done || collected.count() > 0) {
            return Err(incomplete());
        }
        if collected.text.is_empty() && !refusal.is_empty() {
            collected.finish = Some(Finish::Declined("refusal".to_owned()));
        }
        collected.add_fields(own.json(), OpaquePart::Message);
        for (number, own) in of_calls.into_iter().enumerate() {
            collected.add_fields(own.json(), |json| OpaquePart::Call(number, json));
        }
        Ok(collected)
    }
}

impl Completion {
    /// Reads the finish reason of a choice. Some servers send a placeholder as the reason with every piece.
    fn read_finish_reason(&mut self, choice: &Fields<'_>) -> Result<(), Unreadable> {
        let reason = choice.text("finish_reason")?.filter(|reason| !matches!(reason.as_str(), "" | "null"));
        let Some(reason) = reason else { return Ok(()) };
        if BROKEN_OFF.contains(&reason.as_str()) {
            return Err(Unreadable::Because(format!("broke off its answer ({reason})")));
        }
        self.collected.finish = Some(match reason.as_str() {
            "length" => Finish::Cut,
            "content_filter" => Finish::Declined(reason),
            _ => Finish::Usual,
        });
        self.collected.is_complete = true;
        Ok(())
    }

    /// Adds a whole message, or a piece of a streamed message.
    fn add_message(&mut self, message: &Fields<'_>) -> Result<(), Unreadable> {
        if let Some(content) = message.get("content") {
            self.collected.text.push_str(&read_text(content)?);
        }
        self.refusal.push_str(&message.text("refusal")?.unwrap_or_default());
        if !message.list::<1>(EXECUTED_TOOLS)?.kept.is_empty() {
            return Err(foreign_tool("a tool that the provider ran"));
        }
        self.own.add(message.others(&OF_MESSAGE))?;
        let calls = message.list::<{ TurnCalls::MAX_CALLS }>("tool_calls")?;
        self.collected.add_dropped(calls.dropped);
        let is_only_piece = calls.kept.len() == 1;
        for (number, call) in calls.kept.iter().enumerate() {
            // Without an index, each call of a list is a new call. A single call can continue the last call.
            self.add_call(call, (!is_only_piece).then_some(number as u64))?;
        }
        Ok(())
    }

    /// Adds a call, or a piece of a streamed call. `default_place` is its number if it has no index.
    fn add_call(&mut self, call: &Fields<'_>, default_place: Option<u64>) -> Result<(), Unreadable> {
        if let Some(kind) = call.text("type")?.filter(|kind| kind != FUNCTION && !kind.is_empty()) {
            return Err(foreign_tool(&kind));
        }
        let function = call.object(FUNCTION)?;
        let arguments = function.arguments("arguments")?;
        let index = call.get("index").map(|_| call.count("index")).and_then(|index| u64::try_from(index).ok());
        let place = index.or(default_place);
        let id = call.text("id")?.unwrap_or_default();
        let piece = CallPiece { place, id, tool: function.text("name")?.unwrap_or_default(), arguments };
        let Some(number) = self.collected.add_call(piece) else { return Ok(()) };
        if self.of_calls.len() <= number {
            self.of_calls.resize_with(number + 1, Merged::default);
        }
        if let Some(own) = self.of_calls.get_mut(number) {
            own.add(call.others(&OF_CALL))?;
            own.add_object(FUNCTION, function.others(&OF_FUNCTION))?;
        }
        Ok(())
    }
}

/// Reads a text, or joins the texts of a list of parts.
fn read_text(content: &RawValue) -> Result<String, Unreadable> {
    #[derive(serde::Deserialize)]
    struct TextPart {
        #[serde(default)]
        text: String,
    }
    if content.get().starts_with('[') {
        let parts: Vec<TextPart> = serde_json::from_str(content.get())?;
        return Ok(parts.into_iter().map(|part| part.text).collect());
    }
    Ok(serde_json::from_str(content.get())?)
}

fn read_usage(usage: &Fields<'_>) -> Result<Usage, Unreadable> {
    let cached = usage.object("prompt_tokens_details")?.count("cached_tokens");
    Ok(Usage {
        input_tokens: usage.count("prompt_tokens"),
        output_tokens: usage.count("completion_tokens"),
        cached_tokens: cached.max(usage.count("prompt_cache_hit_tokens")),
        reasoning_tokens: usage.object("completion_tokens_details")?.count("reasoning_tokens"),
        cost: None,
    })
}

#[cfg(test)]
mod tests {
    //! The finish reasons are taken from "TextChatResultChoice" of IBM's watsonx-ai-node-sdk 1.6, and from
    //! `FinishReason` of the crate openai-interface 0.12, which includes the reason of DeepSeek.
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};
    use signoff_api::turn::RequestedArguments;

    use super::*;
    use crate::{agent::documents::Documents, http::AnswerBody as _, room::UnboundedRoom};

    /// Returns the text of an answer, and the arguments of its calls.
    fn read(answer: &str) -> Result<(String, Vec<String>), Unreadable> {
        let reading = ChatCompletions.reading();
        let mut documents = Documents::new(&UnboundedRoom, reading, ChatCompletions.has_lines(), 8 << 20);
        if documents.add(answer.as_bytes()).is_err() {
            return Err(documents.take_failure().unwrap());
        }
        let collected = documents.end()?;
        let text = collected.text.clone();
        let arguments = |arguments| match arguments {
            RequestedArguments::Text(text) => text,
            RequestedArguments::TooLong(bytes) => format!("{bytes} bytes"),
        };
        Ok((text, collected.into_parts().0.into_iter().map(|call| arguments(call.arguments)).collect()))
    }

    fn why(answer: &str) -> String {
        match read(answer).err().unwrap() {
            Unreadable::Because(why) | Unreadable::Refused(why) | Unreadable::Failed(why) => why,
            Unreadable::Form(line, column) => format!("form {line}:{column}"),
            Unreadable::Page => "page".to_owned(),
        }
    }

    fn events(choices: &[Value]) -> String {
        choices.iter().map(|choice| format!("data: {}\n\n", json!({"choices": [choice]}))).collect()
    }

    fn call(arguments: &str, reason: &Value) -> Value {
        let call = json!({"index": 0, "id": "a", "function": {"name": "pay", "arguments": arguments}});
        json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": reason})
    }

    #[test]
    fn a_stream_goes_on_after_a_placeholder_for_its_finish_reason() {
        for placeholder in [json!(""), json!("null"), Value::Null] {
            let first = events(&[call("{\"amount\":4", &placeholder)]);
            assert_eq!(why(&first), "ended before its answer did", "{placeholder}");
            let whole = first + &events(&[call("20}", &placeholder), call("", &json!("tool_calls"))]);
            assert_eq!(read(&whole).unwrap().1, ["{\"amount\":420}"]);
        }
    }

    #[test]
    fn an_answer_that_the_server_broke_off_is_an_error() {
        for reason in BROKEN_OFF {
            let expected = format!("broke off its answer ({reason})");
            assert_eq!(why(&events(&[call("{}", &json!(reason))])), expected);
            let whole = json!({"choices": [{"message": {"content": "I p"}, "finish_reason": reason}]});
            assert_eq!(why(&whole.to_string()), expected);
        }
    }

    #[test]
    fn only_a_stream_with_calls_needs_a_finish_reason() {
        let done = "data: [DONE]\n\n";
        let calls = events(&[call("{}", &Value::Null)]);
        assert_eq!(why(&format!("{calls}{done}")), "ended before its answer did");
        let text = events(&[json!({"delta": {"content": "Yes."}})]);
        assert_eq!(read(&format!("{text}{done}")).unwrap().0, "Yes.");
        // A whole message is complete without a reason too.
        let message = json!({"tool_calls": [{"id": "a", "function": {"name": "pay", "arguments": "{}"}}]});
        assert_eq!(read(&json!({"choices": [{"message": message}]}).to_string()).unwrap().1, ["{}"]);
    }

    #[test]
    fn a_stream_that_is_cut_at_any_byte_is_an_error_or_the_same_answer() {
        let pieces = [call("{\"amount\":4", &Value::Null), call("20}", &Value::Null), call("", &json!("tool_calls"))];
        let stream = events(&pieces) + "data: [DONE]\n\n";
        let whole = read(&stream).unwrap();
        assert_eq!(whole.1, ["{\"amount\":420}"]);
        for length in 0..stream.len() {
            if let Ok(cut) = read(&stream[..length]) {
                assert_eq!(cut, whole, "{length}");
            }
        }
    }

    #[test]
    fn a_message_beside_a_piece_of_a_stream_is_not_read() {
        let piece = |piece: &str, so_far: &str, reason: Value| json!({"delta": {"content": piece}, "message": {"content": so_far}, "finish_reason": reason});
        let begun = [piece("I ", "I ", Value::Null), piece("pay", "I pay", Value::Null)];
        assert_eq!(why(&events(&begun)), "ended before its answer did");
        let ended = events(&begun) + &events(&[piece(".", "I pay.", json!("stop"))]);
        assert_eq!(read(&ended).unwrap().0, "I pay.");
        // In an answer that is not a stream, the message is the answer.
        let whole = json!({"choices": [piece("", "I pay.", json!("stop"))]}).to_string();
        assert_eq!(read(&whole).unwrap().0, "I pay.");
    }
}
