//! Runs cargo and other programs in the repository's root, and asks cargo about the workspace.

use std::io::{BufRead, BufReader, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use crate::say;

/// The option with which a build lists its outputs on standard output; errors still go to standard error.
pub const MESSAGES: &str = "--message-format=json-render-diagnostics";

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    // The environment of this run, not of the build: a target folder may serve several checkouts.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let is_root = |folder: &&Path| folder.join("Cargo.lock").is_file();
    let root = package.and_then(|package| package.ancestors().find(is_root).map(Path::to_owned));
    root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
}

/// Returns a command of the cargo that runs this program.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Runs a command to its end, its output going to the terminal. Returns whether it succeeded.
pub fn succeeds(command: &mut Command) -> Result<bool> {
    Ok(prepare(command).status().with_context(|| format!("running {command:?}"))?.success())
}

/// The time without a line after which a command is killed: no test takes half of it.
const SILENCE: Duration = Duration::from_mins(10);

/// Runs a command that has its own folder, environment and standard input to its end. Returns its standard output and
/// whether it succeeded. Lines for which `is_shown` is true are printed as they come. A command that prints nothing for
/// ten minutes has failed: it is killed, and without a terminal the processes that it started are killed with it.
pub fn tee(command: &mut Command, is_shown: impl FnMut(&str) -> bool) -> Result<(String, bool)> {
    // On a terminal, Ctrl-C ends the processes of the terminal's own group.
    tee_until_silent(command, SILENCE, !std::io::stdin().is_terminal(), is_shown)
}

fn tee_until_silent(
    command: &mut Command,
    silence: Duration,
    has_group: bool,
    mut is_shown: impl FnMut(&str) -> bool,
) -> Result<(String, bool)> {
    let command = command.stdout(Stdio::piped());
    if has_group {
        command.process_group(0);
    }
    let mut child = command.spawn().with_context(|| format!("running {command:?}"))?;
    let output = child.stdout.take().context("its output is not a pipe")?;
    let (sender, lines) = mpsc::channel();
    // The thread is not joined: a process that left the group may hold the pipe open.
    std::thread::spawn(move || BufReader::new(output).split(b'\n').try_for_each(|line| sender.send(line).ok()));
    let mut text = String::new();
    loop {
        let line = match lines.recv_timeout(silence) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Disconnected) => return Ok((text, child.wait()?.success())),
            Err(RecvTimeoutError::Timeout) => {
                say::result(&format!("ended: nothing was printed for {silence:?}"));
                if has_group {
                    kill_process_group(Pid::from_child(&child), Signal::KILL)?;
                } else {
                    child.kill()?;
                }
                child.wait()?;
                return Ok((text, false));
            }
        };
        // A test may print anything, so a line that is not UTF-8 is not an error.
        let line = String::from_utf8_lossy(&line).into_owned();
        if is_shown(&line) {
            say::result(&line);
        }
        text.push_str(&line);
        text.push('\n');
    }
}

/// Runs a command that has its own folder, environment and standard input to its end, and returns its exit code. A pipe
/// as its standard input stays open until then, because a virtual machine ends when its pipe is closed.
pub fn becomes(command: &mut Command) -> Result<ExitCode> {
    let mut child = command.spawn().with_context(|| format!("running {command:?}"))?;
    let input = child.stdin.take();
    let status = child.wait()?;
    drop(input);
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Runs a command to its end and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = prepare(command).stderr(Stdio::inherit()).output().with_context(|| format!("running {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed ({})", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a build with [`MESSAGES`] and returns the targets that cargo built.
pub fn built(build: &mut Command) -> Result<Vec<Built>> {
    let messages = output(build)?;
    Ok(messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Runs a build with [`MESSAGES`] and returns the path of the program of this name.
pub fn executable(build: &mut Command, name: &str) -> Result<PathBuf> {
    let mut programs = built(build)?.into_iter().filter(|built| built.target.name == name);
    programs.find_map(|built| built.executable).with_context(|| format!("cargo built no program {name}"))
}

fn prepare(command: &mut Command) -> &mut Command {
    surround(command).stdin(Stdio::null())
}

/// Sets the folder and the environment with which all commands run here.
pub fn surround(command: &mut Command) -> &mut Command {
    // Tests and tools reach no cluster that the user did not name. A debug build keeps every copy of a large future on
    // the stack, for which the default of 2 MiB is too little with whole Workflows.
    command.current_dir(root()).env_remove("KUBECONFIG").env("RUST_MIN_STACK", "16777216")
}

/// A target that cargo built: a library, a program, a test program.
#[derive(Debug, Deserialize)]
pub struct Built {
    /// The target that was built.
    pub target: Target,
    /// The file of the program; `None` for a library.
    pub executable: Option<PathBuf>,
    /// The manifest of its package.
    pub manifest_path: PathBuf,
    /// The profile of its build.
    pub profile: Profile,
}

/// The profile of a build.
#[derive(Debug, Deserialize)]
pub struct Profile {
    /// Whether the build is one of tests.
    pub test: bool,
}

/// The answer of `cargo metadata`, without the fields that are not read.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// The members of the workspace.
    pub packages: Vec<Package>,
    /// The target folder.
    pub target_directory: PathBuf,
}

/// One member of the workspace.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// The name in the package's manifest.
    pub name: String,
    /// All its dependencies, for building and for testing.
    pub dependencies: Vec<Dependency>,
    /// The libraries, programs and integration tests.
    pub targets: Vec<Target>,
}

/// One entry of `[dependencies]`, `[dev-dependencies]` or `[build-dependencies]`.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The name of the package, also where the entry renames it.
    pub name: String,
}

/// A target that cargo can build.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// The name of the target; of a library or a program by default the name of its package.
    pub name: String,
    /// `lib`, `bin`, `test`, …
    pub kind: Vec<String>,
}

/// Asks cargo about the workspace.
pub fn metadata() -> Result<Metadata> {
    let text = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).context("reading `cargo metadata`")
}

/// Returns a path relative to the root of the repository, for messages.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_command_that_falls_silent_is_ended_and_has_failed() {
        let shell = |script: &str, silence| {
            let mut command = Command::new("sh");
            tee_until_silent(command.args(["-c", script]), silence, false, |_| false).unwrap()
        };
        let falls_silent = shell("echo one; exec sleep 60", Duration::from_secs(3));
        assert_eq!(falls_silent, ("one\n".to_owned(), false));
        assert_eq!(shell("echo one; echo two", Duration::from_secs(60)), ("one\ntwo\n".to_owned(), true));
    }

    #[test]
    fn the_processes_that_a_silent_command_started_are_ended_too() {
        // The last process still holds standard output when the command itself has ended.
        for script in ["sleep 60 & echo one; wait", "sleep 60 & echo one"] {
            let (errors, writer) = std::io::pipe().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", script]).stderr(writer);
            let ended = tee_until_silent(&mut command, Duration::from_secs(3), true, |_| false).unwrap();
            assert_eq!(ended, ("one\n".to_owned(), false));
            // The pipe ends when no process holds it.
            drop(command);
            let (sender, all_ended) = mpsc::channel();
            std::thread::spawn(move || sender.send(std::io::read_to_string(errors).unwrap()));
            assert_eq!(all_ended.recv_timeout(Duration::from_secs(30)), Ok(String::new()), "{script}");
        }
    }
}
