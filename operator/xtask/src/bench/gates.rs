//! One-gate workflows, from being applied to being done, by so many clients at once.
//! It may not help the operator: clients act as themselves, and a run that ends otherwise than Succeeded is an error.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join;
use signoff_api::names::LABEL_WORKFLOW;
use signoff_tests::control_plane::OperatorProcess;

use super::audit::{Audit, Tally};
use super::ceiling::Writes;
use super::counters::{Counters, Requests};
use super::crowd;
use super::process::{self, Usage};
use super::sample::{self, Sample};
use super::stage::{Stage, approver_user};
use super::watch::Watch;

/// Runs before anything is measured: they fill caches and lend their objects to the ceiling.
const WARM_UP: usize = 20;
/// Runs whose every request is counted by the API server.
const COUNTED: usize = 50;
/// Phases from which a run of one gate goes on by itself; every other one is an end.
const ENDED: &str = "status.phase!%3DPending%2Cstatus.phase!%3DRunning%2Cstatus.phase!%3DWaiting";

/// One measured run.
pub(super) struct Run {
    pub(super) clients: usize,
    pub(super) workflows: usize,
    /// From the first create sent to the last Approval seen.
    pub(super) pending_in: Duration,
    /// From the first decision sent to the last Workflow seen to have succeeded.
    pub(super) done_in: Duration,
    /// From the answer to a decision to its Workflow seen to have succeeded.
    pub(super) to_next: Vec<Duration>,
    /// The operator, for these runs alone: its processor time and its memory at the end.
    pub(super) usage: Usage,
    /// What the operator asked of the API server, trailing Events included.
    pub(super) requests: Requests,
    /// Successful writes while Workflows were opened, the clients' own included.
    pub(super) opening: Writes,
    /// Successful writes while they were decided, the clients' own included.
    pub(super) deciding: Writes,
    /// Who used how many processors meanwhile.
    pub(super) shares: Vec<(String, f64)>,
}

impl Run {
    /// One process's processor time a Workflow, in milliseconds, until all were done.
    pub(super) fn cpu_ms(&self, process: &str) -> f64 {
        let share = self.shares.iter().find(|(name, _)| name == process).map_or(0.0, |(_, share)| *share);
        share * (self.pending_in + self.done_in).as_secs_f64() * 1000.0 / self.workflows as f64
    }
}

/// What the API server counted, and what the operator counted of the same.
pub(super) struct Counted {
    pub(super) workflows: usize,
    pub(super) audited: Tally,
    pub(super) requests: Requests,
}

/// An open gate.
pub(super) struct Gate {
    pub(super) workflow: String,
    pub(super) approval: String,
}

/// A few runs, and what they left, to be copied.
pub(super) async fn warm_up(stage: &Stage) -> Result<Sample> {
    let operator = stage.operator().await?;
    let namespace = stage.namespace().await?;
    let (gates, _) = open(stage, &operator, &namespace, 4, WARM_UP).await?;
    let gate = gates.first().context("no gate was opened")?;
    let read = async |plural: &str, name: &str| -> Result<serde_json::Value> {
        let path = format!("{}/{name}", sample::path(&namespace, plural));
        Ok(serde_json::from_str(&crowd::get(&stage.admin, &path).await?)?)
    };
    let waiting = read("workflows", &gate.workflow).await?["status"].take();
    decide(stage, &operator, &namespace, 4, &gates).await?;
    let sample = Sample {
        workflow: read("workflows", &gate.workflow).await?,
        approval: read("approvals", &gate.approval).await?,
        waiting,
    };
    operator.stop().await?;
    Ok(sample)
}

