//! YAML of the administrator as types *(pure)*.
//!
//! **Invariant:** an error has the place and what is expected, and never a value: a token may stand in the wrong place.

use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

/// The beginnings of errors that have a value, which ends before what is expected.
const WITH_VALUE: [&str; 5] = ["invalid type", "invalid value", "invalid length", "unknown field", "unknown variant"];

/// Returns the value of a text.
///
/// # Errors
/// The line and the column at which it cannot be read.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        let why = match error.without_snippet() {
            serde_saphyr::Error::DuplicateMappingKey { .. } => "duplicate key",
            _ => "not YAML",
        };
        match error.location() {
            Some(place) => format!("{why}, at line {}, column {}", place.line(), place.column()),
            None => why.to_owned(),
        }
    })
}

/// Returns a value as a type.
///
/// # Errors
/// The value that is expected.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| without_value(&error))
}

/// Returns an error of a type without the value, which may have any text in it. What is expected comes last, and is
/// text of the type.
fn without_value(error: &Error) -> String {
    let text = error.to_string();
    let kind = WITH_VALUE.into_iter().find(|kind| text.starts_with(*kind));
    match (kind, text.rsplit_once(", expected ")) {
        (Some(kind), Some((_, expected))) => format!("{kind}, expected {expected}"),
        (Some(kind), None) => kind.to_owned(),
        // The name is one of the type.
        (None, _) if text.starts_with("missing field ") => text,
        (None, _) => "not a valid value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        #[allow(dead_code)] // Only errors are read.
        name: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Standard,
    }

    fn wrong<T: DeserializeOwned + std::fmt::Debug>(text: &str) -> String {
        typed::<T>(read(text).unwrap()).unwrap_err()
    }

    #[test]
    fn an_error_says_what_is_expected_and_not_what_stands_there() {
        for (said, expected) in [
            (wrong::<Fields>("xoxb-SECRET"), "invalid type, expected struct Fields"),
            (wrong::<Fields>("{name: 7}"), "invalid type, expected a string"),
            (wrong::<Fields>("{name: [SECRET]}"), "invalid type, expected a string"),
            (wrong::<Fields>("{name: x, \"SECRET, expected `y\": 1}"), "unknown field, expected `name`"),
            (wrong::<Fields>("{}"), "missing field `name`"),
            (wrong::<Kind>("\"SECRET`, expected \\\"x\""), "unknown variant, expected `standard`"),
            (wrong::<Vec<bool>>("[true, \"SECRET, expected SECRET\"]"), "invalid type, expected a boolean"),
            (wrong::<BTreeMap<String, u8>>("{a: 734859}"), "invalid value, expected u8"),
        ] {
            assert_eq!(said, expected);
        }
        assert!(typed::<Kind>(read("standard").unwrap()).is_ok());
    }

    #[test]
    fn a_text_that_is_no_yaml_is_told_by_its_place() {
        for (text, why) in [
            ("a: 1\nb: [SECRET", "not YAML, at line "),
            ("a: 1\nSECRET: 2\nSECRET: 3", "duplicate key, at line "),
            ("a: *SECRET", "not YAML"),
            ("SECRET: a: b", "not YAML, at line 1"),
            ("\tSECRET: \"x", "not YAML"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.starts_with(why) && !said.contains("SECRET") && !said.contains('\n'), "{text}: {said}");
        }
    }
}
