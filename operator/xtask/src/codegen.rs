//! Writes the generated files, or reports the files that are out of date. Their content comes from functions of the API
//! crate, the engine, the runtime and the table of attacks, with which a test can compare without this program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use signoff_executor::address::ranges;
use signoff_tests::attacks;
use signoff_tests::cargo::{root, shown};
use signoff_tests::say;

use crate::{catalogue, glossary, handbook, messages};

/// Writes the files that are out of date, and removes files that are no longer generated. With `check`, only reports
/// both.
pub(crate) fn run(check: bool) -> Result<ExitCode> {
    if check {
        return Ok(if is_current()? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let wanted = render_files()?;
    for (path, text) in &wanted {
        if fs::read_to_string(path).ok().as_ref() != Some(text) {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
            say::result(&format!("wrote {}", shown(path)));
        }
    }
    for path in find_left_over(&wanted)? {
        fs::remove_file(&path)?;
        say::result(&format!("removed {}", shown(&path)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether every generated file is up to date. Prints the files that are not.
pub(crate) fn is_current() -> Result<bool> {
    let wanted = render_files()?;
    let mut stale: Vec<_> = wanted
        .iter()
        .filter(|(path, text)| fs::read_to_string(path).ok().as_ref() != Some(text))
        .map(|(path, _)| format!("{} differs from what is generated", shown(path)))
        .collect();
    stale.extend(find_left_over(&wanted)?.iter().map(|path| format!("{} is generated no more", shown(path))));
    for problem in &stale {
        say::problem(&format!("{problem}: run `cargo xtask codegen` and commit the result"));
    }
    Ok(stale.is_empty())
}

fn render_files() -> Result<Vec<(PathBuf, String)>> {
    let mut files = signoff_admission::files::generated()?;
    files.extend(attacks::pages());
    files.push((handbook::PAGE.to_owned(), handbook::page()?));
    files.push((ranges::PAGE.to_owned(), ranges::page()));
    files.push((catalogue::PAGE.to_owned(), catalogue::page()?));
    files.push((glossary::PAGE.to_owned(), glossary::page()?));
    files.push((messages::SNAPSHOT.to_owned(), messages::render_snapshot()?));
    Ok(files.into_iter().map(|(path, text)| (root().join(path), text)).collect())
}

fn find_left_over(wanted: &[(PathBuf, String)]) -> Result<Vec<PathBuf>> {
    let wanted: BTreeSet<&Path> = wanted.iter().map(|(path, _)| path.as_path()).collect();
    let mut found = Vec::new();
    // The folder has only generated files. It does not exist before the first file is written.
    for entry in fs::read_dir(root().join(signoff_admission::files::FOLDER)).into_iter().flatten() {
        found.push(entry?.path());
    }
    found.retain(|path| !wanted.contains(path.as_path()));
    found.sort();
    Ok(found)
}
