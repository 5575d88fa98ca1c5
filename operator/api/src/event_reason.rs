//! The reasons of Kubernetes Events, as the conditions have theirs in [`crate::conditions`].

use crate::{approval::ApprovalPhase, workflow::WorkflowPhase};

/// The reason of a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventReason {
    /// Workflow: the Approval of a gate exists.
    ApprovalRequested,
    /// Workflow: accepted, and something in its spec was perhaps not meant.
    Warned,
    /// Workflow: held by an approval policy, or by other rules of Signoff.
    Held,
    /// Workflow: a copy from a backup, which never continues.
    Restored,
    /// Workflow and Approval: an evaluation of its text was stopped.
    Quarantined,
    /// Workflow: nothing new starts, because of `spec.suspend`.
    Suspended,
    /// Workflow: no longer suspended.
    Resumed,
    /// Workflow: a call began, and its outcome is unknown.
    OutcomeUnknown,
    /// Workflow: held because the admission policies are not in force.
    Unguarded,
    /// Workflow: the admission policies are in force again.
    Guarded,
    /// Workflow: the run took no decision of a gate, which asks again.
    GateSuperseded,
    /// Workflow and Approval: an operation has failed for a minute.
    Stalled,
    /// Workflow and Approval: the stored object does not have the shape of this version's CRD.
    Unreadable,
    /// Workflow: a part of the journal is missing.
    JournalIncomplete,
    /// Workflow: a newer operator wrote the journal.
    JournalTooNew,
    /// Approval: still waiting for a decision.
    Reminder,
    /// Approval: more people may decide, until a new deadline.
    Escalated,
    /// Approval: a decision asked for more people, and there are none.
    EscalationExhausted,
    /// Approval: a decision has an invalid payload.
    InvalidDecision,
    /// Approval: its votes are void, because the gate is asked again.
    VotesVoided,
    /// Approval: the deadline passed, and it stays open.
    Overdue,
    /// Workflow: ended in this phase.
    RunEnded(WorkflowPhase),
    /// Approval: ended in this phase.
    GateEnded(ApprovalPhase),
    /// Workflow: a reason of its condition `Accepted` or `ValueUnavailable`, one of [`crate::conditions::reason`].
    Condition(&'static str),
}

impl EventReason {
    /// Returns the text of the field `reason`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ApprovalRequested => "ApprovalRequested",
            Self::Warned => "Warned",
            Self::Held => "Held",
            Self::Restored => "Restored",
            Self::Quarantined => "Quarantined",
            Self::Suspended => "Suspended",
            Self::Resumed => "Resumed",
            Self::OutcomeUnknown => "OutcomeUnknown",
            Self::Unguarded => "Unguarded",
            Self::Guarded => "Guarded",
            Self::GateSuperseded => "GateSuperseded",
            Self::Stalled => "Stalled",
            Self::Unreadable => "Unreadable",
            Self::JournalIncomplete => "JournalIncomplete",
            Self::JournalTooNew => "JournalTooNew",
            Self::Reminder => "Reminder",
            Self::Escalated => "Escalated",
            Self::EscalationExhausted => "EscalationExhausted",
            Self::InvalidDecision => "InvalidDecision",
            Self::VotesVoided => "VotesVoided",
            Self::Overdue => "Overdue",
            Self::RunEnded(phase) => phase.name(),
            Self::GateEnded(phase) => phase.name(),
            Self::Condition(reason) => reason,
        }
    }

    /// Whether the Event has the type `Warning`; otherwise it has `Normal`.
    #[must_use]
    pub fn is_warning(self) -> bool {
        match self {
            Self::ApprovalRequested
            | Self::Suspended
            | Self::Resumed
            | Self::Guarded
            | Self::Reminder
            | Self::Escalated => false,
            Self::Warned
            | Self::Held
            | Self::Restored
            | Self::Quarantined
            | Self::OutcomeUnknown
            | Self::Unguarded
            | Self::GateSuperseded
            | Self::Stalled
            | Self::Unreadable
            | Self::JournalIncomplete
            | Self::JournalTooNew
            | Self::EscalationExhausted
            | Self::InvalidDecision
            | Self::VotesVoided
            | Self::Overdue
            | Self::Condition(_) => true,
            Self::RunEnded(phase) => !matches!(phase, WorkflowPhase::Succeeded | WorkflowPhase::Cancelled),
            Self::GateEnded(phase) => {
                matches!(phase, ApprovalPhase::Expired | ApprovalPhase::Aborted | ApprovalPhase::Superseded)
            }
        }
    }
}
