//! Tests of the list of runs: its requests, its order, and hostile texts.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use signoff_review::sample;

use super::*;
use crate::{history::tests::server, workflows::WorkflowPart};

fn object(name: &str, phase: &str, pending: &[&str]) -> Value {
    json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": name, "namespace": "finance", "uid": "u", "creationTimestamp": "2026-11-22T09:00:00Z"},
        "spec": {"requestedBy": "dana@example.com", "steps": [{"name": "a", "set": {"value": "x"}}]},
        "status": {"phase": phase, "message": "waits for 1 decision", "pending": pending,
            "usage": {"inputTokens": 1204, "outputTokens": 310, "cost": "0.0042"}, "steps": [{"odd": true}]},
    })
}

/// Returns a run of dana. `is_mine`: whether dana reads the list.
pub(crate) fn row(name: &str, phase: &str, pending: &[&str], is_mine: bool) -> RunRow {
    let part: WorkflowPart = serde_json::from_value(object(name, phase, pending)).unwrap();
    RunRow::new(part, &reader(if is_mine { "dana@example.com" } else { "alice@example.com" })).unwrap()
}

fn reader(user: &str) -> Reader {
    Reader { user: user.to_owned(), ..Reader::default() }
}

fn render(query: &str, rows: Vec<RunRow>, asked: &[Arc<Row>]) -> String {
    let (filter, part) = RunFilter::read(query);
    let found = FoundRuns { rows, read: 7, has_more: true };
    let shell = Shell { user: Some("dana@example.com".into()), here: "runs", ..Shell::of_nobody("Runs") };
    let at = "2026-11-22T10:00:00Z".parse::<jiff::Timestamp>().unwrap().into();
    runs_page(shell, filter, found, Some(vec!["finance".into()]), asked, part, at).render().unwrap()
}

#[test]
fn a_run_names_its_question_its_requester_and_its_tokens() {
    let approval = sample::approval();
    let name = approval.metadata.name.clone().unwrap();
    let asked = Arc::new(Row::of(&approval));
    let page = render("", vec![row("refund-4711", "Waiting", &[name.as_str()], true)], &[Arc::clone(&asked)]);
    for said in [
        "refund-4711",
        "Waiting",
        "dana@example.com",
        "1204 read, 310 written, cost 0.0042",
        &format!("/n/{}/a/{name}", asked.namespace),
        "only finance is looked at",
        "There are more than 7 runs",
    ] {
        assert!(page.contains(said), "{said} is missing:\n{page}");
    }
    let other = render("", vec![row("refund-4711", "Waiting", &["another"], true)], &[asked]);
    assert!(other.contains("waits for 1 decision") && !other.contains(&format!("/a/{name}")), "{other}");
}

#[test]
fn a_run_shows_the_arguments_of_its_call_and_the_question_of_its_agent() {
    for (approval, title, hint) in [
        (sample::call(), "refund ", "POST https://bank.example/refunds"),
        (sample::question(), "Which account?", "Question of clerk"),
    ] {
        let name = approval.metadata.name.clone().unwrap();
        let asked = Arc::new(Row::of(&approval));
        let page = render("", vec![row("refund-4711", "Waiting", &[name.as_str()], true)], &[Arc::clone(&asked)]);
        let link = page.split_once(&format!("/a/{name}\">")).unwrap().1.split_once("</a>").unwrap().0;
        assert!(link.starts_with(title), "{link}");
        let arguments = asked.arguments.clone().unwrap_or_default().replace('"', "&#34;");
        assert!(link.ends_with(&arguments) && !link.contains(&asked.prompt), "{link}");
        assert!(page.contains(hint), "{page}");
    }
}

#[test]
fn hostile_texts_are_text_and_a_filter_keeps_what_was_typed() {
    let mut hostile = object("refund", "Failed", &[]);
    hostile["spec"]["requestedBy"] = json!("<b>dana</b>\u{202e}");
    hostile["status"]["message"] = json!("<script>alert(1)</script>");
    let part: WorkflowPart = serde_json::from_value(hostile).unwrap();
    let page = render("search=%22%3E%3Cimg%3E", vec![RunRow::new(part, &reader("x")).unwrap()], &[]);
    for markup in ["<b>", "<script>alert", "<img", "\u{202e}"] {
        assert!(!page.contains(markup), "{markup} is markup:\n{page}");
    }
    assert!(page.contains("⟨U+202E⟩"), "{page}");
    let page = render("phase=a%E2%80%AEb&requester=c%E2%80%AEd", vec![], &[]);
    assert!(page.contains("a⟨U+202E⟩b") && page.contains("c⟨U+202E⟩d") && !page.contains('\u{202e}'), "{page}");
}

