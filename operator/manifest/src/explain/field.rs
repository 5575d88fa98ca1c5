//! Fields of our kinds as `kubectl explain` shows them: type, description, bounds, values, and the fields within. All
//! of it is read from the schema.

use std::fmt::Write as _;

use serde_json::Value as Json;
use signoff_expr::nearest;

use crate::schema;

/// The path of the list of steps.
const STEPS: [&str; 2] = ["spec", "steps"];

/// Returns the explanation of a field by its path, such as `workflow.spec.steps.hitl.timeout`; the kind is optional.
///
/// # Errors
/// An unknown field: the error suggests the nearest one.
pub(super) fn explain(path: &str) -> Result<String, String> {
    let (kind, names) = split_path(path);
    let Some(root) = schema::of(kind) else { return Err(format!("there is no kind {kind}")) };
    match find_schema(root, &names) {
        Ok(found) => Ok(render_page(kind, &names, found)),
        Err(why) => match find_by_ending(root, &names) {
            Some(full) => {
                let names: Vec<&str> = full.iter().map(String::as_str).collect();
                find_schema(root, &names).map(|found| render_page(kind, &names, found))
            }
            None => Err(why),
        },
    }
}

/// Splits a path into its kind, which is `Workflow` if the path has none, and its names without indices.
fn split_path(path: &str) -> (&'static str, Vec<&str>) {
    let mut names: Vec<&str> = path
        .split('.')
        .map(|name| name.split('[').next().unwrap_or_default())
        .filter(|name| !name.is_empty())
        .collect();
    let kind = names.first().and_then(|first| {
        schema::kinds().find(|kind| kind.eq_ignore_ascii_case(first) || format!("{kind}s").eq_ignore_ascii_case(first))
    });
    if kind.is_some() {
        names.remove(0);
    }
    (kind.unwrap_or("Workflow"), names)
}

/// Returns the schema of the items of a list or of the values of a map, else the schema itself.
fn inner_schema(schema: &Json) -> &Json {
    ["items", "additionalProperties"].iter().find_map(|key| schema.get(key).filter(|s| s.is_object())).unwrap_or(schema)
}

/// Returns the schema of the field with these names. The error names the first unknown field and the nearest known one.
fn find_schema<'s>(root: &'s Json, names: &[&str]) -> Result<&'s Json, String> {
    let mut schema = root;
    for (at, name) in names.iter().enumerate() {
        let fields = inner_schema(schema)["properties"].as_object();
        schema = fields.and_then(|fields| fields.get(*name)).ok_or_else(|| {
            let known: Vec<&str> = fields.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let place = if at == 0 { "at the top".to_owned() } else { format!("in {}", names[..at].join(".")) };
            let remedy = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None if known.is_empty() => "it has no fields".to_owned(),
                None => format!("there are {}", known.join(", ")),
            };
            format!("unknown field {name} {place}: {remedy}")
        })?;
    }
    Ok(schema)
}

/// Returns the path of the field whose path ends with `names`, such as `hitl.timeout`: a field of a step, otherwise the
/// first one from the top down.
fn find_by_ending(root: &Json, names: &[&str]) -> Option<Vec<String>> {
    let of_a_step: Vec<&str> = STEPS.iter().chain(names).copied().collect();
    if find_schema(root, &of_a_step).is_ok() {
        return Some(of_a_step.into_iter().map(ToOwned::to_owned).collect());
    }
    let mut level: Vec<(Vec<String>, &Json)> = vec![(Vec::new(), root)];
    while !level.is_empty() && !names.is_empty() {
        let mut next = Vec::new();
        for (path, schema) in level {
            for (name, inner) in inner_schema(schema)["properties"].as_object().into_iter().flatten() {
                let path: Vec<String> = path.iter().chain([name]).cloned().collect();
                if path.len() >= names.len() && path[path.len() - names.len()..].iter().zip(names).all(|(a, b)| a == b)
                {
                    return Some(path);
                }
                next.push((path, inner));
            }
        }
        level = next;
    }
    None
}

