//! Lets go of a run's Pods: those that are done and recorded as the run says, and those of a run that is over.
//!
//! It may not delete a Pod that no record names, nor one whose end no commit holds.

use std::sync::Arc;

use signoff_api::{Workflow, pod::PodGc, workflow::WorkflowPhase};
use signoff_engine::Turn;

use super::observe::Seen;
use crate::{context::Context, error::Error, kinds::Name, pods::StepPod};

/// After a turn that was committed.
pub(super) async fn after(context: &Context, seen: &Seen, turn: &Turn) -> Result<(), Error> {
    let pods = context.pods.of_run(&seen.uid);
    if pods.is_empty() {
        return Ok(());
    }
    let keep = seen.workflow.spec.pod_gc.unwrap_or_default();
    for pod in pods {
        let name = Name::of(&*pod);
        let record = turn.journal.records().iter().find(|r| r.object.as_deref() == Some(&*name.name));
        if record.is_some_and(|record| record.phase.is_end()) {
            settle(context, &name, &pod, keep, turn.end.as_ref().map(signoff_engine::End::phase)).await?;
        }
    }
    Ok(())
}

/// For a run that is over, and of which that is all that may be known.
pub(super) async fn over(context: &Context, name: &Name, uid: &str) -> Result<(), Error> {
    let pods = context.pods.of_run(uid);
    if pods.is_empty() {
        return Ok(());
    }
    let Some(workflow) = context.wire.get::<Workflow>(name).await? else { return Ok(()) };
    let keep = workflow.spec.pod_gc.unwrap_or_default();
    let phase = workflow.status.as_ref().map(|status| status.phase);
    for pod in pods {
        settle(context, &Name::of(&*pod), &pod, keep, phase).await?;
    }
    Ok(())
}

/// Deletes a Pod whose end is recorded, or leaves it for people.
async fn settle(
    context: &Context,
    name: &Name,
    pod: &Arc<StepPod>,
    keep: PodGc,
    phase: Option<WorkflowPhase>,
) -> Result<(), Error> {
    let none_stays = matches!(phase, Some(WorkflowPhase::Rejected | WorkflowPhase::Aborted | WorkflowPhase::Cancelled));
    let stays = match keep {
        PodGc::Never => true,
        PodGc::OnSuccess => !pod.is_good(),
        PodGc::OnCompletion => false,
    };
    if stays && !none_stays {
        if pod.is_over() && phase.is_some() {
            context.pods.leave(pod);
            return Ok(());
        }
        // It is over in a moment, and is looked at then; what else runs in it may run until the run is over.
        if pod.is_over() || pod.is_ending() || phase.is_none() {
            return Ok(());
        }
    }
    if !pod.is_going() {
        context.wire.delete::<StepPod>(name, pod.uid()).await?;
    }
    context.pods.leave(pod);
    Ok(())
}
