//! Tests of edits of a call: an object or one JSON text, and equal edits of two people in different forms.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use signoff_api::{Approval, Decision, Digest, JsonObject, Moment, Verdict, approval::ApprovalPhase};

use super::*;
use crate::{
    approval::{OwnerState, tally},
    gate::parameters::{are_equal, as_object, as_sent},
    transition::Now,
};

/// Returns an Approval about a call of a tool that takes any arguments, with a quorum of two.
fn approval() -> Approval {
    let approvers = ["alice", "bob", "carol"].map(|name| json!({"kind": "User", "name": name}));
    let mut approval: Approval = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "a", "generation": 1},
        "spec": {"request": {
            "workflow": {"name": "w", "uid": "00000000-0000-0000-0000-000000000001"},
            "gate": {"name": "g", "type": "toolExecution", "path": "handle/.turn-1/.call-1/.gate", "visit": 1},
            "specDigest": Digest::of_bytes(b"spec"), "guardEpoch": "e1", "deadline": "2100-01-01T00:00:00Z", "prompt": "go?",
            "action": {"kind": "toolCall", "agent": "clerk", "tool": "refund"},
            "parameters": {"Modify": {"type": "object", "required": ["arguments"], "additionalProperties": false,
                "properties": {"arguments": {"type": "object", "properties": {"amount": {"type": "number"}}}}}},
            "allowedVerdicts": Verdict::ALL, "requestedBy": "dana", "timeout": {"after": "60s"},
            "quorums": [{"source": "gate g", "threshold": 2, "approvers": approvers}],
            "digest": Digest::of_bytes(b"request"),
        }},
    }))
    .unwrap();
    approval.spec.request.digest = approval.spec.request.digest_of_the_rest().unwrap();
    approval
}

fn modify(arguments: Value) -> Decision {
    let parameters = json!({"arguments": arguments});
    Decision { parameters: Some(serde_json::from_value(parameters).unwrap()), ..Decision::new(Verdict::Modify) }
}

/// Returns arguments with this number of nested levels.
fn nested(levels: usize) -> Value {
    (1..levels).fold(json!({"amount": 42}), |inner, _| json!({"x": inner}))
}

fn stored_parameters(decision: &Decision) -> Result<JsonObject, String> {
    parse(&approval().spec.request, decision).map(|payload| payload.parameters.unwrap())
}

#[test]
fn arguments_are_an_object_or_one_text_with_the_same_meaning() {
    let object = stored_parameters(&modify(json!({"amount": 42, "note": "a"}))).unwrap();
    assert_eq!(Value::Object(object.0.clone()), json!({"arguments": {"amount": 42, "note": "a"}}));
    for text in [r#"{"amount": 42, "note": "a"}"#, "{\"note\":\"a\",\n \"amount\": 42.0}"] {
        assert_eq!(stored_parameters(&modify(json!(text))).unwrap(), object, "{text}");
    }
}

#[test]
fn edited_arguments_are_parsed_as_strictly_as_those_of_a_model() {
    for (text, why) in [
        ("", "the text is empty"),
        ("[1]", "must be a JSON object"),
        ("{\"amount\": 42} and", "there is text after the JSON"),
        (r#"{"amount": 1, "amount": 2}"#, "the key is there twice"),
        (r#"{"amount": 12345678901234567890}"#, "2^53"),
        (r#"{"amount": "much"}"#, "parameters"),
    ] {
        let refused = stored_parameters(&modify(json!(text))).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
    assert!(stored_parameters(&modify(json!(42))).unwrap_err().contains("give an object or its JSON text"));
    assert!(stored_parameters(&modify(json!("{}"))).is_ok());
}

#[test]
fn arguments_nest_four_levels_as_an_object_and_sixty_four_as_a_text() {
    assert!(stored_parameters(&modify(nested(4))).is_ok());
    assert_eq!(stored_parameters(&modify(nested(5))).unwrap_err(), Decision::TOO_LARGE);
    for levels in [5, 6, 64] {
        let read = stored_parameters(&modify(json!(nested(levels).to_string()))).unwrap();
        assert!(read.0["arguments"].is_string(), "an outcome stays shallow: {levels}");
        assert_eq!(as_object(&read).0["arguments"], nested(levels));
    }
    assert!(stored_parameters(&modify(json!(nested(65).to_string()))).unwrap_err().contains("64 levels"));
}

#[test]
fn equal_edits_in_different_forms_count_together() {
    for (one, other) in [
        (json!({"amount": 42, "note": "a"}), json!("{\"note\": \"a\", \"amount\": 42}")),
        (json!(nested(30).to_string()), json!(serde_json::to_string_pretty(&nested(30)).unwrap())),
    ] {
        let mut approval = approval();
        approval.spec.decisions.insert("alice".to_owned(), modify(one.clone()));
        approval.spec.decisions.insert("bob".to_owned(), modify(other.clone()));
        let status = tally_status(&approval);
        assert_eq!(status.phase, ApprovalPhase::Modified, "{one} and {other}: {:?}", status.invalid);
        assert_eq!(status.outcome.unwrap().decided_by, ["alice", "bob"]);
        approval.spec.decisions.insert("bob".to_owned(), modify(json!({"amount": 43})));
        assert_eq!(tally_status(&approval).phase, ApprovalPhase::Pending);
    }
}

fn tally_status(approval: &Approval) -> signoff_api::ApprovalStatus {
    let now = Now::new(Moment::from(jiff::Timestamp::UNIX_EPOCH), "e1");
    tally(approval, OwnerState::Live, &now).status
}

#[test]
fn clients_send_a_text_when_an_object_does_not_fit() {
    let request = approval().spec.request;
    let long = json!({"note": "x".repeat(20_000)});
    for (arguments, is_text) in [(nested(4), false), (nested(5), true), (nested(64), true), (long, true)] {
        let typed = modify(arguments.clone());
        let sent = as_sent(&request, typed.clone());
        let given = &sent.parameters.as_ref().unwrap().0["arguments"];
        assert_eq!(given.is_string(), is_text, "{arguments}");
        assert!(stored_parameters(&sent).is_ok());
        assert!(are_equal(sent.parameters.as_ref().unwrap(), typed.parameters.as_ref().unwrap()));
    }
    // A decision that does not edit a call stays as it was typed.
    let retry = Decision { verdict: Verdict::Retry, ..modify(nested(9)) };
    assert_eq!(as_sent(&request, retry.clone()), retry);
}
