//! `cargo xtask test`: runs the parts, hands the cluster tests their control plane, and sums everything up.
//! It may not stop at the first failure, and a part that cannot run is a failure of that part.

mod programs;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use signoff_tests::control_plane::{
    BINARIES, Cluster, LIFTABLE, OPERATED, OperatorOptions, OperatorProcess, SHARED, binary,
};
use signoff_tests::image::IMAGE_FOLDER;
use signoff_tests::node::{Input, Machine};

use crate::cargo::{cargo, metadata, succeeds, surround, tee, tee_as_it_is};
use crate::tally::Tally;
use crate::{lint, say};
use programs::{Program, as_tests, built, workspace_test};

/// One part of all checks and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Format, clippy, generated files, crate arrows, tidiness, licences
    Lint,
    /// Each crate's own tests and the examples in its documentation
    Unit,
    /// What is committed, shipped and documented agrees with the code
    Contract,
    /// The operator on a simulated API server, in paused time, with faults
    Sim,
    /// On a real control plane, with real users, kubectl and helm; and what `pods` does
    Cluster,
    /// On a real node with a kubelet, in namespaces of its own (Linux, root)
    Pods,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::Contract => "contract",
            Self::Sim => "sim",
            Self::Cluster => "cluster",
            Self::Pods => "pods",
        }
    }

    fn run(self, image: Option<&Path>, names: &[String]) -> Result<Tally> {
        match self {
            Self::Lint => Ok(lint::run()),
            Self::Unit => unit(names),
            Self::Contract | Self::Sim => tests(&[program(self.name())?], names),
            Self::Cluster => cluster(names),
            Self::Pods => pods(image, names),
        }
    }

    /// Whether it runs when `asked` is what was asked for: everything, or one part. Pods run on a cluster.
    fn is_in(self, asked: Option<Self>) -> bool {
        asked.is_none_or(|asked| asked == self || (asked, self) == (Self::Cluster, Self::Pods))
    }
}

