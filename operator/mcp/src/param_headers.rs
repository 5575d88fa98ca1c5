//! Arguments that are also sent as headers, by `x-mcp-header` in the schema of their tool.

use std::collections::BTreeSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

/// The keyword in the schema of an argument.
const KEYWORD: &str = "x-mcp-header";
/// The maximum number of headers of a tool.
const MAX_HEADERS: usize = 16;
/// The maximum length of a name, in characters.
const MAX_NAME: usize = 64;
/// The maximum size of a value, in bytes.
const MAX_VALUE: usize = 4096;
/// The largest integer on which all JSON readers agree.
const MAX_INTEGER: u64 = (1 << 53) - 1;
/// The mark of an encoded value.
const ENCODED: &str = "=?base64?";

/// An argument that is also sent as a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParamHeader {
    /// The name, without the common prefix of such headers.
    name: String,
    /// The path of the argument, from the outermost object.
    path: Vec<String>,
}

/// Returns the arguments that a schema marks as headers.
///
/// # Errors
/// A keyword at a position that the protocol does not allow. The tool is then not offered.
pub(crate) fn of_schema(schema: &Value) -> Result<Vec<ParamHeader>, &'static str> {
    let mut found = Vec::new();
    collect_headers(schema, &mut Vec::new(), true, &mut found)?;
    let names: BTreeSet<String> = found.iter().map(|header| header.name.to_ascii_lowercase()).collect();
    if names.len() < found.len() {
        return Err("two arguments want the same header");
    }
    if found.len() > MAX_HEADERS {
        return Err("more than 16 arguments want a header");
    }
    Ok(found)
}

/// Adds the arguments that a schema marks as headers to `found`. `is_reachable`: whether the schema is reached through
/// `properties` only.
fn collect_headers(
    schema: &Value,
    path: &mut Vec<String>,
    is_reachable: bool,
    found: &mut Vec<ParamHeader>,
) -> Result<(), &'static str> {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Array(schemas) => {
            return schemas.iter().try_for_each(|schema| collect_headers(schema, path, false, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
    };
    if let Some(name) = fields.get(KEYWORD) {
        let name = name.as_str().filter(|name| is_token(name)).ok_or("a header has no valid name")?;
        if path.is_empty() || !is_reachable {
            return Err("a header is wanted of something that is no argument");
        }
        let kind = fields.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err("a header is wanted of an argument that is no string, integer or boolean");
        }
        found.push(ParamHeader { name: name.to_owned(), path: path.clone() });
    }
    for (keyword, value) in fields {
        match keyword.as_str() {
            KEYWORD | "const" | "default" | "enum" | "examples" => {}
            "properties" => {
                for (name, schema) in value.as_object().into_iter().flatten() {
                    path.push(name.clone());
                    collect_headers(schema, path, is_reachable, found)?;
                    path.pop();
                }
            }
            "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                for schema in value.as_object().into_iter().flat_map(|schemas| schemas.values()) {
                    collect_headers(schema, path, false, found)?;
                }
            }
            _ => collect_headers(value, path, false, found)?,
        }
    }
    Ok(())
}

/// Returns the names and values of the headers of a call. A missing or null argument has no header.
///
/// # Errors
/// An argument that cannot be a header.
pub(crate) fn of_arguments(headers: &[ParamHeader], arguments: &Value) -> Result<Vec<(String, String)>, String> {
    let mut sent = Vec::new();
    for ParamHeader { name, path } in headers {
        let argument = path.iter().try_fold(arguments, |value, part| value.get(part));
        let value = match argument {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(value)) => value.to_string(),
            Some(Value::Number(number)) => integer_text(number).ok_or_else(|| refusal(path))?,
            Some(Value::Array(_) | Value::Object(_)) => return Err(refusal(path)),
        };
        if value.len() > MAX_VALUE {
            return Err(refusal(path));
        }
        sent.push((format!("Mcp-Param-{name}"), encode(&value)));
    }
    Ok(sent)
}

fn refusal(path: &[String]) -> String {
    format!("the argument {} is sent as a header: give a short text, an integer or a boolean", path.join("."))
}

/// Returns the text of an integer, or `None` for a fraction or an integer beyond [`MAX_INTEGER`].
fn integer_text(number: &serde_json::Number) -> Option<String> {
    let exact = number.as_i64().filter(|integer| integer.unsigned_abs() <= MAX_INTEGER);
    exact.map(|integer| integer.to_string())
}

/// Returns a value as it is sent in a header: encoded if a header cannot hold the value itself.
pub(crate) fn encode(value: &str) -> String {
    let is_visible = value.bytes().all(|byte| matches!(byte, 0x20..=0x7E | b'\t'));
    let is_trimmed = value.trim_matches([' ', '\t']).len() == value.len();
    let is_mark = value.starts_with(ENCODED) && value.ends_with("?=");
    if is_visible && is_trimmed && !is_mark {
        return value.to_owned();
    }
    format!("{ENCODED}{}?=", BASE64_STANDARD.encode(value))
}

/// Whether a text can be part of the name of a header.
fn is_token(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn wanting(header: &str) -> Value {
        json!({"type": "string", "x-mcp-header": header})
    }

    #[test]
    fn arguments_are_sent_as_the_headers_that_the_schema_names() {
        let schema = json!({"type": "object", "properties": {
            "region": wanting("Region"),
            "place": {"type": "object", "properties": {"row": {"type": "integer", "x-mcp-header": "Row"}}},
            "x-mcp-header": {"type": "string", "default": {"x-mcp-header": "no keyword"}},
            "urgent": {"type": "boolean", "x-mcp-header": "Urgent"},
        }});
        let headers = of_schema(&schema).unwrap();
        let arguments = json!({"region": "us-west1", "place": {"row": -7}, "urgent": null});
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [pair("Mcp-Param-Region", "us-west1"), pair("Mcp-Param-Row", "-7")];
        assert_eq!(of_arguments(&headers, &arguments).unwrap(), expected);
        assert!(of_arguments(&headers, &json!({})).unwrap().is_empty());
        for wrong in [json!({"region": ["a"]}), json!({"region": "x".repeat(5000)}), json!({"place": {"row": 1.5}})] {
            assert!(of_arguments(&headers, &wrong).is_err());
        }
    }

    #[test]
    fn values_are_encoded_as_the_protocol_says() {
        for (value, header) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(value), header);
        }
    }

    #[test]
    fn a_schema_with_a_header_at_an_invalid_position_is_refused() {
        let with = |argument: Value| json!({"type": "object", "properties": {"a": argument}});
        for schema in [
            with(wanting("")),
            with(wanting("Ev il")),
            with(wanting("Evil\r\nAuthorization")),
            with(json!({"type": "string", "x-mcp-header": 7})),
            with(json!({"type": "number", "x-mcp-header": "A"})),
            with(json!({"type": "array", "items": wanting("A")})),
            with(json!({"anyOf": [wanting("A")]})),
            with(json!({"$ref": "#/$defs/a", "$defs": {"a": wanting("A")}})),
            json!({"type": "object", "x-mcp-header": "A"}),
            json!({"properties": {"a": wanting("Same"), "b": wanting("same")}}),
        ] {
            assert!(of_schema(&schema).is_err(), "{schema}");
        }
    }
}
