//! Tests of the history: the words for each phase and source, and the requests to the API server.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::{Arc, Mutex};

use axum::body::to_bytes;
use futures::FutureExt;
use http::{Request, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use signoff_review::sample;

use super::*;

/// Returns an Approval that has ended, with votes of alice and bob. A bridge sent bob's vote.
pub(super) fn ended_approval(phase: &str, verdict: Option<&str>, source: &str, by: &[&str]) -> Approval {
    let mut approval = sample::approval();
    approval.metadata.uid = Some(format!("uid-{phase}-{source}"));
    let vote = |key: &str, user: &str, channel: Option<&str>, epoch: &str| json!({"key": key, "user": user, "verdict": "Approve", "attempt": 1, "at": "2026-11-22T09:40:00Z", "epoch": epoch, "channel": channel});
    approval.status = serde_json::from_value(json!({
        "phase": phase, "seq": 3,
        "votes": [
            vote("alice@example.com", "alice@example.com", None, "epoch-1"),
            vote("bob@example.com via system:serviceaccount:bridge:slack", "bob@example.com", Some("slack"), "epoch-1"),
            vote("carol@example.com", "carol@example.com", Some("web"), "epoch-0"),
        ],
        "outcome": {"phase": phase, "verdict": verdict, "source": source, "decidedBy": by, "decidedAt": "2026-11-22T09:45:00Z", "reason": "as agreed"},
    }))
    .unwrap();
    approval
}

fn row(phase: &str, verdict: Option<&str>, source: &str, by: &[&str]) -> HistoryRow {
    HistoryRow::of(&ended_approval(phase, verdict, source, by)).unwrap()
}

#[test]
fn each_phase_and_source_has_a_word_a_shape_and_an_origin() {
    let alice: &[&str] = &["alice@example.com"];
    let cases = [
        ("Approved", Some("Approve"), "Human", alice, "Approved", "yes", None),
        ("Rejected", Some("Reject"), "Human", alice, "Rejected", "no", None),
        ("Modified", Some("Modify"), "Human", alice, "Modified", "changed", None),
        ("Responded", Some("Respond"), "Human", alice, "Answered", "changed", None),
        ("Deferred", Some("Defer"), "Human", alice, "Deferred", "again", None),
        ("Skipped", Some("Skip"), "Human", alice, "Skipped", "none", None),
        ("Aborted", Some("Abort"), "Human", alice, "Aborted", "no", None),
        ("Retried", Some("Retry"), "Human", alice, "Asked again", "again", None),
        ("Approved", Some("Approve"), "Human", &[], "Approved", "yes", Some("people who are not named")),
        ("Expired", Some("Reject"), "Timeout", &[], "Rejected", "no", Some("no decision: the deadline passed")),
        ("Expired", Some("Approve"), "Timeout", &[], "Approved", "yes", Some("no decision: the deadline passed")),
        ("Approved", Some("Approve"), "Grant", &[], "Approved", "yes", Some("a grant of an earlier approval")),
        ("Aborted", Some("Abort"), "Policy", &[], "Aborted", "no", Some("the operator")),
        ("Cancelled", None, "Policy", &[], "Cancelled", "none", Some("no decision: the run ended")),
        (
            "Superseded",
            None,
            "Policy",
            &[],
            "Superseded",
            "none",
            Some("no decision: the votes could not be verified any more, so the gate asked again"),
        ),
    ];
    for (phase, verdict, source, by, word, shape, how) in cases {
        let row = row(phase, verdict, source, by);
        assert_eq!((row.word().as_str(), row.shape(), row.how()), (word, shape, how), "{phase} by {source}");
    }
}

#[test]
fn an_approval_without_an_outcome_is_no_row() {
    assert_eq!(HistoryRow::of(&sample::approval()), None);
    let mut bare = sample::approval();
    bare.status = None;
    assert_eq!(HistoryRow::of(&bare), None);
}

#[test]
fn channel_is_shown_only_for_a_vote_of_the_guard_epoch_in_force() {
    let all = ["alice@example.com", "bob@example.com", "carol@example.com", "mallory@example.com"];
    let deciders = row("Approved", Some("Approve"), "Human", &all).deciders;
    let seen: Vec<_> =
        deciders.iter().map(|one| (one.name.as_str(), one.via.as_deref(), one.channel.as_deref())).collect();
    assert_eq!(
        seen,
        [
            ("alice@example.com", None, None),
            ("bob@example.com", Some("system:serviceaccount:bridge:slack"), Some("slack")),
            ("carol@example.com", None, None),
            ("mallory@example.com", None, None),
        ]
    );
    assert!(row("Superseded", None, "Policy", &["bob@example.com"]).deciders[0].channel.is_none());
}

#[test]
fn rows_are_sorted_newest_first_and_without_a_time_last() {
    let (mut old, mut bare) = (row("Approved", Some("Approve"), "Human", &[]), row("Cancelled", None, "Policy", &[]));
    let new = row("Rejected", Some("Reject"), "Human", &[]);
    old.at = Some("2025-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap().into());
    bare.at = None;
    let mut rows = vec![bare.clone(), old.clone(), new.clone()];
    row::sort(&mut rows);
    assert_eq!(rows, [new, old, bare]);
}

fn shell() -> Shell {
    Shell { user: Some("alice@example.com".into()), here: "history", ..Shell::of_nobody("History") }
}

fn render(query: &str, found: Found) -> String {
    let (filter, part) = Filter::read(query);
    history_page(shell(), filter, found, None, part).render().unwrap()
}

#[test]
fn the_page_shows_facts_and_hostile_texts_as_text() {
    let mut approval = ended_approval("Approved", Some("Approve"), "Human", &["bob@example.com"]);
    approval.status.as_mut().unwrap().outcome.as_mut().unwrap().reason =
        Some("<script>alert(1)</script> \u{202e}live".to_owned());
    approval.spec.request.gate.path = "review\"><img src=x onerror=y>".to_owned();
    let found = Found { rows: HistoryRow::of(&approval).into_iter().collect(), read: 1, ..Found::default() };
    let page = render("who=%22%3E%3Cb%3E&from=yesterday%3Cx", found);
    for said in [
        "Decisions 1 to 1 of 1",
        "22 Nov 2026, 09:45 UTC",
        "datetime=\"2026-11-22T09:45:00Z\"",
        "via system:serviceaccount:bridge:slack",
        "by channel slack",
        "⟨U+202E⟩live",
        "scope=\"row\"",
        "yesterday&#60;x is no day: write it as 2026-11-25",
    ] {
        assert!(page.contains(said), "{said} is missing:\n{page}");
    }
    for markup in ["<script>alert", "<img src=x", "\"><b>", "yesterday<x", "\u{202e}"] {
        assert!(!page.contains(markup), "{markup} is markup:\n{page}");
    }
    assert!(page.contains(&format!("/n/finance/a/{}", approval.metadata.name.unwrap())));
}

#[test]
fn the_pages_of_a_long_history_keep_the_filter() {
    let rows = vec![row("Approved", Some("Approve"), "Human", &["alice@example.com"]); 120];
    let found = Found { rows, read: 5000, has_more: true, unreadable: vec!["finance/odd".to_owned()] };
    let page = render("who=a%26b&page=1", found.clone());
    for said in [
        "51 to 100 of 120",
        "/history?who=a%26b&#38;page=0",
        "/history?who=a%26b&#38;page=2",
        "/history.csv?who=a%26b",
        "more than 5000",
        "finance/odd",
    ] {
        assert!(page.contains(said), "{said} is missing:\n{page}");
    }
    assert!(render("page=99999999999999999999", found.clone()).contains("1 to 50 of 120"), "not a number of ours");
    assert!(render("page=77", found).contains("101 to 120 of 120"), "the last page");
}

#[tokio::test]
async fn csv_file_is_an_attachment_and_says_if_it_is_incomplete() {
    let at: Moment = "2026-11-25T10:00:00Z".parse::<jiff::Timestamp>().unwrap().into();
    let rows = vec![row("Approved", Some("Approve"), "Human", &["alice@example.com"])];
    let mut found = Found { rows, read: 1, ..Found::default() };
    let whole = csv_response(&found, at).unwrap();
    let header = |response: &Response, name| response.headers().get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!(header(&whole, CONTENT_TYPE), "text/csv; charset=utf-8; header=present");
    assert_eq!(header(&whole, CONTENT_DISPOSITION), "attachment; filename=\"signoff-history-2026-11-25.csv\"");
    assert_eq!(header(&whole, X_CONTENT_TYPE_OPTIONS), "nosniff");
    assert_eq!(header(&whole, CACHE_CONTROL), "no-store");
    let body = to_bytes(whole.into_body(), 100_000).await.unwrap();
    assert!(body.starts_with(b"\"decidedAt\",\"namespace\","));
    found.has_more = true;
    assert!(header(&csv_response(&found, at).unwrap(), CONTENT_DISPOSITION).contains("2026-11-25-incomplete.csv"));
}

/// Returns the last decision while no other reader has a place.
async fn latest_of(client: &Client, namespaces: Option<&[String]>) -> Option<Latest> {
    let token = TokenId::of(&secrecy::SecretString::from("t".to_owned()));
    find_latest_in(&LongReads::default(), &token, client, namespaces).await
}

type Asked = Arc<Mutex<Vec<String>>>;

/// Returns a client of an API server that answers by a function, and the addresses of its requests.
pub(crate) fn server(answer: impl Fn(&str) -> (u16, Value) + Clone + Send + Sync + 'static) -> (Client, Asked) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let address = request.uri().to_string();
        let (code, body) = answer(&address);
        seen.lock().unwrap().push(address);
        async move {
            let response = http::Response::builder().status(StatusCode::from_u16(code).unwrap());
            Ok::<_, std::io::Error>(response.body(Body::from(body.to_string().into_bytes())).unwrap())
        }
    });
    (signoff_cluster::connect_service(service, "default"), asked)
}

