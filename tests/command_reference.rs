//! The reference of a program's command line: its clap definition -> one page of Markdown *(pure)*.
//!
//! Each program compiles this file in its tests and compares the page in `docs/reference` with its own definition.
//! `SIGNOFF_UPDATE_SNAPSHOTS=1` writes the page.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command};

/// Compares the page of a program with its definition. `page`: the name of the page in `docs/reference`. `head`: the
/// title and a sentence on what the program is.
///
/// # Panics
/// They differ, or the new page cannot be written.
#[expect(clippy::unwrap_used, reason = "a test that cannot write its page fails")]
pub(crate) fn matches_page(page: &str, head: &str, mut command: Command) {
    command.build();
    let text = rendered(head, &command);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(page);
    if std::env::var_os("SIGNOFF_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{page} differs from the program: write it with SIGNOFF_UPDATE_SNAPSHOTS=1");
}

/// Returns the page: the options of the program, then a section for each command with the options that only it has.
fn rendered(head: &str, command: &Command) -> String {
    let mut page = "<!-- Generated from the program's own definition; a test compares them. -->\n".to_owned();
    let _ = writeln!(page, "# {head}");
    let mut common = BTreeSet::new();
    section(&mut page, command, &mut common);
    page
}

/// Writes a command, with a heading unless it is the first, and the commands below it. `common`: the options that a
/// command above has described.
fn section(page: &mut String, command: &Command, common: &mut BTreeSet<String>) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    if page.contains("```text") {
        let name = command.get_bin_name().unwrap_or(command.get_name());
        let _ = writeln!(page, "\n## `{name}`");
    }
    if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
        let _ = writeln!(page, "\n{}", paragraphs(&about.to_string()));
    }
    let _ = writeln!(page, "\n```text\n{usage}\n```");
    let own: Vec<_> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str()))
        .filter(|arg| !common.contains(&row(arg)))
        .collect();
    if !own.is_empty() {
        let _ = writeln!(page, "\n| argument | meaning |\n|---|---|");
    }
    for arg in &own {
        let _ = writeln!(page, "{}", row(arg));
    }
    let mut below = common.clone();
    below.extend(own.iter().filter(|arg| !arg.is_positional()).map(|arg| row(arg)));
    for one in command.get_subcommands() {
        section(page, one, &mut below);
    }
}

/// Returns the row of an argument: how it is written, what it means, its values, its default and its variable.
fn row(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let written = match short {
        Some(short) if arg.get_long().is_some() => format!("{short}, {arg}"),
        _ => arg.to_string(),
    };
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut meaning = paragraphs(&help).replace(".\n\n", "\n\n").replace("\n\n", ". ");
    let values = arg.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    if !values.is_empty() && arg.get_action().takes_values() {
        let _ = write!(meaning, ". One of `{}`", values.join("`, `"));
    }
    let defaults = arg.get_default_values().iter().filter(|default| !default.is_empty());
    for default in defaults.filter(|_| arg.get_action().takes_values() && !arg.is_hide_default_value_set()) {
        let _ = write!(meaning, ". Default: `{}`", default.to_string_lossy());
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(meaning, ". Variable: `{}`", variable.to_string_lossy());
    }
    format!("| `{}` | {} |", written.replace('|', "\\|"), escaped(&meaning))
}

/// Returns a text of several paragraphs with each paragraph in one line.
fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Returns a text for a cell of a table: `<` begins a tag, except between backticks.
fn escaped(text: &str) -> String {
    let text = text.replace('|', "\\|");
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| if at % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`")
}
