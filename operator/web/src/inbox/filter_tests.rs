//! Tests of the requests that a filter selects, and of the errors of its fields.

use std::sync::Arc;

use signoff_review::sample;

use super::*;

fn filter(query: &str) -> InboxFilter {
    InboxFilter::read(query).0
}

fn waiting(row: Row) -> Waiting {
    Waiting { row: Arc::new(row), standing: Standing::Asked, is_mine: false }
}

fn call() -> Waiting {
    waiting(Row { policies: vec!["ClusterApprovalPolicy prod".to_owned()], ..Row::of(&sample::call()) })
}

#[test]
fn each_field_selects_what_matches() {
    let (one, at) = (call(), sample::now());
    let alike = format!("alike={}", one.row.alike);
    let taken = [
        "",
        "q=refund",
        "q=acme+AMOUNT",
        "q=A+c+m+e+a+m+o+u",
        "q=dana",
        "kind=call",
        "run=4711",
        "policy=PROD",
        "due=day",
        "due=week",
        "namespace=finance",
        "sort=new",
        "page=3&odd=1",
        "tab=me",
        "tab=odd",
        &alike,
    ];
    for query in taken {
        assert!(!filter(query).is_wrong() && filter(query).takes(&one, at), "{query}");
    }
    let left = [
        "q=refund+invoice",
        "q=%3Cb%3E",
        "kind=question",
        "kind=gate",
        "run=x",
        "policy=x",
        "due=late",
        "due=hour",
        "namespace=fin",
        "tab=mine",
        "tab=others",
        "alike=0",
        "run=4711&due=late",
    ];
    for query in left {
        assert!(!filter(query).is_wrong() && !filter(query).takes(&one, at), "{query}");
    }
}

#[test]
fn a_late_request_is_due_in_every_time() {
    let mut row = Row::of(&sample::call());
    row.is_overdue = true;
    let late = waiting(row);
    for due in ["late", "hour", "day", "week"] {
        assert!(filter(&format!("due={due}")).takes(&late, sample::now()), "{due}");
    }
}

#[test]
fn each_request_is_in_the_tab_of_its_reader() {
    let at = sample::now();
    let tabs = |standing, is_mine| {
        let one = Waiting { standing, is_mine, ..call() };
        [Tab::Asked, Tab::Mine, Tab::Others].map(|tab| tab.has(&one, at))
    };
    assert_eq!(tabs(Standing::Asked, false), [true, false, false]);
    assert_eq!(tabs(Standing::Asked, true), [true, true, false], "who requested it can be asked too");
    assert_eq!(tabs(Standing::Other, true), [false, true, false]);
    assert_eq!(tabs(Standing::Other, false), [false, false, true]);
    let closed = waiting(Row { closes_at: Some(at.before(HOUR)), ..Row::of(&sample::call()) });
    assert!(!Tab::Asked.has(&closed, at));
}

#[test]
fn kind_selects_requests_by_the_type_of_their_gate() {
    let of = |approval| waiting(Row::of(&approval));
    let (gate, question) = (of(sample::approval()), of(sample::question()));
    let taken = |query, one: &Waiting| filter(query).takes(one, sample::now());
    assert!(taken("kind=gate", &gate) && !taken("kind=gate", &question));
    assert!(taken("kind=question", &question) && taken("q=which+account", &question));
}

#[test]
fn invalid_value_is_an_error_of_its_field_alone() {
    let cases = [
        ("kind=odd".to_owned(), "there is no such choice"),
        ("due=yesterday".to_owned(), "there is no such choice"),
        ("sort=x".to_owned(), "there is no such choice"),
        ("namespace=../secrets".to_owned(), "this is no namespace"),
        (format!("q={}", "a".repeat(254)), "this is too long"),
        ("run=a%00b".to_owned(), "this has control characters"),
        ("q=a+b+c+d+e+f+g+h+i".to_owned(), "search for at most 8 words"),
    ];
    for (query, why) in cases {
        let filter = filter(&query);
        let said: Vec<_> = filter.fields().into_iter().filter_map(|(_, field)| field.wrong.clone()).collect();
        assert!(said.len() == 1 && said.iter().all(|said| said.contains(why)), "{query}: {said:?}");
    }
    for query in ["%", "%ff%fe", "=&&==", "q", "page=-1", "alike=<b>", "tab=%00"] {
        assert!(!filter(query).is_wrong(), "{query}");
    }
    assert_eq!(filter("alike=<b>").alike, "");
}

#[test]
fn query_of_a_filter_gives_the_same_filter() {
    let asked = filter("run=a%26b&q=%3Cb%3E&tab=mine&alike=0a&sort=new&odd=1");
    assert_eq!(asked.address(0), "/?q=%3Cb%3E&run=a%26b&sort=new&tab=mine&alike=0a");
    assert_eq!(asked.address(2), "/?q=%3Cb%3E&run=a%26b&sort=new&tab=mine&alike=0a&page=2");
    assert_eq!(InboxFilter::read("run=a%26b&q=%3Cb%3E&tab=mine&alike=0a&sort=new&page=2"), (asked, 2));
    assert_eq!(filter("").address(0), "/");
    let tabs: Vec<_> = filter("q=x&alike=0a").tabs().into_iter().map(|(.., to)| to).collect();
    assert_eq!(tabs, ["/?q=x", "/?q=x&tab=mine", "/?q=x&tab=others"]);
    assert!(!filter("sort=due").is_unfolded() && filter("sort=new").is_unfolded(), "the form always sends an order");
    assert_eq!(filter("q=x&sort=due").address(0), "/?q=x");
    assert!(filter("sort=new&tab=mine").is_empty() && !filter("due=day").is_empty());
}
