//! Tests of the inbox of a feed, and of its stream of events.
//!
//! The feeds are built without an API server.

#![allow(clippy::unwrap_used)]
use std::{convert::Infallible, time::Duration};

use futures::StreamExt;
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use secrecy::SecretString;
use signoff_api::Approval;
use signoff_review::sample;

use super::*;
use crate::{
    live::{Feeds, Place},
    session::TokenId,
};

fn caller() -> Caller {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Ok::<_, Infallible>(http::Response::builder().status(500).body(axum::body::Body::empty()).unwrap())
    });
    Caller {
        me: sample::me("alice@example.com", &[]),
        token: TokenId::of(&SecretString::from("t")),
        client: signoff_cluster::client::connect_service(service, "default"),
        ends: now().after(Duration::from_secs(3600)),
        groups_left_out: None,
        overview: crate::session::Overview::default(),
        arrived: tokio::time::Instant::now(),
    }
}

fn approval() -> Approval {
    let mut approval = sample::approval();
    approval.metadata.uid = Some("a".to_owned());
    approval.metadata.resource_version = Some("1".to_owned());
    approval.spec.request.deadline = now().after(Duration::from_secs(7200));
    approval.spec.request.closes_at = Some(approval.spec.request.deadline);
    approval
}

fn unreadable_meta(name: &str) -> ObjectMeta {
    let text = |text: &str| Some(text.to_owned());
    ObjectMeta { uid: text(name), name: text(name), namespace: text("finance"), ..ObjectMeta::default() }
}

fn render(caller: &Caller, feed: &Feed) -> String {
    render_query(caller, feed, "")
}

fn render_query(caller: &Caller, feed: &Feed, query: &str) -> String {
    let (filter, page) = InboxFilter::read(query);
    build_inbox(caller, feed, "", filter, page).render().unwrap()
}

/// Returns the next event, or `None` at the end of the stream.
async fn next(body: &mut axum::body::Body) -> Option<serde_json::Value> {
    let frame = tokio::time::timeout(Duration::from_secs(5), body.frame()).await.unwrap()?;
    let text = String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap();
    assert!(text.starts_with("event: inbox\n"), "{text}");
    Some(serde_json::from_str(text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap()).unwrap())
}

fn stream(feed: &Arc<Feed>, place: Place) -> axum::body::Body {
    axum::response::sse::Sse::new(events::change_events(Arc::clone(feed), place)).into_response().into_body()
}

#[tokio::test]
async fn unreadable_approvals_are_named_with_a_command() {
    let caller = caller();
    let one = render(&caller, &Feed::sample(caller.me.clone(), &[], &[unreadable_meta("new-1")]));
    assert!(one.contains("1 Approval cannot be read by this version"), "{one}");
    assert!(one.contains("<code>kubectl get approval new-1 -n finance -o yaml</code>"), "{one}");
    assert!(!one.contains("All decided."), "{one}");
    let many: Vec<_> = (0..7).map(|at| unreadable_meta(&format!("new-{at}"))).collect();
    let many = render(&caller, &Feed::sample(caller.me.clone(), &[approval()], &many));
    assert!(many.contains("7 Approvals cannot be read by this version") && many.contains("and others"), "{many}");
    assert!(many.contains("1 request waits for your decision."), "the others are shown: {many}");
    let none = render(&caller, &Feed::sample(caller.me.clone(), &[], &[]));
    assert!(!none.contains("cannot be read") && none.contains("All decided."), "{none}");
}

#[tokio::test]
async fn inbox_has_a_note_if_the_token_has_no_groups() {
    let mut caller = caller();
    let feed = Feed::sample(caller.me.clone(), &[], &[]);
    assert!(!render(&caller, &feed).contains("identity provider"));
    caller.groups_left_out = Some("your identity provider left the groups out of your token".to_owned());
    let said = render(&caller, &feed);
    assert!(said.contains("Note: your identity provider left the groups out of your token. Until then"), "{said}");
}

#[tokio::test]
async fn repeated_request_is_marked_and_names_no_votes() {
    let caller = caller();
    let mut again = approval();
    let shown =
        |approval: &Approval| render(&caller, &Feed::sample(caller.me.clone(), std::slice::from_ref(approval), &[]));
    assert!(!shown(&again).contains("asked again"));
    let annotation = signoff_api::names::ANNOTATION_ASKS_AGAIN.to_owned();
    again.metadata.annotations = Some([(annotation, "refund-4711-review-1".to_owned())].into());
    let page = shown(&again);
    assert!(page.contains("; asked again") && !page.contains("void"), "{page}");
}

