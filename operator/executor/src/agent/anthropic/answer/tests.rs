//! Tests of the reading of answers.
//!
//! The examples are written after "Streaming messages", "Handle tool calls" and "Stop reasons and fallback" of the
//! Claude Platform Docs (September 2026), and the types of anthropic-sdk-python 0.121.0 (2026-08-07).
#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};
use signoff_api::turn::RequestedArguments;

use super::*;
use crate::{agent::documents::Documents, http::AnswerBody as _, room::UnboundedRoom};

/// An answer in a comparable form.
#[derive(Debug, PartialEq)]
struct Read {
    text: String,
    /// The ids, the tools, and the arguments or their length.
    calls: Vec<[String; 3]>,
    parts: Vec<Value>,
    usage: Option<Usage>,
    finish: Option<Finish>,
}

fn collect(pieces: &[&[u8]]) -> Result<Collected, String> {
    let mut documents = Documents::new(&UnboundedRoom, Box::<MessageAnswer>::default(), false, 8 << 20);
    for piece in pieces {
        if documents.add(piece).is_err() {
            return Err(format!("{:?}", documents.take_failure()));
        }
    }
    documents.end().map_err(|why| format!("{why:?}"))
}

fn read(pieces: &[&[u8]]) -> Result<Read, String> {
    let collected = collect(pieces)?;
    let (text, usage, finish) = (collected.text.clone(), collected.usage, collected.finish.clone());
    let (calls, _, parts) = collected.into_parts();
    let arguments = |arguments| match arguments {
        RequestedArguments::Text(text) => text,
        RequestedArguments::TooLong(length) => length.to_string(),
    };
    let calls = calls.into_iter().map(|call| [call.id, call.tool, arguments(call.arguments)]).collect();
    let json = |json: &str| serde_json::from_str::<Value>(json).unwrap();
    let part = |part: &OpaquePart| match part {
        OpaquePart::Item(item) | OpaquePart::Message(item) => json(item),
        OpaquePart::Call(number, own) => json!([number, json(own)]),
    };
    let parts = parts.unwrap().iter().map(part).collect();
    Ok(Read { text, calls, parts, usage, finish })
}

fn read_json(answer: &Value) -> Result<Read, String> {
    read(&[answer.to_string().as_bytes()])
}

fn read_content(content: &Value) -> Result<Read, String> {
    read_json(&json!({"type": "message", "content": content, "stop_reason": "end_turn"}))
}

fn stream(events: &[Value]) -> Vec<u8> {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("ping"));
    events.iter().map(event).collect::<String>().into_bytes()
}

fn message_start() -> Value {
    let usage = json!({
        "input_tokens": 25, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 1,
    });
    let message = json!({"type": "message", "role": "assistant", "content": [], "stop_reason": null, "usage": usage});
    json!({"type": "message_start", "message": message})
}

fn start(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn input(index: usize, json: &str) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": json}))
}

fn stop(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn ended(reason: &str) -> [Value; 2] {
    let usage = json!({"output_tokens": 89, "output_tokens_details": {"thinking_tokens": 40}});
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [json!({"type": "message_delta", "delta": delta, "usage": usage}), json!({"type": "message_stop"})]
}

fn tool_use(id: &str, tool: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": tool, "input": {}, "caller": {"type": "direct"}})
}

/// Returns an answer with thinking and two calls, one of them without input.
fn thinking_stream() -> Vec<u8> {
    let events = [
        message_start(),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        json!({"type": "ping"}),
        delta(0, json!({"type": "thinking_delta", "thinking": "Two \"ca"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "lls\"."})),
        delta(0, json!({"type": "signature_delta", "signature": "EqQB/+=="})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "I pay"})),
        delta(1, json!({"type": "citations_delta", "citation": {"type": "char_location"}})),
        delta(1, json!({"type": "text_delta", "text": " ACME 5 €."})),
        stop(1),
        start(2, tool_use("toolu_1", "pay")),
        input(2, ""),
        input(2, "{\"to\": \"AC"),
        json!({"type": "an_event_of_a_later_version", "index": 2}),
        input(2, "ME\"}"),
        stop(2),
        start(3, json!({"type": "redacted_thinking", "data": "EmwKAhgB"})),
        stop(3),
        start(4, tool_use("toolu_2", "list")),
        input(4, ""),
        stop(4),
    ];
    stream(&events.into_iter().chain(ended("tool_use")).collect::<Vec<_>>())
}

