//! Where a tool is called, and the facts by which the record of its gate is known again.

use crate::{plan::PlannedTool, replay::scope::StepScope};

/// The fact of a gate with the tool that it asks about.
pub(super) const FACT_TOOL: &str = "tool";
/// The fact of a gate with the digest of the arguments that it asks about.
pub(super) const FACT_ARGUMENTS: &str = "arguments";

/// Where a tool is called.
pub(super) struct ToolCallSite<'a> {
    pub(super) tool: &'a PlannedTool,
    /// The path of the call.
    pub(super) path: String,
    /// Its templates and those of the gates see `args`, `tool`, `effects` and `agent`.
    pub(super) scope: StepScope<'a>,
    pub(super) seen: i64,
}
