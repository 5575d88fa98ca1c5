//! The list: its lines, tabs, search and filters, the pane beside it, its keys, and requests of equal gates that are
//! decided together.

use http::Method;
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::browser::{Look, Page, css, label, role, text};

use crate::harness::Harness;
use crate::looks::check_every_look;
use crate::runs::{Runs, path, spec, user};

/// Returns the number of decisions that reached the API server, and the number of dry runs.
fn count_patches(harness: &Harness) -> (usize, usize) {
    let seen = harness.witness.seen();
    let patches = || seen.iter().filter(|seen| seen.method == Method::PATCH);
    let dry_runs = patches().filter(|seen| seen.path.contains("dryRun=All")).count();
    (patches().count() - dry_runs, dry_runs)
}

/// Starts runs with one spec and different inputs, and returns their requests. Their gates are equal.
async fn start_invoices(runs: &Runs, count: usize) -> Vec<Approval> {
    let mut approvals = Vec::new();
    for number in 1..=count {
        let mut run = spec(json!({"prompt": "Pay invoice {{ inputs.invoice }}?", "reviews": "draft"}));
        run["inputs"] = json!([{"name": "invoice", "value": number.to_string()}]);
        let name = format!("invoice-{number}");
        runs.start_as("dana", &name, run).await;
        approvals.push(runs.wait_for_request(&name).await);
    }
    approvals
}

/// Returns the names of the runs of the listed requests, in order.
async fn listed_runs(page: &Page) -> Value {
    page.evaluate("[...document.querySelectorAll('.request')].map(e => e.querySelector('.run').innerText)")
        .await
        .unwrap()
}

/// Waits until the pane shows the request of this run.
async fn wait_for_pane(page: &Page, run: &str) {
    page.wait(css(&format!("#pane a[href$='/w/{run}']")).nth(0)).await.unwrap();
}

#[tokio::test]
async fn thirty_three_requests_fit_two_screens() {
    let (harness, [runs]) = Harness::with_runs(["dense"]).await.unwrap();
    let step = |number: usize| {
        json!({"name": format!("ask{number}"), "branch": format!("b{number}"),
            "hitl": {"prompt": format!("Is number {number} of this list of things all right?"), "approvers": [user("alice")]}})
    };
    let steps: Vec<_> = (0..11).map(step).collect();
    for name in ["one", "two", "three"] {
        runs.start_as("dana", name, json!({"pattern": {"parallel": {}}, "steps": steps})).await;
        runs.wait_for_requests(name, 11).await;
    }
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait_title("(33)").await.unwrap();
    assert_eq!(page.count(css(".request")).await.unwrap(), 33);
    let end = "[...document.querySelectorAll('.request')].at(-1).getBoundingClientRect().bottom + scrollY";
    let end = page.evaluate(end).await.unwrap().as_f64().unwrap();
    assert!(end <= 1600.0, "the last request ends at {end} pixels");
    check_every_look(&page, "list-dense").await;
}

