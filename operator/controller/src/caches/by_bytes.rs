//! A least-recently-used cache with a bound on bytes. The crate `lru` keeps the order and bounds the number.

use std::{borrow::Borrow, hash::Hash, num::NonZeroUsize};

use lru::LruCache;

/// A cache of entries with sizes. The sum of the sizes never exceeds the bound, and an entry larger than the bound is
/// not kept.
pub(super) struct LruByBytes<K: Hash + Eq, V> {
    entries: LruCache<K, SizedEntry<V>>,
    bytes: usize,
    max_bytes: usize,
}

struct SizedEntry<V> {
    value: V,
    bytes: usize,
}

impl<K: Hash + Eq + Clone, V> LruByBytes<K, V> {
    /// Returns an empty cache of at most `max_bytes`, and of at most `max_entries` if the number is bounded too.
    pub(super) fn new(max_bytes: usize, max_entries: Option<NonZeroUsize>) -> Self {
        let entries = max_entries.map_or_else(LruCache::unbounded, LruCache::new);
        Self { entries, bytes: 0, max_bytes }
    }

    /// Returns the entry, and marks it as the most recently used one.
    pub(super) fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Sets the size of an entry, and drops the least recently used ones above the bounds.
    pub(super) fn resize<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, bytes: usize)
    where
        K: Borrow<Q>,
    {
        let Some(entry) = self.entries.peek_mut(key) else { return };
        self.bytes = self.bytes - entry.bytes + bytes;
        entry.bytes = bytes;
        self.drop_oldest();
    }

    /// Adds or replaces an entry of `bytes`, and drops the least recently used ones above the bounds.
    pub(super) fn put(&mut self, key: K, value: V, bytes: usize) {
        self.bytes += bytes;
        // `push` returns the removed entry: the replaced one, or the oldest one above the number.
        let left = self.entries.push(key, SizedEntry { value, bytes });
        self.bytes -= left.map_or(0, |(_, entry)| entry.bytes);
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        while self.bytes > self.max_bytes
            && let Some((_, oldest)) = self.entries.pop_lru()
        {
            self.bytes -= oldest.bytes;
        }
    }

    /// Removes the entries whose key matches.
    pub(super) fn remove_where(&mut self, matches: impl Fn(&K) -> bool) {
        let keys: Vec<K> = self.entries.iter().map(|(key, _)| key).filter(|key| matches(key)).cloned().collect();
        for key in keys {
            self.bytes -= self.entries.pop(&key).map_or(0, |entry| entry.bytes);
        }
    }

    /// Returns the sum of the sizes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn keys(cache: &LruByBytes<&'static str, ()>) -> Vec<&'static str> {
        assert_eq!(cache.bytes(), cache.entries.iter().map(|(_, entry)| entry.bytes).sum::<usize>());
        cache.entries.iter().map(|(key, _)| *key).collect()
    }

    #[test]
    fn the_least_recently_used_entries_leave_when_the_bytes_exceed_the_bound() {
        let mut cache = LruByBytes::new(30, None);
        ["a", "b", "c"].into_iter().for_each(|key| cache.put(key, (), 10));
        assert!(cache.get("a").is_some());
        cache.put("d", (), 20);
        assert_eq!(keys(&cache), ["d", "a"]);
    }

    #[test]
    fn a_replaced_entry_counts_with_its_new_size_only() {
        let mut cache = LruByBytes::new(30, None);
        [10, 30, 20].into_iter().for_each(|bytes| cache.put("a", (), bytes));
        cache.put("b", (), 10);
        assert_eq!((keys(&cache), cache.bytes()), (vec!["b", "a"], 30));
    }

    #[test]
    fn an_entry_that_has_grown_counts_with_its_new_size_and_the_oldest_leave() {
        let mut cache = LruByBytes::new(30, None);
        ["a", "b", "c"].into_iter().for_each(|key| cache.put(key, (), 10));
        cache.resize("c", 20);
        assert_eq!((keys(&cache), cache.bytes()), (vec!["c", "b"], 30));
        cache.resize("a", 20);
        cache.resize("c", 40);
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }

    #[test]
    fn an_entry_above_the_number_takes_its_bytes_along() {
        let mut cache = LruByBytes::new(100, NonZeroUsize::new(2));
        ["a", "b", "c"].into_iter().for_each(|key| cache.put(key, (), 10));
        assert_eq!((keys(&cache), cache.bytes(), cache.len()), (vec!["c", "b"], 20, 2));
    }

    #[test]
    fn an_entry_larger_than_the_bound_is_not_kept() {
        let mut cache = LruByBytes::new(30, None);
        cache.put("a", (), 31);
        assert_eq!((keys(&cache), cache.bytes()), (vec![], 0));
    }

    #[test]
    fn removed_entries_give_back_their_bytes() {
        let mut cache = LruByBytes::new(30, None);
        ["a", "b"].into_iter().for_each(|key| cache.put(key, (), 10));
        cache.remove_where(|key| *key == "a");
        assert_eq!((keys(&cache), cache.bytes()), (vec!["b"], 10));
    }
}
