//! The list of waiting requests: its order, its counts, and its live updates.

use serde_json::json;
use signoff_tests::browser::{Look, css, label, role, text};
use signoff_tests::control_plane::named;

use crate::harness::Harness;
use crate::runs::{Runs, path, user};

#[tokio::test]
async fn requests_are_grouped_by_run_with_the_most_urgent_run_first() {
    let (harness, [one, two]) = Harness::with_runs(["first", "second"]).await.unwrap();
    let after = |after: &str| json!({"timeout": {"after": after}, "prompt": format!("Within {after}?")});
    one.start_gate("calm", after("48h")).await;
    two.start_gate("urgent", after("20m")).await;
    let branch = |name: &str, after: &str| json!({"name": name, "branch": name, "hitl": {"prompt": name, "approvers": [user("alice")], "timeout": {"after": after}}});
    let pair = json!({"pattern": {"parallel": {}}, "steps": [branch("later", "72h"), branch("sooner", "2h")]});
    one.start_as("dana", "pair", pair).await;
    one.wait_for_requests("pair", 2).await;
    one.start_gate("others", json!({"approvers": [user("bob")]})).await;

    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    assert_eq!(page.title().await.unwrap(), "(4) Inbox · Signoff");
    page.wait(text("4 requests wait for your decision.")).await.unwrap();
    page.wait(text("1 more waits for other people.")).await.unwrap();
    let others = page.attribute(css(".lead a"), "href").await.unwrap();
    assert_eq!(others.as_deref(), Some("/?tab=others"), "the number counts requests, and leads to them");
    let runs = page.evaluate("[...document.querySelectorAll('.request .run')].map(e => e.innerText)").await.unwrap();
    assert_eq!(runs, json!(["urgent", "pair", "pair", "calm"]));
    let prompts =
        page.evaluate("[...document.querySelectorAll('.request .prompt')].map(e => e.innerText)").await.unwrap();
    assert_eq!(prompts, json!(["Within 20m?", "sooner", "later", "Within 48h?"]));
    let urgent = page.text(css(".request").nth(0)).await.unwrap();
    for part in [two.name(), "dana@example.com", " min", "your decision is enough"] {
        assert!(urgent.contains(part), "{part}: {urgent}");
    }
    let due = page.attribute(css(".request time").nth(0), "title").await.unwrap().unwrap();
    assert!(due.ends_with("then it counts as rejected"), "{due}");
    assert_eq!(page.count(css(".request.soon")).await.unwrap(), 1);
    page.screenshot("inbox").await.unwrap();
    harness.assert_no_browser_errors(&page).await.unwrap();
    page.click(css(".request a.what").nth(0)).await.unwrap();
    page.wait(css("#pane h1")).await.unwrap();
}

#[tokio::test]
async fn empty_inbox_names_the_last_decision() {
    let (harness, [runs]) = Harness::with_runs(["nothing"]).await.unwrap();
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait(text("Nothing waits for you.")).await.unwrap();
    assert_eq!(page.title().await.unwrap(), "Inbox · Signoff");
    assert_eq!(page.count(css(".empty time")).await.unwrap(), 0, "nothing was ever asked here");
    let approval = runs.start_gate("nothing", json!({})).await;
    runs.decide_as("alice", &approval, json!({"verdict": "Approve", "requestDigest": approval.spec.request.digest}))
        .await;
    runs.wait_for_end("nothing").await;
    page.reload().await.unwrap();
    page.wait(text("Nothing waits since")).await.unwrap();
    assert!(page.attribute(css(".empty time"), "datetime").await.unwrap().unwrap().ends_with('Z'));
    page.click(role("link", "nothing · review")).await.unwrap();
    page.wait_url(&path(&approval)).await.unwrap();
}

