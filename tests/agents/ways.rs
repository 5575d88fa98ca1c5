//! Servers with unusual behavior: whatever they do after an approved refund, it is paid once and the run ends well.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse as _, Response},
};
use futures::stream;
use serde_json::{Value, json};
use signoff_engine::End;
use signoff_tests::{
    chat_completions::{completion, of_message},
    loopback::{self, Loopback, Received},
};

use crate::clerk::{self, Answer};

const REFUND: &str = r#"{"amount":420}"#;

fn calls() -> Value {
    completion(None, &[("a", "refund", REFUND)], "tool_calls")
}

fn done() -> Value {
    completion(Some("done"), &[], "stop")
}

/// Returns the usual answer: the call first, and then the text.
fn usual_answer(number: usize) -> Response {
    loopback::json(&if number == 0 { calls() } else { done() })
}

fn refusal(message: &str) -> Response {
    loopback::text(400, json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string())
}

/// Returns the message of the model that a request repeats.
fn repeated_message(request: &Value) -> &Value {
    request["messages"].as_array().unwrap().iter().find(|message| message["role"] == "assistant").unwrap()
}

fn events(chunks: &[Value]) -> Vec<String> {
    let of = |chunk: &Value| format!("data: {chunk}\n\n");
    chunks.iter().map(of).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn delta(delta: Value, finish: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// Returns the usual answer as a stream, in pieces as small as servers send.
fn stream_answer(number: usize) -> Vec<String> {
    if number > 0 {
        return events(&[
            delta(json!({"role": "assistant", "content": "do"}), Value::Null),
            delta(json!({"content": "ne"}), Value::Null),
            delta(json!({}), json!("stop")),
        ]);
    }
    let call = |call: Value| delta(json!({"tool_calls": [call]}), Value::Null);
    events(&[
        call(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "refund", "arguments": ""}})),
        call(json!({"index": 0, "function": {"arguments": "{\"amount\""}})),
        call(json!({"index": 0, "function": {"arguments": ":420}"}})),
        delta(json!({}), json!("tool_calls")),
    ])
}

/// The requests that a model got, and those that the tools got.
struct Played {
    end: Option<End>,
    models: usize,
    refunds: Vec<String>,
}

/// Plays the clerk against a model, with one person who approves the refund. `handle`: changes of its step.
async fn play(model: impl Fn(usize, &Value) -> Response + Send + Sync + 'static, handle: Value) -> Played {
    let answer = move |number: usize, request: &Received| model(number, &serde_json::from_str(&request.body).unwrap());
    let model = Loopback::start(answer).await.unwrap();
    let tools = Loopback::start(|_, request| loopback::text(200, request.what.clone())).await.unwrap();
    let mut workflow = clerk::workflow(&format!("{}/v1", model.url()), &tools.url());
    workflow["spec"]["agents"][0]["maxTokens"] = json!(500);
    workflow["spec"]["agents"][0]["temperature"] = json!(0.5);
    json_patch::merge(&mut workflow["spec"]["steps"][0], &handle);
    let ended = clerk::run(&workflow, vec![Answer::approves("420", "alice")]).await;
    let refunds = tools.received().into_iter().map(|got| format!("{} {}", got.what, got.body)).collect();
    Played { end: ended.end, models: model.received().len(), refunds }
}

/// Checks that the refund was paid once and that the run ended well, after `requests` requests to the model.
#[track_caller]
fn assert_paid_once(played: &Played, requests: usize) {
    assert_eq!(played.refunds, [format!("POST /refunds {REFUND}")]);
    assert_eq!(played.end, Some(End::Succeeded("done".to_owned())));
    assert_eq!(played.models, requests);
}

#[tokio::test]
async fn fields_of_a_server_are_sent_back_when_it_needs_them() {
    let own = json!({"google": {"thought_signature": "CiQB+/8="}});
    let with_fields = own.clone();
    let model = move |number: usize, request: &Value| {
        if number == 0 {
            let call = json!({"id": "a", "type": "function", "extra_content": with_fields,
                "function": {"name": "refund", "arguments": REFUND}});
            let message =
                json!({"role": "assistant", "content": null, "reasoning_content": "It is due.", "tool_calls": [call]});
            return loopback::json(&of_message(&message, "tool_calls"));
        }
        let said = repeated_message(request);
        if said["reasoning_content"] != "It is due." {
            return refusal("The `reasoning_content` in the thinking mode must be passed back to the API.");
        }
        if said["tool_calls"][0]["extra_content"] != own {
            return refusal("Function call `default_api:refund` is missing a `thought_signature`");
        }
        usual_answer(number)
    };
    assert_paid_once(&play(model, json!({})).await, 2);
}

