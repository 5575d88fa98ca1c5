//! The identity of requests to the API server: the session's token and nothing else. The witness records them, so the
//! tests do not rely on the page.

use std::collections::BTreeSet;

use serde_json::json;
use signoff_tests::control_plane::Seen;

use super::visitor::{Visitor, assert_only_reads, bind_group, requests_of_users, token};
use crate::harness::Harness;
use crate::runs::{path, user};

/// Every header that a request to the API server may have.
const HEADERS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "authorization",
    "content-length",
    "content-type",
    "host",
    "user-agent",
    "x-kubernetes-client",
];

/// Fails unless a request has exactly this token, and no header that is not in [`HEADERS`].
fn assert_sent_with(seen: &Seen, token: &str) {
    let all: Vec<_> = seen.headers.get_all("authorization").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(all, [format!("Bearer {token}")], "{} {}", seen.method, seen.path);
    for name in seen.headers.keys() {
        assert!(HEADERS.contains(&name.as_str()), "{} {} has the header {name}", seen.method, seen.path);
    }
}

#[tokio::test]
async fn pages_and_forms_use_only_the_token_of_their_session() {
    let (harness, [runs]) = Harness::with_runs(["whose"]).await.unwrap();
    let asks = json!({"approvers": [user("alice"), user("bob")]});
    let (one, two) = (runs.start_gate("one", asks.clone()).await, runs.start_gate("two", asks).await);
    let (alice, bob) = (Visitor::of(&harness, "alice").await, Visitor::of(&harness, "bob").await);
    harness.witness.forget();
    let use_pages = async |visitor: &Visitor, approval| {
        let here = path(approval);
        for page in ["/", &here, "/history", "/history.csv", "/policies", "/sign-in"] {
            assert!(visitor.get(page).await.status < 400, "{page}");
        }
        assert_eq!(visitor.post("/namespaces", &[("namespaces", "default")]).await.status, 303);
        let tried = [("digest", approval.spec.request.digest.as_str()), ("verdict", "Approve")];
        assert_eq!(visitor.post(&format!("{here}/decide"), &tried).await.status, 200);
        assert_eq!(visitor.approve(approval).await.status, 303);
    };
    tokio::join!(use_pages(&alice, &one), use_pages(&bob, &two));

    let requests = requests_of_users(&harness.witness);
    let name = |approval: &signoff_api::Approval| approval.metadata.name.clone().unwrap();
    let (mut hers, mut his) = (0, 0);
    for seen in &requests {
        // Each of the two users opened one request only.
        let token = match seen.path.as_str() {
            path if path.contains(&name(&one)) => &alice.token,
            path if path.contains(&name(&two)) => &bob.token,
            _ if seen.token() == Some(&alice.token) => &alice.token,
            _ => &bob.token,
        };
        assert_sent_with(seen, token);
        if *token == alice.token { hers += 1 } else { his += 1 }
    }
    assert!(hers > 10 && his > 10, "{hers} and {his}");
    let patches: Vec<_> = requests.iter().filter(|seen| seen.method == http::Method::PATCH).collect();
    // For each user: one dry run for the tried decision, two for the confirmed one, and the vote.
    assert_eq!(patches.len(), 8, "{patches:?}");
    assert_eq!(runs.read_decision(&one, "alice").await["verdict"], "Approve");
    assert_eq!(runs.read_decision(&two, "bob").await["verdict"], "Approve");
    assert!(runs.read_decision(&one, "bob").await.is_null() && runs.read_decision(&two, "alice").await.is_null());
}

