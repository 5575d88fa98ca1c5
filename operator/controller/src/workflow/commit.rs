//! Stores a transition before its commands are executed *(I/O)*: long values -> status.
//!
//! **Invariant:** writes nothing if nothing has changed. Values are named by their content, so an unreferenced value
//! does no harm.

use std::sync::Arc;

use serde_json::{Value, json};
use signoff_api::{
    EventReason, Moment, Workflow, WorkflowStatus,
    announce::{About, Announcement, StoredObject},
    conditions::{self, GUARDED},
    occurrence::Occurrence,
    workflow::MAX_VALUE_NAMES,
};
use signoff_cluster::{
    kinds::{Name, uid},
    workqueue::Key,
};
use signoff_engine::{
    JournalLimits, Plan, Transition,
    journal::{NewSegment, values},
    status::separate_results,
};
use signoff_executor::blobs::BlobError;

use super::{claim_slots::PendingConditions, observe::ObservedRun, plan::Refusal, report, status};
use crate::{
    blobs::usual_name,
    context::{Context, owner},
    error::Error,
};

/// Moves records of a long journal into a segment, which is committed with the transition.
pub(super) fn fold_journal(
    limits: &JournalLimits,
    seen: &ObservedRun,
    transition: &mut Transition,
) -> Result<Vec<NewSegment>, Error> {
    let settled = transition.journal.fold_finished(limits);
    settled.map_err(|why| Error::Bug { object: seen.name.as_a::<Workflow>(), what: format!("its journal: {why}") })
}

/// Stores a transition, and ends the quarantine of its run.
pub(super) async fn commit(
    context: &Context,
    seen: &ObservedRun,
    plan: &Plan,
    transition: &Transition,
    folded: &[NewSegment],
    pending: PendingConditions,
) -> Result<Arc<Workflow>, Error> {
    let stored =
        store(context, seen, status::after_transition(seen, plan, transition, pending), transition, folded).await?;
    context.evaluations.quarantines.on_committed(&seen.name);
    if seen.status.quarantine.is_some() {
        context.evaluations.end_quarantine(&Key::Workflow(seen.name.clone()));
    }
    Ok(stored)
}

/// Writes the new long values of a transition, then its status, and announces it. Writes nothing if the status is
/// unchanged. Fails with a conflict if other runs have taken the rest of the quota.
pub(super) async fn store(
    context: &Context,
    seen: &ObservedRun,
    mut next: WorkflowStatus,
    transition: &Transition,
    folded: &[NewSegment],
) -> Result<Arc<Workflow>, Error> {
    if next == seen.status {
        return Ok(Arc::clone(&seen.workflow));
    }
    let owner = owner(&seen.name, &seen.uid);
    let bytes = next.value_bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
    let Some(_claim) = context.values.quota.claim(&context.objects.workflows, &seen.name, bytes, seen.values) else {
        return Err(Error::conflict(format!("the quota for long values of namespace {}", seen.name.namespace)));
    };
    // The values to which the stored journal refers were stored before it.
    let known = values::stored_values(&seen.journal, &seen.status);
    let segments = folded.iter().map(|segment| (segment.digest.clone(), segment.text.clone()));
    let values_to_store = transition.blobs.iter().cloned().chain(separate_results(transition)).chain(segments);
    for (digest, text) in values_to_store.filter(|(digest, _)| !known.contains_key(digest)) {
        let failed = |source| Error::Blob { object: seen.name.as_a::<Workflow>(), source };
        if let Some(name) = context.values.blobs.put(&owner, digest.as_str(), text.into()).await.map_err(failed)? {
            next.value_names.insert(digest.clone(), name);
        }
        if next.value_names.len() > MAX_VALUE_NAMES {
            let name = usual_name(&owner, digest.as_str()).map_err(failed)?;
            return Err(failed(BlobError::NamesTaken { digest: digest.to_string(), name, most: MAX_VALUE_NAMES }));
        }
    }
    let stored =
        context.api.write_status(&context.objects.workflows, &*seen.workflow, next, open_records(&seen.status)).await?;
    context.calls.runs.on_committed(&seen.name, &seen.uid, &transition.journal);
    report::announce_committed(context, seen, &stored, transition);
    Ok(stored)
}

/// Ends a run because of its spec: writes the status, and announces the end.
pub(super) async fn end_refused(context: &Context, seen: &ObservedRun, why: &Refusal) -> Result<Option<Moment>, Error> {
    let next = status::status_of_refused(&seen.workflow, why, seen.now);
    let stored =
        context.api.write_status(&context.objects.workflows, &*seen.workflow, next, open_records(&seen.status)).await?;
    tracing::warn!(workflow = %seen.name, reason = why.reason, "refused: {}", why.message);
    let announcement = Announcement::about(About::Workflow(&stored.metadata)).run(Occurrence::ended(&stored));
    let announcement = announcement.object(StoredObject::Workflow(&stored));
    context.announce(&announcement.sentence(EventReason::Condition(why.reason), &why.message, "refused"));
    super::finish::finish_run(
        context,
        &seen.name,
        &seen.uid,
        signoff_cluster::kinds::ReconciledKind::delete_at(&*stored),
    )
    .await
}

/// Writes that a run is held because the admission policies are not in force, and reports an Event the first time.
pub(super) async fn block_on_guard(context: &Context, workflow: &Workflow, why: &str) -> Result<Option<Moment>, Error> {
    let next = status::status_held_by_guard(workflow, why, context.api.now());
    if workflow.status.as_ref() != Some(&next) {
        let is_new = !workflow.status.as_ref().is_some_and(|status| conditions::fails(&status.conditions, GUARDED));
        let key = next.seq.to_string();
        let tests = open_records(&next);
        let stored = context.api.write_status(&context.objects.workflows, workflow, next, tests).await?;
        if is_new {
            context.say(About::Workflow(&stored.metadata), EventReason::Unguarded, why, &key);
        }
    }
    tracing::debug!(workflow = %Name::of(workflow), uid = uid(workflow), "held: {why}");
    Ok(None)
}

/// Returns JSON Patch tests for the records that may still change. Starting a call does not change `status.seq`, so a
/// test of `status.seq` alone would let a late patch undo the start.
pub(crate) fn open_records(stored: &WorkflowStatus) -> Vec<Value> {
    let open = stored.steps.iter().enumerate().filter(|(_, record)| !record.phase.is_end());
    open.map(|(number, record)| json!({"op": "test", "path": format!("/status/steps/{number}"), "value": record}))
        .collect()
}
