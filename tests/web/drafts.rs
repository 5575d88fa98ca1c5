//! Drafts: typed text is kept in the browser of its author, for one version of one request, and is never sent by
//! itself.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use signoff_api::Approval;
use signoff_tests::browser::{Look, Page, css, role, text};

use crate::harness::{Harness, show_decided_request};
use crate::runs::{Runs, path};

/// Starts a run, and opens the form of its request as alice.
async fn open_form(prefix: &str) -> (Harness, Runs, Approval, Page) {
    let (harness, [runs]) = Harness::with_runs([prefix]).await.unwrap();
    let approval = runs.start_gate(prefix, json!({"allowedVerdicts": ["Approve", "Defer", "Respond"]})).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    (harness, runs, approval, page)
}

/// Waits until the page has restored a draft with this reason.
async fn assert_draft_is_back(page: &Page, reason: &str) {
    page.wait(text("Your draft of this decision is back. Nothing was sent.")).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), reason);
}

/// Returns the number of drafts in the storage of the browser.
async fn count_drafts(page: &Page) -> u64 {
    let count = "Object.keys(localStorage).filter(name => name.startsWith('signoff-draft:')).length";
    page.evaluate(count).await.unwrap().as_u64().unwrap()
}

/// Checks that no request to the API server was a patch, even as a dry run.
fn assert_nothing_sent(harness: &Harness) {
    let changes: Vec<_> = harness.witness.seen().into_iter().filter(|seen| seen.method == Method::PATCH).collect();
    assert!(changes.is_empty(), "{changes:?}");
}

#[tokio::test]
async fn draft_is_kept_at_a_reload_and_dropped_after_the_decision() {
    let (harness, runs, approval, page) = open_form("reload").await;
    page.fill(css("#reason"), "half a thought").await.unwrap();
    page.reload().await.unwrap();
    assert_draft_is_back(&page, "half a thought").await;
    page.accessible().await.unwrap();
    page.screenshot("draft").await.unwrap();
    page.click(role("button", "Discard the draft")).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "");
    page.reload().await.unwrap();
    assert_eq!((page.value(css("#reason")).await.unwrap(), count_drafts(&page).await), (String::new(), 0));

    page.click(css(".more > summary")).await.unwrap();
    page.fill(css("#guidance"), "shorter").await.unwrap();
    page.fill(css("#reason"), "a whole thought").await.unwrap();
    page.reload().await.unwrap();
    page.wait(text("Your draft of this decision is back")).await.unwrap();
    assert_eq!(page.value(css("#guidance")).await.unwrap(), "shorter");
    assert!(page.visible(css("#guidance")).await.unwrap(), "it is opened");
    assert_nothing_sent(&harness);
    assert_eq!(count_drafts(&page).await, 1, "one draft for the one form");
    page.click(role("button", "Approve")).await.unwrap();
    page.click(role("button", "Approve").inside(css(".confirm"))).await.unwrap();
    show_decided_request(&page).await;
    page.wait(role("heading", "Decisions so far")).await.unwrap();
    assert_eq!(runs.read_decision(&approval, "alice").await["reason"], "a whole thought");
    assert_eq!(count_drafts(&page).await, 0, "they have done their work");
}

#[tokio::test]
async fn a_draft_belongs_to_its_author_and_to_one_request() {
    let (harness, runs, approval, page) = open_form("owner").await;
    page.fill(css("#reason"), "of alice").await.unwrap();
    let gate = json!({"approvers": [crate::runs::user("alice"), crate::runs::user("bob")]});
    let other = runs.start_gate("other", gate).await;
    page.goto(&harness.url(&path(&other))).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "", "another request");
    page.fill(css("#reason"), "of alice too").await.unwrap();
    // The same browser, and another person.
    page.click(role("button", "Sign out")).await.unwrap();
    page.clear_cookies().await.unwrap();
    page.goto(&harness.url("/sign-in")).await.unwrap();
    harness.sign_in_at_issuer(&page, "bob", None).await.unwrap();
    page.goto(&harness.url(&path(&other))).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "");
    assert!(!page.html().await.unwrap().contains("of alice"), "nothing of it is on the page");
    // The same name and run, asked again: another version.
    page.clear_cookies().await.unwrap();
    page.goto(&harness.url("/sign-in")).await.unwrap();
    harness.sign_in_at_issuer(&page, "alice", None).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    assert_draft_is_back(&page, "of alice").await;
    runs.api::<signoff_api::Workflow>().delete("owner", &kube::api::DeleteParams::default()).await.unwrap();
    runs.wait_until_deleted(approval.metadata.name.as_deref().unwrap()).await;
    let again = runs.start_gate("owner", json!({"allowedVerdicts": ["Approve", "Defer", "Respond"]})).await;
    page.goto(&harness.url(&path(&again))).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "", "another uid");
    assert_nothing_sent(&harness);
}

#[tokio::test]
async fn draft_is_kept_while_the_api_server_is_unreachable() {
    let (harness, runs, approval, page) = open_form("away").await;
    page.fill(css("#reason"), "before the storm").await.unwrap();
    harness.witness.close().await;
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Cannot be reached")).await.unwrap();
    page.wait(text("Nothing was decided.")).await.unwrap();
    page.accessible().await.unwrap();
    page.screenshot("away").await.unwrap();
    harness.witness.open().await.unwrap();
    page.click(role("link", "Try again")).await.unwrap();
    page.wait(role("heading", "Go on?")).await.unwrap();
    assert_draft_is_back(&page, "before the storm").await;
    // Once more, in the moment of the confirmation.
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: review?")).await.unwrap();
    harness.witness.close().await;
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Cannot be reached")).await.unwrap();
    harness.witness.open().await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    assert_draft_is_back(&page, "before the storm").await;
    assert_eq!(runs.read_decision(&approval, "alice").await, json!(null));
}

#[tokio::test]
async fn draft_is_kept_after_the_end_of_the_session() {
    let (harness, runs, approval, page) = open_form("expired").await;
    // A session of a few seconds, from the issuer.
    page.clear_cookies().await.unwrap();
    page.goto(&harness.url("/sign-in")).await.unwrap();
    harness.sign_in_at_issuer(&page, "alice", Some(8)).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.fill(css("#reason"), "slowly typed").await.unwrap();
    // Another tab shows when the session has ended.
    let tab = page.tab().await.unwrap();
    tab.goto(&harness.url("/")).await.unwrap();
    let latest = Instant::now() + Duration::from_secs(60);
    while !tab.url().await.unwrap().ends_with("/sign-in") {
        assert!(Instant::now() < latest, "the session ends with its token");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tab.goto(&harness.url("/")).await.unwrap();
    }
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Sign in again")).await.unwrap();
    page.wait(text("Nothing was decided.")).await.unwrap();
    page.accessible().await.unwrap();
    page.screenshot("session-ended").await.unwrap();
    page.click(role("link", "Sign in again")).await.unwrap();
    // The issuer still knows her, and she returns to the same page.
    page.click(css("form[action='/sign-in/start'] button")).await.unwrap();
    page.wait_url(&path(&approval)).await.unwrap();
    assert_draft_is_back(&page, "slowly typed").await;
    assert_eq!(runs.read_decision(&approval, "alice").await, json!(null));
}
