//! The source of notices: announced events become notices, and further notices are derived from stored objects if an
//! earlier process may not have sent them.
//!
//! **Invariant:** no reconcile waits for a notice.

mod condition;
mod config_maps;
mod fence;
mod occasion;
mod recovery;
mod unrouted;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use signoff_api::{
    Approval, Moment, Workflow,
    announce::{Announcement, Listener, StoredObject, TypedEvent},
    approval::ApprovalPhase,
    occurrence::{GateEvent, Occurrence},
};
use signoff_cluster::{
    kinds::{Name, ReconciledKind as _, uid},
    store::Found,
    workqueue::{Key, Queue},
};
use signoff_notify::{
    Notices, Occasion,
    config::FileState,
    delivery::{ChangedApprovals, Hold, Origin},
};
use tokio::time::Instant;

use crate::{cached_objects::CachedObjects, error::Error};
use recovery::{DerivedEvent, EventCondition, Recovery, TakenOutcome};
use unrouted::{UnroutedEvent, UnroutedEvents};

pub(crate) use condition::NotifiedState;
pub use config_maps::ConfigMapStore;
pub(crate) use fence::only_while;

/// The longest time between an outcome and its taking by the run that a recovery covers.
const TAKEN_WITHIN: Duration = Duration::from_secs(3600);
/// The largest age of an undelivered notice at the watermark. A notice is given up a day after it was queued, plus the
/// pause before its last attempt.
const OPEN_WITHIN: Duration = Duration::from_secs(26 * 3600);

/// The notices of a working operator, and the recovery of notices that an earlier process did not send.
pub(crate) struct NoticeDesk {
    notices: Arc<Notices>,
    /// The events of the first lists, or `None` when the lists are complete.
    recovery: Mutex<Option<Recovery>>,
    /// The events of namespaces that are not cached yet.
    unrouted: Mutex<UnroutedEvents>,
    /// The holds of objects whose last reconcile failed: a write may be stored although its answer was lost.
    unsure: Mutex<BTreeMap<Key, Hold>>,
}

/// A kind from whose stored objects notices are derived.
pub(crate) trait NoticeSource {
    /// Queues the notices of a stored object that may not have been queued.
    fn queue_derived(&self, scope: &NoticeScope<'_>);
}

/// The notices with the cached objects.
pub(crate) struct NoticeScope<'a> {
    pub(crate) desk: &'a NoticeDesk,
    pub(crate) objects: &'a CachedObjects,
    pub(crate) queue: &'a Queue,
}

impl NoticeDesk {
    /// Returns the desk of an operator before its first lists.
    pub(crate) fn new(notices: Arc<Notices>) -> Self {
        let recovery = Mutex::new(Some(Recovery::default()));
        Self { notices, recovery, unrouted: Mutex::default(), unsure: Mutex::default() }
    }

    fn lock_recovery(&self) -> MutexGuard<'_, Option<Recovery>> {
        self.recovery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_unrouted(&self) -> MutexGuard<'_, UnroutedEvents> {
        self.unrouted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the first lists are still incomplete.
    fn is_recovering(&self) -> bool {
        self.lock_recovery().is_some()
    }

    /// Holds the watermarks back while a reconcile may store something whose notice is queued later.
    pub(crate) fn hold(&self) -> Hold {
        self.notices.hold()
    }

    /// Ends the hold of a reconcile. After an error whose write may be stored, the hold lasts until a reconcile
    /// succeeds.
    pub(crate) fn end_hold(&self, key: Key, hold: Hold, reconciled: &Result<Option<Moment>, Error>) {
        let mut unsure = self.unsure.lock().unwrap_or_else(PoisonError::into_inner);
        match reconciled {
            Err(Error::Cluster(signoff_cluster::Error::Transient { .. })) => drop(unsure.entry(key).or_insert(hold)),
            Ok(_) | Err(_) => drop(unsure.remove(&key)),
        }
    }

    /// Returns the number of deliveries that wait, by channel.
    pub(crate) fn waiting(&self) -> BTreeMap<String, usize> {
        self.notices.waiting()
    }

    /// Returns the problem of the configuration, or `None`.
    pub(crate) fn problem(&self) -> Option<String> {
        match self.notices.file_state() {
            FileState::Current => None,
            FileState::Kept { why, until } => {
                Some(format!("notices go on with the configuration before the last until {until}: {why}"))
            }
            FileState::Stopped { why } => Some(format!("no notices are sent: {why}")),
        }
    }

    /// Whether a notice of a run waits to be delivered. [`Self::take_changed`] returns the run when no notice of
    /// the run waits any more.
    pub(crate) fn are_waiting(&self, run: &Name) -> bool {
        let is_unrouted = self.lock_unrouted().has_run(&run.namespace, &run.name);
        self.notices.are_waiting(&run.namespace, &run.name) || is_unrouted
    }

    /// Returns when [`NoticeScope::queue_unrouted`] is due, or `None` if no event waits for labels.
    pub(crate) fn unrouted_until(&self) -> Option<Instant> {
        self.lock_unrouted().until()
    }

