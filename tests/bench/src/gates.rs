//! `cargo xtask bench gates`: one-gate Workflows, judged by goals that are ratios inside one run.
//!
//! replay; closed loop; ceiling -> open loop -> ceiling; long runs; and on control planes with an audit log: requests;
//! gates held open
//!
//! **Invariant:** no cluster is used that was not started here.

mod closed_loop;
mod goals;
mod long_runs;
mod open_loop;
mod pending;
mod report;
mod requests;
mod runs;
mod tables;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum, value_parser};
use signoff_tests::control_plane::Options;
use signoff_tests::say;

use self::closed_loop::ClosedLoop;
use self::long_runs::LongRuns;
use self::open_loop::OpenLoop;
use self::report::{Measured, Replay};
pub(super) use self::runs::{ENDED, for_each_end, wait_for_ends, warm_up, watch_ends, with_time_limit};
use super::audit::Audit;
use super::ceiling::Ceiling;
use super::harness::{self, Harness};
use super::sample::Sample;
use super::{engine, process, run_to_end};

/// The most Workflows of a counted run: counts do not vary as times do.
const COUNTED: usize = 200;

/// Options of `cargo xtask bench gates`.
#[derive(Debug, Args)]
pub(crate) struct Gates {
    /// Measure only these parts, such as `--only closed` or `--only open,requests`; without it: all of them, `pending`
    /// if `--pending` is given
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Clients at once, a run for each number; the goals are for 1 and for 16
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 16], value_parser = value_parser!(u16).range(1..=64))]
    clients: Vec<u16>,
    /// Workflows of each run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(10..=20_000))]
    workflows: u32,
    /// Hold so many gates open, such as `--pending 5000,20000` (the numbers that have goals)
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = value_parser!(u32).range(16..=20_000))]
    pending: Vec<u32>,
    /// Visits of the long loop; the goal is for 1,000
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(20..=1_000))]
    steps: u32,
    /// Write all figures to this file too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure the operator as `cargo build` makes it: quick to build, several times slower than a release; no goal is
    /// judged
    #[arg(long)]
    debug_build: bool,
}

/// A part that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Throughput and processor time: clients do not wait for Workflows
    Open,
    /// Latency: clients wait for each Workflow
    Closed,
    /// Requests of the operator, by the API server's audit log
    Requests,
    /// Memory, idle requests and catching up with many gates open
    Pending,
    /// A step of a long run, beside one of a short run
    Long,
    /// The engine's replay of 1,000 records
    Replay,
}

