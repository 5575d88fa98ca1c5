//! The tools of servers for a Workflow: their effects, their pins, and differences to a catalogue *(pure)*.
//!
//! **Invariant:** no server is called here. Notes can contain text of a server: only a display function shows them.

use std::collections::{BTreeMap, BTreeSet};

use signoff_api::{
    WorkflowSpec,
    catalogue::{Catalogue, ServerTool},
    server::Server,
    tool::Effects,
};

/// The catalogues of servers, by the name of the server in the Workflow.
pub type Catalogues = BTreeMap<String, Catalogue>;

/// The pin of a tool, compared with its definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinState {
    /// The tool has no pin.
    Missing,
    /// The pin is of this definition.
    Same,
    /// The pin is of another definition, so the tool counts as one without a pin.
    Changed,
}

impl PinState {
    /// Compares the definition of a tool with its pin.
    #[must_use]
    pub fn of(server: &Server, tool: &ServerTool) -> Self {
        match server.pin(tool.name()) {
            None => Self::Missing,
            Some(pin) if pin.as_str() == tool.digest().as_str() => Self::Same,
            Some(_) => Self::Changed,
        }
    }

    /// Returns the name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "none",
            Self::Same => "same",
            Self::Changed => "changed",
        }
    }
}

/// Returns the effects of a call of a tool by the declaration of the author or, with `trust: hints`, of the server;
/// `None` if they are unknown.
#[must_use]
pub fn effects(server: &Server, tool: &ServerTool) -> Option<Effects> {
    let hinted = tool.hinted_effects().filter(|_| server.trusts_hints());
    if server.reads(tool.name()) { Some(Effects::Read) } else { hinted }
}

/// Returns the differences between the pins of a server and its catalogue, one sentence for each.
#[must_use]
pub fn changed_pins(server: &Server, catalogue: &Catalogue) -> Vec<String> {
    let changed = |tool: &str| match (catalogue.tool(tool), server.pin(tool)) {
        (None, _) => Some(format!("{} is pinned, and the server does not list it", server.tool_name(tool))),
        (Some(found), Some(pin)) if PinState::of(server, found) == PinState::Changed => Some(format!(
            "{} has changed since it was pinned: the pin is {pin}, and its definition is {}",
            server.tool_name(tool),
            found.digest()
        )),
        (Some(_), _) => None,
    };
    server.pins.iter().filter_map(|pin| changed(&pin.tool)).collect()
}

/// Returns the listed tools that are not offered, one sentence for each. The sentences contain names that the server
/// chose.
#[must_use]
pub fn left_out(server: &str, catalogue: &Catalogue) -> Vec<String> {
    let sentence = |name: &str, why: &str| {
        let name = if name.is_empty() { "without a name" } else { name };
        format!("{server} lists a tool that is not offered, {name}: {why}")
    };
    catalogue.left_out().iter().map(|tool| sentence(&tool.name, &tool.why)).collect()
}

/// Returns the differences between a Workflow and catalogues, one sentence for each: catalogues without a server,
/// servers without a catalogue, and missing tools.
#[must_use]
pub fn misfits(spec: &WorkflowSpec, catalogues: &Catalogues) -> Vec<String> {
    let is_server = |name: &String| spec.servers.iter().any(|server| server.name == *name);
    let unknown = catalogues.keys().filter(|name| !is_server(name));
    let unknown = unknown.map(|name| format!("there is no server {name} in spec.servers: its catalogue is not used"));
    let without = spec.servers.iter().filter(|server| !catalogues.contains_key(&server.name));
    let without = without.map(|server| {
        format!("there is no catalogue of {}: its tools are shown as far as the Workflow says them", server.name)
    });
    unknown.chain(without).chain(missing(spec, catalogues)).collect()
}

/// Returns the tools that lists and steps name without a glob and that the catalogue of their server lacks, one
/// sentence for each.
#[must_use]
pub fn missing(spec: &WorkflowSpec, catalogues: &Catalogues) -> Vec<String> {
    let is_missing = |(server, tool): &(&Server, String)| {
        catalogues.get(&server.name).is_some_and(|catalogue| catalogue.tool(tool).is_none())
    };
    let sentence = |(server, tool): (&Server, String)| {
        let name = server.tool_name(&tool);
        format!("{name} is named in the Workflow, and the server does not list it: the step would fail (ToolMissing)")
    };
    named_tools(spec).into_iter().filter(is_missing).map(sentence).collect()
}

