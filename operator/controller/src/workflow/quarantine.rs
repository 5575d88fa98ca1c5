//! Reconciles a run without evaluating its text *(I/O)*, above all in quarantine, after an evaluation was stopped.
//!
//! **Invariant:** evaluates no text of the Workflow. Finished calls are recorded, and cancel, suspend and
//! `activeDeadline` work. Gates are decided by the reconciles of their Approvals.

use std::{sync::Arc, time::Duration};

use signoff_api::{EventReason, Moment, Workflow, WorkflowStatus, announce::About, conditions, workflow::Quarantine};
use signoff_cluster::{
    kinds::{Name, ReconciledKind as _},
    workqueue::Key,
};
use signoff_engine::status::{after_quarantined, say};
use signoff_executor::Stopped;

use super::{
    commit, dispatch, finish, journal, observe::ObservedRun, pod_gc, status::remove_waiting_conditions,
    stops::same_version,
};
use crate::{
    context::{Context, Evaluations},
    error::Error,
    quarantine::{QuarantineEntry, VERSION, message, reason},
};

/// The time after which a run that is suspended, or in quarantine until its spec changes, is reconciled again without
/// an event.
const RECONCILE_AGAIN: Duration = Duration::from_secs(3600);

/// Returns the time until which a run is not evaluated, or `None` if it can be evaluated.
pub(super) fn quarantined_until(context: &Context, seen: &ObservedRun) -> Option<Moment> {
    let spec = &seen.workflow.spec;
    // Another generation or version is tried at once, unless evaluations of the run were stopped many times.
    let evaluations = &context.evaluations;
    let paused = || evaluations.quarantines.run_paused_until(&seen.name, &seen.uid, seen.now);
    let is_stopped = spec.cancel == Some(true) || spec.suspend == Some(true);
    let Some(quarantine) = seen.status.quarantine.clone() else {
        // The evaluation of a suspect would have to wait until it can run alone.
        return (is_stopped && evaluations.is_suspect(&*seen.workflow)).then(|| seen.now.after(RECONCILE_AGAIN));
    };
    let Quarantine { generation, operator_version, failures, until } = quarantine;
    let key = Key::Workflow(seen.name.clone());
    evaluations.restore_quarantine(&key, QuarantineEntry { generation, failures, until: until.unwrap_or(seen.now) });
    // Cancel and suspend change the generation, but are no reason to try again.
    if is_stopped {
        return Some(seen.now.after(RECONCILE_AGAIN));
    }
    if seen.workflow.metadata.generation != Some(generation) || operator_version != VERSION {
        return paused();
    }
    // `until` includes the pause of the namespace at that time. Later failures of other objects do not delay the run
    // further.
    until.map_or_else(|| Some(seen.now.after(RECONCILE_AGAIN)), |until| (seen.now < until).then_some(until))
}

/// Puts a run into quarantine, in memory first, and writes the quarantine to its status.
pub(super) async fn enter(context: &Context, seen: &ObservedRun, why: &Stopped) -> Result<Option<Moment>, Error> {
    let evaluations = &context.evaluations;
    let generation = seen.workflow.metadata.generation.unwrap_or_default();
    let before = same_version(seen).map_or(0, |known| known.failures);
    let before = before.max(evaluations.quarantines.stops_of_run(&seen.name, &seen.uid) - 1);
    let key = Key::Workflow(seen.name.clone());
    let entry = evaluations.begin_quarantine(&key, generation, before, seen.now);
    evaluations.quarantines.add_unwritten(&seen.name, &seen.uid, why);
    if !matches!(why, Stopped::Deadly { .. }) {
        evaluations.clear_suspect::<Workflow>(&seen.name, &seen.uid);
    }
    write_quarantine(context, seen, why, entry).await
}

/// Writes the quarantine of a run if an earlier write of it failed. Returns `None` if it is written.
pub(super) async fn enter_again(context: &Context, seen: &ObservedRun) -> Option<Result<Option<Moment>, Error>> {
    let quarantines = &context.evaluations.quarantines;
    let why = quarantines.unwritten(&seen.name, &seen.uid)?;
    let entry = quarantines.get(&Key::Workflow(seen.name.clone()))?;
    Some(write_quarantine(context, seen, &why, entry).await)
}

