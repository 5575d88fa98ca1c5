//! The schema of each kind as the API server applies it, and the violations of a document.
//!
//! **Invariant:** the check of the schema is neither milder nor stricter than that of the API server.

use std::{
    collections::BTreeMap,
    sync::{LazyLock, Mutex},
};

use regex::Regex;
use serde_json::Value as Json;
use signoff_api::crds;
use signoff_expr::nearest;

use crate::{
    common_mistakes, old_fields,
    problem::Problems,
    rules,
    source::{Key, Node, Value},
};

/// The schemas by kind.
static SCHEMAS: LazyLock<BTreeMap<String, Json>> = LazyLock::new(|| {
    let kinds = crds::declared().into_iter().map(|crd| crd.spec.names.kind);
    kinds.map(|kind| (kind.clone(), crds::declared_schema(&kind))).collect()
});

/// Returns the schema of a kind.
pub(crate) fn of(kind: &str) -> Option<&'static Json> {
    SCHEMAS.get(kind)
}

/// Returns every kind that has a schema.
pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
    SCHEMAS.keys().map(String::as_str)
}

/// Reports every violation of the schema by a value.
pub(crate) fn check(node: &Node, schema: &Json, field: &str, problems: &mut Problems<'_>) {
    if field == "metadata" {
        return;
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true && schema.get("properties").is_none() {
        if schema["type"] == "object" && !matches!(node.value, Value::Map(_)) {
            report_wrong_type(node, "an object", field, problems);
        }
        return;
    }
    match schema["type"].as_str() {
        Some("object") => check_object(node, schema, field, problems),
        Some("array") => check_list(node, schema, field, problems),
        Some("string") => check_text(node, schema, field, problems),
        Some("boolean") if !matches!(node.value, Value::Bool(_)) => {
            report_wrong_type(node, "true or false", field, problems)
        }
        Some(kind @ ("integer" | "number")) => check_number(node, kind, schema, field, problems),
        _ => {}
    }
    check_enum(node, schema, field, problems);
    rules::check(node, schema, field, problems);
}

/// Reports a value of a wrong type, with a hint about the right form. `wanted`: the type in words, such as `a text`.
fn report_wrong_type(node: &Node, wanted: &str, field: &str, problems: &mut Problems<'_>) {
    let moved =
        old_fields::remedy(field).filter(|_| matches!(node.value, Value::Map(_))).map(|remedy| format!(": {remedy}"));
    let form = common_mistakes::object_form(field)
        .filter(|_| wanted == "an object" && matches!(node.value, Value::Text(_)))
        .map(|form| format!(": write {form}"));
    let hint = match (&node.value, wanted) {
        _ if moved.is_some() || form.is_some() => moved.as_deref().or(form.as_deref()).unwrap_or_default(),
        (Value::Null, _) => ": write a value, or leave the field out",
        (Value::Number(_) | Value::Bool(_), "a text") => ": put it into quotes",
        (Value::Text(_), "a number" | "a whole number" | "true or false") => ": write it without quotes",
        (_, "a list") => ": begin each item with `- `",
        _ => "",
    };
    problems.error("WrongType", field, node.at.clone(), format!("expected {wanted}, found {}{hint}", node.kind()));
}

fn check_object(node: &Node, schema: &Json, field: &str, problems: &mut Problems<'_>) {
    let Value::Map(fields) = &node.value else { return report_wrong_type(node, "an object", field, problems) };
    let path = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
    let known = schema["properties"].as_object();
    for (key, value) in fields {
        let path = path(&key.name);
        if let Some(schema) = known.and_then(|known| known.get(&key.name)) {
            check(value, schema, &path, problems);
        } else if let Some(schema) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
            check(value, schema, &path, problems);
        } else if !(field.is_empty() && ["apiVersion", "kind", "metadata"].contains(&key.name.as_str())) {
            let names: Vec<&str> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            report_unknown(key, &path, &names, problems);
        }
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
        let path = path(name);
        if node.get(name).is_none() {
            let at = crate::problem::place(node, name);
            let about = schema["properties"][name]["description"].as_str().map(first_sentence).unwrap_or_default();
            problems.error("MissingField", &path, at, format!("{name} is missing: give it{about}"));
        }
    }
    if let Some(most) = schema["maxProperties"].as_u64().filter(|most| fields.len() as u64 > *most) {
        let message = format!("there are {} entries, and at most {most} are allowed", fields.len());
        problems.error("OutOfBounds", field, node.at.clone(), message);
    }
}

/// Shortens a description: `: Who may decide.` becomes ` (who may decide)`.
fn first_sentence(description: &str) -> String {
    let first = description.split(". ").next().unwrap_or_default().trim_end_matches('.').replace('\n', " ");
    let mut letters = first.chars();
    letters.next().map_or_else(String::new, |c| format!(" ({}{})", c.to_lowercase(), letters.as_str()))
}

