//! Runs one Pod: created once, found again after a restart, deleted at its deadline.
//!
//! **Invariant:** never creates a Pod twice. Reports `Unknown` when the final state was not observed. Deletes a Pod whose result is
//! not recorded only to end it.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{Digest, Moment, Workflow, conditions::reason, pod::OutputFrom};
use signoff_cluster::{
    error::{is_ambiguous, plain, status_code},
    events::Report,
    kinds::Name,
    requests::ApiRequests,
};
use signoff_engine::transition::{Call, Failure, PodCall, Reply};
use signoff_executor::{Clock, RunRef, clock::wake_up};
use tokio::{sync::watch, time::sleep_until};

use super::{
    PodIndex, build,
    index::{CreationFailureRecord, DeletionSource, LastState},
    log,
    state::{PodProblem, PodState, StepPod, Terminated},
};
use crate::{context::Context, stalls::REPORTED_AFTER};

/// The time in which a container must start where its author sets no limit.
const START: Duration = Duration::from_secs(300);
/// The time after its grace period at which a Pod is given up.
const GIVEN_UP: Duration = Duration::from_secs(90);
/// The longest delay of the deletion of a Pod by reading its log.
const TO_READ: Duration = Duration::from_secs(5);
/// The longest pause between two attempts to reach the API server.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Runs the Pods of steps.
pub(crate) struct PodRunner {
    pub(crate) context: Arc<Context>,
    pub(crate) requests: ApiRequests,
    pub(crate) index: Arc<PodIndex>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The run of one Pod.
struct PodRun<'a> {
    by: &'a PodRunner,
    run: &'a RunRef,
    call: &'a Call,
    pod: &'a PodCall,
    digest: Digest,
    name: Name,
    known: watch::Receiver<LastState>,
    /// The reason and the time of the request to delete it.
    termination: Option<(PodProblem, Moment)>,
    /// Its log until then: the Pod may be deleted before there is more to read.
    log_so_far: Option<String>,
}

/// Announces that a Pod cannot be created. Fields drop in this order: the Workflow is reconciled after the record is gone.
struct CreationFailure {
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

/// The message about another user's Pod.
const OTHERS: &str = "exists and is not this step's: find out who created it";

impl PodRunner {
    /// Runs the Pod of a call until its container has terminated. `begins`: it was certainly never created before.
    pub(crate) async fn run_pod(
        &self,
        run: &RunRef,
        call: &Call,
        pod: &PodCall,
        begins: bool,
    ) -> Result<Reply, Failure> {
        let digest = match Digest::of(&pod.spec) {
            Ok(digest) => digest,
            Err(why) => return Err(failure("Invalid", why.to_string(), false)),
        };
        let name = Name::new(&run.namespace, &pod.name);
        let pod_run = PodRun {
            by: self,
            run,
            call,
            pod,
            digest,
            known: self.index.follow(&name),
            name,
            termination: None,
            log_so_far: None,
        };
        let idempotent = call.idempotent;
        match AssertUnwindSafe(pod_run.run(begins)).catch_unwind().await {
            Ok(ended) => ended,
            Err(_) => Err(unknown_outcome(idempotent, "the operator failed while the Pod ran".to_owned())),
        }
    }
}

impl PodRun<'_> {
    async fn run(mut self, begins: bool) -> Result<Reply, Failure> {
        let latest = self.now().after(self.call.timeout);
        let made = if begins { self.create(latest).await? } else { self.find_again(latest).await? };
        let (uid, created) = (made.uid().to_owned(), made.created().unwrap_or(self.now()));
        self.by.index.record(made);
        let mut ran = false;
        loop {
            let LastState { pod, gone } = self.known.borrow_and_update().clone();
            // The API server gives a name out once at a time: where another has it, ours is no more.
            let gone = gone.or(pod.as_ref().filter(|pod| pod.uid() != uid).map(|_| DeletionSource::Relisted));
            let pod = pod.filter(|pod| pod.uid() == uid);
            let state = pod.as_ref().map(|pod| pod.state());
            ran |= state == Some(PodState::Running);
            match (&pod, &state, gone) {
                (Some(pod), Some(PodState::Ended(end)), _) => return self.on_terminated(pod, end).await,
                (Some(pod), Some(PodState::Failed(why)), _) if !ran && (begins || !pod.may_have_run()) => {
                    return Err(self.failure_before_start(why));
                }
                (_, Some(PodState::Failed(why) | PodState::Lost(why)), _) => {
                    let PodProblem { reason, message } = why;
                    return Err(self.lost_result(&format!("the cluster gave it up: {reason}: {message}")));
                }
                (_, _, Some(DeletionSource::Watched)) => return Err(self.deletion_result(pod.as_deref())),
                (_, _, Some(DeletionSource::Relisted)) => match self.find_own(latest).await? {
                    Some(there) if there.uid() == uid => self.by.index.record(there),
                    _ => return Err(self.lost_result("it is gone, and its end was not observed")),
                },
                _ => {}
            }
            let due = self.due(created, pod.as_deref());
            let now = self.now();
            if due <= now {
                // What the watch shows may be old: what has ended by now is not too late.
                let Some(newest) = self.find_own(now.after(GIVEN_UP)).await?.filter(|there| there.uid() == uid) else {
                    self.by.index.remove_missing(&self.name, &uid);
                    return Err(self.lost_result("it is gone, and its end was not observed"));
                };
                let (state, is_due) = (newest.state(), self.due(created, Some(&newest)) <= now);
                self.by.index.record(newest);
                if is_due && !state.is_end() {
                    self.on_deadline(&uid, &state, now).await?;
                }
                continue;
            }
            tokio::select! {
                changed = self.known.changed() => if changed.is_err() {
                    return Err(self.lost_result("the operator ends"));
                },
                () = sleep_until(wake_up(due, now)) => {}
            }
        }
    }

