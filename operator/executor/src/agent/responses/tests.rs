//! Tests of the Responses API, without any server.
//!
//! The examples are written after OpenAI's "Streaming events" of the API reference (copy of 2025-10-17) and "Better
//! performance from reasoning models using the Responses API" (2025-05-11), and after the answers of vLLM in its pull
//! requests 29947 and 30532 (2025-12).
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::{Value, json};
use signoff_api::turn::{OpaquePart, OpaqueParts, TurnCalls};
use signoff_engine::transition::{Message, Role, ToolCall, ToolOffer};

use super::{
    super::{
        TurnRequest,
        protocol::{Protocol as _, Unreadable, Written},
        tested::{self, arguments_of},
    },
    MAX_ITEMS, MAX_OPAQUE, Responses,
};

const MODEL: &str = "gpt-5.5";

fn turn(messages: Vec<Message>) -> TurnRequest {
    let parameters = json!({"type": "object"});
    let tools = vec![ToolOffer { name: "pay".into(), description: "Pay.".into(), parameters }];
    TurnRequest { tools, ..tested::turn("openai", MODEL, messages) }
}

fn write_turn(turn: &TurnRequest, left_out: &[&str]) -> Written {
    tested::write_turn(&Responses, turn, left_out)
}

/// Returns the body of a turn, and the fields that can be left out.
fn body(turn: &TurnRequest, left_out: &[&str]) -> (Value, Vec<String>) {
    let written = write_turn(turn, left_out);
    (tested::body(&written), written.optional)
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": text})
}

fn reasoning() -> Value {
    let summary = json!([{"type": "summary_text", "text": "A thought."}]);
    json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAA==", "summary": summary})
}

fn message(text: &str) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]);
    json!({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "phase": "commentary", "content": content})
}

fn call(id: &str, arguments: &str) -> Value {
    json!({"id": format!("fc_{id}"), "type": "function_call", "status": "completed", "call_id": format!("call_{id}"),
        "name": "pay", "arguments": arguments})
}

/// Returns an answer with reasoning, a text and two calls.
fn items() -> Vec<Value> {
    vec![reasoning(), message("I pay."), call("a", r#"{"amount":1}"#), call("b", r#"{"amount":2}"#)]
}

fn response(status: &str, output: &[Value]) -> Value {
    let usage = json!({"input_tokens": 75, "input_tokens_details": {"cached_tokens": 25}, "output_tokens": 1186,
        "output_tokens_details": {"reasoning_tokens": 1024}, "total_tokens": 1261});
    json!({"id": "resp_1", "object": "response", "created_at": 1_741_476_777, "status": status, "error": null,
        "incomplete_details": null, "model": MODEL, "output": output, "store": false, "usage": usage})
}

fn ended(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": response("completed", output), "sequence_number": 99})
}

/// Returns the events of items, without the end.
fn events(items: &[Value], are_done: bool) -> Vec<Value> {
    let mut events = vec![json!({"type": "response.created", "response": response("in_progress", &[])})];
    for (number, item) in items.iter().enumerate() {
        let (kind, whole) = match item.get("arguments") {
            Some(arguments) => ("function_call_arguments", arguments.as_str()),
            None => ("output_text", item.pointer("/content/0/text").and_then(Value::as_str)),
        };
        let mut begun = item.clone();
        for (field, empty) in [("content", json!([])), ("arguments", json!(""))] {
            if begun.get(field).is_some() {
                begun[field] = empty;
            }
        }
        events.push(json!({"type": "response.output_item.added", "output_index": number, "item": begun}));
        for piece in whole.map(|whole| whole.split_at(3)).into_iter().flat_map(|(first, rest)| [first, rest]) {
            let (kind, id) = (format!("response.{kind}.delta"), &item["id"]);
            events.push(json!({"type": kind, "item_id": id, "output_index": number, "delta": piece}));
        }
        if are_done {
            events.push(json!({"type": "response.output_item.done", "output_index": number, "item": item}));
        }
    }
    events
}

fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("x"))).collect()
}

