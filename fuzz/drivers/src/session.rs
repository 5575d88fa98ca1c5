//! The driver of local sessions: any bytes as a file in the folder of a session.

use std::sync::{Arc, LazyLock};

use serde_json::json;
use signoff_api::{Approval, Workflow};
use signoff_engine::{Plan, Settings};
use signoff_local::{Decided, Snapshot, history, object};

/// Decodes a session's file as it is, and its bytes again with a valid digest.
pub fn session(data: &[u8]) {
    let _ = object::decode::<Workflow>(data);
    let signed = object::with_digest(data);
    if let Ok(approval) = object::decode::<Approval>(&signed) {
        let now = signoff_engine::Now::new(approval.spec.request.deadline, "local");
        let _ = signoff_engine::approval::tally(&approval, signoff_engine::approval::OwnerState::Live, &now);
    }
    if let Ok(workflow) = object::decode::<Workflow>(&signed) {
        let _ = Plan::of(&workflow, &Settings::default(), &Arc::default());
    }
    let _ = decided(&signed);
}

/// Returns the history of a session in which one file has these bytes and the others are valid.
fn decided(file: &[u8]) -> Vec<Decided> {
    static WHOLE: LazyLock<Option<(Workflow, Approval)>> = LazyLock::new(|| {
        let [workflow, _, approval] = seeds();
        Some((serde_json::from_value(workflow).ok()?, serde_json::from_value(approval).ok()?))
    });
    let Some((workflow, approval)) = WHOLE.clone() else { return Vec::new() };
    let workflow = object::decode(file).unwrap_or(workflow);
    let approvals = vec![object::decode(file).unwrap_or(approval)];
    history(&Snapshot { id: "s".to_owned(), workflow, approvals })
}

/// Returns the seeds: a waiting session, its Approval, and the Approval after the decision.
fn seeds() -> [serde_json::Value; 3] {
    let digest = signoff_api::Digest::of_bytes(b"");
    let workflow = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "w", "uid": "00000000-0000-0000-0000-000000000001"},
        "spec": {"requestedBy": "dana", "steps": [
            {"name": "ask", "hitl": {"prompt": "?", "approvers": [{"kind": "User", "name": "dana"}]}}]},
        "status": {"phase": "Waiting", "seq": 1, "pending": ["w-ask-0"], "specDigest": digest, "steps": [{
            "path": "ask", "attempt": 1, "kind": "hitl", "phase": "Waiting", "seq": 1, "object": "w-ask-0",
            "at": "2026-01-01T00:00:00Z",
            "request": {"digest": digest, "deadline": "2026-01-02T00:00:00Z", "guardEpoch": "local"}}]},
    });
    let open = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "w-ask-0"},
        "spec": {
            "request": {
                "workflow": {"name": "w", "uid": "00000000-0000-0000-0000-000000000001"},
                "gate": {"name": "ask", "type": "step", "path": "ask", "visit": 1}, "specDigest": digest,
                "guardEpoch": "local", "deadline": "2026-01-02T00:00:00Z", "prompt": "?",
                "allowedVerdicts": ["Approve"],
                "quorums": [{"source": "gate ask", "approvers": [{"kind": "User", "name": "dana"}], "threshold": 1}],
                "requestedBy": "dana", "timeout": {"after": "24h", "action": "Reject"}, "digest": digest},
            "decisions": {"dana": {"verdict": "Approve"}}},
    });
    let mut decided = open.clone();
    decided["status"] = json!({"phase": "Approved", "seq": 1, "outcome": {
        "phase": "Approved", "verdict": "Approve", "decidedBy": ["dana"], "decidedAt": "2026-01-01T01:00:00Z",
        "source": "Human"}});
    [workflow, open, decided]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::mutations::survives;

    #[test]
    fn the_history_of_the_seeds_is_their_decision() {
        for (seed, decisions) in seeds().iter().zip([1, 0, 1]) {
            let file = object::with_digest(&serde_json::to_vec_pretty(seed).unwrap());
            let decided = decided(&file);
            assert_eq!(decided.len(), decisions, "{seed}");
            assert!(decided.iter().all(|one| one.user.as_deref() == Some("dana") && one.duration_seconds == 3600));
        }
    }

    #[test]
    fn no_file_of_a_session_panics() {
        let seeds = seeds().into_iter().map(|seed| serde_json::to_vec_pretty(&seed).unwrap());
        assert!(survives(seeds, 6000, session));
    }
}
