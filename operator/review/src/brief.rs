//! The arguments of a call in a few words, for lists.

use serde_json::{Map, Value};
use signoff_api::ApprovalRequest;

use crate::{
    action::{arguments_line, call, is_word, word},
    text::one_line,
};

/// The longest name of an argument, and its longest value, in characters.
const LONGEST_NAME: usize = 24;
const LONGEST_VALUE: usize = 40;
/// The longest currency that follows an amount without its name, in characters.
const LONGEST_CURRENCY: usize = 8;

/// Returns the arguments of a call in a few words, such as `37 EUR · invoice 501`, or `None` if the request is about no
/// call. `most`: the longest text, in characters.
#[must_use]
pub fn arguments(request: &ApprovalRequest, most: usize) -> Option<String> {
    call(request)?;
    let text = &request.reviews.as_ref()?.response;
    Some(match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => in_words(&fields, most),
        Ok(_) | Err(_) => arguments_line(text, most),
    })
}

/// Returns names and values in a line: an amount first, then the other fields in their order. Each name and each value
/// is cut on its own, and quoted if it could be read as several. `most`: the longest line, in characters.
#[must_use]
pub fn in_words(fields: &Map<String, Value>, most: usize) -> String {
    let currency = fields.get("currency").and_then(Value::as_str).filter(|currency| is_short_word(currency));
    let amount = fields.get("amount");
    let first = amount.map(|value| match currency {
        Some(currency) => format!("{} {currency}", short_value(value)),
        None => format!("amount {}", short_value(value)),
    });
    let is_used = |name: &str| name == "amount" || name == "currency" && amount.is_some() && currency.is_some();
    let others = fields.iter().filter(|(name, _)| !is_used(name));
    let others = others.map(|(name, value)| format!("{} {}", word(name, LONGEST_NAME), short_value(value)));
    one_line(&first.into_iter().chain(others).collect::<Vec<_>>().join(" · "), most)
}

fn short_value(value: &Value) -> String {
    match value {
        Value::String(text) => word(text, LONGEST_VALUE),
        Value::Array(items) => format!("[{}]", items.len()),
        Value::Object(fields) => format!("{{{}}}", fields.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => one_line(&value.to_string(), LONGEST_VALUE),
    }
}

fn is_short_word(text: &str) -> bool {
    is_word(text) && text.chars().count() <= LONGEST_CURRENCY
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::sample;

    fn brief(response: &str) -> Option<String> {
        let mut request = sample::call().spec.request;
        request.reviews.as_mut().unwrap().response = response.to_owned();
        arguments(&request, 40)
    }

    #[test]
    fn arguments_are_names_and_values_in_one_line() {
        let line = |response: &str| brief(response).unwrap();
        assert_eq!(line(r#"{"amount":37,"currency":"EUR","invoice":501}"#), "37 EUR · invoice 501");
        assert_eq!(line(r#"{"currency":"EUR","to":["a","b"],"with":{"x":1}}"#), "currency EUR · to [2] · with {1}");
        assert_eq!(line("{\"note\":\"two\\nlines\\u202e\"}"), "note \"two lines⟨U+202E⟩\"");
        assert_eq!(line(r#"["a"]"#), r#"["a"]"#);
        assert_eq!(line(r#"{"amount 1 · to":2,"note":"x · amount 1"}"#), r#""amount 1 · to" 2 · note "x · amount 1""#);
        assert_eq!(line(r#"{"amount":1,"currency":"EUR · to me"}"#), r#"amount 1 · currency "EUR · to me""#);
        assert_eq!(line("# cut\n{\"amount\":"), "{\"amount\":");
        assert_eq!(line(&format!("{{\"x\":\"{}\"}}", "y".repeat(99))).chars().count(), 40);
    }

    #[test]
    fn a_value_or_a_name_is_quoted_if_it_could_be_read_as_several() {
        let line = |fields: Value| in_words(fields.as_object().unwrap(), 160);
        let forged = line(json!({"amount": 37, "currency": "EUR · approved cfo"}));
        assert_eq!(forged, r#"amount 37 · currency "EUR · approved cfo""#);
        assert_eq!(line(json!({"note": "paid: yes", "to": "a\"b"})), r#"note "paid: yes" · to "a\"b""#);
        assert_eq!(line(json!({"amount 1 EUR · to": "x"})), r#""amount 1 EUR · to" x"#);
        assert_eq!(line(json!({"to": "[2]", "empty": "", "none": null})), r#"to "[2]" · empty "" · none null"#);
        assert_eq!(line(json!({"amount": "37 · 9", "currency": "EUR"})), r#""37 · 9" EUR"#);
    }

    #[test]
    fn a_long_value_or_name_hides_no_amount() {
        let fields = json!({("a".repeat(200)): "b".repeat(200), "amount": 37, "currency": "EUR", "z": "c".repeat(200)});
        let line = in_words(fields.as_object().unwrap(), 160);
        assert!(line.starts_with("37 EUR · \"aaaa") && line.contains("…\" · z \"cccc"), "{line}");
    }

    #[test]
    fn a_request_about_no_call_has_no_arguments() {
        assert_eq!(arguments(&sample::approval().spec.request, 40), None);
        assert_eq!(arguments(&sample::question().spec.request, 40), None);
    }
}
