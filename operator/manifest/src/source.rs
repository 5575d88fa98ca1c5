//! YAML and JSON as trees in which every key and value has its position in the text.

use std::{fmt, ops::Range, thread};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Location, NonFiniteFloatPolicy, Spanned};
use signoff_expr::number;

use crate::unreadable;

/// A value and its position.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// The range of the text, in bytes.
    pub at: Range<usize>,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub enum Value {
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// An object with its fields in the order of the text.
    Map(Vec<(Key, Node)>),
}

/// A field's name and its position.
#[derive(Clone, Debug)]
pub struct Key {
    /// The name.
    pub name: String,
    /// The range of the text, in bytes.
    pub at: Range<usize>,
}

/// The reason why a document could not be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The error, in one sentence.
    pub why: String,
    /// The range of the text, in bytes.
    pub at: Range<usize>,
}

impl Node {
    /// Returns the value of a field of a map.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entry(name).map(|(_, node)| node)
    }

    /// Returns a field of a map with its key.
    pub fn entry(&self, name: &str) -> Option<(&Key, &Node)> {
        self.fields().iter().find(|(key, _)| key.name == name).map(|(key, node)| (key, node))
    }

    /// Returns the fields of a map, or an empty list for another value.
    pub fn fields(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Map(fields) => fields,
            _ => &[],
        }
    }

    /// Returns the items of a list, or an empty list for another value.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the text, or `None` for another value.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// Returns the value as JSON, without positions.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => number.clone().into(),
            Value::Text(text) => text.clone().into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(fields) => {
                serde_json::Value::Object(fields.iter().map(|(key, node)| (key.name.clone(), node.to_json())).collect())
            }
        }
    }

    /// Returns the kind of the value, with its article.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "an object",
        }
    }

    /// Whether the value is a list or an object in flow style. A value in block style begins at its first item or key,
    /// which can itself be in flow style.
    pub fn is_flow_style(&self, text: &str) -> bool {
        let (bracket, first) = match &self.value {
            Value::List(items) => ('[', items.first().map(|item| item.at.start)),
            Value::Map(fields) => ('{', fields.first().map(|(key, _)| key.at.start)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => return false,
        };
        text.get(self.at.start..).is_some_and(|rest| rest.starts_with(bracket)) && first != Some(self.at.start)
    }

    /// Replaces each 0 that was written as another number by the smallest double, which [`number::problem`] finds.
    fn mark_lost_numbers(&mut self, text: &str) {
        match &mut self.value {
            Value::Number(number) if number.as_f64() == Some(0.0) => {
                let lost = text.get(self.at.clone()).and_then(number::lost);
                lost.into_iter().for_each(|lost| *number = lost);
            }
            Value::List(items) => items.iter_mut().for_each(|item| item.mark_lost_numbers(text)),
            Value::Map(fields) => fields.iter_mut().for_each(|(_, node)| node.mark_lost_numbers(text)),
            _ => {}
        }
    }

    /// Adds `by` bytes to all positions.
    fn shift(&mut self, by: usize) {
        self.at = self.at.start + by..self.at.end + by;
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.shift(by)),
            Value::Map(fields) => {
                for (key, node) in fields {
                    key.at = key.at.start + by..key.at.end + by;
                    node.shift(by);
                }
            }
            _ => {}
        }
    }
}

/// The maximum nesting of lists and objects, for the small stack of a worker thread.
const MAX_DEPTH: usize = 40;

/// The maximum nesting of a value typed for a decision: the arguments of a call have 64 levels.
const MAX_TYPED_DEPTH: usize = 100;
/// The size of the stack for reading a value that was typed for a decision, in bytes.
const STACK: usize = 16 * 1024 * 1024;

/// The rules for unquoted words and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// Like kubectl: `yes` is true and `010` is eight.
    Yaml11,
    /// Only `true` and `false` are booleans.
    Yaml12,
}

/// Returns all documents of a text that are not empty, as kubectl reads them. An unreadable document does not hide the
/// next one.
pub fn documents(text: &str) -> Vec<Result<Node, Unreadable>> {
    let read = document_ranges(text).into_iter().map(|part| parse_document(text, part, Dialect::Yaml11));
    read.filter(|read| !read.as_ref().is_ok_and(Node::is_null)).collect()
}

