//! Notices of the real operator on the simulator's clock: which users get which notices, through every death, and their
//! cost for the API server. The rules of queues and marks alone are tested in `operator/notify`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use signoff_notify::{NoticeEvent, Recipient};
use signoff_tests::sim::{ApiServer, Crash, Entry, Fault, On, Request, Resource, Verb};
use tokio::time::Instant;

use crate::{
    harness::{Harness, NAMESPACE, OPERATOR, condition, workflows},
    people::{name, verdict},
    receivers::{Reception, user},
    scenarios::{ONE_GATE, RUN, chain, gate, set},
    two_operators::{BOTH, cut_off},
};

/// The seconds after which every delivery is also stored.
const UNTIL_STORED: u64 = 120;
/// The seconds after which an operator that was cut off has received and stored all later events.
const UNTIL_HEARD: u64 = 900;

/// Returns a run whose gate waits for four days.
fn run_of_four_days() -> Value {
    chain(json!([gate("review", json!({"timeout": {"after": "96h"}})), set("send", "sent")]))
}

/// Returns the events that each user of each channel got, in order, without repetitions.
fn received_events(harness: &Harness) -> BTreeMap<(String, String), Vec<NoticeEvent>> {
    let mut received: BTreeMap<_, Vec<NoticeEvent>> = BTreeMap::new();
    let mut known = Vec::new();
    for arrival in harness.receivers().arrived() {
        let identity = (arrival.channel.clone(), arrival.to.clone(), arrival.notice.id.clone());
        if !known.contains(&identity) {
            known.push(identity);
            let (channel, user, event) = arrival.line();
            received.entry((channel.to_owned(), user.to_owned())).or_default().push(event);
        }
    }
    // The end of a run belongs to another object, so it has no order with the notices of the run's gates.
    received.values_mut().for_each(|events| events.sort_by_key(|event| *event == NoticeEvent::Ended));
    received
}

/// Returns the expected events of one run with one gate, for a webhook, two approvers and the requester. `requests`:
/// the number of Approvals of the gate, of which there are several after another operator has taken over.
fn events_of_one_gate(requests: usize) -> BTreeMap<(String, String), Vec<NoticeEvent>> {
    use NoticeEvent::{Asked, Ended, Taken};
    let recipients: [(&str, &str, &[NoticeEvent]); 4] = [
        ("hook", "", &[Asked, Taken, Ended]),
        ("mail", "alice", &[Asked, Taken]),
        ("mail", "bob", &[Asked, Taken]),
        ("mail", "dana", &[Taken, Ended]),
    ];
    let repeated = |events: &[NoticeEvent]| {
        let times = |event: NoticeEvent| if event == Ended { 1 } else { requests };
        events.iter().flat_map(|event| vec![*event; times(*event)]).collect()
    };
    recipients.map(|(channel, user, events)| ((channel.to_owned(), user.to_owned()), repeated(events))).into()
}

/// Checks the notices of one run with one gate, each once. The receivers check the order of each request.
fn check_one_gate(harness: &Harness, is_taken_over: bool, what: &str) {
    let requests = harness.approvals().len();
    assert!(requests == 1 || is_taken_over, "{what}: {}", harness.server.story());
    let mut received = received_events(harness);
    received.values_mut().for_each(|events| events.sort_unstable());
    assert_eq!(received, events_of_one_gate(requests), "{what}: {}", harness.server.story());
}

/// Plays one run with one gate through all deaths of its operators. Returns the number of deaths.
async fn play_one_gate(what: &str, actors: &[&str], disturb: impl FnOnce(&Harness)) -> usize {
    play_gate(what, actors, actors.len() > 1, disturb).await
}

