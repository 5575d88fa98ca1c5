//! `cargo xtask bench`: measures how fast gates open and close beside the rates of the API server alone and beside
//! hostile namespaces, the costs of votes, writes, Pods, notices and open pages, and the speed of the engine.
//!
//! **Invariant:** no cluster is used that was not started here.

mod admission;
mod agents;
mod audit;
mod bindings;
mod ceiling;
mod counters;
mod crd;
mod crowd;
mod engine;
mod gates;
mod goal;
mod harness;
mod inbox;
mod notices;
mod pods;
mod process;
mod processors;
mod sample;
mod schemas;
mod server;
mod table;
mod tenants;
mod watch;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand, value_parser};
use signoff_tests::say;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench",
    bin_name = "cargo xtask bench",
    about = "Measurements on control planes of their own"
)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// One-gate workflows against goals: latency, throughput, requests, CPU, memory; and long runs
    Gates(gates::Gates),
    /// A vote with the admission policies and without them, beside 1 to 64 recorded votes
    Admission(Admission),
    /// The writes of a one-gate workflow and their cost for the API server: bytes allocated, processor time; with and
    /// without policies
    Crd(crd::Crd),
    /// The inbox with 1,000 requests that wait, against goals: how fast it answers, how soon a vote is shown, what open
    /// pages cost
    Inbox(inbox::Inbox),
    /// Notices under the load of the open loop of gates, against goals: how soon they arrive, and what they cost the
    /// operator
    Notices(notices::Notices),
    /// Agents with tools: turns a second beside a bare loop, CPU and writes of a turn and of a call, and the engine's
    /// replay
    Agents(agents::Agents),
    /// A victim's gate beside hostile namespaces, against goals: latency, the operator's memory and its restarts, for
    /// each load
    Tenants(tenants::Tenants),
    /// Steps that are Pods on a real kubelet, beside bare Pods of the same kind (Linux, root)
    Pods(pods::Pods),
    /// The engine alone, no cluster: steps a second, microseconds a turn, bytes a step, of runs of a thousand steps
    Engine,
    /// JSON Schemas alone, no cluster: the time of a charged step of each keyword, beside that of `type`
    Schemas,
}

/// The number of measurements.
#[derive(Debug, Args)]
struct Admission {
    /// Votes of each kind
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(10..=2_000))]
    votes: u32,
}

fn main() -> ExitCode {
    run(&Arguments::parse().bench).unwrap_or_else(|error| {
        say::problem(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

fn run(bench: &Bench) -> Result<ExitCode> {
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
        Bench::Inbox(inbox) => inbox::run(inbox),
        Bench::Notices(notices) => notices::run(notices),
        Bench::Agents(agents) => agents::run(agents),
        Bench::Tenants(tenants) => tenants::run(tenants),
        Bench::Pods(pods) => pods::run(pods),
        Bench::Crd(crd) => {
            let measured = run_to_end(crd::measure(crd))?;
            say::result(&measured.to_string());
            Ok(ExitCode::SUCCESS)
        }
        Bench::Admission(admission) => {
            let levels = run_to_end(admission::measure(admission.votes as usize))?;
            say::result(&admission::render(&levels));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs a measurement to its end, or fails at an interrupt.
fn run_to_end<T>(measuring: impl Future<Output = Result<T>>) -> Result<T> {
    // The runtime has one thread, because the measuring code shares the processors with the measured programs.
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
