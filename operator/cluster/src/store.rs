//! The cache of the objects of one kind, each in its newest version: from the watch, or from an own write that the watch has not
//! passed yet.
//!
//! **Invariant:** does no I/O. Objects at rest are compressed, but for the small ones that came to rest last; of finished objects
//! only a summary is kept.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::ResourceExt;
use lru::LruCache;
use signoff_api::{Moment, json_bytes};

use crate::{
    kinds::{Name, ReconciledKind, uid},
    packed::PackedObject,
};

/// The number of small objects that stay as they are at rest: those that came to rest last.
const MOST_SMALL: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);
/// The JSON of a small object has at most so many bytes.
const SMALL: usize = 16 * 1024;

/// The objects of one kind.
pub struct Store<K> {
    inner: Mutex<StoreState<K>>,
}

struct StoreState<K> {
    entries: BTreeMap<Name, Entry<K>>,
    /// The small objects that came to rest last.
    small: LruCache<Name, ()>,
    /// By the owner's uid: what belongs to it and is open, or over and not yet taken note of.
    owned: BTreeMap<Box<str>, Vec<Name>>,
    /// The names in the list that is being read, so far.
    listed: Option<BTreeSet<Name>>,
    /// The bytes of the long values of all objects of a namespace, where they have any.
    value_bytes: BTreeMap<Arc<str>, u64>,
}

struct Entry<K> {
    uid: Box<str>,
    version: Box<str>,
    body: Body<K>,
    /// The bytes of its JSON when they were last counted: when a version of others was seen, and when it came to rest.
    bytes: usize,
    /// Whether they are those of this version.
    counted: bool,
    /// The owner's uid, as long as the object stands in `owned`.
    owner: Option<Box<str>>,
    over: bool,
    delete_at: Option<Moment>,
    value_bytes: u64,
    /// Whether an own read or write returned this version, so that whoever asked knows it.
    own: bool,
    /// Whether the body is what was sent: the API server named its version, and what is stored was not seen yet.
    sent: bool,
    /// A write may have been stored whose answer was lost: only the server knows the newest version.
    is_stale: bool,
}

/// The source of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// By a watch or a list.
    Watch,
    /// Whole, in the answer to an own read or write.
    Answer,
    /// As an own write sent it.
    Sent,
}

enum Body<K> {
    Full(Arc<K>),
    Packed(PackedObject),
    Summary,
}

impl<K: ReconciledKind> Entry<K> {
    /// Whether the same version of this object is not what is known of it.
    fn differs_from(&self, object: &K) -> bool {
        match &self.body {
            Body::Full(known) => **known != *object,
            // The API server sorts the keys of free-form JSON: other bytes may be the same object.
            Body::Packed(packed) => packed.unpack::<K>().is_none_or(|known| known != *object),
            // Nothing else is kept of it.
            Body::Summary => (self.over, self.delete_at) != (object.is_finished(), object.delete_at()),
        }
    }
}

impl<K: ReconciledKind> Body<K> {
    /// Returns the object; `None` where it is not kept.
    fn object(&self) -> Option<Arc<K>> {
        match self {
            Self::Full(object) => Some(Arc::clone(object)),
            Self::Packed(packed) => packed.unpack().map(Arc::new),
            Self::Summary => None,
        }
    }
}

/// The result of a lookup in the store.
#[derive(Debug)]
pub enum Found<K> {
    /// All of it.
    Here(Arc<K>),
    /// That it is over, what its uid is, and when it is to be deleted.
    Finished {
        /// Its uid.
        uid: String,
        /// When it is to be deleted.
        delete_at: Option<Moment>,
    },
    /// Nothing that can be relied on: ask the server.
    Stale,
    /// It is not there, as far as the watch has come.
    NotFound,
}

