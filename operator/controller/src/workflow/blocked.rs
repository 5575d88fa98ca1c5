//! Reports a run that cannot go on: held by policies, of the old shape, or unreadable *(I/O)*.
//!
//! **Invariant:** the journal stays unchanged unless the run is cancelled, so that an operator that can read it goes on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;
use serde_json::{Value, json};
use signoff_api::{
    Moment, Workflow,
    conditions::{self, ConditionUpdate, reason},
};
use signoff_cluster::{events::Report, kinds::Name};
use signoff_expr::text;

use super::{commit::open_records, observe::ObservedRun, plan::Refusal, quarantine, status};
use crate::{context::Context, error::Error};

/// Writes that policies hold the run. A change of the policies triggers the next reconcile.
pub(super) async fn block_on_policy(
    context: &Context,
    seen: &ObservedRun,
    why: &Refusal,
) -> Result<Option<Moment>, Error> {
    let next = status::blocked_by_policy(&seen.workflow, why, seen.now);
    if next == seen.status {
        return Ok(None);
    }
    let news = !conditions::holds(&seen.status.conditions, conditions::HELD);
    let stored = context.write_status(&context.workflows, &*seen.workflow, next, open_records(&seen.status)).await?;
    if news {
        let key = format!("held-{}", stored.metadata.resource_version.as_deref().unwrap_or_default());
        let told = Report::about(&*stored, "Held", &why.message, &key, context.clock.now());
        context.reporter.report(told.warning(true));
    }
    tracing::warn!(workflow = %seen.name, reason = why.reason, "held: {}", why.message);
    Ok(None)
}

/// Writes once that a run of the old shape does not go on. A cancelled one ends without its steps being read, as one in quarantine
/// does.
pub(super) async fn block_on_old_shape(
    context: &Context,
    seen: &ObservedRun,
    why: &Refusal,
) -> Result<Option<Moment>, Error> {
    if seen.workflow.spec.cancel == Some(true) {
        return quarantine::keep_quarantined(context, seen, seen.now).await;
    }
    let next = status::old_shape(&seen.workflow, why, seen.now);
    if next == seen.status {
        return Ok(None);
    }
    let stored = context.write_status(&context.workflows, &*seen.workflow, next, open_records(&seen.status)).await?;
    let told = Report::about(&*stored, why.reason, &why.message, "old-shape", context.clock.now());
    context.reporter.report(told.warning(true));
    tracing::warn!(workflow = %seen.name, reason = why.reason, "{}", why.message);
    Ok(None)
}

/// Reports a Workflow that cannot be read.
pub(super) async fn report_unreadable(context: &Context, name: &Name, why: &str) -> Result<Option<Moment>, Error> {
    let message = format!(
        "this version of the operator cannot read the object: {why}; update the operator, or delete the Workflow and apply it again in the shape of this version"
    );
    set_condition(context, name, conditions::ACCEPTED, false, reason::UNREADABLE, &message).await?;
    Ok(None)
}

/// Reports a run that waits for an object that cannot be read.
pub(super) async fn report_unreadable_approval(context: &Context, name: &Name, error: &Error) -> Result<(), Error> {
    let message = format!("the run is blocked: {error}");
    set_condition(context, name, conditions::WAITING, true, reason::APPROVAL_UNREADABLE, &message).await.map(drop)
}

/// Writes that the run cannot go on before an administrator acts: a condition, and an Event the first time.
pub(super) async fn block_on_administrator(context: &Context, name: &Name, error: &Error) -> Result<(), Error> {
    let Some((kind, reason)) = error.blocking_condition() else { return Ok(()) };
    let message = format!("the run is blocked: {error}");
    let Some(meta) = set_condition(context, name, kind, true, reason, &message).await? else { return Ok(()) };
    let key = meta.resource_version.clone().unwrap_or_default();
    let told = Report::of_meta::<Workflow>(&meta, reason, &error.to_string(), &key, context.clock.now());
    context.reporter.report(told.warning(true));
    Ok(())
}

/// Returns the metadata of the Workflow where the condition was not so before.
async fn set_condition(
    context: &Context,
    name: &Name,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
) -> Result<Option<ObjectMeta>, Error> {
    let Some(stored) = context.requests.get_raw::<Workflow>(name).await? else { return Ok(None) };
    let (meta, status) = (&stored["metadata"], &stored["status"]);
    // Whoever reads it when it is over finds nothing to mend.
    let over = !status["finishedAt"].is_null();
    // Where even the conditions cannot be read there is nowhere to put one; the Event says it.
    let known =
        if status["conditions"].is_null() { Some(Vec::new()) } else { Vec::deserialize(&status["conditions"]).ok() };
    let Some(mut known) = known.filter(|_: &Vec<Condition>| !over && context.lease_guard.is_valid()) else {
        return Ok(None);
    };
    let message = text::display(message, 1024);
    if !conditions::set(
        &mut known,
        &ConditionUpdate { kind, holds, reason, message: &message },
        meta["generation"].as_i64(),
        context.now(),
    ) {
        return Ok(None);
    }
    let fence: Value = json!({"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]});
    let patch = json!({"metadata": fence, "status": {"conditions": known}});
    context.requests.merge_status::<Workflow>(name, &patch).await?;
    Ok(ObjectMeta::deserialize(meta).ok())
}
