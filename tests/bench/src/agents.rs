//! `cargo xtask bench agents`: the cost of an agent with tools: the engine's replay of its journal, and many agents at
//! once, compared with a plain loop without an operator over the same provider.
//!
//! replay; bare loop -> operator, few calls a turn: by HTTP, by MCP -> operator, more calls a turn -> bare loop
//!
//! **Invariant:** no cluster is used but its own, and nothing is called but its own server on a loopback address.

mod bare_loop;
mod run;
mod tables;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, value_parser};
use signoff_tests::control_plane::Options;
use signoff_tests::mcp::McpVersion;
use signoff_tests::say;

use self::bare_loop::BareLoop;
pub(super) use self::run::workflow;
use self::run::{CalledBy, Run};
use super::engine::{self, AgentReplay};
use super::harness::{self, Harness};
use super::server::Server;
use super::{gates, run_to_end};

/// The calls of each turn in the two runs by HTTP: their difference is the cost of further calls.
const CALLS: [usize; 2] = [1, 4];
/// The runs of the operator: those by MCP come right after the run with which they are compared.
const RUNS: [(CalledBy, usize); 4] = [
    (CalledBy::Http, CALLS[0]),
    (CalledBy::Mcp(McpVersion::Stateless), CALLS[0]),
    (CalledBy::Mcp(McpVersion::Session), CALLS[0]),
    (CalledBy::Http, CALLS[1]),
];

/// Options of `cargo xtask bench agents`.
#[derive(Debug, Args)]
pub(crate) struct Agents {
    /// Agents at once, each in a Workflow of its own; the goals are for 50
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = value_parser!(u16).range(1..=200))]
    agents: u16,
    /// Turns with calls of each agent; the goals are for 20
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u16).range(1..=99))]
    turns: u16,
    /// Milliseconds until the provider answers a turn; the goals are for 0
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = value_parser!(u16).range(0..=10_000))]
    latency: u16,
    /// Measure the engine alone, no cluster
    #[arg(long)]
    only_replay: bool,
    /// Measure the operator as `cargo build` makes it: quick to build, several times slower than a release; no goal is
    /// judged
    #[arg(long)]
    debug_build: bool,
}

/// The amount of work of each run.
#[derive(Clone, Copy, Debug)]
struct Load {
    agents: usize,
    turns: usize,
    latency: Duration,
}

impl Load {
    /// Returns the turns with calls of all agents.
    fn turns(self) -> usize {
        self.agents * self.turns
    }
}

/// All figures.
struct Measured {
    is_debug: bool,
    load: Load,
    replays: Vec<AgentReplay>,
    /// The runs by HTTP, with the fewest and with the most calls a turn.
    runs: Vec<Run>,
    /// The runs by MCP, with the fewest calls a turn.
    runs_of_servers: Vec<Run>,
    /// The bare loops before and after the runs, with the fewest calls.
    bare: Vec<BareLoop>,
}

/// Measures, and prints the tables.
pub(super) fn run(options: &Agents) -> Result<ExitCode> {
    let load = Load {
        agents: options.agents.into(),
        turns: options.turns.into(),
        latency: Duration::from_millis(options.latency.into()),
    };
    // Builds come first: a build beside a measurement would use its processors.
    let program = if options.only_replay { None } else { Some(harness::build(options.debug_build)?) };
    say::step("building the engine as it is shipped, and replaying agents");
    let replays = engine::agent_replays()?;
    let (runs, runs_of_servers, bare) = (Vec::new(), Vec::new(), Vec::new());
    let mut measured = Measured { is_debug: options.debug_build, load, replays, runs, runs_of_servers, bare };
    if let Some(program) = &program {
        run_to_end(measured.measure(program))?;
    }
    say::result(&tables::render(&measured));
    Ok(ExitCode::SUCCESS)
}

