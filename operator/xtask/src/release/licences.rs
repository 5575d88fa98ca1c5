//! The texts of the licences of all linked crates, most of which require that their text is passed on. `deny.toml`
//! lists the allowed licences.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::sbom::Parts;

const BEGINNINGS: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// Returns every text once, under the names of its crates.
pub(super) fn texts(parts: &Parts<'_>) -> Result<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((name, version), package) in parts.packages() {
        let manifest = package["manifest_path"].as_str().context("a package without a manifest")?;
        let found = found(Path::new(manifest).parent().context("a manifest without a folder")?)?;
        let of = format!("{name} {version} ({})", package["license"].as_str().unwrap_or("see its text"));
        // A crate of ours has the repository's, and a few others name their licence and have no text.
        let none = found.is_empty().then(|| "no text of its own\n".to_owned());
        for text in found.into_iter().chain(none) {
            by_text.entry(text).or_default().push(of.clone());
        }
    }
    let mut sections: Vec<_> = by_text.into_iter().map(|(text, of)| (of, text)).collect();
    sections.sort();
    let line = "=".repeat(80);
    Ok(sections.into_iter().map(|(of, text)| format!("{line}\n{}\n{line}\n\n{text}\n", of.join("\n"))).collect())
}

/// Returns the texts in the folder of a crate, in the order of their names.
fn found(folder: &Path) -> Result<Vec<String>> {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)) {
            texts.insert(name, String::from_utf8_lossy(&fs::read(&path)?).replace("\r\n", "\n"));
        }
    }
    Ok(texts.into_values().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::found;

    #[test]
    fn texts_of_licences_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in
            [("LICENSE-MIT", "mit\r\n"), ("COPYING", "copying"), ("lib.rs", "code"), ("NOTICE.txt", "notice")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(found(folder.path()).unwrap(), ["copying", "mit\n", "notice"]);
    }
}
