//! Loads the journal of a run from its status and its segments *(I/O)*, and reports a journal of a newer operator.
//!
//! **Invariant:** returns the complete journal or an error, because the activity of a missing record would be repeated.

use std::time::Duration;

use signoff_api::{EventReason, Moment, Workflow, WorkflowStatus, announce::About, journal};
use signoff_cluster::kinds::{Name, uid};
use signoff_engine::{
    Journal,
    journal::{JournalError, NewSegment, read_segment},
};
use signoff_executor::blobs::BlobError;

use crate::{
    caches::SegmentCache,
    context::{Context, ReadMemory, owner},
    error::Error,
};

/// Loads the journal. A failure is reported as an Event, because nothing else shows why the run does not continue.
pub(super) async fn load_or_report(
    context: &Context,
    workflow: &Workflow,
    status: &WorkflowStatus,
    memory: &ReadMemory,
) -> Result<Journal, Error> {
    let read = load_journal(context, &Name::of(workflow), uid(workflow), status, memory).await;
    if let Err(why) = &read
        && !matches!(why, Error::Blob { source: BlobError::Store { .. }, .. })
    {
        let about = About::Workflow(&workflow.metadata);
        context.say(about, EventReason::JournalIncomplete, &why.to_string(), "journal");
    }
    read
}

/// Loads the journal. Segments that are not cached are fetched and cached.
async fn load_journal(
    context: &Context,
    name: &Name,
    uid: &str,
    status: &WorkflowStatus,
    memory: &ReadMemory,
) -> Result<Journal, Error> {
    let torn = |why: String| Error::JournalTorn { object: name.as_a::<Workflow>(), why };
    let mut segments = context.caches.segments.of_run(uid, &status.segments);
    loop {
        let missing = match Journal::of(status, &segments) {
            Ok(journal) => return Ok(journal),
            Err(JournalError::Missing(missing)) => missing,
            Err(why @ JournalError::SegmentsLost) => return Err(torn(why.to_string())),
        };
        memory.take(&context.values.quota, &context.objects.workflows, name).await;
        for digest in missing {
            let text = context.values.fetch(name, &owner(name, uid), &status.value_names, &digest).await?;
            let records = read_segment(&text).map_err(|why| torn(format!("segment {digest}: {why}")))?;
            context.caches.segments.put(uid, &digest, records.clone(), text.len());
            segments.insert(digest, records);
        }
    }
}

/// Caches the segment of a committed transition for the next one.
pub(super) fn cache_segments(cached: &SegmentCache, uid: &str, folded: Vec<NewSegment>) {
    for NewSegment { digest, text, records } in folded {
        cached.put(uid, &digest, records, text.len());
    }
}

/// The time after which a run with a newer journal is reported again. A write by another operator enqueues it anyway.
const REPORT_AGAIN: Duration = Duration::from_secs(600);

/// Reports a run whose journal a newer operator wrote. Returns when to report it again, or `None` if this operator can
/// read the journal.
pub(super) fn report_newer_journal(context: &Context, workflow: &Workflow) -> Option<Moment> {
    let version = workflow.status.as_ref().and_then(|status| status.journal_version).unwrap_or(journal::VERSION);
    if version <= journal::VERSION {
        return None;
    }
    let why = format!(
        "status.journalVersion is {version}, and this operator reads up to {}: nothing is done for this run; install the version of the operator that wrote it, or a newer one",
        journal::VERSION
    );
    let key = format!("version-{version}");
    context.say(About::Workflow(&workflow.metadata), EventReason::JournalTooNew, &why, &key);
    tracing::error!(workflow = %Name::of(workflow), uid = uid(workflow), "{why}");
    Some(context.api.now().after(REPORT_AGAIN))
}
