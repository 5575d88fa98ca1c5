//! `cargo xtask cluster`: the cluster tests' control plane for work by hand, without an operator. It is removed at the
//! end.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use signoff_tests::cargo::{cargo, metadata, succeeds};
use signoff_tests::control_plane::{CAST, Cluster, SHARED};
use signoff_tests::say;

use crate::demo::exports;

/// Starts the control plane, prints the variables and contexts with which to use it, and waits for Ctrl-C.
pub(crate) fn run() -> Result<ExitCode> {
    let plugin = build_plugin()?;
    tokio::runtime::Runtime::new()?.block_on(async {
        say::step("starting the control plane and installing the chart");
        let cluster = Cluster::own().await?;
        cluster.install(&[]).await?;
        let file = cluster.folder().join("shared.json");
        cluster.hand_over(&file)?;
        let people: Vec<_> = CAST.iter().map(|person| person.name).collect();
        say::result(&format!("export {SHARED}={}", file.display()));
        let kubectl = cluster.clients().kubectl.parent();
        let folders: Vec<&Path> = [Some(plugin.as_path()), kubectl].into_iter().flatten().collect();
        say::result(exports(cluster.kubeconfig(), &folders).trim_end());
        say::step(&format!(
            "contexts: {}; cluster tests: cargo test -p signoff-tests --test cluster; Ctrl-C ends it",
            people.join(", ")
        ));
        tokio::signal::ctrl_c().await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Builds the plugin, and returns the folder in which it is.
fn build_plugin() -> Result<PathBuf> {
    say::step("building the plugin");
    if !succeeds(&mut cargo(&["build", "--package", "signoff-cli", "--bins"]))? {
        bail!("the plugin does not build");
    }
    Ok(metadata()?.target_directory.join("debug"))
}
