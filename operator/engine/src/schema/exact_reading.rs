//! Schemas that report which number of a value they read, if the value has a number that cannot be read exactly.
//!
//! A keyword of our own precedes the keywords that read numbers. Values without such a number are validated without
//! our keyword.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use jsonschema::{Keyword, ValidationError, ValidationOptions, Validator};
use serde_json::{Map, Value};
use signoff_expr::number::{Inexact, find, inexact, pointer};

use super::{DATA, NAMED, TEXTS};

/// The name of our keyword, which no author can use.
const EXACT: &str = "\u{0}exact";
/// Keywords that read a number.
const READ_NUMBERS: [&str; 6] = ["exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf", "type"];
/// Keywords that compare whole values.
const READ_VALUES: [&str; 3] = ["const", "enum", "uniqueItems"];

/// A compiled schema, and the address of the first number that it read and that cannot be read exactly.
pub(super) struct ExactReading {
    validator: Validator,
    read: Arc<AtomicUsize>,
}

impl ExactReading {
    pub(super) fn compile(schema: &Value, options: ValidationOptions<'static>) -> Result<Self, String> {
        let read = Arc::new(AtomicUsize::new(0));
        let shared = Arc::clone(&read);
        let options = options.with_keyword(EXACT, move |_: &Map<String, Value>, whole: &Value, _| {
            let keyword = Exact { read: Arc::clone(&shared), whole: *whole == Value::Bool(true) };
            Ok::<Box<dyn for<'i> Keyword<'i>>, _>(Box::new(keyword))
        });
        let validator = options.build(&with_keyword(schema)).map_err(|why| why.to_string())?;
        Ok(Self { validator, read })
    }

    /// Returns whether a value matches, or the JSON pointer of a number that the schema reads and no double holds
    /// exactly.
    pub(super) fn validate(&self, value: &Value) -> Result<bool, (String, Inexact)> {
        self.read.store(0, Ordering::Relaxed);
        let fits = self.validator.is_valid(value);
        let address = self.read.load(Ordering::Relaxed);
        let mut path = Vec::new();
        let is_read =
            |part: &Value| (std::ptr::from_ref(part).addr() == address).then(|| inexact_number(part)).flatten();
        find(value, &mut path, &is_read).map_or(Ok(fits), |why| Err((pointer(&path), why)))
    }
}

/// Returns the reason why a double does not hold a number exactly, or `None`, also for another value.
fn inexact_number(value: &Value) -> Option<Inexact> {
    value.as_number().and_then(inexact)
}

/// Returns the schema with our keyword at every place that reads numbers.
fn with_keyword(schema: &Value) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(with_keyword).collect(),
        Value::Object(fields) => {
            let is_read = |name: &str| READ_VALUES.contains(&name) || READ_NUMBERS.contains(&name);
            let mut extended: Map<String, Value> =
                fields.iter().map(|(name, value)| (name.clone(), of_keyword(name, value))).collect();
            let reading: Map<String, Value> = fields
                .iter()
                .filter(|(name, _)| is_read(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            if !reading.is_empty() {
                // Our keyword comes before the keywords that read numbers, so that it sees each number first.
                let whole = READ_VALUES.iter().any(|name| reading.contains_key(*name));
                let first = Map::from_iter([(EXACT.to_owned(), whole.into())]);
                extended.retain(|name, _| !is_read(name));
                let all_of = extended.entry("allOf").or_insert_with(|| Value::Array(Vec::new()));
                all_of
                    .as_array_mut()
                    .into_iter()
                    .for_each(|schemas| schemas.extend([first.clone().into(), reading.clone().into()]));
            }
            Value::Object(extended)
        }
        other => other.clone(),
    }
}

fn of_keyword(name: &str, value: &Value) -> Value {
    match value {
        _ if DATA.contains(&name) || TEXTS.contains(&name) => value.clone(),
        Value::Object(named) if NAMED.contains(&name) => {
            named.iter().map(|(name, schema)| (name.clone(), with_keyword(schema))).collect::<Map<_, _>>().into()
        }
        _ => with_keyword(value),
    }
}

struct Exact {
    read: Arc<AtomicUsize>,
    /// Whether the next keyword reads a whole value.
    whole: bool,
}

