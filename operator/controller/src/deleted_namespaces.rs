//! The namespaces that are being deleted, from the watch of Namespaces and from answers of the API server.
//!
//! **Invariant:** a namespace of the same uid is never taken for one that goes on again: its deletion cannot be taken back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use signoff_cluster::watch::WatchEvent;

/// The namespaces that are being deleted, each with its uid.
#[derive(Default)]
pub(crate) struct DeletedNamespaces {
    inner: Mutex<BTreeMap<Arc<str>, String>>,
}

impl DeletedNamespaces {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, String>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a namespace is being deleted.
    pub(crate) fn contains(&self, namespace: &str) -> bool {
        self.lock().contains_key(namespace)
    }

    /// Applies a watch event. Returns the namespace whose deletion has begun by it.
    pub(crate) fn apply(&self, event: &WatchEvent<Namespace>) -> Option<Arc<str>> {
        match event {
            WatchEvent::Listed(namespace) | WatchEvent::Applied(namespace) => self.record(&namespace.metadata),
            WatchEvent::Deleted(meta) => {
                let (name, uid) = name_and_uid(meta);
                self.lock().retain(|known, of| **known != *name || *of != uid);
                None
            }
            WatchEvent::Listing
            | WatchEvent::ListDone(_)
            | WatchEvent::Unreadable { .. }
            | WatchEvent::Broken { .. } => None,
        }
    }

    /// Applies the metadata of a namespace. Returns its name where its deletion is news.
    pub(crate) fn record(&self, meta: &ObjectMeta) -> Option<Arc<str>> {
        let (name, uid) = name_and_uid(meta);
        let mut inner = self.lock();
        let is_known = inner.get(name).is_some_and(|known| *known == uid);
        if meta.deletion_timestamp.is_none() {
            if !is_known {
                inner.remove(name);
            }
            return None;
        }
        let name: Arc<str> = name.into();
        inner.insert(Arc::clone(&name), uid);
        (!is_known).then_some(name)
    }
}

fn name_and_uid(meta: &ObjectMeta) -> (&str, String) {
    (meta.name.as_deref().unwrap_or_default(), meta.uid.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn namespace(uid: &str, is_deleted: bool) -> WatchEvent<Namespace> {
        let deleted = Time("2026-11-22T12:00:00Z".parse().unwrap());
        let metadata = ObjectMeta {
            name: Some("pay".to_owned()),
            uid: Some(uid.to_owned()),
            deletion_timestamp: is_deleted.then_some(deleted),
            ..ObjectMeta::default()
        };
        WatchEvent::Applied(Box::new(Namespace { metadata, ..Namespace::default() }))
    }

    #[test]
    fn a_deletion_is_news_once_and_an_old_event_does_not_take_it_back() {
        let namespaces = DeletedNamespaces::default();
        assert_eq!(namespaces.apply(&namespace("1", false)), None);
        assert!(!namespaces.contains("pay"));
        assert_eq!(namespaces.apply(&namespace("1", true)), Some("pay".into()));
        assert_eq!(namespaces.apply(&namespace("1", true)), None, "it is known");
        assert_eq!(namespaces.apply(&namespace("1", false)), None);
        assert!(namespaces.contains("pay") && !namespaces.contains("lab"), "an event from before its deletion");
    }

    #[test]
    fn a_new_namespace_of_the_same_name_goes_on() {
        let namespaces = DeletedNamespaces::default();
        namespaces.apply(&namespace("1", true));
        namespaces.apply(&namespace("2", false));
        assert!(!namespaces.contains("pay"));
        namespaces.apply(&namespace("2", true));
        let WatchEvent::Applied(other) = namespace("1", true) else { return };
        namespaces.apply(&WatchEvent::Deleted(other.metadata));
        assert!(namespaces.contains("pay"), "that was the first one");
    }
}