/// Parses the document of a node again, as YAML 1.2.
///
/// # Errors
/// The document is not valid YAML 1.2.
pub fn in_yaml_1_2(text: &str, node: &Node) -> Result<Node, Unreadable> {
    let part = document_ranges(text).into_iter().find(|part| part.contains(&node.at.start));
    parse_document(text, part.unwrap_or(0..text.len()), Dialect::Yaml12)
}

/// Returns the single value of a text that a person typed for a decision, YAML or JSON. A number that no double can
/// hold becomes one that [`number::problem`] finds. With `is_strict`, `yes` is a text, and only `true` and `false` are
/// booleans.
///
/// # Errors
/// The problem, as one sentence.
pub fn typed(text: &str, is_strict: bool) -> Result<serde_json::Value, String> {
    let read = || {
        let options = serde_saphyr::options! {
            strict_booleans: is_strict,
            with_snippet: false,
            non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
            budget: serde_saphyr::budget! { max_depth: MAX_TYPED_DEPTH },
        };
        let read = serde_saphyr::from_str_with_options(text, options);
        let mut node: Node = read.map_err(|error| error.to_string())?;
        node.mark_lost_numbers(text);
        Ok(node.to_json())
    };
    // The stack of the caller may be too small for `MAX_TYPED_DEPTH` levels.
    thread::scope(|scope| match thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read) {
        Ok(reader) => reader.join().unwrap_or_else(|_| Err("it cannot be read".to_owned())),
        Err(why) => Err(format!("no thread can be started to read it: {why}")),
    })
}

fn parse_document(text: &str, part: Range<usize>, dialect: Dialect) -> Result<Node, Unreadable> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: dialect == Dialect::Yaml11,
        strict_booleans: dialect == Dialect::Yaml12,
        with_snippet: false,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
    };
    match serde_saphyr::from_str_with_options::<Node>(&text[part.clone()], options) {
        Ok(mut node) => {
            node.mark_lost_numbers(&text[part.clone()]);
            node.shift(part.start);
            Ok(node)
        }
        Err(error) => {
            let part_at = error.location().map_or(0, |place| offset(&text[part.clone()], &place));
            if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = error.without_snippet() {
                let why = format!("duplicate field {key} in the same object: keep one of them");
                return Err(Unreadable { why, at: part.start + part_at..part.start + part_at });
            }
            let (at, why) = unreadable::explain(&text[part.clone()], part_at, &reader_message(&error));
            Err(Unreadable { why, at: part.start + at..part.start + at })
        }
    }
}

/// Returns the reader's message on one line, without the position and without advice for programmers.
fn reader_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let first = text.lines().next().unwrap_or_default();
    let message = match first.split_once(" at line ") {
        Some((message, _)) => message,
        None => first,
    };
    message.trim_end_matches([':', ',']).to_owned()
}

/// Returns the ranges of the documents of a text. A line that starts with `---` begins a document, and a line that
/// starts with `...` ends one, also inside a text.
fn document_ranges(text: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut line_start) = (0, 0);
    for line in text.split_inclusive('\n') {
        let marks = |mark: &str| {
            line.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
        };
        let is_content = |line: &str| !line.is_empty() && !line.starts_with(['#', '%']);
        let has_content = || text[start..line_start].lines().any(is_content);
        if marks("...") {
            parts.push(start..line_start);
            start = line_start + line.len();
        } else if marks("---") && has_content() {
            parts.push(start..line_start);
            start = line_start;
        }
        line_start += line.len();
    }
    parts.push(start..line_start);
    parts
}

/// Returns the byte at a line and a column, both from 1.
fn offset(text: &str, place: &Location) -> usize {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).saturating_sub(1);
    let mut lines = text.split_inclusive('\n');
    let before: usize = lines.by_ref().take(number(place.line())).map(str::len).sum();
    let line = lines.next().unwrap_or_default();
    before + line.char_indices().nth(number(place.column())).map_or(line.trim_end().len(), |(at, _)| at)
}

