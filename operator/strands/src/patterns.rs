//! The seven patterns of the Strands CLI as patterns of a Workflow: `workflow` becomes `dag`, `chain` needs no pattern,
//! and the others keep their names. Steps and gates are added to the lists of the spec.
//!
//! The plan refuses cycles, unknown nodes and missing agents.

use serde_json::{Map, Value, json};
use signoff_manifest::source::Node;

use super::{
    answer_words,
    gates::{self, Position, scalar_text},
    graph::nodes_of,
    import::{Import, is_gate},
    import_notes::NoteLevel,
    names::Names,
    tokens::{self, Token},
};

/// The patterns with the names of the format.
pub(super) const PATTERNS: [&str; 7] =
    ["chain", "workflow", "routing", "parallel", "evaluator_optimizer", "orchestrator_workers", "graph"];

/// Returns the names that exist in templates of a pattern, in addition to those of every run.
pub(super) fn template_names(pattern: &str) -> &'static [&'static str] {
    match pattern {
        "chain" => &["steps"],
        "workflow" | "graph" => &["steps"],
        "routing" => &["router", "steps"],
        "parallel" => &["steps", "branches"],
        "evaluator_optimizer" => {
            &["draft", "evaluation", "iteration", "iterations", "current_draft", "current_evaluation"]
        }
        "orchestrator_workers" => &["workers", "num_workers", "subtasks", "task_count", "task", "index", "reduce"],
        _ => &[],
    }
}

