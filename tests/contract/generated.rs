//! The committed generated files are those that the code generates. `cargo xtask codegen` writes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use signoff_tests::attacks;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_committed_generated_files_are_those_the_code_generates() {
    let pages = attacks::pages();
    for (path, text) in signoff_admission::files::generated().unwrap().into_iter().chain(pages) {
        let committed = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
        assert!(committed == text, "{path} differs from what is generated: run `cargo xtask codegen`");
    }
}

#[test]
fn the_folder_of_generated_files_has_no_other_files() {
    let generated: BTreeSet<_> =
        signoff_admission::files::generated().unwrap().into_iter().map(|(path, _)| path).collect();
    let folder = signoff_admission::files::FOLDER;
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = format!("{folder}/{}", entry.unwrap().file_name().display());
        assert!(generated.contains(&path), "{path} is generated no more: run `cargo xtask codegen`");
    }
}