    fn now(&self) -> Moment {
        self.by.clock.now().into()
    }

    /// Creates the Pod. One that may have been created without an answer is searched for, and never created again.
    async fn create(&self, latest: Moment) -> Result<StepPod, Failure> {
        let object = build::pod(self.run, self.call, self.pod, &self.digest);
        let mut backoff = Backoff::default();
        let (began, mut creation_failure) = (self.now(), None);
        loop {
            let error = match self.by.requests.create_as::<StepPod>(&self.name, &object).await {
                Ok(pod) => return Ok(pod),
                Err(error) => error,
            };
            let why = plain(&error);
            if has_reason(&error, "AlreadyExists") {
                match self.find_by_name(latest).await? {
                    NamedPod::Own(there) => return Ok(*there),
                    NamedPod::Foreign => {
                        let why = format!("{} {OTHERS}", self.display_name());
                        return Err(failure("ForeignPod", why, false));
                    }
                    NamedPod::Missing => {}
                }
                return Err(self.lost_result(&format!("the API server knew its name, and then did not: {why}")));
            }
            if was_never_stored(&error) {
                tracing::debug!(pod = %self.name, "not made yet: {why}");
            } else if is_ambiguous(&error) {
                if let Some(there) = self.find_own(latest).await? {
                    return Ok(there);
                }
                if !self.call.idempotent {
                    return Err(self.lost_result(&format!("the API server did not say whether it was made: {why}")));
                }
            } else {
                // A quota may have room later.
                let retryable = status_code(&error) == Some(403);
                return Err(failure(
                    "Refused",
                    format!("the API server refuses {}: {why}", self.display_name()),
                    retryable,
                ));
            }
            if self.now() >= began.after(REPORTED_AFTER) && creation_failure.is_none() {
                creation_failure = Some(self.announce_creation_failure(began, &why));
            }
            if !backoff.wait(self.now(), latest).await {
                return Err(failure(
                    "Refused",
                    format!("{} could not be made in time: {why}", self.display_name()),
                    true,
                ));
            }
        }
    }

