//! Reports a run that cannot continue *(I/O)*: from a backup, held by policies or by other rules, of the old shape, or
//! unreadable.
//!
//! **Invariant:** adds only results of calls in flight and the end of the run to the journal, so that an operator that
//! can read it continues the run.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;
use serde_json::{Value, json};
use signoff_api::{
    EventReason, Moment, Workflow, WorkflowStatus,
    announce::About,
    conditions::{self, ConditionUpdate, reason},
    rules::RULES,
};
use signoff_cluster::kinds::{Name, ReconciledKind as _};
use signoff_expr::text;

use super::{
    commit::open_records,
    observe::ObservedRun,
    plan::Refusal,
    quarantine::{self, Unevaluated},
    status,
};
use crate::{
    context::{ApiServer, Context},
    error::Error,
};

/// Writes that policies hold the run. A change of the policies triggers the next reconcile.
pub(super) async fn block_on_policy(
    context: &Context,
    seen: &ObservedRun,
    why: &Refusal,
) -> Result<Option<Moment>, Error> {
    let next = status::status_held_by_policy(&seen.workflow, why, seen.now);
    if next == seen.status {
        return Ok(None);
    }
    let is_news = !conditions::holds(&seen.status.conditions, conditions::HELD);
    let stored =
        context.api.write_status(&context.objects.workflows, &*seen.workflow, next, open_records(&seen.status)).await?;
    if is_news {
        let key = format!("held-{}", stored.metadata.resource_version.as_deref().unwrap_or_default());
        context.say(About::Workflow(&stored.metadata), EventReason::Held, &why.message, &key);
    }
    tracing::warn!(workflow = %seen.name, reason = why.reason, "held: {}", why.message);
    Ok(None)
}

/// Holds a run that was accepted under other rules than those of this version. Results of calls in flight are recorded,
/// and cancel, suspend and `activeDeadline` work. The reconcile of its Approvals counts no vote and ends none of them.
pub(super) async fn block_on_rules(
    context: &Context,
    seen: &ObservedRun,
    accepted: i32,
) -> Result<Option<Moment>, Error> {
    let why = old_rules_message(accepted);
    let is_held = |condition: &Condition| condition.type_ == conditions::HELD && condition.reason == reason::OLD_RULES;
    let is_news = !seen.status.conditions.iter().any(is_held);
    quarantine::remove_marks(&context.evaluations, &seen.name, Some(&seen.uid));
    let describe = |status: &mut WorkflowStatus| status::describe_held_by_rules(status, &seen.workflow, &why, seen.now);
    let Unevaluated { stored, due } = quarantine::advance_without_evaluation(context, seen, describe).await?;
    if is_news && !stored.is_finished() {
        let key = format!("held-{}", stored.metadata.resource_version.as_deref().unwrap_or_default());
        context.say(About::Workflow(&stored.metadata), EventReason::Held, &why, &key);
        tracing::warn!(workflow = %seen.name, reason = reason::OLD_RULES, "held: {why}");
    }
    Ok(due)
}

/// Reports that a run is a copy from a backup. It starts nothing, whatever `suspend` says, and ends only when it is
/// cancelled.
pub(super) async fn block_on_restored(context: &Context, seen: &ObservedRun) -> Result<Option<Moment>, Error> {
    let is_news = !conditions::holds(&seen.status.conditions, conditions::RESTORED);
    let name = &seen.name.name;
    let (because, backup) = match seen.workflow.spec.restored {
        Some(true) => ("spec.restored", " --backup FILE"),
        _ => ("status.startedAt is before its creation", ""),
    };
    let why = format!(
        "the run is a copy from a backup ({because}), which cannot tell what the run did afterwards, so it never continues: cancel it (`kubectl approve cancel {name}`), or check what it has done and run it again (`kubectl approve rerun {name}{backup}`)"
    );
    quarantine::remove_marks(&context.evaluations, &seen.name, Some(&seen.uid));
    let describe = |status: &mut WorkflowStatus| status::describe_restored(status, &seen.workflow, &why, seen.now);
    let Unevaluated { stored, due } = quarantine::advance_without_evaluation(context, seen, describe).await?;
    if is_news && !stored.is_finished() {
        context.say(About::Workflow(&stored.metadata), EventReason::Restored, &why, "restored");
        tracing::warn!(workflow = %seen.name, "restored: {why}");
    }
    Ok(due)
}