#[tokio::test]
async fn address_has_the_tab_the_search_and_the_filters() {
    let (harness, [runs, other]) = Harness::with_runs(["filter", "elsewhere"]).await.unwrap();
    runs.start_gate("letters", json!({"prompt": "Send the letters?"})).await;
    runs.start_gate("payment", json!({"prompt": "Pay the rent?", "timeout": {"after": "50m"}})).await;
    other.start_gate("abroad", json!({"prompt": "Send it abroad?"})).await;
    runs.start_gate("bobs", json!({"approvers": [user("bob")]})).await;
    for look in [Look::default(), Look::default().without_scripts()] {
        let page = harness.open_as("alice", &look).await.unwrap();
        page.wait(text("3 requests wait for your decision.")).await.unwrap();
        page.fill(css("#find"), "send the").await.unwrap();
        page.press("Enter").await.unwrap();
        page.wait_url("q=send+the").await.unwrap();
        assert_eq!(listed_runs(&page).await, json!(["letters"]));
        page.click(role("link", "Without filter")).await.unwrap();
        page.wait(text("Pay the rent?")).await.unwrap();
        page.click(text("Filter and sort")).await.unwrap();
        page.fill(css("#filter-namespace"), other.name()).await.unwrap();
        page.click(role("button", "Filter")).await.unwrap();
        page.wait_url(&format!("namespace={}", other.name())).await.unwrap();
        assert_eq!(listed_runs(&page).await, json!(["abroad"]));
        page.goto(&harness.url("/?due=hour")).await.unwrap();
        assert_eq!(listed_runs(&page).await, json!(["payment"]));
        page.goto(&harness.url("/?sort=run&kind=gate")).await.unwrap();
        assert_eq!(page.count(css(".request")).await.unwrap(), 3);
        page.goto(&harness.url("/?due=%3Cimg%20src=x%3E&run=letters")).await.unwrap();
        page.wait(text("there is no such choice: choose one of the list: <img src=x>").inside("#filter-due-wrong"))
            .await
            .unwrap();
        assert_eq!(page.count(css(".request, main img")).await.unwrap(), 0);
        page.goto(&harness.url("/?run=nothing")).await.unwrap();
        page.wait(text("No request here fits the filter.")).await.unwrap();
        page.goto(&harness.url("/")).await.unwrap();
        page.click(role("link", "Others 1")).await.unwrap();
        page.wait_url("tab=others").await.unwrap();
        assert_eq!(listed_runs(&page).await, json!(["bobs"]));
        page.close().await.unwrap();
    }
    // The requester reads the requests of her runs.
    let dana = harness.open_as("dana", &Look::default()).await.unwrap();
    dana.click(role("link", "4 of your runs wait for other people.")).await.unwrap();
    dana.wait(role("heading", "Runs")).await.unwrap();
    assert_eq!(dana.count(css("ul.runs > li")).await.unwrap(), 4);
    dana.goto(&harness.url("/")).await.unwrap();
    dana.click(role("link", "Mine 4")).await.unwrap();
    dana.wait_url("tab=mine").await.unwrap();
    assert_eq!(dana.count(css(".request")).await.unwrap(), 4);
    check_every_look(&dana, "list-mine").await;
}

#[tokio::test]
async fn chosen_request_opens_beside_the_list_and_shows_new_votes() {
    let (harness, [runs]) = Harness::with_runs(["panes"]).await.unwrap();
    let first = runs.start_gate("first", json!({"approvers": [user("alice"), user("bob")], "threshold": 2})).await;
    runs.start_gate("second", json!({"timeout": {"after": "90h"}})).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait(text("2 requests wait for your decision.")).await.unwrap();
    page.click(css(".request a.what").nth(0)).await.unwrap();
    wait_for_pane(&page, "first").await;
    assert!(!page.url().await.unwrap().contains("/n/"), "the list stays");
    assert_eq!(page.title().await.unwrap(), "(2) Inbox · Signoff");
    assert_eq!(page.evaluate("document.querySelectorAll('#news, #content').length").await.unwrap(), json!(2));
    check_every_look(&page, "list-pane").await;
    page.fill(css("#reason"), "half a thought").await.unwrap();
    runs.decide_as("bob", &first, json!({"verdict": "Approve", "requestDigest": first.spec.request.digest})).await;
    page.wait(text("Approve by bob@example.com").inside("#pane")).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "half a thought", "no form is touched");
    page.wait(text("The list has changed.")).await.unwrap();
    page.click(role("button", "Show")).await.unwrap();
    page.wait_gone(text("The list has changed.")).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "half a thought");
    assert_eq!(page.text(css("a.what[aria-current] .run")).await.unwrap(), "first");
    page.click(css(".request a.what").nth(1)).await.unwrap();
    wait_for_pane(&page, "second").await;
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(css(".confirm")).await.unwrap();
    harness.assert_no_browser_errors(&page).await.unwrap();
    // In a narrow window, and without scripts, the line is a link.
    for look in [Look::default().small(), Look::default().without_scripts()] {
        let page = harness.open_as("alice", &look).await.unwrap();
        page.click(css(".request a.what").nth(0)).await.unwrap();
        page.wait_url("/a/").await.unwrap();
        page.close().await.unwrap();
    }
}

