//! The list of runs, and the changes of a run that its requester makes on the page.

use http::Method;
use kube::api::ListParams;
use serde_json::json;
use signoff_api::Workflow;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::browser::{Look, css, role, text};

use crate::harness::Harness;
use crate::looks::check_every_look;

/// Returns the number of requests that changed or created a Workflow, without dry runs.
fn count_changes(harness: &Harness) -> usize {
    let seen = harness.witness.seen();
    let is_sent = |path: &str| path.contains("/workflows") && !path.contains("dryRun=All");
    seen.iter()
        .filter(|request| [Method::PATCH, Method::POST].contains(&request.method) && is_sent(&request.path))
        .count()
}

#[tokio::test]
async fn requester_sees_the_waiting_runs_and_the_address_keeps_the_filter() {
    let (harness, [runs]) = Harness::with_runs(["run-list"]).await.unwrap();
    runs.start_gate("waits", json!({"prompt": "Run it in prod?"})).await;
    let done = runs.start_gate("done", json!({})).await;
    runs.decide_as("alice", &done, json!({"verdict": "Approve", "requestDigest": done.spec.request.digest})).await;
    runs.wait_for_end("done").await;
    let page = harness.open_as("dana", &Look::default()).await.unwrap();
    page.wait(text("Nothing waits for you.")).await.unwrap();
    page.click(role("link", "1 of your runs waits for other people.")).await.unwrap();
    page.wait_url("/runs?phase=others&requester=mine").await.unwrap();
    page.wait(text("1 run.")).await.unwrap();
    let row = page.text(css("ul.runs")).await.unwrap();
    for part in ["waits", "Waiting", "Run it in prod?", "alice@example.com", "requested by you", runs.name()] {
        assert!(row.contains(part), "{part}: {row}");
    }
    page.click(role("link", "Without filter")).await.unwrap();
    page.wait(text("2 runs, yours first.")).await.unwrap();
    check_every_look(&page, "runs").await;
    page.select(css("#filter-phase"), "Succeeded").await.unwrap();
    page.click(role("button", "Filter")).await.unwrap();
    page.wait_url("phase=Succeeded").await.unwrap();
    page.wait(text("1 run.")).await.unwrap();
    page.goto(&harness.url("/runs?phase=%3Cb%3E&search=%22%3E%3Cimg%3E")).await.unwrap();
    page.wait(text("there is no such phase")).await.unwrap();
    assert_eq!(page.count(css("main img, main b")).await.unwrap(), 0);
    page.close().await.unwrap();
    let page = harness.open_as("mallory", &Look::default()).await.unwrap();
    page.goto(&harness.url("/runs")).await.unwrap();
    page.wait(text("no namespace is looked at")).await.unwrap();
    assert_eq!(page.count(css("ul.runs")).await.unwrap(), 0, "who may list nothing reads nothing");
    harness.assert_no_browser_errors(&page).await.unwrap();
}

