//! The status that follows from a turn.
//!
//! Pure, and the only place where a Workflow's conditions are said. What follows from the same turn twice is equal,
//! so that nothing is written for it.

use signoff_api::{
    Digest, Moment, Workflow, WorkflowStatus,
    conditions::{self, Say},
    journal::{self, BlobRef},
    workflow::{ArtifactRef, WorkflowPhase},
};
use signoff_engine::{End, Plan, Turn, language::text};

use super::plan::Refusal;
use crate::guard::foreign_words;

/// The longest output that stands in the status itself, in bytes.
const SHORT: usize = 4096;

/// What the run has to show that does not fit into the status: a long output, and files.
pub(super) fn apart(turn: &Turn) -> Vec<(Digest, &str)> {
    let long = match &turn.end {
        Some(End::Succeeded(text)) if text.len() > SHORT => Some(text.as_str()),
        _ => None,
    };
    let files = turn.artifacts.iter().map(|(_, content)| content.as_str());
    long.into_iter().chain(files).map(|text| (Digest::of_bytes(text.as_bytes()), text)).collect()
}

fn reference(text: &str) -> BlobRef {
    BlobRef { digest: Digest::of_bytes(text.as_bytes()), size: i64::try_from(text.len()).unwrap_or(i64::MAX) }
}

/// The status after a turn.
pub(super) fn after(
    workflow: &Workflow,
    turn: &Turn,
    pinned: &Digest,
    warnings: &[String],
    foreign: &[String],
    overdue: bool,
    now: Moment,
) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    status.seq = turn.journal.seq();
    status.steps = turn.journal.steps();
    status.segments = turn.journal.segments().to_vec();
    status.usage = turn.journal.usage();
    status.phase = turn.end.as_ref().map_or(turn.phase, End::phase);
    status.pending = if turn.end.is_some() { Vec::new() } else { turn.pending.clone() };
    status.observed_generation = workflow.metadata.generation;
    status.journal_version = Some(journal::version(turn.journal.segments()));
    status.spec_digest = Some(pinned.clone());
    status.started_at = status.started_at.or(Some(now));
    status.message = match &turn.end {
        Some(end) => Some(text::display(end.message(), 1024)),
        None if status.phase == WorkflowPhase::Suspended => Some("suspended by spec.suspend".to_owned()),
        None => None,
    };
    if let Some(End::Succeeded(text)) = &turn.end {
        if text.len() > SHORT {
            status.outputs_ref = Some(reference(text));
        } else {
            status.outputs = Some(text.clone());
        }
        let file = |(path, content): &(String, String)| ArtifactRef { path: path.clone(), content: reference(content) };
        status.artifacts = turn.artifacts.iter().map(file).collect();
    }
    let accepted = if warnings.is_empty() {
        "every field was understood".to_owned()
    } else {
        format!("with warnings: {}", warnings.join("; "))
    };
    say(&mut status, workflow, now, conditions::ACCEPTED, true, "Accepted", &accepted);
    say(
        &mut status,
        workflow,
        now,
        conditions::GUARDED,
        true,
        "PoliciesInForce",
        "the admission policies that vouch for decisions are in force",
    );
    foreign_mutation(&mut status, workflow, foreign, now);
    waiting(&mut status, workflow, overdue, now);
    if let Some(end) = &turn.end {
        finish(&mut status, workflow, end.message(), now);
    }
    status
}

/// The same status with what policies of administrators come to in this turn: the gates that they added, once, and
/// those that they hold.
pub(super) fn under_floors(
    mut status: WorkflowStatus,
    workflow: &Workflow,
    plan: &Plan,
    turn: &Turn,
    now: Moment,
) -> WorkflowStatus {
    status.added_steps = plan.added_steps().to_vec();
    match turn.held.first() {
        Some(first) => {
            let why = turn.held.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            status.message = Some(text::display(&format!("held: {why}"), 1024));
            say(&mut status, workflow, now, conditions::HELD, true, first.reason, &why);
        }
        None if conditions::holds(&status.conditions, conditions::HELD) => {
            let message = "no policy of an administrator is in the way";
            say(&mut status, workflow, now, conditions::HELD, false, "NothingHeld", message);
        }
        None => {}
    }
    status
}

/// The status of a run that does not go on for now.
pub(super) fn held(workflow: &Workflow, why: &Refusal, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    status.observed_generation = workflow.metadata.generation;
    status.message = Some(text::display(&format!("held: {}", why.message), 1024));
    say(&mut status, workflow, now, conditions::HELD, true, why.reason, &why.message);
    status
}

/// The status of a run that ends because of its spec.
pub(super) fn refused(workflow: &Workflow, why: &Refusal, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    status.phase = WorkflowPhase::Failed;
    status.pending = Vec::new();
    status.observed_generation = workflow.metadata.generation;
    status.message = Some(text::display(&why.message, 1024));
    say(&mut status, workflow, now, conditions::ACCEPTED, false, why.reason, &why.message);
    waiting(&mut status, workflow, false, now);
    finish(&mut status, workflow, &why.message, now);
    status
}

/// The status of a run that is held because nobody vouches for decisions.
pub(super) fn unguarded(workflow: &Workflow, why: &str, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    say(&mut status, workflow, now, conditions::GUARDED, false, "PoliciesDiffer", why);
    status
}

/// Said only where there is or was something to say.
fn foreign_mutation(status: &mut WorkflowStatus, workflow: &Workflow, foreign: &[String], now: Moment) {
    let said = status.conditions.iter().any(|condition| condition.type_ == conditions::FOREIGN_MUTATION);
    match foreign {
        [] if !said => {}
        [] => {
            let message = "only the API server's own rules look at votes on their way";
            say(status, workflow, now, conditions::FOREIGN_MUTATION, false, "NoneFound", message);
        }
        some => {
            let message = foreign_words(some);
            say(status, workflow, now, conditions::FOREIGN_MUTATION, true, "OthersMatch", &message);
        }
    }
}

fn waiting(status: &mut WorkflowStatus, workflow: &Workflow, overdue: bool, now: Moment) {
    let (reason, message) = match status.pending.as_slice() {
        [] => ("NothingPending", "nobody needs to decide anything".to_owned()),
        names => (if overdue { "Overdue" } else { "ApprovalPending" }, format!("waiting for {}", names.join(", "))),
    };
    let holds = !status.pending.is_empty();
    say(status, workflow, now, conditions::WAITING, holds, reason, &message);
}

fn finish(status: &mut WorkflowStatus, workflow: &Workflow, message: &str, now: Moment) {
    status.finished_at = Some(now);
    let phase = status.phase;
    say(status, workflow, now, conditions::FINISHED, true, phase.name(), message);
    let good = if phase == WorkflowPhase::Succeeded { conditions::COMPLETE } else { conditions::FAILED };
    say(status, workflow, now, good, true, phase.name(), message);
}

fn say(
    status: &mut WorkflowStatus,
    workflow: &Workflow,
    now: Moment,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
) {
    let message = text::display(message, 1024);
    let say = Say { kind, holds, reason, message: &message };
    conditions::set(&mut status.conditions, &say, workflow.metadata.generation, now);
}
