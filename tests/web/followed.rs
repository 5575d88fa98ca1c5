//! A request that changes while its form is open.

use serde_json::json;
use signoff_api::Approval;
use signoff_tests::browser::{Look, css, role, text};

use crate::harness::{Harness, show_decided_request};
use crate::runs::{Runs, path, user};

/// Sends a decision of a person of the cast.
async fn vote(runs: &Runs, who: &str, approval: &Approval, verdict: &str) {
    runs.decide_as(who, approval, json!({"verdict": verdict, "requestDigest": approval.spec.request.digest})).await;
}

#[tokio::test]
async fn votes_of_others_appear_while_the_form_keeps_text_and_focus() {
    let (harness, [runs]) = Harness::with_runs(["followed"]).await.unwrap();
    let gate = json!({"approvers": [user("alice"), user("bob"), user("carol")], "threshold": 3});
    let approval = runs.start_gate("followed", gate).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.fill(css("#reason"), "half a thought").await.unwrap();
    page.focus(css("#reason")).await.unwrap();
    vote(&runs, "bob", &approval, "Approve").await;
    page.wait(text("Approve by bob@example.com")).await.unwrap();
    page.wait(text("1 of 3 so far").inside("#state")).await.unwrap();
    vote(&runs, "carol", &approval, "Approve").await;
    page.wait(text("Approve by carol@example.com")).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "half a thought");
    assert_eq!(page.focused().await.unwrap(), "textarea Reason (may be left out)");
    page.accessible().await.unwrap();
    harness.assert_no_browser_errors(&page).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.click(role("button", "Approve").inside(css(".confirm"))).await.unwrap();
    show_decided_request(&page).await;
    page.wait(role("heading", "How it was decided")).await.unwrap();
    assert_eq!(runs.wait_for_result("followed").await, "done");
}

#[tokio::test]
async fn reader_who_types_sees_the_decision_of_another_and_keeps_a_draft() {
    let (harness, [runs]) = Harness::with_runs(["meanwhile"]).await.unwrap();
    let approval = runs.start_gate("meanwhile", json!({"approvers": [user("alice"), user("bob")]})).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.fill(css("#reason"), "half a thought").await.unwrap();
    vote(&runs, "bob", &approval, "Reject").await;
    page.wait(text("It was decided meanwhile. What you typed is kept as a draft.").inside("[aria-live=polite]"))
        .await
        .unwrap();
    assert_eq!(page.count(css(".boxes")).await.unwrap(), 0, "nothing would follow from a decision any more");
    page.wait(role("heading", "How it was decided")).await.unwrap();
    page.wait(text("Rejected (Reject) by bob@example.com")).await.unwrap();
    assert_eq!(page.text(css(".top .state")).await.unwrap().replace('\n', " "), "✕ Rejected");
    assert!(!page.visible(css(".jump")).await.unwrap());
    assert!(!page.visible(role("button", "Approve")).await.unwrap(), "there is nothing to decide any more");
    page.accessible().await.unwrap();
    page.screenshot("decided-meanwhile").await.unwrap();
    page.click(role("button", "Reload")).await.unwrap();
    page.wait(role("heading", "How it was decided")).await.unwrap();
    page.wait_gone(role("heading", "Decide")).await.unwrap();
}
