//! What strangers may send, as plain functions of bytes: a file of either format to check, and a file of the Strands CLI.
//!
//! **Invariant:** none of them panics, overflows the stack or runs long, whatever the bytes. `fuzz/` hands them to cargo-fuzz; the
//! tests below run a bounded number of mutations of a corpus on any machine.

use signoff_engine::Settings;
use signoff_manifest::{
    flow::Flow,
    fuzz::{show, text},
};

use crate::check;

/// Checks the bytes as a file of either format and shows every problem, in every way.
///
/// # Panics
/// Where something that is shown could move a cursor, or a place is none of the text.
pub fn file(data: &[u8]) {
    let text = text(data);
    show(&text, check(&text, &Settings::default()));
}

/// Imports the bytes as a file of the Strands CLI, and checks what it becomes.
///
/// # Panics
/// Where what it becomes cannot be read again.
pub fn import(data: &[u8]) {
    let text = text(data);
    if let Ok(imported) = crate::import(&text, "alice") {
        let yaml = imported.to_yaml();
        let checked = signoff_manifest::check(&yaml, &Settings::default());
        let readable = checked.iter().all(|one| one.problems.iter().all(|problem| problem.reason != "NotYaml"));
        assert!(checked.len() == 1 && readable, "what is written can be read: {yaml}");
        let _ = Flow::of(&imported.workflow).to_text();
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
    fn no_file_of_the_strands_cli_panics() {
        assert!(survives(corpus("strands"), 100, import));
        assert!(survives(corpus("strands"), 20, file));
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
