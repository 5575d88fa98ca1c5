//! The notice that every channel gets.

use serde::{Deserialize, Serialize};
use signoff_api::Moment;

/// The kinds of events that a notice reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NoticeEvent {
    /// A gate asks for a decision.
    Asked,
    /// A gate still waits for a decision.
    Reminded,
    /// More people may decide.
    Escalated,
    /// The run has applied the outcome of a gate.
    Taken,
    /// A vote was voided, because its gate asks again.
    VoteVoided,
    /// A run has ended.
    Ended,
}

impl NoticeEvent {
    /// Whether the gate still waits for a decision.
    #[must_use]
    pub fn is_open(self) -> bool {
        match self {
            Self::Asked | Self::Reminded | Self::Escalated => true,
            Self::Taken | Self::VoteVoided | Self::Ended => false,
        }
    }
}

/// A notice, before a channel renders it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The id of this event of this object. A notice that is sent again after a crash has the same id.
    pub id: String,
    /// The kind of the event.
    pub event: NoticeEvent,
    /// The SHA-256 digest of the uid of the Approval (or of the run) and of the channel. All notices about one object
    /// have the same correlation, so that a receiver can assign an outcome to its request.
    pub correlation: String,
    /// The namespace of the run.
    pub namespace: String,
    /// The name of the run.
    pub run: String,
    /// The name of the Approval; `None` for the end of a run.
    pub approval: Option<String>,
    /// The name of the gate.
    pub gate: Option<String>,
    /// The kind of the gate, in words.
    pub kind: Option<String>,
    /// The user who requested the run.
    pub requester: String,
    /// The time of the next timeout.
    pub deadline: Option<Moment>,
    /// The consequence of the timeout, in words.
    pub then: Option<String>,
    /// The outcome, in words of the operator.
    pub outcome: Option<String>,
    /// The question and the arguments of a call: untrusted text. Only channels with `details: full` get it.
    pub details: Option<String>,
    /// The URL of the page of the Approval or run.
    pub link: Option<String>,
    /// The time of the event, as the object stores it.
    pub at: Moment,
}
