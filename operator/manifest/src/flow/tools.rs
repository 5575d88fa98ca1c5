//! The tools of each agent in a flow: the target of a call, its effects, and the gates that would ask before it
//! *(pure)*.
//!
//! The steps of tools are not part of the order, because they run when a model calls them. The plan of the engine
//! checks them.

use serde::Serialize;
use signoff_api::{
    WorkflowSpec,
    catalogue::{Catalogue, ServerTool},
    sent_method::SentMethod,
    server::Server,
    tool::{Effects, Tool},
    workflow::{Agent, Gate, SpecGateType},
};

use signoff_engine::tools;

use super::build::describe_step;
use crate::server_tools::{self, Catalogues, PinState};

/// The remedy if no gate asks about a call of a tool of a server.
const UNASKED_REMEDY: &str = "it may change something, and its definition is not pinned. Add a gate of the type \
    destructiveActions or toolExecution, or pin the definition with `signoff tools --pin`";

/// An agent that may call tools.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTools {
    /// The name of the agent.
    pub agent: String,
    /// The maximum number of turns in one step, if the agent sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<i32>,
    /// The maximum number of calls in one step, if the agent sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<i32>,
    /// The tools, in the order of `spec.tools`.
    pub tools: Vec<OfferedTool>,
}

/// A tool that an agent may call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferedTool {
    /// The name of the tool.
    pub name: String,
    /// A short description of what runs: `POST http://…`.
    pub does: String,
    /// The effects of a call: `read`, `write`, `irreversible` or `unknown`. A question has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects: Option<&'static str>,
    /// Whether policies, retries and repetitions treat a call as a change although its effects are `read`, because its
    /// request is not read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub counts_as_change: bool,
    /// The gates that would ask about a call.
    pub gates: Vec<AskingGate>,
    /// The remedy if a call of a tool of a server is refused unless a gate asks, because it may change something and
    /// its definition is not pinned. Only with the catalogue of the server, and if no gate always asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<&'static str>,
    /// The reason why a call of a tool of a server is made if no gate asks. Only with the catalogue of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unasked: Option<&'static str>,
}

/// A gate that would ask about the calls of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AskingGate {
    /// The name in `spec.gates`.
    pub name: String,
    /// The type or the preset.
    pub sort: String,
    /// The condition under which the gate asks; missing if it always asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_if: Option<String>,
    /// Its approvers and its deadline.
    pub gate: super::Gate,
}

/// Returns the agents that may call tools.
pub(super) fn tools_of_agents(spec: &WorkflowSpec, catalogues: &Catalogues) -> Vec<AgentTools> {
    let with_tools = spec.agents.iter().filter(|agent| !agent.tools.is_empty());
    with_tools.map(|agent| tools_of_agent(spec, agent, catalogues)).collect()
}

/// Returns the tools of an agent: its own tools, those of servers, then the built-in ones.
fn tools_of_agent(spec: &WorkflowSpec, agent: &Agent, catalogues: &Catalogues) -> AgentTools {
    let tool = |name: &str| match spec.tools.iter().find(|tool| tool.name == name) {
        Some(tool) => offered_tool(spec, tool),
        None => OfferedTool {
            name: name.to_owned(),
            does: "asks people".to_owned(),
            effects: None,
            counts_as_change: false,
            gates: asking_gates(spec, |gate| gate.type_ == Some(SpecGateType::Question)),
            refused: None,
            unasked: None,
        },
    };
    let (built_in, own): (Vec<_>, Vec<_>) =
        tools::offered(spec, agent).into_iter().partition(|name| tools::is_built_in(name));
    let of_servers = tools::servers_of(spec, agent).into_iter().flat_map(|server| match catalogues.get(&server.name) {
        Some(catalogue) => listed_tools(spec, agent, server, catalogue),
        None => vec![tools_of_unknown_server(spec, agent, server)],
    });
    let tools = own.into_iter().map(tool).chain(of_servers).chain(built_in.into_iter().map(tool)).collect();
    let limits = agent.limits.unwrap_or_default();
    AgentTools { agent: agent.name.clone(), turns: limits.turns, calls: limits.calls, tools }
}

/// Returns one entry for the tools of a server in the list of an agent, because the server lists its tools only during
/// a run.
fn tools_of_unknown_server(spec: &WorkflowSpec, agent: &Agent, server: &Server) -> OfferedTool {
    let first = server.tool_name("");
    let entries: Vec<_> = agent.tools.iter().filter(|entry| entry.starts_with(&first)).map(String::as_str).collect();
    let place = server.url.clone().unwrap_or_else(|| server.command.join(" "));
    OfferedTool {
        name: entries.join(", "),
        does: format!("tools of the server at {place}"),
        effects: Some("unknown"),
        counts_as_change: false,
        gates: asking_gates(spec, |gate| {
            let names = entries.iter().filter(|entry| !entry.contains('*'));
            let asks_about_one = |name: &&str| tools::asks_about_server_tool(gate, name, None, false);
            tools::asks_about_server(gate, &server.name) || names.copied().any(|name| asks_about_one(&name))
        }),
        refused: None,
        unasked: None,
    }
}