/// Reports an unknown field, with its name of today or the nearest known name.
fn report_unknown(key: &Key, path: &str, names: &[&str], problems: &mut Problems<'_>) {
    let other_name = old_fields::remedy(path).or_else(|| common_mistakes::foreign_field_remedy(path));
    let remedy = match (other_name, nearest(&key.name, names.iter().copied())) {
        (Some(remedy), _) => remedy.to_owned(),
        (None, Some(near)) => format!("did you mean {near}?"),
        (None, None) if names.is_empty() => "no field is allowed here".to_owned(),
        (None, None) => format!("there are {}", names.join(", ")),
    };
    problems.error("UnknownField", path, key.at.clone(), format!("unknown field {}: {remedy}", key.name));
}

fn check_list(node: &Node, schema: &Json, field: &str, problems: &mut Problems<'_>) {
    let Value::List(items) = &node.value else { return report_wrong_type(node, "a list", field, problems) };
    let count = items.len() as u64;
    if let Some(least) = schema["minItems"].as_u64().filter(|least| count < *least) {
        let word = if least == 1 { "item is" } else { "items are" };
        problems.error(
            "OutOfBounds",
            field,
            node.at.clone(),
            format!("at least {least} {word} needed; there are {count}"),
        );
    }
    if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
        problems.error(
            "OutOfBounds",
            field,
            node.at.clone(),
            format!("at most {most} items are allowed; there are {count}"),
        );
    }
    for (index, item) in items.iter().enumerate() {
        check(item, &schema["items"], &format!("{field}[{index}]"), problems);
    }
    check_unique(items, schema, field, problems);
}

/// Reports duplicates: items of a list map differ in their keys, items of a set in themselves.
fn check_unique(items: &[Node], schema: &Json, field: &str, problems: &mut Problems<'_>) {
    let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => {
            schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Json::as_str).collect()
        }
        Some("set") => Vec::new(),
        _ => return,
    };
    let identity = |item: &Node| -> Option<Vec<Json>> {
        match keys.as_slice() {
            [] => Some(vec![item.to_json()]),
            keys => keys.iter().map(|key| item.get(key).map(Node::to_json)).collect(),
        }
    };
    let mut identities = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let Some(identity) = identity(item) else { continue };
        if identities.contains(&identity) {
            let item_path = format!("{field}[{index}]");
            let path = keys.first().map_or_else(|| item_path.clone(), |key| format!("{item_path}.{key}"));
            let range = keys.first().and_then(|key| item.get(key)).unwrap_or(item).at.clone();
            let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            let names: Vec<String> = identity.iter().map(text).collect();
            problems.error(
                "Duplicate",
                &path,
                range,
                format!("duplicate name {}: names must be unique", names.join(", ")),
            );
        } else {
            identities.push(identity);
        }
    }
}

fn check_text(node: &Node, schema: &Json, field: &str, problems: &mut Problems<'_>) {
    let Value::Text(text) = &node.value else {
        let message = match (&node.value, schema["pattern"].as_str()) {
            (Value::Number(number), Some(DURATION)) => {
                format!("a duration has a unit: write {number}s, {number}m or {number}h")
            }
            // The pattern refuses the number in quotes too.
            (Value::Number(number), Some(pattern)) if !matches(pattern, &number.to_string()) => {
                describe_pattern(pattern)
            }
            _ => return report_wrong_type(node, "a text", field, problems),
        };
        return problems.error("WrongType", field, node.at.clone(), message);
    };
    let length = text.chars().count() as u64;
    if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
        let message = if text.is_empty() {
            "it is empty: write something".to_owned()
        } else {
            format!("it has {length} characters and needs at least {least}")
        };
        problems.error("OutOfBounds", field, node.at.clone(), message);
    }
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
        problems.error(
            "OutOfBounds",
            field,
            node.at.clone(),
            format!("it has {length} characters, and at most {most} are allowed"),
        );
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && !matches(pattern, text)
    {
        problems.error("WrongForm", field, node.at.clone(), describe_pattern(pattern));
    }
}

/// Whether a text matches a pattern. Each pattern is compiled once, because the same pattern applies to every step.
fn matches(pattern: &str, text: &str) -> bool {
    static PATTERNS: Mutex<BTreeMap<String, Option<Regex>>> = Mutex::new(BTreeMap::new());
    let compiled = || Regex::new(pattern).ok();
    let regex = match PATTERNS.lock() {
        Ok(mut patterns) => patterns.entry(pattern.to_owned()).or_insert_with(compiled).clone(),
        Err(_) => compiled(),
    };
    regex.is_some_and(|regex| regex.is_match(text))
}

