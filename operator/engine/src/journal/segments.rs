//! The part of a long journal outside of the Workflow object: finished records in segments, each named by the digest of
//! its content.
//!
//! The caller stores and fetches segments.
//! **Invariant:** only records that can no longer change are moved into a segment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use signoff_api::{
    Digest, WorkflowStatus,
    journal::{self, MAX_SEGMENTS, Segment, StepRecord},
    json_bytes,
};

use super::{Entry, Journal};

/// The divisor for the size of a new segment: a sixteenth of the bytes in earlier segments, but at least
/// [`JournalLimits::segment`]. So the Workflow of a short run stays small, and a long run has few segments.
const SHARE: usize = 16;

/// The shared records of a segment; a clone is cheap.
pub type SharedRecords = Arc<[Arc<StepRecord>]>;

/// The cached records of segments.
pub type Segments = BTreeMap<Digest, SharedRecords>;

/// The limits of a journal in the Workflow and of a segment, in bytes. Both grow with the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLimits {
    /// The limit of `status.steps` before the first segment.
    pub steps: usize,
    /// The limit of the first segments. One record always fits.
    pub segment: usize,
    /// The limit of the segments of the longest journals.
    pub largest: usize,
}

impl Default for JournalLimits {
    /// Returns limits with which about forty records stay in the Workflow. More records make each write of the status
    /// larger, and fewer records make more segments: both cost measurably more for each turn of an agent.
    fn default() -> Self {
        Self { steps: 16 * 1024, segment: 13 * 1024, largest: 192 * 1024 }
    }
}

impl JournalLimits {
    /// Returns the limits for the next segment of a journal with `moved` bytes in segments.
    fn after_moving(self, moved: usize) -> Self {
        let segment = (moved / SHARE).min(self.largest).max(self.segment);
        Self { steps: self.steps + segment - self.segment, segment, ..self }
    }
}

/// A segment to be stored before the journal that names it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSegment {
    /// The digest of the content, which is its name.
    pub digest: Digest,
    /// The content: a JSON list of the records.
    pub text: String,
    /// The records of `text`, parsed.
    pub records: SharedRecords,
}

/// The reason why a journal cannot be read from a status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The caller must fetch the segments with these digests first.
    #[error("{} segments of the journal are not loaded", .0.len())]
    Missing(BTreeSet<Digest>),
    /// A part of the journal is missing, and no segment is named.
    #[error(
        "status.journalVersion says that a part of the journal is in segments, and status.segments is empty: the field was lost, perhaps because an older CRD without it was installed"
    )]
    SegmentsLost,
}

/// Parses the records of a segment.
///
/// # Errors
/// Text that is not a list of records. The caller checks that the text has the requested digest.
pub fn read_segment(text: &str) -> Result<SharedRecords, serde_json::Error> {
    let records: Vec<StepRecord> = serde_json::from_str(text)?;
    Ok(records.into_iter().map(Arc::new).collect())
}

impl Journal {
    /// Reads the journal of a status: its segments in their order, and its steps.
    ///
    /// # Errors
    /// Segments that were not fetched, and a status that has lost its list of segments.
    pub fn of(status: &WorkflowStatus, segments: &Segments) -> Result<Self, JournalError> {
        if status.segments.is_empty() {
            return match status.journal_version {
                Some(version) if journal::has_segments(version) => Err(JournalError::SegmentsLost),
                _ => Ok(Self::new(status.seq, status.steps.clone())),
            };
        }
        let missing: BTreeSet<Digest> = status
            .segments
            .iter()
            .map(|s| &s.digest)
            .filter(|digest| !segments.contains_key(digest))
            .cloned()
            .collect();
        if !missing.is_empty() {
            return Err(JournalError::Missing(missing));
        }
        let folded = status.segments.iter().filter_map(|segment| segments.get(&segment.digest));
        let folded = folded.flat_map(|records| records.iter()).map(|r| Entry { record: Arc::clone(r), folded: true });
        let open = status.steps.iter().map(|r| Entry { record: Arc::new(r.clone()), folded: false });
        let mut entries: Vec<Entry> = folded.chain(open).collect();
        // A record that was unfinished when later records moved into a segment has begun before those records.
        entries.sort_by_key(|entry| entry.record.seq);
        Ok(Self::from_entries(status.seq, entries, status.segments.clone()))
    }

    /// Returns the segments, oldest first.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the records in the Workflow object, which are in no segment, in the order in which they began.
    #[must_use]
    pub fn steps(&self) -> Vec<StepRecord> {
        self.entries.iter().filter(|entry| !entry.folded).map(|entry| (*entry.record).clone()).collect()
    }

    /// Moves the oldest finished records into segments if the records in the Workflow exceed their limit. Unfinished
    /// records keep their positions in `status.steps`, so that JSON patches of the status find them. A journal without
    /// new records is not changed, so that nothing is written.
    ///
    /// # Errors
    /// A record that cannot be written as JSON.
    pub fn fold_finished(&mut self, limits: &JournalLimits) -> Result<Vec<NewSegment>, serde_json::Error> {
        let mut folded = Vec::new();
        if !self.changed {
            return Ok(folded);
        }
        let moved = self.segments.iter().map(|segment| usize::try_from(segment.size).unwrap_or_default()).sum();
        let limits = limits.after_moving(moved);
        let (mut open_bytes, mut finished) = (0_usize, 0_usize);
        for entry in self.entries.iter().filter(|entry| !entry.folded) {
            let bytes = json_bytes(&*entry.record)?;
            open_bytes += bytes;
            finished += if entry.record.phase.is_end() { bytes } else { 0 };
        }
        // If unfinished records exceed the limit, finished records stay until they fill a segment.
        while open_bytes > limits.steps && finished >= limits.segment && self.segments.len() < MAX_SEGMENTS {
            let Some(segment) = self.fold(limits.segment)? else { break };
            open_bytes = open_bytes.saturating_sub(segment.text.len());
            finished = finished.saturating_sub(segment.text.len());
            folded.push(segment);
        }
        Ok(folded)
    }

    /// Moves the oldest finished records into a segment of at most `most` bytes, but at least one record. Returns
    /// `None` without finished records.
    fn fold(&mut self, most: usize) -> Result<Option<NewSegment>, serde_json::Error> {
        let (mut text, mut records) = (String::from("["), Vec::new());
        for entry in self.entries.iter_mut().filter(|entry| !entry.folded && entry.record.phase.is_end()) {
            let record = serde_json::to_string(&*entry.record)?;
            if !records.is_empty() {
                if text.len() + record.len() + 2 > most {
                    break;
                }
                text.push(',');
            }
            text.push_str(&record);
            records.push(Arc::clone(&entry.record));
            entry.folded = true;
        }
        if records.is_empty() {
            return Ok(None);
        }
        text.push(']');
        let digest = Digest::of_bytes(text.as_bytes());
        self.segments.push(Segment {
            digest: digest.clone(),
            size: i64::try_from(text.len()).unwrap_or(i64::MAX),
            records: i32::try_from(records.len()).unwrap_or(i32::MAX),
            through: records.iter().map(|record| record.done.unwrap_or(record.seq)).max().unwrap_or_default(),
        });
        Ok(Some(NewSegment { digest, text, records: records.into() }))
    }
}
