//! What strangers may send, as a plain function of bytes: a file to check.
//!
//! It must not panic, overflow the stack or run long, whatever the bytes. `fuzz/` hands them to cargo-fuzz; the
//! tests below run a bounded number of mutations of a corpus on any machine.

use signoff_engine::Settings;

use crate::{Checked, check, explain::explain, flow::Flow, report};

/// The longest text that is tried.
const LONGEST: usize = 20_000;

/// Checks the bytes as a file and shows every problem, in every way.
///
/// # Panics
/// Where something that is shown could move a cursor, or a place is none of the text.
pub fn file(data: &[u8]) {
    let text = text(data);
    show(&text, check(&text, &Settings::default()));
    let _ = explain(&text);
}

/// Returns the bytes as a text, cut to what is tried.
pub fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data.get(..LONGEST).unwrap_or(data)).into_owned()
}

/// Shows every problem of a text, in every way, and what would run.
///
/// # Panics
/// Where something that is shown could move a cursor, or a place is none of the text.
pub fn show(text: &str, all: Vec<Checked>) {
    for checked in all {
        for problem in &checked.problems {
            assert!(text.get(problem.at.clone()).is_some(), "a place within the text: {problem:?}");
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

    use signoff_expr::fuzz::survives;

    use super::*;

    /// The files of a folder of the tests.
    fn corpus(folder: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract").join(folder);
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    #[test]
    fn no_file_panics() {
        assert!(survives(corpus("invalid"), 100, file));
    }
}