    /// Waits until there is something for [`Self::take_changed`].
    pub(crate) async fn changed(&self) {
        self.notices.changed().await;
    }

    /// Returns the Approvals whose condition may have to change, and the runs without further waiting notices, each
    /// once.
    pub(crate) fn take_changed(&self) -> ChangedApprovals {
        self.notices.take_changed()
    }
}

impl NoticeScope<'_> {
    /// Ends the recovery, because all objects and namespaces were listed, and queues the notices of its events.
    pub(crate) fn end_recovery(&self) {
        let Some(recovery) = self.desk.lock_recovery().take() else { return };
        for occasion in recovery.into_occasions(self) {
            self.enqueue(occasion, Origin::Derived);
        }
        self.desk.notices.end_recovery();
    }

    /// Queues the notices of events whose namespaces are cached by now, or that have waited long enough.
    pub(crate) fn queue_unrouted(&self) {
        let is_known = |namespace: &str| self.objects.policies.labels(namespace).is_some();
        let ready = self.desk.lock_unrouted().take_ready(Instant::now(), is_known);
        self.queue_with_known_labels(ready);
    }

    /// Queues the notices of an event, or keeps it until the labels of its namespace are cached.
    fn enqueue(&self, occasion: Occasion, origin: Origin) {
        if let Some(labels) = self.objects.policies.labels(&occasion.namespace) {
            // The waiting events are earlier than the new event.
            self.queue_unrouted();
            return self.desk.notices.tell(&occasion, &labels, origin);
        }
        let event = UnroutedEvent::new(occasion, origin, self.desk.hold());
        let oldest = self.desk.lock_unrouted().add(event);
        self.queue_with_known_labels(oldest);
        // The event loop sets its timer for the new event.
        self.queue.wake_consumer();
    }

    /// Queues the notices of events, with the labels of their namespaces as far as they are cached.
    fn queue_with_known_labels(&self, events: Vec<UnroutedEvent>) {
        for event in events {
            let labels = self.objects.policies.labels(&event.occasion.namespace).unwrap_or_default();
            self.desk.notices.tell(&event.occasion, &labels, event.origin);
        }
    }

    /// Keeps an event until the first lists are complete, or queues its notices if they are.
    fn queue_or_keep(&self, event: DerivedEvent) {
        if !self.desk.is_recovering() {
            if let Some(occasion) = event.resolve(self, None) {
                self.enqueue(occasion, Origin::Derived);
            }
            return;
        }
        let wants_details = self.desk.notices.want_details();
        let dropped = self.desk.lock_recovery().as_mut().and_then(|recovery| recovery.add(event, wants_details));
        if let Some(occasion) = dropped {
            let labels = self.objects.policies.labels(&occasion.namespace).unwrap_or_default();
            self.desk.notices.count_dropped(&occasion, &labels);
        }
    }

    /// Whether a run exists and has not finished. A run that cannot be read counts as open.
    fn is_run_open(&self, run: &Name, uid: &str) -> bool {
        self.objects.workflows.is_open(run, uid)
            || self.objects.unreadable.reason(&Key::Workflow(run.clone())).is_some()
    }

    /// Whether a run is deleted or is being deleted, so that it takes no outcome.
    fn is_run_gone(&self, run: &Name, uid_of_run: &str) -> bool {
        match self.objects.workflows.find(run) {
            Found::Here(workflow) => {
                let is_deleted = workflow.metadata.deletion_timestamp.is_some()
                    || self.objects.deleted_namespaces.contain(&workflow.metadata);
                is_deleted || uid(&*workflow) != uid_of_run
            }
            Found::Finished { uid, .. } => uid != uid_of_run,
            Found::Stale => false,
            Found::NotFound => self.objects.unreadable.reason(&Key::Workflow(run.clone())).is_none(),
        }
    }

    /// Whether the notice of a cancellation comes from the Approval itself, because its run is gone.
    fn announces_cancellation(&self, approval: &Approval) -> bool {
        let run = &approval.spec.request.workflow;
        self.is_run_gone(&Name::of(approval).beside(&run.name), &run.uid) && !occasion::may_be_copy(approval)
    }
}

impl Listener for NoticeScope<'_> {
    fn on_announcement(&self, announcement: &Announcement<'_>) {
        let (Some(event), Some(object)) = (&announcement.event, announcement.object) else { return };
        let occasion = match (event, object) {
            (TypedEvent::Gate(gate), StoredObject::Approval(approval)) => {
                let is_cancelled = gate.event == GateEvent::Decided(ApprovalPhase::Cancelled);
                let has_notice = !is_cancelled || self.announces_cancellation(approval);
                has_notice.then(|| occasion::of_gate(gate, approval)).flatten()
            }
            (TypedEvent::Run(run), StoredObject::Workflow(workflow)) => occasion::of_run(run, workflow),
            (TypedEvent::Gate(_), StoredObject::Workflow(_)) | (TypedEvent::Run(_), StoredObject::Approval(_)) => None,
        };
        if let Some(occasion) = occasion {
            self.enqueue(occasion, Origin::Live);
        }
    }
}

