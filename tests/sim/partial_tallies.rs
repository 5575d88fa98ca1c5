//! Partial tallies: the first vote is shown at once, further ones within a second, and a decision never waits.

use std::time::Duration;

use serde_json::json;
use signoff_tests::sim::Entry;

use crate::{
    harness::{Harness, OPERATOR},
    people::{name, verdict},
    scenarios::{RUN, chain, gate},
};

/// Returns a gate with thirty approvers of whom twenty must approve.
fn harness_with_large_quorum() -> Harness {
    let harness = Harness::new();
    let approvers: Vec<_> = (0..30).map(|n| json!({"kind": "User", "name": format!("voter-{n}")})).collect();
    harness.apply(RUN, &chain(json!([gate("review", json!({"approvers": approvers, "threshold": 20}))])));
    harness
}

async fn pass(harness: &Harness, millis: u64) {
    harness.server.clock().pass(Duration::from_millis(millis)).await;
}

fn count_tallies(harness: &Harness) -> usize {
    let of_approvals = |entry: &Entry| entry.subresource.is_some() && entry.resource.plural == "approvals";
    harness.operators_writes().iter().filter(|entry| of_approvals(entry)).count()
}

#[tokio::test(start_paused = true)]
async fn votes_within_a_second_are_shown_with_two_writes() {
    let harness = harness_with_large_quorum();
    let _life = harness.begin(OPERATOR);
    harness.pass(1).await;
    let approval = name(&harness.approval());
    for n in 0..10 {
        harness.people().vote(&format!("voter-{n}"), &approval, verdict("Approve"));
        pass(&harness, 20).await;
        assert!(harness.approval()["status"]["tally"]["have"].as_i64() >= Some(1), "the first is told at once");
    }
    harness.pass(2).await;
    assert_eq!(harness.approval()["status"]["tally"]["have"], 10);
    assert_eq!(count_tallies(&harness), 2);
}

#[tokio::test(start_paused = true)]
async fn a_decision_does_not_wait_for_the_next_tally() {
    let harness = harness_with_large_quorum();
    let _life = harness.begin(OPERATOR);
    harness.pass(1).await;
    let approval = name(&harness.approval());
    for n in 0..20 {
        harness.people().vote(&format!("voter-{n}"), &approval, verdict("Approve"));
        pass(&harness, 10).await;
    }
    pass(&harness, 100).await;
    assert_eq!(harness.approval()["status"]["phase"], "Approved");
    assert_eq!(count_tallies(&harness), 2, "the first vote and the outcome");
}
