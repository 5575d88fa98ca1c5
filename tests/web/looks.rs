//! Every page in both themes and two sizes: accessible, no wider than its window, and kept as a screenshot for people.

use serde_json::json;
use signoff_tests::browser::{Look, Page, css, role, text};

use crate::harness::{Harness, show_decided_request};
use crate::runs::{path, spec, user};

/// Returns all looks: each theme in each size.
fn looks() -> [(&'static str, Look); 4] {
    let plain = Look::default();
    let small = plain.clone().small();
    [("light", plain.clone()), ("dark", plain.dark()), ("small", small.clone()), ("small-dark", small.dark())]
}

/// Checks the page in each theme and size.
pub(crate) async fn check_every_look(page: &Page, name: &str) {
    for (way, look) in looks() {
        page.look(&look).await.unwrap();
        page.accessible().await.unwrap_or_else(|error| panic!("{name}, {way}: {error:#}"));
        page.fits().await.unwrap_or_else(|error| panic!("{name}, {way}: {error:#}"));
        page.screenshot(&format!("{name}-{way}")).await.unwrap();
    }
    page.look(&Look::default()).await.unwrap();
}

/// Returns the fields of a gate with every element that a page can show.
fn complete_gate() -> serde_json::Value {
    json!({
            "prompt": "Publish the notice about the opening hours?\nIt goes to all customers.",
            "contextDisplay": "Dear all,\nwe are closed on Monday.\n".repeat(6) + &"averylongword".repeat(40),
            "reviews": "draft",
            "approvers": [user("alice"), user("bob"), {"kind": "Group", "name": "finance-leads"}],
            "threshold": 2,
            "requiredFrom": [{"group": "finance-leads", "min": 1}],
            "excluded": ["erin@example.com"],
            "escalateTo": [{"kind": "Group", "name": "sre"}, user("carol")],
            "allowedVerdicts": ["Approve", "Reject", "Modify", "Respond", "Escalate", "Skip", "Abort"],
            "onReject": "continue",
            "allowUnanswered": true,
            "form": {"questions": [
                {"id": "carrier", "question": "By what?", "options": [{"id": "road", "label": "Lorry", "description": "two days"}, {"id": "rail"}]},
    {"id": "extras", "question": "With what?", "multiple": true, "required": false, "options": [{"id": "insured"}, {"id": "gift"}]},
            ]},
            "timeout": {"after": "50m", "action": "Reject"},
        })
}

#[tokio::test]
async fn inbox_and_request_are_accessible_and_fit_in_every_look() {
    let (harness, [runs, other]) = Harness::with_runs(["looks", "other-looks"]).await.unwrap();
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    check_every_look(&page, "inbox-empty").await;
    let approval = runs.start_gate("opening-hours", complete_gate()).await;
    runs.start_gate("second", json!({"prompt": "Send it to the printer?", "timeout": {"after": "30h"}})).await;
    other
        .start_gate("a-run-with-a-name-that-is-as-long-as-names-of-runs-can-be", json!({"timeout": {"after": "90h"}}))
        .await;
    other.start_gate("others", json!({"approvers": [user("bob")]})).await;
    let digest = approval.spec.request.digest.to_string();
    runs.decide_as("bob", &approval, json!({"verdict": "Approve", "reason": "It is right", "requestDigest": digest}))
        .await;
    page.goto(&harness.url("/")).await.unwrap();
    check_every_look(&page, "inbox").await;

    page.goto(&harness.url(&path(&approval))).await.unwrap();
    check_every_look(&page, "request").await;
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)").await.unwrap();
    check_every_look(&page, "request-open").await;
    page.click(role("button", "Respond")).await.unwrap();
    page.wait(css("#problem")).await.unwrap();
    check_every_look(&page, "request-problem").await;
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)").await.unwrap();
    page.fill(css("#modify-response"), "another draft\nof two lines").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    page.wait(role("heading", "Modify: review?")).await.unwrap();
    check_every_look(&page, "confirm").await;
    page.click(role("button", "Modify")).await.unwrap();
    show_decided_request(&page).await;
    page.wait(css("#instead")).await.unwrap();
    check_every_look(&page, "request-decided").await;
    page.goto(&harness.url("/no/such/page")).await.unwrap();
    check_every_look(&page, "not-found").await;
}

