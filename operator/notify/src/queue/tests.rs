//! Tests of the order, turns, pauses and limits of a queue, on a clock that the tests set.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::notice::{Notice, NoticeEvent};

fn at(seconds: u64) -> Moment {
    let start: Moment = serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap();
    start.after(Duration::from_secs(seconds))
}

/// Returns the notice of an event about an object, addressed to a person.
fn addressed(namespace: &str, object: &str, event: NoticeEvent, person: &str) -> Addressed {
    let notice = Notice {
        id: crate::routes::notice_id(object, &format!("{event:?}")),
        event,
        correlation: crate::routes::correlation(object, "hook"),
        namespace: namespace.to_owned(),
        run: object.to_owned(),
        approval: Some(object.to_owned()),
        gate: None,
        kind: None,
        requester: "dana".to_owned(),
        deadline: None,
        then: None,
        outcome: None,
        details: None,
        link: None,
        at: at(0),
    };
    Addressed { channel: "hook".to_owned(), to: Recipient::Person(person.to_owned()), notice: Arc::new(notice) }
}

fn queue() -> Queue {
    Queue::new(Limits::default(), None)
}

fn push_to(queue: &mut Queue, object: &str, to: Recipient) {
    let addressed = Addressed { to, ..addressed("pay", object, NoticeEvent::Asked, "alice") };
    assert!(queue.push(addressed, at(0), at(0)).is_empty());
}

fn push(queue: &mut Queue, namespace: &str, object: &str, event: NoticeEvent) {
    assert!(queue.push(addressed(namespace, object, event, "alice"), at(0), at(0)).is_empty());
}

fn later(seconds: Option<u64>) -> Result<(), SendError> {
    Err(SendError::Later { why: "busy".to_owned(), after: seconds.map(Duration::from_secs) })
}

fn run_and_event(start: &Start) -> (String, NoticeEvent) {
    (start.addressed.notice.run.clone(), start.addressed.notice.event)
}

#[test]
fn later_notice_of_an_approval_waits_for_the_earlier_one() {
    let mut queue = queue();
    push(&mut queue, "pay", "a", NoticeEvent::Asked);
    push(&mut queue, "pay", "a", NoticeEvent::Taken);
    push(&mut queue, "pay", "b", NoticeEvent::Asked);
    let first = queue.begin_next(at(0)).unwrap();
    let other = queue.begin_next(at(0)).unwrap();
    assert_eq!((run_and_event(&first).0.as_str(), run_and_event(&other).0.as_str()), ("a", "b"));
    assert!(queue.begin_next(at(0)).is_none(), "its earlier notice is in flight");
    let Finished::Later { at: again, .. } = queue.finish(&first.lane, later(None), at(0)) else { unreachable!() };
    assert!(queue.begin_next(at(0)).is_none() && queue.wake_at(at(0)) == Some(again));
    let repeated = queue.begin_next(again).unwrap();
    assert_eq!(run_and_event(&repeated), run_and_event(&first));
    queue.finish(&repeated.lane, Ok(()), again);
    assert_eq!(run_and_event(&queue.begin_next(again).unwrap()), ("a".to_owned(), NoticeEvent::Taken));
}

#[test]
fn namespaces_take_turns() {
    let mut queue = queue();
    for n in 0..100 {
        push(&mut queue, "flood", &format!("f{n}"), NoticeEvent::Asked);
    }
    push(&mut queue, "pay", "p", NoticeEvent::Asked);
    let first_two: Vec<_> =
        (0..2).map(|_| queue.begin_next(at(0)).unwrap().addressed.notice.namespace.clone()).collect();
    assert_eq!(first_two, ["flood", "pay"]);
}

#[test]
fn pauses_double_up_to_an_hour_and_a_notice_is_given_up_after_a_day() {
    let mut queue = queue();
    push(&mut queue, "pay", "a", NoticeEvent::Asked);
    let (mut now, mut pauses) = (at(0), Vec::new());
    let dead = loop {
        let start = queue.begin_next(now).unwrap();
        match queue.finish(&start.lane, later(None), now) {
            Finished::Later { at: again, .. } => {
                pauses.push(again.since(now).as_secs());
                now = queue.wake_at(now).unwrap();
            }
            Finished::Settled { keys, dead } => break (keys.len(), dead),
        }
    };
    assert_eq!(dead, (1, Some("busy".to_owned())));
    assert!(pauses.is_sorted() && pauses.first() == Some(&1) && pauses.last() == Some(&3600), "{pauses:?}");
    assert!(now.since(at(0)) >= GIVEN_UP && now.since(at(0)) < GIVEN_UP + LONGEST_PAUSE);
    assert!(queue.is_empty() && queue.wake_at(now).is_none());
}

