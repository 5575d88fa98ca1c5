//! Tests of the middleware: foreign requests, headers, sign-in with a pasted token, and sign-out.
//!
//! Each rule is tested with the attack that it is for.

#![allow(clippy::unwrap_used)]

use axum::{body::Body, response::Response};
use http::{Method, Request, StatusCode, header};

use crate::session::fake::*;

fn world() -> World {
    let world = World::new(&[]);
    world.accept_token("of-alice", "alice");
    world.accept_token("of-bob", "bob");
    world
}

async fn sign_in(world: &World, token: &str) -> Browser {
    let mut browser = Browser::default();
    let response = browser.post(world, "/sign-in/token", &format!("token={token}")).await;
    assert_eq!(location(&response), "/");
    browser
}

#[tokio::test]
async fn form_of_another_or_an_unknown_site_changes_nothing() {
    let world = world();
    for headers in [
        &[][..],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://signoff.example")],
        &[("origin", "https://signoff.example:8443")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("origin", PAGE), ("sec-fetch-site", "same-site")],
        &[("origin", PAGE), ("sec-fetch-site", "cross-site")],
        &[("origin", PAGE), ("origin", "https://evil.example")],
        &[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")],
    ] {
        for path in ["/sign-in/token", "/sign-in/start", "/sign-out", "/namespaces"] {
            let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let mut browser = Browser::default();
            let response = browser.send(&world, request.body(Body::from("token=of-alice")).unwrap()).await;
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path} {headers:?}");
            assert!(browser.cookies.is_empty(), "{path} {headers:?}");
        }
    }
    assert_eq!(world.count_requests(), 0);
    for header in [("origin", PAGE), ("sec-fetch-site", "same-origin")] {
        let request = Request::post("/sign-in/token")
            .header(header.0, header.1)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let response = Browser::default().send(&world, request.body(Body::from("token=of-alice")).unwrap()).await;
        assert_eq!(location(&response), "/", "one of them is enough: {header:?}");
    }
}

#[tokio::test]
async fn get_request_never_changes_anything() {
    let world = world();
    let mut browser = sign_in(&world, "of-alice").await;
    let before = browser.cookies.clone();
    for (path, page) in [
        ("/sign-out", "/"),
        ("/sign-in/token?token=of-bob", "/sign-in"),
        ("/sign-in/start", "/sign-in"),
        ("/namespaces?namespaces=a", "/"),
        ("/n/a/a/b/decide?verdict=Approve", "/n/a/a/b"),
    ] {
        let response = browser.get(&world, path).await;
        assert_eq!(location(&response), page, "{path}");
        assert_eq!(browser.cookies, before, "{path}");
    }
    for method in [Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS, Method::TRACE] {
        let request = Request::builder().method(method.clone()).uri("/sign-out").body(Body::empty()).unwrap();
        assert_eq!(browser.send(&world, request).await.status(), StatusCode::FORBIDDEN, "{method}");
    }
    assert!(browser.is_signed_in(&world).await);
}