impl<'i> Keyword<'i> for Exact {
    fn is_valid(&self, value: &'i Value) -> bool {
        let address_of = |part: &Value| inexact_number(part).map(|_| std::ptr::from_ref(part).addr());
        let address = if self.whole { find(value, &mut Vec::new(), &address_of) } else { address_of(value) };
        if let Some(address) = address {
            self.read.store(address, Ordering::Relaxed);
        }
        address.is_none()
    }

    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(value) { Ok(()) } else { Err(ValidationError::custom("a number here cannot be read")) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use signoff_expr::json::read;

    use crate::schema::Schema;

    fn answer() -> serde_json::Value {
        read(r#"{"status": "ok", "id": 123456789012345678901234567890, "n": [1, 1e400], "small": 1e-400, "many": [{"x": 12345678901234567890}]}"#)
            .unwrap()
    }

    #[test]
    fn a_number_that_a_schema_reads_and_no_double_holds_is_refused_with_its_pointer() {
        for (schema, pointer) in [
            (json!({"properties": {"id": {"type": "integer"}}}), "/id"),
            (json!({"properties": {"id": {"type": ["string", "number"]}}}), "/id"),
            (json!({"properties": {"id": {"minimum": 5}}}), "/id"),
            (json!({"properties": {"id": {"maximum": 5}}}), "/id"),
            (json!({"properties": {"id": {"exclusiveMinimum": 0}}}), "/id"),
            (json!({"properties": {"id": {"exclusiveMaximum": 9e99}}}), "/id"),
            (json!({"properties": {"id": {"multipleOf": 2}}}), "/id"),
            (json!({"properties": {"small": {"const": 0}}}), "/small"),
            (json!({"properties": {"small": {"enum": [0, 1]}}}), "/small"),
            (json!({"properties": {"id": {"not": {"type": "string"}}}}), "/id"),
            (json!({"properties": {"id": {"not": {"maximum": 5}}}}), "/id"),
            (json!({"properties": {"id": {"allOf": [{"minimum": 1}], "maximum": 5}}}), "/id"),
            (json!({"properties": {"id": {"if": {"type": "number"}, "then": {}}}}), "/id"),
            (json!({"properties": {"id": {"anyOf": [{"type": "number"}, {"type": "integer"}]}}}), "/id"),
            (json!({"properties": {"id": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "number"}}}), "/id"),
            (json!({"properties": {"n": {"type": "array", "items": {"type": "integer"}, "minItems": 1}}}), "/n/1"),
            (json!({"properties": {"n": {"items": {"type": "number"}}}}), "/n/1"),
            (json!({"properties": {"n": {"contains": {"const": 7}, "minContains": 0}}}), "/n/1"),
            (json!({"properties": {"n": {"uniqueItems": true}}}), "/n/1"),
            (json!({"properties": {"n": {"not": {"const": [1, 2]}}}}), "/n/1"),
            (json!({"properties": {"many": {"not": {"enum": [[{"x": 1}]]}}}}), "/many/0/x"),
            (json!({"patternProperties": {"^i": {"type": "number"}}}), "/id"),
            (
                json!({"properties": {"status": {}, "n": {}, "small": {}, "many": {}}, "additionalProperties": {"type": "number"}}),
                "/id",
            ),
        ] {
            let compiled = Schema::of_value(&schema).unwrap();
            let (found, why) = compiled.check(&answer()).unwrap_err();
            assert_eq!(found, pointer, "{schema}: {why}");
            assert!(
                why.starts_with(&format!("the number at {pointer} is ")) && why.ends_with("; write it as a text"),
                "{schema}: {why}"
            );
            assert_eq!(compiled.is_valid(&answer()), Ok(false), "{schema}");
        }
    }

    #[test]
    fn a_number_that_no_schema_reads_does_no_harm() {
        for schema in [
            json!({"type": "object", "required": ["id"], "properties": {"status": {"const": "ok"}, "id": {}}}),
            json!({"type": "object", "properties": {"status": {"type": "string"}, "n": {"type": "array", "minItems": 2}}}),
            json!({"properties": {"id": {"description": "any", "default": 5}}}),
            json!({"minProperties": 5, "propertyNames": {"type": "string"}}),
            json!({"properties": {"many": {"items": {"type": "object", "required": ["x"]}}}}),
            json!({"properties": {"n": {"prefixItems": [{"type": "integer", "minimum": 1}]}}}),
        ] {
            let compiled = Schema::of_value(&schema).unwrap();
            assert_eq!(compiled.check(&answer()), Ok(()), "{schema}");
        }
        // Other problems are still reported.
        let wrong = Schema::of_value(&json!({"properties": {"status": {"const": "no"}}})).unwrap();
        assert_eq!(wrong.check(&answer()).unwrap_err().0, "/status");
    }
}
