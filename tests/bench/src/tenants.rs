//! `cargo xtask bench tenants`: a victim's gate, alone and beside hostile namespaces, for each kind of load.
//!
//! alone -> each load: tenants at work -> the victim's gates -> tenants' namespaces deleted -> the operator idle ->
//! alone
//!
//! **Invariant:** each load has a control plane and an operator of its own, so that no load affects another.

mod hostile;
mod kept_operator;
mod load;
mod report;
mod specs_of_calls;
mod specs_of_evaluations;
mod specs_of_gates;
mod tables;
mod victim;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum, value_parser};
use signoff_tests::control_plane::{Namespace, Options};
use signoff_tests::say;

use self::hostile::Hostile;
use self::kept_operator::KeptOperator;
use self::load::Load;
use self::report::{Measured, Run};
use self::victim::Victim;
use super::counters::Counters;
use super::harness::{self, Harness};
use super::processors::Reading;
use super::run_to_end;

/// Gates before the measurement, which fill caches.
const WARM_UP: usize = 10;
/// The time of the hostile tenants before the victim is measured.
const LEAD: Duration = Duration::from_secs(2);
/// The deadline until the namespaces of the hostile tenants are gone and the operator is idle.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The numbers of tenants that are also measured if the goals are missed beside all tenants.
const FEW: [usize; 2] = [1, 2];

/// Options of `cargo xtask bench tenants`.
#[derive(Debug, Args)]
pub(crate) struct Tenants {
    /// Measure only these loads, such as `--only regex,answers`; without it: all of them
    #[arg(long, value_name = "LOAD", value_delimiter = ',')]
    only: Vec<Load>,
    /// Seconds of each measurement; the goals are for 30
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// Hostile namespaces; the goals are for 10. Where they are missed, 1 and 2 are measured too
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u8).range(1..=50))]
    namespaces: u8,
    /// Write all figures to this file too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure the operator as `cargo build` makes it: quick to build, several times slower than a release; no goal is
    /// judged
    #[arg(long)]
    debug_build: bool,
}

/// Measures, prints the tables, and writes the file of `--json`.
pub(super) fn run(options: &Tenants) -> Result<ExitCode> {
    // The build comes first: a build during a measurement would use its processors.
    let program = harness::build(options.debug_build)?;
    let measured = run_to_end(options.measure(&program))?;
    harness::publish(&tables::render(&measured), &measured.to_json(), options.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

impl Tenants {
    async fn measure(&self, program: &Path) -> Result<Measured> {
        let (is_debug, namespaces) = (self.debug_build, self.namespaces.into());
        let mut measured = Measured { is_debug, namespaces, alone: Vec::new(), beside: Vec::new() };
        measured.alone.push(self.measure_alone(program).await?);
        for &load in self.loads() {
            let run = self.measure_beside(program, load, namespaces).await?;
            let is_missed = measured.is_missed(&run);
            measured.beside.push(run);
            for few in FEW.into_iter().filter(|few| is_missed && *few < namespaces) {
                measured.beside.push(self.measure_beside(program, load, few).await?);
            }
        }
        measured.alone.push(self.measure_alone(program).await?);
        Ok(measured)
    }

    fn loads(&self) -> &[Load] {
        if self.only.is_empty() { Load::value_variants() } else { &self.only }
    }

    async fn measure_alone(&self, program: &Path) -> Result<Run> {
        say::step("the victim alone");
        self.measure_run(program, None, 0).await
    }

    async fn measure_beside(&self, program: &Path, load: Load, tenants: usize) -> Result<Run> {
        say::step(&format!("the victim beside hostile namespaces: {tenants}, load: {}", load.name()));
        self.measure_run(program, Some(load), tenants).await
    }

    /// Measures the victim on a control plane of its own.
    async fn measure_run(&self, program: &Path, load: Option<Load>, tenants: usize) -> Result<Run> {
        let harness = Harness::open(Options::default(), program).await?;
        let mut operator = KeptOperator::start(&harness).await?;
        let mut victim = Victim::new(&harness).await?;
        let warm = operator.keep_running_during(async { Ok(victim.run_gates(|done| done < WARM_UP).await) }).await?;
        if let Some(problem) = warm.problem {
            say::problem(&format!("before the load: {problem}"));
        }
        let hostile = match load {
            Some(load) => {
                let starting = async {
                    let hostile = Hostile::start(&harness.cluster, load, tenants).await?;
                    tokio::time::sleep(LEAD).await;
                    Ok(hostile)
                };
                Some(operator.keep_running_during(starting).await?)
            }
            None => None,
        };
        let before = Reading::take(&harness, operator.process())?;
        let end = Instant::now() + Duration::from_secs(self.seconds.into());
        let gates =
            operator.keep_running_during(async { Ok(victim.run_gates(|_| Instant::now() < end).await) }).await?;
        let used = Reading::take(&harness, operator.process())?.since(&before);
        let stopped = match operator.process() {
            Some(process) => Counters::read(process).await.ok(),
            None => None,
        };
        // The sum of no samples is a negative zero.
        let stopped = stopped.map(|counters| counters.sum("signoff_evaluations_stopped_total", &[]).abs());
        let (deeds, idle_after) = match hostile {
            Some(hostile) => {
                let (deeds, namespaces) = hostile.stop().await?;
                (deeds, delete_and_wait_until_idle(&harness, &operator, &namespaces).await)
            }
            None => Default::default(),
        };
        let run = Run { load, tenants, gates, used, stopped, deeds, idle_after, needed: operator.stop().await? };
        say::step(&tables::line(&run));
        Ok(run)
    }
}

/// Deletes the namespaces. Returns the time until they were gone and the operator was idle; `None` after the deadline.
async fn delete_and_wait_until_idle(
    harness: &Harness,
    operator: &KeptOperator<'_>,
    namespaces: &[Namespace],
) -> Option<Duration> {
    let began = Instant::now();
    let ending = async {
        futures::future::try_join_all(namespaces.iter().map(Namespace::delete)).await?;
        for namespace in namespaces {
            let path = format!("/api/v1/namespaces/{}", namespace.name);
            // Nothing is measured now, so repeated requests disturb nothing.
            while super::crowd::get(&harness.admin, &path).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        }
        operator.wait_until_idle().await
    };
    match tokio::time::timeout(TIMEOUT, ending).await {
        Ok(Ok(since)) => Some(since.saturating_duration_since(began)),
        Ok(Err(error)) => {
            say::problem(&format!("after the load: {error:#}"));
            None
        }
        Err(_) => {
            say::problem(&format!("after the load: the operator is not idle after {TIMEOUT:?}"));
            None
        }
    }
}
