//! A turn of an agent that called tools: its text, its calls, and the result of each.

use std::collections::BTreeSet;

use crate::transition::ToolCall;

/// A turn that called tools, with the result of each call.
#[derive(Debug)]
pub(crate) struct ToolTurn {
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    /// The paths of the calls whose arguments the model is told again.
    pub(crate) told: BTreeSet<String>,
    /// In the order of `calls`.
    pub(crate) results: Vec<String>,
}
