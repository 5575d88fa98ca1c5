//! What is left to do for a run that rests or is over: let go of memory, end what still waits, delete it in time.
//!
//! It may not end an Approval itself: that is the Approval's own reconcile, which is only given word.

use signoff_api::{Moment, Workflow, workflow::WorkflowPhase};
use signoff_engine::Turn;

use super::observe::Seen;
use crate::{
    context::Context,
    error::Error,
    kinds::{Kind, Name},
};

/// After a turn: when to look again.
pub(super) async fn rest(
    context: &Context,
    seen: &Seen,
    stored: &Workflow,
    turn: &Turn,
) -> Result<Option<Moment>, Error> {
    if turn.end.is_some() {
        return retire(context, &seen.name, &seen.uid, stored.due()).await;
    }
    for approval in context.approvals.owned_by(&seen.uid) {
        if !turn.pending.iter().any(|name| **name == *approval.name) {
            context.approvals.shrink(&approval);
        }
    }
    if matches!(turn.phase, WorkflowPhase::Waiting | WorkflowPhase::Suspended) {
        context.runs.rest(&seen.name);
    }
    Ok(turn.wake_at)
}

/// A run that is over: its open Approvals are to be cancelled, and it is to be deleted when its time has come.
pub(super) async fn retire(
    context: &Context,
    name: &Name,
    uid: &str,
    due: Option<Moment>,
) -> Result<Option<Moment>, Error> {
    call_off(context, name, Some(uid));
    context.segments.close(uid);
    context.workflows.shrink(name);
    match due {
        Some(due) if due <= context.now() => {
            context.wire.delete::<Workflow>(name, uid, None).await?;
            Ok(None)
        }
        later => Ok(later),
    }
}

/// Nothing more is to happen for this run: its calls end, its Approvals are looked at.
pub(super) fn call_off(context: &Context, name: &Name, uid: Option<&str>) -> Option<Moment> {
    context.runs.close(name);
    context.pod_quota.forget(name);
    context.call_slots.forget(name);
    for approval in uid.map(|uid| context.approvals.owned_by(uid)).unwrap_or_default() {
        // Shrinking is for those that are over; what it leaves is to be cancelled.
        context.approvals.shrink(&approval);
        if context.approvals.knows_open(&approval) {
            context.look_at_approval(approval);
        }
    }
    None
}
