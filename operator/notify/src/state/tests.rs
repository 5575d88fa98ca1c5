//! Tests of ledgers after crashes, and of the bounds of the stored state.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    channel::{MessageHandle, Recipient},
    routes::notice_id,
};

fn at(seconds: u64) -> Moment {
    let start: Moment = serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap();
    start.after(Duration::from_secs(seconds))
}

fn key(number: usize) -> DeliveryKey {
    DeliveryKey::new(&notice_id("uid", &number.to_string()), &Recipient::Channel)
}

/// Restores the ledger of the next process from the JSON of the state.
fn restore_next(mark: &Mark) -> Ledger {
    Ledger::restore(serde_json::from_str(&serde_json::to_string(mark).unwrap()).unwrap())
}

#[test]
fn open_delivery_is_due_after_a_crash_and_a_settled_one_is_not() {
    let mut ledger = Ledger::begin(at(0));
    for number in 0..4 {
        ledger.add(key(number), at(10 + number as u64));
    }
    ledger.settle(&key(1));
    ledger.settle(&key(3));
    let next = restore_next(&ledger.take_mark(at(14), None));
    let due: Vec<_> = (0..4).filter(|number| next.is_due(&key(*number), at(10 + *number as u64))).collect();
    assert_eq!(due, [0, 2]);
    // Much later the watermark has passed all events.
    let mark = ledger.take_mark(at(1000), None);
    assert_eq!((mark.through, mark.open.len(), mark.ahead.len()), (at(940), 2, 0));
    let next = restore_next(&mark);
    let due: Vec<_> = (0..4).filter(|number| next.is_due(&key(*number), at(10 + *number as u64))).collect();
    assert_eq!(due, [0, 2]);
    assert!(next.is_due(&key(9), at(941)) && !next.is_due(&key(9), at(940)));
}

#[test]
fn an_event_that_is_stored_late_holds_the_watermark_back() {
    let mut ledger = Ledger::begin(at(0));
    assert_eq!(ledger.take_mark(at(1000), Some(at(500))).through, at(498));
    assert_eq!(ledger.take_mark(at(1001), None).through, at(941));
    assert_eq!(ledger.take_mark(at(1002), Some(at(500))).through, at(941), "it never goes back");
}

#[test]
fn open_delivery_is_due_until_its_object_is_reconciled_or_deleted() {
    let mut ledger = Ledger::begin(at(0));
    ledger.add(key(0), at(1));
    ledger.add(key(1), at(1));
    let mut next = restore_next(&ledger.take_mark(at(1000), None));
    let id = notice_id("uid", "0");
    assert!(next.may_be_due(&id, at(1)) && !next.may_be_due(&notice_id("uid", "7"), at(1)));
    next.add(key(0), at(1));
    let mut third = restore_next(&next.take_mark(at(1001), None));
    assert!(third.is_due(&key(0), at(1)) && third.is_due(&key(1), at(1)));
    assert_eq!(next.forget_unseen(), 1);
    assert!(!next.is_due(&key(1), at(1)));
    third.add(key(0), at(1));
    third.settle(&key(0));
    assert!(!restore_next(&third.take_mark(at(1002), None)).is_due(&key(0), at(1)));
}

#[test]
fn both_lists_of_a_flood_have_at_most_500_keys() {
    let mut ledger = Ledger::begin(at(0));
    for number in 0..3000 {
        ledger.add(key(number), at(1 + number as u64));
    }
    for number in (0..3000).filter(|number| number % 3 != 0) {
        ledger.settle(&key(number));
    }
    let mark = ledger.take_mark(at(3001), None);
    assert!(mark.open.len() <= MAX_KEYS && mark.ahead.len() <= MAX_KEYS, "{} {}", mark.open.len(), mark.ahead.len());
    let next = restore_next(&mark);
    let lost = (0..3000).step_by(3).filter(|number| !next.is_due(&key(*number), at(1 + *number as u64))).count();
    assert_eq!(lost, 0, "none that waits");
    let bytes = serde_json::to_string(&mark).unwrap().len() * crate::config::MAX_CHANNELS;
    assert!(bytes < 1024 * 1024, "{bytes} bytes are too many for one ConfigMap");
}

#[test]
fn a_burst_that_is_delivered_at_once_is_not_repeated() {
    let mut ledger = Ledger::begin(at(0));
    for number in 0..3000 {
        ledger.add(key(number), at(100).after(Duration::from_millis(number as u64)));
        ledger.settle(&key(number));
    }
    let next = restore_next(&ledger.take_mark(at(110), None));
    let due = |number: &usize| next.is_due(&key(*number), at(100).after(Duration::from_millis(*number as u64)));
    assert_eq!((0..3000).filter(due).count(), 0);
}

#[test]
fn event_in_the_first_second_of_a_channel_is_due() {
    let ledger = Ledger::begin(at(5).after(Duration::from_millis(400)));
    assert!(ledger.is_due(&key(0), at(5)) && !ledger.is_due(&key(0), at(4)));
}

