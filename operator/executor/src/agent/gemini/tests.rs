//! Tests of turns and answers of Gemini, after Google's documents of 2026-04.
//!
//! The documents are "Generating content" (ai.google.dev/api/generate-content), "Thought signatures"
//! (ai.google.dev/gemini-api/docs/thought-signatures) and "Function calling"
//! (ai.google.dev/gemini-api/docs/function-calling).
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use signoff_api::turn::{OpaqueParts, RequestedCall, TurnCalls};

use super::*;
use crate::agent::tested::{self, ReadAnswer, arguments_of, collect};

const MODEL: &str = "gemini-3-pro-preview";

fn turn(messages: Vec<Message>) -> TurnRequest {
    tested::turn("google", MODEL, messages)
}

fn call(id: &str, city: &str) -> ToolCall {
    ToolCall { id: id.into(), tool: "weather".into(), arguments: json!({"city": city}).to_string() }
}

fn write_turn(turn: &TurnRequest, left_out: &[&str]) -> Written {
    tested::write_turn(&GenerateContent, turn, left_out)
}

fn body(turn: &TurnRequest) -> Value {
    tested::body(&write_turn(turn, &[]))
}

fn read(body: impl AsRef<[u8]>) -> Result<ReadAnswer, Unreadable> {
    tested::read(&GenerateContent, body.as_ref())
}

fn why(body: impl AsRef<[u8]>) -> String {
    tested::why(read(body))
}

/// Returns the message for an answer. `ids` are the recorded ids of its calls.
fn message(body: &str, ids: &[&str]) -> Message {
    let collected = collect(&GenerateContent, body.as_bytes()).unwrap();
    let text = collected.text.clone();
    let (calls, _, parts) = collected.into_parts();
    let call = |(call, id): (&RequestedCall, &&str)| ToolCall {
        id: (*id).to_owned(),
        tool: call.tool.clone(),
        arguments: arguments_of(call),
    };
    let calls = calls.iter().zip(ids).map(call).collect();
    let opaque = OpaqueParts { provider: "google".into(), model: MODEL.into(), parts: parts.unwrap() };
    Message { calls, opaque: Some(Arc::new(opaque)), ..Message::text(Role::Assistant, text) }
}

fn document(parts: &Value, reason: Option<&str>) -> Value {
    let content = json!({"role": "model", "parts": parts});
    json!({"candidates": [{"content": content, "finishReason": reason, "index": 0}]})
}

fn whole(parts: &Value) -> String {
    document(parts, Some("STOP")).to_string()
}

fn stream(documents: &[Value]) -> String {
    documents.iter().map(|document| format!("data: {document}\r\n\r\n")).collect()
}

/// Returns two calls after a thought: only the first one has a signature. Both have ids, as in Gemini 3.
fn two_calls() -> Value {
    json!([
        {"text": "**Looking outside**", "thought": true},
        {"text": "Ich sehe nach: ", "partMetadata": {"source": "a"}},
        {"text": "Köln, Ürümqi."},
        {"functionCall": {"name": "weather", "args": {"city": "Köln"}, "id": "same"}, "thoughtSignature": "<A>"},
        {"functionCall": {"name": "weather", "args": {"city": "Ürümqi"}, "id": "same"}},
    ])
}

fn two_calls_streamed() -> String {
    let usage = |thoughts: u32, candidates: u32| {
        json!({"promptTokenCount": 72, "thoughtsTokenCount": thoughts, "candidatesTokenCount": candidates,
            "cachedContentTokenCount": 64, "totalTokenCount": 72 + thoughts + candidates})
    };
    let parts = two_calls();
    let mut documents = vec![
        document(&json!([parts[0]]), None),
        document(&json!([parts[1], {"text": "Köln, "}]), None),
        document(&json!([{"text": "Ürümqi."}, parts[3]]), None),
        document(&json!([parts[4]]), Some("STOP")),
    ];
    documents[0]["usageMetadata"] = usage(30, 0);
    documents[3]["usageMetadata"] = usage(30, 18);
    stream(&documents)
}

