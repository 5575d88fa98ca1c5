//! Tests of requests to servers of tools: keys, filters, and the meaning of each ending for a run.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::json;
use signoff_api::{
    Digest,
    catalogue::{Catalogue, Listing},
    workflow::SecretEntry,
};
use signoff_engine::transition::{Call, CallContent};

use super::*;
use crate::{
    AnswerRoom, Caller as _, Clock, Http, HttpReply, HttpRequest, Model, SecretText, Secrets, ToolOutput, TurnReply,
    TurnRequest, UnboundedRoom, host_allowed,
    secrets::{FoundSecret, SecretUse},
};

const VALUE: &str = "crm-0123456789abcdef";

/// A client of servers with a fixed answer, which records its requests.
struct Fake {
    catalogue: Catalogue,
    answer: Result<ToolEnding, CallError>,
    asked: Mutex<Vec<(ToolServer, Option<ToolRequest>)>>,
}

#[async_trait]
impl ToolServers for Fake {
    async fn catalogue(&self, server: &ToolServer, _: Duration) -> Result<ListedTools, CallError> {
        self.asked.lock().unwrap().push((server.clone(), None));
        self.answer.clone().map(|_| ListedTools { protocol: "2026-07-28", catalogue: self.catalogue.clone() })
    }

    async fn call(&self, server: &ToolServer, request: ToolRequest, _: Duration) -> Result<ToolReply, CallError> {
        self.asked.lock().unwrap().push((server.clone(), Some(request)));
        self.answer.clone().map(|ending| ToolReply { protocol: "2026-07-28", ending })
    }
}

/// The other clients of a caller, with one Secret.
struct Rest {
    value: &'static str,
    hosts: &'static str,
}

#[async_trait]
impl Http for Rest {
    async fn call(&self, _: HttpRequest) -> Result<HttpReply, CallError> {
        panic!("no request is made")
    }
}

#[async_trait]
impl Model for Rest {
    async fn turn(&self, _: TurnRequest, _: &dyn AnswerRoom) -> Result<TurnReply, CallError> {
        panic!("no turn is made")
    }
}

#[async_trait]
impl Secrets for Rest {
    async fn read(&self, _: &str, name: &str, _: &str, wanted: SecretUse<'_>) -> Result<FoundSecret, CallError> {
        host_allowed(name, Some(self.hosts), wanted)?;
        Ok(FoundSecret { value: SecretText::from(self.value), version: Some("uid u-1, version 7".to_owned()) })
    }
}

fn definition() -> Digest {
    Digest::of_bytes(b"refund")
}

fn tool_call() -> McpToolCall {
    McpToolCall {
        tool: "refund".into(),
        arguments: json!({"id": "7"}).as_object().cloned().unwrap(),
        definition: definition(),
        is_compared: true,
        needs_people: true,
        reads: false,
        described: Arc::default(),
        depth: 2,
    }
}

fn mcp(request: McpRequest) -> McpCall {
    let key = SecretEntry { name: "crm".into(), secret: "vault".into(), key: "token".into() };
    McpCall {
        server: "crm".into(),
        url: Some("https://crm.example.com/mcp".into()),
        command: vec![],
        key: Some(key),
        header: None,
        request,
    }
}

fn fake(answer: Result<ToolEnding, CallError>) -> Arc<Fake> {
    let mut listing = Listing::default();
    for name in ["get_customer", "refund", "re fund"] {
        let definition = json!({"name": name, "inputSchema": {"type": "object"}});
        listing.add(&definition.to_string(), |_| None).unwrap();
    }
    Arc::new(Fake { catalogue: listing.end(), answer, asked: Mutex::default() })
}

fn caller(value: &'static str, hosts: &'static str) -> DefaultCaller {
    let rest = Arc::new(Rest { value, hosts });
    let clock: Arc<dyn Clock> = Arc::new(jiff::Timestamp::now);
    DefaultCaller::new(rest.clone(), rest.clone(), rest, clock)
}

