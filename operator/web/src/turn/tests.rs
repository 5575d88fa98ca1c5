//! Tests of the page of a turn, its confirmation, and a batch.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use askama::Template;
use http::HeaderValue;
use serde_json::json;
use signoff_api::{Approval, Digest};
use signoff_review::{action::NOTICE, sample};

use super::*;
use crate::{
    approval::{
        read::Read,
        tests::{caller, read_of, read_with_problem, with},
        typed::Problems,
    },
    history::tests::server,
    session::fake::World,
};

fn call(number: u32, tool: &str, verdicts: &[&str]) -> Approval {
    let arguments = format!("{{\"number\":{number}}}");
    with(
        sample::call(),
        &json!({
            "gate": {"name": tool, "type": "specificTools", "path": format!("handle/.turn-2/.call-{number}/.gate"), "visit": 1},
            "action": {
                "kind": "toolCall", "agent": "clerk", "tool": tool, "effects": "write", "target": "POST https://bank.example",
                "siblings": [{"path": "handle/.turn-2/.call-9", "tool": "lookup"}, {"path": "handle/.turn-2/.call-1", "tool": "refund"}],
            },
            "reviews": {"path": "x", "response": arguments, "digest": Digest::of_bytes(arguments.as_bytes())},
            "allowedVerdicts": verdicts,
        }),
    )
}

fn turn(calls: &[Approval]) -> Together {
    Together {
        bond: Bond::Turn("0a1b2c".to_owned()),
        namespace: "finance".to_owned(),
        calls: calls.iter().map(read_of).collect(),
        strangers: BTreeSet::new(),
    }
}

/// Returns requests of equal gates as they were read. `strangers`: the positions of those that differ from the first.
fn equal(calls: &[Approval], strangers: &[usize]) -> Together {
    let strangers = strangers.iter().map(|at| calls[*at].metadata.name.clone().unwrap()).collect();
    Together { bond: Bond::Equal, strangers, ..turn(calls) }
}

/// Returns a gate of a run about a letter.
fn gate(run: &str, letter: &str) -> Approval {
    with(
        sample::approval(),
        &json!({
            "workflow": {"name": run, "uid": "6f1c3e5a-0000-4000-8000-000000000001"},
            "reviews": {"path": "draft", "response": letter, "digest": Digest::of_bytes(letter.as_bytes())},
        }),
    )
}

fn render_for(user: &str, calls: &[Approval], typed: &Typed) -> String {
    let caller = caller(user);
    let page = match typed.verdict() {
        None => TurnPage::opened(&caller, &turn(calls), FirstChoice::All),
        Some(_) => TurnPage::again(&caller, &turn(calls), typed, &Problems::default()),
    };
    page.render().unwrap()
}

/// Returns, for each box of a page that chooses a call, whether it is checked.
fn boxes(page: &str) -> Vec<bool> {
    let all = page.lines().filter(|line| line.contains("<input type=\"checkbox\" name=\"call\""));
    all.map(|line| line.contains(" checked>")).collect()
}

#[tokio::test]
async fn each_call_is_chosen_and_has_its_arguments_and_digest() {
    let calls = [call(1, "refund", &["Approve", "Reject", "Defer"]), call(2, "letter", &["Approve", "Reject"])];
    let page = render_for("alice@example.com", &calls, &Typed::default());
    for one in &calls {
        let box_of = format!(
            "<input type=\"checkbox\" name=\"call\" value=\"{} {}\" checked>",
            one.metadata.name.as_deref().unwrap(),
            one.spec.request.digest
        );
        assert!(page.contains(&box_of), "{box_of}: {page}");
    }
    assert!(page.contains("&#34;number&#34;: 1"), "{page}");
    assert!(page.contains("not allowed for letter: POST https://bank.example"), "Defer is not taken by all: {page}");
    assert!(page.contains("lookup (call 9)") && !page.contains("refund (call 1)"), "what does not wait: {page}");
    for absent in ["value=\"Modify\"", "value=\"Respond\"", "value=\"Skip\"", "value=\"Abort\""] {
        assert!(!page.contains(absent), "{absent}: {page}");
    }
}

