//! Ollama's chat: a stream of lines, each a JSON object.
//!
//! Calls come whole. Their numbers are not read, because some versions of Ollama give all calls the same one.

use serde::Serialize;
use serde_json::{json, value::RawValue};
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
    protocol::{Protocol, Reading, Unreadable, Written, arguments_object, foreign_tool, incomplete, object, opaque_of},
};
use crate::{error::CallError, secrets::ExposeSecret as _};

const FUNCTION: &str = "function";
const TEMPERATURE: &str = "temperature";
const NUM_PREDICT: &str = "num_predict";
const STREAM: &str = "stream";
const THINKING: &str = "thinking";

/// The protocol.
pub(super) struct OllamaChat;

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    messages: Vec<Said<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
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
struct Said<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Called<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    /// Newer versions of Ollama know calls by their ids too; older ones read only the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Called<'a> {
    id: &'a str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: Box<RawValue>,
}

/// A function, as every tool is for Ollama.
#[derive(Serialize)]
struct Tool<'a> {
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
        let messages = messages(turn, takes(THINKING));
        let options = Options {
            temperature: turn.temperature.filter(|_| takes(TEMPERATURE)),
            num_predict: turn.max_tokens.filter(|_| takes(NUM_PREDICT)),
        };
        let sent = [
            (TEMPERATURE, options.temperature.is_some()),
            (NUM_PREDICT, options.num_predict.is_some()),
            (STREAM, takes(STREAM)),
            (THINKING, messages.iter().any(|said| said.thinking.is_some())),
        ];
        let request = Request {
            model: &turn.model,
            messages,
            tools: turn.tools.iter().map(|function| Tool { kind: FUNCTION, function }).collect(),
            stream: takes(STREAM).then_some(true),
            options: Some(options).filter(|options| *options != Options::default()),
        };
        let body =
            serde_json::to_string(&request).map_err(|_| CallError::invalid("the turn cannot be written as JSON"))?;
        // Keys read from files and Secrets often end in a line break, which no header may hold.
        let key =
            turn.key.iter().map(|key| ("authorization".to_owned(), format!("Bearer {}", key.expose_secret().trim())));
        let optional = sent.into_iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| name.to_owned());
        Ok(Written { path: "/api/chat".to_owned(), headers: key.collect(), body, optional: optional.collect() })
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::<Chat>::default()
    }
}

/// Returns the conversation. `with_thinking`: whether the server takes back what it thought.
fn messages(turn: &TurnRequest, with_thinking: bool) -> Vec<Said<'_>> {
    let system = turn.system.as_deref().map(|content| Said { role: "system", content, ..Said::default() });
    let mut answer = None;
    let said = turn.messages.iter().map(|message| match message.role {
        Role::User => Said { role: "user", content: &message.text, ..Said::default() },
        Role::Assistant => {
            answer = Some(message);
            let thinking = thinking_of(message, turn).filter(|_| with_thinking);
            Said { thinking, ..Said::of_answer(message) }
        }
        Role::Tool => Said::of_result(message, answer),
    });
    system.into_iter().chain(said).collect()
}

/// Returns what the model thought before it answered, as it wrote that.
fn thinking_of<'a>(message: &'a Message, turn: &TurnRequest) -> Option<&'a RawValue> {
    opaque_of(message, turn).iter().find_map(|part| match part {
        OpaquePart::Message(json) => Fields::of(json).ok()?.get(THINKING),
        OpaquePart::Item(_) | OpaquePart::Call(..) => None,
    })
}