/// Opens and decides `workflows` gates by `clients` at once, with an operator of its own.
pub(super) async fn run(stage: &Stage, clients: usize, workflows: usize) -> Result<Run> {
    let operator = stage.operator().await?;
    let namespace = stage.namespace().await?;
    let idle = Counters::at_rest(&operator).await?.requests();
    let cpu_before = process::cpu(operator.pid())?;
    let burning = Burning::look(stage, &operator)?;

    let (gates, pending_in) = open(stage, &operator, &namespace, clients, workflows).await?;
    let opened = Counters::look(&operator).await?.requests();
    let decided = decide(stage, &operator, &namespace, clients, &gates).await?;
    let ended = Counters::look(&operator).await?.requests();
    let shares = Burning::look(stage, &operator)?.since(&burning);

    let rest = Counters::at_rest(&operator).await?.requests();
    let mut usage = process::usage(operator.pid())?;
    usage.cpu = usage.cpu.saturating_sub(cpu_before);
    operator.stop().await?;
    let own = workflows as f64;
    Ok(Run {
        clients,
        workflows,
        pending_in,
        done_in: decided.took,
        to_next: decided.to_next,
        usage,
        requests: rest - idle,
        opening: Writes { workflow_creates: own, ..writes(opened - idle) },
        deciding: Writes { decisions: own, ..writes(ended - opened) },
        shares,
    })
}

/// A few runs on an audited control plane: what the API server counted of an operator, from before its first run until it has ended.
pub(super) async fn counted(stage: &Stage, audit: &Audit) -> Result<Counted> {
    let operator = stage.operator().await?;
    let namespace = stage.namespace().await?;
    let idle = Counters::at_rest(&operator).await?.requests();
    let place = audit.here()?;
    let (gates, _) = open(stage, &operator, &namespace, 4, COUNTED).await?;
    decide(stage, &operator, &namespace, 4, &gates).await?;
    let rest = Counters::at_rest(&operator).await?.requests();
    let audited = audit.since(place)?;
    operator.stop().await?;
    Ok(Counted { workflows: COUNTED, audited, requests: rest - idle })
}

fn writes(by_operator: Requests) -> Writes {
    Writes {
        approval_creates: by_operator.creates,
        approval_status: by_operator.approval_status,
        workflow_status: by_operator.workflow_status,
        events: by_operator.events,
        ..Writes::default()
    }
}

/// Applies so many Workflows; returns their gates by name, and how long it took until all were seen.
pub(super) async fn open(
    stage: &Stage,
    operator: &OperatorProcess,
    namespace: &str,
    clients: usize,
    count: usize,
) -> Result<(Vec<Gate>, Duration)> {
    let workflows = sample::path(namespace, "workflows");
    let approver = approver_user()?;
    let bodies: Vec<Vec<u8>> = (0..count)
        .map(|index| serde_json::to_vec(&sample::workflow(&sample::name(index), approver)))
        .collect::<Result<_, _>>()?;
    let watch = Watch::open(&stage.admin, &sample::path(namespace, "approvals"), "").await?;
    let mut seen = BTreeMap::new();
    let mut last = Instant::now();
    let began = last;
    let watching = watch.until(|sight| {
        let metadata = sight.object.metadata;
        let workflow = metadata.labels.get(LABEL_WORKFLOW).cloned();
        let workflow = workflow.with_context(|| format!("Approval {} has no label {LABEL_WORKFLOW}", metadata.name))?;
        seen.insert(workflow, metadata.name);
        last = sight.at;
        Ok(seen.len() == count)
    });
    let applying = crowd::each(clients, count, async |index| {
        crowd::post(&stage.requester, &workflows, bodies[index].clone()).await.map(drop)
    });
    within(count, operator, "open", try_join(watching, applying)).await?;
    let gates = seen.into_iter().map(|(workflow, approval)| Gate { workflow, approval }).collect();
    Ok((gates, last - began))
}

/// What came of decisions.
pub(super) struct Decided {
    pub(super) took: Duration,
    pub(super) to_next: Vec<Duration>,
}

/// Approves every gate, as fast as `clients` can: none of them waits for a Workflow.
pub(super) async fn decide(
    stage: &Stage,
    operator: &OperatorProcess,
    namespace: &str,
    clients: usize,
    gates: &[Gate],
) -> Result<Decided> {
    let watch = watch_ends(stage, namespace).await?;
    let began = Instant::now();
    let acting = try_join(ends(watch, gates.len()), approve(stage, namespace, clients, gates));
    let (ended, answered) = within(gates.len(), operator, "close", acting).await?;
    let last = ended.values().max().copied().unwrap_or(began);
    let to_next = answered
        .into_iter()
        .filter_map(|(workflow, answered)| Some(ended.get(workflow)?.saturating_duration_since(answered)))
        .collect();
    Ok(Decided { took: last - began, to_next })
}

