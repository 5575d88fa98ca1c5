//! The interface of a channel, which delivers notices to people or to a machine.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::notice::Notice;

/// A recipient of notices in a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Recipient {
    /// The channel as a whole, such as a Slack channel or a webhook.
    Channel,
    /// One person, by the address in this channel.
    Person(String),
}

/// The id of a sent message, with which a later notice changes or answers the message. In Slack: channel and `ts`; in
/// mail: the Message-ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageHandle(pub String);

/// The failure of an attempt to deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// A later attempt can succeed.
    Later {
        /// The reason, without tokens and addresses.
        why: String,
        /// The time for which the receiver asks to wait, if it does.
        after: Option<Duration>,
    },
    /// No later attempt can succeed.
    Dead {
        /// The reason, without tokens and addresses.
        why: String,
    },
}

/// A way to deliver notices, such as Slack or mail.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Sends a notice, and returns the id of the message if the channel has such ids. `earlier`: the message that the
    /// same recipient got before about the same object.
    async fn send(
        &self,
        notice: &Notice,
        to: &Recipient,
        earlier: Option<&MessageHandle>,
    ) -> Result<Option<MessageHandle>, SendError>;
}
