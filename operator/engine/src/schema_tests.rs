//! Tests of JSON Schemas: refused ones, and valid ones with their results.

#![allow(clippy::unwrap_used, clippy::panic)]
use serde_json::{Value, json};

use super::*;

fn compile(schema: &Value) -> Result<Schema, String> {
    Schema::of_value(schema)
}

fn refusal(schema: &Value) -> String {
    compile(schema).err().unwrap_or_else(|| panic!("accepted: {schema}"))
}

/// Returns the definitions d0 to d`last`, each with two references to the next.
fn doubling_schema(last: usize, keyword: &str) -> Value {
    let mut definitions = serde_json::Map::new();
    for at in 0..last {
        let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
        definitions.insert(format!("d{at}"), json!({keyword: [next, next]}));
    }
    definitions.insert(format!("d{last}"), json!({"type": "integer"}));
    json!({"$defs": definitions, "$ref": "#/$defs/d0"})
}

#[test]
fn a_schema_that_doubles_with_every_reference_is_refused_at_once() {
    for keyword in ["anyOf", "allOf", "oneOf", "prefixItems"] {
        assert!(refusal(&doubling_schema(12, keyword)).contains("more than 5000 values"), "{keyword}");
        refusal(&doubling_schema(40, keyword));
    }
    let few = compile(&doubling_schema(5, "anyOf")).unwrap();
    assert_eq!((few.is_valid(&json!(1)), few.is_valid(&json!("x"))), (Ok(true), Ok(false)));
}