impl Measured {
    async fn measure(&mut self, program: &std::path::Path) -> Result<()> {
        let load = self.load;
        say::step("starting a control plane and installing the chart");
        let harness = Harness::open(Options::default(), program).await?;
        gates::warm_up(&harness).await?;
        let [few, _] = CALLS;
        let server = Server::start(load.turns, few, load.latency).await?;
        say::step(&format!("a bare loop: {} agents of {} turns", load.agents, load.turns));
        self.bare.push(BareLoop::measure(&server, load).await?);
        for (called_by, calls) in RUNS {
            let server = Server::start(load.turns, calls, load.latency).await?;
            let (way, runs) = match called_by {
                CalledBy::Http => ("HTTP".to_owned(), &mut self.runs),
                CalledBy::Mcp(version) => (format!("MCP {}", version.text()), &mut self.runs_of_servers),
            };
            say::step(&format!("{} agents of {} turns, calls of each turn by {way}: {calls}", load.agents, load.turns));
            runs.push(Run::measure(&harness, &server, load, (called_by, calls)).await?);
        }
        say::step("the bare loop again");
        self.bare.push(BareLoop::measure(&server, load).await?);
        Ok(())
    }

    /// Returns the operator's turns per second, as a share of the mean of both bare loops.
    fn share_of_bare_loop(&self) -> Option<f64> {
        let run = self.runs.first()?;
        let bare = self.bare.iter().map(|bare| bare.turns_per_second(self.load)).sum::<f64>() / self.bare.len() as f64;
        Some(run.turns_per_second(self.load) / bare)
    }

    /// Returns the operator's processor time per turn with a call by MCP, as a share of the time with a call by HTTP.
    fn share_of_http(&self, version: McpVersion) -> Option<f64> {
        let by_http = self.runs.first()?.operator_ms(self.load);
        let run = self.runs_of_servers.iter().find(|run| run.called_by == CalledBy::Mcp(version))?;
        Some(run.operator_ms(self.load) / by_http)
    }

    /// Returns the operator's processor time per turn with one call, and per further call in the turn, in milliseconds.
    fn operator_ms(&self) -> Option<(f64, f64)> {
        let [few, many] = self.runs.as_slice() else { return None };
        let [of_few, of_many] = [few, many].map(|run| run.operator_ms(self.load));
        Some((of_few, (of_many - of_few) / (CALLS[1] - CALLS[0]) as f64))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::processors::{OPERATOR, Used};

    fn run(called_by: CalledBy, took: u64, cpu: u64) -> Run {
        let (took, cpu) = (Duration::from_secs(took), Duration::from_secs(cpu));
        Run { called_by, calls: 1, took, state_writes: 0.0, reads: 0.0, used: Used::of_one(OPERATOR, cpu) }
    }

    #[test]
    fn a_further_call_costs_what_the_run_with_more_calls_takes_longer() {
        let bare = |seconds| BareLoop { took: Duration::from_secs(seconds), others: 0.0 };
        let measured = Measured {
            is_debug: false,
            load: Load { agents: 50, turns: 20, latency: Duration::ZERO },
            replays: Vec::new(),
            runs: vec![run(CalledBy::Http, 10, 1), run(CalledBy::Http, 20, 4)],
            runs_of_servers: vec![
                run(CalledBy::Mcp(McpVersion::Stateless), 10, 2),
                run(CalledBy::Mcp(McpVersion::Session), 10, 3),
            ],
            bare: vec![bare(1), bare(1)],
        };
        let (turn, call) = measured.operator_ms().unwrap();
        assert!((turn - 1.0).abs() < 1e-9 && (call - 1.0).abs() < 1e-9, "{turn} {call}");
        assert!((measured.share_of_bare_loop().unwrap() - 0.1).abs() < 1e-9);
        let [newer, older] =
            [McpVersion::Stateless, McpVersion::Session].map(|one| measured.share_of_http(one).unwrap());
        assert!((newer - 2.0).abs() < 1e-9 && (older - 3.0).abs() < 1e-9, "{newer} {older}");
    }
}
