//! Tests of servers of chat completions with peculiarities: streams, fields that they need back, and fields that they
//! do not accept.

use std::sync::Arc;

use serde_json::{Value, json};
use signoff_api::turn::{OpaquePart, OpaqueParts, RequestedArguments, RequestedCall};
use signoff_engine::transition::{Message, Role, ToolCall, ToolOffer};
use signoff_executor::{CallError, ErrorClass, Model as _, Providers, TurnReply, TurnRequest, UnboundedRoom};

use crate::{
    models::{KEY, request},
    server::{Behaviour, Server, answer, client},
};

fn request_with_tool(base_url: String) -> TurnRequest {
    let offer = ToolOffer { name: "pay".into(), description: "Pay.".into(), parameters: json!({"type": "object"}) };
    TurnRequest { tools: vec![offer], ..request(base_url) }
}

/// Makes a turn with a tool at a server that answers with these bytes.
async fn turn_with_answer(body: &str) -> Result<TurnReply, CallError> {
    let server = Server::answering("200 OK", "content-type: text/event-stream\r\n", body).await;
    Providers::new(client()).turn(request_with_tool(server.url("/v1")), &UnboundedRoom).await
}

fn events(chunks: &[Value]) -> String {
    let chunks = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    chunks.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn usage() -> Value {
    let details = json!({"cached_tokens": 4});
    json!({"choices": [], "usage": {"prompt_tokens": 21, "completion_tokens": 9, "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": 5}}})
}

fn piece(index: u64, id: &str, name: &str, arguments: &str) -> Value {
    let mut call = json!({"index": index, "function": {"arguments": arguments}});
    if !id.is_empty() {
        call["id"] = json!(id);
        call["type"] = json!("function");
    }
    if !name.is_empty() {
        call["function"]["name"] = json!(name);
    }
    delta(json!({"tool_calls": [call]}))
}

fn requested(id: &str, arguments: &str) -> RequestedCall {
    RequestedCall { id: id.into(), tool: "pay".into(), arguments: RequestedArguments::Text(arguments.into()) }
}

#[tokio::test]
async fn a_stream_is_the_answer_that_its_pieces_make() {
    let stream = events(&[
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"content": "I "})),
        delta(json!({"content": "pay."})),
        piece(0, "a", "pay", ""),
        piece(0, "", "", "{\"amount\":"),
        piece(1, "b", "pay", "{}"),
        piece(0, "", "", "420}"),
        finish("tool_calls"),
        usage(),
    ]);
    for stream in
        [stream.clone(), stream.replace('\n', "\r\n"), stream.replace('\n', "\r"), format!(": ok\n\n{stream}")]
    {
        let reply = turn_with_answer(&stream).await.unwrap();
        assert_eq!(reply.text, "I pay.");
        assert_eq!(reply.calls, [requested("a", "{\"amount\":420}"), requested("b", "{}")]);
        let usage = reply.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (21, 9));
        assert_eq!((usage.cached_tokens, usage.reasoning_tokens), (4, 5));
    }
}

