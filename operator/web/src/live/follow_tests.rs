//! Tests of a feed that is filled from several watches.
//!
//! The events are applied without an API server.

#![allow(clippy::unwrap_used)]
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_review::sample;

use super::*;
use crate::live::UNREADABLE;

fn feed() -> Feed {
    Feed::new(sample::me("alice", &[]), Vec::new(), None)
}

fn meta(uid: &str) -> ObjectMeta {
    ObjectMeta {
        uid: Some(uid.to_owned()),
        name: Some(format!("name-{uid}")),
        namespace: Some("finance".to_owned()),
        ..ObjectMeta::default()
    }
}

fn approval(uid: &str, version: &str) -> Box<Approval> {
    let mut approval = sample::approval();
    approval.metadata = ObjectMeta { resource_version: Some(version.to_owned()), ..meta(uid) };
    Box::new(approval)
}

fn unreadable(uid: &str) -> WatchEvent<Approval> {
    WatchEvent::Unreadable { meta: meta(uid), why: "odd".to_owned(), listed: false }
}

fn done() -> WatchEvent<Approval> {
    WatchEvent::ListDone("1".to_owned())
}

#[test]
fn the_list_is_complete_when_that_of_each_namespace_is() {
    let (feed, shared, mut lists) = (feed(), SharedRows::default(), Lists::new(2));
    let mut take = |list, event| take(&feed, &shared, &mut lists, list, event);
    assert_eq!(take(0, WatchEvent::Listing), Then::Nothing);
    assert_eq!(take(1, WatchEvent::Listing), Then::Nothing);
    assert_eq!(take(0, WatchEvent::Listed(approval("a", "1"))), Then::Nothing);
    assert_eq!(take(0, done()), Then::Nothing);
    assert_eq!(take(0, done()), Then::Nothing, "the same list does not stand for the other");
    assert_eq!(take(0, WatchEvent::Applied(approval("a", "2"))), Then::Nothing, "the other list is still to come");
    assert_eq!(take(1, done()), Then::Changed);
    assert_eq!(take(0, WatchEvent::Applied(approval("a", "3"))), Then::Changed);
    assert_eq!(take(0, WatchEvent::Applied(approval("a", "3"))), Then::Nothing, "nothing is different");
    assert_eq!(take(0, WatchEvent::Deleted(meta("a"))), Then::Changed);
    assert_eq!(take(0, WatchEvent::Deleted(meta("a"))), Then::Nothing);
}

#[test]
fn a_second_list_of_one_namespace_ends_the_feed() {
    let (feed, shared, mut lists) = (feed(), SharedRows::default(), Lists::new(2));
    let mut take = |list, event| take(&feed, &shared, &mut lists, list, event);
    take(0, WatchEvent::Listing);
    take(1, WatchEvent::Listing);
    take(0, done());
    assert_eq!(take(0, WatchEvent::Listing), Then::End(Ended::Over));
}

#[test]
fn what_cannot_be_read_is_named_and_its_former_row_is_gone() {
    let (feed, shared, mut lists) = (feed(), SharedRows::default(), Lists::new(1));
    let mut take = |event| take(&feed, &shared, &mut lists, 0, event);
    take(WatchEvent::Listing);
    take(WatchEvent::Listed(approval("a", "1")));
    take(done());
    assert_eq!(feed.rows().len(), 1);
    assert_eq!(take(unreadable("a")), Then::Changed);
    assert!(feed.rows().is_empty(), "what it was before is not shown");
    let names = |feed: &Feed| feed.unreadable().into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(&feed), ["name-a"]);
    assert_eq!(take(unreadable("a")), Then::Nothing);
    assert_eq!(take(WatchEvent::Applied(approval("a", "2"))), Then::Changed);
    assert!(feed.unreadable().is_empty() && feed.rows().len() == 1, "it can be read again");
    take(unreadable("b"));
    assert_eq!(take(WatchEvent::Deleted(meta("b"))), Then::Changed);
    assert!(feed.unreadable().is_empty());
}

#[test]
fn the_names_of_what_cannot_be_read_are_bounded() {
    let feed = feed();
    for at in 0..UNREADABLE + 10 {
        feed.put_unreadable(&meta(&at.to_string()));
    }
    assert_eq!(feed.unreadable().len(), UNREADABLE);
}