/// Renders the explanation of a field: type, description, bounds, rules and fields.
fn render_page(kind: &str, names: &[&str], schema: &Json) -> String {
    let field = if names.is_empty() { ".".to_owned() } else { names.join(".") };
    let mut text = format!("KIND:   {kind}\nFIELD:  {field} <{}>\n", kind_of(schema));
    if let Some(description) = schema["description"].as_str() {
        let _ = write!(text, "\n{}\n", wrap(description, ""));
    }
    let bounds = bound_lines(schema);
    if !bounds.is_empty() {
        let _ = write!(text, "\nBOUNDS\n{}", bounds.iter().map(|bound| format!("  {bound}\n")).collect::<String>());
    }
    let mut rules: Vec<&str> = Vec::new();
    for rule in
        [schema, inner_schema(schema)].iter().flat_map(|schema| schema["x-kubernetes-validations"].as_array()).flatten()
    {
        // For other types than lists the inner schema is the schema itself.
        rules.extend(rule["message"].as_str().filter(|rule| !rules.contains(rule)));
    }
    if !rules.is_empty() {
        let _ = write!(text, "\nRULES\n{}", rules.iter().map(|rule| wrap(rule, "  ") + "\n").collect::<String>());
    }
    let inner = inner_schema(schema);
    let required: Vec<&str> = inner["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    if let Some(fields) = inner["properties"].as_object().filter(|fields| !fields.is_empty()) {
        text += "\nFIELDS\n";
        for (name, field) in fields {
            let mark = if required.contains(&name.as_str()) { " required" } else { "" };
            let _ = writeln!(text, "  {name} <{}>{mark}", kind_of(field));
            if let Some(description) = field["description"].as_str() {
                let _ = writeln!(text, "{}", wrap(description, "    "));
            }
        }
    }
    text
}

/// Renders the type for people: `[]object`, `map of string`.
fn kind_of(schema: &Json) -> String {
    match schema["type"].as_str() {
        Some("array") => format!("[]{}", kind_of(&schema["items"])),
        Some("object") if schema.get("additionalProperties").is_some_and(Json::is_object) => {
            format!("map of {}", kind_of(&schema["additionalProperties"]))
        }
        Some(kind) => kind.to_owned(),
        None => "any value".to_owned(),
    }
}

/// Returns the bounds of a schema as lines, such as `at most 63 characters`.
fn bound_lines(schema: &Json) -> Vec<String> {
    let mut bounds = Vec::new();
    for (key, words) in [
        ("minLength", "at least {} characters"),
        ("maxLength", "at most {} characters"),
        ("minItems", "at least {} items"),
        ("maxItems", "at most {} items"),
        ("maxProperties", "at most {} entries"),
        ("minimum", "at least {}"),
        ("maximum", "at most {}"),
        ("pattern", "matches {}"),
    ] {
        if let Some(value) = schema.get(key) {
            let value = match (value.as_str(), value.as_f64()) {
                (Some(text), _) => text.to_owned(),
                (None, Some(number)) => number.to_string(),
                (None, None) => continue,
            };
            bounds.push(words.replace("{}", &value));
        }
    }
    let values = schema.get("enum").or_else(|| inner_schema(schema).get("enum")).and_then(Json::as_array);
    if let Some(values) = values {
        let values: Vec<&str> = values.iter().filter_map(Json::as_str).collect();
        bounds.push(format!("one of {}", values.join(", ")));
    }
    if schema["x-kubernetes-list-type"] == "map" {
        let keys: Vec<&str> =
            schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        bounds.push(format!("items differ in {}", keys.join(", ")));
    }
    bounds
}

/// Wraps a text to lines of at most 100 characters, each indented.
fn wrap(text: &str, indent: &str) -> String {
    let mut lines = vec![indent.to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > indent.len() && line + 1 + word.chars().count() > 100 {
            lines.push(indent.to_owned());
        }
        if let Some(line) = lines.last_mut() {
            if line.len() > indent.len() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
