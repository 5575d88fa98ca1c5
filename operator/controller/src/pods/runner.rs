//! Runs one Pod *(I/O)*: creates it once, finds it again after a restart, and deletes it at its deadline.
//!
//! **Invariant:** never creates a Pod twice. Reports `Unknown` if the final state was not observed. Deletes a Pod whose
//! result is not recorded only to end it.

mod creation;
mod outcome;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use signoff_api::{Digest, FailureClass, Moment};
use signoff_cluster::ServerClock;
use signoff_cluster::{kinds::Name, requests::ApiRequests};
use signoff_engine::transition::{Call, Failure, PodCall, Reply};
use signoff_executor::{RunRef, clock::wake_up};
use tokio::{sync::watch, time::sleep_until};

use self::outcome::{failure, unknown_outcome};
use super::{
    PodIndex, build,
    index::{DeletionSource, LastState},
    log,
    state::{PodProblem, PodState, StepPod},
};
use crate::context::Context;

/// The time in which a container must start if its author sets no limit.
const START: Duration = Duration::from_secs(300);
/// The time after which a Pod is reported if no scheduler has set a condition on it.
const SCHEDULED: Duration = Duration::from_secs(10);
/// The time after its grace period at which a Pod is given up.
const GIVEN_UP: Duration = Duration::from_secs(90);
/// The longest delay of the deletion of a Pod by reading its log.
const TO_READ: Duration = Duration::from_secs(5);
/// The longest pause between two attempts to reach the API server.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The runner of the Pods of steps.
pub(crate) struct PodRunner {
    pub(crate) context: Arc<Context>,
    pub(crate) requests: ApiRequests,
    pub(crate) index: Arc<PodIndex>,
    pub(crate) clock: ServerClock,
}

/// The run of one Pod.
struct PodRun<'a> {
    runner: &'a PodRunner,
    run: &'a RunRef,
    call: &'a Call,
    pod: &'a PodCall,
    digest: Digest,
    name: Name,
    known: watch::Receiver<LastState>,
    /// The reason and the time of this runner's request to delete the Pod.
    termination: Option<(PodProblem, Moment)>,
    /// The log at the time of the request, because the Pod may be deleted before the log is read again.
    log_so_far: Option<String>,
}

impl PodRunner {
    /// Runs the Pod of a call until its container has terminated. `begins`: whether the Pod was certainly never created
    /// before.
    pub(crate) async fn run_pod(
        &self,
        run: &RunRef,
        call: &Call,
        pod: &PodCall,
        begins: bool,
    ) -> Result<Reply, Failure> {
        let digest = match Digest::of(&pod.spec) {
            Ok(digest) => digest,
            Err(why) => return Err(failure(FailureClass::Invalid.name(), why.to_string(), false)),
        };
        let name = Name::new(&run.namespace, &pod.name);
        let pod_run = PodRun {
            runner: self,
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
            Err(_) => {
                Err(unknown_outcome(idempotent, "internal error while the Pod ran; report this as a bug".to_owned()))
            }
        }
    }
}

