//! The journal as the engine holds it: records by path and attempt, and the one counter of a run.
//!
//! It knows how to add and to look up, never what a record means; a finished record never changes here.

use std::collections::BTreeMap;

use signoff_api::{
    journal::{StepRecord, Usage},
    workflow::WorkflowStatus,
};

/// The records of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    seq: i64,
    records: Vec<StepRecord>,
    places: BTreeMap<(String, i32), usize>,
    changed: bool,
}

impl Journal {
    /// The journal that a status holds.
    #[must_use]
    pub fn of(status: &WorkflowStatus) -> Self {
        Self::new(status.seq, status.steps.clone())
    }

    /// A journal of these records, whose last number is `seq`.
    #[must_use]
    pub fn new(seq: i64, records: Vec<StepRecord>) -> Self {
        let places = records.iter().enumerate().map(|(at, r)| ((r.path.clone(), r.attempt), at)).collect();
        Self { seq, records, places, changed: false }
    }

    /// The number of the last event.
    #[must_use]
    pub fn seq(&self) -> i64 {
        self.seq
    }

    /// Whether anything was added since it was read.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Every record, in the order in which they began.
    #[must_use]
    pub fn records(&self) -> &[StepRecord] {
        &self.records
    }

    /// One attempt at one activity.
    #[must_use]
    pub fn get(&self, path: &str, attempt: i32) -> Option<&StepRecord> {
        self.places.get(&(path.to_owned(), attempt)).and_then(|at| self.records.get(*at))
    }

    /// Draws the next number.
    pub(crate) fn draw(&mut self) -> i64 {
        self.changed = true;
        self.seq += 1;
        self.seq
    }

    /// Adds a record, or changes one that is not finished. Returns false, and changes nothing, where the
    /// record is finished already.
    pub fn put(&mut self, record: StepRecord) -> bool {
        self.changed = true;
        let key = (record.path.clone(), record.attempt);
        match self.places.get(&key).and_then(|at| self.records.get_mut(*at)) {
            Some(old) if old.phase.is_end() => false,
            Some(old) => {
                *old = record;
                true
            }
            None => {
                self.places.insert(key, self.records.len());
                self.records.push(record);
                true
            }
        }
    }

    /// Tokens used by models, summed over the run; none where no model was asked.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.records.iter().filter_map(|r| r.usage).reduce(|mut sum, more| {
            sum += more;
            sum
        })
    }
}