impl<'a> Said<'a> {
    fn of_answer(message: &'a Message) -> Self {
        let called = |call: &'a ToolCall| Called {
            id: &call.id,
            function: Function { name: &call.tool, arguments: arguments_object(&call.arguments) },
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
    /// The number of calls, also of those that are not kept.
    calls: u64,
    thinking: String,
}

impl Reading for Chat {
    fn take(&mut self, document: &[u8]) -> Result<(), Unreadable> {
        let document = object(document)?;
        if document.get("message").is_some() {
            self.has_message = true;
            self.add(&document.object("message")?)?;
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
            self.collected.finish = Some(finish(&document.text("done_reason")?.unwrap_or_default())?);
            self.collected.is_complete = true;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.collected.bytes() + self.thinking.len()
    }

    fn end(self: Box<Self>, _is_done: bool) -> Result<Collected, Unreadable> {
        let Self { mut collected, has_message, thinking, .. } = *self;
        match (has_message, collected.is_complete) {
            (true, true) => {}
            (true, false) => return Err(incomplete()),
            (false, _) => return Err(Unreadable::Because("answered without a message".to_owned())),
        }
        if collected.count() > 0 && !thinking.is_empty() {
            collected.add_opaque(OpaquePart::Message(json!({THINKING: thinking}).to_string()));
        }
        Ok(collected)
    }
}

impl Chat {
    /// Adds a message, or a piece of one.
    fn add(&mut self, message: &Fields<'_>) -> Result<(), Unreadable> {
        if message.get("images").is_some_and(|images| images.get() != "[]") {
            return Err(Unreadable::Because("answered with something other than text".to_owned()));
        }
        self.collected.text.push_str(&message.text("content")?.unwrap_or_default());
        self.thinking.push_str(&message.text(THINKING)?.unwrap_or_default());
        let calls = message.list::<{ TurnCalls::MAX_CALLS }>("tool_calls")?;
        self.collected.add_dropped(calls.dropped);
        for call in &calls.kept {
            self.add_call(call)?;
        }
        Ok(())
    }

    /// Adds a call, which is always a whole one.
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
            arguments: function.get("arguments").map(arguments).transpose()?.unwrap_or_else(|| "{}".to_owned()),
        });
        Ok(())
    }
}

/// Returns arguments as text: the JSON of an object, or a text as the model wrote it.
fn arguments(value: &RawValue) -> Result<String, Unreadable> {
    let json = value.get();
    if json.starts_with('{') { Ok(json.to_owned()) } else { Ok(serde_json::from_str(json)?) }
}

/// Returns the end of an answer by its reason, which older versions of Ollama do not give.
fn finish(reason: &str) -> Result<Finish, Unreadable> {
    match reason {
        "length" => Ok(Finish::Cut),
        "load" | "unload" => Err(Unreadable::Because("loaded or unloaded its model instead of an answer".to_owned())),
        _ => Ok(Finish::Usual),
    }
}

#[cfg(test)]
mod tests {
    //! After Ollama's documents: "Generate a chat completion" (github.com/ollama/ollama, docs/api.md), "Tool calling"
    //! (docs/capabilities/tool-calling.mdx), "Thinking" (docs/capabilities/thinking.mdx) and "Errors"
    //! (docs/api/errors.mdx), all of 2026-08.
    #![allow(clippy::unwrap_used)]

    use std::{sync::Arc, time::Duration};

    use serde_json::Value;
    use signoff_api::{
        turn::{OpaqueParts, RequestedArguments, RequestedCall},
        workflow::Provider,
    };

    use super::*;
    use crate::{agent::documents::Documents, http::AnswerBody as _, room::UnboundedRoom, secrets::SecretText};

    fn turn(messages: Vec<Message>) -> TurnRequest {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        TurnRequest {
            provider: Provider { name: "local".into(), ..Provider::default() },
            model: "qwen3:8b".into(),
            system: Some("Be brief.".into()),
            messages,
            tools: vec![ToolOffer { name: "weather".into(), description: "Look outside.".into(), parameters }],
            max_tokens: Some(500),
            temperature: Some(0.5),
            timeout: Duration::from_secs(1),
            key: Some(SecretText::from(" a-key\n")),
        }
    }

    fn called(id: &str, arguments: &str) -> ToolCall {
        ToolCall { id: id.into(), tool: "weather".into(), arguments: arguments.into() }
    }

    fn written(turn: &TurnRequest, left_out: &[&str]) -> Written {
        let left_out = left_out.iter().map(|name| (*name).to_owned()).collect();
        OllamaChat.write(turn, &left_out).ok().unwrap()
    }

    fn body(written: &Written) -> Value {
        serde_json::from_str(&written.body).unwrap()
    }

    /// An answer, as tests compare it.
    #[derive(Debug, PartialEq)]
    struct Answer {
        text: String,
        calls: Vec<[String; 3]>,
        dropped: usize,
        thinking: Vec<String>,
        usage: Option<Usage>,
        finish: Option<Finish>,
    }

    fn collected(body: &[u8]) -> Result<Collected, Unreadable> {
        let mut documents = Documents::new(&UnboundedRoom, OllamaChat.reading(), OllamaChat.has_lines(), 8 << 20);
        for piece in body.chunks(7) {
            if documents.add(piece).is_err() {
                return Err(documents.failure().unwrap());
            }
        }
        documents.end()
    }

