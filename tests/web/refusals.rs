//! Requests that are not sent, or refused: each error is shown where the value was typed, in the form's or the policy's
//! own words, and nothing is lost.

use http::Method;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use signoff_api::{Approval, Workflow};
use signoff_tests::browser::{Look, Page, css, label, role, text};

use crate::harness::{Harness, show_decided_request};
use crate::runs::{Runs, path, user};

/// Returns the number of decisions that reached the API server through the page, without dry runs.
fn count_sent(harness: &Harness) -> usize {
    let seen = harness.witness.seen();
    seen.iter().filter(|seen| seen.method == Method::PATCH && !seen.path.contains("dryRun=All")).count()
}

/// Sends the form of a decision from the browser, even if the page shows no form. Returns the error of the answer.
pub(crate) async fn force_decision(page: &Page, approval: &Approval, verdict: &str) -> String {
    let digest = approval.spec.request.digest.to_string();
    let fields = json!({"verdict": verdict, "digest": digest, "confirmed": "yes"});
    let action = format!("{}/decide", path(approval));
    let script = format!(
        "fetch('{action}', {{method: 'POST', body: new URLSearchParams({fields})}}).then(answer => answer.text()).then(text =>
            new DOMParser().parseFromString(text, 'text/html').getElementById('problem')?.textContent ?? text)"
    );
    page.evaluate(&script).await.unwrap().as_str().unwrap().to_owned()
}

/// Opens the page of a request as a person of the cast.
async fn open_request(harness: &Harness, who: &str, approval: &Approval) -> Page {
    let page = harness.open_as(who, &Look::default()).await.unwrap();
    assert_eq!(page.goto(&harness.url(&path(approval))).await.unwrap(), 200);
    page
}

#[tokio::test]
async fn invalid_answer_has_the_message_of_the_form_and_keeps_the_text() {
    let (harness, [runs]) = Harness::with_runs(["answers"]).await.unwrap();
    let form = json!({"questions": [
        {"id": "ticket", "pattern": "CHG-[0-9]{1,6}", "errorMessage": "a ticket looks like CHG-4711"},
        {"id": "size", "options": [{"id": "small"}, {"id": "large"}]},
        {"id": "note", "required": false, "maxLength": 20},
    ]});
    let hitl = json!({"form": form, "allowedVerdicts": ["Approve", "Respond"], "allowUnanswered": true});
    let approval = runs.start_gate("answers", hitl).await;
    for (is_page, look) in [(false, Look::default()), (true, Look::default().without_scripts())] {
        let page = harness.open_as("alice", &look).await.unwrap();
        page.goto(&harness.url(&path(&approval))).await.unwrap();
        let ticket = role("group", "ticket");
        page.fill(label("ticket: text"), "CH-1").await.unwrap();
        page.check(label("large"), true).await.unwrap();
        page.fill(css("#reason"), "as agreed").await.unwrap();
        page.click(role("button", "Respond")).await.unwrap();
        page.wait(text("a ticket looks like CHG-4711").inside(&ticket)).await.unwrap();
        // With scripts the answer comes into the page, without them it is a page.
        assert_eq!(page.response().await.unwrap().status, if is_page { 422 } else { 200 });
        assert_eq!(page.attribute(label("ticket: text"), "aria-invalid").await.unwrap().as_deref(), Some("true"));
        page.wait(text("Nothing was sent.")).await.unwrap();
        assert_eq!(page.value(label("ticket: text")).await.unwrap(), "CH-1");
        assert_eq!(page.value(css("#reason")).await.unwrap(), "as agreed");
        assert_eq!(page.count(css("input[value=large]:checked")).await.unwrap(), 1);
        page.screenshot("wrong-answer").await.unwrap();
        page.fill(label("ticket: text"), "CHG-1").await.unwrap();
        page.fill(label("note: text"), "more than twenty characters").await.unwrap();
        page.click(role("button", "Respond")).await.unwrap();
        page.wait_gone(text("a ticket looks like CHG-4711")).await.unwrap();
        page.wait(text("20").inside(role("group", "note (may be left out)")).nth(0)).await.unwrap();
        page.wait(css("[role=alert]").inside(role("group", "note (may be left out)"))).await.unwrap();
        page.fill(label("note: text"), "").await.unwrap();
        page.click(role("button", "Respond")).await.unwrap();
        page.wait(role("heading", "Respond: review?")).await.unwrap();
    }
    assert_eq!(count_sent(&harness), 0, "nothing but attempts");
}

