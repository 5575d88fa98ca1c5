//! The foreseen effect of a decision: the decisions are counted by the function with which the operator counts.
//!
//! For display only. The outcome is in the status that the operator writes.

use signoff_api::{Approval, ApprovalStatus, Moment, Verdict, approval::Source};
use signoff_engine::{
    Now,
    approval::{OwnerState, tally},
};
use signoff_executor::{Evaluator, EvaluatorSettings, Stopped, Subject};

use crate::{
    entry::Entry,
    outcome::{done, needed, on_behalf},
    quorum::agreement,
    text::one_line,
};

/// The reason why decisions cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// No thread could be started.
    #[error("a thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
    /// Counting the decisions costs too much.
    #[error("the decisions of this Approval cannot be counted: {0}; give a shorter or simpler answer")]
    Uncountable(Stopped),
}

/// A counter of decisions with bounds of time and memory, on threads of its own. Clones share the threads.
#[derive(Clone)]
pub struct Counter {
    evaluator: Evaluator,
}

/// The effect of a decision, if no other decision is recorded before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The gate is decided by this decision.
    Decided,
    /// The gate is decided by another decision, which takes precedence.
    Behind {
        /// The verdict of the other decision.
        verdict: Option<Verdict>,
        /// The users who gave the other decision.
        by: Vec<String>,
    },
    /// Further approvers are asked.
    Escalated,
    /// The gate stays open. The text has the number of people who agree, and the rules that are not met yet.
    Open(String),
    /// The decision cannot be counted.
    Unknown,
}

impl Counter {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(threads: usize) -> Result<Self, CountError> {
        Ok(Self { evaluator: Evaluator::start(EvaluatorSettings { threads, ..EvaluatorSettings::default() })? })
    }

    /// Returns the status that the operator would write for these decisions.
    ///
    /// # Errors
    /// Counting the decisions costs too much.
    pub async fn count(&self, approval: &Approval, now: Moment) -> Result<ApprovalStatus, CountError> {
        self.evaluator
            .run(evaluation_subject(approval), tally_work(approval, now))
            .await
            .map_err(CountError::Uncountable)
    }

    /// Returns the same as [`Counter::count`], and blocks the calling thread.
    ///
    /// # Errors
    /// As [`Counter::count`].
    pub fn wait(&self, approval: &Approval, now: Moment) -> Result<ApprovalStatus, CountError> {
        self.evaluator.wait(evaluation_subject(approval), tally_work(approval, now)).map_err(CountError::Uncountable)
    }
}

fn tally_work(approval: &Approval, now: Moment) -> impl FnOnce() -> ApprovalStatus + Send + 'static {
    let now = Now::new(now, approval.spec.request.guard_epoch.clone());
    let approval = approval.clone();
    move || tally(&approval, OwnerState::Live, &now).status
}

fn evaluation_subject(approval: &Approval) -> Subject {
    let metadata = &approval.metadata;
    Subject {
        kind: "Approval".to_owned(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        ..Subject::default()
    }
}

/// Returns an Approval in which a decision is recorded.
pub fn with(approval: &Approval, entry: &Entry) -> Approval {
    let mut changed = approval.clone();
    changed.spec.decisions.insert(entry.key.clone(), entry.decision.clone());
    changed
}

/// Returns the reason why the operator could not use a decision, or `None`. Such a decision would only cost one of the
/// few attempts.
pub fn unusable(counted: &ApprovalStatus, entry: &Entry) -> Option<String> {
    let invalid = counted.invalid.get(&entry.key).filter(|invalid| invalid.attempt == entry.decision.attempt());
    invalid.map(|invalid| one_line(&invalid.why, 1024))
}

/// Returns the effect of a decision that is recorded in an Approval. `counted`: the status after the decisions were
/// counted, if they could be counted.
pub fn reached(approval: &Approval, counted: Option<&ApprovalStatus>, entry: &Entry) -> Reached {
    let verdict = entry.decision.verdict;
    let Some(status) = counted else { return Reached::Unknown };
    match status.outcome.as_ref().filter(|outcome| outcome.source == Source::Human) {
        Some(outcome) if outcome.verdict == Some(verdict) => return Reached::Decided,
        Some(outcome) => return Reached::Behind { verdict: outcome.verdict, by: outcome.decided_by.clone() },
        None if verdict == Verdict::Escalate => return Reached::Escalated,
        None => {}
    }
    if !verdict.needs_quorum() {
        return Reached::Open(needed(&approval.spec.request));
    }
    Reached::Open(agreement(&Approval { status: Some(status.clone()), ..approval.clone() }))
}

impl Reached {
    /// Returns the line about the decision, such as `Approve recorded (1 of 2)`.
    pub fn line(&self, entry: &Entry) -> String {
        let (verdict, person) = (entry.decision.verdict, on_behalf(entry));
        match self {
            Self::Decided => format!("{}{person}", done(verdict)),
            Self::Behind { verdict: other, by } => {
                let other = other.map_or("another decision", Verdict::name);
                format!("{verdict} recorded{person} ({other} by {} takes precedence)", one_line(&by.join(", "), 300))
            }
            Self::Escalated => format!("escalated{person}"),
            Self::Open(count) => format!("{verdict} recorded{person} ({count})"),
            // A decision that cannot be counted here is stored all the same.
            Self::Unknown => format!("{verdict} recorded{person}"),
        }
    }
}

#[cfg(test)]
#[path = "foreseen/tests.rs"]
mod tests;
