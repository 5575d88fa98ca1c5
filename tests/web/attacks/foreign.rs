//! Requests that another site makes a signed-in browser send, and pages that frame ours. None of them changes anything
//! or reaches the API server.

use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use serde_json::json;
use signoff_api::Approval;
use signoff_tests::browser::{Look, css};
use tokio::net::TcpListener;

use super::visitor::{FORM, Visitor, approval_fields, assert_only_reads, form, requests_of_users, send_raw};
use crate::harness::Harness;
use crate::runs::{Runs, path};

/// Starts the page, and a run whose request alice can approve.
async fn start_target(prefix: &str) -> (Harness, Runs, Approval) {
    let (harness, [runs]) = Harness::with_runs([prefix]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    (harness, runs, approval)
}

#[tokio::test]
async fn form_of_another_site_is_refused_without_a_request_to_the_api_server() {
    let (harness, runs, approval) = start_target("csrf").await;
    let alice = Visitor::of(&harness, "alice").await;
    let (ours, port) = (alice.url.as_str(), alice.url.rsplit(':').next().unwrap());
    let (https, local) = (ours.replace("http:", "https:"), format!("http://localhost:{port}"));
    let dotted = format!("{ours}.evil.example");
    let foreign: [&[(&str, &str)]; 16] = [
        &[],
        &[("referer", ours)],
        &[("origin", "null")],
        &[("origin", "")],
        &[("origin", "https://evil.example")],
        &[("origin", "http://127.0.0.1:1")],
        &[("origin", &https)],
        &[("origin", &local)],
        &[("origin", &dotted)],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")],
        &[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:1")],
        &[("sec-fetch-site", "cross-site"), ("origin", "null")],
        &[("sec-fetch-site", "cross-site"), ("x-requested-with", "XMLHttpRequest")],
        &[("origin", "https://evil.example"), ("x-forwarded-host", "evil.example")],
    ];
    let decide = format!("{}/decide", path(&approval));
    let forms = [
        (decide.as_str(), form(&approval_fields(&approval))),
        ("/namespaces", form(&[("namespaces", "evil")])),
        ("/sign-out", String::new()),
    ];
    harness.witness.forget();
    for headers in foreign {
        for (to, body) in &forms {
            let headers: Vec<_> = headers.iter().copied().chain([FORM]).collect();
            let answer = alice.send("POST", to, &headers, Some(body.clone())).await;
            assert_eq!(answer.status, 403, "{to} {headers:?}: {}", answer.text);
            assert_eq!(answer.headers.get("set-cookie"), None, "{to} {headers:?}");
        }
        let answer = Visitor::stranger(&harness.web)
            .send("POST", "/sign-in/token", &[headers, &[FORM]].concat(), Some(form(&[("token", &alice.token)])))
            .await;
        assert_eq!(
            (answer.status, answer.headers.get("set-cookie")),
            (403, None),
            "a login that is forged: {headers:?}"
        );
    }
    assert!(requests_of_users(&harness.witness).is_empty(), "{:?}", requests_of_users(&harness.witness));
    assert!(runs.read_decision(&approval, "alice").await.is_null());
    assert_eq!(alice.approve(&approval).await.status, 303, "her own form is taken");
    assert_eq!(runs.read_decision(&approval, "alice").await["verdict"], "Approve");
}

#[tokio::test]
async fn only_a_posted_form_of_the_page_decides() {
    let (harness, runs, approval) = start_target("methods").await;
    let alice = Visitor::of(&harness, "alice").await;
    let decide = format!("{}/decide", path(&approval));
    let fields = form(&approval_fields(&approval));
    let ours = [("origin", alice.url.as_str()), ("sec-fetch-site", "same-origin")];
    harness.witness.forget();
    let queried = format!("{decide}?{fields}&_method=POST");
    for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "post", "QUERY"] {
        for (to, more) in
            [(&decide, FORM), (&queried, ("x-http-method-override", "POST")), (&queried, ("x-http-method", "PATCH"))]
        {
            let answer = alice.send(method, to, &[&ours[..], &[more]].concat(), Some(fields.clone())).await;
            // A request that only reads is redirected to the request, without the rest of the address.
            let looks = answer.status == 303 && answer.header("location") == path(&approval);
            let is_look = ["GET", "HEAD"].contains(&method);
            assert!(is_look && looks || [404, 405].contains(&answer.status), "{method} {to}: {answer:?}");
        }
    }
    let json =
        json!({"digest": approval.spec.request.digest.as_str(), "verdict": "Approve", "confirmed": "yes"}).to_string();
    let parts = format!(
        "--x\r\ncontent-disposition: form-data; name=\"digest\"\r\n\r\n{}\r\n--x--\r\n",
        approval.spec.request.digest
    );
    for (kind, body) in [
        ("text/plain", &fields),
        ("text/plain; charset=utf-8", &json),
        ("application/json", &json),
        ("multipart/form-data; boundary=x", &parts),
        ("application/octet-stream", &fields),
    ] {
        let headers = [&ours[..], &[("content-type", kind)]].concat();
        let answer = alice.send("POST", &decide, &headers, Some(body.clone())).await;
        assert!([400, 415, 422].contains(&answer.status), "{kind}: {} {}", answer.status, answer.text);
    }
    assert_only_reads(&harness.witness);
    assert!(runs.read_decision(&approval, "alice").await.is_null());
}

/// Returns an attacker's page, which tries to read, frame and decide `page` as soon as it is opened.
fn trap_page(page: &str, fields: &[(&str, &str)]) -> String {
    let inputs: String =
        fields.iter().map(|(name, value)| format!("<input name=\"{name}\" value=\"{value}\">")).collect();
    format!(
        "<!doctype html><title>trap</title><iframe id=\"frame\" src=\"{page}\"></iframe><iframe name=\"hidden\"></iframe>\
         <form id=\"form\" method=\"post\" target=\"hidden\" action=\"{page}/decide\">{inputs}</form>\
         <form id=\"text\" method=\"post\" target=\"hidden\" enctype=\"text/plain\" action=\"{page}/decide\">{inputs}</form>\
         <script>(async () => {{
           const body = new URLSearchParams(new FormData(document.getElementById('form')));
           for (const mode of ['no-cors', 'cors']) for (const kind of ['application/x-www-form-urlencoded', 'text/plain'])
             await fetch('{page}/decide', {{ method: 'POST', mode, credentials: 'include', headers: {{ 'content-type': kind }}, body: body.toString() }}).catch(() => null);
           await fetch('{page}', {{ mode: 'cors', credentials: 'include' }}).then(() => {{ document.title = 'read' }}, () => null);
           navigator.sendBeacon('{page}/decide', body);
           document.getElementById('form').submit();
           setTimeout(() => {{ document.getElementById('text').submit(); document.title += ' sprung'; }}, 500);
         }})()</script>"
    )
}

