//! Cookies that were forged, cut, swapped or kept. None of them is a session, except for a kept one: see the docs.

use serde_json::json;
use signoff_tests::control_plane::{Cluster, WebOptions, WebProcess};

use super::visitor::{Visitor, asked, only_reads, token};
use crate::harness::Harness;
use crate::runs::path;

const FIRST: &str = "__Host-signoff";

/// Returns a token that needs two cookies: the holder is in many groups.
async fn long(harness: &Harness, email: &str) -> String {
    let groups: Vec<_> =
        (0..80).map(|n| format!("{}-{n:03}-{}", email.split('@').next().unwrap(), "x".repeat(20))).collect();
    token(harness, &format!("email={email}&groups={}", groups.join(","))).await
}

/// Checks that a visitor has no session: a page redirects to the sign-in page, a form is answered with it, and nothing
/// is sent to the API server.
async fn is_nobody(harness: &Harness, visitor: &Visitor, approval: &signoff_api::Approval, what: &str) {
    harness.witness.forget();
    let look = visitor.get("/").await;
    assert_eq!((look.status, look.header("location")), (303, "/sign-in"), "{what}");
    assert_eq!(visitor.approve(approval).await.status, 401, "{what}");
    assert_eq!(visitor.get("/events").await.status, 401, "{what}");
    assert!(asked(&harness.witness).is_empty(), "{what}: {:?}", asked(&harness.witness));
}

#[tokio::test]
async fn cookie_of_another_page_is_no_session() {
    let (harness, [runs]) = Harness::with_runs(["forged"]).await.unwrap();
    let approval = runs.gate("one", json!({})).await;
    let alice = Visitor::of(&harness, "alice").await;
    let whole = alice.cookies[FIRST].clone();
    let flipped = |at: usize| {
        let other = if whole.as_bytes()[at] == b'A' { "B" } else { "A" };
        format!("{}{other}{}", &whole[..at], &whole[at + 1..])
    };
    let plain = json!({"token": alice.token, "since": "2026-11-25T00:00:00Z"}).to_string();
    let quoted: String = url::form_urlencoded::byte_serialize(format!("1:{plain}").as_bytes()).collect();
    let forged = [
        ("no text at all", String::new()),
        ("a token as it is", alice.token.clone()),
        ("a session that is not encrypted", quoted),
        ("half of it", whole[..whole.len() / 2].to_owned()),
        ("all but the end", whole[..whole.len() - 8].to_owned()),
        ("one more letter", format!("{whole}A")),
        ("twice", format!("{whole}{whole}")),
        ("another beginning", flipped(2)),
        ("another middle", flipped(whole.len() / 2)),
        ("10,000 letters", "A".repeat(10_000)),
    ];
    for (what, value) in forged {
        let mut visitor = alice.clone();
        visitor.cookies.insert(FIRST.to_owned(), value);
        is_nobody(&harness, &visitor, &approval, what).await;
    }
    for name in ["__Host-signoff-1", "__Host-signoff-namespaces", "signoff", "__Secure-signoff"] {
        let mut visitor = alice.clone();
        visitor.cookies = [(name.to_owned(), whole.clone())].into();
        is_nobody(&harness, &visitor, &approval, name).await;
    }
    assert_eq!(alice.get("/").await.status, 200, "hers holds");
}

#[tokio::test]
async fn a_cookie_of_another_key_is_no_session_and_of_the_same_key_it_is() {
    let (harness, [runs]) = Harness::with_runs(["key"]).await.unwrap();
    let approval = runs.gate("one", json!({})).await;
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
    is_nobody(&harness, &there(&harness.web), &approval, "of another page's key").await;
    assert_eq!(there(&two).get("/").await.status, 200);
}