#[test]
fn a_conversation_is_written_as_contents_of_two_roles() {
    let turn = turn(vec![
        Message::text(Role::User, "How is it outside?"),
        Message {
            calls: vec![call("call-1", "Köln"), ToolCall { arguments: "no JSON".into(), ..call("call-2", "") }],
            ..Message::text(Role::Assistant, "I look.")
        },
        Message::result("call-2", "error: no JSON"),
        Message::result("call-1", "rain"),
        Message::text(Role::User, "Go on."),
    ]);
    let Written { path, headers, optional, .. } = write_turn(&turn, &[]);
    assert_eq!(path, "/models/gemini-3-pro-preview:streamGenerateContent?alt=sse");
    assert_eq!(headers, [("x-goog-api-key".to_owned(), "a-key".to_owned())]);
    assert_eq!(optional, ["temperature", "maxOutputTokens", "stream"]);
    let parameters = &turn.tools[0].parameters;
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "How is it outside?"}]},
            {"role": "model", "parts": [
                {"text": "I look."},
                {"functionCall": {"name": "weather", "args": {"city": "Köln"}}},
                {"functionCall": {"name": "weather", "args": {"arguments": "no JSON"}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "weather", "response": {"result": "error: no JSON"}}},
                {"functionResponse": {"name": "weather", "response": {"result": "rain"}}},
                {"text": "Go on."},
            ]},
        ],
        "tools": [{"functionDeclarations": [
            {"name": "weather", "description": "Look outside.", "parametersJsonSchema": parameters},
        ]}],
        "generationConfig": {"temperature": 0.5, "maxOutputTokens": 500},
    });
    assert_eq!(body(&turn), expected);
}

