//! `cargo xtask bench`: how fast gates open and close, measured against what the API server could do at best; and how
//! fast the engine is by itself.
//! It may not touch any cluster but those it starts, and judges nothing: it prints the goals beside the numbers.

mod admission;
mod audit;
mod bindings;
mod ceiling;
mod counters;
mod crd;
mod crowd;
mod engine;
mod gates;
mod pending;
mod pods;
mod process;
mod report;
mod sample;
mod schemas;
mod stage;
mod table;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, value_parser};
use signoff_tests::control_plane::Options;

use self::audit::Audit;
use self::ceiling::{Ceiling, Rates};
use self::report::{Measured, Report};
use self::stage::Stage;
use crate::say;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// One-gate workflows: applied, waiting, approved, done; rates, latency, requests, CPU and memory
    Gates(Gates),
    /// A vote with the admission policies and without them, beside 1 to 64 recorded votes
    Admission(Admission),
    /// What the writes of a one-gate workflow cost the API server: bytes allocated, processor time; with and without policies
    Crd(Crd),
    /// Steps that are Pods on a real kubelet, beside bare Pods of the same kind (Linux, root)
    Pods(pods::Pods),
    /// The engine alone, no cluster: steps a second, microseconds a turn, bytes a step, of runs of a thousand steps
    Engine,
    /// JSON Schemas alone, no cluster: the time of a charged step of each keyword, beside that of `type`
    Schemas,
}

/// How much of it.
#[derive(Debug, Args)]
pub(crate) struct Admission {
    /// Votes of each kind
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(10..=2_000))]
    votes: u32,
}

/// How much of it.
#[derive(Debug, Args)]
pub(crate) struct Crd {
    /// Writes of each kind
    #[arg(long, default_value_t = 120, value_parser = value_parser!(u32).range(10..=2_000))]
    writes: u32,
}

/// How much of it.
#[derive(Debug, Args)]
pub(crate) struct Gates {
    /// Clients that apply and approve at once; without it: a run with 1 and a run with 16
    #[arg(long, value_parser = value_parser!(u16).range(1..=64))]
    clients: Option<u16>,
    /// Workflows a run
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u32).range(10..=20_000))]
    workflows: u32,
    /// Also hold so many gates open: memory, idle requests, and how long a new operator takes to catch up
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(16..=20_000))]
    pending: Option<u32>,
    /// Write the numbers here too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure the operator as `cargo build` makes it: quick to build, and several times slower than it is shipped
    #[arg(long)]
    debug_build: bool,
}

pub(crate) fn run(bench: &Bench) -> Result<ExitCode> {
    match bench {
        Bench::Gates(gates) => measure_gates(gates),
        Bench::Engine => {
            say::result(&engine::measure()?);
            Ok(ExitCode::SUCCESS)
        }
        Bench::Schemas => {
            say::result(&schemas::measure()?);
            Ok(ExitCode::SUCCESS)
        }
        Bench::Pods(pods) => pods::run(pods),
        Bench::Crd(crd) => {
            let measured = to_its_end(crd::measure(crd.writes as usize))?;
            say::result(&measured.to_string());
            Ok(ExitCode::SUCCESS)
        }
        Bench::Admission(admission) => {
            let levels = to_its_end(admission::measure(admission.votes as usize))?;
            say::result(&admission::render(&levels));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Measures, unless somebody interrupts it.
fn to_its_end<T>(measuring: impl Future<Output = Result<T>>) -> Result<T> {
    // One thread: what measures shares the processors with what is measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            measured = measuring => measured,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                bail!("interrupted: nothing was measured to its end")
            }
        }
    })
}

fn measure_gates(gates: &Gates) -> Result<ExitCode> {
    let measured = to_its_end(measure(gates))?;
    say::result(&table::render(&measured, gates.debug_build));
    if let Some(file) = &gates.json {
        let text = serde_json::to_string_pretty(&Report::from(&measured))?;
        std::fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
        say::step(&format!("the numbers are in {}", file.display()));
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(gates: &Gates) -> Result<Measured> {
    let program = stage::build(gates.debug_build)?;
    let timed = Timed::measure(gates, &program).await?;
    // Auditing costs the API server time, so what is counted by it has a control plane of its own.
    say::step("counting every request of the operator on a second, audited control plane");
    let audit = Audit::prepare()?;
    let stage = Stage::open(audit.options(), &program).await?;
    let counted = gates::counted(&stage, &audit).await?;
    let pending = match gates.pending {
        Some(count) => Some(pending::hold(&stage, &audit, count as usize).await?),
        None => None,
    };
    let Timed { ceiling, ceiling_again, sizes, runs } = timed;
    Ok(Measured { ceiling, ceiling_again, sizes, runs, counted, pending })
}

/// What is measured in time, on a control plane that does nothing else.
struct Timed {
    ceiling: Ceiling,
    ceiling_again: Rates,
    sizes: [usize; 2],
    runs: Vec<gates::Run>,
}

impl Timed {
    async fn measure(gates: &Gates, program: &Path) -> Result<Self> {
        say::step("starting a control plane and installing the chart");
        let stage = Stage::open(Options::default(), program).await?;
        let sample = gates::warm_up(&stage).await?;
        say::step("measuring the API server alone");
        let ceiling = Ceiling::measure(&stage, &sample).await?;
        let mut runs = Vec::new();
        for clients in gates.clients.map_or_else(|| vec![1, 16], |clients| vec![clients]) {
            say::step(&format!("{} workflows, clients: {clients}", gates.workflows));
            runs.push(gates::run(&stage, usize::from(clients), gates.workflows as usize).await?);
        }
        say::step("measuring the API server alone again");
        let ceiling_again = Ceiling::again(&stage, &sample).await?;
        Ok(Self { ceiling, ceiling_again, sizes: sample.sizes(), runs })
    }
}
