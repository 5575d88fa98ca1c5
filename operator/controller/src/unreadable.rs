//! The objects that cannot be decoded, and the reasons, so that each is reported once.

use signoff_cluster::workqueue::Key;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The objects of both kinds that cannot be decoded.
#[derive(Default)]
pub(crate) struct UnreadableObjects {
    inner: Mutex<BTreeMap<Key, ReadFailure>>,
}

/// The reason why an object cannot be read.
struct ReadFailure {
    why: Arc<str>,
    /// Whether the newest list, or the watch since that list, has delivered the object.
    seen: bool,
}

impl UnreadableObjects {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, ReadFailure>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object that cannot be read. Returns whether it was readable before.
    pub(crate) fn insert(&self, key: Key, why: &str) -> bool {
        self.lock().insert(key, ReadFailure { why: why.into(), seen: true }).is_none()
    }

    /// Removes an object that can be read again or was deleted. Returns whether it was unreadable.
    pub(crate) fn remove(&self, key: &Key) -> bool {
        self.lock().remove(key).is_some()
    }

    /// Returns why an object cannot be read, or `None`.
    pub(crate) fn reason(&self, key: &Key) -> Option<Arc<str>> {
        self.lock().get(key).map(|failure| Arc::clone(&failure.why))
    }

    /// Begins a list of the objects for which `is_listed` holds.
    pub(crate) fn begin_list(&self, is_listed: impl Fn(&Key) -> bool) {
        self.lock().iter_mut().filter(|(key, _)| is_listed(key)).for_each(|(_, failure)| failure.seen = false);
    }

    /// Completes the list, and removes the objects that it did not contain.
    pub(crate) fn finish_list(&self, is_listed: impl Fn(&Key) -> bool) {
        self.lock().retain(|key, failure| failure.seen || !is_listed(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signoff_cluster::kinds::Name;

    fn workflow(name: &str) -> Key {
        Key::Workflow(Name::new("n", name))
    }

    #[test]
    fn an_unreadable_object_is_new_once_until_it_is_readable() {
        let unreadable = UnreadableObjects::default();
        assert!(unreadable.insert(workflow("a"), "no spec"));
        assert!(!unreadable.insert(workflow("a"), "still no spec"));
        assert_eq!(unreadable.reason(&workflow("a")).as_deref(), Some("still no spec"));
        assert!(unreadable.remove(&workflow("a")) && !unreadable.remove(&workflow("a")));
        assert!(unreadable.insert(workflow("a"), "no spec"));
    }

    #[test]
    fn objects_that_are_not_in_a_list_are_removed() {
        let unreadable = UnreadableObjects::default();
        let workflows = |key: &Key| matches!(key, Key::Workflow(_));
        let approval = Key::Approval(Name::new("n", "gone"));
        for key in [workflow("here"), workflow("gone"), approval.clone()] {
            unreadable.insert(key, "why");
        }
        unreadable.begin_list(workflows);
        assert!(!unreadable.insert(workflow("here"), "why"), "it was told of before");
        unreadable.finish_list(workflows);
        assert!(unreadable.reason(&workflow("here")).is_some() && unreadable.reason(&workflow("gone")).is_none());
        assert!(unreadable.reason(&approval).is_some(), "it was not of that list");
    }
}
