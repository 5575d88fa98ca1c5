//! OpenAI's Responses API, which several servers offer.
//!
//! Servers are asked to store nothing: the whole conversation is sent each time, and reasoning is sent back as the
//! items that the server wrote. From a stream the whole items are used, or else their pieces.

use std::{borrow::Cow, collections::BTreeSet};

use serde::Serialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use signoff_api::{journal::Usage, turn::OpaquePart};
use signoff_engine::transition::{Message, Role, ToolCall, ToolOffer};

use super::{
    TurnRequest,
    collected::{CallPiece, Collected, Finish, MAX_OPAQUE},
    dialect::LeftOut,
    fields::{AtMost, Fields},
    protocol::{ModelList, Protocol, Reading, Unreadable, Written, foreign_tool, incomplete, opaque_of, parse_object},
    requested::written_size,
};
use crate::error::CallError;

const MAX_OUTPUT_TOKENS: &str = "max_output_tokens";
const TEMPERATURE: &str = "temperature";
const STORE: &str = "store";
const INCLUDE: &str = "include";
const STREAM: &str = "stream";
const STRICT: &str = "strict";

const OUTPUT: &str = "output";
const CONTENT: &str = "content";
const SUMMARY: &str = "summary";
const ENCRYPTED_CONTENT: &str = "encrypted_content";
const ARGUMENTS: &str = "arguments";
const STATUS: &str = "status";
const COMPLETED: &str = "completed";
const INCOMPLETE: &str = "incomplete";
const FAILED: &str = "failed";

/// The fields of a call that the API defines. The status is only for the reader of the answer.
const OF_CALL: [&str; 5] = ["type", "call_id", "name", ARGUMENTS, STATUS];
/// The fields without which a server cannot read its own item.
const NEEDED: [&str; 5] = ["type", "role", CONTENT, SUMMARY, ENCRYPTED_CONTENT];
/// The maximum number of items of an answer, and of parts of one item.
const MAX_ITEMS: usize = 1024;

/// The Responses API, `POST /responses`.
pub(super) struct Responses;

#[derive(Serialize)]
struct ResponseRequest<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<InputItem<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ResponseTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
}

#[derive(Serialize)]
struct ResponseTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    function: &'a ToolOffer,
    /// False, or absent. By default the API makes a schema strict.
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

/// An item of the conversation.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputItem<'a> {
    Message {
        role: &'static str,
        content: &'a str,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
        #[serde(flatten)]
        own: Fields<'a>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: &'a str,
    },
    /// An item as the server wrote it.
    #[serde(untagged)]
    Own(Fields<'a>),
}

impl Protocol for Responses {
    fn answer(&self) -> &'static str {
        "a response of the Responses API"
    }

    fn write(&self, turn: &TurnRequest, left_out: &LeftOut) -> Result<Written, CallError> {
        let takes = |field: &str| !left_out.contains(field);
        let input: Vec<_> = turn.messages.iter().flat_map(|message| InputItem::of(message, turn, left_out)).collect();
        let own = input.iter().filter_map(InputItem::own).flat_map(Fields::names).filter(|name| !NEEDED.contains(name));
        let own: BTreeSet<_> = own.map(str::to_owned).collect();
        let strict = takes(STRICT).then_some(false);
        let request = ResponseRequest {
            model: &turn.model,
            instructions: turn.system.as_deref(),
            input,
            tools: turn.tools.iter().map(|function| ResponseTool { kind: "function", function, strict }).collect(),
            max_output_tokens: turn.max_tokens.filter(|_| takes(MAX_OUTPUT_TOKENS)),
            temperature: turn.temperature.filter(|_| takes(TEMPERATURE)),
            store: takes(STORE).then_some(false),
            // A server that stores nothing returns encrypted reasoning only on request. Other models refuse this.
            include: takes(INCLUDE).then_some(["reasoning.encrypted_content"]),
            stream: takes(STREAM).then_some(true),
        };
        let sent = [
            (MAX_OUTPUT_TOKENS, request.max_output_tokens.is_some()),
            (TEMPERATURE, request.temperature.is_some()),
            (STORE, request.store.is_some()),
            (INCLUDE, request.include.is_some()),
            (STREAM, request.stream.is_some()),
            (STRICT, strict.is_some() && !request.tools.is_empty()),
        ];
        let optional = sent.into_iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| name.to_owned()).chain(own);
        let body =
            serde_json::to_string(&request).map_err(|_| CallError::invalid("the turn cannot be written as JSON"))?;
        let (path, headers) = ("/responses".to_owned(), self.headers(turn.key.as_ref()));
        Ok(Written { path, headers, optional: optional.collect(), body })
    }

    fn models(&self) -> ModelList {
        ModelList { path: "/models", list: "data", name: "id" }
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::<Response>::default()
    }
}