/// Returns an answer as JSON for comparisons.
fn read(answer: impl AsRef<[u8]>) -> Result<Value, Unreadable> {
    let collected = tested::collect(&Responses, answer.as_ref())?;
    let (text, finish) = (collected.text.clone(), format!("{:?}", collected.finish));
    let usage = collected
        .usage
        .map(|usage| [usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens]);
    let (calls, dropped, opaque) = collected.into_parts();
    let parse = |json: &str| serde_json::from_str::<Value>(json).unwrap();
    let opaque = opaque.unwrap().into_iter().map(|part| match part {
        OpaquePart::Item(json) => parse(&json),
        OpaquePart::Call(number, json) => json!([number, parse(&json)]),
        OpaquePart::Message(_) => Value::Null,
    });
    let opaque: Vec<_> = opaque.collect();
    Ok(json!({"text": text, "finish": finish, "usage": usage, "calls": calls, "dropped": dropped, "opaque": opaque}))
}

fn finish(answer: &Value) -> String {
    read(answer.to_string()).unwrap()["finish"].as_str().unwrap().to_owned()
}

/// Returns the input of the turn after an answer: the items of the answer alone.
fn second_turn(answer: &Value, model: &str, left_out: &[&str]) -> (Value, Vec<String>) {
    let collected = tested::collect(&Responses, answer.to_string().as_bytes()).unwrap();
    let text = collected.text.clone();
    let (calls, dropped, parts) = collected.into_parts();
    let recorded = TurnCalls::recorded(text.clone(), calls, false, dropped);
    let calls = recorded.calls.into_iter().map(|call| {
        let arguments = arguments_of(&call);
        ToolCall { id: call.id, tool: call.tool, arguments }
    });
    let opaque = OpaqueParts { provider: "openai".into(), model: MODEL.into(), parts: parts.unwrap() };
    let message =
        Message { calls: calls.collect(), opaque: Some(Arc::new(opaque)), ..Message::text(Role::Assistant, text) };
    let (mut body, optional) = body(&TurnRequest { model: model.into(), ..turn(vec![message]) }, left_out);
    (body["input"].take(), optional)
}

