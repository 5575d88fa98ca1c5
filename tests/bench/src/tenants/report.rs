//! The figures of all measurements, their goals, and `--json`. A figure that is compared with a goal is not rounded.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::hostile::Deeds;
use super::kept_operator::Needed;
use super::load::Load;
use super::victim::{Gate, Gates};
use crate::crowd::percentile;
use crate::goal::{Figure, Goal, figures};
use crate::processors::Used;
use crate::table::milliseconds;
use signoff_tests::memory_group::LIMIT;

/// The largest p99 beside hostile namespaces, as a multiple of the p99 alone.
const MOST_TIMES_ALONE: u32 = 5;
/// A p99 that meets the goal whatever the p99 alone is.
const GOOD: Duration = Duration::from_secs(2);
/// The share of the memory limit that the operator may use.
const MOST_OF_LIMIT: f64 = 0.8;

/// All figures.
pub(super) struct Measured {
    pub(super) is_debug: bool,
    /// The number of hostile namespaces in the runs that have goals.
    pub(super) namespaces: usize,
    /// The runs before and after the loads.
    pub(super) alone: Vec<Run>,
    pub(super) beside: Vec<Run>,
}

/// One measurement of the victim.
pub(super) struct Run {
    /// The load; `None` if the victim was alone.
    pub(super) load: Option<Load>,
    /// The number of hostile namespaces.
    pub(super) tenants: usize,
    pub(super) gates: Gates,
    pub(super) used: Used,
    /// Evaluations that were stopped; `None` if no operator was left to report them.
    pub(super) stopped: Option<f64>,
    pub(super) deeds: Deeds,
    /// From the deletion of the hostile namespaces until they were gone and the operator was idle.
    pub(super) idle_after: Option<Duration>,
    pub(super) needed: Needed,
}

impl Run {
    /// Returns the name of the run's row in the tables, such as `regex, beside 10`.
    pub(super) fn name(&self) -> String {
        self.load.map_or_else(|| "alone".to_owned(), |load| format!("{}, beside {}", load.name(), self.tenants))
    }

    /// Returns the time within which this share of all gates was done.
    pub(super) fn time_of_share(&self, share: f64) -> Duration {
        percentile(&self.gates.times(|gate| gate.all), share)
    }

    /// Returns the share of the time of all gates in which the victim waited for answers to its own two requests.
    pub(super) fn share_of_requests(&self) -> f64 {
        let sum = |of: fn(&Gate) -> Duration| self.gates.gates.iter().map(of).sum::<Duration>().as_secs_f64();
        sum(|gate| gate.requests) / sum(|gate| gate.all)
    }

    /// Returns the processors that others used, or zero after a restart, because the ended operator counts as others.
    fn others(&self) -> f64 {
        if self.needed.restarts > 0 { 0.0 } else { self.used.others() }
    }

    /// Returns the operator's share of its memory limit.
    pub(super) fn share_of_limit(&self) -> f64 {
        self.needed.peak_mib / (LIMIT >> 20) as f64
    }

    fn to_json(&self) -> Value {
        let times = |of: fn(&Gate) -> Duration| {
            let times = self.gates.times(of);
            let [p50, p99] = [0.5, 0.99].map(|share| milliseconds(percentile(&times, share)));
            json!({"p50": p50, "p99": p99})
        };
        json!({
            "load": self.load.map(Load::name),
            "namespaces": self.tenants,
            "gates": self.gates.gates.len(),
            "problem": self.gates.problem,
            "all_ms": times(|gate| gate.all),
            "opened_ms": times(|gate| gate.opened),
            "own_requests_ms": times(|gate| gate.requests),
            "share_of_own_requests": self.share_of_requests(),
            "processors": self.used.processors().into_iter().map(|(name, used)| (name.to_owned(), json!(used))).collect::<Map<_, _>>(),
            "operator": {
                "peak_mib": self.needed.peak_mib, "of_limit": self.share_of_limit(), "control_group_peak_mib": self.needed.group_mib,
                "restarts": self.needed.restarts, "killed_for_memory": self.needed.kills,
                "evaluations_stopped": self.stopped, "idle_after_s": self.idle_after.map(|time| time.as_secs_f64()),
            },
            "hostile": {
                "workflows": self.deeds.created, "votes": self.deeds.votes, "ended": self.deeds.ended,
                "first_message": self.deeds.first_message,
                "refused": self.deeds.refused, "first_refusal": self.deeds.first_refusal,
            },
        })
    }
}

impl Measured {
    /// Returns the p99 of the victim's gates alone, over the runs before and after the loads together.
    pub(super) fn alone_p99(&self) -> Duration {
        let times: Vec<Duration> = self.alone.iter().flat_map(|run| run.gates.times(|gate| gate.all)).collect();
        percentile(&times, 0.99)
    }

