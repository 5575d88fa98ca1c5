//! `signoff validate`: every problem of files, before they are run or applied.
//!
//! **Invariant:** the check does not stop at the first problem.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use signoff_cli::{sanitize, terminal};
use signoff_engine::Settings;
use signoff_manifest::{Problem, report};
use signoff_strands::check;

use crate::{
    exit::Exit,
    texts::{self, Text},
};

/// Check files without running anything: YAML, fields, references, gates, templates and conditions.
#[derive(Debug, Args)]
pub struct Validate {
    /// Files, folders, or `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The output format of problems.
    #[arg(long, value_enum, default_value_t = ProblemFormat::Text)]
    format: ProblemFormat,
}

/// The output format of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProblemFormat {
    /// For people: each problem with its lines of the file.
    Text,
    /// One line per problem.
    Line,
    /// For programs.
    Json,
}

/// Prints every problem. Warnings alone do not fail the command.
pub fn validate(options: &Validate) -> anyhow::Result<Exit> {
    let (texts, unread) = texts::read_all(&options.files);
    let (mut lines, mut problems, mut objects) = (String::new(), Vec::new(), Vec::new());
    let mut is_valid = true;
    for Text { name, text, found } in &texts {
        let documents = check(text, &Settings::default());
        // A folder can hold other files, such as answers and values. A file is checked if one of its documents is an
        // object of Signoff.
        if *found && !documents.is_empty() && !documents.iter().any(|document| document.is_named) {
            terminal::note(&format!("{name}: none of Signoff's objects: not checked"));
            continue;
        }
        if documents.is_empty() {
            is_valid = false;
            lines += &format!("{name}: there is nothing in it\n");
        }
        for document in documents {
            is_valid &= document.is_valid();
            for problem in &document.problems {
                match options.format {
                    ProblemFormat::Text => lines += &(report::shown(name, text, problem) + "\n"),
                    ProblemFormat::Line => lines += &(report::line(name, problem) + "\n"),
                    ProblemFormat::Json => {}
                }
            }
            if document.problems.is_empty() && options.format == ProblemFormat::Text {
                lines += &report::fine(name, &document.title);
            }
            objects.push(json!({"file": name, "object": document.title, "valid": document.is_valid(),
                "problems": document.problems.iter().map(|problem| report::json(name, problem)).collect::<Vec<_>>()}));
            problems.extend(document.problems);
        }
    }
    match options.format {
        ProblemFormat::Json => {
            let page = json!({"valid": is_valid && unread.is_empty(), "unread": unread, "objects": objects});
            terminal::print(&sanitize::json(&page)?)?;
        }
        ProblemFormat::Text | ProblemFormat::Line => terminal::print(&(lines + &render_summary(&problems)))?,
    }
    unread.iter().for_each(|why| terminal::note(why));
    Ok(match (is_valid, unread.is_empty()) {
        (false, _) => Exit::Invalid,
        (true, false) => Exit::Usage,
        (true, true) => Exit::Ok,
    })
}

fn render_summary(problems: &[Problem]) -> String {
    let counted = report::counted(problems);
    if counted.is_empty() { counted } else { format!("{counted}; `signoff explain REASON` says more\n") }
}
