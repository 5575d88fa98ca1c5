//! All figures of one run, and `--json`. A figure that is compared with a goal is not rounded.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::closed_loop::ClosedLoop;
use super::goals::goals;
use super::long_runs::{LongRuns, Steps};
use super::open_loop::{OpenLoop, Phase};
use super::pending::Pending;
use super::requests::{CountedRun, Loop};
use crate::ceiling::{Ceiling, Rates};
use crate::crowd::percentile;
use crate::goal::figures;
use crate::table::milliseconds;

/// All figures. A part that was not measured is empty.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) is_debug: bool,
    /// The lengths of a finished Workflow and of its Approval, in bytes.
    pub(super) sizes: Option<[usize; 2]>,
    /// The ceilings before and after the open loop.
    pub(super) ceiling: Option<[Ceiling; 2]>,
    pub(super) open: Vec<OpenLoop>,
    pub(super) closed: Vec<ClosedLoop>,
    pub(super) counted: Vec<CountedRun>,
    pub(super) pending: Vec<Pending>,
    pub(super) long: Option<LongRuns>,
    pub(super) replay: Option<Replay>,
}

/// A turn of the engine at a journal of a thousand records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay {
    pub(super) ms: f64,
    pub(super) others: f64,
}

impl Measured {
    /// Returns the content of `--json`.
    pub(super) fn to_json(&self) -> Value {
        let goals = goals(self);
        json!({
            "debug_build": self.is_debug,
            "goals": figures(&goals),
            "judged": goals.iter().map(|goal| goal.to_json(self.is_debug)).collect::<Vec<_>>(),
            "ceiling": self.ceiling.as_ref().map(|[before, after]| json!({"before": ceiling(before), "after": ceiling(after)})),
            "open_loop": self.open.iter().map(|run| self.open_loop(run)).collect::<Vec<_>>(),
            "closed_loop": self.closed.iter().map(closed_loop).collect::<Vec<_>>(),
            "requests": self.counted.iter().map(counted_to_json).collect::<Vec<_>>(),
            "pending": self.pending.iter().map(pending).collect::<Vec<_>>(),
            "long_runs": self.long.as_ref().map(|long| json!({
                "short": steps(&long.short), "loop": steps(&long.looped), "ratio_of_the_loop": long.ratio_of_the_loop(),
            })),
            "replay_ms": self.replay.map(|replay| replay.ms),
        })
    }

    fn open_loop(&self, run: &OpenLoop) -> Value {
        let phase = |phase: &Phase| {
            let shares = self.ceiling.as_ref().map(|ceilings| ceilings.each_ref().map(|one| phase.shares(&one.rates)));
            json!({
                "per_min": run.workflows as f64 * 60.0 / phase.took.as_secs_f64(),
                "of_ceiling_before_and_after": shares.map(|shares| shares.map(|[state, _]| state)),
                "of_ceiling_with_events_before_and_after": shares.map(|shares| shares.map(|[_, all]| all)),
            })
        };
        let workflows = run.workflows as f64;
        json!({
            "clients": run.clients,
            "workflows": run.workflows,
            "opening": phase(&run.opening),
            "deciding": phase(&run.deciding),
            "api_server_cpu_ms": run.api_server_ms(),
            "event_cpu_ms": run.event_median_ms(),
            "event_cpu_ms_by_batch": run.event_ms,
            "operator_cpu_ms": run.operator_ms(),
            "state_writes": run.requests.state_writes() / workflows,
            "events": run.requests.events / workflows,
            "events_not_written": run.requests.events_failed + run.requests.events_dropped,
            "reads": run.requests.reads / workflows,
            "operator_peak_mib": run.peak_mib,
            "processors": run.used.processors().into_iter().map(|(name, used)| (name.to_owned(), json!(used))).collect::<Map<_, _>>(),
            "others": run.others,
        })
    }
}

fn ceiling(ceiling: &Ceiling) -> Value {
    let Rates { workflow_create, approval_create, decision, approval_status, workflow_status, event_create } =
        ceiling.rates;
    json!({
        "create_workflow_per_s": workflow_create, "create_approval_per_s": approval_create,
        "decision_per_s": decision, "approval_status_per_s": approval_status,
        "workflow_status_per_s": workflow_status, "create_event_per_s": event_create, "others": ceiling.others,
    })
}

fn closed_loop(run: &ClosedLoop) -> Value {
    let latency = |times: &[Duration]| json!({"p50": milliseconds(percentile(times, 0.5)), "p99": milliseconds(percentile(times, 0.99))});
    let latencies = &run.latencies;
    json!({
        "clients": run.clients,
        "pause_ms": milliseconds(run.pause),
        "workflows": latencies.from_sent.len(),
        "from_sent_ms": latency(&latencies.from_sent),
        "from_answer_ms": latency(&latencies.from_answer),
        "per_min": latencies.from_sent.len() as f64 * 60.0 / latencies.took.as_secs_f64(),
        "others": run.used.others(),
    })
}

fn counted_to_json(run: &CountedRun) -> Value {
    let [audited, own] = run.audited_and_own();
    json!({
        "clients": run.clients,
        "loop": match run.loop_ { Loop::Open => "open", Loop::Closed => "closed" },
        "workflows": run.workflows,
        "audit_log": {"state_writes": audited[0], "events": audited[1], "reads": audited[2]},
        "operator": {"state_writes": own[0], "events": own[1], "reads": own[2]},
        "by_request": run.audited,
        "others": run.others,
    })
}

fn pending(pending: &Pending) -> Value {
    json!({
        "count": pending.count,
        "rss_mib": pending.rss_mib,
        "rss_restarted_mib": pending.rss_restarted_mib,
        "peak_mib": pending.peak_mib,
        "idle_requests_per_min": pending.idle_requests_per_min(),
        "caught_up_s": pending.caught_up.as_secs_f64(),
        "others": pending.others,
    })
}

fn steps(steps: &Steps) -> Value {
    json!({
        "steps_a_run": steps.a_run,
        "steps": steps.all,
        "api_server_cpu_ms_a_step": steps.api_server_ms(),
        "state_writes_a_step": steps.state_writes / steps.all as f64,
        "ms_a_step": steps.took.as_secs_f64() * 1000.0 / steps.all as f64,
        "others": steps.used.others(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_object_goals_has_its_eight_figures_and_no_other() {
        let json = Measured::default().to_json();
        let keys: Vec<_> = json["goals"].as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "api_cpu_workflow_in_events",
            "open_16_deciding_of_ceiling",
            "open_16_opening_of_ceiling",
            "operator_cpu_ms",
            "state_writes",
            "events",
            "reads_1",
            "reads_16",
        ];
        assert_eq!(keys, expected);
        assert!(json["goals"]["reads_1"].is_null(), "what was not measured is no number");
    }
}
