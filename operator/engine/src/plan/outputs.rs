//! The outputs of a plan: the files of a successful run, and the steps by which agents revise a final response.

use signoff_api::{
    WorkflowSpec,
    step::{AgentStep, Step},
    workflow::Artifact,
};
use signoff_expr::{Condition, Known, Template};

use super::{
    Validator,
    planned_step::{Action, PlannedAgentStep, PlannedStep},
    step::{PlanContext, StepContext},
};

/// A file of a successful run.
#[derive(Clone, Debug)]
pub(crate) struct PlannedArtifact {
    pub(crate) path: Template,
    pub(crate) from: Template,
    pub(crate) skip_if: Option<Condition>,
}

impl Validator<'_> {
    /// Plans the outputs of the run: the template of its result, and its files.
    pub(super) fn plan_outputs(
        &mut self,
        spec: &WorkflowSpec,
        known: &Known,
    ) -> (Option<Template>, Vec<PlannedArtifact>) {
        let Some(outputs) = &spec.outputs else { return (None, Vec::new()) };
        let from =
            outputs.from.as_ref().and_then(|source| self.parse_known_template(source, "spec.outputs.from", known));
        let mut planned = Vec::new();
        for (at, Artifact { path, from, skip_if }) in outputs.artifacts.iter().enumerate() {
            let field = |part: &str| format!("spec.outputs.artifacts[{at}].{part}");
            if let Err(why) = check_artifact_path(path) {
                self.error(field("path"), why);
            }
            let path = self.parse_known_template(path, &field("path"), known);
            let from = self.parse_known_template(from, &field("from"), known);
            let skip_if = skip_if
                .as_ref()
                .and_then(|source| self.parse_condition(source, &field("skipIf"), known, "the file is then left out"));
            if let (Some(path), Some(from)) = (path, from) {
                planned.push(PlannedArtifact { path, from, skip_if });
            }
        }
        (from, planned)
    }

    /// Plans for each agent the step by which the agent revises a final response, behind the gates that policies put
    /// before agents.
    pub(super) fn plan_revisers(&mut self, plan: &PlanContext<'_>, known: &Known) -> Vec<PlannedStep> {
        let revise =
            Template::parse("Make your final response anew. It was:\n\n{{ output }}", "the final response").ok();
        let reviser_of = |agent: &String| {
            let agent = PlannedAgentStep { agent: agent.clone(), input: revise.clone(), addition: None, fresh: false };
            PlannedStep { path: ".revision".to_owned(), ..PlannedStep::new(".revision", Action::Agent(agent)) }
        };
        let mut revisers: Vec<_> = plan.agents.keys().map(reviser_of).collect();
        // All revisers have the same gates, because only one agent writes the final response.
        let Some(first) = revisers.first_mut() else { return revisers };
        let agent = AgentStep { name: "the agent of the final response".to_owned(), ..AgentStep::default() };
        let written = Step { name: ".revision".to_owned(), agent: Some(agent), ..Step::default() };
        self.add_policy_gates(first, &written, &StepContext::new(plan, "spec.gates", "", known.clone()));
        let gates = first.policy_gates.clone();
        revisers.iter_mut().for_each(|reviser| reviser.policy_gates.clone_from(&gates));
        revisers
    }
}

/// Checks that the path of a file is relative and stays inside of the output folder.
///
/// # Errors
/// One sentence for its author.
pub(crate) fn check_artifact_path(path: &str) -> Result<(), String> {
    let parts = || path.split(['/', '\\']);
    let what = if path.trim().is_empty() || path.ends_with('/') {
        "the path does not name a file"
    } else if path.starts_with(['/', '\\', '~']) || path.chars().nth(1) == Some(':') {
        "the path is absolute"
    } else if parts().any(|part| part == "..") {
        "the path leaves the output folder by `..`"
    } else if path.chars().any(char::is_control) || path.contains('\\') {
        "the path contains a backslash or a control character"
    } else {
        return Ok(());
    };
    Err(format!("{what}: give a relative path within the output folder"))
}
