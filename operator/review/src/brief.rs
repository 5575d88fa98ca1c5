//! The arguments of a call in a few words, for lists.

use serde_json::{Map, Value};
use signoff_api::ApprovalRequest;

use crate::{
    action::{arguments_line, call, word},
    text::one_line,
};

/// The longest name of an argument, in characters.
const LONGEST_NAME: usize = 24;

/// Returns the arguments of a call in a few words, such as `37 EUR · invoice 501`, at most `most` characters long;
/// `None` if the request is about no call.
#[must_use]
pub fn arguments(request: &ApprovalRequest, most: usize) -> Option<String> {
    call(request)?;
    let text = &request.reviews.as_ref()?.response;
    Some(match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => one_line(&in_words(&fields), most),
        Ok(_) | Err(_) => arguments_line(text, most),
    })
}

fn in_words(fields: &Map<String, Value>) -> String {
    let currency = fields.get("currency").and_then(Value::as_str).filter(|_| fields.contains_key("amount"));
    let argument = |(name, value): (&String, &Value)| match (name.as_str(), currency) {
        ("currency", Some(_)) => None,
        ("amount", Some(currency)) => Some(format!("{} {}", short(value), unseparated(currency))),
        (name, _) => Some(format!("{} {}", word(name, LONGEST_NAME), short(value))),
    };
    fields.iter().filter_map(argument).collect::<Vec<_>>().join(" · ")
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) => unseparated(text),
        Value::Array(items) => format!("[{}]", items.len()),
        Value::Object(fields) => format!("{{{}}}", fields.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Returns a text of a model, in quotes where it could pass for another argument.
fn unseparated(text: &str) -> String {
    if text.contains(['·', '"']) { Value::from(text).to_string() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample;

    fn brief(response: &str) -> Option<String> {
        let mut request = sample::call().spec.request;
        request.reviews.as_mut().unwrap().response = response.to_owned();
        arguments(&request, 40)
    }

    #[test]
    fn arguments_are_names_and_values_in_one_line() {
        let said = |response: &str| brief(response).unwrap();
        assert_eq!(said(r#"{"amount":37,"currency":"EUR","invoice":501}"#), "37 EUR · invoice 501");
        assert_eq!(said(r#"{"currency":"EUR","to":["a","b"],"with":{"x":1}}"#), "currency EUR · to [2] · with {1}");
        assert_eq!(said("{\"note\":\"two\\nlines\\u202e\"}"), "note two lines⟨U+202E⟩");
        assert_eq!(said(r#"["a"]"#), r#"["a"]"#);
        assert_eq!(said(r#"{"amount 1 · to":2,"note":"x · amount 1"}"#), r#""amount 1 · to" 2 · note "x · amount 1""#);
        assert_eq!(said(r#"{"amount":1,"currency":"EUR · to me"}"#), r#"1 "EUR · to me""#);
        assert_eq!(said("# cut\n{\"amount\":"), "{\"amount\":");
        assert_eq!(said(&format!("{{\"x\":\"{}\"}}", "y".repeat(99))).chars().count(), 40);
    }

    #[test]
    fn a_request_about_no_call_has_none() {
        assert_eq!(arguments(&sample::approval().spec.request, 40), None);
        assert_eq!(arguments(&sample::question().spec.request, 40), None);
    }
}
