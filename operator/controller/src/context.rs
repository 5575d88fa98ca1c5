//! The context of every reconcile: clients, caches and queues.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::Value;
use signoff_api::{Approval, Moment, Workflow, announce::Listener};
use signoff_cluster::{
    ServerClock,
    events::Reporter,
    fair_budget::FairBudget,
    kinds::{Name, ReconciledKind},
    lease::LeaseGuard,
    requests::{AnswerForm, ApiRequests},
    status_writer::{StatusWriter, read_newest},
    store::Store,
    workqueue::{Key, Queue},
};
use signoff_engine::{JournalLimits, Settings, transition::Call};
use signoff_executor::{BlobStore, Evaluator, Owner, RunRef, Stopped, Subject};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    caches::{ConfirmedOutcomes, PartialTallies, PlanCache, SegmentCache},
    call_slots::{CallSlot, CallSlots},
    deleted_namespaces::DeletedNamespaces,
    error::Error,
    evaluating::EvaluatingReconciles,
    guard::{ConfirmScope, GuardStatus, Recheck},
    in_flight::Runs,
    metrics::SharedMetrics,
    notices::{NoticeDesk, NoticeScope, NoticeSource},
    pods::{PodIndex, PodQuota, PodSlot},
    policy_index::PolicyIndex,
    quarantine::Quarantines,
    stalls::Stalls,
    unreadable::UnreadableObjects,
    value_quota::ValueQuota,
    withdrawal::{EvaluationStage, ObservedObject, Orders, Withdrawals},
};

/// A call to be started, with its slot.
pub(crate) struct CallStart {
    pub(crate) name: Name,
    pub(crate) run: RunRef,
    pub(crate) call: Call,
    /// The generation of the Workflow's spec by which it starts.
    pub(crate) generation: Option<i64>,
    pub(crate) hold: StartSlot,
}

/// The slot of a call; free again when this is dropped.
pub(crate) enum StartSlot {
    /// Of a call that this process makes.
    Call(CallSlot),
    /// Of a Pod; and whether that was certainly never made before.
    Pod { _slot: PodSlot, begins: bool },
}

/// The clients, caches and queues that every reconcile shares.
pub(crate) struct Context {
    pub(crate) requests: ApiRequests,
    pub(crate) clock: ServerClock,
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) settings: Settings,
    pub(crate) incarnation: String,
    pub(crate) workflows: Store<Workflow>,
    pub(crate) approvals: Store<Approval>,
    pub(crate) policies: PolicyIndex,
    pub(crate) deleted_namespaces: DeletedNamespaces,
    /// The evaluations that wait or run.
    pub(crate) withdrawals: Withdrawals,
    pub(crate) unreadable: UnreadableObjects,
    pub(crate) queue: Queue,
    /// The objects whose last reconcile failed.
    pub(crate) stalls: Stalls,
    pub(crate) runs: Runs,
    pub(crate) plans: PlanCache,
    /// The threads on which text of users is evaluated.
    pub(crate) evaluator: Evaluator,
    /// The reconciles that wait for an evaluation.
    pub(crate) evaluating: EvaluatingReconciles,
    pub(crate) quarantines: Quarantines,
    pub(crate) segments: SegmentCache,
    /// The limits of the part of a journal that stays in its Workflow.
    pub(crate) journal_limits: JournalLimits,
    /// The slots for calls.
    pub(crate) call_slots: Arc<CallSlots>,
    /// The bytes of calls beside their own, of logs and of results that are not committed.
    pub(crate) call_bytes: Arc<FairBudget>,
    /// The quota for long values.
    pub(crate) value_quota: ValueQuota,
    /// The index of the Pods of steps.
    pub(crate) pods: Arc<PodIndex>,
    /// The quota for Pods.
    pub(crate) pod_quota: Arc<PodQuota>,
    pub(crate) guard: watch::Receiver<GuardStatus>,
    pub(crate) recheck: Recheck,
    /// Outcomes that this process has confirmed and written, and no run has taken yet.
    pub(crate) confirmed_outcomes: ConfirmedOutcomes,
    /// The times of partial tallies.
    pub(crate) partial_tallies: PartialTallies,
    pub(crate) lease_guard: LeaseGuard,
    pub(crate) starts: mpsc::UnboundedSender<CallStart>,
    pub(crate) reporter: Reporter,
    /// Further listeners, beside Kubernetes Events and metrics.
    pub(crate) listeners: Vec<Arc<dyn Listener>>,
    /// The notices; `None` where the administrator has configured none.
    pub(crate) notices: Option<NoticeDesk>,
    pub(crate) metrics: SharedMetrics,
    /// Whether the operator is stopping: no new call starts.
    pub(crate) draining: AtomicBool,
}

