//! Conditions: a bounded, deterministic and total implementation of CEL, the language of `when`,
//! `skipIf`, gate conditions and grant matchers.
//!
//! A condition decides whether a person is asked, so nothing is guessed: an unknown name, a field of a value without
//! fields, or the order of values of different types is an error, never `false`. **Invariant:** no condition panics or
//! costs more than its fixed limits, whatever the source or the scope.
//!
//! The crate `cel` is not used for this, although it is in the dependency tree. Its interpreter answers where it should
//! refuse (`'text'.field` is `false`), its parser reads `!!x` as `!x`, a message literal panics, maps are iterated in
//! random order, and the work of an evaluation has no limit. The tests compare with it: if both give an answer, the
//! answers must be equal.
//!
//! Missing parts of CEL: unsigned numbers, bytes, messages, timestamps and durations, `type()`, and computed patterns
//! for `matches`. Added, as in Kubernetes: `lowerAscii`, `upperAscii`, `trim`, `split`, `join`, `replace`, `substring`,
//! `indexOf`.

mod calls;
mod evaluate;
mod functions;
mod parse;
mod reads;
mod signature;
mod token;
mod tree;
mod value;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod work_tests;

use std::collections::BTreeSet;

use super::number::Inexact;
use super::reference::Known;
use super::{LanguageError, Reference, Scope, text};

pub use reads::ReadProblem;

/// The limits of conditions, for the reference page.
pub mod limit {
    pub use super::{
        evaluate::{MAX_LIST as LIST, MAX_WORK as WORK},
        functions::MAX_TEXT as TEXT,
        parse::{MAX_NESTING as NESTING, MAX_NODES as NODES, MAX_SOURCE as SOURCE},
    };
}

/// The words of conditions, for the reference page.
pub mod words {
    use super::{calls, signature::Function};

    /// Returns the names of all macros.
    pub fn macros() -> impl Iterator<Item = &'static str> {
        std::iter::once(calls::HAS).chain(calls::MACROS.into_iter().map(|(name, _)| name))
    }

    /// Returns the names of all functions.
    pub fn functions() -> impl Iterator<Item = &'static str> {
        Function::names(false)
    }

    /// Returns the names of all methods.
    pub fn methods() -> impl Iterator<Item = &'static str> {
        std::iter::once(calls::MATCHES).chain(Function::names(true))
    }
}

/// The literal condition that always holds.
const ELSE: &str = "else";

/// A condition that parsed and is within its limits.
///
/// Limits: 1,024 characters, 200 parts, nesting of 24, no comprehension inside another, lists of 1,000 elements, and a
/// fixed amount of work for an evaluation.
#[derive(Debug, Clone)]
pub struct Condition {
    what: String,
    source: String,
    /// `None` for `else`.
    tree: Option<tree::Node>,
}

impl Condition {
    /// Parses `source`. `what` is the path of its field, for messages.
    ///
    /// # Errors
    /// [`LanguageError::Syntax`] or [`LanguageError::Limit`], with the column in characters.
    pub fn parse(source: &str, what: &str) -> Result<Self, LanguageError> {
        let tree = if source.trim() == ELSE {
            None
        } else {
            Some(parse::parse(source).map_err(|fault| fault.into_error(what))?)
        };
        Ok(Self { what: what.to_owned(), source: source.to_owned(), tree })
    }

    /// Returns the text of this condition.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether this is the literal `else`, which always holds.
    pub fn is_else(&self) -> bool {
        self.tree.is_none()
    }

    /// Returns the names that this condition uses, as far as they follow from its text.
    pub fn references(&self) -> BTreeSet<Reference> {
        let mut references = BTreeSet::new();
        if let Some(tree) = &self.tree {
            tree.collect(None, &mut references);
        }
        references
    }

    /// Returns the parts of answers that this condition reads and that the schemas of the answers do not guarantee.
    /// `consequence` is the part of the message about a condition that cannot be evaluated.
    pub fn read_problems(&self, known: &Known, consequence: &str) -> BTreeSet<ReadProblem> {
        self.tree.as_ref().map(|tree| reads::find_problems(tree, known, consequence)).unwrap_or_default()
    }

    /// Evaluates the condition in `scope`.
    ///
    /// # Errors
    /// [`LanguageError::Evaluation`] if it has no value or one that is not a boolean, [`LanguageError::Limit`] if it
    /// costs too much. The caller decides about the consequence of an error (a gate asks, a step fails).
    pub fn evaluate(&self, scope: &Scope) -> Result<bool, LanguageError> {
        let Some(tree) = &self.tree else {
            return Ok(true);
        };
        match evaluate::evaluate(tree, scope) {
            Ok(value::Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(Fault::new(1, format!("a condition must be true or false, this one is {}", other.kind()))
                .into_error(&self.what)),
            Err(fault) => Err(fault.with_place(scope).into_error(&self.what)),
        }
    }

    /// Returns the value of the expression in `scope`, of any type.
    ///
    /// # Errors
    /// As [`Condition::evaluate`]. Also for values that JSON cannot hold.
    pub fn evaluate_value(&self, scope: &Scope) -> Result<serde_json::Value, LanguageError> {
        let Some(tree) = &self.tree else {
            return Ok(serde_json::Value::Bool(true));
        };
        evaluate::evaluate(tree, scope)
            .and_then(|value| value.into_json(tree.at))
            .map_err(|fault| fault.with_place(scope).into_error(&self.what))
    }
}

/// An error in a condition, with its column.
#[derive(Debug, Clone, PartialEq)]
struct Fault {
    at: usize,
    problem: String,
    sort: Sort,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sort {
    Syntax,
    Limit,
    Evaluation,
    /// The number at this address in the scope cannot be read.
    Number(usize, Inexact),
    Stopped,
}

impl Fault {
    fn new(at: usize, problem: impl Into<String>) -> Self {
        Self { at, problem: problem.into(), sort: Sort::Syntax }
    }

    fn limit(at: usize, problem: impl Into<String>) -> Self {
        Self { sort: Sort::Limit, ..Self::new(at, problem) }
    }

    fn evaluation(at: usize, problem: impl Into<String>) -> Self {
        Self { sort: Sort::Evaluation, ..Self::new(at, problem) }
    }

    /// Returns the error for a number of the scope that cannot be read.
    fn number(at: usize, number: &serde_json::Value, why: Inexact) -> Self {
        let sort = Sort::Number(std::ptr::from_ref(number).addr(), why);
        Self { sort, ..Self::new(at, format!("a number here is {why}")) }
    }

    /// Returns this error with the place of the number in the scope, if a number cannot be read.
    fn with_place(self, scope: &Scope) -> Self {
        let Sort::Number(address, why) = self.sort else { return self };
        match scope.place_of(address) {
            Some(place) => Self { problem: place.problem(why), ..self },
            None => self,
        }
    }

    fn stopped(at: usize) -> Self {
        Self { sort: Sort::Stopped, ..Self::new(at, "") }
    }

    fn into_error(self, what: &str) -> LanguageError {
        let what = what.to_owned();
        let problem = format!("column {}: {}", self.at, self.problem);
        match self.sort {
            Sort::Syntax => LanguageError::Syntax { what, problem },
            Sort::Limit => LanguageError::Limit { what, problem },
            Sort::Evaluation | Sort::Number(..) => LanguageError::Evaluation { what, problem },
            Sort::Stopped => LanguageError::Stopped { what },
        }
    }
}
