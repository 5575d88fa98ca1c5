//! The state of one import while the file is read. Patterns and providers have files of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use serde_json::{Map, Value, json};
use signoff_expr::{Condition, Template};
use signoff_manifest::source::Node;

use super::{
    answer_words::AnswerComparison,
    condition,
    import_notes::{ImportNotes, NoteLevel},
    names::{self, Names},
    rewrite::{self, UnresolvedNames},
    tools::{AgentVariant, DeclaredTool},
};

/// One import.
pub(super) struct Import<'t> {
    pub(super) notes: ImportNotes<'t>,
    pub(super) names: Names,
    pub(super) approver: &'t str,
    pub(super) compared: Vec<AnswerComparison>,
    /// The retries of agents' steps.
    pub(super) retry: Option<Value>,
    /// The schema of each agent's answers.
    pub(super) schemas: BTreeMap<String, Value>,
    /// The agents whose schema is used by a step.
    pub(super) checked: BTreeSet<String>,
    /// The first names of all references of templates and conditions.
    pub(super) roots: BTreeSet<String>,
    pub(super) found: UnresolvedNames,
    /// The number of concurrent calls.
    pub(super) max_parallel: Option<u64>,
    /// The step limit of a graph.
    pub(super) max_steps: Option<u64>,
    /// `spec.steps` so far.
    pub(super) spec_steps: Vec<Value>,
    /// `spec.gates` so far.
    pub(super) spec_gates: Vec<Value>,
    /// The names of all agents of the file.
    pub(super) agent_names: Vec<String>,
    /// The tools that the file declares.
    pub(super) declared: Vec<DeclaredTool>,
    /// Copies of agents with other tools, for steps with tools of their own.
    pub(super) variants: Vec<AgentVariant>,
    /// For each imported tool of the file its tools in the Workflow.
    pub(super) made_tools: BTreeMap<String, Vec<String>>,
    /// The tools of the file that an agent lists.
    pub(super) listed_tools: BTreeSet<String>,
    /// The listed tools that an agent does not get, as `agent: tool`.
    pub(super) left_tools: Vec<String>,
    /// `spec.tools` so far.
    pub(super) spec_tools: Vec<Value>,
    /// `spec.servers` so far.
    pub(super) spec_servers: Vec<Value>,
    /// The tools that the file gives to every agent, each with its node and field.
    pub(super) tools_of_all: Vec<(String, Node, String)>,
    /// The entries of `spec.secrets` that headers need.
    pub(super) spec_secrets: Vec<Value>,
    /// The steps of `spec.tools`.
    pub(super) tool_steps: Vec<Value>,
    /// The inputs for the servers that a tool may call: each name and description.
    pub(super) servers: Vec<(String, String)>,
}

