//! Tests of turns with tools and a server of OpenAI's chat completions, valid and invalid.
//!
//! **Invariant:** no error shows an argument or a result.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_api::turn::{RequestedArguments, RequestedCall};
use signoff_engine::transition::{Message, Role, ToolCall, ToolOffer};
use signoff_executor::{
    AnswerRoom, CallError, ErrorClass, Model as _, Providers, TurnReply, TurnRequest, UnboundedRoom,
    room::TURN_ANSWER_BYTES,
};

use crate::{
    models::{KEY, request, scripted},
    server::{Server, client},
};

fn offer(name: &str) -> ToolOffer {
    ToolOffer {
        name: name.into(),
        description: "Send a letter.".into(),
        parameters: json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}),
    }
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), tool: "letter".into(), arguments: arguments.into() }
}

fn request_with_tool(base_url: String, messages: Vec<Message>) -> TurnRequest {
    let bare = request(base_url);
    TurnRequest { system: None, messages, tools: vec![offer("letter")], max_tokens: None, temperature: None, ..bare }
}

/// Returns a conversation with two calls and their results, which replaces the messages of `request`.
fn conversation() -> Vec<Message> {
    vec![
        Message::text(Role::User, "write"),
        Message {
            calls: vec![call("call_1", r#"{"to": "Ünal & Söhne"}"#), call("call_2", "no JSON")],
            ..Message::text(Role::Assistant, "")
        },
        Message::result("call_1", r#"{"letter": "registered as RR-2026-0815"}"#),
        Message::result("call_2", "error: the arguments are not JSON"),
    ]
}

/// Makes a turn with a tool at a server that answers with a status line and a body.
async fn turn_with_answer(status: &str, body: &str) -> Result<TurnReply, CallError> {
    let server = Server::answering(status, "", body).await;
    Providers::new(client()).turn(request_with_tool(server.url("/v1"), conversation()), &UnboundedRoom).await
}

fn completion(content: Value, calls: Value, finish: &str) -> String {
    let message = json!({"role": "assistant", "content": content, "tool_calls": calls});
    json!({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}).to_string()
}

fn requested_json(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn requested(id: &str, tool: &str, arguments: &str) -> RequestedCall {
    RequestedCall { id: id.into(), tool: tool.into(), arguments: RequestedArguments::Text(arguments.into()) }
}

/// Makes a turn with `messages`, after `change`. Returns the sent body.
async fn body_of(messages: Vec<Message>, change: impl FnOnce(&mut TurnRequest)) -> String {
    let server = Server::answering("200 OK", "", &completion(json!("ok"), Value::Null, "stop")).await;
    let mut request = request_with_tool(server.url("/v1"), messages);
    change(&mut request);
    Providers::new(client()).turn(request, &UnboundedRoom).await.unwrap();
    let sent = server.received().remove(0);
    sent.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[tokio::test]
async fn tools_are_offered_byte_for_byte_in_their_order() {
    let offered = body_of(vec![Message::text(Role::User, "write")], |request| {
        request.tools.push(ToolOffer { parameters: json!({"type": "object"}), ..offer("refund") });
    });
    assert_eq!(
        offered.await,
        concat!(
            r#"{"model":"small","messages":[{"role":"user","content":"write"}],"#,
            r#""tools":[{"type":"function","function":{"name":"letter","description":"Send a letter.","#,
            r#""parameters":{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}}},"#,
            r#"{"type":"function","function":{"name":"refund","description":"Send a letter.","#,
            r#""parameters":{"type":"object"}}}],"stream":true,"stream_options":{"include_usage":true}}"#,
        )
    );
}

#[tokio::test]
async fn the_request_of_an_agent_without_tools_has_no_field_of_tools() {
    let messages = vec![Message::text(Role::User, "write"), Message::text(Role::Assistant, "")];
    let plain = body_of(messages, |request| request.tools.clear());
    assert_eq!(
        plain.await,
        r#"{"model":"small","messages":[{"role":"user","content":"write"},{"role":"assistant","content":""}],"stream":true,"stream_options":{"include_usage":true}}"#
    );
}

#[tokio::test]
async fn calls_and_results_are_sent_byte_for_byte_under_their_ids() {
    let mut messages = conversation();
    messages.push(Message { calls: vec![call("call_3", "{}")], ..Message::text(Role::Assistant, "Once more.") });
    messages.push(Message::result("call_3", ""));
    let sent = body_of(messages, |request| request.tools.clear()).await;
    assert_eq!(
        sent,
        concat!(
            r#"{"model":"small","messages":[{"role":"user","content":"write"},"#,
            r#"{"role":"assistant","content":null,"tool_calls":["#,
            r#"{"id":"call_1","type":"function","function":{"name":"letter","arguments":"{\"to\": \"Ünal & Söhne\"}"}},"#,
            r#"{"id":"call_2","type":"function","function":{"name":"letter","arguments":"no JSON"}}]},"#,
            r#"{"role":"tool","tool_call_id":"call_1","content":"{\"letter\": \"registered as RR-2026-0815\"}"},"#,
            r#"{"role":"tool","tool_call_id":"call_2","content":"error: the arguments are not JSON"},"#,
            r#"{"role":"assistant","content":"Once more.","tool_calls":["#,
            r#"{"id":"call_3","type":"function","function":{"name":"letter","arguments":"{}"}}]},"#,
            r#"{"role":"tool","tool_call_id":"call_3","content":""}],"#,
            r#""stream":true,"stream_options":{"include_usage":true}}"#,
        )
    );
}

#[tokio::test]
async fn calls_are_read_in_order_with_the_text_beside_them() {
    let calls = json!([requested_json("a", "letter", r#"{"to": "ACME"}"#), requested_json("b", "unknown", "{}")]);
    let reply = turn_with_answer("200 OK", &completion(json!("I write."), calls.clone(), "tool_calls")).await.unwrap();
    assert_eq!(reply.calls, [requested("a", "letter", r#"{"to": "ACME"}"#), requested("b", "unknown", "{}")]);
    assert_eq!((reply.text.as_str(), reply.truncated), ("I write.", false));
    for nothing in [Value::Null, json!(""), json!([])] {
        let reply = turn_with_answer("200 OK", &completion(nothing, calls.clone(), "tool_calls")).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.calls.len()), ("", 2));
    }
}

#[tokio::test]
async fn two_calls_with_the_same_id_and_calls_without_one_are_kept() {
    let nameless = json!({"type": "function", "function": {"name": "letter", "arguments": "{}"}});
    let calls = json!([requested_json("a", "letter", "{}"), requested_json("a", "letter", "{}"), nameless]);
    let reply = turn_with_answer("200 OK", &completion(Value::Null, calls, "tool_calls")).await.unwrap();
    let ids: Vec<_> = reply.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["a", "a", ""]);
}

#[tokio::test]
async fn arguments_that_are_no_json_are_kept_as_text() {
    let texts = ["", "no JSON", r#"{"a": 1, "a": 2}"#, r#"{"a": "\ud800"}"#, "{\"a\":", "null\u{0}"];
    let calls: Vec<_> = texts.iter().map(|text| requested_json("a", "letter", text)).collect();
    let reply = turn_with_answer("200 OK", &completion(Value::Null, json!(calls), "tool_calls")).await.unwrap();
    assert_eq!(reply.calls, texts.map(|text| requested("a", "letter", text)));
}

#[tokio::test]
async fn arguments_of_five_mebibytes_are_a_call_with_their_length() {
    let calls = json!([requested_json("a", "letter", &"x".repeat(5 << 20)), requested_json("b", "letter", "{}")]);
    let reply = turn_with_answer("200 OK", &completion(Value::Null, calls, "tool_calls")).await.unwrap();
    assert_eq!(reply.calls[0].arguments, RequestedArguments::TooLong(5 << 20));
    assert_eq!(reply.calls[1], requested("b", "letter", "{}"));
}

#[tokio::test]
async fn an_answer_is_bounded_with_tools_too() {
    let calls = json!([requested_json("a", "letter", &"x".repeat(8 << 20))]);
    let error = turn_with_answer("200 OK", &completion(Value::Null, calls, "tool_calls")).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::TooLarge);
    assert!(error.message.ends_with("with more than the limit of 8388608 bytes"), "{error}");
}

#[tokio::test]
async fn three_hundred_calls_are_cut_to_the_limit() {
    let calls: Vec<_> = (0..300).map(|number| requested_json(&format!("call_{number}"), "letter", "{}")).collect();
    let reply = turn_with_answer("200 OK", &completion(Value::Null, json!(calls), "tool_calls")).await.unwrap();
    assert_eq!(reply.calls.len(), 256);
    assert_eq!(reply.calls[255].id, "call_255");
}

#[tokio::test]
async fn an_answer_that_was_cut_in_a_call_is_truncated() {
    let calls = json!([requested_json("a", "letter", r#"{"to": "AC"#)]);
    let reply = turn_with_answer("200 OK", &completion(json!("I write."), calls.clone(), "length")).await.unwrap();
    assert!(reply.truncated);
    assert_eq!(reply.calls, [requested("a", "letter", r#"{"to": "AC"#)]);
    assert!(!turn_with_answer("200 OK", &completion(Value::Null, calls, "tool_calls")).await.unwrap().truncated);
}

#[tokio::test]
async fn calls_of_a_model_that_was_offered_no_tools_are_left_out() {
    let calls = json!([requested_json("a", "letter", "{}")]);
    for (text, expected) in [(json!("ok"), "ok"), (Value::Null, "")] {
        let server = Server::answering("200 OK", "", &completion(text, calls.clone(), "tool_calls")).await;
        let reply = Providers::new(client()).turn(request(server.url("/v1")), &UnboundedRoom).await.unwrap();
        assert!(reply.text == expected && reply.calls.is_empty(), "{reply:?}");
    }
}

#[tokio::test]
async fn a_model_that_declines_or_is_filtered_is_refused() {
    let calls = json!([requested_json("a", "letter", "{}")]);
    let filtered = turn_with_answer("200 OK", &completion(Value::Null, calls, "content_filter")).await.unwrap_err();
    let body = json!({"choices": [{"message": {"content": null, "refusal": "I will not", "tool_calls": []}}]});
    let declined = turn_with_answer("200 OK", &body.to_string()).await.unwrap_err();
    assert_eq!((filtered.class, declined.class), (ErrorClass::Refused, ErrorClass::Refused));
    // A gateway that fills every field has not declined.
    let body = json!({"choices": [{"message": {"content": "", "refusal": "", "tool_calls": [requested_json("a", "b", "{}")]}}]});
    assert_eq!(turn_with_answer("200 OK", &body.to_string()).await.unwrap().calls, [requested("a", "b", "{}")]);
}

#[tokio::test]
async fn an_error_status_quotes_neither_arguments_nor_results() {
    let turn_that_fails = async |message: &str| {
        let body = json!({"error": {"message": message}}).to_string();
        let error = turn_with_answer("400 Bad Request", &body).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Status(400), "{error}");
        assert!(!error.message.contains(KEY), "{error}");
        error.message
    };
    let plain = turn_that_fails("Invalid schema for function 'letter': 'to' has no type").await;
    assert!(plain.ends_with("400 Bad Request: Invalid schema for function 'letter': 'to' has no type"), "{plain}");
    for message in [
        r#"invalid arguments {"to": "Ünal & Söhne"}"#,
        r#"invalid arguments {\"to\": \"Ünal & Söhne\"}"#,
        "invalid arguments {'to': 'Ünal & Söhne'}",
        "invalid arguments 'no JSON'",
        "bad message: registered as RR-2026-0815",
        "bad message: error: the arguments are not JSON",
    ] {
        let error = turn_that_fails(message).await;
        assert!(error.ends_with("(the provider's message quotes the prompt and is left out)"), "{message}: {error}");
    }
    // An error with a status of success is handled in the same way.
    let body = json!({"error": {"message": "bad message: registered as RR-2026-0815"}}).to_string();
    let error = turn_with_answer("200 OK", &body).await.unwrap_err();
    assert!(error.message.contains("answered an error: (the provider's message quotes"), "{error}");
}

#[tokio::test]
async fn a_call_of_another_shape_is_an_error_without_its_content() {
    for calls in [
        json!("ACME"),
        json!(["ACME"]),
        json!([{"id": 1, "function": {"name": "ACME"}}]),
        json!([{"id": "a", "function": {"name": "letter", "arguments": ["ACME"]}}]),
        json!([{"id": "a", "function": {"name": "letter", "arguments": 7}}]),
    ] {
        let error =
            turn_with_answer("200 OK", &completion(Value::Null, calls.clone(), "tool_calls")).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Protocol, "{calls}: {error}");
        assert!(error.message.contains("answered something other than a chat completion"), "{error}");
        assert!(!error.message.contains("ACME") && error.retryable(true), "{error}");
    }
}

#[tokio::test]
async fn arguments_that_are_an_object_are_read_as_its_text() {
    let object = r#"{"to": "ACME", "n": 12345678901234567890.50}"#;
    let body = format!(
        r#"{{"choices": [{{"message": {{"tool_calls": [{{"id": "a", "function": {{"name": "letter", "arguments": {object}}}}}]}}}}]}}"#
    );
    assert_eq!(turn_with_answer("200 OK", &body).await.unwrap().calls, [requested("a", "letter", object)]);
    let long = format!(r#"{{"to": "{}"}}"#, "x".repeat(RequestedArguments::MAX_BYTES));
    let calls = turn_with_answer("200 OK", &body.replace(object, &long)).await.unwrap().calls;
    assert_eq!(calls[0].arguments, RequestedArguments::TooLong(long.len()));
}

#[tokio::test]
async fn a_tool_of_the_provider_fails_the_turn() {
    let custom = json!({"id": "c", "type": "custom", "custom": {"name": "pay", "input": "420"}});
    let search = json!({"id": "c", "type": "web_search", "web_search": {}});
    for (calls, name) in
        [(json!([custom]), "custom"), (json!([requested_json("a", "letter", "{}"), search]), "web_search")]
    {
        let error = turn_with_answer("200 OK", &completion(json!("I write."), calls, "tool_calls")).await.unwrap_err();
        assert!(error.message.contains(&format!("answered with {name}, which is no call of a tool")), "{error}");
        assert!(error.class == ErrorClass::Refused && !error.retryable(true), "{error}");
    }
    let ran = json!({"choices": [{"message": {"content": "done", "executed_tools": [{"type": "search"}]}}]});
    let error = turn_with_answer("200 OK", &ran.to_string()).await.unwrap_err();
    assert!(error.message.contains("a tool that the provider ran"), "{error}");
}

#[tokio::test]
async fn a_script_calls_a_tool_and_answers_its_result_without_any_server() {
    let replies = json!([
        {"contains": "sent", "text": "It is on its way."},
        {"contains": "write", "text": "I write.", "calls": [{"tool": "letter", "arguments": {"to": "ACME"}}]},
    ]);
    let replies = serde_json::from_value(replies).unwrap();
    let mut request = request_with_tool(String::new(), vec![Message::text(Role::User, "write")]);
    (request.provider, request.timeout) = (scripted(replies), Duration::from_secs(1));
    let first = Providers::new(client()).turn(request.clone(), &UnboundedRoom).await.unwrap();
    assert_eq!(first.calls, [requested("call_1", "letter", r#"{"to":"ACME"}"#)]);

    request.messages.push(Message { calls: vec![call("call_1", "{}")], ..Message::text(Role::Assistant, first.text) });
    request.messages.push(Message::result("call_1", "sent"));
    let second = Providers::new(client()).turn(request, &UnboundedRoom).await.unwrap();
    assert_eq!((second.text.as_str(), second.calls.len()), ("It is on its way.", 0));
}

/// Memory for a number of bytes.
struct RoomFor(usize);

impl AnswerRoom for RoomFor {
    fn has_room_for(&self, bytes: usize) -> bool {
        bytes <= self.0
    }
}

#[tokio::test]
async fn an_answer_without_free_memory_is_retryable() {
    let text = json!("x".repeat(2 << 20));
    let body = completion(text, Value::Null, "stop");
    for (room, class) in [(1 << 20, Some(ErrorClass::NoRoom)), (TURN_ANSWER_BYTES, None)] {
        let server = Server::answering("200 OK", "", &body).await;
        let request = request_with_tool(server.url("/v1"), conversation());
        let answer = Providers::new(client()).turn(request, &RoomFor(room)).await;
        assert_eq!(answer.as_ref().err().map(|error| error.class), class);
        let Err(error) = answer else { continue };
        assert!(error.retryable(true) && !error.retryable(false) && error.outcome_known(), "{error}");
        assert!(error.message.ends_with("the turn is repeated when there is room for the longest answer"), "{error}");
    }
}
