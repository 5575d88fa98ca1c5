//! A graph in a plan: the target of each edge. Every step must be reachable, and some step must end the run.

use std::collections::BTreeSet;

use signoff_api::pattern::{Edge, Graph};
use signoff_expr::Members;

use super::{Known, PlanContext, PlannedEdge, PlannedGraph, PlannedPattern, SpecStep, SpecSteps, Validator};

use crate::plan::{
    references::{with_decision, with_records},
    step::StepContext,
};

/// The default number of visits of one step, and of all steps.
const USUAL: (i32, i32) = (10, 100);
/// The maximum number of steps of a graph.
const MOST_STEPS: usize = 128;

impl Validator<'_> {
    pub(super) fn graph(
        &mut self,
        plan: &PlanContext<'_>,
        graph: &Graph,
        steps: &SpecSteps<'_>,
        base: &Known,
    ) -> Option<(PlannedPattern, Known)> {
        let field = "spec.pattern.graph";
        self.check_no_branches(steps);
        self.check_count(steps, MOST_STEPS, "graph");
        let steps = steps.all();
        if steps.is_empty() {
            self.error("spec.steps", "a graph needs at least one step");
        }
        let known = with_records(base.clone(), steps.iter(), &["visits"]);
        let known = known.with("last_response", Members::Open);
        let known =
            if steps.iter().any(|spec_step| spec_step.step.hitl.is_some()) { with_decision(known) } else { known };
        let mut nodes = Vec::new();
        for spec_step in steps {
            let mut context = StepContext::new(plan, &spec_step.field, "", known.clone());
            context.earlier = nodes.iter().enumerate().collect();
            self.check_no_dependencies(spec_step, "add an edge to spec.pattern.graph.edges");
            if let Some(step) = self.plan_step(spec_step.step, &context) {
                nodes.push(step);
            }
        }
        let entry = match &graph.entry {
            None => 0,
            Some(name) => self.find_node(steps, name, &format!("{field}.entry")).unwrap_or(0),
        };
        let mut edges = vec![Vec::new(); steps.len()];
        for (at, edge) in graph.edges.iter().enumerate() {
            let field = format!("{field}.edges[{at}]");
            let from = self.find_node(steps, &edge.from, &format!("{field}.from"));
            let planned = self.plan_edge(steps, edge, &field, &known);
            if let (Some(from), Some(planned)) = (from, planned) {
                edges[from].push(planned);
            }
        }
        self.check_reachability(steps, entry, &edges, field, !plan.spec.gates.is_empty());
        if nodes.len() != steps.len() {
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

    fn find_node(&mut self, steps: &[SpecStep<'_>], name: &str, field: &str) -> Option<usize> {
        let position = steps.iter().position(|spec_step| spec_step.step.name == name);
        if position.is_none() {
            let names: Vec<_> = steps.iter().map(|spec_step| spec_step.step.name.as_str()).take(10).collect();
            let hint = self.did_you_mean(name, steps.iter().map(|spec_step| spec_step.step.name.as_str()));
            self.error(field, format!("there is no step {name}; there are {}{hint}", names.join(", ")));
        }
        position
    }

    fn plan_edge(&mut self, steps: &[SpecStep<'_>], edge: &Edge, field: &str, known: &Known) -> Option<PlannedEdge> {
        match (&edge.to, edge.choose.as_slice()) {
            (Some(to), []) => self.find_node(steps, to, &format!("{field}.to")).map(PlannedEdge::Always),
            (None, [_, ..]) => {
                let mut choices = Vec::new();
                for (at, choice) in edge.choose.iter().enumerate() {
                    let field = format!("{field}.choose[{at}]");
                    let when =
                        self.parse_condition(&choice.when, &format!("{field}.when"), known, "the run then fails");
                    let to = self.find_node(steps, &choice.to, &format!("{field}.to"));
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
                self.error(field, "an edge has exactly one of to and choose");
                None
            }
        }
    }

    /// Checks that every step is reachable, and that some step can be the last.
    fn check_reachability(
        &mut self,
        steps: &[SpecStep<'_>],
        entry: usize,
        edges: &[Vec<PlannedEdge>],
        field: &str,
        can_be_rejected: bool,
    ) {
        let mut reached = BTreeSet::new();
        let mut next = vec![entry];
        while let Some(at) = next.pop() {
            if reached.insert(at) {
                let asks = can_be_rejected || steps.get(at).is_some_and(|spec_step| spec_step.step.hitl.is_some());
                next.extend(possible_targets(edges.get(at).map_or(&[], Vec::as_slice), asks));
            }
        }
        for (_, spec_step) in steps.iter().enumerate().filter(|(at, _)| !reached.contains(at)) {
            let name = &spec_step.step.name;
            let is_drawn =
                edges.iter().flatten().any(|edge| edge.targets().iter().any(|to| steps[*to].step.name == *name));
            self.error(
                &spec_step.field,
                if is_drawn {
                    format!(
                        "step {name} would never run: an earlier edge from the same step always matches, or no path leads to that step: order the edges differently, or remove the step"
                    )
                } else {
                    format!("no edge leads to {name}: add one, or remove the step")
                },
            );
        }
        if !edges.is_empty() && !edges.iter().any(|leaving| leaving.iter().all(|edge| !edge.always_matches())) {
            self.error(
                format!("{field}.edges"),
                "the run could never end: leave some step without an edge that always matches",
            );
        }
    }
}

/// Returns the possible targets of the edges of one step. Edges after an edge that always matches are never tried. If
/// people are asked, edges without a condition do not apply after a Reject.
fn possible_targets(edges: &[PlannedEdge], asks: bool) -> Vec<usize> {
    let (mut targets, mut has_bare) = (Vec::new(), false);
    for edge in edges {
        let always = match edge {
            PlannedEdge::Always(to) => {
                targets.extend((!has_bare).then_some(*to));
                has_bare = true;
                !asks
            }
            PlannedEdge::Choose(choices) => {
                let until_else = choices.iter().position(|(when, _)| when.is_else());
                targets.extend(choices.iter().take(until_else.map_or(choices.len(), |at| at + 1)).map(|(_, to)| *to));
                until_else.is_some()
            }
        };
        if always {
            break;
        }
    }
    targets
}

impl PlannedEdge {
    /// Returns the positions of its possible targets.
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
