//! The cost of each admission policy for the six writes: the writes without its binding, one policy at a time. A row in
//! which the policy was still evaluated is an error.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use signoff_tests::say;

use super::{Row, Shape, measure_writes, read_counters};
use crate::bindings;
use crate::counters::Counters;

/// The policies that a write of a one-gate Workflow matches.
const POLICIES: [&str; 6] = [
    "signoff-approvals",
    "signoff-bound-token",
    "signoff-requester",
    "signoff-status",
    "signoff-workflows",
    "signoff-workflows-shape",
];
/// The deadline for an API server to apply the removal of a binding.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Measures the writes without each policy.
pub(super) async fn measure(shape: &Shape<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for policy in POLICIES {
        say::step(&format!("writing without the policy {policy}"));
        bindings::remove(&shape.harness.cluster, policy).await?;
        let deadline = Instant::now() + TIMEOUT;
        // No event tells which policies an API server applies, so writes are sent until this policy is no longer
        // evaluated.
        while count_evaluations(shape, policy, async || measure_writes(shape.harness, shape.sample, 1).await.map(drop))
            .await?
            .1
            > 0.0
        {
            ensure!(Instant::now() < deadline, "{policy} is still evaluated {TIMEOUT:?} after its binding was removed");
        }
        let (row, times) =
            count_evaluations(shape, policy, async || shape.measure_row(&format!("without {policy}")).await).await?;
        ensure!(times == 0.0, "{policy} was evaluated {times} times after its binding was removed");
        rows.push(row);
        bindings::add(&shape.harness.cluster, policy).await?;
    }
    Ok(rows)
}

/// Returns the result of some writes, and the number of evaluations of a policy during the writes.
async fn count_evaluations<T>(
    shape: &Shape<'_>,
    policy: &str,
    writes: impl AsyncFnOnce() -> Result<T>,
) -> Result<(T, f64)> {
    let before = evaluations_so_far(&read_counters(shape.harness).await?, policy);
    let result = writes().await?;
    Ok((result, evaluations_so_far(&read_counters(shape.harness).await?, policy) - before))
}

/// Returns how often a policy was evaluated until now.
fn evaluations_so_far(counters: &Counters, policy: &str) -> f64 {
    ["validating", "mutating"]
        .map(|kind| {
            counters.sum(&format!("apiserver_{kind}_admission_policy_check_total"), &[&format!("policy=\"{policy}\"")])
        })
        .iter()
        .sum()
}