impl<'a> InputItem<'a> {
    /// Returns the items for a message.
    fn of(message: &'a Message, turn: &TurnRequest, left_out: &LeftOut) -> Vec<Self> {
        let text = message.text.as_str();
        match message.role {
            Role::User => vec![Self::Message { role: "user", content: text }],
            Role::Tool => {
                let call_id = message.answers.as_deref().unwrap_or_default();
                vec![Self::FunctionCallOutput { call_id, output: text }]
            }
            Role::Assistant => {
                let parts = opaque_of(message, turn);
                // Parts without any item belong to another protocol.
                if parts.iter().any(|part| matches!(part, OpaquePart::Item(_))) {
                    return Self::of_server(message, parts, left_out);
                }
                let text = (!text.is_empty()).then_some(Self::Message { role: "assistant", content: text });
                let calls = message.calls.iter().map(|call| Self::call(call, Fields::default()));
                text.into_iter().chain(calls).collect()
            }
        }
    }

    /// Returns the items that the server wrote, in order. They include the text of the message. The ids and the
    /// arguments of calls are the recorded ones.
    fn of_server(message: &'a Message, parts: &'a [OpaquePart], left_out: &LeftOut) -> Vec<Self> {
        let fields = |json: &'a str| Fields::of(json).unwrap_or_default().without_unsupported(left_out);
        let (mut items, mut written) = (Vec::new(), BTreeSet::new());
        for part in parts {
            match part {
                OpaquePart::Item(json) => items.push(Self::Own(fields(json))),
                OpaquePart::Call(number, json) => {
                    if let Some(call) = message.calls.get(*number).filter(|_| written.insert(*number)) {
                        items.push(Self::call(call, fields(json)));
                    }
                }
                OpaquePart::Message(_) => {}
            }
        }
        let others = message.calls.iter().enumerate().filter(|(number, _)| !written.contains(number));
        items.extend(others.map(|(_, call)| Self::call(call, Fields::default())));
        items
    }

    fn call(call: &'a ToolCall, own: Fields<'a>) -> Self {
        Self::FunctionCall { call_id: &call.id, name: &call.tool, arguments: &call.arguments, own }
    }

    /// Returns the fields that the API does not define.
    fn own(&self) -> Option<&Fields<'a>> {
        match self {
            Self::FunctionCall { own, .. } | Self::Own(own) => Some(own),
            Self::Message { .. } | Self::FunctionCallOutput { .. } => None,
        }
    }
}

/// A response while it is received.
#[derive(Default)]
struct Response {
    collected: Collected,
    /// The items of a stream, in the order in which they began.
    items: Vec<OutputItem>,
    /// The size of the reasoning of a stream written as JSON strings, in bytes. Once it is too long to be sent back, no
    /// more is kept.
    reasoning: usize,
    has_refusal: bool,
}

/// An item of a stream, as far as it was received.
struct OutputItem {
    kind: ItemKind,
    id: Option<String>,
    /// The position of the item in the answer.
    place: Option<i64>,
    /// The item at its beginning, or at its end.
    json: String,
    is_done: bool,
    /// The pieces that are not part of `json`.
    pieces: Pieces,
}

#[derive(Default)]
struct Pieces {
    text: String,
    refusal: String,
    arguments: String,
}

/// The kind of an item of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
    Call,
}

