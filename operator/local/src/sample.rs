//! A request for tests with all required fields, and no optional ones.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use signoff_api::{ApprovalRequest, Digest, Verdict};

pub(crate) fn request(allowed: &[Verdict]) -> ApprovalRequest {
    serde_json::from_value(json!({
        "workflow": {"name": "w", "uid": "00000000-0000-0000-0000-000000000001"},
        "gate": {"name": "review", "type": "step", "path": "review", "visit": 1},
        "specDigest": Digest::of_bytes(b""), "guardEpoch": "local", "deadline": "2030-01-01T00:00:00Z",
        "prompt": "Go on?", "allowedVerdicts": allowed,
        "quorums": [{"source": "gate review", "approvers": [{"kind": "Group", "name": "finance"}], "threshold": 1}],
        "requestedBy": "dana", "timeout": {"after": "1h"}, "digest": Digest::of_bytes(b""),
    }))
    .unwrap()
}