impl Import<'_> {
    /// Imports a pattern by its config: adds its steps and gates to the lists of the spec, and returns `spec.pattern`;
    /// a chain has none. [`prepare_names`] is called before.
    pub(super) fn import_pattern(&mut self, kind: &str, config: &Node) -> Option<Value> {
        let path = "pattern.config";
        let section = PATTERNS.into_iter().find(|pattern| *pattern == kind).unwrap_or("graph");
        self.notes.read(config, section, path);
        if kind == "chain" {
            let steps = self.import_list(config, "steps", path);
            self.spec_steps.extend(steps);
            return None;
        }
        Some(match kind {
            "workflow" => self.import_dag(config, path),
            "routing" => self.import_routing(config, path),
            "parallel" if self.names.root_now == "steps" => self.import_parallel_as_dag(config, path),
            "parallel" => self.import_parallel(config, path),
            "evaluator_optimizer" => self.import_evaluator(config, path),
            "orchestrator_workers" => self.import_orchestrator(config, path),
            _ => self.import_graph(config, path),
        })
    }

    /// Adds the steps of a branch to the list of the spec.
    fn add_branch(&mut self, name: &str, steps: Vec<Value>) {
        for step in steps {
            let mut in_branch = Map::new();
            for (field, value) in step.as_object().into_iter().flatten() {
                in_branch.insert(field.clone(), value.clone());
                if field == "name" {
                    in_branch.insert("branch".into(), name.into());
                }
            }
            self.spec_steps.push(Value::Object(in_branch));
        }
    }

    /// Adds the gate of a pattern to the list of the spec, and returns its name for the pattern.
    fn add_gate(&mut self, name: &str, hitl: Value) -> Value {
        self.spec_gates.push(json!({"name": name, "hitl": hitl}));
        name.into()
    }

    /// Imports the list of steps in a field of a node; empty if the field is missing.
    fn import_list(&mut self, node: &Node, field: &str, path: &str) -> Vec<Value> {
        let Some(list) = node.get(field) else { return Vec::new() };
        self.import_steps(list, &format!("{path}.{field}"))
    }

    /// Imports a step whose name the pattern chooses.
    fn import_named_step(&mut self, node: &Node, path: &str, name: &str) -> Value {
        let path = format!("{path}.{name}");
        self.notes.tell_unused(NoteLevel::Info, node, &path, &["id"], &format!("this step is called {name}: left out"));
        self.import_step(node, &path, name, "last_response", true)
    }

    /// Inserts the number of concurrent calls into a pattern, if the file has one.
    fn insert_max_parallel(&self, pattern: &mut Map<String, Value>, field: &str) {
        if let Some(most) = self.max_parallel {
            pattern.insert(field.into(), most.into());
        }
    }

    fn import_dag(&mut self, config: &Node, path: &str) -> Value {
        for (index, node) in config.get("tasks").map(Node::items).unwrap_or_default().iter().enumerate() {
            let id = node.get("id").map(scalar_text).unwrap_or_default();
            let response = format!("tasks.{id}.response");
            let (field, name, deps) = (format!("{path}.tasks[{index}]"), self.names.of(&id), dependencies_of(node));
            let mut step = self.import_step(node, &field, &name, &response, !deps.is_empty());
            if !deps.is_empty() {
                step["dependsOn"] = deps.iter().map(|dep| self.names.of(dep)).collect();
            }
            self.spec_steps.push(step);
        }
        let mut dag = Map::new();
        self.insert_max_parallel(&mut dag, "maxParallel");
        json!({"dag": dag})
    }

    fn import_routing(&mut self, config: &Node, path: &str) -> Value {
        let mut router = Map::new();
        let mut review = config.get("review_router").map(|review| (review, format!("{path}.review_router")));
        if let Some(node) = config.get("router") {
            let field = format!("{path}.router");
            self.notes.read(node, "routing.router", &field);
            router.insert("agent".into(), node.get("agent").map(scalar_text).unwrap_or_default().into());
            let input = self.import_text(node, "input").unwrap_or_else(|| {
                self.tell_at(NoteLevel::Info, &field, node, "there is no input: the router is told `Choose a route.`");
                "Choose a route.".to_owned()
            });
            router.insert("input".into(), self.with_route_names(&input).into());
            if let Some(retries) = node.get("max_retries") {
                router.insert("maxRetries".into(), retries.to_json());
            }
            if node.get("review_router").is_some() {
                let why = "the router has a review of its own: left out";
                self.notes.tell_unused(NoteLevel::Changed, config, path, &["review_router"], why);
            }
            let of_router = node.get("review_router").map(|review| (review, format!("{field}.review_router")));
            review = of_router.or(review);
        }
        if let Some((review, field)) = review {
            let hitl = self.import_gate(review, &field, "hitl_response", Position::Route);
            router.insert("review".into(), self.add_gate("review", hitl));
        }
        for (key, node) in config.get("routes").map(Node::fields).unwrap_or_default() {
            let field = format!("{path}.routes.{}", key.name);
            self.notes.read(node, "route", &field);
            let list = if node.get("then").is_some() { "then" } else { "steps" };
            if list == "then" {
                self.notes.tell_unused(
                    NoteLevel::Changed,
                    node,
                    &field,
                    &["steps"],
                    "the steps of `then` are run: left out",
                );
            }
            let mut steps = self.import_list(node, list, &field);
            if steps.is_empty() {
                let message = "a route needs a step: this one gives the router's answer";
                self.notes.tell(NoteLevel::Info, &field, &key.at, message);
                steps.push(json!({"name": "answer", "set": {"value": "{{ router.response }}"}}));
            }
            self.add_branch(&self.names.of(&key.name), steps);
        }
        json!({"routing": {"router": router}})
    }

    /// Replaces the names of the routes in a text for the router by the names of their steps, because the router has to
    /// answer with the name of a step. Leaves expressions unchanged.
    pub(super) fn with_route_names(&self, text: &str) -> String {
        let rename = |token: Token| match token {
            Token::Plain(text) => Token::Plain(self.names.with_names(&text)),
            other => other,
        };
        tokens::join(&tokens::parse_template(text).into_iter().map(rename).collect::<Vec<_>>())
    }

    fn import_parallel(&mut self, config: &Node, path: &str) -> Value {
        for (at, node) in config.get("branches").map(Node::items).unwrap_or_default().iter().enumerate() {
            let field = format!("{path}.branches[{at}]");
            let id = node.get("id").map(scalar_text).unwrap_or_default();
            let steps = if node.get("steps").is_some() {
                self.notes.read(node, "branch", &field);
                self.import_list(node, "steps", &field)
            } else {
                let name = node
                    .get("agent")
                    .map_or_else(|| "ask".to_owned(), |a| super::names::label(&scalar_text(a), "step"));
                vec![self.import_step(node, &field, &name, &format!("branches.{id}.response"), false)]
            };
            self.add_branch(&self.names.of(&id), steps);
        }
        let mut parallel = Map::new();
        if let Some(node) = config.get("reduce") {
            let reduce = self.import_named_step(node, path, "reduce");
            parallel.insert("reduce".into(), reduce["name"].clone());
            self.spec_steps.push(reduce);
        }
        self.insert_max_parallel(&mut parallel, "maxParallel");
        json!({"parallel": parallel})
    }

    /// Imports branches that refer to each other as steps of a dag, with dependencies.
    fn import_parallel_as_dag(&mut self, config: &Node, path: &str) -> Value {
        let message =
            "a branch refers to another one: the branches are steps of a dag, which wait for those that they refer to";
        self.tell_at(NoteLevel::Changed, "pattern.config.branches", config, message);
        let branches = config.get("branches").map(Node::items).unwrap_or_default();
        let ids: Vec<String> =
            branches.iter().map(|node| node.get("id").map(scalar_text).unwrap_or_default()).collect();
        for (index, (node, id)) in branches.iter().zip(&ids).enumerate() {
            let response = format!("branches.{id}.response");
            let deps = referenced_branches(node, &ids).into_iter().filter(|other| other != id).collect::<Vec<_>>();
            let name = self.names.of(id);
            let mut task = self.import_step(node, &format!("{path}.branches[{index}]"), &name, &response, false);
            if !deps.is_empty() {
                task["dependsOn"] = deps.iter().map(|other| self.names.of(other)).collect();
            }
            self.spec_steps.push(task);
        }
        if let Some(node) = config.get("reduce") {
            let mut reduce = self.import_named_step(node, path, "reduce");
            reduce["dependsOn"] = ids.iter().map(|id| self.names.of(id)).collect();
            self.spec_steps.push(reduce);
        }
        let mut dag = Map::new();
        self.insert_max_parallel(&mut dag, "maxParallel");
        json!({"dag": dag})
    }

    fn import_evaluator(&mut self, config: &Node, path: &str) -> Value {
        let mut pattern = Map::new();
        pattern.insert("producer".into(), config.get("producer").map(scalar_text).unwrap_or_default().into());
        if let Some(node) = config.get("evaluator") {
            self.notes.read(node, "evaluator_optimizer.evaluator", &format!("{path}.evaluator"));
            let mut evaluator =
                Map::from_iter([("agent".to_owned(), node.get("agent").map(scalar_text).unwrap_or_default().into())]);
            if let Some(input) = self.import_text(node, "input") {
                evaluator.insert("input".into(), input.into());
            }
            pattern.insert("evaluator".into(), Value::Object(evaluator));
        }
        if let Some(node) = config.get("accept") {
            self.notes.read(node, "evaluator_optimizer.accept", &format!("{path}.accept"));
            let mut accept = Map::new();
            for (theirs, ours) in [("min_score", "minScore"), ("max_iters", "maxIterations")] {
                if let Some(value) = node.get(theirs) {
                    accept.insert(ours.into(), value.to_json());
                }
            }
            pattern.insert("accept".into(), Value::Object(accept));
        }
        if let Some(prompt) = self.import_text(config, "revise_prompt") {
            pattern.insert("revisePrompt".into(), prompt.into());
        }
        if let Some(node) = config.get("review_gate") {
            let hitl = self.import_gate(node, &format!("{path}.review_gate"), "hitl_response", Position::Review);
            pattern.insert("reviewGate".into(), self.add_gate("review", hitl));
        }
        json!({"evaluatorOptimizer": pattern})
    }

    fn import_orchestrator(&mut self, config: &Node, path: &str) -> Value {
        let mut pattern = Map::new();
        let mut orchestrator = Map::new();
        if let Some(node) = config.get("orchestrator") {
            self.notes.read(node, "orchestrator_workers.orchestrator", &format!("{path}.orchestrator"));
            orchestrator.insert("agent".into(), node.get("agent").map(scalar_text).unwrap_or_default().into());
            if let Some(input) = self.import_text(node, "input") {
                orchestrator.insert("input".into(), input.into());
            }
            self.insert_max_parallel(&mut orchestrator, "maxWorkers");
            if let Some(limits) = node.get("limits") {
                let field = format!("{path}.orchestrator.limits");
                self.notes.read(limits, "orchestrator_workers.orchestrator.limits", &field);
                if gates::whole_number(limits, "max_rounds").is_some_and(|rounds| rounds > 1) {
                    let why = "the orchestrator divides the work only once: left out";
                    self.notes.tell_unused(NoteLevel::Changed, limits, &field, &["max_rounds"], why);
                }
                if let Some(most) = limits.get("max_workers") {
                    if self.max_parallel.is_some() {
                        let why = "it says how many workers there are at once, and not runtime.max_parallel";
                        self.notes.tell_unused(NoteLevel::Info, limits, &field, &["max_workers"], why);
                    }
                    orchestrator.insert("maxWorkers".into(), most.to_json());
                }
            }
        }
        pattern.insert("orchestrator".into(), Value::Object(orchestrator));
        for (theirs, ours, name, position) in [
            ("decomposition_review", "decompositionReview", "decomposition", Position::Subtasks),
            ("reduce_review", "reduceReview", "reduce-review", Position::Reduce),
        ] {
            if let Some(node) = config.get(theirs) {
                let hitl = self.import_gate(node, &format!("{path}.{theirs}"), "hitl_response", position);
                pattern.insert(ours.into(), self.add_gate(name, hitl));
            }
        }
        let mut worker = Map::new();
        if let Some(node) = config.get("worker_template") {
            self.notes.read(node, "orchestrator_workers.worker_template", &format!("{path}.worker_template"));
            let agent = node.get("agent").map(scalar_text).unwrap_or_default();
            let field = format!("{path}.worker_template.tools");
            worker.insert("agent".into(), self.agent_with_tools(&agent, node.get("tools"), &field).into());
            if let Some(input) = self.import_text(node, "input") {
                worker.insert("input".into(), input.into());
            }
            if let Some(retry) = &self.retry {
                worker.insert("retry".into(), retry.clone());
            }
        }
        pattern.insert("worker".into(), Value::Object(worker));
        for name in ["reduce", "writeup"] {
            if let Some(node) = config.get(name) {
                let step = self.import_named_step(node, path, name);
                pattern.insert(name.into(), step["name"].clone());
                self.spec_steps.push(step);
            }
        }
        json!({"orchestratorWorkers": pattern})
    }
}

