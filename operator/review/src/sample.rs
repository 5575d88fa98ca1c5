//! The Approval that unit tests look at: one gate of a refund, asked of alice and the group finance.
//!
//! For tests only.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use signoff_api::{Approval, Digest, Moment};

use crate::voter::Me;

const LETTER: &str = "Dear ACME,\nwe refund 420 EUR.";

/// The instant at which the tests look.
pub fn now() -> Moment {
    Moment::from("2026-11-22T10:00:00Z".parse::<jiff::Timestamp>().unwrap())
}

/// Somebody.
pub fn me(user: &str, groups: &[&str]) -> Me {
    Me { user: user.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
}

/// Pending, threshold 1, a digest that is right.
pub fn approval() -> Approval {
    let mut approval: Approval = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1",
        "kind": "Approval",
        "metadata": {"name": "refund-4711-review", "namespace": "finance", "creationTimestamp": "2026-11-22T09:30:00Z"},
        "spec": {"request": {
            "workflow": {"name": "refund-4711", "uid": "6f1c3e5a-0000-4000-8000-000000000001"},
            "gate": {"name": "review", "type": "step", "path": "review", "visit": 1},
            "specDigest": format!("sha256:{}", "0".repeat(64)),
            "guardEpoch": "epoch-1",
            "deadline": "2026-11-23T09:30:00Z",
            "closesAt": "2026-11-23T09:30:00Z",
            "prompt": "Send this letter to ACME?",
            "context": LETTER,
            "reviews": {"path": "draft", "response": LETTER, "digest": Digest::of_bytes(LETTER.as_bytes())},
            "allowedVerdicts": ["Approve", "Reject", "Modify", "Abort"],
            "quorums": [{
                "source": "gate review",
                "approvers": [{"kind": "User", "name": "alice@example.com"}, {"kind": "Group", "name": "finance"}],
                "threshold": 1,
            }],
            "requestedBy": "dana@example.com",
            "timeout": {"after": "24h", "action": "Reject"},
            "digest": format!("sha256:{}", "0".repeat(64)),
        }},
        "status": {"phase": "Pending", "seq": 0},
    }))
    .unwrap();
    seal(&mut approval);
    approval
}

/// Gives a changed request its digest, and the object the name that goes with it.
pub fn seal(approval: &mut Approval) {
    approval.spec.request.digest = approval.spec.request.digest_of_the_rest().unwrap();
    approval.metadata.name = Some(format!("refund-4711-review-{}", approval.spec.request.digest.short(10)));
}
