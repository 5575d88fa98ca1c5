//! The page on which people sign in, and their sessions.

use signoff_tests::browser::{Look, role};
use signoff_tests::control_plane::{CLIENT, Cluster, Front, WebOptions, WebProcess};

use crate::harness::Harness;

#[tokio::test]
async fn the_sign_in_page_is_accessible_in_both_themes_and_sizes() {
    let harness = Harness::start().await.unwrap();
    let plain = Look::default();
    let looks = [
        ("light", plain.clone()),
        ("dark", plain.clone().dark()),
        ("small", plain.clone().small()),
        ("small-dark", plain.small().dark()),
    ];
    for (name, look) in looks {
        let page = harness.open_signed_out(&look, "/sign-in").await.unwrap();
        page.wait(role("heading", "Sign in")).await.unwrap();
        page.accessible().await.unwrap();
        page.fits().await.unwrap();
        page.screenshot(&format!("sign-in-{name}")).await.unwrap();
        assert_eq!(page.complaints().await.unwrap(), Vec::<String>::new());
        page.close().await.unwrap();
    }
}

#[tokio::test]
async fn requests_of_a_session_have_only_the_pasted_token() {
    let harness = Harness::start().await.unwrap();
    let token = harness.issuer.tokens(CLIENT, "alice@example.com").await.unwrap().id_token;
    let page = harness.open_with_token(&token, &Look::default()).await.unwrap();
    page.wait_url(&harness.url("/")).await.unwrap();
    page.screenshot("inbox-nothing-waits").await.unwrap();
    let seen: Vec<_> = harness.witness.seen().into_iter().filter(|seen| seen.token().is_some()).collect();
    assert!(seen.iter().any(|seen| seen.path.contains("signoff.dev")), "the inbox lists Approvals: {seen:?}");
    for request in seen {
        assert_eq!(request.token(), Some(token.as_str()), "{} {}", request.method, request.path);
        assert_eq!(request.impersonates(), []);
    }
    page.close().await.unwrap();
}

#[tokio::test]
async fn killed_page_restarts_at_the_same_address() {
    let mut harness = Harness::start().await.unwrap();
    let pid = harness.web.pid().unwrap();
    harness.web.kill();
    assert!(harness.web.get("/sign-in").await.is_err(), "nobody listens there");
    harness.web.start_again().unwrap();
    harness.web.until_ready().await.unwrap();
    assert_ne!(harness.web.pid().unwrap(), pid);
    assert_eq!(harness.web.get("/sign-in").await.unwrap().0, 200);
    harness.web.stop().await.unwrap();
}

#[tokio::test]
async fn replicas_share_sessions_and_one_can_stop() {
    let front = Front::start().await.unwrap();
    let key = Cluster::web().unwrap().cookie_key().unwrap();
    let harness = Harness::start_with(|options| {
        options.url = Some(front.url());
        options.cookie_key = Some(key.clone());
    });
    let mut harness = harness.await.unwrap();
    let options = WebOptions {
        url: Some(front.url()),
        cookie_key: Some(key),
        kubeconfig: harness.witness.kubeconfig(None).unwrap(),
        issuer: Some(harness.issuer.clone()),
        ..WebOptions::default()
    };
    let other = WebProcess::start(&harness.cluster, options).await.unwrap();
    front.lead_to([&harness.web]);
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait_url(&harness.url("/")).await.unwrap();
    front.lead_to([&harness.web, &other]);
    harness.web.kill();
    assert_eq!(page.goto(&harness.url("/")).await.unwrap(), 200);
    assert!(!page.url().await.unwrap().contains("sign-in"), "the other replica knows the session");
    page.close().await.unwrap();
}
