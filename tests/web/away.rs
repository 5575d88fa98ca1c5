//! An API server that is away for a while: the page reports it, keeps what was typed, and needs no restart.

use std::time::Duration;

use serde_json::json;
use signoff_tests::browser::{Look, css, role, text};

use crate::attacks::visitor::{Visitor, assert_only_reads, requests_of_users};
use crate::harness::Harness;
use crate::runs::path;

#[tokio::test]
async fn pages_report_an_unreachable_api_server_and_decide_nothing_twice() {
    let (harness, [runs]) = Harness::with_runs(["away"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let alice = Visitor::of(&harness, "alice").await;
    let mut stream = alice.send_open("GET", "/events", &[], None).await;
    assert!(stream.chunk().await.unwrap().is_some());
    harness.witness.close().await;
    for page in ["/", &path(&approval), "/history", "/history.csv", "/policies", "/events"] {
        let answer = tokio::time::timeout(Duration::from_secs(20), alice.get(page)).await.expect(page);
        assert_eq!(answer.status, 503, "{page}: {}", answer.text);
        assert!(
            answer.text.contains("Try again") && answer.text.contains("cannot be reached"),
            "{page}: {}",
            answer.text
        );
        assert!(!answer.text.contains(&alice.token), "{page}");
        let is_shown = page != "/events";
        assert!(!is_shown || !answer.text.contains("Nothing was decided"), "a read can follow a decision: {page}");
    }
    let answer = alice.approve(&approval).await;
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert!(answer.text.contains("Nothing was decided"), "{}", answer.text);
    let stranger = Visitor::stranger(&harness.web);
    assert_eq!(stranger.get("/sign-in").await.status, 200, "who is not signed in is asked to");
    let answer = stranger.post("/sign-in/token", &[("token", &alice.token)]).await;
    assert_eq!(answer.status, 503, "{}", answer.text);
    let over = tokio::time::timeout(Duration::from_secs(20), async { while let Ok(Some(_)) = stream.chunk().await {} });
    over.await.expect("the stream ends when its watch breaks");
    assert_eq!(harness.web.health("/healthz").await.unwrap().0, 200, "that is no reason to be restarted");
    let ready = harness.web.health("/readyz").await.unwrap();
    assert!(ready.0 == 200 && ready.1.contains("cannot be reached"), "it serves pages that say so: {ready:?}");

    harness.witness.forget();
    harness.witness.open().await.unwrap();
    assert!(requests_of_users(&harness.witness).is_empty(), "what was refused is not sent by itself");
    assert!(alice.get("/").await.text.contains(approval.metadata.name.as_deref().unwrap()), "the feed is open again");
    assert_only_reads(&harness.witness);
    let mut stream = alice.send_open("GET", "/events", &[], None).await;
    assert!(stream.chunk().await.unwrap().is_some());
    assert!(runs.read_decision(&approval, "alice").await.is_null());
    assert_eq!(alice.approve(&approval).await.status, 303, "the same form is taken");
    assert_eq!(runs.read_decision(&approval, "alice").await["verdict"], "Approve");
    let changed = tokio::time::timeout(Duration::from_secs(20), stream.chunk()).await.expect("what changes is told");
    assert!(String::from_utf8_lossy(&changed.unwrap().unwrap()).contains("waiting"));
}

#[tokio::test]
async fn typed_text_is_kept_while_the_api_server_is_unreachable() {
    let (harness, [runs]) = Harness::with_runs(["typing"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait_url(&harness.url("/")).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.fill(css("#reason"), "typed before the outage").await.unwrap();
    harness.witness.close().await;
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(text("Nothing was decided").nth(0)).await.unwrap();
    page.accessible().await.unwrap();
    page.screenshot("away").await.unwrap();
    harness.witness.open().await.unwrap();
    page.click(role("link", "Try again")).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "typed before the outage");
    assert!(runs.read_decision(&approval, "alice").await.is_null(), "a draft is never sent by itself");
    page.click(role("button", "Approve")).await.unwrap();
    page.wait_title("Confirm").await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait_url(&path(&approval)).await.unwrap();
    assert_eq!(runs.read_decision(&approval, "alice").await["reason"], "typed before the outage");
    page.close().await.unwrap();
}

#[tokio::test]
async fn slow_api_server_causes_no_second_decision() {
    let (harness, [runs]) = Harness::with_runs(["slow"]).await.unwrap();
    let approval = runs
        .start_gate("one", json!({"approvers": [crate::runs::user("alice"), crate::runs::user("bob")], "threshold": 2}))
        .await;
    let alice = Visitor::of(&harness, "alice").await;
    harness.witness.delay(Duration::from_millis(200));
    // An impatient person presses three times.
    let answer = futures::future::join_all((0..3).map(|_| alice.approve(&approval))).await;
    assert!(answer.iter().any(|answer| answer.status == 303));
    for answer in &answer {
        assert!([303, 409, 422].contains(&answer.status), "{}: {}", answer.status, answer.text);
    }
    let stored = runs.read_request(&approval).await;
    assert_eq!(stored.spec.decisions.len(), 1);
    assert_eq!(runs.read_decision(&approval, "alice").await["verdict"], "Approve");
}
