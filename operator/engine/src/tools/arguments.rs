//! The arguments of a call: parsed once and strictly, then known by their canonical text.
//!
//! text of the model -> strict JSON with clean texts -> canonical JSON (RFC 8785) -> digest. Gates, schemas and the tool itself read
//! the same bytes.
//!
//! **Invariant:** two readers of `Arguments::text` cannot understand it differently: no duplicate key, no number that a double
//! does not hold, no invalid Unicode.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use signoff_api::{Digest, digest::canonical, turn::RequestedArguments};
use signoff_expr::text::{clean, display};

/// The largest size of the arguments of a call, in bytes, as written and as canonical text.
pub(crate) const MAX_ARGUMENTS_BYTES: usize = RequestedArguments::MAX_BYTES;

/// The deepest nesting of objects and arrays; the arguments themselves are level 1.
const MAX_DEPTH: usize = 64;

/// The largest number of characters of the model's text that an error shows.
const SHOWN_CHARS: usize = 80;

/// The largest magnitude of a number, 2^53: beyond it doubles skip integers.
const MAX_NUMBER: u64 = 1 << 53;

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
        Self::of_clean(&if text.trim().is_empty() { Map::new() } else { read(text)? })
    }

    /// Returns the arguments with this value, such as those that a person edited.
    ///
    /// # Errors
    /// One sentence for the model.
    pub(crate) fn of(value: Map<String, Value>) -> Result<Self, String> {
        Self::of_clean(&read(&canonical_text(&value)?)?)
    }

    fn of_clean(value: &Map<String, Value>) -> Result<Self, String> {
        let text = canonical_text(value)?;
        // The value is read from the text that is digested and sent: `2.0` is `2` for gates and schemas too.
        Ok(Self { value: read(&text)?, text })
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

fn canonical_text(value: &Map<String, Value>) -> Result<String, String> {
    let problem = |why: String| format!("the arguments have no canonical JSON: {why}");
    let bytes = canonical(value).map_err(|why| problem(why.to_string()))?;
    String::from_utf8(bytes).map_err(|why| problem(why.to_string()))
}

/// Reads one JSON object and nothing after it. Its texts and keys are cleaned as templates clean what they render, so that gates and
/// schemas read what is sent.
fn read(text: &str) -> Result<Map<String, Value>, String> {
    if text.len() > MAX_ARGUMENTS_BYTES {
        return Err(format!("the arguments have {} bytes; the maximum is {MAX_ARGUMENTS_BYTES}", text.len()));
    }
    let mut place = Place::default();
    let mut source = serde_json::Deserializer::from_str(text);
    let value = Strict(&mut place).deserialize(&mut source).map_err(|why| place.problem(&why))?;
    // Trailing text has no place inside the object.
    source.end().map_err(|_| "the arguments must be one JSON object with no text after it".to_owned())?;
    if let Some(number) = lost(text) {
        let shown = display(number, SHOWN_CHARS);
        return Err(format!(
            "the arguments: {shown} is too close to 0, and JSON readers take it for 0; write it as a text"
        ));
    }
    match value {
        Value::Object(fields) => Ok(fields),
        other => Err(format!("the arguments must be a JSON object and not {}", kind(&other))),
    }
}

/// Returns the first number of a JSON text that is not 0 and for which the nearest double is 0.
fn lost(text: &str) -> Option<&str> {
    let (mut outside, mut within, mut escaped) = (0, false, false);
    // Numbers stand outside of strings only.
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = within,
            b'"' if within => (within, outside) = (false, at + 1),
            b'"' => {
                if let Some(number) = lost_outside(text.get(outside..at)?) {
                    return Some(number);
                }
                within = true;
            }
            _ => {}
        }
    }
    lost_outside(text.get(outside..)?)
}

/// The same for a stretch of JSON without strings.
fn lost_outside(text: &str) -> Option<&str> {
    let words = text.split(|c: char| c.is_whitespace() || "{}[]:,".contains(c));
    let is_lost = |word: &&str| {
        let digits = word.split(['e', 'E']).next().unwrap_or_default();
        digits.contains(|c| ('1'..='9').contains(&c)) && word.parse() == Ok(0.0)
    };
    words.filter(|word| word.starts_with(|c: char| c == '-' || c.is_ascii_digit())).find(is_lost)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The place that is read: the keys and positions from the arguments down to a value.
#[derive(Default)]
struct Place {
    steps: Vec<String>,
    /// The problem that this module found, without the line and column that the JSON reader adds.
    found: Option<String>,
}

impl Place {
    /// Records a problem of this place and returns the error that stops the reader.
    fn refuse<E: serde::de::Error>(&mut self, problem: String) -> E {
        self.found = Some(problem);
        E::custom("refused")
    }

    /// Returns the sentence for the model.
    fn problem(&self, why: &serde_json::Error) -> String {
        let what = match &self.found {
            Some(found) => found.clone(),
            // Messages of the reader name what it expected and where, and quote nothing.
            None => format!("invalid JSON: {}", display(&why.to_string(), 200)),
        };
        if self.steps.is_empty() {
            return format!("the arguments: {what}");
        }
        format!("{}: {what}", display(&self.steps.concat(), SHOWN_CHARS))
    }
}

/// Reads a value and refuses what JSON readers understand differently.
struct Strict<'a>(&'a mut Place);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl Strict<'_> {
    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        if self.0.steps.len() >= MAX_DEPTH {
            return Err(self.0.refuse(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        Ok(())
    }

    fn too_large<E: serde::de::Error>(self, number: impl fmt::Display) -> E {
        let shown = display(&number.to_string(), SHOWN_CHARS);
        self.0.refuse(format!("{shown} is beyond ±2^53, where JSON readers round differently; write it as a text"))
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        if value.unsigned_abs() > MAX_NUMBER { Err(self.too_large(value)) } else { Ok(value.into()) }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        if value > MAX_NUMBER { Err(self.too_large(value)) } else { Ok(value.into()) }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // Every double from 2^53 on is an integer, whether the text had an exponent or not.
        match Number::from_f64(value) {
            Some(number) if value.abs() < (MAX_NUMBER as f64) => Ok(Value::Number(number)),
            _ => Err(self.too_large(format_args!("{value:e}"))),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(clean(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut source: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut items = Vec::new();
        loop {
            self.0.steps.push(format!("[{}]", items.len()));
            let Some(item) = source.next_element_seed(Strict(self.0))? else { break };
            items.push(item);
            self.0.steps.pop();
        }
        self.0.steps.pop();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut source: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut fields = Map::new();
        while let Some(key) = source.next_key::<String>()? {
            let key = clean(&key);
            let dot = if self.0.steps.is_empty() { "" } else { "." };
            self.0.steps.push(format!("{dot}{}", display(&key, SHOWN_CHARS)));
            if fields.contains_key(&key) {
                return Err(self.0.refuse("the key is there twice; send it once".to_owned()));
            }
            let value = source.next_value_seed(Strict(self.0))?;
            fields.insert(key, value);
            self.0.steps.pop();
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
