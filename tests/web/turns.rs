//! The calls of one turn, decided together: one verdict, one confirmation, and a vote with its own digest for each
//! call.

use http::Method;
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::browser::{Look, Page, css, role, text};

use crate::calls::{agent_spec, spec_with_bank_refund};
use crate::harness::Harness;
use crate::looks::check_every_look;
use crate::runs::{Runs, path, user};

/// Returns three calls that a model makes in one turn.
fn three_calls() -> Value {
    json!([
        {"tool": "refund", "arguments": {"amount": 420}},
        {"tool": "letter", "arguments": {"to": "the customer"}},
        {"tool": "refund", "arguments": {"amount": 17}},
    ])
}

/// Returns a gate that asks alice or bob about every call.
fn gate_for_all_calls() -> Value {
    json!([{"name": "all", "type": "toolExecution", "hitl": {"prompt": "May it do this?", "approvers": [user("alice"), user("bob")],
        "allowedVerdicts": ["Approve", "Modify", "Reject", "Defer", "Skip", "Abort"]}}])
}

/// Starts a run with three waiting calls, and returns their requests in the order of the model.
pub(crate) async fn start_waiting_turn(runs: &Runs, name: &str, repeated: &[&str]) -> Vec<Approval> {
    runs.start_as("dana", name, agent_spec(&three_calls(), &gate_for_all_calls(), repeated)).await;
    runs.wait_for_requests(name, 3).await
}

/// Returns the path of the page of a turn.
pub(crate) fn turn_path(approval: &Approval) -> String {
    let request = &approval.spec.request;
    format!("/n/{}/t/{}", approval.metadata.namespace.as_deref().unwrap(), request.turn().unwrap())
}

/// Returns the number of decisions that reached the API server, without dry runs.
fn count_sent(harness: &Harness) -> usize {
    let seen = harness.witness.seen();
    seen.iter().filter(|seen| seen.method == Method::PATCH && !seen.path.contains("dryRun=All")).count()
}

/// Opens the page of a turn from the inbox.
async fn open_from_inbox(harness: &Harness, approval: &Approval, look: &Look) -> Page {
    let page = harness.open_as("alice", look).await.unwrap();
    page.goto(&harness.url("/")).await.unwrap();
    page.click(role("link", "Decide 3 calls of one turn together")).await.unwrap();
    page.wait_url(&turn_path(approval)).await.unwrap();
    page
}

/// Checks that alice has one stored decision on each request, with its own digest.
async fn assert_stored(runs: &Runs, approvals: &[Approval], verdict: &str, reason: &str) {
    for approval in approvals {
        let expected = json!({"verdict": verdict, "reason": reason, "requestDigest": approval.spec.request.digest});
        assert_eq!(runs.read_decision(approval, "alice").await, expected);
    }
}

#[tokio::test]
async fn one_verdict_casts_a_vote_for_each_call_of_a_turn() {
    let (harness, [runs]) = Harness::with_runs(["turn"]).await.unwrap();
    let small = Look::default().small();
    for (name, look) in
        [("scripts", Look::default()), ("plain", Look::default().without_scripts()), ("keyboard", small)]
    {
        let approvals = start_waiting_turn(&runs, name, &["refunded 17"]).await;
        let page = open_from_inbox(&harness, &approvals[0], &look).await;
        assert!(!page.text(css("main")).await.unwrap().to_lowercase().contains("verified"), "a digest proves no claim");
        for approval in &approvals {
            // Opening the first closed one each time opens all of them.
            page.click(css("details.digest:not([open]) > summary").nth(0)).await.unwrap();
            page.wait(text(&approval.spec.request.digest.to_string()).nth(0)).await.unwrap();
        }
        page.fill(css("#reason"), "as agreed").await.unwrap();
        if name == "keyboard" {
            page.tab_to("button Approve", 40).await.unwrap();
            page.press("Enter").await.unwrap();
        } else {
            page.click(role("button", "Approve")).await.unwrap();
        }
        page.wait(role("heading", "Approve: 3 of 3 calls?")).await.unwrap();
        let listed = page.text(css("ul.calls")).await.unwrap();
        for approval in &approvals {
            assert!(listed.contains(&approval.spec.request.digest.to_string()), "each call has its digest: {listed}");
        }
        for part in ["the call goes on with exactly these arguments", r#"{"amount":420}"#, r#"{"amount":17}"#] {
            assert!(listed.contains(part), "{part}: {listed}");
        }
        if name == "keyboard" {
            // A second Enter decides nothing: the focus is at the heading.
            assert_ne!(page.focused().await.unwrap(), "button Approve");
            page.tab_to("button Approve", 12).await.unwrap();
            page.press("Enter").await.unwrap();
        } else {
            page.click(role("button", "Approve")).await.unwrap();
        }
        page.wait(role("heading", "Approve: 3 of 3 calls recorded")).await.unwrap();
        assert_stored(&runs, &approvals, "Approve", "as agreed").await;
        assert_eq!(runs.wait_for_result(name).await, "told: refunded 17");
        page.click(role("link", "The turn")).await.unwrap();
        page.wait(text("No call of this turn waits")).await.unwrap();
        page.close().await.unwrap();
    }
    assert_eq!(count_sent(&harness), 9, "one vote for each call");
}