/// Plays one run with one gate as [`play_one_gate`] does; `asks_again`: whether the gate may have several Approvals.
async fn play_gate(what: &str, actors: &[&str], asks_again: bool, disturb: impl FnOnce(&Harness)) -> usize {
    let harness = Harness { lease: actors.len() > 1, ..Harness::with_notices(&["hook", "mail"]) };
    harness.apply(RUN, &(ONE_GATE.spec)());
    disturb(&harness);
    tokio::spawn((ONE_GATE.people)(harness.people()));
    let until_stored = async {
        harness.wait_for_end(RUN).await;
        harness.pass(if asks_again { UNTIL_HEARD } else { UNTIL_STORED }).await;
    };
    let ((), deaths) = harness.keep_alive(actors, until_stored).await;
    harness.receivers().check(what);
    check_one_gate(&harness, asks_again, what);
    deaths
}

#[tokio::test(start_paused = true)]
async fn each_recipient_gets_each_notice_of_a_gate_once() {
    assert_eq!(play_one_gate("no death", &[OPERATOR], |_| {}).await, 0);
}

#[tokio::test(start_paused = true)]
async fn people_of_an_escalation_get_notices_from_their_level_on() {
    use NoticeEvent::{Asked, Ended, Escalated, Reminded, Taken};
    let timeout = json!({
        "after": "60s", "action": "Escalate", "reminderInterval": "20s", "maxReminders": 1,
        "escalation": [{"after": "60s", "to": [{"kind": "User", "name": "olga"}]}],
    });
    let harness = Harness::with_notices(&["hook", "mail"]);
    harness.apply(RUN, &chain(json!([gate("review", json!({"timeout": timeout})), set("send", "sent")])));
    let _life = harness.begin(OPERATOR);
    harness.people().decide("olga", "review", 90, verdict("Approve")).await;
    harness.wait_for_end(RUN).await;
    harness.pass(UNTIL_STORED).await;
    harness.receivers().check("an escalation");
    let received = received_events(&harness);
    let events = |channel: &str, user: &str| received[&(channel.to_owned(), user.to_owned())].clone();
    assert_eq!(events("hook", ""), [Asked, Reminded, Escalated, Reminded, Taken, Ended]);
    assert_eq!(events("mail", "alice"), [Asked, Reminded, Reminded, Taken]);
    assert_eq!(events("mail", "olga"), [Escalated, Reminded, Taken]);
    assert_eq!(events("mail", "dana"), [Taken, Ended]);
}

#[tokio::test(start_paused = true)]
async fn every_notice_arrives_when_the_operator_dies_at_any_write() {
    let mut points = 0;
    for crash in [Crash::Applied, Crash::NotApplied] {
        for n in 1.. {
            let set = |harness: &Harness| harness.server.crash_at_write(n, OPERATOR, crash);
            if play_one_gate(&format!("{crash:?} at write {n}"), &[OPERATOR], set).await == 0 {
                break;
            }
            points += 1;
        }
    }
    assert!(points > 10, "only {points} writes");
    signoff_tests::tried(points, "writes at which an operator with notices dies");
}

