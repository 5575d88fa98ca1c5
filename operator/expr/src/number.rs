//! The numbers on which all JSON readers agree.
//!
//! A number of an answer that no double can hold stays in its JSON value as a number out of range: one beyond ±2^53, or
//! one closer to 0 than the smallest normal double. So the rest of the answer can be read, and reading that number is
//! an error in conditions, in templates and in schemas.

use std::fmt;

use serde_json::{Number, Value};

use crate::text::{self, display};

/// The maximum length of a pointer in a message, in bytes: a hostile answer can have one long key before many numbers.
const POINTER: usize = 256;
/// The maximum magnitude of a number, 2^53: beyond it doubles skip integers.
const MAX_EXACT: u64 = 1 << 53;

/// The maximum length of a pointer in a problem, in characters.
const SHOWN_CHARS: usize = 120;

/// The reason why JSON readers disagree about a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inexact {
    /// Doubles skip integers of this size, or end before it.
    Beyond,
    /// The number is not 0, and doubles of this size lose digits or become 0.
    TooSmall,
}

/// The problem without the number, and the remedy.
impl fmt::Display for Inexact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Beyond => "beyond ±2^53, where JSON readers round differently; write it as a text",
            Self::TooSmall => "too close to 0, and JSON readers take it for 0; write it as a text",
        })
    }
}

/// Returns the reason why a number cannot be read, or `None` if all readers agree on it.
#[must_use]
pub fn inexact(number: &Number) -> Option<Inexact> {
    if let Some(size) = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs)) {
        return (size > MAX_EXACT).then_some(Inexact::Beyond);
    }
    // Every double from 2^53 on is an integer, whether the text had an exponent or not.
    match number.as_f64().map(f64::abs) {
        Some(size) if size < MAX_EXACT as f64 => (size != 0.0 && size < f64::MIN_POSITIVE).then_some(Inexact::TooSmall),
        _ => Some(Inexact::Beyond),
    }
}

/// Returns the JSON pointer of the first number in a value that cannot be read, with the reason.
#[must_use]
pub fn first_inexact(value: &Value) -> Option<(String, Inexact)> {
    // Most values have no such number, and no path is needed.
    if !has_inexact(value) {
        return None;
    }
    let mut path = Vec::new();
    find(value, &mut path, &|found| match found {
        Value::Number(number) => inexact(number),
        _ => None,
    })
    .map(|why| (pointer(&path), why))
}

/// Returns the problem and the remedy of the first number in a value that cannot be read: `the number at /a/0 is beyond
/// …`.
#[must_use]
pub fn problem(value: &Value) -> Option<String> {
    first_inexact(value).map(|(pointer, why)| match pointer.as_str() {
        "" => format!("the number is {why}"),
        place => format!("the number at {} is {why}", display(place, SHOWN_CHARS)),
    })
}

