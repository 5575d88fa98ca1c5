//! Templates: Jinja that renders a scope to text, once and within limits.
//!
//! Rendering is one pass: a template cannot load, include or define anything, and a rendered value is not rendered
//! again. Templates have no clock, file or network. An undefined name is an error, never an empty text.

mod body;
mod budget;
mod filters;
mod meter;
mod metered;
mod policy;
mod shape;
mod url;
mod vocabulary;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod work_tests;

use std::collections::{BTreeMap, BTreeSet};

use minijinja::machinery::{eval, get_compiled_template, make_string_output};
use minijinja::{AutoEscape, ErrorKind};

use super::{LanguageError, Reference, Scope, endless, text};

/// The default maximum size of a rendered text, in bytes.
pub const MAX_OUTPUT: usize = 256 << 10;

/// The limits of templates, for the reference page.
pub mod limit {
    pub use super::{
        MAX_OUTPUT as OUTPUT,
        budget::{MAX_TEXT as TEXT, MAX_WORK as WORK},
        filters::MAX_RANGE as RANGE,
        policy::{
            MAX_GROWTH as GROWTH, MAX_GROWTH_IN_LOOP as GROWTH_IN_LOOP, MAX_NESTING as NESTING, MAX_SOURCE as SOURCE,
            MAX_WORDS as WORDS,
        },
        vocabulary::FUEL,
    };
    pub use crate::pattern::MAX_PATTERN as PATTERN;
}

/// The words of templates, for the reference page.
pub mod words {
    pub use super::vocabulary::{FILTERS, FUNCTIONS, METHODS, TESTS};
}

/// A template that parsed, uses only allowed constructs, and is within its limits.
///
/// Limits: 16 KiB of source, 256 tokens in a tag, nesting of 24, and while rendering a fixed number of steps, 1 MiB for
/// a text from a filter, and 256 KiB of output.
#[derive(Debug, Clone)]
pub struct Template {
    what: String,
    source: String,
    references: BTreeSet<Reference>,
}

impl Template {
    /// Parses `source`. `what` is the path of its field, for messages.
    ///
    /// # Errors
    /// [`LanguageError::Syntax`] or [`LanguageError::Limit`], with the line.
    pub fn parse(source: &str, what: &str) -> Result<Self, LanguageError> {
        let references = catch_panics(what, || {
            endless::meet("parse", source);
            let references = policy::check(source).map_err(|refusal| refusal.into_error(what))?;
            // Compiling finds errors that the syntax tree does not show, so it is done before the run.
            vocabulary::environment().template_from_str(source).map_err(|error| describe(&error, what))?;
            Ok(references)
        })?;
        Ok(Self { what: what.to_owned(), source: source.to_owned(), references })
    }

    /// Returns the text of this template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the names that this template uses, as far as they follow from its text.
    pub fn references(&self) -> &BTreeSet<Reference> {
        &self.references
    }

    /// Returns advice about each value that this template puts into JSON without an escape. `is_plain` says whether an
    /// expression is never a text.
    pub fn json_advice(&self, is_plain: impl Fn(&str) -> bool) -> Vec<String> {
        body::advise(&self.source, is_plain)
    }

    /// Renders this template with `scope` to at most 256 KiB, cleaned like [`text::clean`].
    ///
    /// # Errors
    /// [`LanguageError::Evaluation`] for an undefined name or an operation on the wrong type of value,
    /// [`LanguageError::Limit`] if a limit is reached.
    pub fn render(&self, scope: &Scope) -> Result<String, LanguageError> {
        self.render_within(scope, MAX_OUTPUT)
    }

