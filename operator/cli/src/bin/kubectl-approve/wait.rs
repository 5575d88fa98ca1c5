//! Waiting for the operator to count a recorded decision: stored decision -> watch events *(I/O)* -> state *(pure)*.
//!
//! It must not decide anything. The operator's status is all that it believes.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher, watcher::watch_object},
};
use signoff_api::{Approval, Outcome, Verdict, approval::Source};
use tokio::time::Instant;

use crate::{args::Wait, client::Session, clock, payload::Entry};

/// The time for which a decision waits without `--wait`. It also covers the time between a deadline and its outcome.
pub const DEFAULT: Duration = Duration::from_secs(2);

/// What the operator made of a recorded decision.
#[derive(Clone, Debug, PartialEq)]
pub enum DecisionState {
    /// Not counted yet.
    Recorded,
    /// Counted; the gate is still open.
    Counted,
    /// The decision does not count, and why.
    Invalid(String),
    /// The gate has an outcome.
    Closed(Box<Outcome>),
    /// The Approval was deleted.
    Deleted,
}

/// The end of a wait.
#[derive(Debug)]
pub struct Waited {
    /// The last state.
    pub state: DecisionState,
    /// The Approval as it was last received.
    pub approval: Approval,
    /// Why it could not be watched.
    pub problem: Option<String>,
}

impl Waited {
    /// Whether a longer wait could end with another state.
    pub fn is_open(&self, verdict: Verdict) -> bool {
        self.problem.is_none() && !is_final(&self.state, verdict, Some(Wait::UntilDeadline))
    }
}

impl Wait {
    /// Whether it is longer than a call without `--wait` waits.
    pub fn is_long(self) -> bool {
        match self {
            Self::UntilDeadline => true,
            Self::AtMost(length) => length > DEFAULT,
        }
    }
}

/// Returns what the status says about a decision.
pub fn state(approval: &Approval, entry: &Entry) -> DecisionState {
    let Some(status) = &approval.status else { return DecisionState::Recorded };
    let attempt = entry.decision.attempt();
    if let Some(outcome) = &status.outcome {
        return DecisionState::Closed(Box::new(outcome.clone()));
    }
    if let Some(invalid) = status.invalid.get(&entry.key).filter(|invalid| invalid.attempt == attempt) {
        return DecisionState::Invalid(invalid.why.clone());
    }
    let is_counted = status.votes.iter().any(|vote| vote.key == entry.key && vote.attempt == attempt);
    if is_counted { DecisionState::Counted } else { DecisionState::Recorded }
}

/// Whether the outcome is what the decision asked for. Of the verdicts with a payload, another person's can be a different one.
pub fn is_as_voted(outcome: &Outcome, entry: &Entry) -> bool {
    let (user, verdict) = (entry.decision.on_behalf_of.as_ref().unwrap_or(&entry.key), entry.decision.verdict);
    let is_plain = matches!(verdict, Verdict::Approve | Verdict::Reject | Verdict::Abort | Verdict::Skip);
    outcome.source == Source::Human
        && outcome.verdict == Some(verdict)
        && (is_plain || outcome.decided_by.contains(user))
}

/// Watches an Approval until a decision has had its effect, or the time since `begun` is over.
pub async fn wait(session: &Session, stored: Approval, entry: &Entry, wait: Option<Wait>, begun: Instant) -> Waited {
    let name = stored.metadata.name.clone().unwrap_or_default();
    let api = Api::<Approval>::namespaced(session.raw().clone(), &session.namespace);
    let mut events = pin!(watch_object(api, &name).default_backoff());
    let mut waited = Waited { state: state(&stored, entry), approval: stored, problem: None };
    while !is_final(&waited.state, entry.decision.verdict, wait) {
        let Ok(Some(event)) = tokio::time::timeout_at(end(&waited.approval, wait, begun), events.next()).await else {
            break;
        };
        match event.map_err(refusal) {
            Ok(Some(approval)) => {
                waited.state = state(&approval, entry);
                waited.approval = approval;
            }
            Ok(None) => waited.state = DecisionState::Deleted,
            Err(Some(error)) => {
                waited.problem = Some(session.explain(error).to_string());
                break;
            }
            // The watch is opened again, with a backoff.
            Err(None) => {}
        }
    }
    waited
}

/// Whether nothing that the command waits for can follow.
fn is_final(state: &DecisionState, verdict: Verdict, wait: Option<Wait>) -> bool {
    match state {
        DecisionState::Recorded => false,
        DecisionState::Counted => wait.is_none() || verdict == Verdict::Escalate,
        DecisionState::Invalid(_) | DecisionState::Closed(_) | DecisionState::Deleted => true,
    }
}

/// Returns the time at which the wait ends. An escalation moves the deadline.
fn end(approval: &Approval, wait: Option<Wait>, begun: Instant) -> Instant {
    match wait {
        None => begun + DEFAULT,
        Some(Wait::AtMost(length)) => begun + length,
        Some(Wait::UntilDeadline) => Instant::now() + approval.deadline().since(clock::now()) + DEFAULT,
    }
}

/// Returns the refusal of the API server, which no other attempt would change.
fn refusal(error: watcher::Error) -> Option<kube::Error> {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(cause) | WatchStartFailed(cause) | WatchFailed(cause)) = error else { return None };
    matches!(&cause, kube::Error::Api(status) if [401, 403].contains(&status.code)).then_some(cause)
}

#[cfg(test)]
#[path = "wait/tests.rs"]
mod tests;
