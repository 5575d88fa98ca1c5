//! The withdrawal of runs by cancellation or deletion: nothing new starts for a withdrawn run, and no timeout ends its
//! gates.
//!
//! The caches show a withdrawal by the watches of Workflows and Namespaces, which may lag. Before an irreversible step,
//! such as the expiry of a gate or a call that must not be repeated, the API server is asked too *(I/O)*.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{EventReason, Workflow, announce::About};
use signoff_cluster::{
    kinds::{DecodedKind as _, Name, ReconciledKind as _, uid as uid_of},
    store::Found,
};
use signoff_engine::transition::Call;
use tokio::{sync::Notify, time::sleep};

use crate::{cached_objects::CachedObjects, context::Context, error::Error, stalls::REPORTED_AFTER};

/// The first and the longest pause between two checks whether a call may begin.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));

/// The way in which a run was withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// By `spec.cancel`.
    Cancelled,
    /// By the deletion of its Workflow or of its namespace.
    Deleted,
}

/// The version of a run in which the operator decided that it continues.
pub(crate) struct RunVersion<'a> {
    pub(crate) name: &'a Name,
    pub(crate) uid: &'a str,
    /// The generation of its spec.
    pub(crate) generation: Option<i64>,
}

impl CachedObjects {
    /// Returns the way in which a run was withdrawn according to its object and the watch of namespaces, or `None`.
    pub(crate) fn withdrawal(&self, workflow: &Workflow) -> Option<Withdrawal> {
        if workflow.metadata.deletion_timestamp.is_some() || self.deleted_namespaces.contain(&workflow.metadata) {
            return Some(Withdrawal::Deleted);
        }
        (workflow.spec.cancel == Some(true)).then_some(Withdrawal::Cancelled)
    }

    /// Whether the evaluation of an object is useless, because the object or its run has changed.
    pub(crate) fn is_useless(&self, observed: &ObservedObject, stage: EvaluationStage) -> bool {
        let ObservedObject { kind, name, uid, generation, orders, is_suspect } = observed;
        let is_outdated =
            |meta: &ObjectMeta| stage == EvaluationStage::Begins && meta.generation.unwrap_or_default() != *generation;
        if *kind == Workflow::KIND {
            return self.is_run_over(name, uid, |workflow| match self.withdrawal(workflow) {
                _ if is_outdated(&workflow.metadata) => true,
                Some(Withdrawal::Cancelled) => !orders.cancel,
                Some(Withdrawal::Deleted) => true,
                None => workflow.spec.suspend == Some(true) && (*is_suspect || !orders.suspend),
            });
        }
        match self.approvals.find(name) {
            Found::Here(approval) if uid_of(&*approval) == uid && is_outdated(&approval.metadata) => true,
            Found::Here(approval) if uid_of(&*approval) == uid && !approval.is_finished() => {
                let run = &approval.spec.request.workflow;
                self.is_run_over(&name.beside(&run.name), &run.uid, |workflow| self.withdrawal(workflow).is_some())
            }
            found => !matches!(found, Found::Stale),
        }
    }

    /// Whether a run has ended, was deleted, or is withdrawn according to `is_withdrawn`.
    fn is_run_over(&self, name: &Name, run: &str, is_withdrawn: impl Fn(&Workflow) -> bool) -> bool {
        match self.workflows.find(name) {
            Found::Here(workflow) => uid_of(&*workflow) != run || workflow.is_finished() || is_withdrawn(&workflow),
            // A stale object is read again before its reconcile acts.
            Found::Stale => false,
            Found::Finished { .. } | Found::NotFound => true,
        }
    }
}

impl Context {
    /// Waits until the evaluation of an object is useless, because the object or its run has changed.
    pub(crate) async fn until_useless(&self, observed: &ObservedObject) {
        let withdrawals = self.evaluations.withdrawals.notifier_of(&observed.name.namespace);
        loop {
            let news = withdrawals.notified();
            if self.objects.is_useless(observed, EvaluationStage::Runs) {
                return;
            }
            news.await;
        }
    }

    /// Asks the API server whether a run still has the given version, and neither the run nor its namespace is being
    /// deleted. If not, the caches are updated for the next reconcile.
    pub(crate) async fn still_stands(&self, run: &RunVersion<'_>) -> Result<bool, Error> {
        let RunVersion { name, uid, generation } = run;
        let (namespace, workflow) =
            tokio::join!(self.api.requests.namespace(&name.namespace), self.api.requests.metadata::<Workflow>(name));
        let Some(namespace) = namespace? else {
            return Err(Error::conflict(format!("Namespace {}, which is not there", name.namespace)));
        };
        let news = self.objects.deleted_namespaces.record(&namespace);
        self.on_news_of_deletions(news.as_slice());
        let stands = workflow?.is_some_and(|meta| {
            meta.uid.as_deref() == Some(uid)
                && meta.generation == *generation
                && meta.deletion_timestamp.is_none()
                && !self.objects.deleted_namespaces.contain(&meta)
        });
        if !stands {
            self.objects.workflows.mark_stale(name);
        }
        Ok(stands)
    }