#[tokio::test]
async fn keys_move_and_open_a_confirmation_and_send_nothing() {
    let (harness, [runs]) = Harness::with_runs(["keys"]).await.unwrap();
    let verdicts = json!({"allowedVerdicts": ["Approve", "Reject", "Modify"], "reviews": "draft"});
    let first = runs.start_gate("first", verdicts).await;
    let second = runs.start_gate("second", json!({"timeout": {"after": "90h"}})).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait(role("button", "Keys")).await.unwrap();
    page.press("a").await.unwrap();
    page.press("j").await.unwrap();
    wait_for_pane(&page, "first").await;
    page.press("j").await.unwrap();
    wait_for_pane(&page, "second").await;
    page.press("k").await.unwrap();
    wait_for_pane(&page, "first").await;
    assert_eq!(count_patches(&harness), (0, 0), "moving tries nothing");
    page.press("m").await.unwrap();
    page.wait(css("#modify-response:focus")).await.unwrap();
    // A field has the focus: these are letters.
    page.keys("ajr?").await.unwrap();
    assert!(page.value(css("#modify-response")).await.unwrap().contains("ajr?"));
    page.focus(css("#pane")).await.unwrap();
    for (key, verdict) in [("a", "Approve"), ("r", "Reject")] {
        page.press("u").await.unwrap();
        page.press("j").await.unwrap();
        wait_for_pane(&page, "second").await;
        page.press("k").await.unwrap();
        wait_for_pane(&page, "first").await;
        page.press(key).await.unwrap();
        page.wait(role("heading", &format!("{verdict}: review?"))).await.unwrap();
        page.wait(role("button", "Keys")).await.unwrap();
        page.press("a").await.unwrap();
        page.press("r").await.unwrap();
        page.wait(css(".confirm")).await.unwrap();
        page.press("u").await.unwrap();
        page.wait(role("heading", "Inbox")).await.unwrap();
        page.wait(role("button", "Keys")).await.unwrap();
    }
    assert_eq!(count_patches(&harness), (0, 2), "each was only tried");
    for approval in [&first, &second] {
        assert_eq!(runs.read_decision(approval, "alice").await, Value::Null);
    }
    page.press("/").await.unwrap();
    assert_eq!(page.focused().await.unwrap(), "input Search");
    page.keys("x?j").await.unwrap();
    assert_eq!(page.value(css("#find")).await.unwrap(), "x?j");
    page.focus(css("#list")).await.unwrap();
    page.press("j").await.unwrap();
    page.press("x").await.unwrap();
    assert_eq!(page.count(css(".request input:checked")).await.unwrap(), 1);
    page.press("Control+j").await.unwrap();
    assert_eq!(
        page.count(css(".request:nth-child(2) a.what:focus")).await.unwrap(),
        1,
        "a key of the browser moves nothing"
    );
    // The keys are listed, and can be switched off permanently.
    page.press("?").await.unwrap();
    page.wait(role("heading", "Keys")).await.unwrap();
    check_every_look(&page, "list-keys").await;
    page.check(label("Keys are on in this browser"), false).await.unwrap();
    page.click(role("button", "Close")).await.unwrap();
    for _ in 0..2 {
        page.focus(css("#list")).await.unwrap();
        for key in ["/", "j", "?"] {
            page.press(key).await.unwrap();
        }
        assert_eq!(page.evaluate("document.activeElement.id").await.unwrap(), json!("list"));
        assert!(!page.visible(css("#keys")).await.unwrap());
        page.reload().await.unwrap();
    }
    page.click(role("button", "Keys")).await.unwrap();
    page.check(label("Keys are on in this browser"), true).await.unwrap();
    page.press("Escape").await.unwrap();
    page.focus(css("#list")).await.unwrap();
    page.press("j").await.unwrap();
    wait_for_pane(&page, "first").await;
    harness.assert_no_browser_errors(&page).await.unwrap();
}

