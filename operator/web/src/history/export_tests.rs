//! Tests of the cells of the CSV file.
#![allow(clippy::unwrap_used)]

use super::{super::tests::ended_approval, *};

fn read(rows: &[HistoryRow]) -> Vec<Vec<String>> {
    let bytes = csv(rows).unwrap();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(bytes.as_slice());
    reader.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect()
}

#[test]
fn no_cell_begins_like_a_formula() {
    for begin in ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"] {
        let cell = format!("{begin}HYPERLINK(\"http://x\")");
        assert_eq!(escape_formula(cell.clone()), format!("'{cell}"));
    }
    for harmless in ["", "a=1", "2026-11-25T00:00:00Z", "'=1", " =1"] {
        assert_eq!(escape_formula(harmless.to_owned()), harmless);
    }
}

#[test]
fn csv_escapes_formulas_and_shows_hidden_characters() {
    let mut approval = ended_approval("Approved", Some("Approve"), "Human", &["=cmd|' /C calc'!A0", "bob@example.com"]);
    approval.spec.request.gate.path = "-1+1".to_owned();
    approval.spec.request.workflow.name = "@SUM(1)".to_owned();
    // The control character is dropped before the check, so that a formula behind it is quoted too.
    approval.status.as_mut().unwrap().outcome.as_mut().unwrap().reason =
        Some("\u{1}=1,\"a\"\r\nb \u{202e}c".to_owned());
    let rows: Vec<_> = HistoryRow::of(&approval).into_iter().collect();
    let digest = approval.spec.request.digest.to_string();
    let name = approval.metadata.name.clone().unwrap();
    let expected = [
        "2026-11-22T09:45:00Z",
        "finance",
        &name,
        "uid-Approved-Human",
        "'@SUM(1)",
        "'-1+1",
        &digest,
        "Approve",
        "Approved",
        "'=cmd|' /C calc'!A0; bob@example.com",
        "; system:serviceaccount:bridge:slack",
        "; slack",
        "'=1,\"a\"\nb ⟨U+202E⟩c",
        "Human",
    ];
    let read = read(&rows);
    assert_eq!(read.first().unwrap(), &COLUMNS);
    assert_eq!(read.get(1).unwrap(), &expected);
}

#[test]
fn unknown_value_is_an_empty_cell() {
    let mut approval = ended_approval("Cancelled", None, "Policy", &[]);
    let outcome = approval.status.as_mut().unwrap().outcome.as_mut().unwrap();
    (outcome.decided_at, outcome.reason) = (None, None);
    let rows: Vec<_> = HistoryRow::of(&approval).into_iter().collect();
    let read = read(&rows);
    let empty: Vec<_> = COLUMNS
        .iter()
        .zip(read.get(1).unwrap())
        .filter(|(_, cell)| cell.is_empty())
        .map(|(column, _)| *column)
        .collect();
    assert_eq!(empty, ["decidedAt", "verdict", "decidedBy", "via", "channels", "reason"]);
}
