//! Holds a run: because of an administrator's policies, or because its Workflow has the old shape.
//!
//! **Invariant:** the journal stays unchanged unless the run is cancelled.

use signoff_api::{Moment, conditions};
use signoff_cluster::events::Report;

use super::{commit::open_records, observe::Seen, plan::Refusal, quarantine, status};
use crate::{context::Context, error::Error};

/// Writes that policies hold the run. A change of the policies triggers the next reconcile.
pub(super) async fn hold(context: &Context, seen: &Seen, why: &Refusal) -> Result<Option<Moment>, Error> {
    let next = status::held(&seen.workflow, why, seen.now);
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
pub(super) async fn old_shape(context: &Context, seen: &Seen, why: &Refusal) -> Result<Option<Moment>, Error> {
    if seen.workflow.spec.cancel == Some(true) {
        return quarantine::rest(context, seen, seen.now).await;
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