#[test]
fn references_are_to_definitions_of_the_schema_that_do_not_come_back() {
    for (schema, why) in [
        (json!({"$ref": "https://example.com/schema.json"}), "by name"),
        (json!({"$ref": "#"}), "by name"),
        (json!({"$ref": "#/properties/a", "properties": {"a": {}}}), "by name"),
        (json!({"$ref": "#/$defs/a/properties/b", "$defs": {"a": {"properties": {"b": {}}}}}), "by name"),
        (json!({"$ref": "#/$defs/a%62", "$defs": {"ab": {}}}), "by name"),
        (json!({"$ref": "#/$defs/b", "$defs": {"a": {}}}), "there is no #/$defs/b"),
        (json!({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}), "refers to itself"),
        (
            json!({"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
            "refers to itself",
        ),
        (json!({"items": {"$id": "https://example.com/x"}}), "$id is not available"),
        (json!({"$dynamicRef": "#x"}), "$dynamicRef is not available"),
        (json!({"unevaluatedProperties": false}), "use additionalProperties"),
        (json!({"$schema": "https://example.com/meta"}), "$schema: name draft"),
        (
            json!({"properties": {"a": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}}),
            "$schema: name draft",
        ),
    ] {
        let said = refusal(&schema);
        assert!(said.contains(why), "{schema}: {said}");
    }
    for schema in [
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "definitions": {"a": {"type": "integer"}}}),
        json!({"type": "integer", "enum": [1, 2], "default": {"$ref": "not one", "$id": "not one"}}),
        json!({"type": ["integer", "object"], "properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}}),
    ] {
        let schema = compile(&schema).unwrap();
        assert_eq!((schema.is_valid(&json!(1)), schema.is_valid(&json!("x"))), (Ok(true), Ok(false)));
    }
}

#[test]
fn size_depth_and_patterns_of_a_schema_are_bounded() {
    let deep = (0..40).fold(json!({}), |inner, _| json!({"items": inner}));
    compile(&deep).unwrap();
    let deeper = (0..70).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(refusal(&deeper).contains("nests deeper than 64"));
    let definitions: serde_json::Map<_, _> =
        (0..90).map(|at| (format!("d{at}"), json!({"items": {"$ref": format!("#/$defs/d{}", at + 1)}}))).collect();
    let mut chain = json!({"$defs": definitions, "$ref": "#/$defs/d0"});
    chain["$defs"]["d90"] = json!({});
    assert!(refusal(&chain).contains("in a row"));
    assert!(refusal(&json!({"description": "x".repeat(70_000)})).contains("bytes"));
    assert!(refusal(&json!({"enum": (0..6000).collect::<Vec<_>>()})).contains("more than 5000 values"));
    for (pattern, why) in [
        ("(?=x)", "is not a regular expression"),
        (r"[a-z&&[^x]]", "RE2"),
        (r"(?:\pL{100}){9}(?:\pL{100}){9}", "too large"),
        (&"x".repeat(300), "longer than 256"),
    ] {
        let said = refusal(&json!({"pattern": pattern}));
        let names = refusal(&json!({"items": {"patternProperties": {pattern: {}}}}));
        if why != "too large" {
            assert!(said.contains(why) && names.contains(why), "{pattern}: {said}, {names}");
        }
    }
    let many: serde_json::Map<_, _> = (0..40).map(|at| (format!("^a{at}$"), json!({}))).collect();
    assert!(refusal(&json!({"patternProperties": many})).contains("more than 32 patterns"));
    assert!(refusal(&json!({"format": "regex"})).contains("use pattern"));
    let order = compile(&json!({"type": "string", "pattern": r"^ORD-\d{4}$"})).unwrap();
    assert_eq!((order.is_valid(&json!("ORD-1234")), order.is_valid(&json!("ORD-12"))), (Ok(true), Ok(false)));
}

#[test]
fn the_cost_of_a_validation_is_bounded_by_the_size_of_the_schema() {
    let fields: serde_json::Map<_, _> = (0..500).map(|at| (format!("f{at}"), json!({"type": "integer"}))).collect();
    let schema = compile(&json!({"items": {"properties": fields}, "uniqueItems": true})).unwrap();
    let before = budget::charged();
    let few: Vec<Value> = (0..1000).map(|at| json!({"f1": at})).collect();
    assert_eq!(schema.is_valid(&Value::from(few)), Ok(true));
    assert!(budget::charged() > before + 1_000_000, "the product of both sizes is charged");
    let many: Vec<Value> = (0..200_000).map(|at| json!(at)).collect();
    let many = Value::from(many);
    assert!(schema.is_valid(&many).unwrap_err().contains("too large for a schema of this size"));
    assert!(schema.check(&many).unwrap_err().1.contains("give less JSON"));
}

#[test]
fn values_validated_by_one_schema_share_its_cost_limit() {
    let enough: Vec<Value> = (0..4000).map(Value::from).collect();
    let schema = compile(&json!({"type": "array", "contains": {"enum": enough}})).unwrap();
    let value = json!((0..1000).collect::<Vec<_>>());
    let judged = (0..100).take_while(|_| schema.is_valid(&value).is_ok()).count();
    assert!((5..50).contains(&judged), "{judged}");
}

#[test]
fn a_large_answer_that_fits_no_branch_is_refused_without_a_copy_of_it_for_each_branch() {
    let branches: Vec<Value> = (0..120).map(|at| json!({"const": f64::from(at) + 0.5})).collect();
    let schema = compile(&json!({"anyOf": branches})).unwrap();
    let (place, problem) = schema.check(&Value::Array(vec![json!(0); 20_000])).unwrap_err();
    assert_eq!((place.as_str(), problem.as_str()), ("", "it does not fit the schema, and is too large to say where"));
    let (place, problem) = schema.check(&json!([0])).unwrap_err();
    assert!(place.is_empty() && problem.contains("is not valid"), "a small one is quoted: {problem}");
}

#[test]
fn schemas_of_money_lists_and_dates_are_validated_exactly() {
    let schema = compile(&json!({
        "type": "object",
        "required": ["amount", "tags", "due"],
        "properties": {
            "amount": {"type": "number", "multipleOf": 0.01, "minimum": 0},
            "tags": {"type": "array", "uniqueItems": true, "items": {"type": "string", "maxLength": 40}},
            "due": {"type": "string", "format": "date"},
        },
    }))
    .unwrap();
    let judge =
        |amount: f64, tags: Value| schema.is_valid(&json!({"amount": amount, "tags": tags, "due": "2026-01-31"}));
    assert_eq!(judge(1_070_468.14, json!(["a", "b"])), Ok(true));
    assert_eq!(judge(1_070_468.145, json!(["a", "b"])), Ok(false));
    assert_eq!(judge(19.99, json!(["a", "b", "a"])), Ok(false));
    assert_eq!(judge(19.99, (0..5000).map(|at| format!("tag {at}")).collect()), Ok(true));
}

#[test]
fn keywords_about_the_content_of_texts_are_refused_but_are_valid_property_names() {
    for (keyword, value) in [
        ("contentMediaType", json!("application/json")),
        ("contentEncoding", json!("base64")),
        ("contentSchema", json!({"type": "object"})),
    ] {
        let said = refusal(&json!({"allOf": [{"type": "string", keyword: value}]}));
        assert!(said.starts_with(&format!("{keyword} is not available in schemas here: leave it out, or")), "{said}");
    }
    compile(&json!({"properties": {"contentEncoding": {"type": "string"}}})).unwrap();
}