impl Context {
    pub(crate) fn now(&self) -> Moment {
        self.clock.now().into()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns how many bytes an object takes in memory while it is reconciled, as far as it is known.
    pub(crate) fn memory_of(&self, key: &Key) -> usize {
        match key {
            Key::Workflow(name) => self.workflows.memory_of(name),
            Key::Approval(name) => self.approvals.memory_of(name),
        }
    }

    /// Evaluates text of an object on a thread for that. The evaluation ends with the object, or when its run is
    /// withdrawn or suspended, and does not begin where the object has changed. `orders`: those that the evaluation is
    /// about.
    ///
    /// # Errors
    /// The evaluation was stopped.
    pub(crate) async fn evaluate<K: ReconciledKind, T: Send + 'static>(
        &self,
        object: &K,
        orders: Orders,
        work: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<T, Stopped> {
        let subject = subject(object);
        let is_suspect = self.evaluator.is_suspect(&subject);
        let observed = ObservedObject {
            kind: K::KIND,
            name: Name::of(object),
            uid: subject.uid.clone(),
            generation: subject.generation,
            orders,
            is_suspect,
        };
        if self.is_useless(&observed, EvaluationStage::Begins) {
            return Err(Stopped::Withdrawn);
        }
        if self.evaluator.is_inline() {
            return self.evaluator.run(subject, work).await;
        }
        // One that waits here leaves its place to others.
        let _waiting = self.evaluating.begin(&observed.name.namespace);
        self.queue.wake_consumer();
        let result = tokio::select! {
            biased;
            result = self.evaluator.run_repeatable(subject, work) => result,
            () = self.until_useless(&observed) => return Err(Stopped::Withdrawn),
        };
        if let Err(why) = &result {
            self.metrics.count_stop(K::KIND, crate::quarantine::reason(why));
        }
        result
    }

    /// Whether the process before this one ended while it evaluated this object.
    pub(crate) fn is_suspect<K: ReconciledKind>(&self, object: &K) -> bool {
        self.evaluator.is_suspect(&subject(object))
    }

    /// Removes an object from the suspects: every evaluation that its reconcile needs has finished, or it needs none.
    pub(crate) fn clear_suspect<K: ReconciledKind>(&self, name: &Name, uid: &str) {
        let text = |text: &str| text.to_owned();
        let (namespace, name) = (text(&name.namespace), text(&name.name));
        self.evaluator.clear(&Subject { kind: text(K::KIND), namespace, name, uid: text(uid), generation: 0 });
    }

    /// Ends the quarantine of an object.
    pub(crate) fn end_quarantine(&self, key: &Key) {
        if self.quarantines.remove(key) {
            self.metrics.set_quarantined(self.quarantines.count());
        }
    }

    pub(crate) fn enqueue_workflow(&self, name: Name) {
        self.queue.trigger(Key::Workflow(name));
    }

    /// Has the open runs of these namespaces reconciled.
    pub(crate) fn enqueue_runs_of(&self, namespaces: &[Arc<str>]) {
        if namespaces.is_empty() {
            return;
        }
        for name in self.workflows.open() {
            if namespaces.contains(&name.namespace) {
                self.enqueue_workflow(name);
            }
        }
    }

    pub(crate) fn enqueue_approval(&self, name: Name) {
        self.queue.trigger(Key::Approval(name));
    }

    /// Whether the policies that verify decisions were in force, in this epoch, until after what is known now was
    /// stored.
    pub(crate) async fn confirms(&self, what: ConfirmScope, epoch: &str) -> Result<bool, Error> {
        self.recheck
            .is_in_force(epoch, what)
            .await
            .map_err(Error::of("asking whether the admission policies are still in force"))
    }

    /// Whether an answer of the API server since an instant says that a moment has come. Asks for one where no answer
    /// does.
    pub(crate) async fn has_come(&self, moment: Moment, since: Instant) -> Result<bool, Error> {
        let says_so = || self.clock.date_since(since).is_some_and(|date| Moment::from(date) >= moment);
        if !says_so() {
            self.requests.ask_time().await?;
        }
        Ok(says_so())
    }

    /// Returns how much the answer to a write must hold. It is the whole object unless the policies are in force and
    /// nothing is known that could change what is sent on its way.
    pub(crate) fn answer_form(&self) -> AnswerForm {
        match &*self.guard.borrow() {
            GuardStatus::InForce(guarded) if guarded.external_mutators.is_empty() => AnswerForm::Metadata,
            _ => AnswerForm::Whole,
        }
    }

    /// Returns the notices with what is known of their objects; `None` where the administrator has configured none.
    pub(crate) fn notices(&self) -> Option<NoticeScope<'_>> {
        let desk = self.notices.as_ref()?;
        Some(NoticeScope {
            desk,
            policies: &self.policies,
            workflows: &self.workflows,
            approvals: &self.approvals,
            unreadable: &self.unreadable,
            deleted_namespaces: &self.deleted_namespaces,
            queue: &self.queue,
        })
    }

