//! Anthropic's Messages API, which other servers offer too.
//!
//! A thinking block has a signature, which the server checks when the block is sent back. **Invariant:** the blocks of
//! an answer with thinking are sent back unchanged and in order.

mod answer;

use std::{borrow::Cow, collections::BTreeSet};

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use signoff_api::turn::OpaquePart;
use signoff_engine::transition::{Message, Role, ToolCall, ToolOffer};

use self::answer::MessageAnswer;
use super::{
    TurnRequest,
    dialect::LeftOut,
    fields::Fields,
    protocol::{ModelList, Protocol, Reading, Written, arguments_object, opaque_of},
};
use crate::{
    error::CallError,
    secrets::{ExposeSecret as _, SecretText},
};

/// The version of the API, sent in the header `anthropic-version`.
const VERSION: &str = "2023-06-01";
/// The default maximum of tokens of an answer: the API refuses a request without a maximum.
const MAX_TOKENS: u32 = 8192;
/// The text that replaces an empty one, because the server refuses blocks of white space.
const EMPTY: &str = "(empty)";
/// The mark at the end of a part that the server caches.
const EPHEMERAL: CacheControl = CacheControl { kind: "ephemeral" };

const USER: &str = "user";
const ASSISTANT: &str = "assistant";
const TEMPERATURE: &str = "temperature";
const STREAM: &str = "stream";
const CACHE_CONTROL: &str = "cache_control";
const TOOL_CHOICE: &str = "tool_choice";

/// The fields of a call that are defined by the API.
const OF_CALL: [&str; 5] = ["type", "id", "name", "input", CACHE_CONTROL];

/// The Messages API, `POST /v1/messages`.
pub(super) struct Messages;

#[derive(Serialize)]
struct MessagesRequest<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<MessagesTurn<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<MessagesTool<'a>>,
    /// `none`, or absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
}

/// A message: all consecutive content of one role.
#[derive(Serialize)]
struct MessagesTurn<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Box<RawValue>,
        #[serde(flatten)]
        own: Fields<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    /// The block as the server wrote it.
    #[serde(untagged)]
    Item(&'a RawValue),
}

#[derive(Serialize)]
struct MessagesTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct ToolChoice {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Protocol for Messages {
    fn answer(&self) -> &'static str {
        "a message of the Messages API"
    }

    fn write(&self, turn: &TurnRequest, left_out: &LeftOut) -> Result<Written, CallError> {
        let takes = |field: &str| !left_out.contains(field);
        // The server refuses a conversation with calls but without tools.
        let called = if turn.tools.is_empty() { called_tools(turn) } else { BTreeSet::new() };
        let mut request = MessagesRequest {
            model: &turn.model,
            max_tokens: turn.max_tokens.unwrap_or(MAX_TOKENS),
            system: turn.system.as_deref().and_then(Block::text).into_iter().collect(),
            messages: write_conversation(turn, left_out),
            tool_choice: (!called.is_empty() && takes(TOOL_CHOICE)).then_some(ToolChoice { kind: "none" }),
            tools: turn
                .tools
                .iter()
                .map(MessagesTool::of)
                .chain(called.into_iter().map(MessagesTool::not_offered))
                .collect(),
            temperature: turn.temperature.filter(|_| takes(TEMPERATURE)),
            stream: takes(STREAM).then_some(true),
        };
        if takes(CACHE_CONTROL) {
            request.mark_cached();
        }
        let sent = [
            (TEMPERATURE, request.temperature.is_some()),
            (STREAM, request.stream.is_some()),
            (CACHE_CONTROL, takes(CACHE_CONTROL)),
            (TOOL_CHOICE, request.tool_choice.is_some()),
        ];
        let own = request.messages.iter().flat_map(|message| &message.content).flat_map(Block::own_names);
        let optional =
            sent.into_iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| name.to_owned()).chain(own).collect();
        let body =
            serde_json::to_string(&request).map_err(|_| CallError::invalid("the turn cannot be written as JSON"))?;
        let headers = self.headers(turn.key.as_ref());
        Ok(Written { path: "/v1/messages".to_owned(), headers, body, optional })
    }

    fn headers(&self, key: Option<&SecretText>) -> Vec<(String, String)> {
        let key = key.map(|key| ("x-api-key".to_owned(), key.expose_secret().trim().to_owned()));
        key.into_iter().chain([("anthropic-version".to_owned(), VERSION.to_owned())]).collect()
    }

    fn models(&self) -> ModelList {
        ModelList { path: "/v1/models?limit=1000", list: "data", name: "id" }
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::<MessageAnswer>::default()
    }
}

