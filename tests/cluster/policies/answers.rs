//! What a decision says is checked when it is given: a typo leaves the gate pending and never fails a run.
//! These tests may not know anything about who decides: alice always may.

use serde_json::{Value, json};

use super::stage::{Stage, refused, user};

/// A request's fields, the refused decision, the words of the refusal, and the honest twin.
type Case = (Value, Value, &'static str, Value);

async fn each(cases: Vec<Case>) {
    let stage = Stage::open("answers").await;
    for (fields, wrong, words, right) in cases {
        let approval = stage.ask(fields).await;
        refused(stage.decide("alice", &approval, wrong).await, words);
        if let Err(message) = stage.decide("alice", &approval, right.clone()).await {
            panic!("the honest twin {right} was refused: {message}");
        }
    }
}

fn form(questions: Value) -> Value {
    json!({"form": {"questions": questions}})
}

fn respond(text: &str) -> Value {
    json!({"verdict": "Respond", "response": text})
}

fn answer(answers: Value) -> Value {
    json!({"verdict": "Respond", "answers": answers})
}

/// What every gate asks that says nothing more.
fn plain() -> Value {
    form(json!([{"id": "answer"}]))
}

fn approve() -> Value {
    json!({"verdict": "Approve"})
}

#[tokio::test]
async fn a_payload_belongs_to_its_verdict() {
    let with = |verdict: &str, field: &str, value: Value| json!({"verdict": verdict, field: value});
    let text = json!("x");
    each(vec![
        (
            json!({}),
            with("Approve", "parameters", json!({"response": "x"})),
            "parameters belong to Modify or Retry",
            approve(),
        ),
        (
            json!({}),
            json!({"verdict": "Modify"}),
            "Modify needs parameters",
            with("Modify", "parameters", json!({"response": "x"})),
        ),
        (plain(), with("Approve", "response", text.clone()), "only Respond may carry them", respond("x")),
        (plain(), json!({"verdict": "Respond"}), "Respond needs a response or answers", respond("x")),
        (json!({}), json!({"verdict": "Defer"}), "Defer needs guidance", with("Defer", "guidance", text.clone())),
        (
            json!({}),
            with("Reject", "guidance", text.clone()),
            "only Defer may carry it",
            with("Reject", "reason", text),
        ),
        (
            json!({"escalateTo": [user("bob")]}),
            with("Approve", "escalateTo", json!([user("bob")])),
            "escalateTo belongs to Escalate",
            with("Escalate", "escalateTo", json!([user("bob")])),
        ),
        (
            json!({}),
            json!({"verdict": "Reject", "grant": {"scope": "run", "match": "gate", "ttl": "1h"}}),
            "a grant belongs to Approve",
            approve(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_verdict_that_the_gate_does_not_allow_is_refused_with_the_list() {
    let allowed = json!({"allowedVerdicts": ["Approve", "Reject"]});
    each(vec![(allowed, json!({"verdict": "Skip"}), "verdict must be one of Approve, Reject", approve())]).await;
}

#[tokio::test]
async fn a_required_reason_has_a_letter_or_a_digit() {
    let because = |reason: &str| json!({"verdict": "Approve", "reason": reason});
    let required = || json!({"requireReason": true});
    let words = "a reason with at least one letter or digit";
    each(vec![
        (required(), approve(), words, because("ok")),
        (required(), because("  "), words, because("7")),
        (required(), because("…!\u{200b}"), words, because("да")),
    ])
    .await;
}

#[tokio::test]
async fn a_decision_about_another_request_is_stale() {
    let stage = Stage::open("answers").await;
    let approval = stage.ask(json!({})).await;
    let about = |digest: &str| json!({"verdict": "Approve", "requestDigest": digest});
    refused(
        stage.decide("alice", &approval, about(&format!("sha256:{}", "f".repeat(64)))).await,
        "stale: requestDigest",
    );
    let digest = approval.spec.request.digest.to_string();
    stage.decide("alice", &approval, about(&digest)).await.unwrap();
}

#[tokio::test]
async fn a_pattern_matches_the_whole_text_or_its_own_message_is_shown() {
    let iban =
        || form(json!([{"id": "answer", "pattern": "DE[0-9]{4}|none", "errorMessage": "an IBAN looks like DE1234"}]));
    let plain = || form(json!([{"id": "answer", "pattern": "[a-z]+"}]));
    each(vec![
        (iban(), respond("DE12345"), "an IBAN looks like DE1234", respond("DE1234")),
        (iban(), respond("xnone"), "an IBAN looks like DE1234", respond("none")),
        (iban(), respond("DE1234\nDE1234"), "an IBAN looks like DE1234", answer(json!({"answer": {"text": "DE1234"}}))),
        (plain(), respond("ok!"), "the whole answer to answer must match [a-z]+", respond("ok")),
    ])
    .await;
}

#[tokio::test]
async fn options_are_chosen_by_id_and_one_unless_several_are_asked_for() {
    let options = json!([{"id": "r", "label": "Red"}, {"id": "g", "label": "Green"}]);
    let one = || form(json!([{"id": "answer", "options": options}]));
    let many = || form(json!([{"id": "answer", "options": options, "multiple": true}]));
    let free = || form(json!([{"id": "answer", "options": options, "allowText": true}]));
    let choose = |ids: Value| answer(json!({"answer": {"options": ids}}));
    each(vec![
        (one(), choose(json!(["blue"])), "options of answer must be among: r, g", choose(json!(["r"]))),
        (one(), choose(json!(["Red"])), "options of answer must be among: r, g", choose(json!(["g"]))),
        (one(), choose(json!(["r", "g"])), "choose one option for answer", choose(json!(["g"]))),
        (many(), choose(json!(["r", "blue"])), "options of answer must be among", choose(json!(["r", "g"]))),
        (one(), respond("red"), "the answer to answer must be one of: r, g", respond(" Red\n")),
        (
            one(),
            answer(json!({"answer": {"options": ["r"], "text": "Green"}})),
            "choose one option for answer",
            answer(json!({"answer": {"options": ["r"], "text": "Red"}})),
        ),
        (one(), respond("Red, Green"), "the answer to answer must be one of: r, g", respond("g")),
        (free(), choose(json!(["blue"])), "options of answer must be among", respond("blue")),
    ])
    .await;
}

#[tokio::test]
async fn a_question_that_must_be_answered_is() {
    let two = || form(json!([{"id": "who"}, {"id": "why", "required": false}]));
    let skippable = || form(json!([{"id": "who"}, {"id": "why", "allowSkip": true}]));
    let words = "a response is missing for: who";
    each(vec![
        (two(), answer(json!({"why": {"text": "because"}})), words, answer(json!({"who": {"text": "me"}}))),
        (
            two(),
            answer(json!({"who": {"text": "  "}})),
            words,
            answer(json!({"who": {"text": "me"}, "why": {"text": ""}})),
        ),
        (skippable(), answer(json!({"why": {"text": "because"}})), words, answer(json!({"who": {"text": "me"}}))),
        (form(json!([{"id": "answer"}])), respond("\n"), "a response is missing for: answer", respond("yes")),
    ])
    .await;
}

#[tokio::test]
async fn answers_are_for_the_questions_of_the_gate() {
    let two = || form(json!([{"id": "who"}, {"id": "why"}]));
    let both = || answer(json!({"who": {"text": "me"}, "why": {"text": "because"}}));
    let third = answer(json!({"who": {"text": "me"}, "why": {"text": "because"}, "when": {"text": "now"}}));
    each(vec![
        (two(), third, "answers must be for the questions of this gate: who, why", both()),
        (
            two(),
            respond("me"),
            "this gate asks several questions: instead of response give answers for who, why",
            both(),
        ),
        (json!({}), answer(json!({"answer": {"text": "x"}})), "(it has none)", approve()),
        (json!({}), respond("x"), "this gate asks no question", approve()),
    ])
    .await;
}

#[tokio::test]
async fn an_answer_has_at_most_as_many_characters_as_the_question_takes() {
    let short = || form(json!([{"id": "answer", "maxLength": 5}]));
    each(vec![(short(), respond("longer"), "may have at most 5 characters", respond("äöüßé"))]).await;
}

#[tokio::test]
async fn an_escalation_goes_to_the_gates_own_targets() {
    let to = |who: Value| json!({"verdict": "Escalate", "escalateTo": [who]});
    each(vec![
        (
            json!({"escalateTo": [user("bob")]}),
            to(user("mallory")),
            "escalateTo must be among the targets",
            to(user("bob")),
        ),
        (
            json!({}),
            to(user("bob")),
            "escalateTo must be among the targets that the gate itself names: (none)",
            json!({"verdict": "Escalate"}),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_standing_grant_needs_the_verb_grant() {
    let stage = Stage::open("answers").await;
    let approval = stage.ask(json!({})).await;
    let vote = json!({"verdict": "Approve", "grant": {"scope": "run", "match": "gate", "ttl": "1h"}});
    refused(stage.decide("alice", &approval, vote.clone()).await, "lacks the RBAC verb grant");
    stage
        .grant(
            "alice@example.com",
            json!({"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": ["grant"]}),
        )
        .await;
    stage.decide("alice", &approval, vote).await.unwrap();
}
