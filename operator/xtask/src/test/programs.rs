//! The test programs: cargo builds them, and they are started one by one, so that each reports the durations of its
//! tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use signoff_tests::cargo::{MESSAGES, built, cargo, metadata, surround};

use super::Part;

/// A test program.
pub(super) struct TestProgram {
    /// The name of its target, such as `sim` or `signoff_engine`.
    pub(super) name: String,
    /// The path of its file.
    pub(super) path: PathBuf,
    /// The folder of its package, in which its tests run.
    folder: PathBuf,
}

impl TestProgram {
    /// Returns the command that runs it as `cargo test` does.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        surround(&mut command).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        command
    }
}

/// Lets a test program report the duration of each test, and print the output of passing tests, which has counts.
pub(super) fn as_tests(command: &mut Command) -> &mut Command {
    // The test harness reads this variable when it starts and then accepts options that are not stable yet. Cargo must
    // not see it, or it would build everything again.
    command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time", "--show-output"])
}

/// Builds the test programs of some parts, and the programs that they start, at once. The whole workspace is always
/// built: one package would have other features of its dependencies, and compile them all again.
pub(super) fn build(parts: &[Part]) -> Result<Vec<TestProgram>> {
    // Only `cargo test` builds unit tests without the rest.
    let (command, targets) = match parts {
        [Part::Unit] => ("test", unit_targets()?),
        [Part::Contract | Part::Sim | Part::Agents | Part::Pods | Part::Cluster | Part::Web]
        | [Part::Cluster, Part::Pods] => {
            let tests = parts.iter().flat_map(|part| ["--test".to_owned(), part.name().to_owned()]);
            let needs_programs = parts.iter().any(|part| matches!(part, Part::Cluster | Part::Pods | Part::Web));
            ("build", tests.chain(needs_programs.then(|| "--bins".to_owned())).collect())
        }
        _ => ("build", vec!["--bins".to_owned(), "--tests".to_owned()]),
    };
    let mut build = cargo(&[command, "--workspace", MESSAGES]);
    build.args(targets);
    if command == "test" {
        build.arg("--no-run");
    }
    let tests = built(&mut build)?.into_iter().filter(|built| built.profile.test);
    let programs: Vec<TestProgram> = tests
        .filter_map(|built| {
            let folder = built.manifest_path.parent().map(Path::to_owned)?;
            Some(TestProgram { name: built.target.name, path: built.executable?, folder })
        })
        .collect();
    ensure!(!programs.is_empty(), "cargo built no tests");
    Ok(programs)
}

/// Returns cargo's arguments for the crates' own tests; the programs of the tests crate are parts of their own.
fn unit_targets() -> Result<Vec<String>> {
    let packages = metadata()?.packages.into_iter().filter(|package| package.name != "signoff-tests");
    let targets = packages.flat_map(|package| package.targets);
    let integration = targets.filter(|target| target.kind.iter().any(|kind| kind == "test"));
    let names = integration.flat_map(|target| ["--test".to_owned(), target.name]);
    Ok(["--lib", "--bins"].map(str::to_owned).into_iter().chain(names).collect())
}
