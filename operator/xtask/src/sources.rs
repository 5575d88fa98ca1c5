//! The source files of a crate, without the files that only tests compile.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::imports::Imports;

/// Returns the `.rs` files of a folder in order, without files named `…tests.rs` and without the modules that a file
/// declares under `#[cfg(test)]`.
///
/// # Errors
/// A file that cannot be read or is not Rust.
pub(crate) fn find_sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut test_modules) = (Vec::new(), Vec::new());
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                let declared = Imports::read(&text).with_context(|| path.display().to_string())?.tests;
                test_modules.extend(declared.iter().map(|module| modules_of(&path).join(module)));
                found.push(path);
            }
        }
    }
    found.retain(|file| {
        let module = modules_of(file);
        !file.to_string_lossy().ends_with("tests.rs")
            && !test_modules.iter().any(|test_module| module.starts_with(test_module))
    });
    found.sort();
    Ok(found)
}

/// Returns the folder of a file's modules: `a` for both `a.rs` and `a/lib.rs`.
fn modules_of(file: &Path) -> PathBuf {
    let is_root = ["lib.rs", "main.rs"].iter().any(|root| file.ends_with(root));
    if is_root { file.parent().unwrap_or(file).to_owned() } else { file.with_extension("") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn modules_that_only_tests_compile_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod sample;"),
            ("a.rs", "#[cfg(test)]\nmod checks;\nmod b;"),
            ("a/b.rs", ""),
            ("a/checks.rs", ""),
            ("a/checks/deep.rs", ""),
            ("sample.rs", ""),
            ("a_tests.rs", ""),
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = find_sources(folder.path()).unwrap();
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a/b.rs", "a.rs", "lib.rs"]);
    }
}
