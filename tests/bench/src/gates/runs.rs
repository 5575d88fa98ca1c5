//! One-gate workflows: opened, decided, and waited for. Clients act as themselves, and a run that does not succeed is
//! an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join;
use signoff_api::names::LABEL_WORKFLOW;
use signoff_tests::control_plane::OperatorProcess;

use crate::crowd;
use crate::harness::{Harness, approver_user};
use crate::sample::{self, Sample};
use crate::watch::Watch;

/// Runs before the measurement: they fill caches, and the ceiling copies their objects.
const WARM_UP: usize = 20;
/// The field selector of ended runs: a run of one gate goes on by itself in these phases, and ends in every other.
pub(crate) const ENDED: &str = "status.phase!%3DPending%2Cstatus.phase!%3DRunning%2Cstatus.phase!%3DWaiting";

/// An open gate.
pub(super) struct Gate {
    pub(super) workflow: String,
    pub(super) approval: String,
}

/// Runs a few Workflows, and returns their objects to be copied.
pub(crate) async fn warm_up(harness: &Harness) -> Result<Sample> {
    let operator = harness.operator().await?;
    let namespace = harness.namespace().await?;
    let (gates, _) = open(harness, &operator, &namespace, 4, WARM_UP).await?;
    let gate = gates.first().context("no gate was opened")?;
    let read = async |plural: &str, name: &str| -> Result<serde_json::Value> {
        let path = format!("{}/{name}", sample::path(&namespace, plural));
        Ok(serde_json::from_str(&crowd::get(&harness.admin, &path).await?)?)
    };
    let waiting = read("workflows", &gate.workflow).await?["status"].take();
    decide(harness, &operator, &namespace, 4, &gates).await?;
    let sample = Sample {
        workflow: read("workflows", &gate.workflow).await?,
        approval: read("approvals", &gate.approval).await?,
        waiting,
    };
    operator.stop().await?;
    Ok(sample)
}

/// Applies `count` Workflows; returns their gates by name, and the time until all were seen.
pub(super) async fn open(
    harness: &Harness,
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
    let watch = Watch::open(&harness.admin, &sample::path(namespace, "approvals"), "").await?;
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
        crowd::post(&harness.requester, &workflows, bodies[index].clone()).await.map(drop)
    });
    with_limit_for_gates(count, operator, "open", try_join(watching, applying)).await?;
    let gates = seen.into_iter().map(|(workflow, approval)| Gate { workflow, approval }).collect();
    Ok((gates, last - began))
}

/// Approves every gate, as fast as `clients` can without waiting for a Workflow. Returns the time from the first
/// decision sent to the watch event of the last Workflow `Succeeded`.
pub(super) async fn decide(
    harness: &Harness,
    operator: &OperatorProcess,
    namespace: &str,
    clients: usize,
    gates: &[Gate],
) -> Result<Duration> {
    let watch = watch_ends(harness, namespace).await?;
    let began = Instant::now();
    let acting = try_join(wait_for_ends(watch, gates.len()), approve(harness, namespace, clients, gates));
    let (ended, ()) = with_limit_for_gates(gates.len(), operator, "close", acting).await?;
    let last = ended.values().max().copied().unwrap_or(began);
    Ok(last - began)
}

/// Sends the approver's decisions, `clients` at a time.
pub(super) async fn approve(harness: &Harness, namespace: &str, clients: usize, gates: &[Gate]) -> Result<()> {
    let decisions = Decisions::new(harness, namespace)?;
    crowd::each(clients, gates.len(), async |index| decisions.send(&gates[index]).await).await.map(drop)
}

/// The approver's decisions about gates of one namespace.
pub(super) struct Decisions<'a> {
    harness: &'a Harness,
    approvals: String,
    body: Vec<u8>,
}

impl<'a> Decisions<'a> {
    /// Prepares the body, which is the same for every gate.
    pub(super) fn new(harness: &'a Harness, namespace: &str) -> Result<Self> {
        let body = serde_json::to_vec(&sample::decision(approver_user()?))?;
        Ok(Self { harness, approvals: sample::path(namespace, "approvals"), body })
    }

    /// Approves one gate.
    pub(super) async fn send(&self, gate: &Gate) -> Result<()> {
        let path = format!("{}/{}", self.approvals, gate.approval);
        crowd::patch(&self.harness.approver, &path, self.body.clone()).await.map(drop)
    }
}

/// Opens a watch of Workflows that ended.
pub(crate) async fn watch_ends(harness: &Harness, namespace: &str) -> Result<Watch> {
    Watch::open(&harness.admin, &sample::path(namespace, "workflows"), ENDED).await
}

/// Waits until `count` Workflows have succeeded. Returns the arrival of the watch event of each, by its name.
pub(crate) async fn wait_for_ends(watch: Watch, count: usize) -> Result<BTreeMap<String, Instant>> {
    let mut ended = BTreeMap::new();
    for_each_end(watch, count, |name, at| {
        ended.insert(name.to_owned(), at);
    })
    .await?;
    Ok(ended)
}

/// Waits until `count` Workflows have succeeded, and reports each Workflow once, with the arrival of its watch event.
/// Fails when a Workflow ends in another phase.
pub(crate) async fn for_each_end(watch: Watch, count: usize, mut succeeded: impl FnMut(&str, Instant)) -> Result<()> {
    let mut known = BTreeSet::new();
    watch
        .until(|seen| {
            let (name, status) = (seen.object.metadata.name, seen.object.status);
            ensure!(
                status.phase == "Succeeded",
                "Workflow {name} ended {}: {}",
                status.phase,
                status.message.unwrap_or_default()
            );
            // Only the first event counts: later events are changes after the end of the run.
            if known.insert(name.clone()) {
                succeeded(&name, seen.at);
            }
            Ok(known.len() == count)
        })
        .await
}

/// Limits the time of a phase to a minute and a tenth of a second for each Workflow.
pub(super) async fn with_limit_for_gates<T>(
    count: usize,
    operator: &OperatorProcess,
    what: &str,
    phase: impl Future<Output = Result<T>>,
) -> Result<T> {
    let limit = Duration::from_secs(60) + Duration::from_millis(100) * u32::try_from(count).unwrap_or(u32::MAX);
    with_time_limit(limit, operator, &format!("not all of {count} gates were {what}"), phase).await
}

/// Limits the time of a phase of an operator. `error` is the beginning of the message at the limit.
pub(crate) async fn with_time_limit<T>(
    limit: Duration,
    operator: &OperatorProcess,
    error: &str,
    phase: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Ok(done) = tokio::time::timeout(limit, phase).await else {
        bail!("{error} after {limit:?}; the operator's log ends:\n{}", tail(operator.log()));
    };
    done.with_context(|| format!("the operator's log ends:\n{}", tail(operator.log())))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
