//! The calls of tools by agents: their arguments, names and lists, the rules of the gates before them, and the built-in
//! question. All *(pure)*.
//!
//! **Invariant:** the text of a model is parsed once, here, and all other code reads the canonical text.

pub(crate) mod arguments;
pub(crate) mod lists;
pub(crate) mod names;
pub(crate) mod presets;
pub(crate) mod question;
pub(crate) mod rule;

use signoff_api::{
    WorkflowSpec,
    server::Server,
    tool::Effects,
    workflow::{Agent, Gate},
};

use lists::{Selection, ToolList};
use rule::{CallRule, RuledTool};

pub use names::is_built_in;
pub use question::NOTICE as QUESTION_NOTICE;

/// The maximum number of calls that are made in one turn. The result of every further call is an error.
pub const MOST_CALLS: usize = 32;

/// Parses one JSON object as strictly as the arguments of a call: no duplicate key, and no number that a double cannot
/// hold.
///
/// # Errors
/// One sentence about the problem and its place.
pub fn read_object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    arguments::Arguments::parse(text).map(|arguments| arguments.value().clone())
}

/// Returns the names of the tools that an agent may call: tools of the spec in their order, then the built-in tools.
#[must_use]
pub fn offered<'s>(spec: &'s WorkflowSpec, agent: &'s Agent) -> Vec<&'s str> {
    let list = ToolList::of(&agent.tools);
    let own = spec.tools.iter().map(|tool| tool.name.as_str());
    let listed = own.filter(|name| matches!(list.selects(name), Selection::Listed(_)));
    listed.chain(agent.tools.iter().map(String::as_str).filter(|name| is_built_in(name))).collect()
}

/// Whether a gate, or a gate of its preset, can ask about a call of a tool with the given effects. Conditions are
/// ignored.
#[must_use]
pub fn asks(gate: &Gate, tool: &str, effects: Option<Effects>) -> bool {
    asks_about(gate, &RuledTool { name: tool, effects, is_pinned: None })
}

/// Whether a gate, or a gate of its preset, can ask about a call of a tool of a server. Conditions are ignored. `tool`
/// is the name for agents, such as `crm.refund`.
#[must_use]
pub fn asks_about_server_tool(gate: &Gate, tool: &str, effects: Option<Effects>, is_pinned: bool) -> bool {
    asks_about(gate, &RuledTool { name: tool, effects, is_pinned: Some(is_pinned) })
}

fn asks_about(gate: &Gate, tool: &RuledTool<'_>) -> bool {
    let rules = presets::expand(gate, false).into_iter().filter_map(|gate| CallRule::of(&gate));
    rules.map(|(_, rule)| rule).any(|rule| rule.reason(tool).is_some())
}

/// Whether a gate, or a gate of its preset, asks about every call of a server's tools that may change something and
/// have no pin. Conditions are ignored.
#[must_use]
pub fn asks_about_server(gate: &Gate, server: &str) -> bool {
    let rules = presets::expand(gate, false).into_iter().filter_map(|gate| CallRule::of(&gate));
    rules.map(|(_, rule)| rule).any(|rule| rule.asks_about_changes_of(server))
}

/// Returns a function that decides by name whether an agent may call a tool of a server, by the entries of its list for
/// this server.
pub(crate) fn listed_of_server(agent: &Agent, server: &str) -> impl Fn(&str) -> bool + use<> {
    let entries: Vec<_> = agent.tools.iter().filter(|entry| lists::means(entry, server)).cloned().collect();
    let list = ToolList::of(&entries);
    move |name| matches!(list.selects(name), Selection::Listed(_))
}

/// Whether an agent may call a tool of a server, by the tool's name for agents.
#[must_use]
pub fn lists_server_tool(agent: &Agent, server: &str, tool: &str) -> bool {
    listed_of_server(agent, server)(tool)
}

/// Returns the servers whose tools the list of an agent names.
#[must_use]
pub fn servers_of<'s>(spec: &'s WorkflowSpec, agent: &Agent) -> Vec<&'s Server> {
    let is_meant = |server: &&Server| agent.tools.iter().any(|entry| lists::means(entry, &server.name));
    spec.servers.iter().filter(is_meant).collect()
}
