//! The Approval reconcile: observe *(I/O)* -> tally *(pure)* -> recheck of guard, run and time *(I/O)* -> commit
//! *(I/O)* -> report. The fenced write *is* the decision.
//!
//! **Invariant:** counts no decision while the admission policies are not in force, and never writes twice for one
//! decision.

mod evaluate;
mod notified;
mod observe;

use std::time::Duration;

use signoff_api::{
    Approval, Moment,
    announce::{About, Announcement, StoredObject},
    occurrence::Occurrence,
};
use signoff_cluster::{kinds::Name, workqueue::Key};
use signoff_engine::{Now, approval::rests_on_request};
use signoff_executor::Stopped;
use tokio::time::Instant;

use crate::{context::Context, error::Error, guard::ConfirmScope, notices::NoticeDesk, withdrawal::RunVersion};
use observe::{ApprovalObservation, ObservedApproval};

/// The pause before the next reconcile of an Approval whose deadline the API server's clock has not reached.
const A_SECOND: Duration = Duration::from_secs(1);

/// Reconciles an Approval. Returns when to reconcile again without an event.
pub(crate) async fn reconcile(context: &Context, name: &Name) -> Result<Option<Moment>, Error> {
    let hold = context.listeners.notices.as_ref().map(NoticeDesk::hold);
    let reconciled = reconcile_observed(context, name).await;
    if let (Some(desk), Some(hold)) = (&context.listeners.notices, hold) {
        desk.end_hold(Key::Approval(name.clone()), hold, &reconciled);
    }
    context.objects.approvals.release(name);
    reconciled
}

/// Reconciles an Approval up to its release from the cache: tallies, confirms, writes the status and announces it.
async fn reconcile_observed(context: &Context, name: &Name) -> Result<Option<Moment>, Error> {
    let began = Instant::now();
    let ObservedApproval { approval, run, owner, generation, guard_epoch } =
        match observe::observe(context, name).await? {
            ApprovalObservation::Open(observed) => *observed,
            ApprovalObservation::Nothing => {
                context.evaluations.end_quarantine(&Key::Approval(name.clone()));
                return Ok(None);
            }
        };
    let max_gate_timeout = context.settings.max_gate_timeout;
    let outages = context.api.clock.outages().into_iter().map(|(from, to)| (from.into(), to.into())).collect();
    let now = Now { max_gate_timeout, outages, ..Now::new(context.api.now(), guard_epoch.to_string()) };
    let result = match evaluate::evaluate(context, name, &approval, owner, &now).await {
        // The Approval or its run has changed meanwhile: the next reconcile may need no evaluation.
        Err(Error::Stopped { why: Stopped::Withdrawn, .. }) => return Ok(Some(now.at)),
        result => notified::update_notified(context, &approval, result?, now.at),
    };
    if !result.changed {
        return Ok(result.wake_at);
    }
    // If the request was changed, only an end without a verdict is written.
    let ends_undecided = result.status.outcome.as_ref().is_some_and(|outcome| outcome.verdict.is_none());
    if !ends_undecided && approval.spec.request.is_changed() {
        return Err(Error::Bug {
            object: name.as_a::<Approval>(),
            what: "spec.request does not match its digest, although it is immutable: no decision is counted".to_owned(),
        });
    }
    let honoured = result.status.outcome.as_ref().is_some_and(|outcome| outcome.verdict.is_some());
    let rests_on = match rests_on_request(approval.status.as_ref()) {
        true => ConfirmScope::Votes,
        false => ConfirmScope::StoredStatus,
    };
    if honoured && !context.api.confirms(rests_on, &guard_epoch).await? {
        // The guard inspects again, and then enqueues every open object.
        return Ok(None);
    }
    if let Some(due) = result.due {
        // The operator's clock alone is no proof: an answer of the API server must show that the deadline has passed.
        if !context.api.has_come(due, began).await? {
            return Ok(Some(now.at.max(due).after(A_SECOND)));
        }
        let run = RunVersion { name: &run, uid: &approval.spec.request.workflow.uid, generation };
        // An escalation only asks more people, so it needs no check of the run.
        if result.status.outcome.is_some() && !context.still_stands(&run).await? {
            return Ok(Some(now.at.after(A_SECOND)));
        }
    }
    let before = approval.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let after = result.status.phase;
    let is_partial = before == after && result.status.outcome.is_none() && result.events.is_empty();
    if is_partial && let Some(wait) = context.caches.partial_tallies.time_to_wait(name, Instant::now()) {
        let due = now.at.after(wait);
        return Ok(Some(result.wake_at.map_or(due, |wake_at| wake_at.min(due))));
    }
    let confirmed = result.status.outcome.clone().filter(|_| honoured);
    let stored = context.api.write_status(&context.objects.approvals, &*approval, result.status, Vec::new()).await?;
    if is_partial {
        context.caches.partial_tallies.add(name, Instant::now());
    }
    if let Some(outcome) = confirmed {
        context.caches.confirmed_outcomes.add(&stored, &outcome);
    }
    // The run is enqueued at once, before the watch delivers this write.
    if before != after {
        context.enqueue_workflow(run);
    }
    if after.is_end() {
        tracing::info!(approval = %name, phase = after.name(), "decided");
    }
    for note in result.events {
        let announcement =
            Announcement::about(About::Approval(&stored.metadata)).object(StoredObject::Approval(&stored));
        let event = note.gate.and_then(|event| Occurrence::stored(event, &stored));
        context.announce(&announcement.gate(event).sentence(note.reason, &note.message, &note.key));
    }
    Ok(result.wake_at)
}
