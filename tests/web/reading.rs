//! One request as its reader sees it: facts first, the whole of what is decided, and the words of others as text.

use serde_json::{Value, json};
use signoff_api::approval::ApprovalPhase;
use signoff_api::{Approval, Digest};
use signoff_tests::browser::{Look, Page, css, role, text};

use crate::harness::Harness;
use crate::runs::{Runs, path, user};

/// Opens the page of a request as a person of the cast.
async fn open_request(harness: &Harness, who: &str, approval: &Approval) -> Page {
    let page = harness.open_as(who, &Look::default()).await.unwrap();
    assert_eq!(page.goto(&harness.url(&path(approval))).await.unwrap(), 200);
    page
}

async fn read_headings(page: &Page) -> Value {
    page.evaluate("[...document.querySelectorAll('main h1, main h2')].map(e => e.innerText)").await.unwrap()
}

async fn vote(runs: &Runs, who: &str, approval: &Approval, verdict: &str) {
    runs.decide_as(who, approval, json!({"verdict": verdict, "requestDigest": approval.spec.request.digest})).await;
}

#[tokio::test]
async fn facts_come_before_prose_and_the_decision_is_last() {
    let (harness, [runs]) = Harness::with_runs(["facts"]).await.unwrap();
    let gate = json!({"contextDisplay": "Decide\nApprove this, says the model", "prompt": "Really?", "excluded": ["erin@example.com"],
        "onReject": "continue", "timeout": {"after": "30h", "action": "Skip"}});
    let approval = runs.start_gate("facts", gate).await;
    let page = open_request(&harness, "alice", &approval).await;
    let order = json!([
        "Really?",
        "If you approve",
        "If you reject",
        "What step draft made",
        "Who must agree",
        "Your answer",
        "Decide"
    ]);
    assert_eq!(read_headings(&page).await, order, "a context that looks like a heading is none");
    let facts = page.text(css("#state")).await.unwrap();
    for part in [
        "alice@example.com",
        "1 person",
        "erin@example.com",
        "in 29h",
        "then the run goes on without an answer",
        "alice@example.com, one of the approvers",
    ] {
        assert!(facts.contains(part), "{part}: {facts}");
    }
    let approve = page.text(css("section[aria-labelledby=if-Approve]")).await.unwrap();
    for part in ["your decision is enough", "step act: a text of the run", "then the run ends"] {
        assert!(approve.contains(part), "{part}: {approve}");
    }
    let reject = page.text(css("section[aria-labelledby=if-Reject]")).await.unwrap();
    assert!(reject.contains("the run goes on with act"), "{reject}");
    page.wait(text("the Workflow's question")).await.unwrap();
    assert_eq!(page.count(text("with values of the run filled in")).await.unwrap(), 0);
    let lead = page.text(css("p.lead")).await.unwrap();
    for part in ["facts", runs.name(), "dana@example.com"] {
        assert!(lead.contains(part), "{part}: {lead}");
    }
    page.wait(text("kubectl approve show")).await.unwrap();
    page.click(text("Unchanged since it was asked (details)")).await.unwrap();
    page.wait(text(&approval.spec.request.digest.to_string()).inside("details.digest")).await.unwrap();
    assert!(!page.text(css("main")).await.unwrap().to_lowercase().contains("verified"), "a digest proves no claim");
    // The words of the run are folded.
    assert!(!page.visible(text("Approve this, says the model")).await.unwrap());
    page.click(text("Context, in the run's own words")).await.unwrap();
    page.wait(text("Approve this, says the model")).await.unwrap();
}

#[tokio::test]
async fn long_text_is_shown_whole_or_marked_as_incomplete() {
    let (harness, [runs]) = Harness::with_runs(["whole"]).await.unwrap();
    let long = format!("{}the last word", "a long report, ".repeat(1000));
    runs.start_as(
        "dana",
        "whole",
        json!({"steps": [
            {"name": "report", "set": {"value": long}},
            {"name": "review", "hitl": {"prompt": "Publish?", "reviews": "report", "approvers": [user("alice")],
                "allowedVerdicts": ["Approve", "Modify"]}},
        ]}),
    )
    .await;
    let approval = runs.wait_for_request("whole").await;
    let page = open_request(&harness, "alice", &approval).await;
    let shown = page.text(css("pre.exact-text").nth(0)).await.unwrap();
    assert_eq!(shown.trim(), long, "every word, though the request holds only its beginning");
    let digest = Digest::of_bytes(long.as_bytes()).to_string();
    page.click(text("Unchanged since it was asked (details)")).await.unwrap();
    page.wait(text(&digest).nth(0)).await.unwrap();
    page.wait(text(&format!("{} bytes, whole", long.len()))).await.unwrap();

    // nina can read requests, and no Blobs.
    let page = open_request(&harness, "nina", &approval).await;
    page.wait(text("Not the whole text.")).await.unwrap();
    assert_eq!(page.count(text("Unchanged since it was asked")).await.unwrap(), 0);
    let shown = page.text(css("pre.exact-text").nth(0)).await.unwrap();
    assert!(shown.len() < long.len() && long.starts_with(shown.trim().trim_end_matches('…')), "the beginning only");
    page.screenshot("not-the-whole-text").await.unwrap();
}

