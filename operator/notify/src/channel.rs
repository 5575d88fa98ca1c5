//! A channel: the way of a notice to people or to a machine.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::notice::Notice;

/// One address of a channel: the channel itself, or one person.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Recipient {
    /// The channel itself.
    Channel,
    /// One person, by the address on this channel.
    Person(String),
}

/// The name of a sent message, by which it is changed or answered later (Slack: channel and ts; mail: Message-ID).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageHandle(pub String);

/// The failure of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// It can succeed later, not before this time if given.
    Later {
        /// The reason, without tokens and addresses.
        why: String,
        /// The time that the receiver asks to wait.
        after: Option<Duration>,
    },
    /// It never will.
    Dead {
        /// The reason, without tokens and addresses.
        why: String,
    },
}

/// A channel.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Sends a notice; `earlier`: the message about the same object to the same recipient.
    async fn send(
        &self,
        notice: &Notice,
        to: &Recipient,
        earlier: Option<&MessageHandle>,
    ) -> Result<Option<MessageHandle>, SendError>;
}