#[tokio::test]
async fn stream_sends_the_version_of_the_page_and_ends_at_sign_out() {
    let (caller, feeds) = (caller(), Feeds::new(10));
    let shown = render(&caller, &Feed::sample(caller.me.clone(), &[approval()], &[]));
    let other = Arc::new(Feed::sample(caller.me.clone(), &[approval()], &[]));
    let mut body = stream(&other, feeds.acquire_place(&caller).unwrap());
    let first = next(&mut body).await.unwrap();
    assert_eq!(first["waiting"], 1);
    let version = first["version"].as_str().unwrap();
    assert!(shown.contains(&format!("data-version=\"{version}\"")), "{version}: {shown}");
    other.notify_readers();
    assert_eq!(next(&mut body).await.unwrap(), first, "nothing is different for this reader");
    other.put_unreadable(&unreadable_meta("a"));
    other.notify_readers();
    let second = next(&mut body).await.unwrap();
    assert_eq!(second["waiting"], 0);
    assert_ne!(second["version"], first["version"]);
    feeds.end(&caller.token);
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test]
async fn streams_of_a_session_are_bounded_and_free_their_places() {
    let (caller, feeds) = (caller(), Feeds::new(100));
    let feed = Arc::new(Feed::sample(caller.me.clone(), &[], &[]));
    let mut open: Vec<_> = (0..8)
        .map(|_| Box::pin(events::change_events(Arc::clone(&feed), feeds.acquire_place(&caller).unwrap())))
        .collect();
    assert!(open[0].next().await.is_some());
    assert!(matches!(feeds.acquire_place(&caller), Err(PageError::TooMany(why)) if why.contains("this session")));
    open.pop();
    assert!(feeds.acquire_place(&caller).is_ok());
}

/// Returns an open request of a run with a name, a requester and one approver.
fn of_run(run: &str, requested_by: &str, approver: &serde_json::Value) -> Approval {
    let fields = serde_json::json!({
        "workflow": {"name": run, "uid": "6f1c3e5a-0000-4000-8000-000000000001"}, "requestedBy": requested_by,
        "quorums": [{"source": "gate review", "approvers": [{"kind": "User", "name": approver}], "threshold": 1}],
    });
    let mut approval = crate::approval::tests::with(approval(), &fields);
    approval.metadata.uid = Some(run.to_owned());
    approval.metadata.name = Some(format!("{run}-review"));
    approval
}