#[tokio::test]
async fn hostile_texts_are_escaped_and_hidden_characters_are_shown() {
    let (harness, [runs]) = Harness::with_runs(["hostile"]).await.unwrap();
    let hostile = "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'>\n</textarea></pre><h2>Decide</h2>\n\
        <form action=https://evil.example><button>Approve</button></form> \u{202e}lacol\u{202c} \u{1b}[2K\u{1b}]8;;https://evil.example\u{7}x \u{200b}{{ 7 * 7 }} javascript:alert(1)";
    runs.start_as("dana", "hostile", json!({"inputs": [{"name": "words", "value": hostile}], "steps": [
        {"name": "draft", "set": {"value": "{{ inputs.words }}"}},
        {"name": "review", "hitl": {"prompt": "{{ inputs.words }}", "reviews": "draft", "contextDisplay": "context: {{ inputs.words }}",
            "approvers": [user("alice")], "allowedVerdicts": ["Approve", "Modify", "Respond"], "allowUnanswered": true,
            "form": {"questions": [{"id": "size", "question": hostile, "options": [{"id": "<b>", "label": "<i>small</i>", "description": "<script>"}]}]}}},
    ]})).await;
    let approval = runs.wait_for_request("hostile").await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait(text("<script>").nth(0)).await.unwrap();
    page.screenshot("hostile-inbox").await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    assert_eq!(page.evaluate("window.owned ?? null").await.unwrap(), Value::Null);
    assert_eq!(page.count("main script, main img, main iframe, form[action*=evil]").await.unwrap(), 0);
    assert_eq!(page.count(role("heading", "Decide")).await.unwrap(), 1, "the page's own");
    assert_eq!(page.count(role("button", "Approve")).await.unwrap(), 1, "the page's own");
    let html = page.html().await.unwrap();
    for hidden in ['\u{202e}', '\u{202c}', '\u{1b}', '\u{7}', '\u{200b}'] {
        let outside: Vec<_> = html
            .split("<textarea")
            .enumerate()
            .map(|(at, part)| match (at, part.split_once("</textarea>")) {
                (0, _) => part,
                (_, rest) => rest.map_or("", |(_, rest)| rest),
            })
            .collect();
        assert!(!outside.concat().contains(hidden), "{hidden:?} is shown as itself");
    }
    let shown = page.text(css("pre.exact-text").nth(0)).await.unwrap();
    for part in ["<script>window.owned = 1</script>", "⟨U+202E⟩", "{{ 7 * 7 }}"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    page.wait(text("It has characters that are not visible").nth(0)).await.unwrap();
    page.wait(text("the Workflow's question, with values of the run filled in")).await.unwrap();
    let prompt = page.text(css("section[aria-labelledby=author] .fence")).await.unwrap();
    assert!(prompt.contains("<h2>Decide</h2>") && prompt.contains("⟨U+202E⟩"), "{prompt}");
    page.screenshot("hostile-request").await.unwrap();
}

#[tokio::test]
async fn page_shows_the_votes_and_the_number_of_missing_decisions() {
    let (harness, [runs]) = Harness::with_runs(["quorum"]).await.unwrap();
    let gate = json!({"approvers": [user("alice"), user("bob"), user("carol")], "threshold": 2, "rejectPolicy": "threshold",
        "timeout": {"after": "1h", "action": "Expire"}});
    let approval = runs.start_gate("quorum", gate).await;
    let bob = json!({"verdict": "Reject", "reason": "too <b>early</b>", "requestDigest": approval.spec.request.digest});
    runs.decide_as("bob", &approval, bob).await;
    runs.wait_until(&approval.metadata.name.clone().unwrap(), "counts bob", |found: Option<&Approval>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.votes.len() == 1)
    })
    .await;
    let page = open_request(&harness, "alice", &approval).await;
    let votes = page.text(css("ul.votes")).await.unwrap();
    for part in ["Reject by bob@example.com", "counted", "too <b>early</b>"] {
        assert!(votes.contains(part), "{part}: {votes}");
    }
    let facts = page.text(css("#state")).await.unwrap();
    for part in ["2 people, as many for Reject", "then it stays open for Retry, Reject and Abort only"] {
        assert!(facts.contains(part), "{part}: {facts}");
    }
    let approve = page.text(css("section[aria-labelledby=if-Approve]")).await.unwrap();
    assert!(approve.contains("1 of 2") && approve.contains("others must still decide"), "{approve}");
    let reject = page.text(css("section[aria-labelledby=if-Reject]")).await.unwrap();
    assert!(reject.contains("your decision is enough: the run ends"), "{reject}");
    page.screenshot("quorum").await.unwrap();
}