/// Returns the tools of servers that the lists of agents and gates and the steps name without a glob, without
/// duplicates.
fn named_tools(spec: &WorkflowSpec) -> Vec<(&Server, String)> {
    let of_agents = spec.agents.iter().flat_map(|agent| &agent.tools);
    let of_gates = spec.gates.iter().flat_map(|gate| gate.tools.iter().chain(&gate.allowed_tools));
    let listed = of_agents.chain(of_gates).map(|entry| entry.strip_prefix('!').unwrap_or(entry));
    let listed = listed.filter(|entry| !entry.contains('*')).filter_map(|entry| entry.split_once('.'));
    let of_steps = spec.steps.iter().filter_map(|step| step.mcp.as_ref());
    let of_steps = of_steps.map(|mcp| (mcp.server.as_str(), mcp.tool.as_str()));
    let all: BTreeSet<(&str, &str)> = listed.chain(of_steps).collect();
    let of_server = |(server, tool): (&str, &str)| {
        let server = spec.servers.iter().find(|known| known.name == server)?;
        Some((server, tool.to_owned()))
    };
    all.into_iter().filter_map(of_server).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};
    use signoff_api::Workflow;

    use super::*;
    use crate::flow::Flow;

    /// Returns a Workflow of a clerk with the tools of a server, and one gate about refunds.
    fn workflow(server: &Value) -> Workflow {
        let hitl = json!({"prompt": "Go?", "approvers": [{"kind": "Group", "name": "g"}]});
        let mut crm = json!({"name": "crm", "url": "https://crm.example.com/mcp"});
        crm.as_object_mut().unwrap().extend(server.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
            "spec": {
                "requestedBy": "dana",
                "servers": [crm],
                "agents": [{"name": "clerk", "tools": ["crm.*"]}, {"name": "reader", "tools": ["crm.get_customer"]}],
                "gates": [{"name": "money", "type": "specificTools", "tools": ["crm.refund"], "hitl": hitl}],
                "steps": [{"name": "handle", "agent": {"name": "clerk", "input": "x"}},
                    {"name": "look", "mcp": {"server": "crm", "tool": "get_orders"}}],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn catalogue() -> Catalogues {
        let tool = |name: &str, annotations: Value| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations});
        let crm = json!({
            "tools": [
                tool("get_customer", json!({"readOnlyHint": true})),
                tool("refund", json!({})),
                tool("drop", json!({"readOnlyHint": false})),
            ],
            "leftOut": [{"name": "a.b", "why": "its name is not 1 to 64 letters, digits, _ and -"}],
        });
        Catalogues::from([("crm".to_owned(), serde_json::from_value(crm).unwrap())])
    }

    fn digest(tool: &str) -> String {
        catalogue()["crm"].tool(tool).unwrap().digest().to_string()
    }

    /// Returns the state of each tool of an agent, such as `drop refused`.
    fn standings(server: &Value, agent: usize) -> Vec<String> {
        let flow = Flow::with_catalogues(&workflow(server), &catalogue());
        let standing = |tool: &crate::flow::OfferedTool| {
            let gates: Vec<_> = tool.gates.iter().map(|gate| gate.name.as_str()).collect();
            let word = match (gates.is_empty(), tool.refused) {
                (false, _) => gates.join(" "),
                (true, Some(_)) => "refused".to_owned(),
                (true, None) => "unasked".to_owned(),
            };
            format!("{} {word}", tool.name)
        };
        flow.agents[agent].tools.iter().map(standing).collect()
    }

    #[test]
    fn the_state_of_a_tool_follows_from_gates_read_trust_and_pins() {
        let plain = json!({});
        assert_eq!(standings(&plain, 0), ["crm.drop refused", "crm.get_customer refused", "crm.refund money"]);
        assert_eq!(standings(&plain, 1), ["crm.get_customer refused"]);
        let read = json!({"read": ["get_*"]});
        assert_eq!(standings(&read, 0), ["crm.drop refused", "crm.get_customer unasked", "crm.refund money"]);
        assert_eq!(standings(&json!({"trust": "hints"}), 1), ["crm.get_customer unasked"]);
        let pinned = json!({"pins": [{"tool": "drop", "definition": digest("drop")}]});
        assert_eq!(standings(&pinned, 0)[0], "crm.drop unasked");
        let other = json!({"pins": [{"tool": "drop", "definition": digest("refund")}]});
        assert_eq!(standings(&other, 0)[0], "crm.drop refused");
        assert_eq!(standings(&json!({"only": ["refund"]}), 0), ["crm.refund money"]);
    }

    #[test]
    fn the_tools_of_a_catalogue_are_rendered_with_the_remedy() {
        let text = Flow::with_catalogues(&workflow(&json!({"read": ["get_*"]})), &catalogue()).to_text();
        for lines in [
            "  crm.drop: tool of the server crm\n    effects unknown, treated as irreversible\n    refused: it may change",
            "  crm.get_customer: tool of the server crm\n    effects read\n    runs unasked: it is known to change nothing\n",
            "  crm.refund: tool of the server crm\n    effects unknown, treated as irreversible\n    gate money (specificTools) asks\n",
        ] {
            assert!(text.contains(lines), "{lines}: {text}");
        }
    }

    #[test]
    fn a_pin_of_another_definition_or_of_no_tool_is_found() {
        let pins = json!([
            {"tool": "refund", "definition": digest("drop")},
            {"tool": "drop", "definition": digest("drop")},
            {"tool": "gone", "definition": digest("drop")},
        ]);
        let workflow = workflow(&json!({"pins": pins}));
        let changed = changed_pins(&workflow.spec.servers[0], &catalogue()["crm"]);
        let refund = format!(
            "crm.refund has changed since it was pinned: the pin is {}, and its definition is {}",
            digest("drop"),
            digest("refund")
        );
        assert_eq!(changed, [refund, "crm.gone is pinned, and the server does not list it".to_owned()]);
    }

    #[test]
    fn a_catalogue_that_does_not_fit_its_workflow_is_found() {
        let spec = workflow(&json!({})).spec;
        let orders = "crm.get_orders is named in the Workflow, and the server does not list it: the step would fail (ToolMissing)";
        assert_eq!(misfits(&spec, &catalogue()), [orders]);
        let other = Catalogues::from([("erp".to_owned(), catalogue()["crm"].clone())]);
        assert_eq!(
            misfits(&spec, &other),
            [
                "there is no server erp in spec.servers: its catalogue is not used",
                "there is no catalogue of crm: its tools are shown as far as the Workflow says them",
            ]
        );
        let sentences = left_out("crm", &catalogue()["crm"]);
        assert_eq!(
            sentences,
            ["crm lists a tool that is not offered, a.b: its name is not 1 to 64 letters, digits, _ and -"]
        );
    }
}
