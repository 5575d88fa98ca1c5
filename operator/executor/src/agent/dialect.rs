//! The dialects of servers: which optional fields each does not take. Learnt from the errors that name a field, kept in memory
//! only, and part of no digest.
//!
//! **Invariant:** a field is left out only after an error that names it and says that it is not supported, and is remembered
//! only once the turn succeeds without it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

/// The fields that a server does not take.
pub(super) type LeftOut = BTreeSet<String>;

/// The most servers and models that are remembered.
const MOST: usize = 1024;

/// The words of an error about a field that a server does not take, in small letters.
const NOT_TAKEN: [&str; 13] = [
    "unsupported",
    "not support",
    "n't support",
    "only support",
    "unrecognized",
    "unrecognised",
    "unknown",
    "unexpected",
    "not permitted",
    "not allowed",
    "extra input",
    "deprecated",
    "no longer",
];

/// What was learnt, by base URL and model.
#[derive(Debug, Default)]
pub(super) struct Dialects(Mutex<BTreeMap<(String, String), LeftOut>>);

impl Dialects {
    /// Returns the fields that a server is not sent.
    pub(super) fn of(&self, base_url: &str, model: &str) -> LeftOut {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(base_url.to_owned(), model.to_owned())).cloned().unwrap_or_default()
    }

    /// Remembers the fields that a server is not sent.
    pub(super) fn learn(&self, base_url: &str, model: &str, left_out: LeftOut) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (base_url.to_owned(), model.to_owned());
        if known.len() >= MOST && !known.contains_key(&key) {
            // What is forgotten is learnt again.
            known.pop_first();
        }
        known.insert(key, left_out);
    }
}

/// Returns the field that an error says the server does not take. `body`: that of the error; `optional`: the fields that were
/// sent and can be left out.
pub(super) fn refused_field<'f>(status: u16, body: &[u8], optional: &'f [String]) -> Option<&'f String> {
    if !matches!(status, 400 | 422) {
        return None;
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    let texts = texts(&body);
    let says = |text: &String| NOT_TAKEN.iter().any(|words| text.to_lowercase().contains(words));
    if !texts.iter().any(says) {
        return None;
    }
    // The longest name first: `max_tokens` may be a part of the sentence about another field.
    let named = optional.iter().filter(|field| texts.iter().any(|text| names(text, field)));
    named.min_by_key(|field| first_place(&texts, field))
}

/// Returns the texts of an error: all of them, because servers put the name of a field into its sentence, beside it, or into a
/// list of places.
fn texts(body: &Value) -> Vec<String> {
    let (mut texts, mut open) = (Vec::new(), vec![body]);
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => texts.push(text.clone()),
            // What the server was sent is not what it says.
            Value::Object(fields) => open.extend(fields.iter().filter(|(name, _)| *name != "input").map(|(_, value)| value)),
            Value::Array(list) => open.extend(list),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts
}

/// Whether a text has a name as a word of its own.
fn names(text: &str, name: &str) -> bool {
    place(text, name).is_some()
}

fn place(text: &str, name: &str) -> Option<usize> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(name).map(|(at, _)| at).find(|at| {
        let before = text[..*at].chars().next_back();
        let after = text[*at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Returns where a name stands first: a sentence names the field that it is about before the one to use instead.
fn first_place(texts: &[String], name: &str) -> usize {
    texts.iter().filter_map(|text| place(text, name)).min().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn refused(status: u16, body: &Value) -> Option<String> {
        let optional = ["max_tokens", "temperature", "stream", "stream_options", "reasoning_content"].map(str::to_owned);
        refused_field(status, body.to_string().as_bytes(), &optional).cloned()
    }

    #[test]
    fn only_an_error_that_names_a_field_as_not_supported_is_learnt_from() {
        let said = |message: &str| json!({"error": {"message": message, "type": "invalid_request_error"}});
        for (body, field) in [
            (said("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."), Some("max_tokens")),
            (said("Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported."), Some("temperature")),
            (json!({"error": {"message": "Not supported with this model.", "param": "temperature", "code": "unsupported_value"}}), Some("temperature")),
            (json!({"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted", "input": {"temperature": 1}}]}), Some("stream_options")),
            (said("property 'messages.2.reasoning_content' is unsupported"), Some("reasoning_content")),
            (said("`temperature` is deprecated for this model."), Some("temperature")),
            // About a value, or about something else.
            (said("max_tokens is too large: 100000. This model takes at most 16384."), None),
            (said("max_tokens_to_sample is not supported"), None),
            (said("the model is not supported"), None),
            (said("temperature must be at most 1"), None),
            (json!("temperature"), None),
        ] {
            assert_eq!(refused(400, &body).as_deref(), field, "{body}");
            assert_eq!(refused(422, &body).as_deref(), field, "{body}");
            for status in [401, 403, 404, 413, 429, 500, 503] {
                assert_eq!(refused(status, &body), None, "{status} {body}");
            }
        }
        assert_eq!(refused_field(400, b"temperature unsupported", &["temperature".to_owned()]), None, "no JSON");
        assert_eq!(refused_field(400, said("'temperature' is not supported").to_string().as_bytes(), &[]), None);
    }

    #[test]
    fn what_was_learnt_is_of_one_server_and_model_and_bounded() {
        let dialects = Dialects::default();
        let without = LeftOut::from(["temperature".to_owned()]);
        dialects.learn("https://a", "m", without.clone());
        assert_eq!(dialects.of("https://a", "m"), without);
        assert!(dialects.of("https://a", "n").is_empty() && dialects.of("https://b", "m").is_empty());
        (0..2 * MOST).for_each(|number| dialects.learn("https://c", &number.to_string(), LeftOut::new()));
        assert!(dialects.0.lock().unwrap().len() <= MOST);
    }
}