    /// Announces on the Workflow that the Pod cannot be created, until the result is dropped.
    fn announce_creation_failure(&self, since: Moment, why: &str) -> CreationFailure {
        let PodRunner { context, index, .. } = self.by;
        let message = format!("creating it fails since {since}: {why}");
        let meta = ObjectMeta {
            name: Some(self.run.workflow.clone()),
            namespace: Some(self.run.namespace.clone()),
            uid: Some(self.run.uid.clone()),
            ..ObjectMeta::default()
        };
        let key = format!("{}/{since}", self.pod.name);
        let note = format!("{}: {message}", self.display_name());
        let report = Report::of_meta::<Workflow>(&meta, "Stalled", &note, &key, context.clock.now());
        context.reporter.report(report.warning(true));
        let trouble = PodProblem { reason: reason::NOT_CREATED.to_owned(), message };
        let record = index.record_creation_failure(&self.run.uid, &self.name, trouble);
        let enqueue = EnqueueOnDrop { context: Arc::clone(context), workflow: self.name.beside(&self.run.workflow) };
        enqueue.now();
        CreationFailure { _record: record, _enqueue: enqueue }
    }

    /// Finds the Pod that an earlier process has created or was about to create.
    async fn find_again(&self, latest: Moment) -> Result<StepPod, Failure> {
        match self.find_own(latest).await? {
            Some(there) => Ok(there),
            None if self.call.idempotent => self.create(latest).await,
            None => Err(self.lost_result("the operator was lost before it was made, or it ran and is gone")),
        }
    }

    /// Returns the Pod as it is now; `None` where it does not exist.
    async fn find_own(&self, latest: Moment) -> Result<Option<StepPod>, Failure> {
        match self.find_by_name(latest).await? {
            NamedPod::Own(there) => Ok(Some(*there)),
            NamedPod::Missing => Ok(None),
            // Its name was free again: what became of ours is not known.
            NamedPod::Foreign => Err(self.lost_result(OTHERS)),
        }
    }

    /// Returns the object that has its name now.
    async fn find_by_name(&self, latest: Moment) -> Result<NamedPod, Failure> {
        let mut backoff = Backoff::default();
        loop {
            match self.by.requests.get::<StepPod>(&self.name).await {
                Ok(None) => return Ok(NamedPod::Missing),
                Ok(Some(there)) => {
                    let ours = there.owner() == Some((self.run.workflow.as_str(), self.run.uid.as_str()))
                        && there.input_digest() == Some(self.digest.as_str());
                    return Ok(if ours { NamedPod::Own(Box::new(there)) } else { NamedPod::Foreign });
                }
                Err(error) => {
                    if !backoff.wait(self.now(), latest).await {
                        return Err(self.lost_result(&error.to_string()));
                    }
                }
            }
        }
    }

    /// Returns the deadline of its present state.
    fn due(&self, created: Moment, pod: Option<&StepPod>) -> Moment {
        if let Some((_, since)) = &self.termination {
            return since.after(pod.map(StepPod::grace).unwrap_or_default() + GIVEN_UP);
        }
        let all = created.after(self.call.timeout);
        let start = self.pod.spec.start_deadline.map_or(START, signoff_api::Span::duration);
        match pod.map(StepPod::state) {
            Some(PodState::Pending(_)) => all.min(created.after(start)),
            _ => all,
        }
    }