pub(crate) fn forbidden() -> (u16, Value) {
    (
        403,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "approvals is forbidden", "reason": "Forbidden", "code": 403}),
    )
}

pub(crate) fn list_of(items: Vec<Value>, next: Option<&str>) -> (u16, Value) {
    (
        200,
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"continue": next, "resourceVersion": "1"}, "items": items}),
    )
}

fn approval_json(name: &str, at: &str) -> Value {
    let mut approval = ended_approval("Approved", Some("Approve"), "Human", &["alice@example.com"]);
    approval.metadata.name = Some(name.to_owned());
    let mut value = serde_json::to_value(approval).unwrap();
    value["status"]["outcome"]["decidedAt"] = json!(at);
    value
}

#[tokio::test]
async fn list_is_read_in_pages_and_an_unreadable_object_is_named() {
    let (client, asked) = server(|address| {
        if address.contains("continue=more") {
            list_of(vec![approval_json("b", "2026-11-22T09:50:00Z")], None)
        } else {
            let odd = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "odd", "namespace": "finance"}, "spec": {}});
            list_of(vec![approval_json("a", "2026-11-22T09:40:00Z"), odd], Some("more"))
        }
    });
    let found = read::read(&client, None, &Filter::default().selector(), read::MOST, |_| true).await.unwrap();
    let names: Vec<_> = found.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!((names, found.read, found.has_more), (vec!["b", "a"], 3, false));
    assert_eq!(found.unreadable, ["finance/odd"]);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    assert!(
        asked
            .iter()
            .all(|one| one.contains("limit=500")
                && one.contains("status.phase%21%3DPending%2Cstatus.phase%21%3DOverdue")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn read_ends_at_its_bound_and_says_that_there_is_more() {
    let (client, asked) = server(|_| {
        list_of((0..500).map(|n| approval_json(&n.to_string(), "2026-11-22T09:40:00Z")).collect(), Some("more"))
    });
    let found = read::read(&client, None, "", 1000, |row| row.name == "7").await.unwrap();
    assert_eq!((found.rows.len(), found.read, found.has_more, asked.lock().unwrap().len()), (2, 1000, true, 2));
    assert_eq!(latest_of(&client, None).await, None, "of more than one page the last decision is not known");
}

#[tokio::test]
async fn expired_continuation_of_a_list_is_not_a_refusal() {
    let (client, _) = server(|_| {
        (
            410,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "too old", "reason": "Expired", "code": 410}),
        )
    });
    let error = read::read(&client, None, "", 10, |_| true).await.unwrap_err();
    assert_eq!(error, PageError::Away("the API server cannot go on with its list of Approvals: try again".to_owned()));
}

