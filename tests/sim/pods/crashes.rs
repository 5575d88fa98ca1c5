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
    scenario_runner::{ALONE, Endings, FinishedPlay, PlaySettings, play},
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

/// Plays a scenario again for each point at which the first operator can die, and calls `check` with each play. Returns
/// the number of plays.
pub(super) async fn play_every_death(
    scenario: &Scenario,
    settings: PlaySettings,
    disturbance: Disturbance,
    check: impl AsyncFn(&str, FinishedPlay, Death),
) -> usize {
    let mut plays = 0;
    for death in DEATHS {
        for n in 1.. {
            let set = |harness: &Harness| {
                (disturbance.1)(&harness.server);
                death.set(harness, settings.actors[0], n);
            };
            let finished = play(scenario, settings, set).await;
            let deaths = finished.deaths;
            let what = format!("{}, {}, {death:?} no. {n}", scenario.name, disturbance.0);
            check(&what, finished, death).await;
            plays += 1;
            if deaths == 0 {
                break;
            }
        }
    }
    plays
}

/// Asserts that every law holds, and that the run ended as without failures or with a container of unknown outcome.
/// Returns the path of that container, or `None`.
fn check_ending(what: &str, finished: &FinishedPlay, undisturbed: &Ending) -> Option<String> {
    let FinishedPlay { harness, ending, .. } = finished;
    laws::hold(harness, RUN).unwrap_or_else(|broken| panic!("{what}: {broken}\n{}", harness.server.story()));
    let undisturbed = &ending.as_asked_in_time(undisturbed);
    if ending == undisturbed {
        return None;
    }
    let steps: Vec<&Value> = list(&ending.0["steps"]).collect();
    let last = steps.last().unwrap_or_else(|| panic!("{what}: no step"));
    let differs = || format!("{what}:\n{}\n{}", ending.differences(undisturbed), harness.server.story());
    assert_eq!(
        (&last["phase"], &last["error"]["class"]),
        (&json!("Unknown"), &json!("OutcomeUnknown")),
        "{}",
        differs()
    );
    assert_eq!(ending.0["phase"], "Failed", "{}", differs());
    assert!(ending.0["message"].as_str().unwrap_or_default().contains("may or may not have run"), "{}", differs());
    let before: Vec<&Value> = list(&undisturbed.0["steps"]).take(steps.len() - 1).collect();
    assert_eq!(steps[..steps.len() - 1], before, "{}", differs());
    last["path"].as_str().map(str::to_owned)
}

/// Asserts that a container of unknown outcome did not begin, unless the creation of its Pod was applied late. Returns
/// whether there is such a container.
pub(super) fn check_unknown_end(what: &str, finished: &FinishedPlay, death: Death, undisturbed: &Ending) -> bool {
    let Some(path) = check_ending(what, finished, undisturbed) else { return false };
    let is_applied_late = matches!(death, Death::Write(Crash::AppliedAfter(_)));
    let began = starts(&finished.harness, &path, 1) > 0;
    assert!(is_applied_late || !began, "{what}: {path} was begun, and its end is known");
    true
}

#[tokio::test(start_paused = true)]
async fn both_containers_run_once_and_their_messages_arrive_without_failures() {
    for scenario in [&PODS, &IDEMPOTENT_PODS] {
        let finished = play(scenario, ALONE, |_| {}).await;
        let (harness, ending) = (&finished.harness, &finished.ending.0);
        laws::hold(harness, RUN).unwrap_or_else(|broken| panic!("{broken}\n{}", harness.server.story()));
        let outputs = json!("42 files, uploading\nlive");
        assert_eq!((&ending["phase"], &ending["outputs"]), (&json!("Succeeded"), &outputs));
        assert_eq!((starts(harness, "build", 1), starts(harness, "deploy", 1)), (1, 1));
        assert_eq!(harness.all_pods().len(), 0, "those that ended well go");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_runs_at_most_once_wherever_the_operator_dies() {
    let undisturbed = play(&PODS, ALONE, |_| {}).await.ending;
    let unknown = std::cell::Cell::new(0);
    let check = async |what: &str, finished: FinishedPlay, death: Death| {
        let is_unknown = check_unknown_end(what, &finished, death, &undisturbed);
        unknown.set(unknown.get() + usize::from(is_unknown));
    };
    play_every_death(&PODS, ALONE, disturbances::NONE, check).await;
    // Between the commit that begins the step and the creation of its Pod, for each of two Pods and two ways to die.
    assert!(unknown.get() >= 4, "only {} ended as not known", unknown.get());
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_container_ends_the_same_wherever_the_operator_dies() {
    let undisturbed = Endings::of(&IDEMPOTENT_PODS).await.undisturbed;
    let check = async |what: &str, finished: FinishedPlay, _: Death| {
        assert_eq!(check_ending(what, &finished, &undisturbed), None, "{what}");
    };
    play_every_death(&IDEMPOTENT_PODS, ALONE, disturbances::NONE, check).await;
}

async fn play_every_death_under(disturbances: &[Disturbance]) {
    let undisturbed = play(&PODS, ALONE, |_| {}).await.ending;
    for disturbance in disturbances {
        let check = async |what: &str, finished: FinishedPlay, _: Death| {
            check_ending(what, &finished, &undisturbed);
        };
        play_every_death(&PODS, ALONE, *disturbance, check).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_container_runs_twice_under_the_first_disturbances() {
    play_every_death_under(&disturbances::ALL[..4]).await;
}

#[tokio::test(start_paused = true)]
async fn no_container_runs_twice_under_the_next_disturbances() {
    play_every_death_under(&disturbances::ALL[4..8]).await;
}

#[tokio::test(start_paused = true)]
async fn no_container_runs_twice_under_the_last_disturbances() {
    play_every_death_under(&disturbances::ALL[8..]).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_the_same_when_no_request_is_lost() {
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
async fn an_idempotent_container_ends_the_same_under_every_disturbance() {
    let endings = Endings::of(&IDEMPOTENT_PODS).await;
    for (name, disturb) in disturbances::ALL {
        endings.check(&IDEMPOTENT_PODS, ALONE, name, |harness| disturb(&harness.server)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_operator_finds_the_containers_of_a_dead_lease_holder() {
    let undisturbed = play(&PODS, BOTH, |_| {}).await.ending;
    let check = async |what: &str, finished: FinishedPlay, death: Death| {
        check_unknown_end(what, &finished, death, &undisturbed);
    };
    play_every_death(&PODS, BOTH, disturbances::NONE, check).await;
    let undisturbed = play(&IDEMPOTENT_PODS, BOTH, |_| {}).await.ending;
    let check = async |what: &str, finished: FinishedPlay, _: Death| {
        assert_eq!(check_ending(what, &finished, &undisturbed), None, "{what}");
    };
    play_every_death(&IDEMPOTENT_PODS, BOTH, disturbances::NONE, check).await;
}

#[tokio::test(start_paused = true)]
async fn no_container_runs_twice_when_an_operator_is_cut_off() {
    let undisturbed = play(&PODS, BOTH, |_| {}).await.ending;
    for n in 1..=8 {
        for applied in [true, false] {
            let finished = play(&PODS, BOTH, |harness| two_operators::cut_off(harness, n, applied)).await;
            check_ending(&format!("cut off at write {n}, applied: {applied}"), &finished, &undisturbed);
        }
    }
}
