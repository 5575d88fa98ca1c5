//! Announces a committed transition: typed events, and sentences about it. Best effort, nothing depends on it.

use signoff_api::{
    Approval, EventReason, Workflow,
    announce::{About, Announcement, StoredObject},
    approval::ApprovalPhase,
    conditions,
    journal::{StepPhase, StepRecord},
    occurrence::{GateEvent, Occurrence},
    workflow::WorkflowPhase,
};
use signoff_engine::{Plan, Transition};

use super::observe::ObservedRun;
use crate::context::Context;

/// Announces the typed events of a stored transition.
pub(super) fn announce_committed(context: &Context, seen: &ObservedRun, stored: &Workflow, transition: &Transition) {
    let about = About::Workflow(&stored.metadata);
    if seen.status.spec_digest.is_none() {
        let accepted = Announcement::about(about).run(Occurrence::accepted(stored));
        context.announce(&accepted.object(StoredObject::Workflow(stored)));
    }
    for (path, approval) in &seen.open_gates {
        let uid = approval.metadata.uid.as_deref().unwrap_or_default();
        let record = transition.journal.get(path, 1).filter(|record| record.phase.is_end());
        if let Some(taken) = record.and_then(|record| Occurrence::taken(record, uid)) {
            let taken = Announcement::about(about).gate(Some(taken));
            context.announce(&taken.object(StoredObject::Approval(approval)));
        }
    }
    if transition.end.is_some() {
        let ended = Announcement::about(about).run(Occurrence::ended(stored));
        context.announce(&ended.object(StoredObject::Workflow(stored)));
    }
}

/// Announces a gate that asks.
pub(super) fn announce_asked(context: &Context, seen: &ObservedRun, approval: &Approval) {
    let request = &approval.spec.request;
    let whom: Vec<_> = approval.approvers().iter().map(ToString::to_string).collect();
    let name = approval.metadata.name.as_deref().unwrap_or_default();
    let note = format!("{name} asks {}: {}", whom.join(", "), request.prompt);
    let announcement = Announcement::about(About::Workflow(&seen.workflow.metadata))
        .gate(Occurrence::stored(GateEvent::Asked, approval))
        .object(StoredObject::Approval(approval))
        .sentence(EventReason::ApprovalRequested, &note, name);
    context.announce(&announcement.related(About::Approval(&approval.metadata)));
}

/// Announces sentences about a transition.
pub(super) fn report(context: &Context, seen: &ObservedRun, plan: &Plan, transition: &Transition) {
    let about = About::Workflow(&seen.workflow.metadata);
    let say = |reason, message: &str, key: &str| context.say(about, reason, message, key);
    if seen.status.spec_digest.is_none() && !plan.warnings().is_empty() {
        say(EventReason::Warned, &plan.warnings().join("; "), "accepted");
    }
    for record in transition.journal.records() {
        let before = seen.journal.get(&record.path, record.attempt).map(|old| old.phase);
        let is_superseded = |record: &StepRecord| {
            record.decision.as_ref().is_some_and(|outcome| outcome.phase == ApprovalPhase::Superseded)
        };
        if is_superseded(record) && before == Some(StepPhase::Waiting) {
            let why = record.decision.as_ref().and_then(|outcome| outcome.reason.as_deref()).unwrap_or_default();
            let note = format!("gate {}: {why}", record.path);
            say(EventReason::GateSuperseded, &note, &record.path);
        }
        if record.phase == StepPhase::Unknown && before != Some(StepPhase::Unknown) {
            let why = record.error.as_ref().map_or("", |error| &error.message);
            let key = format!("{}#{}", record.path, record.attempt);
            let note = format!("step {}: {why}", record.path);
            say(EventReason::OutcomeUnknown, &note, &key);
        }
    }
    if conditions::fails(&seen.status.conditions, conditions::GUARDED) {
        let key = format!("guarded-{}", seen.status.seq);
        let note = "the admission policies are in force again: decisions count";
        say(EventReason::Guarded, note, &key);
    }
    if let Some(why) = transition.blocked.first()
        && !conditions::holds(&seen.status.conditions, conditions::HELD)
    {
        let key = format!("held-{}", transition.journal.seq());
        say(EventReason::Held, &why.to_string(), &key);
    }
    let (before, after) = (seen.status.phase, transition.phase);
    if let Some(end) = &transition.end {
        say(EventReason::RunEnded(end.phase()), end.message(), "end");
        tracing::info!(workflow = %seen.name, phase = end.phase().name(), "ended");
    } else if before != after && (before == WorkflowPhase::Suspended || after == WorkflowPhase::Suspended) {
        let (reason, note) = if after == WorkflowPhase::Suspended {
            (EventReason::Suspended, "by spec.suspend")
        } else {
            (EventReason::Resumed, "by spec.suspend")
        };
        // A run can be suspended many times. The generation distinguishes the Events.
        let key = seen.workflow.metadata.generation.unwrap_or_default().to_string();
        say(reason, note, &key);
    }
}
