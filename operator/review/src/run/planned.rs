//! The steps of a spec in their order, with the paths that they have in the journal.
//!
//! Steps that only a running pattern chooses are left out: workers, and steps of a route that is not chosen yet.

use std::collections::BTreeSet;

use signoff_api::{Workflow, policy::Position, step::Step, workflow::SpecGateType};

use crate::text::one_line;

/// A step of the spec, or a gate that a policy added.
pub struct PlannedStep {
    /// The path of the first record of the step.
    pub path: String,
    /// The word for the kind of the step, such as `agent`.
    pub kind: &'static str,
    /// The line about the policy that added the gate. Empty for a step of the spec.
    pub details: Vec<String>,
}

impl PlannedStep {
    fn new(path: &str, kind: &'static str) -> Self {
        Self { path: path.to_owned(), kind, details: Vec::new() }
    }
}

/// Returns the steps of a run. `begun`: the paths in its journal, which show the chosen route.
pub fn plan_steps(workflow: &Workflow, begun: &BTreeSet<String>) -> Vec<PlannedStep> {
    let spec = &workflow.spec;
    let pattern = spec.pattern.clone().unwrap_or_default();
    let mut steps = added_gates(workflow, Position::Start);
    let agents: &[&str] = if pattern.routing.is_some() {
        &[".router"]
    } else if pattern.evaluator_optimizer.is_some() {
        &[".producer", ".evaluator"]
    } else if pattern.orchestrator_workers.is_some() {
        &[".orchestrator"]
    } else {
        &[]
    };
    steps.extend(agents.iter().map(|path| PlannedStep::new(path, "agent")));
    let is_chosen = |step: &&Step| {
        let branches = spec.steps.iter().filter_map(|step| step.branch.as_ref());
        let mut taken = branches.filter(|branch| begun.contains(*branch)).peekable();
        pattern.routing.is_none() || taken.peek().is_none() || taken.any(|branch| step.branch.as_ref() == Some(branch))
    };
    steps.extend(spec.steps.iter().filter(is_chosen).filter(|step| !spec.runs_as_tool(step)).map(|step| {
        let path = step.branch.as_ref().map_or_else(|| step.name.clone(), |branch| format!("{branch}/{}", step.name));
        PlannedStep::new(&path, kind_name(step))
    }));
    if spec.gates.iter().any(|gate| gate.type_ == Some(SpecGateType::FinalResponse)) {
        steps.push(PlannedStep::new(".final", "gate"));
    }
    steps.extend(added_gates(workflow, Position::End));
    steps
}

/// Returns the gates that policies added at one end of the run.
fn added_gates(workflow: &Workflow, position: Position) -> Vec<PlannedStep> {
    let added = workflow.status.iter().flat_map(|status| &status.added_steps);
    let of_position = added.filter(|added| added.step.at == Some(position));
    of_position
        .map(|added| PlannedStep {
            details: vec![format!("added by {}", one_line(&added.source, 253))],
            ..PlannedStep::new(&added.step.name, "gate")
        })
        .collect()
}

fn kind_name(step: &Step) -> &'static str {
    if step.agent.is_some() {
        "agent"
    } else if step.pod.is_some() {
        "pod"
    } else if step.mcp.is_some() {
        "mcp"
    } else if step.http.is_some() {
        "http"
    } else if step.hitl.is_some() {
        "gate"
    } else {
        "set"
    }
}
