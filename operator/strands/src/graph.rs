//! Graphs: their nodes as steps, and their edges as one list for each step.
//!
//! An edge that is never tried leads to a note.

use serde_json::{Map, json};
use signoff_manifest::source::{Node, Value};

use super::{gates::scalar_text, import::Import, import_notes::NoteLevel};

/// An edge of the file.
struct Edge {
    from: String,
    /// The condition; `None` or `else` always holds.
    when: Option<String>,
    to: String,
    /// The path of the edge in the file.
    field: String,
}

impl Import<'_> {
    /// Imports the nodes of a graph as steps, and returns `spec.pattern` with its edges and limits.
    pub(super) fn import_graph(&mut self, config: &Node, path: &str) -> serde_json::Value {
        for (id, node, field) in nodes_of(config) {
            let response = format!("nodes.{id}.response");
            let field = format!("{path}.nodes{field}");
            if config.get("nodes").is_some_and(|nodes| nodes.items().is_empty()) {
                self.notes.tell_unused(
                    NoteLevel::Info,
                    node,
                    &field,
                    &["id"],
                    "the name is its key in nodes: left out",
                );
            }
            let step = self.import_step(node, &field, &self.names.of(&id), &response, false);
            self.spec_steps.push(step);
        }
        let mut graph = Map::new();
        if let Some(entry) = config.get("entry") {
            graph.insert("entry".into(), self.names.of(&scalar_text(entry)).into());
        }
        graph.insert("edges".into(), self.import_edges(config, path));
        if let Some(most) = config.get("max_iterations") {
            graph.insert("maxIterations".into(), most.to_json());
        }
        if let Some(most) = self.max_steps {
            graph.insert("maxSteps".into(), most.into());
        }
        json!({"graph": graph})
    }

    /// Returns the edges of each node as one list, which is tried in order. Adds a note about each edge that is left
    /// out.
    fn import_edges(&mut self, config: &Node, path: &str) -> serde_json::Value {
        let mut edges: Vec<Edge> = Vec::new();
        for (index, edge) in config.get("edges").map(Node::items).unwrap_or_default().iter().enumerate() {
            let field = format!("{path}.edges[{index}]");
            self.notes.read(edge, "graph.edge", &field);
            let of_entry = self.import_edge_entry(edge, &field);
            if of_entry.is_empty() {
                // An empty list of targets ends the run, like no edge.
                let weight = if edge.get("to").is_some() { NoteLevel::Info } else { NoteLevel::Unsupported };
                self.tell_at(weight, &field, edge, "this edge has no target: left out");
            }
            for next in of_entry {
                let always_holds =
                    |other: &&Edge| other.from == next.from && other.when.as_deref().is_none_or(|w| w == "else");
                match edges.iter().find(always_holds) {
                    Some(before) => {
                        let message = format!("never tried: {} always holds before it", before.field);
                        self.tell_at(NoteLevel::Changed, &next.field, edge, message);
                    }
                    None => edges.push(next),
                }
            }
        }
        let mut sources: Vec<&str> = Vec::new();
        for edge in &edges {
            if !sources.contains(&edge.from.as_str()) {
                sources.push(&edge.from);
            }
        }
        let render = |from: &str| {
            let from_node: Vec<&Edge> = edges.iter().filter(|edge| edge.from == from).collect();
            let name = self.names.of(from);
            match from_node.as_slice() {
                [Edge { when: None, to, .. }] => json!({"from": name, "to": self.names.of(to)}),
                several => {
                    let choose = |edge: &&Edge| json!({"when": edge.when.as_deref().unwrap_or("else"), "to": self.names.of(&edge.to)});
                    json!({"from": name, "choose": several.iter().map(choose).collect::<Vec<_>>()})
                }
            }
        };
        sources.into_iter().map(render).collect()
    }

    /// Returns the edges of one entry of the file, in the order in which they are tried.
    fn import_edge_entry(&mut self, edge: &Node, field: &str) -> Vec<Edge> {
        let from = edge.get("from").map(scalar_text).unwrap_or_default();
        let mut edges = Vec::new();
        let mut targets: Vec<String> = match edge.get("to") {
            Some(Node { value: Value::List(several), .. }) => several.iter().map(scalar_text).collect(),
            Some(target) => vec![scalar_text(target)],
            None => Vec::new(),
        };
        targets.retain(|target| !target.is_empty());
        if targets.len() > 1 {
            let message = "only the first of several targets is run";
            self.tell_at(NoteLevel::Changed, &format!("{field}.to"), edge, message);
        }
        match targets.into_iter().next() {
            Some(to) => {
                let when = edge
                    .get("condition")
                    .map(scalar_text)
                    .map(|source| self.import_edge_condition(&source, &format!("{field}.condition"), edge));
                edges.push(Edge { from: from.clone(), when, to, field: field.to_owned() });
            }
            None => {
                let why = "a condition decides about `to`, which is missing: left out";
                self.notes.tell_unused(NoteLevel::Unsupported, edge, field, &["condition"], why);
            }
        }
        for (index, choice) in edge.get("choose").map(Node::items).unwrap_or_default().iter().enumerate() {
            let field = format!("{field}.choose[{index}]");
            self.notes.read(choice, "graph.edge.choose", &field);
            let when = choice.get("when").map(scalar_text).unwrap_or_else(|| "else".to_owned());
            let to = choice.get("to").map(scalar_text).unwrap_or_default();
            let when = self.import_edge_condition(&when, &format!("{field}.when"), choice);
            edges.push(Edge { from: from.clone(), when: Some(when), to, field });
        }
        edges
    }
}

/// Returns the nodes of a graph, which can be a list or a map: the id, the node, and its path.
pub(super) fn nodes_of(config: &Node) -> Vec<(String, &Node, String)> {
    let Some(nodes) = config.get("nodes") else { return Vec::new() };
    let listed = nodes.items().iter().enumerate();
    let listed =
        listed.map(|(at, node)| (node.get("id").map(scalar_text).unwrap_or_default(), node, format!("[{at}]")));
    listed.chain(nodes.fields().iter().map(|(key, node)| (key.name.clone(), node, format!(".{}", key.name)))).collect()
}
