//! The long values of a run: their references, their total size, and the check whether another value fits.
//!
//! Pure: the caller stores the values.

use std::collections::BTreeMap;

use signoff_api::{
    ApprovalRequest, Digest, WorkflowStatus,
    journal::{BlobRef, StepRecord},
};

use crate::journal::Journal;

/// The default maximum size of all long values of a run, in bytes.
pub const MAX_OF_RUN: u64 = 64 * 1024 * 1024;

/// The maximum size of one value, in bytes: it fits into a Blob in every encoding.
pub(crate) const MAX_VALUE: usize = 900 * 1024;

/// The limits of the long values of a run, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueLimits {
    /// The maximum size of all long values of one run.
    pub of_run: u64,
    /// The bytes that other runs leave of the limit of the namespace. `u64::MAX` without such a limit.
    pub left_in_namespace: u64,
}

impl Default for ValueLimits {
    fn default() -> Self {
        Self { of_run: MAX_OF_RUN, left_in_namespace: u64::MAX }
    }
}

impl ValueLimits {
    /// Returns the reason why the values of a run exceed a limit with this total size, or `None`.
    fn exceeded_limit(&self, bytes: u64) -> Option<String> {
        let Self { of_run, left_in_namespace } = *self;
        if bytes > of_run {
            return Some(format!(
                "the long values of this run would have {bytes} bytes together; the maximum is {of_run}: let steps answer with less, split the Workflow, or have an administrator raise --max-value-bytes-per-workflow"
            ));
        }
        (bytes > left_in_namespace).then(|| {
            format!(
                "the long values of this run would have {bytes} bytes together, and those of other Workflows leave {left_in_namespace} in this namespace: delete Workflows that have ended, or have an administrator raise --max-value-bytes-per-namespace"
            )
        })
    }
}

/// The digests and sizes of the values that a run refers to.
#[derive(Clone, Debug, Default)]
pub(crate) struct References {
    sizes: BTreeMap<Digest, u64>,
    bytes: u64,
    limits: ValueLimits,
}

impl References {
    /// Returns the references of a journal, including its segments.
    pub(crate) fn of(journal: &Journal, limits: ValueLimits) -> Self {
        let mut all = Self { limits, ..Self::default() };
        for record in journal.records() {
            references_of_record(record).for_each(|reference| all.add(&reference.digest, reference.size));
        }
        for segment in journal.segments() {
            all.add(&segment.digest, segment.size);
        }
        all
    }

    pub(crate) fn add(&mut self, digest: &Digest, size: i64) {
        let size = u64::try_from(size).unwrap_or(0);
        if self.sizes.insert(digest.clone(), size).is_none() {
            self.bytes = self.bytes.saturating_add(size);
        }
    }

    /// Checks that the values stay within the limits if the run also refers to the texts `more`.
    pub(crate) fn check_fit<'v>(&self, more: impl IntoIterator<Item = &'v str>) -> Result<(), String> {
        let mut added = BTreeMap::new();
        for text in more {
            let digest = Digest::of_bytes(text.as_bytes());
            if !self.sizes.contains_key(&digest) {
                added.insert(digest, u64::try_from(text.len()).unwrap_or(u64::MAX));
            }
        }
        let bytes = added.values().fold(self.bytes, |sum, size| sum.saturating_add(*size));
        // A lower limit does not remove existing values.
        if bytes == self.bytes { Ok(()) } else { self.limits.exceeded_limit(bytes).map_or(Ok(()), Err) }
    }
}

fn references_of_record(record: &StepRecord) -> impl Iterator<Item = &BlobRef> {
    let log = record.log.as_ref().and_then(|log| log.ref_.as_ref());
    let shows = record.request.iter().flat_map(|facts| &facts.shows);
    record.response_ref.iter().chain(&record.opaque_ref).chain(&record.decision_ref).chain(log).chain(shows)
}

/// Returns the stored values that the journal or the status of a run refers to.
#[must_use]
pub fn stored_values(journal: &Journal, status: &WorkflowStatus) -> BTreeMap<Digest, u64> {
    let mut all = References::of(journal, ValueLimits::default());
    let results = status.outputs_ref.iter().chain(status.artifacts.iter().map(|file| &file.content));
    results.for_each(|reference| all.add(&reference.digest, reference.size));
    all.sizes
}

/// Returns the total size of the stored values of a run in bytes, or `None` without values.
#[must_use]
pub fn total_bytes(journal: &Journal, status: &WorkflowStatus) -> Option<i64> {
    let sum = stored_values(journal, status).values().fold(0_u64, |sum, size| sum.saturating_add(*size));
    (sum > 0).then(|| i64::try_from(sum).unwrap_or(i64::MAX))
}

/// Returns the long values that a request shows.
pub(crate) fn shown_by(request: &ApprovalRequest) -> Vec<BlobRef> {
    let review = request.reviews.as_ref().and_then(|review| review.ref_.as_ref());
    let sent = request.sends.as_ref().and_then(|sent| sent.ref_.as_ref());
    request.context_ref.iter().chain(review).chain(sent).cloned().collect()
}