#[tokio::test]
async fn the_last_decision_is_found_within_one_page() {
    let (client, asked) = server(|_| {
        list_of(vec![approval_json("a", "2026-11-22T09:40:00Z"), approval_json("b", "2026-11-22T09:50:00Z")], None)
    });
    let latest = latest_of(&client, Some(&["finance".to_owned()])).await.unwrap();
    assert_eq!((latest.name.as_str(), latest.word.as_str(), latest.gate.as_str()), ("b", "Approved", "review"));
    assert!(latest.ago.ends_with(" ago"));
    assert_eq!(asked.lock().unwrap().len(), 1);
    let (refusing, _) = server(|_| forbidden());
    assert_eq!(latest_of(&refusing, None).await, None);
}

#[tokio::test]
async fn last_decision_does_not_wait_for_long_reads_of_others() {
    let (client, asked) = server(|_| list_of(vec![approval_json("a", "2026-11-22T09:40:00Z")], None));
    let reads = LongReads::default();
    let token = |text: &str| TokenId::of(&secrecy::SecretString::from(text.to_owned()));
    let others: Vec<_> = std::iter::successors(Some(0), |at| Some(at + 1))
        .map_while(|at: u32| reads.now(&token(&at.to_string())))
        .collect();
    let said = find_latest_in(&reads, &token("own"), &client, None).now_or_never();
    assert_eq!(said, Some(None), "at once, and without a request");
    assert!(asked.lock().unwrap().is_empty());
    drop(others);
    assert!(find_latest_in(&reads, &token("own"), &client, None).await.is_some());
}

