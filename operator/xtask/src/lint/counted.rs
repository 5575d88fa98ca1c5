//! House rules that some of the code still breaks. The number of places is committed here, and only falls.
//!
//! **Invariant:** a number that is not exactly the number of places fails the lint, so each corrected place lowers the
//! number.

use std::collections::BTreeMap;

use anyhow::Result;

use super::files::{File, read_files};

/// A rule: its name, the number of places that break it, and the function that finds them.
type Counted = (&'static str, usize, fn(&[File]) -> Vec<String>);

const COUNTED: [Counted; 4] = [
    ("no doc comment begins with a riddle", 0, find_riddles),
    ("no comment says what a thing must not do", 0, find_prohibitions),
    ("no comment is wider than 120 columns", 0, find_wide_comments),
    ("a type name is declared once in a crate", 0, find_duplicate_types),
];

/// First words of a doc comment that name neither a thing nor an action.
const RIDDLES: [&str; 15] = [
    "What",
    "Who",
    "Whom",
    "Whose",
    "Whoever",
    "Whatever",
    "How",
    "Why",
    "Where",
    "Nobody",
    "Somebody",
    "Everybody",
    "Nothing",
    "Everything",
    "That",
];

const WIDTH: usize = 120;

/// Returns the name and the problems of each rule.
pub(crate) fn rules() -> impl Iterator<Item = (&'static str, Result<Vec<String>>)> {
    let files = read_files().map_err(|error| format!("{error:#}"));
    COUNTED.into_iter().map(move |(name, left, places)| {
        let problems = match &files {
            Ok(files) => Ok(check_count(left, places(files)).into_iter().collect()),
            Err(error) => Err(anyhow::anyhow!("{error}")),
        };
        (name, problems)
    })
}

/// Returns an error if the number of places is not `left`.
fn check_count(left: usize, places: Vec<String>) -> Option<String> {
    const SHOWN: usize = 20;
    let file = file!();
    match places.len() {
        found if found < left => Some(format!("{found} places are left: write {found} in {file}, where {left} stands")),
        found if found > left => {
            let last = places.iter().rev().take(SHOWN).cloned().collect::<Vec<_>>().join("\n  ");
            Some(format!("{found} places, and {left} are allowed in {file}; mend the new one of:\n  {last}"))
        }
        _ => None,
    }
}

fn rust_files(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".rs"))
}

/// Returns the places of the lines of Rust files that match.
fn find_lines(files: &[File], matches: impl Fn(&[&str], usize) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for file in rust_files(files) {
        let lines: Vec<_> = file.text.lines().map(str::trim_start).collect();
        let found = (0..lines.len()).filter(|at| matches(&lines, *at));
        places.extend(found.map(|at| format!("{}:{}", file.path, at + 1)));
    }
    places
}

fn find_riddles(files: &[File]) -> Vec<String> {
    find_lines(files, |lines, at| {
        let is_first = at == 0 || !lines[at - 1].starts_with("///");
        let text = lines[at].strip_prefix("/// ").filter(|_| is_first).unwrap_or_default();
        RIDDLES.contains(&text.split([' ', ',']).next().unwrap_or_default())
    })
}

fn find_prohibitions(files: &[File]) -> Vec<String> {
    find_lines(files, |lines, at| lines[at].starts_with("//") && lines[at].contains(concat!("It must", " not")))
}

fn find_wide_comments(files: &[File]) -> Vec<String> {
    let mut places = Vec::new();
    for file in rust_files(files) {
        let is_wide = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > WIDTH;
        let wide = file.text.lines().enumerate().filter(|(_, line)| is_wide(line));
        places.extend(wide.map(|(at, _)| format!("{}:{}", file.path, at + 1)));
    }
    places
}