#[tokio::test]
async fn two_keys_or_clicks_decide_beside_the_list_and_open_the_next_request() {
    let (harness, [runs]) = Harness::with_runs(["queue"]).await.unwrap();
    let approvals = start_invoices(&runs, 4).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait(text("4 requests wait for your decision.")).await.unwrap();
    page.press("j").await.unwrap();
    wait_for_pane(&page, "invoice-1").await;
    page.fill(css("#reason"), "as agreed").await.unwrap();
    page.focus(css("#pane")).await.unwrap();
    for (decided, next, left) in [(1, 2, "3 requests wait"), (2, 3, "2 requests wait"), (3, 4, "1 request waits")] {
        if decided == 3 {
            page.click(role("button", "Approve")).await.unwrap();
            page.click(role("button", "Approve").inside(css(".confirm"))).await.unwrap();
        } else {
            page.press("a").await.unwrap();
            page.wait(css(".confirm form button:not([name]):focus")).await.unwrap();
            page.press("Enter").await.unwrap();
        }
        wait_for_pane(&page, &format!("invoice-{next}")).await;
        let note = page.text(css("#pane #after")).await.unwrap();
        assert!(note.contains(&format!("Pay invoice {decided}?")) && note.contains("You approved. Recorded"), "{note}");
        page.wait(text(&format!("{left} for your decision.")).inside("#list")).await.unwrap();
        page.wait(css("#pane:focus")).await.unwrap();
        assert_eq!(page.text(css("#list a.what[aria-current] .run")).await.unwrap(), format!("invoice-{next}"));
        assert_eq!(page.value(css("#reason")).await.unwrap(), "", "no draft goes over to another request");
        // The pane is in view as a whole: the note at its head, the bar at its foot.
        let seen = "[document.querySelector('#after').getBoundingClientRect().top, innerHeight - document.querySelector('#decide').getBoundingClientRect().bottom, scrollY]";
        let seen = page.evaluate(seen).await.unwrap();
        let is_seen = |at: usize| seen.get(at).and_then(Value::as_f64).is_some_and(|pixels| pixels >= 0.0);
        assert!(is_seen(0) && is_seen(1), "invoice-{next}: {seen}");
    }
    check_every_look(&page, "list-next").await;
    // A pane that is too long is shown from its heading. It has another answer than the next request.
    page.fill(css("#reason"), &"on and on\n".repeat(60)).await.unwrap();
    page.focus(css("#pane")).await.unwrap();
    page.press("a").await.unwrap();
    page.wait(css(".confirm h1:focus")).await.unwrap();
    page.evaluate("document.querySelector('.confirm [name=confirmed]').value = 'another'").await.unwrap();
    page.click(role("button", "Approve").inside(css(".confirm"))).await.unwrap();
    page.wait(text("Nothing was sent.").inside("#pane")).await.unwrap();
    page.click(role("button", "Back")).await.unwrap();
    page.wait(css("#pane #reason")).await.unwrap();
    assert!(!page.url().await.unwrap().contains("/n/"), "the list stays");
    assert_eq!(count_patches(&harness).0, 3);
    for approval in &approvals[..3] {
        assert_eq!(runs.read_decision(approval, "alice").await["verdict"], "Approve");
    }
    assert_eq!(runs.read_decision(&approvals[0], "alice").await["reason"], "as agreed");
}