#[test]
fn requested_pause_holds_for_the_whole_channel_and_at_most_an_hour() {
    for (asked, pause) in [(30, 30), (1_000_000, 3600)] {
        let mut queue = queue();
        push(&mut queue, "pay", "a", NoticeEvent::Asked);
        push(&mut queue, "pay", "b", NoticeEvent::Asked);
        let start = queue.begin_next(at(0)).unwrap();
        queue.finish(&start.lane, later(Some(asked)), at(0));
        assert!(queue.begin_next(at(pause - 1)).is_none());
        assert_eq!(queue.wake_at(at(pause - 1)), Some(at(pause)));
        assert!(queue.begin_next(at(pause)).is_some());
    }
}

#[test]
fn requested_pause_goes_on_after_the_success_of_another_attempt() {
    let mut queue = queue();
    for object in ["a", "b", "c"] {
        push(&mut queue, "pay", object, NoticeEvent::Asked);
    }
    let (first, second) = (queue.begin_next(at(0)).unwrap(), queue.begin_next(at(0)).unwrap());
    queue.finish(&first.lane, later(Some(30)), at(0));
    queue.finish(&second.lane, Ok(()), at(1));
    assert!(queue.begin_next(at(29)).is_none() && queue.begin_next(at(30)).is_some());
}

#[test]
fn refused_recipient_does_not_delay_others() {
    let mut queue = queue();
    // Each request is a lane of its own.
    (0..20).for_each(|number| push(&mut queue, "pay", &format!("refused-{number}"), NoticeEvent::Asked));
    for _ in 0..60 {
        let Some(start) = queue.begin_next(at(1)) else { break };
        queue.finish(&start.lane, later(None), at(1));
    }
    assert!(queue.begin_next(at(1)).is_none(), "each was tried and waits");
    push_to(&mut queue, "other", Recipient::Person("bob".to_owned()));
    assert_eq!(run_and_event(&queue.begin_next(at(1)).unwrap()).0, "other");
}

#[test]
fn dropped_details_are_not_sent_and_take_no_bytes() {
    let mut queue = queue();
    let plain = addressed("pay", "a", NoticeEvent::Asked, "alice");
    let notice = Notice { details: Some("Pay 42 EUR?".repeat(100)), ..(*plain.notice).clone() };
    let with_details = Addressed { notice: Arc::new(notice), ..plain.clone() };
    assert!(queue.push(with_details, at(0), at(0)).is_empty());
    let before = queue.total.bytes;
    queue.drop_details();
    assert_eq!(before - queue.total.bytes, 1100);
    let start = queue.begin_next(at(0)).unwrap();
    assert_eq!(start.addressed.notice.details, None);
    queue.finish(&start.lane, Ok(()), at(0));
    assert_eq!((queue.total.entries, queue.total.bytes), (0, 0));
}

#[test]
fn a_refusal_settles_at_once_and_the_next_notice_follows() {
    let mut queue = queue();
    push(&mut queue, "pay", "a", NoticeEvent::Asked);
    push(&mut queue, "pay", "a", NoticeEvent::Taken);
    let start = queue.begin_next(at(0)).unwrap();
    let finished = queue.finish(&start.lane, Err(SendError::Dead { why: "no such channel".to_owned() }), at(0));
    assert_eq!(
        finished,
        Finished::Settled { keys: vec![start.addressed.key()], dead: Some("no such channel".to_owned()) }
    );
    assert_eq!(run_and_event(&queue.begin_next(at(0)).unwrap()).1, NoticeEvent::Taken);
}