/// Runs one part or all, quick ones first. Ends with the line `N passed, N failed`.
pub(crate) fn run(part: Option<Part>, image: Option<&Path>, names: &[String]) -> ExitCode {
    let all = [Part::Lint, Part::Unit, Part::Contract, Part::Sim, Part::Cluster, Part::Pods];
    let mut sum = Tally::default();
    for part in all.into_iter().filter(|one| one.is_in(part)) {
        let began = Instant::now();
        let tally = part.run(image, names).unwrap_or_else(|error| {
            say::problem(&format!("{error:#}"));
            let mut tally = Tally::default();
            tally.check(&format!("{}: could not run: {error}", part.name()), false);
            tally
        });
        sum.add_part(part.name(), began.elapsed(), tally);
    }
    say::result(&sum.times());
    if !sum.failed().is_empty() {
        say::result("\nfailed:");
        for name in sum.failed() {
            say::result(&format!("  {name}"));
        }
    }
    say::result(&format!("\n{}", sum.summary()));
    if sum.failed().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs test programs one after the other.
fn tests(programs: &[Program], names: &[String]) -> Result<Tally> {
    let mut tally = Tally::default();
    for program in programs {
        say::step(&program.name);
        let (output, success) = tee_as_it_is(as_tests(&mut program.command()).args(names))?;
        tally.read(&program.name, &output, success);
    }
    Ok(tally)
}

/// Builds one test program.
fn program(name: &str) -> Result<Program> {
    let found = built(&["--test", name])?.into_iter().find(|program| program.name == name);
    found.with_context(|| format!("cargo built no test program {name}"))
}

fn unit(names: &[String]) -> Result<Tally> {
    // The crates' own integration tests belong here too; those of the tests crate are parts of their own.
    let metadata = metadata()?;
    let packages = metadata.packages.iter().filter(|package| package.name != "signoff-tests");
    let integration =
        packages.flat_map(|package| &package.targets).filter(|target| target.kind.iter().any(|kind| kind == "test"));
    let mut chosen = vec!["--lib", "--bins"];
    for target in integration {
        chosen.extend(["--test", &target.name]);
    }
    let programs = built(&chosen)?;
    ensure!(!programs.is_empty(), "cargo built no unit tests");
    let mut tally = tests(&programs, names)?;
    say::step("documentation");
    let (output, success) = tee(workspace_test(&["--doc", "--no-fail-fast", "--"]).args(names))?;
    tally.read("documentation", &output, success);
    Ok(tally)
}

fn cluster(names: &[String]) -> Result<Tally> {
    say::step("cluster: building the programs and the tests");
    if !succeeds(&mut cargo(&["build", "--workspace", "--bins"]))? {
        bail!("the programs do not build");
    }
    let tests = program("cluster")?;
    let binaries = metadata()?.target_directory.join("debug");
    let runtime = tokio::runtime::Runtime::new()?;
    say::step("cluster: starting three control planes, one with an operator, and installing the chart");
    let planes = runtime.block_on(async { tokio::join!(installed(), installed(), installed()) });
    let (mut shared, mut operated, mut liftable) = (planes.0?, planes.1?, planes.2?);
    let mut tally = Tally::default();
    let operator = runtime.block_on(operator(&operated, &binaries));
    tally.check(
        "cluster: the operator starts",
        operator.as_ref().inspect_err(|error| say::problem(&format!("{error:#}"))).is_ok(),
    );

    // Four at once: they wait for each other's processor more than for the cluster.
    let mut command = tests.command();
    as_tests(&mut command).args(["--test-threads", "4"]).args(names).env(BINARIES, &binaries);
    let operated_by_one = operator.is_ok().then_some(&operated);
    for (variable, cluster) in [(SHARED, Some(&shared)), (OPERATED, operated_by_one), (LIFTABLE, Some(&liftable))] {
        if let Some(cluster) = cluster {
            let file = cluster.folder().join("handed-over.json");
            cluster.hand_over(&file)?;
            command.env(variable, file);
        }
    }
    say::step("cluster");
    let (output, success) = tee_as_it_is(&mut command)?;
    tally.read("cluster", &output, success);

    // An operator that cannot end in order would lose what it had in flight.
    if let Ok(operator) = operator {
        let stopped = runtime.block_on(operator.stop());
        tally.check(
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

fn pods(image: Option<&Path>, names: &[String]) -> Result<Tally> {
    let machine = Machine::find()?;
    binary()?.needed_by_pods()?;
    say::step("pods: building the programs and the tests, because no network leads out of where they run");
    if !succeeds(&mut cargo(&["build", "--workspace", "--bins"]))? {
        bail!("the programs do not build");
    }
    let mut command = machine.inside(&program("pods")?.path, Input::Nothing)?;
    as_tests(surround(&mut command)).args(["--test-threads", "4"]).args(names);
    command.env(BINARIES, metadata()?.target_directory.join("debug"));
    if let Some(image) = image {
        let image = image.canonicalize().with_context(|| format!("the image {}", image.display()))?;
        command.env(IMAGE_FOLDER, image);
    }
    say::step("pods");
    let (output, success) = tee_as_it_is(&mut command)?;
    let mut tally = Tally::default();
    tally.read("pods", &output, success);
    Ok(tally)
}

async fn installed() -> Result<Cluster> {
    let cluster = Cluster::own().await.context("the suite's control plane")?;
    cluster.install(&[]).await?;
    Ok(cluster)
}

async fn operator(cluster: &Cluster, binaries: &Path) -> Result<OperatorProcess> {
    let program = Some(binaries.join("signoff-operator"));
    // The services that tests let a workflow call listen on loopback, which is out of bounds otherwise.
    let arguments = vec!["--allow-address".to_owned(), "127.0.0.1".to_owned()];
    OperatorProcess::start(cluster, OperatorOptions { program, arguments, ..OperatorOptions::default() }).await
}