fn thinking_answer() -> Value {
    let mut pay = tool_use("toolu_1", "pay");
    pay["input"] = json!({"to": "ACME"});
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5",
        "content": [
            {"type": "thinking", "thinking": "Two \"calls\".", "signature": "EqQB/+=="},
            {"type": "text", "text": "I pay ACME 5 €."},
            pay,
            {"type": "redacted_thinking", "data": "EmwKAhgB"},
            tool_use("toolu_2", "list"),
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {
            "input_tokens": 25, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 100,
            "output_tokens": 89, "output_tokens_details": {"thinking_tokens": 40},
        },
    })
}

/// Returns the expected answer. `input` are the arguments of its first call.
fn expected_thinking_answer(input: &str) -> Read {
    let call = |id: &str, tool: &str, input: &str| [id.to_owned(), tool.to_owned(), input.to_owned()];
    Read {
        text: "I pay ACME 5 €.".into(),
        calls: vec![call("toolu_1", "pay", input), call("toolu_2", "list", "{}")],
        parts: vec![
            json!({"type": "thinking", "thinking": "Two \"calls\".", "signature": "EqQB/+=="}),
            json!({"type": "text", "text": "I pay ACME 5 €."}),
            json!([0, {"caller": {"type": "direct"}}]),
            json!({"type": "redacted_thinking", "data": "EmwKAhgB"}),
            json!([1, {"caller": {"type": "direct"}}]),
        ],
        usage: Some(Usage {
            input_tokens: 130,
            output_tokens: 89,
            cached_tokens: 100,
            reasoning_tokens: 40,
            cost: None,
        }),
        finish: Some(Finish::Usual),
    }
}

