//! A run as the plugin and the page show it: the tree of its steps, and its problems.

mod detail;
mod gate;
mod planned;
mod repetition;
mod state;
mod tree;
pub mod turn;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use signoff_api::{Workflow, WorkflowStatus, conditions, names};

pub use detail::Detail;
pub use repetition::Repetition;
pub use state::{State, Tone};
pub use tree::{Node, tree};

/// The conditions that repeat the phase, the journal or the message.
const USUAL: [&str; 4] = [conditions::WAITING, conditions::FINISHED, conditions::COMPLETE, conditions::FAILED];

/// Returns the conditions that are problems for people.
pub fn troubles(status: &WorkflowStatus) -> impl Iterator<Item = &Condition> {
    let is_acceptance = |condition: &str| condition == conditions::ACCEPTED && !status.phase.is_end();
    status.conditions.iter().filter(move |condition| match condition.type_.as_str() {
        conditions::GUARDED => condition.status == "False",
        type_ if is_acceptance(type_) => condition.status == "False",
        conditions::ACCEPTED => false,
        type_ => condition.status == "True" && !USUAL.contains(&type_),
    })
}

/// Returns the label selector for the Approvals of a run.
pub fn approvals(workflow: &Workflow) -> String {
    format!("{}={}", names::LABEL_WORKFLOW_UID, workflow.metadata.uid.as_deref().unwrap_or_default())
}
