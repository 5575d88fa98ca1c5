//! The ceiling: how many writes a second the API server takes of each kind that a gate costs, while no operator runs.
//! The admission policies are enforced, and every write changes its object.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::crowd;
use super::harness::{Harness, approver_user};
use super::processors::Reading;
use super::sample::{self, Sample};

/// The number of clients that find the ceiling; with more clients only the wait gets longer.
pub(super) const CLIENTS: usize = 16;
/// The most writes of each kind by all clients.
const WRITES: usize = 1200;
/// The longest time for which one kind of write is measured.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Writes of each kind a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) workflow_create: f64,
    pub(super) approval_create: f64,
    pub(super) decision: f64,
    pub(super) approval_status: f64,
    pub(super) workflow_status: f64,
    pub(super) event_create: f64,
}

/// The API server's processor time for one write of each kind, in milliseconds.
pub(super) type Costs = Rates;

/// The API server alone, with [`CLIENTS`] at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceiling {
    pub(super) rates: Rates,
    pub(super) cost_ms: Costs,
    /// The processors that other processes used during the measurement.
    pub(super) others: f64,
}

/// Successful writes of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writes {
    pub(super) workflow_creates: f64,
    pub(super) approval_creates: f64,
    pub(super) decisions: f64,
    pub(super) approval_status: f64,
    pub(super) workflow_status: f64,
    pub(super) events: f64,
}

impl Rates {
    /// Returns the time in seconds that these writes take at the rates of their kinds.
    pub(super) fn seconds_for(&self, writes: &Writes) -> f64 {
        writes.workflow_creates / self.workflow_create
            + writes.approval_creates / self.approval_create
            + writes.decisions / self.decision
            + writes.approval_status / self.approval_status
            + writes.workflow_status / self.workflow_status
            + writes.events / self.event_create
    }
}

impl Writes {
    /// Returns the writes without Events.
    pub(super) fn without_events(self) -> Self {
        Self { events: 0.0, ..self }
    }
}

impl Ceiling {
    /// Measures each kind of write for at most five seconds. No operator must be running.
    pub(super) async fn measure(harness: &Harness, sample: &Sample) -> Result<Self> {
        let before = Reading::take(harness, None)?;
        let (rates, cost_ms) = measure(harness, sample).await?;
        Ok(Self { rates, cost_ms, others: Reading::take(harness, None)?.since(&before).others() })
    }
}

/// Returns the rates and the costs of each kind of write.
async fn measure(harness: &Harness, sample: &Sample) -> Result<(Rates, Costs)> {
    let count = WRITES;
    let namespace = harness.namespace().await?;
    let operator = harness.cluster.operator_client().await?;
    let approver = approver_user()?;
    let workflows = sample::path(&namespace, "workflows");
    let approvals = sample::path(&namespace, "approvals");
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let bursts = Bursts { harness };

    let bodies = bodies(count, |index| Ok(sample::workflow(&sample::name(index), approver)))?;
    let workflow_create = bursts
        .send(bodies.len(), async |index| crowd::post(&harness.requester, &workflows, bodies[index].clone()).await)
        .await?;
    let puts = status_requests(&workflow_create.answers, &workflows, &sample.workflow["status"])?;
    let workflow_status = bursts
        .send(puts.len(), async |index| crowd::put(&operator, &puts[index].0, puts[index].1.clone()).await)
        .await?;

    let bodies = self::bodies(workflow_create.answers.len(), |index| sample.approval(&workflow_create.answers[index]))?;
    let approval_create = bursts
        .send(bodies.len(), async |index| crowd::post(&operator, &approvals, bodies[index].clone()).await)
        .await?;
    let names = paths_of_answers(&approval_create.answers, &approvals)?;
    let body = serde_json::to_vec(&sample::decision(approver))?;
    let decision = bursts
        .send(names.len(), async |index| crowd::patch(&harness.approver, &names[index], body.clone()).await)
        .await?;
    let puts = status_requests(&decision.answers, &approvals, &sample.approval["status"])?;
    let approval_status = bursts
        .send(puts.len(), async |index| crowd::put(&operator, &puts[index].0, puts[index].1.clone()).await)
        .await?;

    let bodies = self::bodies(count, |index| Ok(sample.event(&sample::name(index))))?;
    let event_create =
        bursts.send(bodies.len(), async |index| crowd::post(&operator, &events, bodies[index].clone()).await).await?;

    let each = |value: fn(&Burst) -> f64| Rates {
        workflow_create: value(&workflow_create),
        approval_create: value(&approval_create),
        decision: value(&decision),
        approval_status: value(&approval_status),
        workflow_status: value(&workflow_status),
        event_create: value(&event_create),
    };
    Ok((each(Burst::rate), each(Burst::cost_ms)))
}

/// Writes of one kind, with their answers and times.
struct Burst {
    answers: Vec<String>,
    took: Duration,
    /// The API server's processor time during the writes.
    cpu: Duration,
}

impl Burst {
    fn rate(&self) -> f64 {
        self.answers.len() as f64 / self.took.as_secs_f64()
    }

    fn cost_ms(&self) -> f64 {
        self.cpu.as_secs_f64() * 1000.0 / self.answers.len() as f64
    }
}

/// A source of bursts: writes of one kind by [`CLIENTS`] at the same time.
struct Bursts<'a> {
    harness: &'a Harness,
}

impl Bursts<'_> {
    async fn send(&self, count: usize, act: impl AsyncFn(usize) -> Result<String>) -> Result<Burst> {
        let (before, start) = (self.harness.api_server_cpu()?, Instant::now());
        let answers = crowd::each_within(CLIENTS, count, TIMEOUT, act).await?;
        let took = start.elapsed();
        Ok(Burst { answers, took, cpu: self.harness.api_server_cpu()?.saturating_sub(before) })
    }
}

/// Returns bodies, which are created before the measurement.
pub(super) fn bodies(count: usize, make: impl Fn(usize) -> Result<Value>) -> Result<Vec<Vec<u8>>> {
    (0..count).map(|index| Ok(serde_json::to_vec(&make(index)?)?)).collect()
}

/// Returns the paths and bodies of requests that replace the status of the answered objects.
pub(super) fn status_requests(answers: &[String], collection: &str, status: &Value) -> Result<Vec<(String, Vec<u8>)>> {
    let put = |answer: &String| {
        let (name, body) = sample::with_status(answer, status)?;
        Ok((format!("{collection}/{name}/status"), body))
    };
    answers.iter().map(put).collect()
}

/// Returns the paths of the answered objects.
pub(super) fn paths_of_answers(answers: &[String], collection: &str) -> Result<Vec<String>> {
    answers.iter().map(|answer| Ok(format!("{collection}/{}", sample::name_of(answer)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates {
        workflow_create: 600.0,
        approval_create: 300.0,
        decision: 200.0,
        approval_status: 500.0,
        workflow_status: 500.0,
        event_create: 1000.0,
    };

    #[test]
    fn the_time_of_writes_is_the_sum_over_their_kinds() {
        let opening =
            Writes { workflow_creates: 100.0, approval_creates: 100.0, workflow_status: 100.0, ..Writes::default() };
        assert!((RATES.seconds_for(&opening) - 0.7).abs() < 1e-9);
        let deciding = Writes { decisions: 100.0, events: 100.0, ..Writes::default() };
        assert!((RATES.seconds_for(&deciding) - 0.6).abs() < 1e-9);
        assert!((RATES.seconds_for(&deciding.without_events()) - 0.5).abs() < 1e-9);
    }
}
