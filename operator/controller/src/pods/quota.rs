//! The FIFO quota for Pods, for each namespace and each Workflow.
//!
//! **Invariant:** a Workflow at its own limit does not block other Workflows. No Pod overtakes a Pod that has waited
//! longer and could start.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signoff_api::{Moment, Seq, conditions::reason};
use signoff_cluster::kinds::Name;
use tokio::sync::watch;

use super::{PodIndex, PodSettings};

/// The quota for Pods.
pub(crate) struct PodQuota {
    settings: PodSettings,
    index: Arc<PodIndex>,
    inner: Mutex<PodQuotaState>,
    freed: watch::Sender<()>,
}

#[derive(Default)]
struct PodQuotaState {
    /// The Pods that hold a slot, by namespace: the uid of their run, and their name.
    taken: BTreeMap<Arc<str>, BTreeSet<(Box<str>, Name)>>,
    /// The queued Pods by namespace, the oldest first.
    waiting: BTreeMap<Arc<str>, BTreeSet<QueuedPod>>,
}

/// A Pod that waits for a slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuedPod {
    /// The time at which it was queued.
    pub(crate) since: Moment,
    pub(crate) workflow: Name,
    /// The uid of its Workflow. A Workflow of the same name that is created again is another run.
    pub(crate) run: Box<str>,
    /// Its position among the Pods that its Workflow queued at once.
    pub(crate) seq: Seq,
    pub(crate) pod: Name,
}

/// The reason why a Pod waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodWait {
    /// The namespace is full. `before`: the number of Pods that have waited longer there. `most`: its limit.
    Namespace { before: usize, most: usize },
    /// The Workflow is at its limit. `before`: the number of its Pods that have waited longer. `most`: its limit.
    Workflow { before: usize, most: usize },
    /// The first list of the namespace is not complete.
    Unknown,
    /// Pods are not allowed in the namespace.
    PodsNotAllowed,
}

/// The slot of a running Pod. Dropping it frees the slot.
pub(crate) struct PodSlot {
    quota: Arc<PodQuota>,
    run: Box<str>,
    pod: Name,
}

impl Drop for PodSlot {
    fn drop(&mut self) {
        if let Some(taken) = self.quota.lock().taken.get_mut(&self.pod.namespace) {
            taken.remove(&(self.run.clone(), self.pod.clone()));
        }
        self.quota.freed.send_replace(());
    }
}

