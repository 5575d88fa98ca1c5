//! The tools of a file and the agents that may call them: tools that call servers, and tools that ask people.
//!
//! **Invariant:** an agent gets a tool only if the file gives it to the agent; no tool is guessed from a prompt.

use serde_json::{Value, json};
use signoff_manifest::source::Node;

use super::{
    gates::scalar_text,
    import::Import,
    import_notes::NoteLevel,
    names::{free_name, label},
};

/// The tools of the Strands CLI without an equivalent, each with a remedy.
const MISSING: [(&str, &str); 8] = [
    ("calculator", "write a step that calculates, and a tool for it"),
    ("current_time", "write `{{ run.startedAt }}` into the prompt or the input, which is the time when the run began"),
    ("duckduckgo_search", "write an http step for a search service with an API, and a tool for it"),
    ("tavily_search", "write a step for the service's API, and a tool for it"),
    ("python_exec", "write a pod step whose container runs the code, and a tool for it"),
    ("notes", "use the conversation, which an agent remembers in a run"),
    ("spec_verify", "use `signoff validate`"),
    ("Skill", "write the skill into the prompt"),
];

/// A tool that a file declares.
pub(super) struct DeclaredTool {
    /// The name by which agents list it.
    id: String,
    /// Its field in the file.
    field: String,
    node: Node,
    kind: ToolKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolKind {
    Http,
    Python,
    Mcp,
}

/// A copy of an agent with other tools, for steps with tools of their own.
pub(super) struct AgentVariant {
    agent: String,
    name: String,
    tools: Node,
    field: String,
}

impl Import<'_> {
    /// Adds the tools that a file declares to `declared`, before any agent is read. Of two executors or servers with
    /// one id, the second is left out with a note.
    pub(super) fn read_declared_tools(&mut self, tools: &Node) {
        self.notes.read(tools, "tools", "tools");
        let sections = [("python", ToolKind::Python), ("http_executors", ToolKind::Http), ("mcp", ToolKind::Mcp)];
        for (section, kind) in sections {
            for (index, node) in tools.get(section).map(Node::items).unwrap_or_default().iter().enumerate() {
                let field = format!("tools.{section}[{index}]");
                let id = match kind {
                    ToolKind::Http => {
                        self.notes.read(node, "http executor", &field);
                        node.get("id").map(scalar_text)
                    }
                    ToolKind::Python => {
                        self.notes.read(node, "python tool", &field);
                        node.get("callable")
                            .map_or_else(|| node.text().map(str::to_owned), |name| Some(scalar_text(name)))
                    }
                    ToolKind::Mcp => {
                        self.notes.read(node, "MCP server", &field);
                        node.get("id").map(scalar_text)
                    }
                };
                let id = id.unwrap_or_default();
                let is_same = |tool: &DeclaredTool| tool.kind != ToolKind::Python && tool.id == id;
                if kind != ToolKind::Python && self.declared.iter().any(is_same) {
                    let why = format!("there are two executors or servers {id}: this one is left out");
                    self.tell_at(NoteLevel::Unsupported, &field, node, why);
                    continue;
                }
                self.declared.push(DeclaredTool { id, field, node: node.clone(), kind });
            }
        }
    }

    /// Returns the name of the agent for a step. For a step with tools of its own, adds a variant of the agent with
    /// these tools, unless there is one.
    pub(super) fn agent_with_tools(&mut self, agent: &str, tools: Option<&Node>, field: &str) -> String {
        let Some(tools) = tools.filter(|tools| !tools.is_null()) else { return agent.to_owned() };
        let is_same = |known: &&AgentVariant| known.agent == agent && known.tools.to_json() == tools.to_json();
        if let Some(known) = self.variants.iter().find(is_same) {
            return known.name.clone();
        }
        let is_taken = |name: &str| {
            self.agent_names.iter().any(|other| other == name) || self.variants.iter().any(|other| other.name == name)
        };
        let name = free_name(&label(&format!("{agent}-tools"), "agent"), is_taken);
        let message =
            format!("tools belong to agents: the step has the agent {name}, which is {agent} with these tools");
        self.tell_at(NoteLevel::Info, field, tools, message);
        let variant =
            AgentVariant { agent: agent.to_owned(), name: name.clone(), tools: tools.clone(), field: field.to_owned() };
        self.variants.push(variant);
        name
    }

    /// Sets `tools_of_all` to the tools that a file gives to every agent.
    pub(super) fn read_retrieval(&mut self, policy: &Node) {
        let Some(retrieval) = policy.get("retrieval") else { return };
        let (section, field) = ("context_policy.retrieval", "context_policy.retrieval.jit_tools");
        self.notes.read(retrieval, section, section);
        let listed = retrieval.get("jit_tools").map(Node::items).unwrap_or_default().iter().enumerate();
        self.tools_of_all =
            listed.map(|(at, tool)| (scalar_text(tool), tool.clone(), format!("{field}[{at}]"))).collect();
    }

    /// Imports the tools of an agent, and returns their names in the Workflow. An agent without a list gets all tools
    /// that the file declares, or only the declared servers if the file gives tools to every agent.
    pub(super) fn import_tools_of_agent(&mut self, agent: &str, node: &Node) -> Vec<String> {
        let listed = node.get("tools").filter(|tools| !tools.is_null());
        match listed {
            Some(tools) => self.import_listed_tools(agent, tools, &format!("agents.{agent}.tools")),
            None => {
                let is_declared = |tool: &&DeclaredTool| self.tools_of_all.is_empty() || tool.kind == ToolKind::Mcp;
                let tools = self.declared.iter().filter(is_declared);
                let tools = tools.map(|tool| (tool.id.clone(), tool.node.clone(), tool.field.clone())).collect();
                self.import_tools(agent, tools)
            }
        }
    }