#[tokio::test]
async fn new_request_is_announced_and_shown_on_demand() {
    let (harness, [runs]) = Harness::with_runs(["live"]).await.unwrap();
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait(text("Nothing waits for you.")).await.unwrap();
    page.evaluate("window.same = true").await.unwrap();
    let first = runs.start_gate("first", json!({"prompt": "The first?"})).await;
    page.wait(text("1 new request waits for you.").inside("[aria-live=polite]")).await.unwrap();
    page.wait_title("(1) Inbox").await.unwrap();
    assert_eq!(page.text(css("#waiting")).await.unwrap(), "1");
    assert_eq!(page.count(css(".request")).await.unwrap(), 0, "nothing moves under a finger");
    page.click(role("button", "Show")).await.unwrap();
    page.wait(text("The first?")).await.unwrap();
    assert_eq!(page.evaluate("window.same").await.unwrap(), json!(true), "without loading the page again");
    assert_eq!(page.title().await.unwrap(), "(1) Inbox · Signoff");

    // It is updated again after the first update.
    let second =
        runs.start_gate("second", json!({"prompt": "The second?", "approvers": [user("alice"), user("bob")]})).await;
    page.wait(text("1 new request waits for you.")).await.unwrap();
    page.wait_title("(2) Inbox").await.unwrap();
    page.click(role("button", "Show")).await.unwrap();
    page.wait(text("The second?")).await.unwrap();
    runs.decide_as("bob", &second, json!({"verdict": "Approve", "requestDigest": second.spec.request.digest})).await;
    page.wait_title("(1) Inbox").await.unwrap();
    page.wait(text("The list has changed.").inside("[aria-live=polite]")).await.unwrap();
    page.click(role("button", "Show")).await.unwrap();
    page.wait_gone(text("The second?")).await.unwrap();
    runs.decide_as("alice", &first, json!({"verdict": "Approve", "requestDigest": first.spec.request.digest})).await;
    page.wait(text("The list has changed.")).await.unwrap();
    page.click(role("button", "Show")).await.unwrap();
    page.wait(text("Nothing waits for you.")).await.unwrap();
    assert_eq!(page.title().await.unwrap(), "Inbox · Signoff");
    harness.assert_no_browser_errors(&page).await.unwrap();
}

#[tokio::test]
async fn reader_can_type_the_names_of_namespaces() {
    let harness = Harness::start().await.unwrap();
    let runs = Runs::create(&harness.cluster, "typed").await;
    let approval = runs.start_gate("typed", json!({"prompt": "Found?"})).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait(text("No namespace is looked at")).await.unwrap();
    let field = label("Namespaces, separated by commas");
    page.fill(&field, "No Namespace!").await.unwrap();
    page.click(role("button", "Look there")).await.unwrap();
    page.wait(text("No is no namespace")).await.unwrap();
    page.back().await.unwrap();
    page.fill(&field, &format!("default, {}", runs.name())).await.unwrap();
    page.click(role("button", "Look there")).await.unwrap();
    page.wait(text("Found?")).await.unwrap();
    // A namespace that she must not list is not read.
    page.wait(text(&format!("Namespaces: {}", runs.name())).exactly()).await.unwrap();
    page.reload().await.unwrap();
    page.look(&Look::default().small()).await.unwrap();
    page.click(text("Found?")).await.unwrap();
    page.wait_url(&path(&approval)).await.unwrap();
}

#[tokio::test]
async fn reader_of_the_cluster_sees_every_namespace() {
    let harness = Harness::start().await.unwrap();
    let runs = Runs::create(&harness.cluster, "everywhere").await;
    runs.start_gate("everywhere", json!({"prompt": "Seen everywhere?", "approvers": [user("tilde")]})).await;
    // No other test asks tilde.
    let tilde = named("tilde").unwrap().user;
    let bind = ["create", "clusterrolebinding", runs.name(), "--clusterrole=signoff-viewer", "--user", tilde];
    harness.cluster.kubectl(bind).run().await.unwrap().ok().unwrap();
    runs.wait_until_allowed_everywhere(tilde).await;
    let page = harness.open_as("tilde", &Look::default()).await.unwrap();
    page.wait(text("Seen everywhere?").nth(0)).await.unwrap();
    assert!(!page.visible(css("details.places")).await.unwrap());
    page.wait(text("kubectl approve list --all-namespaces")).await.unwrap();
}

#[tokio::test]
async fn more_than_forty_requests_are_on_several_pages() {
    let (harness, [runs]) = Harness::with_runs(["many"]).await.unwrap();
    let step = |number: usize| {
        json!({"name": format!("ask{number}"), "branch": format!("b{number}"),
        "hitl": {"prompt": format!("Number {number}?"), "approvers": [user("alice")]}})
    };
    let steps: Vec<_> = (0..14).map(step).collect();
    for name in ["one", "two", "three"] {
        runs.start_as("dana", name, json!({"pattern": {"parallel": {}}, "steps": steps})).await;
        runs.wait_for_requests(name, 14).await;
    }
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait_title("(42)").await.unwrap();
    assert_eq!(page.count(css(".request")).await.unwrap(), 40);
    page.wait(text("1 to 40 of 42")).await.unwrap();
    page.click(role("link", "Next")).await.unwrap();
    page.wait(text("41 to 42 of 42")).await.unwrap();
    assert_eq!(page.count(css(".request")).await.unwrap(), 2);
    page.click(role("link", "Before")).await.unwrap();
    page.wait(text("1 to 40 of 42")).await.unwrap();
    // A page number above the last shows the last page.
    page.goto(&harness.url("/?page=99")).await.unwrap();
    page.wait(text("41 to 42 of 42")).await.unwrap();
    assert_eq!(page.count(css(".request")).await.unwrap(), 2);
}
