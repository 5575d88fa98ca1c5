//! The pages of a call and of a question: the order of their parts, and texts of models and authors with markup.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{convert::Infallible, time::Duration};

use askama::Template;
use secrecy::SecretString;
use serde_json::{Value, json};
use signoff_api::{Approval, Digest};
use signoff_review::{
    action::{NOTICE, SAYS},
    foreseen::Reached,
    problem::Problem,
    sample,
    seen::Seen,
    voided::Earlier,
    whole::Whole,
};

use super::*;
use crate::{
    history::tests::server,
    session::{TokenId, fake::World, now},
};

/// Returns a caller whose API server answers every request with an error.
pub(crate) fn caller(user: &str) -> Caller {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Ok::<_, Infallible>(http::Response::builder().status(500).body(axum::body::Body::empty()).unwrap())
    });
    Caller {
        me: sample::me(user, &[]),
        token: TokenId::of(&SecretString::from("t")),
        client: signoff_cluster::client::connect_service(service, "default"),
        ends: now().after(Duration::from_secs(3600)),
        groups_left_out: None,
        overview: crate::session::Overview::default(),
        arrived: tokio::time::Instant::now(),
    }
}

/// Returns an Approval as it was read.
pub(crate) fn read_of(approval: &Approval) -> Read {
    Read {
        seen: Seen::of_value(serde_json::to_value(approval).unwrap()).unwrap(),
        run: sample::run(),
        whole: Ok(Whole::default()),
        originals: Vec::new(),
        earlier: Vec::new(),
        foreseen: approval.spec.request.allowed_verdicts.iter().map(|one| (*one, Reached::Decided)).collect(),
        at: sample::now(),
    }
}

/// Returns a request as it was read, with a problem.
pub(crate) fn read_with_problem(problem: &Problem) -> Read {
    let (seen, run) = sample::read_with(Some(problem));
    let is_of_text = matches!(problem, Problem::OtherText(_) | Problem::NoText(_) | Problem::TextUnread(_));
    let whole = if is_of_text { Err(problem.clone()) } else { Ok(Whole::default()) };
    Read { seen, run, whole, ..read_of(&sample::approval()) }
}

/// Returns a sample with some fields of its request replaced.
pub(crate) fn with(approval: Approval, fields: &Value) -> Approval {
    let mut changed = approval;
    let mut request = serde_json::to_value(&changed.spec.request).unwrap();
    fields.as_object().unwrap().iter().for_each(|(field, value)| request[field] = value.clone());
    changed.spec.request = serde_json::from_value(request).unwrap();
    sample::seal(&mut changed);
    changed
}

fn render_for(user: &str, approval: &Approval) -> String {
    let page = ApprovalPage::of(&caller(user), &read_of(approval), &Typed::default(), &Problems::default());
    page.render().unwrap()
}

fn render(approval: &Approval) -> String {
    render_for("alice@example.com", approval)
}

/// Fails unless the page has the parts in their order.
pub(crate) fn assert_in_order(page: &str, parts: &[&str]) {
    let page = page.replace("&#39;", "'");
    let mut from = 0;
    for part in parts {
        let at = page[from..].find(part).unwrap_or_else(|| panic!("{part} does not follow in {page}"));
        from += at + part.len();
    }
}

/// Markup, scripts, ends of fences and hidden characters.
pub(crate) const HOSTILE: &str = "</div></pre></textarea></section><script>alert(1)</script><img src=x onerror=alert(1)>\u{202e}\u{200b}\u{1b}[2J```\r\u{2066}Phase: Approved";

/// Fails if the page has the markup or the hidden characters of [`HOSTILE`].
fn assert_only_text(page: &str) {
    for markup in ["<script>alert", "<img src=x", "</div></pre>", "</pre></textarea>"] {
        assert!(!page.contains(markup), "{markup}: {page}");
    }
    let hidden = ['\u{202e}', '\u{200b}', '\u{1b}', '\u{2066}', '\r'];
    assert!(!page.contains(hidden), "{page}");
}