#[tokio::test]
async fn times_are_in_the_zone_of_the_reader_and_their_titles_are_exact() {
    let (harness, [runs]) = Harness::with_runs(["zones"]).await.unwrap();
    let approval = runs.start_gate("zones", json!({})).await;
    let exact = approval.spec.request.deadline.to_string();
    let mut shown = Vec::new();
    for zone in ["Pacific/Kiritimati", "America/Los_Angeles"] {
        let page = harness.open_as("alice", &Look { timezone: zone.to_owned(), ..Look::default() }).await.unwrap();
        page.goto(&harness.url(&path(&approval))).await.unwrap();
        let time = css(&format!("#state time[datetime='{exact}']"));
        page.wait(&time).await.unwrap();
        let title = page.attribute(&time, "title").await.unwrap().unwrap();
        assert!(title.contains(&exact), "{title}");
        let text = page.text(&time).await.unwrap();
        let expected = format!(
            "new Intl.DateTimeFormat(undefined, {{day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', timeZone: '{zone}'}}).format(new Date('{exact}'))"
        );
        assert_eq!(page.evaluate(&expected).await.unwrap(), json!(text));
        shown.push(text);
    }
    assert_ne!(shown[0], shown[1]);
    let page = harness.open_as("alice", &Look::default().without_scripts()).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    let plain = page.text(css(&format!("#state time[datetime='{exact}']"))).await.unwrap();
    assert!(plain.ends_with(" UTC"), "{plain}");
}

#[tokio::test]
async fn focus_is_visible_at_every_stop_of_the_keyboard() {
    let (harness, [runs]) = Harness::with_runs(["focus"]).await.unwrap();
    let approval = runs.start_gate("focus", complete_gate()).await;
    for (way, look) in looks() {
        let page = harness.open_as("alice", &look).await.unwrap();
        for at in ["/", path(&approval).as_str()] {
            page.goto(&harness.url(at)).await.unwrap();
            page.press("Tab").await.unwrap();
            let first = page.focused().await.unwrap();
            assert_eq!(first, "a Skip to the content");
            let mut stops = 0;
            loop {
                let outline =
                    "(s => [s.outlineStyle, parseFloat(s.outlineWidth)])(getComputedStyle(document.activeElement))";
                let outline = page.evaluate(outline).await.unwrap();
                let focused = page.focused().await.unwrap();
                assert!(
                    outline[0] != "none" && outline[1].as_f64().unwrap() >= 2.0,
                    "{way}, {at}: {focused}: {outline}"
                );
                page.press("Tab").await.unwrap();
                stops += 1;
                if stops > 40 || page.evaluate("document.activeElement === document.body").await.unwrap() == json!(true)
                {
                    break;
                }
            }
            assert!(stops > 5, "{stops} stops at {at}");
        }
    }
}

/// A script that returns whether a part of the focused element is visible, with nothing in front of it.
const IS_SEEN: &str = "(e => [...e.getClientRects()].some(r => [0.1, 0.5, 0.9].some(part => e.contains(\
    document.elementFromPoint(r.left + r.width / 2, r.top + r.height * part)))))(document.activeElement)";

/// Presses Tab until the page has no further stop. Fails if a stop is hidden.
async fn check_every_stop(page: &Page, state: &str) {
    for _ in 0..120 {
        page.press("Tab").await.unwrap();
        if page.evaluate("document.activeElement === document.body").await.unwrap() == json!(true) {
            return;
        }
        let focused = page.focused().await.unwrap();
        assert_eq!(page.evaluate(IS_SEEN).await.unwrap(), json!(true), "{state}: {focused} is hidden");
    }
    panic!("{state}: the page has a stop after 120 stops");
}

