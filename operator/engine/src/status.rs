//! The status of a Workflow after a transition, on a cluster and in a local session.
//!
//! Pure: the same transition gives an equal status again, so that a repeated transition writes nothing. The controller
//! adds the conditions of the guard and of administrators.

use signoff_api::{
    Digest, Moment, Workflow, WorkflowStatus,
    conditions::{self, ConditionUpdate, reason},
    journal::{self, BlobRef},
    rules::RULES,
    workflow::{ArtifactRef, WorkflowPhase},
};
use signoff_expr::text;

use crate::{
    Plan,
    journal::values,
    transition::{End, Transition},
};

/// The maximum size of an output in the status itself, in bytes.
const SHORT: usize = 4096;

/// Whether an output is too long for the status itself.
pub(crate) fn is_too_long_for_status(output: &str) -> bool {
    output.len() > SHORT
}

/// Returns the results that are stored outside of the status: a long output, and files. They are stored before the
/// status, which refers to them by digest.
#[must_use]
pub fn separate_results(transition: &Transition) -> Vec<(Digest, String)> {
    let long = match &transition.end {
        Some(End::Succeeded(text)) if is_too_long_for_status(text) => Some(text),
        _ => None,
    };
    let files = transition.artifacts.iter().map(|(_, content)| content);
    long.into_iter().chain(files).map(|text| (Digest::of_bytes(text.as_bytes()), text.clone())).collect()
}

fn reference(text: &str) -> BlobRef {
    BlobRef { digest: Digest::of_bytes(text.as_bytes()), size: i64::try_from(text.len()).unwrap_or(i64::MAX) }
}

/// Returns the status after a transition. `overdue` says whether an open gate of the run has passed its deadline.
#[must_use]
pub fn after(workflow: &Workflow, plan: &Plan, transition: &Transition, overdue: bool, now: Moment) -> WorkflowStatus {
    let mut status = with_journal(workflow, transition);
    if status.spec_digest.is_none() {
        status.rules = Some(RULES);
    }
    status.spec_digest = Some(plan.spec_digest().clone());
    status.started_at = status.started_at.or(Some(not_before_creation(workflow, now)));
    if let Some(End::Succeeded(text)) = &transition.end {
        if is_too_long_for_status(text) {
            status.outputs_ref = Some(reference(text));
        } else {
            status.outputs = Some(text.clone());
        }
        let file = |(path, content): &(String, String)| ArtifactRef { path: path.clone(), content: reference(content) };
        status.artifacts = transition.artifacts.iter().map(file).collect();
    }
    let accepted = match plan.warnings() {
        [] => "every field was understood".to_owned(),
        some => format!("with warnings: {}", some.join("; ")),
    };
    say(&mut status, workflow, now, conditions::ACCEPTED, true, reason::ACCEPTED, &accepted);
    status.value_bytes = values::total_bytes(&transition.journal, &status);
    set_progress_conditions(&mut status, workflow, transition, overdue, now);
    status
}

/// Returns the status after a transition of [`crate::advance_quarantined`].
#[must_use]
pub fn after_quarantined(workflow: &Workflow, transition: &Transition, overdue: bool, now: Moment) -> WorkflowStatus {
    let before = workflow.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let mut status = with_journal(workflow, transition);
    if transition.end.is_none() && status.phase == WorkflowPhase::Running && before == WorkflowPhase::Pending {
        status.phase = before;
    }
    status.value_bytes = values::total_bytes(&transition.journal, &status);
    set_progress_conditions(&mut status, workflow, transition, overdue, now);
    status
}

/// Sets the condition about open Approvals, and the conditions of the end if the run has ended.
fn set_progress_conditions(
    status: &mut WorkflowStatus,
    workflow: &Workflow,
    transition: &Transition,
    overdue: bool,
    now: Moment,
) {
    waiting(status, workflow, overdue, now);
    if let Some(end) = &transition.end {
        finish(status, workflow, &end_message(end, &transition.left_out), now);
    }
}

/// Returns the status with the journal of a transition and the phase of the run.
fn with_journal(workflow: &Workflow, transition: &Transition) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    status.seq = transition.journal.seq();
    status.steps = transition.journal.steps();
    status.segments = transition.journal.segments().to_vec();
    status.usage = transition.journal.usage();
    status.phase = transition.end.as_ref().map_or(transition.phase, End::phase);
    status.pending = if transition.end.is_some() { Vec::new() } else { transition.pending.clone() };
    status.observed_generation = workflow.metadata.generation;
    status.journal_version = Some(journal::version(transition.journal.records().iter(), transition.journal.segments()));
    status.message = match &transition.end {
        Some(end) => Some(text::display(&end_message(end, &transition.left_out), 1024)),
        None if status.phase == WorkflowPhase::Suspended => Some("suspended by spec.suspend".to_owned()),
        None => waiting_message(&status.pending),
    };
    status
}

/// Returns the message of a finished run, with the artifacts that were skipped.
fn end_message(end: &End, left_out: &[String]) -> String {
    match left_out {
        [] => end.message().to_owned(),
        some => format!("{}, and artifacts were left out: {}", end.message(), some.join("; ")),
    }
}

/// Returns the message of a run in progress with the names of the first open Approvals, or `None` without an Approval.
#[must_use]
pub fn waiting_message(pending: &[String]) -> Option<String> {
    text::listed(pending, 253).map(|names| format!("waiting for {names}"))
}