/// A deleted object.
#[derive(Debug, PartialEq, Eq)]
pub struct DeletedObject {
    /// Where it was.
    pub name: Name,
    /// Its uid.
    pub uid: String,
    /// Its owner, where that may not have taken note of its end.
    pub owner: Option<Name>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        let inner = StoreState {
            entries: BTreeMap::new(),
            small: LruCache::new(MOST_SMALL),
            owned: BTreeMap::new(),
            listed: None,
            value_bytes: BTreeMap::new(),
        };
        Self { inner: Mutex::new(inner) }
    }
}

impl<K: ReconciledKind> Store<K> {
    fn lock(&self) -> MutexGuard<'_, StoreState<K>> {
        // Every change below leaves the maps whole, so a panic elsewhere does not spoil them.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a watch showed. Returns whether it is news: an echo of an own write is none, unless what is stored is not
    /// what was sent.
    pub fn apply(&self, object: K) -> bool {
        let (object, is_news) = self.lock().put(object, Source::Watch);
        if is_news && !object.is_finished() {
            self.count(&object);
        }
        is_news
    }

    /// Takes what an own read or write returned, and gives it back to be worked with.
    pub fn record(&self, object: K) -> Arc<K> {
        self.record_from(object, Source::Answer)
    }

    /// Takes what an own write sent, with the metadata that the answer had, and gives it back to be worked with. It stands
    /// until the watch shows what is stored.
    pub fn record_sent(&self, object: K) -> Arc<K> {
        self.record_from(object, Source::Sent)
    }

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

    /// Takes one object of a list, compressed at once: the lists of a large cluster do not fit otherwise.
    /// Returns whether it is news.
    pub fn list(&self, object: K) -> bool {
        let name = Name::of(&object);
        let over = object.is_finished();
        let mut inner = self.lock();
        if let Some(listed) = &mut inner.listed {
            listed.insert(name.clone());
        }
        let news = inner.put(object, Source::Watch).1;
        if news && over {
            inner.keep_summary(&name);
        }
        drop(inner);
        if news && !over {
            self.compress(&name);
        }
        news
    }

    /// Keeps the place of a listed object that could not be read, so that it is not taken for deleted.
    pub fn list_unreadable(&self, name: Name) {
        if let Some(listed) = &mut self.lock().listed {
            listed.insert(name);
        }
    }

    /// The list of this version is complete: returns what is no more.
    pub fn finish_list(&self, version: &str) -> Vec<DeletedObject> {
        let mut inner = self.lock();
        let Some(listed) = inner.listed.take() else { return Vec::new() };
        // What an own write made after the list was taken is not in the list, and is there.
        let gone: Vec<Name> = inner
            .entries
            .iter()
            .filter(|(name, entry)| !listed.contains(name) && order(&entry.version, version) != Some(Ordering::Greater))
            .map(|(name, _)| name.clone())
            .collect();
        gone.into_iter().filter_map(|name| inner.remove(name)).collect()
    }

    /// Takes word that the object with this uid was deleted. Returns what is no more, where that is news.
    pub fn remove(&self, name: Name, uid: &str) -> Option<DeletedObject> {
        let mut inner = self.lock();
        let known = inner.entries.get(&name).is_some_and(|entry| &*entry.uid == uid);
        if known { inner.remove(name) } else { None }
    }

    /// Returns the version that is known of an object.
    pub fn version_of(&self, name: &Name) -> Option<Box<str>> {
        self.lock().entries.get(name).map(|entry| entry.version.clone())
    }

