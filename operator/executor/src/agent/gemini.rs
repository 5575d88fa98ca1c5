//! Google's Gemini API: `generateContent` and its stream.
//!
//! Parts of an answer that only the model can read, and the ids of its calls, are sent back unchanged and in order. For
//! an answer without such parts only its text and its calls are kept.

use std::ops::Range;

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use signoff_api::{journal::Usage, turn::OpaquePart};
use signoff_engine::transition::{Message, Role, ToolCall};

use super::{
    TurnRequest,
    collected::{CallPiece, Collected, Finish, MAX_OPAQUE},
    dialect::LeftOut,
    fields::Fields,
    protocol::{
        ModelList, Protocol, Reading, Unreadable, Written, arguments_object, foreign_tool, incomplete, opaque_of,
        parse_object, printable_word,
    },
    requested::written_size,
};
use crate::{
    error::CallError,
    secrets::{ExposeSecret as _, SecretText},
};

const TEXT: &str = "text";
const THOUGHT: &str = "thought";
const FUNCTION_CALL: &str = "functionCall";

/// The fields that a part can have in addition to a text or a call.
const OF_ANY_PART: [&str; 3] = [THOUGHT, "thoughtSignature", "partMetadata"];
/// The fields of a call that the API defines.
const OF_CALL: [&str; 2] = ["name", "args"];
/// The fields of a part that belongs to a tool of the provider.
const FOREIGN: [&str; 5] = ["executableCode", "codeExecutionResult", "toolCall", "toolResponse", "functionResponse"];
/// The fields of a candidate, and the fields within them, that exist only after the provider ran a tool itself.
const RAN: [(&str, &str); 3] = [
    ("groundingMetadata", "webSearchQueries"),
    ("groundingMetadata", "groundingChunks"),
    ("urlContextMetadata", "urlMetadata"),
];
/// The fields of a part that is not a text.
const MEDIA: [&str; 2] = ["inlineData", "fileData"];
/// The maximum number of parts of one document.
const MAX_PARTS: usize = 1024;
/// An object without fields.
const EMPTY: &str = "{}";
/// The text that replaces an empty one, because the server refuses a part without a text.
const NO_TEXT: &str = "(empty)";

const TEMPERATURE: &str = "temperature";
const MAX_OUTPUT_TOKENS: &str = "maxOutputTokens";
const STREAM: &str = "stream";

/// The method `generateContent`, or `streamGenerateContent`.
pub(super) struct GenerateContent;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Functions<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_config: Option<GenerationConfig>,
}

#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Functions<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a Value,
}

/// The parts of one role.
#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<GeminiPart<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum GeminiPart<'a> {
    Text {
        text: &'a str,
    },
    /// A part of an earlier answer, unchanged.
    Own(&'a RawValue),
    Call(CallPart<'a>),
    Result {
        #[serde(rename = "functionResponse")]
        result: FunctionResponse<'a>,
    },
}

#[derive(Serialize)]
struct CallPart<'a> {
    #[serde(rename = "functionCall")]
    call: FunctionCall<'a>,
    #[serde(flatten)]
    own: Fields<'a>,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    name: &'a str,
    args: Box<RawValue>,
    #[serde(flatten)]
    own: Fields<'a>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    /// The id of the call, if the model gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    name: &'a str,
    response: ToolResult<'a>,
}

#[derive(Serialize)]
struct ToolResult<'a> {
    result: &'a str,
}

impl Protocol for GenerateContent {
    fn answer(&self) -> &'static str {
        "an answer of generateContent"
    }

    fn write(&self, turn: &TurnRequest, left_out: &LeftOut) -> Result<Written, CallError> {
        let takes = |field: &str| !left_out.contains(field);
        let streams = takes(STREAM);
        let config = GenerationConfig {
            temperature: turn.temperature.filter(|_| takes(TEMPERATURE)),
            max_output_tokens: turn.max_tokens.filter(|_| takes(MAX_OUTPUT_TOKENS)),
        };
        let sent = [
            (TEMPERATURE, config.temperature.is_some()),
            (MAX_OUTPUT_TOKENS, config.max_output_tokens.is_some()),
            (STREAM, streams),
        ];
        let request = GeminiRequest {
            system_instruction: turn
                .system
                .as_deref()
                .filter(|text| !text.is_empty())
                .map(|text| Content { role: None, parts: vec![GeminiPart::Text { text }] }),
            contents: write_contents(turn)?,
            tools: declare_functions(turn).into_iter().collect(),
            generation_config: Some(config).filter(|config| *config != GenerationConfig::default()),
        };
        let body =
            serde_json::to_string(&request).map_err(|_| CallError::invalid("the turn cannot be written as JSON"))?;
        let optional = sent.into_iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| name.to_owned());
        Ok(Written {
            path: model_path(&turn.model, streams),
            headers: self.headers(turn.key.as_ref()),
            body,
            optional: optional.collect(),
        })
    }

    fn headers(&self, key: Option<&SecretText>) -> Vec<(String, String)> {
        key.map(|key| ("x-goog-api-key".to_owned(), key.expose_secret().trim().to_owned())).into_iter().collect()
    }

    fn models(&self) -> ModelList {
        ModelList { path: "/models?pageSize=1000", list: "models", name: "name" }
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::<Generated>::default()
    }
}

