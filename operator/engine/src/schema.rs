//! JSON Schemas of authors, bounded at acceptance and for each validation.
//!
//! The work of one validation is at most the number of steps of the schema, with every `$ref` replaced by its target,
//! times the size of the validated value. Both factors are counted before the validation, and their product is charged
//! to the [`budget`]. A step takes about the time of one `type` on one value. Slower keywords count as more steps
//! ([`WEIGHTS`]), and keywords without such a bound are refused ([`REFUSED`]) or evaluated by [`keywords`].

mod exact_reading;
mod keywords;

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;

use jsonschema::PatternOptions;
use serde_json::Value;
use signoff_api::JsonObject;
use signoff_expr::{
    budget, json,
    number::{Inexact, first_inexact},
    pattern, re2, text,
};

use exact_reading::ExactReading;

/// The maximum size of a schema as JSON, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// The maximum number of values in a schema whose references are replaced by their targets.
const MAX_VALUES: u64 = 5_000;
/// The maximum depth of a schema, references replaced.
const MAX_DEPTH: usize = 64;
/// The maximum number of steps for a value whose first problem is reported with its place.
const MOST_EXPLAINED: u64 = 100_000;
/// The maximum number of steps of all validations with one compiled schema. [`Schema::steps`] counts the steps of a
/// validation.
const MAX_STEPS: u64 = 100_000_000;
/// The maximum number of states of the patterns of a schema, references replaced.
const MAX_STATES: u64 = 20_000;
/// The maximum number of regular expressions, references not replaced.
const MAX_PATTERNS: usize = 32;

/// The bytes of a name or a constant in the schema that are hashed or compared in the time of a step.
const BYTES_A_STEP: usize = 16;
/// The bytes of a value that a unit of [`READERS`] reads in the time of a step.
const BYTES_A_READ: u64 = 16;
/// The bytes of a value that a state of a pattern matches in the time of a step.
const BYTES_A_MATCH: u64 = 8;
/// The steps of keywords that take longer for a value than `type`.
const WEIGHTS: [(&str, u64); 3] = [("multipleOf", 32), ("propertyNames", 8), ("uniqueItems", 32)];
/// The keywords that read a whole text, and how many times slower they are than 16 bytes a step.
const READERS: [(&str, u64); 3] = [("format", 4), ("maxLength", 1), ("minLength", 1)];
/// The keywords whose texts are for people.
const TEXTS: [&str; 3] = ["$comment", "description", "title"];
/// The keywords whose values are data.
const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// The keywords whose values are schemas by name.
const NAMED: [&str; 7] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "properties",
];
/// The keywords that rename parts of a schema, refer elsewhere, read a text as JSON, or evaluate parts more than once.
const REFUSED: [(&str, &str); 12] = [
    ("$anchor", "name the part in $defs and refer to it as #/$defs/<name>"),
    ("$dynamicAnchor", "name the part in $defs and refer to it as #/$defs/<name>"),
    ("$dynamicRef", "name the part in $defs and refer to it as #/$defs/<name>"),
    ("$id", "leave it out: references are within this schema"),
    ("$recursiveAnchor", "name the part in $defs and refer to it as #/$defs/<name>"),
    ("$recursiveRef", "name the part in $defs and refer to it as #/$defs/<name>"),
    ("$vocabulary", "leave it out"),
    ("contentEncoding", "leave it out, or check the text with pattern"),
    ("contentMediaType", "leave it out, or require the JSON itself instead of a text with JSON in it"),
    ("contentSchema", "leave it out, or require the JSON itself instead of a text with JSON in it"),
    ("unevaluatedItems", "use items or additionalItems"),
    ("unevaluatedProperties", "use additionalProperties"),
];
/// The drafts that `$schema` may name, by the part of the URL that distinguishes them.
const DRAFTS: [&str; 4] = ["/draft-06/schema", "/draft-07/schema", "/draft/2019-09/schema", "/draft/2020-12/schema"];

/// A compiled schema, and the factor for the work of a validation by the size of the value.
pub struct Schema {
    source: Value,
    validator: jsonschema::Validator,
    /// Compiled for the first value with a number that no double holds exactly.
    reading: OnceCell<Result<ExactReading, String>>,
    measure: Measure,
    /// The steps that are left of [`MAX_STEPS`] for further validations.
    left: Cell<u64>,
}

