//! `cargo xtask bench crd`: the cost of the six writes of a one-gate workflow for the API server, in allocated bytes
//! and in processor time, with the policies, without them, and without schemas. An Event beside them is the unit, and a
//! turn of an agent is measured with them (`turns`). Further parts are the cost of each policy (`policies`), the cost
//! of the rules that stay in the CRDs (`locks`), and the memory of the CRDs (`heap`).
//!
//! one real run -> copies of its objects and statuses -> the same writes on three shapes of one control plane
//!
//! Allocation hardly varies from run to run; processor time does when others use the machine.

mod heap;
mod locks;
mod policies;
mod turns;

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum, value_parser};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use signoff_tests::control_plane::Options;
use signoff_tests::say;

use super::counters::Counters;
use super::harness::{self, Harness, approver_user};
use super::sample::{self, Sample};
use super::{bindings, ceiling, crowd, gates};

/// The writes of a one-gate workflow in their order; the last is the unit and belongs to no workflow.
const WRITES: [&str; 7] = ["create Workflow", "status", "create Approval", "vote", "status", "status", "create Event"];
/// The number of writes that belong to a workflow.
const OF_A_WORKFLOW: usize = 6;
/// The number of Events for each of the other writes.
const EVENTS: usize = 8;
/// The deadline for an API server to apply another schema.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The goals for the six writes in KiB: with every policy, and without any.
const GOALS: [f64; 2] = [4300.0, 3700.0];
/// The goal for a vote with every policy, in KiB.
const VOTE_GOAL: f64 = 950.0;
/// The index of the vote in [`WRITES`].
const VOTE: usize = 3;
/// The number of other writes for each run in which a turn is measured.
const WRITES_FOR_A_RUN: usize = 15;

/// Options of `cargo xtask bench crd`.
#[derive(Debug, Args)]
pub(crate) struct Crd {
    /// Writes of each kind
    #[arg(long, default_value_t = 120, value_parser = value_parser!(u32).range(15..=2_000))]
    writes: u32,
    /// Measure only these parts, such as `--only writes`; without it: all of them
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The six writes and an agent's turn: with every policy, without policies, without policies and schemas
    Writes,
    /// The six writes without one policy at a time
    Policies,
    /// The rules that stay in the CRD of Approvals
    Locks,
    /// The heap of an API server with the CRDs and without
    Heap,
}

/// The average cost of one write.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    kib: f64,
    cpu_ms: f64,
}

/// The writes on one shape of the control plane.
#[derive(Debug)]
struct Row {
    shape: String,
    costs: [Cost; WRITES.len()],
    /// A turn of an agent with one call.
    turn: Option<Cost>,
    /// The heap of the API server after the writes, in MiB.
    heap: f64,
}

/// All figures.
#[derive(Debug)]
pub(super) struct Measured {
    writes: usize,
    rows: Vec<Row>,
    policies: Vec<Row>,
    /// A finished Workflow and its Approval: the bytes of JSON, and how many of them are `managedFields`.
    sizes: [(&'static str, usize, usize); 2],
    /// The status writes of an agent's run for each of its turns.
    writes_a_turn: Option<f64>,
    locks: Option<locks::Locks>,
    heaps: Option<heap::Heaps>,
}

/// Measures this number of writes of each kind on each shape.
pub(super) async fn measure(options: &Crd) -> Result<Measured> {
    let has = |part| options.only.is_empty() || options.only.contains(&part);
    let writes = options.writes as usize;
    // The operator creates the objects that are copied, so its speed does not matter.
    let program = harness::build(true)?;
    let mut heaps = None;
    if has(Part::Heap) {
        say::step("measuring the heap of an API server with our CRDs and without");
        heaps = Some(heap::measure().await?);
    }
    say::step("starting a control plane and installing the chart");
    let harness = Harness::open(Options::default(), &program).await?;
    let sample = gates::warm_up(&harness).await?;
    let size =
        |kind, object: &Value| (kind, object.to_string().len(), object["metadata"]["managedFields"].to_string().len());
    let sizes = [size("Workflow", &sample.workflow), size("Approval", &sample.approval)];
    let mut measured =
        Measured { writes, rows: Vec::new(), policies: Vec::new(), sizes, writes_a_turn: None, locks: None, heaps };
    let agent = if has(Part::Writes) { Some(turns::AgentRun::record(&harness).await?) } else { None };
    measured.writes_a_turn = agent.as_ref().map(turns::AgentRun::writes_a_turn);
    let shape = Shape { harness: &harness, sample: &sample, agent: agent.as_ref(), writes };
    if has(Part::Writes) {
        say::step("writing with every policy in force");
        measured.rows.push(shape.measure_row("every policy in force").await?);
    }
    if has(Part::Policies) {
        measured.policies = policies::measure(&shape).await?;
    }
    if !has(Part::Writes) && !has(Part::Locks) {
        return Ok(measured);
    }
    let path = sample::path(&harness.namespace().await?, "approvals");
    // An administrator must not create an Approval, which only the operator does.
    let refused = sample.approval(&sample.workflow.to_string())?;
    bindings::remove_all(&harness.cluster, &path, serde_json::to_vec(&refused)?).await?;
    if has(Part::Writes) {
        say::step("writing without policies");
        measured.rows.push(shape.measure_row("no policy").await?);
    }
    if has(Part::Locks) {
        measured.locks = Some(locks::measure(&harness, &sample, writes).await?);
    }
    if has(Part::Writes) {
        remove_schemas(&harness, &path).await?;
        say::step("writing without policies and schemas");
        measured.rows.push(shape.measure_row("no policy, no schema").await?);
    }
    Ok(measured)
}

/// The writes that are measured on one shape of the control plane.
struct Shape<'a> {
    harness: &'a Harness,
    sample: &'a Sample,
    agent: Option<&'a turns::AgentRun>,
    writes: usize,
}

impl Shape<'_> {
    async fn measure_row(&self, shape: &str) -> Result<Row> {
        let costs = measure_writes(self.harness, self.sample, self.writes).await?;
        let turn = match self.agent {
            Some(agent) => Some(agent.cost(self.harness, self.writes / WRITES_FOR_A_RUN).await?),
            None => None,
        };
        let heap = read_counters(self.harness).await?.sum("go_memstats_heap_inuse_bytes", &[]) / 1024.0 / 1024.0;
        Ok(Row { shape: shape.to_owned(), costs, turn, heap })
    }
}

