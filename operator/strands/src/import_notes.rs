//! The notes of an import: for each field without an equivalent, for each field that is written differently, and for
//! each value whose type does not fit its field.
//!
//! The caller decides by the notes whether the import is good enough.

use std::{fmt, ops::Range};

use serde::Serialize;
use signoff_expr::text::display;
use signoff_manifest::{problem::Problems, source::Node};

use super::fields::{self, FieldEffect};

/// A note about an imported file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportNote {
    /// The severity, by which the caller decides whether the import is good enough.
    pub weight: NoteLevel,
    /// The field of the imported file.
    pub field: String,
    /// The effect on the import.
    pub message: String,
    /// The line in the imported file, from 1.
    pub line: usize,
    /// The column in the imported file, in characters, from 1.
    pub column: usize,
}

/// The severity of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NoteLevel {
    /// The run does the same.
    Info,
    /// The run does the same in another way, or without a limit or a notice: perhaps not as intended.
    Changed,
    /// A part is missing, and the run does something else.
    Unsupported,
}

impl fmt::Display for ImportNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.weight {
            NoteLevel::Info => "note",
            NoteLevel::Changed => "changed",
            NoteLevel::Unsupported => "unsupported",
        };
        let (field, message) = (display(&self.field, 256), display(&self.message, 1024));
        write!(f, "{word}: {field} (line {}): {message}", self.line)
    }
}

/// The notes of one file.
pub(super) struct ImportNotes<'t> {
    text: &'t str,
    pub(super) list: Vec<ImportNote>,
    /// The values of a wrong kind. With one of them nothing is imported.
    pub(super) wrong: Problems<'t>,
    /// The section and the path of every object that was read.
    #[cfg(test)]
    pub(super) read: Vec<(&'static str, String)>,
}

impl<'t> ImportNotes<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Self {
            text,
            list: Vec::new(),
            wrong: Problems::of(text),
            #[cfg(test)]
            read: Vec::new(),
        }
    }

    /// Adds a note about a field, once.
    pub(super) fn tell(&mut self, weight: NoteLevel, field: &str, at: &Range<usize>, message: impl Into<String>) {
        let message = message.into();
        // A problem at the same range has the line and the column.
        let mut positions = Problems::of(self.text);
        positions.error("", "", at.clone(), "");
        let (line, column) = positions.found.first().map_or((1, 1), |problem| (problem.line, problem.column));
        let note = ImportNote { weight, field: field.to_owned(), message, line, column };
        if !self.list.contains(&note) {
            self.list.push(note);
        }
    }

    /// Adds notes that these fields of an object have no effect at its position.
    pub(super) fn tell_unused(&mut self, weight: NoteLevel, node: &Node, path: &str, fields: &[&str], why: &str) {
        for (key, _) in
            node.fields().iter().filter(|(key, value)| fields.contains(&key.name.as_str()) && !value.is_null())
        {
            self.tell(weight, &format!("{path}.{}", key.name), &key.at, why);
        }
    }

    /// Adds notes for each field of an object that is not kept or unknown, and errors for values of a wrong kind. Only
    /// this function checks kinds; all other code relies on it.
    pub(super) fn read(&mut self, node: &Node, section: &'static str, path: &str) {
        #[cfg(test)]
        self.read.push((section, path.to_owned()));
        for (key, value) in node.fields() {
            let field = if path.is_empty() { key.name.clone() } else { format!("{path}.{}", key.name) };
            let Some((kind, effect)) = fields::field(section, &key.name) else {
                let hint = fields::meant(section, &key.name);
                let hint = hint.map_or_else(String::new, |near| format!("; did you mean {near}?"));
                self.tell(NoteLevel::Unsupported, &field, &key.at, format!("there is no such field: left out{hint}"));
                continue;
            };
            if let Some(kind_error) = kind.kind_error(value) {
                self.wrong.error(
                    "WrongType",
                    &format!("{field}{}", kind_error.below),
                    kind_error.at,
                    kind_error.message,
                );
            }
            match effect {
                FieldEffect::Becomes(_) => {}
                FieldEffect::LeftOut(why) => self.tell(NoteLevel::Info, &field, &key.at, format!("left out: {why}")),
                FieldEffect::Without(why) => self.tell(NoteLevel::Changed, &field, &key.at, format!("left out: {why}")),
                FieldEffect::Missing(_) if !has_content(value) => {}
                FieldEffect::Missing(why) => self.tell(NoteLevel::Unsupported, &field, &key.at, why),
            }
        }
    }
}

/// Whether a value has content: an empty list of tools has none.
fn has_content(value: &Node) -> bool {
    use signoff_manifest::source::Value;
    match &value.value {
        Value::List(items) => !items.is_empty(),
        Value::Map(fields) => !fields.is_empty(),
        Value::Null => false,
        _ => true,
    }
}
