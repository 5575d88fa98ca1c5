//! The records of a journal, one after the other.
//!
//! Reads only: `journal.rs` stores and changes records.

use std::{fmt, slice};

use serde::{Serialize, Serializer};
use signoff_api::journal::StepRecord;

use super::Entry;

/// Every record of a journal, in the order in which they began. A copy refers to the same records.
#[derive(Clone, Copy)]
pub struct Records<'j>(&'j [Entry]);

/// The iterator over records, from either end.
#[derive(Clone)]
pub struct Iter<'j>(slice::Iter<'j, Entry>);

impl<'j> Records<'j> {
    pub(super) fn of(entries: &'j [Entry]) -> Self {
        Self(entries)
    }

    /// Returns an iterator over the records.
    pub fn iter(self) -> Iter<'j> {
        #[cfg(test)]
        super::reads::count(self.0.len());
        Iter(self.0.iter())
    }

    /// Returns the number of records.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether the journal is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns a copy of each record.
    #[must_use]
    pub fn to_vec(self) -> Vec<StepRecord> {
        self.iter().cloned().collect()
    }
}

impl<'j> Iterator for Iter<'j> {
    type Item = &'j StepRecord;

    fn next(&mut self) -> Option<&'j StepRecord> {
        self.0.next().map(|entry| &*entry.record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|entry| &*entry.record)
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'j> IntoIterator for Records<'j> {
    type Item = &'j StepRecord;
    type IntoIter = Iter<'j>;

    fn into_iter(self) -> Iter<'j> {
        self.iter()
    }
}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

impl PartialEq for Records<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(*other)
    }
}

impl PartialEq<&[StepRecord]> for Records<'_> {
    fn eq(&self, other: &&[StepRecord]) -> bool {
        self.iter().eq(*other)
    }
}

impl Serialize for Records<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(*self)
    }
}