#[tokio::test]
async fn responses_have_security_headers_and_other_hosts_are_refused() {
    let world = world();
    for path in ["/", "/sign-in", "/nothing", "/sign-in/token", "/static/x/page.css", "/static/none"] {
        for method in [Method::GET, Method::HEAD] {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            let response = Browser::default().send(&world, request).await;
            let header =
                |name: &str| response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
            let policy = header("content-security-policy");
            assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
            assert!(policy.contains("base-uri 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(header("referrer-policy"), "no-referrer");
            assert_eq!(header("strict-transport-security"), "max-age=31536000");
            let lasting = path == "/static/x/page.css";
            assert_eq!(header("cache-control") == "no-store", !lasting, "{path}");
            assert_eq!(header("vary") == "Cookie", !lasting, "{path}");
        }
    }
    for host in ["evil.example", "signoff.example:8443", "signoff.example.evil.example", ""] {
        let request = Request::get("/sign-in").header(header::HOST, host).body(Body::empty()).unwrap();
        assert_eq!(Browser::default().send(&world, request).await.status(), StatusCode::MISDIRECTED_REQUEST, "{host}");
    }
    let absolute = Request::get("https://evil.example/sign-in").body(Body::empty()).unwrap();
    assert_eq!(Browser::default().send(&world, absolute).await.status(), StatusCode::MISDIRECTED_REQUEST);
}

#[tokio::test]
async fn headers_of_a_browser_do_not_reach_the_api_server() {
    let world = world();
    let mut browser = sign_in(&world, "of-alice").await;
    world.seen.lock().unwrap().clear();
    let smuggled = [
        ("impersonate-user", "root"),
        ("impersonate-group", "system:masters"),
        ("impersonate-extra-signoff.dev%2fchannel", "web"),
        ("authorization", "Bearer of-bob"),
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-user", "root"),
        ("x-smuggled", "yes"),
    ];
    browser.more = smuggled.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    assert!(browser.is_signed_in(&world).await);
    assert_eq!(location(&browser.post(&world, "/namespaces", "namespaces=finance").await), "/");
    let seen = world.seen.lock().unwrap();
    assert_eq!(seen.len(), 6);
    for headers in seen.iter() {
        assert_eq!(headers["authorization"], "Bearer of-alice");
        assert_eq!(headers.get_all("authorization").iter().count(), 1);
        for (name, _) in smuggled.iter().filter(|(name, _)| *name != "authorization") {
            assert!(!headers.contains_key(*name), "{name}");
        }
    }
}

#[tokio::test]
async fn sign_in_leads_to_the_requested_page_and_to_no_other_site() {
    let world = world();
    for (path, target) in
        [("/n/finance/a/pay-1", "/n/finance/a/pay-1"), ("/history?next=//evil.example", "/history"), ("/?page=2", "/")]
    {
        let mut browser = Browser::default();
        assert_eq!(location(&browser.get(&world, path).await), "/sign-in", "{path}");
        let form = "token=of-alice&next=https://evil.example";
        let response = browser.post(&world, "/sign-in/token?next=//evil.example", form).await;
        assert_eq!(location(&response), target, "{path}");
    }
    let mut browser = Browser::default();
    let none = browser.get(&world, "/n/finance/a/%2f%2fevil.example").await;
    assert_eq!(none.status(), StatusCode::NOT_FOUND, "a name that is none is no page");
    assert!(browser.cookies.is_empty(), "and is not remembered");
}

#[tokio::test]
async fn link_of_a_notice_is_kept_and_shows_nothing_before_the_sign_in() {
    let world = world();
    world.accept_token("*", "alice");
    let link = "/n/finance/a/pay-1?d=0123456789abcdef";
    for by_issuer in [false, true] {
        let mut browser = Browser::default();
        let asked = world.count_requests();
        let response = browser.get(&world, link).await;
        assert_eq!(location(&response), "/sign-in");
        let said = text(response).await + &text(browser.get(&world, "/sign-in").await).await;
        assert!(!said.contains("pay-1") && !said.contains("finance"), "{said}");
        assert_eq!(world.count_requests(), asked, "whether it exists is asked after the sign-in");
        let response = match by_issuer {
            true => browser.sign_in(&world).await,
            false => browser.post(&world, "/sign-in/token", "token=of-alice").await,
        };
        assert_eq!(location(&response), link);
    }
    for (path, target) in [
        ("/n/finance/a/pay-1?d=0123456789abcdef%0d%0aset-cookie:%20a=b", "/n/finance/a/pay-1"),
        ("/n/finance/a/pay-1?d=//evil.example/0", "/n/finance/a/pay-1"),
        ("//evil.example?d=0123456789abcdef", "/"),
        ("/%5cevil.example?d=0123456789abcdef", "/"),
        ("/unknown?d=0123456789abcdef", "/"),
    ] {
        let mut browser = Browser::default();
        browser.get(&world, path).await;
        assert_eq!(location(&browser.post(&world, "/sign-in/token", "token=of-alice").await), target, "{path}");
    }
}

#[tokio::test]
async fn read_without_a_session_is_redirected_and_a_form_gets_an_error() {
    let (world, mut browser) = (world(), Browser::default());
    assert_eq!(location(&browser.get(&world, "/").await), "/sign-in");
    assert!(browser.cookies.contains_key("__Host-signoff-wanted"));
    let response = browser.post(&world, "/namespaces", "namespaces=a").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let said = text(response).await;
    assert!(said.contains("session has ended") && said.contains("kept in this browser as a draft"), "{said}");
    let response = browser.get(&world, "/events").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "a stream is not redirected");
}

#[tokio::test]
async fn refused_token_is_sent_to_the_api_server_once_and_can_sign_out() {
    let world = world();
    let mut browser = sign_in(&world, "of-alice").await;
    browser.cookies.insert("__Host-signoff-3".to_owned(), "of-another-key".to_owned());
    world.tokens.lock().unwrap().remove("of-alice");
    let before = world.count_requests();
    for _ in 0..5 {
        assert_eq!(location(&browser.get(&world, "/").await), "/sign-in");
    }
    assert_eq!(world.count_requests(), before + 1);
    let response = browser.post(&world, "/sign-out", "").await;
    assert_eq!(location(&response), "/sign-in");
    assert_eq!(response.headers()["clear-site-data"], "\"cache\"", "drafts stay, and Back shows nothing");
    assert!(browser.cookies.is_empty(), "{:?}", browser.cookies);
}

#[tokio::test]
async fn browser_cache_is_cleared_at_a_sign_in_and_at_the_end_of_a_session() {
    let (world, mut browser) = (world(), Browser::default());
    let clears =
        |response: &Response| response.headers().get("clear-site-data").is_some_and(|value| value == "\"cache\"");
    assert!(!clears(&browser.get(&world, "/").await), "there was no session");
    assert!(clears(&browser.post(&world, "/sign-in/token", "token=of-alice").await));
    assert!(!clears(&browser.get(&world, "/sign-in").await), "she is signed in");
    world.tokens.lock().unwrap().remove("of-alice");
    for path in ["/", "/sign-in", "/events"] {
        assert!(clears(&browser.get(&world, path).await), "{path}");
    }
    let refused = browser.post(&world, "/n/finance/a/pay-1/decide", "verdict=Approve").await;
    assert_eq!((refused.status(), clears(&refused)), (StatusCode::UNAUTHORIZED, true));
    assert_eq!(refused.headers()[header::CACHE_CONTROL], "no-store");
    world.accept_token("*", "alice");
    assert!(clears(&Browser::default().sign_in(&world).await), "by the identity provider too");
}

#[tokio::test]
async fn answers_and_errors_of_a_decision_are_cached_for_a_moment() {
    let world = world();
    let mut browser = sign_in(&world, "of-alice").await;
    for path in ["/n/finance/a/pay-1/decide", "/n/finance/t/0a1b2c/decide", "/n/finance/together/decide"] {
        let response = browser.post(&world, path, "verdict=Approve&confirmed=x").await;
        assert!(response.status().is_client_error() || response.status().is_server_error(), "{path}");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "private, max-age=300", "{path}");
    }
    for path in ["/n/finance/a/pay-1", "/n/finance/t/0a1b2c", "/together"] {
        assert_eq!(browser.get(&world, path).await.headers()[header::CACHE_CONTROL], "no-store", "{path}");
    }
}

