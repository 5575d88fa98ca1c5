//! The journal as the engine holds it: records by path and attempt, and the one counter of a run.
//!
//! It knows how to add and to look up, never what a record means; a finished record never changes here. Records are
//! shared: a copy of a journal costs a pointer a record.

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
    seq: Seq,
    entries: Vec<Entry>,
    /// The places of the entries, in the order of path and attempt.
    order: Vec<usize>,
    /// The places of the finished entries, in the order of their ends.
    ends: Vec<usize>,
    segments: Vec<Segment>,
    changed: bool,
}

/// Whether a path is this place, one of its visits, or beneath it.
pub(crate) fn within(path: &str, place: &str) -> bool {
    RecordPath::new(path).is_within(place)
}

/// A record, and where it stands.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    record: Arc<StepRecord>,
    /// Whether it is in one of the segments.
    folded: bool,
}

impl Journal {
    /// A journal of these records, whose last number is `seq`, and of no segments.
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

    /// The number of the last event.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Whether anything was added since it was read.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Every record, in the order in which they began.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records::of(&self.entries)
    }

    /// The records whose paths begin with this text, in the order of their paths: of a branch, without a look at the
    /// others.
    pub fn under(&self, prefix: &str) -> impl Iterator<Item = &StepRecord> {
        let from = self.order.partition_point(|at| self.entries[*at].record.path.as_str() < prefix);
        let places = self.order.get(from..).unwrap_or_default().iter();
        places.map(|at| &*self.entries[*at].record).take_while(move |record| {
            #[cfg(test)]
            reads::count(1);
            record.path.starts_with(prefix)
        })
    }

    /// The records that ended before a number of this journal, the newest end first.
    pub(crate) fn ended_before(&self, seq: Seq) -> impl Iterator<Item = &StepRecord> {
        let known = self.ends.partition_point(|at| self.entries[*at].record.done.is_some_and(|done| done < seq));
        self.ends.get(..known).unwrap_or_default().iter().rev().map(|at| {
            #[cfg(test)]
            reads::count(1);
            &*self.entries[*at].record
        })
    }

    /// One attempt at one activity.
    #[must_use]
    pub fn get(&self, path: &str, attempt: i32) -> Option<&StepRecord> {
        self.entry(path, attempt).map(|entry| &*entry.record)
    }

    /// Returns the record of the visit before this one, if its Approval was superseded, so that this visit asks again
    /// what it asked.
    #[must_use]
    pub fn superseded_before(&self, path: &str) -> Option<&StepRecord> {
        let earlier = self.get(&RecordPath::new(path).visit_before()?, 1)?;
        let outcome = earlier.decision.as_ref()?;
        (outcome.verdict.is_none() && outcome.phase == ApprovalPhase::Superseded).then_some(earlier)
    }

    /// The same, to be kept without a copy of it.
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

    /// Draws the next number.
    pub(crate) fn next_seq(&mut self) -> Seq {
        self.changed = true;
        self.seq = self.seq.next();
        self.seq
    }

    /// Adds a record, or changes one that is not finished. Returns false, and changes nothing, where the
    /// record is finished already.
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

    /// Puts an entry among the finished ones, if it is finished: it was not, before.
    fn add_end(&mut self, at: usize) {
        let Some(done) = self.entries[at].record.done else { return };
        let later = self.ends.partition_point(|other| self.entries[*other].record.done.is_some_and(|end| end <= done));
        self.ends.insert(later, at);
    }

    /// Tokens used by models, summed over the run; none where no model was asked.
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

/// The number of records that a test reads: the cost of a transition, without a clock.
#[cfg(test)]
pub(crate) mod reads {
    use std::cell::Cell;

    thread_local! {
        static LOOKED: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts records that were read.
    pub(crate) fn count(records: usize) {
        LOOKED.set(LOOKED.get() + records);
    }

    /// The records that `act` looks at.
    pub(crate) fn of<T>(act: impl FnOnce() -> T) -> (T, usize) {
        LOOKED.set(0);
        (act(), LOOKED.get())
    }
}

#[cfg(test)]
mod tests;
