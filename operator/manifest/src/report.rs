//! Problems as people and programs read them: with the place marked in the text, or as JSON.
//!
//! **Invariant:** no text of a file moves a cursor, sets a color or hides other text.

use std::fmt::Write as _;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet, renderer::DecorStyle};
use serde_json::{Value, json};
use signoff_expr::text;

use crate::problem::{Problem, Severity};

/// The maximum number of shown characters of the marked part, and of the text behind it.
const WIDTH: usize = 160;

/// Renders one problem with its line, for a terminal.
#[must_use]
pub fn shown(file: &str, source: &str, problem: &Problem) -> String {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let message = text::display(&problem.message, 2048);
    let field = text::display(&problem.field, 256);
    let (line, marked) = excerpt(source, problem);
    let path = text::display(file, 256);
    let title = level.primary_title(message.as_str()).id(problem.reason);
    let snippet = Snippet::source(line.as_str())
        .line_start(problem.line)
        .path(path.as_str())
        .fold(false)
        .annotation(AnnotationKind::Primary.span(marked).label(field.as_str()));
    let report = [title.element(snippet)];
    let mut shown = Renderer::plain().decor_style(DecorStyle::Ascii).render(&report);
    shown.push('\n');
    shown
}

/// Returns the shown line of a problem, and its marked part. The text before the mark is not cut here: the renderer
/// omits its beginning, and counts the column by it.
fn excerpt(source: &str, problem: &Problem) -> (String, std::ops::Range<usize>) {
    let start = source[..problem.at.start].rfind('\n').map_or(0, |at| at + 1);
    let end = source[start..].find('\n').map_or(source.len(), |at| start + at);
    let clean = |part: &str, most| text::display(&part.trim_end_matches('\r').replace('\t', " "), most);
    let before = clean(&source[start..problem.at.start], usize::MAX);
    let marked = clean(&source[problem.at.start..problem.at.end.min(end)], WIDTH);
    let after = clean(&source[problem.at.end.min(end)..end], WIDTH);
    let span = before.len()..before.len() + marked.len();
    (format!("{before}{marked}{after}"), span)
}

/// Renders the line for an object without problems.
#[must_use]
pub fn fine(file: &str, title: &str) -> String {
    format!("{}: {} is valid\n", text::display(file, 256), text::display(title, 256))
}

/// Renders the numbers of errors and of warnings, such as `2 errors, 1 warning`; empty without problems.
#[must_use]
pub fn counted(problems: &[Problem]) -> String {
    let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count();
    let render = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let mut words = Vec::new();
    for (severity, word) in [(Severity::Error, "error"), (Severity::Warning, "warning")] {
        if count(severity) > 0 {
            words.push(render(count(severity), word));
        }
    }
    words.join(", ")
}

/// Renders a problem as one line, like a compiler.
#[must_use]
pub fn line(file: &str, problem: &Problem) -> String {
    let word = if problem.severity == Severity::Error { "error" } else { "warning" };
    let mut line =
        format!("{}:{}:{}: {word}[{}]: ", text::display(file, 256), problem.line, problem.column, problem.reason);
    if !problem.field.is_empty() {
        let _ = write!(line, "{}: ", text::display(&problem.field, 256));
    }
    line + &text::display(&problem.message, 2048)
}

/// Renders a problem as JSON.
#[must_use]
pub fn json(file: &str, problem: &Problem) -> Value {
    let mut value = serde_json::to_value(problem).unwrap_or_else(|_| json!({}));
    value["file"] = file.into();
    value
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::problem::Problems;

    /// Renders an error that marks `word`.
    fn render(source: &str, word: &str) -> String {
        let start = source.find(word).unwrap();
        let mut problems = Problems::of(source);
        problems.error("WrongType", "spec.x", start..start + word.len(), "no");
        shown("a.yaml", source, &problems.found[0])
    }

    #[test]
    fn a_long_line_is_shown_around_the_mark() {
        let source = format!("{{{}last: here, wrong: 5, {}}}", "key: value, ".repeat(60), "more: text, ".repeat(60));
        let shown = render(&source, "wrong");
        assert!(shown.contains("a.yaml:1:734"), "{shown}");
        assert!(shown.contains("last: here, wrong: 5, more"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 200), "{shown}");
    }

    #[test]
    fn a_line_is_shown_without_its_carriage_return() {
        assert!(render("a: wrong\r\nb: 1\r\n", "wrong").contains("| a: wrong\n"));
        assert!(render("a: wrong b\r\nb: 1\r\n", "wrong").contains("| a: wrong b\n"));
    }
}