    /// Enqueues the runs of namespaces whose deletion has begun or is over, and wakes their evaluations.
    pub(crate) fn on_news_of_deletions(&self, namespaces: &[Arc<str>]) {
        namespaces.iter().for_each(|namespace| self.evaluations.withdrawals.wake(namespace));
        self.enqueue_runs_of(namespaces);
    }

    /// Waits until it is certain whether a call with a committed start may begin, and announces a long wait. Asks the
    /// API server if the call must not be repeated or if the cached run is stale. After the answer, this operator must
    /// still hold the Lease. `is_followed`: whether the call has begun before, so that nothing begins.
    pub(crate) async fn may_begin(&self, run: &RunVersion<'_>, call: &Call, is_followed: bool) -> bool {
        let is_withdrawn = |workflow: &Workflow| self.objects.withdrawal(workflow).is_some();
        let (since, mut pause, mut is_announced) = (self.api.now(), PAUSES.0, false);
        loop {
            if self.objects.is_run_over(run.name, run.uid, is_withdrawn) {
                return false;
            }
            if is_followed {
                return true;
            }
            let is_known = call.idempotent && !matches!(self.objects.workflows.find(run.name), Found::Stale);
            let stands = if is_known { Ok(true) } else { self.still_stands(run).await };
            let why = match stands {
                Ok(false) => return false,
                Ok(true) if self.api.lease_guard.is_valid() => return true,
                Ok(true) => "the Lease may be another operator's".to_owned(),
                Err(error) => error.to_string(),
            };
            tracing::warn!(workflow = %run.name, path = call.path, "the call does not begin: {why}");
            if !is_announced && self.api.now() >= since.after(REPORTED_AFTER) {
                is_announced = true;
                self.announce_delayed_call(run, call, &why);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Announces on a run that a call does not begin for now.
    fn announce_delayed_call(&self, run: &RunVersion<'_>, call: &Call, why: &str) {
        let meta = ObjectMeta {
            name: Some(run.name.name.to_string()),
            namespace: Some(run.name.namespace.to_string()),
            uid: Some(run.uid.to_owned()),
            ..ObjectMeta::default()
        };
        let note =
            format!("step {}: its call begins when the API server says that the run still stands: {why}", call.path);
        let key = format!("{}/{}/does-not-begin", call.path, call.attempt);
        self.say(About::Workflow(&meta), EventReason::Stalled, &note, &key);
    }
}

/// The wakers of evaluations, by namespace. They are woken if an object of their own namespace is withdrawn, so that
/// tenants do not wake each other's evaluations.
#[derive(Default)]
pub(crate) struct Withdrawals {
    waiting: Mutex<BTreeMap<Arc<str>, Weak<Notify>>>,
}

impl Withdrawals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Weak<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the notifier of the withdrawals in a namespace, which is shared while it is in use.
    fn notifier_of(&self, namespace: &Arc<str>) -> Arc<Notify> {
        let mut waiting = self.lock();
        if let Some(known) = waiting.get(namespace).and_then(Weak::upgrade) {
            return known;
        }
        waiting.retain(|_, notify| notify.strong_count() > 0);
        let notify = Arc::new(Notify::new());
        waiting.insert(Arc::clone(namespace), Arc::downgrade(&notify));
        notify
    }

    /// Wakes the evaluations of a namespace.
    pub(crate) fn wake(&self, namespace: &str) {
        if let Some(notify) = self.lock().get(namespace).and_then(Weak::upgrade) {
            notify.notify_waiters();
        }
    }
}

/// The orders of a run's requester. An evaluation of the run ends if they change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Orders {
    pub(crate) cancel: bool,
    pub(crate) suspend: bool,
}

impl Orders {
    pub(crate) fn of(workflow: &Workflow) -> Self {
        let is_true = |order: Option<bool>| order == Some(true);
        Self { cancel: is_true(workflow.spec.cancel), suspend: is_true(workflow.spec.suspend) }
    }
}

/// The stage of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvaluationStage {
    /// The evaluation is about to begin. If the object has another spec or other votes by now, the object is observed
    /// again, because the result could not be written.
    Begins,
    /// The evaluation waits or runs. Other votes do not end the evaluation, because a person who votes repeatedly could
    /// otherwise prevent the count.
    Runs,
}

/// An object whose text is evaluated, as it was observed.
pub(crate) struct ObservedObject {
    pub(crate) kind: &'static str,
    pub(crate) name: Name,
    pub(crate) uid: String,
    /// The generation of its spec.
    pub(crate) generation: i64,
    /// The orders of its requester at that time.
    pub(crate) orders: Orders,
    /// Whether its evaluation may have ended the previous process. An evaluation of such an object waits long, and a
    /// suspension of the run needs no evaluation.
    pub(crate) is_suspect: bool,
}