    /// Handles a passed deadline: requests the deletion, or gives the Pod up where that was requested before.
    async fn on_deadline(&mut self, uid: &str, state: &PodState, now: Moment) -> Result<(), Failure> {
        if let Some((why, _)) = &self.termination {
            let why = format!("{}; it was to end, and {} does not say that it did", why.message, self.display_name());
            return Err(self.lost_result(&why));
        }
        let timeout = signoff_api::Span::from(self.call.timeout);
        let why = match state {
            PodState::Pending(trouble) => {
                let trouble = trouble.clone();
                let slow = || PodProblem {
                    reason: "NotStarted".to_owned(),
                    message: "its container did not begin".to_owned(),
                };
                trouble.unwrap_or_else(slow)
            }
            _ => PodProblem { reason: "Timeout".to_owned(), message: format!("it did not end within {timeout}") },
        };
        if *state == PodState::Running {
            let read = log::end_of(&self.by.requests, &self.name, None, false);
            let read = tokio::time::timeout(TO_READ, read).await;
            self.log_so_far = read.ok().and_then(Result::ok).map(|log| log.text);
        }
        self.termination = Some((why, now));
        let mut backoff = Backoff::default();
        // Said, so that it counts also where somebody has asked for its end with more time.
        let grace = build::grace(&self.pod.spec);
        while let Err(error) = self.by.requests.delete::<StepPod>(&self.name, uid, Some(grace)).await {
            tracing::warn!(pod = %self.name, "cannot be ended yet: {error}");
            if !backoff.wait(self.now(), now.after(GIVEN_UP)).await {
                break;
            }
        }
        Ok(())
    }

    /// Returns the result of a terminated container.
    async fn on_terminated(&self, pod: &StepPod, end: &Terminated) -> Result<Reply, Failure> {
        let mut facts = facts(pod, end);
        let spec = &self.pod.spec;
        let is_needed = build::needs_log(spec);
        let wanted = spec.tail_lines.filter(|_| is_needed);
        let read = log::end_of(&self.by.requests, &self.name, wanted, is_needed).await;
        if let Err(why) = &read {
            facts.insert("log".to_owned(), signoff_expr::text::display(why, 200));
        }
        let fail = |class: &str, message: String, retryable| Failure {
            log: read.as_ref().ok().map(|log| log.text.clone()).or_else(|| self.log_so_far.clone()),
            facts: facts.clone(),
            ..known(class, message, retryable)
        };
        if let Some(PodProblem { reason, message }) = self.problem(pod, end) {
            if reason == "OutcomeUnknown" {
                return Err(Failure { facts, ..self.lost_result(&message) });
            }
            return Err(fail(&reason, message, true));
        }
        let response = match (spec.output_from.unwrap_or_default(), &read) {
            (OutputFrom::Termination, _) if end.message.len() >= pod.max_message_bytes() => {
                let why = format!(
                    "its termination message has reached {} bytes, where a kubelet cuts it: write less, or set outputFrom to log",
                    pod.max_message_bytes()
                );
                return Err(fail("TooLarge", why, false));
            }
            (OutputFrom::Termination, _) => end.message.clone(),
            (OutputFrom::Log, Err(why)) => {
                return Err(fail("LogUnreadable", format!("its log cannot be read: {why}"), false));
            }
            (OutputFrom::Log, Ok(log)) if log.is_cut => {
                let why = format!("its log has more than {} KiB: write less, or set tailLines", log::MOST / 1024);
                return Err(fail("TooLarge", why, false));
            }
            (OutputFrom::Log, Ok(log)) => log.text.clone(),
        };
        let log = read.ok().map(|log| log.text);
        Ok(Reply { response: response.into(), facts, usage: None, log })
    }

    /// Why a container did not end well. One that was told to end did not, whatever its exit code: that says how it took
    /// it, and not that its work is done.
    fn problem(&self, pod: &StepPod, end: &Terminated) -> Option<PodProblem> {
        let code = end.exit_code;
        // What had ended by then was not told to.
        let termination = self
            .termination
            .as_ref()
            .filter(|_| code != 0 || pod.deletion_requested_before_exit(end))
            .map(|(why, _)| why.clone());
        let stopped = termination.or_else(|| pod.ended_by_cluster());
        if let Some(PodProblem { reason, message }) = stopped {
            return Some(PodProblem { reason, message: format!("{message}; it ended with exit code {code}") });
        }
        let said =
            |message: String| if end.message.is_empty() { message } else { format!("{message}: {}", end.message) };
        let (reason, message) = match end.reason.as_str() {
            "OOMKilled" if code != 0 => ("OOMKilled", "it used more memory than its limit".to_owned()),
            "ContainerStatusUnknown" => {
                ("OutcomeUnknown", "its kubelet does not know how its container ended".to_owned())
            }
            "" | "Error" | "Completed" | "OOMKilled" if pod.deletion_requested_before_exit(end) => {
                let (reason, why) = match pod.disrupted() {
                    Some(PodProblem { message, .. }) => ("Evicted", message),
                    None => ("Deleted", "its Pod was deleted".to_owned()),
                };
                (reason, format!("{why}; it ended with exit code {code}"))
            }
            _ if code == 0 => return None,
            "" | "Error" | "Completed" => ("ExitCode", said(format!("it ended with exit code {code}"))),
            other => (other, said(format!("it ended with exit code {code}"))),
        };
        Some(PodProblem { reason: reason.to_owned(), message })
    }

