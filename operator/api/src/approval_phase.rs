//! The phase of an Approval, and which verdict leads to which.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::verdict::Verdict;

/// The phase of an Approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalPhase {
    /// Open.
    #[default]
    Pending,
    /// The deadline passed, and it stays open for Retry, Reject and Abort.
    Overdue,
    /// Ended by Approve.
    Approved,
    /// Ended by Reject.
    Rejected,
    /// Ended by Modify.
    Modified,
    /// Ended by Respond.
    Responded,
    /// Ended by Defer.
    Deferred,
    /// Ended by Skip.
    Skipped,
    /// Ended by Abort.
    Aborted,
    /// Ended by Retry.
    Retried,
    /// Ended by a timeout; `outcome.verdict` has the resulting verdict.
    Expired,
    /// Ended because its Workflow ended.
    Cancelled,
    /// Ended because its votes could no longer be verified; its gate asks again.
    Superseded,
}

impl ApprovalPhase {
    /// All phases.
    pub const ALL: [Self; 13] = [
        Self::Pending,
        Self::Overdue,
        Self::Approved,
        Self::Rejected,
        Self::Modified,
        Self::Responded,
        Self::Deferred,
        Self::Skipped,
        Self::Aborted,
        Self::Retried,
        Self::Expired,
        Self::Cancelled,
        Self::Superseded,
    ];

    /// Whether the phase is final, so that votes are no longer counted.
    #[must_use]
    pub fn is_end(self) -> bool {
        !matches!(self, Self::Pending | Self::Overdue)
    }

    /// Returns the phase that a verdict leads to; Escalate leads to Pending.
    #[must_use]
    pub fn of(verdict: Verdict) -> Self {
        verdict.rules().phase
    }

    /// Returns the name as it is stored in objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Overdue => "Overdue",
            Self::Approved => "Approved",
            Self::Rejected => "Rejected",
            Self::Modified => "Modified",
            Self::Responded => "Responded",
            Self::Deferred => "Deferred",
            Self::Skipped => "Skipped",
            Self::Aborted => "Aborted",
            Self::Retried => "Retried",
            Self::Expired => "Expired",
            Self::Cancelled => "Cancelled",
            Self::Superseded => "Superseded",
        }
    }
}
