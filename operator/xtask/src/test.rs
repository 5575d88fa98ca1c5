//! `cargo xtask test`: runs the parts, gives the cluster tests their control plane, and adds everything up. A failure
//! does not stop the run, and a part that cannot run is a failure of that part.

mod programs;
mod web;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use signoff_tests::cargo::{cargo, metadata, surround, tee};
use signoff_tests::control_plane::{
    BINARIES, Cluster, LIFTABLE, OPERATED, OperatorOptions, OperatorProcess, SHARED, binary,
};
use signoff_tests::image::IMAGE_FOLDER;
use signoff_tests::node::{Input, Machine};
use signoff_tests::say;

use crate::lint;
use crate::tally::{ShownLines, Tally};
use programs::{TestProgram, as_tests};

/// One part of all checks and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Format, clippy, generated files, crate arrows, house rules, licences
    Lint,
    /// Each crate's own tests and the examples in its documentation
    Unit,
    /// Whether committed files, the chart and the documentation agree with the code
    Contract,
    /// Tests of the operator on a simulated API server, in paused time, with faults
    Sim,
    /// Tests of agents with tools against models that speak `OpenAI`'s protocol, one of them by Node.js
    Agents,
    /// Tests on a real control plane, with real users, kubectl and helm; includes `pods`
    Cluster,
    /// Tests of the inbox, with a browser, an `OpenID` Connect issuer and a real control plane
    Web,
    /// Tests on a real node with a kubelet, in Linux namespaces of its own (Linux, root)
    Pods,
}

/// All parts, fast ones first.
const ALL: [Part; 8] =
    [Part::Lint, Part::Unit, Part::Contract, Part::Sim, Part::Agents, Part::Web, Part::Cluster, Part::Pods];

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::Contract => "contract",
            Self::Sim => "sim",
            Self::Agents => "agents",
            Self::Cluster => "cluster",
            Self::Web => "web",
            Self::Pods => "pods",
        }
    }

    fn run(self, programs: &[TestProgram], image: Option<&Path>, names: &[String]) -> Result<Tally> {
        let find_program = || programs.iter().find(|program| program.name == self.name());
        let program = || find_program().with_context(|| format!("cargo built no test program {}", self.name()));
        match self {
            Self::Lint => Ok(lint::run()),
            Self::Unit => run_unit(programs, names),
            Self::Contract | Self::Sim | Self::Agents => {
                run_and_tally(self.name(), as_tests(&mut program()?.command()).args(names))
            }
            Self::Cluster => run_cluster(program()?, names),
            Self::Web => web::run(program()?, names),
            Self::Pods => run_pods(program()?, image, names),
        }
    }

    /// Whether the part runs if the user asked for `asked`, or for all parts with `None`. `Cluster` includes `Pods`.
    fn is_in(self, asked: Option<Self>) -> bool {
        asked.is_none_or(|asked| asked == self || (asked, self) == (Self::Cluster, Self::Pods))
    }
}

