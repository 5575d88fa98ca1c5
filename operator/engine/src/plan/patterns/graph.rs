//! A graph in a plan: its nodes, where each edge leads, and that every node can be reached and some node ends the run.
//!
//! It may not evaluate a condition.

use std::collections::BTreeSet;

use signoff_api::pattern::{Edge, Graph};

use super::{Check, Ground, Known, PlannedEdge, PlannedGraph, PlannedPattern};
use crate::{
    language::{Members, When},
    plan::{
        references::{with_decision, with_records},
        step::Place,
    },
};

/// How often one node may run, and how many in all, where it is not said.
const USUAL: (i32, i32) = (10, 100);

impl Check<'_> {
    pub(super) fn graph(
        &mut self,
        ground: &Ground<'_>,
        graph: &Graph,
        base: &Known,
    ) -> Option<(PlannedPattern, Known)> {
        let field = "spec.pattern.graph";
        if graph.nodes.is_empty() {
            self.complain(format!("{field}.nodes"), "a graph needs at least one node");
        }
        self.unique(graph.nodes.iter().map(|node| node.name.as_str()), &format!("{field}.nodes"));
        let known = with_records(base.clone(), "nodes", graph.nodes.iter(), &["visits"]);
        let known = known.with("last_response", Members::Open);
        let known = if graph.nodes.iter().any(|node| node.hitl.is_some()) { with_decision(known) } else { known };
        let mut nodes = Vec::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            let mut place = Place::new(ground, format!("{field}.nodes[{at}]"), "", known.clone());
            place.earlier = nodes.iter().enumerate().collect();
            if !node.deps.is_empty() {
                let message = "only the tasks of a dag depend on each other: draw an edge";
                self.complain(format!("{field}.nodes[{at}].deps"), message);
            }
            if let Some(step) = self.step(node, &place) {
                nodes.push(step);
            }
        }
        let entry = match &graph.entry {
            None => 0,
            Some(name) => self.node(graph, name, &format!("{field}.entry")).unwrap_or(0),
        };
        let mut edges = vec![Vec::new(); graph.nodes.len()];
        for (at, edge) in graph.edges.iter().enumerate() {
            let field = format!("{field}.edges[{at}]");
            let from = self.node(graph, &edge.from, &format!("{field}.from"));
            let planned = self.edge(graph, edge, &field, &known);
            if let (Some(from), Some(planned)) = (from, planned) {
                edges[from].push(planned);
            }
        }
        self.shape(graph, entry, &edges, field);
        if nodes.len() != graph.nodes.len() {
            return None;
        }
        let planned = PlannedGraph {
            nodes,
            entry,
            edges,
            max_iterations: graph.max_iterations.unwrap_or(USUAL.0),
            max_steps: graph.max_steps.unwrap_or(USUAL.1),
        };
        Some((PlannedPattern::Graph(planned), known))
    }

    fn node(&mut self, graph: &Graph, name: &str, field: &str) -> Option<usize> {
        let found = graph.nodes.iter().position(|node| node.name == name);
        if found.is_none() {
            let names: Vec<_> = graph.nodes.iter().map(|node| node.name.as_str()).take(10).collect();
            self.complain(field, format!("there is no node {name}; there are {}", names.join(", ")));
        }
        found
    }

    fn edge(&mut self, graph: &Graph, edge: &Edge, field: &str, known: &Known) -> Option<PlannedEdge> {
        match (&edge.to, edge.choose.as_slice()) {
            (Some(to), []) => self.node(graph, to, &format!("{field}.to")).map(PlannedEdge::Always),
            (None, [_, ..]) => {
                let mut choices = Vec::new();
                for (at, choice) in edge.choose.iter().enumerate() {
                    let field = format!("{field}.choose[{at}]");
                    let when = self.when(&choice.when, &format!("{field}.when"), known);
                    let to = self.node(graph, &choice.to, &format!("{field}.to"));
                    if let (Some(when), Some(to)) = (when, to) {
                        choices.push((when, to));
                    }
                }
                if !choices.iter().any(|(when, _)| when.is_else()) {
                    self.warn(&format!("{field}.choose"), "without an else the run may end here");
                }
                Some(PlannedEdge::Choose(choices))
            }
            _ => {
                self.complain(field, "an edge has exactly one of to and choose");
                None
            }
        }
    }

    fn when(&mut self, source: &str, field: &str, known: &Known) -> Option<When> {
        match When::parse(source, field) {
            Ok(when) => {
                self.references(&when.references(), known, field);
                Some(when)
            }
            Err(why) => {
                self.complain(field, why.problem());
                None
            }
        }
    }

    /// Every node can be reached, and some node may be the last.
    fn shape(&mut self, graph: &Graph, entry: usize, edges: &[Vec<PlannedEdge>], field: &str) {
        let mut reached = BTreeSet::new();
        let mut next = vec![entry];
        while let Some(at) = next.pop() {
            if reached.insert(at) {
                next.extend(edges.get(at).into_iter().flatten().flat_map(PlannedEdge::targets));
            }
        }
        for (at, node) in graph.nodes.iter().enumerate().filter(|(at, _)| !reached.contains(at)) {
            let message = format!("no edge leads to {}: draw one, or remove the node", node.name);
            self.complain(format!("{field}.nodes[{at}]"), message);
        }
        if !edges.is_empty() && !edges.iter().any(|leaving| leaving.iter().all(|edge| !edge.always_matches())) {
            self.complain(
                format!("{field}.edges"),
                "the run could never end: leave some node without an edge that always matches",
            );
        }
    }
}

impl PlannedEdge {
    /// The nodes it may lead to.
    pub(in crate::plan) fn targets(&self) -> Vec<usize> {
        match self {
            Self::Always(to) => vec![*to],
            Self::Choose(choices) => choices.iter().map(|(_, to)| *to).collect(),
        }
    }

    fn always_matches(&self) -> bool {
        match self {
            Self::Always(_) => true,
            Self::Choose(choices) => choices.iter().any(|(when, _)| when.is_else()),
        }
    }
}
