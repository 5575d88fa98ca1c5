//! The back-off of objects whose evaluation was stopped: by object, and shared by the objects of a namespace.
//!
//! **Invariant:** in a namespace where an evaluation was stopped, one object is reconciled at a time until an hour has
//! passed without another such evaluation.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use signoff_api::{Moment, conditions::reason};
use signoff_cluster::{kinds::Name, workqueue::Key};
use signoff_engine::Fact;
use signoff_executor::Stopped;

/// The version that a quarantine names: another one lifts it.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);

/// The objects in quarantine, and the namespaces that are slowed down because of them.
#[derive(Default)]
pub(crate) struct Quarantines {
    inner: Mutex<QuarantinesState>,
}

#[derive(Default)]
struct QuarantinesState {
    objects: BTreeMap<Key, QuarantineEntry>,
    /// The steps of runs that turned out to be too costly, by the run's uid, until a commit holds them.
    costly: BTreeMap<Name, (String, Vec<Fact>)>,
    namespaces: BTreeMap<Arc<str>, NamespaceBackoff>,
}

/// An object in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuarantineEntry {
    /// The generation that was evaluated.
    pub(crate) generation: i64,
    /// The number of attempts that were stopped.
    pub(crate) failures: i32,
    /// The earliest moment of the next attempt.
    pub(crate) until: Moment,
}

struct NamespaceBackoff {
    failures: i32,
    until: Moment,
}

fn pause(failures: i32) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0).min(16);
    FIRST.saturating_mul(1 << doublings).min(LONGEST)
}

impl Quarantines {
    fn lock(&self) -> MutexGuard<'_, QuarantinesState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a stopped evaluation, after `before` failures. Returns the entry of the object.
    pub(crate) fn record_stop(&self, key: &Key, generation: i64, before: i32, now: Moment) -> QuarantineEntry {
        let mut inner = self.lock();
        let shared = inner.record_failure(&key.name().namespace, now);
        let failures = before.saturating_add(1);
        let entry = QuarantineEntry { generation, failures, until: now.after(pause(failures)).max(shared) };
        inner.objects.insert(key.clone(), entry);
        entry
    }

    /// Records a stopped part of an evaluation. The object continues without it, but its namespace backs off.
    pub(crate) fn record_stopped_part(&self, key: &Key, now: Moment) {
        self.lock().record_failure(&key.name().namespace, now);
    }

    /// Returns the steps of a run that are too costly.
    pub(crate) fn costly(&self, name: &Name, uid: &str) -> Vec<Fact> {
        let inner = self.lock();
        inner.costly.get(name).filter(|(of, _)| of == uid).map(|(_, facts)| facts.clone()).unwrap_or_default()
    }

    /// Adds a step of a run that is too costly, until a commit contains it.
    pub(crate) fn add_costly(&self, name: &Name, uid: &str, fact: Fact) {
        let mut inner = self.lock();
        let (of, facts) = inner.costly.entry(name.clone()).or_default();
        if of != uid {
            uid.clone_into(of);
            facts.clear();
        }
        facts.push(fact);
    }

    /// Removes the costly steps of a run that are committed, or whose run has finished.
    pub(crate) fn on_committed(&self, name: &Name) {
        self.lock().costly.remove(name);
    }

    /// Adds an object that another process has put into quarantine.
    pub(crate) fn insert(&self, key: &Key, entry: QuarantineEntry) {
        self.lock().objects.entry(key.clone()).or_insert(entry);
    }

    /// Returns the entry of an object, or `None`.
    pub(crate) fn get(&self, key: &Key) -> Option<QuarantineEntry> {
        self.lock().objects.get(key).copied()
    }

    /// Removes an object that was evaluated or has finished. Returns whether it was in quarantine.
    pub(crate) fn remove(&self, key: &Key) -> bool {
        self.lock().objects.remove(key).is_some()
    }