/// The pattern of durations.
const DURATION: &str = "^([0-9]{1,7}(\\.[0-9]{1,3})?(ms|s|m|h))+$";

/// Describes a pattern of the schema as a remedy, such as `write a duration such as 30s, 5m or 24h`.
fn describe_pattern(pattern: &str) -> String {
    let words = match pattern {
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" => "lower-case letters, digits and `-`, with a letter or digit at both ends",
        "^[a-zA-Z_][a-zA-Z0-9_]*$" => "letters, digits and `_`, and no digit first",
        "^[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?$" => {
            "letters, digits, `-` and `_`, with a letter or digit at both ends"
        }
        "^[A-Za-z0-9_-]+$" => "letters, digits, `-` and `_`",
        "^[-._a-zA-Z][-._a-zA-Z0-9]*$" => "letters, digits, `-`, `_` and `.`, and no digit first",
        "^[A-Za-z0-9_*-]+$" => "the server's own name of a tool, or a glob such as get_*",
        "^sha256:[0-9a-f]{64}$" => {
            "a digest as `signoff tools` prints it: sha256: and 64 lower-case hexadecimal digits"
        }
        "^[A-Za-z0-9_*.-]+$" => "the name of a tool, or a glob such as crm-*",
        "^!?[A-Za-z0-9_*.-]+$" => "the name of a tool, or a glob such as crm-*, with `!` before what is left out",
        "^[-a-z0-9.*]+$" => "the name of a Secret, in which `*` matches any characters, such as models-*",
        r"^[^*/@\s]+$" => "a host such as api.example.com or api.example.com:8443, without `*`",
        r"^([*][.])?[^*/@\s]+$" => "a host such as api.example.com, api.example.com:8443 or *.example.com",
        "^/" => "a path that begins with `/`",
        "^[!-z|~ ]*$" => "visible ASCII characters and spaces, and no braces: it is not a template",
        "^https?://" => "an address that begins with http:// or https://",
        "^[0-9]{1,9}([.][0-9]{1,6})?$" => {
            "an amount in quotes without sign and currency, such as \"3.00\", with at most 9 digits before the point and 6 after it"
        }
        DURATION => "a duration such as 30s, 5m or 24h",
        _ => return format!("it must match {pattern}"),
    };
    format!("write {words}")
}

fn check_number(node: &Node, kind: &str, schema: &Json, field: &str, problems: &mut Problems<'_>) {
    let wanted = if kind == "integer" { "a whole number" } else { "a number" };
    let Value::Number(number) = &node.value else { return report_wrong_type(node, wanted, field, problems) };
    if kind == "integer" && number.is_f64() {
        return problems.error("WrongType", field, node.at.clone(), "expected a whole number, found a fraction");
    }
    let value = number.as_f64().unwrap_or_default();
    let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    if least.is_some_and(|least| value < least) || most.is_some_and(|most| value > most) {
        let bounds = match (least, most) {
            (Some(least), Some(most)) => format!("between {least} and {most}"),
            (Some(least), None) => format!("at least {least}"),
            (_, most) => format!("at most {}", most.unwrap_or_default()),
        };
        problems.error("OutOfBounds", field, node.at.clone(), format!("{number} is not {bounds}"));
    }
}

fn check_enum(node: &Node, schema: &Json, field: &str, problems: &mut Problems<'_>) {
    let Some(allowed) = schema["enum"].as_array() else { return };
    if matches!(node.value, Value::Text(_)) && !allowed.contains(&node.to_json()) {
        let names: Vec<&str> = allowed.iter().filter_map(Json::as_str).collect();
        let given = node.text().unwrap_or_default();
        let remedy = match nearest(given, names.iter().copied()) {
            Some(near) => format!("did you mean {near}? There are {}", names.join(", ")),
            None => format!("there are {}", names.join(", ")),
        };
        problems.error("NotOneOf", field, node.at.clone(), format!("{given} is not an allowed value: {remedy}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(schema: &Json, found: &mut Vec<String>) {
        match schema {
            Json::Object(fields) => {
                found.extend(fields.get("pattern").and_then(Json::as_str).map(str::to_owned));
                fields.values().for_each(|inner| patterns(inner, found));
            }
            Json::Array(items) => items.iter().for_each(|inner| patterns(inner, found)),
            _ => {}
        }
    }

    #[test]
    fn every_pattern_of_a_spec_is_described_in_words() {
        let mut found = Vec::new();
        for kind in ["Workflow", "ApprovalPolicy", "ClusterApprovalPolicy"] {
            patterns(of(kind).map_or(&Json::Null, |schema| &schema["properties"]["spec"]), &mut found);
        }
        assert!(found.len() > 20, "{found:?}");
        for pattern in found {
            assert!(!describe_pattern(&pattern).contains(&pattern), "{pattern}");
        }
    }
}