/// Assigns a name to each id of a pattern, and collects the words with which the file compares answers.
pub(super) fn prepare_names(import: &mut Import<'_>, kind: &str, config: &Node) {
    let ids = |field: &str| -> Vec<String> {
        config
            .get(field)
            .map(Node::items)
            .unwrap_or_default()
            .iter()
            .filter_map(|n| n.get("id"))
            .map(scalar_text)
            .collect()
    };
    let (root, ids) = match kind {
        "workflow" => ("tasks", ids("tasks")),
        "parallel" => ("branches", ids("branches")),
        "graph" => ("nodes", nodes_of(config).into_iter().map(|(id, ..)| id).collect()),
        "routing" => {
            let routes = config.get("routes").map(Node::fields).unwrap_or_default();
            ("routes", routes.iter().map(|(key, _)| key.name.clone()).collect())
        }
        _ => ("", Vec::new()),
    };
    let mut names = Names { root, root_now: root, ..std::mem::take(&mut import.names) };
    if matches!(kind, "workflow" | "graph") || (kind == "parallel" && has_cross_references(config, &ids)) {
        names.root_now = "steps";
    }
    names.assign_names(ids.iter().map(String::as_str));
    import.names = names;
    let mut last_gate = None;
    collect_comparisons(config, None, kind, &mut last_gate, import);
}