#[test]
fn fields_that_the_server_refuses_are_left_out() {
    let bare = TurnRequest { system: None, tools: vec![], key: None, ..turn(vec![Message::text(Role::User, "Hi")]) };
    let written = write_turn(&bare, &["temperature", "maxOutputTokens", "stream"]);
    assert_eq!(written.path, "/models/gemini-3-pro-preview:generateContent");
    assert!(written.headers.is_empty() && written.optional.is_empty());
    assert_eq!(written.body, r#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]}]}"#);
}

#[test]
fn the_name_of_a_model_cannot_change_the_path() {
    for (model, expected) in [
        ("gemini-2.5-flash", "/models/gemini-2.5-flash:generateContent"),
        ("models/gemini-2.5-flash", "/models/gemini-2.5-flash:generateContent"),
        ("tunedModels/my_model", "/tunedModels/my_model:generateContent"),
        ("models/../../x", "/models/..%2F..%2Fx:generateContent"),
        ("a/b?key=c#d", "/models/a%2Fb%3Fkey%3Dc%23d:generateContent"),
        ("ü:%", "/models/%C3%BC%3A%25:generateContent"),
    ] {
        assert_eq!(model_path(model, false), expected);
    }
}

#[test]
fn a_result_without_its_call_is_an_error() {
    for messages in [
        vec![Message::result("call-1", "rain")],
        vec![Message::text(Role::Assistant, "I look."), Message::result("call-1", "rain")],
    ] {
        assert!(GenerateContent.write(&turn(messages), &LeftOut::new()).is_err());
    }
}

#[test]
fn a_stream_and_a_whole_answer_are_read_alike() {
    let streamed = read(two_calls_streamed()).unwrap();
    let call = |city: &str| ["same".to_owned(), "weather".to_owned(), json!({"city": city}).to_string()];
    assert_eq!(streamed.text, "Ich sehe nach: Köln, Ürümqi.");
    assert_eq!(streamed.calls, [call("Köln"), call("Ürümqi")]);
    assert_eq!(streamed.finish, Some(Finish::Usual));
    let expected = [
        r#"{"text":"**Looking outside**","thought":true}"#,
        r#"{"text":"Ich sehe nach: ","partMetadata":{"source":"a"}}"#,
        r#"{"text":"Köln, Ürümqi."}"#,
        r#"0 {"thoughtSignature":"<A>","functionCall":{"id":"same"}}"#,
        r#"1 {"functionCall":{"id":"same"}}"#,
    ];
    assert_eq!(streamed.parts, expected);
    let usage =
        Usage { input_tokens: 72, output_tokens: 48, cached_tokens: 64, reasoning_tokens: 30, ..Usage::default() };
    assert_eq!(streamed.usage, Some(usage));
    assert_eq!(read(whole(&two_calls())).unwrap(), ReadAnswer { usage: None, ..streamed });
}

#[test]
fn an_answer_that_is_cut_anywhere_is_an_error_until_it_is_whole() {
    let pretty = serde_json::to_string_pretty(&document(&two_calls(), Some("STOP"))).unwrap();
    for answer in [two_calls_streamed(), pretty + "\n"] {
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
fn parts_of_the_model_go_back_unchanged() {
    let answer = message(&two_calls_streamed(), &["same", "same-2"]);
    let results = [Message::result("same", "rain"), Message::result("same-2", "sun")];
    let user = Message::text(Role::User, "How is it outside?");
    let second = turn([vec![user, answer], results.into()].concat());
    let body_of_second = body(&second);
    let contents = &body_of_second["contents"];
    assert_eq!(contents[1], json!({"role": "model", "parts": two_calls()}));
    let result = |text: &str| {
        let response = json!({"result": text});
        json!({"functionResponse": {"id": "same", "name": "weather", "response": response}})
    };
    assert_eq!(contents[2]["parts"], json!([result("rain"), result("sun")]));

    let other = body(&TurnRequest { model: "gemini-2.5-pro".into(), ..second });
    let text = other.to_string();
    assert!(["<A>", "Looking", "same", "partMetadata"].iter().all(|own| !text.contains(own)), "{text}");
    assert_eq!(other["contents"][1]["parts"][0], json!({"text": "Ich sehe nach: Köln, Ürümqi."}));
    assert_eq!(other["contents"][1]["parts"].as_array().unwrap().len(), 3);
}

#[test]
fn a_signature_of_an_empty_text_keeps_its_position() {
    let parts = json!([
        {"functionCall": {"name": "weather"}},
        {"text": "Wait."},
        {"text": "", "thoughtSignature": "<B>"},
        {"text": "Please."},
    ]);
    let answer = read(whole(&parts)).unwrap();
    assert_eq!(answer.text, "Wait.Please.");
    assert_eq!(answer.calls, [["", "weather", "{}"]]);
    let kept = ["0 {}", r#"{"text":"Wait."}"#, r#"{"text":"","thoughtSignature":"<B>"}"#, r#"{"text":"Please."}"#];
    assert_eq!(answer.parts, kept);
}

#[test]
fn an_answer_of_only_texts_and_calls_has_no_opaque_parts() {
    let answer =
        read(whole(&json!([{"text": "I "}, {"text": "look."}, {"functionCall": {"name": "weather", "args": {}}}])));
    let answer = answer.unwrap();
    assert_eq!((answer.text.as_str(), answer.calls.len(), answer.parts.len()), ("I look.", 1, 0));
}

#[test]
fn thoughts_are_never_text() {
    for thought in [json!(true), json!("yes"), json!(1)] {
        let parts = json!([{"text": "secret", "thought": thought}, {"text": "Yes.", "thought": false}]);
        assert_eq!(read(whole(&parts)).unwrap().text, "Yes.");
    }
}

#[test]
fn thoughts_that_are_too_long_are_dropped_while_received() {
    let mut answer = Generated::default();
    let thought = document(&json!([{"text": "x".repeat(MAX_OPAQUE / 2), "thought": true}]), None).to_string();
    for _ in 0..3 {
        answer.take(thought.as_bytes()).unwrap();
    }
    assert_eq!(answer.bytes(), 0);
    let call = json!([{"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": "<A>"}]);
    answer.take(whole(&call).as_bytes()).unwrap();
    let (calls, _, parts) = Box::new(answer).end(false).ok().unwrap().into_parts();
    assert!(calls.len() == 1 && parts.is_err_and(|bytes| bytes > MAX_OPAQUE));
}

#[test]
fn an_empty_text_is_replaced() {
    let mut turn = turn(vec![
        Message::text(Role::User, ""),
        Message::text(Role::Assistant, ""),
        Message::text(Role::User, "Answer."),
    ]);
    turn.system = Some(String::new());
    // Parts of another protocol are ignored.
    let parts = vec![OpaquePart::Message("{}".into())];
    let opaque = OpaqueParts { provider: "google".into(), model: MODEL.into(), parts };
    turn.messages[1].opaque = Some(Arc::new(opaque));
    let body = body(&turn);
    let text = |role: &str, text: &str| json!({"role": role, "parts": [{"text": text}]});
    assert_eq!(body["contents"], json!([text("user", "(empty)"), text("model", "(empty)"), text("user", "Answer.")]));
    assert!(body.get("systemInstruction").is_none());
}

#[test]
fn every_finish_reason_is_known() {
    let parts = json!([{"text": "a"}]);
    let finish = |reason: &str| read(document(&parts, Some(reason)).to_string()).map(|answer| answer.finish.unwrap());
    assert_eq!(finish("STOP").unwrap(), Finish::Usual);
    assert_eq!(finish("MAX_TOKENS").unwrap(), Finish::Cut);
    for reason in [
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    ] {
        assert_eq!(finish(reason).unwrap(), Finish::Declined(reason.to_owned()));
    }
    for reason in [
        "OTHER",
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
        "NO_IMAGE",
        "IMAGE_OTHER",
        "A_NEW_ONE",
    ] {
        assert!(why(document(&parts, Some(reason)).to_string()).contains(reason));
    }
    for reason in ["", "FINISH_REASON_UNSPECIFIED"] {
        assert_eq!(why(document(&parts, Some(reason)).to_string()), "ended before its answer did");
    }
    // Some servers give a reason with every document. The unusual reason is kept, also if a normal one follows.
    let documents = [document(&parts, Some("SAFETY")), document(&parts, Some("STOP"))];
    assert_eq!(read(stream(&documents)).unwrap().finish, Some(Finish::Declined("SAFETY".into())));
    let documents = [document(&parts, Some("STOP")), document(&parts, Some("MAX_TOKENS"))];
    let answer = read(stream(&documents)).unwrap();
    assert_eq!((answer.text.as_str(), answer.finish), ("aa", Some(Finish::Cut)));
}

#[test]
fn a_blocked_prompt_is_declined() {
    let blocked =
        json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}});
    for answer in [blocked.to_string(), stream(&[blocked])] {
        let answer = read(answer).unwrap();
        assert_eq!(answer.finish, Some(Finish::Declined("PROHIBITED_CONTENT".into())));
        assert_eq!(answer.usage.unwrap().input_tokens, 9);
    }
    let rated = json!({"promptFeedback": {"safetyRatings": [], "blockReason": "BLOCK_REASON_UNSPECIFIED"}});
    assert_eq!(why(rated.to_string()), "answered without any candidate");
}

#[test]
fn an_error_within_the_stream_is_returned() {
    let error = json!({"error": {"code": 503, "message": "high demand", "status": "UNAVAILABLE"}});
    let events = stream(&[document(&json!([{"text": "I "}]), None), error.clone()]);
    assert_eq!(why(events), format!("failed {error}"));
    // An error outside of the events.
    let events = stream(&[document(&json!([{"text": "I "}]), None)]) + &serde_json::to_string_pretty(&error).unwrap();
    assert!(read(events).is_err());
}

#[test]
fn tools_of_the_provider_fail_the_turn() {
    for kind in FOREIGN.into_iter().chain(["computerCall"]) {
        let part = json!([{"text": "a"}, {kind: {"language": "PYTHON", "code": "secret()"}}]);
        let why = why(whole(&part));
        assert!(why.contains(kind) && !why.contains("secret"), "{why}");
    }
    let beside = json!([{"functionCall": {"name": "weather"}, "toolCall": {}}]);
    assert!(why(whole(&beside)).contains("toolCall"));
    for (metadata, list) in RAN {
        let mut answer = document(&json!([{"text": "a"}]), Some("STOP"));
        answer["candidates"][0][metadata] = json!({list: []});
        assert!(read(answer.to_string()).is_ok());
        answer["candidates"][0][metadata] = json!({list: ["secret"]});
        let why = why(answer.to_string());
        assert!(why.contains(metadata) && !why.contains("secret"), "{why}");
    }
}

#[test]
fn other_media_and_calls_in_pieces_are_errors() {
    for kind in MEDIA {
        let why = why(whole(&json!([{kind: {"mimeType": "image/png", "data": "AAAA"}}])));
        assert_eq!(why, "answered with something other than text");
    }
    for more in [json!({"willContinue": true}), json!({"partialArgs": [{"jsonPath": "$.city", "stringValue": "Kö"}]})]
    {
        let mut call = json!({"name": "weather"});
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert!(why(whole(&json!([{"functionCall": call}]))).contains("a call in pieces"));
    }
}

#[test]
fn calls_above_the_limit_are_counted() {
    let calls = vec![json!({"functionCall": {"name": "weather", "args": {}}}); TurnCalls::MAX_CALLS + 2];
    let answer = read(whole(&calls.into())).unwrap();
    assert_eq!((answer.calls.len(), answer.dropped), (TurnCalls::MAX_CALLS, 2));
    let parts = vec![json!({"text": "a"}); MAX_PARTS + 1];
    assert!(why(whole(&parts.into())).contains("1024 parts"));
}

#[test]
fn other_candidates_are_not_the_answer() {
    let mut other = document(&json!([{"text": "other"}]), Some("STOP"));
    other["candidates"][0]["index"] = json!(1);
    assert_eq!(why(other.to_string()), "answered without any candidate");
    let answer = read(stream(&[other, document(&json!([{"text": "first"}]), Some("STOP"))])).unwrap();
    assert_eq!(answer.text, "first");
}

#[test]
fn hostile_shapes_are_errors_or_empty() {
    for empty in [
        r#"{"candidates": [{"finishReason": "STOP"}]}"#,
        r#"{"candidates": [{"content": null, "finishReason": "STOP"}], "usageMetadata": null}"#,
        r#"{"candidates": [{"content": {"parts": null}, "finishReason": "STOP"}]}"#,
        r#"{"candidates": [{"content": {"parts": [null, {}, {"text": null}, {"text": ""}]}, "finishReason": "STOP"}]}"#,
    ] {
        let answer = read(empty).unwrap();
        assert_eq!((answer.text.as_str(), answer.calls.len(), answer.parts.len()), ("", 0, 0), "{empty}");
    }
    for document in
        ["{}", "null", r#"{"candidates": null}"#, r#"{"candidates": []}"#, "data: null\n\n", "data: [DONE]\n\n"]
    {
        assert_eq!(why(document), "answered without any candidate", "{document}");
    }
    assert_eq!(why(r#"{"candidates": [null]}"#), "ended before its answer did");
    let part =
        |part: &str| format!(r#"{{"candidates": [{{"content": {{"parts": [{part}]}}, "finishReason": "STOP"}}]}}"#);
    for broken in [
        "",
        "[]",
        "[{}]",
        "data: []\n\n",
        r#"{"candidates": {}}"#,
        r#"{"candidates": [1]}"#,
        r#"{"candidates": [], "candidates": []}"#,
        r#"{"usageMetadata": []}"#,
        r#"{"promptFeedback": "SAFETY"}"#,
        r#"{"candidates": [{"content": []}]}"#,
        r#"{"candidates": [{"finishReason": 1}]}"#,
        &part("1"),
        &part(r#"{"text": 1}"#),
        &part(r#"{"text": ["a"]}"#),
        &part(r#"{"functionCall": "weather"}"#),
        &part(r#"{"functionCall": {"name": ["weather"]}}"#),
        &part(r#"{"functionCall": {"name": "weather", "args": 1}}"#),
        &part(r#"{"functionCall": {"name": "weather", "args": [1]}}"#),
        &part(r#"{"functionCall": {"id": 7}}"#),
    ] {
        assert!(why(broken).starts_with("form"), "{broken}");
    }
    let counts = json!({"promptTokenCount": "many", "candidatesTokenCount": -1});
    let answer = json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": counts});
    assert_eq!(read(answer.to_string()).unwrap().usage, Some(Usage::default()));
}