/// Runs one part or all. Ends with the line `N passed, N failed`.
pub(crate) fn run(part: Option<Part>, image: Option<&Path>, names: &[String]) -> ExitCode {
    let parts: Vec<Part> = ALL.into_iter().filter(|candidate| candidate.is_in(part)).collect();
    let mut sum = Tally::default();
    let mut programs = None;
    for &part in &parts {
        if part != Part::Lint && programs.is_none() {
            say::step("building the programs and the tests");
            let began = Instant::now();
            programs = Some(programs::build(&parts));
            sum.add_part("build", began.elapsed(), Tally::default());
        }
        let began = Instant::now();
        let tally = match &programs {
            Some(Err(error)) => Err(anyhow!("the programs and the tests do not build: {error:#}")),
            Some(Ok(programs)) => part.run(programs, image, names),
            None => part.run(&[], image, names),
        };
        let tally = tally.unwrap_or_else(|error| {
            say::problem(&format!("{error:#}"));
            let mut tally = Tally::default();
            tally.count_check(&format!("{}: could not run: {error}", part.name()), false);
            tally
        });
        sum.add_part(part.name(), began.elapsed(), tally);
    }
    say::result(&sum.render_times());
    if !sum.failed().is_empty() {
        say::result("\nfailed:");
        for name in sum.failed() {
            say::result(&format!("  {name}"));
        }
    }
    say::result(&format!("\n{}", sum.summary()));
    if sum.failed().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a test run to its end, shows its output, and counts it.
fn run_and_tally(label: &str, command: &mut Command) -> Result<Tally> {
    say::step(label);
    let mut lines = ShownLines::default();
    let (output, success) = tee(command, |line| lines.take_line(line))?;
    let mut tally = Tally::default();
    tally.count_output(label, &output, success);
    Ok(tally)
}

/// Runs the crates' own tests and the examples in their documentation.
fn run_unit(programs: &[TestProgram], names: &[String]) -> Result<Tally> {
    let mut tally = Tally::default();
    for program in programs.iter().filter(|program| ALL.iter().all(|part| part.name() != program.name)) {
        tally.add(run_and_tally(&program.name, as_tests(&mut program.command()).args(names))?);
    }
    // The whole workspace, as the tests were built.
    let mut documentation = cargo(&["test", "--workspace", "--doc", "--no-fail-fast", "--"]);
    tally.add(run_and_tally("documentation", surround(&mut documentation).args(names).stdin(Stdio::null()))?);
    Ok(tally)
}

/// The tests of the part `cluster` that change rules.
const RULE_TESTS: &str = "guard::";

/// Starts three control planes and an operator, runs the tests on them, and stops the operator. Keeps the logs of the
/// control planes after a failure.
fn run_cluster(tests: &TestProgram, names: &[String]) -> Result<Tally> {
    let binaries = metadata()?.target_directory.join("debug");
    let runtime = tokio::runtime::Runtime::new()?;
    say::step("cluster: starting three control planes, one with an operator, and installing the chart");
    let planes = runtime.block_on(async { tokio::join!(start_cluster(), start_cluster(), start_cluster()) });
    let (mut shared, mut operated, mut liftable) = (planes.0?, planes.1?, planes.2?);
    let mut tally = Tally::default();
    let operator = runtime.block_on(start_operator(&operated, &binaries));
    tally.count_check(
        "cluster: the operator starts",
        operator.as_ref().inspect_err(|error| say::problem(&format!("{error:#}"))).is_ok(),
    );

    let operated_by_one = operator.is_ok().then_some(&operated);
    let clusters = [(SHARED, Some(&shared)), (OPERATED, operated_by_one), (LIFTABLE, Some(&liftable))];
    let handed_over = hand_over(&clusters)?;
    tally.add(run_cluster_tests(tests, names, &binaries, &handed_over)?);

    // An operator that cannot end gracefully would lose its work in flight.
    if let Ok(operator) = operator {
        let stopped = runtime.block_on(operator.stop());
        tally.count_check(
            "cluster: the operator ends when asked",
            stopped.inspect_err(|error| say::problem(&format!("{error:#}"))).is_ok(),
        );
    }
    if !tally.failed().is_empty() {
        for plane in [&mut shared, &mut operated, &mut liftable].into_iter().filter_map(Cluster::plane_mut) {
            plane.keep_logs();
        }
    }
    Ok(tally)
}

/// Writes the access to each cluster into a file. Returns the files, each with the variable that names it to the tests.
fn hand_over(clusters: &[(&'static str, Option<&Cluster>)]) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut handed_over = Vec::new();
    for (variable, cluster) in clusters {
        if let Some(cluster) = cluster {
            let file = cluster.folder().join("handed-over.json");
            cluster.hand_over(&file)?;
            handed_over.push((*variable, file));
        }
    }
    Ok(handed_over)
}

/// Runs the tests of the part `cluster` with these names, or all of them. All tests that change rules run in a process
/// of their own.
fn run_cluster_tests(
    tests: &TestProgram,
    names: &[String],
    binaries: &Path,
    handed_over: &[(&'static str, PathBuf)],
) -> Result<Tally> {
    let mut tally = Tally::default();
    let run = |label: &str, threads: &str, arguments: &[String]| {
        let mut command = tests.command();
        as_tests(&mut command).args(["--test-threads", threads]).args(arguments).env(BINARIES, binaries);
        run_and_tally(label, command.envs(handed_over.iter().map(|(variable, file)| (variable, file))))
    };
    // More than four tests at once would wait for the processor, and not for the cluster.
    if names.is_empty() {
        // Tests that change rules take turns on one control plane. In a process of their own they take no thread from
        // other tests.
        let (only, without) = ([RULE_TESTS.to_owned()], ["--skip".to_owned(), RULE_TESTS.to_owned()]);
        let (rule_tests, others) = std::thread::scope(|scope| {
            let rule_tests = scope.spawn(|| run("cluster", "1", &only));
            let others = run("cluster", "4", &without);
            (rule_tests.join(), others)
        });
        tally.add(rule_tests.map_err(|_| anyhow!("the tests that change rules ended without a result"))??);
        tally.add(others?);
    } else {
        tally.add(run("cluster", "4", names)?);
    }
    Ok(tally)
}

fn run_pods(tests: &TestProgram, image: Option<&Path>, names: &[String]) -> Result<Tally> {
    let machine = Machine::find()?;
    binary()?.needed_by_pods()?;
    let mut command = machine.inside(&tests.path, Input::Nothing)?;
    as_tests(surround(&mut command)).args(["--test-threads", "4"]).args(names);
    command.env(BINARIES, metadata()?.target_directory.join("debug"));
    if let Some(image) = image {
        let image = image.canonicalize().with_context(|| format!("the image {}", image.display()))?;
        command.env(IMAGE_FOLDER, image);
    }
    run_and_tally("pods", &mut command)
}

async fn start_cluster() -> Result<Cluster> {
    let cluster = Cluster::own().await.context("the suite's control plane")?;
    cluster.install(&[]).await?;
    Ok(cluster)
}

async fn start_operator(cluster: &Cluster, binaries: &Path) -> Result<OperatorProcess> {
    let program = Some(binaries.join("signoff-operator"));
    // Services that tests let a workflow call listen on loopback, which the operator blocks by default.
    let arguments = vec!["--allow-address".to_owned(), "127.0.0.1".to_owned()];
    OperatorProcess::start(cluster, OperatorOptions { program, arguments, ..OperatorOptions::default() }).await
}
