//! The API server: requests to it, its clock, and the conditions under which decisions count and statuses are written
//! *(I/O)*.

use std::sync::Arc;

use serde_json::Value;
use signoff_api::Moment;
use signoff_cluster::{
    ServerClock,
    kinds::ReconciledKind,
    lease::LeaseGuard,
    requests::{AnswerForm, ApiRequests},
    status_writer::StatusWriter,
    store::Store,
};
use tokio::{sync::watch, time::Instant};

use crate::{
    error::Error,
    guard::{ConfirmScope, GuardStatus, Recheck},
};

/// The API server, with the Lease and the guard under which this operator acts.
pub(crate) struct ApiServer {
    pub(crate) requests: ApiRequests,
    pub(crate) clock: ServerClock,
    /// The fence of every write: whether this operator still holds its Lease.
    pub(crate) lease_guard: LeaseGuard,
    /// The status of the admission policies, as the guard last published it.
    pub(crate) guard: watch::Receiver<GuardStatus>,
    pub(crate) recheck: Recheck,
}

impl ApiServer {
    /// Returns the time of the API server.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now().into()
    }

    /// Whether the `Date` of an answer that arrived after `since` has reached `moment`. Asks for the time once if no
    /// answer shows that.
    pub(crate) async fn has_come(&self, moment: Moment, since: Instant) -> Result<bool, Error> {
        let has_reached = || self.clock.date_since(since).is_some_and(|date| Moment::from(date) >= moment);
        if !has_reached() {
            self.requests.ask_time().await?;
        }
        Ok(has_reached())
    }

    /// Whether the policies that verify decisions are in force in this epoch, and were when the decisions in `scope`
    /// were stored.
    pub(crate) async fn confirms(&self, scope: ConfirmScope, epoch: &str) -> Result<bool, Error> {
        self.recheck
            .is_in_force(epoch, scope)
            .await
            .map_err(Error::of("asking whether the admission policies are still in force"))
    }

    /// Returns the form of the answers to writes. Metadata suffices only while the policies are in force and no webhook
    /// or policy of others could change what was sent.
    pub(crate) fn answer_form(&self) -> AnswerForm {
        match &*self.guard.borrow() {
            GuardStatus::InForce(guarded) if guarded.external_mutators.is_empty() => AnswerForm::Metadata,
            _ => AnswerForm::Whole,
        }
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
