//! The command `signoff-operator guard check`: a report of the admission policies in force, for people *(I/O)*.
//!
//! **Invariant:** changes nothing, and needs only the right to read the policies.

use std::{io::Write, process::ExitCode, sync::Arc};

use anyhow::Context;
use signoff_admission::policies::Identity;
use signoff_admission::{READER_ROLE, inspect_as, serves_mutating_policies};
use signoff_cluster::ServerClock;
use signoff_controller::metrics::SharedMetrics;

use crate::{arguments::Arguments, cluster};

/// Prints the report of the policies in force. The exit code is 1 if there is a problem.
///
/// # Errors
/// The API server refuses or does not answer, or the report cannot be printed.
pub async fn check(arguments: &Arguments, service_account: &str) -> anyhow::Result<ExitCode> {
    let connection =
        cluster::connect(arguments, &SharedMetrics::default(), &ServerClock::new(Arc::new(jiff::Timestamp::now)))
            .await?;
    let need = || format!("reading the admission policies (the ClusterRole {READER_ROLE} suffices)");
    let mutating = serves_mutating_policies(&connection.client).await.with_context(need)?;
    let operator = Identity::new(&connection.namespace, service_account);
    let inspection = inspect_as(&connection.client, operator, mutating).await.with_context(need)?;
    std::io::stdout().write_all(inspection.report(true).as_bytes()).context("printing the report")?;
    Ok(if inspection.problems().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
