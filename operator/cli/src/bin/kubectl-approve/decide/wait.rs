//! Waiting for the operator to count a recorded decision: stored decision -> watch events *(I/O)* -> state *(pure)*.
//!
//! **Invariant:** only the operator's status tells whether a decision counts.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher::watch_object},
};
use signoff_api::{Approval, Verdict};
use signoff_review::{
    clock,
    entry::Entry,
    state::{DecisionState, Waited},
};
use tokio::time::Instant;

use crate::{
    args::{DEFAULT_WAIT, Wait},
    cluster::{client::Session, watch_problem::refusal},
};

/// Whether a longer wait could end with another state.
pub fn is_open(waited: &Waited, verdict: Verdict) -> bool {
    waited.problem.is_none() && !is_final(&waited.state, verdict, Some(Wait::UntilDeadline))
}

impl Wait {
    /// Whether this wait is longer than the wait of a command without `--wait`.
    pub fn is_long(self) -> bool {
        match self {
            Self::UntilDeadline => true,
            Self::AtMost(length) => length > DEFAULT_WAIT,
        }
    }
}

/// Watches an Approval until a decision has had its effect, until the API server refuses the watch, or until the wait
/// that began at `started` ends.
pub async fn wait(session: &Session, stored: Approval, entry: &Entry, wait: Option<Wait>, started: Instant) -> Waited {
    let name = stored.metadata.name.clone().unwrap_or_default();
    let api = Api::<Approval>::namespaced(session.raw().clone(), &session.namespace);
    let mut events = pin!(watch_object(api, &name).default_backoff());
    let mut waited = Waited::new(stored, entry);
    while !is_final(&waited.state, entry.decision.verdict, wait) {
        let Ok(Some(event)) =
            tokio::time::timeout_at(wait_end(&waited.approval, wait, session.default_wait, started), events.next())
                .await
        else {
            break;
        };
        match event {
            Ok(received) => waited.apply(received, entry),
            // After any other error the watch starts again, with a backoff.
            Err(error) => {
                if let Some(refusal) = refusal(&error) {
                    waited.problem = Some(session.explain(refusal).to_string());
                    break;
                }
            }
        }
    }
    waited
}

/// Whether the command waits no longer after this state.
fn is_final(state: &DecisionState, verdict: Verdict, wait: Option<Wait>) -> bool {
    match state {
        DecisionState::Recorded => false,
        DecisionState::Counted => wait.is_none() || verdict == Verdict::Escalate,
        DecisionState::Escalated
        | DecisionState::NotEscalated
        | DecisionState::Invalid(_)
        | DecisionState::Closed { .. }
        | DecisionState::Deleted => true,
    }
}

/// Returns the time at which the wait ends. It can change during the wait, because an escalation moves the deadline.
fn wait_end(approval: &Approval, wait: Option<Wait>, default: Duration, started: Instant) -> Instant {
    match wait {
        None => started + default,
        Some(Wait::AtMost(length)) => started + length,
        Some(Wait::UntilDeadline) => Instant::now() + approval.deadline().since(clock::now()) + DEFAULT_WAIT,
    }
}

#[cfg(test)]
mod tests;
