//! Two operators and one Lease: whichever dies, is cut off or sleeps, and whenever, a run is as it is with one.
//! Nothing here has only one operator; what one does alone is in `crash_at_every_step`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use signoff_tests::sim::{ApiServer, Crash, EffectCrash, Fault, On};

use crate::{
    disturbances,
    harness::Harness,
    scenario_runner::{ALONE, Endings, Telling},
    scenarios::{ONE_GATE, PAYMENT, PAYMENT_OR_NOT, Scenario},
};

/// Two that share a Lease.
pub const BOTH: Telling = Telling { actors: &["operator-a", "operator-b"], lease: true, ..ALONE };
const FIRST: &str = BOTH.actors[0];
const SECOND: &str = BOTH.actors[1];

fn writes(actor: &str) -> On {
    On::writes_of(actor).only(|request| request.resource.plural != "leases")
}

/// At its n-th write, which is applied or not, the first one is cut off: it lives on and can do anything but reach the API
/// server.
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

async fn tell_of_both(scenario: &Scenario, endings: &Endings, what: &str, disturb: impl FnOnce(&Harness)) -> usize {
    endings.check(scenario, BOTH, what, disturb).await
}

#[tokio::test(start_paused = true)]
async fn wherever_the_holder_of_the_lease_dies_the_other_one_goes_on() {
    for scenario in [&ONE_GATE, &PAYMENT, &PAYMENT_OR_NOT] {
        let endings = Endings::of(scenario).await;
        tell_of_both(scenario, &endings, "both live", |_| {}).await;
        for crash in [Crash::NotApplied, Crash::Applied, Crash::AppliedAfter(Duration::from_secs(40))] {
            for n in 1.. {
                let set = |harness: &Harness| harness.server.fault(writes(FIRST).nth(n), Fault::Crash(crash));
                if tell_of_both(scenario, &endings, &format!("{crash:?} at write {n}"), set).await == 0 {
                    break;
                }
            }
        }
        for crash in [EffectCrash::NotDone, EffectCrash::Done] {
            for n in 1.. {
                let set = |harness: &Harness| harness.world.crash_at_effect(n, FIRST, crash);
                if tell_of_both(scenario, &endings, &format!("{crash:?} at effect {n}"), set).await == 0 {
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
                tell_of_both(scenario, &endings, &format!("cut off at write {n}, applied: {applied}"), set).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn both_die_in_turn_and_the_run_ends_the_same() {
    let endings = Endings::of(&PAYMENT).await;
    for n in 1..=6 {
        for m in 1..=4 {
            let set = |harness: &Harness| {
                harness.server.fault(writes(FIRST).nth(n), Fault::Crash(Crash::Applied));
                harness.server.fault(writes(SECOND).nth(m), Fault::Crash(Crash::NotApplied));
            };
            tell_of_both(&PAYMENT, &endings, &format!("a dies at write {n}, b at {m}"), set).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_operators_survive_every_disturbance() {
    let endings = Endings::of(&PAYMENT).await;
    for (at, (disturbed, disturb)) in disturbances::ALL.into_iter().enumerate() {
        let set = |harness: &Harness| {
            disturb(&harness.server);
            harness.server.fault(writes(FIRST).nth(at as u64 % 6 + 1), Fault::Crash(Crash::Applied));
        };
        tell_of_both(&PAYMENT, &endings, disturbed, set).await;
    }
}
