//! The content of a vote is checked when it is given: a typo leaves the gate pending and never fails a run.

use serde_json::{Value, json};

use crate::attacks::Actor::Approver;
use crate::attacks::{Row, Way, own, user};

fn form(questions: Value) -> Value {
    json!({"form": {"questions": questions}})
}

fn respond(text: &str) -> Value {
    json!({"verdict": "Respond", "response": text})
}

fn answer(answers: Value) -> Value {
    json!({"verdict": "Respond", "answers": answers})
}

fn vote_with(verdict: &str, field: &str, value: Value) -> Value {
    json!({"verdict": verdict, field: value})
}

fn approve() -> Value {
    json!({"verdict": "Approve"})
}

/// The attempt, the request's fields, the wrong decision, the words of the refusal, and the decision that is accepted.
type Case = (&'static str, Value, Value, &'static str, Value);

pub(super) fn rows() -> Vec<Row> {
    [fields(), verdicts(), texts(), options(), questions()]
        .into_iter()
        .flatten()
        .map(|(what, request, wrong, words, right)| {
            Row::new(what, [Approver], [Way::Merge], own(wrong))
                .with_request(request)
                .refused(words)
                .honest("what the gate allows", own(right))
        })
        .collect()
}

fn fields() -> Vec<Case> {
    let text = || json!("x");
    let parameters = || json!({"response": "x"});
    let plain = || form(json!([{"id": "answer"}]));
    let grant = json!({"scope": "run", "match": "tool", "ttl": "1h"});
    let target = || user("bob@example.com");
    vec![
        (
            "approves with parameters",
            json!({}),
            vote_with("Approve", "parameters", parameters()),
            "parameters are allowed only with Modify and Retry",
            approve(),
        ),
        (
            "rejects with parameters",
            json!({}),
            vote_with("Reject", "parameters", parameters()),
            "parameters are allowed only with Modify and Retry",
            vote_with("Retry", "parameters", parameters()),
        ),
        (
            "modifies without parameters",
            json!({}),
            json!({"verdict": "Modify"}),
            "Modify needs parameters",
            vote_with("Modify", "parameters", parameters()),
        ),
        (
            "approves with a response",
            plain(),
            vote_with("Approve", "response", text()),
            "Respond needs response or answers",
            respond("x"),
        ),
        (
            "approves with answers",
            plain(),
            vote_with("Approve", "answers", json!({"answer": {"text": "x"}})),
            "Respond needs response or answers",
            respond("x"),
        ),
        (
            "responds with nothing",
            plain(),
            json!({"verdict": "Respond"}),
            "Respond needs response or answers",
            respond("x"),
        ),
        (
            "responds with a response and answers",
            plain(),
            json!({"verdict": "Respond", "response": "x", "answers": {"answer": {"text": "y"}}}),
            "give response or answers",
            respond("x"),
        ),
        (
            "defers without guidance",
            json!({}),
            json!({"verdict": "Defer"}),
            "Defer needs guidance",
            vote_with("Defer", "guidance", text()),
        ),
        (
            "rejects with guidance",
            json!({}),
            vote_with("Reject", "guidance", text()),
            "Defer needs guidance",
            vote_with("Reject", "reason", text()),
        ),
        (
            "approves with a target of escalation",
            json!({"escalateTo": [target()]}),
            vote_with("Approve", "escalateTo", json!([target()])),
            "escalateTo is allowed only with Escalate",
            vote_with("Escalate", "escalateTo", json!([target()])),
        ),
        (
            "rejects with a grant",
            json!({}),
            vote_with("Reject", "grant", grant.clone()),
            "grant is allowed only with Approve",
            approve(),
        ),
        (
            "approves with a grant",
            json!({}),
            vote_with("Approve", "grant", grant),
            "a standing grant is not possible yet",
            approve(),
        ),
        (
            "escalates to whom the gate does not name",
            json!({"escalateTo": [target()]}),
            vote_with("Escalate", "escalateTo", json!([user("mallory@example.com")])),
            "escalateTo must be among the subjects",
            vote_with("Escalate", "escalateTo", json!([target()])),
        ),
        (
            "escalates to a group of the target's name",
            json!({"escalateTo": [target()]}),
            vote_with("Escalate", "escalateTo", json!([{"kind": "Group", "name": "bob@example.com"}])),
            "escalateTo must be among the subjects",
            vote_with("Escalate", "escalateTo", json!([target()])),
        ),
        (
            "escalates where the gate has no approvers to escalate to",
            json!({}),
            vote_with("Escalate", "escalateTo", json!([target()])),
            "this gate has no approvers to escalate to",
            json!({"verdict": "Escalate"}),
        ),
    ]
}