impl Schema {
    /// Compiles `schema` if it is within the bounds.
    ///
    /// # Errors
    /// One sentence for the author of the schema: the problem and the remedy.
    pub(crate) fn compile(schema: &JsonObject) -> Result<Self, String> {
        Self::of_value(&Value::Object(schema.0.clone()))
    }

    /// Like [`Self::compile`], for any JSON value.
    pub fn of_value(schema: &Value) -> Result<Self, String> {
        let bytes = size(schema).bytes;
        if bytes > MAX_BYTES {
            return Err(format!("the schema has {bytes} bytes, and {MAX_BYTES} are allowed: make it smaller"));
        }
        budget::charge(bytes).map_err(|stopped| stopped.to_string())?;
        let mut reader = Reader { root: schema, known: BTreeMap::new(), open: Vec::new(), patterns: 0 };
        let measure = reader.measure_schema(schema, 0)?;
        if measure.values > MAX_VALUES {
            return Err(format!(
                "the schema has more than {MAX_VALUES} values when each $ref is replaced by what it refers to: refer to less, or repeat less"
            ));
        }
        if measure.states > MAX_STATES {
            return Err("the patterns of the schema are too large when each $ref is replaced by what it refers to: repeat less in them".to_owned());
        }
        let validator = options().build(schema).map_err(|why| not_a_schema(&why.to_string()))?;
        Ok(Self { source: schema.clone(), validator, reading: OnceCell::new(), measure, left: Cell::new(MAX_STEPS) })
    }

    /// Whether `value` is valid.
    ///
    /// # Errors
    /// `value` is too large for this schema, or the evaluation was stopped.
    pub fn is_valid(&self, value: &Value) -> Result<bool, String> {
        Ok(self.validate(value)? == Ok(true))
    }

    /// Returns whether `value` is valid. The inner error is a number that the schema reads and no double holds exactly:
    /// its JSON pointer, and the reason.
    fn validate(&self, value: &Value) -> Result<Result<bool, (String, Inexact)>, String> {
        self.charge(value)?;
        if first_inexact(value).is_none() {
            return Ok(Ok(self.validator.is_valid(value)));
        }
        // The validation with the keyword for exact reading is a second one.
        self.charge(value)?;
        let reading = self.reading.get_or_init(|| ExactReading::compile(&self.source, options()));
        reading.as_ref().map(|reading| reading.validate(value)).map_err(|why| not_a_schema(why))
    }

    /// Checks that `value` matches the schema.
    ///
    /// # Errors
    /// The JSON pointer of the first problem in `value` (empty for the whole value), and the problem.
    pub(crate) fn check(&self, value: &Value) -> Result<(), (String, String)> {
        let at_root = |why: String| (String::new(), why);
        match self.validate(value).map_err(at_root)? {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err((pointer, why)) if pointer.is_empty() => return Err(at_root(format!("the number is {why}"))),
            Err((pointer, why)) => {
                let problem = format!("the number at {} is {why}", text::display(&pointer, 120));
                return Err((pointer, problem));
            }
        }
        // The search for the first problem copies the value for each branch that does not match.
        if self.measure.steps.saturating_mul(size(value).values()) > MOST_EXPLAINED {
            return Err(at_root("it does not fit the schema, and is too large to say where".to_owned()));
        }
        self.validator.validate(value).map_err(|error| {
            // The message quotes the value, which can be large; the caller cuts it.
            (error.instance_path().to_string(), error.to_string())
        })
    }

    /// Checks that a text holds JSON that matches: the first valid JSON in it, or else the first JSON at all.
    ///
    /// # Errors
    /// The problem. It may quote the text: the caller cuts it.
    pub(crate) fn check_text(&self, text: &str) -> Result<(), String> {
        let Some(value) = json::extract(text) else { return Err("there is no JSON in it".to_owned()) };
        self.check(&value).map_err(|(_, problem)| problem)
    }

    /// Charges the steps of one validation of `value`. All validations with one compiled schema share [`MAX_STEPS`].
    fn charge(&self, value: &Value) -> Result<(), String> {
        let steps = self.steps(value);
        budget::charge(usize::try_from(steps).unwrap_or(usize::MAX)).map_err(|stopped| stopped.to_string())?;
        let left = self.left.get().checked_sub(steps);
        self.left.set(left.unwrap_or(0));
        left.map(drop).ok_or_else(|| "the JSON is too large for a schema of this size: give less JSON".to_owned())
    }