#[tokio::test]
async fn headers_of_a_request_do_not_reach_the_api_server() {
    let (harness, [runs]) = Harness::with_runs(["besides"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let alice = Visitor::of(&harness, "alice").await;
    harness.witness.forget();
    let origin = alice.url.clone();
    let smuggled = [
        ("impersonate-user", "smuggled-admin"),
        ("impersonate-uid", "smuggled"),
        ("impersonate-group", "smuggled:masters"),
        ("impersonate-extra-signoff.dev%2fchannel", "smuggled"),
        ("x-remote-user", "smuggled-admin"),
        ("x-remote-group", "smuggled:masters"),
        ("x-remote-extra-scopes", "smuggled"),
        ("x-forwarded-user", "smuggled-admin"),
        ("x-forwarded-for", "192.0.2.66"),
        ("forwarded", "for=192.0.2.66;host=smuggled"),
        ("x-forwarded-host", "smuggled.example"),
        ("authorization", "Bearer smuggled-token"),
        ("proxy-authorization", "Bearer smuggled-token"),
        ("audit-id", "smuggled"),
        ("traceparent", "00-5a6d75676c65640000000000000000aa-5a6d75676c6564aa-01"),
        ("x-http-method-override", "DELETE"),
        ("accept", "application/smuggled"),
        ("user-agent", "smuggled"),
        ("connection", "close, authorization, cookie"),
        ("te", "trailers"),
    ];
    for page in ["/", &path(&approval), "/history", "/policies"] {
        assert_eq!(alice.send("GET", page, &smuggled, None).await.status, 200, "{page}");
    }
    let ours = [("origin", origin.as_str()), ("sec-fetch-site", "same-origin"), super::visitor::FORM];
    let headers: Vec<_> = smuggled.iter().chain(&ours).copied().collect();
    let fields = super::visitor::approval_fields(&approval);
    let decide = format!("{}/decide?dryRun=All&fieldManager=smuggled&impersonate=smuggled", path(&approval));
    assert_eq!(alice.decide_with(&decide, &fields[..2], &headers).await.status, 303);
    for seen in requests_of_users(&harness.witness) {
        assert_sent_with(&seen, &alice.token);
        let all = format!("{} {:?} {}", seen.path, seen.headers, seen.body);
        for part in ["smuggled", "192.0.2.66", "5a6d7567", "__Host"] {
            assert!(!all.contains(part), "{part}: {all}");
        }
    }
    assert_eq!(runs.read_decision(&approval, "alice").await["verdict"], "Approve", "it counts as hers, and only once");
    assert_eq!(runs.read_request(&approval).await.spec.decisions.len(), 1);
}

#[tokio::test]
async fn token_in_a_header_without_a_cookie_is_no_session() {
    let (harness, [runs]) = Harness::with_runs(["bearer"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let token = token(&harness, "alice@example.com").await;
    let stranger = Visitor::stranger(&harness.web);
    harness.witness.forget();
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("origin", &stranger.url), super::visitor::FORM];
    assert_eq!(stranger.send("GET", "/", &headers[..1], None).await.status, 303, "it signs in by its cookies only");
    let fields = super::visitor::form(&super::visitor::approval_fields(&approval));
    let decide = format!("{}/decide", path(&approval));
    assert_eq!(stranger.send("POST", &decide, &headers, Some(fields)).await.status, 401);
    assert_eq!(stranger.send("GET", "/events", &headers[..1], None).await.status, 401);
    assert!(
        requests_of_users(&harness.witness).is_empty(),
        "the API server is not asked: {:?}",
        requests_of_users(&harness.witness)
    );
}

#[tokio::test]
async fn two_tokens_of_a_user_have_their_own_rights() {
    let (harness, [runs]) = Harness::with_runs(["two-tokens"]).await.unwrap();
    bind_group(&harness.cluster, &runs, "signoff-approver", runs.name()).await;
    let two = format!("two.{}@example.com", runs.name());
    let person = json!({"kind": "User", "name": two});
    let approval = runs.start_gate("secret-plan", json!({"approvers": [person], "prompt": "The plan?"})).await;
    let many = token(&harness, &format!("email={two}&groups={}", runs.name())).await;
    let few = token(&harness, &format!("email={two}&groups=others")).await;
    let (many, few) = tokio::join!(Visitor::with_token(&harness.web, &many), Visitor::with_token(&harness.web, &few));

    for (visitor, sees) in [(&many, true), (&few, false), (&many, true), (&few, false)] {
        let inbox = visitor.get("/").await;
        assert_eq!((inbox.status, inbox.text.contains("secret-plan")), (200, sees), "{}", inbox.text);
        let page = visitor.get(&path(&approval)).await;
        assert_eq!((page.status, page.text.contains("The plan?")), (if sees { 200 } else { 403 }, sees));
        let history = visitor.get("/history.csv").await;
        assert!(!history.text.contains("secret-plan"), "nothing is decided: {}", history.text);
    }
    harness.witness.forget();
    assert_eq!(few.approve(&approval).await.status, 403);
    assert_only_reads(&harness.witness);
    assert_eq!(many.approve(&approval).await.status, 303);
    let by: BTreeSet<_> = runs.read_request(&approval).await.spec.decisions.into_keys().collect();
    assert_eq!(by, [two].into());
}

#[tokio::test]
async fn following_every_link_changes_nothing() {
    let (harness, [runs]) = Harness::with_runs(["crawl"]).await.unwrap();
    runs.start_gate("open", json!({})).await;
    let decided = runs.start_gate("decided", json!({})).await;
    runs.decide_as("alice", &decided, json!({"verdict": "Approve"})).await;
    runs.wait_for_end("decided").await;
    let alice = Visitor::of(&harness, "alice").await;
    harness.witness.forget();
    let (mut seen, mut next) = (BTreeSet::new(), vec!["/".to_owned()]);
    while let Some(page) = next.pop() {
        if !seen.insert(page.clone()) {
            continue;
        }
        assert!(seen.len() < 200, "the pages have no end: {seen:?}");
        let answer = alice.get(&page).await;
        assert!(answer.status < 500, "{page}: {} {}", answer.status, answer.text);
        for link in answer.text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let link = link.replace("&amp;", "&").replace("&#38;", "&");
            let link = link.split('#').next().unwrap_or_default().to_owned();
            if link.starts_with('/') {
                next.push(link);
            }
        }
        for form in answer.text.split("<form ").skip(1).filter_map(|rest| rest.split('>').next()) {
            assert!(form.contains("method=\"post\"") || form.contains("method=\"get\""), "{page}: {form}");
        }
    }
    assert!(seen.len() > 5 && seen.iter().any(|page| page.contains("/a/")), "{seen:?}");
    assert_only_reads(&harness.witness);
}