#[tokio::test]
async fn call_that_was_decided_meanwhile_does_not_stop_the_votes_on_other_calls() {
    let (harness, [runs]) = Harness::with_runs(["partial"]).await.unwrap();
    let approvals = start_waiting_turn(&runs, "partial", &["Denied by a human: not this one"]).await;
    let page = open_from_inbox(&harness, &approvals[0], &Look::default()).await;
    page.fill(css("#reason"), "as agreed").await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 3 of 3 calls?")).await.unwrap();
    let reject =
        json!({"verdict": "Reject", "reason": "not this one", "requestDigest": approvals[0].spec.request.digest});
    runs.decide_as("bob", &approvals[0], reject).await;
    let is_decided = |found: Option<&Approval>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.outcome.is_some())
    };
    runs.wait_until(approvals[0].metadata.name.as_deref().unwrap(), "is decided", is_decided).await;
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 2 of 3 calls recorded")).await.unwrap();
    page.wait(text("Not all decisions were recorded.")).await.unwrap();
    page.wait(text("Reject by bob@example.com").inside("ul.calls")).await.unwrap();
    check_every_look(&page, "turn-partial").await;
    assert_stored(&runs, &approvals[1..], "Approve", "as agreed").await;
    assert_eq!(runs.read_decision(&approvals[0], "alice").await, Value::Null);
    assert_eq!(runs.wait_for_result("partial").await, "told: Denied by a human: not this one");
    let steps = runs.wait_for_end("partial").await.status.unwrap().steps;
    let ran = steps.iter().filter(|step| step.path.ends_with("/send-refund") || step.path.ends_with("/send-letter"));
    assert_eq!(ran.count(), 2, "the two approved calls ran");
}

#[tokio::test]
async fn unchosen_calls_of_a_turn_keep_waiting() {
    let (harness, [runs]) = Harness::with_runs(["part"]).await.unwrap();
    let approvals = start_waiting_turn(&runs, "part", &[]).await;
    let page = open_from_inbox(&harness, &approvals[0], &Look::default()).await;
    let checkbox = |index: usize| {
        css(&format!("input[name=call][value^='{}']", approvals[index].metadata.name.as_deref().unwrap()))
    };
    for index in 0..3 {
        page.check(checkbox(index), false).await.unwrap();
    }
    page.click(role("button", "Reject")).await.unwrap();
    page.wait(text("no call was chosen").inside("#problem")).await.unwrap();
    page.check(checkbox(1), true).await.unwrap();
    page.click(role("button", "Defer")).await.unwrap();
    page.wait(text("say what shall be done differently").inside("#guidance-problem")).await.unwrap();
    assert_eq!(page.count(css("input[name=call]:checked")).await.unwrap(), 1, "the choice is kept");
    page.accessible().await.unwrap();
    page.fill(css("#guidance"), "write to their lawyer").await.unwrap();
    page.click(role("button", "Defer")).await.unwrap();
    page.wait(role("heading", "Defer: 1 of 1 call?")).await.unwrap();
    page.click(role("button", "Defer")).await.unwrap();
    page.wait(role("heading", "Defer: 1 of 1 call recorded")).await.unwrap();
    let decision = runs.read_decision(&approvals[1], "alice").await;
    assert_eq!(decision["guidance"], "write to their lawyer");
    page.click(role("link", "The turn")).await.unwrap();
    page.wait(text("2 calls wait.")).await.unwrap();
    page.wait(text("letter (call 2)")).await.unwrap();
    assert_eq!(count_sent(&harness), 1);
}

