//! Requests written so that a checker and a store might read them differently. Each breaks a rule of another chapter.

use serde_json::{Value, json};

use crate::attacks::Actor::{Approver, SecondApprover};
use crate::attacks::{CHANGES, REMOVALS, Row, Way, approve, own};

const NOT_ONES_OWN: &str = "you may record a decision only under your own user name";

pub(super) fn rows() -> Vec<Row> {
    [keys(), empty_values(), wrong_types(), preconditions()].into_iter().flatten().collect()
}

/// Returns attacks with duplicate keys and with keys in other letters.
fn keys() -> Vec<Row> {
    let twice = r#"{"spec":{"decisions":{"{me}":{"verdict":"Reject","verdict":"Approve"}}}}"#;
    let two_maps = r#"{"spec":{"decisions":{"{me}":{"verdict":"Approve"}},"decisions":{"carol@example.com":{"verdict":"Approve"}}}}"#;
    let two_specs = r#"{"spec":{"decisions":{"{me}":{"verdict":"Approve"}}},"spec":{"decisions":{"carol@example.com":{"verdict":"Approve"}}}}"#;
    let two_votes = r#"{"spec":{"decisions":{"{me}":{"verdict":"Approve"},"carol@example.com":{"verdict":"Approve"},"{me}":{"verdict":"Reject"}}}}"#;
    let added_twice = r#"[{"op":"add","path":"/spec/decisions","value":{"{me}":{"verdict":"Approve"}}},{"op":"add","path":"/spec/decisions/carol@example.com","value":{"verdict":"Approve"}}]"#;
    let moved = r#"[{"op":"add","path":"/spec/decisions","value":{"{me}":{"verdict":"Approve"}}},{"op":"move","from":"/spec/decisions/{me}","path":"/spec/decisions/carol@example.com"}]"#;
    let copied = r#"[{"op":"add","path":"/spec/decisions","value":{"{me}":{"verdict":"Approve"}}},{"op":"copy","from":"/spec/decisions/{me}","path":"/spec/decisions/carol@example.com"}]"#;
    let vote = |row: Row| row.honest("one vote, written once", own(approve()));
    let bytes =
        |what, how, text: &str, words| vote(Row::new(what, [Approver], [how], Value::Null).text(text).refused(words));
    let wrong_case = [
        (
            "writes Spec for spec",
            json!({"Spec": {"decisions": {"carol@example.com": approve()}}}),
            "unknown field \"Spec\"",
        ),
        (
            "writes Decisions for decisions",
            json!({"spec": {"Decisions": {"carol@example.com": approve()}}}),
            "unknown field \"spec.Decisions\"",
        ),
        (
            "writes DECISIONS for decisions",
            json!({"spec": {"DECISIONS": {"{me}": approve()}}}),
            "unknown field \"spec.DECISIONS\"",
        ),
        (
            "writes the kelvin sign in decisions' stead",
            json!({"spec": {"deci\u{17f}ions": {"{me}": approve()}}}),
            "unknown field",
        ),
        ("writes its vote beside spec", json!({"decisions": {"{me}": approve()}}), "unknown field \"decisions\""),
    ];
    let mut rows = vec![
        bytes("gives two verdicts in one vote", Way::Merge, twice, "duplicate field").strict(),
        bytes("hides another's vote in a second map of decisions", Way::Merge, two_maps, NOT_ONES_OWN),
        bytes("hides another's vote in a second spec", Way::Merge, two_specs, NOT_ONES_OWN),
        bytes("hides another's vote between two of their own", Way::Merge, two_votes, NOT_ONES_OWN),
        bytes("adds another's vote in a second operation", Way::Json, added_twice, NOT_ONES_OWN),
        bytes("moves their vote under another's name", Way::Json, moved, NOT_ONES_OWN),
        bytes("copies their vote under another's name", Way::Json, copied, NOT_ONES_OWN),
    ];
    for (what, change, words) in wrong_case {
        let ways = [Way::Merge, Way::Json, Way::Replace];
        rows.push(vote(Row::new(what, [Approver], ways, change.clone()).strict().refused(words)));
        let what: &'static str = match what {
            "writes Spec for spec" => "writes Spec for spec and is not told",
            "writes Decisions for decisions" => "writes Decisions for decisions and is not told",
            "writes DECISIONS for decisions" => "writes DECISIONS for decisions and is not told",
            "writes its vote beside spec" => "writes its vote beside spec and is not told",
            _ => "writes the kelvin sign in decisions' stead and is not told",
        };
        rows.push(vote(Row::new(what, [Approver], ways, change)));
    }
    for (what, decision, words) in [
        ("writes Verdict for verdict", json!({"Verdict": "Approve"}), "unknown field"),
        ("writes VERDICT beside verdict", json!({"verdict": "Reject", "VERDICT": "Approve"}), "unknown field"),
        ("approves in small letters", json!({"verdict": "approve"}), "Unsupported value: \"approve\""),
        ("approves with a blank", json!({"verdict": "Approve "}), "Unsupported value: \"Approve \""),
        ("approves in Cyrillic letters", json!({"verdict": "\u{410}pprove"}), "Unsupported value"),
        ("gives an empty verdict", json!({"verdict": ""}), "Unsupported value: \"\""),
        ("gives no verdict", json!({}), "verdict: Required value"),
        ("approves with a field of its own making", json!({"verdict": "Approve", "force": true}), "unknown field"),
    ] {
        rows.push(vote(
            Row::new(what, [Approver], [Way::Merge, Way::Json, Way::Replace], own(decision)).strict().refused(words),
        ));
    }
    rows
}

