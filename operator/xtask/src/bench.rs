//! `cargo xtask bench`: starts the benchmarks, the program of `tests/bench`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use signoff_tests::cargo::{cargo, root};

/// Builds the benchmarks and replaces this process by them, so that an interrupt reaches the program that has control
/// planes to end.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let mut command = cargo(&["run", "--package", "signoff-bench", "--manifest-path"]);
    command.arg(root().join("Cargo.toml")).arg("--").args(arguments);
    Err(command.exec()).with_context(|| format!("starting {command:?}"))
}
