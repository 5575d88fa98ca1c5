//! cargo-deny: licences, sources and banned crates of everything in the lock file, by `deny.toml`.
//! It may not reach for advisories: those need a network that a check must not depend on.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use signoff_tests::control_plane::cache;

use crate::cargo::{cargo, succeeds};
use crate::say;

/// Runs cargo-deny, after installing it into the cache if need be.
pub(crate) fn run() -> Result<bool> {
    // The check itself is offline, and it reads the crates of other systems too, which no build has downloaded.
    ensure!(succeeds(&mut cargo(&["fetch", "--locked"]))?, "the crates of Cargo.lock could not be downloaded");
    let mut command = Command::new(program()?);
    succeeds(command.args([
        "--offline",
        "--log-level",
        "warn",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))
}

fn program() -> Result<PathBuf> {
    let on_path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("cargo-deny"))
        .find(|file| file.is_file());
    if let Some(program) = on_path {
        return Ok(program);
    }
    let tools = cache()?.join("tools");
    let program = tools.join("bin/cargo-deny");
    if !program.is_file() {
        say::step("installing cargo-deny into the cache, once: about 4 minutes on two cores");
        let installed = succeeds(cargo(&["install", "cargo-deny", "--locked", "--root"]).arg(&tools))?;
        ensure!(installed, "cargo-deny could not be installed; install it yourself and have it on PATH");
    }
    Ok(program)
}
