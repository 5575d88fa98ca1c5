//! The cached objects of one kind with their indexes: by owner, by release, and the bytes of long values by namespace.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Arc, Weak},
};

use kube::ResourceExt;
use lru::LruCache;

use super::{
    DeletedObject,
    entry::{Body, Entry, Source},
};
use crate::kinds::{Name, ReconciledKind, uid};

/// The number of small objects that stay uncompressed after their release. The last released ones stay.
pub(super) const MOST_SMALL: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);
/// The cached objects with their indexes.
pub(super) struct StoreState<K> {
    pub(super) entries: BTreeMap<Name, Entry<K>>,
    /// The small objects that were released last.
    pub(super) small: LruCache<Name, ()>,
    /// The objects of each owner, by its uid, that are open, or finished and not reduced to a summary.
    pub(super) owned: BTreeMap<Box<str>, Vec<Name>>,
    /// The names in the list that is being read, so far.
    pub(super) listed: Option<BTreeSet<Name>>,
    /// The bytes of the long values of all objects of a namespace, if they have any.
    pub(super) value_bytes: BTreeMap<Arc<str>, u64>,
}

impl<K> Default for StoreState<K> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            small: LruCache::new(MOST_SMALL),
            owned: BTreeMap::new(),
            listed: None,
            value_bytes: BTreeMap::new(),
        }
    }
}

impl<K: ReconciledKind> StoreState<K> {
    /// Returns an object that is not compressed.
    pub(super) fn uncompressed(&self, name: &Name) -> Option<Arc<K>> {
        match &self.entries.get(name)?.body {
            Body::Full(object) => Some(Arc::clone(object)),
            Body::Packed(..) | Body::Summary => None,
        }
    }

    /// Drops the weak pointer to the uncompressed object, because it keeps the allocation after the last use.
    pub(super) fn forget_whole(&mut self, name: &Name) {
        if let Some(Body::Packed(_, whole)) = self.entries.get_mut(name).map(|entry| &mut entry.body) {
            *whole = Weak::new();
        }
    }

    /// Caches the object unless a newer version is cached. Returns the newest known form of the object, and whether it
    /// was news.
    pub(super) fn put(&mut self, object: K, source: Source) -> (Arc<K>, bool) {
        let name = Name::of(&object);
        let object = Arc::new(object);
        let version = object.resource_version().unwrap_or_default();
        let own = source != Source::Watch;
        if let Some(known) = self.entries.get_mut(&name) {
            let same = *known.version == *version && &*known.uid == uid(&*object);
            if same && (known.sent || source == Source::Sent) && known.differs_from(&object) {
                tracing::warn!(kind = K::KIND, %name, "what is stored is not what the operator wrote; it goes by what is stored");
                if source == Source::Sent {
                    // The watch event arrived before the answer.
                    return (known.body.object().unwrap_or(object), false);
                }
            } else if same && own && matches!(known.body, Body::Summary) {
                // The object was read again because its body is needed, so the body is kept until its end is handled.
            } else if same {
                known.own |= own;
                known.sent &= source == Source::Sent;
                return (object, false);
            } else if compare_versions(&known.version, &version) == Some(Ordering::Greater) {
                return (object, false);
            }
        }
        let is_stale =
            !own && self.entries.get(&name).is_some_and(|known| known.is_stale && &*known.uid == uid(&*object));
        let size = self.take(&name).map(|known| known.size).unwrap_or_default();
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
            size,
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

    /// Removes an object, and returns it with its owner.
    pub(super) fn remove(&mut self, name: Name) -> Option<DeletedObject> {
        let Entry { uid, body, .. } = self.take(&name)?;
        let owner = body.object().and_then(|object| object.owner().map(|(owner, _)| name.beside(owner)));
        Some(DeletedObject { name, uid: uid.into(), owner })
    }

    /// Removes an entry from the objects and all indexes.
    pub(super) fn take(&mut self, name: &Name) -> Option<Entry<K>> {
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

    /// Removes an object from the objects of its owner.
    fn unlink_owner(&mut self, name: &Name) {
        let Some(owner) = self.entries.get_mut(name).and_then(|entry| entry.owner.take()) else { return };
        if let Some(names) = self.owned.get_mut(&owner) {
            names.retain(|known| known != name);
            if names.is_empty() {
                self.owned.remove(&owner);
            }
        }
    }

    /// Replaces the body of an object by its summary, and removes the object from the indexes by owner and by release.
    pub(super) fn keep_summary(&mut self, name: &Name) {
        self.unlink_owner(name);
        self.small.pop(name);
        if let Some(entry) = self.entries.get_mut(name) {
            entry.body = Body::Summary;
        }
    }
}

/// Returns the order of two versions, or `None` if a version is not a number. Kubernetes promises numbers, other
/// servers may not.
pub(super) fn compare_versions(one: &str, other: &str) -> Option<Ordering> {
    if one == other {
        return Some(Ordering::Equal);
    }
    Some(one.parse::<u128>().ok()?.cmp(&other.parse::<u128>().ok()?))
}
