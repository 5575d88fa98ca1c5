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

/// A segment has a sixteenth of the bytes that were moved out before it, or [`JournalLimits::segment`] where that is
/// more: so the Workflow stays small as long as its run is short, and a long run has few segments.
const SHARE: usize = 16;

/// The shared records of a segment; a clone is cheap.
pub type SharedRecords = Arc<[Arc<StepRecord>]>;

/// The cached records of segments.
pub type Segments = BTreeMap<Digest, SharedRecords>;

/// The limits of a journal in the Workflow and of a segment, in bytes. Both grow with the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLimits {
    /// Of `status.steps` before the first segment.
    pub steps: usize,
    /// Of the first segments. One record always fits.
    pub segment: usize,
    /// Of the segments of the longest journals.
    pub largest: usize,
}

impl Default for JournalLimits {
    /// Some forty records stand in the Workflow: each write sends, stores and shows all of them. Half as many again
    /// cost a turn of an agent an eighth more, and a quarter of them a thirteenth more, for its segments.
    fn default() -> Self {
        Self { steps: 16 * 1024, segment: 13 * 1024, largest: 192 * 1024 }
    }
}

impl JournalLimits {
    /// Returns the room of a journal of which so many bytes were moved out.
    fn beside(self, moved: usize) -> Self {
        let segment = (moved / SHARE).min(self.largest).max(self.segment);
        Self { steps: self.steps + segment - self.segment, segment, ..self }
    }
}

/// A segment to be stored before the journal that names it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSegment {
    /// Its name.
    pub digest: Digest,
    /// Its content.
    pub text: String,
    /// The records in it.
    pub records: SharedRecords,
}

/// The reason why a journal cannot be read from a status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// These segments have to be fetched first.
    #[error("{} segments of the journal are not loaded", .0.len())]
    Missing(BTreeSet<Digest>),
    /// A part of the journal is somewhere, and nothing says where.
    #[error(
        "status.journalVersion says that a part of the journal is in segments, and status.segments is empty: the field was lost, perhaps because an older CRD without it was installed"
    )]
    SegmentsLost,
}

/// The records of a segment.
///
/// # Errors
/// Text that is no list of records. The caller checks that it has the digest by which it was requested.
pub fn read_segment(text: &str) -> Result<SharedRecords, serde_json::Error> {
    let records: Vec<StepRecord> = serde_json::from_str(text)?;
    Ok(records.into_iter().map(Arc::new).collect())
}

impl Journal {
    /// The journal that a status holds: its segments in their order, and its steps.
    ///
    /// # Errors
    /// Segments that are not at hand, and a status that has lost its list of them.
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
        // A record that was open when later ones moved out began before them.
        entries.sort_by_key(|entry| entry.record.seq);
        Ok(Self::from_entries(status.seq, entries, status.segments.clone()))
    }

    /// The segments, oldest first.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The records that are in no segment, in the order in which they began: those that stand in the Workflow.
    #[must_use]
    pub fn steps(&self) -> Vec<StepRecord> {
        self.entries.iter().filter(|entry| !entry.folded).map(|entry| (*entry.record).clone()).collect()
    }

    /// Moves the oldest finished records into segments, where those that stand in the Workflow have outgrown their
    /// room. What is not finished stays, however old: whoever patches it, or tests that nobody did, finds it in its
    /// place. A journal to which nothing was added stays as it is, so that nothing is written for it.
    ///
    /// # Errors
    /// A record that cannot be written as JSON.
    pub fn fold_finished(&mut self, room: &JournalLimits) -> Result<Vec<NewSegment>, serde_json::Error> {
        let mut folded = Vec::new();
        if !self.changed {
            return Ok(folded);
        }
        let moved = self.segments.iter().map(|segment| usize::try_from(segment.size).unwrap_or_default()).sum();
        let room = room.beside(moved);
        let (mut stands, mut finished) = (0_usize, 0_usize);
        for entry in self.entries.iter().filter(|entry| !entry.folded) {
            let bytes = json_bytes(&*entry.record)?;
            stands += bytes;
            finished += if entry.record.phase.is_end() { bytes } else { 0 };
        }
        // Where records that are open take the room, the others wait until they fill a segment.
        while stands > room.steps && finished >= room.segment && self.segments.len() < MAX_SEGMENTS {
            let Some(segment) = self.fold(room.segment)? else { break };
            stands = stands.saturating_sub(segment.text.len());
            finished = finished.saturating_sub(segment.text.len());
            folded.push(segment);
        }
        Ok(folded)
    }

    /// Moves the oldest finished records into a segment of at most so many bytes; none where there are none.
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
