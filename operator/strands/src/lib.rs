//! The importer: workflow files of the Strands CLI as Workflows.
//!
//! **Invariant:** each part of the file that has no equivalent or is written differently leads to a note.
//!
//! | module | answers |
//! |---|---|
//! | [`fields`], [`kind`] | which fields the format has, what each takes and what becomes of it |
//! | `tokens`, `token_split`, `rewrite` | what a template says with the new names |
//! | `condition`, `infix`, `expr_type` | what a condition is in CEL, and what of it CEL cannot say |
//! | `answer_words` | which words of people the file compares with |
//! | `gates`, `patterns`, `graph`, `runtime`, `inputs`, `outputs` | one part of a file each |
//! | `tools`, `http_tools`, `mcp_servers` | the tools of a file |
//! | `check` | what is wrong with a file of either format: one of ours, or one of the Strands CLI |

mod answer_words;
mod check;
mod condition;
mod expr_type;
pub mod fields;
mod gates;
mod graph;
mod http_tools;
mod import;
mod import_notes;
mod infix;
mod inputs;
pub mod kind;
mod mcp_servers;
mod names;
mod outputs;
mod patterns;
mod rewrite;
mod runtime;
mod token_split;
mod tokens;
mod tools;

use serde_json::{Map, Value, json};
use signoff_api::{GROUP, VERSION, Workflow};
use signoff_manifest::{
    problem::{Problem, Problems},
    source::{self, Node},
};

use self::{import::Import, names::label};

pub use check::{LoadedWorkflow, check, read_any};
pub use import_notes::{ImportNote, NoteLevel};

/// An imported file.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The imported object, without its requester.
    pub object: Value,
    /// The object as the engine reads it.
    pub workflow: Box<Workflow>,
    /// All notes of the import, in the order of the file.
    pub notes: Vec<ImportNote>,
}

impl Imported {
    /// Whether the run does exactly what the file says.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.notes.iter().all(|note| note.weight != NoteLevel::Unsupported)
    }

    /// Renders the Workflow as YAML, with its notes at the top.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut text = "# Imported from a file of the Strands CLI.\n".to_owned();
        for note in self.notes.iter().filter(|note| note.weight != NoteLevel::Info) {
            text += &format!("# {}\n", note.to_string().replace('\n', " "));
        }
        text + &serde_saphyr::to_string(&self.object).unwrap_or_else(|_| self.object.to_string())
    }
}

/// Whether a text is a workflow file of the Strands CLI: a file with agents and a pattern's type and config, without an
/// `apiVersion`.
#[must_use]
pub fn is_strands(text: &str) -> bool {
    matches!(source::documents(text).as_slice(), [Ok(node)] if is_file(node))
}

pub(crate) fn is_file(node: &Node) -> bool {
    let pattern = node.get("pattern");
    node.get("apiVersion").is_none() && pattern.is_some_and(|pattern| pattern.get("type").is_some())
}

/// Imports a workflow file of the Strands CLI. `approver` is the user who decides if the file names no approver.
///
/// # Errors
/// The text is not YAML, or not exactly one workflow file of the Strands CLI. Each problem has its position.
pub fn import(text: &str, approver: &str) -> Result<Imported, Vec<Problem>> {
    let mut problems = Problems::of(text);
    let mut documents = source::documents(text);
    let node = match (documents.pop(), documents.is_empty()) {
        (Some(Ok(node)), true) => node,
        (Some(Err(unreadable)), _) => {
            problems.error("NotYaml", "", unreadable.at, unreadable.why);
            return Err(problems.found);
        }
        (document, _) => {
            let what = if document.is_some() { "more than one document" } else { "nothing" };
            problems.error("NotStrands", "", 0..0, format!("there is {what} in it: give a file with one workflow"));
            return Err(problems.found);
        }
    };
    import_node(text, &node, approver)
}