#[tokio::test]
async fn page_of_a_call_has_its_parts_in_order() {
    let page = render(&sample::call());
    assert_in_order(
        &page,
        &[
            "<h1>May the refund be sent?</h1>",
            "the Workflow's question",
            "If you approve",
            "your decision is enough: the call goes on with exactly these arguments",
            "If you reject",
            "Call of refund",
            "POST https://bank.example/refunds",
            "The arguments of the call",
            "1 line, 62 bytes, whole; JSON, shown with line ends and spaces",
            "&#34;amount&#34;: 420,\n",
            "The text as it is",
            "What the call sends",
            "x-action: PAY",
            "irreversible: what it changes cannot be taken back",
            "lookup (handle",
            "Earlier",
            "money: refund is listed",
            "Unchanged since it was asked",
            "Who must agree",
            "<details",
            SAYS,
            "The customer is entitled to it.",
            "id=\"decide\"",
            "Change…",
            "Change the arguments",
            "More",
            "Abort the run",
        ],
    );
}

#[tokio::test]
async fn changes_of_people_are_shown_with_their_differences() {
    let mut approval = sample::approval();
    approval.spec.request.reviews.as_mut().unwrap().by = sample::edits();
    sample::seal(&mut approval);
    let page_with = |originals: Vec<Result<String, String>>| {
        let read = Read { originals, ..read_of(&approval) };
        let page = ApprovalPage::of(&caller("alice@example.com"), &read, &Typed::default(), &Problems::default());
        page.render().unwrap()
    };
    let originals = sample::BEFORE.map(|text| Ok(text.to_owned()));
    assert_in_order(
        &page_with(originals.to_vec()),
        &[
            "What step draft made, changed by carol@example.com, dave@example.com at gate style and by bob@example.com at gate sql, 50m ago",
            "Changes by people, newest first",
            "carol@example.com, dave@example.com at gate style, Modify",
            "-we refund 42 EUR.\n+we refund 420 EUR.",
            "bob@example.com at gate sql (left/sql), Modify",
            "-Hi ACME,\n+Dear ACME,",
            "The text as it is now",
            "<i>we refund 420 EUR.",
            "Who must agree",
        ],
    );
    assert_in_order(
        &page_with(vec![Err(HOSTILE.to_owned()), originals[1].clone()]),
        &["at gate style", "note warn", "at gate sql"],
    );
}

#[tokio::test]
async fn notice_stands_above_the_question_of_an_agent() {
    let question = sample::question();
    let page = render(&question);
    assert_in_order(
        &page,
        &[
            "<h1>The clerk needs to know.</h1>",
            "the Workflow's question",
            "Your answer",
            NOTICE,
            "Which account?",
            "If you answer",
            "Question of clerk",
            NOTICE,
            "Who can answer",
            "id=\"decide\"",
            ">Respond</button>",
        ],
    );
    // A reader who cannot answer sees the question too.
    let page = render_for("mallory@example.com", &question);
    assert_in_order(&page, &[NOTICE, "text of a model", "Which account?", "Main", "Savings", "Who can answer"]);
    assert!(!page.contains("<form method=\"post\" action=\"/n/finance"), "{page}");
}

#[tokio::test]
async fn words_of_a_model_are_escaped_everywhere() {
    let action = json!({
        "kind": "toolCall", "agent": HOSTILE, "tool": HOSTILE, "target": HOSTILE,
        "gates": [{"name": HOSTILE, "type": "specificTools", "source": HOSTILE, "because": HOSTILE}],
        "siblings": [{"path": HOSTILE, "tool": HOSTILE}], "done": [HOSTILE],
    });
    let arguments = format!("{{\"note\":{}}}", json!(HOSTILE));
    let reviews = json!({"path": HOSTILE, "response": arguments, "digest": Digest::of_bytes(arguments.as_bytes())});
    let fields = json!({"action": action, "says": HOSTILE, "prompt": HOSTILE, "context": HOSTILE, "reviews": reviews});
    let page = render(&with(sample::call(), &fields));
    assert_only_text(&page);
    assert!(page.contains("It has characters that are not visible"), "{page}");
    assert_in_order(&page, &["the Workflow's question", SAYS, "⟨U+202E⟩", "id=\"decide\""]);
}

