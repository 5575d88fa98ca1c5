//! The namespaces that are being deleted, from the watch of Namespaces and from answers of the API server.
//!
//! **Invariant:** the deletion of a namespace is never undone for the same uid. An object that was created after the
//! deletion belongs to a new namespace of that name, because the API server creates nothing in a namespace that is
//! being deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::{
    api::core::v1::Namespace,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use signoff_cluster::watch::WatchEvent;

/// The namespaces that are being deleted.
#[derive(Default)]
pub(crate) struct DeletedNamespaces {
    inner: Mutex<State>,
}

#[derive(Default)]
struct State {
    deletions: BTreeMap<Arc<str>, Deletion>,
    /// The namespaces in the list that is being read, so far.
    listed: Option<BTreeSet<String>>,
}

/// The deletion of a namespace.
struct Deletion {
    uid: String,
    at: Timestamp,
}

impl DeletedNamespaces {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the namespace of this object is being deleted.
    pub(crate) fn contain(&self, meta: &ObjectMeta) -> bool {
        let created = meta.creation_timestamp.as_ref().map(|Time(at)| *at);
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let inner = self.lock();
        let deletion = inner.deletions.get(namespace);
        // Both are whole seconds. Within the same second the order is unknown, and the object counts as deleted.
        deletion.is_some_and(|deletion| created.is_none_or(|created| created <= deletion.at))
    }

    /// Applies a watch event. Returns the namespace whose deletion has begun or is over, or `None`.
    pub(crate) fn apply(&self, event: &WatchEvent<Namespace>) -> Option<Arc<str>> {
        let mut inner = self.lock();
        match event {
            WatchEvent::Listing => inner.listed = Some(BTreeSet::new()),
            WatchEvent::Listed(namespace) => {
                inner.list(&namespace.metadata);
                return inner.record(&namespace.metadata);
            }
            WatchEvent::Unreadable { meta, listed: true, .. } => inner.list(meta),
            WatchEvent::ListDone(_) => {
                // Namespaces that are not listed are deleted, with all their objects.
                let listed = inner.listed.take()?;
                inner.deletions.retain(|name, _| listed.contains(&**name));
            }
            WatchEvent::Applied(namespace) => return inner.record(&namespace.metadata),
            WatchEvent::Deleted(meta) => return inner.forget(meta),
            WatchEvent::Unreadable { .. } | WatchEvent::Broken { .. } => {}
        }
        None
    }

    /// Applies the metadata of a namespace. Returns its name if its deletion has begun or is over.
    pub(crate) fn record(&self, meta: &ObjectMeta) -> Option<Arc<str>> {
        self.lock().record(meta)
    }
}

impl State {
    /// Adds a namespace to the list that is being read.
    fn list(&mut self, meta: &ObjectMeta) {
        if let Some(listed) = &mut self.listed {
            listed.insert(meta.name.clone().unwrap_or_default());
        }
    }

    /// Records the deletion of a namespace, or removes an earlier deletion if a newer namespace has the name. Returns
    /// the name if the deletion has begun or is over.
    fn record(&mut self, meta: &ObjectMeta) -> Option<Arc<str>> {
        let (name, uid) = name_and_uid(meta);
        let known = self.deletions.get(name);
        if known.is_some_and(|known| known.uid == uid) {
            return None;
        }
        match &meta.deletion_timestamp {
            // A late event about an older namespace of that name.
            Some(Time(at)) if known.is_some_and(|known| known.at > *at) => None,
            Some(Time(at)) => {
                let name: Arc<str> = name.into();
                self.deletions.insert(Arc::clone(&name), Deletion { uid: uid.to_owned(), at: *at });
                Some(name)
            }
            None => {
                let created = meta.creation_timestamp.as_ref().map(|Time(at)| *at);
                let is_newer = known.is_some_and(|known| created.is_some_and(|created| created >= known.at));
                let is_over = is_newer && self.deletions.remove(name).is_some();
                is_over.then(|| name.into())
            }
        }
    }

