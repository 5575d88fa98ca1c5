//! The cache of journal segments, whose digests the blob store has verified. Bounded in bytes.

use std::sync::{Mutex, PoisonError};

use signoff_api::{Digest, journal::Segment};
use signoff_engine::{Segments, journal::SharedRecords};

use super::by_bytes::LruByBytes;

/// The cached segments, by the uid of their Workflow and their digest.
pub(crate) struct SegmentCache(Mutex<LruByBytes<(String, Digest), SharedRecords>>);

impl SegmentCache {
    /// Returns an empty cache for at most `max_bytes` of stored segments. In memory they take about twice as many.
    pub(crate) fn with_max_bytes(max_bytes: usize) -> Self {
        Self(Mutex::new(LruByBytes::new(max_bytes, None)))
    }

    /// Returns the segments of a run that are both listed and cached.
    pub(crate) fn of_run(&self, uid: &str, listed: &[Segment]) -> Segments {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Segments::new();
        for segment in listed {
            if let Some(records) = cached.get(&(uid.to_owned(), segment.digest.clone())) {
                found.insert(segment.digest.clone(), records.clone());
            }
        }
        found
    }

    /// Caches a segment. `bytes`: its size as it is stored.
    pub(crate) fn put(&self, uid: &str, digest: &Digest, records: SharedRecords, bytes: usize) {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.put((uid.to_owned(), digest.clone()), records, bytes);
    }

    /// Removes the segments of a finished run, whose journal is not read again.
    pub(crate) fn remove_run(&self, uid: &str) {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.remove_where(|(owner, _)| owner == uid);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn listed(names: &[&str]) -> Vec<Segment> {
        let segment = |name: &&str| Segment {
            digest: Digest::of_bytes(name.as_bytes()),
            size: 10,
            records: 1,
            through: signoff_api::Seq::first(),
        };
        names.iter().map(segment).collect()
    }

    fn put(cache: &SegmentCache, uid: &str, name: &str) {
        cache.put(uid, &Digest::of_bytes(name.as_bytes()), SharedRecords::default(), 10);
    }

    fn has(cache: &SegmentCache, uid: &str, name: &str) -> bool {
        !cache.of_run(uid, &listed(&[name])).is_empty()
    }

    #[test]
    fn the_least_recently_used_segment_is_dropped_first() {
        let cache = SegmentCache::with_max_bytes(20);
        put(&cache, "u", "a");
        put(&cache, "u", "b");
        assert!(has(&cache, "u", "a"));
        put(&cache, "u", "c");
        assert_eq!(["a", "b", "c"].map(|name| has(&cache, "u", name)), [true, false, true]);
    }

    #[test]
    fn a_segment_that_is_cached_again_counts_once() {
        let cache = SegmentCache::with_max_bytes(20);
        ["a", "a", "a", "b"].iter().for_each(|name| put(&cache, "u", name));
        assert!(has(&cache, "u", "a") && has(&cache, "u", "b"));
    }

    #[test]
    fn segments_of_a_finished_run_are_removed_and_no_others() {
        let cache = SegmentCache::with_max_bytes(20);
        put(&cache, "u", "a");
        assert!(!has(&cache, "other", "a"));
        put(&cache, "other", "a");
        cache.remove_run("u");
        assert_eq!((has(&cache, "u", "a"), has(&cache, "other", "a")), (false, true));
        assert_eq!(cache.0.lock().unwrap().bytes(), 10);
    }
}