#[test]
fn unreachable_receiver_gets_one_attempt_at_a_time() {
    let mut queue = queue();
    for n in 0..1000 {
        push_to(&mut queue, &format!("a{n}"), Recipient::Channel);
    }
    let (mut now, mut attempts) = (at(0), 0);
    while now < at(3600) {
        while let Some(start) = queue.begin_next(now) {
            attempts += 1;
            queue.finish(&start.lane, later(None), now);
        }
        now = queue.wake_at(now).unwrap();
    }
    assert!(attempts < 200, "{attempts} attempts in an hour");
    assert_eq!(queue.len(), 1000);
}

#[test]
fn deliveries_of_the_largest_namespace_are_dropped_first() {
    let mut queue = Queue::new(Limits { entries: 4, ..Limits::default() }, None);
    for n in 0..4 {
        push(&mut queue, "flood", &format!("f{n}"), NoticeEvent::Asked);
    }
    let more = addressed("flood", "f4", NoticeEvent::Asked, "alice");
    assert_eq!(queue.push(more.clone(), at(0), at(0)), [more.key()], "its own");
    let small = addressed("pay", "p", NoticeEvent::Asked, "alice");
    let dropped = queue.push(small.clone(), at(0), at(0));
    assert_eq!(dropped.len(), 1);
    assert_ne!(dropped, [small.key()]);
    assert_eq!(queue.len(), 4);
    let sent: BTreeSet<_> =
        std::iter::from_fn(|| queue.begin_next(at(0))).map(|start| run_and_event(&start).0).collect();
    assert!(sent.contains("p") && sent.len() == 4, "{sent:?}");
}

#[test]
fn many_notices_to_a_person_are_folded_by_namespace() {
    let mut queue = Queue::new(Limits { at_once: 100, ..Limits::default() }, Some(None));
    for n in 0..32 {
        push(&mut queue, "flood", &format!("f{n}"), NoticeEvent::Asked);
    }
    push(&mut queue, "pay", "p", NoticeEvent::Asked);
    push(&mut queue, "flood", "f0", NoticeEvent::Taken);
    let mut sent = 0;
    while let Some(start) = queue.begin_next(at(0)) {
        sent += 1;
        queue.finish(&start.lane, Ok(()), at(0));
    }
    assert_eq!((sent, queue.len()), (22, 12));
    assert_eq!(queue.wake_at(at(0)), Some(at(60)));
    let folded = queue.begin_next(at(60)).unwrap();
    assert_eq!(folded.addressed.notice.kind.as_deref(), Some("12 more wait"));
    let Finished::Settled { keys, dead: None } = queue.finish(&folded.lane, Ok(()), at(60)) else { unreachable!() };
    assert_eq!(keys.len(), 12);
    assert!(queue.is_empty());
}

#[test]
fn large_notices_are_dropped_from_their_own_namespace() {
    let limits = Limits { bytes: 64 * 1024, ..Limits::default() };
    let mut queue = Queue::new(limits, None);
    let large = |object: &str| {
        let mut large = addressed("flood", object, NoticeEvent::Asked, "alice");
        let details = Some("x".repeat(10 * 1024));
        large.notice = Arc::new(Notice { details, ..Notice::clone(&large.notice) });
        large
    };
    let dropped: usize = (0..100).map(|n| queue.push(large(&format!("f{n}")), at(0), at(0)).len()).sum();
    assert_eq!((dropped, queue.len()), (94, 6));
    for n in 0..20 {
        let small = addressed("pay", &format!("p{n}"), NoticeEvent::Asked, "alice");
        assert!(!queue.push(small.clone(), at(0), at(0)).contains(&small.key()), "the small ones are kept");
    }
    assert!(queue.shares.values().map(|share| share.bytes).sum::<usize>() <= limits.bytes);
    assert_eq!((queue.shares["pay"].entries, queue.shares["flood"].entries), (20, 4));
    assert_eq!(queue.push(Addressed { to: Recipient::Channel, ..large("p") }, at(0), at(0)).len(), 1, "its own");
}

