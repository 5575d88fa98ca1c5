//! The objects that cannot be read at the moment, and why, so that each is reported once.

use signoff_cluster::workqueue::Key;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The objects that cannot be read, of both kinds.
#[derive(Default)]
pub(crate) struct Unreadable {
    inner: Mutex<BTreeMap<Key, Trouble>>,
}

struct Trouble {
    why: Arc<str>,
    /// Whether the newest list, or the watch since, showed it.
    seen: bool,
}

impl Unreadable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Trouble>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object cannot be read. Returns whether that is news.
    pub(crate) fn found(&self, key: Key, why: &str) -> bool {
        self.lock().insert(key, Trouble { why: why.into(), seen: true }).is_none()
    }

    /// An object can be read again, or is no more. Returns whether it could not be read until now.
    pub(crate) fn mended(&self, key: &Key) -> bool {
        self.lock().remove(key).is_some()
    }

    /// Returns why an object cannot be read, or `None`.
    pub(crate) fn why(&self, key: &Key) -> Option<Arc<str>> {
        self.lock().get(key).map(|trouble| Arc::clone(&trouble.why))
    }

    /// A list of such objects begins.
    pub(crate) fn listing(&self, such: impl Fn(&Key) -> bool) {
        self.lock().iter_mut().filter(|(key, _)| such(key)).for_each(|(_, trouble)| trouble.seen = false);
    }

    /// The list is complete: what it did not show is no more.
    pub(crate) fn listed(&self, such: impl Fn(&Key) -> bool) {
        self.lock().retain(|key, trouble| trouble.seen || !such(key));
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
    fn it_is_news_once_until_the_object_can_be_read_again() {
        let unreadable = Unreadable::default();
        assert!(unreadable.found(workflow("a"), "no spec"));
        assert!(!unreadable.found(workflow("a"), "still no spec"));
        assert_eq!(unreadable.why(&workflow("a")).as_deref(), Some("still no spec"));
        assert!(unreadable.mended(&workflow("a")) && !unreadable.mended(&workflow("a")));
        assert!(unreadable.found(workflow("a"), "no spec"));
    }

    #[test]
    fn what_a_list_does_not_show_any_more_is_forgotten() {
        let unreadable = Unreadable::default();
        let workflows = |key: &Key| matches!(key, Key::Workflow(_));
        let approval = Key::Approval(Name::new("n", "gone"));
        for key in [workflow("here"), workflow("gone"), approval.clone()] {
            unreadable.found(key, "why");
        }
        unreadable.listing(workflows);
        assert!(!unreadable.found(workflow("here"), "why"), "it was told of before");
        unreadable.listed(workflows);
        assert!(unreadable.why(&workflow("here")).is_some() && unreadable.why(&workflow("gone")).is_none());
        assert!(unreadable.why(&approval).is_some(), "it was not of that list");
    }
}