async fn make_call_by(caller: &DefaultCaller, call: McpCall, idempotent: bool) -> Result<Reply, Failure> {
    let run = RunRef { namespace: "finance".into(), workflow: "w".into(), uid: "u".into() };
    let (timeout, content) = (Duration::from_secs(5), CallContent::Mcp(Box::new(call)));
    caller.call(&run, Call { path: "pay".into(), attempt: 1, idempotent, timeout, content }, &UnboundedRoom).await
}

/// Makes a call whose key may be sent.
async fn make_call(fake: &Arc<Fake>, call: McpCall, idempotent: bool) -> Result<Reply, Failure> {
    let servers: Arc<dyn ToolServers> = fake.clone();
    make_call_by(&caller(VALUE, "crm.example.com").with_tool_servers(servers), call, idempotent).await
}

/// Makes a call of a tool. `reads` says whether the tool only reads.
async fn make_tool_call(answer: Result<ToolEnding, CallError>, reads: bool) -> Result<Reply, Failure> {
    let call = McpToolCall { reads, is_compared: !reads, needs_people: !reads, ..tool_call() };
    make_call(&fake(answer), mcp(McpRequest::Call(call)), reads).await
}

fn output(response: Value, is_error: bool) -> ToolEnding {
    ToolEnding::Result(ToolOutput { response, is_error, attachments: vec![], bytes: 1 })
}

fn facts(facts: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test]
async fn the_tools_of_a_run_are_recorded_with_protocol_and_secret() {
    let fake = fake(Ok(output(json!(""), false)));
    let reply = make_call(&fake, mcp(McpRequest::Catalogue { only: vec!["re*".into()] }), true).await.unwrap();
    let catalogue: Catalogue = serde_json::from_str(reply.response.as_str().unwrap()).unwrap();
    assert_eq!(catalogue.tools().iter().map(|tool| tool.name()).collect::<Vec<_>>(), ["refund"]);
    assert_eq!(catalogue.left_out().len(), 1);
    assert_eq!(facts(&reply.facts), [("protocol", "2026-07-28"), ("secret:crm", "uid u-1, version 7")]);
    let all = make_call(&fake, mcp(McpRequest::Catalogue { only: vec![] }), true).await.unwrap();
    let all: Catalogue = serde_json::from_str(all.response.as_str().unwrap()).unwrap();
    assert_eq!(all, fake.catalogue);
}

#[tokio::test]
async fn a_call_reaches_its_server_with_key_definition_and_arguments() {
    let fake = fake(Ok(output(json!({"paid": true}), false)));
    let reply = make_call(&fake, mcp(McpRequest::Call(tool_call())), false).await.unwrap();
    assert_eq!(reply.response, json!({"paid": true}));
    let mut other = mcp(McpRequest::Call(tool_call()));
    other.header = Some("X-Api-Key".into());
    make_call(&fake, other, false).await.unwrap();
    let asked = fake.asked.lock().unwrap();
    let (server, request) = &asked[0];
    assert_eq!((server.namespace.as_str(), server.name.as_str()), ("finance", "crm"));
    assert_eq!(server.address, ServerAddress::Url("https://crm.example.com/mcp".into()));
    let expected = ToolRequest {
        tool: "refund".into(),
        arguments: json!({"id": "7"}),
        definition: Some(definition()),
        schema: None,
        depth: 2,
    };
    assert_eq!(request.as_ref(), Some(&expected));
    let names: Vec<_> = asked.iter().filter_map(|(server, _)| server.key.as_ref().map(|key| key.name())).collect();
    assert_eq!(names, ["Authorization", "X-Api-Key"]);
    assert!(!format!("{asked:?}").contains(VALUE));
}

