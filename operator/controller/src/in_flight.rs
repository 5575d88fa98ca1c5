//! Calls in flight, results that are not committed, and cached long values, by run.
//!
//! **Invariant:** starts no call and interprets no result. A result stays in memory until it is committed, even if its
//! transition was lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use signoff_api::Moment;
use signoff_cluster::kinds::Name;
use signoff_engine::{
    Blobs, Fact, Journal,
    driver::{CallKey, CallsInFlight},
};
use tokio::task::AbortHandle;

use signoff_cluster::fair_budget::HeldPart;

/// The calls in flight, uncommitted results and cached values of all runs.
pub(crate) struct Runs {
    inner: Mutex<RunsState>,
    /// The most bytes of all cached values together.
    most_value_bytes: usize,
}

#[derive(Default)]
struct RunsState {
    runs: BTreeMap<Name, RunCalls>,
    /// The Pods that this process has attempted to create, by their run.
    attempted_pods: BTreeMap<Name, BTreeSet<String>>,
}

#[derive(Default)]
struct RunCalls {
    uid: String,
    calls: CallsInFlight<InFlightCall>,
    /// The memory that the results hold until they are committed.
    memory: BTreeMap<CallKey, HeldPart>,
    values: Blobs,
}

impl RunCalls {
    /// Drops the results that a committed journal contains.
    fn on_committed(&mut self, journal: &Journal) {
        self.calls.drop_committed(journal);
        self.memory.retain(|key, _| self.calls.contains(key));
    }
}

/// A call in flight.
struct InFlightCall {
    task: Option<AbortHandle>,
    /// Whether the call is a Pod, which runs on without this process.
    is_pod: bool,
}

impl Drop for RunCalls {
    fn drop(&mut self) {
        for call in self.calls.handles().filter_map(|call| call.task.as_ref()) {
            call.abort();
        }
    }
}

