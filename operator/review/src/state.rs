//! The state of a recorded decision, by the status of its Approval.
//!
//! Pure: a client gives the watch events of its own transport to [`Waited`]. The state comes from the operator's status
//! alone.

use signoff_api::{Approval, Outcome, Verdict, approval::Source};

use crate::entry::Entry;

/// The state of a recorded decision.
#[derive(Clone, Debug, PartialEq)]
pub enum DecisionState {
    /// Not counted yet.
    Recorded,
    /// Counted; the gate is still open. Of an Escalate: it is unknown whether this decision escalated the gate.
    Counted,
    /// A counted Escalate that escalated the gate.
    Escalated,
    /// A counted Escalate without effect, because there are no further approvers.
    NotEscalated,
    /// The decision does not count; with the reason.
    Invalid(String),
    /// The gate has an outcome.
    Closed {
        /// The outcome of the gate.
        outcome: Box<Outcome>,
        /// Whether the decision is one of the counted votes.
        is_counted: bool,
        /// The reason why the decision is invalid, if it is.
        invalid: Option<String>,
    },
    /// The Approval was deleted.
    Deleted,
}

/// A recorded decision that a client waits for, and its state so far.
#[derive(Clone, Debug)]
pub struct Waited {
    /// The state of the decision in `approval`.
    pub state: DecisionState,
    /// The Approval as it was last received.
    pub approval: Approval,
    /// The number of escalations before the decision was counted, or `None` if it was counted before the wait.
    level_before: Option<i32>,
    /// The reason why the Approval could not be watched.
    pub problem: Option<String>,
}

impl Waited {
    /// Returns the state at the beginning of a wait. `stored`: the Approval with the decision.
    #[must_use]
    pub fn new(stored: Approval, entry: &Entry) -> Self {
        let level_before = (!is_counted(&stored, entry)).then(|| level(&stored));
        let state = state(&stored, entry, level_before);
        Self { state, approval: stored, level_before, problem: None }
    }

    /// Applies a watch event. `received`: the Approval, or `None` if it was deleted. A later Approval of the same name
    /// does not have the decision, so the decision then counts as deleted.
    pub fn apply(&mut self, received: Option<Approval>, entry: &Entry) {
        let Some(approval) = received.filter(|found| found.metadata.uid == self.approval.metadata.uid) else {
            self.state = DecisionState::Deleted;
            return;
        };
        if !is_counted(&approval, entry) {
            self.level_before = Some(level(&approval));
        }
        self.state = state(&approval, entry, self.level_before);
        self.approval = approval;
    }
}

/// Returns the state of a decision by the status. `level_before`: the number of escalations before the decision was
/// counted.
pub fn state(approval: &Approval, entry: &Entry, level_before: Option<i32>) -> DecisionState {
    let Some(status) = &approval.status else { return DecisionState::Recorded };
    let attempt = entry.decision.attempt();
    let invalid = status.invalid.get(&entry.key).filter(|invalid| invalid.attempt == attempt);
    let (is_counted, invalid) = (is_counted(approval, entry), invalid.map(|invalid| invalid.why.clone()));
    match (&status.outcome, invalid) {
        (Some(outcome), invalid) => DecisionState::Closed { outcome: Box::new(outcome.clone()), is_counted, invalid },
        (None, Some(why)) => DecisionState::Invalid(why),
        (None, None) if !is_counted => DecisionState::Recorded,
        (None, None) if entry.decision.verdict == Verdict::Escalate => match level_before {
            Some(before) if level(approval) > before => DecisionState::Escalated,
            None if level(approval) > 0 => DecisionState::Counted,
            _ => DecisionState::NotEscalated,
        },
        (None, None) => DecisionState::Counted,
    }
}

/// Whether a decision is one of the counted votes. The operator adds every vote that it counts, even the one that
/// decides the gate.
pub fn is_counted(approval: &Approval, entry: &Entry) -> bool {
    let votes = approval.status.as_ref().map(|status| status.votes.as_slice()).unwrap_or_default();
    votes.iter().any(|vote| vote.key == entry.key && vote.attempt == entry.decision.attempt())
}

/// Returns the number of escalations so far.
pub fn level(approval: &Approval) -> i32 {
    approval.status.as_ref().and_then(|status| status.level).unwrap_or(0)
}

/// Whether the outcome has the verdict and the payload of a counted decision. For a verdict with a payload, the
/// outcome can have the payload of another person.
pub fn is_as_voted(outcome: &Outcome, entry: &Entry) -> bool {
    let (user, verdict) = (entry.decision.on_behalf_of.as_ref().unwrap_or(&entry.key), entry.decision.verdict);
    let is_plain = matches!(verdict, Verdict::Approve | Verdict::Reject | Verdict::Abort | Verdict::Skip);
    outcome.source == Source::Human
        && outcome.verdict == Some(verdict)
        && (is_plain || outcome.decided_by.contains(user))
}

#[cfg(test)]
#[path = "state/tests.rs"]
mod tests;
