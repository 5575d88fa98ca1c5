//! The calls of one turn, decided together: one verdict, one confirmation, and a vote with its own digest for each
//! call.

use http::Method;
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::browser::{Look, Page, css, role, text};

use crate::calls::{agent, to_a_bank};
use crate::harness::Harness;
use crate::looks::every_look;
use crate::runs::{Runs, path, user};

/// Returns three calls of one turn.
fn calls() -> Value {
    json!([
        {"tool": "refund", "arguments": {"amount": 420}},
        {"tool": "letter", "arguments": {"to": "the customer"}},
        {"tool": "refund", "arguments": {"amount": 17}},
    ])
}

/// Returns a gate that asks alice or bob about every call.
fn gates() -> Value {
    json!([{"name": "all", "type": "toolExecution", "hitl": {"prompt": "May it do this?", "approvers": [user("alice"), user("bob")],
        "allowedVerdicts": ["Approve", "Modify", "Reject", "Defer", "Skip", "Abort"]}}])
}

/// Starts a run with three waiting calls, and returns their requests in the order of the model.
pub(crate) async fn waits(runs: &Runs, name: &str, told: &[&str]) -> Vec<Approval> {
    runs.start_as("dana", name, agent(&calls(), &gates(), told)).await;
    runs.asks_all(name, 3).await
}

/// Returns the path of the page of a turn.
pub(crate) fn turn(asked: &Approval) -> String {
    let request = &asked.spec.request;
    format!("/n/{}/t/{}", asked.metadata.namespace.as_deref().unwrap(), request.turn().unwrap())
}

/// Returns the number of decisions that reached the API server, without dry runs.
fn count_sent(harness: &Harness) -> usize {
    let seen = harness.witness.seen();
    seen.iter().filter(|seen| seen.method == Method::PATCH && !seen.path.contains("dryRun=All")).count()
}

/// Opens the page of a turn from the inbox.
async fn from_the_inbox(harness: &Harness, asked: &Approval, look: &Look) -> Page {
    let page = harness.signed_in("alice", look).await.unwrap();
    page.goto(&harness.at("/")).await.unwrap();
    page.click(role("link", "Decide 3 calls of one turn together")).await.unwrap();
    page.wait_url(&turn(asked)).await.unwrap();
    page
}

async fn stored(runs: &Runs, asked: &[Approval], verdict: &str, reason: &str) {
    for one in asked {
        let expected = json!({"verdict": verdict, "reason": reason, "requestDigest": one.spec.request.digest});
        assert_eq!(runs.decision(one, "alice").await, expected);
    }
}

#[tokio::test]
async fn one_verdict_decides_the_calls_of_a_turn_by_one_vote_each_with_and_without_scripts() {
    let (harness, [runs]) = Harness::with_runs(["turn"]).await.unwrap();
    let small = Look::default().small();
    for (name, look) in
        [("scripts", Look::default()), ("plain", Look::default().without_scripts()), ("keyboard", small)]
    {
        let asked = waits(&runs, name, &["refunded 17"]).await;
        let page = from_the_inbox(&harness, &asked[0], &look).await;
        assert!(!page.text(css("main")).await.unwrap().to_lowercase().contains("verified"), "a digest proves no claim");
        for one in &asked {
            // Each is opened, so that the first one is the next.
            page.click(css("details.digest:not([open]) > summary").nth(0)).await.unwrap();
            page.wait(text(&one.spec.request.digest.to_string()).nth(0)).await.unwrap();
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
        for one in &asked {
            assert!(listed.contains(&one.spec.request.digest.to_string()), "each call has its digest: {listed}");
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
        stored(&runs, &asked, "Approve", "as agreed").await;
        assert_eq!(runs.result(name).await, "told: refunded 17");
        page.click(role("link", "The turn")).await.unwrap();
        page.wait(text("No call of this turn waits")).await.unwrap();
        page.close().await.unwrap();
    }
    assert_eq!(count_sent(&harness), 9, "one vote for each call");
}

#[tokio::test]
async fn refused_call_does_not_stop_the_others_and_has_its_outcome() {
    let (harness, [runs]) = Harness::with_runs(["partial"]).await.unwrap();
    let asked = waits(&runs, "partial", &["Denied by a human: not this one"]).await;
    let page = from_the_inbox(&harness, &asked[0], &Look::default()).await;
    page.fill(css("#reason"), "as agreed").await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 3 of 3 calls?")).await.unwrap();
    let reject = json!({"verdict": "Reject", "reason": "not this one", "requestDigest": asked[0].spec.request.digest});
    runs.decides("bob", &asked[0], reject).await;
    let is_decided = |found: Option<&Approval>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.outcome.is_some())
    };
    runs.until(asked[0].metadata.name.as_deref().unwrap(), "is decided", is_decided).await;
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 2 of 3 calls recorded")).await.unwrap();
    page.wait(text("Not all decisions were recorded.")).await.unwrap();
    page.wait(text("Reject by bob@example.com").inside("ul.calls")).await.unwrap();
    every_look(&page, "turn-partial").await;
    stored(&runs, &asked[1..], "Approve", "as agreed").await;
    assert_eq!(runs.decision(&asked[0], "alice").await, Value::Null);
    assert_eq!(runs.result("partial").await, "told: Denied by a human: not this one");
    let steps = runs.ended("partial").await.status.unwrap().steps;
    let ran = steps.iter().filter(|step| step.path.ends_with("/send-refund") || step.path.ends_with("/send-letter"));
    assert_eq!(ran.count(), 2, "the two approved calls ran");
}

