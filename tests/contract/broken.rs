//! Mistakes of newcomers: each file names in its first line the place of its first problem and words of the remedy, `#
//! 12:7 did you mean prompt?`.

use std::path::Path;

use signoff_engine::Settings;
use signoff_manifest::{Severity, check, report};

/// A broken file: the expected line, column and remedy, and the text.
struct Broken {
    name: String,
    line: usize,
    column: usize,
    remedy: String,
    text: String,
}

fn files() -> Vec<Broken> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("contract/broken");
    let mut files: Vec<Broken> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let heading = text.lines().next().unwrap().strip_prefix("# ").unwrap();
            let (place, remedy) = heading.split_once(' ').unwrap();
            let (line, column) = place.split_once(':').unwrap();
            let (line, column) = (line.parse().unwrap(), column.parse().unwrap());
            Broken { name, line, column, remedy: remedy.to_owned(), text }
        })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

#[test]
fn the_first_problem_of_a_broken_file_is_an_error_at_its_place_with_a_remedy() {
    let files = files();
    signoff_tests::tried(files.len(), "broken files of newcomers");
    assert!(files.len() >= 50, "{} files: where are they?", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let problems = check(&file.text, &Settings::default()).into_iter().flat_map(|checked| checked.problems);
        let lines: Vec<String> = problems.clone().map(|problem| report::line(&file.name, &problem)).collect();
        let is_told = problems.into_iter().next().is_some_and(|first| {
            first.severity == Severity::Error
                && (first.line, first.column) == (file.line, file.column)
                && first.message.contains(&file.remedy)
        });
        if !is_told {
            wrong.push(format!("{}:{} {}\n  {}", file.line, file.column, file.remedy, lines.join("\n  ")));
        }
    }
    assert_eq!(wrong, [] as [String; 0], "expected, and what was reported\n{}", wrong.join("\n"));
}