fn verdicts() -> Vec<Case> {
    let only = |verdicts: Value| json!({"allowedVerdicts": verdicts});
    let stale = format!("sha256:{}", "f".repeat(64));
    let mut cases: Vec<Case> = ["Modify", "Respond", "Defer", "Escalate", "Abort", "Skip", "Retry"]
        .into_iter()
        .map(|verdict| {
            let mut wrong = json!({"verdict": verdict});
            match verdict {
                "Modify" => wrong["parameters"] = json!({"response": "x"}),
                "Respond" => wrong["answers"] = json!({"answer": {"text": "x"}}),
                "Defer" => wrong["guidance"] = json!("x"),
                _ => {}
            }
            let what: &'static str = match verdict {
                "Modify" => "gives Modify where it is not allowed",
                "Respond" => "gives Respond where it is not allowed",
                "Defer" => "gives Defer where it is not allowed",
                "Escalate" => "gives Escalate where it is not allowed",
                "Abort" => "gives Abort where it is not allowed",
                "Skip" => "gives Skip where it is not allowed",
                _ => "gives Retry where it is not allowed",
            };
            let mut request = only(json!(["Approve", "Reject"]));
            request["form"] = json!({"questions": [{"id": "answer"}]});
            (what, request, wrong, "verdict must be one of Approve, Reject", approve())
        })
        .collect();
    cases.extend([
        (
            "approves where only Respond is allowed",
            {
                let mut request = only(json!(["Respond", "Reject"]));
                request["form"] = json!({"questions": [{"id": "answer"}]});
                request
            },
            approve(),
            "verdict must be one of Respond, Reject",
            respond("x"),
        ),
        (
            "approves another request's digest",
            json!({}),
            vote_with("Approve", "requestDigest", json!(stale)),
            "stale: requestDigest is not the digest of this request",
            approve(),
        ),
        (
            "names no digest but some text",
            json!({}),
            vote_with("Approve", "requestDigest", json!("latest")),
            "stale: requestDigest",
            approve(),
        ),
    ]);
    cases
}

fn texts() -> Vec<Case> {
    let because = |reason: &str| vote_with("Approve", "reason", json!(reason));
    let required = || json!({"requireReason": true});
    let a_reason = "a reason with at least one letter or digit";
    let iban =
        || form(json!([{"id": "answer", "pattern": "DE[0-9]{4}|none", "errorMessage": "an IBAN looks like DE1234"}]));
    let looks = "an IBAN looks like DE1234";
    let letters = || form(json!([{"id": "answer", "pattern": "[a-z]+"}]));
    let short = || form(json!([{"id": "answer", "maxLength": 5}]));
    vec![
        ("gives no reason", required(), approve(), a_reason, because("ok")),
        ("gives an empty reason", required(), because(""), a_reason, because("ok")),
        ("gives blanks for a reason", required(), because(" \t\n"), a_reason, because("7")),
        ("gives signs for a reason", required(), because("…!\u{200b}"), a_reason, because("да")),
        ("gives a picture for a reason", required(), because("\u{1f44d}"), a_reason, because("\u{1f44d} ok")),
        ("writes more than the pattern", iban(), respond("DE12345"), looks, respond("DE1234")),
        ("writes before the second alternative", iban(), respond("xnone"), looks, respond("none")),
        (
            "writes the pattern on two lines",
            iban(),
            respond("DE1234\nDE1234"),
            looks,
            answer(json!({"answer": {"text": "DE1234"}})),
        ),
        ("ends the pattern with a line break", iban(), respond("DE1234\n"), looks, respond("DE1234")),
        (
            "writes what no message explains",
            letters(),
            respond("ok!"),
            "the whole answer to answer must match [a-z]+",
            respond("ok"),
        ),
        (
            "writes look-alikes of the letters asked for",
            letters(),
            respond("\u{43e}k"),
            "must match [a-z]+",
            respond("ok"),
        ),
        ("writes too much", short(), respond("longer"), "must have at most 5 characters", respond("äöüßé")),
    ]
}

