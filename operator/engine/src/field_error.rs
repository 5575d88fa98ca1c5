//! An error in a Workflow, found before it runs or before a gate asks.

use std::fmt;

/// An error in a Workflow, with its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field: `spec.steps[1].hitl.prompt`.
    pub field: String,
    /// The error and the remedy.
    pub message: String,
    /// A reason of the condition `Accepted`: `Invalid`, `TooLarge`, `RequesterIsMachine`, `PolicyConflict` or
    /// `NotAllowed`.
    pub reason: &'static str,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