    /// Returns the charged steps of a validation of `value`.
    #[must_use]
    pub fn steps(&self, value: &Value) -> u64 {
        let size = size(value);
        let bytes = u64::try_from(size.bytes).unwrap_or(u64::MAX);
        let for_values = self.measure.steps.saturating_mul(size.values());
        let for_readers = (bytes / BYTES_A_READ).saturating_mul(self.measure.reads);
        let for_patterns = (bytes / BYTES_A_MATCH).saturating_mul(self.measure.states);
        for_values.saturating_add(for_readers).saturating_add(for_patterns)
    }
}

fn options() -> jsonschema::ValidationOptions<'static> {
    jsonschema::options()
        .with_pattern_options(PatternOptions::regex().size_limit(1 << 18).dfa_size_limit(1 << 18))
        .with_keyword("multipleOf", keywords::compile_multiple_of)
        .with_keyword("uniqueItems", keywords::compile_unique_items)
}

fn not_a_schema(why: &str) -> String {
    format!("not a JSON Schema: {}", text::display(why, 300))
}

/// The size of a JSON value.
#[derive(Default)]
struct Size {
    nodes: u64,
    bytes: usize,
}

impl Size {
    fn values(&self) -> u64 {
        self.nodes.saturating_add(u64::try_from(self.bytes / 64).unwrap_or(u64::MAX))
    }
}

fn size(value: &Value) -> Size {
    let mut size = Size::default();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        size.nodes += 1;
        size.bytes += match value {
            Value::String(text) => text.len() + 2,
            Value::Array(items) => {
                open.extend(items);
                items.len() + 2
            }
            Value::Object(fields) => {
                open.extend(fields.values());
                fields.keys().map(|key| key.len() + 4).sum::<usize>() + 2
            }
            _ => 5,
        };
    }
    size
}

/// The size and depth of a part of a schema with its references replaced.
#[derive(Clone, Copy)]
struct Measure {
    values: u64,
    /// The steps for each validated value, at least one for each value of the schema.
    steps: u64,
    /// The units of the [`READERS`].
    reads: u64,
    /// The states of the patterns, as [`pattern::states`] counts them.
    states: u64,
    depth: usize,
}

impl Measure {
    const ONE: Self = Self { values: 1, steps: 1, reads: 0, states: 0, depth: 1 };

    /// Adds the steps for a name or a constant of this size.
    fn plus_text(mut self, bytes: usize) -> Self {
        self.steps = self.steps.saturating_add(u64::try_from(bytes / BYTES_A_STEP).unwrap_or(u64::MAX));
        self
    }

    /// Adds the measure of an inner part.
    fn add_inner(&mut self, inner: Self) {
        self.values = self.values.saturating_add(inner.values);
        self.steps = self.steps.saturating_add(inner.steps);
        self.reads = self.reads.saturating_add(inner.reads);
        self.states = self.states.saturating_add(inner.states);
        self.depth = self.depth.max(inner.depth.saturating_add(1));
    }
}

/// The measurement of a schema from its root. Each definition is measured once.
struct Reader<'s> {
    root: &'s Value,
    known: BTreeMap<&'s str, Measure>,
    open: Vec<&'s str>,
    patterns: usize,
}

impl<'s> Reader<'s> {
    /// Measures a part of the schema with everything below it. `level` is its depth, from 0 at the root.
    fn measure_schema(&mut self, schema: &'s Value, level: usize) -> Result<Measure, String> {
        let mut measure = Measure::ONE;
        let too_deep =
            || format!("the schema nests deeper than {MAX_DEPTH} levels when each $ref is replaced: make it flatter");
        if level > MAX_DEPTH {
            return Err(too_deep());
        }
        match schema {
            Value::Object(fields) => {
                for (keyword, value) in fields {
                    measure.add_inner(self.measure_keyword(keyword, value, level)?);
                    let units = |table: &[(&str, u64)]| {
                        table.iter().find(|(known, _)| known == keyword).map_or(0, |(_, units)| *units)
                    };
                    measure.steps = measure.steps.saturating_add(units(&WEIGHTS));
                    measure.reads = measure.reads.saturating_add(units(&READERS));
                }
            }
            Value::Array(items) => {
                for item in items {
                    measure.add_inner(self.measure_schema(item, level + 1)?);
                }
            }
            Value::String(text) => measure = measure.plus_text(text.len()),
            _ => {}
        }
        if measure.depth > MAX_DEPTH { Err(too_deep()) } else { Ok(measure) }
    }