    /// Whether only one object of this namespace is reconciled at a time.
    pub(crate) fn is_slow(&self, namespace: &str, now: Moment) -> bool {
        let mut inner = self.lock();
        let Some(pause) = inner.namespaces.get(namespace) else { return false };
        if now < pause.until.after(LONGEST) {
            return true;
        }
        inner.namespaces.remove(namespace);
        false
    }

    /// The number of objects that are in quarantine.
    pub(crate) fn count(&self) -> usize {
        self.lock().objects.len()
    }
}

impl QuarantinesState {
    fn record_failure(&mut self, namespace: &Arc<str>, now: Moment) -> Moment {
        let backoff =
            self.namespaces.entry(Arc::clone(namespace)).or_insert(NamespaceBackoff { failures: 0, until: now });
        // What happens within one pause counts once: objects that are evaluated at the same time are one failure.
        if backoff.failures == 0 || now >= backoff.until {
            backoff.failures = backoff.failures.saturating_add(1);
            backoff.until = now.after(pause(backoff.failures));
        }
        backoff.until
    }
}

/// The reason of the condition `Quarantined`.
pub(crate) fn reason(why: &Stopped) -> &'static str {
    match why {
        Stopped::TooCostly { .. } | Stopped::Withdrawn | Stopped::Closed => reason::TOO_COSTLY,
        Stopped::Lost { .. } => reason::NOT_STOPPED,
        Stopped::Panicked { .. } => reason::PANICKED,
        Stopped::Deadly { .. } => reason::ENDED_OPERATOR,
    }
}

/// The message of the condition `Quarantined`.
pub(crate) fn message(why: &Stopped, entry: &QuarantineEntry) -> String {
    format!(
        "set aside: {why} (operator {VERSION}, generation {}, attempt {}); simplify its templates, conditions, schemas and patterns and create it again, or cancel it; tried again after {}",
        entry.generation, entry.failures, entry.until
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key::Workflow(Name::new(namespace, name))
    }

    fn at(second: i64) -> Moment {
        jiff::Timestamp::from_second(second).unwrap().into()
    }

    #[test]
    fn attempts_back_off_from_a_minute_to_an_hour() {
        let pauses: Vec<u64> = (1..=9).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        assert_eq!(pause(i32::MAX), LONGEST);
    }

    #[test]
    fn costly_steps_are_known_until_they_are_committed_and_of_one_run_only() {
        let (all, name) = (Quarantines::default(), Name::new("a", "one"));
        let fact = |path: &str| Fact::TooCostly { path: path.to_owned(), attempt: 1, why: String::new() };
        all.add_costly(&name, "1", fact("x"));
        all.add_costly(&name, "1", fact("y"));
        assert_eq!(all.costly(&name, "1"), [fact("x"), fact("y")]);
        assert_eq!(all.costly(&name, "2"), []);
        all.add_costly(&name, "2", fact("z"));
        assert_eq!(all.costly(&name, "2"), [fact("z")]);
        all.on_committed(&name);
        assert_eq!(all.costly(&name, "2"), []);
    }

    #[test]
    fn the_back_off_is_shared_by_a_namespace_and_by_no_other() {
        let all = Quarantines::default();
        assert_eq!(all.record_stop(&key("a", "one"), 1, 0, at(0)).until, at(60));
        assert_eq!(all.record_stop(&key("a", "two"), 1, 0, at(10)).until, at(70), "within the same pause");
        assert_eq!(
            all.record_stop(&key("a", "three"), 1, 0, at(70)).until,
            at(190),
            "the second failure of the namespace"
        );
        assert_eq!(all.record_stop(&key("b", "one"), 1, 0, at(70)).until, at(130));
        assert!(all.is_slow("a", at(191)) && !all.is_slow("c", at(191)));
        assert!(!all.is_slow("a", at(190 + 3600)), "an hour later it is forgotten");
        assert_eq!(all.count(), 4);
        assert!(all.remove(&key("a", "one")) && !all.remove(&key("a", "one")));
    }
}