/// Imports one document. The document is parsed again as YAML 1.2, as the Strands CLI does: `yes` is a text.
pub(crate) fn import_node(text: &str, node: &Node, approver: &str) -> Result<Imported, Vec<Problem>> {
    let mut problems = Problems::of(text);
    let node = &source::in_yaml_1_2(text, node).map_err(|unreadable| {
        problems.error("NotYaml", "", unreadable.at, unreadable.why);
        std::mem::take(&mut problems.found)
    })?;
    let parts = (node.get("agents"), node.get("pattern").and_then(|pattern| pattern.get("config")));
    let kind = node.get("pattern").and_then(|pattern| pattern.get("type")).and_then(Node::text).unwrap_or_default();
    for (field, missing) in [("agents", parts.0.is_none()), ("pattern.config", parts.1.is_none())] {
        if missing {
            let at = signoff_manifest::problem::place(node, field);
            problems.error("NotStrands", field, at, format!("{field} is missing: give it"));
        }
    }
    if kind.is_empty() {
        let at = signoff_manifest::problem::place(node, "pattern.type");
        problems.error("NotStrands", "pattern.type", at, format!("name one of {}", patterns::PATTERNS.join(", ")));
    } else if !patterns::PATTERNS.contains(&kind) {
        let at = signoff_manifest::problem::place(node, "pattern.type");
        let near = signoff_expr::nearest(kind, patterns::PATTERNS);
        let hint = near
            .map_or_else(|| format!("there are {}", patterns::PATTERNS.join(", ")), |n| format!("did you mean {n}?"));
        problems.error("NotStrands", "pattern.type", at, format!("there is no pattern {kind}: {hint}"));
    }
    let ((Some(agents), Some(config)), false) = (parts, problems.has_errors()) else { return Err(problems.found) };
    let mut import = Import::of(text, approver);
    let object = import.build_object(node, agents, kind, config);
    import.tell_unknown_ids(config);
    if import.notes.wrong.has_errors() {
        let mut wrong = import.notes.wrong.found;
        wrong.sort_by_key(|problem| problem.at.start);
        wrong.dedup();
        return Err(wrong);
    }
    let mut stamped = object.clone();
    stamped["spec"]["requestedBy"] = json!(signoff_manifest::REQUESTER);
    match serde_json::from_value::<Workflow>(stamped) {
        Ok(workflow) => {
            let mut notes = import.notes.list;
            notes.sort_by_key(|note| (note.line, note.column, note.weight));
            Ok(Imported { object, workflow: Box::new(workflow), notes })
        }
        Err(error) => {
            let at = signoff_manifest::problem::place(node, "pattern");
            problems.error("WrongType", "", at, format!("a value is not of the type that its field has: {error}"));
            Err(problems.found)
        }
    }
}

