//! The text files of the repository that git tracks or would track.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use signoff_tests::cargo::{output, root};

/// A text file: its path from the root of the repository, and its text.
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
}

/// Returns all text files.
pub(super) fn read_files() -> Result<Vec<File>> {
    let listed = output(Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let file = root().join(path);
        // A deleted file is listed until the deletion is committed, and a link is a text of another place.
        if !file.is_file() || file.is_symlink() {
            continue;
        }
        let bytes = fs::read(&file).with_context(|| format!("reading {path}"))?;
        // A file that is not UTF-8 has no lines.
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}