impl Reading for Response {
    fn take(&mut self, document: &[u8]) -> Result<(), Unreadable> {
        let document = parse_object(document)?;
        // Events after the end are not part of the answer.
        if self.collected.is_complete {
            return Ok(());
        }
        let Some(kind) = document.text("type")? else {
            return match document.get(OUTPUT) {
                Some(_) => self.finish(&document, None),
                None => Err(Unreadable::Form(1, 1)),
            };
        };
        match kind.as_str() {
            "response.output_item.added" => self.begin_item(&document),
            "response.output_text.delta" => self.add_piece(&document, ItemKind::Message, |pieces| &mut pieces.text),
            "response.refusal.delta" => self.add_piece(&document, ItemKind::Message, |pieces| &mut pieces.refusal),
            "response.function_call_arguments.delta" => {
                self.add_piece(&document, ItemKind::Call, |pieces| &mut pieces.arguments)
            }
            // Some servers send the arguments only here.
            "response.function_call_arguments.done" => self.set_arguments(&document),
            "response.output_item.done" => self.end_item(&document),
            "response.completed" => self.finish(&document.object("response")?, Some(COMPLETED)),
            "response.incomplete" => self.finish(&document.object("response")?, Some(INCOMPLETE)),
            "response.failed" => self.finish(&document.object("response")?, Some(FAILED)),
            "error" => Err(Unreadable::Failed(document.others(&[]).json())),
            _ => Ok(()),
        }
    }

    fn bytes(&self) -> usize {
        self.collected.bytes() + self.items.iter().map(OutputItem::bytes).sum::<usize>()
    }

    fn end(self: Box<Self>, _is_done: bool) -> Result<Collected, Unreadable> {
        if self.collected.is_complete { Ok(self.collected) } else { Err(incomplete()) }
    }
}

impl Response {
    /// Begins an item of a stream.
    fn begin_item(&mut self, event: &Fields<'_>) -> Result<(), Unreadable> {
        let item = event.object("item")?;
        let kind = ItemKind::of(&item)?;
        // For reasoning only the end is used.
        let json = if kind == ItemKind::Reasoning { kind.empty().to_owned() } else { item.json() };
        self.push(kind, item_id(event, &item)?, output_index(event), json).map(|_| ())
    }

    /// Ends an item of a stream. Some servers send the content only in pieces.
    fn end_item(&mut self, event: &Fields<'_>) -> Result<(), Unreadable> {
        let item = event.object("item")?;
        let kind = ItemKind::of(&item)?;
        let has_content = kind.has_content(&item)?;
        let json = if kind == ItemKind::Reasoning { self.keep_reasoning(&item)? } else { item.json() };
        let open = self.locate(event, &item, kind)?;
        open.json = json;
        open.is_done = true;
        if has_content {
            open.pieces = Pieces::default();
        }
        Ok(())
    }

    /// Counts the size of reasoning, and returns its JSON: without the content once all reasoning is too long.
    fn keep_reasoning(&mut self, item: &Fields<'_>) -> Result<String, Unreadable> {
        if is_reasoning(item)? {
            self.reasoning = self.reasoning.saturating_add(written_size(&item.others(&[STATUS]).json()));
            if self.reasoning <= MAX_OPAQUE {
                return Ok(item.json());
            }
        }
        Ok(item.others(&[CONTENT, SUMMARY, ENCRYPTED_CONTENT]).json())
    }

    fn add_piece(
        &mut self,
        event: &Fields<'_>,
        kind: ItemKind,
        field: fn(&mut Pieces) -> &mut String,
    ) -> Result<(), Unreadable> {
        let piece = event.text("delta")?.unwrap_or_default();
        field(&mut self.locate(event, &Fields::default(), kind)?.pieces).push_str(&piece);
        Ok(())
    }

    fn set_arguments(&mut self, event: &Fields<'_>) -> Result<(), Unreadable> {
        let arguments = event.arguments(ARGUMENTS)?;
        self.locate(event, &Fields::default(), ItemKind::Call)?.pieces.arguments = arguments;
        Ok(())
    }