    /// Measures the value of a keyword. Refuses keywords whose work has no bound.
    fn measure_keyword(&mut self, keyword: &'s str, value: &'s Value, level: usize) -> Result<Measure, String> {
        if let Some((_, remedy)) = REFUSED.iter().find(|(refused, _)| *refused == keyword) {
            return Err(format!("{keyword} is not available in schemas here: {remedy}"));
        }
        match (keyword, value) {
            ("$ref", Value::String(target)) => self.measure_reference(target),
            ("$schema", Value::String(draft)) => {
                let known = level == 0 && DRAFTS.iter().any(|known| draft.trim_end_matches('#').ends_with(known));
                if known {
                    Ok(Measure::ONE)
                } else {
                    Err("$schema: name draft 6, 7, 2019-09 or 2020-12 at the top of the schema, or leave it out"
                        .to_owned())
                }
            }
            ("format", Value::String(format)) if format == "regex" => {
                Err("format regex is not available in schemas here: use pattern".to_owned())
            }
            ("pattern", Value::String(source)) => self.measure_pattern(source),
            (_, Value::String(_)) if TEXTS.contains(&keyword) => Ok(Measure::ONE),
            _ if DATA.contains(&keyword) => {
                let size = size(value);
                Ok(Measure { values: size.values(), steps: size.nodes, ..Measure::ONE }.plus_text(size.bytes))
            }
            (_, Value::Object(named)) if NAMED.contains(&keyword) => {
                let mut measure = Measure::ONE;
                for (name, schema) in named {
                    measure = measure.plus_text(name.len());
                    if keyword == "patternProperties" {
                        measure.add_inner(self.measure_pattern(name)?);
                    }
                    measure.add_inner(self.measure_schema(schema, level + 1)?);
                }
                Ok(measure)
            }
            _ => self.measure_schema(value, level + 1),
        }
    }

    /// Measures a definition at the root, referred to by `#/$defs/<name>` or `#/definitions/<name>`.
    fn measure_reference(&mut self, target: &'s str) -> Result<Measure, String> {
        if let Some(known) = self.known.get(target) {
            return Ok(*known);
        }
        let shown = text::display(target, 120);
        let by_name = |place: &str| target.strip_prefix("#/")?.strip_prefix(place)?.strip_prefix('/');
        let found = ["$defs", "definitions"].into_iter().find_map(|place| Some((place, by_name(place)?)));
        let Some((place, name)) = found.filter(|(_, name)| !name.contains(['/', '~', '%'])) else {
            return Err(format!(
                "$ref: {shown} is not in this schema by name: write #/$defs/<name>, with a name without /, ~ and %"
            ));
        };
        let Some(schema) = self.root.get(place).and_then(|definitions| definitions.get(name)) else {
            return Err(format!("$ref: there is no {shown} in this schema: define it under {place}"));
        };
        if self.open.contains(&target) {
            return Err(format!(
                "$ref: {shown} refers to itself, which is not available in schemas here: write out as many levels as are needed"
            ));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} definitions refer to one another in a row: make it flatter"));
        }
        self.open.push(target);
        let measure = self.measure_schema(schema, 0)?;
        self.open.pop();
        self.known.insert(target, measure);
        Ok(measure)
    }

    /// Measures a regular expression. Refuses an invalid or a too long one.
    fn measure_pattern(&mut self, source: &str) -> Result<Measure, String> {
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            return Err(format!("the schema has more than {MAX_PATTERNS} patterns: use fewer"));
        }
        let refusal = |why: &str| format!("pattern: {} {why}", text::display(source, 120));
        if source.chars().count() > pattern::MAX_PATTERN {
            return Err(refusal(&format!("is longer than {} characters: make it shorter", pattern::MAX_PATTERN)));
        }
        re2::read(source).map_err(|why| refusal(&why))?;
        Ok(Measure { states: u64::try_from(pattern::states(source)).unwrap_or(u64::MAX), ..Measure::ONE })
    }
}

#[cfg(test)]
mod cost_table;
#[cfg(test)]
mod cost_tests;
#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
