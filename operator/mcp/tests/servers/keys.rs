//! Tests of the key of a server: sent to its address only, and removed from all answers.

use serde_json::json;
use signoff_api::workflow::SecretEntry;
use signoff_engine::transition::SentSecret;
use signoff_executor::http::HttpSettings;
use signoff_executor::{
    ErrorClass, HeaderSecret, HttpClient, SecretText, ServerAddress, ToolEnding, ToolServer, ToolServers as _,
};
use signoff_mcp::McpClient;

use crate::server::{
    Received, Reply, Server, TIMEOUT, client, decided, error, http, message, output, refund, stateless, text, tools,
    with_session,
};

const KEY: &str = "crm-0123456789abcdef";

/// Returns the key in a header of this name.
fn header(name: &str, prefix: &str) -> HeaderSecret {
    let entry = SecretEntry { name: "crm".into(), secret: "vault".into(), key: "token".into() };
    let header = SentSecret { header: name.to_owned(), prefix: prefix.to_owned(), entry };
    HeaderSecret::new(header, SecretText::from(KEY)).unwrap()
}

fn server_with_key(server: &Server) -> ToolServer {
    ToolServer { key: Some(header("Authorization", "Bearer ")), ..server.tools() }
}

#[tokio::test]
async fn the_key_is_sent_with_every_request_of_both_versions() {
    for speaks in [stateless, with_session] {
        let server = Server::start(move |request| speaks(request, &tools(), &text("paid"))).await;
        let client = client();
        client.call(&server_with_key(&server), decided(&refund()), TIMEOUT).await.unwrap();
        client.settled().await;
        assert!(server.log().iter().all(|request| request.header("authorization") == format!("Bearer {KEY}")));
    }
}

#[tokio::test]
async fn an_echoed_key_is_removed_from_results() {
    let echo = |request: &Received| {
        let echo = format!("you sent {}", request.header("authorization"));
        let result =
            json!({"content": [{"type": "text", "text": echo}], "structuredContent": {"headers": request.headers}});
        // The same key in another notation of JSON.
        let message = message(request, &result).replace("crm-0123", "\\u0063rm-\\u0030123");
        http("200 OK", "", &message)
    };
    let server = Server::start(move |request| match request.asks() {
        "tools/call" => echo(request),
        _ => stateless(request, &tools(), &text("")),
    })
    .await;
    let output = output(client().call(&server_with_key(&server), decided(&refund()), TIMEOUT).await.unwrap());
    let response = output.response.to_string();
    assert!(response.contains("Bearer [redacted]") && !response.contains("0123456789abcdef"), "{response}");
}

#[tokio::test]
async fn an_echoed_key_is_removed_from_errors_and_definitions() {
    let echo = format!("bad token {KEY} in Bearer {KEY}");
    for status in ["200 OK", "400 Bad Request"] {
        let message = echo.clone();
        let server = Server::start(move |request| match request.asks() {
            "tools/call" => error(status, request, &json!({"code": -1, "message": message})),
            _ => stateless(request, &tools(), &text("")),
        })
        .await;
        let reply = client().call(&server_with_key(&server), decided(&refund()), TIMEOUT).await.unwrap();
        let ToolEnding::Error { message, .. } = reply.ending else { panic!("{reply:?}") };
        assert_eq!(message, "bad token [redacted] in Bearer [redacted]");
    }
    let body = echo.clone();
    let server = Server::start(move |_| http("401 Unauthorized", "", &body)).await;
    let refused = client().call(&server_with_key(&server), decided(&refund()), TIMEOUT).await.unwrap_err();
    assert!(refused.class == ErrorClass::Auth(401) && !refused.sent, "{refused:?}");
    assert!(!format!("{refused:?}").contains(KEY), "{refused:?}");

    let tool = json!({"name": "a", "description": echo, "inputSchema": {"type": "object"}});
    let server = Server::start(move |request| stateless(request, &json!([tool]), &text(""))).await;
    let (catalogue, _) = client().list(&server_with_key(&server), TIMEOUT).await.unwrap();
    let recorded = serde_json::to_string(&catalogue).unwrap();
    assert!(recorded.contains("bad token [redacted]") && !recorded.contains(KEY), "{recorded}");
}

#[tokio::test]
async fn no_key_is_sent_in_a_header_of_the_protocol() {
    let server = Server::start(|request| stateless(request, &tools(), &text(""))).await;
    for name in ["Mcp-Name", "Mcp-Session-Id", "Accept", "Content-Type", "Last-Event-Id", "Host", "Content-Length"] {
        let key = Some(header(name, ""));
        let refused = client().list(&ToolServer { key, ..server.tools() }, TIMEOUT).await.unwrap_err();
        assert!(refused.class == ErrorClass::Invalid && !refused.sent, "{name}: {refused:?}");
        assert!(!refused.message.contains(KEY), "{refused}");
    }
    assert!(server.asked().is_empty());
    let key = Some(header("X-Api-Key", ""));
    client().list(&ToolServer { key, ..server.tools() }, TIMEOUT).await.unwrap();
    assert_eq!(server.log()[0].header("x-api-key"), KEY);
}

#[tokio::test]
async fn a_blocked_address_gets_no_request() {
    let server = Server::start(|_| Reply::Bytes(Vec::new())).await;
    let careful = McpClient::new(HttpClient::new(HttpSettings::default()).unwrap());
    let tools = server_with_key(&server);
    let url = server.url();
    for url in [url.clone(), url.replace("127.0.0.1", "localhost"), "file:///etc/passwd".to_owned()] {
        let address = ServerAddress::Url(url);
        let refused =
            careful.call(&ToolServer { address, ..tools.clone() }, decided(&refund()), TIMEOUT).await.unwrap_err();
        assert!(matches!(refused.class, ErrorClass::Refused | ErrorClass::Invalid) && !refused.sent, "{refused:?}");
    }
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_command_is_refused_with_the_remedy() {
    let address = ServerAddress::Command(vec!["npx".to_owned(), "server".to_owned()]);
    let tools = ToolServer { namespace: "team".into(), name: "files".into(), address, key: None };
    for refused in [
        client().list(&tools, TIMEOUT).await.map(drop).unwrap_err(),
        client().call(&tools, decided(&refund()), TIMEOUT).await.map(drop).unwrap_err(),
    ] {
        assert!(refused.class == ErrorClass::Refused && !refused.sent, "{refused:?}");
        assert!(refused.message.contains("server files is a command") && refused.message.contains("give its url"));
    }
}
