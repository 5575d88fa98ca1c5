//! Creates the Pod of a step, or finds the Pod that was created before *(I/O)*.
//!
//! **Invariant:** creates the Pod of a call that is not idempotent at most once.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{EventReason, FailureClass, Moment, announce::About, conditions::reason};
use signoff_cluster::{
    error::{is_ambiguous, plain, status_code},
    kinds::Name,
};
use signoff_engine::transition::Failure;

use super::{Backoff, PodRun, PodRunner, outcome::failure};
use crate::{
    context::Context,
    pods::{
        build,
        index::CreationFailureRecord,
        state::{PodProblem, StepPod},
    },
    stalls::REPORTED_AFTER,
};

/// A problem that the Pod itself does not report. The condition `PodsPending` shows the problem until the value is
/// dropped. Fields drop in this order, so that the Workflow is enqueued after the record is gone.
pub(super) struct Announcement {
    _record: CreationFailureRecord,
    _enqueue: EnqueueOnDrop,
}

/// Enqueues a Workflow when it is dropped.
struct EnqueueOnDrop {
    context: Arc<Context>,
    workflow: Name,
}

impl EnqueueOnDrop {
    fn now(&self) {
        self.context.enqueue_workflow(self.workflow.clone());
    }
}

impl Drop for EnqueueOnDrop {
    fn drop(&mut self) {
        self.now();
    }
}

/// The object that has a Pod's name.
enum NamedPod {
    Missing,
    /// The Pod that this step has created, or would have created.
    Own(Box<StepPod>),
    Foreign,
}

/// The message about a Pod that this run did not create.
const FOREIGN: &str = "exists, but this run did not create it: find out who did";

