//! Whether a run is withdrawn: nothing new starts for it, and no timeout ends a gate of it.
//!
//! The caches know it from the watches of Workflows and Namespaces, which may lag. Before what cannot be taken back, which is the
//! expiry of a gate and a call that must not be repeated, the API server is asked too *(I/O)*.

use std::time::Duration;

use signoff_api::Workflow;
use signoff_cluster::{
    kinds::{DecodedKind as _, Name, ReconciledKind as _, uid as uid_of},
    store::Found,
};
use signoff_engine::transition::{Call, CallContent};
use tokio::time::sleep;

use crate::{context::Context, error::Error};

/// The first and the longest pause between two questions whether a call may begin.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));

/// The way in which a run was withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// By `spec.cancel`.
    Cancelled,
    /// By the deletion of its Workflow or of its namespace.
    Deleted,
}

/// A run as it was when somebody judged that it goes on.
pub(crate) struct RunVersion<'a> {
    pub(crate) name: &'a Name,
    pub(crate) uid: &'a str,
    /// The generation of its spec.
    pub(crate) generation: Option<i64>,
}

impl Context {
    /// Returns the way in which a run was withdrawn, as far as the object and the watch of namespaces tell, or `None`.
    pub(crate) fn withdrawal(&self, workflow: &Workflow) -> Option<Withdrawal> {
        let namespace = workflow.metadata.namespace.as_deref().unwrap_or_default();
        if workflow.metadata.deletion_timestamp.is_some() || self.deleted_namespaces.contains(namespace) {
            return Some(Withdrawal::Deleted);
        }
        (workflow.spec.cancel == Some(true)).then_some(Withdrawal::Cancelled)
    }

    /// Wakes every evaluation that waits or runs, because an object was withdrawn.
    pub(crate) fn wake_evaluations(&self) {
        self.withdrawals.notify_waiters();
    }

    /// Waits until the evaluation of an object is useless: what was done to the object or to its run needs none.
    pub(crate) async fn until_useless(&self, observed: &ObservedObject) {
        loop {
            let news = self.withdrawals.notified();
            if self.is_useless(observed) {
                return;
            }
            news.await;
        }
    }

    /// Whether the evaluation of an object is useless.
    pub(crate) fn is_useless(&self, observed: &ObservedObject) -> bool {
        let ObservedObject { kind, name, uid, is_cancelled, is_suspect } = observed;
        if *kind == Workflow::KIND {
            return self.is_run_over(name, uid, |workflow| match self.withdrawal(workflow) {
                Some(Withdrawal::Cancelled) => !is_cancelled,
                Some(Withdrawal::Deleted) => true,
                None => *is_suspect && workflow.spec.suspend == Some(true),
            });
        }
        match self.approvals.find(name) {
            Found::Here(approval) if uid_of(&*approval) == uid && !approval.is_finished() => {
                let run = &approval.spec.request.workflow;
                self.is_run_over(&name.beside(&run.name), &run.uid, |workflow| self.withdrawal(workflow).is_some())
            }
            found => !matches!(found, Found::Stale),
        }
    }

    fn is_run_over(&self, name: &Name, run: &str, is_withdrawn: impl Fn(&Workflow) -> bool) -> bool {
        match self.workflows.find(name) {
            Found::Here(workflow) => uid_of(&*workflow) != run || workflow.is_finished() || is_withdrawn(&workflow),
            Found::Stale => self.deleted_namespaces.contains(&name.namespace),
            Found::Finished { .. } | Found::NotFound => true,
        }
    }

    /// Asks the API server whether a run is still as it was judged: not changed, not deleted, and its namespace not either.
    /// What the answers say otherwise is known to the next reconcile.
    pub(crate) async fn still_stands(&self, run: &RunVersion<'_>) -> Result<bool, Error> {
        let RunVersion { name, uid, generation } = run;
        let (namespace, workflow) =
            tokio::join!(self.requests.namespace(&name.namespace), self.requests.metadata::<Workflow>(name));
        if let Some(meta) = namespace? {
            self.deleted_namespaces.record(&meta);
        }
        let is_same = workflow?.is_some_and(|meta| {
            meta.uid.as_deref() == Some(uid) && meta.generation == *generation && meta.deletion_timestamp.is_none()
        });
        if !is_same {
            self.workflows.mark_stale(name);
        }
        Ok(is_same && !self.deleted_namespaces.contains(&name.namespace))
    }

    /// Waits until it is certain whether a call may begin whose start is committed. The API server is asked where the call must not be
    /// repeated. For a call that can be repeated, and for a Pod, which the API server refuses in such a namespace, the caches suffice.
    pub(crate) async fn may_begin(&self, run: &RunVersion<'_>, call: &Call) -> bool {
        let is_withdrawn = |workflow: &Workflow| self.withdrawal(workflow).is_some();
        let mut pause = PAUSES.0;
        loop {
            if self.is_run_over(run.name, run.uid, is_withdrawn) {
                return false;
            }
            if call.idempotent || matches!(call.content, CallContent::Pod(_)) {
                return true;
            }
            match self.still_stands(run).await {
                Ok(stands) => return stands,
                Err(error) => {
                    tracing::warn!(workflow = %run.name, path = call.path, "the call does not begin: {error}")
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

/// An object whose text is evaluated, as it was observed.
pub(crate) struct ObservedObject {
    pub(crate) kind: &'static str,
    pub(crate) name: Name,
    pub(crate) uid: String,
    /// Whether its run was cancelled already.
    pub(crate) is_cancelled: bool,
    /// Whether it may have ended the process before this one: it waits long, and its suspension needs no evaluation either.
    pub(crate) is_suspect: bool,
}
