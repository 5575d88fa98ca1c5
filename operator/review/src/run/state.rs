//! The states of the rows of a tree: their words and tones.

use signoff_api::{approval::ApprovalPhase, journal::StepPhase};

/// The tone of a state, which chooses its color and its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// In progress.
    Busy,
    /// A person must act.
    Attention,
    /// Less important.
    Quiet,
}

/// The state of a step, a gate or a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not begun, and the run continues.
    Pending,
    /// Not begun, and the run has ended.
    NotRun,
    /// An attempt in the journal.
    Record(StepPhase),
    /// A gate with an outcome.
    Decided(ApprovalPhase),
}

impl State {
    /// Returns the word for the state.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::NotRun => "Not run",
            Self::Record(StepPhase::Pending) => "Queued",
            Self::Record(StepPhase::Started) => "Running",
            Self::Record(phase) => phase.name(),
            Self::Decided(phase) => phase.name(),
        }
    }

    /// Returns the tone of the state.
    pub fn tone(self) -> Tone {
        match self {
            Self::Pending | Self::NotRun | Self::Record(StepPhase::Skipped) => Tone::Quiet,
            Self::Record(StepPhase::Pending | StepPhase::Started) => Tone::Busy,
            Self::Record(StepPhase::Waiting) => Tone::Attention,
            Self::Record(StepPhase::Succeeded) => Tone::Good,
            Self::Record(StepPhase::Failed | StepPhase::Unknown) => Tone::Bad,
            Self::Decided(phase) => match phase {
                ApprovalPhase::Pending | ApprovalPhase::Overdue => Tone::Attention,
                ApprovalPhase::Approved | ApprovalPhase::Modified | ApprovalPhase::Responded => Tone::Good,
                ApprovalPhase::Rejected | ApprovalPhase::Aborted => Tone::Bad,
                ApprovalPhase::Deferred
                | ApprovalPhase::Skipped
                | ApprovalPhase::Retried
                | ApprovalPhase::Expired
                | ApprovalPhase::Cancelled
                | ApprovalPhase::Superseded => Tone::Quiet,
            },
        }
    }

    /// Whether the step has not begun.
    pub fn is_unbegun(self) -> bool {
        matches!(self, Self::Pending | Self::NotRun)
    }

    /// Whether the step has ended in a way that needs no attention.
    pub fn is_uneventful(self) -> bool {
        match self {
            Self::Record(phase) => matches!(phase, StepPhase::Succeeded | StepPhase::Skipped),
            Self::Decided(phase) => phase.is_end() && self.tone() != Tone::Bad,
            Self::Pending | Self::NotRun => false,
        }
    }
}