    /// Waits until there is something for [`Self::enqueue_notified`].
    pub(crate) async fn notices_changed(&self) {
        match &self.notices {
            Some(desk) => desk.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Returns when [`Self::tell_unrouted`] is due; `None` where no event waits for the labels of its namespace.
    pub(crate) fn unrouted_until(&self) -> Option<Instant> {
        self.notices.as_ref().and_then(NoticeDesk::unrouted_until)
    }

    /// Tells the events whose namespaces are known by now, or were waited for long enough.
    pub(crate) fn tell_unrouted(&self) {
        if let Some(notices) = self.notices() {
            notices.tell_unrouted();
        }
    }

    /// Has the Approvals reconciled whose condition `Notified` may have to change, and the runs whose deletion waited
    /// for their notices.
    pub(crate) fn enqueue_notified(&self) {
        let Some(changed) = self.notices.as_ref().map(NoticeDesk::take_changed) else { return };
        for (namespace, name) in &changed.runs {
            self.enqueue_workflow(Name::new(namespace, name));
        }
        if changed.is_reloaded {
            self.approvals.open().into_iter().for_each(|name| self.enqueue_approval(name));
            return;
        }
        for (namespace, name) in &changed.names {
            self.enqueue_approval(Name::new(namespace, name));
        }
    }

    /// Reads the newest version of an object into its cache, and returns it. The answer to a write of it may have been
    /// lost, and then nothing has told its notices.
    pub(crate) async fn fresh<K: ReconciledKind + NoticeSource>(
        &self,
        store: &Store<K>,
        name: &Name,
    ) -> Result<Option<Arc<K>>, Error> {
        let object = read_newest(&self.requests, store, name).await?;
        if let (Some(notices), Some(object)) = (self.notices(), &object) {
            object.tell_derived(&notices);
        }
        Ok(object)
    }

    /// Writes a status, fenced by the Lease and the version of `observed`; see [`StatusWriter::write`].
    pub(crate) async fn write_status<K: ReconciledKind>(
        &self,
        store: &Store<K>,
        observed: &K,
        next: K::Status,
        tests: Vec<Value>,
    ) -> Result<Arc<K>, Error> {
        let writer =
            StatusWriter { requests: &self.requests, store, lease_guard: &self.lease_guard, form: self.answer_form() };
        Ok(writer.write(observed, next, tests).await?)
    }
}

fn subject<K: ReconciledKind>(object: &K) -> Subject {
    let meta = object.meta();
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Subject {
        kind: K::KIND.to_owned(),
        namespace: text(&meta.namespace),
        name: text(&meta.name),
        uid: text(&meta.uid),
        generation: meta.generation.unwrap_or_default(),
    }
}

/// Returns the owner of a Workflow's long values.
pub(crate) fn owner(name: &Name, uid: &str) -> Owner {
    Owner { namespace: name.namespace.to_string(), workflow: name.name.to_string(), uid: uid.to_owned() }
}
