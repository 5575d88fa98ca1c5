//! The parser of a Workflow file.
//!
//! The plan checks the content of the Workflow.

use serde_json::{Map, Value};
use signoff_api::{GROUP, VERSION, Workflow};

/// The maximum size of the text, in bytes: that of one object in the API server.
const LONGEST: usize = 3 * 1024 * 1024;

/// The error of a text that is not a Workflow.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The text is too long.
    #[error("it has {0} bytes, and a Workflow has at most {LONGEST}")]
    TooLong(usize),
    /// The text is not readable as YAML.
    #[error("it is neither YAML nor JSON: {0}")]
    NotYaml(String),
    /// The text is another object.
    #[error("it is {found}, not a Workflow of {GROUP}/{VERSION}")]
    NotAWorkflow {
        /// The kind of the object.
        found: String,
    },
    /// A field has the wrong type.
    #[error("{0}")]
    Shape(String),
}

/// Parses a Workflow, YAML or JSON, and sets the user as its requester.
///
/// # Errors
/// The text is another object, or one of its fields has the wrong type.
pub fn from_yaml(text: &str, user: &str) -> Result<Workflow, SourceError> {
    if text.len() > LONGEST {
        return Err(SourceError::TooLong(text.len()));
    }
    let value: Value = serde_saphyr::from_str(text).map_err(|why| SourceError::NotYaml(why.to_string()))?;
    let Value::Object(mut object) = value else {
        return Err(SourceError::NotAWorkflow { found: "a list or a single value".to_owned() });
    };
    let version = format!("{GROUP}/{VERSION}");
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("an object without a kind");
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or(&version);
    if kind != "Workflow" || api_version != version {
        return Err(SourceError::NotAWorkflow { found: format!("{kind} ({api_version})") });
    }
    object.insert("apiVersion".to_owned(), version.into());
    if let Some(spec) = object.entry("spec").or_insert_with(|| Value::Object(Map::new())).as_object_mut() {
        spec.insert("requestedBy".to_owned(), user.into());
    }
    serde_json::from_value(Value::Object(object)).map_err(|why| SourceError::Shape(why.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_user_who_reads_a_file_is_the_requester() {
        let text = "{kind: Workflow, metadata: {name: w}, spec: {requestedBy: mallory, steps: []}}";
        assert_eq!(from_yaml(text, "dana").unwrap().spec.requested_by, "dana");
    }

    #[test]
    fn another_object_is_refused_with_its_kind() {
        let why = |text: &str| from_yaml(text, "dana").unwrap_err().to_string();
        assert_eq!(why("kind: Pod"), "it is Pod (signoff.dev/v1alpha1), not a Workflow of signoff.dev/v1alpha1");
        assert_eq!(why("[]"), "it is a list or a single value, not a Workflow of signoff.dev/v1alpha1");
        assert!(why("kind: Workflow\napiVersion: argoproj.io/v1").contains("argoproj.io/v1"));
        assert!(why("{").contains("neither YAML nor JSON"));
        assert_eq!(why("{kind: Workflow, spec: {pattern: 1}}"), "invalid type: integer `1`, expected struct Pattern");
    }
}