    /// Like [`Self::render`], with at most `max_bytes` bytes before cleaning.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn render_within(&self, scope: &Scope, max_bytes: usize) -> Result<String, LanguageError> {
        let rendered = self.render_by(vocabulary::environment(), scope, max_bytes)?;
        Ok(text::clean(&rendered))
    }

    /// Renders this template to a URL. A value cannot change the host or the path of the URL.
    ///
    /// # Errors
    /// As [`Self::render`], and [`LanguageError::Evaluation`] for a value that would change the URL's host or path.
    pub fn render_url(&self, scope: &Scope) -> Result<String, LanguageError> {
        let to_error = |problem: String| LanguageError::Evaluation { what: self.what.clone(), problem };
        let framed = self.render_by(vocabulary::url_environment(), scope, MAX_OUTPUT)?;
        url::assemble(&framed).map_err(to_error)
    }

    /// Renders this template by `engine`, without cleaning the text. Only the used values of the scope are converted.
    fn render_by(
        &self,
        engine: &minijinja::Environment<'_>,
        scope: &Scope,
        max_bytes: usize,
    ) -> Result<String, LanguageError> {
        super::budget::charge(0).map_err(|_| LanguageError::Stopped { what: self.what.clone() })?;
        // A scope can hold the results of a hundred steps.
        let names: BTreeSet<&str> = self.references.iter().map(|r| r.root.as_str()).collect();
        let mut values: BTreeMap<String, minijinja::Value> = BTreeMap::new();
        let mut has_inexact = false;
        for (name, root) in names.into_iter().filter_map(|name| Some((name, scope.root(name)?))) {
            let (value, is_inexact) = root.to_jinja(name);
            has_inexact |= is_inexact;
            values.insert(name.to_owned(), value);
        }
        values.insert(meter::OUTPUT_LIMIT.to_owned(), max_bytes.into());
        values.insert(meter::HAS_INEXACT.to_owned(), has_inexact.into());
        let values = minijinja::Value::from(values);
        catch_panics(&self.what, || {
            endless::meet("render", &self.source);
            engine
                .template_from_str(&self.source)
                .and_then(|template| {
                    let plain = &get_compiled_template(&template).instructions;
                    let (metered, blocks) = (metered::add_charging_instructions(plain, has_inexact), BTreeMap::new());
                    let mut rendered_text = String::new();
                    let mut output = make_string_output(&mut rendered_text);
                    eval(engine, &metered, values, &blocks, &mut output, AutoEscape::None)?;
                    drop(output);
                    Ok(rendered_text)
                })
                .map_err(|error| match error.kind() {
                    ErrorKind::WriteFailure => LanguageError::Limit {
                        what: self.what.clone(),
                        problem: format!(
                            "the rendered text is larger than {max_bytes} bytes; shorten it, for example with `truncate(1000)`"
                        ),
                    },
                    _ => describe(&error, &self.what),
                })
        })
    }
}

/// Runs the template engine so that a panic in it, which the policy did not prevent, becomes an error of this template.
/// In tests the panic is kept, so that it is found.
fn catch_panics<T>(what: &str, run: impl FnOnce() -> Result<T, LanguageError>) -> Result<T, LanguageError> {
    if cfg!(test) {
        return run();
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(LanguageError::Evaluation {
            what: what.to_owned(),
            problem: "the template engine failed on this template; simplify it".to_owned(),
        })
    })
}

/// Converts an error of the template engine: the line and the problem, without values.
fn describe(error: &minijinja::Error, what: &str) -> LanguageError {
    let what = what.to_owned();
    let detail = error.detail().map_or_else(|| error.kind().to_string(), |detail| text::display(detail, 300));
    let place = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    match error.kind() {
        ErrorKind::SyntaxError => LanguageError::Syntax { what, problem: format!("{place}{detail}") },
        ErrorKind::OutOfFuel => {
            LanguageError::Limit { what, problem: format!("{place}the template takes too many steps; loop over less") }
        }
        _ if detail == budget::STOPPED => LanguageError::Stopped { what },
        _ if detail.starts_with(budget::TOO_MUCH) => LanguageError::Limit { what, problem: format!("{place}{detail}") },
        ErrorKind::UndefinedError => LanguageError::Evaluation {
            what,
            problem: format!("{place}{detail}; test it with `is defined` or give it a `default(…)`"),
        },
        _ => LanguageError::Evaluation { what, problem: format!("{place}{detail}") },
    }
}