#[tokio::test]
async fn calls_of_a_stream_are_distinguished_by_number_and_id() {
    for (chunks, expected) in [
        // All calls have one number.
        (
            vec![piece(0, "a", "pay", "{}"), piece(0, "b", "pay", "{}")],
            vec![requested("a", "{}"), requested("b", "{}")],
        ),
        // The id and the name are repeated with each piece.
        (vec![piece(0, "a", "pay", "{\"n\":"), piece(0, "a", "pay", "1}")], vec![requested("a", "{\"n\":1}")]),
        // Calls without ids.
        (vec![piece(0, "", "pay", "{}"), piece(1, "", "pay", "{}")], vec![requested("", "{}"), requested("", "{}")]),
        // Two numbers with one id.
        (
            vec![piece(0, "a", "pay", "{}"), piece(1, "a", "pay", "{}")],
            vec![requested("a", "{}"), requested("a", "{}")],
        ),
        // Calls without numbers.
        (
            vec![
                delta(json!({"tool_calls": [{"id": "a", "function": {"name": "pay", "arguments": "{\"n\":"}}]})),
                delta(json!({"tool_calls": [{"function": {"arguments": "1}"}}]})),
                delta(json!({"tool_calls": [{"id": "b", "function": {"name": "pay", "arguments": {"n": 2}}}]})),
            ],
            vec![requested("a", "{\"n\":1}"), requested("b", "{\"n\":2}")],
        ),
    ] {
        let mut chunks = chunks;
        chunks.push(finish("stop"));
        assert_eq!(turn_with_answer(&events(&chunks)).await.unwrap().calls, expected);
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_is_an_error_and_calls_nothing() {
    let whole = events(&[piece(0, "a", "pay", "{\"amount\":4"), piece(0, "", "", "20}"), finish("tool_calls")]);
    let ends = whole.find("tool_calls\"}").unwrap();
    let end = ends + "tool_calls\"}]}".len();
    let calls = [requested("a", "{\"amount\":420}")];
    assert!(
        turn_with_answer(&whole).await.unwrap().calls == calls
            && turn_with_answer(&whole[..end]).await.unwrap().calls == calls
    );
    for length in (0..whole.len()).step_by(7).chain([end - 1]) {
        let cut = &whole[..length];
        match turn_with_answer(cut).await {
            Ok(reply) => assert!(length >= end && reply.calls == calls, "{cut}"),
            Err(error) => assert!(error.class == ErrorClass::Protocol && error.retryable(true), "{error}"),
        }
        // The same after a broken connection.
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{cut}", whole.len());
        let server = Server::start(Behaviour::Answer(head)).await;
        let broken =
            Providers::new(client()).turn(request_with_tool(server.url("/v1")), &UnboundedRoom).await.unwrap_err();
        assert_eq!(broken.class, ErrorClass::Protocol, "{broken}");
    }
}

#[tokio::test]
async fn the_text_so_far_beside_a_piece_is_not_read() {
    let chunk = |piece: &str, so_far: &str, reason: Value| json!({"choices": [{"index": 0, "delta": {"content": piece}, "message": {"content": so_far}, "finish_reason": reason}]});
    let chunks = [chunk("I ", "I ", json!("")), chunk("pay.", "I pay.", json!("stop"))];
    assert_eq!(turn_with_answer(&events(&chunks)).await.unwrap().text, "I pay.");
    let error = turn_with_answer(&events(&[delta(json!({"content": "I "})), finish("error")])).await.unwrap_err();
    assert!(error.message.ends_with("broke off its answer (error)") && error.class == ErrorClass::Protocol, "{error}");
    let error = turn_with_answer(&events(&[piece(0, "a", "pay", "{}")])).await.unwrap_err();
    assert!(error.message.contains("ended before its answer did"), "{error}");
}

#[tokio::test]
async fn an_error_within_a_stream_fails_the_turn_with_its_message() {
    let error = json!({"error": {"message": "the backend\nis gone", "type": "server_error"}});
    let stream = events(&[delta(json!({"content": "I "})), error, finish("stop")]);
    let error = turn_with_answer(&stream).await.unwrap_err();
    assert!(error.message.ends_with("answered an error: the backend is gone"), "{error}");
    let quoted = json!({"error": {"message": "bad prompt: Refund 420 EUR to ACME, account 12-345"}});
    let error = turn_with_answer(&events(&[quoted])).await.unwrap_err();
    assert!(!error.message.contains("ACME") && error.class == ErrorClass::Protocol, "{error}");
}

#[tokio::test]
async fn a_stream_without_end_is_stopped_at_its_limit() {
    let head = "HTTP/1.1 200 OK\r\n\r\n".to_owned();
    let text = format!("data: {}\n\n", delta(json!({"content": "x".repeat(100_000)})));
    let line = "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx".to_owned();
    for chunk in [text, line] {
        let server = Server::start(Behaviour::Endless(head.clone(), chunk)).await;
        let error =
            Providers::new(client()).turn(request_with_tool(server.url("/v1")), &UnboundedRoom).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::TooLarge, "{error}");
    }
}

/// Returns fields that only one server defines: of the message, of a call and of its function.
fn own_fields() -> (Value, Value, Value) {
    (json!("I think."), json!({"google": {"thought_signature": "c2ln\u{e9}"}}), json!([1.50, null, {"a": "b"}]))
}

async fn own_fields_of(body: &str) -> OpaqueParts {
    turn_with_answer(body).await.unwrap().opaque.unwrap()
}

fn whole_with_own_fields() -> String {
    let (reasoning, extra, on_function) = own_fields();
    let function = json!({"name": "pay", "arguments": "{}", "mark": on_function});
    let calls = json!([
        {"id": "a", "type": "function", "function": function, "extra_content": extra},
        {"id": "b", "type": "function", "function": {"name": "pay", "arguments": "{}"}},
    ]);
    let message = json!({"role": "assistant", "content": null, "reasoning_content": reasoning, "annotations": [],
        "refusal": null, "tool_calls": calls});
    json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).to_string()
}