    /// Returns the largest p99 beside hostile namespaces that meets the goal.
    fn max_p99(&self) -> Duration {
        (self.alone_p99() * MOST_TIMES_ALONE).max(GOOD)
    }

    /// Returns whether a run misses any of its goals.
    pub(super) fn is_missed(&self, run: &Run) -> bool {
        run.time_of_share(0.99) > self.max_p99() || run.share_of_limit() > MOST_OF_LIMIT || run.needed.restarts > 0
    }

    /// Returns the goals of each load beside the requested number of namespaces.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let most = self.max_p99().as_secs_f64() * 1000.0;
        let mebibytes = (LIMIT >> 20) as f64 * MOST_OF_LIMIT;
        let runs = self.beside.iter().filter(|run| run.tenants == self.namespaces);
        let goals = runs.flat_map(|run| {
            let load = run.load.map(Load::name).unwrap_or_default();
            let goal = |key: &str, name: &str, most: f64, figure: Figure| {
                Goal::at_most(&format!("{load}_{key}"), &format!("{load}: {name}"), most, Some(figure))
            };
            let p99 = run.time_of_share(0.99).as_secs_f64() * 1000.0;
            // Others make gates slow, but they neither fill the operator's control group nor end it.
            let restarts = Figure::new(f64::from(run.needed.restarts), 0.0);
            [
                goal("p99_ms", "p99, ms", most, Figure::new(p99, run.others())),
                goal("memory_mib", "the operator's memory, MiB", mebibytes, Figure::new(run.needed.peak_mib, 0.0)),
                goal("restarts", "the operator ended", 0.0, restarts),
            ]
        });
        goals.collect()
    }

    /// Returns the content of `--json`.
    pub(super) fn to_json(&self) -> Value {
        let goals = self.goals();
        json!({
            "debug_build": self.is_debug,
            "goals": figures(&goals),
            "judged": goals.iter().map(|goal| goal.to_json(self.is_debug)).collect::<Vec<_>>(),
            "alone": self.alone.iter().map(Run::to_json).collect::<Vec<_>>(),
            "beside": self.beside.iter().map(Run::to_json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub(crate) fn run(load: Option<Load>, tenants: usize, ms: u64, peak_mib: f64, restarts: u32) -> Run {
        let gate = |ms| Gate { all: ms, opened: ms / 2, requests: ms / 4 };
        Run {
            load,
            tenants,
            gates: Gates { gates: vec![gate(Duration::from_millis(ms)); 3], problem: None },
            used: Used::default(),
            stopped: Some(0.0),
            deeds: Deeds::default(),
            idle_after: Some(Duration::from_secs(1)),
            needed: Needed { peak_mib, restarts, ..Needed::default() },
        }
    }

    pub(crate) fn measured(alone_ms: u64, beside: Vec<Run>) -> Measured {
        let alone = || run(None, 0, alone_ms, 50.0, 0);
        Measured { is_debug: false, namespaces: 10, alone: vec![alone(), alone()], beside }
    }

    #[test]
    fn a_p99_is_good_up_to_two_seconds_or_five_times_that_alone() {
        let load = Some(Load::Regex);
        for (alone, most) in [(30, 2_000), (1_000, 5_000)] {
            let measured = measured(alone, Vec::new());
            assert!(!measured.is_missed(&run(load, 10, most, 400.0, 0)));
            assert!(measured.is_missed(&run(load, 10, most + 1, 400.0, 0)));
        }
    }

    #[test]
    fn memory_above_four_fifths_of_the_limit_and_a_restart_are_misses() {
        let measured = measured(30, Vec::new());
        let of = |mib, restarts| measured.is_missed(&run(Some(Load::Answers), 10, 30, mib, restarts));
        assert!(!of(409.6, 0));
        assert!(of(410.0, 0) && of(50.0, 1));
    }

    #[test]
    fn goals_are_those_beside_all_namespaces() {
        let load = Some(Load::Slow);
        let measured = measured(30, vec![run(load, 10, 40, 60.0, 0), run(load, 1, 30, 60.0, 0)]);
        let json = measured.to_json();
        let goals = json["goals"].as_object().unwrap();
        let keys: Vec<_> = goals.keys().map(String::as_str).collect();
        assert_eq!(keys, ["slow_p99_ms", "slow_memory_mib", "slow_restarts"]);
        assert_eq!(goals["slow_p99_ms"], 40.0);
        assert!(json["judged"].as_array().unwrap().iter().all(|goal| goal["verdict"] == "met"), "{json:#}");
        assert_eq!(json["beside"][0]["share_of_own_requests"], 0.25);
    }
}
