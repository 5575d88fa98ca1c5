//! What the API server could do at best: the very writes that a gate costs, each kind by itself, with no operator about.
//! It may not spare the API server anything: the admission policies are in force, and every write changes its object.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::crowd;
use super::process;
use super::sample::{self, Sample};
use super::stage::{Stage, approver_user};

/// So many clients find the ceiling; more add nothing but waiting.
pub(super) const CLIENTS: usize = 16;
/// Writes of each kind by so many clients, at most.
const WRITES: usize = 1200;
/// Writes of each kind by one client, at most.
const WRITES_ALONE: usize = 200;
/// How long one kind is measured, at most.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// The same kinds of writes, and the API server's processor time for one of each, in milliseconds.
pub(super) type Costs = Rates;

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceiling {
    /// By [`CLIENTS`] at once.
    pub(super) crowd: Rates,
    /// By one client.
    pub(super) alone: Rates,
    /// What a write costs the API server, by [`CLIENTS`] at once: unlike the rates, hardly a matter of who else is at work.
    pub(super) cost_ms: Costs,
    /// Half of one client's creates and status writes took no longer.
    pub(super) write_p50: Duration,
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
    /// Creates a second, of Workflows and Approvals in equal parts.
    pub(super) fn create(&self) -> f64 {
        2.0 / (1.0 / self.workflow_create + 1.0 / self.approval_create)
    }

    /// Status writes a second, of both kinds in equal parts.
    pub(super) fn status_write(&self) -> f64 {
        2.0 / (1.0 / self.workflow_status + 1.0 / self.approval_status)
    }

    /// The least time these writes could take, in seconds, by the two rates alone: a decision counts as a status write, an Event
    /// as a create.
    pub(super) fn least_seconds(&self, writes: &Writes) -> f64 {
        (writes.workflow_creates + writes.approval_creates + writes.events) / self.create()
            + (writes.decisions + writes.approval_status + writes.workflow_status) / self.status_write()
    }

    /// As [`Self::least_seconds`], every kind by its own rate.
    pub(super) fn least_seconds_by_kind(&self, writes: &Writes) -> f64 {
        writes.workflow_creates / self.workflow_create
            + writes.approval_creates / self.approval_create
            + writes.decisions / self.decision
            + writes.approval_status / self.approval_status
            + writes.workflow_status / self.workflow_status
            + writes.events / self.event_create
    }
}

impl Writes {
    /// The same without Events.
    pub(super) fn of_state(self) -> Self {
        Self { events: 0.0, ..self }
    }
}

impl std::ops::Add for Writes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            workflow_creates: self.workflow_creates + other.workflow_creates,
            approval_creates: self.approval_creates + other.approval_creates,
            decisions: self.decisions + other.decisions,
            approval_status: self.approval_status + other.approval_status,
            workflow_status: self.workflow_status + other.workflow_status,
            events: self.events + other.events,
        }
    }
}

impl Ceiling {
    /// Measures one client first, then many; at most a minute. No operator may be running.
    pub(super) async fn measure(stage: &Stage, sample: &Sample) -> Result<Self> {
        let (alone, _, times) = measure(stage, sample, 1, WRITES_ALONE).await?;
        let (crowd, cost_ms, _) = measure(stage, sample, CLIENTS, WRITES).await?;
        Ok(Self { crowd, alone, cost_ms, write_p50: crowd::percentile(&times, 0.5) })
    }

    /// Measures many clients again.
    pub(super) async fn again(stage: &Stage, sample: &Sample) -> Result<Rates> {
        let (crowd, _, _) = measure(stage, sample, CLIENTS, WRITES).await?;
        Ok(crowd)
    }
}

