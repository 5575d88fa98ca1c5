//! The texts of the licences of all linked crates, most of which require that their text is passed on. `deny.toml`
//! lists the allowed licences.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::sbom::Parts;

/// The first letters of the names of files with a licence, in lower case.
const FILE_PREFIXES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// Renders every text of a licence once, below the names of the crates with this text.
pub(super) fn render_texts(parts: &Parts<'_>) -> Result<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((name, version), package) in parts.packages() {
        let manifest = package["manifest_path"].as_str().context("a package without a manifest")?;
        let folder = Path::new(manifest).parent().context("a manifest without a folder")?;
        let texts = read_texts(folder)?;
        let title = format!("{name} {version} ({})", package["license"].as_str().unwrap_or("see its text"));
        // The crates of this repository have no text in their folders, and neither do a few others.
        let no_text = texts.is_empty().then(|| "no text of its own\n".to_owned());
        for text in texts.into_iter().chain(no_text) {
            by_text.entry(text).or_default().push(title.clone());
        }
    }
    let mut sections: Vec<_> = by_text.into_iter().map(|(text, titles)| (titles, text)).collect();
    sections.sort();
    let line = "=".repeat(80);
    let section = |(titles, text): (Vec<String>, String)| format!("{line}\n{}\n{line}\n\n{text}\n", titles.join("\n"));
    Ok(sections.into_iter().map(section).collect())
}

/// Reads the texts of licences in the folder of a crate, in the order of the names of their files.
fn read_texts(folder: &Path) -> Result<Vec<String>> {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && FILE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            texts.insert(name, String::from_utf8_lossy(&fs::read(&path)?).replace("\r\n", "\n"));
        }
    }
    Ok(texts.into_values().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::read_texts;

    #[test]
    fn texts_of_licences_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in
            [("LICENSE-MIT", "mit\r\n"), ("COPYING", "copying"), ("lib.rs", "code"), ("NOTICE.txt", "notice")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(read_texts(folder.path()).unwrap(), ["copying", "mit\n", "notice"]);
    }
}
