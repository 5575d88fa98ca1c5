//! The operator dies at every write and at every turn of a Pod, alone and with every disturbance: no container runs
//! twice, and an unknown end is reported as unknown.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Crash, Turn};

use super::starts;
use crate::{
    crash_at_every_step::Death,
    disturbances::{self, Disturbance},
    ending::{Ending, list},
    harness::Harness,
    laws,
    scenario_runner::{ALONE, Endings, Telling, Told, tell},
    scenarios::{IDEMPOTENT_PODS, PODS, RUN, Scenario},
    two_operators::{self, BOTH},
};

const DEATHS: [Death; 7] = [
    Death::Write(Crash::NotApplied),
    Death::Write(Crash::Applied),
    Death::Write(Crash::AppliedAfter(Duration::from_secs(2))),
    Death::Turn(Turn::Bound),
    Death::Turn(Turn::Started),
    Death::Turn(Turn::Ended),
    Death::Turn(Turn::Gone),
];

/// Plays a scenario once for every death of the first operator, until there is none left.
pub(super) async fn through_every_death(
    scenario: &Scenario,
    telling: Telling,
    disturbance: Disturbance,
    check: impl AsyncFn(&str, Told, Death),
) -> usize {
    let mut tellings = 0;
    for death in DEATHS {
        for n in 1.. {
            let set = |harness: &Harness| {
                (disturbance.1)(&harness.server);
                death.set(harness, telling.actors[0], n);
            };
            let told = tell(scenario, telling, set).await;
            let deaths = told.deaths;
            let what = format!("{}, {}, {death:?} no. {n}", scenario.name, disturbance.0);
            check(&what, told, death).await;
            tellings += 1;
            if deaths == 0 {
                break;
            }
        }
    }
    tellings
}

/// Checks every law, and that the run ended as without failures or with an unknown end of a container; returns the path
/// of that container.
fn is_as_in_peace_or_unknown(what: &str, told: &Told, calm: &Ending) -> Option<String> {
    let Told { harness, ending, .. } = told;
    laws::hold(harness, RUN).unwrap_or_else(|broken| panic!("{what}: {broken}\n{}", harness.server.story()));
    let calm = &ending.as_asked_in_time(calm);
    if ending == calm {
        return None;
    }
    let steps: Vec<&Value> = list(&ending.0["steps"]).collect();
    let last = steps.last().unwrap_or_else(|| panic!("{what}: no step"));
    let differs = || format!("{what}:\n{}\n{}", ending.differences(calm), harness.server.story());
    assert_eq!(
        (&last["phase"], &last["error"]["class"]),
        (&json!("Unknown"), &json!("OutcomeUnknown")),
        "{}",
        differs()
    );
    assert_eq!(ending.0["phase"], "Failed", "{}", differs());
    assert!(ending.0["message"].as_str().unwrap_or_default().contains("may or may not have run"), "{}", differs());
    let before: Vec<&Value> = list(&calm.0["steps"]).take(steps.len() - 1).collect();
    assert_eq!(steps[..steps.len() - 1], before, "{}", differs());
    last["path"].as_str().map(str::to_owned)
}

/// Checks that the run ended as without failures, or that the container with the unknown end did not begin. Returns
/// whether an end is unknown.
pub(super) fn is_unknown_only_if_it_was_never_made(what: &str, told: &Told, death: Death, calm: &Ending) -> bool {
    let Some(path) = is_as_in_peace_or_unknown(what, told, calm) else { return false };
    let late = matches!(death, Death::Write(Crash::AppliedAfter(_)));
    assert!(late || starts(&told.harness, &path, 1) == 0, "{what}: {path} was begun, and its end is known");
    true
}

