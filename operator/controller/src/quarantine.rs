//! The back-off of objects whose evaluation was stopped: by object, by run, and by namespace.
//!
//! **Invariant:** after a stopped evaluation, only one object of the namespace is reconciled at a time, until an hour
//! has passed without another stopped evaluation. The third and each later stopped evaluation of a run or of its
//! Approvals puts the run into quarantine, whatever the cause and the generation.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use signoff_api::{Moment, conditions::reason};
use signoff_cluster::{kinds::Name, workqueue::Key};
use signoff_engine::{Fact, evaluation::Part};
use signoff_executor::Stopped;

/// The version of the operator in a quarantine. Another version lifts the quarantine.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The number of stopped evaluations from which on a run is put into quarantine.
pub(crate) const MOST_STOPS: i32 = 3;

/// The pause after the first stopped evaluation; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause, and the time after which a namespace is no longer slowed down.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The objects in quarantine, and the namespaces that are slowed down.
#[derive(Default)]
pub(crate) struct Quarantines {
    inner: Mutex<QuarantinesState>,
}

#[derive(Default)]
struct QuarantinesState {
    objects: BTreeMap<Key, QuarantineEntry>,
    /// The steps of runs that are too costly, with the uid of the run, until a commit contains them.
    costly: BTreeMap<Name, (String, Vec<Fact>)>,
    /// The reasons of quarantines that no status contains yet, with the uid of their run. A failed write is repeated
    /// without another evaluation.
    unwritten: BTreeMap<Name, (String, Stopped)>,
    /// The votes that are too costly, by their Approval, until a tally has counted the others.
    costly_votes: BTreeMap<Key, Vec<CostlyVote>>,
    /// The stopped evaluations of runs, by the name of the run.
    stops: BTreeMap<Name, RunStops>,
    namespaces: BTreeMap<Arc<str>, NamespaceBackoff>,
}

/// The stopped evaluations of a run and of its Approvals.
struct RunStops {
    /// The uid of the run.
    uid: String,
    count: i32,
    /// The number of stops that the text of the run's author has caused, as far as this process knows.
    of_author: i32,
    /// The earliest time of the next evaluation, for any generation, if there were many.
    until: Option<Moment>,
}

/// A vote whose evaluation was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CostlyVote {
    /// Its key in `spec.decisions`.
    pub(crate) key: String,
    /// Its attempt. Another attempt is another vote.
    pub(crate) attempt: i32,
    /// The reason why it does not count.
    pub(crate) why: String,
}

/// An object in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuarantineEntry {
    /// The generation that was evaluated.
    pub(crate) generation: i64,
    /// The number of attempts that were stopped.
    pub(crate) failures: i32,
    /// The earliest time of the next attempt.
    pub(crate) until: Moment,
}

struct NamespaceBackoff {
    failures: i32,
    until: Moment,
}

/// Returns the pause after this number of stopped evaluations in a row.
fn pause(failures: i32) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0).min(16);
    FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
}

impl Quarantines {
    fn lock(&self) -> MutexGuard<'_, QuarantinesState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a stopped evaluation after `before` failures, and returns the entry of the object.
    pub(crate) fn record_stop(&self, key: &Key, generation: i64, before: i32, now: Moment) -> QuarantineEntry {
        let mut inner = self.lock();
        let shared = inner.record_failure(&key.name().namespace, now);
        let failures = before.saturating_add(1);
        let entry = QuarantineEntry { generation, failures, until: now.after(pause(failures)).max(shared) };
        inner.objects.insert(key.clone(), entry);
        entry
    }

    /// Records a stopped part of an evaluation. The object continues without the part, but its namespace backs off.
    pub(crate) fn record_stopped_part(&self, key: &Key, now: Moment) {
        self.lock().record_failure(&key.name().namespace, now);
    }

    /// Records a stopped evaluation of a run or of its Approvals, and its reason. `known`: the number in the status
    /// and the journal of the run. Returns the number so far.
    pub(crate) fn record_stop_of_run(&self, run: &Name, uid: &str, known: i32, why: &Stopped, now: Moment) -> i32 {
        let mut inner = self.lock();
        let none = || RunStops { uid: uid.to_owned(), count: 0, of_author: 0, until: None };
        let stops = inner.stops.entry(run.clone()).or_insert_with(none);
        if stops.uid != uid {
            *stops = none();
        }
        stops.count = stops.count.max(known).saturating_add(1);
        stops.of_author += i32::from(!why.part().is_some_and(Part::is_foreign));
        if stops.count >= MOST_STOPS {
            stops.until = Some(now.after(pause(stops.count)));
        }
        stops.count
    }

