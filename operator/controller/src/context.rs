//! The context of every reconcile, in parts by who uses them together.
//!
//! * `api_server`: requests, the clock, the Lease and the guard
//! * `calls`: the calls and Pods of runs, with their slots and memory
//! * `evaluations`: the evaluations of users' text, and quarantines
//! * `listeners`: Kubernetes Events, notices and further listeners
//! * `long_values`: the store of long values, and their limits
//! * `crate::cached_objects`, `crate::caches`: the objects of the watches, and the caches of plans, segments and
//!   outcomes

mod api_server;
mod calls;
mod evaluations;
mod listeners;
mod long_values;

use std::sync::Arc;

use signoff_cluster::{
    kinds::{Name, ReconciledKind},
    status_writer::read_newest,
    store::Store,
    workqueue::{Key, Queue},
};
use signoff_engine::Settings;
use signoff_executor::Stopped;

use crate::{
    cached_objects::CachedObjects,
    caches::Caches,
    error::Error,
    metrics::SharedMetrics,
    notices::{NoticeDesk, NoticeScope, NoticeSource},
    stalls::Stalls,
    withdrawal::{EvaluationStage, ObservedObject, Orders},
};

pub(crate) use api_server::ApiServer;
pub(crate) use calls::{CallStart, Calls, StartSlot};
pub(crate) use evaluations::Evaluations;
pub(crate) use listeners::Listeners;
pub(crate) use long_values::{LongValues, ReadMemory, owner};

/// The clients, caches and queues that every reconcile shares.
pub(crate) struct Context {
    pub(crate) api: ApiServer,
    pub(crate) objects: CachedObjects,
    pub(crate) queue: Queue,
    /// The objects whose last reconcile failed.
    pub(crate) stalls: Stalls,
    pub(crate) calls: Calls,
    pub(crate) values: LongValues,
    pub(crate) evaluations: Evaluations,
    pub(crate) caches: Caches,
    pub(crate) listeners: Listeners,
    pub(crate) metrics: SharedMetrics,
    /// The administrator's settings for all runs.
    pub(crate) settings: Settings,
}

impl Context {
    /// Evaluates text of an object on a thread for evaluations. The evaluation ends with the object, or when its run is
    /// withdrawn or suspended, and does not begin if the object has changed. `orders`: the orders that the evaluation
    /// takes into account.
    ///
    /// # Errors
    /// The evaluation was stopped.
    pub(crate) async fn evaluate<K: ReconciledKind, T: Send + 'static>(
        &self,
        object: &K,
        orders: Orders,
        work: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<T, Stopped> {
        let Evaluations { evaluator, waiting, .. } = &self.evaluations;
        let subject = evaluations::subject(object);
        let is_suspect = evaluator.is_suspect(&subject);
        let observed = ObservedObject {
            kind: K::KIND,
            name: Name::of(object),
            uid: subject.uid.clone(),
            generation: subject.generation,
            orders,
            is_suspect,
        };
        if self.objects.is_useless(&observed, EvaluationStage::Begins) {
            return Err(Stopped::Withdrawn);
        }
        if evaluator.is_inline() {
            return evaluator.run(subject, work).await;
        }
        // While this reconcile waits, another reconcile can start in its place.
        let _waiting = waiting.begin(&observed.name.namespace);
        self.queue.wake_consumer();
        let result = tokio::select! {
            biased;
            result = evaluator.run_repeatable(subject, work) => result,
            () = self.until_useless(&observed) => return Err(Stopped::Withdrawn),
        };
        if let Err(why) = &result {
            self.metrics.count_stop(K::KIND, crate::quarantine::reason(why));
        }
        result
    }

    /// Enqueues a Workflow.
    pub(crate) fn enqueue_workflow(&self, name: Name) {
        self.queue.trigger(Key::Workflow(name));
    }

    /// Enqueues an Approval.
    pub(crate) fn enqueue_approval(&self, name: Name) {
        self.queue.trigger(Key::Approval(name));
    }

    /// Enqueues the open runs of the given namespaces.
    pub(crate) fn enqueue_runs_of(&self, namespaces: &[Arc<str>]) {
        if namespaces.is_empty() {
            return;
        }
        for name in self.objects.workflows.open() {
            if namespaces.contains(&name.namespace) {
                self.enqueue_workflow(name);
            }
        }
    }

    /// Returns the notices with the cached objects, or `None` if the administrator has configured no notices.
    pub(crate) fn notices(&self) -> Option<NoticeScope<'_>> {
        let desk = self.listeners.notices.as_ref()?;
        Some(NoticeScope { desk, objects: &self.objects, queue: &self.queue })
    }

    /// Queues the notices of events whose namespaces are cached by now, or that have waited long enough.
    pub(crate) fn queue_unrouted(&self) {
        if let Some(notices) = self.notices() {
            notices.queue_unrouted();
        }
    }

    /// Enqueues the Approvals whose condition `Notified` may have to change, and the runs whose deletion waited for
    /// their notices.
    pub(crate) fn enqueue_notified(&self) {
        let Some(changed) = self.listeners.notices.as_ref().map(NoticeDesk::take_changed) else { return };
        for (namespace, name) in &changed.runs {
            self.enqueue_workflow(Name::new(namespace, name));
        }
        if changed.is_reloaded {
            self.objects.approvals.open().into_iter().for_each(|name| self.enqueue_approval(name));
            return;
        }
        for (namespace, name) in &changed.names {
            self.enqueue_approval(Name::new(namespace, name));
        }
    }

    /// Reads the newest version of an object into its cache, and returns it. Also queues its notices, which are missing
    /// if the answer to an earlier write was lost.
    pub(crate) async fn read_fresh<K: ReconciledKind + NoticeSource>(
        &self,
        store: &Store<K>,
        name: &Name,
    ) -> Result<Option<Arc<K>>, Error> {
        let object = read_newest(&self.api.requests, store, name).await?;
        if let (Some(notices), Some(object)) = (self.notices(), &object) {
            object.queue_derived(&notices);
        }
        Ok(object)
    }
}