/// Sends the writes of `count` workflows and their Events, kind by kind, by one client. Returns the average cost of one
/// write of each kind, in the order of [`WRITES`].
async fn measure_writes(harness: &Harness, sample: &Sample, count: usize) -> Result<[Cost; WRITES.len()]> {
    let namespace = harness.namespace().await?;
    let operator = harness.cluster.operator_client().await?;
    let workflows = sample::path(&namespace, "workflows");
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let meter = Meter::calibrate(harness).await?;

    let bodies = bodies_of_workflows(sample, count)?;
    let (create_workflow, created) = meter
        .measure(count, async |index| crowd::post(&harness.requester, &workflows, bodies[index].clone()).await)
        .await?;
    let puts = ceiling::status_requests(&created, &workflows, &sample.waiting)?;
    let (open, opened) =
        meter.measure(count, async |index| crowd::put(&operator, &puts[index].0, puts[index].1.clone()).await).await?;

    let [create_approval, vote, decide] = measure_approval_writes(&meter, sample, &namespace, &created).await?;
    let puts = ceiling::status_requests(&opened, &workflows, &sample.workflow["status"])?;
    let (finish, _) =
        meter.measure(count, async |index| crowd::put(&operator, &puts[index].0, puts[index].1.clone()).await).await?;

    // An Event allocates so little that many are needed to tell it from the API server's own work.
    let event_count = count * EVENTS;
    let bodies = ceiling::bodies(event_count, |index| Ok(sample.event(&sample::name(index))))?;
    let (event, _) =
        meter.measure(event_count, async |index| crowd::post(&operator, &events, bodies[index].clone()).await).await?;

    Ok([create_workflow, open, create_approval, vote, decide, finish, event])
}

/// Sends the three writes of an Approval for each of these Workflows: the creation, the vote, and the status with the
/// counted vote. Returns the average cost of one write of each kind.
async fn measure_approval_writes(
    meter: &Meter<'_>,
    sample: &Sample,
    namespace: &str,
    workflows: &[String],
) -> Result<[Cost; 3]> {
    let (harness, count) = (meter.harness, workflows.len());
    let operator = harness.cluster.operator_client().await?;
    let approvals = sample::path(namespace, "approvals");
    let bodies = ceiling::bodies(count, |index| sample.approval(&workflows[index]))?;
    let (create, asked) =
        meter.measure(count, async |index| crowd::post(&operator, &approvals, bodies[index].clone()).await).await?;
    let vote = serde_json::to_vec(&sample::decision(approver_user()?))?;
    let paths = ceiling::paths_of_answers(&asked, &approvals)?;
    let (vote, voted) =
        meter.measure(count, async |index| crowd::patch(&harness.approver, &paths[index], vote.clone()).await).await?;
    let puts = ceiling::status_requests(&voted, &approvals, &sample.approval["status"])?;
    let (decide, _) =
        meter.measure(count, async |index| crowd::put(&operator, &puts[index].0, puts[index].1.clone()).await).await?;
    Ok([create, vote, decide])
}

/// Returns `count` Workflows as JSON. Without policies the API server does not stamp the requester.
fn bodies_of_workflows(sample: &Sample, count: usize) -> Result<Vec<Vec<u8>>> {
    let approver = approver_user()?;
    ceiling::bodies(count, |index| {
        let mut workflow = sample::workflow(&sample::name(index), approver);
        workflow["spec"]["requestedBy"] = sample.workflow["spec"]["requestedBy"].clone();
        Ok(workflow)
    })
}