/// Returns the tools of a catalogue that the run can use and that an agent may call.
fn listed_tools(spec: &WorkflowSpec, agent: &Agent, server: &Server, catalogue: &Catalogue) -> Vec<OfferedTool> {
    let may_call = |name: &str| tools::lists_server_tool(agent, &server.name, &server.tool_name(name));
    let is_listed = |tool: &&ServerTool| server.has(tool.name()) && may_call(tool.name());
    catalogue.tools().iter().filter(is_listed).map(|tool| tool_of_catalogue(spec, server, tool)).collect()
}

/// Returns a tool of a catalogue with the gates that would ask, and the consequence if none asks.
fn tool_of_catalogue(spec: &WorkflowSpec, server: &Server, tool: &ServerTool) -> OfferedTool {
    let name = server.tool_name(tool.name());
    let effects = server_tools::effects(server, tool);
    let is_pinned = PinState::of(server, tool) == PinState::Same;
    let mut gates = asking_gates(spec, |gate| tools::asks_about_server_tool(gate, &name, effects, is_pinned));
    gates.extend(start_gate(spec, &server.name).map(asking_gate));
    let unasked = match (effects, is_pinned) {
        (Some(Effects::Read), _) => Some("it is known to change nothing"),
        (_, true) => Some("its definition is pinned"),
        (Some(Effects::Write | Effects::Irreversible) | None, false) => None,
    };
    let is_always_asked = gates.iter().any(|gate| gate.only_if.is_none());
    let refused = (unasked.is_none() && !is_always_asked).then_some(UNASKED_REMEDY);
    OfferedTool {
        does: format!("tool of the server {}", server.name),
        effects: Some(effects.map_or("unknown", Effects::name)),
        counts_as_change: false,
        gates,
        refused,
        unasked,
        name,
    }
}

/// Returns a tool of the spec with its effects and the gates that would ask.
fn offered_tool(spec: &WorkflowSpec, tool: &Tool) -> OfferedTool {
    let step = spec.steps.iter().find(|step| step.branch.is_none() && step.name == tool.step);
    let effects = step.map_or(tool.effects, |step| tool.effects_of(step));
    let only_reads = step.and_then(|step| step.http.as_ref()).is_none_or(|http| SentMethod::of_step(http).only_reads());
    let mut gates = asking_gates(spec, |gate| tools::asks(gate, &tool.name, effects));
    // The gate before the step asks separately, about the rendered request.
    let starts = step.filter(|step| step.pod.is_some() || step.http.is_some() || step.mcp.is_some());
    gates.extend(starts.and_then(|step| start_gate(spec, &step.name)).map(asking_gate));
    OfferedTool {
        name: tool.name.clone(),
        does: step.map_or_else(|| format!("step {}", tool.step), |step| describe_step(step).1),
        effects: Some(effects.map_or("unknown", Effects::name)),
        counts_as_change: effects == Some(Effects::Read) && !only_reads,
        gates,
        refused: None,
        unasked: None,
    }
}

/// Returns the gate before a step. The tools of a server run as the step with the name of the server.
fn start_gate<'s>(spec: &'s WorkflowSpec, step: &str) -> Option<&'s Gate> {
    let at_start = || spec.gates.iter().filter(|gate| gate.type_ == Some(SpecGateType::StepStart));
    let named = at_start().find(|gate| gate.steps.iter().any(|name| name == step));
    named.or_else(|| at_start().find(|gate| gate.steps.is_empty()))
}

fn asking_gates(spec: &WorkflowSpec, asks: impl Fn(&Gate) -> bool) -> Vec<AskingGate> {
    spec.gates.iter().filter(|gate| asks(gate)).map(asking_gate).collect()
}

