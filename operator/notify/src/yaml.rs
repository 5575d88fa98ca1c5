//! Parsing of the administrator's YAML files *(pure)*.
//!
//! **Invariant:** an error has the position and the expected type, and never a value: an administrator may have written
//! a token into a wrong field.

use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

/// The beginnings of error messages of serde that contain a value before the expectation.
const WITH_VALUE: [&str; 5] = ["invalid type", "invalid value", "invalid length", "unknown field", "unknown variant"];

/// Parses a YAML text.
///
/// # Errors
/// The text is not YAML, or has a duplicate key; with the line and the column.
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

/// Converts a value to a type.
///
/// # Errors
/// The value does not fit the type; with the expectation.
pub(crate) fn convert<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| message_without_value(&error))
}

/// Returns the message of an error without the value, which may contain any text. serde writes the expectation last,
/// and it consists only of names of the type.
fn message_without_value(error: &Error) -> String {
    let text = error.to_string();
    let kind = WITH_VALUE.into_iter().find(|kind| text.starts_with(*kind));
    match (kind, text.rsplit_once(", expected ")) {
        (Some(kind), Some((_, expected))) => format!("{kind}, expected {expected}"),
        (Some(kind), None) => kind.to_owned(),
        // The name of the field comes from the type.
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

    fn conversion_error<T: DeserializeOwned + std::fmt::Debug>(text: &str) -> String {
        convert::<T>(read(text).unwrap()).unwrap_err()
    }

    #[test]
    fn error_has_the_expected_form_without_the_value() {
        for (error, expected) in [
            (conversion_error::<Fields>("xoxb-SECRET"), "invalid type, expected struct Fields"),
            (conversion_error::<Fields>("{name: 7}"), "invalid type, expected a string"),
            (conversion_error::<Fields>("{name: [SECRET]}"), "invalid type, expected a string"),
            (conversion_error::<Fields>("{name: x, \"SECRET, expected `y\": 1}"), "unknown field, expected `name`"),
            (conversion_error::<Fields>("{}"), "missing field `name`"),
            (conversion_error::<Kind>("\"SECRET`, expected \\\"x\""), "unknown variant, expected `standard`"),
            (conversion_error::<Vec<bool>>("[true, \"SECRET, expected SECRET\"]"), "invalid type, expected a boolean"),
            (conversion_error::<BTreeMap<String, u8>>("{a: 734859}"), "invalid value, expected u8"),
        ] {
            assert_eq!(error, expected);
        }
        assert!(convert::<Kind>(read("standard").unwrap()).is_ok());
    }

    #[test]
    fn invalid_yaml_is_reported_with_its_place() {
        for (text, why) in [
            ("a: 1\nb: [SECRET", "not YAML, at line "),
            ("a: 1\nSECRET: 2\nSECRET: 3", "duplicate key, at line "),
            ("a: *SECRET", "not YAML"),
            ("SECRET: a: b", "not YAML, at line 1"),
            ("\tSECRET: \"x", "not YAML"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(why) && !error.contains("SECRET") && !error.contains('\n'), "{text}: {error}");
        }
    }
}
