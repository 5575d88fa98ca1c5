//! Tests of HTTP steps: answers, limits, and the repetition of failed calls. Each test has at most one short deadline.

use std::time::Duration;

use signoff_executor::http::{AnswerBody, BodyRefused, HttpSettings};
use signoff_executor::{AddressSettings, CallError, ErrorClass, Http as _, HttpClient, HttpReply};

use crate::server::{Behaviour, Server, answer, client, get, post, settings};

#[tokio::test]
async fn a_call_sends_its_request_and_returns_the_answer() {
    let server = Server::answering("201 Created", "", "sent: ü").await;
    let mut request = post(server.url("/send?x=1"), "Dear ü");
    request.headers = vec![("X-Run".into(), "refund".into()), ("x-run".into(), "again".into())];
    let reply = client().call(request).await.unwrap();
    assert_eq!(reply, HttpReply { status: 201, body: "sent: ü".into(), replaced: false });
    let sent = &server.received()[0];
    assert!(sent.starts_with("POST /send?x=1 HTTP/1.1\r\n"), "{sent}");
    assert!(sent.contains("x-run: refund\r\nx-run: again\r\n"), "{sent}");
    assert!(sent.contains("content-type: text/plain; charset=utf-8\r\n"), "{sent}");
    assert!(sent.contains("user-agent: signoff/"), "{sent}");
    assert!(!sent.contains("accept-encoding"), "{sent}");
    assert!(sent.ends_with("\r\n\r\nDear ü"), "{sent}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Server::answering("200 OK", "", "the inside").await;
    let server = Server::answering("302 Found", &format!("location: {}\r\n", target.url("/")), "").await;
    let error = client().call(get(server.url("/"))).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Status(302));
    assert!(error.message.contains("redirects are not followed"), "{error}");
    assert!(target.received().is_empty());

    let mut expecting = get(server.url("/"));
    expecting.expect_status = vec![302];
    assert_eq!(client().call(expecting).await.unwrap().status, 302);
}

#[tokio::test]
async fn an_answer_that_never_ends_stops_at_the_limit() {
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    let server = Server::start(Behaviour::Endless(head, chunk)).await;
    let error = client().call(get(server.url("/log"))).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::TooLarge);
    assert!(error.message.ends_with("/log answered 200 OK with more than the limit of 4096 bytes"), "{error}");
    assert!(!error.retryable(true) && error.outcome_known());
}

#[tokio::test]
async fn an_announced_length_over_the_limit_is_refused_before_reading() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 4097\r\n\r\n".to_owned();
    let server = Server::start(Behaviour::Hang(head)).await;
    assert_eq!(client().call(get(server.url("/"))).await.unwrap_err().class, ErrorClass::TooLarge);
    let exact = Server::answering("200 OK", "", &"x".repeat(4096)).await;
    assert_eq!(client().call(get(exact.url("/"))).await.unwrap().body.len(), 4096);
}

#[tokio::test]
async fn an_endless_unexpected_answer_is_reported_by_its_status() {
    let chunk = format!("400\r\n{}\r\n", "no ".repeat(342).split_off(2));
    let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    let server = Server::start(Behaviour::Endless(head, chunk)).await;
    let error = client().call(get(server.url("/"))).await.unwrap_err();
    assert_eq!((error.class, error.retry_after), (ErrorClass::RateLimited, Some(Duration::from_secs(3))));
    assert!(error.message.len() < 400, "{error}");
}

#[tokio::test]
async fn a_slow_answer_times_out_and_leaves_the_outcome_of_a_post_unknown() {
    for head in ["", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"] {
        let server = Server::start(Behaviour::Hang(head.into())).await;
        let mut request = post(server.url("/pay"), "420 EUR");
        request.timeout = Duration::from_millis(100);
        let error = client().call(request).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Timeout, "{error}");
        assert!(error.message.contains("/pay gave no complete answer within 100ms"), "{error}");
        assert!(error.sent && !error.outcome_known() && !error.retryable(false) && error.retryable(true));
        assert_eq!(server.received().len(), 1, "a call is never repeated here");
    }
}

