//! The environment of the measurements: a control plane of its own with the chart installed, people's clients, and
//! operators to start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use signoff_tests::cargo::{MESSAGES, cargo, executable};
use signoff_tests::control_plane::{Cluster, OperatorOptions, OperatorProcess, Options, named};
use signoff_tests::say;

use super::process;

/// The person of the cast who creates all Workflows.
pub(super) const REQUESTER: &str = "dana";
/// The person of the cast who decides all gates.
pub(super) const APPROVER: &str = "alice";

/// A control plane to measure on.
pub(super) struct Harness {
    pub(super) cluster: Cluster,
    program: PathBuf,
    /// The requester's client, with a token of its own.
    pub(super) requester: Client,
    /// The approver's client, with a token of its own.
    pub(super) approver: Client,
    /// The administrator's client, for watches.
    pub(super) admin: Client,
}

/// Prints the tables of a benchmark, and writes its figures into the file of `--json`.
pub(super) fn publish(tables: &str, numbers: &serde_json::Value, file: Option<&Path>) -> Result<()> {
    say::result(tables);
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(numbers)?;
    std::fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
    say::step(&format!("the numbers are in {}", file.display()));
    Ok(())
}

impl Harness {
    /// Starts a control plane of its own, which takes about ten seconds.
    pub(super) async fn open(options: Options, program: &Path) -> Result<Self> {
        Self::on(Cluster::own_with(options).await?, program).await
    }

    /// Uses the caller's cluster, on which nothing is installed yet.
    pub(super) async fn on(cluster: Cluster, program: &Path) -> Result<Self> {
        cluster.install(&[]).await?;
        let requester = cluster.token_client(REQUESTER).await?;
        let approver = cluster.token_client(APPROVER).await?;
        let admin = cluster.admin().await?;
        Ok(Self { cluster, program: program.to_owned(), requester, approver, admin })
    }

    /// Starts an operator and waits until it is ready.
    pub(super) async fn operator(&self) -> Result<OperatorProcess> {
        self.operator_with(true).await
    }

    /// Starts an operator without waiting until it is ready.
    pub(super) async fn operator_unready(&self) -> Result<OperatorProcess> {
        self.operator_with(false).await
    }

    /// Starts an operator with further arguments and waits until it is ready.
    pub(super) async fn operator_with_arguments(&self, arguments: &[&str]) -> Result<OperatorProcess> {
        self.operator_by(&self.program, arguments).await
    }

    /// Starts an operator by another program, such as one that prepares its environment and becomes the operator.
    pub(super) async fn operator_by(&self, program: &Path, arguments: &[&str]) -> Result<OperatorProcess> {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let options = OperatorOptions { program: Some(program.to_owned()), arguments, ..OperatorOptions::default() };
        OperatorProcess::start(&self.cluster, options).await
    }

    async fn operator_with(&self, wait: bool) -> Result<OperatorProcess> {
        let options = OperatorOptions { program: Some(self.program.clone()), wait, ..OperatorOptions::default() };
        OperatorProcess::start(&self.cluster, options).await
    }

    /// Returns the path of the operator that the benchmark measures.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Creates a namespace for one run.
    pub(super) async fn namespace(&self) -> Result<String> {
        Ok(self.cluster.namespace("bench").await?.name)
    }

    /// Returns the API server's processor time until now.
    pub(super) fn api_server_cpu(&self) -> Result<Duration> {
        let pid = self.pids().into_iter().find(|(name, _)| *name == "kube-apiserver");
        process::cpu(pid.context("this control plane has no kube-apiserver")?.1)
    }

    /// Returns the process ids of the control plane by name.
    pub(super) fn pids(&self) -> Vec<(&str, u32)> {
        self.cluster.plane().map(|plane| plane.pids()).unwrap_or_default()
    }
}

/// Returns the approver's user name.
pub(super) fn approver_user() -> Result<&'static str> {
    Ok(named(APPROVER)?.user)
}

/// Builds the operator and returns the path of its program.
pub(super) fn build(debug: bool) -> Result<PathBuf> {
    build_program("the operator", "signoff-controller", "signoff-operator", debug)
}

/// Builds the page and returns the path of its program.
pub(super) fn build_page(debug: bool) -> Result<PathBuf> {
    build_program("the page", "signoff-web", "signoff-web", debug)
}

fn build_program(what: &str, package: &str, name: &str, debug: bool) -> Result<PathBuf> {
    let how = if debug { "for debugging" } else { "as it is shipped (the first time about ten minutes on two cores)" };
    say::step(&format!("building {what} {how}"));
    let mut command = cargo(&["build", "--package", package, "--bin", name, MESSAGES]);
    if !debug {
        command.arg("--release");
    }
    executable(&mut command, name)
}