#[tokio::test]
async fn run_is_cancelled_and_repeated_only_after_a_confirmation() {
    let (harness, [runs]) = Harness::with_runs(["run-change"]).await.unwrap();
    runs.start_gate("change", json!({})).await;
    let at = harness.url(&format!("/n/{}/w/change", runs.name()));
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.goto(&at).await.unwrap();
    page.wait(role("heading", "change")).await.unwrap();
    assert!(!page.visible(role("button", "Cancel…")).await.unwrap(), "alice may not change runs");
    page.close().await.unwrap();

    let page = harness.open_as("dana", &Look::default()).await.unwrap();
    page.goto(&at).await.unwrap();
    harness.witness.forget();
    page.click(role("button", "Cancel…")).await.unwrap();
    page.wait(role("heading", "Cancel run change?")).await.unwrap();
    page.wait(text("the run ends and its open gates are closed")).await.unwrap();
    check_every_look(&page, "run-cancel").await;
    assert_eq!(count_changes(&harness), 0, "it was only tried");
    page.click(role("button", "Cancel run")).await.unwrap();
    page.wait_url(&format!("/n/{}/w/change", runs.name())).await.unwrap();
    assert_eq!(runs.wait_for_end("change").await.status.unwrap().phase, WorkflowPhase::Cancelled);
    assert_eq!(count_changes(&harness), 1);

    page.goto(&at).await.unwrap();
    page.click(role("button", "Rerun…")).await.unwrap();
    page.wait(role("heading", "Rerun run change?")).await.unwrap();
    page.wait(text("created by dana@example.com: read them")).await.unwrap();
    page.wait(text("Repeats (rerunOf)")).await.unwrap();
    page.wait(text("step draft: a text of the run")).await.unwrap();
    page.click(text("The whole spec, as JSON")).await.unwrap();
    let spec = page.text(css("pre.exact-text")).await.unwrap();
    assert!(spec.contains("rerunOf") && spec.contains("a draft"), "{spec}");
    check_every_look(&page, "run-rerun").await;
    assert_eq!(count_changes(&harness), 1, "nothing was created");
    page.click(role("button", "Rerun run")).await.unwrap();
    page.wait(role("heading", "Steps and gates")).await.unwrap();
    let name = page.url().await.unwrap().rsplit('/').next().unwrap().to_owned();
    let again: Workflow = runs.wait_until(&name, "is there", |found: Option<&Workflow>| found.is_some()).await;
    assert_eq!(again.spec.rerun_of.unwrap().name, "change");
    assert_eq!(again.spec.requested_by, "dana@example.com");
    harness.assert_no_browser_errors(&page).await.unwrap();
}

#[tokio::test]
async fn run_is_suspended_and_resumed_only_after_a_confirmation_also_without_scripts() {
    let (harness, [runs]) = Harness::with_runs(["run-pause"]).await.unwrap();
    runs.start_gate("pause", json!({})).await;
    let at = harness.url(&format!("/n/{}/w/pause", runs.name()));
    for look in [Look::default(), Look::default().without_scripts()] {
        let page = harness.open_as("dana", &look).await.unwrap();
        harness.witness.forget();
        for (sent, verb, other) in [(0, "Suspend", "Resume"), (1, "Resume", "Suspend")] {
            page.goto(&at).await.unwrap();
            assert!(!page.visible(role("button", &format!("{other}…"))).await.unwrap(), "{other} has no effect");
            page.click(role("button", &format!("{verb}…"))).await.unwrap();
            page.wait(role("heading", &format!("{verb} run pause?"))).await.unwrap();
            assert_eq!(count_changes(&harness), sent, "it was only tried");
            page.click(role("button", &format!("{verb} run"))).await.unwrap();
            page.wait(role("heading", "Steps and gates")).await.unwrap();
            assert_eq!(count_changes(&harness), sent + 1);
            let stored = runs.api::<Workflow>().get("pause").await.unwrap();
            assert_eq!(stored.spec.suspend, Some(verb == "Suspend"));
        }
        harness.assert_no_browser_errors(&page).await.unwrap();
        page.close().await.unwrap();
    }
}

#[tokio::test]
async fn times_of_a_run_are_in_the_zone_of_the_reader() {
    let (harness, [runs]) = Harness::with_runs(["run-zone"]).await.unwrap();
    let prompt = "Is 2031-02-03T04:05:06Z right?";
    let approval = runs.start_gate("zone", json!({"prompt": prompt})).await;
    let zone = "Pacific/Kiritimati";
    let page = harness.open_as("alice", &Look { timezone: zone.to_owned(), ..Look::default() }).await.unwrap();
    page.goto(&harness.url(&format!("/n/{}/w/zone", runs.name()))).await.unwrap();
    page.wait(text(&format!("asks: {prompt}"))).await.unwrap();
    let deadline = format!(".step-detail time[data-local][datetime='{}']", approval.spec.request.deadline);
    page.wait(css(&deadline)).await.unwrap();
    let other = format!(
        "(format => [...document.querySelectorAll('#run time')].filter(one => one.textContent !== \
         format.format(new Date(one.dateTime)) || !one.title.includes(one.dateTime)).map(one => one.outerHTML))\
         (new Intl.DateTimeFormat(undefined, {{day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', timeZone: '{zone}'}}))"
    );
    assert_eq!(page.evaluate(&other).await.unwrap(), json!([]));
    assert!(page.count(css("#run time")).await.unwrap() > 3);
}

