//! The cache of journal segments: least recently used first out, bounded in bytes.
//!
//! The blob store has verified each segment.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use signoff_api::{Digest, journal::Segment};
use signoff_engine::{Segments, journal::SharedRecords};

/// The bytes of all segments at hand, as they are stored; in memory they have about twice as many.
const MOST: usize = 64 * 1024 * 1024;

/// Cached segments by the uid of their Workflow.
pub(crate) struct SegmentCache {
    most: usize,
    inner: Mutex<Inner>,
}

impl Default for SegmentCache {
    fn default() -> Self {
        Self::of(MOST)
    }
}

#[derive(Default)]
struct Inner {
    held: BTreeMap<(String, Digest), Held>,
    bytes: usize,
    /// Counts uses: the smallest is the oldest.
    clock: u64,
}

struct Held {
    records: SharedRecords,
    bytes: usize,
    used: u64,
}

impl SegmentCache {
    fn of(most: usize) -> Self {
        Self { most, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of these segments that are at hand.
    pub(crate) fn of_run(&self, uid: &str, named: &[Segment]) -> Segments {
        let mut inner = self.lock();
        inner.clock += 1;
        let now = inner.clock;
        let mut found = Segments::new();
        for segment in named {
            if let Some(held) = inner.held.get_mut(&(uid.to_owned(), segment.digest.clone())) {
                held.used = now;
                found.insert(segment.digest.clone(), held.records.clone());
            }
        }
        found
    }

    /// Keeps a segment of so many bytes at hand.
    pub(crate) fn keep(&self, uid: &str, digest: &Digest, records: SharedRecords, bytes: usize) {
        let mut inner = self.lock();
        inner.clock += 1;
        let held = Held { records, bytes, used: inner.clock };
        inner.bytes += bytes;
        if let Some(before) = inner.held.insert((uid.to_owned(), digest.clone()), held) {
            inner.bytes -= before.bytes;
        }
        while inner.bytes > self.most {
            let Some(oldest) = inner.held.iter().min_by_key(|(_, held)| held.used).map(|(key, _)| key.clone()) else {
                break;
            };
            inner.let_go(&oldest);
        }
    }

    /// The run is over: nobody reads its journal any more.
    pub(crate) fn close(&self, uid: &str) {
        let mut inner = self.lock();
        let of_run: Vec<_> = inner.held.keys().filter(|(of, _)| of == uid).cloned().collect();
        of_run.iter().for_each(|key| inner.let_go(key));
    }
}

impl Inner {
    fn let_go(&mut self, key: &(String, Digest)) {
        if let Some(held) = self.held.remove(key) {
            self.bytes -= held.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn named(names: &[&str]) -> Vec<Segment> {
        let segment =
            |name: &&str| Segment { digest: Digest::of_bytes(name.as_bytes()), size: 10, records: 1, through: 1 };
        names.iter().map(segment).collect()
    }

    fn keep(cache: &SegmentCache, uid: &str, name: &str) {
        cache.keep(uid, &Digest::of_bytes(name.as_bytes()), SharedRecords::default(), 10);
    }

    fn has(cache: &SegmentCache, uid: &str, name: &str) -> bool {
        !cache.of_run(uid, &named(&[name])).is_empty()
    }

    #[test]
    fn what_was_not_used_for_the_longest_makes_room() {
        let cache = SegmentCache::of(20);
        keep(&cache, "u", "a");
        keep(&cache, "u", "b");
        assert!(has(&cache, "u", "a"));
        keep(&cache, "u", "c");
        assert_eq!(["a", "b", "c"].map(|name| has(&cache, "u", name)), [true, false, true]);
    }

    #[test]
    fn a_segment_that_is_kept_twice_counts_once() {
        let cache = SegmentCache::of(20);
        ["a", "a", "a", "b"].iter().for_each(|name| keep(&cache, "u", name));
        assert!(has(&cache, "u", "a") && has(&cache, "u", "b"));
    }

    #[test]
    fn runs_share_nothing_and_what_one_held_goes_with_it() {
        let cache = SegmentCache::of(20);
        keep(&cache, "u", "a");
        assert!(!has(&cache, "other", "a"));
        keep(&cache, "other", "a");
        cache.close("u");
        assert_eq!((has(&cache, "u", "a"), has(&cache, "other", "a")), (false, true));
        assert_eq!(cache.lock().bytes, 10);
    }
}