#[tokio::test]
async fn a_call_that_is_not_compared_has_the_recorded_schema() {
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let described = json!({"name": "refund", "inputSchema": schema}).as_object().cloned().unwrap();
    let call = McpToolCall { reads: true, is_compared: false, described: Arc::new(described), ..tool_call() };
    let fake = fake(Ok(output(json!("Ann"), false)));
    make_call(&fake, mcp(McpRequest::Call(call)), true).await.unwrap();
    let asked = fake.asked.lock().unwrap();
    let request = asked[0].1.as_ref().unwrap();
    assert_eq!((&request.definition, &request.schema), (&None, &Some(schema)));
}

#[tokio::test]
async fn the_outcome_of_a_sent_call_is_unknown_unless_it_reads() {
    use ErrorClass::{Auth, Invalid, Protocol, RateLimited, Refused, Status, Timeout, TooLarge, Unreachable};
    let refused = ToolEnding::Error { code: -32602, message: "Unknown tool".into() };
    let answered = [
        output(json!("no funds"), true),
        refused,
        ToolEnding::AskedBack(vec!["elicitation".into(), "sampling".into()]),
    ];
    let sent = [Timeout, Protocol, TooLarge, RateLimited, Auth(401), Status(404), Status(500), Status(502)];
    let odd = [Invalid, Refused, Unreachable];
    let errors = sent.into_iter().chain(odd).map(|class| Err(CallError::new(class, true, "it broke")));
    for answer in answered.into_iter().map(Ok).chain(errors) {
        let failure = make_tool_call(answer.clone(), false).await.unwrap_err();
        assert!(failure.unknown && !failure.retryable, "{answer:?}: {failure:?}");
        assert_eq!(failure.facts.get("outcomeUnknown").map(String::as_str), Some("true"), "{answer:?}");
        // The engine treats these classes as a call that was not sent.
        assert!(!["Invalid", "Refused", "Unreachable", "ToolChanged"].contains(&failure.class.as_str()), "{failure:?}");
        let failure = make_tool_call(answer.clone(), true).await.unwrap_err();
        assert!(!failure.unknown && !failure.facts.contains_key("outcomeUnknown"), "{answer:?}: {failure:?}");
    }
    for class in [Invalid, Refused, Unreachable, Timeout] {
        let failure = make_tool_call(Err(CallError::new(class, false, "it was not sent")), false).await.unwrap_err();
        assert!(!failure.unknown, "{failure:?}");
    }
}

#[tokio::test]
async fn the_message_of_a_failed_call_has_the_problem_and_remedy() {
    let failure = make_tool_call(Ok(output(json!("no \u{1b}[31mfunds"), true)), true).await.unwrap_err();
    assert_eq!(failure.class, "Failed");
    assert_eq!(failure.message, "crm.refund says that it failed: no [31mfunds");
    let long = make_tool_call(Ok(output(json!("x".repeat(5000)), true)), true).await.unwrap_err();
    assert_eq!(long.message.chars().count(), 1000);
    let declined = make_tool_call(Ok(ToolEnding::AskedBack(vec!["elicitation".into()])), true).await.unwrap_err();
    assert!(declined.message.contains("asked for elicitation") && declined.message.contains("call ask-human"));
    assert!(!declined.retryable);
}

#[tokio::test]
async fn a_call_of_a_changed_tool_is_not_sent() {
    let now = Digest::of_bytes(b"refund twice");
    for (now, fact) in [(Some(now.clone()), format!("crm.refund {now}")), (None, "crm.refund".to_owned())] {
        let failure = make_tool_call(Ok(ToolEnding::Changed(now)), false).await.unwrap_err();
        assert_eq!((failure.class.as_str(), failure.unknown), ("ToolChanged", false));
        assert_eq!(failure.facts["changed"], fact);
        assert!(failure.message.contains("the call was not sent"), "{}", failure.message);
    }
}

