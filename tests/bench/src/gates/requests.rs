//! Requests of the operator, counted by the API server's audit log and, beside it, by the operator itself. Writing the
//! log costs the API server time, so no time is measured.

use std::time::Duration;

use anyhow::Result;

use super::closed_loop;
use super::runs;
use crate::audit::{self, Audit, Sort, Tally};
use crate::counters::{Counters, Requests};
use crate::harness::Harness;
use crate::processors::Reading;

/// The way in which clients decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    /// A client waits only for the answer to its decision.
    Open,
    /// A client waits for each Workflow.
    Closed,
}

/// One counted run: from before its first Workflow until the operator was at rest.
pub(super) struct CountedRun {
    pub(super) clients: usize,
    pub(super) loop_: Loop,
    pub(super) workflows: usize,
    pub(super) audited: Tally,
    /// The operator's own counters.
    pub(super) own: Requests,
    /// Processors that others used at the same time.
    pub(super) others: f64,
}

/// Opens and decides this number of gates for each number of clients, in both loops.
pub(super) async fn count(
    harness: &Harness,
    audit: &Audit,
    clients: &[usize],
    workflows: usize,
) -> Result<Vec<CountedRun>> {
    let operator = harness.operator().await?;
    let mut runs = Vec::new();
    for &clients in clients {
        for loop_ in [Loop::Open, Loop::Closed] {
            let namespace = harness.namespace().await?;
            let idle = Counters::read_at_rest(&operator).await?.requests();
            let place = audit.end_of_log()?;
            let before = Reading::take(harness, Some(&operator))?;
            let (gates, _) = runs::open(harness, &operator, &namespace, clients, workflows).await?;
            match loop_ {
                Loop::Open => drop(runs::decide(harness, &operator, &namespace, clients, &gates).await?),
                Loop::Closed => {
                    drop(closed_loop::decide(harness, &operator, &namespace, clients, Duration::ZERO, &gates).await?)
                }
            }
            let rest = Counters::read_at_rest(&operator).await?.requests();
            let audited = audit.count_since(place)?;
            let others = Reading::take(harness, Some(&operator))?.since(&before).others();
            runs.push(CountedRun { clients, loop_, workflows, audited, own: rest - idle, others });
        }
    }
    operator.stop().await?;
    Ok(runs)
}

impl CountedRun {
    /// Returns the requests of one sort per Workflow, by the audit log.
    pub(super) fn per_workflow(&self, sort: Sort) -> f64 {
        audit::count(&self.audited, sort) as f64 / self.workflows as f64
    }

    /// Returns state writes, Events and reads: in the audit log, then in the operator's own counters.
    pub(super) fn audited_and_own(&self) -> [[f64; 3]; 2] {
        let audited = [Sort::State, Sort::Event, Sort::Read].map(|sort| audit::count(&self.audited, sort) as f64);
        [audited, [self.own.state_writes(), self.own.events + self.own.events_failed, self.own.reads]]
    }

    /// Returns whether the operator counted the same requests as the API server.
    pub(super) fn is_counted_alike(&self) -> bool {
        let [audited, own] = self.audited_and_own();
        audited == own
    }
}
