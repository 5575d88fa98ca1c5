//! Tests of model turns with a server of OpenAI's chat completions, valid and invalid.
//!
//! **Invariant:** no error and no `Debug` output shows a key or a prompt.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_api::{
    journal::Usage,
    turn::{RequestedArguments, RequestedCall},
    workflow::{OpenAi, Provider, Scripted, ScriptedReply},
};
use signoff_engine::transition::{Message, Role};
use signoff_executor::{
    CallError, ErrorClass, Model as _, Providers, SecretText, TurnReply, TurnRequest, UnboundedRoom,
};

use crate::server::{Behaviour, Server, client};

pub(crate) const KEY: &str = "sk-test-12345678";
const PROMPT: &str = "Refund 420 EUR to ACME, account 12-345, at once.";

pub(crate) fn request(base_url: String) -> TurnRequest {
    TurnRequest {
        provider: Provider {
            openai: Some(OpenAi { base_url: Some(base_url), ..OpenAi::default() }),
            ..Provider::default()
        },
        namespace: "finance".into(),
        model: "small".into(),
        system: Some("You write short, polite letters.".into()),
        messages: vec![
            Message::text(Role::User, "hello"),
            Message::text(Role::Assistant, "hi"),
            Message::text(Role::User, PROMPT),
        ],
        tools: vec![],
        max_tokens: Some(100),
        temperature: Some(0.5),
        timeout: Duration::from_secs(5),
        key: Some(SecretText::from(format!("{KEY}\n"))),
    }
}

/// Returns a scripted provider with the given replies.
pub(crate) fn scripted(replies: Vec<ScriptedReply>) -> Provider {
    Provider { scripted: Some(Scripted { replies }), ..Provider::default() }
}

fn completion(content: Value, finish: &str) -> String {
    json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 21, "completion_tokens": 3, "total_tokens": 24},
    })
    .to_string()
}

/// Makes a turn at a server.
async fn turn_at(server: &Server) -> Result<TurnReply, CallError> {
    Providers::new(client()).turn(request(server.url("/v1/")), &UnboundedRoom).await
}

/// Makes a turn at a server that answers with a status line, headers and a body.
async fn turn_with_answer(status: &str, headers: &str, body: &str) -> Result<TurnReply, CallError> {
    turn_at(&Server::answering(status, headers, body).await).await
}

/// Makes a turn that fails, and checks the properties of every error. Returns the error.
async fn turn_with_failure(status: &str, headers: &str, body: &str) -> CallError {
    let error = turn_with_answer(status, headers, body).await.unwrap_err();
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains(KEY) && !text.contains("ACME") && !text.contains('\n'), "{text}");
        assert!(text.len() < 700, "{text}");
    }
    error
}

#[tokio::test]
async fn a_turn_sends_the_conversation_and_the_key_and_records_usage() {
    let server = Server::answering("200 OK", "", &completion(json!("Dear ACME"), "stop")).await;
    let reply = turn_at(&server).await.unwrap();
    assert_eq!(reply.text, "Dear ACME");
    assert_eq!(reply.usage, Some(Usage { input_tokens: 21, output_tokens: 3, ..Usage::default() }));
    assert!(!reply.truncated);

    let sent = &server.received()[0];
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("authorization: Bearer {KEY}\r\n")), "{head}");
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    assert_eq!(
        serde_json::from_str::<Value>(body).unwrap(),
        json!({
            "model": "small",
            "messages": [
                {"role": "system", "content": "You write short, polite letters."},
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": "hi"},
                {"role": "user", "content": PROMPT},
            ],
            "max_tokens": 100,
            "temperature": 0.5,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
}

#[tokio::test]
async fn a_turn_without_key_and_options_sends_none() {
    let server = Server::answering("200 OK", "", &completion(json!("ok"), "stop")).await;
    let bare =
        TurnRequest { key: None, system: None, max_tokens: None, temperature: None, ..request(server.url("/v1")) };
    Providers::new(client()).turn(bare, &UnboundedRoom).await.unwrap();
    let sent = &server.received()[0];
    assert!(!sent.contains("authorization") && !sent.contains("max_tokens") && !sent.contains("temperature"), "{sent}");
    assert!(!sent.contains("system"), "{sent}");
}

#[tokio::test]
async fn an_answer_can_be_in_parts_truncated_or_without_usage() {
    let parts = json!([{"type": "text", "text": "Dear "}, {"type": "text", "text": "ACME"}]);
    assert_eq!(turn_with_answer("200 OK", "", &completion(parts, "stop")).await.unwrap().text, "Dear ACME");
    assert!(turn_with_answer("200 OK", "", &completion(json!("Dear"), "length")).await.unwrap().truncated);
    let bare = json!({"choices": [{"message": {"content": "ok"}}]}).to_string();
    let reply = turn_with_answer("200 OK", "", &bare).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.usage), ("ok", None));
}

