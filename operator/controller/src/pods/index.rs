//! The index of all Pods of steps, from the watch, with the tasks that follow them.
//!
//! **Invariant:** does no I/O. The last state of a deleted Pod is kept as long as a task follows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::Resource;
use signoff_cluster::{
    kinds::Name,
    watch::{WatchEvent, name_of},
};
use tokio::sync::watch;

use super::{
    PodWatchEvent,
    state::{PodProblem, PodState, StepPod},
};

/// The last received state of a Pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastState {
    /// The last state received, or `None` before the first.
    pub(crate) pod: Option<Arc<StepPod>>,
    /// The way in which its deletion was observed.
    pub(crate) gone: Option<DeletionSource>,
}

/// The way in which the deletion of a Pod was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionSource {
    /// By the watch, which has delivered every state before it.
    Watched,
    /// By a list without the Pod, so that its last state is unknown.
    Relisted,
}

/// The Pods of steps, with the tasks that follow them.
#[derive(Default)]
pub(crate) struct PodIndex {
    inner: Mutex<PodIndexState>,
}

#[derive(Default)]
struct PodIndexState {
    pods: BTreeMap<Name, PodEntry>,
    runs: BTreeMap<Box<str>, BTreeSet<Name>>,
    followers: BTreeMap<Name, watch::Sender<LastState>>,
    /// The Pods received so far of the lists that are being read, by namespace.
    listed: BTreeMap<Option<String>, BTreeSet<Name>>,
    /// The Pods that cannot be created, with the uid of their run.
    creation_failures: BTreeMap<Name, (Box<str>, PodProblem)>,
    /// The namespaces of which a list is complete.
    complete: BTreeSet<Option<String>>,
}

struct PodEntry {
    pod: Arc<StepPod>,
    /// The uid of its run.
    run: Box<str>,
    /// The reason why it does not run yet, in the wording that was received first.
    problem: Option<PodProblem>,
    /// Whether its result was recorded, so that the Pod is not needed any more.
    is_result_taken: bool,
}

impl PodIndex {
    fn lock(&self) -> MutexGuard<'_, PodIndexState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a watch event. Returns the Workflows to be reconciled.
    pub(crate) fn apply(&self, (scope, event): PodWatchEvent) -> Vec<Name> {
        let mut inner = self.lock();
        match event {
            WatchEvent::Listing => {
                inner.listed.insert(scope, BTreeSet::new());
                Vec::new()
            }
            WatchEvent::Listed(pod) => {
                if let Some(listed) = inner.listed.get_mut(&scope) {
                    listed.insert(Name::of(&*pod));
                }
                inner.put(*pod).into_iter().collect()
            }
            WatchEvent::ListDone(_) => {
                let listed = inner.listed.remove(&scope).unwrap_or_default();
                let is_in_scope = |name: &Name| scope.as_deref().is_none_or(|scope| scope == &*name.namespace);
                // A Pod that was created after the list began may be missing in the list. The task that follows the Pod
                // asks the API server.
                let is_gone = |name: &&Name| is_in_scope(name) && !listed.contains(*name);
                let gone: Vec<_> = inner.pods.keys().filter(is_gone).cloned().collect();
                let affected =
                    gone.iter().filter_map(|name| inner.remove(name, None, DeletionSource::Relisted)).collect();
                inner.complete.insert(scope);
                affected
            }
            WatchEvent::Applied(pod) => inner.put(*pod).into_iter().collect(),
            WatchEvent::Deleted(meta) => {
                let uid = meta.uid.clone().unwrap_or_default();
                inner.remove(&name_of(&meta), Some(&uid), DeletionSource::Watched).into_iter().collect()
            }
            WatchEvent::Unreadable { meta, why, listed } => {
                tracing::warn!(pod = %name_of(&meta), "cannot be read: {why}");
                if let Some(names) = inner.listed.get_mut(&scope).filter(|_| listed) {
                    names.insert(name_of(&meta));
                }
                Vec::new()
            }
            WatchEvent::Broken { why, .. } => {
                tracing::warn!("the watch of Pods broke and is opened again: {why}");
                Vec::new()
            }
        }
    }

    /// Applies the answer to a request of this process.
    pub(crate) fn record(&self, pod: StepPod) {
        self.lock().put(pod);
    }

    /// Applies the answer that a Pod is not found.
    pub(crate) fn remove_missing(&self, name: &Name, uid: &str) {
        self.lock().remove(name, Some(uid), DeletionSource::Relisted);
    }

    /// Follows a Pod, beginning with its current state.
    pub(crate) fn follow(&self, name: &Name) -> watch::Receiver<LastState> {
        let mut inner = self.lock();
        inner.followers.retain(|_, follower| follower.receiver_count() > 0);
        let known = LastState { pod: inner.pods.get(name).map(|entry| Arc::clone(&entry.pod)), gone: None };
        inner.followers.entry(name.clone()).or_insert_with(|| watch::Sender::new(known)).subscribe()
    }

    /// Whether the first list of a namespace is complete.
    pub(crate) fn is_complete(&self, namespace: &str) -> bool {
        self.lock().complete.iter().any(|scope| scope.as_deref().is_none_or(|scope| scope == namespace))
    }

    /// Returns the Pods of a run that are not marked by [`Self::mark_result_taken`].
    pub(crate) fn of_run(&self, uid: &str) -> Vec<Arc<StepPod>> {
        let inner = self.lock();
        let names = inner.runs.get(uid).into_iter().flatten();
        names
            .filter_map(|name| inner.pods.get(name))
            .filter(|entry| !entry.is_result_taken)
            .map(|e| Arc::clone(&e.pod))
            .collect()
    }

