//! The texts that commands are given: files, folders of files, and standard input.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use signoff_cli::{encoding::decode, sanitize::one_line};

/// The name of standard input among files.
const STDIN: &str = "-";

/// The extensions of the files that are read from a folder.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// A text and its name.
#[derive(Debug)]
pub struct Text {
    /// The name for a terminal.
    pub name: String,
    pub text: String,
    /// Whether the file was found in a folder, and not named itself.
    pub found: bool,
}

/// Returns the texts of the named files and folders, and a problem for each that cannot be read.
pub fn read_all(names: &[PathBuf]) -> (Vec<Text>, Vec<String>) {
    let (mut texts, mut problems) = (Vec::new(), Vec::new());
    for name in names {
        match find_files(name) {
            Ok(found) if found.is_empty() => problems
                .push(format!("{}: there is no file in it that ends in .yaml, .yml or .json", display_path(name))),
            Ok(found) => {
                for file in found {
                    match read_one(&file) {
                        Ok(text) => texts.push(Text { found: file != *name, ..text }),
                        Err(why) => problems.push(why),
                    }
                }
            }
            Err(error) => problems.push(format!("{}: {error}", display_path(name))),
        }
    }
    (texts, problems)
}

/// Returns the text of a file, or of standard input for `-`.
pub fn read_one(file: &Path) -> Result<Text, String> {
    let is_stdin = file == Path::new(STDIN);
    let name = if is_stdin { "standard input".to_owned() } else { display_path(file) };
    let read = if is_stdin { read_to_end(io::stdin().lock()) } else { fs::read(file) };
    match read.map_err(|error| error.to_string()).and_then(decode) {
        Ok(text) => Ok(Text { name, text, found: false }),
        Err(why) => Err(format!("{name}: {why}")),
    }
}

/// Returns a path for a terminal, as one line. Names of files can be text of others too.
pub fn display_path(path: &Path) -> String {
    one_line(&path.display().to_string(), 1024)
}

/// Returns the text of a file with values or answers.
pub fn read_file(file: &Path) -> Result<String, String> {
    fs::read(file).map_err(|error| error.to_string()).and_then(decode)
}

fn read_to_end(mut from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the file itself, or the files of a folder and of the folders below it, sorted by path.
fn find_files(name: &Path) -> io::Result<Vec<PathBuf>> {
    if name == Path::new(STDIN) || !name.is_dir() {
        return Ok(vec![name.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![name.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            // A link to a folder is not followed, because it can lead back to a folder above.
            if kind.is_dir() {
                folders.push(path);
            } else if path.extension().and_then(|end| end.to_str()).is_some_and(|end| ENDINGS.contains(&end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_folder_is_read_with_all_manifests_below_it_sorted() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        for name in ["b/two.yml", "one.yaml", "three.json", "readme.md"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let (texts, problems) = read_all(&[folder.path().to_owned()]);
        let found: Vec<_> = texts.iter().map(|text| text.text.as_str()).collect();
        assert_eq!(found, ["b/two.yml", "one.yaml", "three.json"]);
        assert!(texts.iter().all(|text| text.found) && !read_all(&[folder.path().join("one.yaml")]).0[0].found);
        assert_eq!(problems, [] as [String; 0]);
    }

    #[cfg(unix)]
    #[test]
    fn a_hostile_name_of_a_file_is_one_line_without_colour() {
        let folder = tempfile::tempdir().unwrap();
        let hostile = "a\u{1b}[2J\nvalid: yes\u{202e}";
        fs::write(folder.path().join(format!("{hostile}.yaml")), "a").unwrap();
        fs::write(folder.path().join(format!("b{hostile}.yaml")), b"\xA3").unwrap();
        fs::create_dir(folder.path().join(hostile)).unwrap();
        let (texts, mut problems) = read_all(&[folder.path().to_owned(), folder.path().join(hostile)]);
        problems.extend(read_all(&[folder.path().join(format!("{hostile}.json"))]).1);
        assert_eq!((texts.len(), problems.len()), (1, 3), "{problems:?}");
        assert!(texts[0].name.ends_with("/a[2J valid: yes⟨U+202E⟩.yaml"), "{}", texts[0].name);
        for shown in problems.iter().chain([&texts[0].name]) {
            assert!(!shown.contains(['\u{1b}', '\n', '\u{202e}']), "{shown:?}");
        }
    }

    #[test]
    fn an_unreadable_file_does_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), "a").unwrap();
        let (texts, problems) = read_all(&[folder.path().join("missing.yaml"), folder.path().join("a.yaml")]);
        assert_eq!((texts.len(), problems.len()), (1, 1));
        assert!(problems[0].contains("missing.yaml"), "{problems:?}");
    }
}