/// Returns the range of a location, in bytes.
fn byte_range(location: &Location) -> Range<usize> {
    let span = location.span();
    let number = |given: Option<u64>| given.and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
    let start = number(span.byte_offset());
    start..start + number(span.byte_len())
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { value: read.value, at: byte_range(&read.referenced) })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        // The plan refuses the largest double, and names its path.
        let held = if number.is_infinite() { f64::MAX.copysign(number) } else { number };
        Number::from_f64(held).map(Value::Number).ok_or_else(|| E::custom("JSON has no number that is none"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let key = Key { at: byte_range(&key.referenced), name: key.value };
            fields.push((key, map.next_value()?));
        }
        Ok(Value::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn every_key_and_value_has_its_position() {
        let text =
            "# first\na: 1\n---\nlist:\n  - name: äb\n    deep: {x: [yes, 'q u']}\n    text: |\n      one\n      two\n";
        let read: Vec<Node> = documents(text).into_iter().map(Result::unwrap).collect();
        assert_eq!(read.len(), 2);
        let item = &read[1].get("list").unwrap().items()[0];
        let (key, name) = item.entry("name").unwrap();
        assert_eq!((&text[key.at.clone()], &text[name.at.clone()]), ("name", "äb"));
        let quoted = &item.get("deep").unwrap().get("x").unwrap().items()[1];
        assert_eq!(&text[quoted.at.clone()], "'q u'");
        let block = item.get("text").unwrap();
        assert!(text[block.at.clone()].starts_with("one"), "{block:?}");
    }

    #[test]
    fn a_document_that_cannot_be_read_does_not_hide_the_next() {
        let read = documents("a: [1\n---\nb: 2\n---\nc: 'x\n");
        assert!(read[0].is_err() && read[1].is_ok() && read[2].is_err(), "{read:?}");
        let problem = read[0].as_ref().unwrap_err();
        assert_eq!(
            (problem.why.as_str(), problem.at.start),
            ("not valid YAML: unclosed bracket '[': close it with ]", 3)
        );
    }

    #[test]
    fn a_document_can_end_explicitly() {
        let read: Vec<Node> = documents("a: 1\n...\n---\nb: 2\n...\n").into_iter().map(Result::unwrap).collect();
        assert_eq!(read.len(), 2);
        assert!(read[0].get("a").is_some() && read[1].get("b").is_some());
    }

    #[test]
    fn a_duplicate_field_is_named() {
        let read = documents("spec:\n  name: a\n  name: b\n");
        let problem = read[0].as_ref().unwrap_err();
        assert_eq!(problem.why, "duplicate field name in the same object: keep one of them");
        assert_eq!(problem.at.start, 18);
    }

    #[test]
    fn words_and_numbers_are_read_as_the_dialect_has_them() {
        let text = "x: 1\n---\nlist: [yes, off, True, 010]\n";
        let node = documents(text).remove(1).unwrap();
        assert_eq!(node.get("list").unwrap().to_json(), serde_json::json!([true, false, true, 8]));
        let again = in_yaml_1_2(text, &node).unwrap();
        assert_eq!(again.get("list").unwrap().to_json(), serde_json::json!(["yes", "off", true, 10.0]));
        assert_eq!(again.get("list").unwrap().at, node.get("list").unwrap().at);
    }

    #[test]
    fn a_number_that_no_double_can_hold_is_not_rounded() {
        let node = documents(
            "a: [0, 0.0, -0e5, 1.5, 0x0]\nb: [1e-400, -0.0001e-500]\nc: 123456789012345678901234567890\nd: -1e400\n",
        )
        .remove(0)
        .unwrap();
        let of = |name: &str| number::first_inexact(&node.get(name).unwrap().to_json());
        assert_eq!(of("a"), None);
        assert_eq!(of("b"), Some(("/0".to_owned(), number::Inexact::TooSmall)));
        assert_eq!(of("c"), Some((String::new(), number::Inexact::Beyond)));
        assert_eq!(of("d"), Some((String::new(), number::Inexact::Beyond)));
        assert!(documents("a: .nan").remove(0).is_err());
    }

    #[test]
    fn a_typed_number_that_no_double_can_hold_is_found() {
        let found = |text: &str| number::problem(&typed(text, true).unwrap()).unwrap_or_default();
        assert!(
            found("{a: {n: [0, 1e400]}}").starts_with("the number at /a/n/1 is beyond ±2^53"),
            "{}",
            found("1e400")
        );
        assert!(found("a: -1e-400").starts_with("the number at /a is too close to 0"));
        assert_eq!(found("{a: 0.5, b: 0e5, c: '1e400'}"), "");
        assert_eq!(typed("[yes, true]", true), Ok(serde_json::json!(["yes", true])));
        assert_eq!(typed("[yes, true]", false), Ok(serde_json::json!([true, true])));
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(typed(&deep(90), true).is_ok() && typed(&deep(200), true).is_err());
        assert!(typed("{a: 1, a: 2}", true).is_err());
    }

    #[test]
    fn a_document_of_comments_is_skipped() {
        assert!(documents("# nothing\n---\n# here\n").is_empty());
    }
}