fn old_rules_message(accepted: i32) -> String {
    let update = if accepted > RULES { "update the operator, or " } else { "" };
    format!(
        "the run was accepted under rules {accepted}, and this version of the operator has rules {RULES}, by which the same spec may come to something else: {update}check what it has done, cancel it and start it anew (`kubectl approve cancel NAME`, then `kubectl replace --force -f FILE`); votes on its Approvals are stored and not counted"
    )
}

/// Writes once that a run of the old shape does not continue. A cancelled run ends without its steps being read, like a
/// run in quarantine.
pub(super) async fn block_on_old_shape(
    context: &Context,
    seen: &ObservedRun,
    why: &Refusal,
) -> Result<Option<Moment>, Error> {
    if seen.workflow.spec.cancel == Some(true) {
        return quarantine::keep_quarantined(context, seen, seen.now).await;
    }
    let next = status::status_of_old_shape(&seen.workflow, why, seen.now);
    if next == seen.status {
        return Ok(None);
    }
    let stored =
        context.api.write_status(&context.objects.workflows, &*seen.workflow, next, open_records(&seen.status)).await?;
    let reason = EventReason::Condition(why.reason);
    context.say(About::Workflow(&stored.metadata), reason, &why.message, "old-shape");
    tracing::warn!(workflow = %seen.name, reason = why.reason, "{}", why.message);
    Ok(None)
}

/// Reports a Workflow that cannot be read.
pub(super) async fn report_unreadable(api: &ApiServer, name: &Name, why: &str) -> Result<Option<Moment>, Error> {
    let message = format!(
        "this version of the operator cannot read the object: {why}; update the operator, or delete the Workflow and apply it again in the shape of this version"
    );
    set_condition(api, name, conditions::ACCEPTED, false, reason::UNREADABLE, &message).await?;
    Ok(None)
}

/// Reports a run that waits for an object that cannot be read.
pub(super) async fn report_unreadable_approval(api: &ApiServer, name: &Name, error: &Error) -> Result<(), Error> {
    let message = format!("the run is blocked: {error}");
    set_condition(api, name, conditions::WAITING, true, reason::APPROVAL_UNREADABLE, &message).await.map(drop)
}

/// Writes that the run cannot continue before an administrator acts: a condition, and an Event the first time.
pub(super) async fn block_on_administrator(context: &Context, name: &Name, error: &Error) -> Result<(), Error> {
    let Some((kind, reason)) = error.blocking_condition() else { return Ok(()) };
    let message = format!("the run is blocked: {error}");
    let Some(meta) = set_condition(&context.api, name, kind, true, reason, &message).await? else { return Ok(()) };
    let key = meta.resource_version.clone().unwrap_or_default();
    context.say(About::Workflow(&meta), EventReason::Condition(reason), &error.to_string(), &key);
    Ok(())
}

/// Sets a condition of a Workflow that may be undecodable. Returns its metadata if the condition has changed.
async fn set_condition(
    api: &ApiServer,
    name: &Name,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
) -> Result<Option<ObjectMeta>, Error> {
    let Some(stored) = api.requests.get_raw::<Workflow>(name).await? else { return Ok(None) };
    let (meta, status) = (&stored["metadata"], &stored["status"]);
    // A finished run has nothing to repair.
    let is_finished = !status["finishedAt"].is_null();
    // If even the conditions cannot be decoded, none is set, and only the Event reports the problem.
    let known =
        if status["conditions"].is_null() { Some(Vec::new()) } else { Vec::deserialize(&status["conditions"]).ok() };
    let Some(mut known) = known.filter(|_: &Vec<Condition>| !is_finished && api.lease_guard.is_valid()) else {
        return Ok(None);
    };
    let message = text::display(message, 1024);
    if !conditions::set(
        &mut known,
        &ConditionUpdate { kind, holds, reason, message: &message },
        meta["generation"].as_i64(),
        api.now(),
    ) {
        return Ok(None);
    }
    let fence: Value = json!({"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]});
    let patch = json!({"metadata": fence, "status": {"conditions": known}});
    api.requests.merge_status::<Workflow>(name, &patch).await?;
    Ok(ObjectMeta::deserialize(meta).ok())
}
