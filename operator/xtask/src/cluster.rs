//! `cargo xtask cluster`: the cluster tests' control plane to work with by hand.
//! It must not start an operator, and leaves nothing behind when it ends.

use std::process::ExitCode;

use anyhow::Result;
use signoff_tests::control_plane::{CAST, Cluster, SHARED};
use signoff_tests::say;

pub(crate) fn run() -> Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(async {
        say::step("starting the control plane and installing the chart");
        let cluster = Cluster::own().await?;
        cluster.install(&[]).await?;
        let file = cluster.folder().join("shared.json");
        cluster.hand_over(&file)?;
        let cast: Vec<_> = CAST.iter().map(|person| person.name).collect();
        say::result(&format!("export {SHARED}={}", file.display()));
        say::result(&format!(
            "alias kubectl='{} --kubeconfig {}'",
            cluster.clients().kubectl.display(),
            cluster.kubeconfig().display()
        ));
        say::step(&format!(
            "contexts: {}; cluster tests: cargo test -p signoff-tests --test cluster; Ctrl-C ends it",
            cast.join(", ")
        ));
        tokio::signal::ctrl_c().await?;
        Ok(ExitCode::SUCCESS)
    })
}
