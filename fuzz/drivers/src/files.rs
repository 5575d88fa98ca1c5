//! Drivers of files: any bytes as a file to check, and as a file of the Strands CLI to check or to import.

use signoff_engine::Settings;

use signoff_manifest::{Checked, check, explain::explain, flow::Flow, report};

/// The longest text that is tried, in bytes.
const LONGEST: usize = 20_000;

/// Checks the bytes as a file of Signoff and renders every problem in every format.
///
/// # Panics
/// A rendered text could move a cursor, or a position is not within the text.
pub fn manifest(data: &[u8]) {
    let text = text(data);
    show(&text, check(&text, &Settings::default()));
    let _ = explain(&text);
}

/// Checks the bytes as a file of either format and renders every problem in every format.
///
/// # Panics
/// A rendered text could move a cursor, or a position is not within the text.
pub fn strands(data: &[u8]) {
    let text = text(data);
    show(&text, signoff_strands::check(&text, &Settings::default()));
}

/// Imports the bytes as a file of the Strands CLI, and checks the Workflow.
///
/// # Panics
/// The imported Workflow cannot be read again.
pub fn import(data: &[u8]) {
    let text = text(data);
    if let Ok(imported) = signoff_strands::import(&text, "alice") {
        let yaml = imported.to_yaml();
        let checked = check(&yaml, &Settings::default());
        let readable = checked.iter().all(|one| one.problems.iter().all(|problem| problem.reason != "NotYaml"));
        assert!(checked.len() == 1 && readable, "what is written can be read: {yaml}");
        let _ = Flow::of(&imported.workflow).to_text();
    }
}

/// Returns the bytes as a text, cut to [`LONGEST`].
fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data.get(..LONGEST).unwrap_or(data)).into_owned()
}

/// Renders every problem of a text in every format, and the plan of its Workflow.
fn show(text: &str, all: Vec<Checked>) {
    for checked in all {
        for problem in &checked.problems {
            assert!(text.get(problem.at.clone()).is_some(), "a position within the text: {problem:?}");
            for shown in
                [report::shown("f", text, problem), report::line("f", problem), report::fine("f", &checked.title)]
            {
                assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{7}', '\r']), "nothing moves the cursor: {shown:?}");
            }
            let _ = report::json("f", problem);
        }
        if let Some(workflow) = checked.workflow {
            let flow = Flow::of(&workflow);
            let _ = (flow.to_text(), flow.to_mermaid(), flow.to_dot());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;
    use crate::mutations::survives;

    /// Returns the files of a folder of the tests.
    fn corpus(folder: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract").join(folder);
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    #[test]
    fn no_file_panics() {
        assert!(survives(corpus("invalid"), 100, manifest));
    }

    #[test]
    fn no_file_of_the_strands_cli_panics() {
        assert!(survives(corpus("strands"), 100, import));
        assert!(survives(corpus("strands"), 20, strands));
    }

    #[test]
    fn expressions_as_deep_as_a_file_is_long_are_refused() {
        for deep in ["(".repeat(9000), "not ".repeat(4000), "[".repeat(9000), "a.".repeat(9000), "a or ".repeat(3000)] {
            let file = format!(
                "agents: {{a: {{prompt: x}}}}\npattern:\n  type: graph\n  config:\n    nodes: {{n: {{agent: a, input: \"{{{{ {deep} }}}}\"}}}}\n    edges: [{{from: n, to: n, condition: \"{deep}\"}}]\n"
            );
            assert!(survives([file], 0, import));
        }
    }
}