#[tokio::test]
async fn page_shows_all_questions_and_options_as_text() {
    let question = |at: usize| {
        let options: Vec<_> = (0..32)
            .map(|o| json!({"id": format!("o{o}"), "label": format!("{at}/{o} {HOSTILE}"), "description": HOSTILE}))
            .collect();
        json!({"id": format!("q{at}"), "question": format!("Question number {at}: {HOSTILE}"), "options": options, "multiple": usize::is_multiple_of(at, 2)})
    };
    let form = json!({"questions": (1..=16).map(question).collect::<Vec<_>>()});
    let asked = with(sample::question(), &json!({"form": form, "says": HOSTILE}));
    for (user, inputs) in [("alice@example.com", 16 * 32), ("mallory@example.com", 0)] {
        let page = render_for(user, &asked);
        assert_only_text(&page);
        assert_eq!(page.matches("name=\"option.q").count(), inputs, "{user}");
        assert!((1..=16).all(|at| page.contains(&format!("Question number {at}: "))), "{user}: {page}");
        assert!(page.contains("16/31"), "{user}: {page}");
    }
}

#[tokio::test]
async fn long_lines_and_deep_nesting_are_shown_whole() {
    let long = format!("{{\"note\":\"{}\"}}", "x".repeat(60_000));
    let nested = format!("{{\"a\":{}1{}}}", "[".repeat(100), "]".repeat(100));
    for text in [long, nested] {
        let mut call = sample::call();
        let review = call.spec.request.reviews.as_mut().unwrap();
        (review.digest, review.response) = (Digest::of_bytes(text.as_bytes()), text.chars().take(4000).collect());
        sample::seal(&mut call);
        let mut read = read_of(&call);
        read.whole = Ok(Whole { review: Some(text.clone()), ..Whole::default() });
        let page = ApprovalPage::of(&caller("alice@example.com"), &read, &Typed::default(), &Problems::default());
        let page = page.render().unwrap();
        assert!(page.contains("Unchanged since it was asked"), "{page}");
        assert!(page.contains(&"x".repeat(60_000)) || page.contains(&"[".repeat(100)), "{page}");
    }
}

#[tokio::test]
async fn call_with_another_digest_has_a_warning_and_no_form() {
    let mut call = sample::call();
    call.spec.request.action.as_mut().unwrap().tool = "lookup".to_owned();
    let page = render(&call);
    assert!(page.contains("Do not decide this request."), "{page}");
    assert!(!page.contains("id=\"decide\"") && !page.contains("Unchanged since it was asked"), "{page}");
}

#[tokio::test]
async fn request_with_any_problem_shows_the_problem_and_no_form() {
    let page = |user: &str, read: &Read| {
        let page = ApprovalPage::of(&caller(user), read, &Typed::default(), &Problems::default()).render().unwrap();
        page.replace("&#39;", "'").replace("&#34;", "\"")
    };
    let has_form = |page: &str| page.contains("id=\"decide\"") || page.contains("<form method=\"post\" action=\"/n/");
    for problem in sample::problems() {
        let read = read_with_problem(&problem);
        assert_eq!(read.verified().map(|_| ()).unwrap_err(), problem);
        let said = page("alice@example.com", &read);
        assert!(!has_form(&said), "{problem}: {said}");
        assert_in_order(&said, &[problem.heading(), &problem.to_string(), "Who must agree"]);
        let other = page("mallory@example.com", &read);
        assert_eq!(other.contains(problem.heading()), problem.is_of_request(), "{problem}: a reader who cannot decide");
    }
    let verified = page("alice@example.com", &read_of(&sample::approval()));
    assert!(has_form(&verified) && !verified.contains("role=\"alert\""), "{verified}");
}