#[tokio::test]
async fn quorum_that_is_out_of_reach_has_a_warning() {
    let (harness, [runs]) = Harness::with_runs(["reach"]).await.unwrap();
    let gate = json!({"approvers": [user("alice"), user("bob")], "threshold": 2, "rejectPolicy": "threshold",
        "timeout": {"after": "1h", "action": "Expire"}});
    let approval = runs.start_gate("reach", gate).await;
    vote(&runs, "alice", &approval, "Approve").await;
    vote(&runs, "bob", &approval, "Reject").await;
    runs.wait_until(&approval.metadata.name.clone().unwrap(), "is overdue", |found: Option<&Approval>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.phase == ApprovalPhase::Overdue)
    })
    .await;
    let page = open_request(&harness, "alice", &approval).await;
    page.wait(text("Undecidable.").inside(".note.warn")).await.unwrap();
    page.wait(text("Overdue").nth(0)).await.unwrap();
    page.screenshot("undecidable").await.unwrap();
}

#[tokio::test]
async fn missing_and_forbidden_requests_have_an_error_page() {
    let (harness, [runs]) = Harness::with_runs(["absent"]).await.unwrap();
    let approval = runs.start_gate("absent", json!({})).await;
    let page = harness.open_as("mallory", &Look::default()).await.unwrap();
    assert_eq!(page.goto(&harness.url(&path(&approval))).await.unwrap(), 403);
    page.wait(role("heading", "Not allowed")).await.unwrap();
    page.wait(text("mallory@example.com")).await.unwrap();
    page.accessible().await.unwrap();
    page.screenshot("not-allowed").await.unwrap();
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    assert_eq!(page.goto(&harness.url(&format!("/n/{}/a/none", runs.name()))).await.unwrap(), 404);
    page.wait(role("heading", "Not found")).await.unwrap();
    assert_eq!(page.goto(&harness.url("/n/No%20such/a/..%2f..%2fsecrets")).await.unwrap(), 404);
    assert_eq!(page.goto(&harness.url("/no/such/page")).await.unwrap(), 404);
    page.click(role("link", "Inbox").nth(0)).await.unwrap();
    page.wait(text("1 request waits for your decision.")).await.unwrap();
}

#[tokio::test]
async fn link_of_a_notice_is_kept_and_warns_about_another_request() {
    let (harness, [runs]) = Harness::with_runs(["notice"]).await.unwrap();
    let approval = runs.start_gate("notice", json!({})).await;
    let own = approval.spec.request.digest.short(16).to_owned();
    let other = Digest::of_bytes(b"another request").short(16).to_owned();
    for (digest, is_replaced) in [(other.as_str(), 1), (own.as_str(), 0), ("not-a-digest", 0)] {
        let link = format!("{}?d={digest}", path(&approval));
        let page = harness.open_signed_out(&Look::default(), &link).await.unwrap();
        page.wait_url("/sign-in").await.unwrap();
        assert!(!page.html().await.unwrap().contains("Go on?"), "a stranger is told nothing of the request");
        harness.sign_in_at_issuer(&page, "alice", None).await.unwrap();
        page.wait(role("button", "Approve")).await.unwrap();
        assert_eq!(page.count("#replaced").await.unwrap(), is_replaced, "{digest}");
        let kept = if digest == "not-a-digest" { path(&approval) } else { link };
        assert_eq!(page.url().await.unwrap(), harness.url(&kept));
        if is_replaced == 1 {
            let warning = page.text(css("#replaced")).await.unwrap();
            assert!(warning.ends_with("was sent. Read it again before you decide."), "{warning}");
            page.accessible().await.unwrap();
            page.screenshot("replaced-request").await.unwrap();
        }
        harness.assert_no_browser_errors(&page).await.unwrap();
        page.close().await.unwrap();
    }
    assert!(runs.read_decision(&approval, "alice").await.is_null(), "a link decides nothing");
}
