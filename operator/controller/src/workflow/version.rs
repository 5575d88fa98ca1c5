//! Reports a run whose journal was written by a newer operator.
//!
//! **Invariant:** does not write the Workflow, so that the newer operator can go on with it.

use std::time::Duration;

use signoff_api::{Moment, Workflow, journal};
use signoff_cluster::{
    events::Report,
    kinds::{Name, uid},
};

use crate::context::Context;

/// How soon to report it again. A write by another operator triggers a reconcile anyway.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Reports that a run is left to a newer operator. Returns when to report it again.
pub(super) fn left_alone(context: &Context, workflow: &Workflow) -> Option<Moment> {
    let version = workflow.status.as_ref().and_then(|status| status.journal_version).unwrap_or(journal::VERSION);
    if version <= journal::VERSION {
        return None;
    }
    let why = format!(
        "status.journalVersion is {version}, and this operator reads up to {}: the run is left alone until the operator that wrote it, or a newer one, is installed again",
        journal::VERSION
    );
    let key = format!("version-{version}");
    let told = Report::about(workflow, "JournalTooNew", &why, &key, context.clock.now());
    context.reporter.report(told.warning(true));
    tracing::error!(workflow = %Name::of(workflow), uid = uid(workflow), "{why}");
    Some(context.now().after(LOOK_AGAIN))
}
