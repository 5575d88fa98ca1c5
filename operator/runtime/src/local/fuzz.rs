//! What a stranger may put into a session's folder, as a plain function of bytes.
//!
//! It may not panic, whatever the bytes: `fuzz/` hands it to cargo-fuzz, and a test runs a bounded number of mutations.

use std::sync::Arc;

use signoff_api::{Approval, Workflow};
use signoff_engine::{Plan, Settings};

use super::{history::history, object, session::Snapshot};

/// Decodes a session's file as it stands, and its bytes once more as if this program had written them.
pub fn session(data: &[u8]) {
    let _ = object::decode::<Workflow>(data);
    let vouched = object::with_digest(data);
    if let Ok(approval) = object::decode::<Approval>(&vouched) {
        let now = signoff_engine::Now { at: approval.spec.request.deadline, guard_epoch: "local".to_owned() };
        let _ = signoff_engine::tally::tally(&approval, signoff_engine::tally::Owner::Live, &now);
    }
    if let Ok(workflow) = object::decode::<Workflow>(&vouched) {
        let _ = Plan::of(&workflow, &Settings::default(), &Arc::default());
        let _ = history(&Snapshot { id: "s".to_owned(), workflow, approvals: Vec::new() });
    }
}

/// The seeds: a session that waits, and an Approval of it.
#[must_use]
pub fn corpus() -> Vec<serde_json::Value> {
    let digest = signoff_api::Digest::of_bytes(b"");
    vec![
        serde_json::json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "w", "uid": "00000000-0000-0000-0000-000000000001"},
            "spec": {"requestedBy": "dana", "pattern": {"chain": {"steps": [
                {"name": "ask", "hitl": {"prompt": "?", "approvers": [{"kind": "User", "name": "dana"}]}}]}}},
            "status": {"phase": "Waiting", "seq": 1, "pending": ["w-ask-0"], "specDigest": digest, "steps": [{
                "path": "ask", "attempt": 1, "kind": "hitl", "phase": "Waiting", "seq": 1, "object": "w-ask-0",
                "at": "2026-01-01T00:00:00Z",
                "request": {"digest": digest, "deadline": "2026-01-02T00:00:00Z", "guardEpoch": "local"}}]},
        }),
        serde_json::json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "w-ask-0"},
            "spec": {
                "request": {
                    "workflow": {"name": "w", "uid": "00000000-0000-0000-0000-000000000001"},
                    "gate": {"name": "ask", "type": "step", "path": "ask", "visit": 1}, "specDigest": digest,
                    "guardEpoch": "local", "deadline": "2026-01-02T00:00:00Z", "prompt": "?",
                    "allowedVerdicts": ["Approve"], "approvers": [{"kind": "User", "name": "dana"}], "threshold": 1,
                    "requestedBy": "dana", "timeout": {"after": "24h", "action": "Reject"}, "digest": digest},
                "decisions": {"dana": {"verdict": "Approve"}}},
        }),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_file_of_a_session_panics() {
        let seeds: Vec<Vec<u8>> = corpus().iter().map(|seed| serde_json::to_vec_pretty(seed).unwrap()).collect();
        let chance = fastrand::Rng::with_seed(7);
        let mut chance = chance;
        for seed in &seeds {
            session(seed);
            for _ in 0..2000 {
                let mut data = seed.clone();
                for _ in 0..=chance.usize(..4) {
                    let (at, other) = (chance.usize(..data.len()), chance.usize(..data.len()));
                    match chance.u8(..4) {
                        0 => data[at] = chance.u8(..),
                        1 => data.truncate(at.max(1)),
                        2 => data.swap(at, other),
                        _ => data[at] = b"\"{}[],:0-"[chance.usize(..9)],
                    }
                }
                session(&data);
            }
        }
    }
}