#[tokio::test]
async fn cookies_of_two_people_do_not_mix() {
    let world = World::new(&[]);
    let (long, other) = ("a".repeat(5_000), "b".repeat(5_000));
    world.accept_token(&long, "alice");
    world.accept_token(&other, "bob");
    let (mut alice, bob) = (sign_in(&world, &long).await, sign_in(&world, &other).await);
    assert!(alice.is_signed_in(&world).await);
    alice.cookies.insert("__Host-signoff-1".to_owned(), bob.cookies["__Host-signoff-1"].clone());
    assert!(!alice.is_signed_in(&world).await);
}

#[tokio::test]
async fn too_many_sign_ins_of_one_address_are_refused_before_any_request() {
    let (world, mut browser) = (world(), Browser::default());
    let mut refused = None;
    for at in 0..200 {
        let response = browser.post(&world, "/sign-in/token", &format!("token=wrong-{at}")).await;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            refused = Some(response);
            break;
        }
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }
    let refused = refused.unwrap();
    assert!(refused.headers()[header::RETRY_AFTER].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    let asked = world.count_requests();
    assert_eq!(browser.post(&world, "/sign-in/start", "").await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(browser.get(&world, "/sign-in/callback").await.status(), StatusCode::UNAUTHORIZED, "nothing was begun");
    assert_eq!(world.count_requests(), asked);
    assert_eq!(browser.get(&world, "/sign-in").await.status(), StatusCode::OK, "the page itself is shown");
}

#[tokio::test]
async fn invalid_token_is_not_sent_anywhere() {
    let (world, mut browser) = (world(), Browser::default());
    let large = "x".repeat(70_000);
    for wrong in ["a%0d%0aImpersonate-User:%20root", "%00", large.as_str()] {
        let response = browser.post(&world, "/sign-in/token", &format!("token={wrong}")).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }
    let response = browser.post(&world, "/sign-in/token", "other=1").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(world.count_requests(), 0);
}
