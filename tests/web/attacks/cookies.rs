//! Cookies that were forged, cut or swapped are no session. A cookie that was copied before the sign-out stays one.

use serde_json::json;
use signoff_tests::control_plane::{Cluster, WebOptions, WebProcess};

use super::visitor::{Visitor, assert_only_reads, requests_of_users, token};
use crate::harness::Harness;
use crate::runs::path;

const FIRST: &str = "__Host-signoff";

/// Returns a token that needs two cookies: the holder is in many groups.
async fn long_token(harness: &Harness, email: &str) -> String {
    let groups: Vec<_> =
        (0..80).map(|n| format!("{}-{n:03}-{}", email.split('@').next().unwrap(), "x".repeat(20))).collect();
    token(harness, &format!("email={email}&groups={}", groups.join(","))).await
}

/// Checks that a visitor has no session: a page redirects to the sign-in page, a form is answered with it, and nothing
/// is sent to the API server.
async fn assert_no_session(harness: &Harness, visitor: &Visitor, approval: &signoff_api::Approval, what: &str) {
    harness.witness.forget();
    let inbox = visitor.get("/").await;
    assert_eq!((inbox.status, inbox.header("location")), (303, "/sign-in"), "{what}");
    assert_eq!(visitor.approve(approval).await.status, 401, "{what}");
    assert_eq!(visitor.get("/events").await.status, 401, "{what}");
    assert!(requests_of_users(&harness.witness).is_empty(), "{what}: {:?}", requests_of_users(&harness.witness));
}