/// The rates, the costs, and how long each create and status write took.
async fn measure(
    stage: &Stage,
    sample: &Sample,
    clients: usize,
    count: usize,
) -> Result<(Rates, Costs, Vec<Duration>)> {
    let namespace = stage.namespace().await?;
    let operator = stage.cluster.operator_client().await?;
    let approver = approver_user()?;
    let workflows = sample::path(&namespace, "workflows");
    let approvals = sample::path(&namespace, "approvals");
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let bursts = Bursts { stage, clients };

    let bodies = bodies(count, |index| Ok(sample::workflow(&sample::name(index), approver)))?;
    let workflow_create = bursts
        .of(bodies.len(), async |index| crowd::post(&stage.requester, &workflows, bodies[index].clone()).await)
        .await?;
    let puts = statuses(&workflow_create.answers, &workflows, &sample.workflow["status"])?;
    let workflow_status =
        bursts.of(puts.len(), async |index| crowd::put(&operator, &puts[index].0, puts[index].1.clone()).await).await?;

    let bodies = self::bodies(workflow_create.answers.len(), |index| sample.approval(&workflow_create.answers[index]))?;
    let approval_create =
        bursts.of(bodies.len(), async |index| crowd::post(&operator, &approvals, bodies[index].clone()).await).await?;
    let names = names(&approval_create.answers, &approvals)?;
    let body = serde_json::to_vec(&sample::decision(approver))?;
    let decision =
        bursts.of(names.len(), async |index| crowd::patch(&stage.approver, &names[index], body.clone()).await).await?;
    let puts = statuses(&decision.answers, &approvals, &sample.approval["status"])?;
    let approval_status =
        bursts.of(puts.len(), async |index| crowd::put(&operator, &puts[index].0, puts[index].1.clone()).await).await?;

    let bodies = self::bodies(count, |index| Ok(sample.event(&sample::name(index))))?;
    let event_create =
        bursts.of(bodies.len(), async |index| crowd::post(&operator, &events, bodies[index].clone()).await).await?;

    let each = |value: fn(&Burst) -> f64| Rates {
        workflow_create: value(&workflow_create),
        approval_create: value(&approval_create),
        decision: value(&decision),
        approval_status: value(&approval_status),
        workflow_status: value(&workflow_status),
        event_create: value(&event_create),
    };
    let (rates, costs) = (each(Burst::rate), each(Burst::cost_ms));
    let state = [&workflow_create, &approval_create, &workflow_status, &approval_status];
    let times = state.into_iter().flat_map(|burst| burst.times.iter().copied()).collect();
    Ok((rates, costs, times))
}

/// One kind of write, done often.
struct Burst {
    answers: Vec<String>,
    times: Vec<Duration>,
    took: Duration,
    /// The API server's processor time meanwhile.
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

/// On which stage, and by how many clients.
struct Bursts<'a> {
    stage: &'a Stage,
    clients: usize,
}

impl Bursts<'_> {
    async fn of(&self, count: usize, act: impl AsyncFn(usize) -> Result<String>) -> Result<Burst> {
        let (before, began) = (self.cpu()?, Instant::now());
        let done = crowd::each_within(self.clients, count, PATIENCE, async |index| {
            let began = Instant::now();
            Ok((act(index).await?, began.elapsed()))
        })
        .await?;
        let took = began.elapsed();
        let (answers, times) = done.into_iter().unzip();
        Ok(Burst { answers, times, took, cpu: self.cpu()?.saturating_sub(before) })
    }

    fn cpu(&self) -> Result<Duration> {
        let apiserver = self.stage.pids().into_iter().find(|(name, _)| *name == "kube-apiserver");
        process::cpu(apiserver.context("this control plane has no kube-apiserver")?.1)
    }
}

/// Returns bodies made beforehand, so that making them is not measured.
pub(super) fn bodies(count: usize, make: impl Fn(usize) -> Result<Value>) -> Result<Vec<Vec<u8>>> {
    (0..count).map(|index| Ok(serde_json::to_vec(&make(index)?)?)).collect()
}

/// Returns paths and bodies that put this status in the place of the answered objects' status.
pub(super) fn statuses(answers: &[String], collection: &str, status: &Value) -> Result<Vec<(String, Vec<u8>)>> {
    let put = |answer: &String| {
        let (name, body) = sample::with_status(answer, status)?;
        Ok((format!("{collection}/{name}/status"), body))
    };
    answers.iter().map(put).collect()
}

/// Returns the paths of the answered objects.
pub(super) fn names(answers: &[String], collection: &str) -> Result<Vec<String>> {
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
    fn the_two_rates_are_those_of_an_equal_mix() {
        assert!((RATES.create() - 400.0).abs() < 1e-9);
        assert!((RATES.status_write() - 500.0).abs() < 1e-9);
    }

    #[test]
    fn the_least_time_of_writes_is_the_sum_of_each_kinds() {
        let opening =
            Writes { workflow_creates: 100.0, approval_creates: 100.0, workflow_status: 100.0, ..Writes::default() };
        assert!((RATES.least_seconds(&opening) - 0.7).abs() < 1e-9);
        assert!((RATES.least_seconds_by_kind(&opening) - 0.7).abs() < 1e-9);
        let deciding = Writes { decisions: 100.0, events: 100.0, ..Writes::default() };
        assert!((RATES.least_seconds(&deciding.of_state()) - 0.2).abs() < 1e-9);
        assert!((RATES.least_seconds_by_kind(&deciding) - 0.6).abs() < 1e-9);
    }
}
