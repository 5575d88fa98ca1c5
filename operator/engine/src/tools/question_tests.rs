//! Tests of questions of agents: their forms, refused questions, and the answers for the model.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    schema::Schema,
    tools::names::{ASK_HUMAN, BUILT_IN},
};

fn read(tool: &str, arguments: &Value) -> Result<AgentQuestions, String> {
    AgentQuestions::read(tool, &Arguments::of(arguments.as_object().unwrap().clone()).unwrap())
}

fn chosen(options: &[&str], text: Option<&str>) -> Answer {
    Answer { options: options.iter().map(ToString::to_string).collect(), text: text.map(str::to_owned) }
}

fn answers(given: &[(&str, Answer)]) -> BTreeMap<String, Answer> {
    given.iter().map(|(id, answer)| ((*id).to_owned(), answer.clone())).collect()
}

#[test]
fn each_name_has_a_schema_that_matches_its_arguments() {
    for (tool, arguments) in [
        (
            ASK_HUMAN,
            json!({"questions": [{"id": "a", "question": "Which?", "options": [{"id": "x", "label": "X", "description": "d"}],
            "multiple": true, "allowText": true, "allowSkip": true}], "context": "c"}),
        ),
        (REQUEST, json!({"prompt": "Which?", "options": ["X", "Y"], "context": {"version": 2}})),
        (HANDOFF, json!({"message": "Help", "breakout_of_loop": false})),
    ] {
        let schema = parameters(tool);
        Schema::compile(&signoff_api::JsonObject(schema.as_object().unwrap().clone()))
            .unwrap()
            .check(&arguments)
            .unwrap();
        assert!(read(tool, &arguments).is_ok(), "{tool}");
        assert!(description(tool).contains("approve"), "{tool}");
    }
    assert!(BUILT_IN.iter().all(|tool| parameters(tool)["type"] == "object"));
}