#[tokio::test]
async fn cookie_of_another_page_is_no_session() {
    let (harness, [runs]) = Harness::with_runs(["forged"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let alice = Visitor::of(&harness, "alice").await;
    let cookie = alice.cookies[FIRST].clone();
    let flipped = |at: usize| {
        let other = if cookie.as_bytes()[at] == b'A' { "B" } else { "A" };
        format!("{}{other}{}", &cookie[..at], &cookie[at + 1..])
    };
    let plain = json!({"token": alice.token, "since": "2026-11-25T00:00:00Z"}).to_string();
    let quoted: String = url::form_urlencoded::byte_serialize(format!("1:{plain}").as_bytes()).collect();
    let forged = [
        ("no text at all", String::new()),
        ("a token as it is", alice.token.clone()),
        ("a session that is not encrypted", quoted),
        ("half of it", cookie[..cookie.len() / 2].to_owned()),
        ("all but the end", cookie[..cookie.len() - 8].to_owned()),
        ("one more letter", format!("{cookie}A")),
        ("twice", format!("{cookie}{cookie}")),
        ("another beginning", flipped(2)),
        ("another middle", flipped(cookie.len() / 2)),
        ("10,000 letters", "A".repeat(10_000)),
    ];
    for (what, value) in forged {
        let mut visitor = alice.clone();
        visitor.cookies.insert(FIRST.to_owned(), value);
        assert_no_session(&harness, &visitor, &approval, what).await;
    }
    for name in ["__Host-signoff-1", "__Host-signoff-namespaces", "signoff", "__Secure-signoff"] {
        let mut visitor = alice.clone();
        visitor.cookies = [(name.to_owned(), cookie.clone())].into();
        assert_no_session(&harness, &visitor, &approval, name).await;
    }
    assert_eq!(alice.get("/").await.status, 200, "hers holds");
}

#[tokio::test]
async fn cookie_is_a_session_only_of_pages_with_the_same_key() {
    let (harness, [runs]) = Harness::with_runs(["key"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let key = Cluster::web().unwrap().cookie_key().unwrap();
    let start = async |key: Option<std::path::PathBuf>| {
        let kubeconfig = harness.witness.kubeconfig(None).unwrap();
        let options = WebOptions { kubeconfig, cookie_key: key, ..WebOptions::default() };
        WebProcess::start(&harness.cluster, options).await.unwrap()
    };
    let (one, two) = tokio::join!(start(Some(key.clone())), start(Some(key)));
    let theirs = Visitor::with_token(&one, &token(&harness, "alice@example.com").await).await;
    let there = |web: &WebProcess| {
        let mut visitor = theirs.clone();
        web.url().clone_into(&mut visitor.url);
        visitor
    };
    assert_no_session(&harness, &there(&harness.web), &approval, "of another page's key").await;
    assert_eq!(there(&two).get("/").await.status, 200);
}

#[tokio::test]
async fn session_from_parts_of_two_sessions_is_refused() {
    let (harness, [runs]) = Harness::with_runs(["parts"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let (one, two) =
        (long_token(&harness, "part-one@example.com").await, long_token(&harness, "part-two@example.com").await);
    let one = Visitor::with_token(&harness.web, &one).await;
    let two = Visitor::with_token(&harness.web, &two).await;
    assert!(one.cookies.len() >= 2 && one.cookies.len() == two.cookies.len(), "{:?}", one.cookies.keys());
    for (first, other) in [(&one, &two), (&two, &one)] {
        let mut mixed = other.clone();
        mixed.cookies.insert(FIRST.to_owned(), first.cookies[FIRST].clone());
        harness.witness.forget();
        assert_eq!(mixed.get("/").await.header("location"), "/sign-in");
        assert_eq!(mixed.approve(&approval).await.status, 401);
        assert_only_reads(&harness.witness);
        // A token of two halves has no valid signature: the API server may be asked, and refuses it.
        assert!(
            requests_of_users(&harness.witness).iter().all(|seen| seen.status == Some(401)),
            "{:?}",
            requests_of_users(&harness.witness)
        );

        let mut missing = other.clone();
        missing.cookies.remove("__Host-signoff-1");
        assert_no_session(&harness, &missing, &approval, "a part is missing").await;
        let mut swapped = other.clone();
        let second = swapped.cookies.insert("__Host-signoff-1".to_owned(), other.cookies[FIRST].clone()).unwrap();
        swapped.cookies.insert(FIRST.to_owned(), second);
        assert_no_session(&harness, &swapped, &approval, "swapped").await;
    }
    assert_eq!(one.get("/").await.status, 200);
}

/// The page stores nothing of a session: docs/security.md explains the limits of sign-out.
#[tokio::test]
async fn sign_out_removes_the_cookies_and_a_stolen_copy_works_until_its_token_ends() {
    let harness = Harness::start().await.unwrap();
    let mut alice = Visitor::with_token(&harness.web, &long_token(&harness, "stolen@example.com").await).await;
    let thief = alice.clone();
    let answer = alice.post("/sign-out", &[]).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/sign-in"));
    alice.store_cookies(&answer);
    assert!(!alice.cookies.keys().any(|name| name.starts_with("__Host-signoff")), "{:?}", alice.cookies.keys());
    assert_eq!(alice.get("/").await.status, 303);
    assert_eq!(thief.get("/").await.status, 200, "nothing ends a signed token but its time");
}

#[tokio::test]
async fn session_cookies_have_all_protective_attributes() {
    let harness = Harness::start().await.unwrap();
    let stranger = Visitor::stranger(&harness.web);
    let token = long_token(&harness, "attributes@example.com").await;
    let answer = stranger.post("/sign-in/token", &[("token", &token)]).await;
    let set: Vec<_> = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
    assert!(set.iter().filter(|cookie| cookie.starts_with("__Host-signoff")).count() >= 2, "{set:?}");
    for cookie in set {
        for part in ["Secure", "HttpOnly", "Path=/", "SameSite="] {
            assert!(cookie.contains(part), "{part}: {cookie}");
        }
        assert!(!cookie.contains("Domain") && !cookie.contains("SameSite=None"), "{cookie}");
        assert!(!cookie.contains(&token[..40]), "the token is not there to read");
    }
    assert_eq!(answer.header("cache-control"), "no-store");
    assert!(!harness.web.log().unwrap().contains(&token[..60]), "nor in the log");
}

#[tokio::test]
async fn session_without_rights_cannot_read_or_decide_a_request() {
    let (harness, [runs]) = Harness::with_runs(["outsider"]).await.unwrap();
    let approval = runs.start_gate("one", json!({"prompt": "Sell the house?"})).await;
    let mallory = Visitor::of(&harness, "mallory").await;
    harness.witness.forget();
    let page = mallory.get(&path(&approval)).await;
    assert_eq!(page.status, 403);
    assert!(!page.text.contains("Sell the house"), "{}", page.text);
    assert_eq!(mallory.approve(&approval).await.status, 403);
    assert!(!mallory.get("/").await.text.contains("Sell the house"));
    assert_only_reads(&harness.witness);
    assert!(runs.read_request(&approval).await.spec.decisions.is_empty());
}