#[test]
fn folded_notices_of_a_flood_are_dropped_before_those_of_others() {
    let mut queue = Queue::new(Limits { entries: 30, ..Limits::default() }, Some(None));
    for n in 0..29 {
        push(&mut queue, "flood", &format!("f{n}"), NoticeEvent::Asked);
    }
    // The first 20 are sent one by one, and nine are folded.
    while let Some(start) = queue.begin_next(at(0)) {
        queue.finish(&start.lane, Ok(()), at(0));
    }
    assert_eq!(queue.len(), 9);
    for n in 0..21 {
        push(&mut queue, "flood", &format!("g{n}"), NoticeEvent::Asked);
    }
    let first = addressed("pay", "p0", NoticeEvent::Ended, "bob");
    assert_eq!(queue.push(first, at(0), at(0)), [addressed("flood", "g20", NoticeEvent::Asked, "alice").key()]);
    assert_eq!(queue.push(addressed("pay", "p1", NoticeEvent::Ended, "bob"), at(0), at(0)).len(), 1);
    let sent: Vec<_> = std::iter::from_fn(|| queue.begin_next(at(60))).map(|start| start.addressed.notice).collect();
    let of_pay = sent.iter().filter(|notice| notice.namespace == "pay").count();
    let folded: Vec<_> = sent.iter().filter_map(|notice| notice.kind.as_deref()).collect();
    assert_eq!((of_pay, folded), (2, vec!["28 more wait"]), "{sent:?}");
    assert_eq!(queue.len(), 30);
}

#[test]
fn a_namespace_with_slow_recipients_leaves_half_of_the_places_to_others() {
    let mut queue = queue();
    for n in 0..20 {
        push(&mut queue, "slow", &format!("s{n}"), NoticeEvent::Asked);
    }
    let slow: Vec<_> = std::iter::from_fn(|| queue.begin_next(at(0))).collect();
    assert_eq!(slow.len(), 4);
    push(&mut queue, "pay", "p", NoticeEvent::Asked);
    assert_eq!(run_and_event(&queue.begin_next(at(0)).unwrap()).0, "p");
    assert!(queue.begin_next(at(0)).is_none());
    queue.finish(&slow.first().unwrap().lane, Ok(()), at(1));
    assert!(queue.begin_next(at(1)).is_some() && queue.begin_next(at(1)).is_none());
    let mut one = Queue::new(Limits { at_once: 1, ..Limits::default() }, None);
    push(&mut one, "slow", "s", NoticeEvent::Asked);
    assert!(one.begin_next(at(0)).is_some(), "one place is for all");
}

#[test]
fn folded_notice_is_settled_with_the_outcome_of_its_approval() {
    let mut queue = Queue::new(Limits { at_once: 200, ..Limits::default() }, Some(None));
    for n in 0..23 {
        push(&mut queue, "pay", &format!("p{n}"), NoticeEvent::Asked);
    }
    push(&mut queue, "pay", "p22", NoticeEvent::Reminded);
    push(&mut queue, "pay", "p22", NoticeEvent::Taken);
    push(&mut queue, "pay", "p3", NoticeEvent::Taken);
    let mut settled = BTreeMap::new();
    let mut kinds = Vec::new();
    for now in [at(0), at(0), at(60)] {
        let begun: Vec<_> = std::iter::from_fn(|| queue.begin_next(now)).collect();
        for start in begun {
            kinds.extend(start.addressed.notice.kind.clone());
            let Finished::Settled { keys, dead: None } = queue.finish(&start.lane, Ok(()), now) else { unreachable!() };
            settled.insert(run_and_event(&start), keys.len());
        }
    }
    let taken = |object: &str| settled[&(object.to_owned(), NoticeEvent::Taken)];
    assert_eq!((taken("p22"), taken("p3"), kinds), (3, 1, vec!["2 more wait".to_owned()]));
    assert!(queue.is_empty());
}

#[test]
fn window_without_open_requests_sends_no_summary() {
    let mut queue = Queue::new(Limits { at_once: 200, ..Limits::default() }, Some(None));
    for n in 0..21 {
        push(&mut queue, "pay", &format!("p{n}"), NoticeEvent::Asked);
    }
    push(&mut queue, "pay", "p20", NoticeEvent::Taken);
    while let Some(start) = queue.begin_next(at(60)) {
        assert!(start.addressed.notice.approval.is_some(), "{start:?}");
        queue.finish(&start.lane, Ok(()), at(60));
    }
    assert!(queue.is_empty());
}