#[tokio::test]
async fn a_part_of_a_turn_is_decided_and_the_rest_keeps_waiting() {
    let (harness, [runs]) = Harness::with_runs(["part"]).await.unwrap();
    let asked = waits(&runs, "part", &[]).await;
    let page = from_the_inbox(&harness, &asked[0], &Look::default()).await;
    let only = |at: usize| css(&format!("input[name=call][value^='{}']", asked[at].metadata.name.as_deref().unwrap()));
    for at in 0..3 {
        page.check(only(at), false).await.unwrap();
    }
    page.click(role("button", "Reject")).await.unwrap();
    page.wait(text("no call was chosen").inside("#problem")).await.unwrap();
    page.check(only(1), true).await.unwrap();
    page.click(role("button", "Defer")).await.unwrap();
    page.wait(text("say what shall be done differently").inside("#guidance-problem")).await.unwrap();
    assert_eq!(page.count(css("input[name=call]:checked")).await.unwrap(), 1, "the choice is kept");
    page.accessible().await.unwrap();
    page.fill(css("#guidance"), "write to their lawyer").await.unwrap();
    page.click(role("button", "Defer")).await.unwrap();
    page.wait(role("heading", "Defer: 1 of 1 call?")).await.unwrap();
    page.click(role("button", "Defer")).await.unwrap();
    page.wait(role("heading", "Defer: 1 of 1 call recorded")).await.unwrap();
    let decision = runs.decision(&asked[1], "alice").await;
    assert_eq!(decision["guidance"], "write to their lawyer");
    page.click(role("link", "The turn")).await.unwrap();
    page.wait(text("2 calls wait.")).await.unwrap();
    page.wait(text("letter (call 2)")).await.unwrap();
    assert_eq!(count_sent(&harness), 1);
}

#[tokio::test]
async fn nothing_is_sent_but_what_was_confirmed() {
    let (harness, [runs]) = Harness::with_runs(["confirmed"]).await.unwrap();
    let asked = waits(&runs, "confirmed", &[]).await;
    let page = from_the_inbox(&harness, &asked[0], &Look::default()).await;
    // Another digest than that of the request.
    let other = format!("sha256:{}", "0".repeat(64));
    let swap = format!(
        "(box => {{ box.value = box.value.split(' ')[0] + ' {other}' }})(document.querySelector('input[name=call]'))"
    );
    page.evaluate(&swap).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 2 of 3 calls?")).await.unwrap();
    page.wait(text("it has changed").inside("ul.calls")).await.unwrap();
    every_look(&page, "turn-confirm-partial").await;
    // The reason differs from the confirmed one, and one call was never confirmed.
    let reason = "document.querySelector('textarea[name=reason]').value = 'something else'";
    page.evaluate(reason).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 0 of 2 calls recorded")).await.unwrap();
    page.wait(text("the decision differs from the one that you confirmed").inside("ul.calls").nth(0)).await.unwrap();
    // A verdict that takes parameters, and a call of another turn.
    let digest = asked[0].spec.request.digest.to_string();
    let name = asked[0].metadata.name.clone().unwrap();
    for (verdict, place, said) in [
        ("Modify", turn(&asked[0]), "no verdict was chosen"),
        ("Approve", format!("/n/{}/t/0123456789abcdef0123", runs.name()), "it is not a call of this turn"),
    ] {
        let fields = json!({"verdict": verdict, "call": format!("{name} {digest}")});
        let script = format!(
            "fetch('{place}/decide', {{method: 'POST', body: new URLSearchParams({fields})}}).then(answer => answer.text())"
        );
        let answer = page.evaluate(&script).await.unwrap().as_str().unwrap().to_owned();
        assert!(answer.contains(said), "{verdict}: {answer}");
    }
    assert_eq!(count_sent(&harness), 0);
}

#[tokio::test]
async fn a_turn_is_accessible_and_fits_in_every_look() {
    let (harness, [runs]) = Harness::with_runs(["turn-looks"]).await.unwrap();
    runs.start_as("dana", "refund-4711", to_a_bank(agent(&calls(), &gates(), &[]))).await;
    let asked = runs.asks_all("refund-4711", 3).await;
    let page = from_the_inbox(&harness, &asked[0], &Look::default()).await;
    every_look(&page, "turn").await;
    page.goto(&harness.at("/")).await.unwrap();
    every_look(&page, "turn-inbox").await;
    page.goto(&harness.at(&path(&asked[0]))).await.unwrap();
    // A fact of several lines has all of them in the column of values.
    let aligned = "[...document.querySelectorAll('main .facts dd')].every(dd => dd.offsetLeft > dd.parentElement.querySelector('dt').offsetLeft)";
    assert_eq!(page.evaluate(aligned).await.unwrap(), json!(true));
    page.screenshot("turn-call").await.unwrap();
    page.click(role("link", "All calls of this turn that wait")).await.unwrap();
    page.wait_url(&turn(&asked[0])).await.unwrap();
    page.fill(css("#reason"), "as agreed with ACME on the phone").await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 3 of 3 calls?")).await.unwrap();
    every_look(&page, "turn-confirm").await;
    harness.content(&page).await.unwrap();
}
