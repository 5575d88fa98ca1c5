//! What an editor of parameters begins with.
//!
//! It must not leave out what was reviewed.

use serde_json::{Map, Value};
use signoff_engine::gate::parameters;

/// Returns the parameters to begin with: what was reviewed where the gate replaces it, else an example of the schema.
#[must_use]
pub fn parameters_to_edit(schema: &Value, reviewed: Option<&str>) -> Map<String, Value> {
    let example = parameters::example(schema);
    let (Some(text), Some(fields)) = (reviewed, schema["properties"].as_object()) else { return example };
    let structured = serde_json::from_str::<Value>(text).ok();
    let one = |name: &str, value: Value| Map::from_iter([(name.to_owned(), value)]);
    let only = fields.keys().next().filter(|_| fields.len() == 1).map_or("", String::as_str);
    match (only, structured) {
        ("response", Some(value @ (Value::Object(_) | Value::Array(_)))) => one(only, value),
        ("arguments", Some(value @ Value::Object(_))) => one(only, value),
        ("response" | "draft", _) => one(only, Value::from(text)),
        ("subtasks", Some(tasks @ Value::Array(_))) => one(only, tasks),
        ("route", _)
            if schema["properties"]["route"]["enum"].as_array().is_some_and(|all| all.contains(&text.into())) =>
        {
            one(only, Value::from(text))
        }
        // A call is shown as YAML below a line about it.
        _ => match text.split_once('\n').map(|(_, call)| serde_saphyr::from_str::<Map<String, Value>>(call)) {
            Some(Ok(call)) => {
                let known: Map<_, _> = call.into_iter().filter(|(name, _)| fields.contains_key(name)).collect();
                if known.is_empty() { example } else { known }
            }
            _ => example,
        },
    }
}
