//! The steps at which a run may continue after a Reject: computed for every gate, shown in its request, and an error
//! where a policy demands that a Reject ends the run.

use signoff_api::{conditions::reason, step::OnError};

use super::{
    Action, FieldError, PlannedEdge, PlannedGate, PlannedPattern, PlannedServer, PlannedStep, PlannedTools, Validator,
    patterns::{PlannedDag, PlannedGraph},
};

/// The text for the continuation after the last step of a run.
const END: &str = "the end of the run";
/// The text for the continuation after a step that a tool runs.
pub(crate) const AGENT: &str = "the agent, which is told the reason";

impl Validator<'_> {
    /// Sets for every gate of a run the steps at which the run may continue after a Reject.
    pub(super) fn set_after_reject(
        &mut self,
        start: &mut [PlannedStep],
        pattern: &mut PlannedPattern,
        end: &mut [PlannedStep],
        tools: &mut PlannedTools,
    ) {
        for tool in tools.tools.values_mut() {
            self.set_step_after_reject(&mut tool.step, &[AGENT.to_owned()], &[]);
        }
        for step in tools.servers.values_mut().flat_map(PlannedServer::common_steps) {
            self.set_step_after_reject(step, &[AGENT.to_owned()], &[]);
        }
        if let Some(question) = &mut tools.question {
            self.set_step_after_reject(question, &[AGENT.to_owned()], &[]);
        }
        self.set_list_after_reject(start, &first_of(pattern));
        self.set_pattern_after_reject(pattern, &first_name(end).unwrap_or_else(|| END.to_owned()));
        self.set_list_after_reject(end, END);
    }

    fn set_pattern_after_reject(&mut self, pattern: &mut PlannedPattern, after: &str) {
        match pattern {
            PlannedPattern::Chain(steps) => self.set_list_after_reject(steps, after),
            PlannedPattern::Dag(dag) => self.set_dag_after_reject(dag, after),
            PlannedPattern::Routing(routing) => {
                self.set_step_after_reject(&mut routing.router, &["the route".to_owned()], &[]);
                for route in &mut routing.routes {
                    self.set_list_after_reject(&mut route.steps, after);
                }
            }
            PlannedPattern::Parallel(parallel) => {
                let joined = parallel.reduce.as_ref().map_or(after, |step| &step.name).to_owned();
                for branch in &mut parallel.branches {
                    self.set_list_after_reject(&mut branch.steps, &joined);
                }
                parallel.reduce.iter_mut().for_each(|step| self.set_step_after_reject(step, &[after.to_owned()], &[]));
            }
            PlannedPattern::Evaluator(pattern) => {
                for step in [&mut pattern.producer, &mut pattern.evaluator, &mut pattern.reviser] {
                    self.set_step_after_reject(step, &[after.to_owned()], &[]);
                }
            }
            PlannedPattern::Orchestrator(pattern) => {
                let writeup = pattern.writeup.as_ref().map_or(after, |step| &step.name).to_owned();
                let reduce = pattern.reduce.as_ref().map_or(&writeup, |step| &step.name).clone();
                self.set_step_after_reject(&mut pattern.orchestrator, &["the workers".to_owned()], &[]);
                self.set_step_after_reject(&mut pattern.worker, &["the other workers".to_owned(), reduce], &[]);
                pattern
                    .reduce
                    .iter_mut()
                    .for_each(|step| self.set_step_after_reject(step, std::slice::from_ref(&writeup), &[]));
                pattern.writeup.iter_mut().for_each(|step| self.set_step_after_reject(step, &[after.to_owned()], &[]));
            }
            PlannedPattern::Graph(graph) => self.set_graph_after_reject(graph, after),
        }
    }

    fn set_list_after_reject(&mut self, steps: &mut [PlannedStep], after: &str) {
        let next: Vec<_> = steps.iter().skip(1).map(|step| step.name.clone()).chain([after.to_owned()]).collect();
        for (step, next) in steps.iter_mut().zip(next) {
            self.set_step_after_reject(step, &[next], &[]);
        }
    }

    fn set_dag_after_reject(&mut self, dag: &mut PlannedDag, after: &str) {
        let waiting_tasks = |at: usize| {
            let names = dag.tasks.iter().filter(|task| task.deps.contains(&at)).map(|task| task.step.name.clone());
            names.collect::<Vec<_>>()
        };
        let next: Vec<_> = (0..dag.tasks.len()).map(waiting_tasks).collect();
        for (task, next) in dag.tasks.iter_mut().zip(next) {
            let next = if next.is_empty() { vec![after.to_owned()] } else { next };
            self.set_step_after_reject(&mut task.step, &next, &[]);
        }
    }

    fn set_graph_after_reject(&mut self, graph: &mut PlannedGraph, after: &str) {
        let names: Vec<_> = graph.nodes.iter().map(|node| node.name.clone()).collect();
        let named = |targets: Vec<usize>| targets.into_iter().filter_map(|at| names.get(at).cloned());
        for (node, edges) in graph.nodes.iter_mut().zip(&graph.edges) {
            let all: Vec<_> = edges.iter().flat_map(|edge| named(edge.targets())).collect();
            // An edge without a condition does not apply after a Reject that stops.
            let choices = edges.iter().filter(|edge| matches!(edge, PlannedEdge::Choose(_)));
            let chosen: Vec<_> = choices.flat_map(|edge| named(edge.targets())).collect();
            let next = if all.is_empty() { vec![after.to_owned()] } else { all };
            self.set_step_after_reject(node, &next, &chosen);
        }
    }

    /// Sets for the gates of a step the steps that may follow a Reject. `next` are the steps after this step. `chosen`
    /// are the steps that may follow even if the gate stops on a Reject.
    fn set_step_after_reject(&mut self, step: &mut PlannedStep, next: &[String], chosen: &[String]) {
        if let Action::Gate(gate) = &mut step.action {
            let targets = if gate.stops_on_reject { chosen } else { next };
            self.set_gate_after_reject(gate, targets);
        }
        let mut after_output = Vec::new();
        if step.escalation.is_some() {
            after_output.push(step.name.trim_start_matches('.').to_owned());
        }
        if step.escalation.is_some() || step.on_error == OnError::Continue {
            after_output.extend(next.iter().cloned());
        }
        let output = step.output.as_mut().and_then(|output| output.gate.as_deref_mut());
        if let Some(Action::Gate(gate)) = output.map(|gate| &mut gate.action) {
            self.set_gate_after_reject(gate, &after_output);
        }
    }

    /// Adds steps that may follow a Reject at a gate. If a policy demands that a Reject ends the run, reports the gate
    /// and blocks it.
    fn set_gate_after_reject(&mut self, gate: &mut PlannedGate, targets: &[String]) {
        for target in targets {
            if !gate.after_reject.contains(target) {
                gate.after_reject.push(target.clone());
            }
        }
        if gate.after_reject.is_empty() || gate.ends_on_reject.is_empty() {
            return;
        }
        let message = format!(
            "after a Reject here the run continues with {}, and {} requires that it ends: let onReject, the edges and onError stop there, or let the policy say gates.allowContinueAfterReject: true",
            gate.after_reject.join(", "),
            gate.ends_on_reject.join(" and ")
        );
        let error = FieldError { field: gate.field.clone(), message, reason: reason::POLICY_CONFLICT };
        if !self.accepted {
            self.error_as(error.reason, &error.field, &error.message);
        }
        gate.blocked.get_or_insert(error);
    }
}

fn first_name(steps: &[PlannedStep]) -> Option<String> {
    steps.first().map(|step| step.name.clone())
}

/// Returns the name of the first step of a pattern.
fn first_of(pattern: &PlannedPattern) -> String {
    let steps = pattern.steps();
    let first = steps.iter().find(|step| step.added_by.is_none());
    first.map_or_else(|| END.to_owned(), |step| step.name.trim_start_matches('.').to_owned())
}
