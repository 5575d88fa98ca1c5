//! A reader of JSON that tracks the path of each value, and that reads every number: exactly, or as a number that
//! [`number::inexact`] refuses.
//!
//! `serde_json` refuses a whole answer because of one number that no double can hold, and reads another such number
//! as 0. Otherwise the two readers agree.

use serde_json::{Map, Value};

use crate::{
    number::{self, inexact},
    text::{clean, display},
};

/// The maximum nesting of lenient reading, as in `serde_json`.
const MAX_DEPTH: usize = 127;
/// The maximum length of a text or pointer in a problem, in characters.
const SHOWN_CHARS: usize = 80;

/// The error of a text that is not JSON, or that JSON readers would read differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The JSON pointer of the value; empty for the whole.
    pub pointer: String,
    /// The problem with its remedy.
    pub what: String,
    /// The bytes that were read.
    pub(crate) read: usize,
}

/// The rules of a reading.
#[derive(Clone, Copy)]
struct Rules {
    depth: usize,
    /// Whether duplicate keys and numbers that no double can hold are refused, and texts are cleaned immediately.
    strict: bool,
}

/// Reads one JSON value on which all readers agree: no duplicate key, no number that a double cannot hold, and at most
/// `depth` levels deep. Its texts and keys are cleaned.
///
/// # Errors
/// The place and the text of the first problem.
pub fn read_exact(text: &str, depth: usize) -> Result<Value, Problem> {
    read_whole(text, Rules { depth, strict: true })
}

/// Reads one JSON value without anything after it. A number that no double can hold becomes one that [`inexact`]
/// refuses.
///
/// # Errors
/// The text of the problem.
pub fn read(text: &str) -> Result<Value, Problem> {
    read_whole(text, Rules { depth: MAX_DEPTH, strict: false })
}

/// Reads the value at the beginning of a text, and returns it with its size in bytes.
///
/// # Errors
/// The number of bytes that were read, if the text does not begin with JSON.
pub(super) fn read_first(text: &str) -> Result<(Value, usize), usize> {
    let mut reader = Reader { text, at: 0, path: Vec::new(), rules: Rules { depth: MAX_DEPTH, strict: false } };
    match reader.read_value(0) {
        Ok(value) => Ok((value, reader.at)),
        Err(problem) => Err(problem.read),
    }
}

fn read_whole(text: &str, rules: Rules) -> Result<Value, Problem> {
    let mut reader = Reader { text, at: 0, path: Vec::new(), rules };
    let value = reader.read_value(0)?;
    reader.skip_blank();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.problem("there is text after the JSON; leave it out")),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    path: Vec<String>,
    rules: Rules,
}

