//! Tests of both versions of the protocol on the wire, and of their detection.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use signoff_executor::{ErrorClass, ToolEnding, ToolServers as _};
use signoff_mcp::Protocol;

use crate::server::{
    EVENTS, Reply, SESSION, SHORT, Server, TIMEOUT, answer, call, calls, client, decided, error, event, http, message,
    output, refund, stateless, text, tools, unasked, with_session,
};

#[tokio::test]
async fn a_server_of_2026_07_28_is_asked_without_a_handshake() {
    let server = Server::start(|request| stateless(request, &tools(), &text("paid"))).await;
    let client = client();
    let (catalogue, protocol) = client.list(&server.tools(), TIMEOUT).await.unwrap();
    assert_eq!(protocol, Protocol::Stateless);
    assert_eq!(catalogue.tools().iter().map(|tool| tool.name()).collect::<Vec<_>>(), ["get_customer", "refund"]);
    let reply = client.call(&server.tools(), decided(&refund()), TIMEOUT).await.unwrap();
    assert_eq!((reply.protocol, output(reply).response), ("2026-07-28", json!("paid")));
    assert_eq!(server.asked(), ["tools/list", "tools/list", "tools/call"]);
    for request in server.log() {
        let meta = &request.body["params"]["_meta"];
        assert_eq!(request.header("mcp-protocol-version"), "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
        assert_eq!(request.header("mcp-method"), request.asks());
        assert_eq!(request.header("accept"), "application/json, text/event-stream");
        assert_eq!(request.header("content-type"), "application/json");
        assert!(!request.headers.contains_key("mcp-session-id"));
    }
    let sent = &calls(&server)[0];
    assert_eq!(sent.header("mcp-name"), "refund");
    assert_eq!(sent.body["params"]["name"], "refund");
    assert_eq!(sent.body["params"]["arguments"], json!({"amount": 420}));
}

#[tokio::test]
async fn a_server_of_2025_11_25_has_its_handshake_and_its_end_within_the_call() {
    let server = Server::start(|request| with_session(request, &tools(), &text("paid"))).await;
    let client = client();
    let reply = client.call(&server.tools(), decided(&refund()), TIMEOUT).await.unwrap();
    assert_eq!((reply.protocol, output(reply).response), ("2025-11-25", json!("paid")));
    client.settled().await;
    let asked = server.asked();
    let session = ["initialize", "notifications/initialized", "tools/list", "tools/call", "DELETE"];
    assert_eq!(asked[0], "tools/list", "it is asked for the newer version first");
    assert_eq!(asked[1..], session);
    let log = server.log();
    assert_eq!(log[1].body["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(log[1].body["params"]["capabilities"], json!({}));
    assert!(!log[1].headers.contains_key("mcp-session-id"));
    for request in &log[2..] {
        assert_eq!(request.header("mcp-session-id"), SESSION);
        assert_eq!(request.header("mcp-protocol-version"), "2025-11-25");
    }
    // The version is cached now.
    client.call(&server.tools(), decided(&refund()), TIMEOUT).await.unwrap();
    client.settled().await;
    assert_eq!(server.asked()[6..], session);
}

#[tokio::test]
async fn a_call_that_needs_no_decision_asks_for_the_version_once() {
    let server = Server::start(|request| stateless(request, &tools(), &text("Ann"))).await;
    let client = client();
    for _ in 0..2 {
        let reply = client.call(&server.tools(), unasked("get_customer"), TIMEOUT).await.unwrap();
        assert_eq!(output(reply).response, json!("Ann"));
    }
    assert_eq!(server.asked(), ["server/discover", "tools/call", "tools/call"]);
}

#[tokio::test]
async fn the_version_is_detected_before_the_call() {
    // The server performs every call, and only then refuses the version.
    let server = Server::start(|request| match request.asks() {
        "tools/call" => http("400 Bad Request", "", "no session"),
        _ => with_session(request, &tools(), &text("paid")),
    })
    .await;
    let failed = call(&server, unasked("refund")).await.unwrap_err();
    assert!(failed.sent && failed.class == ErrorClass::Status(400), "{failed:?}");
    assert_eq!(calls(&server).len(), 1);
}

#[tokio::test]
async fn an_older_server_is_detected_by_its_untyped_result() {
    let server = Server::start(|request| match request.asks() {
        "initialize" | "DELETE" => with_session(request, &tools(), &text("")),
        "tools/list" => answer(request, &json!({"tools": tools()})),
        "tools/call" => answer(request, &text("paid")),
        _ => http("202 Accepted", "", ""),
    })
    .await;
    let reply = call(&server, decided(&refund())).await.unwrap();
    assert_eq!((reply.protocol, output(reply).response), ("2025-11-25", json!("paid")));
    assert_eq!(calls(&server).len(), 1);
}

#[tokio::test]
async fn a_server_that_changes_its_version_is_detected_again() {
    let is_new = std::sync::Arc::new(AtomicUsize::new(0));
    let flag = std::sync::Arc::clone(&is_new);
    let server = Server::start(move |request| match flag.load(Ordering::SeqCst) {
        0 => with_session(request, &tools(), &text("old")),
        _ => stateless(request, &tools(), &text("new")),
    })
    .await;
    let client = client();
    assert_eq!(client.list(&server.tools(), TIMEOUT).await.unwrap().1, Protocol::Session);
    is_new.store(1, Ordering::SeqCst);
    let failed = client.list(&server.tools(), TIMEOUT).await.unwrap_err();
    assert!(!failed.sent && failed.retryable(true), "{failed:?}");
    assert_eq!(client.list(&server.tools(), TIMEOUT).await.unwrap().1, Protocol::Stateless);
    is_new.store(0, Ordering::SeqCst);
    assert_eq!(client.list(&server.tools(), TIMEOUT).await.unwrap().1, Protocol::Session);
}

#[tokio::test]
async fn a_server_without_a_supported_version_is_named() {
    let newer = Server::start(|request| {
        let data = json!({"supported": ["2027-01-01"], "requested": "2026-07-28"});
        error("400 Bad Request", request, &json!({"code": -32022, "message": "Unsupported", "data": data}))
    })
    .await;
    let failed = call(&newer, decided(&refund())).await.unwrap_err();
    assert!(!failed.sent && failed.message.contains("error -32022"), "{failed:?}");
    assert_eq!(newer.asked(), ["tools/list"]);

    let older = Server::start(|request| match request.asks() {
        "initialize" => answer(request, &json!({"protocolVersion": "2024-11-05"})),
        _ => with_session(request, &tools(), &text("")),
    })
    .await;
    let failed = call(&older, decided(&refund())).await.unwrap_err();
    assert!(!failed.sent && failed.class == ErrorClass::Refused, "{failed:?}");
    assert!(failed.message.contains("2024-11-05") && failed.message.contains("2026-07-28 and 2025-11-25"), "{failed}");
    assert!(calls(&older).is_empty());
}

#[tokio::test]
async fn a_server_that_names_the_older_version_is_called_with_it() {
    let server = Server::start(|request| match request.header("mcp-protocol-version") {
        "2026-07-28" => {
            let data = json!({"supported": ["2025-11-25"], "requested": "2026-07-28"});
            error("400 Bad Request", request, &json!({"code": -32022, "message": "Unsupported", "data": data}))
        }
        _ => with_session(request, &tools(), &text("paid")),
    })
    .await;
    assert_eq!(call(&server, decided(&refund())).await.unwrap().protocol, "2025-11-25");
}

#[tokio::test]
async fn answers_can_be_events_in_both_versions() {
    for speaks in [stateless, with_session] {
        let server = Server::start(move |request| {
            let notice = event(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"working"}}"#);
            let typed = json!({"content": [{"type": "text", "text": "paid"}], "resultType": "complete"});
            match request.asks() {
                "tools/call" => {
                    let answer = event(&message(request, &typed));
                    Reply::Bytes(format!("{EVENTS}: hello\n\nid: 1\ndata:\n\n{notice}{answer}").into_bytes())
                }
                _ => speaks(request, &tools(), &text("")),
            }
        })
        .await;
        assert_eq!(output(call(&server, decided(&refund())).await.unwrap()).response, json!("paid"));
    }
}

#[tokio::test]
async fn a_session_id_that_is_invalid_in_a_header_is_refused() {
    for number in ["", "a b", "ü", &"x".repeat(600)] {
        let headers = format!("mcp-session-id: {number}\r\n");
        let server = Server::start(move |request| match request.asks() {
            "initialize" => http("200 OK", &headers, &message(request, &json!({"protocolVersion": "2025-11-25"}))),
            _ => with_session(request, &tools(), &text("")),
        })
        .await;
        let failed = call(&server, decided(&refund())).await.unwrap_err();
        assert!(!failed.sent, "{number:?}: {failed:?}");
        assert!(calls(&server).is_empty());
    }
}

#[tokio::test]
async fn all_requests_of_a_call_share_one_deadline() {
    for slow in ["initialize", "notifications/initialized", "tools/list"] {
        let server = Server::start(move |request| match request.asks() {
            asks if asks == slow && (slow != "tools/list" || request.header("mcp-session-id") == SESSION) => {
                Reply::Hang(String::new())
            }
            _ => with_session(request, &tools(), &text("")),
        })
        .await;
        let begun = std::time::Instant::now();
        let failed = client().call(&server.tools(), decided(&refund()), SHORT).await.unwrap_err();
        assert!(failed.class == ErrorClass::Timeout && !failed.sent, "{slow}: {failed:?}");
        assert!(begun.elapsed() < TIMEOUT);
        assert!(calls(&server).is_empty());
    }
}

#[tokio::test]
async fn an_abandoned_call_is_cancelled_and_its_session_ends() {
    let server = Server::start(|request| match request.asks() {
        "tools/call" => Reply::Hang(EVENTS.to_owned()),
        _ => with_session(request, &tools(), &text("")),
    })
    .await;
    let client = client();
    // The timeout passes, or the caller drops the call.
    let failed = client.call(&server.tools(), decided(&refund()), SHORT).await.unwrap_err();
    assert!(failed.class == ErrorClass::Timeout && failed.sent && !failed.outcome_known(), "{failed:?}");
    client.settled().await;
    let tools = server.tools();
    tokio::select! {
        answered = client.call(&tools, decided(&refund()), TIMEOUT) => panic!("{answered:?}"),
        () = server.was_called(2) => {}
    }
    client.settled().await;
    let log = server.log();
    let cancelled: Vec<_> = log.iter().filter(|request| request.asks() == "notifications/cancelled").collect();
    let ids: Vec<_> = calls(&server).iter().map(|call| call.body["id"].clone()).collect();
    assert_eq!(cancelled.iter().map(|sent| sent.body["params"]["requestId"].clone()).collect::<Vec<_>>(), ids);
    assert_eq!(log.iter().filter(|request| request.asks() == "DELETE").count(), 2);
}

#[tokio::test]
async fn an_error_of_the_server_is_data() {
    for (code, message) in [(-32602, "Unknown tool"), (-32603, "Internal error"), (1, "")] {
        let server = Server::start(move |request| match request.asks() {
            "tools/call" => error("200 OK", request, &json!({"code": code, "message": message})),
            _ => stateless(request, &tools(), &text("")),
        })
        .await;
        let reply = call(&server, decided(&refund())).await.unwrap();
        assert_eq!(reply.ending, ToolEnding::Error { code, message: message.to_owned() });
    }
    let server = Server::start(|request| {
        stateless(request, &tools(), &json!({"content": [{"type": "text", "text": "no funds"}], "isError": true}))
    })
    .await;
    let output = output(call(&server, decided(&refund())).await.unwrap());
    assert_eq!((output.response, output.is_error), (json!("no funds"), true));
}