impl PodRun<'_> {
    async fn run(mut self, begins: bool) -> Result<Reply, Failure> {
        let latest = self.now().after(self.call.timeout);
        let created_pod = if begins { self.create(latest).await? } else { self.find_again(latest).await? };
        let (uid, created) = (created_pod.uid().to_owned(), created_pod.created().unwrap_or(self.now()));
        self.runner.index.record(created_pod);
        let (mut ran, mut unscheduled) = (false, None);
        loop {
            let LastState { pod, gone } = self.known.borrow_and_update().clone();
            // Names are unique, so a Pod with another uid means that the Pod of this run was deleted.
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
                    return Err(self.lost_result(&format!("the cluster lost it: {reason}: {message}")));
                }
                (_, _, Some(DeletionSource::Watched)) => return Err(self.deletion_result(pod.as_deref())),
                (_, _, Some(DeletionSource::Relisted)) => match self.find_own(latest).await? {
                    Some(there) if there.uid() == uid => self.runner.index.record(there),
                    _ => return Err(self.lost_result("it no longer exists, and its final state was not observed")),
                },
                _ => {}
            }
            let due = self.due(created, pod.as_deref());
            let now = self.now();
            if due <= now {
                // The watch may lag, so the newest state decides whether the Pod is too late.
                let Some(newest) = self.find_own(now.after(GIVEN_UP)).await?.filter(|there| there.uid() == uid) else {
                    self.runner.index.remove_missing(&self.name, &uid);
                    return Err(self.lost_result("it no longer exists, and its final state was not observed"));
                };
                let (state, is_due) = (newest.state(), self.due(created, Some(&newest)) <= now);
                self.runner.index.record(newest);
                if is_due && !state.is_end() {
                    self.on_deadline(&uid, &state, now).await?;
                }
                continue;
            }
            let announce_at = self.unscheduled_at(created, pod.as_deref());
            match announce_at {
                None => unscheduled = None,
                Some(at) if at <= now && unscheduled.is_none() => {
                    unscheduled = Some(self.announce_unscheduled(created))
                }
                Some(_) => {}
            }
            let due = announce_at.filter(|at| *at > now).map_or(due, |at| at.min(due));
            tokio::select! {
                changed = self.known.changed() => if changed.is_err() {
                    return Err(self.lost_result("the operator is shutting down"));
                },
                () = sleep_until(wake_up(due, now)) => {}
            }
        }
    }

    fn now(&self) -> Moment {
        self.runner.clock.now().into()
    }

    /// Returns the deadline of the Pod's current state.
    fn due(&self, created: Moment, pod: Option<&StepPod>) -> Moment {
        if let Some((_, since)) = &self.termination {
            return since.after(pod.map(StepPod::grace).unwrap_or_default() + GIVEN_UP);
        }
        let timeout_at = created.after(self.call.timeout);
        let start = self.pod.spec.start_deadline.map_or(START, signoff_api::Span::duration);
        match pod.map(StepPod::state) {
            Some(PodState::Pending(_)) => timeout_at.min(created.after(start)),
            _ => timeout_at,
        }
    }

    /// Returns the time at which a Pod is announced as not scheduled, or `None` if a scheduler has set a condition on
    /// it.
    fn unscheduled_at(&self, created: Moment, pod: Option<&StepPod>) -> Option<Moment> {
        let is_silent = |pod: &&StepPod| pod.node.is_none() && pod.state() == PodState::Pending(None);
        pod.filter(is_silent).filter(|_| self.termination.is_none()).map(|_| created.after(SCHEDULED))
    }

    /// Handles a passed deadline: requests the deletion, or gives the Pod up if the deletion was requested before.
    async fn on_deadline(&mut self, uid: &str, state: &PodState, now: Moment) -> Result<(), Failure> {
        if let Some((why, _)) = &self.termination {
            let why = format!(
                "{}; its deletion was requested, and {} has not reported its end",
                why.message,
                self.display_name()
            );
            return Err(self.lost_result(&why));
        }
        let timeout = signoff_api::Span::from(self.call.timeout);
        let why = match state {
            PodState::Pending(problem) => {
                let problem = problem.clone();
                let slow = || PodProblem {
                    reason: "NotStarted".to_owned(),
                    message: "its container did not start".to_owned(),
                };
                problem.unwrap_or_else(slow)
            }
            _ => PodProblem { reason: "Timeout".to_owned(), message: format!("it did not finish within {timeout}") },
        };
        if *state == PodState::Running {
            let read = self.read_end_of_log(None, false);
            let read = tokio::time::timeout(TO_READ, read).await;
            self.log_so_far = read.ok().and_then(Result::ok).map(|log| log.text);
        }
        self.termination = Some((why, now));
        let mut backoff = Backoff::default();
        // The grace period is explicit, so that it also shortens an earlier deletion request with a longer one.
        let grace = build::grace(&self.pod.spec);
        while let Err(error) = self.runner.requests.delete::<StepPod>(&self.name, uid, Some(grace)).await {
            tracing::warn!(pod = %self.name, "cannot be ended yet: {error}");
            if !backoff.wait(self.now(), now.after(GIVEN_UP)).await {
                break;
            }
        }
        Ok(())
    }

    /// Waits for memory, then reads the end of the log.
    async fn read_end_of_log(&self, lines: Option<i32>, is_needed: bool) -> Result<log::Log, String> {
        let _memory = self.runner.context.calls.bytes.take(&self.name.namespace, log::MEMORY).await;
        log::read_end(&self.runner.requests, &self.name, lines, is_needed).await
    }
}

/// The pause before the next attempt, which doubles each time.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    /// Waits for the next attempt. Returns whether there is time for one.
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
