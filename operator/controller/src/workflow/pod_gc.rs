//! Deletes the Pods of a run *(I/O)*: those whose result is recorded, as `podGC` says, and those of a finished run.
//!
//! **Invariant:** deletes only the exact Pod that a record names, after its result is committed.

use signoff_api::{
    Workflow,
    journal::{StepPhase, StepRecord},
    pod::PodGc,
    workflow::WorkflowPhase,
};
use signoff_cluster::kinds::Name;
use signoff_engine::{Journal, Transition};

use super::{journal::load_or_report, observe::ObservedRun};
use crate::{
    context::{Context, ReadMemory},
    error::Error,
    pods::{PodState, StepPod},
};

/// Deletes the Pods of a run whose results are committed, unless `podGC` keeps them.
pub(super) async fn delete_after_commit(
    context: &Context,
    seen: &ObservedRun,
    transition: &Transition,
) -> Result<(), Error> {
    let pods = context.calls.pods.of_run(&seen.uid);
    if pods.is_empty() {
        return Ok(());
    }
    let keep = seen.workflow.spec.pod_gc.unwrap_or_default();
    for pod in &pods {
        if let Some(step) = finished_record(&transition.journal, pod) {
            delete_or_keep(context, pod, step, keep, transition.end.as_ref().map(signoff_engine::End::phase)).await?;
        }
    }
    Ok(())
}

/// Returns the finished record that a Pod was created for, or `None`.
fn finished_record<'j>(journal: &'j Journal, pod: &StepPod) -> Option<&'j StepRecord> {
    let name = Name::of(pod);
    let record = journal.records().iter().find(|record| record.object.as_deref() == Some(&*name.name));
    let is_its_input =
        |record: &StepRecord| record.input_digest.as_ref().is_some_and(|d| pod.input_digest() == Some(d.as_str()));
    record.filter(|record| record.phase.is_end() && is_its_input(record))
}

/// Deletes the Pods of a finished run, unless `podGC` keeps them. Reads the Workflow again, because only a summary of a
/// finished run may be cached.
pub(super) async fn delete_after_run(context: &Context, name: &Name, uid: &str) -> Result<(), Error> {
    let pods = context.calls.pods.of_run(uid);
    if pods.is_empty() {
        return Ok(());
    }
    let Some(workflow) = context.api.requests.get::<Workflow>(name).await? else { return Ok(()) };
    let keep = workflow.spec.pod_gc.unwrap_or_default();
    let Some(status) = &workflow.status else { return Ok(()) };
    let journal = load_or_report(context, &workflow, status, &ReadMemory::default()).await?;
    for pod in pods {
        match finished_record(&journal, &pod) {
            Some(step) => delete_or_keep(context, &pod, step, keep, Some(status.phase)).await?,
            None => context.calls.pods.mark_result_taken(&pod),
        }
    }
    Ok(())
}

/// Deletes a Pod whose result is recorded, or keeps it as `podGC` says.
async fn delete_or_keep(
    context: &Context,
    pod: &StepPod,
    step: &StepRecord,
    keep: PodGc,
    phase: Option<WorkflowPhase>,
) -> Result<(), Error> {
    let none_stays = matches!(phase, Some(WorkflowPhase::Rejected | WorkflowPhase::Aborted | WorkflowPhase::Cancelled));
    let stays = match keep {
        PodGc::Never => true,
        PodGc::OnSuccess => step.phase != StepPhase::Succeeded,
        PodGc::OnCompletion => false,
    };
    if stays && !none_stays {
        // An open run may still end in a phase that keeps no Pods. Until then, other containers of the Pod may run on.
        let has_ended = matches!(pod.state(), PodState::Ended(_));
        if phase.is_none() && (pod.is_finished() || has_ended) {
            return Ok(());
        }
        if pod.is_finished() {
            context.calls.pods.mark_result_taken(pod);
            return Ok(());
        }
        // The phase of the Pod ends a moment later, and then the run is reconciled again.
        if pod.is_ending() {
            return Ok(());
        }
    }
    if !pod.is_terminating() {
        context.api.requests.delete::<StepPod>(&Name::of(pod), pod.uid(), None).await?;
    }
    context.calls.pods.mark_result_taken(pod);
    Ok(())
}
