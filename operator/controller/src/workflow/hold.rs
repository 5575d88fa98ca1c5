//! Says that a run does not go on: because of an administrator's policies, or because it is of the old shape.
//!
//! It must not end the run or change its journal, but where the run is cancelled: what is pending stays pending.

use signoff_api::{Moment, conditions};

use super::{commit::open_records, observe::Seen, plan::Refusal, quarantine, status};
use crate::{commit::commit as write, context::Context, error::Error, events::Report};

/// Whoever changes the policies causes the next look.
pub(super) async fn hold(context: &Context, seen: &Seen, why: &Refusal) -> Result<Option<Moment>, Error> {
    let next = status::held(&seen.workflow, why, seen.now);
    if next == seen.status {
        return Ok(None);
    }
    let news = !conditions::holds(&seen.status.conditions, conditions::HELD);
    let stored = write(context, &context.workflows, &*seen.workflow, next, open_records(&seen.status)).await?;
    if news {
        let key = format!("held-{}", stored.metadata.resource_version.as_deref().unwrap_or_default());
        let told = Report::about(&*stored, "Held", &why.message, &key, context.clock.now());
        context.reporter.report(told.warning(true));
    }
    tracing::warn!(workflow = %seen.name, reason = why.reason, "held: {}", why.message);
    Ok(None)
}

/// Says once that a run of the old shape stands still. A cancelled one ends without its steps being known, as one that is
/// set aside does.
pub(super) async fn old_shape(context: &Context, seen: &Seen, why: &Refusal) -> Result<Option<Moment>, Error> {
    if seen.workflow.spec.cancel == Some(true) {
        return quarantine::rest(context, seen, seen.now).await;
    }
    let next = status::old_shape(&seen.workflow, why, seen.now);
    if next == seen.status {
        return Ok(None);
    }
    let stored = write(context, &context.workflows, &*seen.workflow, next, open_records(&seen.status)).await?;
    let told = Report::about(&*stored, why.reason, &why.message, "old-shape", context.clock.now());
    context.reporter.report(told.warning(true));
    tracing::warn!(workflow = %seen.name, reason = why.reason, "{}", why.message);
    Ok(None)
}