#[tokio::test]
async fn a_long_answer_that_stops_halfway_delays_no_other_long_answer() {
    let half = "x".repeat(300 * 1024);
    let stopped = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{half}", 2 * half.len());
    let (stopped, long) = (Server::start(Behaviour::Hang(stopped)).await, Server::answering("200 OK", "", &half).await);
    let settings = settings(AddressSettings::default().with_loopback());
    let client = HttpClient::new(HttpSettings { max_response: 2 * half.len(), ..settings }).unwrap();
    let other = get(stopped.url("/"));
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.call(other).await }
    });
    for _ in 0..3 {
        assert_eq!(client.call(get(long.url("/"))).await.unwrap().body.len(), half.len());
    }
    waiting.abort();
}

#[tokio::test]
async fn a_connection_that_breaks_after_a_post_leaves_its_outcome_unknown() {
    for bytes in [
        String::new(),
        "HTTP/1.1 200 OK\r\n".into(),
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".into(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n".into(),
        "this is not HTTP\r\n\r\n".into(),
    ] {
        let server = Server::start(Behaviour::Answer(bytes.clone())).await;
        let error = client().call(post(server.url("/pay"), "420 EUR")).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Protocol, "{bytes:?}: {error}");
        assert!(error.sent && !error.outcome_known() && !error.retryable(false), "{bytes:?}: {error}");
        assert!(error.retryable(true));
        assert_eq!(server.received().len(), 1, "a call is never repeated here");
    }
}

#[tokio::test]
async fn a_call_to_a_missing_server_is_not_sent() {
    // A port whose listener was closed before.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = client().call(post(format!("http://{gone}/pay"), "x")).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreachable, "{error}");
    assert!(!error.sent && error.outcome_known() && error.retryable(false));
    assert!(error.message.contains("was not sent, no connection: "), "{error}");
}

#[tokio::test]
async fn a_call_to_a_server_without_tls_is_not_sent() {
    let server = Server::start(Behaviour::Answer("HTTP/1.1 400 Bad Request\r\n\r\n".into())).await;
    let url = server.url("/").replace("http:", "https:");
    let error = client().call(post(url, "secret letter")).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreachable, "{error}");
    assert!(!error.sent);
    assert!(server.received().iter().all(|bytes| !bytes.contains("secret letter")));
}

#[tokio::test]
async fn a_status_becomes_a_class_with_the_servers_reason_on_one_line() {
    async fn call_that_fails(status: &str, headers: &str) -> CallError {
        let server = Server::answering(status, headers, "no:\r\n\u{1b}[31m \u{202e}not today").await;
        client().call(post(server.url("/pay?key=SECRET"), "x")).await.unwrap_err()
    }
    let rate = call_that_fails("429 Too Many Requests", "retry-after: 7\r\n").await;
    assert_eq!((rate.class, rate.retry_after), (ErrorClass::RateLimited, Some(Duration::from_secs(7))));
    assert!(rate.retryable(false));
    let server_error = call_that_fails("500 Internal Server Error", "").await;
    assert_eq!(server_error.class, ErrorClass::Status(500));
    assert!(server_error.retryable(true) && !server_error.retryable(false) && server_error.outcome_known());
    assert!(
        server_error.message.ends_with("/pay answered 500 Internal Server Error: no: [31m not today"),
        "{server_error}"
    );
    assert!(!server_error.message.contains("SECRET"));
    assert_eq!(call_that_fails("401 Unauthorized", "").await.class, ErrorClass::Auth(401));
    assert_eq!(call_that_fails("403 Forbidden", "").await.class, ErrorClass::Auth(403));
    assert_eq!(call_that_fails("404 Not Found", "").await.class, ErrorClass::Status(404));
    for gateway in ["504 Gateway Timeout", "503 Service Unavailable", "524 A Timeout Occurred"] {
        let lost = call_that_fails(gateway, "").await;
        assert!(!lost.outcome_known() && !lost.retryable(false) && lost.retryable(true), "{lost}");
    }
    let busy = call_that_fails("503 Service Unavailable", "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n").await;
    assert_eq!(busy.retry_after, Some(Duration::ZERO));
    assert!(busy.retryable(false));
}

#[tokio::test]
async fn a_success_that_was_not_expected_is_an_error() {
    let server = Server::answering("202 Accepted", "", "later").await;
    let mut request = get(server.url("/"));
    request.expect_status = vec![200];
    assert_eq!(client().call(request).await.unwrap_err().class, ErrorClass::Status(202));
}