#[tokio::test]
async fn undecidable_or_changed_call_cannot_be_chosen() {
    let mut changed = call(2, "letter", &["Approve"]);
    changed.spec.request.prompt = "Something else?".to_owned();
    let calls = [call(1, "refund", &["Approve"]), changed];
    let page = render_for("alice@example.com", &calls, &Typed::default());
    assert_eq!(boxes(&page).len(), 1, "{page}");
    assert!(page.contains("do not decide it, and tell the administrators"), "{page}");
    let page = render_for("mallory@example.com", &calls, &Typed::default());
    assert_eq!(boxes(&page).len(), 0, "{page}");
    assert!(!page.contains("<button type=\"submit\" name=\"verdict\""), "{page}");
}

#[tokio::test]
async fn a_call_with_any_problem_cannot_be_chosen() {
    let page = |call: Read| {
        let turn = Together { calls: vec![call], ..turn(&[]) };
        let page = TurnPage::opened(&caller("alice@example.com"), &turn, FirstChoice::All);
        page.render().unwrap().replace("&#39;", "'")
    };
    for problem in sample::problems() {
        let said = page(read_with_problem(&problem));
        assert!(boxes(&said).is_empty() && said.contains(&problem.to_string()), "{problem}: {said}");
        assert!(said.contains("<p class=\"refusal\" role=\"alert\">"), "{problem}: {said}");
        assert!(!said.contains("Unchanged since it was asked"), "{problem}: {said}");
    }
    let said = page(read_of(&call(1, "refund", &["Approve"])));
    assert!(boxes(&said) == [true] && said.contains("Unchanged since it was asked (details)"), "{said}");
    assert!(!said.to_lowercase().contains("verified") && !said.contains("role=\"alert\""), "{said}");
    assert!(said.contains("the Workflow's question; values of the run may be filled in"), "no run was read: {said}");
}

#[tokio::test]
async fn choice_and_reason_are_kept_after_a_problem() {
    let calls = [call(1, "refund", &["Approve"]), call(2, "letter", &["Approve"])];
    let second = format!("{} x", calls[1].metadata.name.as_deref().unwrap());
    let fields = [("verdict", "Approve"), ("call", second.as_str()), ("reason", "as agreed")];
    let typed = Typed(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
    let page = render_for("alice@example.com", &calls, &typed);
    assert_eq!(boxes(&page), [false, true], "{page}");
    assert!(page.contains("as agreed"), "{page}");
}

#[tokio::test]
async fn question_in_a_turn_has_its_notice_and_is_answered_on_its_page() {
    let asked = with(
        sample::question(),
        &json!({"gate": {"name": "questions", "type": "question", "path": "handle/.turn-2/.call-3/.gate", "visit": 1}}),
    );
    let page = render_for("alice@example.com", &[call(1, "refund", &["Approve", "Skip"]), asked], &Typed::default());
    assert!(page.contains(NOTICE) && page.contains("Which account?") && page.contains("Answer it on its own page."));
    assert!(page.contains("not allowed for the question of clerk"), "Approve: {page}");
    assert!(page.contains("value=\"Skip\""), "{page}");
}

#[tokio::test]
async fn a_turn_in_which_nothing_waits_says_so() {
    let page = render_for("alice@example.com", &[], &Typed::default());
    assert!(
        page.contains("No call of this turn waits") && !page.contains("<form method=\"post\" action=\"/n/"),
        "{page}"
    );
}

#[tokio::test]
async fn confirmation_says_that_the_run_is_suspended() {
    let late = "2999-01-01T00:00:00Z";
    let approval = with(sample::call(), &json!({"deadline": late, "closesAt": late}));
    let (name, request) = (approval.metadata.name.clone().unwrap(), &approval.spec.request);
    let (bond, chosen) = (Bond::Turn(request.turn().unwrap()), format!("{name} {}", request.digest));
    let typed =
        Typed([("verdict", "Approve"), ("call", &chosen)].map(|(name, value)| (name.into(), value.into())).to_vec());
    let stored = serde_json::to_value(&approval).unwrap();
    for (suspend, comes_to) in [
        (
            true,
            "your decision is enough: the run is suspended, and goes on when it is resumed; then the call goes on with exactly these arguments",
        ),
        (false, "your decision is enough: the call goes on with exactly these arguments"),
    ] {
        let (world, stored) = (World::new(&[]), stored.clone());
        let run = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "refund-4711", "uid": approval.spec.request.workflow.uid}, "spec": {"suspend": suspend}});
        let tried = crate::approval::tests::stored_approval(&approval);
        let answer = move |address: &str| match address {
            run_of if run_of.contains("/workflows/") => (200, run.clone()),
            trial if trial.contains("dryRun") => (200, tried.clone()),
            _ => (200, stored.clone()),
        };
        let caller = Caller { client: server(answer).0, ..caller("alice@example.com") };
        let batch = Batch::prepare(&world.state, &caller, "finance", &bond, &typed).await.unwrap();
        let batch = batch.unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(batch.calls[0].planned.as_ref().map(|planned| planned.comes_to.as_str()).unwrap(), comes_to);
    }
}

