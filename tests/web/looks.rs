//! Every page in both themes and two sizes: accessible, no wider than its window, and kept as a screenshot for people.

use serde_json::json;
use signoff_tests::browser::{Look, Page, css, role, text};

use crate::harness::{Harness, decided};
use crate::runs::{path, spec, user};

fn looks() -> [(&'static str, Look); 4] {
    let plain = Look::default();
    let small = plain.clone().small();
    [("light", plain.clone()), ("dark", plain.dark()), ("small", small.clone()), ("small-dark", small.dark())]
}

/// Checks the page in each theme and size.
pub(crate) async fn every_look(page: &Page, name: &str) {
    for (way, look) in looks() {
        page.look(&look).await.unwrap();
        page.accessible().await.unwrap_or_else(|error| panic!("{name}, {way}: {error:#}"));
        page.fits().await.unwrap_or_else(|error| panic!("{name}, {way}: {error:#}"));
        page.screenshot(&format!("{name}-{way}")).await.unwrap();
    }
    page.look(&Look::default()).await.unwrap();
}

/// Returns a gate with everything that a page can show.
fn everything() -> serde_json::Value {
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
async fn the_inbox_and_a_request_are_accessible_and_fit_in_every_look() {
    let (harness, [runs, other]) = Harness::with_runs(["looks", "other-looks"]).await.unwrap();
    let page = harness.signed_in("alice", &Look::default()).await.unwrap();
    every_look(&page, "inbox-empty").await;
    let asked = runs.gate("opening-hours", everything()).await;
    runs.gate("second", json!({"prompt": "Send it to the printer?", "timeout": {"after": "30h"}})).await;
    other.gate("a-run-with-a-name-that-is-as-long-as-names-of-runs-can-be", json!({"timeout": {"after": "90h"}})).await;
    other.gate("others", json!({"approvers": [user("bob")]})).await;
    let digest = asked.spec.request.digest.to_string();
    runs.decides("bob", &asked, json!({"verdict": "Approve", "reason": "It is right", "requestDigest": digest})).await;
    page.goto(&harness.at("/")).await.unwrap();
    every_look(&page, "inbox").await;

    page.goto(&harness.at(&path(&asked))).await.unwrap();
    every_look(&page, "request").await;
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)").await.unwrap();
    every_look(&page, "request-open").await;
    page.click(role("button", "Respond")).await.unwrap();
    page.wait(css("#problem")).await.unwrap();
    every_look(&page, "request-problem").await;
    page.goto(&harness.at(&path(&asked))).await.unwrap();
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)").await.unwrap();
    page.fill(css("#modify-response"), "another draft\nof two lines").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    page.wait(role("heading", "Modify: review?")).await.unwrap();
    every_look(&page, "confirm").await;
    page.click(role("button", "Modify")).await.unwrap();
    decided(&page).await;
    page.wait(css("#instead")).await.unwrap();
    every_look(&page, "request-decided").await;
    page.goto(&harness.at("/no/such/page")).await.unwrap();
    every_look(&page, "not-found").await;
}