    /// Takes the server's word that nothing has this name. `known`: the version that was known when it was asked. What came
    /// since then was made after the answer, and stays.
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
        match &entry.body {
            Body::Summary => Found::Finished { uid: entry.uid.to_string(), delete_at: entry.delete_at },
            body => body.object().map_or(Found::Stale, Found::Here),
        }
    }

    /// Whether the object is known with this uid and not over.
    pub fn is_open(&self, name: &Name, uid: &str) -> bool {
        self.lock().entries.get(name).is_some_and(|entry| &*entry.uid == uid && !entry.over)
    }

    /// Whether this is the newest version that is known, and one that an own read or write returned.
    pub fn is_own(&self, name: &Name, version: &str) -> bool {
        self.lock().entries.get(name).is_some_and(|entry| entry.own && *entry.version == *version)
    }

    /// Whether the object is known and not over.
    pub fn has_open(&self, name: &Name) -> bool {
        self.lock().entries.get(name).is_some_and(|entry| !entry.over)
    }

    /// Marks an object as stale because the answer to a write was lost: the next reconcile reads it from the API server.
    pub fn mark_stale(&self, name: &Name) {
        if let Some(entry) = self.lock().entries.get_mut(name) {
            entry.is_stale = true;
        }
    }

    /// Takes word that an object is not needed for a while. A large one is compressed at once, a small one when as many others
    /// came to rest after it.
    pub fn release(&self, name: &Name) {
        let inner = self.lock();
        let Some(object) = inner.full(name) else { return };
        // What was large a moment ago is counted when it is compressed.
        let known =
            inner.entries.get(name).filter(|entry| entry.counted || entry.bytes > SMALL).map(|entry| entry.bytes);
        drop(inner);
        let pushed_out = if known.unwrap_or_else(|| self.count(&object)) <= SMALL {
            // The name of the object itself comes back where it rests anew.
            self.lock().small.push(name.clone(), ()).map(|(other, ())| other).filter(|other| other != name)
        } else {
            Some(name.clone())
        };
        if let Some(name) = pushed_out {
            self.compress(&name);
        }
    }

    /// Counts the bytes of an object's JSON, keeps their number and returns it.
    fn count(&self, object: &K) -> usize {
        // Without the lock: it takes as long as the object is large. An object without JSON could not have been read.
        let bytes = json_bytes(object).unwrap_or_default();
        if let Some(entry) = self.lock().entries.get_mut(&Name::of(object)) {
            entry.bytes = bytes;
            entry.counted = object.meta().resource_version.as_deref() == Some(&*entry.version);
        }
        bytes
    }

    /// Returns the bytes of an object's JSON when it was last counted; 0 where it is over.
    pub fn bytes_of(&self, name: &Name) -> usize {
        self.lock().entries.get(name).map_or(0, |entry| match entry.body {
            Body::Full(_) | Body::Packed(_) => entry.bytes,
            Body::Summary => 0,
        })
    }

    /// Compresses an object that is not compressed.
    fn compress(&self, name: &Name) {
        let Some(object) = self.lock().full(name) else { return };
        // Without the lock: a large object takes milliseconds.
        let Some(packed) = PackedObject::new(&*object) else { return };
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(name)
            && matches!(&entry.body, Body::Full(still) if Arc::ptr_eq(still, &object))
        {
            entry.bytes = packed.json();
            entry.counted = true;
            entry.body = Body::Packed(packed);
        }
    }

    /// Returns the bytes of all objects at rest, and how many objects are not at rest.
    pub fn memory_use(&self) -> (usize, usize) {
        let inner = self.lock();
        inner.entries.iter().fold((0, 0), |(bytes, full), (name, entry)| match &entry.body {
            Body::Packed(packed) => (bytes + packed.len(), full),
            Body::Full(_) if inner.small.contains(name) => (bytes + entry.bytes, full),
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

    /// The object is over and everybody has taken note of it.
    pub fn keep_summary(&self, name: &Name) {
        let mut inner = self.lock();
        if inner.entries.get(name).is_some_and(|entry| entry.over) {
            inner.keep_summary(name);
        }
    }

    /// Returns the names of the objects of a Workflow's uid that are open, or finished and not yet reduced to a summary.
    pub fn owned_by(&self, uid: &str) -> Vec<Name> {
        self.lock().owned.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Every name that is not over.
    pub fn open(&self) -> Vec<Name> {
        self.lock().entries.iter().filter(|(_, entry)| !entry.over).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the number of objects that have not finished.
    pub fn count_open(&self) -> usize {
        self.lock().entries.values().filter(|entry| !entry.over).count()
    }
}

impl<K: ReconciledKind> StoreState<K> {
    /// Returns an object that is not compressed.
    fn full(&self, name: &Name) -> Option<Arc<K>> {
        match &self.entries.get(name)?.body {
            Body::Full(object) => Some(Arc::clone(object)),
            Body::Packed(_) | Body::Summary => None,
        }
    }

    /// Keeps the object unless a newer version is known. Returns the object as it is stored, as far as that is known, and
    /// whether it was news.
    fn put(&mut self, object: K, source: Source) -> (Arc<K>, bool) {
        let name = Name::of(&object);
        let object = Arc::new(object);
        let version = object.resource_version().unwrap_or_default();
        let own = source != Source::Watch;
        if let Some(known) = self.entries.get_mut(&name) {
            let same = *known.version == *version && &*known.uid == uid(&*object);
            if same && (known.sent || source == Source::Sent) && known.differs_from(&object) {
                tracing::warn!(kind = K::KIND, %name, "what is stored is not what the operator wrote; it goes by what is stored");
                if source == Source::Sent {
                    // The watch was faster than the answer.
                    return (known.body.object().unwrap_or(object), false);
                }
            } else if same {
                known.own |= own;
                known.sent &= source == Source::Sent;
                return (object, false);
            } else if order(&known.version, &version) == Some(Ordering::Greater) {
                return (object, false);
            }
        }
        let is_stale =
            !own && self.entries.get(&name).is_some_and(|known| known.is_stale && &*known.uid == uid(&*object));
        let bytes = self.take(&name).map_or(0, |known| known.bytes);
        let owner: Option<Box<str>> = object.owner().map(|(_, uid)| uid.into());
        if let Some(owner) = &owner {
            self.owned.entry(owner.clone()).or_default().push(name.clone());
        }
        let entry = Entry {
            uid: uid(&*object).into(),
            version: version.into(),
            over: object.is_finished(),
            delete_at: object.delete_at(),
            value_bytes: object.value_bytes(),
            body: Body::Full(Arc::clone(&object)),
            bytes,
            counted: false,
            owner,
            own,
            sent: source == Source::Sent,
            is_stale,
        };
        if entry.value_bytes > 0 {
            let sum = self.value_bytes.entry(Arc::clone(&name.namespace)).or_default();
            *sum = sum.saturating_add(entry.value_bytes);
        }
        self.entries.insert(name, entry);
        (object, true)
    }

    /// Removes an object and says whose it was.
    fn remove(&mut self, name: Name) -> Option<DeletedObject> {
        let Entry { uid, body, .. } = self.take(&name)?;
        let owner = body.object().and_then(|object| object.owner().map(|(owner, _)| name.beside(owner)));
        Some(DeletedObject { name, uid: uid.into(), owner })
    }

    fn take(&mut self, name: &Name) -> Option<Entry<K>> {
        self.unlink_owner(name);
        self.small.pop(name);
        let entry = self.entries.remove(name)?;
        if let Some(sum) = self.value_bytes.get_mut(&name.namespace) {
            *sum = sum.saturating_sub(entry.value_bytes);
            if *sum == 0 {
                self.value_bytes.remove(&name.namespace);
            }
        }
        Some(entry)
    }

    fn unlink_owner(&mut self, name: &Name) {
        let Some(owner) = self.entries.get_mut(name).and_then(|entry| entry.owner.take()) else { return };
        if let Some(names) = self.owned.get_mut(&owner) {
            names.retain(|known| known != name);
            if names.is_empty() {
                self.owned.remove(&owner);
            }
        }
    }

    fn keep_summary(&mut self, name: &Name) {
        self.unlink_owner(name);
        self.small.pop(name);
        if let Some(entry) = self.entries.get_mut(name) {
            entry.body = Body::Summary;
        }
    }
}

/// The order of two versions, where it can be known: Kubernetes promises numbers, other servers may not.
fn order(one: &str, other: &str) -> Option<Ordering> {
    if one == other {
        return Some(Ordering::Equal);
    }
    Some(one.parse::<u128>().ok()?.cmp(&other.parse::<u128>().ok()?))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
