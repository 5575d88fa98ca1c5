//! Open loop: clients apply, and later decide, as fast as they are answered; none waits for a Workflow. Measures
//! throughput and the cost of a Workflow. Creates of Events in the same run are the unit of the cost.
//!
//! Events -> open all gates -> Events -> decide them all -> Events
//!
//! Latency is not measured: a decision waits here for the queue of the clients.

use std::time::Duration;

use anyhow::Result;
use kube::Client;
use signoff_tests::control_plane::OperatorProcess;

use super::runs;
use crate::ceiling::{Rates, Writes, bodies};
use crate::counters::{Counters, Requests};
use crate::crowd;
use crate::harness::Harness;
use crate::process;
use crate::processors::{API_SERVER, OPERATOR, Reading, Used};
use crate::sample::{self, Sample};

/// Batches of Events before, between and after the two phases.
const BATCHES: usize = 3;
/// Events in a batch: enough that the API server's clock of 10 ms and its garbage collector hardly matter.
const EVENTS: usize = 500;

/// One measured run.
pub(super) struct OpenLoop {
    pub(super) clients: usize,
    pub(super) workflows: usize,
    /// From the first create sent to the watch event of the last Approval.
    pub(super) opening: Phase,
    /// From the first decision sent to the watch event of the last Workflow `Succeeded`.
    pub(super) deciding: Phase,
    /// Processor time of both phases, each until the operator was at rest, so that its trailing Events are included.
    pub(super) used: Used,
    /// The API server's processor time for one create of an Event, in milliseconds, by batch.
    pub(super) event_ms: Vec<f64>,
    /// The most memory that the operator held, in MiB.
    pub(super) peak_mib: f64,
    /// Requests of the operator by its own counters, trailing Events included.
    pub(super) requests: Requests,
    /// Processors that others used, from the first batch of Events to the last.
    pub(super) others: f64,
}

/// One half of a run.
pub(super) struct Phase {
    pub(super) took: Duration,
    /// Successful writes in this half, by the operator and by the clients.
    pub(super) writes: Writes,
}

impl Phase {
    /// Returns the share of the rates of `ceiling` that was reached, without writes of Events and with them.
    pub(super) fn shares(&self, ceiling: &Rates) -> [f64; 2] {
        [self.writes.without_events(), self.writes].map(|writes| ceiling.seconds_for(&writes) / self.took.as_secs_f64())
    }
}

impl OpenLoop {
    /// Opens and decides `workflows` gates by `clients` at once, with an operator of its own.
    pub(super) async fn measure(harness: &Harness, sample: &Sample, clients: usize, workflows: usize) -> Result<Self> {
        let operator = harness.operator().await?;
        let namespace = harness.namespace().await?;
        let mut events = Events::new(harness, sample, &namespace, clients).await?;
        let idle = Counters::read_at_rest(&operator).await?.requests();
        let began = Reading::take(harness, Some(&operator))?;

        events.create().await?;
        let before = Reading::take(harness, Some(&operator))?;
        let (gates, opened_in) = runs::open(harness, &operator, &namespace, clients, workflows).await?;
        let opened = Counters::read(&operator).await?.requests();
        let (opened_at_rest, after) = wait_for_rest(harness, &operator).await?;
        let opening = after.since(&before);

        events.create().await?;
        let before = Reading::take(harness, Some(&operator))?;
        let decided_in = runs::decide(harness, &operator, &namespace, clients, &gates).await?;
        let decided = Counters::read(&operator).await?.requests();
        let (rest, after) = wait_for_rest(harness, &operator).await?;
        let deciding = after.since(&before);

        events.create().await?;
        let others = Reading::take(harness, Some(&operator))?.since(&began).others();
        let peak_mib = process::usage(operator.pid())?.peak_mib;
        operator.stop().await?;
        let own = workflows as f64;
        Ok(Self {
            clients,
            workflows,
            opening: Phase {
                took: opened_in,
                writes: Writes { workflow_creates: own, ..writes_of_operator(opened - idle) },
            },
            deciding: Phase {
                took: decided_in,
                writes: Writes { decisions: own, ..writes_of_operator(decided - opened_at_rest) },
            },
            used: opening + deciding,
            event_ms: events.cost_ms,
            peak_mib,
            requests: rest - idle,
            others,
        })
    }

