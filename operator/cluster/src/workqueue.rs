//! The workqueue: objects to be reconciled, each at most once at a time. Namespaces take turns, so that one with
//! thousands of objects does not delay the others.
//!
//! **Invariant:** has no clock; the caller passes the time. One task pops and finishes keys; `trigger` is for all
//! tasks.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signoff_api::Moment;
use tokio::sync::Notify;

use crate::kinds::Name;

/// The key of an object to be reconciled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// An Approval.
    Approval(Name),
    /// A Workflow.
    Workflow(Name),
}

impl Key {
    /// Returns the name of the object.
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Self::Approval(name) | Self::Workflow(name) => name,
        }
    }
}

/// The objects to be reconciled.
#[derive(Default)]
pub struct Queue {
    inner: Mutex<QueueState>,
    news: Notify,
}

#[derive(Default)]
struct QueueState {
    /// Enqueued keys by namespace, in the order in which they were triggered. No queue is empty.
    ready: BTreeMap<Arc<str>, VecDeque<Key>>,
    /// The namespaces of `ready`, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    /// The keys of `ready`.
    queued: BTreeSet<Key>,
    running: BTreeSet<Key>,
    /// The keys for which an event arrived during their reconcile. `Some` if it was only the event of this version.
    again: BTreeMap<Key, Option<String>>,
    timers: BTreeMap<Key, Moment>,
    by_time: BTreeSet<(Moment, Key)>,
    failures: BTreeMap<Key, u32>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues an object.
    pub fn trigger(&self, key: Key) {
        self.lock().trigger(key);
        self.news.notify_one();
    }

    /// Enqueues an object because a watch event with this version arrived. If the running reconcile has written that
    /// version, the event is dropped.
    pub fn trigger_for_version(&self, key: Key, version: String) {
        let mut inner = self.lock();
        if inner.running.contains(&key) {
            inner
                .again
                .entry(key)
                .and_modify(|cause| *cause = cause.take().map(|_| version.clone()))
                .or_insert(Some(version));
        } else {
            inner.trigger(key);
        }
    }

    /// Waits until an object was triggered since the last return.
    pub async fn triggered(&self) {
        self.news.notified().await;
    }

    /// Enqueues every object whose timer is due.
    pub fn fire_timers(&self, now: Moment) {
        let mut inner = self.lock();
        while let Some((due, _)) = inner.by_time.first()
            && *due <= now
            && let Some((_, key)) = inner.by_time.pop_first()
        {
            inner.timers.remove(&key);
            inner.trigger(key);
        }
    }

    /// Returns when the next timer is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.lock().by_time.first().map(|(due, _)| *due)
    }

    /// Wakes the popping task without triggering anything.
    pub fn wake_consumer(&self) {
        self.news.notify_one();
    }

    /// Removes and returns the next key; the caller calls `finish` or `fail` for it.
    pub fn pop(&self) -> Option<Key> {
        self.pop_where(|_| true)
    }

    /// Removes and returns the next key of a namespace for which `can_start` returns true.
    pub fn pop_where(&self, can_start: impl Fn(&str) -> bool) -> Option<Key> {
        let mut inner = self.lock();
        let turn = inner.turns.iter().position(|namespace| can_start(namespace))?;
        let namespace = inner.turns.remove(turn)?;
        let waiting = inner.ready.get_mut(&namespace)?;
        let key = waiting.pop_front()?;
        if waiting.is_empty() {
            inner.ready.remove(&namespace);
        } else {
            inner.turns.push_back(namespace);
        }
        inner.queued.remove(&key);
        inner.running.insert(key.clone());
        Some(key)
    }

    /// Drops enqueued keys that are not `wanted`.
    pub fn retain(&self, wanted: impl Fn(&Key) -> bool) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.queued.retain(&wanted);
        inner.ready.retain(|_, keys| {
            keys.retain(&wanted);
            !keys.is_empty()
        });
        inner.turns.retain(|namespace| inner.ready.contains_key(namespace));
    }

    /// Finishes a reconcile. `due`: the time of the next one, unless an event arrives earlier. `is_own`: whether this
    /// process wrote a version.
    pub fn finish(&self, key: &Key, due: Option<Moment>, is_own: impl FnOnce(&str) -> bool) {
        let mut inner = self.lock();
        inner.failures.remove(key);
        if let Some(Some(version)) = inner.again.get(key)
            && is_own(version)
        {
            inner.again.remove(key);
        }
        inner.end_reconcile(key, due);
    }

    /// Records a failed reconcile, and returns the number of failures in a row. `due`: the time of the next reconcile
    /// after this number.
    pub fn fail(&self, key: &Key, due: impl FnOnce(u32) -> Moment) -> u32 {
        let mut inner = self.lock();
        let failures = inner.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let failures = *failures;
        inner.end_reconcile(key, Some(due(failures)));
        failures
    }

    /// Returns how many keys are enqueued or being reconciled.
    pub fn depth(&self) -> usize {
        let inner = self.lock();
        inner.queued.len() + inner.running.len()
    }
}

impl QueueState {
    /// Enqueues an object, or notes that it is to be reconciled again after the running reconcile.
    fn trigger(&mut self, key: Key) {
        if self.running.contains(&key) {
            self.again.insert(key, None);
            return;
        }
        if self.queued.insert(key.clone()) {
            let namespace = Arc::clone(&key.name().namespace);
            let keys = self.ready.entry(Arc::clone(&namespace)).or_default();
            keys.push_back(key);
            if keys.len() == 1 {
                self.turns.push_back(namespace);
            }
        }
    }

