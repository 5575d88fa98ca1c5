//! Tests of requests with headers from Secrets: only the server gets the value.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use signoff_api::workflow::SecretEntry;
use signoff_engine::transition::{Call, CallContent, Failure, HttpCall, Reply, SentSecret};
use signoff_executor::{
    CallError, Caller as _, Clock, DefaultCaller, Providers, RunRef, SecretText, Secrets, UnboundedRoom, host_allowed,
    secrets::{FoundSecret, SecretUse},
};

use crate::server::{Behaviour, Server, client};

const VALUE: &str = "crm+token/with=\"16\"bytes";

/// One Secret with a value and a list of hosts.
struct OneSecret {
    value: &'static str,
    hosts: String,
}

#[async_trait]
impl Secrets for OneSecret {
    async fn read(&self, _: &str, name: &str, _: &str, wanted: SecretUse<'_>) -> Result<FoundSecret, CallError> {
        host_allowed(name, Some(self.hosts.as_str()), wanted)?;
        Ok(FoundSecret { value: SecretText::from(self.value), version: Some("uid u-1, version 7".to_owned()) })
    }
}

/// Returns a POST to a URL with the header `Authorization` from the Secret `vault`.
fn post(url: String) -> HttpCall {
    let entry = SecretEntry { name: "crm".into(), secret: "vault".into(), key: "token".into() };
    HttpCall {
        method: "POST".into(),
        url,
        headers: BTreeMap::new(),
        secret_headers: vec![SentSecret { header: "Authorization".into(), prefix: "Bearer ".into(), entry }],
        body: Some("420 EUR".into()),
        expect_status: vec![],
    }
}

async fn call(secret: OneSecret, http: HttpCall) -> Result<Reply, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(jiff::Timestamp::now);
    let caller = DefaultCaller::new(Arc::new(client()), Arc::new(Providers::new(client())), Arc::new(secret), clock);
    let content = CallContent::Http(http);
    let call = Call { path: "pay".into(), attempt: 1, idempotent: false, timeout: Duration::from_secs(5), content };
    let run = RunRef { namespace: "finance".into(), workflow: "letters".into(), uid: "u".into() };
    caller.call(&run, call, &UnboundedRoom).await
}

/// Calls a server that the Secret lists.
async fn call_listed(server: &Server, http: HttpCall) -> Result<Reply, Failure> {
    call(OneSecret { value: VALUE, hosts: server.url("") }, http).await
}

#[tokio::test]
async fn an_echo_of_the_value_reaches_neither_the_response_nor_the_facts() {
    let json = serde_json::to_string(VALUE).unwrap();
    let percent = VALUE.replace('+', "%2B").replace('/', "%2f").replace('=', "%3D").replace('"', "%22");
    let echo = format!("{{\"a\": {json}, \"b\": \"{percent}\", \"c\": \"{}\"}}", STANDARD.encode(VALUE));
    let server = Server::answering("200 OK", &format!("x-echo: {percent}\r\n"), &echo).await;
    let reply = call_listed(&server, post(server.url("/headers"))).await.unwrap();
    let sent = &server.received()[0];
    assert!(sent.contains(&format!("authorization: Bearer {VALUE}\r\n")), "{sent}");
    let response = reply.response.as_str().unwrap();
    assert!(response.starts_with(r#"{"a": "[redacted]", "b": "[redacted]", "c": "[redacted]"#), "{response}");
    let facts: Vec<_> = reply.facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(facts, [("secret:crm", "uid u-1, version 7"), ("statusCode", "200")]);
}

#[tokio::test]
async fn a_value_over_the_border_of_two_chunks_is_removed() {
    let (first, second) = VALUE.split_at(9);
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let answer = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}{}0\r\n\r\n",
        chunk(&format!("you sent {first}")),
        chunk(&format!("{second}, thank you"))
    );
    let server = Server::start(Behaviour::Answer(answer)).await;
    let reply = call_listed(&server, post(server.url("/"))).await.unwrap();
    assert_eq!(reply.response, "you sent [redacted], thank you");
}

#[tokio::test]
async fn an_error_quotes_no_value_and_names_the_entry() {
    for (status, class) in [("401 Unauthorized", "Auth"), ("500 Internal Server Error", "Status")] {
        let server = Server::answering(status, "", &format!("unknown: Bearer {VALUE}")).await;
        let failure = call_listed(&server, post(server.url("/pay"))).await.map(drop).unwrap_err();
        assert_eq!(failure.class, class);
        assert!(failure.message.contains("unknown: Bearer [redacted]"), "{}", failure.message);
        assert_eq!(failure.message.ends_with("; it was sent crm of spec.secrets: check the value"), class == "Auth");
        assert_eq!(failure.facts["secret:crm"], "uid u-1, version 7");
    }
    // The answer is cut within the value.
    let (beginning, _) = VALUE.split_at(12);
    let head = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: 999\r\n\r\nunknown {beginning}");
    let server = Server::start(Behaviour::Answer(head)).await;
    let failure = call_listed(&server, post(server.url("/pay"))).await.map(drop).unwrap_err();
    assert!(failure.message.ends_with("unknown [redacted]"), "{}", failure.message);
}