/// Returns attacks with null and empty values.
fn empty_values() -> Vec<Row> {
    let null_vote = r#"[{"op":"add","path":"/spec/decisions","value":{"{me}":null}}]"#;
    let null_verdict = r#"[{"op":"add","path":"/spec/decisions","value":{"{me}":{"verdict":null}}}]"#;
    let null_spec = r#"[{"op":"replace","path":"/spec","value":null}]"#;
    let no_spec = r#"[{"op":"remove","path":"/spec"}]"#;
    let no_request = r#"[{"op":"remove","path":"/spec/request"}]"#;
    let vote = |row: Row| row.honest("a vote", own(approve()));
    let bytes = |what, text: &str, words| {
        vote(Row::new(what, [Approver, SecondApprover], [Way::Json], Value::Null).text(text).refused(words))
    };
    vec![
        vote(Row::new("votes null", [Approver, SecondApprover], [Way::Json], Value::Null).text(null_vote)),
        bytes("gives the verdict null", null_verdict, "verdict"),
        bytes("makes spec null", null_spec, "spec"),
        bytes("removes spec", no_spec, "spec: Required value"),
        bytes("removes the request", no_request, "request: Required value"),
        vote(
            Row::new("empties spec", [Approver], [Way::Replace, Way::Merge], json!({"spec": null}))
                .refused("spec: Required value"),
        ),
        vote(
            Row::new("empties the request", [Approver], [Way::Replace, Way::Merge], json!({"spec": {"request": null}}))
                .refused("request: Required value"),
        ),
        vote(Row::new("merges null over a vote that is not there", [Approver], REMOVALS, own(Value::Null))),
        vote(Row::new("sends an empty map of decisions", [Approver], CHANGES, json!({"spec": {"decisions": {}}}))),
    ]
}

/// Returns attacks with values of wrong types.
fn wrong_types() -> Vec<Row> {
    let vote = |row: Row| row.honest("a vote", own(approve()));
    let all = [Way::Merge, Way::Json, Way::Replace];
    [
        ("sends a list of decisions", json!({"spec": {"decisions": [approve()]}}), "must be of type object: \"array\""),
        ("sends decisions as text", json!({"spec": {"decisions": "Approve"}}), "must be of type object: \"string\""),
        ("sends its vote as text", own(json!("Approve")), "must be of type object: \"string\""),
        ("sends its vote as a list", own(json!([approve()])), "must be of type object: \"array\""),
        ("sends a verdict of true", own(json!({"verdict": true})), "must be of type string: \"boolean\""),
        ("sends a list of verdicts", own(json!({"verdict": ["Approve"]})), "must be of type string: \"array\""),
        (
            "sends parameters as a list",
            own(json!({"verdict": "Modify", "parameters": [1]})),
            "must be of type object: \"array\"",
        ),
        (
            "sends parameters as text",
            own(json!({"verdict": "Modify", "parameters": "{}"})),
            "must be of type object: \"string\"",
        ),
        (
            "sends a reason as a number",
            own(json!({"verdict": "Approve", "reason": 1})),
            "must be of type string: \"integer\"",
        ),
    ]
    .into_iter()
    .map(|(what, change, words)| vote(Row::new(what, [Approver], all, change).refused(words)))
    .collect()
}

/// Returns attacks with votes that were meant for another object.
fn preconditions() -> Vec<Row> {
    let with = |metadata: Value| {
        let mut vote = own(approve());
        vote["metadata"] = metadata;
        vote
    };
    let vote = |row: Row| row.honest("a vote for the object that is there", own(approve()));
    let other = "11111111-1111-4111-8111-111111111111";
    vec![
        vote(
            Row::new("votes for the object of another uid", [Approver], CHANGES, with(json!({"uid": other})))
                .ways(&[Way::Merge, Way::Json, Way::Apply])
                .refused("metadata.uid: Invalid value"),
        ),
        vote(
            Row::new("votes for the object of another uid", [Approver], [Way::Replace], with(json!({"uid": other})))
                .refused("UID in precondition"),
        ),
        vote(
            Row::new(
                "votes for an older version of the object",
                [Approver],
                CHANGES,
                with(json!({"resourceVersion": "1"})),
            )
            .refused("the object has been modified"),
        ),
        vote(
            Row::new(
                "votes for an object of another name",
                [Approver],
                [Way::Merge, Way::Json, Way::Replace],
                with(json!({"name": "other-0123456789"})),
            )
            .refused("does not match"),
        ),
        vote(
            Row::new(
                "votes for an object of another namespace",
                [Approver],
                [Way::Merge, Way::Json, Way::Replace],
                with(json!({"namespace": "default"})),
            )
            .refused("does not match"),
        ),
    ]
}
