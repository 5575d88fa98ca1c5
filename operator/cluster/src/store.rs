//! The cache of the objects of one kind, each in its newest version: from the watch, or from a write of this process
//! that the watch has not delivered yet.
//!
//! **Invariant:** does no I/O. Objects that are not in use are compressed, except the small ones that were used last.
//! Of finished objects only a summary is kept.

mod entry;
mod state;

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use signoff_api::Moment;

use self::{
    entry::{Body, JsonSize, PackedObject, Source},
    state::{StoreState, compare_versions},
};
use crate::kinds::{Name, ReconciledKind};

/// The most bytes of JSON of a small object.
const SMALL: usize = 16 * 1024;

/// The bytes in memory above which an object is compressed as soon as it is received.
const LARGE: usize = 1024 * 1024;

/// The objects of one kind.
pub struct Store<K> {
    inner: Mutex<StoreState<K>>,
}

/// The result of a lookup in the store.
#[derive(Debug)]
pub enum Found<K> {
    /// The cached object.
    Here(Arc<K>),
    /// A finished object, of which only the summary is cached.
    Finished {
        /// The uid of the object.
        uid: String,
        /// The time at which the object is to be deleted, or `None` without a TTL.
        delete_at: Option<Moment>,
    },
    /// The cached object may be stale: read it from the API server.
    Stale,
    /// The object does not exist, according to the watch so far.
    NotFound,
}

/// A deleted object.
#[derive(Debug, PartialEq, Eq)]
pub struct DeletedObject {
    /// The namespace and name of the object.
    pub name: Name,
    /// The uid of the object.
    pub uid: String,
    /// The Workflow that owned the object, or `None` for a Workflow, or if only the summary was cached.
    pub owner: Option<Name>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { inner: Mutex::default() }
    }
}

impl<K: ReconciledKind> Store<K> {
    fn lock(&self) -> MutexGuard<'_, StoreState<K>> {
        // Every change leaves the maps consistent, so a poisoned lock can be used.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches the object of a watch event, compressed if it is large. Returns whether the event is news. The event of a
    /// write by this process is no news, unless the stored object differs from the sent object.
    pub fn apply(&self, object: K) -> bool {
        let (object, is_news) = self.lock().put(object, Source::Watch);
        if is_news && !object.is_finished() && self.measure(&object).memory() > LARGE {
            // Many such objects that wait for their reconciles would not fit into memory.
            let name = Name::of(&*object);
            drop(object);
            self.compress(&name);
        }
        is_news
    }

    /// Caches the answer to a read or write of this process, and returns it.
    pub fn record(&self, object: K) -> Arc<K> {
        self.record_from(object, Source::Answer)
    }

    /// Caches the object that this process sent, with the metadata of the answer, and returns it. The next watch event
    /// replaces it if it differs.
    pub fn record_sent(&self, object: K) -> Arc<K> {
        self.record_from(object, Source::Sent)
    }

    /// Caches the object of an answer, which is then not stale.
    fn record_from(&self, object: K, source: Source) -> Arc<K> {
        let mut inner = self.lock();
        let name = Name::of(&object);
        let (object, _) = inner.put(object, source);
        if let Some(entry) = inner.entries.get_mut(&name) {
            entry.is_stale = false;
        }
        object
    }

    /// Begins a list.
    pub fn begin_list(&self) {
        self.lock().listed = Some(BTreeSet::new());
    }

    /// Applies one object of a list, and compresses it at once, because the lists of a large cluster would not fit into
    /// memory. Returns whether the object is news.
    pub fn list(&self, object: K) -> bool {
        let name = Name::of(&object);
        let is_finished = object.is_finished();
        let mut inner = self.lock();
        if let Some(listed) = &mut inner.listed {
            listed.insert(name.clone());
        }
        let is_news = inner.put(object, Source::Watch).1;
        if is_news && is_finished {
            inner.keep_summary(&name);
        }
        drop(inner);
        if is_news && !is_finished {
            self.compress(&name);
        }
        is_news
    }