#[tokio::test]
async fn typed_letters_and_a_double_click_confirm_nothing() {
    let (harness, [runs]) = Harness::with_runs(["typing-on"]).await.unwrap();
    let approvals = start_invoices(&runs, 2).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.press("j").await.unwrap();
    wait_for_pane(&page, "invoice-1").await;
    // The confirmation comes while its reader types elsewhere: the field keeps the focus.
    harness.witness.delay(std::time::Duration::from_millis(300));
    page.press("a").await.unwrap();
    page.press("/").await.unwrap();
    page.keys("rent a").await.unwrap();
    page.wait(css(".confirm")).await.unwrap();
    page.keys(" car").await.unwrap();
    assert_eq!(page.value(css("#find")).await.unwrap(), "rent a car");
    // The button has the focus: text leads back to the heading, and the second click of a double click is ignored.
    page.click(role("button", "Back")).await.unwrap();
    page.focus(css("#pane")).await.unwrap();
    page.press("a").await.unwrap();
    page.wait(css(".confirm")).await.unwrap();
    // An early Enter is ignored, and does not prevent a later one. Escape goes back.
    let early = "document.querySelector('.confirm h1').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))";
    page.evaluate(early).await.unwrap();
    page.wait(css(".confirm form button:not([name]):focus")).await.unwrap();
    page.press("Escape").await.unwrap();
    page.wait(css("#pane #reason")).await.unwrap();
    page.press("a").await.unwrap();
    page.wait(css(".confirm form button:not([name]):focus")).await.unwrap();
    page.press("Space").await.unwrap();
    page.wait(css(".confirm h1:focus")).await.unwrap();
    page.press("Enter").await.unwrap();
    let twice = "document.querySelector('.confirm form button:not([name])').dispatchEvent(new MouseEvent('click', {detail: 2, bubbles: true, cancelable: true}))";
    assert_eq!(page.evaluate(twice).await.unwrap(), json!(false), "it is prevented");
    assert_eq!(count_patches(&harness), (0, 3), "nothing was sent");
    // Another request that is chosen before the answer stays, and the answer is reported.
    harness.witness.delay(std::time::Duration::from_secs(1));
    page.click(role("button", "Approve").inside(css(".confirm"))).await.unwrap();
    page.click(css(".request a.what").nth(1)).await.unwrap();
    page.wait(text("Your decision is recorded.").inside("#news")).await.unwrap();
    wait_for_pane(&page, "invoice-2").await;
    assert_eq!(runs.read_decision(&approvals[0], "alice").await["verdict"], "Approve");
}

#[tokio::test]
async fn requests_of_equal_gates_are_folded_and_decided_together() {
    let (harness, [runs]) = Harness::with_runs(["bulk"]).await.unwrap();
    let approvals = start_invoices(&runs, 5).await;
    for (look, verdict) in [(Look::default().without_scripts(), "Reject"), (Look::default(), "Approve")] {
        let page = harness.open_as("alice", &look).await.unwrap();
        page.click(text("… 4 more of invoice/review")).await.unwrap();
        page.click(role("link", "Decide 5 together")).await.unwrap();
        page.wait(role("heading", "Requests of equal gates")).await.unwrap();
        for approval in &approvals {
            page.click(css("details.digest:not([open]) > summary").nth(0)).await.unwrap();
            page.wait(text(&approval.spec.request.digest.to_string()).nth(0)).await.unwrap();
            page.wait(text(&approval.spec.request.prompt).nth(0)).await.unwrap();
        }
        page.fill(css("#reason"), "as agreed").await.unwrap();
        page.click(role("button", verdict)).await.unwrap();
        page.wait(role("heading", &format!("{verdict}: 5 of 5 requests?"))).await.unwrap();
        let listed = page.text(css("ul.calls")).await.unwrap();
        for approval in &approvals {
            let run = format!("{}: review", approval.spec.request.workflow.name);
            let (digest, prompt) = (approval.spec.request.digest.as_str(), &approval.spec.request.prompt);
            for part in [digest, &run, prompt, "a draft", "Inputs: invoice "] {
                assert!(listed.contains(part), "{part}: {listed}");
            }
        }
        assert_eq!(count_patches(&harness).0, 0, "nothing is sent before it is confirmed");
        if verdict == "Reject" {
            page.close().await.unwrap();
            continue;
        }
        check_every_look(&page, "together-confirm").await;
        page.click(role("button", verdict)).await.unwrap();
        page.wait(role("heading", "Approve: 5 of 5 requests recorded")).await.unwrap();
    }
    assert_eq!(count_patches(&harness).0, 5, "one vote for each request");
    for approval in &approvals {
        let expected =
            json!({"verdict": "Approve", "reason": "as agreed", "requestDigest": approval.spec.request.digest});
        assert_eq!(runs.read_decision(approval, "alice").await, expected);
    }
}

