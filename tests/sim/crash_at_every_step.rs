//! The operator dies at every write and at every effect in turn. Each run is compared with the one without failures,
//! and every law must hold. Nothing here is random.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Crash, EffectCrash, Fault, On, Turn};

use crate::{
    disturbances::{self, Disturbance},
    ending::{Ending, list},
    harness::{Harness, OPERATOR},
    scenario_runner::{ALONE, Endings, IN_SEGMENTS, PlaySettings, play},
    scenarios::{self, Scenario},
};

/// The ways in which an operator dies.
#[derive(Clone, Copy, Debug)]
pub enum Death {
    Write(Crash),
    Effect(EffectCrash),
    Turn(Turn),
}

const DEATHS: [Death; 5] = [
    Death::Write(Crash::NotApplied),
    Death::Write(Crash::Applied),
    Death::Write(Crash::AppliedAfter(Duration::from_secs(2))),
    Death::Effect(EffectCrash::NotDone),
    Death::Effect(EffectCrash::Done),
];

impl Death {
    /// Makes an operator die at its n-th write or effect from now, or at the n-th turn of a Pod. Renewals of its Lease
    /// do not count.
    pub fn set(self, harness: &Harness, operator: &'static str, n: u64) {
        match self {
            Self::Write(crash) => {
                let writes = On::writes_of(operator).only(|request| request.resource.plural != "leases");
                harness.server.fault(writes.nth(n), Fault::Crash(crash));
            }
            Self::Effect(crash) => harness.world.crash_at_effect(n, operator, crash),
            Self::Turn(turn) => harness.kubelet.when(turn, n, move |server| server.kill(operator)),
        }
    }
}

/// Checks a scenario with one operator at each of its deaths. `disturbance` returns the further failure of the n-th.
async fn check_every_death(scenario: &Scenario, disturbance: impl Fn(usize) -> Disturbance) {
    check_deaths(scenario, ALONE, disturbance).await;
}

/// Checks a scenario again for each point at which its operator can die, until there is none left.
async fn check_deaths(scenario: &Scenario, settings: PlaySettings, disturbance: impl Fn(usize) -> Disturbance) {
    let endings = Endings::of(scenario).await;
    for (index, death) in DEATHS.into_iter().enumerate() {
        for n in 1.. {
            let (disturbed, disturb) = disturbance(index + n as usize);
            let set = |harness: &Harness| {
                disturb(&harness.server);
                death.set(harness, OPERATOR, n);
            };
            if endings.check(scenario, settings, &format!("{disturbed}, {death:?} no. {n}"), set).await == 0 {
                break;
            }
        }
    }
}

/// Plays a scenario with deaths only, and again with one disturbance for each death, in turn.
async fn check_with_and_without_disturbances(scenario: &Scenario) {
    check_every_death(scenario, |_| disturbances::NONE).await;
    check_every_death(scenario, |n| disturbances::ALL[n % disturbances::ALL.len()]).await;
}

