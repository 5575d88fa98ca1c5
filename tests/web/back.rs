//! The pages around a decision: the confirmation in the bar, the browser's Back after a decision, and the next request.

use serde_json::json;
use signoff_tests::browser::{Look, css, role, text};

use crate::calls::agent_spec;
use crate::harness::Harness;
use crate::runs::{path, user};

/// Returns the spec of a run whose agent calls a tool, with a gate at which alice can change the arguments.
fn spec_with_call() -> serde_json::Value {
    let hitl = json!({"prompt": "May the refund be sent?", "approvers": [user("alice"), user("bob")],
        "allowedVerdicts": ["Approve", "Modify", "Reject"]});
    let gates = json!([{"name": "money", "type": "toolExecution", "hitl": hitl}]);
    agent_spec(&json!([{"tool": "refund", "arguments": {"amount": 420}}]), &gates, &[])
}

#[tokio::test]
async fn confirmation_opens_in_the_bar_and_back_shows_the_form() {
    let (harness, [runs]) = Harness::with_runs(["bar"]).await.unwrap();
    let approval = runs.start_gate("bar", json!({"prompt": "Pay the invoice?"})).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.fill(css("#reason"), "as agreed").await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: review?")).await.unwrap();
    let confirmation = page.text(css(".confirm")).await.unwrap();
    for part in ["Pay the invoice?", "a draft", "your decision is enough: the run goes on", "as agreed"] {
        assert!(confirmation.contains(part), "{part}: {confirmation}");
    }
    assert!(page.url().await.unwrap().ends_with(&path(&approval)), "nothing was loaded");
    page.accessible().await.unwrap();
    page.click(role("button", "Back")).await.unwrap();
    page.wait(css("#reason")).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "as agreed");
    assert_eq!(runs.read_decision(&approval, "alice").await, json!(null));
    page.click(role("button", "Approve")).await.unwrap();
    page.click(role("button", "Approve").inside(css(".confirm"))).await.unwrap();
    page.wait(text("You approved. Recorded").inside("#instead")).await.unwrap();
    page.back().await.unwrap();
    page.wait(role("heading", "Pay the invoice?")).await.unwrap();
    harness.assert_no_browser_errors(&page).await.unwrap();
}

#[tokio::test]
async fn back_without_scripts_shows_the_confirmation_and_after_sign_out_no_typed_text() {
    let (harness, [runs]) = Harness::with_runs(["back"]).await.unwrap();
    for (name, bytes) in [("short", 160), ("long", 60_000)] {
        runs.start_as("dana", name, spec_with_call()).await;
        let approval = runs.wait_for_request(name).await;
        let page = harness.open_as("alice", &Look::default().without_scripts()).await.unwrap();
        page.goto(&harness.url(&path(&approval))).await.unwrap();
        page.click(text("Change…")).await.unwrap();
        let arguments = json!({"amount": 40, "note": "sixteen letters ".repeat(bytes / 16)});
        page.fill(css("#modify-arguments"), &arguments.to_string()).await.unwrap();
        page.click(role("button", "See the difference")).await.unwrap();
        page.wait(role("heading", "Modify: refund: a text of this run?")).await.unwrap();
        assert_eq!(page.response().await.unwrap().header("cache-control"), "private, max-age=300");
        assert!(!page.url().await.unwrap().contains("sixteen"), "nothing typed stands in an address");
        page.click(role("button", "Modify")).await.unwrap();
        page.wait(css("[data-decided]")).await.unwrap();
        page.back().await.unwrap();
        page.wait(role("heading", "Modify: refund: a text of this run?")).await.unwrap();
        page.back().await.unwrap();
        page.wait(role("heading", "May the refund be sent?")).await.unwrap();
        page.click(role("button", "Sign out")).await.unwrap();
        page.wait(role("heading", "Sign in")).await.unwrap();
        assert!(page.back().await.is_err() || !page.html().await.unwrap().contains("sixteen letters"), "{name}");
    }
}