#[tokio::test(start_paused = true)]
async fn every_notice_arrives_when_the_operator_dies_at_any_notice() {
    for dies in [Reception::DiesBefore, Reception::DiesAfter] {
        for n in 1.. {
            let set = |harness: &Harness| {
                harness.receivers().answer(move |attempt| if attempt.number == n { dies } else { Reception::Taken });
            };
            let deaths = play_one_gate(&format!("{dies:?} at notice {n}"), &[OPERATOR], set).await;
            if deaths == 0 {
                assert!(n > 9, "each of nine notices");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_notice_arrives_when_the_lease_holder_dies_at_any_write() {
    for crash in [Crash::Applied, Crash::NotApplied] {
        for n in 1.. {
            let on = On::writes_of(BOTH.actors[0]).only(|request| request.resource.plural != "leases").nth(n);
            let set = |harness: &Harness| harness.server.fault(on, Fault::Crash(crash));
            let what = format!("{crash:?} at write {n}, of two operators");
            if play_one_gate(&what, BOTH.actors, set).await == 0 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_notice_of_the_second_operator_has_the_same_id() {
    for n in 1..=6 {
        for applied in [true, false] {
            let harness = Harness { lease: true, ..Harness::with_notices(&["hook", "mail"]) };
            harness.apply(RUN, &(ONE_GATE.spec)());
            cut_off(&harness, n, applied);
            tokio::spawn((ONE_GATE.people)(harness.people()));
            let until_stored = async {
                harness.wait_for_end(RUN).await;
                harness.pass(UNTIL_STORED).await;
            };
            harness.keep_alive(BOTH.actors, until_stored).await;
            let what = format!("cut off at write {n}, applied: {applied}");
            check_one_gate(&harness, true, &what);
            let mut times: BTreeMap<_, usize> = BTreeMap::new();
            for arrival in harness.receivers().arrived() {
                *times.entry((arrival.channel, arrival.to, arrival.notice.id.clone())).or_default() += 1;
            }
            assert!(times.values().all(|times| *times <= 2), "{what}: each at most twice: {times:?}");
        }
    }
}

/// Loses the answer to a write, and then every request and watch of the operator for some seconds.
fn lose_answer(harness: &Harness, write: u64, seconds: u64) {
    let lost: Arc<OnceLock<Instant>> = Arc::default();
    let (begins, is_away) = (Arc::clone(&lost), lost);
    harness.server.fault(On::writes_of(OPERATOR).nth(write), Fault::LoseResponse);
    let leave = move |server: &ApiServer| {
        begins.get_or_init(Instant::now);
        server.drop_watches(OPERATOR);
    };
    harness.server.fault(On::writes_of(OPERATOR).nth(write), Fault::before(leave));
    let away = Duration::from_secs(seconds);
    let is_away = move |_: &Request| is_away.get().is_some_and(|begin| begin.elapsed() < away);
    harness.server.fault(On::requests_of(OPERATOR).only(is_away), Fault::Reset);
}

#[tokio::test(start_paused = true)]
async fn every_notice_arrives_when_an_answer_is_lost_before_an_outage() {
    for seconds in [0, 90, 600] {
        for n in 1..=12 {
            let what = format!("answer {n} lost, away {seconds} s");
            play_gate(&what, &[OPERATOR], seconds > 0, |harness| lose_answer(harness, n, seconds)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_event_is_notified_when_other_notices_arrive_in_an_outage() {
    let pause = gate("pause", json!({"timeout": {"after": "96h"}}));
    for n in 1..=16 {
        let harness = Harness::with_notices(&["hook"]);
        harness.apply("other", &chain(json!([pause, set("send", "sent")])));
        harness.apply(RUN, &(ONE_GATE.spec)());
        lose_answer(&harness, n, 90);
        // The notice of the other run arrives about 70 seconds later, when the state cannot be stored.
        let others = AtomicUsize::new(0);
        harness.receivers().answer(move |attempt| {
            let is_busy = attempt.notice.run == "other" && others.fetch_add(1, Ordering::Relaxed) < 6;
            if is_busy { Reception::Busy } else { Reception::Taken }
        });
        tokio::spawn((ONE_GATE.people)(harness.people()));
        let until_stored = async {
            harness.wait_for_end(RUN).await;
            harness.pass(UNTIL_HEARD).await;
        };
        harness.keep_alive(&[OPERATOR], until_stored).await;
        let arrived = harness.receivers().arrived().into_iter();
        let events: BTreeSet<_> =
            arrived.filter(|arrival| arrival.notice.run == RUN).map(|arrival| arrival.notice.event).collect();
        let expected = BTreeSet::from([NoticeEvent::Asked, NoticeEvent::Taken, NoticeEvent::Ended]);
        assert_eq!(events, expected, "answer {n} lost: {}", harness.server.story());
    }
}

#[tokio::test(start_paused = true)]
async fn a_recipient_that_fails_for_a_day_does_not_repeat_other_notices() {
    let harness = Harness::with_notices(&["mail"]);
    let is_alice = |to: &Recipient| user(to) == "alice";
    harness.receivers().answer(move |attempt| if is_alice(attempt.to) { Reception::Busy } else { Reception::Taken });
    let mut life = harness.begin(OPERATOR);
    for hour in (0..26_u64).step_by(2) {
        harness.apply(&format!("r{hour}"), &run_of_four_days());
        // Each operator dies at another time after the request.
        harness.server.clock().pass(Duration::from_millis(10 + 137 * hour)).await;
        life.crash().await;
        life = harness.begin(OPERATOR);
        harness.server.clock().pass(Duration::from_millis(7_199_990 - 137 * hour)).await;
    }
    harness.receivers().check("alice is refused");
    let runs_of = |wanted: &str| {
        let arrived = harness.receivers().arrived().into_iter();
        let mut runs: Vec<_> =
            arrived.filter(|arrival| user(&arrival.to) == wanted).map(|arrival| arrival.notice.run).collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    };
    assert_eq!((runs_of("alice").len(), runs_of("bob").len()), (0, 13), "each but alice's");
    harness.receivers().heal();
    harness.pass(3 * 3600).await;
    let late = runs_of("alice");
    assert!(!late.contains(&"r0".to_owned()), "given up after a day, whatever died meanwhile");
    assert!((4..26).step_by(2).all(|hour| late.contains(&format!("r{hour}"))), "{late:?}");
    assert_eq!(harness.metric("signoff_notices_waiting{channel=\"mail\"}"), 0);
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_gets_all_notices_in_order_after_an_hour_of_failures() {
    let harness = Harness::with_notices(&["hook"]);
    harness.receivers().answer(|_| Reception::Busy);
    let life = harness.begin(OPERATOR);
    let runs: Vec<_> = (0..20).map(|number| format!("r{number}")).collect();
    runs.iter().for_each(|run| drop(harness.apply(run, &(ONE_GATE.spec)())));
    harness.pass(10).await;
    assert_eq!(harness.approvals().len(), 20);
    harness.approvals().iter().for_each(|asked| harness.people().vote("alice", &name(asked), verdict("Approve")));
    harness.pass(10).await;
    for run in &runs {
        assert_eq!(harness.wait_for_end(run).await["status"]["phase"], "Succeeded", "no run waits for its notices");
    }
    harness.pass(3580).await;
    assert!(harness.receivers().attempts() < 20 * 60, "a receiver that is away is not stormed");
    harness.receivers().heal();
    harness.pass(2 * 3600).await;
    let arrived = harness.receivers().arrived();
    harness.receivers().check("away for an hour");
    assert_eq!(arrived.len(), 20 * 3, "each once");
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_notified_after_the_run_has_committed_it() {
    for crash in [Crash::Applied, Crash::NotApplied] {
        for n in 1..=12 {
            let set = |harness: &Harness| {
                harness.server.crash_at_write(n, OPERATOR, crash);
                let server = harness.server.clone();
                harness.receivers().answer(move |attempt| {
                    if attempt.notice.event == NoticeEvent::Taken {
                        let run = server.value(&workflows(), NAMESPACE, RUN).unwrap_or_default();
                        let steps = run["status"]["steps"].as_array().cloned().unwrap_or_default();
                        let is_taken = |step: &Value| {
                            step["object"].as_str() == attempt.notice.approval.as_deref() && !step["decision"].is_null()
                        };
                        assert!(steps.iter().any(is_taken), "told before its commit: {run}");
                    }
                    Reception::Taken
                });
            };
            play_one_gate(&format!("{crash:?} at write {n}"), &[OPERATOR], set).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn notices_cost_a_gate_no_state_writes_and_an_idle_operator_no_requests() {
    let harness = Harness::with_notices(&["hook", "mail"]);
    let life = harness.begin(OPERATOR);
    harness.apply(RUN, &(ONE_GATE.spec)());
    (ONE_GATE.people)(harness.people()).await;
    harness.wait_for_end(RUN).await;
    harness.pass(UNTIL_STORED).await;
    let is_of_notices = |entry: &Entry| entry.resource.plural == "configmaps";
    let states = harness.server.count(|entry| entry.is_state_write() && !is_of_notices(entry));
    assert!(states <= 4, "{states} state writes:\n{}", harness.server.story());
    let marks = harness.server.count(|entry| entry.is_state_write() && is_of_notices(entry));
    assert!((1..=8).contains(&marks), "{marks} writes of marks:\n{}", harness.server.story());
    harness.apply("waits", &run_of_four_days());
    harness.pass(UNTIL_STORED).await;
    let before = harness.server.log().len();
    harness.pass(24 * 3600).await;
    let log = harness.server.log();
    let asked: Vec<_> = log[before..].iter().filter(|entry| entry.verb != Verb::Watch).map(Entry::line).collect();
    assert!(asked.is_empty(), "{asked:#?}");
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_notices_does_not_delay_another() {
    let harness = Harness::with_notices(&["hook"]);
    harness.receivers().take(Duration::from_secs(1));
    let life = harness.begin(OPERATOR);
    for number in 0..300 {
        harness.apply_in("flood", &format!("r{number}"), &run_of_four_days());
    }
    harness.pass(5).await;
    let begin = harness.server.clock().now();
    harness.apply_in("other", "one", &run_of_four_days());
    harness.pass(10).await;
    let arrived = harness.receivers().arrived();
    let of_flood = arrived.iter().filter(|arrival| arrival.notice.namespace == "flood").count();
    assert!(of_flood < 200, "the flood is over too soon: {of_flood}");
    let other = arrived.iter().find(|arrival| arrival.notice.namespace == "other").expect("it was told");
    let after = other.at.timestamp().duration_since(begin);
    assert!(after.as_millis() <= 3000, "{after:#}: an attempt in flight, its turn and its own attempt");
    life.crash().await;
}

/// Returns the condition `Notified` of the only Approval.
fn notified_condition(harness: &Harness) -> (String, String) {
    condition(&harness.approval(), "Notified")
}

fn absent_condition() -> (String, String) {
    (String::new(), String::new())
}

#[tokio::test(start_paused = true)]
async fn a_failing_channel_is_reported_on_the_approval_until_it_delivers() {
    for crashes in [false, true] {
        let harness = Harness::with_notices(&["hook"]);
        harness.receivers().answer(|_| Reception::Busy);
        let mut life = harness.begin(OPERATOR);
        harness.apply(RUN, &run_of_four_days());
        harness.people().wait_for_gate("review").await;
        harness.pass(55).await;
        assert_eq!(notified_condition(&harness), absent_condition(), "not before a minute has passed");
        harness.pass(10).await;
        let not_delivered = ("False".to_owned(), "NotDelivered".to_owned());
        assert_eq!(notified_condition(&harness), not_delivered, "{}", harness.server.story());
        let text = harness.approval().to_string();
        assert!(text.contains("channel hook: not delivered, and tried again: busy"), "{text}");
        harness.pass(1800).await;
        let of_approvals = |entry: &Entry| entry.is_state_write() && entry.resource.plural == "approvals";
        let writes = harness.server.count(of_approvals);
        if crashes {
            life.crash().await;
            life = harness.begin(OPERATOR);
            harness.pass(120).await;
            assert_eq!(notified_condition(&harness), not_delivered, "the next operator keeps what still applies");
            assert_eq!(harness.server.count(of_approvals), writes, "{}", harness.server.story());
        }
        harness.receivers().heal();
        harness.pass(2 * 3600).await;
        assert_eq!(harness.receivers().arrived().len(), 1, "it was delivered");
        assert_eq!(notified_condition(&harness), absent_condition(), "crashes: {crashes}: {}", harness.server.story());
        assert_eq!(harness.server.count(of_approvals), writes + 1, "one write takes the condition away");
        harness.people().vote("alice", &name(&harness.approval()), verdict("Approve"));
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_notice_is_reported_at_once_and_until_the_outcome() {
    let harness = Harness::with_notices(&["hook"]);
    harness.receivers().answer(|_| Reception::Refused);
    let life = harness.begin(OPERATOR);
    harness.apply(RUN, &run_of_four_days());
    harness.people().wait_for_gate("review").await;
    harness.pass(2).await;
    assert_eq!(notified_condition(&harness), ("False".to_owned(), "GivenUp".to_owned()), "{}", harness.server.story());
    assert_eq!(harness.receivers().attempts(), 1, "it is not tried again");
    harness.people().vote("alice", &name(&harness.approval()), verdict("Approve"));
    harness.wait_for_end(RUN).await;
    harness.pass(10).await;
    assert_eq!(notified_condition(&harness), absent_condition());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn notices_of_a_deleted_run_are_dropped_and_counted() {
    let harness = Harness::with_notices(&["hook"]);
    harness.receivers().answer(|_| Reception::Busy);
    let life = harness.begin(OPERATOR);
    harness.apply(RUN, &run_of_four_days());
    harness.people().wait_for_gate("review").await;
    // The mark stays a minute behind the open requests.
    harness.pass(UNTIL_STORED).await;
    life.crash().await;
    assert!(harness.server.remove(&workflows(), NAMESPACE, RUN));
    harness.receivers().heal();
    let life = harness.begin(OPERATOR);
    harness.pass(UNTIL_STORED).await;
    assert!(harness.receivers().arrived().is_empty());
    assert_eq!(harness.metric("signoff_notices_total{channel=\"hook\",result=\"lost\"}"), 1);
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_is_deleted_after_its_notices_or_at_most_ten_minutes_later() {
    for is_away in [false, true] {
        let harness = Harness::with_notices(&["hook"]);
        harness.receivers().answer(|_| Reception::Busy);
        let life = harness.begin(OPERATOR);
        let mut spec = chain(json!([set("send", "sent")]));
        spec["ttlAfterFinished"] = json!("1m");
        harness.apply(RUN, &spec);
        harness.wait_for_end(RUN).await;
        harness.pass(300).await;
        assert!(harness.server.value(&workflows(), NAMESPACE, RUN).is_some(), "it waits for its notice");
        if !is_away {
            harness.receivers().heal();
        }
        harness.pass(420).await;
        assert!(harness.server.value(&workflows(), NAMESPACE, RUN).is_none(), "away: {is_away}");
        assert_eq!(harness.receivers().arrived().is_empty(), is_away);
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_author_can_add_only_channels_that_allow_it() {
    let harness = Harness::with_notices(&["finance", "hook"]);
    let life = harness.begin(OPERATOR);
    let timeout = json!({"after": "96h"});
    let review = gate("review", json!({"timeout": timeout, "notify": ["finance"]}));
    harness.apply(RUN, &chain(json!([review, set("send", "sent")])));
    harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    let received = received_events(&harness);
    let channels: Vec<_> = received.keys().map(|(channel, _)| channel.as_str()).collect();
    assert_eq!(channels, ["finance", "hook"]);
    assert_eq!(notified_condition(&harness), absent_condition());
    let review = gate("review", json!({"timeout": timeout, "notify": ["hook"]}));
    let server = &harness.server;
    harness.apply_in("further", "second", &chain(json!([review, set("send", "sent")])));
    harness.pass(10).await;
    let refused = server.values(&Resource::new("signoff.dev", "approvals"), Some("further")).remove(0);
    let expected = ("False".to_owned(), "ChannelNotAllowed".to_owned());
    assert_eq!(condition(&refused, "Notified"), expected, "a route is no permission of authors");
    life.crash().await;
}

/// The state of notices is lost or cannot be read: the operator works, and notifies of new events.
#[tokio::test(start_paused = true)]
async fn an_operator_notifies_of_new_events_without_its_stored_state() {
    let harness = Harness::with_notices(&["hook"]);
    let is_of_notices = |request: &Request| request.resource.plural == "configmaps";
    harness.server.fault(On::requests_of(OPERATOR).only(is_of_notices), Fault::Reset);
    harness.apply(RUN, &(ONE_GATE.spec)());
    tokio::spawn((ONE_GATE.people)(harness.people()));
    let life = harness.begin(OPERATOR);
    harness.wait_for_end(RUN).await;
    harness.pass(UNTIL_STORED).await;
    let events: Vec<_> = harness.receivers().arrived().iter().map(|arrival| arrival.notice.event).collect();
    assert_eq!(events, [NoticeEvent::Asked, NoticeEvent::Taken, NoticeEvent::Ended]);
    let marks = harness.server.writes().iter().filter(|entry| entry.resource.plural == "configmaps").count();
    assert_eq!(marks, 0, "nothing is written over a state that was not read");
    life.crash().await;
}