#[test]
fn run_belongs_to_its_requester_and_to_the_person_it_is_for() {
    let for_erin = |user: &str| {
        let mut run = object("refund", "Waiting", &["refund-a", "refund-b"]);
        run["spec"]["requestedFor"] = json!("erin@example.com");
        let part: WorkflowPart = serde_json::from_value(run).unwrap();
        let row = RunRow::new(part, &reader(user)).unwrap();
        (row.is_mine, row.requested_by)
    };
    assert_eq!(for_erin("dana@example.com"), (true, "you for erin@example.com".to_owned()));
    assert_eq!(for_erin("erin@example.com"), (true, "you".to_owned()));
    assert_eq!(for_erin("alice@example.com"), (false, "erin@example.com".to_owned()));
}

#[test]
fn a_run_waits_for_others_if_a_request_is_not_asked_of_the_reader() {
    let waits = |asked: &[&str]| {
        let part: WorkflowPart = serde_json::from_value(object("refund", "Waiting", &["a", "b"])).unwrap();
        let asked = asked.iter().map(|name| ("finance".to_owned(), (*name).to_owned())).collect();
        let row = RunRow::new(part, &Reader { asked, ..reader("dana@example.com") }).unwrap();
        RunFilter::read("phase=others").0.takes(&row)
    };
    assert!(waits(&[]) && waits(&["a"]) && !waits(&["a", "b"]));
    assert!(!RunFilter::read("phase=others").0.takes(&row("done", "Succeeded", &[], true)));
}

#[test]
fn own_runs_come_first_and_a_page_keeps_the_filter() {
    let mut rows = vec![
        row("d", "Failed", &[], false),
        row("c", "Waiting", &["x"], false),
        row("b", "Succeeded", &[], true),
        row("a", "Running", &[], true),
    ];
    row::sort(&mut rows);
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    let many = (0..120).map(|at| row(&format!("r{at}"), "Running", &[], true)).collect();
    let page = render("phase=open&page=1", many, &[]);
    for said in ["51 to 100 of 120", "/runs?phase=open&#38;page=0", "/runs?phase=open&#38;page=2"] {
        assert!(page.contains(said), "{said} is missing:\n{page}");
    }
}

#[tokio::test]
async fn list_is_read_in_pages_and_an_unknown_phase_hides_no_run() {
    let (client, asked) = server(|address| {
        let next = if address.contains("continue=") { "" } else { "more" };
        let mut odd = object("odd", "Later", &[]);
        odd["status"]["usage"] = json!("new");
        (200, json!({"metadata": {"continue": next}, "items": [object("refund", "Waiting", &[]), odd]}))
    });
    let dana = reader("dana@example.com");
    let found = read::read(&client, None, "status.phase!=Failed", &dana, |row| row.name != "none").await;
    let found = found.unwrap();
    assert_eq!((found.rows.len(), found.read, found.has_more), (4, 4, false));
    assert!(found.rows.iter().all(|row| row.is_mine));
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    assert!(
        asked.iter().all(|one| one.contains("limit=50") && one.contains("fieldSelector=status.phase")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn too_long_list_is_requested_again_with_fewer_runs() {
    let limit = |address: &str| -> usize {
        let after = address.split("limit=").nth(1).unwrap();
        after.split('&').next().unwrap().parse().unwrap()
    };
    let (client, asked) = server(move |address| {
        let next = if address.contains("continue=") { "" } else { "more" };
        let mut run = object("refund", "Waiting", &[]);
        run["status"]["steps"] = json!("x".repeat(if limit(address) > 12 { 2 * 1024 * 1024 } else { 10 }));
        (200, json!({"metadata": {"continue": next}, "items": [run]}))
    });
    let found = read::read(&client, None, "", &reader("dana@example.com"), |_| true).await.unwrap();
    assert_eq!((found.rows.len(), found.read, found.has_more), (2, 2, false));
    let limits: Vec<_> = asked.lock().unwrap().iter().map(|address| limit(address)).collect();
    assert_eq!(limits, [50, 25, 12, 24, 12]);
}