/// Reads the API server's own counters before and after a number of writes.
struct Meter<'a> {
    harness: &'a Harness,
    /// The bytes that one reading allocates, which are subtracted.
    reading: f64,
}

impl<'a> Meter<'a> {
    async fn calibrate(harness: &'a Harness) -> Result<Self> {
        let first = allocated(&read_counters(harness).await?);
        let second = allocated(&read_counters(harness).await?);
        Ok(Self { harness, reading: second - first })
    }

    /// Sends the writes one after the other. Returns the average cost of a write, and the answers in order.
    async fn measure(&self, count: usize, write: impl AsyncFn(usize) -> Result<String>) -> Result<(Cost, Vec<String>)> {
        let before = read_counters(self.harness).await?;
        let mut answers = Vec::with_capacity(count);
        for index in 0..count {
            answers.push(write(index).await?);
        }
        let after = read_counters(self.harness).await?;
        let bytes = allocated(&after) - allocated(&before) - self.reading;
        let cpu = cpu_seconds(&after) - cpu_seconds(&before);
        let count = count as f64;
        Ok((Cost { kib: bytes / 1024.0 / count, cpu_ms: cpu * 1000.0 / count }, answers))
    }
}

async fn read_counters(harness: &Harness) -> Result<Counters> {
    Ok(Counters::parse(&crowd::get(&harness.admin, "/metrics").await.context("the API server's /metrics")?))
}

fn allocated(counters: &Counters) -> f64 {
    counters.sum("go_memstats_alloc_bytes_total", &[])
}

fn cpu_seconds(counters: &Counters) -> f64 {
    counters.sum("process_cpu_seconds_total", &[])
}

/// Replaces the schemas of both kinds by a schema with only the fields that CRDs need, and waits until the API server
/// applies the new schema.
async fn remove_schemas(harness: &Harness, approvals: &str) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(harness.admin.clone());
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut status = anything.clone();
    // The printer columns and selectable fields of both kinds name `status.phase`.
    status["properties"] = json!({"phase": {"type": "string"}});
    let schema = json!({"type": "object", "properties": {"spec": anything, "status": status}});
    for name in ["workflows.signoff.dev", "approvals.signoff.dev"] {
        let mut crd = serde_json::to_value(crds.get(name).await?)?;
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone();
        crds.replace(name, &PostParams::default(), &serde_json::from_value(crd)?).await?;
    }
    let nonsense = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "nonsense"}, "spec": {"anything": true}});
    let (path, body) = (format!("{approvals}?dryRun=All"), serde_json::to_vec(&nonsense)?);
    let deadline = Instant::now() + TIMEOUT;
    // No event tells which schema an API server applies, so the request is repeated until it passes.
    while let Err(error) = crowd::post(&harness.admin, &path, body.clone()).await {
        if Instant::now() > deadline {
            bail!("the schemas are still in force {TIMEOUT:?} after they were replaced: {error:#}");
        }
    }
    Ok(())
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{} of each write, one client; KiB that the API server allocates for one", self.writes)?;
        write!(f, "{:<32}", "")?;
        for write in WRITES {
            write!(f, "{write:>17}")?;
        }
        writeln!(
            f,
            "{:>9}{:>9}{:>12}{:>10}{:>14}{:>11}",
            "six", "goal", "in Events", "CPU, ms", "agent's turn", "heap, MiB"
        )?;
        for (index, row) in self.rows.iter().chain(&self.policies).enumerate() {
            write!(f, "{:<32}", row.shape)?;
            for cost in row.costs {
                write!(f, "{:>17.0}", cost.kib)?;
            }
            let six = &row.costs[..OF_A_WORKFLOW];
            let kib: f64 = six.iter().map(|cost| cost.kib).sum();
            let cpu: f64 = six.iter().map(|cost| cost.cpu_ms).sum();
            let goal = GOALS.get(index).map_or(String::new(), |goal| format!("{goal:.0}"));
            let turn = row.turn.map_or(String::new(), |turn| format!("{:.0}", turn.kib));
            let in_events = kib / row.costs[OF_A_WORKFLOW].kib;
            writeln!(f, "{kib:>9.0}{goal:>9}{in_events:>11.0}×{cpu:>10.1}{turn:>14}{:>11.0}", row.heap)?;
        }
        if let Some(row) = self.rows.first() {
            writeln!(
                f,
                "a vote with every policy in force: {:.0} KiB, the goal is {VOTE_GOAL:.0}",
                row.costs[VOTE].kib
            )?;
        }
        if let Some(writes) = self.writes_a_turn {
            writeln!(f, "an agent's turn with one call has {writes:.2} status writes")?;
        }
        for (kind, bytes, managed) in &self.sizes {
            writeln!(f, "a finished {kind} has {bytes} bytes, {managed} of them managedFields")?;
        }
        self.locks.iter().try_for_each(|locks| write!(f, "{locks}"))?;
        self.heaps.iter().try_for_each(|heaps| write!(f, "{heaps}"))
    }
}
