//! A problem of a file: its text, its place, and the remedy.
//!
//! The texts can quote the file, so only [`crate::report`] shows them.

use std::ops::Range;

use serde::Serialize;

use crate::source::{Node, Value};

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Whether it prevents the object from running.
    pub severity: Severity,
    /// A stable word for this kind of problem, which `signoff explain` knows.
    pub reason: &'static str,
    /// The field: `spec.steps[1].hitl.prompt`; empty for the whole document.
    pub field: String,
    /// The error and its remedy.
    pub message: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The marked range of the text, in bytes.
    #[serde(skip)]
    pub at: Range<usize>,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The object cannot run.
    Error,
    /// The object can run, but perhaps not as intended.
    Warning,
}

/// The problems of one text.
pub struct Problems<'t> {
    text: &'t str,
    /// The problems found so far.
    pub found: Vec<Problem>,
}

impl<'t> Problems<'t> {
    /// Returns an empty list of problems of a text.
    pub fn of(text: &'t str) -> Self {
        Self { text, found: Vec::new() }
    }

    /// Adds an error, which prevents the object from running.
    pub fn error(&mut self, reason: &'static str, field: &str, at: Range<usize>, message: impl Into<String>) {
        self.add(Severity::Error, reason, field, at, message.into());
    }

    /// Adds a warning, about a part that may not be intended.
    pub fn warn(&mut self, reason: &'static str, field: &str, at: Range<usize>, message: impl Into<String>) {
        self.add(Severity::Warning, reason, field, at, message.into());
    }

    fn add(&mut self, severity: Severity, reason: &'static str, field: &str, at: Range<usize>, message: String) {
        let at = underlined_range(self.text, at);
        let before = self.text.get(..at.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        self.found.push(Problem { severity, reason, field: field.to_owned(), message, line, column, at });
    }

    /// Whether there is an error.
    pub fn has_errors(&self) -> bool {
        self.found.iter().any(|problem| problem.severity == Severity::Error)
    }
}

/// Returns the underlined part of a value: its first line, and at least one character.
fn underlined_range(text: &str, at: Range<usize>) -> Range<usize> {
    let mut start = at.start.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let line = text[start..].split('\n').next().unwrap_or_default().trim_end().len();
    let mut end = start + at.end.saturating_sub(at.start).min(line);
    while !text.is_char_boundary(end) {
        end += 1;
    }
    if end == start {
        end += text[start..].chars().next().filter(|c| *c != '\n').map_or(0, char::len_utf8);
    }
    start..end
}

/// Returns the place of the field of a path. For a missing field, it is the place of the nearest parent that exists.
pub fn place(root: &Node, path: &str) -> Range<usize> {
    let mut node = root;
    let mut at = root.fields().first().map_or(root.at.clone(), |(key, _)| key.at.clone());
    let mut rest = path;
    while let Some((key, next, left)) = next_on_path(node, rest) {
        at = if matches!(next.value, Value::List(_) | Value::Map(_) | Value::Null) { key } else { next.at.clone() };
        node = next;
        rest = left;
    }
    at
}

/// Returns the place of the first key of a path, its value, and the rest of the path, or `None` if the node lacks the
/// key.
fn next_on_path<'n, 'p>(node: &'n Node, path: &'p str) -> Option<(Range<usize>, &'n Node, &'p str)> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if let Some(indexed) = path.strip_prefix('[') {
        let (index, rest) = indexed.split_once(']')?;
        let item = node.items().get(index.parse::<usize>().ok()?)?;
        let first = item.fields().first().map_or(item.at.clone(), |(key, _)| key.at.clone());
        return Some((first, item, rest));
    }
    // Names of variables and headers can contain dots themselves: the longest match is used.
    node.fields()
        .iter()
        .filter_map(|(key, value)| {
            let rest = path.strip_prefix(key.name.as_str())?;
            (rest.is_empty() || rest.starts_with(['.', '[', ' '])).then_some((key, value, rest))
        })
        .max_by_key(|(key, ..)| key.name.len())
        .map(|(key, value, rest)| (key.at.clone(), value, rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found(text: &str, path: &str) -> String {
        let root = crate::source::documents(text).remove(0).unwrap();
        text[underlined_range(text, place(&root, path))].to_owned()
    }

    #[test]
    fn a_path_leads_to_its_text() {
        let text = "spec:\n  steps:\n  - name: a\n    vars: {x.y: 'one', x: two}\n  - name: b\n    hitl:\n      prompt: |\n        Go\n        on\n";
        assert_eq!(found(text, "spec.steps[0].name"), "a");
        assert_eq!(found(text, "spec.steps[0].vars.x.y"), "'one'");
        assert_eq!(found(text, "spec.steps[0].name (the system prompt of x)"), "a");
        assert_eq!(found(text, "spec.steps[1].hitl.prompt"), "Go");
    }

    #[test]
    fn a_missing_field_is_shown_at_its_nearest_parent() {
        let text = "spec:\n  steps:\n  - name: a\n";
        assert_eq!(found(text, "spec.steps[0].hitl.prompt"), "name");
        assert_eq!(found(text, "spec.steps[7]"), "steps");
        assert_eq!(found(text, "metadata.name"), "spec");
    }
}