#[tokio::test]
async fn a_header_value_that_the_server_quotes_is_not_repeated() {
    let server = Server::answering("401 Unauthorized", "", "unknown key sk-12345678").await;
    let mut request = get(server.url("/"));
    request.headers = vec![("authorization".into(), "Bearer sk-12345678".into())];
    let error = client().call(request).await.unwrap_err();
    assert!(error.message.ends_with("unknown key [redacted]"), "{error}");
}

#[tokio::test]
async fn bytes_that_are_not_text_are_replaced_and_reported() {
    let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\na\xffb";
    let server = Server::start(Behaviour::Bytes(bytes)).await;
    let reply = client().call(get(server.url("/"))).await.unwrap();
    assert_eq!((reply.body.as_str(), reply.replaced), ("a\u{fffd}b", true));
}

#[tokio::test]
async fn a_wrong_request_is_refused_before_anything_is_sent() {
    let server = Server::answering("200 OK", "", "").await;
    let with_header = |name: &str, value: &str| {
        let mut request = get(server.url("/"));
        request.headers = vec![(name.into(), value.into())];
        request
    };
    let with_method = |method: &str| {
        let mut request = get(server.url("/"));
        request.method = method.into();
        request
    };
    let mut at_once = get(server.url("/"));
    at_once.timeout = Duration::ZERO;
    let mut never = get(server.url("/"));
    never.timeout = Duration::MAX;
    for request in [
        with_header("Host", "evil"),
        with_header("Content-Length", "5"),
        with_header("Transfer-Encoding", "chunked"),
        with_header("Connection", "x-run"),
        with_header("Accept-Encoding", "gzip"),
        with_header("a b", "c"),
        with_header("x-run", "SECRET\r\nx-evil: 1"),
        with_header("x-run", "SECRET\nx-evil: 1"),
        with_header("x-run", "SECRET\rx-evil: 1"),
        with_header("x-run", "SECRET\n"),
        with_method("CONNECT"),
        with_method("get"),
        with_method("GET / HTTP/1.1\r\n"),
        at_once,
        never,
        get("not a url"),
        get("ftp://127.0.0.1/"),
    ] {
        let error = client().call(request.clone()).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Invalid, "{request:?}: {error}");
        assert!(!error.sent && !error.retryable(true));
        assert!(!error.message.contains("SECRET") && !error.message.contains('\n'), "{error}");
    }
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn a_connection_is_never_used_twice() {
    // An answer that leaves the connection open: only a client without kept connections sends the second call on a new
    // one.
    let server = Server::start(Behaviour::Hang(answer("200 OK", "", "ok"))).await;
    let client = client();
    for _ in 0..2 {
        assert_eq!(client.call(get(server.url("/"))).await.unwrap().body, "ok");
    }
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn the_answer_to_head_is_not_limited_by_the_length_of_the_file() {
    let server = Server::start(Behaviour::Answer("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n".into())).await;
    let mut request = get(server.url("/file"));
    request.method = "HEAD".into();
    assert_eq!(client().call(request).await.unwrap().body, "");
}

/// A reader that needs four bytes of a body.
struct FourBytes(Vec<u8>);

impl AnswerBody for FourBytes {
    fn limit(&self) -> usize {
        4096
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), BodyRefused> {
        self.0.extend_from_slice(piece);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.0.len() >= 4
    }
}

#[tokio::test]
async fn an_answer_is_read_only_as_far_as_needed() {
    let head = "HTTP/1.1 200 OK\r\nX-One: 1\r\nx-two: a\r\nx-two: b\r\nx-three: \u{fc}\r\n\r\ndone";
    let server = Server::start(Behaviour::Hang(head.to_owned())).await;
    let mut body = FourBytes(Vec::new());
    let answer = client().exchange(&mut get(server.url("/")), &mut body).await.unwrap();
    assert_eq!((answer.code(), body.0.as_slice(), answer.beginning()), (200, &b"done"[..], &b""[..]));
    assert_eq!(answer.header("x-one"), Some("1"));
    for ambiguous in ["x-two", "x-three", "x-four"] {
        assert_eq!(answer.header(ambiguous), None, "{ambiguous}");
    }
}