    /// Removes the deletion of a namespace that is gone. Returns the name.
    fn forget(&mut self, meta: &ObjectMeta) -> Option<Arc<str>> {
        let (name, uid) = name_and_uid(meta);
        self.deletions.get(name).filter(|known| known.uid == uid)?;
        self.deletions.remove_entry(name).map(|(name, _)| name)
    }
}

fn name_and_uid(meta: &ObjectMeta) -> (&str, &str) {
    (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn time(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    /// Returns the namespace `pay`, created at the second `created`, and deleted at the second `deleted`, if any.
    fn namespace(uid: &str, created: i64, deleted: Option<i64>) -> Box<Namespace> {
        let metadata = ObjectMeta {
            name: Some("pay".to_owned()),
            uid: Some(uid.to_owned()),
            creation_timestamp: Some(time(created)),
            deletion_timestamp: deleted.map(time),
            ..ObjectMeta::default()
        };
        Box::new(Namespace { metadata, ..Namespace::default() })
    }

    fn applied(uid: &str, created: i64, deleted: Option<i64>) -> WatchEvent<Namespace> {
        WatchEvent::Applied(namespace(uid, created, deleted))
    }

    fn contain(namespaces: &DeletedNamespaces, namespace: &str, created: i64) -> bool {
        let namespace = Some(namespace.to_owned());
        namespaces.contain(&ObjectMeta { namespace, creation_timestamp: Some(time(created)), ..ObjectMeta::default() })
    }

    #[test]
    fn a_deletion_is_reported_once_and_not_undone_by_an_old_event() {
        let namespaces = DeletedNamespaces::default();
        assert_eq!(namespaces.apply(&applied("1", 10, None)), None);
        assert!(!contain(&namespaces, "pay", 11));
        assert_eq!(namespaces.apply(&applied("1", 10, Some(20))), Some("pay".into()));
        assert_eq!(namespaces.apply(&applied("1", 10, Some(20))), None, "it is known");
        assert_eq!(namespaces.apply(&applied("1", 10, None)), None);
        assert!(contain(&namespaces, "pay", 11), "an event from before its deletion");
        assert!(!contain(&namespaces, "lab", 11));
    }

    #[test]
    fn an_object_created_after_a_deletion_is_in_a_new_namespace() {
        let namespaces = DeletedNamespaces::default();
        namespaces.apply(&applied("1", 10, Some(20)));
        assert!(contain(&namespaces, "pay", 20) && !contain(&namespaces, "pay", 21));
        // Within the same second the order is unknown until the new namespace is received or the old namespace is gone.
        assert_eq!(namespaces.apply(&applied("2", 20, None)), Some("pay".into()));
        assert!(!contain(&namespaces, "pay", 20));
        namespaces.apply(&applied("2", 20, Some(30)));
        assert_eq!(namespaces.apply(&WatchEvent::Deleted(namespace("2", 20, Some(30)).metadata)), Some("pay".into()));
        assert!(!contain(&namespaces, "pay", 30));
    }

    #[test]
    fn late_events_of_an_older_namespace_are_ignored() {
        let namespaces = DeletedNamespaces::default();
        namespaces.apply(&applied("2", 20, Some(30)));
        let late = [
            applied("1", 10, Some(15)),
            applied("1", 10, None),
            WatchEvent::Deleted(namespace("1", 10, Some(15)).metadata),
        ];
        for late in late {
            assert_eq!(namespaces.apply(&late), None);
            assert!(contain(&namespaces, "pay", 30));
        }
    }

    #[test]
    fn a_namespace_that_is_not_listed_any_more_is_forgotten() {
        let namespaces = DeletedNamespaces::default();
        namespaces.apply(&applied("1", 10, Some(20)));
        let lists = [Some(namespace("1", 10, Some(20))), None];
        for (list, is_known) in lists.into_iter().zip([true, false]) {
            namespaces.apply(&WatchEvent::Listing);
            list.into_iter().for_each(|listed| drop(namespaces.apply(&WatchEvent::Listed(listed))));
            namespaces.apply(&WatchEvent::ListDone("1".to_owned()));
            assert_eq!(contain(&namespaces, "pay", 11), is_known);
        }
    }
}