impl Import<'_> {
    /// Builds the Workflow of a file, without its requester. `kind`, `config`: the type and the config of the pattern.
    fn build_object(&mut self, node: &Node, agents: &Node, kind: &str, config: &Node) -> Value {
        self.notes.read(node, "file", "");
        for name in ["pattern", "context_policy"] {
            if let Some(part) = node.get(name) {
                self.notes.read(part, name, name);
            }
        }
        self.agent_names = agents.fields().iter().map(|(key, _)| key.name.clone()).collect();
        if let Some(policy) = node.get("context_policy") {
            self.read_retrieval(policy);
        }
        if let Some(tools) = node.get("tools") {
            self.read_declared_tools(tools);
        }
        let declared = node.get("inputs");
        if let Some(inputs) = declared {
            self.prepare_inputs(inputs);
        }
        patterns::prepare_names(self, kind, config);
        self.read_output_schemas(agents);
        self.set_special_names(node, kind, config);
        let deadline = node.get("runtime").and_then(|runtime| self.import_limits(runtime, kind));
        let pattern = self.import_pattern(kind, config);
        let router = config.get("router").and_then(|router| router.get("agent")).and_then(Node::text);
        let [mut secrets, providers, agents_now] = self.import_agents(node.get("runtime"), agents, router);
        if let Value::Array(secrets) = &mut secrets {
            secrets.append(&mut self.spec_secrets);
        }
        self.tell_missing("pattern.config", &config.at);
        let outputs = node.get("outputs").and_then(|outputs| self.import_outputs(outputs));
        let own = variables(config);
        let known = [patterns::template_names(kind), &[self.names.root_now]].concat();
        let inputs = self.import_inputs(declared, &known, &own);

        let mut spec = Map::new();
        let mut put = |field: &str, value: Value| {
            if !value.as_array().is_some_and(Vec::is_empty) {
                spec.insert(field.to_owned(), value);
            }
        };
        put("inputs", Value::Array(inputs));
        put("secrets", secrets);
        put("providers", providers);
        put("servers", Value::Array(std::mem::take(&mut self.spec_servers)));
        put("tools", Value::Array(std::mem::take(&mut self.spec_tools)));
        put("agents", agents_now);
        put("gates", Value::Array(std::mem::take(&mut self.spec_gates)));
        if let Some(pattern) = pattern {
            put("pattern", pattern);
        }
        let mut steps = std::mem::take(&mut self.spec_steps);
        steps.append(&mut self.tool_steps);
        put("steps", Value::Array(steps));
        if let Some(outputs) = outputs {
            put("outputs", outputs);
        }
        if let Some(deadline) = deadline {
            put("activeDeadline", deadline.into());
        }
        json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Workflow", "metadata": self.import_metadata(node), "spec": spec})
    }

    fn import_metadata(&mut self, node: &Node) -> Value {
        let original = node.get("name").map(gates::scalar_text).unwrap_or_default();
        let name = label(&original, "imported");
        if name != original {
            let at = node.entry("name").map_or(0..0, |(key, _)| key.at.clone());
            self.notes.tell(NoteLevel::Info, "name", &at, format!("names are DNS labels: it is called {name}"));
        }
        let mut annotations = Map::new();
        if let Some(text) = node.get("description").map(gates::scalar_text) {
            annotations.insert("kubernetes.io/description".into(), text.trim().into());
        }
        let listed = |node: &Node| node.items().iter().map(gates::scalar_text).collect::<Vec<_>>().join(", ");
        if let Some(tags) = node.get("tags").filter(|tags| !tags.items().is_empty()) {
            annotations.insert("import.signoff.dev/tags".into(), listed(tags).into());
        }
        if !self.left_tools.is_empty() {
            annotations.insert("import.signoff.dev/tools".into(), self.left_tools.join("; ").into());
        }
        let mut metadata = Map::from_iter([("name".to_owned(), json!(name))]);
        if !annotations.is_empty() {
            metadata.insert("annotations".into(), Value::Object(annotations));
        }
        Value::Object(metadata)
    }

    /// Sets the expressions for names that only the Strands CLI has, and the agents of nodes. An input of the same name
    /// has priority.
    fn set_special_names(&mut self, node: &Node, kind: &str, config: &Node) {
        let literal = |field: &str| quoted(&node.get(field).map(gates::scalar_text).unwrap_or_default());
        let mut special = vec![
            ("name", literal("name")),
            ("description", literal("description")),
            ("timestamp", "run.startedAt".to_owned()),
        ];
        match kind {
            "routing" => special.push(("chosen_route", "router.chosen_route".to_owned())),
            "evaluator_optimizer" => special.extend([
                ("iteration_index", "(iteration - 1)".to_owned()),
                ("final_score", "evaluation.score".to_owned()),
            ]),
            "orchestrator_workers" => special.extend([
                ("worker_count", "num_workers".to_owned()),
                ("orchestrator_response", "(subtasks | tojson)".to_owned()),
                ("round_count", "1".to_owned()),
                (
                    "reduce_response",
                    if config.get("reduce").is_some() { "reduce.response" } else { "last_response" }.to_owned(),
                ),
                ("writeup_response", "last_response".to_owned()),
            ]),
            "graph" => special.extend(self.graph_specials(config)),
            _ => {}
        }
        self.names.judged = kind == "evaluator_optimizer";
        let declared = |name: &str| {
            let inputs = node.get("inputs");
            ["required", "optional", "values"].iter().any(|section| {
                inputs.and_then(|inputs| inputs.get(section)).is_some_and(|list| list.get(name).is_some())
            })
        };
        let step_vars = variables(config);
        let is_taken = |name: &str| declared(name) || step_vars.iter().any(|var| var == name);
        let nodes = if kind == "graph" { graph::nodes_of(config) } else { Vec::new() };
        let agent =
            |node: &Node| rewrite::cli_paths::quoted(node.get("agent").and_then(Node::text).unwrap_or_default());
        self.names.agents = nodes.into_iter().map(|(id, node, _)| (self.names.of(&id), agent(node))).collect();
        self.names.context = rewrite::cli_paths::CliPaths::new(node, kind, config, is_taken);
        self.names.special = special.into_iter().filter(|(name, _)| !declared(name)).collect();
    }

    /// Returns `terminal_node` and `total_steps` as expressions: the last node that answered, and the number of visits
    /// of all nodes.
    fn graph_specials(&self, config: &Node) -> [(&'static str, String); 2] {
        let ids: Vec<String> = graph::nodes_of(config).into_iter().map(|(id, ..)| id).collect();
        let has_edge = |id: &String| {
            config
                .get("edges")
                .map(Node::items)
                .unwrap_or_default()
                .iter()
                .any(|e| e.get("from").map(gates::scalar_text).as_ref() == Some(id))
        };
        let (inner, ends): (Vec<&String>, Vec<&String>) = ids.iter().partition(|id| has_edge(id));
        let step = |id: &String| rewrite::render_path("steps", &[self.names.of(id)]);
        let terminal = ends.into_iter().chain(inner.into_iter().rev()).fold(String::new(), |text, id| {
            format!("{text}'{}' if {}.response is not none else ", self.names.of(id), step(id))
        });
        let total: Vec<String> = ids.iter().map(|id| format!("({}.visits | length)", step(id))).collect();
        [("terminal_node", format!("({terminal}'')")), ("total_steps", format!("({})", total.join(" + ")))]
    }

    /// Adds notes about paths that only the Strands CLI has and that have no equivalent.
    fn tell_missing(&mut self, field: &str, at: &std::ops::Range<usize>) {
        for path in std::mem::take(&mut self.found.missing) {
            let (weight, why) = match path.as_str() {
                "execution_context.execution_path" => (
                    NoteLevel::Unsupported,
                    "templates have no list of the nodes in their order; ask each step, as in `steps.<name>.visits | length`",
                ),
                path if path.starts_with("runtime") || path.starts_with("context_policy") => {
                    (NoteLevel::Changed, "the file has no single value there; write it into the text")
                }
                _ => (NoteLevel::Unsupported, "there is no such value here; refer to steps or iterations by name"),
            };
            self.notes.tell(weight, field, at, format!("{path} becomes an empty text: {why}"));
        }
    }

    /// Adds a note about each reference to an unknown id.
    fn tell_unknown_ids(&mut self, config: &Node) {
        for path in std::mem::take(&mut self.found.unknown_ids) {
            let message = format!("unknown reference {path}: it becomes an empty text");
            self.tell_at(NoteLevel::Changed, "pattern.config", config, message);
        }
    }
}

/// Returns the variables of all steps, which are names of their own.
fn variables(node: &Node) -> Vec<String> {
    let own = node.get("vars").map(Node::fields).unwrap_or_default().iter().map(|(key, _)| key.name.clone());
    let below = node.items().iter().chain(node.fields().iter().map(|(_, value)| value));
    own.chain(below.flat_map(variables)).collect()
}

/// Renders a text as a literal of a template.
fn quoted(text: &str) -> String {
    let plain: String = text.trim().chars().filter(|c| !matches!(c, '\\' | '\'')).collect();
    format!("'{}'", plain.replace('\n', " "))
}

#[cfg(test)]
mod tests;