impl NoticeSource for Approval {
    fn queue_derived(&self, scope: &NoticeScope<'_>) {
        let notices = &scope.desk.notices;
        if notices.has_open() {
            // A later event replaces earlier ones: the latest request, or the outcome.
            occasion::earlier_asks(self).iter().for_each(|key| notices.settle_open(uid(self), key));
        }
        if self.is_finished() { queue_end(self, scope) } else { queue_requests(self, scope) }
    }
}

/// Queues the notices of an open Approval. A copy from a backup, whose run is another object, gets none.
fn queue_requests(approval: &Approval, scope: &NoticeScope<'_>) {
    let notices = &scope.desk.notices;
    let asks = occasion::ASKS.into_iter().filter_map(|event| Occurrence::stored(event, approval));
    let due: Vec<_> = asks.filter(|gate| notices.may_be_due(&gate.uid, &gate.key, gate.at)).collect();
    // A changed request gets no notice. The digest is computed only if a notice is due.
    if due.is_empty() || approval.spec.request.is_changed() {
        return;
    }
    for gate in due {
        if let Some(occasion) = occasion::of_gate(&gate, approval) {
            let applies = EventCondition::RunIsOpen(approval.spec.request.workflow.uid.clone());
            scope.queue_or_keep(DerivedEvent { occasion, applies });
        }
    }
}

/// Queues the notices of an ended Approval: to voters whose votes are void, and of the outcome if its run has taken it.
fn queue_end(approval: &Approval, scope: &NoticeScope<'_>) {
    let notices = &scope.desk.notices;
    let Some(end) = Occurrence::end(approval) else { return };
    let may_be_due = |key: &str, at| notices.may_be_due(&end.uid, key, at);
    let is_voided = end.event == GateEvent::Superseded && may_be_due(occasion::VOIDED, end.at);
    let is_cancelled = end.event == GateEvent::Decided(ApprovalPhase::Cancelled)
        && may_be_due(occasion::TAKEN, end.at)
        && !occasion::may_be_copy(approval);
    let was_queued = notices.is_open(&end.uid, occasion::TAKEN);
    let is_recent = scope.desk.is_recovering() && may_be_due(occasion::TAKEN, end.at.after(TAKEN_WITHIN));
    let may_be_taken = is_cancelled || was_queued || is_recent;
    if !(is_voided || may_be_taken) || approval.spec.request.is_changed() {
        return;
    }
    if is_voided && let Some(occasion) = occasion::of_gate(&end, approval) {
        scope.queue_or_keep(DerivedEvent { occasion, applies: EventCondition::Always });
    }
    if may_be_taken && let Some(occasion) = occasion::notice_of_end(approval, end.at) {
        let run = approval.spec.request.workflow.uid.clone();
        let applies = EventCondition::IsTaken { run, was_queued, is_cancelled };
        scope.queue_or_keep(DerivedEvent { occasion, applies });
    }
}

impl NoticeSource for Workflow {
    fn queue_derived(&self, scope: &NoticeScope<'_>) {
        let notices = &scope.desk.notices;
        if let Some(ended) = Occurrence::ended(self).filter(|run| notices.may_be_due(&run.uid, &run.key, run.at))
            && let Some(occasion) = occasion::of_run(&ended, self)
        {
            scope.queue_or_keep(DerivedEvent { occasion, applies: EventCondition::Always });
        }
        // A copy from a backup causes no notices about outcomes of the original.
        if self.is_restored() {
            return;
        }
        let (name, uid) = (Name::of(self), uid(self));
        let is_recovering = scope.desk.is_recovering();
        // Outcomes of notices that are still open are read again, because only the run has them.
        let within = if notices.has_open() { OPEN_WITHIN } else { Duration::ZERO };
        for record in self.status.iter().flat_map(|status| &status.steps) {
            let (Some(object), Some(outcome), Some(at)) = (&record.object, &record.decision, record.finished_at) else {
                continue;
            };
            // The record has no uid of the Approval, so only the time shows whether a notice may be due.
            if !notices.may_be_due("", "", at.after(within)) {
                continue;
            }
            let (approval, phase) = (name.beside(object), outcome.phase);
            if is_recovering {
                let taken = TakenOutcome { run: uid.to_owned(), phase, at };
                if let Some(recovery) = scope.desk.lock_recovery().as_mut() {
                    recovery.add_taken(&approval, taken);
                }
            } else if let Found::Here(approval) = scope.objects.approvals.find(&approval)
                && approval.spec.request.workflow.uid == uid
                && let Some(occasion) = occasion::notice_of_outcome(&approval, phase, at)
            {
                scope.enqueue(occasion, Origin::Derived);
            }
        }
    }
}

#[cfg(test)]
mod desk_tests;
#[cfg(test)]
mod tests;
