//! `cargo xtask bench`: how fast gates open and close, measured against what the API server could do at best; what votes, writes
//! and Pods cost; and how fast the engine is by itself.
//! Must not touch any cluster but those it starts.

mod admission;
mod audit;
mod bindings;
mod ceiling;
mod counters;
mod crd;
mod crowd;
mod engine;
mod gates;
mod pods;
mod process;
mod processors;
mod sample;
mod schemas;
mod stage;
mod table;
mod watch;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, value_parser};

use crate::say;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// One-gate workflows against goals: latency, throughput, requests, CPU, memory; and long runs
    Gates(gates::Gates),
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

pub(crate) fn run(bench: &Bench) -> Result<ExitCode> {
    match bench {
        Bench::Gates(gates) => gates::run(gates),
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
