//! The list of runs: how it is read, in what order, and what it shows of hostile texts.
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

/// A run of dana, who looks at the list where it is hers.
pub(crate) fn row(name: &str, phase: &str, pending: &[&str], is_mine: bool) -> RunRow {
    let part: WorkflowPart = serde_json::from_value(object(name, phase, pending)).unwrap();
    RunRow::new(part, if is_mine { "dana@example.com" } else { "alice@example.com" }).unwrap()
}

fn rendered(query: &str, rows: Vec<RunRow>, asked: &[Arc<Row>]) -> String {
    let (filter, part) = RunFilter::read(query);
    let found = FoundRuns { rows, read: 7, has_more: true };
    let shell = Shell { user: Some("dana@example.com".into()), here: "runs", ..Shell::of_nobody("Runs") };
    let at = "2026-11-22T10:00:00Z".parse::<jiff::Timestamp>().unwrap().into();
    runs(shell, filter, found, Some(vec!["finance".into()]), asked, part, at).render().unwrap()
}

#[test]
fn a_run_names_its_question_its_requester_and_its_tokens() {
    let approval = sample::approval();
    let name = approval.metadata.name.clone().unwrap();
    let asked = Arc::new(Row::of(&approval));
    let page = rendered("", vec![row("refund-4711", "Waiting", &[name.as_str()], true)], &[Arc::clone(&asked)]);
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
    let other = rendered("", vec![row("refund-4711", "Waiting", &["another"], true)], &[asked]);
    assert!(other.contains("waits for 1 decision") && !other.contains(&format!("/a/{name}")), "{other}");
}

#[test]
fn hostile_texts_are_text_and_a_filter_keeps_what_was_typed() {
    let mut hostile = object("refund", "Failed", &[]);
    hostile["spec"]["requestedBy"] = json!("<b>dana</b>\u{202e}");
    hostile["status"]["message"] = json!("<script>alert(1)</script>");
    let part: WorkflowPart = serde_json::from_value(hostile).unwrap();
    let page = rendered("search=%22%3E%3Cimg%3E", vec![RunRow::new(part, "x").unwrap()], &[]);
    for markup in ["<b>", "<script>alert", "<img", "\u{202e}"] {
        assert!(!page.contains(markup), "{markup} is markup:\n{page}");
    }
    assert!(page.contains("⟨U+202E⟩"), "{page}");
}

#[test]
fn own_runs_come_first_then_open_ones_and_a_page_keeps_the_filter() {
    let mut rows = vec![
        row("d", "Failed", &[], false),
        row("c", "Waiting", &["x"], false),
        row("b", "Succeeded", &[], true),
        row("a", "Running", &[], true),
    ];
    row::sort(&mut rows);
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    let many = (0..120).map(|at| row(&format!("r{at}"), "Running", &[], true)).collect();
    let page = rendered("phase=open&page=1", many, &[]);
    for said in ["51 to 100 of 120", "/runs?phase=open&#38;page=0", "/runs?phase=open&#38;page=2"] {
        assert!(page.contains(said), "{said} is missing:\n{page}");
    }
}

#[tokio::test]
async fn a_list_is_read_in_parts_and_one_odd_status_hides_no_other_run() {
    let (client, asked) = server(|address| {
        let next = if address.contains("continue=") { "" } else { "more" };
        let mut odd = object("odd", "Later", &[]);
        odd["status"]["usage"] = json!("new");
        (200, json!({"metadata": {"continue": next}, "items": [object("refund", "Waiting", &[]), odd]}))
    });
    let found = read::read(&client, None, "status.phase!=Failed", "dana@example.com", |row| row.name != "none").await;
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
