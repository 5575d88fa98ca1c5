//! Many gates held open: the cost of waiting, and the time until a new operator has caught up. Watches and the Lease
//! are not counted.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use signoff_tests::say;

use super::runs::{self, Gate};
use crate::audit::{self, Audit, Sort, Tally};
use crate::ceiling::CLIENTS;
use crate::counters::Counters;
use crate::harness::Harness;
use crate::process;
use crate::processors::Reading;

/// The idle time.
const IDLE: Duration = Duration::from_secs(60);
/// Decisions that are made while no operator runs.
const MEANWHILE: usize = 16;

/// The figures of one number of open gates.
pub(super) struct Pending {
    pub(super) count: usize,
    /// Memory of the operator that opened the gates, after the idle minute.
    pub(super) rss_mib: f64,
    /// The most memory that it ever used.
    pub(super) peak_mib: f64,
    /// Memory of the operator that found them open.
    pub(super) rss_restarted_mib: f64,
    /// Its requests in the idle minute.
    pub(super) idle: Tally,
    /// Its processor time in the idle minute.
    pub(super) idle_cpu: Duration,
    /// From the new operator's start until all Workflows have ended that were decided before it.
    pub(super) caught_up: Duration,
    /// Processors that others used in the idle minute and while the new operator caught up.
    pub(super) others: f64,
}

/// Opens this number of gates, waits a minute, and replaces the operator by another one.
pub(super) async fn hold(harness: &Harness, audit: &Audit, count: usize) -> Result<Pending> {
    say::step(&format!("opening {count} gates"));
    let operator = harness.operator().await?;
    let namespace = harness.namespace().await?;
    let (gates, _) = runs::open(harness, &operator, &namespace, CLIENTS, count).await?;
    Counters::read_at_rest(&operator).await?;

    say::step("doing nothing for a minute");
    let (place, cpu) = (audit.end_of_log()?, process::cpu(operator.pid())?);
    let before = Reading::take(harness, Some(&operator))?;
    tokio::time::sleep(IDLE).await;
    let idle = audit.count_since(place)?;
    let usage = process::usage(operator.pid())?;
    let idle_others = Reading::take(harness, Some(&operator))?.since(&before).others();
    operator.stop().await?;

    say::step(&format!("deciding {MEANWHILE} gates while no operator runs, then starting one"));
    let decided = spread(gates, MEANWHILE);
    runs::approve(harness, &namespace, 1, &decided).await?;
    let watch = runs::watch_ends(harness, &namespace).await?;
    let operator = harness.operator_unready().await?;
    let before = Reading::take(harness, Some(&operator))?;
    let (age, looked) = (process::age(operator.pid())?, Instant::now());
    let ended =
        runs::with_limit_for_gates(count, &operator, "found", runs::wait_for_ends(watch, decided.len())).await?;
    let last = ended.values().max().copied().unwrap_or(looked);
    let others = Reading::take(harness, Some(&operator))?.since(&before).others().max(idle_others);
    let caught_up = age + last.saturating_duration_since(looked);
    let known = Counters::read_at_rest(&operator).await?.sum("signoff_approvals_pending", &[]);
    let open = count - decided.len();
    ensure!(known == open as f64, "{open} gates are open, and the operator knows of {known}");
    let restarted = process::usage(operator.pid())?;
    operator.stop().await?;
    Ok(Pending {
        count,
        rss_mib: usage.rss_mib,
        peak_mib: usage.peak_mib,
        rss_restarted_mib: restarted.rss_mib,
        idle,
        idle_cpu: usage.cpu.saturating_sub(cpu),
        caught_up,
        others,
    })
}

impl Pending {
    /// Returns the memory of the operator that opened the gates, or of the one that found them open if that is more.
    pub(super) fn held_mib(&self) -> f64 {
        self.rss_mib.max(self.rss_restarted_mib)
    }

    /// Returns the requests a minute in the idle time, without watches and the Lease.
    pub(super) fn idle_requests_per_min(&self) -> f64 {
        let all: usize =
            [Sort::State, Sort::Event, Sort::Read].iter().map(|sort| audit::count(&self.idle, *sort)).sum();
        all as f64 * 60.0 / IDLE.as_secs_f64()
    }
}

/// Returns `wanted` gates, from the first to the last at equal distances. An operator that has handled all of these has
/// read every page of a list.
fn spread(gates: Vec<Gate>, wanted: usize) -> Vec<Gate> {
    let last = gates.len().saturating_sub(1);
    let chosen: Vec<usize> = (0..wanted).map(|n| n * last / wanted.saturating_sub(1).max(1)).collect();
    gates.into_iter().enumerate().filter(|(index, _)| chosen.contains(index)).map(|(_, gate)| gate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decided_gates_reach_from_the_first_to_the_last() {
        let gates = |count: usize| {
            (0..count).map(|n| Gate { workflow: n.to_string(), approval: n.to_string() }).collect::<Vec<_>>()
        };
        let chosen = spread(gates(5000), 16);
        assert_eq!(chosen.len(), 16);
        assert_eq!(chosen.first().map(|gate| gate.workflow.as_str()), Some("0"));
        assert_eq!(chosen.last().map(|gate| gate.workflow.as_str()), Some("4999"));
        assert_eq!(spread(gates(16), 16).len(), 16);
    }
}
