//! The dialects of servers: the optional fields that each does not accept. They are learned from errors that name a
//! field, kept in memory only, and not part of a digest.
//!
//! **Invariant:** a field is left out only after an error that names it as unsupported, and is remembered only after
//! the turn succeeds without it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use super::protocol::Protocol;

/// The fields that a server does not accept.
pub(super) type LeftOut = BTreeSet<String>;

/// The maximum number of remembered servers and models.
const MAX_SERVERS: usize = 1024;
/// The maximum number of fields that are left out for one server.
pub(super) const MOST_FIELDS: usize = 8;
/// The maximum length of the name of a field that can be left out.
const MAX_NAME: usize = 64;
/// The maximum number of texts of an error that are read.
const MOST_TEXTS: usize = 64;
/// The fields of an error that describe the problem or name the field.
const MESSAGE_FIELDS: [&str; 8] = ["message", "msg", "detail", "param", "code", "type", "loc", "error"];

/// The words of an error about an unsupported field, in lower case.
const UNSUPPORTED_WORDS: [&str; 15] = [
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
    "cannot use",
    "not implemented",
];

/// The key of a learned dialect. It contains the namespace, so that a server that one namespace uses cannot change the
/// requests of others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServerKey {
    /// The namespace of the run.
    pub(super) namespace: String,
    /// The protocol, as [`super::protocol::Protocol::answer`] names it.
    pub(super) protocol: &'static str,
    pub(super) base_url: String,
    pub(super) model: String,
}

impl ServerKey {
    pub(super) fn new(namespace: &str, protocol: &dyn Protocol, base_url: &str, model: &str) -> Self {
        let [namespace, base_url, model] = [namespace, base_url, model].map(str::to_owned);
        Self { namespace, protocol: protocol.answer(), base_url, model }
    }
}

/// The fields that are left out for each server.
#[derive(Debug, Default)]
pub(super) struct Dialects(Mutex<BTreeMap<ServerKey, LeftOut>>);

impl Dialects {
    /// Returns the fields that are left out for a server.
    pub(super) fn fields_left_out(&self, server: &ServerKey) -> LeftOut {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(server).cloned().unwrap_or_default()
    }

    /// Remembers the fields that are left out for a server.
    pub(super) fn learn(&self, server: ServerKey, left_out: LeftOut) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if left_out.len() > MOST_FIELDS {
            return;
        }
        if known.len() >= MAX_SERVERS && !known.contains_key(&server) {
            // A forgotten dialect is learned again.
            known.pop_first();
        }
        known.insert(server, left_out);
    }

    /// Forgets the dialect of a server that refuses a request without the fields, because the server may have changed.
    pub(super) fn forget(&self, server: &ServerKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(server);
    }
}

/// Returns the field that an error calls unsupported. `body` is that of the error; `optional` are the sent fields that
/// can be left out.
pub(super) fn refused_field<'f>(status: u16, body: &[u8], optional: &'f [String]) -> Option<&'f String> {
    // Some servers that cannot stream answer with the status of a failure.
    let may_be_of = |field: &str| matches!(status, 400 | 422) || (matches!(status, 500 | 501) && field == "stream");
    let body: Value = serde_json::from_slice(body).ok()?;
    let mut named: Vec<(usize, &String)> = Vec::new();
    for entry in texts_by_entry(&body) {
        let is_about_support =
            |text: &String| UNSUPPORTED_WORDS.iter().any(|words| text.to_lowercase().contains(words));
        if !entry.iter().any(is_about_support) {
            continue;
        }
        let fields = optional.iter().filter(|field| field.len() <= MAX_NAME && may_be_of(field));
        named.extend(fields.filter_map(|field| Some((first_position(&entry, field)?, field))));
    }
    // A sentence names the unsupported field before its replacement.
    named.into_iter().min_by_key(|(position, _)| *position).map(|(_, field)| field)
}

