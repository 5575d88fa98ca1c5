//! One form with the fields of all verdicts: the confirmation, the fields that are not sent, a connection that breaks,
//! and an answer without a part of the page.

use http::Method;
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::browser::{Look, Page, css, label, role, text};

use crate::harness::{Harness, show_decided_request};
use crate::runs::{path, user};

/// Returns the number of decisions that reached the API server, without dry runs.
fn count_sent(harness: &Harness) -> usize {
    let seen = harness.witness.seen();
    seen.iter().filter(|seen| seen.method == Method::PATCH && !seen.path.contains("dryRun=All")).count()
}

/// Opens the page of a request as alice.
async fn open_request(harness: &Harness, look: &Look, approval: &Approval) -> Page {
    let page = harness.open_as("alice", look).await.unwrap();
    page.goto(&harness.url(&path(approval))).await.unwrap();
    page
}

/// Returns whether the field of an answer can get the focus, so that text can be typed into it.
async fn takes_focus(page: &Page) -> Value {
    let script = "(field => { field.focus(); return document.activeElement === field; })\
        (document.querySelector('section[aria-labelledby=answer] textarea'))";
    page.evaluate(script).await.unwrap()
}

#[tokio::test]
async fn answers_cannot_be_edited_while_the_confirmation_is_open() {
    let (harness, [runs]) = Harness::with_runs(["inert"]).await.unwrap();
    let form = json!({"questions": [{"id": "note", "question": "Where to?"}]});
    let approval = runs.start_gate("inert", json!({"form": form, "allowedVerdicts": ["Respond", "Abort"]})).await;
    let page = open_request(&harness, &Look::default(), &approval).await;
    let order = "[...document.querySelectorAll('h1, h2')].slice(0, 3).map(e => e.innerText)";
    let first = json!(["Go on?", "Your answer", "If you answer"]);
    assert_eq!(page.evaluate(order).await.unwrap(), first, "the form stands first");
    page.fill(label("note: text"), "at the door").await.unwrap();
    page.click(role("button", "Respond")).await.unwrap();
    page.wait(role("heading", "Respond: review?")).await.unwrap();
    assert_eq!(takes_focus(&page).await, json!(false));
    page.accessible().await.unwrap();
    page.click(role("button", "Back")).await.unwrap();
    assert_eq!(takes_focus(&page).await, json!(true));
    assert_eq!(page.value(label("note: text")).await.unwrap(), "at the door");
    page.fill(label("note: text"), "at the gate").await.unwrap();
    page.click(role("button", "Respond")).await.unwrap();
    page.wait(text("at the gate").inside(css(".confirm dl"))).await.unwrap();
    assert_eq!(count_sent(&harness), 0);
    page.click(role("button", "Respond").inside(css(".confirm"))).await.unwrap();
    show_decided_request(&page).await;
    page.wait(css("#instead")).await.unwrap();
    assert_eq!(runs.read_decision(&approval, "alice").await["answers"], json!({"note": {"text": "at the gate"}}));
}

#[tokio::test]
async fn edit_that_the_verdict_does_not_send_is_kept_and_the_confirmation_warns() {
    let (harness, [runs]) = Harness::with_runs(["unsent"]).await.unwrap();
    let approval =
        runs.start_gate("unsent", json!({"reviews": "draft", "allowedVerdicts": ["Approve", "Modify"]})).await;
    for look in [Look::default(), Look::default().without_scripts(), Look::default().small().dark()] {
        let page = open_request(&harness, &look, &approval).await;
        page.click(text("Change…")).await.unwrap();
        page.fill(css("#modify-response"), "another draft").await.unwrap();
        page.fill(css("#reason"), "as agreed").await.unwrap();
        page.click(role("button", "Approve")).await.unwrap();
        let warning = text("What you changed under Change… is not sent with Approve.");
        page.wait(warning.inside(css(".confirm [role=alert]"))).await.unwrap();
        if look.java_script {
            page.accessible().await.unwrap();
        }
        page.fits().await.unwrap();
        page.click(role("button", "Back")).await.unwrap();
        page.wait(css("details[open] #modify-response")).await.unwrap();
        assert_eq!(page.value(css("#modify-response")).await.unwrap(), "another draft");
        assert_eq!(page.value(css("#reason")).await.unwrap(), "as agreed");
        // With its own verdict it is sent, and there is nothing to report.
        page.click(role("button", "See the difference")).await.unwrap();
        page.wait(role("heading", "Modify: review?")).await.unwrap();
        assert_eq!(page.count(text("is not sent with")).await.unwrap(), 0);
        page.click(role("button", "Back")).await.unwrap();
        page.wait(css("#modify-response")).await.unwrap();
        page.fill(css("#modify-response"), "a draft").await.unwrap();
        page.click(role("button", "Approve")).await.unwrap();
        page.wait(role("heading", "Approve: review?")).await.unwrap();
        assert_eq!(page.count(text("is not sent with")).await.unwrap(), 0);
        page.close().await.unwrap();
    }
    assert_eq!(count_sent(&harness), 0, "nothing but attempts");
    assert_eq!(runs.read_decision(&approval, "alice").await, Value::Null);
}