impl<'t> Import<'t> {
    pub(super) fn of(text: &'t str, approver: &'t str) -> Self {
        Self {
            notes: ImportNotes::of(text),
            names: Names::default(),
            approver,
            compared: Vec::new(),
            retry: None,
            schemas: BTreeMap::new(),
            checked: BTreeSet::new(),
            roots: BTreeSet::new(),
            found: UnresolvedNames::default(),
            max_parallel: None,
            max_steps: None,
            spec_steps: Vec::new(),
            spec_gates: Vec::new(),
            agent_names: Vec::new(),
            declared: Vec::new(),
            variants: Vec::new(),
            made_tools: BTreeMap::new(),
            listed_tools: BTreeSet::new(),
            left_tools: Vec::new(),
            spec_tools: Vec::new(),
            spec_servers: Vec::new(),
            tools_of_all: Vec::new(),
            spec_secrets: Vec::new(),
            tool_steps: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Adds a note about a field at the position of its node.
    pub(super) fn tell_at(&mut self, weight: NoteLevel, field: &str, node: &Node, message: impl Into<String>) {
        let at: Range<usize> = node.fields().first().map_or(node.at.clone(), |(key, _)| key.at.clone());
        self.notes.tell(weight, field, &at, message);
    }

    /// Returns a field's text with the names of the Workflow, or `None` if the text is missing or empty.
    pub(super) fn import_text(&mut self, node: &Node, field: &str) -> Option<String> {
        let source = node.get(field).map(super::gates::scalar_text).filter(|text| !text.is_empty())?;
        Some(self.rewrite_template(&source))
    }

    /// Returns a template with the names of the Workflow, and adds the names to which it refers to `roots`.
    pub(super) fn rewrite_template(&mut self, source: &str) -> String {
        let text = rewrite::rewrite_template(source, &self.names, &mut self.found);
        if let Ok(template) = Template::parse(&text, "") {
            self.roots.extend(template.references().iter().map(|reference| reference.root.clone()));
        }
        text
    }

    /// Returns the condition `skip_if` of a node in CEL. Adds a note if CEL cannot express the condition.
    pub(super) fn import_skip_if(&mut self, node: &Node, path: &str) -> Option<String> {
        let (key, value) = node.entry("skip_if")?;
        let source = super::gates::scalar_text(value);
        let cel = condition::cel(&source, &self.names, &mut self.found);
        match &cel {
            Some(cel) => self.add_roots(cel),
            None => {
                let (field, at) = (format!("{path}.skip_if"), key.at.clone());
                let message =
                    "CEL cannot say this (such as whether a text is empty, or what comes last): it is never skipped";
                self.notes.tell(NoteLevel::Unsupported, &field, &at, message);
            }
        }
        cel
    }

    /// Returns the condition of an edge in CEL. A condition that CEL cannot express stays a template, which the plan
    /// refuses, because a missing edge could lead past a gate.
    pub(super) fn import_edge_condition(&mut self, source: &str, field: &str, edge: &Node) -> String {
        if let Some(when) = condition::when(source, &self.names, &mut self.found) {
            self.add_roots(&when);
            return when;
        }
        let message = "CEL cannot express this condition: the Workflow is refused until you write it in CEL";
        self.tell_at(NoteLevel::Unsupported, field, edge, message);
        let is_template = source.trim_start().starts_with('{');
        self.rewrite_template(&if is_template { source.to_owned() } else { format!("{{{{ {source} }}}}") })
    }

    /// Adds the names to which a condition refers to `roots`.
    fn add_roots(&mut self, cel: &str) {
        if let Ok(condition) = Condition::parse(cel, "") {
            self.roots.extend(condition.references().into_iter().map(|reference| reference.root));
        }
    }

    /// Imports the steps of a list, in the same order, each with a name that is unique in the list.
    pub(super) fn import_steps(&mut self, list: &Node, path: &str) -> Vec<Value> {
        let mut taken: Vec<String> = Vec::new();
        let mut steps = Vec::new();
        for (at, node) in list.items().iter().enumerate() {
            let field = format!("{path}[{at}]");
            let wish = match node.get("id").or(node.get("agent")).map(super::gates::scalar_text) {
                Some(name) => names::label(&name, "step"),
                None => "ask".to_owned(),
            };
            let name = names::free_name(&wish, |name| taken.iter().any(|other| other == name));
            taken.push(name.clone());
            steps.push(self.import_step(node, &field, &name, &format!("steps[{at}].response"), at > 0));
        }
        steps
    }

    /// Converts one step, task or node to the step `name` of the Workflow. `own`: the path by which the file's
    /// templates read the response of this step. `later`: whether another step ran before.
    pub(super) fn import_step(&mut self, node: &Node, path: &str, name: &str, own: &str, later: bool) -> Value {
        let mut step = Map::from_iter([("name".to_owned(), json!(name))]);
        if self.names.root != "tasks" {
            let why = "only tasks of a workflow wait for others: left out";
            self.notes.tell_unused(NoteLevel::Unsupported, node, path, &["deps", "dependencies"], why);
        }
        if is_gate(node) {
            step.insert("hitl".into(), self.import_gate(node, path, own, super::gates::Position::Step));
        } else {
            self.notes.read(node, "step, task or node", path);
            let agent = node.get("agent").and_then(Node::text).unwrap_or_default().to_owned();
            let vars = self.import_vars(node);
            let input = self.import_text(node, "input").unwrap_or_else(|| {
                let input = if later { "{{ last_response }}" } else { "Begin." };
                self.tell_at(NoteLevel::Info, path, node, format!("there is no input: the agent is told `{input}`"));
                input.to_owned()
            });
            if let Some(schema) = self.schemas.get(&agent) {
                step.insert("outputSchema".into(), schema.clone());
                self.checked.insert(agent.clone());
            }
            let name = self.agent_with_tools(&agent, node.get("tool_overrides"), &format!("{path}.tool_overrides"));
            step.insert("agent".into(), json!({"name": name, "input": input}));
            if !vars.is_empty() {
                step.insert("vars".into(), Value::Object(vars));
            }
            if let Some(retry) = &self.retry {
                step.insert("retry".into(), retry.clone());
            }
        }
        if let Some(skip_if) = self.import_skip_if(node, path) {
            step.insert("skipIf".into(), skip_if.into());
        }
        Value::Object(step)
    }

    /// Returns `vars` of a step. The names of variables are no inputs.
    fn import_vars(&mut self, node: &Node) -> Map<String, Value> {
        let fields = node.get("vars").map(Node::fields).unwrap_or_default();
        fields
            .iter()
            .map(|(key, value)| (key.name.clone(), self.rewrite_template(&super::gates::scalar_text(value)).into()))
            .collect()
    }
}

/// Whether a step asks people.
pub(super) fn is_gate(node: &Node) -> bool {
    node.get("type").and_then(Node::text) == Some("hitl")
}
