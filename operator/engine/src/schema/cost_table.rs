//! Every keyword that `jsonschema` evaluates, with the values that cost most. The tests read this table, and
//! `benches/schemas.rs` measures the time.

use serde_json::{Map, Value, json};

/// Returns a schema that validates each item of a list `times` times.
fn each(schema: &Value, times: usize) -> Value {
    json!({"items": {"allOf": vec![schema; times]}})
}

fn in_draft_7(mut schema: Value) -> Value {
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema
}

fn list(items: usize, item: &Value) -> Value {
    Value::Array(vec![item.clone(); items])
}

/// Returns an object with fields of these names.
fn object(names: impl IntoIterator<Item = String>, value: &Value) -> Value {
    Value::Object(names.into_iter().map(|name| (name, value.clone())).collect::<Map<_, _>>())
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|at| format!("name{at}"))
}

/// Returns different lists without a leaf, which have the same hash in `jsonschema`.
fn leafless(count: usize) -> Value {
    let shape = |at: usize| {
        (0..16).fold(json!([]), |inner, bit| if at >> bit & 1 == 1 { json!([inner]) } else { json!([[], inner]) })
    };
    (0..count).map(shape).collect()
}

/// Returns rows: a keyword, a schema with it, and a value.
pub fn table() -> Vec<(&'static str, Value, Value)> {
    let numbers = list(2_000, &json!(7));
    let floats = list(2_000, &json!(1.25e300));
    let lists = list(100, &numbers_of(100));
    let wide = list(20, &object(names(300), &json!(1)));
    let small = list(3_000, &json!({"a": 1, "b": 1}));
    let long = "x".repeat(50_000);
    let text = list(1, &json!("x".repeat(800_000)));
    let texts = list(9_000, &json!("x".repeat(60)));
    let number = json!({"type": "number"});
    let wrong = json!({"type": "string"});
    let options: Vec<Value> = (2..200).map(|at| json!({"b": at, "a": 1})).collect();
    let mut rows = vec![
        (
            "$ref",
            {
                let mut schema = each(&json!({"$ref": "#/$defs/a"}), 50);
                schema["$defs"] = json!({"a": {"type": "integer"}});
                schema
            },
            numbers.clone(),
        ),
        ("additionalItems", in_draft_7(each(&json!({"items": [{}], "additionalItems": number}), 20)), lists.clone()),
        ("additionalProperties", each(&json!({"additionalProperties": number}), 20), wide.clone()),
        (
            "additionalProperties",
            each(&json!({"properties": object(names(300), &json!({})), "additionalProperties": false}), 4),
            wide.clone(),
        ),
        ("allOf", each(&json!({"allOf": [{}, number, {}]}), 20), numbers.clone()),
        ("anyOf", each(&json!({"anyOf": [wrong, wrong, number]}), 20), numbers.clone()),
        ("const", each(&json!({"const": 7.0}), 50), numbers.clone()),
        ("const", json!({"const": {long.clone(): 1, "b": 1}}), list(1, &json!({"a": 1, "b": 1}))),
        ("contains", each(&json!({"contains": wrong, "minContains": 0}), 20), lists.clone()),
        ("contains", each(&json!({"not": {"contains": wrong}}), 20), lists.clone()),
        (
            "dependencies",
            in_draft_7(each(&json!({"dependencies": {long.clone(): ["b"], "c": number}}), 1)),
            small.clone(),
        ),
        ("dependentRequired", each(&json!({"dependentRequired": {long.clone(): ["b"]}}), 1), small.clone()),
        ("dependentSchemas", each(&json!({"dependentSchemas": {long.clone(): {}}}), 1), small.clone()),
        ("dependentSchemas", each(&json!({"dependentSchemas": {"a": {"required": ["b"]}}}), 50), small.clone()),
        ("else", each(&json!({"if": wrong, "then": wrong, "else": number}), 20), numbers.clone()),
        ("enum", each(&json!({"enum": [1.5, 2.5, null, 7.0]}), 20), numbers.clone()),
        ("enum", json!({"items": {"not": {"enum": options}}}), small.clone()),
        ("enum", json!({"items": {"not": {"enum": [{long.clone(): 1, "z": 1}, {"b": 1}]}}}), small.clone()),
        ("enum", json!({"items": {"not": {"enum": names(100).collect::<Vec<_>>()}}}), texts.clone()),
        (
            "enum",
            {
                let options: Vec<Value> = (0..200).map(|at| json!({"b": at, "y": 1})).collect();
                json!({"items": {"not": {"enum": options}}})
            },
            list(1, &object(["x".repeat(800_000), "b".to_owned()], &json!(1))),
        ),
        ("exclusiveMaximum", each(&json!({"exclusiveMaximum": 1.5e300}), 50), floats.clone()),
        ("exclusiveMinimum", each(&json!({"exclusiveMinimum": 0.5}), 50), floats.clone()),
        ("if", each(&json!({"if": number, "then": number}), 20), numbers.clone()),
        ("items", each(&json!({"items": number}), 20), lists.clone()),
        ("items", each(&json!({"type": "array", "items": {"type": "integer"}, "minItems": 1}), 20), lists.clone()),
        ("maxContains", each(&json!({"contains": number, "maxContains": 1000}), 20), lists.clone()),
        ("maxItems", each(&json!({"maxItems": 1000}), 50), list(2_000, &json!([]))),
        ("maxLength", each(&json!({"maxLength": 1_000_000}), 50), text.clone()),
        ("maxLength", each(&json!({"maxLength": 100}), 50), texts.clone()),
        ("maxProperties", each(&json!({"maxProperties": 1000}), 50), small.clone()),
        ("maximum", each(&json!({"maximum": 1.5e300}), 50), floats.clone()),
        ("minContains", each(&json!({"contains": number, "minContains": 100}), 20), lists.clone()),
        ("minItems", each(&json!({"minItems": 0}), 50), list(2_000, &json!([]))),
        ("minLength", each(&json!({"minLength": 1}), 50), text.clone()),
        ("minProperties", each(&json!({"minProperties": 1}), 50), small.clone()),
        ("minimum", each(&json!({"minimum": 0.5}), 50), floats.clone()),
        ("multipleOf", each(&json!({"multipleOf": 1.25e-293}), 50), floats.clone()),
        ("multipleOf", each(&json!({"multipleOf": 0.1}), 50), list(2_000, &json!(1_234_567.9))),
        ("not", each(&json!({"not": wrong}), 50), numbers.clone()),
        ("oneOf", each(&json!({"oneOf": [wrong, number, wrong]}), 20), numbers.clone()),
        ("pattern", each(&json!({"pattern": "^[a-z]{1,60}$"}), 4), texts.clone()),
        ("pattern", each(&json!({"pattern": "^.*y$"}), 4), text.clone()),
        ("patternProperties", each(&json!({"patternProperties": {"e[0-9]*$": number, "^x": wrong}}), 4), wide.clone()),
        ("prefixItems", each(&json!({"prefixItems": vec![&number; 50]}), 10), lists.clone()),
        ("properties", each(&json!({"properties": object(names(300), &number)}), 4), wide.clone()),
        (
            "properties",
            each(&json!({"properties": {"x": {}, long.clone(): {}}}), 1),
            list(3_000, &object(names(3), &json!(1))),
        ),
        ("properties", each(&json!({"properties": object(names(12), &number)}), 20), wide.clone()),
        ("propertyNames", each(&json!({"propertyNames": {"minLength": 1}}), 20), wide.clone()),
        ("required", each(&json!({"not": {"required": [long.clone(), "a"]}}), 1), small.clone()),
        ("required", each(&json!({"required": names(300).collect::<Vec<_>>()}), 4), wide.clone()),
        (
            "required",
            each(&json!({"required": names(14).collect::<Vec<_>>()}), 20),
            list(500, &object(names(28), &json!(1))),
        ),
        ("then", each(&json!({"if": number, "then": number, "else": wrong}), 20), numbers.clone()),
        ("type", each(&json!({"type": ["string", "integer"]}), 50), numbers.clone()),
        ("uniqueItems", json!({"uniqueItems": true}), leafless(20_000)),
        ("uniqueItems", json!({"uniqueItems": true}), names(40_000).collect()),
        ("uniqueItems", json!({"uniqueItems": true}), (0..9_000).map(|at| format!("{}{at}", "x".repeat(80))).collect()),
        ("uniqueItems", json!({"uniqueItems": true}), (0..20_000).map(|at| f64::from(at) * 1e295).collect()),
        ("uniqueItems", json!({"uniqueItems": true}), (0..900).map(|at| object(names(30), &json!(at))).collect()),
    ];
    for format in [
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "idn-email",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "iri",
        "iri-reference",
        "json-pointer",
        "relative-json-pointer",
        "time",
        "unknown",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
    ] {
        for start in ["", "/", "http://x/", "\"\"@", "P1", "12:00:00.", "2020-01-01T12:00:00.", "xn--"] {
            for filler in ["x", "1", "%20", "é", "a.", "xn--a-."] {
                let text = format!("{start}{}", filler.repeat(40_000 / filler.len()));
                rows.push(("format", in_draft_7(each(&json!({"format": format}), 4)), json!([text])));
            }
        }
    }
    rows
}

fn numbers_of(count: usize) -> Value {
    (0..count).collect()
}