#[tokio::test]
async fn confirmation_that_is_sent_twice_creates_one_run() {
    let (harness, [runs]) = Harness::with_runs(["run-again"]).await.unwrap();
    let approval = runs.start_gate("again", json!({})).await;
    runs.decide_as("alice", &approval, json!({"verdict": "Approve", "requestDigest": approval.spec.request.digest}))
        .await;
    runs.wait_for_end("again").await;
    let page = harness.open_as("dana", &Look::default().without_scripts()).await.unwrap();
    page.goto(&harness.url(&format!("/n/{}/w/again", runs.name()))).await.unwrap();
    page.click(role("button", "Rerun…")).await.unwrap();
    page.wait(role("heading", "Rerun run again?")).await.unwrap();
    assert_eq!(page.response().await.unwrap().header("cache-control"), "private, max-age=300");
    page.click(role("button", "Rerun run")).await.unwrap();
    page.wait(role("heading", "Steps and gates")).await.unwrap();
    page.back().await.unwrap();
    page.wait(role("heading", "Rerun run again?")).await.unwrap();
    page.click(role("button", "Rerun run")).await.unwrap();
    page.wait(role("heading", "Created already")).await.unwrap();
    page.screenshot("run-created-already").await.unwrap();
    page.click(css("main a[href*='/w/again-']")).await.unwrap();
    page.wait(role("heading", "Steps and gates")).await.unwrap();
    let listed = runs.api::<Workflow>().list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 2, "one run, and one that repeats it");
}

#[tokio::test]
async fn buttons_of_a_run_stay_in_place_when_it_ends_and_then_change_nothing() {
    let (harness, [runs]) = Harness::with_runs(["run-ends"]).await.unwrap();
    let approval = runs.start_gate("ends", json!({})).await;
    let page = harness.open_as("dana", &Look::default()).await.unwrap();
    page.goto(&harness.url(&format!("/n/{}/w/ends", runs.name()))).await.unwrap();
    page.wait(text("Waiting").inside("#run").nth(0)).await.unwrap();
    let place = "document.querySelector('form[action$=\"/change\"]').getBoundingClientRect().top";
    let before = page.evaluate(place).await.unwrap();
    harness.witness.forget();
    runs.decide_as("alice", &approval, json!({"verdict": "Approve", "requestDigest": approval.spec.request.digest}))
        .await;
    page.wait(text("Succeeded").inside("#run").nth(0)).await.unwrap();
    assert_eq!(page.evaluate(place).await.unwrap(), before, "nothing moves under a pointer");
    page.click(role("button", "Cancel…")).await.unwrap();
    page.wait(text("nothing was sent: run ends has ended meanwhile (Succeeded)")).await.unwrap();
    assert_eq!(count_changes(&harness), 0);
}

#[tokio::test]
async fn missing_page_has_the_navigation() {
    let harness = Harness::start().await.unwrap();
    let page = harness.open_as("dana", &Look::default()).await.unwrap();
    for path in ["/no/such/page", "/n/none/a/..%2fsecrets"] {
        assert_eq!(page.goto(&harness.url(path)).await.unwrap(), 404, "{path}");
        page.wait(role("link", "Runs")).await.unwrap();
        page.wait(role("link", "History")).await.unwrap();
    }
}
