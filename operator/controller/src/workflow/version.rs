//! Whether a run's journal is one that this operator can read.
//!
//! It may not write: what a newer operator wrote is left as it is, so that going back to that one loses nothing.

use std::time::Duration;

use signoff_api::{Moment, Workflow, journal};

use crate::{
    context::Context,
    events::Report,
    kinds::{Name, uid},
};

/// How soon to look again: only another operator can help, and its writes are seen anyway.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Says of a run whose journal is of a later version that it is left alone, and when to say so again.
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
