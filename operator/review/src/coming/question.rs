//! The label of a question: its source, and whether values of the run are in it.
//!
//! Pure.

use signoff_api::{ApprovalRequest, Workflow, policy::AddedStep, workflow::Gate};

use super::step_at;

/// Returns the label of the question of a request: its source, and whether values of the run are in it.
/// `workflow`: the [`definition`](super::definition), if it was read.
pub fn label_of_question(request: &ApprovalRequest, workflow: Option<&Workflow>) -> &'static str {
    match workflow.and_then(|workflow| has_values(request, workflow)) {
        Some(false) => "the Workflow's question",
        Some(true) => "the Workflow's question, with values of the run filled in",
        None => "the Workflow's question; values of the run may be filled in",
    }
}

/// Returns whether the question of a request contains values of the run, or `None` if not all of its templates were
/// found.
pub(super) fn has_values(request: &ApprovalRequest, workflow: &Workflow) -> Option<bool> {
    let has = |template: &&str| template.contains("{{") || template.contains("{%");
    let own = prompts(request, workflow, &request.gate.name);
    if !own.is_empty() && own.iter().all(has) {
        return Some(true);
    }
    // The question of a call has the prompts of all gates that ask about it.
    let gates = request.action.iter().flat_map(|action| &action.gates);
    let mut all = gates.map(|gate| prompts(request, workflow, &gate.name)).chain([own]);
    all.all(|templates| !templates.is_empty() && !templates.iter().any(has)).then_some(false)
}

/// Returns the templates of the questions of all gates with this name.
fn prompts<'w>(request: &ApprovalRequest, workflow: &'w Workflow, name: &str) -> Vec<&'w str> {
    let spec = &workflow.spec;
    let own = step_at(spec, &request.gate.path).filter(|_| name == request.gate.name);
    let own = own.and_then(|step| step.hitl.as_ref());
    // The gates of a preset are `<name>.<gate>`.
    let preset = name.split_once('.').map(|(preset, _)| preset);
    let is_named = |gate: &&Gate| gate.name == name || gate.preset.is_some() && preset == Some(gate.name.as_str());
    // `release-pay` is the gate that the `release` of a policy puts before the step `pay`.
    let is_added = |added: &&AddedStep| {
        let rest = name.strip_prefix(added.step.name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || added.step.before.is_some() && rest.starts_with('-'))
    };
    let of_spec = spec.gates.iter().filter(is_named).map(|gate| &gate.hitl);
    let added = workflow.status.iter().flat_map(|status| &status.added_steps);
    let of_policies = added.filter(is_added).map(|added| &added.step.hitl);
    own.into_iter().chain(of_spec).chain(of_policies).map(|hitl| hitl.prompt.as_str()).collect()
}