/// Sets the condition about the Approvals that the run waits for.
pub fn waiting(status: &mut WorkflowStatus, workflow: &Workflow, overdue: bool, now: Moment) {
    let (reason, message) = match status.pending.as_slice() {
        [] => (reason::NOTHING_PENDING, "nobody needs to decide anything".to_owned()),
        names => (
            if overdue { reason::OVERDUE } else { reason::APPROVAL_PENDING },
            format!("waiting for {}", names.join(", ")),
        ),
    };
    let holds = !status.pending.is_empty();
    say(status, workflow, now, conditions::WAITING, holds, reason, &message);
}

/// Returns the current time, or the time of creation if that is later, because the API server's clock can differ. A
/// status that is older than its object belongs to a restored copy, see `Workflow::is_restored`.
fn not_before_creation(workflow: &Workflow, now: Moment) -> Moment {
    workflow.created_at().map_or(now, |created| now.max(created))
}

/// Sets the conditions of a finished run, by its phase.
pub fn finish(status: &mut WorkflowStatus, workflow: &Workflow, message: &str, now: Moment) {
    status.finished_at = Some(not_before_creation(workflow, now));
    let phase = status.phase;
    say(status, workflow, now, conditions::FINISHED, true, phase.name(), message);
    let good = if phase == WorkflowPhase::Succeeded { conditions::COMPLETE } else { conditions::FAILED };
    say(status, workflow, now, good, true, phase.name(), message);
}

/// Sets a condition with its reason and message.
pub fn say(
    status: &mut WorkflowStatus,
    workflow: &Workflow,
    now: Moment,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
) {
    let message = text::display(message, 1024);
    let condition = ConditionUpdate { kind, holds, reason, message: &message };
    conditions::set(&mut status.conditions, &condition, workflow.metadata.generation, now);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::tests::test_run::{TestRun, chain_of, gate, start, workflow};

    const LATER: std::time::Duration = std::time::Duration::from_secs(10);

    #[test]
    fn a_run_does_not_end_before_its_creation_with_another_clock() {
        let mut workflow = workflow(chain_of(json!([{"name": "only", "set": {"value": "x"}}])));
        workflow.metadata.creation_timestamp = serde_json::from_value(json!(start().after(LATER))).unwrap();
        let mut status = WorkflowStatus { phase: WorkflowPhase::Failed, ..WorkflowStatus::default() };
        finish(&mut status, &workflow, "refused", start());
        assert_eq!(status.finished_at, Some(start().after(LATER)));
        finish(&mut status, &workflow, "refused", start().after(2 * LATER));
        assert_eq!(status.finished_at, Some(start().after(2 * LATER)));
    }

    /// Returns the status after the first transition of these steps, and the results outside of the status. A second
    /// status of the same transition is equal.
    fn status_and_results(steps: Value, overdue: bool) -> (WorkflowStatus, Vec<(Digest, String)>) {
        let mut workflow = workflow(chain_of(steps.clone()));
        let run = TestRun::new(steps);
        let first = after(&workflow, &run.plan, &run.transition, overdue, start());
        workflow.status = Some(first.clone());
        let again = after(&workflow, &run.plan, &run.transition, overdue, start());
        assert_eq!(first, again, "the same turn is said once");
        (first, separate_results(&run.transition))
    }

    fn condition_of(status: &WorkflowStatus, kind: &str) -> Option<(bool, String, String)> {
        let found = status.conditions.iter().find(|condition| condition.type_ == kind)?;
        Some((found.status == "True", found.reason.clone(), found.message.clone()))
    }

    #[test]
    fn the_status_of_a_waiting_run_names_the_gates_and_overdue_ones() {
        let steps = json!([{"name": "ask", "hitl": gate(json!({}))}]);
        for (overdue, reason) in [(false, "ApprovalPending"), (true, "Overdue")] {
            let (status, apart) = status_and_results(steps.clone(), overdue);
            assert_eq!((status.phase, status.pending.len(), apart.len()), (WorkflowPhase::Waiting, 1, 0));
            let waiting = format!("waiting for {}", status.pending[0]);
            assert_eq!(status.message.as_ref(), Some(&waiting));
            assert_eq!(condition_of(&status, conditions::WAITING), Some((true, reason.into(), waiting)));
            assert_eq!(condition_of(&status, conditions::FINISHED), None);
        }
    }

    #[test]
    fn the_message_of_a_waiting_run_names_three_approvals_and_counts_the_others() {
        let names: Vec<String> = (1..=5).map(|number| format!("gate-{number}")).collect();
        assert_eq!(waiting_message(&names[..2]).as_deref(), Some("waiting for gate-1, gate-2"));
        assert_eq!(waiting_message(&names).as_deref(), Some("waiting for gate-1, gate-2, gate-3 +2"));
        assert_eq!(waiting_message(&[]), None);
    }

    #[test]
    fn a_short_result_is_in_the_status_and_a_long_one_in_a_blob() {
        let (status, kept) = status_and_results(json!([{"name": "one", "set": {"value": "short"}}]), false);
        assert_eq!((status.outputs.as_deref(), status.outputs_ref, kept.len()), (Some("short"), None, 0));
        assert_eq!(status.conditions.last().unwrap().type_, conditions::COMPLETE);
        let long = "x".repeat(SHORT + 1);
        let (status, kept) = status_and_results(json!([{"name": "one", "set": {"value": long}}]), false);
        let reference = status.outputs_ref.unwrap();
        assert_eq!((status.outputs, reference.size), (None, 4097));
        assert_eq!(kept, [(reference.digest, long)]);
    }
}
