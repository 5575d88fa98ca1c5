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
async fn tell(seed: u64, fate: Fate) -> Random {
    let mut dice = Dice::new(seed);
    let made = workflows::make(&mut dice);
    let lease = matches!(fate, Fate::TwoOperators);
    let harness = Harness { lease, ..Harness::new() };
    let actors: &[&str] = if lease { BOTH.actors } else { &[OPERATOR] };
    harness.world.responds(move |key, input| models::answer(seed, key, input));
    for (at, policy) in made.policies.iter().enumerate() {
        let name = format!("policy-{at}");
        let metadata = serde_json::json!({"name": name});
        let policy = serde_json::json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": metadata, "spec": policy,
        });
        harness.server.insert(policy).unwrap();
    }
    harness.apply(RUN, &made.spec);
    if matches!(fate, Fate::Disturbances | Fate::TwoOperators) {
        dice.pick(&disturbances::ALL).1(&harness.server);
    }
    if !matches!(fate, Fate::Peace | Fate::Disturbances) {
        for _ in 0..3 {
            dice.pick(&DEATHS).set(&harness, actors[0], 1 + dice.below(30) as u64);
        }
    }
    let told = async {
        let story = async {
            people::decide_at_random(&harness, &mut dice, seed).await;
            harness.pass(QUIET.as_secs()).await;
        };
        harness.keep_alive(actors, story).await;
        let accepted = harness.condition("Accepted");
        assert_eq!(accepted.0, "True", "{accepted:?}: {}", harness.workflow(RUN)["status"]["message"]);
        laws::hold(&harness, RUN).unwrap_or_else(|law| panic!("{law}\n{}", harness.server.story()));
    };
    if let Err(panicked) = AssertUnwindSafe(told).catch_unwind().await {
        let why = panicked.downcast_ref::<String>().cloned();
        let why = why.or_else(|| panicked.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        let workflow = serde_json::json!({"policies": made.policies, "spec": made.spec});
        panic!("{SEED_VARIABLE}={seed}, {fate:?}: {why}\n{workflow:#}");
    }
    signoff_tests::tried(1, "random runs of agents with tools");
    Random::of(&harness)
}

/// The events of a random run. A test of the generator checks that each of them happens in some run.
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
        let asked = |approval: &&Value| approval["spec"]["request"]["action"].is_object();
        let verdict = |approval: &Value| approval["status"]["outcome"]["verdict"].as_str().unwrap_or("none").to_owned();
        Self {
            calls: effects.iter().filter(|effect| is_call(&effect.key.path)).count(),
            nested: effects.iter().filter(|effect| effect.key.path.matches("/.call-").count() > 1).count(),
            containers: effects.iter().filter(|effect| effect.actor == KUBELET).count(),
            asked: approvals.iter().filter(asked).count(),
            verdicts: approvals.iter().filter(asked).map(verdict).collect(),
            again: effects.iter().filter(|effect| is_call(&effect.key.path) && effect.key.attempt > 1).count(),
        }
    }
}

/// Plays random runs.
async fn tell_many(fate: Fate) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (first, count) = match number(SEED_VARIABLE) {
        Some(seed) => (seed, 1),
        None => (fate as u64 * 1_000_000, number(RUNS_VARIABLE).unwrap_or(RUNS)),
    };
    let mut all = Random::default();
    for seed in first..first + count {
        let one = tell(seed, fate).await;
        all.calls += one.calls;
        all.asked += one.asked;
        all.nested += one.nested;
        all.again += one.again;
        all.containers += one.containers;
        all.verdicts.extend(one.verdicts);
    }
    signoff_tests::tried(all.calls, "calls of agents in random runs");
    if count >= RUNS {
        let happened = all.nested > 0 && all.again > 0 && all.containers > 0;
        assert!(all.calls > 20 && all.asked > 20 && happened, "too little happened: {all:?}");
        for verdict in ["Approve", "Reject", "Modify", "Skip", "Defer"] {
            assert!(all.verdicts.contains(verdict), "nobody decided {verdict}: {all:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_random_runs_of_agents_every_law_of_calls_holds() {
    tell_many(Fate::Peace).await;
}

#[tokio::test(start_paused = true)]
async fn in_random_runs_of_agents_every_law_of_calls_holds_wherever_the_operator_dies() {
    tell_many(Fate::Deaths).await;
}

#[tokio::test(start_paused = true)]
async fn in_random_runs_of_agents_every_law_of_calls_holds_under_disturbances() {
    tell_many(Fate::Disturbances).await;
}

#[tokio::test(start_paused = true)]
async fn in_random_runs_of_agents_every_law_of_calls_holds_with_two_operators() {
    tell_many(Fate::TwoOperators).await;
}