#[tokio::test]
async fn parts_that_are_not_texts_are_recorded_as_a_fact() {
    let part = |kind: &str, media_type: &str| Attachment {
        kind: kind.into(),
        media_type: media_type.into(),
        bytes: 5,
        digest: Digest::of_bytes(b"hello"),
    };
    let attachments = vec![part("image", "image/png"), part("link", "")];
    let all = ToolEnding::Result(ToolOutput { response: json!("see"), is_error: false, attachments, bytes: 9 });
    let reply = make_tool_call(Ok(all), false).await.unwrap();
    let fact = &reply.facts["attachments"];
    let digest = Digest::of_bytes(b"hello");
    assert_eq!(*fact, format!("image image/png, 5 bytes, {digest}; link, 5 bytes, {digest}"));
    let many = vec![part("image", "image/png"); 50];
    let many = ToolEnding::Result(ToolOutput { response: json!(""), is_error: false, attachments: many, bytes: 9 });
    assert!(make_tool_call(Ok(many), false).await.unwrap().facts["attachments"].chars().count() <= MAX_FACT);
}

#[tokio::test]
async fn a_key_is_read_for_the_url_of_its_server_only() {
    let plain = "http://crm.example.com:8080/mcp";
    for (value, hosts, url, class) in [
        (VALUE, "", "https://crm.example.com/mcp", "Refused"),
        (VALUE, "other.example.com", "https://crm.example.com/mcp", "Refused"),
        (VALUE, "crm.example.com", plain, "Refused"),
        ("fifteen bytes..", "crm.example.com", "https://crm.example.com/mcp", "Invalid"),
        (VALUE, "crm.example.com", "no URL", "Invalid"),
    ] {
        let fake = fake(Ok(output(json!(""), false)));
        let servers: Arc<dyn ToolServers> = fake.clone();
        let call = McpCall { url: Some(url.into()), ..mcp(McpRequest::Call(tool_call())) };
        let result = make_call_by(&caller(value, hosts).with_tool_servers(servers), call, false).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.class.as_str(), failure.unknown), (class, false), "{}", failure.message);
        assert!(!failure.message.contains(value), "{}", failure.message);
        assert!(fake.asked.lock().unwrap().is_empty(), "{url}");
    }
    let fake = fake(Ok(output(json!(""), false)));
    let servers: Arc<dyn ToolServers> = fake.clone();
    let call = McpCall { url: Some(plain.into()), ..mcp(McpRequest::Call(tool_call())) };
    let caller = caller(VALUE, "http://crm.example.com:8080").with_tool_servers(servers);
    assert!(make_call_by(&caller, call, false).await.is_ok());
}

#[tokio::test]
async fn a_refused_key_is_named_by_its_entry() {
    let failure = make_tool_call(Err(CallError::new(ErrorClass::Auth(401), false, "no")), false).await.unwrap_err();
    assert_eq!(failure.message, "no; it was sent crm of spec.secrets: check the value");
    assert_eq!((failure.class.as_str(), failure.unknown), ("Auth", false));
    assert_eq!(failure.facts["secret:crm"], "uid u-1, version 7");
}

#[tokio::test]
async fn a_command_reaches_the_client_without_a_key() {
    let fake = fake(Ok(output(json!("done"), false)));
    let command = vec!["npx".to_owned(), "server".to_owned()];
    let call = McpCall { url: None, command: command.clone(), key: None, ..mcp(McpRequest::Call(tool_call())) };
    make_call(&fake, call, false).await.unwrap();
    let asked = fake.asked.lock().unwrap();
    assert_eq!(asked[0].0.address, ServerAddress::Command(command));
    assert!(asked[0].0.key.is_none());
}

#[tokio::test]
async fn a_program_without_a_client_fails_the_call_before_it_is_sent() {
    let result = make_call_by(&caller(VALUE, "crm.example.com"), mcp(McpRequest::Call(tool_call())), false).await;
    let failure = result.unwrap_err();
    assert_eq!((failure.class.as_str(), failure.unknown, failure.retryable), ("Invalid", false, false));
    assert!(failure.message.contains("server crm was not asked"), "{}", failure.message);
    assert!(failure.facts.is_empty(), "no Secret was read");
}