/// Returns the place of each type whose name another type of the crate has already.
fn find_duplicate_types(files: &[File]) -> Vec<String> {
    let mut declared: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let is_test = |file: &&File| file.path.ends_with("tests.rs") || file.path.contains("/tests/");
    for file in rust_files(files).filter(|file| file.path.starts_with("operator/") && !is_test(file)) {
        let Some(krate) = crate_of(&file.path) else { continue };
        let product = file.text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (at, line) in product.lines().enumerate() {
            if let Some(name) = declared_type(line) {
                declared.entry((krate, name)).or_default().push(format!("{}:{}: {name}", file.path, at + 1));
            }
        }
    }
    declared.into_values().flat_map(|places| places.into_iter().skip(1)).collect()
}

/// Returns the folder of the crate of a file. A program in a folder below `bin` is a crate of its own.
fn crate_of(path: &str) -> Option<&str> {
    let (folder, file) = path.split_once("/src/")?;
    match file.strip_prefix("bin/").and_then(|file| file.split_once('/')) {
        Some((program, _)) => path.get(..folder.len() + "/src/bin/".len() + program.len()),
        None => Some(folder),
    }
}

/// Returns the name of the type that a line declares at the top of a module.
fn declared_type(line: &str) -> Option<&str> {
    let mut words = line.split(' ').skip_while(|word| word.starts_with("pub")).take(2);
    let kind = words.next().filter(|word| ["struct", "enum", "union", "trait", "type"].contains(word));
    let name = kind.and_then(|_| words.next())?;
    Some(name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_number_that_differs_from_the_count_is_a_problem() {
        let places = |count: usize| (0..count).map(|at| format!("a.rs:{at}")).collect::<Vec<_>>();
        assert_eq!(check_count(2, places(2)), None);
        assert!(check_count(2, places(1)).unwrap_or_default().contains("write 1"));
        assert!(check_count(2, places(3)).unwrap_or_default().contains("a.rs:2"));
    }

    #[test]
    fn the_first_word_of_a_doc_comment_names_a_thing_or_an_action() {
        let texts = ["/// What it is.", "    /// Whoever asks.", "x\n/// How long"];
        for text in texts {
            assert_eq!(find_riddles(&[file("a.rs", text)]).len(), 1, "{text}");
        }
        for text in ["/// Whether it is.", "/// Returns it.\n/// What it is.", "// What", "/// Whatsoever"] {
            assert!(find_riddles(&[file("a.rs", text)]).is_empty(), "{text}");
        }
    }

    #[test]
    fn prohibitions_and_wide_lines_are_found_in_comments_only() {
        let says = concat!("It must", " not judge");
        assert_eq!(find_prohibitions(&[file("a.rs", &format!("//! {says}."))]), ["a.rs:1"]);
        assert!(find_prohibitions(&[file("a.rs", &format!("let a = \"{says}\";")), file("a.md", says)]).is_empty());
        let wide = "x".repeat(WIDTH - 2);
        assert_eq!(find_wide_comments(&[file("a.rs", &format!("\n// {wide}"))]), ["a.rs:2"]);
        assert!(find_wide_comments(&[file("a.rs", &format!("//{wide}\nlet a = 1; // {wide}"))]).is_empty());
    }

    #[test]
    fn a_name_of_two_types_is_found_within_a_crate_and_not_across_crates() {
        let one = file("operator/a/src/x.rs", "pub(crate) struct Same<T>(T);\nenum Other {}\ntype Alias = u8;");
        let twin = |path: &str| file(path, "pub trait Same: Sized {}\n\n#[cfg(test)]\nmod tests {\nenum Other {}\n}");
        let found = find_duplicate_types(&[one, twin("operator/a/src/y.rs"), twin("operator/b/src/x.rs")]);
        assert_eq!(found, ["operator/a/src/y.rs:1: Same"]);
        let programs = [twin("operator/a/src/bin/one/x.rs"), twin("operator/a/src/bin/two/x.rs")];
        assert!(find_duplicate_types(&programs).is_empty());
    }
}
