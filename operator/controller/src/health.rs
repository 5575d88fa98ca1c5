//! The operator's health: the text of `/readyz`.

use std::{fmt, sync::Weak};

use tokio::sync::watch;

use crate::{context::Context, guard::GuardStatus, metrics::SharedMetrics, notices::NoticeDesk};

/// The phase of an operator between its start and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorPhase {
    /// Another operator holds the Lease. This operator takes over when the other one is gone.
    StandingBy(String),
    /// The operator reads its objects before the first reconcile. The text is the current step.
    Starting(String),
    /// The operator reconciles objects.
    Working,
    /// The operator finishes the calls in flight, and starts nothing new.
    Stopping,
}

impl fmt::Display for OperatorPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StandingBy(why) => write!(f, "standing by: {why}"),
            Self::Starting(why) => write!(f, "starting: {why}"),
            Self::Working => f.write_str("working"),
            Self::Stopping => f.write_str("stopping"),
        }
    }
}

/// The probe of a running operator's health. Clones probe the same operator.
#[derive(Clone)]
pub struct Probe {
    pub(crate) phase: watch::Receiver<OperatorPhase>,
    pub(crate) guard: watch::Receiver<GuardStatus>,
    pub(crate) metrics: SharedMetrics,
    pub(crate) context: watch::Receiver<Weak<Context>>,
}

impl Probe {
    /// Returns a sentence about the state of an operator that is ready.
    ///
    /// # Errors
    /// The operator is not ready. The error is the sentence about its state.
    pub fn ready(&self) -> Result<String, String> {
        let phase = self.phase.borrow().clone();
        let guard = self.guard.borrow().clone();
        let context = self.context.borrow().upgrade();
        if context.is_some_and(|context| !context.api.lease_guard.is_valid()) {
            return Err(format!(
                "{phase}; the Lease was not renewed: the API server cannot be reached, and nothing new begins"
            ));
        }
        match (&phase, &guard) {
            (OperatorPhase::StandingBy(_), _) => Ok(phase.to_string()),
            (OperatorPhase::Working, GuardStatus::InForce(_)) => {
                let notices = self.problem_of_notices().map(|why| format!("; {why}"));
                Ok(format!("{phase}; {guard}{}", notices.unwrap_or_default()))
            }
            _ => Err(format!("{phase}; {guard}")),
        }
    }

    /// Returns the problem of the configuration of notices, which does not affect the readiness.
    fn problem_of_notices(&self) -> Option<String> {
        let context = self.context.borrow().upgrade()?;
        context.listeners.notices.as_ref().and_then(NoticeDesk::problem)
    }

    /// Returns the current phase and its changes.
    #[must_use]
    pub fn phase(&self) -> watch::Receiver<OperatorPhase> {
        self.phase.clone()
    }

    /// Returns all metrics as OpenMetrics text.
    ///
    /// # Errors
    /// Never in practice: a `String` takes any text.
    pub fn metrics(&self) -> Result<String, fmt::Error> {
        if let Some(context) = self.context.borrow().upgrade() {
            let Context { objects, calls, values, listeners, .. } = &*context;
            let (free, waiting) = calls.slots.levels();
            let (workflows, approvals) = (objects.workflows.memory_use(), objects.approvals.memory_use());
            self.metrics.set_held_bytes(calls.bytes.taken(), values.quota.memory_taken());
            self.metrics.set_stalled(context.stalls.count());
            if let Some(notices) = &listeners.notices {
                self.metrics.set_notices_waiting(&notices.waiting());
                self.metrics.set_notices_misconfigured(notices.problem().is_some());
            }
            self.metrics.set_machine_ahead(context.api.clock.machine_ahead());
            self.metrics.set_store_bytes(workflows.0 + approvals.0, workflows.1 + approvals.1);
            self.metrics.set_queue_levels(objects.approvals.count_open(), free, waiting, context.queue.depth());
        }
        self.metrics.text()
    }
}