    /// Returns the unfinished item of an event: the item of its kind with its id, or with its position, or the only
    /// item. If no item of the kind is unfinished, a new item begins, because some servers begin no item. Some servers
    /// number items wrongly.
    fn locate(&mut self, event: &Fields<'_>, item: &Fields<'_>, kind: ItemKind) -> Result<&mut OutputItem, Unreadable> {
        let (id, place) = (item_id(event, item)?, output_index(event));
        if self.items.iter().any(|item| item.is_done && id.is_some() && item.id == id) {
            return Err(Unreadable::Because("streamed a piece of an item that had ended".to_owned()));
        }
        let is_open = |item: &OutputItem| item.kind == kind && !item.is_done;
        let open = self.positions(is_open);
        let same_id = self.positions(|item| is_open(item) && id.is_some() && item.id == id);
        let same_place = self.positions(|item| is_open(item) && place.is_some() && item.place == place);
        let is_new = open.is_empty();
        // An item with another id is another item.
        let only = self.positions(|item| is_open(item) && (id.is_none() || item.id.is_none() || item.id == id));
        let found = [same_id, same_place, only].into_iter().find(|found| found.len() == 1);
        let position = match found.and_then(|found| found.first().copied()) {
            Some(position) => position,
            None if is_new => self.push(kind, id, place, kind.empty().to_owned())?,
            None => return Err(Unreadable::Because("streamed a piece of an item without saying of which".to_owned())),
        };
        self.items.get_mut(position).ok_or_else(incomplete)
    }

    /// Returns the positions of the items of a stream for which `is_wanted` holds.
    fn positions(&self, is_wanted: impl Fn(&OutputItem) -> bool) -> Vec<usize> {
        self.items.iter().enumerate().filter(|(_, item)| is_wanted(item)).map(|(position, _)| position).collect()
    }

    /// Adds an item to a stream. Returns the position of the item.
    fn push(
        &mut self,
        kind: ItemKind,
        id: Option<String>,
        place: Option<i64>,
        json: String,
    ) -> Result<usize, Unreadable> {
        if self.items.len() == MAX_ITEMS {
            return Err(too_many());
        }
        self.items.push(OutputItem { kind, id, place, json, is_done: false, pieces: Pieces::default() });
        Ok(self.items.len() - 1)
    }

    /// Reads a finished response. `event` is the status in the name of the last event: some servers send another one.
    fn finish(&mut self, response: &Fields<'_>, event: Option<&str>) -> Result<(), Unreadable> {
        let status = response.text(STATUS)?;
        let is = |word: &str| event == Some(word) || status.as_deref() == Some(word);
        if let Some(error) = response.get("error") {
            return Err(Unreadable::Failed(error.get().to_owned()));
        }
        if is(FAILED) {
            return Err(Unreadable::Because("failed without a reason".to_owned()));
        }
        if response.get("usage").is_some() {
            self.collected.set_usage(read_usage(&response.object("usage")?)?);
        }
        let reason = response.object("incomplete_details")?.text("reason")?;
        self.collected.finish = Some(match reason {
            Some(reason) if reason == "content_filter" => Finish::Declined(reason),
            Some(_) => Finish::Cut,
            None if is(INCOMPLETE) => Finish::Cut,
            None => Finish::Usual,
        });
        self.collected.is_complete = event.is_some() || status.is_none() || is(COMPLETED) || is(INCOMPLETE);
        if self.collected.is_complete { self.add_items(&read_list(response, OUTPUT)?) } else { Ok(()) }
    }