impl PodQuota {
    pub(crate) fn new(settings: PodSettings, index: Arc<PodIndex>) -> Self {
        Self { settings, index, inner: Mutex::default(), freed: watch::Sender::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, PodQuotaState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver that changes when a slot may be free.
    pub(crate) fn freed(&self) -> watch::Receiver<()> {
        self.freed.subscribe()
    }

    /// Wakes the receivers of [`Self::freed`] after a Pod has finished or was deleted, if Pods wait.
    pub(crate) fn announce_free(&self) {
        if !self.lock().waiting.is_empty() {
            self.freed.send_replace(());
        }
    }

    /// Takes a slot for a Pod that runs already, whatever the limits.
    pub(crate) fn keep_running(self: &Arc<Self>, run: &str, pod: &Name) -> PodSlot {
        let running = (run.into(), pod.clone());
        self.lock().taken.entry(Arc::clone(&pod.namespace)).or_default().insert(running);
        PodSlot { quota: Arc::clone(self), run: run.into(), pod: pod.clone() }
    }

    /// Takes a slot for a new Pod. Without a free slot, queues the Pod and returns why it waits.
    pub(crate) fn acquire(self: &Arc<Self>, ticket: QueuedPod) -> Result<PodSlot, PodWait> {
        let namespace = Arc::clone(&ticket.pod.namespace);
        if !self.settings.allows(&namespace) {
            return Err(PodWait::PodsNotAllowed);
        }
        let mut inner = self.lock();
        if !self.index.is_complete(&namespace) {
            inner.waiting.entry(namespace).or_default().insert(ticket);
            return Err(PodWait::Unknown);
        }
        // A Pod whose commit was refused is queued again with another time.
        inner.forget(&namespace, |other| other.pod == ticket.pod && *other != ticket);
        let running = self.running_pods(&inner, &namespace);
        let earlier = inner.waiting.get(&namespace).into_iter().flatten().take_while(|other| **other < ticket);
        let wait = if self.is_full(&running, &ticket.run) {
            let before = earlier.filter(|other| other.run == ticket.run).count();
            Some(PodWait::Workflow { before, most: self.settings.most_of_workflow })
        } else {
            let before = earlier.filter(|other| !self.is_full(&running, &other.run)).count();
            let most = self.settings.most_in_namespace;
            (running.len() + before >= most).then_some(PodWait::Namespace { before, most })
        };
        match wait {
            Some(wait) => {
                inner.waiting.entry(namespace).or_default().insert(ticket);
                Err(wait)
            }
            None => {
                inner.forget(&namespace, |other| other == &ticket);
                let QueuedPod { run, pod, .. } = ticket;
                inner.taken.entry(namespace).or_default().insert((run.clone(), pod.clone()));
                Ok(PodSlot { quota: Arc::clone(self), run, pod })
            }
        }
    }

    /// Returns the Workflows of the Pods that may start now. If no slot is free, returns the Workflows whose position
    /// in the queue is reported again: the first one, and those after a number of Pods that is a power of two. A long
    /// queue then costs few writes.
    pub(crate) fn workflows_to_wake(&self) -> Vec<Name> {
        let inner = self.lock();
        let mut next = BTreeSet::new();
        for (namespace, waiting) in &inner.waiting {
            let running = self.running_pods(&inner, namespace);
            let free = self.settings.most_in_namespace.saturating_sub(running.len());
            let able = waiting.iter().filter(|ticket| !self.is_full(&running, &ticket.run)).enumerate();
            let is_reported = |before: usize| match free {
                0 => before == 0 || before.is_power_of_two(),
                free => before < free,
            };
            let reported = able.filter(|(before, _)| is_reported(*before));
            next.extend(reported.map(|(_, ticket)| ticket.workflow.clone()));
        }
        next.into_iter().collect()
    }

    /// Removes every queued Pod of a Workflow.
    pub(crate) fn forget(&self, workflow: &Name) {
        self.retain_queued(workflow, |_| false);
    }

    /// Removes the queued Pods of a Workflow that are not `wanted`, so that they do not block the queue.
    pub(crate) fn retain_queued(&self, workflow: &Name, wanted: impl Fn(&Name) -> bool) {
        let mut inner = self.lock();
        if inner.forget(&workflow.namespace, |ticket| ticket.workflow == *workflow && !wanted(&ticket.pod)) {
            drop(inner);
            self.freed.send_replace(());
        }
    }

    /// Returns every Pod of a namespace that holds a slot or runs without one.
    fn running_pods(&self, inner: &PodQuotaState, namespace: &str) -> BTreeSet<(Box<str>, Name)> {
        let mut running = self.index.live_in(namespace);
        running.extend(inner.taken.get(namespace).into_iter().flatten().cloned());
        running
    }

    /// Whether a run has as many running Pods as a Workflow may have.
    fn is_full(&self, running: &BTreeSet<(Box<str>, Name)>, run: &str) -> bool {
        running.iter().filter(|(owner, _)| &**owner == run).count() >= self.settings.most_of_workflow
    }
}

impl PodQuotaState {
    /// Removes the matching Pods from the queue. Returns whether there were any.
    fn forget(&mut self, namespace: &Arc<str>, which: impl Fn(&QueuedPod) -> bool) -> bool {
        let Some(waiting) = self.waiting.get_mut(namespace) else { return false };
        let before = waiting.len();
        waiting.retain(|ticket| !which(ticket));
        let after = waiting.len();
        if after == 0 {
            self.waiting.remove(namespace);
        }
        after < before
    }
}

impl PodWait {
    /// Returns the reason and message of the condition `PodsPending`.
    pub(crate) fn message(&self, namespace: &str) -> (&'static str, String) {
        match self {
            Self::Namespace { before, most } => {
                let place = before + 1;
                (
                    reason::QUEUED,
                    format!(
                        "position {place} in the queue of namespace {namespace}, where at most {most} Pods of steps run at once"
                    ),
                )
            }
            Self::Workflow { before, most } => {
                let place = before + 1;
                (
                    reason::QUEUED,
                    format!("position {place} in the queue of its Workflow, which runs at most {most} Pods at once"),
                )
            }
            Self::Unknown => (reason::QUEUED, "the operator has not listed the Pods of this namespace yet".to_owned()),
            Self::PodsNotAllowed => (
                reason::PODS_NOT_ALLOWED,
                format!(
                    "the operator must not run Pods in namespace {namespace}: ask an administrator to allow it (--pod-namespace, --no-pods)"
                ),
            ),
        }
    }
}
