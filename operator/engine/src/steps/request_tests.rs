//! Tests that the digest covers the whole request, and that names of people stay exactly as written.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use signoff_api::{ApprovalRequest, Digest, Moment, Workflow};

use crate::{
    Control, Journal, Now, Plan, Settings, advance,
    transition::{Blobs, Command},
};

/// A name with a letter and a separate accent: normalizing it would make it the name of another user.
const DECOMPOSED: &str = "rene\u{301}@example.com";

/// Returns the name of the Approval and the request of a run with this uid, whose gate has the fields `hitl`.
fn ask_gate(uid: &str, hitl: Value) -> (String, ApprovalRequest) {
    let workflow: Workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "n", "uid": uid},
        "spec": {"requestedBy": "dana", "requestedFor": "erin",
            "rerunOf": {"name": "v", "uid": "00000000-0000-0000-0000-000000000009", "requesters": ["carol"]}, "inputs": [{"name": "who", "value": "mallory"}],
            "steps": [
                {"name": "draft", "set": {"value": "a draft"}},
                {"name": "gate", "hitl": hitl},
            ]},
    }))
    .unwrap();
    let plan =
        Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap_or_else(|why| panic!("{why:?}"));
    let at = Moment::from(jiff::Timestamp::from_second(1_800_000_000).unwrap());
    let now = Now::new(at, "epoch");
    let transition = advance(&plan, Control::default(), Journal::default(), Vec::new(), &Blobs::new(), &now);
    let Some(Command::Ask(ask)) = transition.commands.into_iter().next() else { panic!("nobody is asked") };
    (ask.name, ask.request)
}

fn gate() -> Value {
    json!({
        "prompt": "go?", "contextDisplay": "why", "requireReason": true, "excludeRequester": true,
        "approvers": [{"kind": "Group", "name": "leads"}, {"kind": "User", "name": "{{ inputs.who }}"},
            {"kind": "User", "name": DECOMPOSED}],
        "requiredFrom": [{"group": "leads", "min": 1}], "rejectPolicy": "threshold", "excluded": ["bob"],
        "allowedVerdicts": ["Approve", "Reject", "Respond", "Escalate"], "escalateTo": [{"kind": "User", "name": "olga"}],
        "form": {"questions": [{"id": "answer"}]}, "allowUnanswered": true, "timeout": {"after": "1h", "action": "Reject"},
    })
}

#[test]
fn the_digest_covers_every_field_but_itself() {
    let (_, request) = ask_gate("00000000-0000-0000-0000-000000000001", gate());
    assert_eq!(request.digest_of_the_rest().unwrap(), request.digest);
    let whole = serde_json::to_value(&request).unwrap();
    let fields: Vec<String> = whole.as_object().unwrap().keys().filter(|key| *key != "digest").cloned().collect();
    for field in &fields {
        let mut changed = whole.clone();
        changed.as_object_mut().unwrap().remove("digest");
        let was = Digest::of(&changed).unwrap();
        assert_eq!(was, request.digest);
        changed[field] = json!("something else");
        assert_ne!(Digest::of(&changed).unwrap(), was, "{field} can be changed without anybody noticing");
    }
    for bound in [
        "workflow",
        "gate",
        "specDigest",
        "guardEpoch",
        "deadline",
        "closesAt",
        "reviews",
        "requestedFor",
        "earlierRequesters",
    ] {
        assert!(fields.iter().any(|field| field == bound), "{bound} is not part of the request");
    }
}

#[test]
fn the_same_gate_of_another_run_has_another_request() {
    let (name, first) = ask_gate("00000000-0000-0000-0000-000000000001", gate());
    let (other_name, other) = ask_gate("00000000-0000-0000-0000-000000000002", gate());
    assert_ne!(first.digest, other.digest);
    assert_ne!(name, other_name);
    assert!(name.ends_with(&format!("-{}", first.digest.short(10))));
}

#[test]
fn the_names_of_approvers_are_neither_rendered_nor_normalised() {
    let (_, request) = ask_gate("00000000-0000-0000-0000-000000000001", gate());
    let names: Vec<_> = request.quorums[0].approvers.iter().map(|subject| subject.name.as_str()).collect();
    assert_eq!(names, ["leads", "{{ inputs.who }}", DECOMPOSED]);
}
