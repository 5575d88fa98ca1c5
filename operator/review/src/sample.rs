//! The sample Approvals of unit tests: gates of a refund that ask alice and the group finance.
//!
//! For tests only.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use signoff_api::{Approval, Digest, Moment, approval::Edit};

use crate::{
    problem::Problem,
    seen::{RunFound, RunNow, Seen},
    voter::Me,
};

const LETTER: &str = "Dear ACME,\nwe refund 420 EUR.";

/// Returns the current time of the tests.
pub fn now() -> Moment {
    Moment::from("2026-11-22T10:00:00Z".parse::<jiff::Timestamp>().unwrap())
}

/// Returns a user with groups.
pub fn me(user: &str, groups: &[&str]) -> Me {
    Me { user: user.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
}

/// Returns a pending Approval with the threshold 1 and a correct digest.
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

/// Returns the run of [`approval`] as it was read, with the admission policies in force.
pub fn run() -> RunNow {
    let uid = approval().spec.request.workflow.uid;
    RunNow { found: RunFound::There { uid }, ..RunNow::default() }
}

/// Returns a problem of each kind.
pub fn problems() -> Vec<Problem> {
    let (run, why) = (|| "refund-4711".to_owned(), || "signoff-approvals differs".to_owned());
    vec![
        Problem::Digest(approval().spec.request.digest),
        Problem::OtherText("DIGEST MISMATCH: the context cannot be shown".to_owned()),
        Problem::NoText("the request does not say where the whole of it is".to_owned()),
        Problem::TextUnread("the whole of the context is not there".to_owned()),
        Problem::RunName,
        Problem::RunMissing(run()),
        Problem::OtherRun(run()),
        Problem::RunUnread { run: run(), why: why() },
        Problem::Unguarded(why()),
    ]
}

/// Returns an Approval and its run as they were read, with a problem, or verified if there is none. Callers add the
/// problems of texts themselves.
pub fn read_with(problem: Option<&Problem>) -> (Seen, RunNow) {
    let (mut approval, mut run) = (approval(), run());
    match problem {
        None | Some(Problem::OtherText(_) | Problem::NoText(_) | Problem::TextUnread(_)) => {}
        Some(Problem::Digest(_)) => approval.spec.request.prompt = "Another question?".to_owned(),
        Some(Problem::RunName) => run.found = RunFound::NoName,
        Some(Problem::RunMissing(_)) => run.found = RunFound::Missing,
        Some(Problem::OtherRun(_)) => run.found = RunFound::There { uid: "another".to_owned() },
        Some(Problem::RunUnread { why, .. }) => run.found = RunFound::Unread(why.clone()),
        Some(Problem::Unguarded(why)) => {
            let condition = json!({"type": "Guarded", "status": "False", "reason": "PoliciesDiffer", "message": why,
                "lastTransitionTime": "2026-11-22T10:00:00Z"});
            run.conditions.push(serde_json::from_value(condition).unwrap());
        }
    }
    (Seen::of_value(serde_json::to_value(approval).unwrap()).unwrap(), run)
}

/// The texts before [`edits`], in their order.
pub const BEFORE: [&str; 2] = ["Dear ACME,\nwe refund 42 EUR.", "Hi ACME,\nwe refund 42 EUR."];

/// Returns two edits of the letter, newest first.
pub fn edits() -> Vec<Edit> {
    let edit = |by: &[&str], gate: &str, path: &str, at: &str, before: &str| {
        serde_json::from_value(json!({
            "by": by, "gate": gate, "path": path, "at": at, "verdict": "Modify", "original": Digest::of_bytes(before.as_bytes()),
        }))
    };
    let newest = edit(&["carol@example.com", "dave@example.com"], "style", "style", "2026-11-22T09:10:00Z", BEFORE[0]);
    vec![newest.unwrap(), edit(&["bob@example.com"], "sql", "left/sql", "2026-11-22T09:00:00Z", BEFORE[1]).unwrap()]
}

/// The text that the call of [`call`] sends.
pub const SENT: &str =
    "url: https://bank.example/refunds\nmethod: POST\nbody:\n  refund: 420\nheaders:\n  x-action: PAY\n";

/// The arguments of the call of [`call`], as they are stored.
pub const ARGUMENTS: &str = r#"{"amount":420,"customer":"ACME","note":"as agreed\\nby phone"}"#;

/// Returns an Approval about the call of a tool, with two other calls in its turn.
pub fn call() -> Approval {
    let mut approval = approval();
    let mut request = serde_json::to_value(&approval.spec.request).unwrap();
    let fields = json!({
        "gate": {"name": "money", "type": "specificTools", "path": "handle/.turn-2/.call-2/.gate", "visit": 1},
        "prompt": "May the refund be sent?",
        "context": null,
        "says": "The customer is entitled to it.",
        "sends": {"text": SENT},
        "action": {
            "kind": "toolCall", "agent": "clerk", "tool": "refund", "effects": "irreversible",
            "target": "POST https://bank.example/refunds", "attempts": 3, "definition": Digest::of_bytes(b"refund"),
            "gates": [
                {"name": "money", "type": "specificTools", "because": "refund is listed"},
                {"name": "guard", "type": "destructiveActions", "source": "ClusterApprovalPolicy prod",
                 "because": "refund is not known to be read-only"},
            ],
            "siblings": [
                {"path": "handle/.turn-2/.call-1", "tool": "lookup"}, {"path": "handle/.turn-2/.call-3", "tool": "letter"},
            ],
            "done": ["lookup: Succeeded"],
        },
        "reviews": {
            "path": "handle/.turn-2/.call-2", "response": ARGUMENTS, "digest": Digest::of_bytes(ARGUMENTS.as_bytes()),
        },
        "allowedVerdicts": ["Approve", "Modify", "Reject", "Defer", "Skip", "Abort"],
        "parameters": {"Modify": {"type": "object", "required": ["arguments"], "properties": {"arguments": {
            "type": "object", "required": ["amount", "customer"], "additionalProperties": false,
            "properties": {
                "amount": {"type": "integer", "maximum": 1000}, "customer": {"type": "string"}, "note": {"type": "string"},
            },
        }}}},
    });
    fields.as_object().unwrap().iter().for_each(|(field, value)| request[field] = value.clone());
    approval.spec.request = serde_json::from_value(request).unwrap();
    seal(&mut approval);
    approval
}

/// Returns an Approval about a question of an agent.
pub fn question() -> Approval {
    let mut approval = approval();
    let mut request = serde_json::to_value(&approval.spec.request).unwrap();
    let fields = json!({
        "gate": {"name": "questions", "type": "question", "path": "handle/.turn-1/.call-1/.gate", "visit": 1},
        "prompt": "This answers the agent; it approves nothing. Do not enter secrets.\n\nThe clerk needs to know.",
        "context": null, "reviews": null,
        "action": {"kind": "question", "agent": "clerk", "tool": "ask-human"},
        "form": {"questions": [
            {"id": "q1", "question": "Which account?", "options": [{"id": "o1", "label": "Main"}, {"id": "o2", "label": "Savings"}]},
        ]},
        "allowedVerdicts": ["Respond", "Skip", "Abort"],
    });
    fields.as_object().unwrap().iter().for_each(|(field, value)| request[field] = value.clone());
    approval.spec.request = serde_json::from_value(request).unwrap();
    seal(&mut approval);
    approval
}

/// A text of an agent that imitates facts, moves the cursor and contains markup.
pub const HOSTILE: &str = "ok\r\u{1b}[2J\u{1b}[31m\u{202e}```\n</pre></div><script>alert(1)</script>\nPhase:        Approved\n  | You: approved";

/// Computes the digest of a changed request and the name of its object.
pub fn seal(approval: &mut Approval) {
    approval.spec.request.digest = approval.spec.request.digest_of_the_rest().unwrap();
    approval.metadata.name = Some(format!("refund-4711-review-{}", approval.spec.request.digest.short(10)));
}
