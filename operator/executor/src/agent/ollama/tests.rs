//! Tests of Ollama's chat, without any server.
//!
//! After Ollama's documents: "Generate a chat completion" (github.com/ollama/ollama, docs/api.md), "Tool calling"
//! (docs/capabilities/tool-calling.mdx), "Thinking" (docs/capabilities/thinking.mdx) and "Errors"
//! (docs/api/errors.mdx), all of 2026-08.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::Value;
use signoff_api::turn::{OpaqueParts, RequestedCall};

use super::*;
use crate::agent::tested::{self, ReadAnswer, arguments_of, body, collect};

fn turn(messages: Vec<Message>) -> TurnRequest {
    tested::turn("local", "qwen3:8b", messages)
}

fn called(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), tool: "weather".into(), arguments: arguments.into() }
}

fn write_turn(turn: &TurnRequest, left_out: &[&str]) -> Written {
    tested::write_turn(&OllamaChat, turn, left_out)
}

fn read(body: impl AsRef<[u8]>) -> Result<ReadAnswer, Unreadable> {
    tested::read(&OllamaChat, body.as_ref())
}

fn why(body: impl AsRef<[u8]>) -> String {
    tested::why(read(body))
}

fn line(message: &Value) -> Value {
    json!({"model": "qwen3:8b", "created_at": "2026-08-21T20:22:19.19314Z", "message": message, "done": false})
}

/// Returns the last line: without a text, and with the used tokens.
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

/// Returns the answer of [`two_calls_streamed`] from a server that does not stream.
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
    let written = write_turn(&turn, &[]);
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
    let bare = TurnRequest { system: None, tools: vec![], key: None, ..turn(vec![Message::text(Role::User, "Hi")]) };
    let written = write_turn(&bare, &["temperature", "num_predict", "stream"]);
    assert!(written.headers.is_empty() && written.optional.is_empty());
    assert_eq!(written.body, r#"{"model":"qwen3:8b","messages":[{"role":"user","content":"Hi"}]}"#);
}

#[test]
fn a_stream_and_a_whole_answer_are_read_alike() {
    let answer = read(two_calls_streamed()).unwrap();
    let call = |city: &str| [String::new(), "weather".to_owned(), json!({"city": city}).to_string()];
    assert_eq!(answer.text, "Ich sehe nach.");
    assert_eq!(answer.calls, [call("Köln"), call("Ürümqi")]);
    assert_eq!(answer.parts, [r#"message {"thinking":"Two cities: Köln…"}"#]);
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
    let collected = collect(&OllamaChat, two_calls_streamed().as_bytes()).unwrap();
    let text = collected.text.clone();
    let (requested, _, parts) = collected.into_parts();
    let call = |(at, call): (usize, &RequestedCall)| called(&format!("call-{at}"), &arguments_of(call));
    let calls = requested.iter().enumerate().map(call).collect();
    let opaque = OpaqueParts { provider: "local".into(), model: "qwen3:8b".into(), parts: parts.unwrap() };
    let answer = Message { calls, opaque: Some(Arc::new(opaque)), ..Message::text(Role::Assistant, text) };
    let turn = turn(vec![answer, Message::result("call-0", "rain"), Message::result("call-1", "sun")]);
    let thinking = |written: &Written| body(written)["messages"][1].get("thinking").cloned();

    let same = write_turn(&turn, &[]);
    assert_eq!(thinking(&same), Some(json!("Two cities: Köln…")));
    assert_eq!(same.optional, ["temperature", "num_predict", "stream", "thinking"]);
    let without = write_turn(&turn, &["thinking"]);
    assert_eq!(thinking(&without), None);
    assert_eq!(without.optional, ["temperature", "num_predict", "stream"]);
    let other = write_turn(&TurnRequest { model: "llama3.2".into(), ..turn }, &[]);
    assert_eq!(thinking(&other), None);
}

#[test]
fn thinking_of_an_answer_without_calls_is_not_kept() {
    let answer = read(lines(&[line(&json!({"content": "Yes.", "thinking": "Hm."})), last("stop")])).unwrap();
    assert_eq!((answer.text.as_str(), answer.parts.len()), ("Yes.", 0));
}

#[test]
fn thinking_that_is_too_long_is_dropped_while_it_is_received() {
    let mut chat = Chat::default();
    // A control character takes six bytes.
    let piece = line(&json!({"thinking": "\u{1}".repeat(MAX_OPAQUE / 12)})).to_string();
    for _ in 0..3 {
        chat.take(piece.as_bytes()).unwrap();
    }
    assert_eq!(chat.bytes(), 0);
    chat.take(line(&json!({"tool_calls": calls(&["Köln"])})).to_string().as_bytes()).unwrap();
    chat.take(last("stop").to_string().as_bytes()).unwrap();
    let parts = Box::new(chat).end(false).ok().unwrap().into_parts().2;
    assert!(parts.is_err_and(|bytes| bytes > MAX_OPAQUE));
}

#[test]
fn every_done_reason_is_read() {
    let finish = |reason: &str| read(last(reason).to_string()).map(|answer| answer.finish.unwrap());
    for reason in ["stop", "", "a new one"] {
        assert_eq!(finish(reason).unwrap(), Finish::Usual);
    }
    assert_eq!(finish("length").unwrap(), Finish::Cut);
    for reason in ["load", "unload"] {
        assert!(why(last(reason).to_string()).starts_with("loaded or unloaded"));
    }
    // The last line of older versions has neither a reason nor a message.
    let answer = lines(&[line(&json!({"content": "Yes."})), json!({"done": true, "eval_count": 468})]);
    assert_eq!(read(answer).unwrap().finish, Some(Finish::Usual));
}

#[test]
fn an_error_within_the_stream_is_returned() {
    let error = json!({"error": "an error was encountered while running the model"});
    let answer = lines(&[line(&json!({"content": "Yes"})), error.clone()]);
    assert_eq!(why(answer), format!("failed {error}"));
    assert_eq!(why(lines(std::slice::from_ref(&error))), format!("failed {error}"));
}

#[test]
fn other_tools_and_other_media_fail_the_turn() {
    let why_of = |message: Value| why(lines(&[line(&message), last("stop")]));
    for call in [json!({"type": "web_search", "query": "secret"}), json!({"id": "a", "web_search": "secret"})] {
        let why = why_of(json!({"tool_calls": [call]}));
        assert!(why.contains("web_search") && !why.contains("secret"), "{why}");
    }
    for call in [json!({}), json!(null), json!({"type": "function", "function": null})] {
        assert!(why_of(json!({"tool_calls": [call]})).contains("a call without a function"));
    }
    assert_eq!(why_of(json!({"content": "", "images": ["AAAA"]})), "answered with something other than text");
}

#[test]
fn ids_and_arguments_are_taken_as_they_are() {
    let read_call = |call: Value| {
        let answer = lines(&[line(&json!({"tool_calls": [call]})), last("stop")]);
        read(answer).unwrap().calls
    };
    let call = |arguments: Value| json!({"id": "call_x", "function": {"name": "weather", "arguments": arguments}});
    assert_eq!(read_call(call(json!("not \"JSON"))), [["call_x", "weather", "not \"JSON"]]);
    assert_eq!(read_call(call(json!(null))), [["call_x", "weather", "{}"]]);
    assert_eq!(read_call(json!({"type": "function", "function": {"name": "weather"}})), [["", "weather", "{}"]]);
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
        let ReadAnswer { text, calls, usage, .. } = answer;
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