/// Measures, prints the tables, and writes the file of `--json`.
pub(super) fn run(options: &Gates) -> Result<ExitCode> {
    let parts = options.parts()?;
    // Both builds come first: a build during a measurement would use its processors.
    let program = harness::build(options.debug_build)?;
    let replay = if parts.contains(&Part::Replay) { Some(replay()?) } else { None };
    let measured = run_to_end(options.measure(&parts, &program))?;
    let measured = Measured { replay, ..measured };
    harness::publish(&tables::render(&measured), &measured.to_json(), options.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Measures a replay, and how much of the machine others used at the same time.
fn replay() -> Result<Replay> {
    say::step("building the engine as it is shipped");
    engine::build()?;
    say::step("replaying 1,000 records");
    let own = || process::cpu_with_children(std::process::id());
    let (began, machine, before) = (Instant::now(), process::machine()?, own()?);
    let ms = engine::replay_ms()?;
    let used = process::machine()?.saturating_sub(machine).saturating_sub(own()?.saturating_sub(before));
    Ok(Replay { ms, others: used.as_secs_f64() / began.elapsed().as_secs_f64() })
}

impl Gates {
    /// Returns the parts that are to be measured.
    fn parts(&self) -> Result<Vec<Part>> {
        let is_pending = self.only.contains(&Part::Pending);
        ensure!(
            !is_pending || !self.pending.is_empty(),
            "--only pending: needs --pending N, such as --pending 5000,20000"
        );
        let only = !self.only.is_empty();
        ensure!(
            !only || is_pending || self.pending.is_empty(),
            "--pending: add `pending` to --only, or leave --only out"
        );
        let wanted = |part: &Part| match part {
            _ if only => self.only.contains(part),
            Part::Pending => !self.pending.is_empty(),
            _ => true,
        };
        Ok(Part::value_variants().iter().copied().filter(wanted).collect())
    }

    async fn measure(&self, parts: &[Part], program: &Path) -> Result<Measured> {
        let has = |part| parts.contains(&part);
        let mut measured = Measured { is_debug: self.debug_build, ..Measured::default() };
        if [Part::Open, Part::Closed, Part::Long].into_iter().any(has) {
            self.measure_times(parts, program, &mut measured).await?;
        }
        // Auditing costs the API server time, so requests are counted on control planes of their own.
        if has(Part::Requests) {
            say::step("counting requests on a control plane that writes an audit log");
            let audit = Audit::prepare()?;
            let harness = Harness::open(audit.options(), program).await?;
            let workflows = COUNTED.min(self.workflows as usize);
            measured.counted = requests::count(&harness, &audit, &self.numbers_of_clients(), workflows).await?;
        }
        for &count in self.pending.iter().filter(|_| has(Part::Pending)) {
            let audit = Audit::prepare()?;
            let harness = Harness::open(audit.options(), program).await?;
            measured.pending.push(pending::hold(&harness, &audit, count as usize).await?);
        }
        Ok(measured)
    }

    /// Measures the parts that share one control plane, which does nothing else.
    async fn measure_times(&self, parts: &[Part], program: &Path, measured: &mut Measured) -> Result<()> {
        say::step("starting a control plane and installing the chart");
        let harness = Harness::open(Options::default(), program).await?;
        let sample = warm_up(&harness).await?;
        measured.sizes = Some(sample.sizes());
        if parts.contains(&Part::Closed) {
            self.measure_closed(&harness, measured).await?;
        }
        if parts.contains(&Part::Open) {
            self.measure_open(&harness, &sample, measured).await?;
        }
        if parts.contains(&Part::Long) {
            measured.long = Some(LongRuns::measure(&harness, self.steps as usize).await?);
        }
        Ok(())
    }

    async fn measure_closed(&self, harness: &Harness, measured: &mut Measured) -> Result<()> {
        for clients in self.numbers_of_clients() {
            say::step(&format!("closed loop: {} workflows, clients: {clients}", self.workflows));
            measured.closed.push(ClosedLoop::measure(harness, clients, self.workflows as usize).await?);
        }
        say::step("closed loop: one client that pauses before each decision");
        measured.closed.push(ClosedLoop::measure_paced(harness, self.workflows as usize).await?);
        Ok(())
    }

    async fn measure_open(&self, harness: &Harness, sample: &Sample, measured: &mut Measured) -> Result<()> {
        say::step("the API server alone, no operator running");
        let before = Ceiling::measure(harness, sample).await?;
        for clients in self.numbers_of_clients() {
            say::step(&format!("open loop: {} workflows, clients: {clients}", self.workflows));
            measured.open.push(OpenLoop::measure(harness, sample, clients, self.workflows as usize).await?);
        }
        say::step("the API server alone again");
        measured.ceiling = Some([before, Ceiling::measure(harness, sample).await?]);
        Ok(())
    }

    fn numbers_of_clients(&self) -> Vec<usize> {
        self.clients.iter().copied().map(usize::from).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        gates: Gates,
    }

    fn parts(words: &str) -> Result<Vec<Part>> {
        Line::try_parse_from(["gates"].into_iter().chain(words.split_whitespace()))?.gates.parts()
    }

    #[test]
    fn all_parts_are_measured_unless_some_are_named() {
        use Part::{Closed, Long, Open, Pending, Replay, Requests};
        assert_eq!(parts("").unwrap(), [Open, Closed, Requests, Long, Replay]);
        assert_eq!(parts("--pending 5000,20000").unwrap(), [Open, Closed, Requests, Pending, Long, Replay]);
        assert_eq!(parts("--only closed").unwrap(), [Closed]);
        assert_eq!(parts("--only requests,pending --pending 16").unwrap(), [Requests, Pending]);
    }

    #[test]
    fn a_part_that_lacks_its_number_or_a_number_that_lacks_its_part_is_an_error() {
        assert!(parts("--only pending").unwrap_err().to_string().contains("--pending N"));
        assert!(parts("--only open --pending 16").unwrap_err().to_string().contains("--only"));
        assert!(parts("--pending 15").is_err());
    }
}