#[tokio::test]
async fn a_redirect_does_not_send_the_value() {
    let target = Server::answering("200 OK", "", "the inside").await;
    for status in ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let location = format!("location: {}\r\n", target.url(&format!("/{VALUE}").replace('"', "%22")));
        let server = Server::answering(status, &location, "").await;
        let failure = call_listed(&server, post(server.url("/"))).await.map(drop).unwrap_err();
        assert!(failure.message.contains("redirects are not followed"), "{}", failure.message);
        assert!(!failure.message.contains("token"), "{}", failure.message);
        let mut expected = post(server.url("/"));
        expected.expect_status = vec![302, 307, 308];
        assert!(call_listed(&server, expected).await.is_ok());
    }
    assert_eq!(target.received(), [] as [String; 0]);
}

#[tokio::test]
async fn nothing_is_sent_if_the_server_or_the_value_is_refused() {
    let server = Server::answering("200 OK", "", "ok").await;
    let host = server.address.to_string();
    let listed = server.url("");
    for (value, hosts, class) in [
        (VALUE, "", "Refused"),
        (VALUE, host.as_str(), "Refused"),
        (VALUE, "127.0.0.1", "Refused"),
        (VALUE, "http://127.0.0.1:1", "Refused"),
        ("hunter2-hunter2", listed.as_str(), "Invalid"),
        ("hunter2-hunter2-\nx-evil: 1", listed.as_str(), "Invalid"),
    ] {
        let secret = OneSecret { value, hosts: hosts.to_owned() };
        let failure = call(secret, post(server.url("/"))).await.map(drop).unwrap_err();
        assert_eq!((failure.class.as_str(), failure.unknown), (class, false), "{hosts}: {}", failure.message);
        assert!(!failure.message.contains("hunter2") && !failure.message.contains("crm+"), "{}", failure.message);
    }
    assert_eq!(server.received(), [] as [String; 0]);
    let twin = OneSecret { value: "hunter2-hunter2-", hosts: listed };
    assert!(call(twin, post(server.url("/"))).await.is_ok());
}

#[tokio::test]
async fn two_headers_of_one_name_are_refused() {
    let server = Server::answering("200 OK", "", "ok").await;
    let mut plain = post(server.url("/"));
    plain.headers.insert("AUTHORIZATION".into(), "Basic x".into());
    let mut twice = post(server.url("/"));
    twice.secret_headers.extend(twice.secret_headers.clone());
    for http in [plain, twice] {
        let failure = call_listed(&server, http).await.map(drop).unwrap_err();
        assert!(failure.message.contains("two headers are named authorization"), "{}", failure.message);
    }
    assert_eq!(server.received(), [] as [String; 0]);
}

#[tokio::test]
async fn the_value_of_one_call_is_not_removed_from_the_answer_of_another() {
    let server = Server::answering("200 OK", "", VALUE).await;
    let mut without = post(server.url("/"));
    without.secret_headers.clear();
    assert_eq!(call_listed(&server, without).await.unwrap().response, VALUE);
}

#[tokio::test]
async fn a_refused_address_is_sent_nothing() {
    let client = signoff_executor::HttpClient::new(crate::server::settings(Default::default())).unwrap();
    let server = Server::answering("200 OK", "", "ok").await;
    let clock: Arc<dyn Clock> = Arc::new(jiff::Timestamp::now);
    let secret = OneSecret { value: VALUE, hosts: server.url("") };
    let caller =
        DefaultCaller::new(Arc::new(client.clone()), Arc::new(Providers::new(client)), Arc::new(secret), clock);
    let content = CallContent::Http(post(server.url("/")));
    let call = Call { path: "pay".into(), attempt: 1, idempotent: false, timeout: Duration::from_secs(5), content };
    let run = RunRef { namespace: "finance".into(), workflow: "letters".into(), uid: "u".into() };
    let failure = caller.call(&run, call, &UnboundedRoom).await.map(drop).unwrap_err();
    assert_eq!((failure.class.as_str(), failure.unknown), ("Refused", false), "{}", failure.message);
    assert_eq!(server.received(), [] as [String; 0]);
}
