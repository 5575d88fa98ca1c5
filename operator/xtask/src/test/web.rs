//! The part `web`: the tests of the inbox, with a browser, an issuer, a control plane and an operator. If a tool is
//! missing, the part fails and names the tool.

use anyhow::Result;
use signoff_tests::browser::{Node, SCREENSHOTS, chromium};
use signoff_tests::cargo::metadata;
use signoff_tests::control_plane::{BINARIES, Cluster, IssuerOptions, Options, WEB};
use signoff_tests::say;

use super::programs::{TestProgram, as_tests};
use super::{run_and_tally, start_operator};
use crate::tally::Tally;

/// Runs the part. Screenshots are kept in `web-screenshots` of the target folder, and those of earlier runs are
/// deleted.
pub(super) fn run(tests: &TestProgram, names: &[String]) -> Result<Tally> {
    let target = metadata()?.target_directory;
    let (binaries, pictures) = (target.join("debug"), target.join("web-screenshots"));
    // Before the steps that take long.
    Node::find()?;
    chromium()?;
    if pictures.is_dir() {
        std::fs::remove_dir_all(&pictures)?;
    }
    let runtime = tokio::runtime::Runtime::new()?;
    say::step("web: starting an issuer and a control plane with an operator, and installing the chart");
    let (mut cluster, issuer) = runtime.block_on(Cluster::with_issuer(Options::default(), IssuerOptions::default()))?;
    let mut tally = Tally::default();
    let operator = runtime.block_on(start_operator(&cluster, &binaries))?;
    let file = cluster.folder().join("handed-over.json");
    cluster.hand_over(&file)?;

    // Two at once: each has a page, and all share one browser.
    let mut command = tests.command();
    as_tests(&mut command).args(["--test-threads", "2"]).args(names);
    command.env(BINARIES, &binaries).env(SCREENSHOTS, &pictures).env(WEB, file);
    tally.add(run_and_tally("web", &mut command)?);

    let stopped = runtime.block_on(operator.stop());
    tally.count_check(
        "web: the operator ends when asked",
        stopped.inspect_err(|error| say::problem(&format!("{error:#}"))).is_ok(),
    );
    if !tally.failed().is_empty() {
        say::problem(&format!("the issuer's log ends:\n{}", issuer.log_tail()));
        if let Some(plane) = cluster.plane_mut() {
            plane.keep_logs();
        }
    }
    if pictures.is_dir() {
        say::result(&format!("pictures: {}", pictures.display()));
    }
    Ok(tally)
}
