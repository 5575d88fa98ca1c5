//! The validator of a Workflow: it collects every error and warning of the author, each with its field.

use std::collections::BTreeMap;

use signoff_api::{Verdict, conditions::reason};
use signoff_expr::{Template, nearest::did_you_mean};

use super::Settings;
use crate::{field_error::FieldError, policy::Policies};

/// The maximum number of errors that suggest a similar name.
const MOST_HINTS: usize = 16;

/// The validator of a Workflow, with the errors so far.
pub(crate) struct Validator<'a> {
    pub(super) settings: &'a Settings,
    pub(super) policies: &'a Policies,
    /// Whether the run was accepted: policies then hold gates, and conflicts are not errors.
    pub(super) accepted: bool,
    pub(super) errors: Vec<FieldError>,
    pub(super) warnings: Vec<String>,
    /// The verdicts that each gate allows, by the field of its `hitl`.
    pub(super) allowed: BTreeMap<String, Vec<Verdict>>,
}

impl Validator<'_> {
    /// Returns the end of an error about an unknown name, with similar known names. Only the first errors have it,
    /// because it compares all names.
    pub(crate) fn did_you_mean<'k>(&self, typed: &str, known: impl IntoIterator<Item = &'k str>) -> String {
        if self.errors.len() < MOST_HINTS { did_you_mean(typed, known) } else { String::new() }
    }

    pub(crate) fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.error_as(reason::INVALID, field, message);
    }

    pub(super) fn error_as(&mut self, reason: &'static str, field: impl Into<String>, message: impl Into<String>) {
        let error = FieldError { field: field.into(), message: message.into(), reason };
        // One field can be checked several times.
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// Reports a part of the spec that the policies forbid, unless the run was already accepted.
    pub(crate) fn report_forbidden(&mut self, field: impl Into<String>, why: Option<String>) {
        if let (Some(why), false) = (why, self.accepted) {
            self.error_as(reason::NOT_ALLOWED, field, why);
        }
    }

    pub(super) fn warn(&mut self, field: &str, message: &str) {
        self.warnings.push(format!("{field}: {message}"));
    }

    pub(super) fn parse_template(&mut self, source: &str, field: &str) -> Option<Template> {
        match Template::parse(source, field) {
            Ok(template) => Some(template),
            Err(why) => {
                self.error(why.what().to_owned(), why.problem());
                None
            }
        }
    }
}
