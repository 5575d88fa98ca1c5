//! Agents with tools under every kind of failure: parallel calls, and random Workflows, models and people.
//!
//! `crash_at_every_step` tests an operator that dies at every write of such a run.

mod models;
mod people;
mod tampered;
mod workflows;

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use serde_json::Value;
use signoff_tests::sim::{Crash, EffectCrash, KUBELET};

use crate::{
    crash_at_every_step::Death,
    dice::Dice,
    disturbances,
    harness::{Harness, OPERATOR, QUIET},
    laws,
    scenario_runner::{ALONE, Endings},
    scenarios::{CALLS, RUN},
    two_operators::{BOTH, cut_off},
};

/// The number of random runs of each test; `SIGNOFF_RANDOM_RUNS` sets another one.
const RUNS: u64 = 16;
const RUNS_VARIABLE: &str = "SIGNOFF_RANDOM_RUNS";
/// The environment variable with the one seed to run, which a failure names.
const SEED_VARIABLE: &str = "SIGNOFF_RANDOM_SEED";

const DEATHS: [Death; 4] = [
    Death::Write(Crash::NotApplied),
    Death::Write(Crash::Applied),
    Death::Effect(EffectCrash::NotDone),
    Death::Effect(EffectCrash::Done),
];

#[tokio::test(start_paused = true)]
async fn parallel_calls_end_the_same_under_every_disturbance() {
    let endings = Endings::of(&CALLS).await;
    for (disturbed, disturb) in disturbances::ALL {
        endings.check(&CALLS, ALONE, disturbed, |harness| disturb(&harness.server)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_end_the_same_wherever_the_operator_dies_under_a_disturbance() {
    let endings = Endings::of(&CALLS).await;
    for (way, death) in DEATHS.into_iter().enumerate() {
        for n in 1.. {
            let (disturbed, disturb) = disturbances::ALL[(way * 5 + n as usize) % disturbances::ALL.len()];
            let set = |harness: &Harness| {
                disturb(&harness.server);
                death.set(harness, OPERATOR, n);
            };
            if endings.check(&CALLS, ALONE, &format!("{disturbed}, {death:?} no. {n}"), set).await == 0 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_end_the_same_wherever_the_holder_of_the_lease_dies() {
    let endings = Endings::of(&CALLS).await;
    for death in DEATHS {
        for n in 1.. {
            let set = |harness: &Harness| death.set(harness, BOTH.actors[0], n);
            if endings.check(&CALLS, BOTH, &format!("two operators, {death:?} no. {n}"), set).await == 0 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_end_the_same_where_an_operator_is_cut_off_or_both_are_disturbed() {
    let endings = Endings::of(&CALLS).await;
    for n in 1..=12 {
        for applied in [true, false] {
            let set = |harness: &Harness| cut_off(harness, n, applied);
            endings.check(&CALLS, BOTH, &format!("cut off at write {n}, applied: {applied}"), set).await;
        }
    }
    for (at, (disturbed, disturb)) in disturbances::ALL.into_iter().enumerate() {
        let set = |harness: &Harness| {
            disturb(&harness.server);
            Death::Write(Crash::Applied).set(harness, BOTH.actors[0], at as u64 % 9 + 1);
        };
        endings.check(&CALLS, BOTH, disturbed, set).await;
    }
}

/// The failures of the operator during a random run.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Peace,
    Deaths,
    Disturbances,
    TwoOperators,
}

/// Plays one random run to its end. Every law of calls is checked after each act of people, and every law at the end.
async fn play_random_run(seed: u64, fate: Fate) -> Random {
    let mut dice = Dice::new(seed);
    let workflows::GeneratedWorkflow { spec, policies } = workflows::generate(&mut dice);
    let lease = matches!(fate, Fate::TwoOperators);
    let harness = Harness { lease, ..Harness::new() };
    let actors: &[&str] = if lease { BOTH.actors } else { &[OPERATOR] };
    harness.world.responds(move |key, input| models::answer(seed, key, input));
    for (index, policy) in policies.iter().enumerate() {
        let name = format!("policy-{index}");
        let metadata = serde_json::json!({"name": name});
        let policy = serde_json::json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": metadata, "spec": policy,
        });
        harness.server.insert(policy).unwrap();
    }
    harness.apply(RUN, &spec);
    if matches!(fate, Fate::Disturbances | Fate::TwoOperators) {
        dice.pick(&disturbances::ALL).1(&harness.server);
    }
    if !matches!(fate, Fate::Peace | Fate::Disturbances) {
        for _ in 0..3 {
            dice.pick(&DEATHS).set(&harness, actors[0], 1 + dice.below(30) as u64);
        }
    }
    let checked_run = async {
        let decisions = async {
            people::decide_at_random(&harness, &mut dice, seed).await;
            harness.pass(QUIET.as_secs()).await;
        };
        harness.keep_alive(actors, decisions).await;
        let accepted = harness.condition("Accepted");
        assert_eq!(accepted.0, "True", "{accepted:?}: {}", harness.workflow(RUN)["status"]["message"]);
        laws::hold(&harness, RUN).unwrap_or_else(|law| panic!("{law}\n{}", harness.server.story()));
    };
    if let Err(panicked) = AssertUnwindSafe(checked_run).catch_unwind().await {
        let message = panicked.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panicked.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        let workflow = serde_json::json!({"policies": policies, "spec": spec});
        panic!("{SEED_VARIABLE}={seed}, {fate:?}: {message}\n{workflow:#}");
    }
    signoff_tests::tried(1, "random runs of agents with tools");
    Random::of(&harness)
}

/// The numbers of calls and requests of random runs, by which a test checks that the generator is random enough.
#[derive(Debug, Default)]
struct Random {
    calls: usize,
    asked: usize,
    verdicts: std::collections::BTreeSet<String>,
    nested: usize,
    again: usize,
    containers: usize,
}

impl Random {
    fn of(harness: &Harness) -> Self {
        let effects = harness.world.effects();
        let is_call = |path: &str| path.rsplit('/').nth(1).is_some_and(|part| part.starts_with(".call-"));
        let approvals = harness.approvals();
        let is_about_call = |approval: &&Value| approval["spec"]["request"]["action"].is_object();
        let verdict = |approval: &Value| approval["status"]["outcome"]["verdict"].as_str().unwrap_or("none").to_owned();
        Self {
            calls: effects.iter().filter(|effect| is_call(&effect.key.path)).count(),
            nested: effects.iter().filter(|effect| effect.key.path.matches("/.call-").count() > 1).count(),
            containers: effects.iter().filter(|effect| effect.actor == KUBELET).count(),
            asked: approvals.iter().filter(is_about_call).count(),
            verdicts: approvals.iter().filter(is_about_call).map(verdict).collect(),
            again: effects.iter().filter(|effect| is_call(&effect.key.path) && effect.key.attempt > 1).count(),
        }
    }
}

/// Plays the random runs of a test; its seeds follow from `fate`, or from the environment.
async fn play_random_runs(fate: Fate) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (first, count) = match number(SEED_VARIABLE) {
        Some(seed) => (seed, 1),
        None => (fate as u64 * 1_000_000, number(RUNS_VARIABLE).unwrap_or(RUNS)),
    };
    let mut total = Random::default();
    for seed in first..first + count {
        let run = play_random_run(seed, fate).await;
        total.calls += run.calls;
        total.asked += run.asked;
        total.nested += run.nested;
        total.again += run.again;
        total.containers += run.containers;
        total.verdicts.extend(run.verdicts);
    }
    signoff_tests::tried(total.calls, "calls of agents in random runs");
    if count >= RUNS {
        let happened = total.nested > 0 && total.again > 0 && total.containers > 0;
        assert!(total.calls > 20 && total.asked > 20 && happened, "too little happened: {total:?}");
        for verdict in ["Approve", "Reject", "Modify", "Skip", "Defer"] {
            assert!(total.verdicts.contains(verdict), "nobody decided {verdict}: {total:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_law_of_calls_holds_in_random_runs() {
    play_random_runs(Fate::Peace).await;
}

#[tokio::test(start_paused = true)]
async fn every_law_of_calls_holds_wherever_the_operator_dies() {
    play_random_runs(Fate::Deaths).await;
}

#[tokio::test(start_paused = true)]
async fn every_law_of_calls_holds_under_disturbances() {
    play_random_runs(Fate::Disturbances).await;
}

#[tokio::test(start_paused = true)]
async fn every_law_of_calls_holds_with_two_operators() {
    play_random_runs(Fate::TwoOperators).await;
}
