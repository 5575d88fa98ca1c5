//! Which objects are to be looked at, and when: one look at a time for each, some at once in all.
//!
//! It may not look itself, and has no clock: whoever asks brings the time. Whoever takes keys is the one that
//! finishes them and tells what watches show; only `trigger` is for others too, and wakes the taker.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use signoff_api::Moment;
use tokio::sync::Notify;

use crate::kinds::Name;

/// One object to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// An Approval.
    Approval(Name),
    /// A Workflow.
    Workflow(Name),
}

impl Key {
    /// The name of the object.
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Self::Approval(name) | Self::Workflow(name) => name,
        }
    }
}

/// The objects to be looked at.
#[derive(Default)]
pub struct Queue {
    inner: Mutex<Inner>,
    news: Notify,
}

#[derive(Default)]
struct Inner {
    ready: VecDeque<Key>,
    queued: BTreeSet<Key>,
    running: BTreeSet<Key>,
    /// What happened to objects while they were looked at: only that this version was seen, or more than that.
    again: BTreeMap<Key, Option<String>>,
    timers: BTreeMap<Key, Moment>,
    by_time: BTreeSet<(Moment, Key)>,
    failures: BTreeMap<Key, u32>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened to this object: look at it as soon as possible.
    pub fn trigger(&self, key: Key) {
        self.lock().trigger(key);
        self.news.notify_one();
    }

    /// A watch showed this version of the object. Where the look that is under way turns out to have made that very
    /// version, there is nothing new to look at.
    pub fn seen(&self, key: Key, version: String) {
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

    /// Waits until something was triggered since it last returned.
    pub async fn triggered(&self) {
        self.news.notified().await;
    }

    /// Triggers everything whose time has come.
    pub fn tick(&self, now: Moment) {
        let mut inner = self.lock();
        while let Some((due, _)) = inner.by_time.first()
            && *due <= now
            && let Some((_, key)) = inner.by_time.pop_first()
        {
            inner.timers.remove(&key);
            inner.trigger(key);
        }
    }

    /// When the next timer is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.lock().by_time.first().map(|(due, _)| *due)
    }

    /// Wakes the taker without triggering anything: something else may begin now.
    pub fn nudge(&self) {
        self.news.notify_one();
    }

    /// The next object to be looked at; whoever takes it calls `finish` in the end.
    pub fn take(&self) -> Option<Key> {
        self.take_where(|_| true)
    }

    /// The next object to be looked at that `may` begin.
    pub fn take_where(&self, may: impl Fn(&Key) -> bool) -> Option<Key> {
        let mut inner = self.lock();
        let at = inner.ready.iter().position(may)?;
        let key = inner.ready.remove(at)?;
        inner.queued.remove(&key);
        inner.running.insert(key.clone());
        Some(key)
    }

    /// Forgets what waits to be looked at, save what is still `wanted`.
    pub fn keep_only(&self, wanted: impl Fn(&Key) -> bool) {
        let mut inner = self.lock();
        inner.ready.retain(&wanted);
        inner.queued.retain(&wanted);
    }

    /// The look is over; the next one is due then, unless something happens earlier. `made` says whether a version
    /// is the one that the look left behind.
    pub fn finish(&self, key: &Key, due: Option<Moment>, made: impl FnOnce(&str) -> bool) {
        let mut inner = self.lock();
        inner.failures.remove(key);
        if let Some(Some(version)) = inner.again.get(key)
            && made(version)
        {
            inner.again.remove(key);
        }
        inner.done(key, due);
    }

    /// The look failed: `due` says when to look again after so many failures in a row, which are returned too.
    pub fn fail(&self, key: &Key, due: impl FnOnce(u32) -> Moment) -> u32 {
        let mut inner = self.lock();
        let failures = inner.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let failures = *failures;
        inner.done(key, Some(due(failures)));
        failures
    }

    /// How many are waiting to be looked at or being looked at.
    pub fn depth(&self) -> usize {
        let inner = self.lock();
        inner.ready.len() + inner.running.len()
    }
}

impl Inner {
    fn trigger(&mut self, key: Key) {
        if self.running.contains(&key) {
            self.again.insert(key, None);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn done(&mut self, key: &Key, due: Option<Moment>) {
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
    fn an_object_is_looked_at_once_at_a_time_and_once_more_for_all_that_happened_meanwhile() {
        let queue = Queue::default();
        queue.trigger(key("a"));
        queue.trigger(key("a"));
        assert_eq!(queue.take(), Some(key("a")));
        queue.trigger(key("a"));
        queue.trigger(key("a"));
        assert_eq!(queue.take(), None);
        queue.finish(&key("a"), None, |_| false);
        assert_eq!(queue.take(), Some(key("a")));
        queue.finish(&key("a"), None, |_| false);
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn an_echo_that_comes_before_its_writes_answer_is_no_news() {
        let queue = Queue::default();
        queue.trigger(key("a"));
        queue.take();
        queue.seen(key("a"), "7".to_owned());
        queue.finish(&key("a"), None, |version| version == "7");
        assert_eq!(queue.take(), None);
        queue.trigger(key("a"));
        queue.take();
        queue.seen(key("a"), "8".to_owned());
        queue.finish(&key("a"), None, |version| version == "7");
        assert_eq!(queue.take(), Some(key("a")), "somebody else made version 8");
        queue.trigger(key("a"));
        queue.seen(key("a"), "9".to_owned());
        queue.finish(&key("a"), None, |version| version == "9");
        assert_eq!(queue.take(), Some(key("a")), "something else happened too");
    }

    #[test]
    fn the_latest_look_says_when_the_next_one_is_due() {
        let queue = Queue::default();
        queue.trigger(key("a"));
        queue.take();
        queue.finish(&key("a"), Some(at(10)), |_| false);
        queue.trigger(key("a"));
        queue.take();
        queue.finish(&key("a"), Some(at(20)), |_| false);
        queue.tick(at(15));
        assert_eq!(queue.take(), None);
        assert_eq!(queue.next_due(), Some(at(20)));
        queue.tick(at(20));
        assert_eq!(queue.take(), Some(key("a")));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn failures_count_until_a_look_succeeds() {
        let queue = Queue::default();
        queue.trigger(key("a"));
        queue.take();
        assert_eq!(queue.fail(&key("a"), |n| at(i64::from(n))), 1);
        queue.tick(at(1));
        queue.take();
        assert_eq!(queue.fail(&key("a"), |n| at(i64::from(n))), 2);
        queue.tick(at(2));
        queue.take();
        queue.finish(&key("a"), None, |_| false);
        queue.trigger(key("a"));
        queue.take();
        assert_eq!(queue.fail(&key("a"), |n| at(i64::from(n))), 1);
    }
}
