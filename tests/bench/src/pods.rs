//! Steps that are Pods on a real kubelet: what the operator adds to a bare create and watch of the same Pods, and its
//! requests to the API server. The measurement has a machine of its own, as the tests of Pods do.

mod run;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, value_parser};
use signoff_tests::cargo::{becomes, surround};
use signoff_tests::control_plane::binary;
use signoff_tests::node::{Input, Machine, Node, is_inside};
use signoff_tests::say;

use self::run::{Run, Times};
use super::audit::{Audit, Tally};
use super::counters::Counters;
use super::harness::{self, Harness};
use super::{process, run_to_end};

/// Bare Pods and runs alternate in rounds, so that a machine whose speed changes affects both.
const ROUNDS: usize = 2;
/// Runs whose requests are all counted by the API server.
const COUNTED: usize = 20;
/// The number of clients of the counted runs.
const CLIENTS: usize = 4;

/// Options of `cargo xtask bench pods`.
#[derive(Debug, Args)]
pub(crate) struct Pods {
    /// Runs at once, and bare Pods at once; without it: 1, then 4
    #[arg(long, value_parser = value_parser!(u16).range(1..=16))]
    clients: Option<u16>,
    /// Runs of one Pod each, and as many bare Pods
    #[arg(long, default_value_t = 40, value_parser = value_parser!(u32).range(4..=400))]
    workflows: u32,
    /// Measure the operator as `cargo build` makes it: quick to build, and several times slower than it is shipped
    #[arg(long)]
    debug_build: bool,
    /// The operator that was built, told to the process that measures
    #[arg(long, hide = true)]
    operator: Option<PathBuf>,
}

/// Runs and bare Pods by a number of clients at once.
struct Level {
    clients: usize,
    ours: Times,
    bare: Times,
    /// The operator's processor time a run.
    cpu: Duration,
    /// Processors that all processes of the machine used.
    busy: f64,
}

/// All figures.
struct Measured {
    levels: Vec<Level>,
    /// Requests of the operator for runs of three steps, the second of them a Pod.
    with: Tally,
    /// Requests of the operator for the same runs without the Pod.
    without: Tally,
    counted: usize,
}

/// Builds the operator, and measures it on a machine of its own.
pub(super) fn run(pods: &Pods) -> Result<ExitCode> {
    if is_inside() {
        let program = pods.operator.as_deref().context("--operator: the program to be measured")?;
        let measured = run_to_end(measure(pods, program))?;
        say::result(&table::render(&measured, pods.debug_build));
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::find()?;
    binary()?.needed_by_pods()?;
    let program = match &pods.operator {
        Some(program) => program.canonicalize().with_context(|| format!("--operator {}", program.display()))?,
        None => harness::build(pods.debug_build)?,
    };
    let mut inside = machine.inside(&std::env::current_exe()?, Input::Nothing)?;
    inside.args(["pods", "--workflows", &pods.workflows.to_string(), "--operator"]).arg(program);
    if let Some(clients) = pods.clients {
        inside.args(["--clients", &clients.to_string()]);
    }
    if pods.debug_build {
        inside.arg("--debug-build");
    }
    becomes(surround(&mut inside))
}

async fn measure(pods: &Pods, program: &Path) -> Result<Measured> {
    let clients = pods.clients.map_or_else(|| vec![1, 4], |clients| vec![clients]);
    let each = (pods.workflows as usize).div_ceil(ROUNDS);
    let levels = measure_levels(program, &clients, each).await?;
    // Auditing costs the API server time, so requests are counted on a control plane of its own.
    say::step("counting every request of the operator on a second, audited control plane");
    let (with, without) = count_requests(program).await?;
    Ok(Measured { levels, with, without, counted: COUNTED })
}

/// Measures runs with a Pod and bare Pods, at each number of clients.
async fn measure_levels(program: &Path, clients: &[u16], count: usize) -> Result<Vec<Level>> {
    say::step("starting a control plane and a node, and installing the chart");
    let node = Node::start().await?;
    let harness = Harness::on(node.cluster().clone(), program).await?;
    let operator = harness.operator().await?;
    let sample = run::sample(&harness).await?;
    let mut levels = Vec::new();
    for clients in clients.iter().copied().map(usize::from) {
        let mut level =
            Level { clients, ours: Times::default(), bare: Times::default(), cpu: Duration::ZERO, busy: 0.0 };
        let (start, machine) = (Instant::now(), process::machine()?);
        for round in 1..=ROUNDS {
            say::step(&format!("clients: {clients}, round {round} of {ROUNDS}: {count} bare Pods, then {count} runs"));
            run::measure_bare_pods(&harness, clients, count, &sample, &mut level.bare).await?;
            let before = process::cpu(operator.pid())?;
            let run = Run { harness: &harness, operator: &operator, clients, count, with_pod: true };
            run.run_to_end(&mut level.ours).await?;
            level.cpu += process::cpu(operator.pid())?.saturating_sub(before);
        }
        level.cpu /= u32::try_from(count * ROUNDS)?;
        level.busy = (process::machine()? - machine).as_secs_f64() / start.elapsed().as_secs_f64();
        levels.push(level);
    }
    operator.stop().await?;
    Ok(levels)
}

/// Counts the requests of runs with a Pod, and of runs without.
async fn count_requests(program: &Path) -> Result<(Tally, Tally)> {
    let audit = Audit::prepare()?;
    let node = Node::start_with(audit.options()).await?;
    let harness = Harness::on(node.cluster().clone(), program).await?;
    let operator = harness.operator().await?;
    let count = async |with_pod| {
        Counters::read_at_rest(&operator).await?;
        let start = audit.end_of_log()?;
        let run = Run { harness: &harness, operator: &operator, clients: CLIENTS, count: COUNTED, with_pod };
        run.run_to_end(&mut Times::default()).await?;
        Counters::read_at_rest(&operator).await?;
        audit.count_since(start)
    };
    let (with, without) = (count(true).await?, count(false).await?);
    operator.stop().await?;
    Ok((with, without))
}