impl Runs {
    /// Returns the state without any run. `most_value_bytes`: the most bytes of all cached values together.
    pub(crate) fn new(most_value_bytes: usize) -> Self {
        Self { inner: Mutex::default(), most_value_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, RunsState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the results of calls that have an open record. Results that the journal contains are dropped.
    pub(crate) fn facts(&self, name: &Name, uid: &str, journal: &Journal) -> Vec<Fact> {
        let mut inner = self.lock();
        let Some(run) = inner.run(name, uid) else { return Vec::new() };
        run.on_committed(journal);
        run.calls.facts(journal)
    }

    /// Returns the results of calls that began before their records were stored.
    pub(crate) fn unstored_facts(&self, name: &Name, uid: &str, journal: &Journal) -> Vec<Fact> {
        let mut inner = self.lock();
        inner.run(name, uid).map(|run| run.calls.unstored_facts(journal)).unwrap_or_default()
    }

    /// Ends the calls of a run for which `follows` returns false, and drops the results of these calls. The transition
    /// that began such a call was never stored.
    pub(crate) fn end_where_not(&self, name: &Name, uid: &str, follows: impl Fn(&CallKey) -> bool) {
        let mut inner = self.lock();
        let Some(run) = inner.run(name, uid) else { return };
        for call in run.calls.remove_where_not(follows) {
            if let Some(task) = &call.task {
                task.abort();
            }
        }
        run.memory.retain(|key, _| run.calls.contains(key));
    }

    /// Returns the end of the oldest uncommitted result of a run.
    pub(crate) fn oldest(&self, name: &Name, uid: &str) -> Option<Moment> {
        self.lock().run(name, uid)?.calls.oldest()
    }

    /// Returns the end of the oldest uncommitted result of a run, if further results of the run will follow. `taken`:
    /// the number of results that the transition contains.
    pub(crate) fn oldest_result(&self, name: &Name, uid: &str, taken: usize) -> Option<Moment> {
        let mut inner = self.lock();
        inner.run(name, uid)?.calls.oldest_result(taken)
    }

    /// Whether the call is in flight, or has an uncommitted result.
    pub(crate) fn has_call(&self, name: &Name, uid: &str, key: &CallKey) -> bool {
        let mut inner = self.lock();
        inner.run(name, uid).is_some_and(|run| run.calls.contains(key))
    }

    /// Whether the call is in flight, without a result.
    pub(crate) fn is_in_flight(&self, name: &Name, uid: &str, key: &CallKey) -> bool {
        self.lock().run(name, uid).is_some_and(|run| run.calls.is_in_flight(key))
    }

    /// Whether this process has attempted to create a Pod of this name before.
    pub(crate) fn has_attempted_pod(&self, name: &Name, pod: &str) -> bool {
        self.lock().attempted_pods.get(name).is_some_and(|pods| pods.contains(pod))
    }

    /// Adds a call that starts now. `pod`: the name of its Pod, if it is one.
    pub(crate) fn begin_call(&self, name: &Name, uid: &str, key: CallKey, pod: Option<&str>) {
        let mut inner = self.lock();
        if let Some(pod) = pod {
            inner.attempted_pods.entry(name.clone()).or_default().insert(pod.to_owned());
        }
        if inner.run(name, uid).is_none() {
            // A run of the same name with another uid was deleted.
            let mut run = RunCalls::default();
            uid.clone_into(&mut run.uid);
            inner.runs.insert(name.clone(), run);
        }
        if let Some(run) = inner.run(name, uid) {
            run.calls.start(key, InFlightCall { task: None, is_pod: pod.is_some() });
        }
    }

    /// Attaches the task of a call. Returns whether the call is still in flight.
    pub(crate) fn attach_task(&self, name: &Name, uid: &str, key: &CallKey, task: AbortHandle) -> bool {
        let mut inner = self.lock();
        let wanted = inner.run(name, uid).and_then(|run| run.calls.handle_mut(key));
        wanted.map(|call| call.task = Some(task)).is_some()
    }

    /// Records the result of a call. `memory`: the memory that the result holds until it is committed. Returns whether
    /// the call was in flight.
    pub(crate) fn finish_call(&self, name: &Name, uid: &str, key: CallKey, fact: Fact, memory: HeldPart) -> bool {
        let mut inner = self.lock();
        let Some(run) = inner.run(name, uid) else { return false };
        let was_in_flight = run.calls.finish(key.clone(), fact);
        if was_in_flight {
            run.memory.insert(key, memory);
        }
        was_in_flight
    }

    /// Removes a call that did not begin.
    pub(crate) fn remove_call(&self, name: &Name, uid: &str, key: &CallKey) {
        let mut inner = self.lock();
        if let Some(run) = inner.run(name, uid) {
            run.calls.remove(key);
        }
    }

    /// Drops the results that a committed journal contains.
    pub(crate) fn on_committed(&self, name: &Name, uid: &str, journal: &Journal) {
        let mut inner = self.lock();
        if let Some(run) = inner.run(name, uid) {
            run.on_committed(journal);
        }
    }

    /// Ends everything in flight of a run that has finished.
    pub(crate) fn remove(&self, name: &Name) {
        let mut inner = self.lock();
        inner.attempted_pods.remove(name);
        inner.runs.remove(name);
    }

    /// Returns the cached long values of a run.
    pub(crate) fn values(&self, name: &Name, uid: &str) -> Blobs {
        self.lock().run(name, uid).map(|run| run.values.clone()).unwrap_or_default()
    }

    /// Caches the long values of a run while it has calls. If all runs together would exceed the limit, none of its
    /// values are cached, and they are fetched again.
    pub(crate) fn keep_values(&self, name: &Name, uid: &str, values: Blobs) {
        let bytes = |values: &Blobs| values.values().map(String::len).sum::<usize>();
        let mut inner = self.lock();
        let others: usize =
            inner.runs.iter().filter(|(other, _)| *other != name).map(|(_, run)| bytes(&run.values)).sum();
        if let Some(run) = inner.run(name, uid) {
            run.values = if others + bytes(&values) <= self.most_value_bytes { values } else { Blobs::default() };
        }
    }

    /// Drops the cached values of a run with nothing in flight.
    pub(crate) fn drop_idle_values(&self, name: &Name) {
        let mut inner = self.lock();
        if inner.runs.get(name).is_some_and(|run| run.calls.is_empty()) {
            inner.runs.remove(name);
        }
    }

    /// Returns the runs with uncommitted results, or with calls in flight that would be lost at the end of the process.
    pub(crate) fn busy_runs(&self) -> BTreeSet<Name> {
        let inner = self.lock();
        let busy = |run: &RunCalls| run.calls.handles().any(|call| !call.is_pod) || run.calls.has_results();
        inner.runs.iter().filter(|(_, run)| busy(run)).map(|(name, _)| name.clone()).collect()
    }
}

impl RunsState {
    fn run(&mut self, name: &Name, uid: &str) -> Option<&mut RunCalls> {
        self.runs.get_mut(name).filter(|run| run.uid == uid)
    }
}