#[tokio::test]
async fn forbidden_namespace_is_an_error_of_its_field() {
    let (client, _) = server(|_| forbidden());
    let (filter, _) = Filter::read("namespace=secret");
    let (filter, found, _) = select_rows(&client, filter, &["finance".to_owned()]).await.unwrap();
    assert_eq!(filter.namespace.wrong.as_deref(), Some("you must not list the Approvals of this namespace"));
    assert_eq!(found, Found::default());
}

#[tokio::test]
async fn only_named_namespaces_are_read_if_the_cluster_is_forbidden() {
    let (client, asked) = server(|address| match address {
        one if one.contains("/namespaces/finance/") => list_of(Vec::new(), None),
        _ => forbidden(),
    });
    let places = ["finance".to_owned(), "secret".to_owned()];
    let (_, _, namespaces) = select_rows(&client, Filter::default(), &places).await.unwrap();
    assert_eq!(namespaces, Some(vec!["finance".to_owned()]));
    let asked = asked.lock().unwrap();
    assert!(asked.last().unwrap().contains("/namespaces/finance/approvals"), "{asked:?}");
    assert_eq!(
        asked.iter().filter(|one| one.contains("limit=500")).count(),
        1,
        "one list, of one namespace: {asked:?}"
    );
}

#[tokio::test]
async fn invalid_filter_reads_nothing() {
    let (client, asked) = server(|_| list_of(vec![approval_json("a", "2026-11-22T09:40:00Z")], None));
    let (filter, found, _) = select_rows(&client, Filter::read("verdict=Maybe").0, &[]).await.unwrap();
    assert!(filter.is_wrong() && found == Found::default());
    assert!(asked.lock().unwrap().iter().all(|one| one.contains("limit=1&") || one.ends_with("limit=1")));
}