#[tokio::test]
async fn bar_does_not_cover_the_focused_element() {
    let (harness, [runs]) = Harness::with_runs(["behind"]).await.unwrap();
    let approval = runs.start_gate("behind", complete_gate()).await;
    let small = Look::default().small();
    let low = Look { height: 420, ..small.clone() };
    for (way, look) in [("large", Look::default()), ("small", small), ("low", low)] {
        let page = harness.open_as("alice", &look).await.unwrap();
        let position = "getComputedStyle(document.querySelector('.decision')).position";
        page.goto(&harness.url(&path(&approval))).await.unwrap();
        let closed = if way == "low" { "static" } else { "sticky" };
        assert_eq!(page.evaluate(position).await.unwrap(), json!(closed), "{way}");
        check_every_stop(&page, way).await;
        page.goto(&harness.url(&path(&approval))).await.unwrap();
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)").await.unwrap();
        let open = if way == "large" { "sticky" } else { "static" };
        assert_eq!(page.evaluate(position).await.unwrap(), json!(open), "{way}, open");
        check_every_stop(&page, &format!("{way}, open")).await;
        page.goto(&harness.url(&path(&approval))).await.unwrap();
        page.click(role("button", "Approve")).await.unwrap();
        page.wait(role("heading", "Approve: review?")).await.unwrap();
        assert_eq!(page.evaluate(IS_SEEN).await.unwrap(), json!(true), "{way}: the heading of the confirmation");
        check_every_stop(&page, &format!("{way}, confirmation")).await;
        page.close().await.unwrap();
    }
}

#[tokio::test]
async fn page_works_without_scripts() {
    let (harness, [runs]) = Harness::with_runs(["plain"]).await.unwrap();
    let mut steps =
        spec(json!({"prompt": "Without scripts?", "reviews": "draft", "allowedVerdicts": ["Approve", "Modify"]}));
    steps["steps"][2]["set"]["value"] = json!("{{ steps.draft.response }}");
    runs.start_as("dana", "plain", steps).await;
    let approval = runs.wait_for_request("plain").await;
    for (way, look) in [("large", Look::default()), ("small", Look::default().small())] {
        let page = harness.open_as("alice", &look.without_scripts()).await.unwrap();
        page.wait(text("1 request waits for your decision.")).await.unwrap();
        page.screenshot(&format!("plain-inbox-{way}")).await.unwrap();
        page.click(text("Without scripts?")).await.unwrap();
        page.wait_url(&path(&approval)).await.unwrap();
        page.click(text("Change…")).await.unwrap();
        page.fill(css("#modify-response"), "another draft").await.unwrap();
        page.screenshot(&format!("plain-request-{way}")).await.unwrap();
        page.click(role("button", "See the difference")).await.unwrap();
        page.wait(role("heading", "Modify: review?")).await.unwrap();
        page.click(role("button", "Back")).await.unwrap();
        page.wait(css("details[open] #modify-response")).await.unwrap();
        assert_eq!(page.value(css("#modify-response")).await.unwrap(), "another draft");
    }
    let page = harness.open_as("alice", &Look::default().without_scripts()).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.click(text("Change…")).await.unwrap();
    page.fill(css("#modify-response"), "another draft\nof two lines").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    page.click(role("button", "Modify")).await.unwrap();
    show_decided_request(&page).await;
    page.wait(role("heading", "How it was decided")).await.unwrap();
    assert_eq!(
        runs.read_decision(&approval, "alice").await["parameters"],
        json!({"response": "another draft\nof two lines"})
    );
    assert_eq!(runs.wait_for_result("plain").await, "another draft\nof two lines");
    page.click(role("link", "History")).await.unwrap();
    page.wait(text("plain").inside("table").nth(0)).await.unwrap();
    page.click(role("link", "Runs")).await.unwrap();
    page.wait(role("heading", "Runs")).await.unwrap();
    page.click(role("link", "plain").nth(0)).await.unwrap();
    page.wait(role("heading", "plain")).await.unwrap();
    assert_eq!(page.count(role("link", "Policies")).await.unwrap(), 0, "alice may not read policies");
    page.click(role("button", "Sign out")).await.unwrap();
    page.goto(&harness.url("/")).await.unwrap();
    page.wait(role("heading", "Sign in")).await.unwrap();
}