#[tokio::test]
async fn equal_gates_show_texts_and_digests_and_take_approve_and_reject() {
    let calls = [gate("pay-501", "Pay 37 EUR <b>now</b>"), gate("pay-502", "Pay 12 EUR"), gate("pay-503", "Pay 9 EUR")];
    let together = equal(&calls, &[2]);
    let alice = caller("alice@example.com");
    let page = TurnPage::opened(&alice, &together, FirstChoice::All).render().unwrap();
    for (one, text) in calls.iter().zip(["Pay 37 EUR &#60;b&#62;now&#60;/b&#62;", "Pay 12 EUR", "Pay 9 EUR"]) {
        assert!(page.contains(text) && page.contains(one.spec.request.digest.as_str()), "{text}: {page}");
    }
    assert!(page.contains("3 requests in finance") && page.contains("pay-502: review"), "{page}");
    assert!(page.contains("differ from those of the first request"), "{page}");
    assert_eq!(page.matches("type=\"checkbox\" name=\"call\"").count(), 2, "a stranger cannot be chosen: {page}");
    assert_eq!(page.matches("<button type=\"submit\" name=\"verdict\"").count(), 2, "{page}");
    assert!(
        page.contains("value=\"Approve\"") && page.contains("value=\"Reject\"") && !page.contains("value=\"Abort\"")
    );
    assert!(page.contains("action=\"/n/finance/together/decide\"") && !page.contains("The rest of the turn"), "{page}");
}

#[tokio::test]
async fn link_of_another_site_chooses_no_request() {
    let site = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for &value in values {
            headers.append("sec-fetch-site", HeaderValue::from_static(value));
        }
        choose_first(&headers)
    };
    assert_eq!(site(&["same-origin"]), FirstChoice::All);
    for elsewhere in [&[][..], &["cross-site"], &["same-site"], &["none"], &["same-origin", "same-origin"]] {
        assert_eq!(site(elsewhere), FirstChoice::Nothing, "{elsewhere:?}");
    }
    let together = equal(&[gate("pay-501", "Pay"), gate("pay-502", "Pay")], &[]);
    let shown = |choice| TurnPage::opened(&caller("alice@example.com"), &together, choice).render().unwrap();
    let (own, foreign) = (shown(FirstChoice::All), shown(FirstChoice::Nothing));
    assert_eq!(boxes(&own), [true, true]);
    assert_eq!(boxes(&foreign), [false, false]);
    assert!(foreign.contains("Nothing is chosen yet") && !own.contains("Nothing is chosen yet"), "{foreign}");
}

#[test]
fn address_names_one_gate_and_a_bounded_number_of_requests() {
    let likes = "like=finance/a-1&".repeat(7_000);
    assert!(matches!(NamedRequests::parse(&likes), Err(PageError::Bad(why)) if why.contains("names one request")));
    let one = NamedRequests::parse("like=finance/a-1&like=%3Cb%3E").unwrap();
    assert_eq!(one.like, Some(("finance".to_owned(), "a-1".to_owned())));
    let named = |count: usize| (0..count).map(|number| format!("a=finance/a-{number}&")).collect::<String>();
    let many = NamedRequests::parse(&named(7_000)).unwrap();
    assert_eq!(many.requests.len(), Bond::MOST + 1);
    assert!(matches!(many.into_one_namespace(), Err(PageError::Bad(why)) if why.contains("at most 32 requests")));
    let most = NamedRequests::parse(&named(Bond::MOST).repeat(2)).unwrap().into_one_namespace().unwrap();
    assert_eq!((most.0.as_str(), most.1.len()), ("finance", Bond::MOST));
    for query in ["a=finance/a&a=other/b", "", "a=../secrets&a=x"] {
        assert!(matches!(NamedRequests::parse(query).unwrap().into_one_namespace(), Err(PageError::Bad(_))), "{query}");
    }
}

