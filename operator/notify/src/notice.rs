//! A notice, as every channel gets it.

use serde::{Deserialize, Serialize};
use signoff_api::Moment;

/// The event that a notice tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NoticeEvent {
    /// A gate asks.
    Asked,
    /// A gate still waits.
    Reminded,
    /// More people may decide.
    Escalated,
    /// The run has taken the outcome of a gate.
    Taken,
    /// A vote is void, because its gate asks again.
    VoteVoided,
    /// A run has ended.
    Ended,
}

impl NoticeEvent {
    /// Whether the gate still asks.
    #[must_use]
    pub fn is_open(self) -> bool {
        match self {
            Self::Asked | Self::Reminded | Self::Escalated => true,
            Self::Taken | Self::VoteVoided | Self::Ended => false,
        }
    }
}

/// One notice, as every channel gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Names this event of this object: the same after every crash.
    pub id: String,
    /// The event.
    pub event: NoticeEvent,
    /// sha256 of the Approval's uid (or the run's), without the event: a resolution finds its incident by it.
    pub correlation: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the run.
    pub run: String,
    /// The name of the Approval; none for the end of a run.
    pub approval: Option<String>,
    /// The gate.
    pub gate: Option<String>,
    /// The kind of the gate, in words.
    pub kind: Option<String>,
    /// The requester.
    pub requester: String,
    /// The time of the next timeout.
    pub deadline: Option<Moment>,
    /// The consequence of the timeout, in words.
    pub then: Option<String>,
    /// The outcome in words of the operator.
    pub outcome: Option<String>,
    /// The question and the arguments, only where the channel has `details: full` for the namespace: text of others.
    pub details: Option<String>,
    /// The address of the page.
    pub link: Option<String>,
    /// The time of the event, as an object stores it.
    pub at: Moment,
}