    fn arguments_of(call: &RequestedCall) -> String {
        match &call.arguments {
            RequestedArguments::Text(text) => text.clone(),
            RequestedArguments::TooLong(bytes) => format!("{bytes} bytes"),
        }
    }

    fn read(body: impl AsRef<[u8]>) -> Result<Answer, Unreadable> {
        let collected = collected(body.as_ref())?;
        let (text, usage, finish) = (collected.text.clone(), collected.usage, collected.finish.clone());
        let (calls, dropped, parts) = collected.into_parts();
        let calls = calls.iter().map(|call| [call.id.clone(), call.tool.clone(), arguments_of(call)]).collect();
        let json = |part: &OpaquePart| match part {
            OpaquePart::Message(json) => json.clone(),
            OpaquePart::Item(json) | OpaquePart::Call(_, json) => format!("not expected: {json}"),
        };
        Ok(Answer { text, calls, dropped, thinking: parts.unwrap().iter().map(json).collect(), usage, finish })
    }

    fn why(body: impl AsRef<[u8]>) -> String {
        match read(body).unwrap_err() {
            Unreadable::Form(line, column) => format!("form {line}:{column}"),
            Unreadable::Because(why) | Unreadable::Refused(why) => why,
            Unreadable::Failed(json) => format!("failed {json}"),
        }
    }

    fn line(message: &Value) -> Value {
        json!({"model": "qwen3:8b", "created_at": "2026-08-21T20:22:19.19314Z", "message": message, "done": false})
    }

    /// The last line: without a text, and with the tokens that were used.
    fn last(reason: &str) -> Value {
        let message = json!({"role": "assistant", "content": ""});
        json!({"model": "qwen3:8b", "message": message, "done_reason": reason, "done": true,
            "total_duration": 182_242_375, "prompt_eval_count": 169, "eval_count": 15})
    }

    fn lines(lines: &[Value]) -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn calls(cities: &[&str]) -> Value {
        let call = |city: &&str| json!({"function": {"index": 0, "name": "weather", "arguments": {"city": city}}});
        cities.iter().map(call).collect()
    }

    fn two_calls_streamed() -> String {
        lines(&[
            line(&json!({"role": "assistant", "content": "", "thinking": "Two "})),
            line(&json!({"role": "assistant", "content": "", "thinking": "cities: Köln…"})),
            line(&json!({"role": "assistant", "content": "Ich sehe "})),
            line(&json!({"role": "assistant", "content": "nach.", "tool_calls": calls(&["Köln"])})),
            line(&json!({"role": "assistant", "content": "", "tool_calls": calls(&["Ürümqi"])})),
            last("stop"),
        ])
    }

    /// The same answer from a server that does not stream.
    fn two_calls_at_once() -> String {
        let mut answer = last("stop");
        answer["message"] = json!({"role": "assistant", "content": "Ich sehe nach.", "thinking": "Two cities: Köln…",
            "tool_calls": calls(&["Köln", "Ürümqi"])});
        answer.to_string()
    }

