//! Reports on an object that its reconcile has failed for a minute *(I/O)*: by an Event, and by the condition `Stalled`
//! if its status can be written.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{EventReason, Workflow, conditions};
use signoff_cluster::{
    kinds::Name,
    store::{Found, Store},
    workqueue::Key,
};
use signoff_engine::status::say;

use crate::{announce::AnnouncedKind, context::Context, error::Error, stalls::OverdueStall, workflow::open_records};

/// Records a failed reconcile, and reports it on the object when that is due.
pub(crate) async fn record_failure(context: &Context, key: &Key, error: &Error) {
    let Some(overdue) = context.stalls.record_failure(key, error, context.api.now()) else { return };
    let since = overdue.since;
    let outlook = match error.passes_by_itself() {
        true => "and is retried until it succeeds",
        false => "and does not pass by itself",
    };
    let message = format!("{error}; this has failed since {since}, {outlook}");
    match key {
        Key::Approval(name) => report(context, &context.objects.approvals, name, &overdue, &message).await,
        Key::Workflow(name) => {
            report(context, &context.objects.workflows, name, &overdue, &message).await;
            if let Some(reason) = error.reason()
                && let Err(why) = set_stalled(context, name, reason, &message).await
            {
                tracing::debug!(workflow = %name, "the condition Stalled could not be written: {why}");
            }
        }
    }
}

/// Reports an Event, once for each stall.
async fn report<K: AnnouncedKind>(
    context: &Context,
    store: &Store<K>,
    name: &Name,
    overdue: &OverdueStall,
    message: &str,
) {
    if !overdue.is_new {
        return;
    }
    let meta_with = |uid: Option<String>| ObjectMeta {
        name: Some(name.name.to_string()),
        namespace: Some(name.namespace.to_string()),
        uid,
        ..ObjectMeta::default()
    };
    let meta = match store.find(name) {
        Found::Here(object) => object.meta().clone(),
        Found::Finished { uid, .. } => meta_with(Some(uid)),
        // `kubectl describe` shows an Event only by the uid of its object.
        Found::Stale | Found::NotFound => match context.read_fresh(store, name).await {
            Ok(Some(object)) => object.meta().clone(),
            _ => meta_with(None),
        },
    };
    let key = overdue.since.to_string();
    context.say(K::about(&meta), EventReason::Stalled, message, &key);
}

/// Sets the condition `Stalled` of a Workflow that has not finished. The first message for a reason stays, because each
/// new message would cost a write.
async fn set_stalled(context: &Context, name: &Name, reason: &'static str, message: &str) -> Result<(), Error> {
    let workflow = match context.objects.workflows.find(name) {
        Found::Here(workflow) => workflow,
        Found::Stale => match context.read_fresh(&context.objects.workflows, name).await? {
            Some(workflow) => workflow,
            None => return Ok(()),
        },
        Found::Finished { .. } | Found::NotFound => return Ok(()),
    };
    let mut status = workflow.status.clone().unwrap_or_default();
    let is_set =
        status.conditions.iter().any(|c| c.type_ == conditions::STALLED && c.status == "True" && c.reason == reason);
    if is_set || status.phase.is_end() {
        return Ok(());
    }
    let tests = open_records(&status);
    say(&mut status, &workflow, context.api.now(), conditions::STALLED, true, reason, message);
    context.api.write_status(&context.objects.workflows, &*workflow, status, tests).await.map(|_| ())
}

/// Removes the condition `Stalled` after a reconcile has succeeded. Returns the stored Workflow.
pub(crate) async fn clear(context: &Context, workflow: Arc<Workflow>) -> Result<Arc<Workflow>, Error> {
    let mut status = workflow.status.clone().unwrap_or_default();
    if !conditions::holds(&status.conditions, conditions::STALLED) {
        return Ok(workflow);
    }
    let tests = open_records(&status);
    conditions::remove(&mut status.conditions, conditions::STALLED);
    context.api.write_status(&context.objects.workflows, &*workflow, status, tests).await
}
