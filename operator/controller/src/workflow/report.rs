//! Reports a transition as Events. Best effort: nothing depends on it.

use std::sync::Arc;

use signoff_api::{
    Approval, EventReason,
    approval::ApprovalPhase,
    conditions,
    journal::{StepPhase, StepRecord},
    workflow::WorkflowPhase,
};
use signoff_cluster::events::Report;
use signoff_engine::{Plan, Transition};

use super::observe::ObservedRun;
use crate::context::Context;

pub(super) fn report(
    context: &Context,
    seen: &ObservedRun,
    plan: &Plan,
    transition: &Transition,
    asked: &[Arc<Approval>],
) {
    let at = context.clock.now();
    let tell = |reason, note: &str, key: &str| Report::about(&*seen.workflow, reason, note, key, at);
    if seen.status.spec_digest.is_none() && !plan.warnings().is_empty() {
        context.reporter.report(tell(EventReason::Warned, &plan.warnings().join("; "), "accepted"));
    }
    for approval in asked {
        let request = &approval.spec.request;
        let whom: Vec<_> = approval.approvers().iter().map(ToString::to_string).collect();
        let name = approval.metadata.name.as_deref().unwrap_or_default();
        let note = format!("{name} asks {}: {}", whom.join(", "), request.prompt);
        context.reporter.report(tell(EventReason::ApprovalRequested, &note, name).related(&**approval));
    }
    for record in transition.journal.records() {
        let before = seen.journal.get(&record.path, record.attempt).map(|old| old.phase);
        let is_superseded = |record: &StepRecord| {
            record.decision.as_ref().is_some_and(|outcome| outcome.phase == ApprovalPhase::Superseded)
        };
        if is_superseded(record) && before == Some(StepPhase::Waiting) {
            let why = record.decision.as_ref().and_then(|outcome| outcome.reason.as_deref()).unwrap_or_default();
            let note = format!("gate {}: {why}", record.path);
            context.reporter.report(tell(EventReason::GateSuperseded, &note, &record.path));
        }
        if record.phase == StepPhase::Unknown && before != Some(StepPhase::Unknown) {
            let why = record.error.as_ref().map_or("", |error| &error.message);
            let key = format!("{}#{}", record.path, record.attempt);
            let note = format!("step {}: {why}", record.path);
            context.reporter.report(tell(EventReason::OutcomeUnknown, &note, &key));
        }
    }
    if conditions::fails(&seen.status.conditions, conditions::GUARDED) {
        let key = format!("guarded-{}", seen.status.seq);
        let note = "the admission policies are in force again: decisions count";
        context.reporter.report(tell(EventReason::Guarded, note, &key));
    }
    if let Some(why) = transition.blocked.first()
        && !conditions::holds(&seen.status.conditions, conditions::HELD)
    {
        let key = format!("held-{}", transition.journal.seq());
        context.reporter.report(tell(EventReason::Held, &why.to_string(), &key));
    }
    let (before, after) = (seen.status.phase, transition.phase);
    if let Some(end) = &transition.end {
        context.reporter.report(tell(EventReason::RunEnded(end.phase()), end.message(), "end"));
        tracing::info!(workflow = %seen.name, phase = end.phase().name(), "ended");
    } else if before != after && (before == WorkflowPhase::Suspended || after == WorkflowPhase::Suspended) {
        let (reason, note) = if after == WorkflowPhase::Suspended {
            (EventReason::Suspended, "by spec.suspend")
        } else {
            (EventReason::Resumed, "by spec.suspend")
        };
        // It may happen many times: the generation tells them apart.
        let key = seen.workflow.metadata.generation.unwrap_or_default().to_string();
        context.reporter.report(tell(reason, note, &key));
    }
}