    /// Returns the result of a Pod that ended without its container running, or that the cluster ended.
    fn failure_before_start(&self, why: &PodProblem) -> Failure {
        let PodProblem { reason, message } = self.termination.as_ref().map_or(why, |(why, _)| why);
        failure(reason, format!("{}: {message}", self.display_name()), true)
    }

    /// Returns the result of a deleted Pod whose every state was received.
    fn deletion_result(&self, last: Option<&StepPod>) -> Failure {
        let never_ran = last.is_some_and(|pod| {
            let graceful = pod.is_terminating() || self.termination.is_some();
            matches!(pod.state(), PodState::Pending(_)) && (pod.node.is_none() || graceful)
        });
        match (never_ran, &self.termination) {
            (true, Some((why, _))) => failure(&why.reason, format!("{}: {}", self.display_name(), why.message), true),
            (true, None) => failure("Deleted", format!("{} was deleted before it ran", self.display_name()), true),
            (false, _) => {
                self.lost_result("it was deleted without grace, and the end of its container was not observed")
            }
        }
    }

    fn lost_result(&self, why: &str) -> Failure {
        unknown_outcome(self.call.idempotent, format!("{}: {why}; it may or may not have run", self.display_name()))
    }

    fn display_name(&self) -> String {
        format!("Pod {}", self.pod.name)
    }
}

fn facts(pod: &StepPod, end: &Terminated) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([("exitCode".to_owned(), end.exit_code.to_string())]);
    if let Some(node) = &pod.node {
        facts.insert("node".to_owned(), node.chars().take(253).collect());
    }
    facts
}

fn failure(class: &str, message: String, retryable: bool) -> Failure {
    let class = if is_failure_class(class) { class } else { "Failed" };
    Failure {
        class: class.to_owned(),
        message,
        retryable,
        unknown: false,
        not_before: None,
        facts: BTreeMap::new(),
        log: None,
    }
}

/// Whether a reason of another component can be a failure class.
fn is_failure_class(reason: &str) -> bool {
    (1..=63).contains(&reason.len()) && reason.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn unknown_outcome(idempotent: bool, message: String) -> Failure {
    Failure { unknown: !idempotent, ..known("OutcomeUnknown", message, idempotent) }
}

/// Whether the API server answered with this reason.
fn has_reason(error: &kube::Error, reason: &str) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == reason)
}

/// Whether a request certainly stored nothing although it may be made again: it never left, was turned away at the door,
/// or fell to somebody's webhook, which is asked before anything is stored.
fn was_never_stored(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        return status.code == 429
            || has_reason(error, "Conflict")
            || status.message.contains("failed calling webhook");
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(one) = cause {
        if one.downcast_ref::<std::io::Error>().is_some_and(|why| why.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = one.source();
    }
    false
}

/// Returns the pause before the next attempt: longer each time.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    /// Returns whether there is time for another attempt.
    async fn wait(&mut self, now: Moment, latest: Moment) -> bool {
        if now >= latest {
            return false;
        }
        let pause = Duration::from_millis(200) * 2_u32.saturating_pow(self.0.min(10));
        self.0 += 1;
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
        true
    }
}