    /// Adds a listed object that could not be read to the list, so that it does not count as deleted.
    pub fn list_unreadable(&self, name: Name) {
        if let Some(listed) = &mut self.lock().listed {
            listed.insert(name);
        }
    }

    /// Completes the list of this version. Removes and returns the objects that were deleted.
    pub fn finish_list(&self, version: &str) -> Vec<DeletedObject> {
        let mut inner = self.lock();
        let Some(listed) = inner.listed.take() else { return Vec::new() };
        // An object that this process created after the list was taken is not in the list, and still exists.
        let is_newer = |known: &str| compare_versions(known, version) == Some(Ordering::Greater);
        let gone: Vec<Name> = inner
            .entries
            .iter()
            .filter(|(name, entry)| !listed.contains(name) && !is_newer(&entry.version))
            .map(|(name, _)| name.clone())
            .collect();
        gone.into_iter().filter_map(|name| inner.remove(name)).collect()
    }

    /// Removes the deleted object with this uid. Returns it, or `None` if it was not cached.
    pub fn remove(&self, name: Name, uid: &str) -> Option<DeletedObject> {
        let mut inner = self.lock();
        let is_cached = inner.entries.get(&name).is_some_and(|entry| &*entry.uid == uid);
        if is_cached { inner.remove(name) } else { None }
    }

    /// Returns the cached version of an object.
    pub fn version_of(&self, name: &Name) -> Option<Box<str>> {
        self.lock().entries.get(name).map(|entry| entry.version.clone())
    }

    /// Removes an object that the API server did not find. `known`: the cached version before the request. A version
    /// that arrived since was created after the answer, and stays.
    pub fn mark_absent(&self, name: &Name, known: Option<&str>) {
        let mut inner = self.lock();
        if inner.entries.get(name).is_some_and(|entry| Some(&*entry.version) == known) {
            inner.take(name);
        }
    }

    /// Returns the cached state of an object.
    pub fn find(&self, name: &Name) -> Found<K> {
        let inner = self.lock();
        let Some(entry) = inner.entries.get(name) else { return Found::NotFound };
        if entry.is_stale {
            return Found::Stale;
        }
        let packed = match &entry.body {
            Body::Summary => {
                return Found::Finished { uid: entry.uid.to_string(), delete_at: entry.delete_at };
            }
            Body::Full(object) => return Found::Here(Arc::clone(object)),
            Body::Packed(packed, whole) => match whole.upgrade() {
                Some(object) => return Found::Here(object),
                None => Arc::clone(packed),
            },
        };
        drop(inner);
        // Without the lock: a large object takes milliseconds.
        let Some(object) = packed.unpack().map(Arc::new) else { return Found::Stale };
        if let Some(entry) = self.lock().entries.get_mut(name)
            && let Body::Packed(current, whole) = &mut entry.body
            && Arc::ptr_eq(current, &packed)
        {
            // Other users of the object share it, and do not decompress it again.
            *whole = Arc::downgrade(&object);
        }
        Found::Here(object)
    }

    /// Whether the object is cached with this uid and has not finished.
    pub fn is_open(&self, name: &Name, uid: &str) -> bool {
        self.lock().entries.get(name).is_some_and(|entry| &*entry.uid == uid && !entry.over)
    }

    /// Whether `version` is the cached version, and a read or write of this process returned that version.
    pub fn is_own(&self, name: &Name, version: &str) -> bool {
        self.lock().entries.get(name).is_some_and(|entry| entry.own && *entry.version == *version)
    }

    /// Whether the object is cached and has not finished.
    pub fn has_open(&self, name: &Name) -> bool {
        self.lock().entries.get(name).is_some_and(|entry| !entry.over)
    }

    /// Marks an object as stale because the answer to a write was lost: the next reconcile reads it from the API
    /// server.
    pub fn mark_stale(&self, name: &Name) {
        if let Some(entry) = self.lock().entries.get_mut(name) {
            entry.is_stale = true;
        }
    }

