//! Tests that the API server stores the request to people for every answer of a model: the request fits the schema and
//! the rules of Approvals. A refused request would hold the run.

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value, json};
use signoff_api::crds;

use super::{gates, raw_turn, run};
use crate::{
    crd_rules,
    tests::test_run::{TestRun, gate},
};

fn schema() -> Validator {
    let mut schema = crds::declared_schema("Approval")["properties"]["spec"]["properties"]["request"].clone();
    close(&mut schema);
    jsonschema::options().build(&schema).unwrap()
}

/// Closes the schema, so that fields that the API server would drop are errors.
fn close(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        if fields.contains_key("properties") && !fields.contains_key("x-kubernetes-preserve-unknown-fields") {
            fields.insert("additionalProperties".to_owned(), json!(false));
        }
        fields.values_mut().for_each(close);
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(close);
    }
}

/// Generates a text of a model.
fn words() -> impl Strategy<Value = String> {
    let special = [
        "",
        " ",
        "\n\n\n",
        "\u{202e}\u{2066}",
        "\0",
        "```\n</agent>",
        "refund",
        "ask-human",
        "é",
        "😀",
        "\u{fe0f}",
        "0",
        "-",
        ".",
    ];
    let special = proptest::sample::select(special.to_vec());
    prop_oneof![
        any::<String>(),
        special.clone().prop_map(str::to_owned),
        (special, 1_usize..6000).prop_map(|(text, times)| text.repeat(times)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        words().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null)
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(words(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Generates a question with any number of options.
fn question() -> impl Strategy<Value = Value> {
    let option =
        (words(), proptest::option::of(words()), proptest::option::of(words())).prop_map(|(label, id, description)| {
            let mut option = json!({"label": label});
            if let Some(id) = id {
                option["id"] = json!(id);
            }
            if let Some(description) = description {
                option["description"] = json!(description);
            }
            option
        });
    let options = proptest::collection::vec(option, 0..34);
    (words(), proptest::option::of(words()), options, any::<(bool, bool, bool)>()).prop_map(|(text, id, options, (multiple, free, skip))| {
        let mut question = json!({"question": text, "options": options, "multiple": multiple, "allowText": free, "allowSkip": skip});
        if let Some(id) = id {
            question["id"] = json!(id);
        }
        question
    })
}

/// Generates a call: its id, the name of its tool, and its arguments as text.
fn call() -> impl Strategy<Value = Value> {
    let made =
        |id: String, tool: &str, arguments: Value| json!({"id": id, "tool": tool, "arguments": arguments.to_string()});
    prop_oneof![
        (words(), words(), words())
            .prop_map(|(id, tool, arguments)| json!({"id": id, "tool": tool, "arguments": arguments})),
        (words(), any::<f64>(), words()).prop_map(move |(id, amount, to)| made(
            id,
            "refund",
            json!({"amount": amount, "to": to})
        )),
        (words(), value()).prop_map(move |(id, name)| made(id, "lookup", json!({"name": name}))),
        (words(), proptest::collection::vec(question(), 0..18), words()).prop_map(move |(id, questions, context)| {
            made(id, "ask-human", json!({"questions": questions, "context": context}))
        }),
        (words(), words(), words()).prop_map(move |(id, prompt, option)| {
            made(
                id,
                "human_intervention__request",
                json!({"prompt": prompt, "options": [option, "no"], "context": {"a": prompt}}),
            )
        }),
    ]
}

/// Returns the errors that the API server would find in the requests of a run, and the number of requests.
fn find_errors(run: &TestRun, schema: &Validator) -> (Vec<String>, usize) {
    let (mut found, open) = (Vec::new(), run.open());
    for path in &open {
        let request = &run.asked(path).request;
        let value = serde_json::to_value(request).unwrap();
        found.extend(schema.iter_errors(&value).map(|why| format!("{}: {why:.200}", why.instance_path())));
        found
            .extend(crd_rules::check_request(request).into_iter().map(|why| format!("{}: {}", why.field, why.message)));
    }
    (found, open.len())
}

/// Returns a run with a gate about every call.
fn run_with_gate_about_all_calls() -> TestRun {
    let every = json!([{"name": "every", "type": "toolExecution", "hitl": gate(json!({}))}]);
    let mut spec = super::spec(gates(every));
    spec["agents"][0]["tools"] = json!(["*", "ask-human", "human_intervention.request"]);
    TestRun::of(spec)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_api_server_accepts_the_requests_for_any_answer_of_a_model(text in words(), calls in proptest::collection::vec(call(), 1..6)) {
        println!("tried: 1 property cases");
        let mut run = run_with_gate_about_all_calls();
        raw_turn(&mut run, "handle", json!({"text": text, "calls": calls}));
        let (found, _) = find_errors(&run, &schema());
        prop_assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn the_generated_answers_lead_to_requests() {
    let mut run = run(json!([{"name": "every", "type": "toolExecution", "hitl": gate(json!({}))}]));
    let questions =
        json!({"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}).to_string();
    let calls = json!([{"id": "1", "tool": "refund", "arguments": r#"{"amount":1}"#}, {"id": "2", "tool": "ask-human", "arguments": questions}]);
    raw_turn(&mut run, "handle", json!({"text": "x", "calls": calls}));
    assert_eq!(find_errors(&run, &schema()), (Vec::new(), 2));
    let strict = jsonschema::options().build(&json!({"properties": {"prompt": {"maxLength": 1}}})).unwrap();
    assert_eq!(find_errors(&run, &strict).0.len(), 2, "both prompts are longer");
}
