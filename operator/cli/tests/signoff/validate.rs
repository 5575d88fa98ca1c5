//! The files of a folder that `signoff validate` reads and those that it skips, and the warnings of `validate` and
//! `plan`.
//!
//! The tests read only the output of the program.

use std::fs;

use super::*;

#[test]
fn a_file_of_a_folder_is_skipped_if_no_document_is_an_object_of_signoff() {
    let home = Home::new();
    fs::create_dir(home.path().join("all")).unwrap();
    home.file("all/letter.yaml", LETTER);
    home.file("all/letter.answers.yaml", "review: approve\n");
    let ended = home.run(&["validate", "all"]).with(0);
    assert!(ended.err.contains("letter.answers.yaml: none of Signoff's objects: not checked"), "{ended:?}");
    home.run(&["validate", "all/letter.answers.yaml"]).with(3);
    // An object of Signoff is checked even beside a document that is none.
    let broken = LETTER.replace("prompt:", "promt:");
    assert_ne!(broken, LETTER);
    home.file("all/two.yaml", &format!("review: approve\n---\n{broken}"));
    let ended = home.run(&["validate", "all"]).with(3);
    assert!(ended.out.contains("two.yaml") && ended.out.contains("promt"), "{ended:?}");
}

#[test]
fn a_warning_of_a_file_is_shown_once_when_it_runs() {
    let home = Home::new();
    let number = LETTER.replace(
        "{name: customer, value: ACME}",
        "{name: customer, value: ACME}, {name: accountID, type: integer, value: 7}",
    );
    home.file("letter.yaml", &number);
    let advice = "accountID is an identifier";
    let started = home.run(&["run", "letter.yaml"]).with(19);
    assert_eq!(started.err.matches(advice).count(), 1, "{started:?}");
    assert!(started.err.contains("letter.yaml:6:"), "with its place: {started:?}");
    let resumed = home.run(&["run", "--resume", &home.id()]).with(19);
    assert_eq!(resumed.err.matches(advice).count(), 1, "{resumed:?}");
}

#[test]
fn plan_and_validate_warn_of_ungated_tools_that_can_change_something() {
    let home = Home::new();
    let refund = include_str!("../../../../examples/tools/refund.yaml");
    let (before, gates) = refund.split_once("  gates:\n").unwrap();
    let (_, steps) = gates.split_once("  steps:\n").unwrap();
    let open = format!("{before}  steps:\n{steps}");
    home.file("gated.yaml", refund);
    home.file("open.yaml", &open);
    home.file("reads.yaml", &open.replace("effects: irreversible", "effects: read"));
    let warning = "calls of refund can change something, and no gate asks about them";
    let planned = home.run(&["plan", "open.yaml"]).with(0);
    let line = format!("open.yaml:18:5: warning[Suspicious]: spec.tools[0]: {warning}\n");
    assert_eq!(planned.err, line, "{planned:?}");
    assert!(planned.out.contains("    no gate of this Workflow asks\n"), "{planned:?}");
    let validated = home.run(&["validate", "open.yaml"]).with(0);
    assert!(validated.out.contains(&format!("warning[Suspicious]: {warning}\n")), "{validated:?}");
    for honest in ["gated.yaml", "reads.yaml"] {
        for command in ["plan", "validate"] {
            let ended = home.run(&[command, honest]).with(0);
            assert!(!format!("{ended:?}").contains("warning"), "{command} {honest}: {ended:?}");
        }
    }
}