#[tokio::test]
async fn only_confirmed_votes_are_sent() {
    let (harness, [runs]) = Harness::with_runs(["confirmed"]).await.unwrap();
    let approvals = start_waiting_turn(&runs, "confirmed", &[]).await;
    let page = open_from_inbox(&harness, &approvals[0], &Look::default()).await;
    // Another digest than that of the request.
    let other = format!("sha256:{}", "0".repeat(64));
    let swap = format!(
        "(box => {{ box.value = box.value.split(' ')[0] + ' {other}' }})(document.querySelector('input[name=call]'))"
    );
    page.evaluate(&swap).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 2 of 3 calls?")).await.unwrap();
    page.wait(text("it has changed").inside("ul.calls")).await.unwrap();
    check_every_look(&page, "turn-confirm-partial").await;
    // The reason differs from the confirmed one, and one call was never confirmed.
    let reason = "document.querySelector('textarea[name=reason]').value = 'something else'";
    page.evaluate(reason).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 0 of 2 calls recorded")).await.unwrap();
    page.wait(text("the decision differs from the one that you confirmed").inside("ul.calls").nth(0)).await.unwrap();
    // A verdict that takes parameters, and a call of another turn.
    let digest = approvals[0].spec.request.digest.to_string();
    let name = approvals[0].metadata.name.clone().unwrap();
    for (verdict, place, problem) in [
        ("Modify", turn_path(&approvals[0]), "no verdict was chosen"),
        ("Approve", format!("/n/{}/t/0123456789abcdef0123", runs.name()), "it is not a call of this turn"),
    ] {
        let fields = json!({"verdict": verdict, "call": format!("{name} {digest}")});
        let script = format!(
            "fetch('{place}/decide', {{method: 'POST', body: new URLSearchParams({fields})}}).then(answer => answer.text())"
        );
        let answer = page.evaluate(&script).await.unwrap().as_str().unwrap().to_owned();
        assert!(answer.contains(problem), "{verdict}: {answer}");
    }
    assert_eq!(count_sent(&harness), 0);
}

#[tokio::test]
async fn turn_is_accessible_and_fits_in_every_look() {
    let (harness, [runs]) = Harness::with_runs(["turn-looks"]).await.unwrap();
    runs.start_as("dana", "refund-4711", spec_with_bank_refund(agent_spec(&three_calls(), &gate_for_all_calls(), &[])))
        .await;
    let approvals = runs.wait_for_requests("refund-4711", 3).await;
    let page = open_from_inbox(&harness, &approvals[0], &Look::default()).await;
    check_every_look(&page, "turn").await;
    page.goto(&harness.url("/")).await.unwrap();
    check_every_look(&page, "turn-inbox").await;
    page.goto(&harness.url(&path(&approvals[0]))).await.unwrap();
    // A fact of several lines has all of them in the column of values.
    let aligned = "[...document.querySelectorAll('main .facts dd')].every(dd => dd.offsetLeft > dd.parentElement.querySelector('dt').offsetLeft)";
    assert_eq!(page.evaluate(aligned).await.unwrap(), json!(true));
    page.screenshot("turn-call").await.unwrap();
    page.click(role("link", "All calls of this turn that wait")).await.unwrap();
    page.wait_url(&turn_path(&approvals[0])).await.unwrap();
    page.fill(css("#reason"), "as agreed with ACME on the phone").await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 3 of 3 calls?")).await.unwrap();
    check_every_look(&page, "turn-confirm").await;
    harness.assert_no_browser_errors(&page).await.unwrap();
}
