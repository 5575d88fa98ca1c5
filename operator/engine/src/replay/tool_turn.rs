//! A turn of an agent that called tools: its text, its calls, and the result of each.

use std::{collections::BTreeSet, sync::Arc};

use signoff_api::turn::OpaqueParts;

use crate::transition::{Message, Role, ToolCall};

/// The maximum size of the earlier conversation in a request to a model, in bytes. The oldest turns are dropped first.
pub(crate) const MEMORY: usize = 256 * 1024;
/// The beginning of the message in place of turns that are left out.
const LEFT_OUT: &str = "[the oldest ";

/// A turn that called tools, with the result of each call.
#[derive(Debug)]
pub(crate) struct ToolTurn {
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    /// The paths of the calls whose arguments the model receives again.
    pub(crate) told: BTreeSet<String>,
    /// The result of each call, in the order of `calls`.
    pub(crate) results: Vec<String>,
    /// The parts that only the provider can read.
    pub(crate) opaque: Option<Arc<OpaqueParts>>,
}

/// The message to the model in place of turns that do not fit its conversation.
pub(crate) fn left_out(turns: usize) -> Message {
    let note =
        format!("{LEFT_OUT}{turns} turns of this conversation are left out, because it has more than {MEMORY} bytes]");
    Message::text(Role::User, note)
}

/// Whether a message was created by [`left_out`].
pub(crate) fn is_left_out(message: &Message) -> bool {
    let count = message.text.strip_prefix(LEFT_OUT).and_then(|rest| rest.split(' ').next()?.parse().ok());
    count.is_some_and(|count| left_out(count) == *message)
}