#[tokio::test]
async fn an_error_status_has_its_class_and_retry_after() {
    let body = json!({"error": {"message": "slow down", "type": "rate_limit"}}).to_string();
    let rate = turn_with_failure("429 Too Many Requests", "retry-after: 20\r\n", &body).await;
    assert_eq!((rate.class, rate.retry_after), (ErrorClass::RateLimited, Some(Duration::from_secs(20))));
    assert!(rate.message.starts_with("model small at http://127.0.0.1:"), "{rate}");
    assert!(rate.message.ends_with("/v1/chat/completions answered 429 Too Many Requests: slow down"), "{rate}");

    let auth = turn_with_failure(
        "401 Unauthorized",
        "",
        &json!({"error": {"message": format!("Incorrect API key: {KEY}")}}).to_string(),
    )
    .await;
    assert_eq!(auth.class, ErrorClass::Auth(401));
    assert!(auth.message.ends_with("Incorrect API key: [redacted]"), "{auth}");

    let down = turn_with_failure("500 Internal Server Error", "", "<html>\nACME oops").await;
    assert_eq!(down.class, ErrorClass::Status(500));
    assert!(down.message.ends_with("500 Internal Server Error") && down.retryable(true), "{down}");

    let missing = turn_with_failure("404 Not Found", "", r#"{"error": "no such model"}"#).await;
    assert!(missing.message.ends_with("404 Not Found: no such model"), "{missing}");
    for body in ["<html>ACME</html>", "", r#"{"detail": "Not Found"}"#] {
        let missing = turn_with_failure("404 Not Found", "", body).await;
        assert!(missing.message.ends_with("404 Not Found: is baseURL right?"), "{missing}");
    }
}

#[tokio::test]
async fn a_long_retry_after_is_part_of_the_message() {
    let body = r#"{"error": "no quota"}"#;
    let long = turn_with_failure("429 Too Many Requests", "retry-after: 5400\r\n", body).await;
    assert!(long.message.ends_with("Requests: no quota; it asks to wait 1h30m (Retry-After)"), "{long}");
    let short = turn_with_failure("429 Too Many Requests", "retry-after: 300\r\n", body).await;
    assert!(short.message.ends_with("Requests: no quota"), "{short}");
}

#[tokio::test]
async fn a_page_of_html_is_named_in_the_error() {
    for body in ["<html>ACME</html>", "\n <!DOCTYPE html><p>ACME", "\u{feff}<html>"] {
        let page = turn_with_failure("200 OK", "content-type: text/html\r\n", body).await;
        assert_eq!(page.class, ErrorClass::Protocol);
        let expected = "answered something other than a chat completion: an HTML page, not JSON; is baseURL right?";
        assert!(page.message.ends_with(expected), "{page}");
    }
}

#[tokio::test]
async fn a_provider_that_quotes_the_prompt_is_not_quoted() {
    let body = json!({"error": {"message": format!("content violates policy: {PROMPT}")}}).to_string();
    let error = turn_with_failure("400 Bad Request", "", &body).await;
    assert!(error.message.ends_with("(the provider's message quotes the prompt and is left out)"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_no_completion_is_a_protocol_error() {
    for (body, expected) in [
        ("Dear ACME {".to_owned(), "answered something other than a chat completion (JSON line 1, column 1)"),
        (String::new(), "answered something other than a chat completion"),
        ("[1]".to_owned(), "answered something other than a chat completion"),
        (r#"{"choices": "ACME"}"#.to_owned(), "answered something other than a chat completion"),
        (r#"{"choices": []}"#.to_owned(), "answered without any choice"),
        (r#"{"object": "list"}"#.to_owned(), "answered without any choice"),
        (r#"{"choices": [{}]}"#.to_owned(), "answered a choice without a message"),
        (r#"{"error": {"message": "backend\ngone"}}"#.to_owned(), "answered an error: backend gone"),
        (format!("{}1{}", "[".repeat(1000), "]".repeat(1000)), "answered something other than a chat completion"),
    ] {
        let error = turn_with_failure("200 OK", "", &body).await;
        assert_eq!(error.class, ErrorClass::Protocol, "{body}: {error}");
        assert!(error.message.contains(expected), "{body}: {error}");
        assert!(error.retryable(true), "a turn has no effects");
    }
}

#[tokio::test]
async fn an_answer_without_text_and_calls_is_empty() {
    for (content, finish) in [(Value::Null, "tool_calls"), (json!(""), "stop"), (json!([]), "length")] {
        let reply = turn_with_answer("200 OK", "", &completion(content, finish)).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.calls.len(), reply.truncated), ("", 0, finish == "length"));
    }
}

#[tokio::test]
async fn a_model_that_declines_is_refused_and_not_asked_again() {
    let filtered = turn_with_failure("200 OK", "", &completion(json!(""), "content_filter")).await;
    let body = json!({"choices": [{"message": {"content": null, "refusal": "I will not"}, "finish_reason": "stop"}]});
    let declined = turn_with_failure("200 OK", "", &body.to_string()).await;
    for error in [filtered, declined] {
        assert_eq!(error.class, ErrorClass::Refused);
        assert!(error.message.contains("declined to answer") && !error.retryable(true), "{error}");
    }
}

#[tokio::test]
async fn an_answer_is_bounded_in_size_and_time() {
    let huge = turn_with_failure("200 OK", "", &completion(json!("x".repeat(5000)), "stop")).await;
    assert_eq!(huge.class, ErrorClass::TooLarge);
    let server = Server::start(Behaviour::Hang(String::new())).await;
    let hasty = TurnRequest { timeout: Duration::from_millis(100), ..request(server.url("/v1")) };
    let slow = Providers::new(client()).turn(hasty, &UnboundedRoom).await.unwrap_err();
    assert_eq!(slow.class, ErrorClass::Timeout);
}

#[tokio::test]
async fn a_base_url_that_is_refused_or_wrong_sends_nothing() {
    for (base_url, class) in [
        ("http://169.254.169.254/v1", ErrorClass::Refused),
        ("https://models.example.com/v1?api-key=hunter2", ErrorClass::Invalid),
        ("https://models.example.com/v1#hunter2", ErrorClass::Invalid),
        ("https://dana:hunter2@models.example.com/v1", ErrorClass::Invalid),
        ("models.example.com/v1", ErrorClass::Invalid),
        ("", ErrorClass::Invalid),
    ] {
        let error = Providers::new(client()).turn(request(base_url.into()), &UnboundedRoom).await.unwrap_err();
        assert_eq!(error.class, class, "{base_url}: {error}");
        assert!(!error.sent && !error.to_string().contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_key_that_fits_no_header_is_refused_without_being_shown() {
    let server = Server::answering("200 OK", "", "").await;
    let broken = TurnRequest { key: Some(SecretText::from("sk-te\nst")), ..request(server.url("/v1")) };
    let error = Providers::new(client()).turn(broken, &UnboundedRoom).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Invalid);
    assert!(!error.message.contains("sk-te"), "{error}");
}

#[tokio::test]
async fn the_scripted_provider_answers_without_any_server() {
    let replies = vec![ScriptedReply {
        contains: Some("ACME".into()),
        text: Some("Dear ACME".into()),
        ..ScriptedReply::default()
    }];
    let scripted = TurnRequest { provider: scripted(replies), ..request(String::new()) };
    let reply = Providers::new(client()).turn(scripted, &UnboundedRoom).await.unwrap();
    assert_eq!(reply.text, "Dear ACME");
    assert_eq!(reply.usage, Some(Usage { input_tokens: 16, output_tokens: 2, ..Usage::default() }));
}

#[test]
fn debug_shows_neither_key_nor_prompt_nor_answer() {
    let shown = format!("{:?}", request("https://models.example.com".into()));
    assert!(!shown.contains(KEY) && !shown.contains("ACME") && !shown.contains("polite"), "{shown}");
    let call =
        RequestedCall { id: "a".into(), tool: "ACME".into(), arguments: RequestedArguments::Text("ACME".into()) };
    let reply = TurnReply {
        text: "Dear ACME".into(),
        calls: vec![call],
        dropped: 0,
        opaque: None,
        usage: None,
        truncated: false,
    };
    assert!(!format!("{reply:?}").contains("ACME") && !format!("{:?}", reply.calls).contains("ACME"));
}
