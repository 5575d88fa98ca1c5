//! Every bound of a vote: the largest value that fits, and one more.

use serde_json::{Map, Value, json};

use crate::attacks::Actor::Approver;
use crate::attacks::{Row, Way, own, user};

/// Returns a request with this number of free-text questions.
fn request_with_questions(count: usize) -> Value {
    json!({"form": {"questions": (0..count).map(|n| json!({"id": format!("q{n}"), "required": false})).collect::<Vec<_>>()}})
}

fn vote_with_answers(count: usize, text: &str) -> Value {
    let answers: Map<_, _> = (0..count).map(|n| (format!("q{n}"), json!({"text": text}))).collect();
    json!({"verdict": "Respond", "answers": answers})
}

/// Returns parameters nested to this depth, as objects or as lists.
fn nested_objects(levels: usize) -> Value {
    (1..levels).fold(json!({"x": 1}), |inner, _| json!({"x": inner}))
}

fn nested_lists(levels: usize) -> Value {
    json!({"x": (1..levels).fold(json!(1), |inner, _| json!([inner]))})
}

pub(super) fn rows() -> Vec<Row> {
    let text = |count: usize| "x".repeat(count);
    let vote = |verdict: &str, field: &str, value: Value| json!({"verdict": verdict, field: value});
    let modify = |parameters: Value| vote("Modify", "parameters", parameters);
    let groups = |count: usize| {
        // The voter's own groups, repeated, so that only their number is wrong.
        vote("Approve", "groups", (0..count).map(|n| json!(format!("g{n}"))).collect())
    };
    let targets = |count: usize| {
        let all = (0..count).map(|n| user(&format!("target-{n}@example.com"))).collect();
        vote("Escalate", "escalateTo", all)
    };
    let options = |count: usize| {
        let chosen: Vec<_> = (0..count).map(|n| json!(format!("o{n}"))).collect();
        json!({"verdict": "Respond", "answers": {"q0": {"options": chosen}}})
    };
    let choices: Vec<_> = (0..32).map(|n| json!({"id": format!("o{n}")})).collect();
    let multiple = json!({"form": {"questions": [{"id": "q0", "options": choices, "multiple": true}]}});
    // A tool call with this threshold, and an edit of its arguments as an object and as a text.
    let call = |threshold: i32| json!({"action": {"kind": "toolCall", "agent": "clerk", "tool": "refund"}, "threshold": threshold});
    let edit = |arguments: Value| modify(json!({"arguments": arguments}));
    let sixteen_kib = "a decision must have at most 16 KiB, and its parameters at most five levels";
    let plain = || vote("Approve", "reason", json!("ok"));
    // The attempt, the request's fields, a value over the bound, the words of the refusal, and a value at the bound.
    let cases = [
        (
            "gives a reason of 2049 characters",
            json!({}),
            vote("Approve", "reason", json!(text(2049))),
            "may not be more than 2048",
            vote("Approve", "reason", json!(text(2048))),
        ),
        (
            "responds with 8193 characters",
            request_with_questions(1),
            vote("Respond", "response", json!(text(8193))),
            "may not be more than 8192",
            vote("Respond", "response", json!(text(8192))),
        ),
        (
            "answers with 8193 characters",
            request_with_questions(1),
            vote_with_answers(1, &text(8193)),
            "may not be more than 8192",
            vote_with_answers(1, &text(8192)),
        ),
        (
            "answers 17 questions",
            request_with_questions(16),
            vote_with_answers(17, "x"),
            "must have at most 16 items",
            vote_with_answers(16, "x"),
        ),
        (
            "gives guidance of 4097 characters",
            json!({}),
            vote("Defer", "guidance", json!(text(4097))),
            "may not be more than 4096",
            vote("Defer", "guidance", json!(text(4096))),
        ),
        (
            "gives empty guidance",
            json!({}),
            vote("Defer", "guidance", json!("")),
            "should be at least 1 chars long",
            vote("Defer", "guidance", json!("x")),
        ),
        ("names 82 groups", json!({}), groups(82), "must have at most 81 items", plain()),
        ("escalates to nine", json!({}), targets(9), "must have at most 8 items", json!({"verdict": "Escalate"})),
        (
            "escalates to an empty list",
            json!({}),
            targets(0),
            "should have at least 1 items",
            json!({"verdict": "Escalate"}),
        ),
        ("chooses 33 options", multiple.clone(), options(33), "must have at most 32 items", options(32)),
        (
            "modifies with more than 16 KiB",
            json!({}),
            modify(json!({"x": text(16_384)})),
            sixteen_kib,
            modify(json!({"x": text(16_000)})),
        ),
        (
            "answers with more than 16 KiB",
            request_with_questions(16),
            vote_with_answers(16, &text(1100)),
            sixteen_kib,
            vote_with_answers(16, &text(1000)),
        ),
        (
            "modifies with a long list of small things",
            json!({}),
            modify(json!({"x": vec![0; 3000]})),
            sixteen_kib,
            modify(json!({"x": vec![0; 900]})),
        ),
        (
            "modifies with a long list of empty lists",
            json!({}),
            modify(json!({"x": vec![json!([]); 3000]})),
            sixteen_kib,
            modify(json!({"x": vec![json!([]); 900]})),
        ),
        (
            "modifies with long keys",
            json!({}),
            modify(json!({text(16_384): 1})),
            sixteen_kib,
            modify(json!({text(16_000): 1})),
        ),
        ("modifies six levels deep", json!({}), modify(nested_objects(6)), sixteen_kib, modify(nested_objects(5))),
        (
            "modifies with lists six levels deep",
            json!({}),
            modify(nested_lists(6)),
            sixteen_kib,
            modify(nested_lists(5)),
        ),
        (
            "modifies two hundred levels deep",
            json!({}),
            modify(nested_objects(200)),
            sixteen_kib,
            modify(nested_objects(5)),
        ),
        (
            "edits a call with more than 72 KiB",
            call(2),
            edit(json!(text(73_720))),
            sixteen_kib,
            edit(json!(text(73_700))),
        ),
        (
            "edits a call with more than 72 KiB of letters of two bytes",
            call(2),
            edit(json!("é".repeat(36_900))),
            sixteen_kib,
            edit(json!("é".repeat(36_850))),
        ),
        (
            "edits a call with an object of more than 16 KiB",
            call(1),
            edit(json!({"x": text(20_000)})),
            sixteen_kib,
            edit(json!(json!({"x": text(20_000)}).to_string())),
        ),
        (
            "edits a call with an object six levels deep",
            call(1),
            edit(nested_objects(5)),
            sixteen_kib,
            edit(json!(nested_objects(64).to_string())),
        ),
        (
            "edits a call that three people decide with more than 16 KiB",
            call(3),
            edit(json!(text(20_000))),
            sixteen_kib,
            edit(json!(text(16_000))),
        ),
        (
            "modifies what is no call with a text of more than 16 KiB",
            json!({}),
            edit(json!(text(20_000))),
            sixteen_kib,
            edit(json!(text(16_000))),
        ),
        (
            "asks again about a call with a text of more than 16 KiB",
            call(1),
            vote("Retry", "parameters", json!({"arguments": text(20_000)})),
            sixteen_kib,
            vote("Retry", "parameters", json!({"arguments": text(16_000)})),
        ),
        (
            "calls it the ninth attempt",
            json!({}),
            vote("Approve", "attempt", json!(9)),
            "should be less than or equal to 8",
            vote("Approve", "attempt", json!(1)),
        ),
        (
            "calls it the zeroth attempt",
            json!({}),
            vote("Approve", "attempt", json!(0)),
            "should be greater than or equal to 1",
            vote("Approve", "attempt", json!(1)),
        ),
        (
            "calls it attempt -1",
            json!({}),
            vote("Approve", "attempt", json!(-1)),
            "should be greater than or equal to 1",
            plain(),
        ),
        (
            "calls it one and a half attempts",
            json!({}),
            vote("Approve", "attempt", json!(1.5)),
            "must be of type integer",
            plain(),
        ),
        (
            "calls it more attempts than a number holds",
            json!({}),
            vote("Approve", "attempt", json!(u64::MAX)),
            "spec.decisions",
            plain(),
        ),
        (
            "types a channel of 33 characters",
            json!({}),
            vote("Approve", "channel", json!(text(33))),
            "may not be more than 32",
            plain(),
        ),
        (
            "speaks for a name of 254 characters",
            json!({}),
            vote("Approve", "onBehalfOf", json!(text(254))),
            "may not be more than 253",
            plain(),
        ),
        (
            "speaks for nobody",
            json!({}),
            vote("Approve", "onBehalfOf", json!("")),
            "should be at least 1 chars long",
            plain(),
        ),
        (
            "names a digest of 81 characters",
            json!({}),
            vote("Approve", "requestDigest", json!(text(81))),
            "may not be more than 80",
            plain(),
        ),
    ];
    cases
        .into_iter()
        .map(|(what, request, wrong, words, right)| {
            // An apply may be written in YAML, which takes no such keys.
            let how: &[Way] = if what.ends_with("long keys") { &[Way::Merge] } else { &[Way::Merge, Way::Apply] };
            Row::new(what, [Approver], [Way::Merge], own(wrong))
                .ways(how)
                .with_request(request)
                .refused(words)
                .honest("the largest that fits", own(right))
        })
        .collect()
}
