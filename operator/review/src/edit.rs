//! The parameters with which an editor begins, and the parameters that were changed in the editor.

use serde_json::{Map, Value};
use signoff_engine::gate::parameters;

/// Returns the parameters with which an editor begins: the reviewed text if the gate replaces it, otherwise an example
/// of the schema.
#[must_use]
pub fn parameters_to_edit(schema: &Value, reviewed: Option<&str>) -> Map<String, Value> {
    let example = parameters::example(schema);
    let (Some(text), Some(fields)) = (reviewed, schema["properties"].as_object()) else { return example };
    let structured = serde_json::from_str::<Value>(text).ok();
    let single = |name: &str, value: Value| Map::from_iter([(name.to_owned(), value)]);
    let only = fields.keys().next().filter(|_| fields.len() == 1).map_or("", String::as_str);
    match (only, structured) {
        ("response", Some(value @ (Value::Object(_) | Value::Array(_)))) => single(only, value),
        ("arguments", Some(value @ Value::Object(_))) => single(only, value),
        ("response" | "draft", _) => single(only, Value::from(text)),
        ("subtasks", Some(tasks @ Value::Array(_))) => single(only, tasks),
        ("route", _)
            if schema["properties"]["route"]["enum"].as_array().is_some_and(|all| all.contains(&text.into())) =>
        {
            single(only, Value::from(text))
        }
        _ => {
            let known =
                parse_call(text).map(|call| fields.keys().filter_map(|name| editable_field(&call, name)).collect());
            known.filter(|known: &Map<_, _>| !known.is_empty()).unwrap_or(example)
        }
    }
}

/// Returns the fields of a call that is shown as YAML. A line about the call can stand above them.
fn parse_call(text: &str) -> Option<Map<String, Value>> {
    let read = |yaml: &str| serde_saphyr::from_str::<Map<String, Value>>(yaml).ok();
    read(text).or_else(|| read(text.split_once('\n')?.1))
}

/// Returns a field that an edit can change, with its present value. An object or a list is returned as JSON text.
fn editable_field(call: &Map<String, Value>, name: &str) -> Option<(String, Value)> {
    let value = match name {
        "memory" | "cpu" => call.get("resources")?.get("limits")?.get(name)?,
        name => call.get(name)?,
    };
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Object(_) | Value::Array(_) => serde_json::to_string_pretty(value).ok()?,
        other => other.to_string(),
    };
    Some((name.to_owned(), Value::String(text)))
}

/// Returns the parameters that were changed in the editor, if the gate allows to send only some of them; otherwise all.
/// Parameters that are not sent keep their values.
#[must_use]
pub fn changed_only(schema: &Value, before: &Map<String, Value>, after: Map<String, Value>) -> Map<String, Value> {
    if schema["minProperties"] != 1 || schema["required"].is_array() {
        return after;
    }
    let changed: Map<_, _> = after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if changed.is_empty() { after } else { changed }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn schema(fields: &[&str]) -> Value {
        let text = json!({"type": "string", "minLength": 1});
        let properties: Map<_, _> = fields.iter().map(|field| ((*field).to_owned(), text.clone())).collect();
        json!({"type": "object", "minProperties": 1, "additionalProperties": false, "properties": properties})
    }

    #[test]
    fn an_edit_of_a_call_begins_with_its_present_values() {
        let http = "url: https://a.org\nmethod: POST\nbody:\n  amount: 420\nbodyBytes: 14\nheaders: {}\n";
        let expected = json!({"url": "https://a.org", "body": "{\n  \"amount\": 420\n}"});
        for text in [http.to_owned(), format!("attempts: 1\n{http}")] {
            assert_eq!(Value::Object(parameters_to_edit(&schema(&["url", "body"]), Some(&text))), expected);
        }
        let pod = "image: busybox\nresources:\n  limits:\n    memory: 64Mi\n  requests: {}\n";
        let edited = parameters_to_edit(&schema(&["image", "memory", "cpu"]), Some(pod));
        assert_eq!(Value::Object(edited), json!({"image": "busybox", "memory": "64Mi"}));
        let agent = "agent: a\ninput: |\n  write\n  it\n";
        assert_eq!(
            Value::Object(parameters_to_edit(&schema(&["input"]), Some(agent))),
            json!({"input": "write\nit\n"})
        );
        assert_eq!(Value::Object(parameters_to_edit(&schema(&["url"]), Some("it failed"))), json!({"url": "better"}));
    }

    #[test]
    fn unchanged_parameters_are_not_sent() {
        let map = |value: Value| value.as_object().unwrap().clone();
        let before = map(json!({"url": "a", "body": "b"}));
        let changed = |schema: &Value, after: Value| Value::Object(changed_only(schema, &before, map(after)));
        assert_eq!(changed(&schema(&["url", "body"]), json!({"url": "a", "body": "c"})), json!({"body": "c"}));
        assert_eq!(
            changed(&schema(&["url", "body"]), json!({"url": "a", "body": "b"})),
            json!({"url": "a", "body": "b"})
        );
        let arguments = json!({"type": "object", "required": ["url"]});
        assert_eq!(changed(&arguments, json!({"url": "a", "body": "c"})), json!({"url": "a", "body": "c"}));
    }
}