/// Returns the texts of an error, entry by entry: the sentence about a field, and the texts beside it. Quotes of the
/// request or of an answer are left out.
fn texts_by_entry(body: &Value) -> Vec<Vec<String>> {
    let (mut entries, mut unread, mut left) = (Vec::new(), vec![body], MOST_TEXTS);
    while let Some(value) = unread.pop() {
        let mut entry = Vec::new();
        let mut take = |text: &str| {
            if let Some(fewer) = left.checked_sub(1) {
                left = fewer;
                entry.push(text.to_owned());
            }
        };
        match value {
            Value::Object(fields) => {
                for (_, value) in fields.iter().filter(|(name, _)| MESSAGE_FIELDS.contains(&name.as_str())) {
                    match value {
                        Value::String(text) => take(text),
                        Value::Array(list) if list.iter().all(Value::is_string) => {
                            list.iter().filter_map(Value::as_str).for_each(&mut take);
                        }
                        Value::Array(_) | Value::Object(_) => unread.push(value),
                        Value::Null | Value::Bool(_) | Value::Number(_) => {}
                    }
                }
            }
            Value::Array(list) => unread.extend(list.iter().take(MOST_TEXTS)),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        entries.push(entry);
    }
    entries
}

/// Returns the first position of a name in a text, as a separate word.
fn position_of_word(text: &str, name: &str) -> Option<usize> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(name).map(|(at, _)| at).find(|at| {
        let before = text[..*at].chars().next_back();
        let after = text[*at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Returns the first position of a name in any of the texts.
fn first_position(texts: &[String], name: &str) -> Option<usize> {
    texts.iter().filter_map(|text| position_of_word(text, name)).min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn learned_field(status: u16, body: &Value) -> Option<String> {
        let optional =
            ["max_tokens", "temperature", "stream", "stream_options", "reasoning_content"].map(str::to_owned);
        refused_field(status, body.to_string().as_bytes(), &optional).cloned()
    }

    #[test]
    fn only_a_field_that_an_error_calls_unsupported_is_learned() {
        let said = |message: &str| json!({"error": {"message": message, "type": "invalid_request_error"}});
        for (body, field) in [
            (
                said(
                    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                ),
                Some("max_tokens"),
            ),
            (
                said(
                    "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.",
                ),
                Some("temperature"),
            ),
            (
                json!({"error": {"message": "Not supported with this model.", "param": "temperature", "code": "unsupported_value"}}),
                Some("temperature"),
            ),
            (
                json!({"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted", "input": {"temperature": 1}}]}),
                Some("stream_options"),
            ),
            (said("property 'messages.2.reasoning_content' is unsupported"), Some("reasoning_content")),
            (said("`temperature` is deprecated for this model."), Some("temperature")),
            // Errors about a value, or about something else.
            (said("max_tokens is too large: 100000. This model takes at most 16384."), None),
            (said("max_tokens_to_sample is not supported"), None),
            (said("the model is not supported"), None),
            (said("temperature must be at most 1"), None),
            (json!("temperature"), None),
        ] {
            assert_eq!(learned_field(400, &body).as_deref(), field, "{body}");
            assert_eq!(learned_field(422, &body).as_deref(), field, "{body}");
            for status in [401, 403, 404, 413, 429, 500, 503] {
                assert_eq!(learned_field(status, &body), None, "{status} {body}");
            }
        }
        assert_eq!(refused_field(400, b"temperature unsupported", &["temperature".to_owned()]), None, "no JSON");
        assert_eq!(refused_field(400, said("'temperature' is not supported").to_string().as_bytes(), &[]), None);
    }

    #[test]
    fn a_field_that_an_error_only_quotes_is_not_learned() {
        let failed =
            json!({"error": {"message": "Failed to call a function", "failed_generation": "temperature is unknown"}});
        assert_eq!(learned_field(400, &failed), None);
        let apart = json!({"error": {"message": "The model is not supported"}, "detail": [{"msg": "temperature must be at most 1"}]});
        assert_eq!(learned_field(400, &apart), None, "the word and the name are of two sentences");
        let many: Vec<_> = (0..10_000).map(|n| json!({"message": n.to_string()})).collect();
        assert_eq!(learned_field(400, &json!({"detail": many})), None);
        let long = "x".repeat(MAX_NAME + 1);
        let body = json!({"message": format!("{long} is not supported")}).to_string();
        assert_eq!(refused_field(400, body.as_bytes(), &[long]), None);
    }

    #[test]
    fn a_refused_stream_is_learned_from_a_server_error_too() {
        let said = |message: &str| json!({"error": {"message": message}});
        for status in [400, 422, 500, 501] {
            assert_eq!(
                learned_field(status, &said("Cannot use tools with stream")).as_deref(),
                Some("stream"),
                "{status}"
            );
        }
        assert_eq!(learned_field(500, &said("temperature is not supported")), None);
        assert_eq!(learned_field(503, &said("stream is not supported")), None);
    }

    #[test]
    fn a_dialect_is_learned_per_server_model_and_namespace() {
        let key = |namespace: &str, base_url: &str, model: &str| ServerKey {
            namespace: namespace.into(),
            protocol: "a chat completion",
            base_url: base_url.into(),
            model: model.into(),
        };
        let dialects = Dialects::default();
        let without = LeftOut::from(["temperature".to_owned()]);
        dialects.learn(key("n", "https://a", "m"), without.clone());
        assert_eq!(dialects.fields_left_out(&key("n", "https://a", "m")), without);
        for other in [key("n", "https://a", "n"), key("n", "https://b", "m"), key("o", "https://a", "m")] {
            assert!(dialects.fields_left_out(&other).is_empty(), "{other:?}");
        }
        let many: LeftOut = (0..=MOST_FIELDS).map(|number| number.to_string()).collect();
        dialects.learn(key("n", "https://a", "m"), many);
        assert_eq!(dialects.fields_left_out(&key("n", "https://a", "m")), without);
        dialects.forget(&key("n", "https://a", "m"));
        assert!(dialects.fields_left_out(&key("n", "https://a", "m")).is_empty());
        for number in 0..2 * MAX_SERVERS {
            dialects.learn(key("n", "https://c", &number.to_string()), LeftOut::new());
        }
        assert!(dialects.0.lock().unwrap().len() <= MAX_SERVERS);
    }
}