#[test]
fn watermark_stays_behind_recent_deliveries_and_holds() {
    let mut ledger = Ledger::begin(at(0));
    for number in 0..3000 {
        ledger.add(key(number), at(100));
        ledger.settle(&key(number));
    }
    assert_eq!(ledger.take_mark(at(101), None).through, at(99));
    assert_eq!(ledger.take_mark(at(110), Some(at(101))).through, at(99));
    assert_eq!(ledger.take_mark(at(110), None).through, at(100), "as near as it has to be");
}

#[test]
fn stored_watermark_goes_back_if_too_many_deliveries_are_open() {
    let mut ledger = Ledger::begin(at(0));
    assert_eq!(ledger.take_mark(at(1000), None).through, at(940));
    // Events that are queued late, as after a pause of the operator: 600 fail, and one is delivered.
    for number in 0..600 {
        ledger.add(key(number), at(1 + number as u64));
    }
    ledger.add(key(9000), at(550));
    ledger.settle(&key(9000));
    let mark = ledger.take_mark(at(1001), None);
    assert_eq!((mark.through, mark.open.len()), (last_millisecond_before(at(501)), MAX_KEYS));
    let next = restore_next(&mark);
    assert_eq!(
        (0..600).filter(|number| !next.is_due(&key(*number), at(1 + *number as u64))).count(),
        0,
        "none is lost"
    );
    assert!(!next.is_due(&key(9000), at(550)), "it is not repeated");
    assert!(!ledger.is_due(&key(9001), at(900)), "this process goes on where it was");
    (0..600).for_each(|number| ledger.settle(&key(number)));
    assert_eq!(ledger.take_mark(at(1002), None).through, at(942));
}

#[test]
fn state_that_is_loaded_late_is_added_to_the_state_of_this_process() {
    let mut earlier = Ledger::begin(at(0));
    (0..3).for_each(|number| earlier.add(key(number), at(100)));
    earlier.settle(&key(2));
    let mark = earlier.take_mark(at(101), None);
    let mut ledger = Ledger::begin(at(200));
    ledger.add(key(1), at(100));
    ledger.add(key(5), at(205));
    ledger.settle(&key(5));
    ledger.adopt(mark);
    let due: Vec<_> = (0..6).filter(|number| ledger.is_due(&key(*number), at(100))).collect();
    assert_eq!(due, [0, 3, 4], "neither what waits here nor what was delivered");
    assert!(ledger.is_changed() && !ledger.is_due(&key(5), at(205)));
    assert_eq!(ledger.forget_unseen(), 1);
}

#[test]
fn unchanged_state_is_not_stored() {
    let mut ledger = Ledger::begin(at(0));
    assert!(ledger.is_changed(), "a new channel has to be stored");
    let mark = ledger.take_mark(at(0), None);
    assert!(!ledger.is_changed() && !restore_next(&mark).is_changed());
    ledger.settle(&key(0));
    assert!(!ledger.is_changed(), "it is not known");
}

#[test]
fn messages_are_in_objects_of_500_and_the_oldest_are_forgotten() {
    let mut handles = Handles::default();
    let handle = |number: usize| MessageHandle(format!("ts-{number}"));
    for number in 0..MAX_HANDLES + 1 {
        handles.put("slack", &key(number), handle(number));
        let changed = std::iter::from_fn(|| handles.take_changed()).count();
        assert_eq!(changed, 1, "a write touches one object");
    }
    assert_eq!(handles.get("slack", &key(0)), None);
    assert_eq!(handles.get("slack", &key(SHARD)), Some(handle(SHARD)));
    assert_eq!(handles.get("slack", &key(MAX_HANDLES)), Some(handle(MAX_HANDLES)));
    assert_eq!(handles.get("mail", &key(SHARD)), None);
    handles.put("slack", &key(SHARD), handle(SHARD));
    assert!(handles.take_changed().is_none(), "it is the same");
}

#[test]
fn messages_that_are_loaded_late_replace_no_message_of_this_process() {
    let handle = |text: &str| MessageHandle(text.to_owned());
    let mut earlier = Handles::default();
    (0..3).for_each(|number| earlier.put("slack", &key(number), handle("earlier")));
    let mut handles = Handles::default();
    handles.put("slack", &key(2), handle("new"));
    handles.adopt(std::iter::from_fn(|| earlier.take_changed()).collect());
    let found: Vec<_> = (0..4).map(|number| handles.get("slack", &key(number)).map(|found| found.0)).collect();
    assert_eq!(found, [Some("earlier".to_owned()), Some("earlier".to_owned()), Some("new".to_owned()), None]);
    assert_eq!(handles.take_changed().map(|(number, shard)| (number, shard.len())), Some((0, 3)));
}

#[test]
fn messages_of_an_earlier_process_are_restored_and_new_ones_are_added_to_an_object_with_room() {
    let mut earlier = Handles::default();
    for number in 0..SHARD + 3 {
        earlier.put("slack", &key(number), MessageHandle(number.to_string()));
    }
    let stored = std::iter::from_fn(|| earlier.take_changed()).collect();
    let mut next = Handles::restore(stored);
    assert_eq!(next.get("slack", &key(7)), Some(MessageHandle("7".to_owned())));
    next.put("slack", &key(9000), MessageHandle("new".to_owned()));
    assert_eq!(next.take_changed().map(|(number, shard)| (number, shard.len())), Some((1, 4)));
}