/// Returns the names of the tools that were called in the conversation.
fn called_tools(turn: &TurnRequest) -> BTreeSet<&str> {
    turn.messages.iter().flat_map(|message| &message.calls).map(|call| call.tool.as_str()).collect()
}

/// Writes the messages. Consecutive messages of one role are merged, because the API alternates the roles.
fn write_conversation<'a>(turn: &'a TurnRequest, left_out: &LeftOut) -> Vec<MessagesTurn<'a>> {
    let mut written: Vec<MessagesTurn<'a>> = Vec::new();
    for message in &turn.messages {
        let (role, mut content): (_, Vec<Block<'a>>) = match message.role {
            Role::User => (USER, Block::text(&message.text).into_iter().collect()),
            Role::Assistant => (ASSISTANT, answer_blocks(message, turn, left_out)),
            Role::Tool => (USER, vec![Block::result(message)]),
        };
        match written.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content.append(&mut content),
            None => written.push(MessagesTurn { role, content }),
        }
    }
    for empty in written.iter_mut().filter(|message| message.content.is_empty()) {
        empty.content.extend(Block::text(EMPTY));
    }
    written
}

/// Returns the blocks of a message of the model.
fn answer_blocks<'a>(message: &'a Message, turn: &TurnRequest, left_out: &LeftOut) -> Vec<Block<'a>> {
    let parts = opaque_of(message, turn);
    // The items of an answer include its texts.
    let has_items = parts.iter().any(|part| matches!(part, OpaquePart::Item(_)));
    let mut blocks: Vec<Block<'a>> = Block::text(&message.text).filter(|_| !has_items).into_iter().collect();
    let mut calls: Vec<Option<&'a ToolCall>> = message.calls.iter().map(Some).collect();
    for part in parts {
        match part {
            OpaquePart::Item(json) => blocks.extend(serde_json::from_str(json).ok().map(Block::Item)),
            OpaquePart::Call(number, json) => {
                let own = Fields::of(json).unwrap_or_default().without(&OF_CALL).without_unsupported(left_out);
                let call = calls.get_mut(*number).and_then(Option::take);
                blocks.extend(call.map(|call| Block::call(call, own)));
            }
            OpaquePart::Message(_) => {}
        }
    }
    blocks.extend(calls.into_iter().flatten().map(|call| Block::call(call, Fields::default())));
    blocks
}

impl MessagesRequest<'_> {
    /// Marks the ends of the parts that the server caches: everything before the conversation, and the conversation.
    fn mark_cached(&mut self) {
        let system = self.system.iter_mut().rev().find_map(Block::mark);
        let before = system.or_else(|| self.tools.last_mut().map(|tool| &mut tool.cache_control));
        let conversation =
            self.messages.last_mut().and_then(|message| message.content.iter_mut().rev().find_map(Block::mark));
        for mark in before.into_iter().chain(conversation) {
            *mark = Some(EPHEMERAL);
        }
    }
}

impl<'a> Block<'a> {
    /// Returns a text block, or `None` if the text is only white space.
    fn text(text: &'a str) -> Option<Self> {
        (!is_blank(text)).then_some(Self::Text { text, cache_control: None })
    }

    fn call(call: &'a ToolCall, own: Fields<'a>) -> Self {
        let ToolCall { id, tool: name, arguments } = call;
        Self::ToolUse { id, name, input: arguments_object(arguments), own, cache_control: None }
    }

    fn result(message: &'a Message) -> Self {
        let tool_use_id = message.answers.as_deref().unwrap_or_default();
        let content = if is_blank(&message.text) { EMPTY } else { message.text.as_str() };
        Self::ToolResult { tool_use_id, content, cache_control: None }
    }