    /// Adds the items of the answer: the items of the stream if all ended and no call is missing, or if the response
    /// has no items, otherwise `output`, the items of the response.
    fn add_items(&mut self, output: &[&RawValue]) -> Result<(), Unreadable> {
        let streamed = std::mem::take(&mut self.items);
        let are_done = !streamed.is_empty() && streamed.iter().all(|item| item.is_done);
        let calls = streamed.iter().filter(|item| item.kind == ItemKind::Call).count();
        let has_calls = output.iter().filter(|item| is_call(item)).count() <= calls;
        let items: Vec<Cow<'_, str>> = if (are_done && has_calls) || output.is_empty() {
            let is_too_long = self.reasoning > MAX_OPAQUE;
            self.collected.add_fields(is_too_long.then_some(Err(self.reasoning)), OpaquePart::Item);
            // Unfinished reasoning cannot be sent back.
            let streamed = streamed.into_iter().filter(|item| item.is_done || item.kind != ItemKind::Reasoning);
            streamed.map(|item| item.json().map(Cow::<str>::Owned)).collect::<Result<_, _>>()?
        } else {
            output.iter().map(|item| Cow::Borrowed(item.get())).collect()
        };
        let mut has_reasoning = false;
        for item in &items {
            has_reasoning |= is_reasoning(&Fields::of(item)?)?;
        }
        for (number, item) in items.iter().enumerate() {
            self.add_item(&Fields::of(item)?, number as u64, has_reasoning)?;
        }
        if self.has_refusal && self.collected.text.is_empty() {
            self.collected.finish = Some(Finish::Declined("refusal".to_owned()));
        }
        Ok(())
    }

    /// Adds an item of the answer. `goes_back`: whether the items are sent back to the server.
    fn add_item(&mut self, item: &Fields<'_>, number: u64, goes_back: bool) -> Result<(), Unreadable> {
        let is_cut = item.text(STATUS)?.as_deref() == Some(INCOMPLETE);
        if is_cut && self.collected.finish == Some(Finish::Usual) {
            self.collected.finish = Some(Finish::Cut);
        }
        let part = match ItemKind::of(item)? {
            ItemKind::Message => {
                let (text, refusal) = read_content(item)?;
                self.collected.text.push_str(&text);
                self.has_refusal |= !refusal.is_empty();
                let has_content = !(text.is_empty() && refusal.is_empty());
                (goes_back && has_content).then(|| without_nulls(item)).transpose()?.map(OpaquePart::Item)
            }
            // The API refuses the status of reasoning.
            ItemKind::Reasoning => is_reasoning(item)?.then(|| OpaquePart::Item(item.others(&[STATUS]).json())),
            ItemKind::Call => {
                let id = item.text("call_id")?.unwrap_or_default();
                let tool = item.text("name")?.unwrap_or_default();
                let piece = CallPiece { place: Some(number), id, tool, arguments: item.arguments(ARGUMENTS)? };
                self.collected.add_call(piece).map(|number| OpaquePart::Call(number, item.others(&OF_CALL).json()))
            }
        };
        if let Some(part) = part.filter(|_| goes_back) {
            self.collected.add_opaque(part);
        }
        Ok(())
    }
}

impl OutputItem {
    fn bytes(&self) -> usize {
        let Pieces { text, refusal, arguments } = &self.pieces;
        let id = self.id.as_ref().map_or(0, String::len);
        id + self.json.len() + text.len() + refusal.len() + arguments.len()
    }

    /// Returns the item as JSON, with its pieces.
    fn json(self) -> Result<String, Unreadable> {
        let Self { kind, json, pieces: Pieces { text, refusal, arguments }, .. } = self;
        let text = (!text.is_empty()).then(|| json!({"type": "output_text", "text": text, "annotations": []}));
        let refusal = (!refusal.is_empty()).then(|| json!({"type": "refusal", "refusal": refusal}));
        let content: Vec<Value> = text.into_iter().chain(refusal).collect();
        match kind {
            ItemKind::Message if !content.is_empty() => with_field(Fields::of(&json)?, CONTENT, &content),
            ItemKind::Call if !arguments.is_empty() => with_field(Fields::of(&json)?, ARGUMENTS, &arguments),
            ItemKind::Message | ItemKind::Call | ItemKind::Reasoning => Ok(json),
        }
    }
}

impl ItemKind {
    /// Returns the kind of an item. Items of other kinds belong to tools that the provider runs itself.
    fn of(item: &Fields<'_>) -> Result<Self, Unreadable> {
        match item.text("type")?.as_deref() {
            Some("message") => Ok(Self::Message),
            Some("reasoning") => Ok(Self::Reasoning),
            Some("function_call") => Ok(Self::Call),
            Some(other) => Err(foreign_tool(other)),
            None => Err(foreign_tool("an item without a type")),
        }
    }