fn streamed_with_own_fields() -> String {
    let (_, extra, on_function) = own_fields();
    let function = json!({"name": "pay", "arguments": "{}", "mark": on_function});
    events(&[
        delta(json!({"role": "assistant", "reasoning_content": "I "})),
        delta(json!({"reasoning_content": "think."})),
        delta(
            json!({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": function, "extra_content": extra}]}),
        ),
        piece(1, "b", "pay", "{}"),
        finish("tool_calls"),
    ])
}

#[tokio::test]
async fn own_fields_of_a_server_are_sent_back_only_to_it() {
    for body in [whole_with_own_fields(), streamed_with_own_fields()] {
        let opaque = own_fields_of(&body).await;
        assert!(!format!("{opaque:?}").contains("think"), "{opaque:?}");
        let parts = Arc::new(opaque);
        let call = |id: &str| ToolCall { id: id.into(), tool: "pay".into(), arguments: "{\"amount\":42}".into() };
        // Duplicate ids of calls in a conversation are renamed.
        let message =
            Message { calls: vec![call("a-2"), call("b")], opaque: Some(parts), ..Message::text(Role::Assistant, "") };
        let results = [Message::result("a-2", "paid"), Message::result("b", "paid")];
        let send = async |change: fn(&mut TurnRequest)| {
            let server = Server::answering("200 OK", "", &whole_with_own_fields()).await;
            let mut request = request_with_tool(server.url("/v1"));
            request.messages.push(message.clone());
            request.messages.extend(results.clone());
            change(&mut request);
            Providers::new(client()).turn(request, &UnboundedRoom).await.unwrap();
            let sent = server.received().remove(0);
            serde_json::from_str::<Value>(sent.split_once("\r\n\r\n").unwrap().1).unwrap()["messages"][4].clone()
        };
        let (reasoning, extra, on_function) = own_fields();
        let mut own = json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "a-2", "type": "function", "function": {"name": "pay", "arguments": "{\"amount\":42}", "mark": on_function}, "extra_content": extra},
            {"id": "b", "type": "function", "function": {"name": "pay", "arguments": "{\"amount\":42}"}},
        ], "reasoning_content": reasoning});
        assert_eq!(send(|_| {}).await, own);
        own.as_object_mut().unwrap().remove("reasoning_content");
        own["tool_calls"][0].as_object_mut().unwrap().remove("extra_content");
        own["tool_calls"][0]["function"].as_object_mut().unwrap().remove("mark");
        assert_eq!(send(|request| request.model = "another".into()).await, own);
        assert_eq!(send(|request| request.provider.name = "another".into()).await, own);
    }
}