#[tokio::test]
async fn invalid_json_is_reported_at_its_field_and_can_be_corrected() {
    let (harness, [runs]) = Harness::with_runs(["json"]).await.unwrap();
    let spec = json!({"steps": [
        {"name": "order", "set": {"value": "{\"amount\": 1}"}},
        {"name": "review", "hitl": {"prompt": "Pay?", "reviews": "order", "approvers": [user("alice")],
            "allowedVerdicts": ["Approve", "Modify"]}},
    ]});
    runs.start_as("dana", "json", spec).await;
    let approval = runs.wait_for_request("json").await;
    let page = open_request(&harness, "alice", &approval).await;
    page.click(text("Change…")).await.unwrap();
    let field = css("#modify-response");
    page.fill(&field, "{amount: 2}").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    page.wait(text("it is not JSON").inside("#modify-response-problem")).await.unwrap();
    assert_eq!(page.attribute(&field, "aria-describedby").await.unwrap().as_deref(), Some("modify-response-problem"));
    assert_eq!(page.value(&field).await.unwrap(), "{amount: 2}");
    page.fill(&field, "{\n  \"amount\": 1\n}").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    page.wait(text("nothing was changed").inside("#problem")).await.unwrap();
    page.fill(&field, "{\"amount\": 2, \"note\": null}").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    page.wait(role("heading", "Modify: review?")).await.unwrap();
    page.click(role("button", "Modify")).await.unwrap();
    show_decided_request(&page).await;
    page.wait(role("heading", "Decisions so far")).await.unwrap();
    let stored = json!({"response": {"amount": 2, "note": null}});
    assert_eq!(runs.read_decision(&approval, "alice").await["parameters"], stored, "null is stored as it was typed");
}

#[tokio::test]
async fn missing_required_reason_is_reported_at_its_field() {
    let (harness, [runs]) = Harness::with_runs(["reason"]).await.unwrap();
    let approval = runs
        .start_gate(
            "reason",
            json!({"requireReason": true, "allowedVerdicts": ["Approve", "Modify"], "reviews": "draft"}),
        )
        .await;
    let page = open_request(&harness, "alice", &approval).await;
    page.fill(css("#reason"), "...").await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(text("requires a reason with at least one letter or digit").inside("#reason-problem")).await.unwrap();
    page.click(text("Change…")).await.unwrap();
    page.fill(css("#modify-response"), "another").await.unwrap();
    page.fill(css("#reason"), "!").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    page.wait(css("details[open] #modify-response")).await.unwrap();
    page.wait(text("requires a reason with at least one letter or digit").inside("#reason-problem")).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "!");
    assert_eq!(page.value(css("#modify-response")).await.unwrap(), "another");
    assert_eq!(count_sent(&harness), 0);
}

#[tokio::test]
async fn excluded_reader_sees_the_reason_and_a_forced_vote_is_refused() {
    let (harness, [runs]) = Harness::with_runs(["refused"]).await.unwrap();
    runs.namespace.bind("signoff-requester", "alice@example.com").await.unwrap();
    let gate = |fields: Value| crate::runs::spec(fields);
    runs.start_as("alice", "own", gate(json!({"excludeRequester": true, "approvers": [user("alice"), user("bob")]})))
        .await;
    let own = runs.wait_for_request("own").await;
    let excluded = json!({"excluded": ["alice@example.com"], "approvers": [{"kind": "Group", "name": "finance"}]});
    let excluded = runs.start_gate("excluded", excluded).await;
    let others = runs.start_gate("others", json!({"approvers": [user("bob")]})).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    for (approval, reason) in [
        (&own, "the requester must not decide this gate (excludeRequester)"),
        (&excluded, "excluded from deciding this gate (spec.request.excluded)"),
        (&others, "alice@example.com is not an approver of this gate, by name or by group (spec.request.quorums)"),
    ] {
        page.goto(&harness.url(&path(approval))).await.unwrap();
        page.wait(text("cannot decide")).await.unwrap();
        assert!(!page.visible(role("heading", "Decide")).await.unwrap());
        assert_eq!(page.count(css("#instead")).await.unwrap(), 1, "whom the gate asks, or why not alice");
        let answer = force_decision(&page, approval, "Approve").await;
        assert!(answer.contains("Nothing was sent.") && answer.contains(reason), "{reason}: {answer}");
        assert_eq!(runs.read_decision(approval, "alice").await, Value::Null);
    }
}

