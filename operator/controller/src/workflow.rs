//! The Workflow reconcile: observe *(I/O)* -> plan *(pure)* -> advance *(pure)* -> claim *(pure)* -> commit *(I/O)* ->
//! dispatch *(I/O)* -> report.
//!
//! **Invariant:** awaits no call: a finished call triggers the next reconcile.

mod advance;
mod blocked;
mod claim_slots;
mod commit;
mod defer;
mod dispatch;
mod finish;
mod journal;
mod observe;
mod plan;
mod pod_gc;
mod quarantine;
mod report;
mod rerun;
mod status;
mod stops;

use signoff_api::Moment;
use signoff_cluster::{kinds::Name, workqueue::Key};
use signoff_executor::Stopped;

use crate::{context::Context, error::Error, notices::NoticeDesk, stall_reports, withdrawal::Withdrawal};
pub(crate) use commit::open_records;
use defer::Uncommitted;
use observe::{ObservedRun, WorkflowObservation};
use plan::PlanDecision;

/// Reconciles a Workflow. Returns when to reconcile again without an event.
pub(crate) async fn reconcile(context: &Context, name: &Name) -> Result<Option<Moment>, Error> {
    let mut claimed = false;
    let hold = context.listeners.notices.as_ref().map(NoticeDesk::hold);
    let reconciled = reconcile_observed(context, name, &mut claimed).await;
    if let (Some(desk), Some(hold)) = (&context.listeners.notices, hold) {
        desk.end_hold(Key::Workflow(name.clone()), hold, &reconciled);
    }
    if reconciled.is_err() || !claimed {
        // A run that starts nothing now leaves the queues, so that it does not delay the Pods and calls of others.
        context.calls.forget_queued(name);
    }
    let reported = match &reconciled {
        Err(error) => blocked::block_on_administrator(context, name, error).await,
        Ok(_) => Ok(()),
    };
    context.objects.workflows.release(name);
    reported.and(reconciled)
}

/// Reconciles a Workflow up to its release from the cache. Sets `claimed` when the calls of the run have slots or are
/// queued.
async fn reconcile_observed(context: &Context, name: &Name, claimed: &mut bool) -> Result<Option<Moment>, Error> {
    if let Some(why) = context.objects.unreadable.reason(&Key::Workflow(name.clone())) {
        return blocked::report_unreadable(&context.api, name, &why).await;
    }
    let observed = match observe::observe(context, name).await {
        Err(error @ Error::Cluster(signoff_cluster::Error::Unreadable { .. })) => {
            blocked::report_unreadable_approval(&context.api, name, &error).await?;
            return Err(error);
        }
        observed => observed?,
    };
    let seen = match observed {
        WorkflowObservation::Run(seen) => *seen,
        WorkflowObservation::NewerJournal { until } => return Ok(Some(until)),
        WorkflowObservation::PoliciesNotInForce(workflow, why) => {
            return commit::block_on_guard(context, &workflow, &why).await;
        }
        WorkflowObservation::GuardUnsettled => return Ok(None),
        WorkflowObservation::Finished { uid, due } => {
            quarantine::remove_marks(&context.evaluations, name, Some(&uid));
            let cleared = pod_gc::delete_after_run(context, name, &uid).await;
            let due = finish::finish_run(context, name, &uid, due).await?;
            return cleared.map(|()| due);
        }
        WorkflowObservation::Missing { uid } => {
            quarantine::remove_marks(&context.evaluations, name, uid.as_deref());
            return Ok(finish::cancel_calls(context, name, uid.as_deref()));
        }
    };
    if seen.workflow.is_restored() {
        return blocked::block_on_restored(context, &seen).await;
    }
    if let Some(accepted) = seen.status.other_rules() {
        return blocked::block_on_rules(context, &seen, accepted).await;
    }
    if let Some(entered) = quarantine::enter_again(context, &seen).await {
        return entered;
    }
    if let Some(until) = quarantine::quarantined_until(context, &seen) {
        return quarantine::keep_quarantined(context, &seen, until).await;
    }
    match reconcile_run(context, &seen, claimed).await {
        // The run has changed meanwhile: the next reconcile may need no evaluation.
        Err(Error::Stopped { why: Stopped::Withdrawn, .. }) => Ok(Some(seen.now)),
        Err(Error::Stopped { why, .. }) if why != Stopped::Closed => quarantine::enter(context, &seen, &why).await,
        done => done,
    }
}

/// Reconciles a run that has not finished.
async fn reconcile_run(context: &Context, seen: &ObservedRun, claimed: &mut bool) -> Result<Option<Moment>, Error> {
    let plan = match plan::plan(context, seen).await? {
        PlanDecision::Runs(plan) => plan,
        PlanDecision::Held(why) => return blocked::block_on_policy(context, seen, &why).await,
        PlanDecision::OldShape(why) => return blocked::block_on_old_shape(context, seen, &why).await,
        PlanDecision::Refused(why) => return commit::end_refused(context, seen, &why).await,
    };
    // Without a transition, the run is enqueued again at once, behind other objects.
    let Some(mut transition) = advance::advance(context, seen, &plan).await? else { return Ok(Some(seen.now)) };
    dispatch::end_calls_that_do_not_follow(&context.calls, seen, &transition);
    let claims = claim_slots::claim_slots(context, seen, &mut transition);
    *claimed = true;
    let uncommitted = Uncommitted { context, seen, plan: &plan, transition: &transition, claims: &claims };
    if let Some(until) = uncommitted.waits_until() {
        dispatch::start_calls(context, seen, claims)?;
        return Ok(Some(transition.wake_at.map_or(until, |wake_at| wake_at.min(until))));
    }
    let pending = claim_slots::pending_conditions(&context.calls.pods, seen, &transition, &claims);
    let folded = commit::fold_journal(&context.values.journal_limits, seen, &mut transition)?;
    let stored = commit::commit(context, seen, &plan, &transition, &folded, pending).await?;
    journal::cache_segments(&context.caches.segments, &seen.uid, folded);
    if context.objects.withdrawal(&stored) == Some(Withdrawal::Deleted) {
        return Ok(Some(seen.now));
    }
    report::report(context, seen, &plan, &transition);
    dispatch::dispatch(context, seen, &transition, claims).await?;
    pod_gc::delete_after_commit(context, seen, &transition).await?;
    let stored = stall_reports::clear(context, stored).await?;
    finish::finish_transition(context, seen, &stored, &transition).await
}
