//! The calls of tools by agents: their arguments, names and lists, the gates in front of them, and the built-in question. All *(pure)*.
//!
//! **Invariant:** what a model wrote is parsed once, here, and everything else reads the canonical text.

pub(crate) mod arguments;
pub(crate) mod lists;
pub(crate) mod names;
pub(crate) mod presets;
pub(crate) mod question;
pub(crate) mod rule;

use signoff_api::{
    WorkflowSpec,
    tool::Effects,
    workflow::{Agent, Gate},
};

use lists::{Selection, ToolList};
use rule::CallRule;

pub use names::is_built_in;
pub use question::NOTICE as QUESTION_NOTICE;

/// The most calls of one turn that are made; each further one is an error result.
pub const MOST_CALLS: usize = 32;

/// Reads one JSON object as strictly as the arguments of a call: no duplicate key, and no number that a double does not hold.
///
/// # Errors
/// One sentence about the problem and its place.
pub fn read_object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    arguments::Arguments::parse(text).map(|arguments| arguments.value().clone())
}

/// Returns the tools that an agent may call: those of the spec in their order, then the built-in ones.
#[must_use]
pub fn offered<'s>(spec: &'s WorkflowSpec, agent: &'s Agent) -> Vec<&'s str> {
    let list = ToolList::of(&agent.tools);
    let own = spec.tools.iter().map(|tool| tool.name.as_str());
    let listed = own.filter(|name| matches!(list.selects(name), Selection::Listed(_)));
    listed.chain(agent.tools.iter().map(String::as_str).filter(|name| is_built_in(name))).collect()
}

/// Whether a gate, or one of its preset, would ask about a call of a tool with these effects, its condition aside.
#[must_use]
pub fn asks(gate: &Gate, tool: &str, effects: Option<Effects>) -> bool {
    let rules = presets::expanded(gate, false).into_iter().filter_map(|gate| CallRule::of(&gate));
    rules.map(|(_, rule)| rule).any(|rule| rule.reason(tool, effects).is_some())
}
