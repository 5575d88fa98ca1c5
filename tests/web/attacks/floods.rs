//! Excess: bodies, connections, streams, attempts. Other users can still use the page.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::visitor::{FORM, Visitor, requests_of_users, send_raw, token};
use crate::harness::Harness;
use crate::runs::path;

/// The longest wait for an answer of the page.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn body_of_more_than_a_mebibyte_is_refused_without_reading_it() {
    let (harness, [runs]) = Harness::with_runs(["bodies"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let alice = Visitor::of(&harness, "alice").await;
    let decide = format!("{}/decide", path(&approval));
    let origin = ("origin", alice.url.as_str());
    harness.witness.forget();
    let huge = format!("reason={}", "x".repeat(2 * 1024 * 1024));
    let host = alice.url.strip_prefix("http://").unwrap();
    for to in [&decide, "/sign-in/token", "/namespaces", "/sign-out"] {
        // The head announces a huge body, and the page does not wait for the body.
        let head = format!(
            "POST {to} HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\nOrigin: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            alice.cookie(),
            alice.url,
            FORM.1,
            huge.len()
        );
        let (status, answer) = timeout(ANSWER_TIMEOUT, send_raw(host, &head)).await.unwrap();
        assert_eq!(status, 413, "{to}: {answer}");
    }
    // The length is not announced, and the body is too long.
    let part = format!("{:x}\r\n{huge}\r\n0\r\n\r\n", huge.len());
    let head = format!(
        "POST {decide} HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\nOrigin: {}\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{part}",
        alice.cookie(),
        alice.url,
        FORM.1
    );
    let mut stream = TcpStream::connect(host).await.unwrap();
    // The page may close the connection before it has read the whole body.
    let _ = timeout(ANSWER_TIMEOUT, stream.write_all(head.as_bytes())).await.unwrap();
    assert!(runs.read_decision(&approval, "alice").await.is_null());
    assert!(!requests_of_users(&harness.witness).iter().any(|seen| seen.method == http::Method::PATCH));
    // A request with both lengths could smuggle a second request.
    let both = format!(
        "POST {decide} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"
    );
    assert!([400, 403].contains(&timeout(ANSWER_TIMEOUT, send_raw(host, &both)).await.unwrap().0));
    let long = "x".repeat(100_000);
    let (status, _) = alice.send_raw("GET", &format!("/?{long}"), "").await;
    assert!([400, 414, 431].contains(&status), "{status}");
    let long_answer = alice.send("POST", &decide, &[origin, FORM], Some("a=b&".repeat(100_000))).await;
    assert!([409, 413, 422].contains(&long_answer.status), "{}", long_answer.status);
    assert_eq!(alice.get("/").await.status, 200);
}

#[tokio::test]
async fn slow_and_half_open_connections_do_not_stop_others() {
    let harness = Harness::start().await.unwrap();
    let alice = Visitor::of(&harness, "alice").await;
    let host = alice.url.strip_prefix("http://").unwrap();
    let mut slow = Vec::new();
    for n in 0..300 {
        let mut stream = TcpStream::connect(host).await.unwrap();
        let begun =
            ["", "GET", "GET / HTTP/1.1\r\nHost: ", "POST /sign-in/token HTTP/1.1\r\nContent-Length: 1000\r\n\r\ntok"];
        stream.write_all(begun[n % begun.len()].as_bytes()).await.unwrap();
        slow.push(stream);
    }
    for _ in 0..20 {
        let answer = timeout(Duration::from_secs(5), alice.get("/")).await.expect("the page waits for the slow ones");
        assert_eq!(answer.status, 200);
    }
    assert_eq!(harness.web.health("/healthz").await.unwrap().0, 200);
    drop(slow);
}

#[tokio::test]
async fn token_beyond_the_bound_gets_no_live_updates_but_an_error() {
    let harness = Harness::start_with(|options| options.arguments = vec!["--max-live=2".to_owned()]).await.unwrap();
    let alice = Visitor::of(&harness, "alice").await;
    let bob = Visitor::of(&harness, "bob").await;
    let carol = Visitor::of(&harness, "carol").await;
    let (one, two) =
        (alice.send_open("GET", "/events", &[], None).await, bob.send_open("GET", "/events", &[], None).await);
    assert_eq!((one.status().as_u16(), two.status().as_u16()), (200, 200));
    for page in ["/events", "/"] {
        let answer = carol.get(page).await;
        assert_eq!(answer.status, 429, "{page}: {}", answer.text);
        assert!(answer.text.contains("--max-live") && answer.text.contains("kubectl approve list"), "{}", answer.text);
    }
    // Another tab of a user with an open page is no further token.
    assert_eq!(alice.send_open("GET", "/events", &[], None).await.status(), 200);
    assert_eq!(carol.get("/policies").await.status, 200, "what follows nothing goes on");
    assert_eq!(bob.post("/sign-out", &[]).await.status, 303);
    assert_eq!(carol.get("/").await.status, 200, "bob has made room");
    drop((one, two));
}

#[tokio::test]
async fn sign_out_ends_only_the_streams_of_its_token() {
    let harness = Harness::start().await.unwrap();
    let person = |groups: &str| format!("email=stream@example.com&groups={groups}");
    let (one, two) = (token(&harness, &person("one")).await, token(&harness, &person("two")).await);
    let (one, two) = (Visitor::with_token(&harness.web, &one).await, Visitor::with_token(&harness.web, &two).await);
    let (mut ends, mut stays) =
        (one.send_open("GET", "/events", &[], None).await, two.send_open("GET", "/events", &[], None).await);
    assert!(ends.chunk().await.unwrap().is_some() && stays.chunk().await.unwrap().is_some());
    assert_eq!(ends.headers()["content-type"], "text/event-stream");
    assert_eq!(one.post("/sign-out", &[]).await.status, 303);
    let over = timeout(Duration::from_secs(10), async { while let Ok(Some(_)) = ends.chunk().await {} });
    over.await.expect("its stream ends at sign-out");
    assert!(timeout(Duration::from_millis(500), stays.chunk()).await.is_err(), "the other one goes on");
}

#[tokio::test]
async fn too_many_bad_tokens_of_one_address_are_refused_without_the_api_server() {
    let harness = Harness::start().await.unwrap();
    let stranger = Visitor::stranger(&harness.web);
    let alice = Visitor::of(&harness, "alice").await;
    let mut refused = 0;
    for n in 0..200 {
        // The header is ignored, because no proxy is configured.
        let address = format!("192.0.2.{n}");
        let headers = [("origin", stranger.url.as_str()), FORM, ("x-forwarded-for", address.as_str())];
        let answer = stranger.send("POST", "/sign-in/token", &headers, Some(format!("token=guess-{n}"))).await;
        match answer.status {
            401 => assert_eq!(refused, 0, "first it is taken, and then it is not"),
            429 => refused += 1,
            other => panic!("{other}: {}", answer.text),
        }
    }
    assert!(refused > 20, "{refused} of 200");
    let tried = requests_of_users(&harness.witness)
        .iter()
        .filter(|seen| seen.token().is_some_and(|token| token.starts_with("guess")))
        .count();
    assert_eq!(tried, 200 - refused, "what is stopped is not asked");
    assert_eq!(alice.get("/").await.status, 200, "who has signed in goes on");
}