    /// Returns the time until which nothing of a run is evaluated because of many stopped evaluations, or `None`.
    pub(crate) fn run_paused_until(&self, run: &Name, uid: &str, now: Moment) -> Option<Moment> {
        let inner = self.lock();
        let stops = inner.stops.get(run).filter(|stops| stops.uid == uid)?;
        stops.until.filter(|until| now < *until)
    }

    /// Returns the reason of a quarantine that no status contains yet, or `None`.
    pub(crate) fn unwritten(&self, run: &Name, uid: &str) -> Option<Stopped> {
        let inner = self.lock();
        inner.unwritten.get(run).filter(|(owner, _)| owner == uid).map(|(_, why)| why.clone())
    }

    /// Adds the reason of a quarantine that a status will contain.
    pub(crate) fn add_unwritten(&self, run: &Name, uid: &str, why: &Stopped) {
        self.lock().unwritten.insert(run.clone(), (uid.to_owned(), why.clone()));
    }

    /// Removes the reason of a quarantine because a status contains it, or because the run has finished.
    pub(crate) fn on_written(&self, run: &Name) {
        self.lock().unwritten.remove(run);
    }

    /// Returns the number of stopped evaluations of a run that this process has recorded.
    pub(crate) fn stops_of_run(&self, run: &Name, uid: &str) -> i32 {
        self.lock().stops.get(run).filter(|stops| stops.uid == uid).map_or(0, |stops| stops.count)
    }

    /// Whether the text of its author alone has caused the quarantine of a run, which is then not retried by itself.
    /// Votes, models and tools cannot cause that.
    pub(crate) fn is_authors_fault(&self, run: &Name, uid: &str) -> bool {
        let inner = self.lock();
        inner.stops.get(run).is_some_and(|stops| stops.uid == uid && stops.of_author >= MOST_STOPS)
    }

    /// Returns the votes of an Approval that are too costly.
    pub(crate) fn costly_votes(&self, approval: &Key) -> Vec<CostlyVote> {
        self.lock().costly_votes.get(approval).cloned().unwrap_or_default()
    }

    /// Adds a vote of an Approval that is too costly, until a tally has counted the others.
    pub(crate) fn add_costly_vote(&self, approval: &Key, vote: CostlyVote) {
        self.lock().costly_votes.entry(approval.clone()).or_default().push(vote);
    }

    /// Removes the stopped evaluations of a finished run.
    pub(crate) fn forget_run(&self, run: &Name) {
        self.lock().stops.remove(run);
    }

    /// Returns the steps of a run that are too costly.
    pub(crate) fn costly(&self, name: &Name, uid: &str) -> Vec<Fact> {
        let inner = self.lock();
        inner.costly.get(name).filter(|(owner, _)| owner == uid).map(|(_, facts)| facts.clone()).unwrap_or_default()
    }

    /// Adds a step of a run that is too costly, until a commit contains it.
    pub(crate) fn add_costly(&self, name: &Name, uid: &str, fact: Fact) {
        let mut inner = self.lock();
        let (owner, facts) = inner.costly.entry(name.clone()).or_default();
        if owner != uid {
            uid.clone_into(owner);
            facts.clear();
        }
        facts.push(fact);
    }

    /// Removes the costly steps of a run because they are committed, or because the run has finished.
    pub(crate) fn on_committed(&self, name: &Name) {
        self.lock().costly.remove(name);
    }

    /// Adds an object that an earlier process has put into quarantine, unless it has an entry.
    pub(crate) fn insert(&self, key: &Key, entry: QuarantineEntry) {
        self.lock().objects.entry(key.clone()).or_insert(entry);
    }

    /// Returns the entry of an object, or `None`.
    pub(crate) fn get(&self, key: &Key) -> Option<QuarantineEntry> {
        self.lock().objects.get(key).copied()
    }

    /// Removes an object because it was evaluated or has finished. Returns whether it was in quarantine.
    pub(crate) fn remove(&self, key: &Key) -> bool {
        let mut inner = self.lock();
        inner.costly_votes.remove(key);
        inner.objects.remove(key).is_some()
    }

    /// Whether only one object of the namespace is reconciled at a time.
    pub(crate) fn is_slow(&self, namespace: &str, now: Moment) -> bool {
        let mut inner = self.lock();
        let Some(pause) = inner.namespaces.get(namespace) else { return false };
        if now < pause.until.after(LONGEST_PAUSE) {
            return true;
        }
        inner.namespaces.remove(namespace);
        false
    }

    /// Returns the number of objects in quarantine.
    pub(crate) fn count(&self) -> usize {
        self.lock().objects.len()
    }
}