#[tokio::test]
async fn request_of_a_run_with_another_spec_is_not_decided_together() {
    let (harness, [runs, elsewhere]) = Harness::with_runs(["unequal", "unequal-too"]).await.unwrap();
    let approvals = start_invoices(&runs, 2).await;
    let mut other = spec(json!({"prompt": "Pay invoice 9?", "reviews": "draft"}));
    other["inputs"] = json!([{"name": "invoice", "value": "9"}]);
    other["steps"][2]["set"]["value"] = json!("something else is done");
    runs.start_as("dana", "invoice-9", other).await;
    let unequal = runs.wait_for_request("invoice-9").await;
    let far = elsewhere.start_gate("far", json!({})).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    let chosen: Vec<_> = approvals.iter().chain([&unequal]).collect();
    for approval in &chosen {
        let name = format!("{}/{}", runs.name(), approval.metadata.name.as_deref().unwrap());
        page.check(css(&format!("input[name=a][value='{name}']")), true).await.unwrap();
    }
    page.click(role("button", "Decide the chosen requests together")).await.unwrap();
    page.wait(role("heading", "Requests of equal gates")).await.unwrap();
    page.wait(text("differ from those of the first request")).await.unwrap();
    assert_eq!(page.count(css("input[name=call]")).await.unwrap(), 2);
    assert_eq!(page.count(css("input[name=call]:checked")).await.unwrap(), 2);
    check_every_look(&page, "together").await;
    // An address from elsewhere, such as a link in a letter, chooses nothing.
    let named = |approval: &Approval| path(approval).replace("/n/", "a=").replace("/a/", "/");
    page.goto(&harness.url(&format!("/together?{}&{}", named(&approvals[1]), named(&approvals[0])))).await.unwrap();
    page.wait(text("Nothing is chosen yet")).await.unwrap();
    assert_eq!(page.count(css("input[name=call]:checked")).await.unwrap(), 0);
    // A form that still names it: it is reported, and neither tried nor sent.
    let fields: Vec<_> = chosen
        .iter()
        .map(|approval| {
            json!(["call", format!("{} {}", approval.metadata.name.as_deref().unwrap(), approval.spec.request.digest)])
        })
        .chain([json!(["verdict", "Approve"])])
        .collect();
    let script = format!(
        "fetch('/n/{}/together/decide', {{method: 'POST', body: new URLSearchParams({})}}).then(answer => answer.text())",
        runs.name(),
        Value::from(fields)
    );
    let answer = page.evaluate(&script).await.unwrap().as_str().unwrap().to_owned();
    assert!(answer.contains("Approve: 2 of 3 requests?"), "{answer}");
    assert_eq!(count_patches(&harness), (0, 2));
    let names = [path(&approvals[0]), path(&far)].map(|path| path.replace("/n/", "a=").replace("/a/", "/"));
    for (query, error) in [
        (names.join("&"), "requests of several namespaces are not decided together"),
        (String::new(), "no request was chosen"),
        ("a=../secrets&like=%3Cb%3E&a=x".to_owned(), "no request was chosen"),
    ] {
        assert_eq!(page.goto(&harness.url(&format!("/together?{query}"))).await.unwrap(), 422, "{query}");
        page.wait(text(error)).await.unwrap();
    }
}
