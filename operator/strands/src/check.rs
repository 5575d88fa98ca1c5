//! The problems of a file of either format: one of ours, or one of the Strands CLI, which is checked as the Workflow
//! that it becomes.
//!
//! **Invariant:** an imported Workflow is checked like a written one.

use signoff_api::Workflow;
use signoff_engine::Settings;
use signoff_manifest::{
    Checked, Problem, REQUESTER, Severity, check_with,
    problem::{Problems, place},
    source::{self, Node},
};

use super::{ImportNote, Imported, NoteLevel, import_node, is_file};

/// Checks every object of a text, of either format.
#[must_use]
pub fn check(text: &str, settings: &Settings) -> Vec<Checked> {
    check_with(text, settings, |node| is_file(node).then(|| check_strands_file(text, node, settings)))
}

/// Checks a file of the Strands CLI as the Workflow that it becomes. Each part without an equivalent is a warning.
fn check_strands_file(text: &str, node: &Node, settings: &Settings) -> Checked {
    let title = format!("Strands CLI file {}", node.get("name").and_then(Node::text).unwrap_or_default());
    let title = title.trim_end().to_owned();
    match import_node(text, node, REQUESTER) {
        Err(problems) => Checked { title, workflow: None, is_named: true, problems },
        Ok(imported) => {
            let mut problems = check_import(text, &imported, settings);
            for note in imported.notes.iter().filter(|note| note.weight == NoteLevel::Unsupported) {
                let mut warnings = Problems::of(text);
                warnings.warn("Unsupported", &note.field, place(node, &note.field), note.message.clone());
                problems.append(&mut warnings.found);
            }
            problems.sort_by_key(|problem| (problem.at.start, problem.severity));
            Checked { title, workflow: Some(imported.workflow), is_named: true, problems }
        }
    }
}

/// The result of [`read_any`].
#[derive(Clone, Debug)]
pub struct LoadedWorkflow {
    /// The Workflow to run.
    pub workflow: Box<Workflow>,
    /// The notes of its import; empty for a Workflow of Signoff.
    pub notes: Vec<ImportNote>,
    /// The warnings.
    pub warnings: Vec<Problem>,
}

/// Reads the one Workflow of a text, or imports a file of the Strands CLI. `approver` decides at gates for which such a
/// file names no approver.
///
/// Required inputs without a value are warnings here, because the user can still give them.
///
/// # Errors
/// All errors of the text.
pub fn read_any(text: &str, approver: &str, settings: &Settings) -> Result<LoadedWorkflow, Vec<Problem>> {
    let documents = source::documents(text);
    if let [Ok(node)] = documents.as_slice()
        && is_file(node)
    {
        let imported = import_node(text, node, approver)?;
        let checked = check_import(text, &imported, settings);
        let (errors, warnings) = split_by_severity(checked);
        return match errors.is_empty() {
            true => Ok(LoadedWorkflow { workflow: imported.workflow, notes: imported.notes, warnings }),
            false => Err(errors),
        };
    }
    let checked = check(text, settings);
    let problems: Vec<Problem> = checked.iter().flat_map(|object| object.problems.clone()).collect();
    let (mut errors, warnings) = split_by_severity(problems);
    let mut workflows = checked.into_iter().filter_map(|object| object.workflow);
    match (workflows.next(), workflows.next()) {
        (Some(workflow), None) if errors.is_empty() => Ok(LoadedWorkflow { workflow, notes: Vec::new(), warnings }),
        (first, second) => {
            if errors.is_empty() {
                let mut problems = Problems::of(text);
                let is_several = first.is_some() && second.is_some();
                let what = if is_several { "more than one Workflow" } else { "no Workflow" };
                problems.error("UnknownKind", "", 0..0, format!("there is {what} in it: give a file with one"));
                errors = problems.found;
            }
            Err(errors)
        }
    }
}

/// Returns the problems of an imported Workflow, at the first line of its file.
pub(crate) fn check_import(text: &str, imported: &Imported, settings: &Settings) -> Vec<Problem> {
    let mut problems = Problems::of(text);
    let yaml = imported.to_yaml();
    for problem in signoff_manifest::check(&yaml, settings).into_iter().flat_map(|checked| checked.problems) {
        let message = format!("in the imported Workflow: {}", problem.message);
        match problem.severity {
            Severity::Error => problems.error(problem.reason, &problem.field, 0..0, message),
            Severity::Warning => problems.warn(problem.reason, &problem.field, 0..0, message),
        }
    }
    problems.found
}

/// Returns the errors and the warnings.
fn split_by_severity(problems: Vec<Problem>) -> (Vec<Problem>, Vec<Problem>) {
    problems.into_iter().partition(|problem| problem.severity == Severity::Error)
}