#[tokio::test]
async fn next_request_opens_after_a_decision_and_its_page_names_the_decided_one() {
    let (harness, [runs]) = Harness::with_runs(["next"]).await.unwrap();
    runs.start_gate("others", json!({"prompt": "Not hers?", "approvers": [user("bob")]})).await;
    let last = runs.start_gate("last", json!({"prompt": "And this one?"})).await;
    let two = |prompt| json!({"prompt": prompt, "approvers": [user("alice"), user("bob")], "threshold": 2});
    let first = runs.start_gate("first", two("This <b>one</b>?")).await;
    let second = runs.start_gate("second", two("And that one?")).await;
    // A request of an equal gate comes before others.
    let looks = [(Look::default(), &first, &second), (Look::default().without_scripts(), &second, &last)];
    for (look, decided, next) in looks {
        let page = harness.open_as("alice", &look).await.unwrap();
        page.goto(&harness.url(&path(decided))).await.unwrap();
        page.click(role("button", "Approve")).await.unwrap();
        page.click(role("button", "Approve").inside(css(".confirm"))).await.unwrap();
        page.wait_url(&path(next)).await.unwrap();
        let (prompt, note) = (&decided.spec.request.prompt, page.text(css("#after")).await.unwrap());
        for part in [prompt, "You approved. Recorded", "Next:"] {
            assert!(note.contains(part), "{part}: {note}");
        }
        page.wait(role("heading", &next.spec.request.prompt)).await.unwrap();
        harness.assert_no_browser_errors(&page).await.unwrap();
        page.click(role("link", prompt).inside("#after")).await.unwrap();
        page.wait(text("1 more is needed.").inside("#instead")).await.unwrap();
        assert!(!page.visible(role("button", "Approve")).await.unwrap(), "no vote is offered to who has voted");
        page.click(role("link", &next.spec.request.prompt)).await.unwrap();
        page.wait_url(&path(next)).await.unwrap();
        // An address proves nothing: a request that its reader did not decide, or that does not exist, is not shown.
        let decided_by_nobody = path(&last).replace("/n/", "").replace("/a/", "/");
        let nothing = format!("{}/call-555-1234.your-vote-was-voided", runs.name());
        for after in [decided_by_nobody.as_str(), nothing.as_str(), "..%2F..%2Fsecrets", "<b>", ""] {
            page.goto(&harness.url(&format!("{}?after={after}", path(next)))).await.unwrap();
            page.wait(role("heading", &next.spec.request.prompt)).await.unwrap();
            assert_eq!(page.count(css("#after")).await.unwrap(), 0, "{after}");
        }
        page.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_long_text_has_its_lines_numbered_and_a_page_of_its_own_that_only_its_readers_see() {
    let (harness, [runs]) = Harness::with_runs(["lines"]).await.unwrap();
    let long = (1..=200).map(|at| format!("clause {at}\n")).collect::<String>();
    let spec = json!({"steps": [
        {"name": "draft", "set": {"value": long}},
        {"name": "review", "hitl": {"prompt": "Sign?", "reviews": "draft", "approvers": [user("alice")]}},
    ]});
    runs.start_as("dana", "lines", spec).await;
    let approval = runs.wait_for_request("lines").await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.wait(text("200 lines")).await.unwrap();
    assert!(!page.text(css("pre.lines").nth(0)).await.unwrap().contains("clause 61"));
    page.click(role("link", "All of it, with 140 more lines")).await.unwrap();
    page.wait(text("clause 200")).await.unwrap();
    page.accessible().await.unwrap();
    page.fits().await.unwrap();
    assert_eq!(page.goto(&harness.url(&format!("{}/text/none", path(&approval)))).await.unwrap(), 404);
    let other = harness.open_as("mallory", &Look::default()).await.unwrap();
    assert_eq!(other.goto(&harness.url(&format!("{}/text/reviewed", path(&approval)))).await.unwrap(), 403);
    assert!(!other.html().await.unwrap().contains("clause 1"));
}