/// Whether all branches have one step each, and one of them refers to another branch.
fn has_cross_references(config: &Node, ids: &[String]) -> bool {
    let branches = config.get("branches").map(Node::items).unwrap_or_default();
    let is_single = branches.iter().all(|node| node.get("steps").is_none());
    is_single
        && branches.iter().any(|node| {
            let id = node.get("id").map(scalar_text);
            referenced_branches(node, ids).into_iter().any(|other| Some(other) != id)
        })
}

/// Returns the branches that the texts of a branch refer to.
fn referenced_branches(node: &Node, ids: &[String]) -> Vec<String> {
    let texts: String = node.fields().iter().filter_map(|(_, value)| value.text()).collect();
    let is_referenced = |id: &&String| {
        [format!("branches.{id}."), format!("branches['{id}']"), format!("branches[\"{id}\"]")]
            .iter()
            .any(|path| texts.contains(path))
    };
    ids.iter().filter(is_referenced).cloned().collect()
}

/// Collects every comparison of an answer in the texts of a node and below, in the order of the file.
fn collect_comparisons(
    node: &Node,
    path: Option<&str>,
    kind: &str,
    last_gate: &mut Option<String>,
    import: &mut Import<'_>,
) {
    if let Some(text) = node.text() {
        answer_words::add_comparisons(text, last_gate.as_deref().or(path), &mut import.compared);
        return;
    }
    for (at, item) in node.items().iter().enumerate() {
        let edge = item.get("from").map(|from| format!("nodes.{}.response", scalar_text(from)));
        collect_comparisons(item, edge.as_deref().or(path), kind, last_gate, import);
        if is_gate(item) && matches!(kind, "chain" | "routing" | "parallel") {
            *last_gate = Some(format!("steps[{at}].response"));
        }
    }
    for (key, value) in node.fields() {
        // Each route and each branch starts without a last gate.
        if ["then", "branches", "routes"].contains(&key.name.as_str()) {
            *last_gate = None;
        }
        collect_comparisons(value, path, kind, last_gate, import);
    }
}

/// Returns the ids for which a task waits, each once.
fn dependencies_of(node: &Node) -> Vec<String> {
    let listed = |field: &str| node.get(field).map(Node::items).unwrap_or_default().iter().map(scalar_text);
    let mut deps: Vec<String> = Vec::new();
    for dep in listed("deps").chain(listed("dependencies")) {
        if !deps.contains(&dep) {
            deps.push(dep);
        }
    }
    deps
}
