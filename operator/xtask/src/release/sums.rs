//! The checksums of a release, as `sha256sum --check` reads them.

use std::fs;
use std::path::Path;

use anyhow::Result;
use signoff_tests::image::sha256;

use super::find_files;

/// The name of the file with the checksums.
pub(super) const NAME: &str = "SHA256SUMS";

/// Returns a line for every file in a folder except for the checksums, sorted by path.
pub(super) fn render_sums(folder: &Path) -> Result<String> {
    let mut lines = String::new();
    for (path, file) in find_files(folder)?.into_iter().filter(|(path, _)| path != NAME) {
        let digest = sha256(&fs::read(file)?);
        lines.push_str(&format!("{}  {path}\n", digest.trim_start_matches("sha256:")));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::process::Command;

    use super::{NAME, render_sums};

    #[test]
    fn sha256sum_accepts_every_file_and_finds_a_changed_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| fs::write(folder.path().join(path), text).unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        write("b", "two");
        write("deep/a", "three");
        write("a", "");
        let lines = render_sums(folder.path()).unwrap();
        write(NAME, &lines);
        assert_eq!(render_sums(folder.path()).unwrap(), lines, "the checksums are not among them");
        let paths: Vec<_> = lines.lines().filter_map(|line| line.split_once("  ")).map(|(_, path)| path).collect();
        assert_eq!(paths, ["a", "b", "deep/a"]);
        let check = || {
            let mut command = Command::new("sha256sum");
            command.args(["--check", "--quiet", NAME]).current_dir(folder.path()).output().unwrap().status.success()
        };
        assert!(check());
        write("b", "other");
        assert!(!check());
    }
}
