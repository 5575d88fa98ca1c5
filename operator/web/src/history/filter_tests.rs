//! Tests of the rows that a filter selects, and of the errors of its fields.
#![allow(clippy::unwrap_used)]

use super::{super::tests::ended_approval, *};

fn filter(query: &str) -> Filter {
    Filter::read(query).0
}

fn row() -> HistoryRow {
    let approval = ended_approval("Approved", Some("Approve"), "Human", &["bob@example.com"]);
    HistoryRow::of(&approval).unwrap()
}

#[test]
fn each_field_selects_the_rows_that_match() {
    let row = row();
    let taken = [
        "",
        "from=2026-11-22&to=2026-11-22",
        "from=2026-11-22",
        "to=2026-11-22",
        "namespace=finance",
        "run=REFUND",
        "run=4711",
        "gate=view",
        "who=Bob%40",
        "who=slack",
        "verdict=Approve",
        "reason=as+AGREED",
        "odd=1&run=refund",
    ];
    for query in taken {
        assert!(!filter(query).is_wrong() && filter(query).takes(&row), "{query}");
    }
    let left = [
        "from=2026-11-23",
        "to=2026-11-21",
        "namespace=fin",
        "run=x",
        "gate=x",
        "who=alice",
        "verdict=Reject",
        "verdict=Cancelled",
        "reason=x",
        "run=refund&who=alice",
    ];
    for query in left {
        assert!(!filter(query).is_wrong() && !filter(query).takes(&row), "{query}");
    }
}

#[test]
fn days_begin_and_end_at_midnight_in_utc() {
    let mut row = row();
    let mut at = |text: &str| {
        row.at = Some(text.parse::<jiff::Timestamp>().unwrap().into());
        filter("from=2026-11-22&to=2026-11-22").takes(&row)
    };
    assert!(at("2026-11-22T00:00:00Z") && at("2026-11-22T23:59:59.999999Z"));
    assert!(!at("2026-11-21T23:59:59.999999Z") && !at("2026-11-23T00:00:00Z"));
    row.at = None;
    assert!(!filter("from=2026-11-22").takes(&row) && !filter("to=2026-11-22").takes(&row) && filter("").takes(&row));
}

#[test]
fn invalid_text_is_an_error_of_its_field() {
    let long = "a".repeat(254);
    let cases = [
        ("from=yesterday".to_owned(), "is no day: write it as 2026-11-25"),
        ("from=2026-02-30".to_owned(), "is no day: write it as 2026-11-25"),
        ("from=2026-11-22T10:00:00Z".to_owned(), "is no day: write it as 2026-11-25"),
        ("to=20261122".to_owned(), "is no day: write it as 2026-11-25"),
        ("to=9999-12-31".to_owned(), "this day cannot be used"),
        ("from=2026-11-23&to=2026-11-22".to_owned(), "the last day is before the first one"),
        ("namespace=Finance".to_owned(), "this is no namespace"),
        ("namespace=../secrets".to_owned(), "this is no namespace"),
        ("verdict=Maybe".to_owned(), "there is no such verdict"),
        ("verdict=Escalate".to_owned(), "there is no such verdict"),
        (format!("run={long}"), "this is too long"),
        ("gate=a%00b".to_owned(), "this has control characters"),
    ];
    for (query, why) in cases {
        let filter = filter(&query);
        let said: Vec<_> = filter.fields().into_iter().filter_map(|(_, field)| field.wrong.clone()).collect();
        assert!(said.len() == 1 && said.iter().all(|said| said.contains(why)), "{query}: {said:?}");
    }
}

#[test]
fn no_query_is_an_error() {
    for query in ["%", "%ff%fe", "=&&==", "run=%ff", "from", "page=-1", "page=", "run=a&run=b"] {
        assert!(!filter(query).is_wrong(), "{query}");
    }
    assert_eq!(Filter::read("page=3").1, 3);
    assert_eq!(Filter::read("page=x").1, 0);
}

#[test]
fn query_of_a_filter_gives_the_same_filter() {
    let asked = filter("run=a%26b%3D%23&who=%3Cb%3E&from=2026-11-22&page=4&odd=1");
    assert_eq!(asked.query().finish(), "from=2026-11-22&run=a%26b%3D%23&who=%3Cb%3E");
    assert_eq!(filter(&asked.query().finish()), asked);
}

#[test]
fn a_verdict_narrows_the_phases_that_are_read() {
    assert_eq!(filter("").selector(), "status.phase!=Pending,status.phase!=Overdue");
    let read = |query: &str| {
        let selector = filter(query).selector();
        ApprovalPhase::ALL
            .iter()
            .filter(|phase| !selector.contains(&format!("!={}", phase.name())))
            .map(|phase| phase.name())
            .collect::<Vec<_>>()
    };
    assert_eq!(read("verdict=Reject"), ["Rejected", "Expired"], "a timeout rejects too");
    assert_eq!(read("verdict=Cancelled"), ["Cancelled"]);
}