    /// Releases an object that is not needed for a while. A large one is compressed at once, and a small one after
    /// `MOST_SMALL` others were released.
    pub fn release(&self, name: &Name) {
        let mut inner = self.lock();
        let Some(object) = inner.uncompressed(name) else { return inner.forget_whole(name) };
        // An object that was large is counted when it is compressed.
        let known = inner.entries.get(name).map(|entry| (entry.counted, entry.size.bytes));
        let known = known.filter(|(is_counted, bytes)| *is_counted || *bytes > SMALL).map(|(_, bytes)| bytes);
        drop(inner);
        let pushed_out = if known.unwrap_or_else(|| self.measure(&object).bytes) <= SMALL {
            // `push` returns the name of the object itself if it was among the small ones before.
            self.lock().small.push(name.clone(), ()).map(|(other, ())| other).filter(|other| other != name)
        } else {
            Some(name.clone())
        };
        if let Some(name) = pushed_out {
            self.compress(&name);
        }
    }

    /// Counts the size of an object's JSON, stores it in the entry and returns it.
    fn measure(&self, object: &K) -> JsonSize {
        // Without the lock, because a large object takes long. Every object that was read can be serialized.
        let size = JsonSize::of(object);
        if let Some(entry) = self.lock().entries.get_mut(&Name::of(object)) {
            entry.size = size;
            entry.counted = object.meta().resource_version.as_deref() == Some(&*entry.version);
        }
        size
    }

    /// Returns the most bytes that an object takes in memory while it is in use, by its last count, or 0 if only its
    /// summary is kept.
    pub fn memory_of(&self, name: &Name) -> usize {
        self.lock().entries.get(name).map_or(0, |entry| match entry.body {
            Body::Full(_) | Body::Packed(..) => entry.size.memory(),
            Body::Summary => 0,
        })
    }

    /// Compresses an object that is not compressed.
    fn compress(&self, name: &Name) {
        let Some(object) = self.lock().uncompressed(name) else { return };
        // Without the lock: a large object takes milliseconds.
        let Some(packed) = PackedObject::new(&*object) else { return };
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(name)
            && matches!(&entry.body, Body::Full(current) if Arc::ptr_eq(current, &object))
        {
            entry.size = packed.size();
            entry.counted = true;
            entry.body = Body::Packed(Arc::new(packed), Weak::new());
        }
    }

    /// Returns the bytes of all objects that are not in use, and the number of objects that are in use.
    pub fn memory_use(&self) -> (usize, usize) {
        let inner = self.lock();
        inner.entries.iter().fold((0, 0), |(bytes, full), (name, entry)| match &entry.body {
            Body::Packed(packed, _) => (bytes + packed.len(), full),
            Body::Full(_) if inner.small.contains(name) => (bytes + entry.size.bytes, full),
            Body::Full(_) => (bytes, full + 1),
            Body::Summary => (bytes, full),
        })
    }

    /// Returns the bytes of the long values of all objects of a namespace.
    pub fn value_bytes_in(&self, namespace: &str) -> u64 {
        self.lock().value_bytes.get(namespace).copied().unwrap_or(0)
    }

    /// Returns the bytes of the long values of an object.
    pub fn value_bytes_of(&self, name: &Name) -> u64 {
        self.lock().entries.get(name).map_or(0, |entry| entry.value_bytes)
    }

    /// Keeps only the summary of a finished object.
    pub fn keep_summary(&self, name: &Name) {
        let mut inner = self.lock();
        if inner.entries.get(name).is_some_and(|entry| entry.over) {
            inner.keep_summary(name);
        }
    }

    /// Returns the names of the objects of a Workflow's uid that are open, or finished and not yet reduced to a
    /// summary.
    pub fn owned_by(&self, uid: &str) -> Vec<Name> {
        self.lock().owned.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Returns the names of the objects that have not finished.
    pub fn open(&self) -> Vec<Name> {
        self.lock().entries.iter().filter(|(_, entry)| !entry.over).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the number of objects that have not finished.
    pub fn count_open(&self) -> usize {
        self.lock().entries.values().filter(|entry| !entry.over).count()
    }
}

#[cfg(test)]
mod tests;
