//! The arguments of a call: parsed once and strictly, then used as their canonical text.
//!
//! text of the model -> strict JSON with clean texts -> canonical JSON (RFC 8785) -> digest. Gates, schemas and the
//! tool itself read the same bytes.
//!
//! **Invariant:** all readers of `Arguments::text` understand it alike: no duplicate key, no number that a double
//! cannot hold, no invalid Unicode.

use serde::Serialize;
use serde_json::{Map, Value};
use signoff_api::{Digest, digest::canonical, turn::RequestedArguments};
use signoff_expr::{
    json::{Problem, read_exact},
    number::first_inexact,
    text,
};

/// The maximum size of the arguments of a call, in bytes, as written and as canonical text.
pub(crate) const MAX_ARGUMENTS_BYTES: usize = RequestedArguments::MAX_BYTES;

/// The maximum number of characters of a JSON pointer in an error.
const SHOWN_CHARS: usize = 80;

/// The maximum nesting of objects and arrays; the arguments themselves are level 1.
const MAX_DEPTH: usize = RequestedArguments::MAX_LEVELS;

/// The arguments of a call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arguments {
    value: Map<String, Value>,
    text: String,
}

impl Arguments {
    /// Parses the arguments as a model wrote them. A blank text means no arguments.
    ///
    /// # Errors
    /// One sentence for the model.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::of_clean(&if text.trim().is_empty() { Map::new() } else { parse_object(text)? })
    }

    /// Returns the arguments of a JSON object, such as edited arguments.
    ///
    /// # Errors
    /// One sentence for the model.
    pub(crate) fn of(value: Map<String, Value>) -> Result<Self, String> {
        let value = Value::Object(value);
        if let Some((pointer, why)) = first_inexact(&value) {
            // An earlier reader may already have rounded the number.
            return Err(format!("{}: the number is {why}", text::display(&pointer, SHOWN_CHARS)));
        }
        Self::of_clean(&parse_object(&canonical_text(&value)?)?)
    }

    /// Parses the arguments that a person gave: an object, or one JSON text, which is parsed like the text of a model.
    ///
    /// # Errors
    /// One sentence for the person.
    pub(crate) fn edited(given: &Value) -> Result<Self, String> {
        match given {
            Value::Object(fields) => Self::of(fields.clone()),
            Value::String(text) if text.trim().is_empty() => {
                Err("the text is empty: write {} for no arguments".to_owned())
            }
            Value::String(text) => Self::parse(text),
            other => Err(format!("give an object or its JSON text, and not {}", kind_name(other))),
        }
    }

    /// Returns the arguments whose texts are already cleaned.
    fn of_clean(value: &Map<String, Value>) -> Result<Self, String> {
        let text = canonical_text(value)?;
        // The value is read from the text that is digested and sent, so that gates and schemas also read `2.0` as `2`.
        Ok(Self { value: parse_object(&text)?, text })
    }

    /// Returns the value of the canonical text.
    pub(crate) fn value(&self) -> &Map<String, Value> {
        &self.value
    }

    /// Returns the canonical JSON (RFC 8785).
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the digest of the canonical JSON.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of_bytes(self.text.as_bytes())
    }
}

fn canonical_text(value: &impl Serialize) -> Result<String, String> {
    let problem = |why: String| format!("the arguments have no canonical JSON: {why}");
    let bytes = canonical(value).map_err(|why| problem(why.to_string()))?;
    String::from_utf8(bytes).map_err(|why| problem(why.to_string()))
}

/// Parses one JSON object without anything after it. Its texts and keys are cleaned like rendered templates, so that
/// gates and schemas read the same text that is sent.
fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    if text.len() > MAX_ARGUMENTS_BYTES {
        return Err(format!("the arguments have {} bytes; the maximum is {MAX_ARGUMENTS_BYTES}", text.len()));
    }
    match read_exact(text, MAX_DEPTH) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(format!("the arguments must be a JSON object and not {}", kind_name(&other))),
        Err(Problem { pointer, what, .. }) if pointer.is_empty() => Err(format!("the arguments: {what}")),
        Err(Problem { pointer, what, .. }) => Err(format!("{pointer}: {what}")),
    }
}

fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