#[test]
fn ids_of_the_form_are_generated_and_answers_have_the_ids_of_the_model() {
    let asked = read(
        ASK_HUMAN,
        &json!({"questions": [
            {"id": "../../x", "question": "Which\u{1b}[31m?", "options": [{"id": "evil id", "label": " Blue\n Green "}, "Canary"], "multiple": true},
            {"question": "Why?", "allowSkip": true},
        ], "context": "facts\u{0}"}),
    )
    .unwrap();
    let [first, second] = asked.form.questions.as_slice() else { unreachable!() };
    assert_eq!((first.id.as_str(), second.id.as_str()), ("q1", "q2"));
    assert_eq!(first.question.as_deref(), Some("Which[31m?"));
    let options: Vec<_> = first.options.iter().map(|o| (o.id.as_str(), o.label())).collect();
    assert_eq!(options, [("o1", "Blue Green"), ("o2", "Canary")]);
    assert_eq!((first.multiple, first.takes_text(), first.may_be_left_out()), (Some(true), false, false));
    assert_eq!((second.takes_text(), second.may_be_left_out()), (true, true));
    assert_eq!(asked.context.as_deref(), Some("facts"));

    let both = answers(&[("q1", chosen(&["o1", "o2"], None)), ("q2", chosen(&[], Some("say \"no\"")))]);
    assert_eq!(asked.answer(&both), r#"{"answers":{"../../x":"Blue Green, Canary","q2":"say \"no\""}}"#);
    let skipped = answers(&[("q1", chosen(&["o2"], None))]);
    assert_eq!(asked.answer(&skipped), r#"{"answers":{"../../x":"Canary","q2":null}}"#);
}

#[test]
fn a_single_question_is_answered_with_plain_text() {
    let request =
        read(REQUEST, &json!({"prompt": "Which?", "options": ["Blue", "Green"], "context": {"b": 1}})).unwrap();
    assert_eq!(request.context.as_deref(), Some(r#"{"b":1}"#));
    let handoff = read(HANDOFF, &json!({"message": "Help"})).unwrap();
    assert!(handoff.form.questions.iter().all(|q| q.takes_text() && q.options.is_empty()));
    for (asked, given, expected) in [
        (&request, chosen(&["o2"], None), "Green"),
        (&request, chosen(&["o1", "o2"], Some("later")), "Blue, Green, later"),
        (&handoff, chosen(&[], Some("Do it")), "Do it"),
        (&handoff, chosen(&[], None), SKIPPED),
    ] {
        assert_eq!(asked.answer(&answers(&[("q1", given)])), expected);
    }
    assert_eq!(handoff.answer(&BTreeMap::new()), SKIPPED);
}

#[test]
fn hostile_questions_are_refused_in_one_sentence() {
    let with_question = |question: Value| json!({"questions": [question]});
    let many = |count: usize| vec![json!({"question": "?"}); count];
    let long = "x".repeat(5000);
    for (tool, arguments, expected) in [
        (ASK_HUMAN, json!({}), "questions: at least one is needed"),
        (ASK_HUMAN, json!({"questions": many(17)}), "questions: has 17 entries; the maximum is 16"),
        (ASK_HUMAN, json!({"questions": "?"}), "questions: must be a list"),
        (ASK_HUMAN, json!({"questions": ["?"]}), "questions[0]: must be an object with the field question"),
        (ASK_HUMAN, json!({"questions": many(1), "approvers": []}), "approvers: unknown field; use questions, context"),
        (
            ASK_HUMAN,
            json!({"questions": many(1), "context": long}),
            "context: has 5000 characters; the maximum is 4096",
        ),
        (
            ASK_HUMAN,
            json!({"questions": [{"id": "a", "question": "?"}, {"id": "a", "question": "?"}]}),
            "questions[1].id: a is there twice; give each question its own id",
        ),
        (
            ASK_HUMAN,
            json!({"questions": [{"id": "q2", "question": "?"}, {"question": "?"}]}),
            "questions[1].id: q2 is there twice; give each question its own id",
        ),
        (ASK_HUMAN, with_question(json!({})), "questions[0].question: is missing"),
        (ASK_HUMAN, with_question(json!({"question": " \u{0}\u{200b}\n"})), "questions[0].question: must not be empty"),
        (ASK_HUMAN, with_question(json!({"question": 1})), "questions[0].question: must be a text"),
        (
            ASK_HUMAN,
            with_question(json!({"question": long})),
            "questions[0].question: has 5000 characters; the maximum is 1024",
        ),
        (
            ASK_HUMAN,
            with_question(json!({"question": "?", "options": [{"label": long}]})),
            "questions[0].options[0].label: has 5000 characters; the maximum is 253",
        ),
        (
            ASK_HUMAN,
            with_question(json!({"question": "?", "options": vec!["x"; 33]})),
            "questions[0].options: has 33 entries; the maximum is 32",
        ),
        (
            ASK_HUMAN,
            with_question(json!({"question": "?", "options": [{"id": "a", "label": "A"}, {"id": "a", "label": "B"}]})),
            "questions[0].options[1].id: a is there twice",
        ),
        (
            ASK_HUMAN,
            with_question(json!({"question": "?", "options": ["A", " A\u{7}"]})),
            "questions[0].options[1]: the label A is there twice",
        ),
        (
            ASK_HUMAN,
            with_question(json!({"question": "?", "options": ["o2", "No"]})),
            "questions[0].options[0]: the label o2 is reserved; use a word",
        ),
        (
            ASK_HUMAN,
            with_question(json!({"question": "?", "multiple": true})),
            "questions[0].multiple: needs options; add options or leave multiple out",
        ),
        (
            ASK_HUMAN,
            with_question(json!({"question": "?", "multiple": "yes"})),
            "questions[0].multiple: must be true or false",
        ),
        (
            ASK_HUMAN,
            with_question(json!({"question": "?", "allowText": false})),
            "questions[0].allowText: without options the answer is text; add options or leave allowText out",
        ),
        (REQUEST, json!({"prompt": "?"}), "options: at least one is needed"),
        (REQUEST, json!({"options": ["A"]}), "prompt: is missing"),
        (REQUEST, json!({"prompt": "?", "options": [1]}), "options[0]: must be a text"),
        (HANDOFF, json!({}), "message: is missing"),
        (HANDOFF, json!({"message": "?", "breakout_of_loop": 1}), "breakout_of_loop: must be true or false"),
    ] {
        assert_eq!(read(tool, &arguments).unwrap_err(), expected, "{tool} {}", display(&arguments.to_string(), 200));
    }
    assert_eq!(read(ASK_HUMAN, &json!({"questions": many(16)})).unwrap().form.questions.len(), 16);
}
