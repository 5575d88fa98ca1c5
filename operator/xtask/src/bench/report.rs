//! Everything that was measured, and the machine-readable form of it.
//! It may not round away what a goal is compared with.

use std::time::Duration;

use serde::Serialize;

use super::ceiling::{Ceiling, Rates, Writes};
use super::crowd::percentile;
use super::gates::{Counted, Run};
use super::pending::Pending;

/// Everything that was measured.
pub(super) struct Measured {
    pub(super) ceiling: Ceiling,
    /// The same again after the runs: whether the machine was as free then.
    pub(super) ceiling_again: Rates,
    /// A finished Workflow's and its Approval's length in bytes.
    pub(super) sizes: [usize; 2],
    pub(super) runs: Vec<Run>,
    pub(super) counted: Counted,
    pub(super) pending: Option<Pending>,
}

/// What `--json` writes.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    ceiling: CeilingReport,
    runs: Vec<RunReport>,
    pending: Option<PendingReport>,
}

#[derive(Debug, Serialize)]
struct CeilingReport {
    create_per_s: f64,
    status_write_per_s: f64,
    write_ms_p50: f64,
}

/// One run; also the source of the table's columns.
#[derive(Debug, Serialize)]
pub(super) struct RunReport {
    pub(super) clients: usize,
    pub(super) workflows: usize,
    pub(super) created_to_pending_per_min: f64,
    pub(super) approved_to_done_per_min: f64,
    pub(super) decision_to_next_ms: Latency,
    pub(super) operator_cpu_ms_per_workflow: f64,
    pub(super) state_writes_per_workflow: f64,
    pub(super) events_per_workflow: f64,
    pub(super) reads_per_workflow: f64,
    pub(super) rss_mib: f64,
    pub(super) throughput_ratio: f64,
    pub(super) throughput_ratio_with_events: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

#[derive(Debug, Serialize)]
struct PendingReport {
    count: usize,
    rss_mib: f64,
    idle_requests_per_min: f64,
    caught_up_s: f64,
}

impl From<&Measured> for Report {
    fn from(measured: &Measured) -> Self {
        let ceiling = &measured.ceiling;
        Self {
            ceiling: CeilingReport {
                create_per_s: rounded(ceiling.crowd.create()),
                status_write_per_s: rounded(ceiling.crowd.status_write()),
                write_ms_p50: milliseconds(ceiling.write_p50),
            },
            runs: measured.runs.iter().map(|run| RunReport::new(run, ceiling)).collect(),
            pending: measured.pending.as_ref().map(|pending| PendingReport {
                count: pending.count,
                rss_mib: rounded(pending.rss_mib),
                idle_requests_per_min: rounded(pending.idle_requests_per_min()),
                caught_up_s: rounded(pending.caught_up.as_secs_f64()),
            }),
        }
    }
}

impl RunReport {
    /// The numbers of a run beside a ceiling.
    pub(super) fn new(run: &Run, ceiling: &Ceiling) -> Self {
        let workflows = run.workflows as f64;
        let per_minute = |took: Duration| rounded(workflows * 60.0 / took.as_secs_f64());
        let took = (run.pending_in + run.done_in).as_secs_f64();
        let all = run.opening + run.deciding;
        Self {
            clients: run.clients,
            workflows: run.workflows,
            created_to_pending_per_min: per_minute(run.pending_in),
            approved_to_done_per_min: per_minute(run.done_in),
            decision_to_next_ms: Latency {
                p50: milliseconds(percentile(&run.to_next, 0.5)),
                p99: milliseconds(percentile(&run.to_next, 0.99)),
            },
            operator_cpu_ms_per_workflow: rounded(run.usage.cpu.as_secs_f64() * 1000.0 / workflows),
            state_writes_per_workflow: rounded(run.requests.state_writes() / workflows),
            events_per_workflow: rounded(run.requests.events / workflows),
            reads_per_workflow: rounded(run.requests.reads / workflows),
            rss_mib: rounded(run.usage.peak_mib),
            throughput_ratio: rounded(ceiling.crowd.least_seconds(&all.of_state()) / took),
            throughput_ratio_with_events: rounded(ceiling.crowd.least_seconds(&all) / took),
        }
    }
}

/// The share of the ceiling that one phase reached: its state writes by the two rates, and by each kind's own rate with Events.
pub(super) fn shares(ceiling: &Ceiling, writes: Writes, took: Duration) -> (f64, f64) {
    let took = took.as_secs_f64();
    (ceiling.crowd.least_seconds(&writes.of_state()) / took, ceiling.crowd.least_seconds_by_kind(&writes) / took)
}

/// Milliseconds, to a thousandth.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1000.0)
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