/// Returns an API server with these requests and their runs, which accepts every decision on trial. The input `invoice`
/// is the name of the run, and `pay-503` has another step.
fn server_with_runs(calls: &[Approval]) -> (kube::Client, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let stored = calls.to_vec();
    server(move |address| {
        let is_of = |one: &&Approval| address.contains(&format!("/workflows/{}", one.spec.request.workflow.name));
        if let Some(one) = stored.iter().find(is_of) {
            let run = &one.spec.request.workflow;
            let run = json!({"metadata": {"name": run.name, "uid": run.uid}, "spec": spec_of(&run.name)});
            return (200, run);
        }
        let one = stored.iter().find(|one| address.contains(one.metadata.name.as_deref().unwrap())).unwrap();
        if address.contains("dryRun") {
            return (200, crate::approval::tests::stored_approval(one));
        }
        (200, serde_json::to_value(one).unwrap())
    })
}

fn spec_of(run: &str) -> serde_json::Value {
    let value = if run == "pay-503" { "another" } else { "x" };
    let steps = json!([{"name": "a", "set": {"value": value}}]);
    json!({"requestedBy": "dana", "inputs": [{"name": "invoice", "value": run}], "steps": steps})
}

/// Returns the form that approves these requests.
fn approve_form(calls: &[Approval]) -> Typed {
    let chosen = |one: &Approval| {
        let name = one.metadata.name.as_deref().unwrap();
        ("call".to_owned(), format!("{name} {}", one.spec.request.digest))
    };
    let verdict = ("verdict".to_owned(), "Approve".to_owned());
    Typed(std::iter::once(verdict).chain(calls.iter().map(chosen)).collect())
}

#[tokio::test]
async fn confirmation_distinguishes_equal_requests() {
    let open = |run: &str| {
        let spec = serde_json::from_value(spec_of(run)).unwrap();
        let digest = signoff_engine::plan::spec_digest(&spec).unwrap();
        json!({"deadline": "2999-01-01T00:00:00Z", "closesAt": "2999-01-01T00:00:00Z", "specDigest": digest,
            "workflow": {"name": run, "uid": "6f1c3e5a-0000-4000-8000-000000000001"}})
    };
    let letter = |run: &str, amount: u32| {
        let letter = format!("# Invoice\n\nPay {amount} EUR <b>now</b>\nto ACME\nby Friday");
        let prompt = json!({"prompt": format!("Pay {run}?")});
        with(with(gate(run, &letter), &open(run)), &prompt)
    };
    let shown = async |calls: &[Approval]| {
        let (client, asked) = server_with_runs(calls);
        let caller = Caller { client, ..caller("alice@example.com") };
        let (world, typed) = (World::new(&[]), approve_form(calls));
        let batch = Batch::prepare(&world.state, &caller, "finance", &Bond::Equal, &typed).await.unwrap();
        let batch = batch.unwrap_or_else(|problems| panic!("{problems:?}"));
        (ConfirmTogether::of(&caller, &batch, &typed).render().unwrap(), asked)
    };
    let (page, asked) = shown(&[letter("pay-501", 37), letter("pay-502", 4000)]).await;
    for part in [
        "pay-501: review",
        "Pay pay-501?",
        "Pay 37 EUR &#60;b&#62;now",
        "# Invoice",
        "Inputs: invoice pay-501",
        "pay-502: review",
        "Pay pay-502?",
        "Pay 4000 EUR",
        "Inputs: invoice pay-502",
        "and 1 more line",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("by Friday"), "{page}");
    let runs = asked.lock().unwrap().iter().filter(|one| one.contains("/workflows/")).count();
    assert_eq!(runs, 2, "each run is read once");
    let call = |run: &str, amount: u32| {
        let arguments = json!({"amount": amount, "note": "y".repeat(300)}).to_string();
        let reviews = json!({"path": "x", "response": arguments, "digest": Digest::of_bytes(arguments.as_bytes())});
        with(with(sample::call(), &open(run)), &json!({"reviews": reviews}))
    };
    let (page, _) = shown(&[call("pay-501", 37), call("pay-502", 4000)]).await;
    assert!(page.contains("<code>amount 37 · note") && page.contains("<code>amount 4000 · note"), "{page}");
}