#[tokio::test]
async fn broken_connection_sends_nothing_and_the_buttons_work_again() {
    let (harness, [runs]) = Harness::with_runs(["broken"]).await.unwrap();
    let approval = runs.start_gate("broken", json!({})).await;
    let page = open_request(&harness, &Look::default(), &approval).await;
    page.fill(css("#reason"), "as agreed").await.unwrap();
    for broken in [
        "() => Promise.reject(new TypeError('no answer'))",
        "(...all) => real(...all).then(answer => {
            answer.text = () => Promise.reject(new TypeError('half an answer'));
            return answer;
        })",
    ] {
        let script = format!(
            "((real, broken) => {{ window.fetch = (...all) => {{ window.fetch = real; return broken(real)(...all); }}; }})\
             (window.fetch, real => {broken})"
        );
        page.evaluate(&script).await.unwrap();
        page.click(role("button", "Approve")).await.unwrap();
        page.wait(text("The connection broke. Nothing was sent: try again.").inside("#decide")).await.unwrap();
        assert_eq!(page.focused().await.unwrap(), "button Approve");
        assert_eq!(page.value(css("#reason")).await.unwrap(), "as agreed");
        page.accessible().await.unwrap();
        page.click(role("button", "Approve")).await.unwrap();
        page.wait(role("heading", "Approve: review?")).await.unwrap();
        page.click(role("button", "Back")).await.unwrap();
        page.wait(css("#reason")).await.unwrap();
        assert_eq!(page.count(text("The connection broke")).await.unwrap(), 0);
    }
    assert_eq!(count_sent(&harness), 0);
}

#[tokio::test]
async fn changed_request_is_reported_under_its_open_confirmation() {
    let (harness, [runs]) = Harness::with_runs(["parts"]).await.unwrap();
    let three = json!({"approvers": [user("alice"), user("bob"), user("carol")], "threshold": 3});
    let approval = runs.start_gate("parts", three).await;
    let vote = json!({"verdict": "Approve", "requestDigest": approval.spec.request.digest});
    let page = open_request(&harness, &Look::default(), &approval).await;
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: review?")).await.unwrap();
    page.evaluate("document.querySelector('.confirm [name=digest]').value = 'sha256:0'").await.unwrap();
    runs.decide_as("bob", &approval, vote.clone()).await;
    // A vote is reported twice, when it is recorded and when it is counted.
    page.wait(text("1 of 3 so far").inside("#state")).await.unwrap();
    page.wait(text("This request has changed: read it again before you decide.").inside("#news")).await.unwrap();
    page.click(role("button", "Read it")).await.unwrap();
    page.wait(css("#reason")).await.unwrap();

    let former = "(part => { part.id = 'former'; part.dataset.renew = ''; document.querySelector('#state').after(part); })\
        (document.createElement('section'))";
    page.evaluate(former).await.unwrap();
    runs.decide_as("carol", &approval, vote).await;
    page.wait(text("This page has changed.").inside("#news")).await.unwrap();
    page.wait(text("Approve by carol@example.com").inside("#state")).await.unwrap();
    assert_eq!(page.count(css("#former")).await.unwrap(), 1, "it stays");
    page.click(role("button", "Reload")).await.unwrap();
    page.wait_gone(css("#former")).await.unwrap();
    page.wait(css("#reason")).await.unwrap();
    harness.assert_no_browser_errors(&page).await.unwrap();
}