#[tokio::test]
async fn page_of_another_origin_cannot_decide_read_or_frame_in_a_browser() {
    let (harness, runs, approval) = start_target("trap").await;
    let alice = harness.open_as("alice", &Look::default()).await.unwrap();
    alice.wait_url(&harness.url("/")).await.unwrap();
    let fields = approval_fields(&approval).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let page = harness.url(&path(&approval));
    let html = trap_page(&page, &fields.each_ref().map(|(name, value)| (name.as_str(), value.as_str())));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving =
        tokio::spawn(
            async move { axum::serve(listener, Router::new().route("/", get(async move || Html(html)))).await },
        );
    harness.witness.forget();
    // The first page is of the same site, because it is on the same host. The second one is of another site.
    for evil in [format!("http://127.0.0.1:{port}/"), format!("http://localhost:{port}/")] {
        let trapped = alice.tab().await.unwrap();
        trapped.goto(&evil).await.unwrap();
        trapped.wait_title("sprung").await.unwrap();
        assert_eq!(trapped.title().await.unwrap(), "trap sprung", "it could read the page");
        let complaints = trapped.complaints().await.unwrap().join("\n");
        assert!(complaints.contains("frame-ancestors") || complaints.contains("X-Frame-Options"), "{complaints}");
        assert_eq!(trapped.count(css("iframe")).await.unwrap(), 2);
        trapped.close().await.unwrap();
    }
    serving.abort();
    assert_only_reads(&harness.witness);
    assert!(runs.read_decision(&approval, "alice").await.is_null());
    // The browser is still signed in: the requests were refused for their origin.
    assert_eq!(alice.goto(&page).await.unwrap(), 200);
    alice.close().await.unwrap();
}

#[tokio::test]
async fn answers_forbid_frames_foreign_scripts_and_caching() {
    let (harness, _, approval) = start_target("headers").await;
    let alice = Visitor::of(&harness, "alice").await;
    let stranger = Visitor::stranger(&harness.web);
    let mut all = Vec::new();
    for page in
        ["/", &path(&approval), "/history", "/history.csv", "/policies", "/nowhere", "/n/none/a/none", "/events"]
    {
        all.push((page.to_owned(), if page == "/events" { stranger.get(page).await } else { alice.get(page).await }));
    }
    all.push(("a foreign form".to_owned(), alice.send("POST", "/sign-out", &[], None).await));
    all.push(("the sign-in page".to_owned(), stranger.get("/sign-in").await));
    for (what, answer) in all {
        let policy = answer.header("content-security-policy");
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action"]
        {
            assert!(policy.contains(part), "{what}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{what}: {policy}");
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), value, "{what}");
        }
        assert!(!answer.text.contains(" onclick=") && !answer.text.contains("<script>"), "{what} has a script in it");
        assert!(answer.headers.get("access-control-allow-origin").is_none(), "{what}");
    }
}

#[tokio::test]
async fn a_request_for_another_host_is_misdirected() {
    let (harness, _, approval) = start_target("host").await;
    let alice = Visitor::of(&harness, "alice").await;
    harness.witness.forget();
    let address = alice.url.strip_prefix("http://").unwrap();
    let port = address.rsplit(':').next().unwrap();
    let page = path(&approval);
    for host in ["evil.example", &format!("localhost:{port}"), "127.0.0.1", &format!("{address}.evil.example"), ""] {
        for first in [format!("GET {page}"), "GET /sign-in".to_owned(), format!("POST {page}/decide")] {
            let text = format!(
                "{first} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Host: {address}\r\nOrigin: {}\r\nCookie: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                alice.url,
                alice.cookie()
            );
            let answer = tokio::time::timeout(Duration::from_secs(10), send_raw(address, &text)).await.unwrap();
            assert!([400, 421].contains(&answer.0), "{host:?} {first}: {}", answer.1);
        }
    }
    assert!(requests_of_users(&harness.witness).is_empty(), "{:?}", requests_of_users(&harness.witness));
}
