//! cargo-deny: licences, sources and banned crates of everything in the lock file, by `deny.toml`.
//! Advisories are left out: they need a network, and a check must work without one.

use std::process::Command;

use anyhow::{Result, ensure};
use signoff_tests::cargo::{cargo, succeeds};

use crate::tools::Tool;

const CARGO_DENY: Tool = Tool { name: "cargo-deny", arguments: &[], minutes: 4 };

/// Runs cargo-deny, after installing it into the cache if need be.
pub(crate) fn run() -> Result<bool> {
    // The check itself is offline, and it reads the crates of other systems too, which no build has downloaded.
    ensure!(succeeds(&mut cargo(&["fetch", "--locked"]))?, "the crates of Cargo.lock could not be downloaded");
    let mut command = Command::new(CARGO_DENY.program()?);
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