/// Sends the approver's decisions; returns when each was answered, by Workflow.
pub(super) async fn approve<'a>(
    stage: &Stage,
    namespace: &str,
    clients: usize,
    gates: &'a [Gate],
) -> Result<Vec<(&'a str, Instant)>> {
    let approvals = sample::path(namespace, "approvals");
    let decision = serde_json::to_vec(&sample::decision(approver_user()?))?;
    crowd::each(clients, gates.len(), async |index| {
        let Gate { workflow, approval } = &gates[index];
        crowd::patch(&stage.approver, &format!("{approvals}/{approval}"), decision.clone()).await?;
        Ok((workflow.as_str(), Instant::now()))
    })
    .await
}

/// A watch of Workflows that ended.
pub(super) async fn watch_ends(stage: &Stage, namespace: &str) -> Result<Watch> {
    Watch::open(&stage.admin, &sample::path(namespace, "workflows"), ENDED).await
}

/// Waits until so many Workflows have ended; returns when each was seen to, by name.
pub(super) async fn ends(watch: Watch, count: usize) -> Result<BTreeMap<String, Instant>> {
    let mut ended = BTreeMap::new();
    watch
        .until(|seen| {
            let (name, status) = (seen.object.metadata.name, seen.object.status);
            ensure!(
                status.phase == "Succeeded",
                "Workflow {name} ended {}: {}",
                status.phase,
                status.message.unwrap_or_default()
            );
            // The first sight counts: later changes are no longer the run's.
            ended.entry(name).or_insert(seen.at);
            Ok(ended.len() == count)
        })
        .await?;
    Ok(ended)
}

/// Bounds a phase in time: a minute, and a tenth of a second a Workflow.
pub(super) async fn within<T>(
    count: usize,
    operator: &OperatorProcess,
    what: &str,
    phase: impl Future<Output = Result<T>>,
) -> Result<T> {
    let patience = Duration::from_secs(60) + Duration::from_millis(100) * u32::try_from(count).unwrap_or(u32::MAX);
    bounded(patience, operator, &format!("not all of {count} gates were {what}"), phase).await
}

/// Bounds something that an operator does in time; `otherwise` is what to say where it takes longer.
pub(super) async fn bounded<T>(
    patience: Duration,
    operator: &OperatorProcess,
    otherwise: &str,
    phase: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Ok(done) = tokio::time::timeout(patience, phase).await else {
        bail!("{otherwise} after {patience:?}; the operator's log ends:\n{}", tail(operator.log()));
    };
    done.with_context(|| format!("the operator's log ends:\n{}", tail(operator.log())))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Processor time by process at one moment.
struct Burning {
    at: Instant,
    machine: Duration,
    processes: Vec<(String, Duration)>,
}

impl Burning {
    fn look(stage: &Stage, operator: &OperatorProcess) -> Result<Self> {
        let others = [("operator", operator.pid()), ("clients", std::process::id())];
        let processes = stage.pids().into_iter().chain(others);
        let processes =
            processes.map(|(name, pid)| Ok((name.to_owned(), process::cpu(pid)?))).collect::<Result<_>>()?;
        Ok(Self { at: Instant::now(), machine: process::machine()?, processes })
    }

    /// Processors in use since then, by whom; what is left is somebody else on this machine.
    fn since(&self, before: &Self) -> Vec<(String, f64)> {
        let wall = (self.at - before.at).as_secs_f64();
        let share = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / wall;
        let mut shares: Vec<_> = self
            .processes
            .iter()
            .zip(&before.processes)
            .map(|((name, now), (_, then))| (name.clone(), share(*now, *then)))
            .collect();
        let ours: f64 = shares.iter().map(|(_, share)| share).sum();
        shares.push(("others".to_owned(), (share(self.machine, before.machine) - ours).max(0.0)));
        shares
    }
}
