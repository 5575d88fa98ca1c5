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
fn list_is_complete_after_the_list_of_each_namespace() {
    let (feed, shared, mut lists) = (feed(), SharedRows::default(), Lists::new(2));
    let mut apply = |list, event| apply(&feed, &shared, &mut lists, list, event);
    assert_eq!(apply(0, WatchEvent::Listing), Consequence::Nothing);
    assert_eq!(apply(1, WatchEvent::Listing), Consequence::Nothing);
    assert_eq!(apply(0, WatchEvent::Listed(approval("a", "1"))), Consequence::Nothing);
    assert_eq!(apply(0, done()), Consequence::Nothing);
    assert_eq!(apply(0, done()), Consequence::Nothing, "the same list does not stand for the other");
    assert_eq!(
        apply(0, WatchEvent::Applied(approval("a", "2"))),
        Consequence::Nothing,
        "the other list is still to come"
    );
    assert_eq!(apply(1, done()), Consequence::Changed);
    assert_eq!(apply(0, WatchEvent::Applied(approval("a", "3"))), Consequence::Changed);
    assert_eq!(apply(0, WatchEvent::Applied(approval("a", "3"))), Consequence::Nothing, "nothing is different");
    assert_eq!(apply(0, WatchEvent::Deleted(meta("a"))), Consequence::Changed);
    assert_eq!(apply(0, WatchEvent::Deleted(meta("a"))), Consequence::Nothing);
}

#[test]
fn a_second_list_of_one_namespace_ends_the_feed() {
    let (feed, shared, mut lists) = (feed(), SharedRows::default(), Lists::new(2));
    let mut apply = |list, event| apply(&feed, &shared, &mut lists, list, event);
    apply(0, WatchEvent::Listing);
    apply(1, WatchEvent::Listing);
    apply(0, done());
    assert_eq!(apply(0, WatchEvent::Listing), Consequence::End(Ended::Over));
}

#[test]
fn unreadable_approval_is_named_and_its_row_is_removed() {
    let (feed, shared, mut lists) = (feed(), SharedRows::default(), Lists::new(1));
    let mut apply = |event| apply(&feed, &shared, &mut lists, 0, event);
    apply(WatchEvent::Listing);
    apply(WatchEvent::Listed(approval("a", "1")));
    apply(done());
    assert_eq!(feed.rows().len(), 1);
    assert_eq!(apply(unreadable("a")), Consequence::Changed);
    assert!(feed.rows().is_empty(), "what it was before is not shown");
    let names = |feed: &Feed| feed.unreadable().into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(&feed), ["name-a"]);
    assert_eq!(apply(unreadable("a")), Consequence::Nothing);
    assert_eq!(apply(WatchEvent::Applied(approval("a", "2"))), Consequence::Changed);
    assert!(feed.unreadable().is_empty() && feed.rows().len() == 1, "it can be read again");
    apply(unreadable("b"));
    assert_eq!(apply(WatchEvent::Deleted(meta("b"))), Consequence::Changed);
    assert!(feed.unreadable().is_empty());
}

#[test]
fn names_of_unreadable_approvals_are_bounded() {
    let feed = feed();
    for at in 0..UNREADABLE + 10 {
        feed.put_unreadable(&meta(&at.to_string()));
    }
    assert_eq!(feed.unreadable().len(), UNREADABLE);
}