#[test]
fn delivery_without_an_attempt_is_given_up_after_a_day() {
    let mut queue = queue();
    for n in 0..100 {
        push(&mut queue, "pay", &format!("a{n}"), NoticeEvent::Asked);
    }
    push(&mut queue, "pay", "a99", NoticeEvent::Taken);
    let (mut now, day) = (at(0), at(0).after(GIVEN_UP));
    let mut failed = BTreeSet::new();
    while now < day {
        while let Some(start) = queue.begin_next(now) {
            failed.insert(run_and_event(&start).0);
            queue.finish(&start.lane, later(Some(3600)), now);
        }
        assert!(queue.expire(now).is_empty(), "not before a day has passed");
        now = queue.wake_at(now).unwrap();
    }
    assert!(failed.len() < 90 && queue.len() == 101, "{} were attempted", failed.len());
    let recent = addressed("pay", "recent", NoticeEvent::Asked, "alice");
    queue.push(recent.clone(), at(0), day);
    let expired = queue.expire(day);
    assert_eq!(expired.len(), 100, "all but the one that waits for its next attempt");
    assert!(expired.iter().all(|one| one.keys.len() == 1));
    assert_eq!(queue.len(), 102 - expired.len());
    assert!(
        queue.has_lane(&LaneId::new(&recent.notice.correlation, recent.to.clone())),
        "this process took it just now"
    );
    assert!(queue.expire(day).is_empty());
    // The remaining deliveries can still be sent.
    let mut now = day.after(LONGEST_PAUSE);
    while !queue.is_empty() {
        match queue.begin_next(now) {
            Some(start) => drop(queue.finish(&start.lane, Ok(()), now)),
            None => now = queue.wake_at(now).unwrap(),
        }
    }
}

/// A step of a random sequence: a new notice, an attempt with its result, or a wait.
#[derive(Clone, Debug)]
enum Step {
    Push { namespace: usize, object: usize, person: usize },
    Attempt { result: u8 },
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (0..3_usize, 0..4_usize, 0..3_usize).prop_map(|(namespace, object, person)| Step::Push {
        namespace,
        object,
        person,
    });
    let attempt = (0..10_u8).prop_map(|result| Step::Attempt { result });
    proptest::collection::vec(prop_oneof![4 => push, 6 => attempt, 1 => Just(Step::Wait)], 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_notice_is_settled_once_and_in_order_in_any_sequence(steps in steps()) {
        let mut queue = queue();
        let (mut now, mut pushed, mut in_flight) = (at(0), Vec::new(), VecDeque::new());
        let mut settled: Vec<DeliveryKey> = Vec::new();
        let mut apply = |queue: &mut Queue, start: Start, result, now| {
            if let Finished::Settled { keys, .. } = queue.finish(&start.lane, result, now) {
                settled.extend(keys);
            }
        };
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push { namespace, object, person } => {
                    let object = format!("n{namespace}-o{object}");
                    let mut one = addressed(&format!("n{namespace}"), &object, NoticeEvent::Reminded, &format!("p{person}"));
                    let id = crate::routes::notice_id(&object, &number.to_string());
                    one.notice = Arc::new(Notice { id, ..Notice::clone(&one.notice) });
                    pushed.push((object, person, one.key()));
                    prop_assert!(queue.push(one, now, now).is_empty());
                }
                Step::Attempt { result } => {
                    in_flight.extend(queue.begin_next(now));
                    prop_assert!(in_flight.len() <= 8);
                    let Some(start) = in_flight.pop_front() else { continue };
                    let result = match result {
                        0..3 => later(None),
                        3 => Err(SendError::Dead { why: String::new() }),
                        _ => Ok(()),
                    };
                    apply(&mut queue, start, result, now);
                }
                Step::Wait => now = queue.wake_at(now).map_or(now, |at| at.max(now)),
            }
        }
        while !queue.is_empty() {
            in_flight.extend(queue.begin_next(now));
            match in_flight.pop_front() {
                Some(start) => apply(&mut queue, start, Ok(()), now),
                None => now = queue.wake_at(now).unwrap(),
            }
        }
        prop_assert_eq!(settled.len(), pushed.len());
        for (object, person, _) in &pushed {
            let expected: Vec<_> = pushed.iter().filter(|(o, p, _)| (o, p) == (object, person)).map(|(.., key)| key).collect();
            let found: Vec<_> = settled.iter().filter(|key| expected.contains(key)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