/// Writes the quarantine of a run to its status, and reports it by an Event.
async fn write_quarantine(
    context: &Context,
    seen: &ObservedRun,
    why: &Stopped,
    entry: QuarantineEntry,
) -> Result<Option<Moment>, Error> {
    let generation = entry.generation;
    // Only text of the run's author stops a run for good.
    let quarantines = &context.evaluations.quarantines;
    let is_final = quarantines.is_authors_fault(&seen.name, &seen.uid);
    let next = (!is_final).then_some(entry.until);
    let message = message(why, &entry, next);
    tracing::error!(workflow = %seen.name, reason = reason(why), "{message}");
    let key = format!("quarantined-{generation}-{}", entry.failures);
    context.say(About::Workflow(&seen.workflow.metadata), EventReason::Quarantined, &message, &key);
    let quarantine =
        Quarantine { generation, operator_version: VERSION.to_owned(), failures: entry.failures, until: next };
    let describe = |status: &mut WorkflowStatus| {
        status.quarantine = Some(quarantine);
        say(status, &seen.workflow, seen.now, conditions::QUARANTINED, true, reason(why), &message);
    };
    let next = next.unwrap_or_else(|| seen.now.after(RECONCILE_AGAIN));
    let due = reconcile_until(context, seen, describe, next).await?;
    quarantines.on_written(&seen.name);
    Ok(due)
}

/// Reconciles a run that is in quarantine already.
pub(super) async fn keep_quarantined(
    context: &Context,
    seen: &ObservedRun,
    until: Moment,
) -> Result<Option<Moment>, Error> {
    reconcile_until(context, seen, |_| {}, until).await
}

/// Removes the marks of a run that is no longer evaluated.
pub(super) fn remove_marks(evaluations: &Evaluations, name: &Name, uid: Option<&str>) {
    evaluations.end_quarantine(&Key::Workflow(name.clone()));
    evaluations.quarantines.on_committed(name);
    evaluations.quarantines.on_written(name);
    evaluations.quarantines.forget_run(name);
    if let Some(uid) = uid {
        evaluations.clear_suspect::<Workflow>(name, uid);
    }
}

/// Reconciles a run without an evaluation. Returns `until`, or an earlier time at which the run is due.
async fn reconcile_until(
    context: &Context,
    seen: &ObservedRun,
    describe: impl FnOnce(&mut WorkflowStatus),
    until: Moment,
) -> Result<Option<Moment>, Error> {
    let Unevaluated { stored, due } = advance_without_evaluation(context, seen, describe).await?;
    Ok(if stored.is_finished() { due } else { Some(due.map_or(until, |due| due.min(until))) })
}

/// The result of a transition that evaluated nothing.
pub(super) struct Unevaluated {
    /// The stored Workflow.
    pub(super) stored: Arc<Workflow>,
    /// When to reconcile again without an event.
    pub(super) due: Option<Moment>,
}

/// Commits a transition that evaluates nothing. `describe` adds the reason to the status of a run that has not
/// finished.
pub(super) async fn advance_without_evaluation(
    context: &Context,
    seen: &ObservedRun,
    describe: impl FnOnce(&mut WorkflowStatus),
) -> Result<Unevaluated, Error> {
    let workflow: &Workflow = &seen.workflow;
    let mut transition =
        signoff_engine::advance_quarantined(&workflow.spec, seen.journal.clone(), seen.facts.clone(), seen.now);
    dispatch::end_calls_that_do_not_follow(&context.calls, seen, &transition);
    let folded = commit::fold_journal(&context.values.journal_limits, seen, &mut transition)?;
    let mut next = after_quarantined(workflow, &transition, seen.overdue, seen.now);
    if transition.end.is_some() {
        next.quarantine = None;
        remove_waiting_conditions(&mut next);
    } else {
        describe(&mut next);
    }
    let stored = commit::store(context, seen, next, &transition, &folded).await?;
    journal::cache_segments(&context.caches.segments, &seen.uid, folded);
    pod_gc::delete_after_commit(context, seen, &transition).await?;
    let due = finish::finish_transition(context, seen, &stored, &transition).await?;
    if transition.end.is_some() {
        remove_marks(&context.evaluations, &seen.name, Some(&seen.uid));
    }
    Ok(Unevaluated { stored, due })
}