#[test]
fn a_turn_is_written_as_items() {
    let called = |id: &str, amount: &str| ToolCall { id: id.into(), tool: "pay".into(), arguments: amount.into() };
    let request = turn(vec![
        Message::text(Role::User, "Pay."),
        Message {
            calls: vec![called("call_a", r#"{"amount":1}"#), called("call_b", "no JSON")],
            ..Message::text(Role::Assistant, "I pay.")
        },
        Message::result("call_a", "paid"),
        Message::result("call_b", "refused"),
        Message::text(Role::User, "And now?"),
    ]);
    let written = write_turn(&request, &[]);
    assert_eq!(written.path, "/responses");
    assert_eq!(written.headers, [("authorization".to_owned(), "Bearer a-key".to_owned())]);
    assert_eq!(written.optional, ["max_output_tokens", "temperature", "store", "include", "stream", "strict"]);
    assert_eq!(
        tested::body(&written),
        json!({
            "model": MODEL,
            "instructions": "Be brief.",
            "input": [
                user("Pay."),
                {"type": "message", "role": "assistant", "content": "I pay."},
                {"type": "function_call", "call_id": "call_a", "name": "pay", "arguments": r#"{"amount":1}"#},
                {"type": "function_call", "call_id": "call_b", "name": "pay", "arguments": "no JSON"},
                {"type": "function_call_output", "call_id": "call_a", "output": "paid"},
                {"type": "function_call_output", "call_id": "call_b", "output": "refused"},
                user("And now?"),
            ],
            "tools": [{"type": "function", "name": "pay", "description": "Pay.", "parameters": {"type": "object"}, "strict": false}],
            "max_output_tokens": 500,
            "temperature": 0.5,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "stream": true,
        })
    );
}

#[test]
fn fields_that_a_server_refuses_are_left_out() {
    let request = turn(vec![Message::text(Role::User, "Pay.")]);
    let names = ["max_output_tokens", "temperature", "store", "include", "stream", "strict"];
    let (body, optional) = body(&request, &names);
    let tool = json!({"type": "function", "name": "pay", "description": "Pay.", "parameters": {"type": "object"}});
    assert_eq!(body, json!({"model": MODEL, "instructions": "Be brief.", "input": [user("Pay.")], "tools": [tool]}));
    assert!(optional.is_empty());
    let bare = TurnRequest { system: None, tools: vec![], max_tokens: None, temperature: None, key: None, ..request };
    let written = write_turn(&bare, &[]);
    assert_eq!(written.optional, ["store", "include", "stream"]);
    assert!(written.headers.is_empty() && !written.body.contains("tools") && !written.body.contains("instructions"));
}

#[test]
fn a_whole_answer_and_a_stream_are_the_same_answer() {
    let whole = read(response("completed", &items()).to_string()).unwrap();
    assert_eq!(
        whole,
        json!({
            "text": "I pay.",
            "finish": "Some(Usual)",
            "usage": [75, 1186, 25, 1024],
            "calls": [
                {"id": "call_a", "tool": "pay", "arguments": r#"{"amount":1}"#},
                {"id": "call_b", "tool": "pay", "arguments": r#"{"amount":2}"#},
            ],
            "dropped": 0,
            "opaque": [reasoning(), message("I pay."), [0, {"id": "fc_a"}], [1, {"id": "fc_b"}]],
        })
    );
    let done = events(&items(), true);
    // With and without the items at the end, and with the end alone.
    for end in
        [ended(&items()), ended(&[]), json!({"type": "response.completed", "response": response("in_progress", &[])})]
    {
        assert_eq!(read(stream(&[done.clone(), vec![end]].concat())).unwrap(), whole);
    }
    assert_eq!(read(stream(&[ended(&items())])).unwrap(), whole);
    let pretty = serde_json::to_string_pretty(&response("completed", &items())).unwrap();
    assert_eq!(read(pretty).unwrap(), whole);
}

#[test]
fn an_answer_that_is_cut_anywhere_is_an_error() {
    let answer = stream(&[events(&items(), true), vec![ended(&items())]].concat());
    let whole = read(&answer).unwrap();
    let end = answer.find("event: response.completed").unwrap();
    for cut in 0..answer.len() {
        match read(&answer.as_bytes()[..cut]) {
            Ok(read) => assert!(cut > end && read == whole, "{cut}"),
            Err(error) => assert!(!format!("{error:?}").contains("pay"), "{cut}"),
        }
    }
    let answer = response("completed", &items()).to_string();
    assert!((0..answer.len()).all(|cut| read(&answer.as_bytes()[..cut]).is_err()));
    let done = stream(&events(&items(), true)) + "data: [DONE]\n\n";
    assert!(matches!(read(done), Err(Unreadable::Because(why)) if why.contains("ended before")));
}

#[test]
fn an_answer_in_pieces_only_is_the_same_answer() {
    let begun = events(&items(), false);
    // The stream has no complete reasoning, so nothing is sent back.
    let mut whole = read(response("completed", &items()).to_string()).unwrap();
    let with_items = read(stream(&[begun.clone(), vec![ended(&items())]].concat())).unwrap();
    assert_eq!(with_items, whole);
    whole["opaque"] = json!([]);
    assert_eq!(read(stream(&[begun, vec![ended(&[])]].concat())).unwrap(), whole);
    // Some servers send no beginning of an item, or arguments only in the last event.
    let text = json!({"type": "response.output_text.delta", "delta": "Yes."});
    assert_eq!(read(stream(&[text, ended(&[])])).unwrap()["text"], "Yes.");
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": call("a", "")});
    let arguments = json!({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{}"});
    let calls = json!([{"id": "call_a", "tool": "pay", "arguments": "{}"}]);
    assert_eq!(read(stream(&[added, arguments, ended(&[])])).unwrap()["calls"], calls);
}

#[test]
fn a_message_that_ends_without_text_has_the_text_of_its_pieces() {
    let mut events = events(&items(), true);
    for event in &mut events {
        if event["type"] == "response.output_item.done" && event["item"]["type"] == "message" {
            event["item"]["content"] = json!([]);
        }
    }
    let answer = read(stream(&[events, vec![ended(&[])]].concat())).unwrap();
    assert_eq!(answer["text"], "I pay.");
    assert_eq!(answer["opaque"][1]["content"], json!([{"type": "output_text", "text": "I pay.", "annotations": []}]));
}

#[test]
fn items_that_are_numbered_wrongly_are_read_once() {
    let whole = read(response("completed", &items()).to_string()).unwrap();
    for place in [json!(0), json!(7), Value::Null] {
        for wrong in ["response.output_item.added", "response.output_item.done", ""] {
            let mut events = events(&items(), true);
            for event in events.iter_mut().filter(|event| wrong.is_empty() || event["type"] == wrong) {
                event["output_index"] = place.clone();
            }
            assert_eq!(read(stream(&[events, vec![ended(&[])]].concat())).unwrap(), whole, "{place} {wrong}");
        }
    }
}

#[test]
fn a_piece_belongs_to_the_item_of_its_id_before_its_number() {
    let added = |id: &str| json!({"type": "response.output_item.added", "output_index": 0, "item": call(id, "")});
    let piece = |item: Value, delta: &str| {
        let mut piece = json!({"type": "response.function_call_arguments.delta", "delta": delta});
        piece.as_object_mut().unwrap().extend(item.as_object().unwrap().clone());
        piece
    };
    // Both calls have one number, and their pieces alternate.
    let id = |id: &str| json!({"item_id": id, "output_index": 0});
    let pieces = [("fc_a", "{\"n\""), ("fc_b", "{\"n\""), ("fc_a", ":1}"), ("fc_b", ":2}")];
    let pieces = pieces.map(|(item, delta)| piece(id(item), delta));
    let both = [added("a"), added("b")];
    let answer = read(stream(&[&both[..], &pieces[..], &[ended(&[])]].concat())).unwrap();
    assert_eq!(answer["calls"][0]["arguments"], "{\"n\":1}");
    assert_eq!(answer["calls"][1]["arguments"], "{\"n\":2}");
    // For two items the event is ambiguous, for one item it is not.
    for item in [json!({}), id(""), id("other"), json!({"output_index": 7})] {
        let why = read(stream(&[&both[..], &[piece(item.clone(), "{}"), ended(&[])]].concat())).unwrap_err();
        assert!(matches!(why, Unreadable::Because(why) if why.contains("without saying of which")), "{item}");
        let answer = read(stream(&[added("a"), piece(item, "{}"), ended(&[])])).unwrap();
        assert_eq!(answer["calls"][0]["arguments"], "{}");
    }
}

#[test]
fn calls_that_the_stream_lacks_are_read_from_the_response() {
    let whole = read(response("completed", &items()).to_string()).unwrap();
    let without_last = events(&items()[..3], true);
    assert_eq!(read(stream(&[without_last.clone(), vec![ended(&items())]].concat())).unwrap(), whole);
    let answer = read(stream(&[without_last, vec![ended(&items()[..2])]].concat())).unwrap();
    assert_eq!(answer["calls"].as_array().unwrap().len(), 1);
}

#[test]
fn reasoning_that_is_too_long_is_dropped_while_it_is_received() {
    let mut long = reasoning();
    long["encrypted_content"] = json!("x".repeat(MAX_OPAQUE / 2));
    let mut reading = Responses.reading();
    for number in 0..5 {
        long["id"] = json!(format!("rs_{number}"));
        let done = json!({"type": "response.output_item.done", "item": long}).to_string();
        reading.take(done.as_bytes()).unwrap();
    }
    assert!(reading.bytes() < MAX_OPAQUE, "{}", reading.bytes());
    for event in events(&items()[2..], true).into_iter().chain([ended(&[])]) {
        reading.take(event.to_string().as_bytes()).unwrap();
    }
    let (calls, _, parts) = reading.end(false).ok().unwrap().into_parts();
    assert!(calls.len() == 2 && parts.is_err_and(|bytes| bytes > MAX_OPAQUE));
}

#[test]
fn items_of_the_server_are_sent_back_unchanged_in_order() {
    // The second call has the id of the first one, and is renamed when it is recorded.
    let second = json!({"id": "fc_2", "type": "function_call", "call_id": "call_a", "name": "pay", "arguments": "{}", "namespace": "n"});
    let output = [reasoning(), call("a", "{}"), message("I pay."), reasoning(), second];
    let answer = response("completed", &output);
    let called = |call_id: &str| json!({"type": "function_call", "call_id": call_id, "name": "pay", "arguments": "{}"});
    let (mut first, mut renamed) = (called("call_a"), called("call_a-2"));
    first["id"] = json!("fc_a");
    (renamed["id"], renamed["namespace"]) = (json!("fc_2"), json!("n"));
    let (input, optional) = second_turn(&answer, MODEL, &[]);
    assert_eq!(input, json!([reasoning(), first, message("I pay."), reasoning(), renamed]));
    assert!(["id", "namespace", "phase", "status"].iter().all(|name| optional.contains(&(*name).to_owned())));
    assert!(["type", "content", "encrypted_content"].iter().all(|name| !optional.contains(&(*name).to_owned())));
    let (input, _) = second_turn(&answer, MODEL, &["namespace"]);
    assert!(input[4].get("namespace").is_none() && input[4]["id"] == "fc_2", "{input}");
    // Another model gets only the text and the calls.
    let text = json!({"type": "message", "role": "assistant", "content": "I pay."});
    let (input, optional) = second_turn(&answer, "gpt-4.1", &[]);
    assert_eq!(input, json!([text, called("call_a"), called("call_a-2")]));
    assert!(!optional.contains(&"id".to_owned()));
}

#[test]
fn fields_that_the_api_refuses_are_not_sent_back() {
    let thought = json!([{"type": "reasoning_text", "text": "A thought."}]);
    let mut reasoning = json!({"id": "rs_1", "summary": [], "type": "reasoning", "content": thought,
        "encrypted_content": null, "status": null});
    let text = json!({"id": "msg_1", "role": "assistant", "status": "completed", "type": "message", "phase": null,
        "content": [{"annotations": [], "text": "I pay.", "type": "output_text", "logprobs": null}]});
    let mut called = call("a", "{}");
    called["namespace"] = Value::Null;
    let (input, _) =
        second_turn(&response("completed", &[reasoning.clone(), text.clone(), called.clone()]), MODEL, &[]);
    let back = json!([
        {"id": "rs_1", "summary": [], "type": "reasoning", "content": thought},
        {"id": "msg_1", "role": "assistant", "status": "completed", "type": "message",
            "content": [{"annotations": [], "text": "I pay.", "type": "output_text"}]},
        {"id": "fc_a", "type": "function_call", "call_id": "call_a", "name": "pay", "arguments": "{}"},
    ]);
    assert_eq!(input, back);
    // The status of reasoning is never sent back, and reasoning without content would only name an item that the server
    // stored.
    reasoning["status"] = json!("completed");
    let (input, _) =
        second_turn(&response("completed", &[reasoning.clone(), text.clone(), called.clone()]), MODEL, &[]);
    assert_eq!(input, back);
    for (content, encrypted) in [(json!([]), Value::Null), (Value::Null, json!(""))] {
        (reasoning["content"], reasoning["encrypted_content"]) = (content, encrypted);
        let answer =
            read(response("completed", &[reasoning.clone(), text.clone(), called.clone()]).to_string()).unwrap();
        assert_eq!((&answer["opaque"], &answer["text"]), (&json!([]), &json!("I pay.")));
    }
}

#[test]
fn an_answer_without_reasoning_has_no_opaque_parts() {
    let answer = read(response("completed", &[message("I pay."), call("a", "{}")]).to_string()).unwrap();
    assert_eq!(answer["opaque"], json!([]));
}

#[test]
fn every_status_is_read_as_its_finish() {
    let ended_with = |status: &str, reason: Value| {
        let mut answer = response(status, &items());
        answer["incomplete_details"] = reason;
        answer
    };
    for (answer, expected) in [
        (ended_with("completed", Value::Null), "Some(Usual)"),
        (ended_with("incomplete", json!({"reason": "max_output_tokens"})), "Some(Cut)"),
        (ended_with("incomplete", json!({"reason": "max_tokens"})), "Some(Cut)"),
        (ended_with("incomplete", Value::Null), "Some(Cut)"),
        (ended_with("completed", json!({"reason": "max_output_tokens"})), "Some(Cut)"),
        (ended_with("incomplete", json!({"reason": "content_filter"})), r#"Some(Declined("content_filter"))"#),
    ] {
        assert_eq!(finish(&answer), expected, "{answer}");
        let end = json!({"type": "response.completed", "response": answer});
        assert_eq!(read(stream(&[end])).unwrap()["finish"], expected);
    }
    let end = json!({"type": "response.incomplete", "response": {"incomplete_details": null}});
    assert_eq!(read(stream(&[events(&items(), true), vec![end]].concat())).unwrap()["finish"], "Some(Cut)");
    let mut torn = call("a", r#"{"amou"#);
    torn["status"] = json!("incomplete");
    assert_eq!(finish(&response("completed", &[torn])), "Some(Cut)");
    for status in ["in_progress", "queued", "cancelled"] {
        assert!(matches!(read(response(status, &items()).to_string()), Err(Unreadable::Because(_))), "{status}");
    }
}

#[test]
fn a_refusal_without_text_is_declined() {
    let refused = json!({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]});
    let declined = r#"Some(Declined("refusal"))"#;
    assert_eq!(finish(&response("completed", std::slice::from_ref(&refused))), declined);
    assert_eq!(finish(&response("completed", &[refused, message("But this.")])), "Some(Usual)");
    let piece = json!({"type": "response.refusal.delta", "output_index": 0, "delta": "No."});
    assert_eq!(read(stream(&[piece, ended(&[])])).unwrap()["finish"], declined);
}

#[test]
fn an_error_of_the_provider_is_returned() {
    let error = json!({"code": "server_error", "message": "overloaded"});
    let mut failed = response("failed", &[]);
    failed["error"] = error.clone();
    assert!(matches!(read(failed.to_string()), Err(Unreadable::Failed(json)) if json.contains("overloaded")));
    for event in [
        json!({"type": "response.failed", "response": failed}),
        json!({"type": "error", "code": "server_error", "message": "overloaded", "param": null, "error": null}),
        json!({"type": "error", "error": error}),
        json!({"error": error}),
    ] {
        let answer = stream(&[events(&items(), true), vec![event.clone()]].concat());
        let Err(Unreadable::Failed(json)) = read(answer) else { unreachable!("{event}") };
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json.get("error").unwrap_or(&json)["message"], "overloaded");
    }
    let failed = json!({"type": "response.failed", "response": response("failed", &[])});
    assert!(matches!(read(stream(&[failed])), Err(Unreadable::Because(why)) if why == "failed without a reason"));
}

#[test]
fn tools_of_the_provider_fail_the_turn() {
    for kind in
        ["web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "custom_tool_call", "compaction"]
    {
        let foreign = json!({"type": kind, "id": "x_1", "name": "pay", "arguments": "{}", "status": "completed"});
        let event =
            |name: &str| json!({"type": format!("response.output_item.{name}"), "output_index": 0, "item": foreign});
        for answer in [
            response("completed", &[call("a", "{}"), foreign.clone()]).to_string(),
            stream(&[event("added"), ended(&[])]),
            stream(&[event("done"), ended(&[])]),
            stream(&[ended(std::slice::from_ref(&foreign))]),
        ] {
            let error = format!("{:?}", read(answer).unwrap_err());
            assert!(error.contains(kind) && error.contains("never used"), "{error}");
        }
    }
}

#[test]
fn hostile_answers_are_errors() {
    for answer in [
        "",
        "{}",
        "[]",
        "null",
        "1",
        "\"x\"",
        "{\"output\": null}",
        "{\"choices\": []}",
        r#"{"output": {}}"#,
        r#"{"output": "x"}"#,
        r#"{"output": [1]}"#,
        r#"{"output": [null]}"#,
        r#"{"output": [{}]}"#,
        r#"{"output": [{"type": null}]}"#,
        r#"{"output": [{"type": 1}]}"#,
        r#"{"output": [[]]}"#,
        r#"{"output": [{"type": "message", "content": "x"}]}"#,
        r#"{"output": [{"type": "message", "content": [1]}]}"#,
        r#"{"output": [{"type": "message", "content": [{"type": "output_text", "text": 1}]}]}"#,
        r#"{"output": [{"type": "function_call", "arguments": 1}]}"#,
        r#"{"output": [{"type": "function_call", "call_id": 1}]}"#,
        r#"{"output": [{"type": "reasoning", "content": 1}]}"#,
        r#"{"output": [], "status": 1}"#,
        r#"{"output": [], "incomplete_details": "x"}"#,
        r#"{"output": [], "usage": []}"#,
        "data: {\"type\": \"response.output_item.done\"}\n\n",
        "data: {\"type\": 1}\n\n",
        "data: x\n\n",
        "data: {\"type\": \"response.output_text.delta\", \"delta\": 1}\n\n",
        "data: {\"type\": \"response.created\"}\n\n",
        "data: {\"type\": \"response.completed\", \"response\": []}\n\n",
        "data: [DONE]\n\n",
        ": nothing\n\n",
    ] {
        assert!(read(answer).is_err(), "{answer}");
    }
    let empty = read(
        r#"{"output": [{"type": "message", "content": null}, {"type": "message", "content": [null, {}]},
        {"type": "reasoning"}], "status": null, "usage": {"input_tokens": null, "output_tokens": "x", "input_tokens_details": null}}"#,
    );
    let usage = [0, 0, 0, 0];
    let nothing = json!({"text": "", "finish": "Some(Usual)", "usage": usage, "calls": [], "dropped": 0, "opaque": []});
    assert_eq!(empty.unwrap(), nothing);
    let object = json!({"type": "function_call", "call_id": null, "name": null, "arguments": {"amount": 1}});
    let call = json!([{"id": "", "tool": "", "arguments": r#"{"amount":1}"#}]);
    assert_eq!(read(response("completed", &[object]).to_string()).unwrap()["calls"], call);
}

#[test]
fn the_number_of_items_is_bounded() {
    let calls: Vec<Value> = (0..300).map(|number| call(&number.to_string(), "{}")).collect();
    let answer = read(response("completed", &calls).to_string()).unwrap();
    assert_eq!((answer["calls"].as_array().unwrap().len(), &answer["dropped"]), (TurnCalls::MAX_CALLS, &json!(44)));
    let many = vec![message("x"); MAX_ITEMS + 1];
    let too_many = |answer: String| format!("{:?}", read(answer).unwrap_err()).contains("more than 1024 items");
    assert!(too_many(response("completed", &many).to_string()));
    let added = |item: &Value| json!({"type": "response.output_item.added", "item": item});
    assert!(too_many(stream(&many.iter().map(added).collect::<Vec<_>>())));
}