async fn check_every_disturbance(scenario: &Scenario, disturbances: &[Disturbance]) {
    for disturbance in disturbances {
        check_every_death(scenario, |_| *disturbance).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_scenario_has_its_outputs_without_failures() {
    let large = format!("{}, 2000", "ö".repeat(2000));
    let outputs = [
        json!("42 EUR: approved"),
        json!("receipt 7"),
        json!("approved"),
        json!("second, politer"),
        json!("{{ not.a.template }}"),
        json!("40 approved modified"),
        json!("1.08"),
        json!("the usual approved rejected"),
        json!(large),
        Value::Null,
        json!("answer of refund/pay"),
    ];
    for (scenario, outputs) in scenarios::ALL.into_iter().zip(outputs) {
        let Endings { undisturbed, lost } = Endings::of(scenario).await;
        let run = &undisturbed.0;
        let phase = if outputs.is_null() { "Cancelled" } else { "Succeeded" };
        assert_eq!((&run["phase"], &run["outputs"]), (&json!(phase), &outputs), "{}", scenario.name);
        let unknown = |ending: &Ending| list(&ending.0["steps"]).filter(|step| step["phase"] == "Unknown").count();
        assert_eq!((unknown(&undisturbed), lost.iter().all(|lost| unknown(lost) == 1)), (0, true), "{}", scenario.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_one_gate_ends_the_same_wherever_its_operator_dies_under_half_of_the_disturbances() {
    check_every_disturbance(&scenarios::ONE_GATE, &disturbances::ALL[..6]).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_with_one_gate_ends_the_same_wherever_its_operator_dies_under_the_other_half() {
    check_every_disturbance(&scenarios::ONE_GATE, &disturbances::ALL[6..]).await;
}

#[tokio::test(start_paused = true)]
async fn a_payment_is_made_at_most_once_wherever_the_operator_dies() {
    // The others come in turn below.
    let half: Vec<Disturbance> = disturbances::ALL.into_iter().skip(1).step_by(2).collect();
    check_every_disturbance(&scenarios::PAYMENT, &half).await;
}

#[tokio::test(start_paused = true)]
async fn small_runs_end_the_same_wherever_their_operator_dies() {
    for scenario in [
        &scenarios::ONE_GATE,
        &scenarios::PAYMENT,
        &scenarios::PAYMENT_OR_NOT,
        &scenarios::CANCELLED,
        &scenarios::SUSPENDED,
    ] {
        check_with_and_without_disturbances(scenario).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_calls_tools_ends_the_same_wherever_its_operator_dies() {
    let Endings { undisturbed, lost } = Endings::of(&scenarios::CALLS).await;
    assert_eq!((&undisturbed.0["phase"], &undisturbed.0["outputs"]), (&json!("Succeeded"), &json!("all is done")));
    let [mail, refund] = &lost[..] else { panic!("neither the mail nor the refund must be repeated") };
    for lost in [mail, refund] {
        assert_eq!(lost.0["phase"], "Failed", "its outcome is unknown, and nobody can be asked");
    }
    check_every_death(&scenarios::CALLS, |_| disturbances::NONE).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_calls_end_one_after_another_ends_the_same_wherever_its_operator_dies() {
    let Endings { undisturbed, lost } = Endings::of(&scenarios::CALLS_AT_ONCE).await;
    assert_eq!((&undisturbed.0["phase"], &undisturbed.0["outputs"]), (&json!("Succeeded"), &json!("all is done")));
    let [refund] = &lost[..] else { panic!("the refund alone must not be repeated") };
    assert_eq!(refund.0["phase"], "Failed", "its outcome is unknown");
    check_every_death(&scenarios::CALLS_AT_ONCE, |_| disturbances::NONE).await;
}

#[tokio::test(start_paused = true)]
async fn runs_that_ask_more_than_once_end_the_same_wherever_their_operator_dies() {
    for scenario in [&scenarios::DEFERRED, &scenarios::RETRIED, &scenarios::TWO_GATES] {
        check_with_and_without_disturbances(scenario).await;
    }
}

#[tokio::test(start_paused = true)]
async fn runs_of_clocks_and_large_values_end_the_same_wherever_their_operator_dies() {
    for scenario in [&scenarios::BACKOFF, &scenarios::TIMEOUTS, &scenarios::LARGE] {
        check_with_and_without_disturbances(scenario).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_the_same_with_its_journal_in_segments() {
    for scenario in scenarios::ALL {
        let endings = Endings::of(scenario).await;
        endings.check(scenario, IN_SEGMENTS, "in segments", |_| {}).await;
        let status = play(scenario, IN_SEGMENTS, |_| {}).await.harness.workflow(scenarios::RUN)["status"].take();
        assert_eq!(status["journalVersion"], 2, "{}", scenario.name);
        assert_eq!(
            (list(&status["steps"]).count(), list(&status["segments"]).count() > 0),
            (0, true),
            "{}",
            scenario.name
        );
    }
}

#[tokio::test(start_paused = true)]
async fn runs_in_segments_end_the_same_wherever_their_operator_dies() {
    for scenario in [&scenarios::PAYMENT, &scenarios::DEFERRED, &scenarios::LARGE] {
        check_deaths(scenario, IN_SEGMENTS, |_| disturbances::NONE).await;
        check_deaths(scenario, IN_SEGMENTS, |n| disturbances::ALL[n % disturbances::ALL.len()]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_the_same_when_its_operator_dies_twice() {
    let endings = Endings::of(&scenarios::PAYMENT).await;
    for first in 1..=6 {
        for second in 1..=4 {
            let set = |harness: &Harness| {
                Death::Write(Crash::Applied).set(harness, OPERATOR, first);
                // Rules count from the start: the second life's writes follow those of the first.
                Death::Write(Crash::NotApplied).set(harness, OPERATOR, first + second);
            };
            endings.check(&scenarios::PAYMENT, ALONE, &format!("dies at write {first} and {second} later"), set).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn equal_plays_make_equal_requests_at_equal_times() {
    let set = |harness: &Harness| {
        for (_, disturb) in disturbances::ALL.iter().take(4) {
            disturb(&harness.server);
        }
        Death::Write(Crash::Applied).set(harness, OPERATOR, 3);
    };
    let first = play(&scenarios::PAYMENT, ALONE, set).await;
    let second = play(&scenarios::PAYMENT, ALONE, set).await;
    assert_eq!(first.harness.server.story(), second.harness.server.story());
    let instants = |harness: &Harness| -> Vec<_> { harness.server.log().iter().map(|entry| entry.at).collect() };
    assert_eq!(instants(&first.harness), instants(&second.harness), "the jitter of backoffs included");
}