    /// Imports the tools of a variant, and returns its name and its tools. Returns `None` if it is a variant of another
    /// agent.
    pub(super) fn import_tools_of_variant(&mut self, index: usize, agent: &str) -> Option<(String, Vec<String>)> {
        let variant = self.variants.get(index).filter(|variant| variant.agent == agent)?;
        let (name, tools, field) = (variant.name.clone(), variant.tools.clone(), variant.field.clone());
        let tools = self.import_listed_tools(&name, &tools, &field);
        Some((name, tools))
    }

    fn import_listed_tools(&mut self, agent: &str, tools: &Node, field: &str) -> Vec<String> {
        let listed = tools.items().iter().enumerate();
        let listed = listed.map(|(at, tool)| (scalar_text(tool), tool.clone(), format!("{field}[{at}]"))).collect();
        self.import_tools(agent, listed)
    }

    /// Imports tools of an agent, each given by its id, its node and its field, and the tools of every agent. Returns
    /// their names in the Workflow.
    fn import_tools(&mut self, agent: &str, tools: Vec<(String, Node, String)>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (id, node, field) in tools.into_iter().chain(self.tools_of_all.clone()) {
            self.listed_tools.insert(self.short_name(&id));
            let imported = self.import_tool(&id, &node, &field);
            if imported.is_empty() {
                self.left_tools.push(format!("{agent}: {id}"));
            }
            names.extend(imported.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
        }
        names
    }

    /// Imports a tool, if it was not imported before. Returns its names in the Workflow, or none and a note if it has
    /// no equivalent.
    fn import_tool(&mut self, id: &str, node: &Node, field: &str) -> Vec<String> {
        let key = self.short_name(id);
        if let Some(known) = self.made_tools.get(&key) {
            return known.clone();
        }
        let declared = |kind: ToolKind| {
            let tool = self.declared.iter().find(|tool| tool.id == key && tool.kind == kind);
            tool.map(|tool| (tool.node.clone(), tool.field.clone()))
        };
        let names = match (declared(ToolKind::Http), declared(ToolKind::Mcp), key.as_str()) {
            (Some((node, field)), _, _) => self.import_http_executor(&key, &node, &field),
            (None, Some((node, field)), _) => self.import_mcp_server(&key, &node, &field),
            (None, None, "http_request" | "web_fetch") => self.import_any_url_tool(&key, node, field),
            (None, None, "human_intervention.request" | "handoff_to_user" | "ask-human") => {
                self.add_question_gate(node, field);
                vec![key.clone()]
            }
            (None, None, name) => {
                let Some(names) = self.import_file_tool(name, node, field) else {
                    let why = match MISSING.iter().find(|(missing, _)| *missing == name) {
                        Some((_, remedy)) => format!("there is no tool {name}: {remedy}"),
                        None => format!("there is no tool {name}: write a step that does its work, and a tool for it"),
                    };
                    self.tell_at(NoteLevel::Unsupported, field, node, why);
                    return Vec::new();
                };
                names
            }
        };
        self.made_tools.insert(key, names.clone());
        names
    }

    /// Returns the short name of a tool: `strands_tools.http_request.http_request` becomes `http_request`.
    fn short_name(&self, id: &str) -> String {
        let is_whole = id == "human_intervention.request"
            || self.declared.iter().any(|tool| tool.id == id && tool.kind != ToolKind::Python);
        if is_whole { id.to_owned() } else { id.rsplit('.').next().unwrap_or(id).to_owned() }
    }

    /// Adds the gate that names who answers the questions of agents, once.
    fn add_question_gate(&mut self, node: &Node, field: &str) {
        if self.spec_gates.iter().any(|gate| gate["type"] == "question") {
            return;
        }
        let is_taken =
            |name: &str| self.spec_gates.iter().chain(&self.spec_steps).any(|entry: &Value| entry["name"] == name);
        let name = free_name("questions", is_taken);
        let message = format!(
            "the agent asks people, and the gate {name} says whom: {} answers; after 7 days a question is overdue",
            self.approver
        );
        self.tell_at(NoteLevel::Info, field, node, message);
        self.spec_gates.push(json!({"name": name, "type": "question", "hitl": {
            "prompt": "An agent asks:", "approvers": [{"kind": "User", "name": self.approver}],
            "timeout": {"after": "168h", "action": "Expire"},
        }}));
    }

    /// Adds notes about declared tools that no agent can call.
    pub(super) fn tell_unused_tools(&mut self) {
        let is_listed = |tool: &&DeclaredTool| self.listed_tools.contains(&self.short_name(&tool.id));
        let unused = self.declared.iter().filter(|tool| !is_listed(tool));
        let unused: Vec<_> = unused.map(|tool| (tool.field.clone(), tool.node.clone(), tool.id.clone())).collect();
        for (field, node, id) in unused {
            let message = format!("no agent lists the tool {id}: left out");
            self.tell_at(NoteLevel::Info, &field, &node, message);
        }
        if !self.spec_tools.is_empty() {
            let message = "what a call changes is not known, so each tool counts as irreversible: say `effects: read` of a tool that changes nothing, and put a gate in front of the others";
            self.notes.tell(NoteLevel::Info, "tools", &(0..0), message);
        }
    }
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
