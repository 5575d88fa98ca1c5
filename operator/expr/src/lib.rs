//! The expressions of a spec: templates that produce text, conditions (CEL) that decide, the references in both,
//! patterns (RE2), JSON in answers, and text that is safe to store and show.
//!
//! **Invariant:** the crate uses no other crate of this workspace, and reads no clock, file, environment or network.
//! Text of a person, a model or a tool is always a value: it is never parsed as a template or as a condition.
//!
//! | module | answers |
//! |---|---|
//! | [`scope`] | what names mean: the values an expression may see |
//! | [`template`] | what text a template makes of a scope |
//! | [`cel`] | whether a condition holds in a scope |
//! | [`mod@reference`] | which names an expression uses, and whether they will exist |
//! | [`pattern`] | how large a regular expression may be, and what its matching costs |
//! | [`re2`] | which regular expressions the API server reads the same, and how this program must read them |
//! | [`nearest()`] | which known word was meant by one that was typed |
//! | [`text`] | how untrusted text is stored and shown |
//! | [`json`] | which JSON a model meant, in text that holds more than JSON |
//! | [`number`] | which numbers every JSON reader understands alike |
//! | [`answer_shape`] | what a schema tells of an answer before the run |
//! | [`budget`] | when an evaluation must stop, and how much work it charged |

pub mod answer_shape;
pub mod budget;
pub mod cel;
#[doc(hidden)]
pub mod endless;
pub mod json;
#[cfg(test)]
mod manual_tests;
pub mod nearest;
pub mod number;
pub mod pattern;
pub mod re2;
pub mod reference;
pub mod scope;
pub mod template;
pub mod text;

pub use answer_shape::{AnswerShape, Kind};
pub use cel::{Condition, ReadProblem};
pub use nearest::nearest;
pub use reference::{Known, Member, Members, Reference, check, is_identifier};
pub use scope::Scope;
pub use template::Template;

/// The error of a template or condition.
///
/// `what` is always the path of the field with the expression, for example `spec.steps[2].when`. Messages contain
/// columns, names and types, but no values of a run, because those may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LanguageError {
    /// The expression is not valid in its language.
    #[error("{what}: {problem}")]
    Syntax {
        /// The path of the field with the expression.
        what: String,
        /// The error, its position, and the remedy.
        problem: String,
    },
    /// The expression is larger, deeper or more costly than allowed.
    #[error("{what}: {problem}")]
    Limit {
        /// The path of the field with the expression.
        what: String,
        /// The limit, its purpose, and the remedy.
        problem: String,
    },
    /// The expression uses a name that will not exist when it is evaluated.
    #[error("{what}: unknown reference `{reference}`; {remedy}")]
    Unknown {
        /// The path of the field with the expression.
        what: String,
        /// The name as written, for example `steps.drfat.response`.
        reference: String,
        /// The nearest names that exist.
        remedy: String,
    },
    /// The expression is valid, but has no value in this scope.
    #[error("{what}: {problem}")]
    Evaluation {
        /// The path of the field with the expression.
        what: String,
        /// The failed computation, and the remedy.
        problem: String,
    },
    /// The driver stopped the evaluation by its [`budget`] flag. The expression may be valid.
    #[error("{what}: {}", budget::Stopped)]
    Stopped {
        /// The path of the field with the expression.
        what: String,
    },
}

impl LanguageError {
    /// Returns the path of the field with the expression.
    pub fn what(&self) -> &str {
        match self {
            Self::Syntax { what, .. }
            | Self::Limit { what, .. }
            | Self::Unknown { what, .. }
            | Self::Evaluation { what, .. }
            | Self::Stopped { what } => what,
        }
    }

    /// Returns the message without the path of the field.
    pub fn problem(&self) -> String {
        match self {
            Self::Syntax { problem, .. } | Self::Limit { problem, .. } | Self::Evaluation { problem, .. } => {
                problem.clone()
            }
            Self::Unknown { reference, remedy, .. } => format!("unknown reference `{reference}`; {remedy}"),
            Self::Stopped { .. } => budget::Stopped.to_string(),
        }
    }
}