#[tokio::test]
async fn each_tab_has_its_requests_and_a_filter_narrows_them() {
    let caller = caller();
    let (alice, bob) = (serde_json::json!("alice@example.com"), serde_json::json!("bob@example.com"));
    let all = [
        of_run("asked", "dana@example.com", &alice),
        of_run("mine", "alice@example.com", &bob),
        of_run("others", "dana@example.com", &bob),
    ];
    let feed = Feed::sample(caller.me.clone(), &all, &[]);
    let runs = |query: &str| {
        let page = render_query(&caller, &feed, query);
        ["asked", "mine", "others"].map(|run| page.contains(&format!("<span class=\"run\">{run}</span>")))
    };
    assert_eq!(runs(""), [true, false, false]);
    assert_eq!(runs("tab=mine"), [false, true, false]);
    assert_eq!(runs("tab=others"), [false, false, true]);
    assert_eq!(runs("q=ACME"), [true, false, false]);
    assert_eq!(runs("q=other"), [false, false, false]);
    let page = render_query(&caller, &feed, "");
    for part in [
        "For me 1",
        "Mine 1",
        "Others 1",
        "1 request waits for your decision.",
        ">1 of your runs waits for other people.</a>",
        "<a class=\"hint\" href=\"/?tab=others\">1 more waits for other people.</a>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let wrong = render_query(&caller, &feed, "due=%3Cscript%3E&run=x");
    assert!(wrong.contains("The filter cannot be read") && wrong.contains("id=\"filter-due-wrong\""), "{wrong}");
    assert!(!wrong.contains("<script>") && !wrong.contains("class=\"request "), "{wrong}");
    let hidden = render_query(&caller, &feed, "due=a%E2%80%AEb");
    assert!(hidden.contains("a⟨U+202E⟩b") && !hidden.contains('\u{202e}'), "{hidden}");
}

#[tokio::test]
async fn run_of_the_reader_waits_for_others_if_the_reader_cannot_decide() {
    let caller = caller();
    let (alice, bob) = (serde_json::json!("alice@example.com"), serde_json::json!("bob@example.com"));
    let mut decided = of_run("decided", "alice@example.com", &alice);
    decided.spec.decisions.insert(caller.me.user.clone(), signoff_api::Decision::new(signoff_api::Verdict::Approve));
    let mut for_erin = of_run("for-erin", "alice@example.com", &bob);
    for_erin.spec.request.requested_for = Some("erin@example.com".to_owned());
    let all = [of_run("own", "alice@example.com", &alice), decided, for_erin];
    let page = render_query(&caller, &Feed::sample(caller.me.clone(), &all, &[]), "");
    let link = "<a href=\"/runs?phase=others&amp;requester=mine\">2 of your runs wait for other people.</a>";
    assert!(page.contains(link) && page.contains("Mine 3"), "{page}");
}

#[tokio::test]
async fn group_links_to_the_requests_that_its_reader_can_decide() {
    let caller = caller();
    let alice = serde_json::json!("alice@example.com");
    let mut all: Vec<_> = (1..=5).map(|number| of_run(&format!("invoice-{number}"), &caller.me.user, &alice)).collect();
    for decided in all.iter_mut().take(2) {
        let approve = signoff_api::Decision::new(signoff_api::Verdict::Approve);
        decided.spec.decisions.insert(caller.me.user.clone(), approve);
    }
    let mine = render_query(&caller, &Feed::sample(caller.me.clone(), &all, &[]), "tab=mine");
    assert!(mine.contains("… 4 more of invoice/review"), "{mine}");
    assert!(mine.contains("<a href=\"/together?like=finance/invoice-3-review\">Decide 3 together</a>"), "{mine}");
    all.truncate(4);
    all.iter_mut().for_each(|one| one.spec.decisions.clear());
    all.push(of_run("other-run", &caller.me.user, &alice));
    let filtered = render_query(&caller, &Feed::sample(caller.me.clone(), &all, &[]), "run=invoice");
    let names = (1..=4).map(|number| format!("a=finance/invoice-{number}-review")).collect::<Vec<_>>().join("&#38;");
    assert!(filtered.contains(&format!("<a href=\"/together?{names}\">Decide 4 together</a>")), "{filtered}");
}

#[tokio::test]
async fn requests_of_equal_gates_are_folded_with_a_link_to_decide_them() {
    let caller = caller();
    let alice = serde_json::json!("alice@example.com");
    let all: Vec<_> = (501..=540).map(|number| of_run(&format!("invoice-{number}"), "dana", &alice)).collect();
    let few = render_query(&caller, &Feed::sample(caller.me.clone(), &all[..24], &[]), "");
    assert!(few.contains("… 23 more of invoice/review") && few.contains(">Decide 24 together</a>"), "{few}");
    assert!(few.contains("href=\"/together?like=finance/invoice-501-review\""), "{few}");
    assert_eq!(few.matches("class=\"request ").count(), 24, "all of them are there: {few}");
    let feed = Feed::sample(caller.me.clone(), &all, &[]);
    let many = render_query(&caller, &feed, "");
    assert!(many.contains(">Decide 32 of 40 together</a>") && many.contains(">All 40 of invoice/review</a>"), "{many}");
    assert_eq!(requests_with_equal_gate(&feed, "finance", "invoice-510-review").len(), 32);
    assert_eq!(requests_with_equal_gate(&feed, "finance", "absent"), [("finance".to_owned(), "absent".to_owned())]);
}

#[tokio::test]
async fn row_has_the_arguments_of_a_call_or_the_question_of_an_agent() {
    let caller = caller();
    let shown = |mut approval: Approval| {
        let at = now().after(Duration::from_secs(7 * 3600 + 3599));
        (approval.spec.request.deadline, approval.spec.request.closes_at) = (at, Some(at));
        render(&caller, &Feed::sample(caller.me.clone(), &[approval], &[]))
    };
    let call = shown(sample::call());
    assert!(
        call.contains("<span class=\"gate\">refund</span>") && call.contains("amount 420 · customer ACME"),
        "{call}"
    );
    assert!(call.contains("POST https://bank.example/refunds") && call.contains("data-local>8 h</time>"), "{call}");
    let question = shown(sample::question());
    assert!(question.contains("Question of clerk") && question.contains(">Which account?</span>"), "{question}");
    assert!(!question.contains("type=\"checkbox\" form="), "an answer is given on its own page: {question}");
}
