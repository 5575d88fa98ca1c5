//! Files of the Strands CLI: the result of each import is recorded, and each result can be run. The format is what
//! `signoff_strands::fields` lists.

use std::path::{Path, PathBuf};

use signoff_engine::Settings;
use signoff_manifest::{Severity, check};
use signoff_strands as strands;

use signoff_tests::snapshot::matches_snapshot;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contract/strands")
}

/// Returns every file with its name.
pub(crate) fn cases() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut cases: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    cases.sort();
    assert!(cases.len() >= 25, "{} files: where are they?", cases.len());
    cases
}

#[test]
fn every_import_is_as_its_snapshot() {
    for (name, text) in cases() {
        signoff_tests::tried(1, "imported files");
        let imported = strands::import(&text, "alice").unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
        let notes: String = imported.notes.iter().map(|note| format!("# {note}\n")).collect();
        matches_snapshot(
            &format!("contract/snapshots/strands/{name}.yaml"),
            &format!("{}---\n{notes}", imported.to_yaml()),
        );
    }
}

#[test]
fn every_import_is_a_valid_workflow() {
    for (name, text) in cases() {
        let imported = strands::import(&text, "alice").unwrap();
        assert_eq!(errors(&imported.to_yaml()), [] as [String; 0], "{name}");
    }
}

/// Returns the errors of a Workflow, with their fields.
fn errors(workflow: &str) -> Vec<String> {
    // A file with commands is for local runs.
    let checked = check(workflow, &Settings { allow_commands: true, ..Settings::default() });
    let problems = checked.iter().flat_map(|one| &one.problems).filter(|problem| problem.severity == Severity::Error);
    problems.map(|problem| format!("{}: {}", problem.field, problem.message)).collect()
}

/// A dropped edge could lead past a gate.
#[test]
fn an_edge_is_kept_and_refused_when_cel_cannot_express_its_condition() {
    let (_, text) = cases().into_iter().find(|(name, _)| name == "graph-contains").unwrap();
    for condition in ["letter | default('x') == 'x'", "{{ steps[-1].response == 'x' }}", "contains(subtasks, 'x')"] {
        let changed = text.replace("nodes.read_it.visits contains 'x'", condition);
        assert_ne!(changed, text);
        let imported = strands::import(&changed, "alice").unwrap();
        let unsupported = imported.notes.iter().filter(|note| note.weight == strands::NoteLevel::Unsupported);
        let fields: Vec<_> = unsupported.map(|note| note.field.as_str()).collect();
        assert_eq!(fields, ["pattern.config.edges[0].choose[3].when"], "{condition}");
        let errors = errors(&imported.to_yaml());
        let refused = "spec.pattern.graph.edges[0].choose[3].when: column 1: a condition is CEL, not a template";
        assert!(matches!(errors.as_slice(), [one] if one.starts_with(refused)), "{condition}: {errors:?}");
    }
}

#[test]
fn all_patterns_and_positions_of_gates_are_tried() {
    let all: String = cases().into_iter().map(|(_, text)| text).collect();
    for pattern in ["chain", "workflow", "routing", "parallel", "evaluator_optimizer", "orchestrator_workers", "graph"]
    {
        assert!(all.contains(&format!("type: {pattern}\n")), "{pattern}");
    }
    for place in ["review_router", "review_gate", "decomposition_review", "reduce_review"] {
        assert!(all.contains(place), "{place}");
    }
}

#[test]
fn every_field_of_the_format_is_tried() {
    let all: String = cases().into_iter().map(|(_, text)| text).collect();
    let untried: Vec<_> = strands::fields::SECTIONS
        .iter()
        .flat_map(|section| section.fields.iter().map(move |(field, ..)| (section.name, *field)))
        .filter(|(_, field)| !all.contains(field))
        .collect();
    assert_eq!(untried, []);
}

/// Returns the table of the documentation, from the importer's own list.
fn table() -> String {
    let mut text = "| of | field | takes | becomes |\n|---|---|---|---|\n".to_owned();
    for section in strands::fields::SECTIONS {
        for (field, kind, fate) in section.fields {
            let said = match fate {
                strands::fields::FieldEffect::Becomes(what) => (*what).to_owned(),
                strands::fields::FieldEffect::LeftOut(why) => format!("left out: {why}"),
                strands::fields::FieldEffect::Without(why) => format!("**changed**: left out: {why}"),
                strands::fields::FieldEffect::Missing(why) => format!("**unsupported**: {why}"),
            };
            text += &format!("| {} | `{field}` | {kind} | {said} |\n", section.name);
        }
    }
    text
}

#[test]
fn the_documentation_lists_every_field_and_its_effect() {
    let page = folder().join("../../../docs/guides/importing-from-strands-cli.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, kept) = text.split_once("## Every field\n\n").expect("a heading `Every field`");
    if std::env::var_os("SIGNOFF_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&page, format!("{before}## Every field\n\n{}", table())).unwrap();
        return;
    }
    assert!(kept == table(), "the table differs from the importer: write it with SIGNOFF_UPDATE_SNAPSHOTS=1");
}
