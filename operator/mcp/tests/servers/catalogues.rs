//! Tests of catalogues over the wire: paging, limits, names, and an unreachable server.

use serde_json::{Value, json};
use signoff_api::catalogue::Catalogue;
use signoff_executor::{CallError, ErrorClass, ServerAddress, ToolServers as _};

use crate::server::{
    Reply, Server, TIMEOUT, answer, client, error, http, refund, stateless, text, tools, with_session,
};

async fn list(server: &Server) -> Result<Catalogue, CallError> {
    client().list(&server.tools(), TIMEOUT).await.map(|(catalogue, _)| catalogue)
}

/// Lists the tools of a server. `next` returns the cursor of the next page for a cursor.
async fn list_pages(next: impl Fn(&str) -> Value + Send + Sync + 'static) -> (Result<Catalogue, CallError>, Server) {
    let server = Server::start(move |request| {
        let cursor = request.body["params"]["cursor"].as_str().unwrap_or("first").to_owned();
        let tool = json!({"name": format!("tool-{cursor}"), "inputSchema": {"type": "object"}});
        answer(request, &json!({"resultType": "complete", "tools": [tool], "nextCursor": next(&cursor)}))
    })
    .await;
    (list(&server).await, server)
}

#[tokio::test]
async fn pages_are_read_until_none_follows() {
    let (catalogue, server) = list_pages(|cursor| match cursor {
        "first" => json!("second"),
        "second" => json!("third"),
        _ => Value::Null,
    })
    .await;
    let catalogue = catalogue.unwrap();
    let names: Vec<_> = catalogue.tools().iter().map(|tool| tool.name()).collect();
    assert_eq!(names, ["tool-first", "tool-second", "tool-third"]);
    let log = server.log();
    assert_eq!(log.len(), 3);
    assert_eq!(log[0].body["params"].get("cursor"), None);
    assert_eq!(log[2].body["params"]["cursor"], "third");
}

#[tokio::test]
async fn a_list_that_never_ends_is_refused() {
    let (refused, server) = list_pages(|_| json!("again")).await;
    let refused = refused.unwrap_err();
    assert!(refused.class == ErrorClass::Refused && !refused.sent, "{refused:?}");
    assert_eq!(server.asked().len(), 2);

    let (refused, server) = list_pages(|cursor| json!(format!("{cursor}x"))).await;
    assert!(refused.unwrap_err().message.contains("more than 16 pages"));
    assert_eq!(server.asked().len(), 16);
}

#[tokio::test]
async fn a_server_that_lists_a_name_twice_is_refused() {
    for twice in [json!([refund(), refund()]), json!([refund(), {"name": "refund", "inputSchema": {"type": "object"}}])]
    {
        let server = Server::start(move |request| stateless(request, &twice, &text(""))).await;
        let refused = list(&server).await.unwrap_err();
        assert!(refused.class == ErrorClass::Refused && refused.message.contains("refund twice"), "{refused:?}");
        assert!(!refused.retryable(true));
    }
}

#[tokio::test]
async fn tools_that_do_not_fit_are_left_out_and_named() {
    let long = json!({"name": "long", "description": "x".repeat(20_000), "inputSchema": {"type": "object"}});
    let listed = json!([refund(), {"name": "admin.refund", "inputSchema": {"type": "object"}}, long, {"name": 7}]);
    let server = Server::start(move |request| stateless(request, &listed, &text(""))).await;
    let catalogue = list(&server).await.unwrap();
    assert_eq!(catalogue.tools().iter().map(|tool| tool.name()).collect::<Vec<_>>(), ["refund"]);
    let left_out: Vec<_> = catalogue.left_out().iter().map(|tool| (tool.name.as_str(), tool.why.as_str())).collect();
    assert_eq!(left_out[0], ("", "its definition is invalid: it has no name"));
    assert_eq!(left_out[1], ("admin.refund", "its name is not 1 to 64 letters, digits, _ and -"));
    assert_eq!(left_out[2], ("long", "its definition has more than 16384 bytes"));
}

#[tokio::test]
async fn a_page_that_is_too_long_or_no_list_is_refused() {
    for tools in [json!([{"name": "a", "_meta": "x".repeat(2_000_000)}]), json!("all"), json!(null)] {
        let server = Server::start(move |request| stateless(request, &tools, &text(""))).await;
        let refused = list(&server).await.unwrap_err();
        assert!(matches!(refused.class, ErrorClass::TooLarge | ErrorClass::Protocol) && !refused.sent, "{refused:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_unreachable_and_can_be_asked_again() {
    let gone = Server::start(|_| Reply::Bytes(Vec::new())).await;
    let mut tools_of = gone.tools();
    // A port that was free a moment before.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    tools_of.address = ServerAddress::Url(format!("http://{free}/mcp"));
    let away = client().list(&tools_of, TIMEOUT).await.unwrap_err();
    assert!(away.class == ErrorClass::Unreachable && !away.sent && away.retryable(true), "{away:?}");

    for status in ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable"] {
        let server = Server::start(move |_| http(status, "", "<html>sorry</html>")).await;
        let away = list(&server).await.unwrap_err();
        assert!(away.class == ErrorClass::Unreachable && !away.sent && away.retryable(true), "{away:?}");
        assert!(!away.message.contains("html"), "{away}");
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn an_error_instead_of_the_list_is_reported_on_one_line() {
    let server = Server::start(|request| match request.asks() {
        "tools/list" => {
            let failure = json!({"code": -32603, "message": "no\n\u{1b}[31m list", "data": {"a": 1}});
            error("200 OK", request, &failure)
        }
        _ => with_session(request, &tools(), &text("")),
    })
    .await;
    let failed = list(&server).await.unwrap_err();
    assert!(failed.message.ends_with("answered with error -32603: no [31m list"), "{failed}");
}

#[tokio::test]
async fn a_catalogue_is_restored_from_its_journal() {
    let server = Server::start(|request| stateless(request, &tools(), &text(""))).await;
    let listed = client().catalogue(&server.tools(), TIMEOUT).await.unwrap();
    assert_eq!(listed.protocol, "2026-07-28");
    let recorded = serde_json::to_string(&listed.catalogue).unwrap();
    assert_eq!(serde_json::from_str::<Catalogue>(&recorded).unwrap(), list(&server).await.unwrap());
}