impl QuarantinesState {
    /// Records a failure of a namespace, and returns the time until which its objects wait.
    fn record_failure(&mut self, namespace: &Arc<str>, now: Moment) -> Moment {
        let backoff =
            self.namespaces.entry(Arc::clone(namespace)).or_insert(NamespaceBackoff { failures: 0, until: now });
        // Failures within one pause count once, because objects are evaluated at the same time.
        if backoff.failures == 0 || now >= backoff.until {
            backoff.failures = backoff.failures.saturating_add(1);
            backoff.until = now.after(pause(backoff.failures));
        }
        backoff.until
    }
}

/// Returns the reason of the condition `Quarantined`.
pub(crate) fn reason(why: &Stopped) -> &'static str {
    match why {
        Stopped::TooCostly { .. } | Stopped::Withdrawn | Stopped::Closed => reason::TOO_COSTLY,
        Stopped::Lost { .. } => reason::NOT_STOPPED,
        Stopped::Panicked { .. } => reason::PANICKED,
        Stopped::Deadly { .. } => reason::ENDED_OPERATOR,
    }
}

/// Returns the message of the condition `Quarantined`. `next`: the time of the next attempt, or `None` if the next
/// attempt needs a change of the spec.
pub(crate) fn message(why: &Stopped, entry: &QuarantineEntry, next: Option<Moment>) -> String {
    let next = next.map_or_else(
        || {
            format!(
                "not tried again by itself after {} attempts: if it only needs more time, raise args.evaluationLimit of the chart, then run `kubectl approve suspend` and `kubectl approve resume` for it",
                entry.failures
            )
        },
        |next| format!("tried again after {next}"),
    );
    format!(
        "set aside: {why} (operator {VERSION}, generation {}, attempt {}); simplify its templates, conditions, schemas and patterns and create it again, or cancel it; {next}",
        entry.generation, entry.failures
    )
}

/// Returns the message of the condition `Quarantined` of an Approval whose votes wait because evaluations of its run
/// were stopped.
pub(crate) fn paused_message(until: Moment) -> String {
    format!(
        "set aside: {MOST_STOPS} or more evaluations of its run or of votes on it used too much CPU time; votes are accepted and wait, and are counted after {until}; to end it earlier, cancel the run"
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
        assert_eq!(pause(i32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn a_run_pauses_longer_from_the_third_stopped_evaluation_on() {
        let (all, run) = (Quarantines::default(), Name::new("a", "one"));
        let why = Stopped::TooCostly { part: None, limit: FIRST_PAUSE };
        let stop = |known, second| all.record_stop_of_run(&run, "1", known, &why, at(second));
        let paused = |second| all.run_paused_until(&run, "1", at(second));
        assert_eq!(((stop(0, 0), paused(0)), (stop(0, 0), paused(0))), ((1, None), (2, None)));
        assert_eq!((stop(0, 0), paused(0), paused(240)), (3, Some(at(240)), None));
        assert_eq!((stop(0, 240), paused(300), paused(240 + 480)), (4, Some(at(240 + 480)), None));
        assert_eq!(
            (stop(7, 1000), paused(1000)),
            (8, Some(at(1000 + 3600))),
            "the status and the journal knew of more"
        );
        assert_eq!(all.run_paused_until(&run, "2", at(1000)), None, "another run of the same name");
        assert_eq!(all.record_stop_of_run(&run, "2", 0, &why, at(1000)), 1);
        all.forget_run(&run);
        assert_eq!(all.stops_of_run(&run, "2"), 0);
    }

    #[test]
    fn only_stops_by_the_text_of_the_author_end_retries() {
        let (all, run) = (Quarantines::default(), Name::new("a", "one"));
        let stopped = |part| Stopped::TooCostly { part, limit: FIRST_PAUSE };
        let (of_vote, of_author) = (stopped(Some(Part::Vote("alice".to_owned()))), stopped(None));
        let mut stop = |why| all.record_stop_of_run(&run, "1", 0, why, at(0));
        let counts = [&of_vote, &of_vote, &of_author, &of_vote, &of_author].map(&mut stop);
        assert_eq!((counts, all.is_authors_fault(&run, "1")), ([1, 2, 3, 4, 5], false));
        stop(&of_author);
        assert!(all.is_authors_fault(&run, "1") && !all.is_authors_fault(&run, "2"));
    }

    #[test]
    fn a_costly_vote_is_known_until_its_approval_was_counted() {
        let (all, approval) = (Quarantines::default(), Key::Approval(Name::new("a", "one")));
        let vote = CostlyVote { key: "alice".to_owned(), attempt: 1, why: String::new() };
        all.add_costly_vote(&approval, vote.clone());
        assert_eq!((all.costly_votes(&approval), all.costly_votes(&key("a", "one"))), (vec![vote], vec![]));
        all.remove(&approval);
        assert_eq!(all.costly_votes(&approval), []);
    }

    #[test]
    fn costly_steps_are_kept_per_run_until_they_are_committed() {
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
    fn the_back_off_is_shared_within_a_namespace() {
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
