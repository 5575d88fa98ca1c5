//! Refused files: one for each rule, each with the exact message, and every message of the plan has a file.

use std::path::{Path, PathBuf};

use signoff_engine::Settings;
use signoff_manifest::{check, report};

use signoff_tests::snapshot::matches_snapshot;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contract/invalid")
}

/// Returns every file with its name and its messages.
fn read_messages() -> Vec<(String, String)> {
    let mut messages: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let problems = check(&text, &Settings::default()).into_iter().flat_map(|checked| checked.problems);
            let lines: String = problems.map(|problem| report::line(&name, &problem) + "\n").collect();
            assert!(!lines.is_empty(), "{name}: nothing is wrong with it");
            (name, lines)
        })
        .collect();
    messages.sort();
    assert!(messages.len() > 100, "{} files: where are they?", messages.len());
    messages
}

#[test]
fn every_message_is_as_its_snapshot() {
    let messages = read_messages();
    signoff_tests::tried(messages.len(), "broken files");
    let lines: String = messages.into_iter().map(|(_, lines)| lines).collect();
    matches_snapshot("contract/snapshots/invalid.txt", &lines);
}

/// The texts of the plan's sources that are no complaint about a file: messages to agents, parts of fields, and errors
/// that only policies or a decision can cause.
const NO_COMPLAINTS: [&str; 37] = [
    // Texts for agents.
    "Answer with JSON and nothing else",
    "Judge this draft.",
    "Revise the draft.",
    "Make your final response anew",
    "<0 to 100>",
    "const ANSWER",
    "{{ task }}",
    "the final response",
    // Messages about a vote.
    "the response does not fit the schema of the step",
    // Messages that only policies cause.
    "policies add {} gates",
    "{source} adds a gate named {}",
    "after a Reject here the run continues with {}",
    "leave Defer out; a policy has a gate before that step",
    "requires that people are asked about every call of {}",
    "it asks about {rule}",
    // The text of a request about a Reject.
    "the end of the run",
    "the other workers",
    "the agent, which is told the reason",
    // Messages that the schema gives first, in its own words.
    "a name is needed, and a namespace",
    // Messages about decisions.
    "Retry asks this gate again",
    "{verdict} needs parameters",
    "parameters{}: {problem}",
    "parameters: the number at",
    "give parameters: {response",
    "Modify needs parameters",
    "parameters.{} is not known here",
    "parameters.response is missing",
    "this gate has no question",
    "response answers a single question",
    "give response or answers, and not both",
    "answers.{}: this gate has no such question",
    "answers.{} is missing",
    "answers.{} is empty",
    "{} is not an option",
    "{} is required: give it a value",
    // Messages that only the operator's settings cause.
    "raise --max-workflow-bytes",
    "raise --max-call-timeout",
];

/// Returns the sentences of a source: its string literals of at least three words, with placeholders.
fn sentences(source: &str) -> Vec<String> {
    let code: String = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |code, line| code + line + "\n");
    let mut found = Vec::new();
    let mut rest = code.as_str();
    while let Some(start) = rest.find('"') {
        let body = &rest[start + 1..];
        let mut escaped = false;
        let end = body.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end else { break };
        if body[..end].split_whitespace().count() >= 3 {
            found.push(unescape_literal(&body[..end]));
        }
        rest = &body[end + 1..];
    }
    found
}

/// Returns a string literal without quotes as the compiler reads it: a backslash joins lines and escapes quotes.
fn unescape_literal(literal: &str) -> String {
    let mut lines = literal.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start()).replace("\\\"", "\"")
}

fn collect_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.to_string_lossy().ends_with("tests.rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_message_of_the_plan_has_a_file() {
    let operator = Path::new(env!("CARGO_MANIFEST_DIR")).join("../operator");
    let (engine, expr) = (operator.join("engine/src"), operator.join("expr/src"));
    let mut files = vec![
        engine.join("plan.rs"),
        engine.join("gate/subject.rs"),
        engine.join("gate/payload.rs"),
        expr.join("re2.rs"),
    ];
    collect_sources(&engine.join("plan"), &mut files);
    let messages: String = read_messages().into_iter().map(|(_, lines)| lines).collect();
    // A placeholder can be any text: each fixed part of the sentence must be in the message, in order.
    let has_message = |sentence: &str| {
        let parts: Vec<&str> =
            sentence.split(['{', '}']).step_by(2).map(str::trim).filter(|part| !part.is_empty()).collect();
        messages.lines().any(|line| {
            let mut rest = line;
            parts.iter().all(|part| match rest.find(part) {
                Some(start) => {
                    rest = &rest[start + part.len()..];
                    true
                }
                None => false,
            })
        })
    };
    let mut missing = Vec::new();
    for file in files {
        for sentence in sentences(&std::fs::read_to_string(&file).unwrap()) {
            if !NO_COMPLAINTS.iter().any(|known| sentence.contains(known)) && !has_message(&sentence) {
                missing.push(format!("{}: {sentence}", file.file_name().unwrap().display()));
            }
        }
    }
    assert_eq!(missing, [] as [String; 0], "write a file that brings each of these about");
}