#[tokio::test(start_paused = true)]
async fn in_peace_both_containers_run_once_and_what_they_said_arrives() {
    for scenario in [&PODS, &IDEMPOTENT_PODS] {
        let told = tell(scenario, ALONE, |_| {}).await;
        laws::hold(&told.harness, RUN).unwrap_or_else(|broken| panic!("{broken}\n{}", told.harness.server.story()));
        assert_eq!(
            (&told.ending.0["phase"], &told.ending.0["outputs"]),
            (&json!("Succeeded"), &json!("42 files, uploading\nlive"))
        );
        assert_eq!((starts(&told.harness, "build", 1), starts(&told.harness, "deploy", 1)), (1, 1));
        assert_eq!(told.harness.all_pods().len(), 0, "those that ended well go");
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_the_operator_dies_a_container_runs_once_or_never_and_is_unknown_only_if_it_was_never_made() {
    let calm = tell(&PODS, ALONE, |_| {}).await.ending;
    let unknown = std::cell::Cell::new(0);
    let check = async |what: &str, told: Told, death: Death| {
        unknown.set(unknown.get() + usize::from(is_unknown_only_if_it_was_never_made(what, &told, death, &calm)));
    };
    through_every_death(&PODS, ALONE, disturbances::NONE, check).await;
    // Between the commit that begins the step and the creation of its Pod, for each of two Pods and two ways to die.
    assert!(unknown.get() >= 4, "only {} ended as not known", unknown.get());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_may_run_twice_ends_as_in_peace_wherever_the_operator_dies() {
    let calm = Endings::of(&IDEMPOTENT_PODS).await.calm;
    let check = async |what: &str, told: Told, _: Death| {
        assert_eq!(is_as_in_peace_or_unknown(what, &told, &calm), None, "{what}");
    };
    through_every_death(&IDEMPOTENT_PODS, ALONE, disturbances::NONE, check).await;
}

async fn survives(disturbances: &[Disturbance]) {
    let calm = tell(&PODS, ALONE, |_| {}).await.ending;
    for disturbance in disturbances {
        let check = async |what: &str, told: Told, _: Death| {
            is_as_in_peace_or_unknown(what, &told, &calm);
        };
        through_every_death(&PODS, ALONE, *disturbance, check).await;
    }
}

#[tokio::test(start_paused = true)]
async fn through_the_first_disturbances_no_container_runs_twice_wherever_the_operator_dies() {
    survives(&disturbances::ALL[..4]).await;
}

#[tokio::test(start_paused = true)]
async fn through_the_next_disturbances_no_container_runs_twice_wherever_the_operator_dies() {
    survives(&disturbances::ALL[4..8]).await;
}

#[tokio::test(start_paused = true)]
async fn through_the_last_disturbances_no_container_runs_twice_wherever_the_operator_dies() {
    survives(&disturbances::ALL[8..]).await;
}

#[tokio::test(start_paused = true)]
async fn disturbances_that_lose_no_request_change_nothing() {
    let endings = Endings::of(&PODS).await;
    for (name, disturb) in disturbances::ALL {
        // A lost answer, or an error of the server, leaves it open whether a Pod was created.
        if matches!(name, "answers lost" | "requests reset" | "an overloaded server") {
            continue;
        }
        endings.check(&PODS, ALONE, name, |harness| disturb(&harness.server)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn through_every_disturbance_a_container_that_may_run_twice_ends_as_in_peace() {
    let endings = Endings::of(&IDEMPOTENT_PODS).await;
    for (name, disturb) in disturbances::ALL {
        endings.check(&IDEMPOTENT_PODS, ALONE, name, |harness| disturb(&harness.server)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_the_holder_of_the_lease_dies_the_other_one_finds_its_containers_again() {
    let calm = tell(&PODS, BOTH, |_| {}).await.ending;
    let check = async |what: &str, told: Told, death: Death| {
        is_unknown_only_if_it_was_never_made(what, &told, death, &calm);
    };
    through_every_death(&PODS, BOTH, disturbances::NONE, check).await;
    let calm = tell(&IDEMPOTENT_PODS, BOTH, |_| {}).await.ending;
    let check = async |what: &str, told: Told, _: Death| {
        assert_eq!(is_as_in_peace_or_unknown(what, &told, &calm), None, "{what}");
    };
    through_every_death(&IDEMPOTENT_PODS, BOTH, disturbances::NONE, check).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_cut_off_while_its_containers_run_makes_none_twice() {
    let calm = tell(&PODS, BOTH, |_| {}).await.ending;
    for n in 1..=8 {
        for applied in [true, false] {
            let told = tell(&PODS, BOTH, |harness| two_operators::cut_off(harness, n, applied)).await;
            is_as_in_peace_or_unknown(&format!("cut off at write {n}, applied: {applied}"), &told, &calm);
        }
    }
}
