//! What each admission policy takes of the six writes: the writes without its binding, one policy at a time.
//! Must not count a row during which the policy was evaluated all the same.

use std::time::Duration;

use anyhow::{Result, ensure};
use signoff_tests::say;

use super::{Row, Shape, reading};
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
/// Longer than an API server takes to hear of a binding. It has no event for that; the counters tell whether it was
/// enough.
const HEARD: Duration = Duration::from_secs(3);

/// Measures the writes without each policy.
pub(super) async fn measure(shape: &Shape<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for policy in POLICIES {
        say::step(&format!("writing without the policy {policy}"));
        bindings::remove(&shape.harness.cluster, policy).await?;
        tokio::time::sleep(HEARD).await;
        let before = checks(&reading(shape.harness).await?, policy);
        let row = shape.row(&format!("without {policy}")).await?;
        let after = checks(&reading(shape.harness).await?, policy);
        ensure!(before == after, "{policy} was evaluated {} times after its binding was removed", after - before);
        rows.push(row);
        bindings::add(&shape.harness.cluster, policy).await?;
    }
    Ok(rows)
}

/// Returns how often a policy was evaluated.
fn checks(counters: &Counters, policy: &str) -> f64 {
    ["validating", "mutating"]
        .map(|kind| {
            counters.sum(&format!("apiserver_{kind}_admission_policy_check_total"), &[&format!("policy=\"{policy}\"")])
        })
        .iter()
        .sum()
}