#[tokio::test]
async fn fields_of_a_server_are_not_sent_back_when_it_refuses_them() {
    let model = |number: usize, request: &Value| {
        if number == 0 {
            let call = json!({"id": "a", "type": "function", "function": {"name": "refund", "arguments": REFUND}});
            let message =
                json!({"role": "assistant", "content": null, "reasoning": "It is due.", "tool_calls": [call]});
            return loopback::json(&of_message(&message, "tool_calls"));
        }
        if repeated_message(request).get("reasoning").is_some() {
            return refusal("'messages.2' : property 'reasoning' is unsupported");
        }
        usual_answer(number)
    };
    assert_paid_once(&play(model, json!({})).await, 3);
}

#[tokio::test]
async fn a_turn_is_repeated_once_after_an_empty_answer() {
    let model = |number: usize, _: &Value| match number {
        1 => loopback::json(&completion(Some(""), &[], "stop")),
        _ => usual_answer(number),
    };
    assert_paid_once(&play(model, json!({})).await, 3);
}

#[tokio::test]
async fn fields_that_a_server_refuses_are_sent_once() {
    let model = |number: usize, request: &Value| {
        if request.get("max_tokens").is_some() {
            return refusal(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            );
        }
        if request.get("temperature").is_some() {
            return refusal(
                "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.",
            );
        }
        assert_eq!(request["max_completion_tokens"], 500);
        usual_answer(number.saturating_sub(2))
    };
    assert_paid_once(&play(model, json!({})).await, 4);
}

#[tokio::test]
async fn a_server_that_only_streams_works() {
    let model = |number: usize, request: &Value| {
        if request["stream"] != true {
            return refusal("This model only supports streaming.");
        }
        ([("content-type", "text/event-stream")], stream_answer(number).concat()).into_response()
    };
    assert_paid_once(&play(model, json!({})).await, 2);
}

#[tokio::test]
async fn a_server_that_does_not_stream_works() {
    let model = |number: usize, request: &Value| match request.get("stream") {
        Some(_) => refusal("Unsupported parameter: `stream`"),
        None => usual_answer(number - 1),
    };
    assert_paid_once(&play(model, json!({})).await, 3);
}

#[tokio::test]
async fn a_turn_that_a_gateway_lost_after_the_refund_is_repeated() {
    for status in [504, 502, 503, 500, 408, 429] {
        let model = move |number: usize, _: &Value| match number {
            1 => loopback::text(status, "<html>upstream request timeout</html>"),
            _ => usual_answer(number),
        };
        assert_paid_once(&play(model, json!({"retry": null})).await, 3);
    }
}

#[tokio::test]
async fn a_turn_is_repeated_at_most_three_times_and_the_failure_names_the_refund() {
    let model = |number: usize, _: &Value| match number {
        0 => usual_answer(0),
        _ => loopback::text(503, json!({"error": {"message": "overloaded"}}).to_string()),
    };
    let backoff = json!({"retry": null});
    let played = play(model, backoff).await;
    assert_eq!((played.models, played.refunds.len()), (5, 1));
    let Some(End::Failed(why)) = played.end else { panic!("{:?}", played.end) };
    assert!(why.ends_with("503 Service Unavailable: overloaded; before that, its agent called refund"), "{why}");
    // A request that would fail again is not repeated.
    let played =
        play(|number, _| if number == 0 { usual_answer(0) } else { refusal("no such model") }, json!({"retry": null}))
            .await;
    assert_eq!((played.models, played.refunds.len()), (2, 1));
}

#[tokio::test]
async fn a_turn_whose_stream_broke_after_the_refund_is_repeated() {
    let model = |number: usize, _: &Value| match number {
        1 => ([("content-type", "text/event-stream")], stream_answer(1)[..1].concat()).into_response(),
        _ => usual_answer(number),
    };
    assert_paid_once(&play(model, json!({"retry": null})).await, 3);
}

#[tokio::test]
async fn calls_beside_a_text_are_made_whatever_the_finish_reason() {
    for finish in ["stop", "end_turn", ""] {
        let model = move |number: usize, _: &Value| match number {
            0 => loopback::json(&completion(Some("I pay it back."), &[("a", "refund", REFUND)], finish)),
            _ => loopback::json(&completion(Some("done"), &[], "tool_calls")),
        };
        assert_paid_once(&play(model, json!({})).await, 2);
    }
}

#[tokio::test]
async fn a_slow_answer_is_awaited() {
    let model = |number: usize, _: &Value| {
        let first: Bytes = ": waiting\n\n".into();
        let rest: Bytes = stream_answer(number).concat().into();
        let body = stream::unfold(0, move |step| {
            let (first, rest) = (first.clone(), rest.clone());
            async move {
                match step {
                    0 => Some((Ok::<_, Infallible>(first), 1)),
                    1 => {
                        tokio::time::sleep(Duration::from_millis(1500)).await;
                        Some((Ok(rest), 2))
                    }
                    _ => None,
                }
            }
        });
        Response::new(Body::from_stream(body))
    };
    assert_paid_once(&play(model, json!({})).await, 2);
}