    /// Returns the field for the mark, or `None` if the block is the server's own and must not change.
    fn mark(&mut self) -> Option<&mut Option<CacheControl>> {
        match self {
            Self::Text { cache_control, .. }
            | Self::ToolUse { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => Some(cache_control),
            Self::Item(_) => None,
        }
    }

    /// Returns the names of the fields of a call that the API does not define.
    fn own_names(&self) -> Vec<String> {
        match self {
            Self::ToolUse { own, .. } => own.names().map(str::to_owned).collect(),
            Self::Text { .. } | Self::ToolResult { .. } | Self::Item(_) => Vec::new(),
        }
    }
}

impl<'a> MessagesTool<'a> {
    fn of(offer: &'a ToolOffer) -> Self {
        let (name, description) = (&offer.name, &offer.description);
        Self { name, description, input_schema: Cow::Borrowed(&offer.parameters), cache_control: None }
    }

    /// Returns a placeholder for a tool that was called before, and is not offered now.
    fn not_offered(name: &'a str) -> Self {
        let input_schema = Cow::Owned(json!({"type": "object", "properties": {}}));
        Self { name, description: "Cannot be called any more.", input_schema, cache_control: None }
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{sync::Arc, time::Duration};

    use signoff_api::{turn::OpaqueParts, workflow::Provider};

    use super::*;
    use crate::{agent::documents::Documents, http::AnswerBody as _, room::UnboundedRoom};

    fn turn(messages: Vec<Message>) -> TurnRequest {
        let pay = ToolOffer { name: "pay".into(), description: "Pays.".into(), parameters: json!({"type": "object"}) };
        TurnRequest {
            provider: Provider { name: "claude".into(), ..Provider::default() },
            namespace: "finance".into(),
            model: "claude-opus-5-5".into(),
            system: Some("Be brief.".into()),
            messages,
            tools: vec![pay],
            max_tokens: None,
            temperature: Some(0.5),
            timeout: Duration::from_secs(60),
            key: Some("sk-1\n".into()),
        }
    }

    fn user(text: &str) -> Message {
        Message::text(Role::User, text)
    }

    fn assistant(text: &str, calls: &[(&str, &str)], opaque: Option<Vec<OpaquePart>>) -> Message {
        let call = |(id, arguments): &(&str, &str)| ToolCall {
            id: (*id).into(),
            tool: "pay".into(),
            arguments: (*arguments).into(),
        };
        let opaque = opaque
            .map(|parts| Arc::new(OpaqueParts { provider: "claude".into(), model: "claude-opus-5-5".into(), parts }));
        Message { calls: calls.iter().map(call).collect(), opaque, ..Message::text(Role::Assistant, text) }
    }

    fn write_turn(turn: &TurnRequest, left_out: &[&str]) -> Written {
        Messages.write(turn, &left_out.iter().map(|name| (*name).to_owned()).collect()).unwrap()
    }

    fn body(turn: &TurnRequest) -> Value {
        serde_json::from_str(&write_turn(turn, &[]).body).unwrap()
    }

    /// Returns the parts of a whole answer that only the provider can read.
    fn parts(content: &Value) -> Vec<OpaquePart> {
        let answer = json!({"type": "message", "content": content, "stop_reason": "tool_use"}).to_string();
        let mut documents = Documents::new(&UnboundedRoom, Messages.reading(), Messages.has_lines(), 8 << 20);
        documents.add(answer.as_bytes()).unwrap();
        documents.end().unwrap().into_parts().2.unwrap()
    }

    #[test]
    fn a_conversation_is_written_with_all_results_of_a_turn_in_one_message() {
        let calls = [("toolu_1", r#"{"to": "ACME"}"#), ("toolu_2", "no JSON")];
        let turn = turn(vec![
            user("Pay ACME."),
            assistant("I pay.", &calls, None),
            Message::result("toolu_1", "paid"),
            Message::result("toolu_2", ""),
            user("And now?"),
        ]);
        let cached = json!({"type": "ephemeral"});
        let expected = json!({
            "model": "claude-opus-5-5",
            "max_tokens": 8192,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": cached}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Pay ACME."}]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "I pay."},
                    {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {"to": "ACME"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "pay", "input": {"arguments": "no JSON"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "paid"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "(empty)"},
                    {"type": "text", "text": "And now?", "cache_control": cached},
                ]},
            ],
            "tools": [{"name": "pay", "description": "Pays.", "input_schema": {"type": "object"}}],
            "temperature": 0.5,
            "stream": true,
        });
        assert_eq!(body(&turn), expected);
        let request = write_turn(&turn, &[]);
        assert_eq!(request.path, "/v1/messages");
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(request.headers, [header("x-api-key", "sk-1"), header("anthropic-version", "2023-06-01")]);
        assert_eq!(request.optional, ["temperature", "stream", "cache_control"]);
        let keyless = TurnRequest { key: None, max_tokens: Some(5), ..turn };
        assert_eq!(write_turn(&keyless, &[]).headers, [header("anthropic-version", "2023-06-01")]);
        assert_eq!(body(&keyless)["max_tokens"], 5);
    }

