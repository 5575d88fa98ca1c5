//! Two operators and one Lease: whichever dies, is cut off or sleeps, and whenever, a run ends as with one operator.
//! One operator alone is tested in `crash_at_every_step`.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use signoff_tests::sim::{Answer, ApiServer, Crash, EffectCrash, Fault, On, Request};

use crate::{
    disturbances,
    harness::Harness,
    scenario_runner::{ALONE, Endings, PlaySettings},
    scenarios::{ONE_GATE, PAYMENT, PAYMENT_OR_NOT, RUN, Scenario},
};

/// Two operators that share a Lease.
pub const BOTH: PlaySettings = PlaySettings { actors: &["operator-a", "operator-b"], lease: true, ..ALONE };
const FIRST: &str = BOTH.actors[0];
const SECOND: &str = BOTH.actors[1];

fn writes(actor: &str) -> On {
    On::writes_of(actor).only(|request| request.resource.plural != "leases")
}

/// Cuts the first operator off from the API server at its n-th write. The operator lives on, and its answer to that
/// write is lost.
pub fn cut_off(harness: &Harness, n: u64, applied: bool) {
    let cut = Arc::new(AtomicBool::new(false));
    let (is_cut, cuts) = (Arc::clone(&cut), cut);
    harness.server.fault(writes(FIRST).nth(n), if applied { Fault::LoseResponse } else { Fault::Reset });
    let sever = move |server: &ApiServer| {
        cuts.store(true, Ordering::Relaxed);
        server.drop_watches(FIRST);
    };
    harness.server.fault(writes(FIRST).nth(n), Fault::before(sever));
    harness.server.fault(On::requests_of(FIRST).only(move |_| is_cut.load(Ordering::Relaxed)), Fault::Reset);
}

/// Checks a scenario with two operators. Returns the number of deaths.
async fn check_both(scenario: &Scenario, endings: &Endings, what: &str, disturb: impl FnOnce(&Harness)) -> usize {
    endings.check(scenario, BOTH, what, disturb).await
}

#[tokio::test(start_paused = true)]
async fn the_second_operator_continues_wherever_the_lease_holder_dies() {
    for scenario in [&ONE_GATE, &PAYMENT, &PAYMENT_OR_NOT] {
        let endings = Endings::of(scenario).await;
        check_both(scenario, &endings, "both live", |_| {}).await;
        for crash in [Crash::NotApplied, Crash::Applied, Crash::AppliedAfter(Duration::from_secs(40))] {
            for n in 1.. {
                let set = |harness: &Harness| harness.server.fault(writes(FIRST).nth(n), Fault::Crash(crash));
                if check_both(scenario, &endings, &format!("{crash:?} at write {n}"), set).await == 0 {
                    break;
                }
            }
        }
        for crash in [EffectCrash::NotDone, EffectCrash::Done] {
            for n in 1.. {
                let set = |harness: &Harness| harness.world.crash_at_effect(n, FIRST, crash);
                if check_both(scenario, &endings, &format!("{crash:?} at effect {n}"), set).await == 0 {
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_cut_off_stops_before_the_other_one_begins() {
    for scenario in [&ONE_GATE, &PAYMENT, &PAYMENT_OR_NOT] {
        let endings = Endings::of(scenario).await;
        for n in 1..=8 {
            for applied in [true, false] {
                let set = |harness: &Harness| cut_off(harness, n, applied);
                check_both(scenario, &endings, &format!("cut off at write {n}, applied: {applied}"), set).await;
            }
        }
    }
}

/// Cuts an operator off for some seconds, from its n-th write on.
fn cut_off_for(harness: &Harness, operator: &'static str, n: u64, seconds: u64) {
    let from = Arc::new(Mutex::new(None));
    let (clock, begins, away) = (harness.server.clock(), Arc::clone(&from), from);
    let begin = move |server: &ApiServer| {
        begins.lock().unwrap().get_or_insert_with(|| server.clock().now());
        server.drop_watches(operator);
    };
    harness.server.fault(writes(operator).nth(n), Fault::before(begin));
    let is_away = move |_: &Request| {
        let from = *away.lock().unwrap();
        from.is_some_and(|from| clock.now().duration_since(from).as_secs() < seconds.cast_signed())
    };
    harness.server.fault(On::requests_of(operator).only(is_away), Fault::Reset);
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_the_same_after_outages_of_every_length() {
    for scenario in [&ONE_GATE, &PAYMENT, &PAYMENT_OR_NOT] {
        let endings = Endings::of(scenario).await;
        for n in 1..=8 {
            for (first, second) in [(2, 0), (8, 0), (12, 30), (17, 0), (17, 17), (120, 0), (120, 40), (1000, 300)] {
                let set = |harness: &Harness| {
                    cut_off_for(harness, FIRST, n, first);
                    cut_off_for(harness, SECOND, 1, second);
                };
                let case = format!("away for {first} s from write {n}, the other one for {second} s");
                check_both(scenario, &endings, &case, set).await;
            }
        }
    }
}

/// An outage of the API server itself: both operators see it, and the holder of the Lease stays the same.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_api_server_loses_no_call_in_flight() {
    for seconds in [8, 17, 120, 1000] {
        let harness = Harness { lease: true, ..Harness::new() };
        (PAYMENT.world)(&harness.world);
        harness.world.answers("refund/pay", Answer::value("receipt 7").after(Duration::from_secs(seconds.min(40) / 2)));
        harness.apply(RUN, &(PAYMENT.spec)());
        let is_away = Arc::new(AtomicBool::new(false));
        let away = Arc::clone(&is_away);
        let people = async {
            harness.people().decide("alice", "review", 30, json!({"verdict": "Approve"})).await;
            harness.world.until(|world| world.times("refund/pay") == 1).await;
            is_away.store(true, Ordering::Relaxed);
            BOTH.actors.iter().for_each(|actor| harness.server.drop_watches(actor));
            harness.pass(seconds).await;
            is_away.store(false, Ordering::Relaxed);
            harness.wait_for_end(RUN).await
        };
        for actor in BOTH.actors {
            let away = Arc::clone(&away);
            harness.server.fault(On::requests_of(actor).only(move |_| away.load(Ordering::Relaxed)), Fault::Reset);
        }
        let (run, deaths) = harness.keep_alive(BOTH.actors, people).await;
        assert_eq!(
            (&run["status"]["phase"], deaths),
            (&json!("Succeeded"), 0),
            "{seconds}: {}",
            harness.server.story()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_the_same_when_both_operators_die() {
    let endings = Endings::of(&PAYMENT).await;
    for n in 1..=6 {
        for m in 1..=4 {
            let set = |harness: &Harness| {
                harness.server.fault(writes(FIRST).nth(n), Fault::Crash(Crash::Applied));
                harness.server.fault(writes(SECOND).nth(m), Fault::Crash(Crash::NotApplied));
            };
            check_both(&PAYMENT, &endings, &format!("a dies at write {n}, b at {m}"), set).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_operators_survive_every_disturbance() {
    let endings = Endings::of(&PAYMENT).await;
    for (index, (disturbed, disturb)) in disturbances::ALL.into_iter().enumerate() {
        let set = |harness: &Harness| {
            disturb(&harness.server);
            harness.server.fault(writes(FIRST).nth(index as u64 % 6 + 1), Fault::Crash(Crash::Applied));
        };
        check_both(&PAYMENT, &endings, disturbed, set).await;
    }
}