#[tokio::test]
async fn fields_that_are_too_long_to_be_sent_back_fail_the_turn() {
    for length in [100 * 1024, 128 * 1024, 700 * 1024] {
        let text = "x".repeat(length);
        let stream = |calls: bool| {
            let pieces = text.as_bytes().chunks(10_000).map(|piece| String::from_utf8_lossy(piece));
            let mut chunks: Vec<_> = pieces.map(|piece| delta(json!({"reasoning_content": piece}))).collect();
            chunks.push(if calls { piece(0, "a", "pay", "{}") } else { delta(json!({"content": "done"})) });
            chunks.push(finish("stop"));
            events(&chunks)
        };
        let with_calls = turn_with_answer(&stream(true)).await;
        if length < 128 * 1024 {
            let OpaquePart::Message(json) = &with_calls.unwrap().opaque.unwrap().parts[0] else { panic!() };
            assert!(json.contains(&text));
        } else {
            let error = with_calls.unwrap_err();
            assert!(error.class == ErrorClass::TooLarge && error.message.contains("ask for less reasoning"), "{error}");
        }
        // Without calls nothing is sent back.
        let answer = turn_with_answer(&stream(false)).await.unwrap();
        assert_eq!((answer.text.as_str(), answer.opaque), ("done", None));
    }
}

fn refusal_answer(message: &str) -> String {
    answer("400 Bad Request", "", &json!({"error": {"message": message}}).to_string())
}

fn done_answer() -> String {
    answer("200 OK", "", &json!({"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}).to_string())
}

fn bodies(server: &Server) -> Vec<Value> {
    let body = |sent: String| serde_json::from_str(sent.split_once("\r\n\r\n").unwrap().1).unwrap();
    server.received().into_iter().map(body).collect()
}

#[tokio::test]
async fn a_refused_field_is_left_out_and_remembered() {
    let server = Server::start(Behaviour::InTurn(vec![
        refusal_answer("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
        refusal_answer("Unsupported value: 'temperature' does not support 0.5 with this model."),
        done_answer(),
    ]))
    .await;
    let providers = Providers::new(client());
    for _ in 0..2 {
        assert_eq!(providers.turn(request_with_tool(server.url("/v1")), &UnboundedRoom).await.unwrap().text, "done");
    }
    let other = TurnRequest { model: "another".into(), ..request_with_tool(server.url("/v1")) };
    providers.turn(other, &UnboundedRoom).await.unwrap();
    let sent: Vec<_> = bodies(&server)
        .into_iter()
        .map(|body| [&body["max_tokens"], &body["max_completion_tokens"], &body["temperature"]].map(Clone::clone))
        .collect();
    let all = [json!(100), Value::Null, json!(0.5)];
    let newer = [Value::Null, json!(100), json!(0.5)];
    let least = [Value::Null, json!(100), Value::Null];
    assert_eq!(sent, [all.clone(), newer, least.clone(), least, all]);
}

#[tokio::test]
async fn an_error_that_refuses_no_field_is_not_learned_from() {
    for message in ["max_tokens is too large: 100", "the model does not exist", "temperature must be at most 1"] {
        let server = Server::start(Behaviour::InTurn(vec![refusal_answer(message), done_answer()])).await;
        let providers = Providers::new(client());
        let error = providers.turn(request_with_tool(server.url("/v1")), &UnboundedRoom).await.unwrap_err();
        assert!(error.class == ErrorClass::Status(400) && !error.message.contains(KEY), "{error}");
        providers.turn(request_with_tool(server.url("/v1")), &UnboundedRoom).await.unwrap();
        let sent = bodies(&server);
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[1]["max_tokens"], 100);
    }
}

#[tokio::test]
async fn a_server_that_refuses_every_field_is_called_a_few_times() {
    let refuses = "unsupported: max_tokens, max_completion_tokens, temperature, stream, stream_options";
    let server = Server::start(Behaviour::InTurn(vec![refusal_answer(refuses)])).await;
    let providers = Providers::new(client());
    for _ in 0..2 {
        let error = providers.turn(request_with_tool(server.url("/v1")), &UnboundedRoom).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Status(400), "{error}");
    }
    let sent = bodies(&server);
    assert_eq!(sent.len(), 10);
    assert_eq!(sent[0], sent[5]);
}
