//! The progress of each quorum of an Approval, for people.
//!
//! **Invariant:** counts like [`super::tally`](fn@super::tally), and only votes that the operator has counted.

use std::collections::BTreeMap;

use signoff_api::Approval;

use super::{
    quorum::{QuorumProgress, Quorums},
    votes,
};

/// Returns the progress of each quorum of the request, in its order.
#[must_use]
pub fn progress(approval: &Approval) -> Vec<QuorumProgress> {
    let status = approval.status.clone().unwrap_or_default();
    let mut counted = approval.clone();
    counted
        .spec
        .decisions
        .retain(|key, decision| status.votes.iter().any(|vote| vote.key == *key && vote.attempt == decision.attempt()));
    let (ballots, _) = votes::read(&counted, &status, &BTreeMap::new());
    let quorums = Quorums::of(&approval.spec.request, &status.approvers);
    quorums.progress_of_each(&quorums.ballots_of_persons(&ballots))
}