/// Returns the path of a model. A name that begins with its collection, as in Google's documents, keeps it.
fn model_path(model: &str, streams: bool) -> String {
    let (collection, name) = match model.split_once('/') {
        Some((collection @ ("models" | "tunedModels"), name)) => (collection, name),
        Some(_) | None => ("models", model),
    };
    let method = if streams { "streamGenerateContent?alt=sse" } else { "generateContent" };
    format!("/{collection}/{}:{method}", percent_encode(name))
}

fn percent_encode(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let encode = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(encode).collect()
}

/// Returns the offered tools, if there are any.
fn declare_functions(turn: &TurnRequest) -> Option<Functions<'_>> {
    let declarations = turn.tools.iter().map(|tool| Declaration {
        name: &tool.name,
        description: &tool.description,
        parameters_json_schema: &tool.parameters,
    });
    (!turn.tools.is_empty()).then(|| Functions { function_declarations: declarations.collect() })
}

/// Writes the conversation. Consecutive messages of one role are one content, because the results of an answer must be
/// together.
fn write_contents(turn: &TurnRequest) -> Result<Vec<Content<'_>>, CallError> {
    let mut contents: Vec<Content<'_>> = Vec::new();
    let mut answer = None;
    for message in &turn.messages {
        let (role, parts) = match message.role {
            Role::User => ("user", vec![GeminiPart::text(&message.text)]),
            Role::Assistant => {
                answer = Some(message);
                ("model", parts_of_answer(message, turn))
            }
            Role::Tool => ("user", vec![GeminiPart::of_result(message, answer, turn)?]),
        };
        match contents.last_mut().filter(|last| last.role == Some(role)) {
            Some(last) => last.parts.extend(parts),
            None => contents.push(Content { role: Some(role), parts }),
        }
    }
    Ok(contents)
}

/// Returns the parts of an answer: unchanged, or its text and its calls.
fn parts_of_answer<'a>(message: &'a Message, turn: &TurnRequest) -> Vec<GeminiPart<'a>> {
    let call = |number: usize| {
        let own = own_fields_of_call(message, number, turn);
        message.calls.get(number).map(|call| GeminiPart::of_call(call, own))
    };
    let part = |part: &'a OpaquePart| match part {
        OpaquePart::Item(json) => serde_json::from_str(json).ok().map(GeminiPart::Own),
        OpaquePart::Call(number, _) => call(*number),
        OpaquePart::Message(_) => None,
    };
    let parts: Vec<_> = opaque_of(message, turn).iter().filter_map(part).collect();
    if !parts.is_empty() {
        return parts;
    }
    let has_text = !message.text.is_empty() || message.calls.is_empty();
    let text = has_text.then(|| GeminiPart::text(&message.text));
    text.into_iter().chain((0..message.calls.len()).filter_map(call)).collect()
}

/// Returns the fields of the part of a call that the API does not define.
fn own_fields_of_call<'a>(message: &'a Message, call: usize, turn: &TurnRequest) -> Fields<'a> {
    let fields = opaque_of(message, turn).iter().find_map(|part| match part {
        OpaquePart::Call(number, json) if *number == call => Fields::of(json).ok(),
        OpaquePart::Call(..) | OpaquePart::Item(_) | OpaquePart::Message(_) => None,
    });
    fields.unwrap_or_default()
}

impl<'a> GeminiPart<'a> {
    fn text(text: &'a str) -> Self {
        Self::Text { text: if text.is_empty() { NO_TEXT } else { text } }
    }

    fn of_call(call: &'a ToolCall, own: Fields<'a>) -> Self {
        Self::Call(CallPart {
            call: FunctionCall {
                name: &call.tool,
                args: arguments_object(&call.arguments),
                own: own.object(FUNCTION_CALL).unwrap_or_default(),
            },
            own: own.without(&[FUNCTION_CALL]),
        })
    }

