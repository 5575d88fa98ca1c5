//! The test programs: cargo builds them, and they are started by themselves, so that each says how long its tests took.
//! It may not judge what they print.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use serde::Deserialize;

use crate::cargo::{cargo, output, surround};

/// A test program.
pub(super) struct Program {
    /// Its target's name, such as `sim` or `signoff_engine`.
    pub(super) name: String,
    /// Its file.
    pub(super) path: PathBuf,
    /// The folder of its package, in which its tests run.
    folder: PathBuf,
}

impl Program {
    /// The command that runs it as `cargo test` does.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        surround(&mut command).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        command
    }
}

/// Lets a test program say how long each test took, and what passing tests print: how much they tried.
pub(super) fn as_tests(command: &mut Command) -> &mut Command {
    // The test harness reads this when it starts and then takes options that are not stable yet. Cargo must not see it: it
    // would build everything anew.
    command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time", "--show-output"])
}

/// Always the whole workspace: selecting one package would select other features of its dependencies, and compile
/// them all once more.
pub(super) fn workspace_test(arguments: &[&str]) -> Command {
    let mut command = cargo(&["test", "--workspace"]);
    command.args(arguments);
    command
}

/// What cargo says of something it built.
#[derive(Deserialize)]
struct Message {
    target: Named,
    executable: Option<PathBuf>,
    manifest_path: PathBuf,
    profile: Profile,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the test programs of some targets, such as `--test sim`.
pub(super) fn built(targets: &[&str]) -> Result<Vec<Program>> {
    let mut build = workspace_test(targets);
    let said = output(build.args(["--no-run", "--message-format", "json-render-diagnostics"]))?;
    let messages = said.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let programs = messages.filter(|message| message.profile.test).filter_map(|message| {
        let folder = message.manifest_path.parent().map(Path::to_owned)?;
        Some(Program { name: message.target.name, path: message.executable?, folder })
    });
    Ok(programs.collect())
}
