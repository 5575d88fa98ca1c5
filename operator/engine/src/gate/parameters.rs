//! The `parameters` of a verdict at a gate: as a schema, in words, and as an example.
//!
//! The caller escapes the text for a terminal.

use serde_json::{Map, Value, json};
use signoff_api::{
    ApprovalRequest, Decision, JsonObject, Verdict, approval::ARGUMENTS, digest::canonical, verdict::PayloadPart,
};

use crate::tools::arguments::Arguments;

/// Returns the JSON Schema of the `parameters` of a verdict: the schema in the request, or `{response: ...}` for a
/// Modify without a schema. Returns `None` if the verdict takes no parameters.
pub fn schema(request: &ApprovalRequest, verdict: Verdict) -> Option<Value> {
    if !verdict.takes(PayloadPart::Parameters) {
        return None;
    }
    let own = request.parameters.as_ref().and_then(|schemas| schemas.0.get(verdict.name())).cloned();
    let response = || json!({"type": "object", "required": ["response"], "properties": {"response": {}}});
    own.or_else(|| verdict.requires(PayloadPart::Parameters).then(response))
}

/// Returns a decision as it is sent: the arguments of a call as one JSON text if they are too deep or too long for an
/// object. Arguments that cannot be parsed stay as they are.
#[must_use]
pub fn as_sent(request: &ApprovalRequest, decision: Decision) -> Decision {
    let is_edit = request.is_about_call() && decision.verdict == Verdict::Modify;
    let fits = decision.size().is_some_and(|size| size <= Decision::MAX_SIZE);
    match &decision.parameters {
        Some(parameters) if is_edit && !fits => {
            let parameters = Some(with_text(parameters));
            Decision { parameters, ..decision }
        }
        _ => decision,
    }
}

/// Returns parameters as they are stored in an outcome, independent of the form in which people gave them: the
/// arguments of a call as one JSON text if they are too deep or too long for an object.
pub(crate) fn to_stored(parameters: &JsonObject) -> JsonObject {
    let decision = Decision { parameters: Some(parameters.clone()), ..Decision::new(Verdict::Modify) };
    if decision.size().is_some_and(|size| size <= Decision::MAX_SIZE) {
        parameters.clone()
    } else {
        with_text(parameters)
    }
}

/// Returns parameters with the arguments of a call as one JSON text.
fn with_text(parameters: &JsonObject) -> JsonObject {
    let mut parameters = parameters.clone();
    let arguments = parameters.0.get(ARGUMENTS).filter(|arguments| arguments.is_object());
    if let Some(Ok(arguments)) = arguments.map(Arguments::edited) {
        parameters.0.insert(ARGUMENTS.to_owned(), Value::from(arguments.text()));
    }
    parameters
}

/// Returns parameters with the arguments of a call as an object, for people. Parameters without readable arguments stay
/// as they are.
#[must_use]
pub fn as_object(parameters: &JsonObject) -> JsonObject {
    let mut parameters = parameters.clone();
    let text = parameters.0.get(ARGUMENTS).filter(|arguments| arguments.is_string());
    if let Some(Ok(arguments)) = text.map(Arguments::edited) {
        parameters.0.insert(ARGUMENTS.to_owned(), Value::Object(arguments.value().clone()));
    }
    parameters
}

/// Whether two parameters are equal, independent of the form of the arguments of a call.
#[must_use]
pub fn are_equal(first: &JsonObject, second: &JsonObject) -> bool {
    let text = |parameters| canonical(&as_object(parameters)).ok();
    text(first).is_some_and(|first| Some(first) == text(second))
}

/// Renders a schema in words: `{route: "billing" or "support", note?: <text>}`. A field with `?` is optional.
pub fn shape(schema: &Value) -> String {
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    }
    match (schema["type"].as_str(), fields(schema)) {
        (Some("object") | None, Some(fields)) => {
            // If any of the fields suffices (`minProperties: 1`), no field is marked as optional.
            let marks = |field: &Field<'_>| if field.is_required || schema["minProperties"] == 1 { "" } else { "?" };
            let words = fields.iter().map(|field| format!("{}{}: {}", field.name, marks(field), shape(field.schema)));
            format!("{{{}}}", words.collect::<Vec<_>>().join(", "))
        }
        (Some("object"), None) => format!("{{{}: <any>, ...}}", shape(&schema["propertyNames"])),
        (Some("array"), _) => format!("[{}, ...]", shape(&schema["items"])),
        (Some("string"), _) => "<text>".to_owned(),
        (Some(other), _) => format!("<{other}>"),
        (None, _) => "<any>".to_owned(),
    }
}