    #[test]
    fn a_conversation_is_written_as_messages() {
        let turn = turn(vec![
            Message::text(Role::User, "How is it outside?"),
            Message {
                calls: vec![called("call-1", r#"{"city": "Köln"}"#), called("call-2", "no JSON")],
                ..Message::text(Role::Assistant, "")
            },
            Message::result("call-1", "rain"),
            Message::result("call-2", "error: no JSON"),
            Message::text(Role::User, "Go on."),
        ]);
        let written = written(&turn, &[]);
        assert_eq!(written.path, "/api/chat");
        assert_eq!(written.headers, [("authorization".to_owned(), "Bearer a-key".to_owned())]);
        assert_eq!(written.optional, ["temperature", "num_predict", "stream"]);
        let expected = json!({
            "model": "qwen3:8b",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How is it outside?"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"id": "call-1", "function": {"name": "weather", "arguments": {"city": "Köln"}}},
                    {"id": "call-2", "function": {"name": "weather", "arguments": {"arguments": "no JSON"}}},
                ]},
                {"role": "tool", "content": "rain", "tool_name": "weather", "tool_call_id": "call-1"},
                {"role": "tool", "content": "error: no JSON", "tool_name": "weather", "tool_call_id": "call-2"},
                {"role": "user", "content": "Go on."},
            ],
            "tools": [{"type": "function", "function": turn.tools[0]}],
            "stream": true,
            "options": {"temperature": 0.5, "num_predict": 500},
        });
        assert_eq!(body(&written), expected);
    }

    #[test]
    fn fields_that_the_server_refuses_are_left_out() {
        let bare =
            TurnRequest { system: None, tools: vec![], key: None, ..turn(vec![Message::text(Role::User, "Hi")]) };
        let written = written(&bare, &["temperature", "num_predict", "stream"]);
        assert!(written.headers.is_empty() && written.optional.is_empty());
        assert_eq!(written.body, r#"{"model":"qwen3:8b","messages":[{"role":"user","content":"Hi"}]}"#);
    }

    #[test]
    fn a_stream_and_a_whole_answer_are_read_alike() {
        let answer = read(two_calls_streamed()).unwrap();
        let call = |city: &str| [String::new(), "weather".to_owned(), json!({"city": city}).to_string()];
        assert_eq!(answer.text, "Ich sehe nach.");
        assert_eq!(answer.calls, [call("Köln"), call("Ürümqi")]);
        assert_eq!(answer.thinking, [r#"{"thinking":"Two cities: Köln…"}"#]);
        assert_eq!(answer.usage, Some(Usage { input_tokens: 169, output_tokens: 15, ..Usage::default() }));
        assert_eq!(answer.finish, Some(Finish::Usual));
        assert_eq!(read(two_calls_at_once()).unwrap(), answer);
    }

    #[test]
    fn an_answer_that_is_cut_anywhere_is_an_error_until_it_is_whole() {
        for answer in [two_calls_streamed(), two_calls_at_once()] {
            let expected = read(&answer).unwrap();
            let whole = answer.trim_end().len();
            for end in 0..answer.len() {
                match read(&answer.as_bytes()[..end]) {
                    Ok(read) => assert!(end >= whole && read == expected, "{end}: {read:?}"),
                    Err(why) => assert!(end < whole, "{end}: {why:?}"),
                }
            }
        }
    }

    #[test]
    fn thinking_goes_back_to_the_same_model_only() {
        let collected = collected(two_calls_streamed().as_bytes()).unwrap();
        let text = collected.text.clone();
        let (requested, _, parts) = collected.into_parts();
        let call = |(at, call): (usize, &RequestedCall)| called(&format!("call-{at}"), &arguments_of(call));
        let calls = requested.iter().enumerate().map(call).collect();
        let opaque = OpaqueParts { provider: "local".into(), model: "qwen3:8b".into(), parts: parts.unwrap() };
        let answer = Message { calls, opaque: Some(Arc::new(opaque)), ..Message::text(Role::Assistant, text) };
        let turn = turn(vec![answer, Message::result("call-0", "rain"), Message::result("call-1", "sun")]);
        let thinking = |written: &Written| body(written)["messages"][1].get("thinking").cloned();

        let same = written(&turn, &[]);
        assert_eq!(thinking(&same), Some(json!("Two cities: Köln…")));
        assert_eq!(same.optional, ["temperature", "num_predict", "stream", "thinking"]);
        let without = written(&turn, &["thinking"]);
        assert_eq!(thinking(&without), None);
        assert_eq!(without.optional, ["temperature", "num_predict", "stream"]);
        let other = written(&TurnRequest { model: "llama3.2".into(), ..turn }, &[]);
        assert_eq!(thinking(&other), None);
    }

    #[test]
    fn thinking_of_an_answer_without_calls_is_not_kept() {
        let answer = read(lines(&[line(&json!({"content": "Yes.", "thinking": "Hm."})), last("stop")])).unwrap();
        assert_eq!((answer.text.as_str(), answer.thinking.len()), ("Yes.", 0));
    }

    #[test]
    fn every_reason_of_an_end_is_known() {
        let finish = |reason: &str| read(last(reason).to_string()).map(|answer| answer.finish.unwrap());
        for reason in ["stop", "", "a new one"] {
            assert_eq!(finish(reason).unwrap(), Finish::Usual);
        }
        assert_eq!(finish("length").unwrap(), Finish::Cut);
        for reason in ["load", "unload"] {
            assert!(why(last(reason).to_string()).starts_with("loaded or unloaded"));
        }
        // Without a reason, and without a message in the last line, as of older versions.
        let answer = lines(&[line(&json!({"content": "Yes."})), json!({"done": true, "eval_count": 468})]);
        assert_eq!(read(answer).unwrap().finish, Some(Finish::Usual));
    }

    #[test]
    fn an_error_within_the_stream_is_the_providers() {
        let error = json!({"error": "an error was encountered while running the model"});
        let answer = lines(&[line(&json!({"content": "Yes"})), error.clone()]);
        assert_eq!(why(answer), format!("failed {error}"));
        assert_eq!(why(lines(&[error.clone()])), format!("failed {error}"));
    }

    #[test]
    fn other_tools_and_other_media_fail_the_turn() {
        let of = |message: Value| why(lines(&[line(&message), last("stop")]));
        for call in [json!({"type": "web_search", "query": "secret"}), json!({"id": "a", "web_search": "secret"})] {
            let why = of(json!({"tool_calls": [call]}));
            assert!(why.contains("web_search") && !why.contains("secret"), "{why}");
        }
        for call in [json!({}), json!(null), json!({"type": "function", "function": null})] {
            assert!(of(json!({"tool_calls": [call]})).contains("a call without a function"));
        }
        assert_eq!(of(json!({"content": "", "images": ["AAAA"]})), "answered with something other than text");
    }

    #[test]
    fn ids_and_arguments_are_taken_as_they_are() {
        let of = |call: Value| read(lines(&[line(&json!({"tool_calls": [call]})), last("stop")])).unwrap().calls;
        let call = |arguments: Value| json!({"id": "call_x", "function": {"name": "weather", "arguments": arguments}});
        assert_eq!(of(call(json!("not \"JSON"))), [["call_x", "weather", "not \"JSON"]]);
        assert_eq!(of(call(json!(null))), [["call_x", "weather", "{}"]]);
        assert_eq!(of(json!({"type": "function", "function": {"name": "weather"}})), [["", "weather", "{}"]]);
    }

    #[test]
    fn calls_above_the_limit_are_counted() {
        let calls = calls(&["Köln"; TurnCalls::MAX_CALLS + 2]);
        let one = json!({"tool_calls": [calls[0]]});
        let answer = read(lines(&[line(&json!({"tool_calls": calls})), line(&one), last("stop")])).unwrap();
        assert_eq!((answer.calls.len(), answer.dropped), (TurnCalls::MAX_CALLS, 3));
    }

    #[test]
    fn hostile_shapes_are_errors_or_empty() {
        for empty in [
            r#"{"message": {}, "done": true}"#,
            r#"{"message": {"content": null, "thinking": null, "tool_calls": null, "images": []}, "done": true}"#,
            r#"{"message": {"tool_calls": []}, "done": true, "eval_count": "many", "prompt_eval_count": -1}"#,
        ] {
            let answer = read(empty).unwrap();
            let Answer { text, calls, usage, .. } = answer;
            assert!(text.is_empty() && calls.is_empty() && usage.is_none(), "{empty}");
        }
        for document in ["{}", "null", r#"{"done": true}"#, r#"{"message": null, "done": true}"#] {
            assert_eq!(why(document), "answered without a message", "{document}");
        }
        for done in ["", r#", "done": null"#, r#", "done": 1"#, r#", "done": "true""#] {
            assert_eq!(why(format!(r#"{{"message": {{"content": "a"}}{done}}}"#)), "ended before its answer did");
        }
        for broken in [
            "",
            "[]",
            r#"{"message": "a", "done": true}"#,
            r#"{"message": [], "done": true}"#,
            r#"{"message": {"content": 1}, "done": true}"#,
            r#"{"message": {"content": "a", "content": "b"}, "done": true}"#,
            r#"{"message": {"thinking": ["a"]}, "done": true}"#,
            r#"{"message": {"tool_calls": {}}, "done": true}"#,
            r#"{"message": {"tool_calls": [1]}, "done": true}"#,
            r#"{"message": {"tool_calls": [{"function": "weather"}]}, "done": true}"#,
            r#"{"message": {"tool_calls": [{"function": {"name": 1}}]}, "done": true}"#,
            r#"{"message": {"tool_calls": [{"function": {"name": "a", "arguments": 1}}]}, "done": true}"#,
            r#"{"message": {}, "done": true, "done_reason": 1}"#,
        ] {
            assert!(why(broken).starts_with("form"), "{broken}");
        }
    }
}