fn asking_gate(gate: &Gate) -> AskingGate {
    let name = |value: serde_json::Result<serde_json::Value>| value.ok().and_then(|v| v.as_str().map(str::to_owned));
    let sort = match gate.preset {
        Some(preset) => format!("preset {}", name(serde_json::to_value(preset)).unwrap_or_default()),
        None => name(serde_json::to_value(gate.type_)).unwrap_or_default(),
    };
    AskingGate { name: gate.name.clone(), sort, only_if: gate.condition.clone(), gate: super::Gate::of(&gate.hitl) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::super::Flow;

    fn flow(gates: &Value) -> Flow {
        let hitl = json!({"prompt": "Go?", "approvers": [{"kind": "Group", "name": "g"}]});
        let mut gates = gates.clone();
        for gate in gates.as_array_mut().unwrap() {
            gate["hitl"] = hitl.clone();
        }
        let tool = |name: &str, effects: Option<&str>| {
            let mut tool = json!({"name": name, "step": format!("do-{name}"), "description": "d"});
            if let Some(effects) = effects {
                tool["effects"] = effects.into();
            }
            tool
        };
        let object = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
            "spec": {
                "requestedBy": "dana",
                "tools": [tool("lookup", Some("read")), tool("lookup-secret", Some("read")), tool("refund", None)],
                "agents": [{"name": "clerk", "tools": ["*", "ask-human"], "limits": {"turns": 5}}, {"name": "mute"}],
                "gates": gates,
                "steps": [
                    {"name": "handle", "agent": {"name": "clerk", "input": "x"}},
                    {"name": "do-lookup", "set": {"value": "{{ args.id }}"}},
                    {"name": "do-lookup-secret", "set": {"value": "x"}},
                    {"name": "do-refund", "http": {"method": "POST", "url": "http://bank/refunds"}},
                    {"name": "done", "set": {"value": "x"}},
                ],
            },
        });
        Flow::of(&serde_json::from_value(object).unwrap())
    }

    /// Returns the gates before each tool: `refund: money`.
    fn gates(gates: &Value) -> Vec<String> {
        let names = |tool: &super::OfferedTool| {
            let gates: Vec<_> = tool.gates.iter().map(|gate| gate.name.as_str()).collect();
            format!("{}: {}", tool.name, gates.join(" "))
        };
        flow(gates).agents[0].tools.iter().map(names).collect()
    }

    #[test]
    fn the_step_of_a_tool_is_no_part_of_the_order() {
        let flow = flow(&json!([{"name": "sent", "type": "stepStart"}]));
        let steps: Vec<_> = flow.steps.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(steps, ["handle", "done"]);
        assert_eq!(flow.agents.len(), 1, "an agent without tools is not listed");
    }

    #[test]
    fn each_type_of_gate_is_before_its_tools() {
        let asks = |gate: Value| gates(&json!([gate]));
        let [none, all] = [": ", ": g"];
        let tools = |lookup: &str, secret: &str, refund: &str, ask: &str| {
            [("lookup", lookup), ("lookup-secret", secret), ("refund", refund), ("ask-human", ask)]
                .map(|(name, gates)| format!("{name}{gates}"))
        };
        let listed = json!({"name": "g", "type": "toolExecution", "allowedTools": ["lookup*", "!*secret"]});
        assert_eq!(asks(listed), tools(none, all, all, none));
        let specific = json!({"name": "g", "type": "specificTools", "tools": ["lookup*", "!lookup"]});
        assert_eq!(asks(specific), tools(none, all, none, none));
        assert_eq!(asks(json!({"name": "g", "type": "destructiveActions"})), tools(none, none, all, none));
        let allowed = json!({"name": "g", "type": "destructiveActions", "allowedTools": ["refund", "!lookup"]});
        assert_eq!(asks(allowed), tools(all, none, none, none));
        assert_eq!(asks(json!({"name": "g", "type": "custom", "condition": "args.x > 1"})), tools(all, all, all, none));
        assert_eq!(asks(json!({"name": "g", "type": "question"})), tools(none, none, none, all));
        assert_eq!(asks(json!({"name": "g", "type": "stepStart"})), tools(none, none, all, none));
        assert_eq!(asks(json!({"name": "g", "preset": "standard"})), tools(none, none, all, none));
        assert_eq!(asks(json!({"name": "g", "preset": "strict"})), tools(all, all, all, none));
    }

    #[test]
    fn a_post_that_is_declared_to_read_counts_as_a_change() {
        let object = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
            "spec": {
                "requestedBy": "dana",
                "tools": [
                    {"name": "search", "step": "do-search", "description": "d", "effects": "read"},
                    {"name": "look", "step": "do-look", "description": "d", "effects": "read"},
                ],
                "agents": [{"name": "clerk", "tools": ["*"]}],
                "steps": [
                    {"name": "handle", "agent": {"name": "clerk", "input": "x"}},
                    {"name": "do-search", "http": {"method": "POST", "url": "http://x/search"}},
                    {"name": "do-look", "http": {"url": "http://x/"}},
                ],
            },
        });
        let flow = Flow::of(&serde_json::from_value(object).unwrap());
        let expected = "
  search: POST http://x/search
    effects read, as declared; policies, retries and repetitions take its request for a change
    no gate of this Workflow asks
  look: GET http://x/
    effects read
";
        assert!(flow.to_text().contains(expected), "{}", flow.to_text());
    }

    #[test]
    fn tools_are_rendered_with_their_effects_and_gates() {
        let flow = flow(&json!([
            {"name": "money", "type": "custom", "condition": "args.amount > 100"},
            {"name": "guard", "preset": "minimal"},
        ]));
        let expected = "
Tools of agent clerk (at most 5 turns)
  lookup: renders a text
    effects read
    gate money (custom) asks if args.amount > 100
  lookup-secret: renders a text
    effects read
    gate money (custom) asks if args.amount > 100
  refund: POST http://bank/refunds
    effects unknown, treated as irreversible
    gate money (custom) asks if args.amount > 100
    gate guard (preset minimal) asks
  ask-human: asks people
    no gate of this Workflow asks

Gates of tools
  guard
    1 of group g
    after the operator's default: Reject
  money
    1 of group g
    after the operator's default: Reject
";
        assert!(flow.to_text().contains(expected), "{}", flow.to_text());
    }
}