fn has_inexact(value: &Value) -> bool {
    match value {
        Value::Number(number) => inexact(number).is_some(),
        Value::Array(items) => items.iter().any(has_inexact),
        Value::Object(fields) => fields.values().any(has_inexact),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Walks a value and its parts, and returns the first result of `wanted`. `path` is then the path of the part for which
/// `wanted` gave the result.
pub fn find<T>(value: &Value, path: &mut Vec<String>, wanted: &impl Fn(&Value) -> Option<T>) -> Option<T> {
    if let Some(found) = wanted(value) {
        return Some(found);
    }
    let mut find_within = |name: String, inner: &Value| {
        path.push(name);
        let found = find(inner, path, wanted);
        if found.is_none() {
            path.pop();
        }
        found
    };
    match value {
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| find_within(index.to_string(), item)),
        Value::Object(fields) => fields.iter().find_map(|(name, inner)| find_within(name.clone(), inner)),
        _ => None,
    }
}

/// Renders a path as a JSON pointer (RFC 6901) for a message, cut if it is long. Empty for the whole value.
pub fn pointer<S: AsRef<str>>(path: &[S]) -> String {
    let mut pointer = String::new();
    for name in path {
        if pointer.len() > POINTER {
            pointer.push('…');
            break;
        }
        let name = name.as_ref();
        let shown = text::first(name, POINTER);
        pointer.push('/');
        pointer.push_str(&shown.replace('~', "~0").replace('/', "~1"));
        if shown.len() < name.len() {
            pointer.push('…');
            break;
        }
    }
    pointer
}

/// Returns the number that replaces a 0 if the written text is not 0, or `None` if it is 0.
#[must_use]
pub fn lost(written: &str) -> Option<Number> {
    let digits = written.split(['e', 'E']).next().unwrap_or_default();
    let double = written.parse::<f64>().ok().filter(|double| *double == 0.0)?;
    let is_lost = digits.contains(|c| ('1'..='9').contains(&c));
    is_lost.then(|| Number::from_f64(f64::from_bits(1).copysign(double)))?
}

/// Parses the text of a JSON number: to the exact integer, else to the nearest double. A number that no double can hold
/// becomes one that [`inexact`] refuses.
pub(super) fn parse(text: &str) -> Option<Number> {
    if let Ok(whole) = text.parse::<u64>() {
        return Some(whole.into());
    }
    if let (Ok(whole), true) = (text.parse::<i64>(), text != "-0") {
        return Some(whole.into());
    }
    let double = text.parse::<f64>().ok()?;
    let held = if double.is_infinite() { f64::MAX.copysign(double) } else { double };
    lost(text).or_else(|| Number::from_f64(held))
}

#[cfg(test)]
mod reading_tests;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn inexact_of(text: &str) -> Option<Inexact> {
        inexact(&parse(text).unwrap())
    }

    #[test]
    fn a_number_is_read_if_a_double_holds_it_and_its_neighbours() {
        for text in ["0", "-0", "0.0", "0e9", "0E-400", "1.0", "1e3", "0.1", "-1.5e-300", "9007199254740992"] {
            assert_eq!(inexact_of(text), None, "{text}");
        }
        for text in ["9007199254740993", "-9007199254740993", "9007199254740993.0", "12345678901234567890.5"] {
            assert_eq!(inexact_of(text), Some(Inexact::Beyond), "{text}");
        }
        for text in ["18446744073709551616", "1e16", "1e400", "-1e400", "1e99999999999999999999"] {
            assert_eq!(inexact_of(text), Some(Inexact::Beyond), "{text}");
        }
        for text in ["1e-400", "-1e-400", "5e-324", "1e-310", "0.0000000001e-390", "1e-99999999999999999999"] {
            assert_eq!(inexact_of(text), Some(Inexact::TooSmall), "{text}");
        }
    }

    #[test]
    fn a_number_out_of_range_keeps_its_sign() {
        assert!(parse("-1e400").unwrap().as_f64().unwrap() < 0.0);
        assert!(parse("-1e-400").unwrap().as_f64().unwrap().is_sign_negative());
        assert!(parse("-0").unwrap().as_f64().unwrap().is_sign_negative());
    }

    #[test]
    fn the_first_number_that_cannot_be_read_is_named_by_its_pointer() {
        let value = json!({"a": [1, {"b/c": {"~": 9_007_199_254_740_993_u64}}], "d": 1e300});
        assert_eq!(first_inexact(&value), Some(("/a/1/b~1c/~0".to_owned(), Inexact::Beyond)));
        assert_eq!(first_inexact(&json!(5e-324)), Some((String::new(), Inexact::TooSmall)));
        assert_eq!(first_inexact(&json!({"a": [1, "9007199254740993", null, 0.5]})), None);
        let expected = "the number at /n/0 is too close to 0, and JSON readers take it for 0; write it as a text";
        assert_eq!(problem(&json!({"n": [5e-324]})).as_deref(), Some(expected));
    }
}
