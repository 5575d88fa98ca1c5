//! The numbers of a spec: numbers that JSON readers round differently, and identifiers that should be texts.
//!
//! Checked before acceptance only. Two accepted specs that differ only in an integer never have the same digest.

use serde_json::{Map, Value};
use signoff_api::WorkflowSpec;
use signoff_expr::{
    number::{Inexact, inexact, pointer},
    text,
};

use super::Validator;

/// The maximum number of numbers that an error names.
const MOST_NAMED: usize = 16;
/// The fields of an input that hold a value.
const OF_INPUT: [&str; 3] = ["value", "default", "enum"];

/// Whether a name ends with the word `id` in any notation: `id`, `customerId`, `account_id`.
pub(super) fn is_identifier_name(name: &str) -> bool {
    let Some((before, last)) = name.len().checked_sub(2).and_then(|at| name.split_at_checked(at)) else { return false };
    let is_after = |ends_word: fn(char) -> bool| before.chars().next_back().is_none_or(ends_word);
    match last {
        "Id" => true,
        "ID" => is_after(|c| !c.is_uppercase()),
        "id" => is_after(|c| !c.is_alphanumeric()),
        _ => false,
    }
}

/// Returns the advice about an identifier that is declared as a number.
pub(super) fn identifier_advice(name: &str) -> String {
    format!(
        "{name} is an identifier, and as a number it must be within ±2^53, because JSON readers round what is beyond: declare it as `type: string`"
    )
}

/// A number that JSON readers round differently, with its path in a spec.
struct InexactNumber {
    path: Vec<String>,
    why: Inexact,
}

/// Adds the numbers in a value that JSON readers round differently. `path` is the path of the value.
fn collect_inexact(value: &Value, path: &mut Vec<String>, found: &mut Vec<InexactNumber>) {
    let collect_below = |name: String, inner: &Value, path: &mut Vec<String>, found: &mut Vec<InexactNumber>| {
        path.push(name);
        collect_inexact(inner, path, found);
        path.pop();
    };
    match value {
        Value::Number(number) => found.extend(inexact(number).map(|why| InexactNumber { path: path.clone(), why })),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| collect_below(at.to_string(), item, path, found));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, inner)| collect_below(name.clone(), inner, path, found))
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Returns the path of a field as in messages: `spec.inputs[0].value`.
fn field_name(path: &[String]) -> String {
    let mut field = "spec".to_owned();
    for name in path {
        match name.parse::<usize>() {
            Ok(_) => field.push_str(&format!("[{name}]")),
            Err(_) => field.push_str(&format!(".{}", text::display(name, 63))),
        }
    }
    field
}

impl Validator<'_> {
    /// Reports the first [`MOST_NAMED`] numbers of a spec that JSON readers round differently. Returns whether there
    /// are such numbers.
    pub(super) fn check_numbers(&mut self, spec: &WorkflowSpec) -> bool {
        let mut found = Vec::new();
        // A spec that cannot be written as JSON is refused elsewhere.
        collect_inexact(&serde_json::to_value(spec).unwrap_or_default(), &mut Vec::new(), &mut found);
        for InexactNumber { path, why } in found.iter().take(MOST_NAMED) {
            let is_of_input = matches!(path.as_slice(), [inputs, _, part, ..]
                if inputs == "inputs" && OF_INPUT.contains(&part.as_str()));
            let (field_path, path_in_value) = path.split_at(if is_of_input { 3 } else { path.len() });
            let at = field_path.get(1).filter(|_| is_of_input).and_then(|at| at.parse::<usize>().ok());
            let input = at.and_then(|at| spec.inputs.get(at));
            let of_input = input.map(|input| format!("input {}: ", input.name)).unwrap_or_default();
            let message = match pointer(path_in_value) {
                place if place.is_empty() => format!("{of_input}the number is {why}"),
                place => format!("{of_input}the number at {} is {why}", text::display(&place, 120)),
            };
            self.error(field_name(field_path), message);
        }
        !found.is_empty()
    }

    /// Warns of identifiers that a schema declares as numbers instead of texts.
    pub(super) fn advise_identifiers(&mut self, schema: &Map<String, Value>, field: &str) {
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let field = format!("{field}.properties.{}", text::display(name, 63));
            let Some(property) = property.as_object() else { continue };
            if is_identifier_name(name) && is_unbounded_number(property) {
                self.warn(&format!("{field}.type"), &identifier_advice(&text::display(name, 63)));
            }
            self.advise_identifiers(property, &field);
        }
        if let Some(items) = schema.get("items").and_then(Value::as_object) {
            self.advise_identifiers(items, &format!("{field}.items"));
        }
    }
}

/// Whether a schema accepts numbers without a limit.
fn is_unbounded_number(schema: &Map<String, Value>) -> bool {
    let is_number = |kind: &Value| matches!(kind.as_str(), Some("integer" | "number"));
    let takes = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(is_number),
        Some(kind) => is_number(kind),
        None => false,
    };
    takes && !["maximum", "exclusiveMaximum", "enum", "const"].iter().any(|bound| schema.contains_key(*bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_ends_with_the_word_id() {
        for name in [
            "id",
            "Id",
            "ID",
            "customerId",
            "accountID",
            "order2ID",
            "account_id",
            "account-id",
            "ACCOUNT_ID",
            "account.id",
        ] {
            assert!(is_identifier_name(name), "{name}");
        }
        for name in ["paid", "PAID", "grid", "ids", "customerIds", "idea", "identity", "d", "", "aé"] {
            assert!(!is_identifier_name(name), "{name}");
        }
    }
}