    #[test]
    fn a_field_that_the_server_refuses_is_left_out() {
        let turn = turn(vec![user("Pay ACME.")]);
        for field in ["temperature", "stream", "cache_control"] {
            let written = write_turn(&turn, &[field]);
            assert!(!written.body.contains(&format!("\"{field}\"")), "{}", written.body);
            assert!(written.optional.len() == 2 && !written.optional.contains(&field.to_owned()), "{field}");
        }
        let without = TurnRequest { temperature: None, ..turn };
        assert_eq!(write_turn(&without, &["stream", "cache_control"]).optional, Vec::<String>::new());
    }

    #[test]
    fn the_tools_are_cached_without_a_system_prompt() {
        let mut turn = turn(vec![user("Pay ACME.")]);
        for system in [None, Some(String::new()), Some(" \n".to_owned())] {
            turn.system = system;
            let body = body(&turn);
            assert!(body.get("system").is_none());
            assert_eq!(body["tools"][0]["cache_control"], json!({"type": "ephemeral"}));
        }
        turn.tools.clear();
        assert!(body(&turn).get("tools").is_none());
    }

    #[test]
    fn called_tools_are_declared_if_no_tool_is_offered() {
        let calls = [("toolu_1", "{}"), ("toolu_2", "{}")];
        let results = [Message::result("toolu_1", "paid"), Message::result("toolu_2", "paid")];
        let mut turn = turn([user("Pay."), assistant("", &calls, None)].into_iter().chain(results).collect());
        assert!(body(&turn).get("tool_choice").is_none());
        turn.tools.clear();
        turn.system = None;
        let schema = json!({"type": "object", "properties": {}});
        let tool = json!({"name": "pay", "description": "Cannot be called any more.", "input_schema": schema,
            "cache_control": {"type": "ephemeral"}});
        assert_eq!((&body(&turn)["tools"], &body(&turn)["tool_choice"]), (&json!([tool]), &json!({"type": "none"})));
        let without = write_turn(&turn, &["tool_choice"]);
        assert!(write_turn(&turn, &[]).optional.contains(&"tool_choice".to_owned()));
        assert!(!without.body.contains("tool_choice") && !without.optional.contains(&"tool_choice".to_owned()));
        turn.messages.truncate(1);
        assert!(body(&turn).get("tools").is_none() && body(&turn).get("tool_choice").is_none());
    }

    #[test]
    fn roles_alternate_and_no_text_is_white_space() {
        let turn = turn(vec![
            user("Pay"),
            user("\n"),
            user("ACME."),
            assistant(" ", &[], None),
            user(""),
            assistant("\n\n", &[("toolu_1", "{}")], None),
            Message::result("toolu_1", " "),
            user(" "),
        ]);
        let body = body(&turn);
        let describe = |message: &Value| {
            let text = |block: &Value| block["text"].as_str().or(block["type"].as_str()).unwrap().to_owned();
            let blocks: Vec<String> = message["content"].as_array().unwrap().iter().map(text).collect();
            format!("{}: {}", message["role"].as_str().unwrap(), blocks.join(", "))
        };
        let described: Vec<String> = body["messages"].as_array().unwrap().iter().map(describe).collect();
        let expected =
            ["user: Pay, ACME.", "assistant: (empty)", "user: (empty)", "assistant: tool_use", "user: tool_result"];
        assert_eq!(described, expected);
    }

