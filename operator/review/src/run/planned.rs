//! The steps of a spec in their order, with the paths that they have in the journal.
//!
//! Steps that only a running pattern chooses are left out: workers, and steps of a route that is not chosen yet.

use std::collections::BTreeSet;

use signoff_api::{Workflow, policy::Position, step::Step, workflow::SpecGateType};

use crate::text::one_line;

/// A step of the spec, or a gate that a policy added.
pub struct Planned {
    /// The path of its first record.
    pub path: String,
    /// The word for its kind.
    pub kind: &'static str,
    /// The policy that added it.
    pub details: Vec<String>,
}

impl Planned {
    fn new(path: &str, kind: &'static str) -> Self {
        Self { path: path.to_owned(), kind, details: Vec::new() }
    }
}

/// Returns the steps of a run. `begun`: the paths in its journal, which show the chosen route.
pub fn planned(workflow: &Workflow, begun: &BTreeSet<String>) -> Vec<Planned> {
    let spec = &workflow.spec;
    let pattern = spec.pattern.clone().unwrap_or_default();
    let mut steps = added(workflow, Position::Start);
    let agents: &[&str] = if pattern.routing.is_some() {
        &[".router"]
    } else if pattern.evaluator_optimizer.is_some() {
        &[".producer", ".evaluator"]
    } else if pattern.orchestrator_workers.is_some() {
        &[".orchestrator"]
    } else {
        &[]
    };
    steps.extend(agents.iter().map(|path| Planned::new(path, "agent")));
    let chosen = |step: &&Step| {
        let branches = spec.steps.iter().filter_map(|step| step.branch.as_ref());
        let mut taken = branches.filter(|branch| begun.contains(*branch)).peekable();
        pattern.routing.is_none() || taken.peek().is_none() || taken.any(|branch| step.branch.as_ref() == Some(branch))
    };
    steps.extend(spec.steps.iter().filter(chosen).filter(|step| !spec.runs_as_tool(step)).map(|step| {
        let path = step.branch.as_ref().map_or_else(|| step.name.clone(), |branch| format!("{branch}/{}", step.name));
        Planned::new(&path, kind(step))
    }));
    if spec.gates.iter().any(|gate| gate.type_ == Some(SpecGateType::FinalResponse)) {
        steps.push(Planned::new(".final", "gate"));
    }
    steps.extend(added(workflow, Position::End));
    steps
}

/// Returns the gates that policies added at one end of the run.
fn added(workflow: &Workflow, position: Position) -> Vec<Planned> {
    let added = workflow.status.iter().flat_map(|status| &status.added_steps);
    let here = added.filter(|one| one.step.at == Some(position));
    here.map(|one| Planned {
        details: vec![format!("added by {}", one_line(&one.source, 253))],
        ..Planned::new(&one.step.name, "gate")
    })
    .collect()
}

fn kind(step: &Step) -> &'static str {
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
