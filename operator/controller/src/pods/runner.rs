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
    index::{Gone, Known, Unmade},
    log,
    state::{PodProblem, PodState, StepPod, Terminated},
};
use crate::{context::Context, stalls::TOLD_AFTER};

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
    pub(crate) book: Arc<PodIndex>,
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
    known: watch::Receiver<Known>,
    /// The reason and the time of the request to delete it.
    termination: Option<(PodProblem, Moment)>,
    /// Its log until then: the Pod may be deleted before there is more to read.
    log_so_far: Option<String>,
}

/// Announces that a Pod cannot be created. Fields drop in this order: the Workflow is reconciled after the record is gone.
struct NotCreated {
    _record: Unmade,
    _look: Look,
}

/// Enqueues a Workflow when it is dropped.
struct Look {
    context: Arc<Context>,
    workflow: Name,
}

impl Look {
    fn now(&self) {
        self.context.look_at_workflow(self.workflow.clone());
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.now();
    }
}

/// The object that has a Pod's name.
enum There {
    Nothing,
    /// The Pod that this step has created, or would have created.
    Ours(Box<StepPod>),
    Others,
}

/// The message about another user's Pod.
const OTHERS: &str = "exists, but this run did not create it: find out who did";

impl PodRunner {
    /// Runs the Pod of a call until its container has terminated. `begins`: it was certainly never created before.
    pub(crate) async fn attend(
        &self,
        run: &RunRef,
        call: &Call,
        pod: &PodCall,
        begins: bool,
    ) -> Result<Reply, Failure> {
        let digest = match Digest::of(&pod.spec) {
            Ok(digest) => digest,
            Err(why) => return Err(known("Invalid", why.to_string(), false)),
        };
        let name = Name::new(&run.namespace, &pod.name);
        let attended = PodRun {
            by: self,
            run,
            call,
            pod,
            digest,
            known: self.book.follow(&name),
            name,
            termination: None,
            log_so_far: None,
        };
        let idempotent = call.idempotent;
        match AssertUnwindSafe(attended.until_its_end(begins)).catch_unwind().await {
            Ok(ended) => ended,
            Err(_) => Err(unknown(idempotent, "internal error while the Pod ran; report this as a bug".to_owned())),
        }
    }
}

