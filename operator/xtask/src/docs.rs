//! The documentation as a book: pages and the files that they link to -> one folder -> mdBook. `docs/SUMMARY.md`
//! defines the order of the pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use signoff_tests::cargo::{root, surround};
use signoff_tests::page::links;
use signoff_tests::say;

use crate::tools::Tool;

const MDBOOK: Tool = Tool {
    name: "mdbook",
    // Serving and watching pages takes many more crates, and is not needed.
    arguments: &["--version", "0.5.4", "--no-default-features", "--features", "search"],
    minutes: 4,
};
const SUMMARY: &str = "docs/SUMMARY.md";
const SETTINGS: &str =
    "[book]\ntitle = \"Signoff\"\nlanguage = \"en\"\nsrc = \"src\"\n\n[build]\ncreate-missing = false\n";

/// Writes the book into a folder.
pub(crate) fn run(out: &Path) -> Result<ExitCode> {
    let folder = root().join("target/book");
    let source = folder.join("src");
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| source.display().to_string())?;
    }
    let summary = fs::read_to_string(root().join(SUMMARY)).context(SUMMARY)?;
    let pages = find_linked_files(&summary, Path::new(SUMMARY));
    for page in &pages {
        let text = fs::read_to_string(root().join(page)).with_context(|| page.display().to_string())?;
        copy(page, &source)?;
        for file in find_linked_files(&text, page).difference(&pages) {
            // A link to a folder has no file to copy. The contract tests check that every link has a target.
            if root().join(file).is_file() {
                copy(file, &source)?;
            }
        }
    }
    fs::write(source.join("SUMMARY.md"), link_from_root(&summary))?;
    fs::write(folder.join("book.toml"), SETTINGS)?;
    let program = MDBOOK.ensure_installed()?;
    let out = std::path::absolute(out)?;
    let mut build = Command::new(program);
    surround(build.arg("build").arg("--dest-dir").arg(&out).arg(&folder));
    let built = build.output().with_context(|| format!("running {build:?}"))?;
    // mdBook writes its progress and its warnings to standard error.
    let output = String::from_utf8_lossy(&built.stderr);
    say::result(output.trim_end());
    ensure!(built.status.success(), "mdBook could not build the book");
    if output.contains("WARN") || output.contains("ERROR") {
        bail!("mdBook built the book with warnings: mend what it names above");
    }
    say::step(&format!("{} pages: {}", pages.len(), out.join("index.html").display()));
    Ok(ExitCode::SUCCESS)
}

fn copy(file: &Path, into: &Path) -> Result<()> {
    let to = into.join(file);
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(root().join(file), &to).with_context(|| file.display().to_string())?;
    Ok(())
}

/// Returns the files of the repository that a page links to, from the repository's root.
fn find_linked_files(text: &str, page: &Path) -> BTreeSet<PathBuf> {
    let folder = page.parent().unwrap_or(Path::new(""));
    let file = |link: &String| {
        link.split('#').next().filter(|file| !file.is_empty()).map(|file| normalize(&folder.join(file)))
    };
    links(text).iter().filter_map(file).collect()
}

/// Returns a path without `.` and `..`.
fn normalize(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, component| {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
        path
    })
}

/// Returns the summary with links that begin at the repository's root, where mdBook finds the pages.
fn link_from_root(summary: &str) -> String {
    let line = |line: &str| match line.split_once("](") {
        Some((title, target)) => {
            let target = target.trim_end_matches(')');
            format!("{title}]({})\n", normalize(&Path::new("docs").join(target)).display())
        }
        None => format!("{line}\n"),
    };
    summary.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_files_of_the_repository_without_anchors_and_sites() {
        let text = "[a](../README.md#top) [b](https://example.com/x) [c](#here) [d](concepts/verdicts.md)";
        let found = find_linked_files(text, Path::new("docs/security.md"));
        assert_eq!(found, [PathBuf::from("README.md"), PathBuf::from("docs/concepts/verdicts.md")].into());
    }

    #[test]
    fn a_summary_from_the_root_names_the_same_pages() {
        let summary = "# Summary\n\n[Signoff](../README.md)\n\n- [Patterns](patterns/README.md)\n  - [Chain](patterns/chain.md)\n";
        let expected = "# Summary\n\n[Signoff](README.md)\n\n- [Patterns](docs/patterns/README.md)\n  - [Chain](docs/patterns/chain.md)\n";
        assert_eq!(link_from_root(summary), expected);
    }
}