    #[test]
    fn blocks_of_an_answer_with_thinking_go_back_unchanged_in_order() {
        let thinking = json!({"type": "thinking", "thinking": "Two \"calls\".", "signature": "EqQB/+=="});
        let text = json!({"type": "text", "text": "I pay both.", "citations": null});
        let redacted = json!({"type": "redacted_thinking", "data": "EmwKAhgB"});
        let called = |id: &str, to: &str| {
            json!({
                "type": "tool_use", "id": id, "name": "pay", "input": {"to": to}, "caller": {"type": "direct"},
            })
        };
        let parts = parts(&json!([
            thinking, {"type": "text", "text": "\n\n"}, text, called("toolu_1", "A"), redacted, called("toolu_1", "B"),
        ]));
        // The second call was renamed when it was recorded, because both had one id.
        let calls = [("toolu_1", r#"{"to":"A"}"#), ("toolu_1-2", r#"{"to":"B"}"#), ("toolu_3", "{}")];
        let conversation = |parts| {
            let results = calls.iter().map(|(id, _)| Message::result(*id, "paid"));
            let messages = [user("Pay."), assistant("\n\nI pay both.", &calls, parts)];
            turn(messages.into_iter().chain(results).collect())
        };
        let turn = conversation(Some(parts));
        let last = json!({"type": "tool_use", "id": "toolu_3", "name": "pay", "input": {}});
        let expected = json!([thinking, text, called("toolu_1", "A"), redacted, called("toolu_1-2", "B"), last]);
        assert_eq!(body(&turn)["messages"][1]["content"], expected);
        let results = body(&turn)["messages"][2]["content"].clone();
        assert_eq!(results[1]["tool_use_id"], "toolu_1-2");
        assert_eq!(results[2]["cache_control"], json!({"type": "ephemeral"}));
        // Another model or provider cannot read the parts.
        let other_model = TurnRequest { model: "claude-haiku-5-5".into(), ..turn.clone() };
        let other_provider = TurnRequest { provider: Provider { name: "b".into(), ..Provider::default() }, ..turn };
        let without = body(&conversation(None))["messages"].clone();
        assert_eq!(body(&other_model)["messages"], without);
        assert_eq!(body(&other_provider)["messages"], without);
    }

    #[test]
    fn fields_of_calls_go_back_until_the_server_refuses_them() {
        let caller = json!({"type": "direct"});
        let parts = parts(&json!([
            {"type": "text", "text": "I pay."},
            {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {}, "caller": null},
            {"type": "tool_use", "id": "toolu_2", "name": "pay", "input": {}, "caller": caller},
        ]));
        let calls = [("toolu_1", "{}"), ("toolu_2", "{}")];
        let turn = turn(vec![user("Pay."), assistant("I pay.", &calls, Some(parts))]);
        let content = body(&turn)["messages"][1]["content"].clone();
        assert_eq!(content[0], json!({"type": "text", "text": "I pay."}));
        assert_eq!(content[1], json!({"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {}}));
        assert_eq!((&content[2]["id"], &content[2]["caller"]), (&json!("toolu_2"), &caller));
        assert!(write_turn(&turn, &[]).optional.contains(&"caller".to_owned()));
        let without = write_turn(&turn, &["caller"]);
        assert!(!without.body.contains("caller") && !without.optional.contains(&"caller".to_owned()));
    }

    #[test]
    fn opaque_parts_that_fit_no_call_or_are_not_json_are_left_out() {
        let parts = vec![
            OpaquePart::Call(7, "{}".into()),
            OpaquePart::Call(0, r#"{"id": "other", "input": {"to": "B"}}"#.into()),
            OpaquePart::Call(0, "{}".into()),
            OpaquePart::Message("{}".into()),
            OpaquePart::Item("{".into()),
        ];
        let turn =
            turn(vec![user("Pay."), assistant("", &[("toolu_1", r#"{"to":"A"}"#)], Some(parts)), user("Go on.")]);
        let expected = json!([{"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {"to": "A"}}]);
        assert_eq!(body(&turn)["messages"][1]["content"], expected);
    }
}
