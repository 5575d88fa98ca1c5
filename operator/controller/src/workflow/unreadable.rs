//! Writes a condition on a Workflow that cannot be read, or that waits for an Approval that cannot be read.
//!
//! **Invariant:** changes nothing but that condition, so that an operator that can read the object goes on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;
use serde_json::{Value, json};
use signoff_api::{
    Moment, Workflow,
    conditions::{self, ConditionUpdate, reason},
};
use signoff_cluster::{events::Report, kinds::Name};
use signoff_expr::text;

use crate::{context::Context, error::Error};

/// Reports a Workflow that cannot be read.
pub(super) async fn itself(context: &Context, name: &Name, why: &str) -> Result<Option<Moment>, Error> {
    let message = format!(
        "this version of the operator cannot read the object: {why}; update the operator, or delete the Workflow and apply it again in the shape of this version"
    );
    say(context, name, conditions::ACCEPTED, false, reason::UNREADABLE, &message).await?;
    Ok(None)
}

/// Reports a run that waits for an object that cannot be read.
pub(super) async fn awaited(context: &Context, name: &Name, error: &Error) -> Result<(), Error> {
    let message = format!("the run cannot go on: {error}");
    say(context, name, conditions::WAITING, true, reason::APPROVAL_UNREADABLE, &message).await.map(drop)
}

/// Writes that the run cannot go on before an administrator acts: a condition, and an Event the first time.
pub(super) async fn blocked(context: &Context, name: &Name, error: &Error) -> Result<(), Error> {
    let Some((kind, reason)) = error.blocks() else { return Ok(()) };
    let message = format!("the run cannot go on: {error}");
    let Some(meta) = say(context, name, kind, true, reason, &message).await? else { return Ok(()) };
    let key = meta.resource_version.clone().unwrap_or_default();
    let told = Report::of_meta::<Workflow>(&meta, reason, &error.to_string(), &key, context.clock.now());
    context.reporter.report(told.warning(true));
    Ok(())
}

/// Returns the metadata of the Workflow where the condition was not so before.
async fn say(
    context: &Context,
    name: &Name,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
) -> Result<Option<ObjectMeta>, Error> {
    let Some(stored) = context.wire.get_raw::<Workflow>(name).await? else { return Ok(None) };
    let (meta, status) = (&stored["metadata"], &stored["status"]);
    // Whoever reads it when it is over finds nothing to mend.
    let over = !status["finishedAt"].is_null();
    // Where even the conditions cannot be read there is nowhere to put one; the Event says it.
    let known =
        if status["conditions"].is_null() { Some(Vec::new()) } else { Vec::deserialize(&status["conditions"]).ok() };
    let Some(mut known) = known.filter(|_: &Vec<Condition>| !over && context.tenure.holds()) else { return Ok(None) };
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
    context.wire.merge_status::<Workflow>(name, &patch).await?;
    Ok(ObjectMeta::deserialize(meta).ok())
}