    /// Returns the result of a call of `answer`, with the name and the id by which the model knows the call.
    fn of_result(result: &'a Message, answer: Option<&'a Message>, turn: &TurnRequest) -> Result<Self, CallError> {
        let unknown = || CallError::invalid("internal error: a result answers no call; please report this as a bug");
        let answer = answer.ok_or_else(unknown)?;
        let mut calls = answer.calls.iter().enumerate();
        let (number, call) = calls.find(|(_, call)| result.answers.as_ref() == Some(&call.id)).ok_or_else(unknown)?;
        let own = own_fields_of_call(answer, number, turn).object(FUNCTION_CALL).unwrap_or_default();
        let response = ToolResult { result: &result.text };
        Ok(Self::Result { result: FunctionResponse { id: own.get("id"), name: &call.tool, response } })
    }
}

/// An answer while it is received.
#[derive(Default)]
struct Generated {
    collected: Collected,
    has_candidate: bool,
    /// The number of calls, including dropped ones.
    calls: u64,
    /// All parts in order; empty if they are too long to be sent back.
    parts: Vec<Received>,
    /// The size of the parts, in bytes.
    parts_bytes: usize,
    /// The size of the parts written as JSON strings in bytes, including parts that are not kept.
    written_bytes: usize,
}

/// A received part.
enum Received {
    /// A text, as a range of bytes of the text of the answer.
    Text(Range<usize>),
    /// A part that is sent back unchanged.
    Own(String),
    /// A call: its number, and the fields of its part that the API does not define, as JSON.
    Call(usize, String),
}

/// The fields of the part of a call that the API does not define.
#[derive(Serialize)]
struct OwnOfCall<'a> {
    #[serde(flatten)]
    part: Fields<'a>,
    #[serde(rename = "functionCall", skip_serializing_if = "Fields::is_empty")]
    call: Fields<'a>,
}

impl Reading for Generated {
    fn take(&mut self, document: &[u8]) -> Result<(), Unreadable> {
        let document = parse_object(document)?;
        if document.get("usageMetadata").is_some() {
            self.collected.set_usage(read_usage(&document.object("usageMetadata")?));
        }
        let block = document.object("promptFeedback")?.text("blockReason")?;
        if let Some(reason) = block.filter(|reason| !matches!(reason.as_str(), "" | "BLOCK_REASON_UNSPECIFIED")) {
            self.set_finish(Finish::Declined(reason));
        }
        // Of several candidates the first one is used.
        let Some(candidate) = document.list::<1>("candidates")?.kept.into_iter().next() else { return Ok(()) };
        if candidate.count("index") > 0 {
            return Ok(());
        }
        self.has_candidate = true;
        for (metadata, list) in RAN {
            if candidate.object(metadata)?.get(list).is_some_and(|list| list.get() != "[]") {
                return Err(foreign_tool(metadata));
            }
        }
        let parts = candidate.object("content")?.list::<MAX_PARTS>("parts")?;
        if parts.dropped > 0 {
            return Err(Unreadable::Because(format!("answered with more than {MAX_PARTS} parts at once")));
        }
        for part in &parts.kept {
            self.add_part(part)?;
        }
        if let Some(finish) = candidate.text("finishReason")?.map(read_finish_reason).transpose()?.flatten() {
            self.set_finish(finish);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.collected.bytes() + self.parts_bytes
    }

    /// The stream has no final event: the finish reason completes the answer.
    fn end(self: Box<Self>, _is_done: bool) -> Result<Collected, Unreadable> {
        let Self { mut collected, has_candidate, parts, written_bytes, .. } = *self;
        match (collected.is_complete, has_candidate) {
            (true, _) => {}
            (false, true) => return Err(incomplete()),
            (false, false) => return Err(Unreadable::Because("answered without any candidate".to_owned())),
        }
        collected.add_fields((written_bytes > MAX_OPAQUE).then_some(Err(written_bytes)), OpaquePart::Item);
        if parts.iter().any(Received::is_own) {
            for part in parts {
                let part = part.into_opaque(&collected.text);
                collected.add_opaque(part);
            }
        }
        Ok(collected)
    }
}

impl Generated {
    /// Adds a part: a thought, a text or a call. A part of a tool of the provider is an error.
    fn add_part(&mut self, part: &Fields<'_>) -> Result<(), Unreadable> {
        if let Some(kind) = FOREIGN.into_iter().find(|kind| part.get(kind).is_some()) {
            return Err(foreign_tool(kind));
        }
        if MEDIA.into_iter().any(|kind| part.get(kind).is_some()) {
            return Err(Unreadable::Because("answered with something other than text".to_owned()));
        }
        if part.get(FUNCTION_CALL).is_some() {
            return self.add_call(part);
        }
        let text = part.text(TEXT)?;
        if text.is_none()
            && let Some(kind) = part.others(&OF_ANY_PART).names().next()
        {
            return Err(foreign_tool(kind));
        }
        let text = text.unwrap_or_default();
        let is_thought = part.get(THOUGHT).is_some_and(|thought| thought.get() != "false");
        let start = self.collected.text.len();
        if !is_thought {
            self.collected.text.push_str(&text);
        }
        // Only texts without a signature may be merged.
        if is_thought || !part.others(&[TEXT, THOUGHT]).is_empty() {
            self.keep(Received::Own(part.json()));
        } else if let Some(Received::Text(range)) = self.parts.last_mut() {
            range.end = self.collected.text.len();
        } else if !text.is_empty() {
            self.keep(Received::Text(start..self.collected.text.len()));
        }
        Ok(())
    }