/// Returns an Approval as it is stored with an Approve of alice.
pub(crate) fn stored_approval(approval: &Approval) -> Value {
    let me = caller("alice@example.com").me;
    let decision = signoff_api::Decision::new(signoff_api::Verdict::Approve);
    let entry = signoff_review::entry::Entry::new(decision, None, approval, &me).unwrap();
    serde_json::to_value(signoff_review::foreseen::with(approval, &entry)).unwrap()
}

/// Returns the form in which alice approves a request that she has read.
fn approve_form(approval: &Approval) -> Typed {
    let digest = approval.spec.request.digest.to_string();
    let fields = [("verdict", "Approve"), ("digest", digest.as_str())];
    Typed(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
}

#[tokio::test]
async fn a_decision_on_a_request_with_any_problem_is_not_proposed() {
    let (world, caller) = (World::new(&[]), caller("alice@example.com"));
    for problem in sample::problems() {
        let read = read_with_problem(&problem);
        let typed = approve_form(&read.seen.approval);
        let not_sent = send::propose(&world.state, &caller, &read, &typed).err().unwrap();
        assert_eq!((not_sent.status.as_u16(), not_sent.problems.at("")), (409, Some(&problem.to_string())));
    }
    let read = read_of(&sample::approval());
    assert!(send::propose(&world.state, &caller, &read, &approve_form(&read.seen.approval)).is_ok());
    let other_request = send::propose(&world.state, &caller, &read, &approve_form(&sample::call())).err().unwrap();
    let said = other_request.problems.at("").unwrap();
    assert!(said.ends_with("it has changed. Read it again [SO0015]"), "{said}");
}

#[tokio::test]
async fn an_unusable_decision_is_refused_at_its_field_or_with_a_code() {
    let world = World::new(&[]);
    let me = caller("alice@example.com").me;
    let problems_of = async |approval: Approval, parameters: Value| {
        let read = read_of(&approval);
        let parameters = serde_json::from_value(parameters).ok();
        let decision = signoff_api::Decision { parameters, ..signoff_api::Decision::new(signoff_api::Verdict::Modify) };
        let entry = signoff_review::entry::Entry::new(decision, None, &approval, &me).unwrap();
        let stored = serde_json::to_value(signoff_review::foreseen::with(&approval, &entry)).unwrap();
        let caller = Caller { client: server(move |_| (200, stored.clone())).0, ..caller("alice@example.com") };
        let shown = send::verify_shown(&read, &approve_form(&approval)).ok().unwrap();
        let proposed = shown.propose(entry, &me, read.at).unwrap();
        let sender = send::Sender { caller: &caller, namespace: "finance", name: "refund-4711-review" };
        sender.rehearse(&world.state, &read, proposed).await.unwrap().err().unwrap().problems
    };
    let of_form = problems_of(sample::approval(), json!({"respnse": "better"})).await;
    let said = of_form.at("").unwrap_or_else(|| panic!("{of_form:?}"));
    assert!(said.contains("respnse") && said.ends_with(" [SO0018]"), "{said}");
    let of_field = problems_of(sample::call(), json!({"arguments": {"amount": "much"}})).await;
    let said = of_field.at("parameters.arguments").unwrap_or_else(|| panic!("{of_field:?}"));
    assert!(!said.contains("SO00"), "{said}");
}

#[tokio::test]
async fn invalid_arguments_are_a_problem_of_their_field_and_are_kept() {
    let fields = [("verdict", "Modify"), ("parameters.arguments", "{\"amount\": \"much\"}")];
    let typed = Typed(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
    let read = read_of(&sample::call());
    let request = &read.seen.approval.spec.request;
    let decision = typed::read_decision(&typed, request, Some(sample::ARGUMENTS)).unwrap();
    let caller = caller("alice@example.com");
    let entry = signoff_review::entry::Entry::new(decision, None, &read.seen.approval, &caller.me).unwrap();
    let counter = signoff_review::foreseen::Counter::start(1).unwrap();
    let counted = counter.count(&signoff_review::foreseen::with(&read.seen.approval, &entry), read.at).await.unwrap();
    let why = signoff_review::foreseen::unusable(&counted, &entry).unwrap();
    let problems = Problems::at_named_field(&why, &typed::fields_with_problems(request));
    let said = problems.at("parameters.arguments").unwrap_or_else(|| panic!("{problems:?}"));
    assert!(said.contains("amount"), "{said}");
    let page = ApprovalPage::of(&caller, &read, &typed, &problems).render().unwrap();
    assert_in_order(
        &page,
        &[
            "what is wrong is told at its field below",
            "{&#34;amount&#34;: &#34;much&#34;}",
            said.split('"').next().unwrap(),
        ],
    );
}

#[tokio::test]
async fn void_votes_are_listed_and_their_voters_are_warned() {
    let approval = sample::approval();
    let mut read = read_of(&approval);
    let votes = vec![("alice@example.com".to_owned(), signoff_api::Verdict::Approve)];
    read.earlier = vec![Earlier { approval: "refund-4711-review-1".into(), votes, reason: Some("too old".into()) }];
    let page =
        |user: &str| ApprovalPage::of(&caller(user), &read, &Typed::default(), &Problems::default()).render().unwrap();
    let named = "alice@example.com (Approve), of refund-4711-review-1: too old";
    assert_in_order(&page("alice@example.com"), &["your Approve of refund-4711-review-1 is void", "Void votes", named]);
    let other = page("bob@example.com");
    assert!(other.contains(named) && !other.contains("your Approve"), "{other}");
    assert!(!render(&approval).contains("Void votes"));
    let again = signoff_api::Decision::new(signoff_api::Verdict::Approve);
    read.seen.approval.spec.decisions.insert("alice@example.com".to_owned(), again);
    let page = ApprovalPage::of(&caller("alice@example.com"), &read, &Typed::default(), &Problems::default());
    let page = page.render().unwrap();
    assert!(page.contains(named) && !page.contains("your Approve"), "she has decided again: {page}");
}

#[tokio::test]
async fn the_forms_and_the_confirmation_of_a_suspended_run_say_when_it_goes_on() {
    let approval = sample::approval();
    let (mut read, world) = (read_of(&approval), World::new(&[]));
    let stored = stored_approval(&approval);
    let caller = Caller { client: server(move |_| (200, stored.clone())).0, ..caller("alice@example.com") };
    let typed = approve_form(&approval);
    let held = "your decision is enough: the run is suspended, and goes on when it is resumed";
    let goes_on = "your decision is enough: the run goes on";
    for (is_suspended, said, other) in [(true, held, goes_on), (false, goes_on, held)] {
        read.run.is_suspended = is_suspended;
        let forms = ApprovalPage::of(&caller, &read, &Typed::default(), &Problems::default()).render().unwrap();
        let proposed = send::propose(&world.state, &caller, &read, &typed).ok().unwrap();
        let sender = send::Sender { caller: &caller, namespace: "finance", name: "refund-4711-review" };
        let rehearsed = sender.rehearse(&world.state, &read, proposed).await.unwrap().ok().unwrap();
        let confirm = confirm::confirm(&caller, &read, &rehearsed, &typed).render().unwrap();
        for page in [forms, confirm] {
            assert!(page.contains(said) && !page.contains(other), "{page}");
        }
    }
}

/// Returns an Approval that reviews a text of 75 lines.
fn with_long_text() -> Approval {
    let mut approval = sample::approval();
    let long = (1..=75).map(|at| format!("line {at}\n")).collect::<String>();
    let review = approval.spec.request.reviews.as_mut().unwrap();
    (review.digest, review.response) = (Digest::of_bytes(long.as_bytes()), long);
    sample::seal(&mut approval);
    approval
}

#[tokio::test]
async fn a_long_text_is_cut_and_has_a_page_of_its_own() {
    let page = render(&with_long_text());
    assert_in_order(
        &page,
        &["75 lines, 591 bytes, whole", "<i>line 60\n</i>", "/text/reviewed\"", "All of it, with 15 more lines"],
    );
    assert!(!page.contains("<i>line 61"), "{page}");
}

#[tokio::test]
async fn reader_who_has_decided_sees_the_state_and_no_form() {
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].threshold = 2;
    sample::seal(&mut approval);
    let decision = signoff_api::Decision::new(signoff_api::Verdict::Approve);
    approval.spec.decisions.insert("alice@example.com".to_owned(), decision);
    let page = render(&approval);
    assert_in_order(
        &page,
        &["recorded, not counted yet", "id=\"instead\"", "You approved. Recorded, not counted yet."],
    );
    assert!(!page.contains("id=\"decide\""), "{page}");
    let other = render_for("mallory@example.com", &approval);
    assert!(other.contains("You are not asked here: alice@example.com, group finance are."), "{other}");
}

#[tokio::test]
async fn all_invalid_answers_are_reported_at_once() {
    let (world, caller) = (World::new(&[]), caller("alice@example.com"));
    let form = json!({"questions": [
        {"id": "ticket", "pattern": "CHG-[0-9]+", "errorMessage": "a ticket looks like CHG-1"},
        {"id": "size", "options": [{"id": "small"}, {"id": "large"}]},
        {"id": "note", "required": false},
    ]});
    let asked = with(sample::approval(), &json!({"form": form, "allowedVerdicts": ["Respond"]}));
    let typed =
        Typed([("verdict", "Respond"), ("answers.ticket", "CH-1")].map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec());
    let problems = send::answer_problems(&world.state, &caller, &read_of(&asked), &typed).await;
    assert_eq!(problems.at("answers.ticket").map(String::as_str), Some("a ticket looks like CHG-1"));
    assert!(problems.at("answers.size").is_some_and(|why| why.contains("missing")), "{problems:?}");
    assert_eq!(problems.at("answers.note"), None);
}

#[tokio::test]
async fn a_confirmation_has_the_question_the_call_and_the_beginning_of_the_text() {
    let long = with_long_text();
    let name = long.metadata.name.clone().unwrap();
    let own_page =
        format!("and 55 more: <a href=\"/n/finance/a/{name}/text/reviewed\" target=\"_blank\" rel=\"noopener\">");
    for (approval, parts) in [
        (long, ["Send this letter to ACME?", "Effect", "<i>line 20\n</i>", &own_page]),
        (
            sample::call(),
            ["May the refund be sent?", "POST https://bank.example/refunds", "Effect", "&#34;amount&#34;: 420"],
        ),
    ] {
        let (read, world) = (read_of(&approval), World::new(&[]));
        let stored = stored_approval(&approval);
        let caller = Caller { client: server(move |_| (200, stored.clone())).0, ..caller("alice@example.com") };
        let typed = approve_form(&approval);
        let proposed = send::propose(&world.state, &caller, &read, &typed).ok().unwrap();
        let sender = send::Sender { caller: &caller, namespace: "finance", name: "refund-4711-review" };
        let rehearsed = sender.rehearse(&world.state, &read, proposed).await.unwrap().ok().unwrap();
        let page = confirm::confirm(&caller, &read, &rehearsed, &typed).render().unwrap();
        assert_in_order(&page, &parts);
        let label = "the Workflow's question; values of the run may be filled in";
        assert_in_order(&page, &[label, "Unchanged since it was asked", approval.spec.request.digest.as_str()]);
        assert!(!page.contains("line 21") && !page.to_lowercase().contains("verified"), "{page}");
    }
}