    /// Marks a Pod that is not needed any more because its result was recorded.
    pub(crate) fn mark_result_taken(&self, pod: &StepPod) {
        if let Some(entry) = self.lock().pods.get_mut(&Name::of(pod)).filter(|entry| entry.pod.uid() == pod.uid()) {
            entry.is_result_taken = true;
        }
    }

    /// Returns the reasons why Pods of a run do not run yet, by their names.
    pub(crate) fn problems_of(&self, uid: &str) -> Vec<(Name, PodProblem)> {
        let inner = self.lock();
        let names = inner.runs.get(uid).into_iter().flatten();
        let pending = names.filter_map(|name| Some((name.clone(), inner.pods.get(name)?.problem.clone()?)));
        let creation_failure = inner.creation_failures.iter().filter(|(_, (run, _))| &**run == uid);
        pending.chain(creation_failure.map(|(name, (_, problem))| (name.clone(), problem.clone()))).collect()
    }

    /// Records that a Pod cannot be created, until the result is dropped.
    pub(crate) fn record_creation_failure(
        self: &Arc<Self>,
        run: &str,
        pod: &Name,
        problem: PodProblem,
    ) -> CreationFailureRecord {
        self.lock().creation_failures.insert(pod.clone(), (run.into(), problem));
        CreationFailureRecord { index: Arc::clone(self), pod: pod.clone() }
    }

    /// Returns the Pods of a namespace that hold a slot.
    pub(crate) fn live_in(&self, namespace: &str) -> BTreeSet<(Box<str>, Name)> {
        let inner = self.lock();
        let here = inner.pods.iter().filter(|(name, entry)| &*name.namespace == namespace && entry.pod.holds_slot());
        here.map(|(name, entry)| (entry.run.clone(), name.clone())).collect()
    }
}

/// The record that a Pod cannot be created.
pub(crate) struct CreationFailureRecord {
    index: Arc<PodIndex>,
    pod: Name,
}

impl Drop for CreationFailureRecord {
    fn drop(&mut self) {
        self.index.lock().creation_failures.remove(&self.pod);
    }
}

impl PodIndexState {
    /// Adds or replaces a Pod, and tells its follower. Ignores an older state, and a Pod whose deletion was received.
    /// Returns the Workflow to be reconciled, if the event is news for it.
    fn put(&mut self, pod: StepPod) -> Option<Name> {
        let name = Name::of(&pod);
        let (owner, run) = pod.owner().map(|(owner, uid)| (name.beside(owner), Box::<str>::from(uid)))?;
        if self.pods.get(&name).is_some_and(|known| is_older(&pod, &known.pod))
            || self.has_received_deletion(&name, &pod)
        {
            return None;
        }
        let old = self.pods.get(&name).filter(|old| old.pod.uid() == pod.uid());
        let current = match pod.state() {
            PodState::Pending(problem) => problem,
            _ => None,
        };
        let before = old.and_then(|old| old.problem.clone());
        // A problem keeps its first wording, so that it is reported once.
        let problem = match (&before, current) {
            (Some(before), Some(current)) if current.is_like(before) => Some(before.clone()),
            (_, current) => current,
        };
        let is_news = old.is_none_or(|old| old.pod.is_finished() != pod.is_finished() || old.problem != problem);
        let is_result_taken = old.is_some_and(|old| old.is_result_taken);
        let pod = Arc::new(pod);
        if let Some(follower) = self.followers.get(&name) {
            follower.send_replace(LastState { pod: Some(Arc::clone(&pod)), gone: None });
        }
        self.runs.entry(run.clone()).or_default().insert(name.clone());
        self.pods.insert(name, PodEntry { pod, run, problem, is_result_taken });
        is_news.then_some(owner)
    }

    /// Whether the watch has delivered the deletion of exactly this Pod. The answer to a request may arrive later.
    fn has_received_deletion(&self, name: &Name, pod: &StepPod) -> bool {
        let Some(follower) = self.followers.get(name) else { return false };
        let known = follower.borrow();
        known.gone == Some(DeletionSource::Watched) && known.pod.as_ref().is_some_and(|gone| gone.uid() == pod.uid())
    }

    /// Removes a Pod, if it has the uid, and tells its follower. Returns the Workflow that owns the Pod.
    fn remove(&mut self, name: &Name, uid: Option<&str>, how: DeletionSource) -> Option<Name> {
        if self.pods.get(name).is_none_or(|entry| uid.is_some_and(|uid| uid != entry.pod.uid())) {
            return None;
        }
        let PodEntry { pod, run, .. } = self.pods.remove(name)?;
        if let Some(names) = self.runs.get_mut(&run) {
            names.remove(name);
            if names.is_empty() {
                self.runs.remove(&run);
            }
        }
        let owner = pod.owner().map(|(owner, _)| name.beside(owner));
        if let Some(follower) = self.followers.get(name) {
            follower.send_replace(LastState { pod: Some(pod), gone: Some(how) });
        }
        owner
    }
}

/// Whether a Pod is older than the known one, if both versions are numbers.
fn is_older(pod: &StepPod, known: &StepPod) -> bool {
    let version = |pod: &StepPod| pod.meta().resource_version.as_ref().and_then(|version| version.parse::<u128>().ok());
    matches!((version(pod), version(known)), (Some(new), Some(old)) if new < old)
}
