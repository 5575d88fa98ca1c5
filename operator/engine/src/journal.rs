//! The journal in memory: records by path and attempt, and the one counter of a run.
//!
//! Stores and finds records, independent of their meaning. **Invariant:** a finished record never changes. Records are
//! shared: a copy of a journal costs a pointer for each record.

mod records;
mod segments;
pub mod values;

use std::sync::Arc;

use signoff_api::{
    RecordPath, Seq,
    approval::ApprovalPhase,
    journal::{Segment, StepRecord, Usage},
};

pub use records::Records;
pub use segments::{JournalError, JournalLimits, NewSegment, Segments, SharedRecords, read_segment};

/// The records of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    /// The number of the last event.
    seq: Seq,
    /// The entries, in the order in which their records began.
    entries: Vec<Entry>,
    /// The positions of the entries, in the order of path and attempt.
    order: Vec<usize>,
    /// The positions of the finished entries, in the order of their ends.
    ends: Vec<usize>,
    segments: Vec<Segment>,
    changed: bool,
}

/// Whether a path is `place`, one of its visits, or below `place`.
pub(crate) fn within(path: &str, place: &str) -> bool {
    RecordPath::new(path).is_within(place)
}

/// A record and its storage.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    record: Arc<StepRecord>,
    /// Whether the record is in a segment.
    folded: bool,
}

impl Journal {
    /// Returns a journal of `records`, with the last number `seq` and without segments.
    #[must_use]
    pub fn new(seq: Seq, records: Vec<StepRecord>) -> Self {
        let entries = records.into_iter().map(|record| Entry { record: Arc::new(record), folded: false }).collect();
        Self::from_entries(seq, entries, Vec::new())
    }

    fn from_entries(seq: Seq, entries: Vec<Entry>, segments: Vec<Segment>) -> Self {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_by(|a, b| entries[*a].key().cmp(&entries[*b].key()));
        let mut ends: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].record.done.is_some()).collect();
        ends.sort_by_key(|at| entries[*at].record.done);
        Self { seq, entries, order, ends, segments, changed: false }
    }

    /// Returns the number of the last event.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Whether a record was added since the journal was read.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Returns all records, in the order in which they began.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records::of(&self.entries)
    }

    /// Returns the records whose paths begin with `prefix`, in the order of the paths. Reads no other records.
    pub fn under(&self, prefix: &str) -> impl Iterator<Item = &StepRecord> {
        let from = self.order.partition_point(|at| self.entries[*at].record.path.as_str() < prefix);
        let positions = self.order.get(from..).unwrap_or_default().iter();
        positions.map(|at| &*self.entries[*at].record).take_while(move |record| {
            #[cfg(test)]
            reads::count(1);
            record.path.starts_with(prefix)
        })
    }

    /// Returns the records that ended before a number of this journal, the newest end first.
    pub(crate) fn ended_before(&self, seq: Seq) -> impl Iterator<Item = &StepRecord> {
        let known = self.ends.partition_point(|at| self.entries[*at].record.done.is_some_and(|done| done < seq));
        self.ends.get(..known).unwrap_or_default().iter().rev().map(|at| {
            #[cfg(test)]
            reads::count(1);
            &*self.entries[*at].record
        })
    }

    /// Returns one attempt at one activity.
    #[must_use]
    pub fn get(&self, path: &str, attempt: i32) -> Option<&StepRecord> {
        self.entry(path, attempt).map(|entry| &*entry.record)
    }

    /// Returns the record of the visit before the visit at `path`, if the Approval of that earlier visit was
    /// superseded. The visit at `path` then repeats its request.
    #[must_use]
    pub fn superseded_before(&self, path: &str) -> Option<&StepRecord> {
        let earlier = self.get(&RecordPath::new(path).visit_before()?, 1)?;
        let outcome = earlier.decision.as_ref()?;
        (outcome.verdict.is_none() && outcome.phase == ApprovalPhase::Superseded).then_some(earlier)
    }

    /// Returns one attempt at one activity as a shared record.
    #[must_use]
    pub fn shared(&self, path: &str, attempt: i32) -> Option<Arc<StepRecord>> {
        self.entry(path, attempt).map(|entry| Arc::clone(&entry.record))
    }

    fn entry(&self, path: &str, attempt: i32) -> Option<&Entry> {
        self.entries.get(self.position(path, attempt).ok()?)
    }

    /// Returns the position of the record in `order`, or as the error the position at which it is to be inserted.
    fn position(&self, path: &str, attempt: i32) -> Result<usize, usize> {
        #[cfg(test)]
        reads::count(1);
        self.order.binary_search_by(|at| self.entries[*at].key().cmp(&(path, attempt))).map(|at| self.order[at])
    }

    /// Increases the counter, and returns the new number.
    pub(crate) fn next_seq(&mut self) -> Seq {
        self.changed = true;
        self.seq = self.seq.next();
        self.seq
    }

    /// Adds a record, or replaces an unfinished one of the same path and attempt. Returns false and changes nothing if
    /// the stored record is finished.
    pub fn put(&mut self, record: StepRecord) -> bool {
        self.changed = true;
        match self.position(&record.path, record.attempt) {
            Ok(at) if self.entries[at].record.phase.is_end() => false,
            Ok(at) => {
                self.entries[at].record = Arc::new(record);
                self.add_end(at);
                true
            }
            Err(at) => {
                self.order.insert(at, self.entries.len());
                self.entries.push(Entry { record: Arc::new(record), folded: false });
                self.add_end(self.entries.len() - 1);
                true
            }
        }
    }

    /// Adds the position of an entry to `ends` if its record is finished.
    fn add_end(&mut self, at: usize) {
        let Some(done) = self.entries[at].record.done else { return };
        let later = self.ends.partition_point(|other| self.entries[*other].record.done.is_some_and(|end| end <= done));
        self.ends.insert(later, at);
    }

    /// Returns the sum of the tokens that models used, or `None` if no model was called.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.records().iter().filter_map(|r| r.usage).reduce(|mut sum, more| {
            sum += more;
            sum
        })
    }
}

impl Entry {
    fn key(&self) -> (&str, i32) {
        (&self.record.path, self.record.attempt)
    }
}

/// Counts the records that a test reads: a measure of the cost of a transition without a clock.
#[cfg(test)]
pub(crate) mod reads {
    use std::cell::Cell;

    thread_local! {
        static READ: Cell<usize> = const { Cell::new(0) };
    }

    /// Adds to the number of read records.
    pub(crate) fn count(records: usize) {
        READ.set(READ.get() + records);
    }

    /// Returns the number of records that `act` reads.
    pub(crate) fn of<T>(act: impl FnOnce() -> T) -> (T, usize) {
        READ.set(0);
        (act(), READ.get())
    }
}

#[cfg(test)]
mod tests;
