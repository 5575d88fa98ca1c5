//! The result of a Pod's run: its reply, or the failure of its call *(pure, but for reading the log)*.
//!
//! **Invariant:** reports `Unknown` if the final state was not observed.

use std::collections::BTreeMap;

use signoff_api::{FailureClass, pod::OutputFrom};
use signoff_engine::transition::{Failure, Reply};

use super::PodRun;
use crate::pods::{
    build, log,
    state::{PodProblem, PodState, StepPod, Terminated},
};

impl PodRun<'_> {
    /// Reads the log of a terminated container, and returns the result: the termination message, the log, or a failure.
    pub(super) async fn on_terminated(&self, pod: &StepPod, end: &Terminated) -> Result<Reply, Failure> {
        let mut facts = facts_of(pod, end);
        let spec = &self.pod.spec;
        let is_needed = build::needs_log(spec);
        let lines = spec.tail_lines.filter(|_| is_needed);
        let read = self.read_end_of_log(lines, is_needed).await;
        if let Err(why) = &read {
            facts.insert("log".to_owned(), signoff_expr::text::display(why, 200));
        }
        let fail = |class: &str, message: String, retryable| Failure {
            log: read.as_ref().ok().map(|log| log.text.clone()).or_else(|| self.log_so_far.clone()),
            facts: facts.clone(),
            ..failure(class, message, retryable)
        };
        if let Some(PodProblem { reason, message }) = self.problem_of(pod, end) {
            if reason == FailureClass::OutcomeUnknown.name() {
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
                return Err(fail(FailureClass::TooLarge.name(), why, false));
            }
            (OutputFrom::Termination, _) => end.message.clone(),
            (OutputFrom::Log, Err(why)) => {
                return Err(fail("LogUnreadable", format!("its log cannot be read: {why}"), false));
            }
            (OutputFrom::Log, Ok(log)) if log.is_cut => {
                let why = format!("its log has more than {} KiB: write less, or set tailLines", log::MAX_LOG / 1024);
                return Err(fail(FailureClass::TooLarge.name(), why, false));
            }
            (OutputFrom::Log, Ok(log)) => log.text.clone(),
        };
        let log = read.ok().map(|log| log.text);
        Ok(Reply { response: response.into(), facts, log, ..Reply::default() })
    }

    /// Returns the problem of a terminated container, or `None` if it succeeded. A container that was told to end has
    /// not succeeded, whatever its exit code.
    fn problem_of(&self, pod: &StepPod, end: &Terminated) -> Option<PodProblem> {
        let code = end.exit_code;
        // A container that exited with 0 before the request was not told to end.
        let termination = self
            .termination
            .as_ref()
            .filter(|_| code != 0 || pod.deletion_requested_before_exit(end))
            .map(|(why, _)| why.clone());
        let stopped = termination.or_else(|| pod.end_by_cluster());
        if let Some(PodProblem { reason, message }) = stopped {
            return Some(PodProblem { reason, message: format!("{message}; it ended with exit code {code}") });
        }
        let with_output =
            |message: String| if end.message.is_empty() { message } else { format!("{message}: {}", end.message) };
        let (reason, message) = match end.reason.as_str() {
            "OOMKilled" if code != 0 => ("OOMKilled", "it used more memory than its limit".to_owned()),
            "ContainerStatusUnknown" => {
                (FailureClass::OutcomeUnknown.name(), "its kubelet does not know how its container ended".to_owned())
            }
            "" | "Error" | "Completed" | "OOMKilled" if pod.deletion_requested_before_exit(end) => {
                let (reason, why) = match pod.disruption() {
                    Some(PodProblem { message, .. }) => ("Evicted", message),
                    None => ("Deleted", "its Pod was deleted".to_owned()),
                };
                (reason, format!("{why}; it ended with exit code {code}"))
            }
            _ if code == 0 => return None,
            "" | "Error" | "Completed" => ("ExitCode", with_output(format!("it ended with exit code {code}"))),
            other => (other, with_output(format!("it ended with exit code {code}"))),
        };
        Some(PodProblem { reason: reason.to_owned(), message })
    }

    /// Returns the result of a Pod that ended without its container running, or that the cluster ended.
    pub(super) fn failure_before_start(&self, why: &PodProblem) -> Failure {
        let PodProblem { reason, message } = self.termination.as_ref().map_or(why, |(why, _)| why);
        failure(reason, format!("{}: {message}", self.display_name()), true)
    }

    /// Returns the result of a deleted Pod whose every state was received.
    pub(super) fn deletion_result(&self, last: Option<&StepPod>) -> Failure {
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

    /// Returns the failure of a Pod whose end was not observed.
    pub(super) fn lost_result(&self, why: &str) -> Failure {
        unknown_outcome(self.call.idempotent, format!("{}: {why}; it may or may not have run", self.display_name()))
    }

    pub(super) fn display_name(&self) -> String {
        format!("Pod {}", self.pod.name)
    }
}

/// Returns the exit code and the node as facts of a reply or a failure.
fn facts_of(pod: &StepPod, end: &Terminated) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([("exitCode".to_owned(), end.exit_code.to_string())]);
    if let Some(node) = &pod.node {
        facts.insert("node".to_owned(), node.chars().take(253).collect());
    }
    facts
}

/// Returns a failure with a certain outcome. A reason that cannot be a failure class becomes `Failed`.
pub(super) fn failure(class: &str, message: String, retryable: bool) -> Failure {
    let class = if is_failure_class(class) { class } else { FailureClass::Failed.name() };
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

/// Returns a failure after which it is unknown whether the call had its effect, unless the call is idempotent.
pub(super) fn unknown_outcome(idempotent: bool, message: String) -> Failure {
    Failure { unknown: !idempotent, ..failure(FailureClass::OutcomeUnknown.name(), message, idempotent) }
}