/// A field of an object.
struct Field<'s> {
    name: &'s str,
    schema: &'s Value,
    is_required: bool,
}

/// Returns the fields that a schema names: the fields of `properties`, then fields that only `required` names. Returns
/// `None` if the schema has neither `properties` nor a field in `required`.
fn fields(schema: &Value) -> Option<Vec<Field<'_>>> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let described = schema["properties"].as_object();
    let of_described = described.into_iter().flatten().map(|(name, schema)| (name.as_str(), schema));
    let only_required = required.iter().filter(|name| described.is_none_or(|fields| !fields.contains_key(**name)));
    let named = of_described.chain(only_required.map(|name| (*name, &Value::Null)));
    let fields = named.map(|(name, schema)| Field { name, schema, is_required: required.contains(&name) });
    let fields: Vec<_> = fields.collect();
    (described.is_some() || !fields.is_empty()).then_some(fields)
}

/// Returns minimal parameters that match a schema.
pub fn example(schema: &Value) -> Map<String, Value> {
    match example_value(schema) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Returns a minimal value that matches a schema.
fn example_value(schema: &Value) -> Value {
    let of_pattern = || schema.get("pattern").and_then(|_| schema["examples"].get(0));
    if let Some(only) = schema.get("const").or_else(|| schema["enum"].get(0)).or_else(of_pattern) {
        return only.clone();
    }
    match (schema["type"].as_str(), fields(schema)) {
        (Some("object") | None, Some(fields)) => {
            let is_any_required = fields.iter().any(|field| field.is_required);
            let chosen = fields.iter().filter(|field| field.is_required || !is_any_required);
            let chosen = chosen.take(if is_any_required { fields.len() } else { 1 });
            Value::Object(chosen.map(|field| (field.name.to_owned(), example_value(field.schema))).collect())
        }
        (Some("object"), None) => {
            let name = schema["propertyNames"]["enum"][0].as_str().unwrap_or("key");
            Value::Object(Map::from_iter([(name.to_owned(), json!("better"))]))
        }
        (Some("array"), _) => json!([example_value(&schema["items"])]),
        (Some("integer" | "number"), _) => json!(0),
        (Some("boolean"), _) => json!(true),
        _ => json!("better"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::JsonObject;

    use super::*;
    use crate::{gate::subject::GateSubject, schema::Schema};

    #[test]
    fn the_example_of_a_modify_matches_the_schema_of_every_subject() {
        let routes = vec!["billing".to_owned(), "support".to_owned()];
        for (subject, words, wanted) in [
            (GateSubject::Route(routes), r#"{route: "billing" or "support"}"#, json!({"route": "billing"})),
            (GateSubject::Subtasks(3), "{subtasks: [{task: <text>}, ...]}", json!({"subtasks": [{"task": "better"}]})),
            (GateSubject::Draft, "{draft: <text>}", json!({"draft": "better"})),
            (GateSubject::Workers, r#"{workers: {"0" or "1": <any>, ...}}"#, json!({"workers": {"0": "better"}})),
            (GateSubject::Failure(&["url", "body"]), "{url: <text>, body: <text>}", json!({"url": "better"})),
        ] {
            let schema = subject.parameters(2).unwrap().0["Modify"].clone();
            assert_eq!((shape(&schema).as_str(), Value::Object(example(&schema))), (words, wanted));
            assert_example_matches(&schema);
        }
        let retry = GateSubject::Workers.parameters(2).unwrap().0["Retry"].clone();
        assert_eq!(shape(&retry), "{workers: [<integer>, ...]}");
        assert_example_matches(&retry);
    }

    #[test]
    fn a_shape_marks_optional_fields_and_the_example_has_required_ones() {
        let schema = json!({"type": "object", "required": ["state", "amount"], "properties": {
            "state": {"enum": ["paid", "open"]}, "note": {"type": "string"}, "kind": {"const": "refund"},
        }});
        assert_eq!(shape(&schema), r#"{state: "paid" or "open", note?: <text>, kind?: "refund", amount: <any>}"#);
        assert_example_matches(&schema);
        let only = json!({"type": "object", "required": ["state"]});
        assert_eq!(shape(&only), "{state: <any>}");
        assert_example_matches(&only);
        let any = json!({"type": "object", "properties": {"note": {"type": "string"}}});
        assert_eq!(shape(&any), "{note?: <text>}");
    }

    fn assert_example_matches(schema: &Value) {
        let compiled = Schema::compile(&JsonObject(schema.as_object().unwrap().clone())).unwrap();
        assert_eq!(compiled.is_valid(&Value::Object(example(schema))), Ok(true), "{schema}");
    }
}