type Read<T> = Result<T, Problem>;

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn problem(&self, what: impl Into<String>) -> Problem {
        let pointer = display(&number::pointer(&self.path), SHOWN_CHARS);
        Problem { pointer, what: what.into(), read: self.at }
    }

    /// Returns the problem of a text that is not JSON at this position.
    fn invalid_json(&self, expected: &str) -> Problem {
        let what = match self.peek() {
            None => "the text ends too early".to_owned(),
            // A lenient reading is one of many attempts, and its problem is not shown.
            Some(_) if !self.rules.strict => expected.to_owned(),
            Some(_) => {
                let before = self.text.get(..self.at).unwrap_or_default();
                format!("expected {expected} at character {}", before.chars().count() + 1)
            }
        };
        self.problem(format!("invalid JSON: {what}"))
    }

    /// Adds the name of a value to the path. A lenient reading has no messages, and so no path.
    fn push_name(&mut self, name: impl FnOnce() -> String) {
        if self.rules.strict {
            self.path.push(name());
        }
    }

    fn read_value(&mut self, level: usize) -> Read<Value> {
        self.skip_blank();
        match self.peek() {
            Some(b'{') => self.read_object(level + 1),
            Some(b'[') => self.read_array(level + 1),
            Some(b'"') => self.read_text().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.read_number(),
            Some(b't') => self.read_word("true", Value::Bool(true)),
            Some(b'f') => self.read_word("false", Value::Bool(false)),
            Some(b'n') => self.read_word("null", Value::Null),
            _ => Err(self.invalid_json("a value")),
        }
    }

    fn read_word(&mut self, word: &str, value: Value) -> Read<Value> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.invalid_json("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn enter(&mut self, level: usize) -> Read<()> {
        self.at += 1;
        if level > self.rules.depth {
            return Err(self.problem(format!("nested more than {} levels deep", self.rules.depth)));
        }
        self.skip_blank();
        Ok(())
    }

    fn read_array(&mut self, level: usize) -> Read<Value> {
        self.enter(level)?;
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.push_name(|| items.len().to_string());
            items.push(self.read_value(level)?);
            self.path.pop();
            self.skip_blank();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                _ => return Err(self.invalid_json("`,` or `]`")),
            }
        }
    }

    fn read_object(&mut self, level: usize) -> Read<Value> {
        self.enter(level)?;
        let mut fields = Map::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(fields));
        }
        loop {
            self.skip_blank();
            if self.peek() != Some(b'"') {
                return Err(self.invalid_json("a key in quotes"));
            }
            let key = self.read_text()?;
            self.push_name(|| key.clone());
            if self.rules.strict && fields.contains_key(&key) {
                return Err(self.problem("the key is there twice; send it once"));
            }
            self.skip_blank();
            if self.peek() != Some(b':') {
                return Err(self.invalid_json("`:`"));
            }
            self.at += 1;
            let value = self.read_value(level)?;
            fields.insert(key, value);
            self.path.pop();
            self.skip_blank();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(fields));
                }
                _ => return Err(self.invalid_json("`,` or `}`")),
            }
        }
    }

    /// Reads a quoted text. `serde_json` decodes its escapes.
    fn read_text(&mut self) -> Read<String> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            match bytes.get(self.at) {
                None => return Err(self.invalid_json("")),
                Some(b'"') => break,
                Some(b'\\') => self.at = (self.at + 2).min(bytes.len()),
                Some(0..=0x1f) => {
                    return Err(self.invalid_json("an escape such as \\n in place of a control character"));
                }
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        let quoted = self.text.get(start..self.at).unwrap_or_default();
        let read: String = serde_json::from_str(quoted)
            .map_err(|_| self.problem("invalid JSON: a text has an escape that stands for no character"))?;
        Ok(if self.rules.strict { clean(&read) } else { read })
    }

    fn skip_digits(&mut self) -> Read<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.invalid_json("a digit")) } else { Ok(()) }
    }

    fn read_number(&mut self) -> Read<Value> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
            if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.invalid_json("no digit after a leading 0"));
            }
        } else {
            self.skip_digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        let written = self.text.get(start..self.at).unwrap_or_default();
        let Some(number) = number::parse(written) else { return Err(self.invalid_json("a number")) };
        match inexact(&number).filter(|_| self.rules.strict) {
            Some(why) => Err(self.problem(format!("{} is {why}", display(written, SHOWN_CHARS)))),
            None => Ok(Value::Number(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::number::first_inexact;

    #[test]
    fn a_number_that_no_double_holds_leaves_the_rest_readable() {
        let text = r#"{"status": "ok", "id": 123456789012345678901234567890, "n": [1e400, -1e-400, 0.5]}"#;
        let value = read(text).unwrap();
        assert_eq!((&value["status"], &value["n"][2]), (&json!("ok"), &json!(0.5)));
        for pointer in ["/id", "/n/0", "/n/1"] {
            assert!(first_inexact(value.pointer(pointer).unwrap()).is_some(), "{pointer}");
        }
    }

    #[test]
    fn an_exact_reading_names_the_place_and_the_remedy() {
        let problem_of = |text: &str| {
            let problem = read_exact(text, 64).unwrap_err();
            format!("{}: {}", problem.pointer, problem.what)
        };
        assert_eq!(
            problem_of(r#"{"customer": {"id": 1234567890123456789}}"#),
            "/customer/id: 1234567890123456789 is beyond ±2^53, where JSON readers round differently; write it as a text"
        );
        assert_eq!(
            problem_of("[0, -1e-400]"),
            "/1: -1e-400 is too close to 0, and JSON readers take it for 0; write it as a text"
        );
        assert_eq!(problem_of(r#"{"a/b": 1, "a/b": 2}"#), "/a~1b: the key is there twice; send it once");
        assert_eq!(problem_of("[1] x"), ": there is text after the JSON; leave it out");
    }

    fn json_text() -> impl Strategy<Value = String> {
        prop_oneof![
            r#"[\[\]{}":,\\ua-fntrslE0-9 .+-]{0,40}"#,
            any::<String>(),
            any::<f64>().prop_map(|number| format!("[{number:e}, {number}]")),
            (any::<i64>(), any::<String>()).prop_map(|(n, t)| json!({"n": n, "t": {"x": [t, null, true]}}).to_string()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_reader_agrees_with_serde_json(text in json_text()) {
            match (serde_json::from_str::<Value>(&text), read(&text)) {
                // The readers differ only about numbers that no double can hold.
                (Ok(theirs), Ok(ours)) if first_inexact(&ours).is_none() => prop_assert_eq!(ours, theirs),
                (Ok(_), Ok(_)) => {}
                (Err(theirs), Ok(ours)) => prop_assert!(first_inexact(&ours).is_some(), "{} but {}", ours, theirs),
                (Ok(theirs), Err(why)) => prop_assert!(false, "{:?} but {}", why, theirs),
                (Err(_), Err(_)) => {}
            }
        }
    }
}