    /// Returns the API server's processor time per Workflow, in milliseconds.
    pub(super) fn api_server_ms(&self) -> f64 {
        self.ms_per_workflow(self.used.cpu(API_SERVER))
    }

    /// Returns the API server's processor time per Workflow, in units of the median processor time per create of an
    /// Event.
    pub(super) fn api_server_in_events(&self) -> f64 {
        self.api_server_ms() / self.event_median_ms()
    }

    /// Returns the API server's processor time per create of an Event, in milliseconds: the median of the batches.
    pub(super) fn event_median_ms(&self) -> f64 {
        median(&self.event_ms)
    }

    /// Returns the operator's processor time per Workflow, in milliseconds.
    pub(super) fn operator_ms(&self) -> f64 {
        self.ms_per_workflow(self.used.cpu(OPERATOR))
    }

    fn ms_per_workflow(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1000.0 / self.workflows as f64
    }
}

/// Returns the median: for an even number of values the mean of the two in the middle, for no values zero.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (None, _) => 0.0,
        (Some(value), 1) => *value,
        (Some(value), _) => f64::midpoint(*value, sorted[middle - 1]),
    }
}

/// Waits until the operator is at rest. Returns its requests, and the reading of the moment when it came to rest, which
/// is before the end of the wait.
async fn wait_for_rest(harness: &Harness, operator: &OperatorProcess) -> Result<(Requests, Reading)> {
    let (counters, reading) = Counters::read_at_rest_with(operator, || Reading::take(harness, Some(operator))).await?;
    Ok((counters.requests(), reading))
}

fn writes_of_operator(requests: Requests) -> Writes {
    Writes {
        approval_creates: requests.creates,
        approval_status: requests.approval_status,
        workflow_status: requests.workflow_status,
        events: requests.events,
        ..Writes::default()
    }
}

/// Creates of Events, the cheapest of a built-in type: the unit of the API server's work on this machine.
struct Events<'a> {
    harness: &'a Harness,
    sample: &'a Sample,
    client: Client,
    path: String,
    clients: usize,
    created: usize,
    cost_ms: Vec<f64>,
}

impl<'a> Events<'a> {
    async fn new(harness: &'a Harness, sample: &'a Sample, namespace: &str, clients: usize) -> Result<Self> {
        let client = harness.cluster.operator_client().await?;
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        Ok(Self { harness, sample, client, path, clients, created: 0, cost_ms: Vec::new() })
    }

    /// Creates [`BATCHES`] batches, and records the API server's processor time per create of each.
    async fn create(&mut self) -> Result<()> {
        for _ in 0..BATCHES {
            let bodies = bodies(EVENTS, |index| {
                Ok(self.sample.event(&format!("bench-{}", sample::name(self.created + index))))
            })?;
            let before = self.harness.api_server_cpu()?;
            let post =
                async |index: usize| crowd::post(&self.client, &self.path, bodies[index].clone()).await.map(drop);
            crowd::each(self.clients, EVENTS, post).await?;
            let cpu = self.harness.api_server_cpu()?.saturating_sub(before);
            self.created += EVENTS;
            self.cost_ms.push(cpu.as_secs_f64() * 1000.0 / EVENTS as f64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_ignores_one_large_value_and_is_zero_for_no_values() {
        assert!((median(&[1.3, 9.0, 1.2]) - 1.3).abs() < 1e-9);
        assert!((median(&[1.0, 2.0]) - 1.5).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }

    #[test]
    fn share_of_the_ceiling_is_the_time_needed_at_the_ceiling_divided_by_the_time_taken() {
        let ceiling = Rates {
            workflow_create: 500.0,
            approval_create: 500.0,
            decision: 250.0,
            approval_status: 500.0,
            workflow_status: 500.0,
            event_create: 1000.0,
        };
        let writes = Writes { decisions: 100.0, workflow_status: 100.0, events: 100.0, ..Writes::default() };
        let phase = Phase { took: Duration::from_secs(1), writes };
        let [state, with_events] = phase.shares(&ceiling);
        assert!((state - 0.6).abs() < 1e-9 && (with_events - 0.7).abs() < 1e-9, "{state} {with_events}");
    }
}