    /// Returns an item without content.
    fn empty(self) -> &'static str {
        match self {
            Self::Message => r#"{"type":"message","role":"assistant"}"#,
            Self::Reasoning => r#"{"type":"reasoning"}"#,
            Self::Call => r#"{"type":"function_call"}"#,
        }
    }

    fn has_content(self, item: &Fields<'_>) -> Result<bool, Unreadable> {
        match self {
            Self::Message => read_content(item).map(|(text, refusal)| !(text.is_empty() && refusal.is_empty())),
            Self::Call => Ok(!item.arguments(ARGUMENTS)?.is_empty()),
            Self::Reasoning => Ok(true),
        }
    }
}

/// Returns the id of the item of an event. `item` is the item itself, if the event has it.
fn item_id(event: &Fields<'_>, item: &Fields<'_>) -> Result<Option<String>, Unreadable> {
    let id = if event.get("item_id").is_some() { event.text("item_id")? } else { item.text("id")? };
    Ok(id.filter(|id| !id.is_empty()))
}

fn is_call(item: &RawValue) -> bool {
    let kind = Fields::of(item.get()).and_then(|item| item.text("type"));
    kind.is_ok_and(|kind| kind.as_deref() == Some("function_call"))
}

fn output_index(event: &Fields<'_>) -> Option<i64> {
    event.get("output_index").map(|_| event.count("output_index"))
}

/// Returns the values of a list as unparsed JSON, so that many small values do not take memory at once.
fn read_list<'a>(fields: &Fields<'a>, name: &str) -> Result<Vec<&'a RawValue>, Unreadable> {
    let Some(json) = fields.get(name) else { return Ok(Vec::new()) };
    let list: AtMost<&'a RawValue, MAX_ITEMS> = serde_json::from_str(json.get())?;
    if list.dropped == 0 { Ok(list.kept) } else { Err(too_many()) }
}

fn too_many() -> Unreadable {
    Unreadable::Because(format!("answered with more than {MAX_ITEMS} items"))
}

/// Returns the text and the refusal of a message.
fn read_content(message: &Fields<'_>) -> Result<(String, String), Unreadable> {
    let (mut text, mut refusal) = (String::new(), String::new());
    for part in read_list(message, CONTENT)? {
        let part = Fields::of(part.get())?;
        match part.text("type")?.as_deref() {
            Some("output_text" | "text") => text.push_str(&part.text("text")?.unwrap_or_default()),
            Some("refusal") => refusal.push_str(&part.text("refusal")?.unwrap_or_default()),
            Some(_) | None => {}
        }
    }
    Ok((text, refusal))
}

/// Whether an item is reasoning that can be sent back. Without content it only names a stored item.
fn is_reasoning(item: &Fields<'_>) -> Result<bool, Unreadable> {
    let is_encrypted = item.get(ENCRYPTED_CONTENT).is_some_and(|content| content.get() != "\"\"");
    Ok(ItemKind::of(item)? == ItemKind::Reasoning && (is_encrypted || !read_list(item, CONTENT)?.is_empty()))
}

/// Returns a message as it is sent back: without nulls, which the API refuses.
fn without_nulls(message: &Fields<'_>) -> Result<String, Unreadable> {
    let parts = read_list(message, CONTENT)?.into_iter().map(|json| Fields::of(json.get()).map(|f| f.others(&[])));
    with_field(message.others(&[]), CONTENT, &parts.collect::<Result<Vec<_>, _>>()?)
}

/// Returns an item as JSON, with `value` as the value of the field `name`.
fn with_field(item: Fields<'_>, name: &str, value: &impl Serialize) -> Result<String, Unreadable> {
    #[derive(Serialize)]
    struct Item<'a> {
        #[serde(flatten)]
        others: Fields<'a>,
        #[serde(flatten)]
        field: Fields<'a>,
    }
    let value = to_raw_value(value)?;
    let item = Item { others: item.without(&[name]), field: Fields::from([(name.to_owned(), &*value)]) };
    Ok(serde_json::to_string(&item)?)
}

fn read_usage(usage: &Fields<'_>) -> Result<Usage, Unreadable> {
    Ok(Usage {
        input_tokens: usage.count("input_tokens"),
        output_tokens: usage.count("output_tokens"),
        cached_tokens: usage.object("input_tokens_details")?.count("cached_tokens"),
        reasoning_tokens: usage.object("output_tokens_details")?.count("reasoning_tokens"),
        ..Usage::default()
    })
}

#[cfg(test)]
mod tests;
