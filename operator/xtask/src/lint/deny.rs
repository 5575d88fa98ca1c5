//! cargo-deny: licences, sources and banned crates of the lock file, by `deny.toml`. Advisories are not checked,
//! because they need a network.

use std::process::Command;

use anyhow::{Result, ensure};
use signoff_tests::cargo::{cargo, succeeds};

use crate::tools::Tool;

const CARGO_DENY: Tool = Tool { name: "cargo-deny", arguments: &[], minutes: 4 };

/// Runs cargo-deny, after installing it into the cache if it is missing.
pub(crate) fn run() -> Result<bool> {
    // The check itself is offline, and it also reads the crates of other systems, which no build has downloaded.
    ensure!(succeeds(&mut cargo(&["fetch", "--locked"]))?, "the crates of Cargo.lock could not be downloaded");
    let mut command = Command::new(CARGO_DENY.ensure_installed()?);
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