    /// Adds a call, which always arrives whole.
    fn add_call(&mut self, part: &Fields<'_>) -> Result<(), Unreadable> {
        let call = part.object(FUNCTION_CALL)?;
        if call.get("partialArgs").is_some() || call.is_true("willContinue") {
            return Err(Unreadable::Because("answered with a call in pieces, which it was not asked for".to_owned()));
        }
        self.calls += 1;
        let piece = CallPiece {
            place: Some(self.calls),
            id: call.text("id")?.unwrap_or_default(),
            tool: call.text("name")?.unwrap_or_default(),
            arguments: Some(call.arguments("args")?)
                .filter(|args| !args.is_empty())
                .unwrap_or_else(|| EMPTY.to_owned()),
        };
        if let Some(number) = self.collected.add_call(piece) {
            let own = OwnOfCall { part: part.others(&[FUNCTION_CALL]), call: call.others(&OF_CALL) };
            self.keep(Received::Call(number, serde_json::to_string(&own)?));
        }
        Ok(())
    }

    fn keep(&mut self, part: Received) {
        self.written_bytes = self.written_bytes.saturating_add(written_size(part.json()));
        if self.written_bytes > MAX_OPAQUE {
            (self.parts, self.parts_bytes) = (Vec::new(), 0);
            return;
        }
        self.parts_bytes += size_of::<Received>() + part.json().len();
        self.parts.push(part);
    }

    /// Completes the answer. Some servers give a reason with every document, so the first unusual reason is kept.
    fn set_finish(&mut self, finish: Finish) {
        if self.collected.finish.as_ref().is_none_or(|known| *known == Finish::Usual) {
            self.collected.finish = Some(finish);
        }
        self.collected.is_complete = true;
    }
}

impl Received {
    /// Returns the kept JSON of the part; empty for a text.
    fn json(&self) -> &str {
        match self {
            Self::Text(_) => "",
            Self::Own(json) | Self::Call(_, json) => json,
        }
    }

    /// Whether the part has content beyond the text and the calls of the answer.
    fn is_own(&self) -> bool {
        !matches!(self.json(), "" | EMPTY)
    }

    /// Returns the part as it is recorded. `text` is the text of the answer.
    fn into_opaque(self, text: &str) -> OpaquePart {
        match self {
            Self::Text(range) => OpaquePart::Item(json!({TEXT: text.get(range).unwrap_or_default()}).to_string()),
            Self::Own(json) => OpaquePart::Item(json),
            Self::Call(number, json) => OpaquePart::Call(number, json),
        }
    }
}

/// Returns the end of an answer by its finish reason, or `None` if the reason means that the answer has not ended.
///
/// # Errors
/// Another reason, after which the answer may be incomplete.
fn read_finish_reason(reason: String) -> Result<Option<Finish>, Unreadable> {
    match reason.as_str() {
        "" | "FINISH_REASON_UNSPECIFIED" => Ok(None),
        "STOP" => Ok(Some(Finish::Usual)),
        "MAX_TOKENS" => Ok(Some(Finish::Cut)),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Ok(Some(Finish::Declined(reason))),
        _ => Err(Unreadable::Because(format!("stopped before its answer was whole ({})", printable_word(&reason)))),
    }
}

fn read_usage(usage: &Fields<'_>) -> Usage {
    let thoughts = usage.count("thoughtsTokenCount");
    Usage {
        input_tokens: usage.count("promptTokenCount"),
        output_tokens: usage.count("candidatesTokenCount").saturating_add(thoughts),
        cached_tokens: usage.count("cachedContentTokenCount"),
        reasoning_tokens: thoughts,
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests;
