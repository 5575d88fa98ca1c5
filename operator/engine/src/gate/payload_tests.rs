//! Tests of forms and payloads as people type them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;

use super::*;

fn form(questions: Value) -> Form {
    serde_json::from_value(json!({"questions": questions})).unwrap()
}

fn respond(more: Value) -> Decision {
    let mut decision = json!({"verdict": "Respond"});
    for (key, value) in more.as_object().unwrap() {
        decision[key] = value.clone();
    }
    serde_json::from_value(decision).unwrap()
}

/// Checks the answers of a Respond to these questions, and renders them as one text.
fn render_answers(questions: Value, more: Value) -> Result<String, String> {
    let form = form(questions);
    check_answers(Some(&form), &respond(more)).map(|answers| as_text(Some(&form), &answers))
}

#[test]
fn a_text_answers_the_only_question() {
    assert_eq!(render_answers(json!([{"id": "answer"}]), json!({"response": "blue"})), Ok("blue".into()));
}

#[test]
fn an_option_is_chosen_by_id_or_label_and_rendered_by_its_label() {
    let colours = json!([{"id": "c", "options": [{"id": "r", "label": "Red"}, {"id": "g", "label": "Green"}]}]);
    assert_eq!(render_answers(colours.clone(), json!({"response": "r"})), Ok("Red".into()));
    assert_eq!(render_answers(colours.clone(), json!({"response": "Green"})), Ok("Green".into()));
    assert_eq!(render_answers(colours.clone(), json!({"answers": {"c": {"options": ["g"]}}})), Ok("Green".into()));
    let why = render_answers(colours.clone(), json!({"response": "blue"})).unwrap_err();
    assert!(why.contains("choose one of r, g"), "{why}");
    let why = render_answers(colours, json!({"answers": {"c": {"options": ["r", "g"]}}})).unwrap_err();
    assert!(why.contains("choose one"), "{why}");
}

#[test]
fn several_options_are_rendered_in_the_order_of_the_form() {
    let many =
        json!([{"id": "c", "multiple": true, "options": [{"id": "a", "label": "A"}, {"id": "b", "label": "B"}]}]);
    assert_eq!(render_answers(many, json!({"answers": {"c": {"options": ["b", "a"]}}})), Ok("A, B".into()));
}

#[test]
fn a_pattern_matches_the_whole_text_and_fails_with_its_error_message() {
    let ticket = json!([{"id": "t", "pattern": "[A-Z]+-[0-9]+", "errorMessage": "a ticket like OPS-12"}]);
    assert_eq!(render_answers(ticket.clone(), json!({"response": "OPS-12"})), Ok("OPS-12".into()));
    assert!(render_answers(ticket, json!({"response": "see OPS-12"})).unwrap_err().contains("a ticket like OPS-12"));
    let alternatives = json!([{"id": "t", "pattern": "yes|no"}]);
    assert!(
        render_answers(alternatives, json!({"response": "yes and no"})).is_err(),
        "both ends hold for every alternative"
    );
}

#[test]
fn a_schema_is_checked_and_its_text_is_json() {
    let schema =
        json!([{"id": "s", "schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}]);
    assert!(render_answers(schema.clone(), json!({"response": "{\"n\": 3}"})).is_ok());
    assert!(render_answers(schema.clone(), json!({"response": "three"})).unwrap_err().contains("must be JSON"));
    assert!(render_answers(schema, json!({"response": "{\"n\": \"x\"}"})).unwrap_err().contains("/n"));
}

#[test]
fn a_missing_required_answer_or_an_unknown_question_is_refused() {
    let two = json!([{"id": "a"}, {"id": "b", "required": false}]);
    assert_eq!(render_answers(two.clone(), json!({"answers": {"a": {"text": "x"}}})), Ok("a: x".into()));
    assert!(
        render_answers(two.clone(), json!({"answers": {"b": {"text": "x"}}}))
            .unwrap_err()
            .contains("answers.a is missing")
    );
    assert!(render_answers(two.clone(), json!({"answers": {"z": {"text": "x"}}})).unwrap_err().contains("answers.z"));
    assert!(render_answers(two, json!({"response": "x"})).unwrap_err().contains("asks 2"));
}

#[test]
fn a_length_counts_characters() {
    let short = json!([{"id": "a", "maxLength": 3}]);
    assert!(render_answers(short.clone(), json!({"response": "äöü"})).is_ok());
    assert!(render_answers(short, json!({"response": "four"})).unwrap_err().contains("4 characters; the maximum is 3"));
}

#[test]
fn modify_takes_only_a_response() {
    let decide = |parameters: Value| {
        check_replacement(&serde_json::from_value(json!({"verdict": "Modify", "parameters": parameters})).unwrap())
    };
    assert!(decide(json!({"response": {"deep": [1]}})).is_ok());
    assert!(decide(json!({"respones": "typo"})).unwrap_err().contains("respones"));
    assert!(decide(json!({})).is_err());
    assert!(decide(json!({"response": 9_007_199_254_740_993_u64})).unwrap_err().contains("2^53"));
}

#[test]
fn a_default_answers_like_a_person() {
    let form = form(json!([{"id": "a", "options": [{"id": "x", "label": "X"}]}]));
    assert!(default_answers(Some(&form), Some("x")).is_ok());
    assert!(default_answers(Some(&form), Some("y")).is_err());
    assert!(default_answers(Some(&form), None).is_err());
}

/// Returns a request of a gate that takes a text, with a schema of the response.
fn request_with(parameters: Value) -> ApprovalRequest {
    serde_json::from_value(json!({
        "workflow": {"name": "w", "uid": "u"}, "gate": {"name": "g", "type": "outputValidation", "path": "p/.output", "visit": 1},
        "specDigest": signoff_api::Digest::of_bytes(b""), "guardEpoch": "e", "deadline": "2030-01-01T00:00:00Z", "prompt": "?",
        "allowedVerdicts": ["Approve", "Respond"], "quorums": [], "requestedBy": "dana", "timeout": {},
        "form": {"questions": [{"id": "answer"}]}, "parameters": parameters, "digest": signoff_api::Digest::of_bytes(b""),
    }))
    .unwrap()
}

#[test]
fn a_response_is_checked_against_the_schema_of_the_request() {
    let request = request_with(json!({"Respond": {"type": "object", "required": ["n"]}}));
    let check = |text: &str| parse(&request, &respond(json!({"response": text}))).map(drop);
    assert_eq!(check(r#"{"n": 3}"#), Ok(()));
    for (text, why) in [("three", "there is no JSON in it"), ("{}", "required")] {
        let refused = check(text).unwrap_err();
        assert!(refused.contains("does not fit the schema of the step") && refused.contains(why), "{refused}");
    }
    let free = request_with(Value::Null);
    assert_eq!(parse(&free, &respond(json!({"response": "three"}))).map(drop), Ok(()));
}

#[test]
fn a_grant_is_refused_with_the_remedy() {
    let approve = |more: Value| -> Decision {
        let mut decision = json!({"verdict": "Approve"});
        decision.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(decision).unwrap()
    };
    let request = request_with(Value::Null);
    let grant = json!({"grant": {"scope": "run", "match": "tool", "ttl": "1h", "maxUses": 3}});
    assert_eq!(parse(&request, &approve(grant)), Err(Grant::REFUSED.to_owned()));
    assert_eq!(parse(&request, &approve(json!({}))), Ok(Payload::default()));
}