#[tokio::test]
async fn session_from_parts_of_two_sessions_is_refused() {
    let (harness, [runs]) = Harness::with_runs(["parts"]).await.unwrap();
    let approval = runs.gate("one", json!({})).await;
    let (one, two) = (long(&harness, "part-one@example.com").await, long(&harness, "part-two@example.com").await);
    let one = Visitor::with_token(&harness.web, &one).await;
    let two = Visitor::with_token(&harness.web, &two).await;
    assert!(one.cookies.len() >= 2 && one.cookies.len() == two.cookies.len(), "{:?}", one.cookies.keys());
    for (first, other) in [(&one, &two), (&two, &one)] {
        let mut mixed = other.clone();
        mixed.cookies.insert(FIRST.to_owned(), first.cookies[FIRST].clone());
        harness.witness.forget();
        assert_eq!(mixed.get("/").await.header("location"), "/sign-in");
        assert_eq!(mixed.approve(&approval).await.status, 401);
        only_reads(&harness.witness);
        // A token of two halves has no valid signature: the API server may be asked, and refuses it.
        assert!(asked(&harness.witness).iter().all(|seen| seen.status == Some(401)), "{:?}", asked(&harness.witness));

        let mut missing = other.clone();
        missing.cookies.remove("__Host-signoff-1");
        is_nobody(&harness, &missing, &approval, "a part is missing").await;
        let mut swapped = other.clone();
        let second = swapped.cookies.insert("__Host-signoff-1".to_owned(), other.cookies[FIRST].clone()).unwrap();
        swapped.cookies.insert(FIRST.to_owned(), second);
        is_nobody(&harness, &swapped, &approval, "swapped").await;
    }
    assert_eq!(one.get("/").await.status, 200);
}

/// The page stores nothing of a session: docs/security.md explains the limits of sign-out.
#[tokio::test]
async fn sign_out_removes_cookies_and_a_stolen_one_ends_with_its_token() {
    let harness = Harness::set().await.unwrap();
    let mut alice = Visitor::with_token(&harness.web, &long(&harness, "stolen@example.com").await).await;
    let thief = alice.clone();
    let said = alice.post("/sign-out", &[]).await;
    assert_eq!((said.status, said.header("location")), (303, "/sign-in"));
    alice.keep(&said);
    assert!(!alice.cookies.keys().any(|name| name.starts_with("__Host-signoff")), "{:?}", alice.cookies.keys());
    assert_eq!(alice.get("/").await.status, 303);
    assert_eq!(thief.get("/").await.status, 200, "nothing ends a signed token but its time");
}

#[tokio::test]
async fn cookies_are_for_this_host_over_tls_and_no_script_and_no_other_sites_form() {
    let harness = Harness::set().await.unwrap();
    let stranger = Visitor::stranger(&harness.web);
    let token = long(&harness, "attributes@example.com").await;
    let said = stranger.post("/sign-in/token", &[("token", &token)]).await;
    let set: Vec<_> = said.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
    assert!(set.iter().filter(|cookie| cookie.starts_with("__Host-signoff")).count() >= 2, "{set:?}");
    for cookie in set {
        for part in ["Secure", "HttpOnly", "Path=/", "SameSite="] {
            assert!(cookie.contains(part), "{part}: {cookie}");
        }
        assert!(!cookie.contains("Domain") && !cookie.contains("SameSite=None"), "{cookie}");
        assert!(!cookie.contains(&token[..40]), "the token is not there to read");
    }
    assert_eq!(said.header("cache-control"), "no-store");
    assert!(!harness.web.log().unwrap().contains(&token[..60]), "nor in the log");
}

#[tokio::test]
async fn path_is_checked_independent_of_the_session() {
    let (harness, [runs]) = Harness::with_runs(["outsider"]).await.unwrap();
    let approval = runs.gate("one", json!({"prompt": "Sell the house?"})).await;
    let mallory = Visitor::of(&harness, "mallory").await;
    harness.witness.forget();
    let page = mallory.get(&path(&approval)).await;
    assert_eq!(page.status, 403);
    assert!(!page.text.contains("Sell the house"), "{}", page.text);
    assert_eq!(mallory.approve(&approval).await.status, 403);
    assert!(!mallory.get("/").await.text.contains("Sell the house"));
    only_reads(&harness.witness);
    assert!(runs.stored(&approval).await.spec.decisions.is_empty());
}