    /// Sets the next timer of an object, and enqueues the object if an event arrived during its reconcile.
    fn end_reconcile(&mut self, key: &Key, due: Option<Moment>) {
        self.running.remove(key);
        if let Some(old) = self.timers.remove(key) {
            self.by_time.remove(&(old, key.clone()));
        }
        if let Some(due) = due {
            self.timers.insert(key.clone(), due);
            self.by_time.insert((due, key.clone()));
        }
        if self.again.remove(key).is_some() {
            self.trigger(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(name: &str) -> Key {
        Key::Workflow(Name::new("n", name))
    }

    fn at(second: i64) -> Moment {
        jiff::Timestamp::from_second(second).unwrap().into()
    }

    #[test]
    fn an_object_runs_once_at_a_time_and_once_more_after_further_triggers() {
        let queue = Queue::default();
        queue.trigger(key("a"));
        queue.trigger(key("a"));
        assert_eq!(queue.pop(), Some(key("a")));
        queue.trigger(key("a"));
        queue.trigger(key("a"));
        assert_eq!(queue.pop(), None);
        queue.finish(&key("a"), None, |_| false);
        assert_eq!(queue.pop(), Some(key("a")));
        queue.finish(&key("a"), None, |_| false);
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn the_watch_event_of_an_own_write_does_not_enqueue_again() {
        let queue = Queue::default();
        queue.trigger(key("a"));
        queue.pop();
        queue.trigger_for_version(key("a"), "7".to_owned());
        queue.finish(&key("a"), None, |version| version == "7");
        assert_eq!(queue.pop(), None);
        queue.trigger(key("a"));
        queue.pop();
        queue.trigger_for_version(key("a"), "8".to_owned());
        queue.finish(&key("a"), None, |version| version == "7");
        assert_eq!(queue.pop(), Some(key("a")), "somebody else made version 8");
        queue.trigger(key("a"));
        queue.trigger_for_version(key("a"), "9".to_owned());
        queue.finish(&key("a"), None, |version| version == "9");
        assert_eq!(queue.pop(), Some(key("a")), "something else happened too");
    }

    #[test]
    fn the_last_reconcile_sets_the_timer() {
        let queue = Queue::default();
        queue.trigger(key("a"));
        queue.pop();
        queue.finish(&key("a"), Some(at(10)), |_| false);
        queue.trigger(key("a"));
        queue.pop();
        queue.finish(&key("a"), Some(at(20)), |_| false);
        queue.fire_timers(at(15));
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.next_due(), Some(at(20)));
        queue.fire_timers(at(20));
        assert_eq!(queue.pop(), Some(key("a")));
        assert_eq!(queue.next_due(), None);
    }

    fn keys(queue: &Queue, names: &[(&str, &str)]) {
        names.iter().for_each(|(namespace, name)| queue.trigger(Key::Workflow(Name::new(namespace, name))));
    }

    fn pop_all(queue: &Queue, may: impl Fn(&str) -> bool) -> Vec<String> {
        let all = std::iter::from_fn(|| queue.pop_where(&may));
        all.map(|key| format!("{}/{}", key.name().namespace, key.name().name)).collect()
    }

    #[test]
    fn namespaces_take_turns_and_each_keeps_its_order() {
        let queue = Queue::default();
        keys(&queue, &[("a", "3"), ("a", "1"), ("a", "2"), ("b", "1"), ("c", "2"), ("c", "1")]);
        assert_eq!(queue.depth(), 6);
        assert_eq!(pop_all(&queue, |_| true), ["a/3", "b/1", "c/2", "a/1", "c/1", "a/2"]);
        assert_eq!(queue.depth(), 6, "all of them are being looked at");
    }

    #[test]
    fn a_namespace_with_thousands_of_objects_does_not_delay_others() {
        let queue = Queue::default();
        (0..5000).for_each(|number| keys(&queue, &[("many", &number.to_string())]));
        queue.pop();
        keys(&queue, &[("few", "1")]);
        let next: Vec<_> = (0..2).filter_map(|_| queue.pop()).map(|key| key.name().namespace.to_string()).collect();
        assert!(next.contains(&"few".to_owned()), "{next:?}");
    }

    #[test]
    fn a_namespace_that_may_not_begin_keeps_its_turn() {
        let queue = Queue::default();
        keys(&queue, &[("slow", "1"), ("slow", "2"), ("b", "1"), ("b", "2")]);
        assert_eq!(queue.pop_where(|namespace| namespace != "slow"), Some(Key::Workflow(Name::new("b", "1"))));
        assert_eq!(pop_all(&queue, |_| true), ["slow/1", "b/2", "slow/2"]);
    }

    #[test]
    fn a_dropped_key_can_be_triggered_again() {
        let queue = Queue::default();
        keys(&queue, &[("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")]);
        queue.retain(|key| &*key.name().namespace == "b" && &*key.name().name == "2");
        assert_eq!(queue.depth(), 1);
        keys(&queue, &[("a", "1"), ("b", "2")]);
        assert_eq!(pop_all(&queue, |_| true), ["b/2", "a/1"]);
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn failures_are_counted_until_a_reconcile_succeeds() {
        let queue = Queue::default();
        queue.trigger(key("a"));
        queue.pop();
        assert_eq!(queue.fail(&key("a"), |n| at(i64::from(n))), 1);
        queue.fire_timers(at(1));
        queue.pop();
        assert_eq!(queue.fail(&key("a"), |n| at(i64::from(n))), 2);
        queue.fire_timers(at(2));
        queue.pop();
        queue.finish(&key("a"), None, |_| false);
        queue.trigger(key("a"));
        queue.pop();
        assert_eq!(queue.fail(&key("a"), |n| at(i64::from(n))), 1);
    }
}