#[tokio::test]
async fn reader_without_the_right_sees_the_refusal_of_the_policy() {
    let (harness, [runs]) = Harness::with_runs(["rights"]).await.unwrap();
    let approval = runs.start_gate("rights", json!({"approvers": [user("viktor")]})).await;
    let page = open_request(&harness, "viktor", &approval).await;
    page.fill(css("#reason"), "I would").await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(css("#problem")).await.unwrap();
    let problem = page.text(css("#problem")).await.unwrap();
    assert!(problem.contains("viktor@example.com"), "{problem}");
    assert_eq!(page.value(css("#reason")).await.unwrap(), "I would");
    assert_eq!(runs.read_decision(&approval, "viktor").await, Value::Null);
}

#[tokio::test]
async fn second_vote_and_late_vote_are_refused_with_a_reason() {
    let (harness, [runs]) = Harness::with_runs(["late"]).await.unwrap();
    let both = json!({"approvers": [user("alice"), user("bob"), user("carol")], "threshold": 2, "rejectPolicy": "any"});
    let approval = runs.start_gate("late", both).await;
    // Without scripts, so that nothing warns her before she sends.
    let page = harness.open_as("alice", &Look::default().without_scripts()).await.unwrap();
    let other = page.tab().await.unwrap();
    for page in [&page, &other] {
        page.goto(&harness.url(&path(&approval))).await.unwrap();
    }
    vote(&runs, "alice", &approval, "Approve").await;
    page.click(role("button", "Reject")).await.unwrap();
    page.wait(text("you approved").inside("#problem")).await.unwrap();
    page.wait(text("a decision is final").inside("#problem")).await.unwrap();
    vote(&runs, "bob", &approval, "Reject").await;
    runs.wait_for_end("late").await;
    other.click(role("button", "Reject")).await.unwrap();
    other.wait(text("too late: this gate was decided").inside("#problem")).await.unwrap();
    other.wait(text("Reject by bob@example.com").inside("#problem")).await.unwrap();
    other.wait(role("heading", "How it was decided")).await.unwrap();
    assert_eq!(count_sent(&harness), 0);
}

#[tokio::test]
async fn changed_request_must_be_read_again_before_a_decision() {
    let (harness, [runs]) = Harness::with_runs(["changed"]).await.unwrap();
    let approval = runs.start_gate("changed", json!({})).await;
    let page = open_request(&harness, "alice", &approval).await;
    page.fill(css("#reason"), "as I read it").await.unwrap();
    let other = format!("document.querySelector('input[name=digest]').value = 'sha256:{}'", "0".repeat(64));
    page.evaluate(&other).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(text("Read it again").inside("#problem")).await.unwrap();
    let stale = format!(
        "fetch('{}/decide', {{method: 'POST', body: new URLSearchParams({{verdict: 'Approve', digest: 'sha256:0'}})}}).then(answer => answer.status)",
        path(&approval)
    );
    assert_eq!(page.evaluate(&stale).await.unwrap(), json!(409));
    assert_eq!(page.value(css("#reason")).await.unwrap(), "as I read it");
    // The form is now that of the current request.
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: review?")).await.unwrap();
    // Its run is deleted before she confirms.
    runs.api::<Workflow>().delete("changed", &DeleteParams::default()).await.unwrap();
    runs.wait_until_deleted(&approval.name_any()).await;
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Not found")).await.unwrap();
    assert_eq!(count_sent(&harness), 0);
}

#[tokio::test]
async fn double_click_sends_one_decision() {
    let (harness, [runs]) = Harness::with_runs(["double"]).await.unwrap();
    let approval = runs.start_gate("double", json!({"approvers": [user("alice"), user("bob")], "threshold": 2})).await;
    let page = open_request(&harness, "alice", &approval).await;
    page.evaluate("(b => { b.click(); b.click(); })(document.querySelector('button[value=Approve]'))").await.unwrap();
    page.wait(role("heading", "Approve: review?")).await.unwrap();
    harness.witness.forget();
    harness.witness.delay(std::time::Duration::from_millis(200));
    page.evaluate("(b => { b.click(); b.click(); })(document.querySelector('.confirm button.main'))").await.unwrap();
    show_decided_request(&page).await;
    page.wait(role("heading", "Decisions so far")).await.unwrap();
    assert_eq!(count_sent(&harness), 1);
    page.wait(text("Approve by alice@example.com (you)")).await.unwrap();
}

async fn vote(runs: &Runs, who: &str, approval: &Approval, verdict: &str) {
    runs.decide_as(who, approval, json!({"verdict": verdict, "requestDigest": approval.spec.request.digest})).await;
}
