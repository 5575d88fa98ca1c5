//! Plays a scenario to its end under the failures of a test, and compares how it ended with how it ends without
//! failures.

use serde_json::Value;
use signoff_engine::JournalLimits;

use crate::{
    ending::{Ending, list},
    harness::{Harness, OPERATOR, QUIET},
    laws,
    scenarios::{RUN, Scenario},
};

/// The operators that play a scenario, and their limits.
#[derive(Clone, Copy)]
pub struct PlaySettings {
    pub actors: &'static [&'static str],
    pub lease: bool,
    /// The bytes of the journal that stay in a Workflow before its records move into segments.
    pub room: JournalLimits,
}

/// Limits that the journals of these scenarios do not reach.
pub const ENOUGH: JournalLimits = JournalLimits { steps: 384 * 1024, segment: 192 * 1024, largest: 192 * 1024 };
/// Limits so small that nearly every record that can move has a segment of its own.
pub const TINY: JournalLimits = JournalLimits { steps: 1, segment: 1, largest: 1 };

/// One operator that is certainly alone.
pub const ALONE: PlaySettings = PlaySettings { actors: &[OPERATOR], lease: false, room: ENOUGH };
/// One operator, with journals in segments.
pub const IN_SEGMENTS: PlaySettings = PlaySettings { room: TINY, ..ALONE };

/// A scenario that was played to its end.
pub struct FinishedPlay {
    pub harness: Harness,
    pub ending: Ending,
    pub deaths: usize,
}

/// Plays a scenario until [`QUIET`] after its end. `disturb` sets the failures before an operator begins.
pub async fn play(scenario: &Scenario, settings: PlaySettings, disturb: impl FnOnce(&Harness)) -> FinishedPlay {
    let harness = Harness { lease: settings.lease, room: settings.room, ..Harness::new() };
    (scenario.world)(&harness.world);
    harness.apply(RUN, &(scenario.spec)());
    disturb(&harness);
    let people = (scenario.people)(harness.people());
    let until_quiet = async {
        tokio::join!(people, harness.wait_for_end(RUN));
        harness.server.clock().pass(QUIET).await;
    };
    let ((), deaths) = harness.keep_alive(settings.actors, until_quiet).await;
    signoff_tests::tried(1, "simulated runs with disturbances and deaths");
    signoff_tests::tried(deaths, "crash points in simulated runs");
    let ending = Ending::of(&harness, RUN);
    FinishedPlay { harness, ending, deaths }
}

/// The allowed endings of a scenario: the one without failures and, if it has calls that must not be repeated, one for
/// each such call whose operator died.
pub struct Endings {
    pub undisturbed: Ending,
    pub lost: Vec<Ending>,
}

impl Endings {
    /// Returns the endings of a scenario with one operator.
    pub async fn of(scenario: &Scenario) -> Self {
        let undisturbed = play(scenario, ALONE, |_| {}).await;
        laws::hold(&undisturbed.harness, RUN)
            .unwrap_or_else(|broken| panic!("{}: {broken}\n{}", scenario.name, undisturbed.harness.server.story()));
        let mut lost = Vec::new();
        for (index, effect) in undisturbed.harness.world.effects().iter().enumerate() {
            if effect.input["idempotent"] == false {
                let crash = |harness: &Harness| harness.world.crash_after_effect(index as u64 + 1, OPERATOR);
                lost.push(play(scenario, ALONE, crash).await.ending);
            }
        }
        Self { undisturbed: undisturbed.ending, lost }
    }

    /// Plays a scenario with failures: every law must hold, and it must have one of the allowed endings. Returns
    /// the number of deaths of operators.
    pub async fn check(
        &self,
        scenario: &Scenario,
        settings: PlaySettings,
        what: &str,
        disturb: impl FnOnce(&Harness),
    ) -> usize {
        let FinishedPlay { harness, ending, deaths } = play(scenario, settings, disturb).await;
        let what = || format!("{}, {what}, {deaths} deaths", scenario.name);
        if let Err(broken) = laws::hold(&harness, RUN) {
            panic!("{}: {broken}\n{}", what(), harness.server.story());
        }
        let undisturbed = std::slice::from_ref(&self.undisturbed);
        let expected = if was_begun_by_another(&harness) && !self.lost.is_empty() { &self.lost } else { undisturbed };
        let expected: Vec<_> =
            expected.iter().map(|expected| ending.as_asked_in_time(expected).in_any_order()).collect();
        let ending = ending.in_any_order();
        if !expected.contains(&ending) {
            let differences: Vec<_> = expected.iter().map(|expected| ending.differences(expected)).collect();
            panic!("{}:\n{}\n{}", what(), differences.join("\nor\n"), harness.server.story());
        }
        deaths
    }
}

/// Returns whether the outcome of a call is unknown because another operator began it, which is the only allowed
/// difference. The operator that began a call must know its outcome, so an entry in the journal is not enough.
fn was_begun_by_another(harness: &Harness) -> bool {
    let unknown = |steps: &Value| list(steps).find(|step| step["phase"] == "Unknown").cloned();
    let mut journals = laws::journals(harness, RUN).into_iter();
    journals
        .find_map(|(entry, steps)| {
            unknown(&steps).map(|step| step["by"] != format!("{}#{}", entry.actor, entry.incarnation))
        })
        .unwrap_or(false)
}
