//! The operator dies at every write and at every effect in turn, each run is compared with the one in which nothing
//! went wrong, and every law must hold. Nothing here is drawn by chance.

use std::time::Duration;

use signoff_tests::sim::{Crash, EffectCrash, Fault, On};

use crate::{
    disturbances::{self, Disturbance},
    ending::{Ending, list},
    laws,
    scenarios::{self, RUN, Scenario},
    stage::{OPERATOR, QUIET, Stage},
};

const AT_WRITE: [Crash; 3] = [Crash::NotApplied, Crash::Applied, Crash::AppliedAfter(Duration::from_secs(2))];
const AT_EFFECT: [EffectCrash; 2] = [EffectCrash::NotDone, EffectCrash::Done];

/// How the operator dies in a telling of a scenario.
#[derive(Clone, Copy, Debug)]
enum Death {
    Never,
    AtWrite(u64, Crash),
    AtEffect(u64, EffectCrash),
}

impl Death {
    fn set(self, stage: &Stage) {
        let writes = On::writes_of(OPERATOR).only(|request| request.resource.plural != "leases");
        match self {
            Self::Never => {}
            Self::AtWrite(n, crash) => stage.server.fault(writes.nth(n), Fault::Crash(crash)),
            Self::AtEffect(n, crash) => stage.world.crash_at_effect(n, OPERATOR, crash),
        }
    }
}

/// A scenario that was told to its end.
struct Told {
    stage: Stage,
    ending: Ending,
    deaths: usize,
}

async fn tell(scenario: &Scenario, disturb: impl FnOnce(&Stage)) -> Told {
    let stage = Stage::new();
    (scenario.world)(&stage.world);
    stage.apply(RUN, &(scenario.spec)());
    disturb(&stage);
    let people = (scenario.people)(stage.people());
    let story = async {
        tokio::join!(people, stage.ended(RUN));
        stage.server.clock().pass(QUIET).await;
    };
    let ((), deaths) = stage.keep_alive(&[OPERATOR], story).await;
    let ending = Ending::of(&stage, RUN);
    Told { stage, ending, deaths }
}

/// How a scenario may end: as it does when nothing goes wrong or, where it calls what must not be repeated, as it does
/// when the operator that began that call is lost.
struct Endings {
    calm: Ending,
    lost: Option<Ending>,
}

async fn endings(scenario: &Scenario) -> Endings {
    let calm = tell(scenario, |_| {}).await;
    laws::hold(&calm.stage, RUN).unwrap_or_else(|broken| panic!("{}: {broken}\n{}", scenario.name, calm.stage.server.story()));
    let once = calm.stage.world.effects().iter().position(|effect| effect.input["idempotent"] == false);
    let lost = match once {
        None => None,
        Some(at) => Some(tell(scenario, |stage| Death::AtEffect(at as u64 + 1, EffectCrash::Done).set(stage)).await.ending),
    };
    Endings { calm: calm.ending, lost }
}

/// Tells a scenario with deaths and a disturbance, and compares it with the calm one. Returns whether all deaths came.
async fn survives(scenario: &Scenario, endings: &Endings, (disturbed, disturb): Disturbance, deaths: &[Death]) -> bool {
    let told = tell(scenario, |stage| {
        disturb(&stage.server);
        deaths.iter().for_each(|death| death.set(stage));
    })
    .await;
    let what = || format!("{}, {disturbed}, {deaths:?}, {} deaths", scenario.name, told.deaths);
    let story = || told.stage.server.story();
    if let Err(broken) = laws::hold(&told.stage, RUN) {
        panic!("{}: {broken}\n{}", what(), story());
    }
    let unknown = was_begun_by_the_dead(&told);
    let expected = endings.lost.as_ref().filter(|_| unknown).unwrap_or(&endings.calm);
    if told.ending != *expected {
        panic!("{}:\n{}\n{}", what(), told.ending.differences(expected), story());
    }
    told.deaths >= deaths.len()
}

/// Whether the outcome of a call is not known because an operator that is no more began it: the one thing that may differ.
fn was_begun_by_the_dead(told: &Told) -> bool {
    let workflow = told.stage.workflow(RUN);
    let lives = told.deaths + 1;
    let alive = format!("{OPERATOR}#{lives}");
    list(&workflow["status"]["steps"]).any(|step| step["phase"] == "Unknown" && step["by"].is_string() && step["by"] != alive)
}

/// Every death of one kind there can be in a scenario, under a disturbance: at the first write, at the second, until none is left.
async fn survives_every_death(scenario: &Scenario, disturbance: Disturbance) {
    let endings = endings(scenario).await;
    survives(scenario, &endings, disturbance, &[Death::Never]).await;
    for crash in AT_WRITE {
        let mut n = 1;
        while survives(scenario, &endings, disturbance, &[Death::AtWrite(n, crash)]).await {
            n += 1;
        }
    }
    for crash in AT_EFFECT {
        let mut n = 1;
        while survives(scenario, &endings, disturbance, &[Death::AtEffect(n, crash)]).await {
            n += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_one_gate_ends_the_same_wherever_its_operator_dies() {
    survives_every_death(&scenarios::ONE_GATE, disturbances::NONE).await;
}

#[tokio::test(start_paused = true)]
async fn every_run_ends_the_same_wherever_its_operator_dies() {
    for scenario in scenarios::ALL {
        let began = std::time::Instant::now();
        survives_every_death(scenario, disturbances::NONE).await;
        println!("{}: {:?}", scenario.name, began.elapsed());
    }
}