impl PodRun<'_> {
    async fn until_its_end(mut self, begins: bool) -> Result<Reply, Failure> {
        let latest = self.now().after(self.call.timeout);
        let made = if begins { self.make(latest).await? } else { self.find_again(latest).await? };
        let (uid, created) = (made.uid().to_owned(), made.created().unwrap_or(self.now()));
        self.by.book.record(made);
        let mut ran = false;
        loop {
            let Known { pod, gone } = self.known.borrow_and_update().clone();
            // The API server gives a name out once at a time: where another has it, ours is no more.
            let gone = gone.or(pod.as_ref().filter(|pod| pod.uid() != uid).map(|_| Gone::Relisted));
            let pod = pod.filter(|pod| pod.uid() == uid);
            let stand = pod.as_ref().map(|pod| pod.state());
            ran |= stand == Some(PodState::Running);
            match (&pod, &stand, gone) {
                (Some(pod), Some(PodState::Ended(end)), _) => return self.ended(pod, end).await,
                (Some(pod), Some(PodState::Failed(why)), _) if !ran && (begins || !pod.may_have_run()) => {
                    return Err(self.failed(why));
                }
                (_, Some(PodState::Failed(why) | PodState::Lost(why)), _) => {
                    let PodProblem { reason, message } = why;
                    return Err(self.lost(&format!("the cluster lost it: {reason}: {message}")));
                }
                (_, _, Some(Gone::Watched)) => return Err(self.gone(pod.as_deref())),
                (_, _, Some(Gone::Relisted)) => match self.ask(latest).await? {
                    Some(there) if there.uid() == uid => self.by.book.record(there),
                    _ => return Err(self.lost("it no longer exists, and its final state was not observed")),
                },
                _ => {}
            }
            let due = self.due(created, pod.as_deref());
            let now = self.now();
            if due <= now {
                // What the watch shows may be old: what has ended by now is not too late.
                let Some(newest) = self.ask(now.after(GIVEN_UP)).await?.filter(|there| there.uid() == uid) else {
                    self.by.book.forget(&self.name, &uid);
                    return Err(self.lost("it no longer exists, and its final state was not observed"));
                };
                let (stand, is_due) = (newest.state(), self.due(created, Some(&newest)) <= now);
                self.by.book.record(newest);
                if is_due && !stand.is_end() {
                    self.end(&uid, &stand, now).await?;
                }
                continue;
            }
            tokio::select! {
                changed = self.known.changed() => if changed.is_err() {
                    return Err(self.lost("the operator is shutting down"));
                },
                () = sleep_until(wake_up(due, now)) => {}
            }
        }
    }

    fn now(&self) -> Moment {
        self.by.clock.now().into()
    }

    /// Creates the Pod. One that may have been created without an answer is searched for, and never created again.
    async fn make(&self, latest: Moment) -> Result<StepPod, Failure> {
        let object = build::pod(self.run, self.call, self.pod, &self.digest);
        let mut pause = Pause::default();
        let (began, mut unmade) = (self.now(), None);
        loop {
            let error = match self.by.requests.create_as::<StepPod>(&self.name, &object).await {
                Ok(pod) => return Ok(pod),
                Err(error) => error,
            };
            let why = plain(&error);
            if is(&error, "AlreadyExists") {
                match self.look(latest).await? {
                    There::Ours(there) => return Ok(*there),
                    There::Others => {
                        let why = format!("{} {OTHERS}", self.told());
                        return Err(known("ForeignPod", why, false));
                    }
                    There::Nothing => {}
                }
                return Err(self.lost(&format!(
                    "the API server refused its name as already in use, and has no Pod of that name: {why}"
                )));
            }
            if was_never_stored(&error) {
                tracing::debug!(pod = %self.name, "not made yet: {why}");
            } else if is_ambiguous(&error) {
                if let Some(there) = self.ask(latest).await? {
                    return Ok(there);
                }
                if !self.call.idempotent {
                    return Err(self.lost(&format!("the API server did not answer whether it was created: {why}")));
                }
            } else {
                // A quota may have room later.
                let retryable = status_code(&error) == Some(403);
                return Err(known("Refused", format!("the API server refuses {}: {why}", self.told()), retryable));
            }
            if self.now() >= began.after(TOLD_AFTER) && unmade.is_none() {
                unmade = Some(self.tell_unmade(began, &why));
            }
            if !pause.rest(self.now(), latest).await {
                return Err(known("Refused", format!("{} could not be created in time: {why}", self.told()), true));
            }
        }
    }

    /// Announces on the Workflow that the Pod cannot be created, until the result is dropped.
    fn tell_unmade(&self, since: Moment, why: &str) -> NotCreated {
        let PodRunner { context, book, .. } = self.by;
        let message = format!("creating it has failed since {since}: {why}");
        let meta = ObjectMeta {
            name: Some(self.run.workflow.clone()),
            namespace: Some(self.run.namespace.clone()),
            uid: Some(self.run.uid.clone()),
            ..ObjectMeta::default()
        };
        let key = format!("{}/{since}", self.pod.name);
        let note = format!("{}: {message}", self.told());
        let report = Report::of_meta::<Workflow>(&meta, "Stalled", &note, &key, context.clock.now());
        context.reporter.report(report.warning(true));
        let trouble = PodProblem { reason: reason::NOT_CREATED.to_owned(), message };
        let record = book.unmade(&self.run.uid, &self.name, trouble);
        let look = Look { context: Arc::clone(context), workflow: self.name.beside(&self.run.workflow) };
        look.now();
        NotCreated { _record: record, _look: look }
    }

    /// Finds the Pod that an earlier process has created or was about to create.
    async fn find_again(&self, latest: Moment) -> Result<StepPod, Failure> {
        match self.ask(latest).await? {
            Some(there) => Ok(there),
            None if self.call.idempotent => self.make(latest).await,
            None => Err(self.lost("the operator stopped before it was created, or it ran and was deleted")),
        }
    }

    /// Returns the Pod as it is now; `None` where it does not exist.
    async fn ask(&self, latest: Moment) -> Result<Option<StepPod>, Failure> {
        match self.look(latest).await? {
            There::Ours(there) => Ok(Some(*there)),
            There::Nothing => Ok(None),
            // Its name was free again: what became of ours is not known.
            There::Others => Err(self.lost(OTHERS)),
        }
    }

    /// Returns the object that has its name now.
    async fn look(&self, latest: Moment) -> Result<There, Failure> {
        let mut pause = Pause::default();
        loop {
            match self.by.requests.get::<StepPod>(&self.name).await {
                Ok(None) => return Ok(There::Nothing),
                Ok(Some(there)) => {
                    let ours = there.owner() == Some((self.run.workflow.as_str(), self.run.uid.as_str()))
                        && there.input_digest() == Some(self.digest.as_str());
                    return Ok(if ours { There::Ours(Box::new(there)) } else { There::Others });
                }
                Err(error) => {
                    if !pause.rest(self.now(), latest).await {
                        return Err(self.lost(&error.to_string()));
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
    async fn end(&mut self, uid: &str, stand: &PodState, now: Moment) -> Result<(), Failure> {
        if let Some((why, _)) = &self.termination {
            let why =
                format!("{}; its deletion was requested, and {} has not reported its end", why.message, self.told());
            return Err(self.lost(&why));
        }
        let timeout = signoff_api::Span::from(self.call.timeout);
        let why = match stand {
            PodState::Pending(trouble) => {
                let trouble = trouble.clone();
                let slow = || PodProblem {
                    reason: "NotStarted".to_owned(),
                    message: "its container did not start".to_owned(),
                };
                trouble.unwrap_or_else(slow)
            }
            _ => PodProblem { reason: "Timeout".to_owned(), message: format!("it did not finish within {timeout}") },
        };
        if *stand == PodState::Running {
            let read = log::end_of(&self.by.requests, &self.name, None, false);
            let read = tokio::time::timeout(TO_READ, read).await;
            self.log_so_far = read.ok().and_then(Result::ok).map(|log| log.text);
        }
        self.termination = Some((why, now));
        let mut pause = Pause::default();
        // Said, so that it counts also where somebody has asked for its end with more time.
        let grace = build::grace(&self.pod.spec);
        while let Err(error) = self.by.requests.delete::<StepPod>(&self.name, uid, Some(grace)).await {
            tracing::warn!(pod = %self.name, "cannot be ended yet: {error}");
            if !pause.rest(self.now(), now.after(GIVEN_UP)).await {
                break;
            }
        }
        Ok(())
    }

    /// Returns the result of a terminated container.
    async fn ended(&self, pod: &StepPod, end: &Terminated) -> Result<Reply, Failure> {
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
        if let Some(PodProblem { reason, message }) = self.trouble(pod, end) {
            if reason == "OutcomeUnknown" {
                return Err(Failure { facts, ..self.lost(&message) });
            }
            return Err(fail(&reason, message, true));
        }
        let response = match (spec.output_from.unwrap_or_default(), &read) {
            (OutputFrom::Termination, _) if end.message.len() >= pod.room_for_message() => {
                let why = format!(
                    "its termination message has reached {} bytes, where a kubelet cuts it: write less, or set outputFrom to log",
                    pod.room_for_message()
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
    fn trouble(&self, pod: &StepPod, end: &Terminated) -> Option<PodProblem> {
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
    fn failed(&self, why: &PodProblem) -> Failure {
        let PodProblem { reason, message } = self.termination.as_ref().map_or(why, |(why, _)| why);
        known(reason, format!("{}: {message}", self.told()), true)
    }

    /// Returns the result of a deleted Pod whose every state was received.
    fn gone(&self, last: Option<&StepPod>) -> Failure {
        let never_ran = last.is_some_and(|pod| {
            let graceful = pod.is_going() || self.termination.is_some();
            matches!(pod.state(), PodState::Pending(_)) && (pod.node.is_none() || graceful)
        });
        match (never_ran, &self.termination) {
            (true, Some((why, _))) => known(&why.reason, format!("{}: {}", self.told(), why.message), true),
            (true, None) => known("Deleted", format!("{} was deleted before it ran", self.told()), true),
            (false, _) => self.lost("it was deleted without grace, and the end of its container was not observed"),
        }
    }

    fn lost(&self, why: &str) -> Failure {
        unknown(self.call.idempotent, format!("{}: {why}; it may or may not have run", self.told()))
    }

    fn told(&self) -> String {
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

fn known(class: &str, message: String, retryable: bool) -> Failure {
    let class = if is_word(class) { class } else { "Failed" };
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
fn is_word(reason: &str) -> bool {
    (1..=63).contains(&reason.len()) && reason.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn unknown(idempotent: bool, message: String) -> Failure {
    Failure { unknown: !idempotent, ..known("OutcomeUnknown", message, idempotent) }
}

/// Whether the API server answered with this reason.
fn is(error: &kube::Error, reason: &str) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == reason)
}

/// Whether a request certainly stored nothing although it may be made again: it never left, was turned away at the door,
/// or fell to somebody's webhook, which is asked before anything is stored.
fn was_never_stored(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        return status.code == 429 || is(error, "Conflict") || status.message.contains("failed calling webhook");
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
struct Pause(u32);

impl Pause {
    /// Returns whether there is time for another attempt.
    async fn rest(&mut self, now: Moment, latest: Moment) -> bool {
        if now >= latest {
            return false;
        }
        let pause = Duration::from_millis(200) * 2_u32.saturating_pow(self.0.min(10));
        self.0 += 1;
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
        true
    }
}
