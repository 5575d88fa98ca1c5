//! Finishes a reconcile of a run that waits or has finished *(I/O)*: frees memory, ends calls in flight, and deletes
//! the run after its TTL.
//!
//! **Invariant:** ends no Approval; the Approval's own reconcile is enqueued for that.

use signoff_api::{Moment, Workflow, workflow::WorkflowPhase};
use signoff_cluster::kinds::{Name, ReconciledKind};
use signoff_engine::Transition;
use signoff_notify::delivery::DELETION_WAITS;

use super::observe::ObservedRun;
use crate::{context::Context, error::Error};

/// Frees what a run does not need after a transition, and finishes the run if it has ended. Returns when to reconcile
/// again.
pub(super) async fn finish_transition(
    context: &Context,
    seen: &ObservedRun,
    stored: &Workflow,
    transition: &Transition,
) -> Result<Option<Moment>, Error> {
    if transition.end.is_some() {
        return finish_run(context, &seen.name, &seen.uid, stored.delete_at()).await;
    }
    for approval in context.objects.approvals.owned_by(&seen.uid) {
        if !transition.pending.iter().any(|name| **name == *approval.name) {
            context.objects.approvals.keep_summary(&approval);
        }
    }
    if matches!(transition.phase, WorkflowPhase::Waiting | WorkflowPhase::Suspended) {
        context.calls.runs.drop_idle_values(&seen.name);
    }
    // The calls of unstored results began before their records were stored, and no other event will announce the
    // results again.
    let is_left =
        |(path, attempt): (&str, i32)| transition.journal.get(path, attempt).is_some_and(|r| !r.phase.is_end());
    let results_are_left = seen.unstored.iter().any(|fact| is_left(fact.key()));
    Ok(if results_are_left { Some(seen.now) } else { transition.wake_at })
}

/// Finishes a run that has ended: ends its calls, frees its caches, and enqueues its open Approvals to be cancelled.
/// Deletes the run after its TTL, when no notice of the run waits. Returns the time of the next reconcile.
pub(super) async fn finish_run(
    context: &Context,
    name: &Name,
    uid: &str,
    due: Option<Moment>,
) -> Result<Option<Moment>, Error> {
    cancel_calls(context, name, Some(uid));
    context.caches.segments.remove_run(uid);
    context.objects.workflows.keep_summary(name);
    match due {
        Some(due) if due <= context.api.now() => {
            // Notices of a deleted run could not be derived again after a crash.
            let latest = due.after(DELETION_WAITS);
            if context.api.now() < latest
                && context.listeners.notices.as_ref().is_some_and(|notices| notices.are_waiting(name))
            {
                // The run is enqueued when no notice waits any more.
                return Ok(Some(latest));
            }
            context.api.requests.delete::<Workflow>(name, uid, None).await?;
            Ok(None)
        }
        later => Ok(later),
    }
}

/// Ends the calls of a run, and enqueues its open Approvals to be cancelled. Returns `None`: no further reconcile is
/// due.
pub(super) fn cancel_calls(context: &Context, name: &Name, uid: Option<&str>) -> Option<Moment> {
    context.calls.runs.remove(name);
    context.calls.forget_queued(name);
    for approval in uid.map(|uid| context.objects.approvals.owned_by(uid)).unwrap_or_default() {
        // `keep_summary` only affects finished Approvals. Open ones are enqueued to be cancelled.
        context.objects.approvals.keep_summary(&approval);
        if context.objects.approvals.has_open(&approval) {
            context.enqueue_approval(approval);
        }
    }
    None
}
