//! What the operator made of a recorded decision, from the status of its Approval.
//!
//! Pure: a client feeds [`Waited`] with the watch events of its own transport. The operator's status is all that it
//! believes.

use signoff_api::{Approval, Outcome, Verdict, approval::Source};

use crate::entry::Entry;

/// What the operator made of a recorded decision.
#[derive(Clone, Debug, PartialEq)]
pub enum DecisionState {
    /// Not counted yet.
    Recorded,
    /// Counted; the gate is still open. Of an Escalate: it is not known whether the gate was escalated by it.
    Counted,
    /// A counted Escalate, by which the gate was escalated.
    Escalated,
    /// A counted Escalate without effect, because there are no further approvers.
    NotEscalated,
    /// The decision does not count, and why.
    Invalid(String),
    /// The gate has an outcome.
    Closed {
        /// The outcome.
        outcome: Box<Outcome>,
        /// Whether the decision is one of the counted votes.
        is_counted: bool,
        /// Why the decision is invalid.
        invalid: Option<String>,
    },
    /// The Approval was deleted.
    Deleted,
}

/// A recorded decision and what became of it so far.
#[derive(Clone, Debug)]
pub struct Waited {
    /// The last state.
    pub state: DecisionState,
    /// The Approval as it was last received.
    pub approval: Approval,
    /// The number of escalations before the decision was counted, or `None` if it was counted before the wait.
    level_before: Option<i32>,
    /// The reason why it could not be watched.
    pub problem: Option<String>,
}

impl Waited {
    /// Returns the begin of a wait for the effect of a stored decision.
    #[must_use]
    pub fn new(stored: Approval, entry: &Entry) -> Self {
        let level_before = (!is_counted(&stored, entry)).then(|| level(&stored));
        let state = state(&stored, entry, level_before);
        Self { state, approval: stored, level_before, problem: None }
    }

    /// Applies a watch event: the Approval, or `None` if there is none. One of the same name that was created later
    /// does not have the decision.
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

/// Returns what the status says about a decision. `level_before`: the number of escalations before it was counted.
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

/// Whether a decision is one of the counted votes. The operator adds every vote that it counts, also at the outcome.
pub fn is_counted(approval: &Approval, entry: &Entry) -> bool {
    let votes = approval.status.as_ref().map(|status| status.votes.as_slice()).unwrap_or_default();
    votes.iter().any(|vote| vote.key == entry.key && vote.attempt == entry.decision.attempt())
}

/// Returns the number of escalations so far.
pub fn level(approval: &Approval) -> i32 {
    approval.status.as_ref().and_then(|status| status.level).unwrap_or(0)
}

/// Whether the outcome is what a counted decision asked for. Of the verdicts with a payload, another person's can be a
/// different one.
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
