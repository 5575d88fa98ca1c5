//! Problems as people and programs read them: with the place marked in the text, or as JSON.
//!
//! It may not let through anything of a file that moves a cursor, colours or hides.

use std::fmt::Write as _;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet, renderer::DecorStyle};
use serde_json::{Value, json};
use signoff_engine::language::text;

use crate::problem::{Problem, Severity};

/// Characters of a line that are shown.
const WIDTH: usize = 160;

/// One problem with the line it stands on, ready for a terminal.
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

/// The line of a problem as it may be shown, and what of it is marked.
fn excerpt(source: &str, problem: &Problem) -> (String, std::ops::Range<usize>) {
    let start = source[..problem.at.start].rfind('\n').map_or(0, |at| at + 1);
    let end = source[start..].find('\n').map_or(source.len(), |at| start + at);
    let clean = |part: &str| text::display(&part.replace('\t', " "), WIDTH);
    let before = clean(&source[start..problem.at.start]);
    let marked = clean(&source[problem.at.start..problem.at.end.min(end)]);
    let after = clean(&source[problem.at.end.min(end)..end]);
    let span = before.len()..before.len() + marked.len();
    (format!("{before}{marked}{after}"), span)
}

/// That nothing is wrong with an object, in a line.
#[must_use]
pub fn fine(file: &str, title: &str) -> String {
    format!("{}: {} is valid\n", text::display(file, 256), text::display(title, 256))
}

/// `2 errors, 1 warning`.
#[must_use]
pub fn counted(problems: &[Problem]) -> String {
    let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count();
    let say = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let mut words = Vec::new();
    for (severity, word) in [(Severity::Error, "error"), (Severity::Warning, "warning")] {
        if count(severity) > 0 {
            words.push(say(count(severity), word));
        }
    }
    words.join(", ")
}

/// One line a problem, as compilers write them.
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

/// The problem as a program reads it.
#[must_use]
pub fn json(file: &str, problem: &Problem) -> Value {
    let mut value = serde_json::to_value(problem).unwrap_or_else(|_| json!({}));
    value["file"] = file.into();
    value
}