#[tokio::test]
async fn times_are_in_the_zone_of_the_reader_with_the_exact_instant() {
    let (harness, [runs]) = Harness::with_runs(["zones"]).await.unwrap();
    let asked = runs.gate("zones", json!({})).await;
    let exact = asked.spec.request.deadline.to_string();
    let mut shown = Vec::new();
    for zone in ["Pacific/Kiritimati", "America/Los_Angeles"] {
        let page = harness.signed_in("alice", &Look { timezone: zone.to_owned(), ..Look::default() }).await.unwrap();
        page.goto(&harness.at(&path(&asked))).await.unwrap();
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
    let page = harness.signed_in("alice", &Look::default().without_scripts()).await.unwrap();
    page.goto(&harness.at(&path(&asked))).await.unwrap();
    let plain = page.text(css(&format!("#state time[datetime='{exact}']"))).await.unwrap();
    assert!(plain.ends_with(" UTC"), "{plain}");
}

#[tokio::test]
async fn the_focus_is_visible_wherever_the_keyboard_goes() {
    let (harness, [runs]) = Harness::with_runs(["focus"]).await.unwrap();
    let asked = runs.gate("focus", everything()).await;
    for (way, look) in looks() {
        let page = harness.signed_in("alice", &look).await.unwrap();
        for at in ["/", path(&asked).as_str()] {
            page.goto(&harness.at(at)).await.unwrap();
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

/// Presses Tab until the page has no further stop, and fails at one that is hidden.
async fn sees_every_stop(page: &Page, state: &str) {
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
    let asked = runs.gate("behind", everything()).await;
    let small = Look::default().small();
    let low = Look { height: 420, ..small.clone() };
    for (way, look) in [("large", Look::default()), ("small", small), ("low", low)] {
        let page = harness.signed_in("alice", &look).await.unwrap();
        let position = "getComputedStyle(document.querySelector('.decision')).position";
        page.goto(&harness.at(&path(&asked))).await.unwrap();
        let closed = if way == "low" { "static" } else { "sticky" };
        assert_eq!(page.evaluate(position).await.unwrap(), json!(closed), "{way}");
        sees_every_stop(&page, way).await;
        page.goto(&harness.at(&path(&asked))).await.unwrap();
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)").await.unwrap();
        let open = if way == "large" { "sticky" } else { "static" };
        assert_eq!(page.evaluate(position).await.unwrap(), json!(open), "{way}, open");
        sees_every_stop(&page, &format!("{way}, open")).await;
        page.goto(&harness.at(&path(&asked))).await.unwrap();
        page.click(role("button", "Approve")).await.unwrap();
        page.wait(role("heading", "Approve: review?")).await.unwrap();
        assert_eq!(page.evaluate(IS_SEEN).await.unwrap(), json!(true), "{way}: the heading of the confirmation");
        sees_every_stop(&page, &format!("{way}, confirmation")).await;
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
    let asked = runs.asked("plain").await;
    for (way, look) in [("large", Look::default()), ("small", Look::default().small())] {
        let page = harness.signed_in("alice", &look.without_scripts()).await.unwrap();
        page.wait(text("1 request waits for your decision.")).await.unwrap();
        page.screenshot(&format!("plain-inbox-{way}")).await.unwrap();
        page.click(text("Without scripts?")).await.unwrap();
        page.wait_url(&path(&asked)).await.unwrap();
        page.click(text("Change…")).await.unwrap();
        page.fill(css("#modify-response"), "another draft").await.unwrap();
        page.screenshot(&format!("plain-request-{way}")).await.unwrap();
        page.click(role("button", "See the difference")).await.unwrap();
        page.wait(role("heading", "Modify: review?")).await.unwrap();
        page.click(role("button", "Back")).await.unwrap();
        page.wait(css("details[open] #modify-response")).await.unwrap();
        assert_eq!(page.value(css("#modify-response")).await.unwrap(), "another draft");
    }
    let page = harness.signed_in("alice", &Look::default().without_scripts()).await.unwrap();
    page.goto(&harness.at(&path(&asked))).await.unwrap();
    page.click(text("Change…")).await.unwrap();
    page.fill(css("#modify-response"), "another draft\nof two lines").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    page.click(role("button", "Modify")).await.unwrap();
    decided(&page).await;
    page.wait(role("heading", "How it was decided")).await.unwrap();
    assert_eq!(runs.decision(&asked, "alice").await["parameters"], json!({"response": "another draft\nof two lines"}));
    assert_eq!(runs.result("plain").await, "another draft\nof two lines");
    page.click(role("link", "History")).await.unwrap();
    page.wait(text("plain").inside("table").nth(0)).await.unwrap();
    page.click(role("link", "Runs")).await.unwrap();
    page.wait(role("heading", "Runs")).await.unwrap();
    page.click(role("link", "plain").nth(0)).await.unwrap();
    page.wait(role("heading", "plain")).await.unwrap();
    assert_eq!(page.count(role("link", "Policies")).await.unwrap(), 0, "alice may not read policies");
    page.click(role("button", "Sign out")).await.unwrap();
    page.goto(&harness.at("/")).await.unwrap();
    page.wait(role("heading", "Sign in")).await.unwrap();
}