#[tokio::test]
async fn answers_are_cached_and_drafts_keep_the_name_of_the_first_request() {
    let late = json!({"deadline": "2999-01-01T00:00:00Z", "closesAt": "2999-01-01T00:00:00Z"});
    let calls = ["pay-501", "pay-502"].map(|run| with(gate(run, "Pay"), &late));
    let (client, _) = server_with_runs(&calls);
    let caller = Caller { client, ..caller("alice@example.com") };
    let world = World::new(&[]);
    let answer = async |typed: &Typed| {
        let answer = decide_all(&world.state, &caller, "finance", &Bond::Equal, typed).await.unwrap();
        (answer.headers().get("cache-control").cloned(), crate::session::fake::text(answer).await)
    };
    let first = calls[0].metadata.name.clone().unwrap();
    let mut typed = approve_form(&calls[1..]);
    typed.0.push(("first".to_owned(), first.clone()));
    let (kept, confirmation) = answer(&typed).await;
    assert!(confirmation.contains("Approve: 1 of 1 request?"), "{confirmation}");
    assert_eq!(kept.unwrap(), page::KEPT);
    assert!(confirmation.contains(&format!("<textarea name=\"first\" hidden>\n{first}</textarea>")), "{confirmation}");
    let batch = Batch::prepare(&world.state, &caller, "finance", &Bond::Equal, &typed).await.unwrap();
    let batch = batch.unwrap_or_else(|problems| panic!("{problems:?}"));
    let outcome = batch::CallOutcome { is_recorded: true, line: "approved".to_owned() };
    let result = Results::of(&caller, &batch, &typed, vec![outcome]).render().unwrap();
    assert!(result.contains(&format!("data-decided=\"together|{first}\"")), "{result}");
    typed.0.retain(|(field, _)| field != "call");
    typed.0.push(("shown".to_owned(), calls[1].metadata.name.clone().unwrap()));
    let (kept, again) = answer(&typed).await;
    assert!(again.contains("no request was chosen") && again.contains(&format!("together|{first}|plain")), "{again}");
    assert_eq!(kept.unwrap(), page::KEPT);
}

#[tokio::test]
async fn batch_leaves_out_a_request_whose_run_has_another_spec() {
    let late = json!({"deadline": "2999-01-01T00:00:00Z", "closesAt": "2999-01-01T00:00:00Z"});
    let calls = ["pay-501", "pay-502", "pay-503"].map(|run| with(gate(run, "Pay"), &late));
    let (world, typed) = (World::new(&[]), approve_form(&calls));
    let caller = Caller { client: server_with_runs(&calls).0, ..caller("alice@example.com") };
    let batch = Batch::prepare(&world.state, &caller, "finance", &Bond::Equal, &typed).await.unwrap();
    let batch = batch.unwrap_or_else(|problems| panic!("{problems:?}"));
    let planned: Vec<_> = batch.calls.iter().map(|call| call.planned.is_ok()).collect();
    assert_eq!(planned, [true, true, false]);
    assert_eq!(batch.calls[0].target, "pay-501: review");
    assert_eq!(batch.calls[2].planned.as_ref().err().unwrap(), Bond::Equal.stranger());
    let page = ConfirmTogether::of(&caller, &batch, &typed).render().unwrap();
    assert!(page.contains("Approve: 2 of 3 requests?") && page.contains("Will not be sent: its gate"), "{page}");
    assert_eq!(page.matches("name=\"confirmed\"").count(), 2, "{page}");
}