fn options() -> Vec<Case> {
    let options = json!([{"id": "r", "label": "Red"}, {"id": "g", "label": "Green"}]);
    let one = || form(json!([{"id": "answer", "options": options}]));
    let many = || form(json!([{"id": "answer", "options": options, "multiple": true}]));
    let free = || form(json!([{"id": "answer", "options": options, "allowText": true}]));
    let choose = |ids: Value| answer(json!({"answer": {"options": ids}}));
    let among = "options of answer must be among: r, g";
    let one_of = "the answer to answer must be one of: r, g";
    let single = "choose one option for answer";
    vec![
        ("chooses what is no option", one(), choose(json!(["blue"])), among, choose(json!(["r"]))),
        ("chooses by label where ids count", one(), choose(json!(["Red"])), among, choose(json!(["g"]))),
        ("chooses two of one", one(), choose(json!(["r", "g"])), single, choose(json!(["g"]))),
        (
            "chooses a real and an invented option",
            many(),
            choose(json!(["r", "blue"])),
            among,
            choose(json!(["r", "g"])),
        ),
        ("writes an option in other letters", one(), respond("red"), one_of, respond(" Red\n")),
        (
            "writes another option than it chooses",
            one(),
            answer(json!({"answer": {"options": ["r"], "text": "Green"}})),
            single,
            answer(json!({"answer": {"options": ["r"], "text": "Red"}})),
        ),
        ("writes two options as one text", one(), respond("Red, Green"), one_of, respond("g")),
        ("chooses free text", free(), choose(json!(["blue"])), among, respond("blue")),
    ]
}

fn questions() -> Vec<Case> {
    let optional = || form(json!([{"id": "who"}, {"id": "why", "required": false}]));
    let skippable = || form(json!([{"id": "who"}, {"id": "why", "allowSkip": true}]));
    let two = || form(json!([{"id": "who"}, {"id": "why"}]));
    let both = || answer(json!({"who": {"text": "me"}, "why": {"text": "because"}}));
    let me = || answer(json!({"who": {"text": "me"}}));
    let third = answer(json!({"who": {"text": "me"}, "why": {"text": "because"}, "when": {"text": "now"}}));
    let missing = "an answer is missing for: who";
    vec![
        ("answers the optional question only", optional(), answer(json!({"why": {"text": "because"}})), missing, me()),
        (
            "answers with blanks",
            optional(),
            answer(json!({"who": {"text": "  "}})),
            missing,
            answer(json!({"who": {"text": "me"}, "why": {"text": ""}})),
        ),
        ("answers with no options", optional(), answer(json!({"who": {"options": []}})), missing, me()),
        (
            "answers the skippable question only",
            skippable(),
            answer(json!({"why": {"text": "because"}})),
            missing,
            me(),
        ),
        (
            "responds with a line break",
            form(json!([{"id": "answer"}])),
            respond("\n"),
            "an answer is missing for: answer",
            respond("yes"),
        ),
        (
            "answers a question nobody asked",
            two(),
            third,
            "answers must be for the questions of this gate: who, why",
            both(),
        ),
        (
            "responds to two questions at once",
            two(),
            respond("me"),
            "instead of response give answers for who, why",
            both(),
        ),
        (
            "answers a gate that asks nothing",
            json!({}),
            answer(json!({"answer": {"text": "x"}})),
            "(it has none)",
            approve(),
        ),
        ("responds to a gate that asks nothing", json!({}), respond("x"), "this gate asks no question", approve()),
    ]
}