#[test]
fn a_whole_answer_and_a_stream_are_read_alike() {
    assert_eq!(read_json(&thinking_answer()), Ok(expected_thinking_answer(r#"{"to":"ACME"}"#)));
    assert_eq!(read(&[&thinking_stream()]), Ok(expected_thinking_answer(r#"{"to": "ACME"}"#)));
}

#[test]
fn an_answer_cut_at_any_byte_is_refused() {
    let whole = thinking_answer().to_string().into_bytes();
    for cut in 0..whole.len() {
        assert!(read(&[whole.get(..cut).unwrap()]).is_err(), "{cut}");
    }
    let stream = thinking_stream();
    // Only the line breaks of the last event may be missing.
    let complete = stream.len() - 2;
    for cut in 0..=stream.len() {
        let (before, after) = stream.split_at(cut);
        assert_eq!(read(&[before]).is_ok(), cut >= complete, "{cut}");
        assert_eq!(read(&[before, after]), Ok(expected_thinking_answer(r#"{"to": "ACME"}"#)), "{cut}");
    }
}

#[test]
fn a_block_without_end_is_taken_only_from_a_truncated_answer() {
    let cut = |reason: &str| {
        let (first, second) = (tool_use("toolu_1", "pay"), tool_use("toolu_2", "pay"));
        let call = [message_start(), start(0, first), stop(0), start(1, second)];
        let thinking = [
            input(1, "{\"to\": \"AC"),
            start(2, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(2, json!({"type": "thinking_delta", "thinking": "An"})),
        ];
        read(&[&stream(&call.into_iter().chain(thinking).chain(ended(reason)).collect::<Vec<_>>())])
    };
    let answer = cut("max_tokens").unwrap();
    assert_eq!(answer.finish, Some(Finish::Cut));
    assert_eq!(answer.calls[1][2], "{\"to\": \"AC");
    // The server would refuse thinking without its signature.
    assert_eq!(answer.parts.len(), 2);
    for reason in ["end_turn", "tool_use", "a_later_reason"] {
        assert!(cut(reason).is_err_and(|why| why.contains("ended before its answer did")), "{reason}");
    }
    // Without its end, a call lacks even the input of its beginning.
    let begun_only = [message_start(), start(0, tool_use("toolu_1", "pay"))];
    let begun_only = read(&[&stream(&[&begun_only[..], &ended("max_tokens")].concat())]).unwrap();
    assert_eq!(begun_only.calls[0][2], "");
}

#[test]
fn an_answer_without_thinking_and_own_fields_has_no_opaque_parts() {
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "pay", "input": {"n": 1}, "caller": null});
    let content = json!([{"type": "text", "text": "I "}, call("a"), {"type": "text", "text": "pay."}, call("b")]);
    let answer = read_content(&content).unwrap();
    assert_eq!((answer.text.as_str(), answer.calls.len(), answer.parts.len()), ("I pay.", 2, 0));
    assert_eq!(answer.usage, None);
    let empty = read_content(&json!([])).unwrap();
    assert_eq!((empty.text.as_str(), empty.calls.len()), ("", 0));
}

#[test]
fn thinking_that_is_too_long_is_returned_as_its_length() {
    let piece = "x".repeat(100 * 1024);
    let pieces = (0..40).map(|_| delta(0, json!({"type": "thinking_delta", "thinking": piece})));
    let begun = [message_start(), start(0, json!({"type": "thinking", "thinking": "", "signature": ""}))];
    let events: Vec<Value> = begun.into_iter().chain(pieces).chain([stop(0)]).chain(ended("end_turn")).collect();
    let collected = collect(&[&stream(&events)]).unwrap();
    assert!(collected.into_parts().2.is_err_and(|bytes| bytes > MAX_OPAQUE));
}

#[test]
fn thinking_that_is_too_long_is_dropped_while_it_is_received() {
    // A control character takes six bytes, and the blocks together are too long.
    let mut answer = MessageAnswer::default();
    let thought = "\u{1}".repeat(MAX_OPAQUE / 12);
    let mut kept = Vec::new();
    for index in 0..4 {
        let begun = start(index, json!({"type": "thinking", "thinking": "", "signature": ""}));
        for event in [begun, delta(index, json!({"type": "thinking_delta", "thinking": thought})), stop(index)] {
            answer.take(event.to_string().as_bytes()).unwrap();
        }
        kept.push(answer.bytes());
    }
    assert!(kept[0] > thought.len() && kept[3] < thought.len(), "{kept:?}");
    for event in [&[message_start()][..], &ended("end_turn")].concat() {
        answer.take(event.to_string().as_bytes()).unwrap();
    }
    let parts = Box::new(answer).end(false).ok().unwrap().into_parts().2;
    assert!(parts.is_err_and(|bytes| bytes > MAX_OPAQUE));
}

#[test]
fn every_stop_reason_is_read_as_its_finish() {
    for (reason, finish) in [
        ("end_turn", Finish::Usual),
        ("tool_use", Finish::Usual),
        ("stop_sequence", Finish::Usual),
        ("a_later_reason", Finish::Usual),
        ("max_tokens", Finish::Cut),
        ("model_context_window_exceeded", Finish::Cut),
        ("refusal", Finish::Declined("refusal".into())),
    ] {
        let whole = read_json(&json!({"type": "message", "content": [], "stop_reason": reason}));
        assert_eq!(whole.unwrap().finish, Some(finish.clone()), "{reason}");
        let streamed = read(&[&stream(&[&[message_start()][..], &ended(reason)].concat())]);
        assert_eq!(streamed.unwrap().finish, Some(finish), "{reason}");
    }
    let paused = read_json(&json!({"type": "message", "content": [], "stop_reason": "pause_turn"}));
    assert!(paused.is_err_and(|why| why.contains("pause_turn")));
    let paused = read(&[&stream(&[&[message_start()][..], &ended("pause_turn")].concat())]);
    assert!(paused.is_err_and(|why| why.contains("pause_turn")));
}

#[test]
fn a_later_number_of_tokens_replaces_the_earlier_one_of_its_field() {
    let usage = |usage: Value| json!({"type": "message_delta", "delta": {}, "usage": usage});
    let numbers = [message_start(), usage(json!({"input_tokens": 7, "output_tokens": 30})), usage(json!(null))];
    let read = read(&[&stream(&[&numbers[..], &ended("end_turn")].concat())]).unwrap();
    let expected = Usage { input_tokens: 112, output_tokens: 89, cached_tokens: 100, reasoning_tokens: 40, cost: None };
    assert_eq!(read.usage, Some(expected));
    let most = json!({"input_tokens": 1e300, "cache_read_input_tokens": 1e300, "output_tokens": -1});
    let read = read_json(&json!({"type": "message", "content": [], "usage": most})).unwrap();
    let expected = Usage { input_tokens: 2_000_000_000, cached_tokens: 1_000_000_000, ..Usage::default() };
    assert_eq!(read.usage, Some(expected));
}

#[test]
fn an_error_ends_the_answer() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let streamed = read(&[&stream(&[message_start(), start(0, tool_use("toolu_1", "pay")), error.clone(), stop(0)])]);
    for failed in [streamed, read_json(&error)] {
        assert!(failed.is_err_and(|why| why.contains("Failed") && why.contains("overloaded_error")));
    }
    assert!(read_json(&json!({"type": "error"})).is_err());
    // Events after the end are not part of the answer.
    let after = [&[message_start()][..], &ended("end_turn"), &[error]].concat();
    assert!(read(&[&stream(&after)]).is_ok());
}

#[test]
fn tools_of_the_provider_are_never_used() {
    let caller = json!({"type": "code_execution_20260120", "tool_id": "srvtoolu_1"});
    for (name, block) in [
        ("server_tool_use", json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}})),
        ("web_search_tool_result", json!({"type": "web_search_tool_result", "tool_use_id": "a", "content": []})),
        ("code_execution_tool_result", json!({"type": "code_execution_tool_result"})),
        ("mcp_tool_use", json!({"type": "mcp_tool_use", "id": "a", "name": "pay", "input": {}})),
        ("mcp_tool_result", json!({"type": "mcp_tool_result"})),
        ("container_upload", json!({"type": "container_upload", "file_id": "file_1"})),
        ("computer", json!({"type": "tool_use", "id": "a", "name": "pay", "input": {}, "toolset_name": "computer"})),
        ("code_execution", json!({"type": "tool_use", "id": "a", "name": "pay", "input": {}, "caller": caller})),
    ] {
        let whole = read_content(&json!([tool_use("toolu_1", "pay"), block]));
        assert!(whole.is_err_and(|why| why.contains(name) && why.contains("no call of a tool")), "{name}");
        let events = [&[message_start(), start(0, block), stop(0)][..], &ended("end_turn")].concat();
        assert!(read(&[&stream(&events)]).is_err_and(|why| why.contains(name)), "{name}");
    }
}

#[test]
fn an_answer_of_another_form_is_refused() {
    for answer in [
        json!({}),
        json!([]),
        json!("message"),
        json!({"type": 1}),
        json!({"type": "completion"}),
        json!({"type": "message"}),
        json!({"type": "message", "content": null}),
        json!({"type": "message", "content": "Hello"}),
        json!({"type": "message", "content": [], "stop_reason": {}}),
        json!({"type": "message", "content": [], "usage": []}),
    ] {
        assert!(read_json(&answer).is_err(), "{answer}");
    }
    for block in [
        json!(null),
        json!("text"),
        json!({"text": "Hello"}),
        json!({"type": "text", "text": 7}),
        json!({"type": "tool_use", "id": 7}),
        json!({"type": "tool_use", "id": "a", "name": []}),
        json!({"type": "tool_use", "id": "a", "name": "pay", "input": 7}),
        json!({"type": "tool_use", "id": "a", "name": "pay", "input": []}),
    ] {
        assert!(read_content(&json!([block])).is_err(), "{block}");
        let events = [&[message_start(), start(0, block.clone()), stop(0)][..], &ended("end_turn")].concat();
        assert!(read(&[&stream(&events)]).is_err(), "{block}");
    }
    let nulls = json!([{"type": "text", "text": null}, {"type": "tool_use", "id": null, "name": null, "input": null}]);
    assert_eq!(read_content(&nulls).unwrap().calls, [["", "", ""].map(str::to_owned)]);
    // Some servers send the input as a text.
    let text = read_content(&json!([{"type": "tool_use", "id": "a", "name": "pay", "input": "{\"n\":1}"}]));
    assert_eq!(text.unwrap().calls[0][2], "{\"n\":1}");
    let many = |count: usize| json!(vec![json!({"type": "text", "text": "x"}); count]);
    assert_eq!(read_content(&many(MOST_BLOCKS)).unwrap().text.len(), MOST_BLOCKS);
    assert!(read_content(&many(MOST_BLOCKS + 1)).is_err_and(|why| why.contains("blocks")));
}

#[test]
fn a_stream_in_another_order_is_refused() {
    let text = || start(0, json!({"type": "text", "text": ""}));
    let piece = |index| delta(index, json!({"type": "text_delta", "text": "x"}));
    for events in [
        vec![],
        vec![text(), piece(0), stop(0)],
        vec![message_start(), piece(0)],
        vec![message_start(), text(), piece(1), stop(0)],
        vec![message_start(), text(), stop(0), piece(0)],
        vec![message_start(), text(), input(0, "{}"), stop(0)],
        vec![message_start(), start(0, tool_use("a", "pay")), piece(0), stop(0)],
        vec![message_start(), text(), text(), stop(0)],
        vec![message_start(), text(), delta(0, json!({"text": "x"})), stop(0)],
        vec![message_start(), text(), delta(0, json!(null)), stop(0)],
    ] {
        let events = [&events[..], &ended("end_turn")].concat();
        assert!(read(&[&stream(&events)]).is_err(), "{events:?}");
    }
    // Blocks can be interleaved.
    let second = start(1, json!({"type": "text", "text": "y"}));
    let interleaved = [message_start(), text(), second, piece(1), piece(0), stop(0), stop(1)];
    let events = [&interleaved[..], &ended("end_turn")].concat();
    assert_eq!(read(&[&stream(&events)]).unwrap().text, "xyx");
}