impl PodRun<'_> {
    /// Creates the Pod, and tries again until `latest`. After a lost answer, looks for the Pod first, and creates it
    /// again only if the call is idempotent. Announces attempts that have failed for a minute.
    pub(super) async fn create(&self, latest: Moment) -> Result<StepPod, Failure> {
        let object = build::build_pod(self.run, self.call, self.pod, &self.digest);
        let mut backoff = Backoff::default();
        let (began, mut creation_failure) = (self.now(), None);
        loop {
            let error = match self.runner.requests.create_as::<StepPod>(&self.name, &object).await {
                Ok(pod) => return Ok(pod),
                Err(error) => error,
            };
            let why = plain(&error);
            if has_reason(&error, "AlreadyExists") {
                match self.find_by_name(latest).await? {
                    NamedPod::Own(there) => return Ok(*there),
                    NamedPod::Foreign => {
                        let why = format!("{} {FOREIGN}", self.display_name());
                        return Err(failure("ForeignPod", why, false));
                    }
                    NamedPod::Missing => {}
                }
                return Err(self.lost_result(&format!(
                    "the API server refused its name as already in use, and has no Pod of that name: {why}"
                )));
            }
            if was_never_stored(&error) {
                tracing::debug!(pod = %self.name, "not made yet: {why}");
            } else if is_ambiguous(&error) {
                if let Some(there) = self.find_own(latest).await? {
                    return Ok(there);
                }
                if !self.call.idempotent {
                    return Err(
                        self.lost_result(&format!("the API server did not answer whether it was created: {why}"))
                    );
                }
            } else {
                // A quota may have room at a later attempt.
                let retryable = status_code(&error) == Some(403);
                return Err(failure(
                    FailureClass::Refused.name(),
                    format!("the API server refuses {}: {why}", self.display_name()),
                    retryable,
                ));
            }
            if self.now() >= began.after(REPORTED_AFTER) && creation_failure.is_none() {
                creation_failure = Some(self.announce_creation_failure(began, &why));
            }
            if !backoff.wait(self.now(), latest).await {
                return Err(failure(
                    FailureClass::Refused.name(),
                    format!("{} could not be created in time: {why}", self.display_name()),
                    true,
                ));
            }
        }
    }

    /// Announces on the Workflow that the Pod cannot be created, until the result is dropped.
    fn announce_creation_failure(&self, since: Moment, why: &str) -> Announcement {
        let context = &self.runner.context;
        let message = format!("creating it has failed since {since}: {why}");
        let meta = ObjectMeta {
            name: Some(self.run.workflow.clone()),
            namespace: Some(self.run.namespace.clone()),
            uid: Some(self.run.uid.clone()),
            ..ObjectMeta::default()
        };
        let key = format!("{}/{since}", self.pod.name);
        let note = format!("{}: {message}", self.display_name());
        context.say(About::Workflow(&meta), EventReason::Stalled, &note, &key);
        self.announce(reason::NOT_CREATED, message)
    }

    /// Announces on the Workflow that no scheduler has set a condition on the Pod, until the result is dropped.
    pub(super) fn announce_unscheduled(&self, since: Moment) -> Announcement {
        let message = format!(
            "no scheduler has chosen a node for it since {since}, and none says why; check that the cluster's scheduler runs"
        );
        self.announce(reason::NOT_SCHEDULED, message)
    }

    /// Shows a problem in the condition `PodsPending` of the Workflow until the result is dropped.
    fn announce(&self, reason: &str, message: String) -> Announcement {
        let PodRunner { context, index, .. } = self.runner;
        let problem = PodProblem { reason: reason.to_owned(), message };
        let record = index.record_creation_failure(&self.run.uid, &self.name, problem);
        let enqueue = EnqueueOnDrop { context: Arc::clone(context), workflow: self.name.beside(&self.run.workflow) };
        enqueue.now();
        Announcement { _record: record, _enqueue: enqueue }
    }

    /// Finds the Pod that an earlier process has created or was about to create. Without a Pod, creates it if the call
    /// is idempotent.
    pub(super) async fn find_again(&self, latest: Moment) -> Result<StepPod, Failure> {
        match self.find_own(latest).await? {
            Some(there) => Ok(there),
            None if self.call.idempotent => self.create(latest).await,
            None => Err(self.lost_result("the operator stopped before it was created, or it ran and was deleted")),
        }
    }

    /// Returns the current state of the Pod, or `None` if it does not exist. An object of another run with the name is
    /// an error.
    pub(super) async fn find_own(&self, latest: Moment) -> Result<Option<StepPod>, Failure> {
        match self.find_by_name(latest).await? {
            NamedPod::Own(there) => Ok(Some(*there)),
            NamedPod::Missing => Ok(None),
            // Another Pod has the name, so the result of the step's own Pod is unknown.
            NamedPod::Foreign => Err(self.lost_result(FOREIGN)),
        }
    }

    /// Returns the object that has the Pod's name now. Tries again until `latest`.
    async fn find_by_name(&self, latest: Moment) -> Result<NamedPod, Failure> {
        let mut backoff = Backoff::default();
        loop {
            match self.runner.requests.get::<StepPod>(&self.name).await {
                Ok(None) => return Ok(NamedPod::Missing),
                Ok(Some(there)) => {
                    let is_own = there.owner() == Some((self.run.workflow.as_str(), self.run.uid.as_str()))
                        && there.input_digest() == Some(self.digest.as_str());
                    return Ok(if is_own { NamedPod::Own(Box::new(there)) } else { NamedPod::Foreign });
                }
                Err(error) => {
                    if !backoff.wait(self.now(), latest).await {
                        return Err(self.lost_result(&error.to_string()));
                    }
                }
            }
        }
    }
}

/// Whether the API server answered with the reason `reason`.
fn has_reason(error: &kube::Error, reason: &str) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == reason)
}

/// Whether a failed request certainly stored nothing and can be repeated: it was never sent, was refused because of
/// load or a conflict, or failed at a webhook, which is called before anything is stored.
fn was_never_stored(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        return status.code == 429
            || has_reason(error, "Conflict")
            || status.message.contains("failed calling webhook");
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let io_error = error.downcast_ref::<std::io::Error>();
        if io_error.is_some_and(|why| why.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}
