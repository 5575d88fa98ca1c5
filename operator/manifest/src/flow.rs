//! The flow of a Workflow: its steps in the order in which they run, the gates with their approvers, and the needs of
//! each step.
//!
//! It is read from a spec that was checked before.

mod build;
mod draw;
mod gate;
mod gates;
mod needs;
mod tell;
mod tools;

use serde::Serialize;
use signoff_api::Workflow;

use crate::server_tools::Catalogues;

pub use gate::{Asked, Escalation, Gate};
pub use tools::{AgentTools, AskingGate, OfferedTool};

/// The flow of a Workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// The Workflow's name.
    pub name: String,
    /// The pattern's name: `chain`.
    pub pattern: &'static str,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// All steps that may run, in a possible order.
    pub steps: Vec<Step>,
    /// The agents that may call tools, with these tools and the gates before them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentTools>,
    /// The edges between steps.
    pub edges: Vec<Edge>,
    /// The result of the run as written; the last response if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The paths of the run's output files, as written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// The names that the result and the files refer to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
}

/// One input of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its value, or its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
    /// Whether the user has to give it.
    pub wanted: bool,
}

/// A step or gate of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The path of its records in a run, by which `--gate` and `--answers` name a gate: `left/draft`, `.router`,
    /// `build/.start`, `draft/.error`.
    pub id: String,
    /// Its name in its list.
    pub name: String,
    /// Its kind: `agent`, `pod`, `http`, `set`, `hitl`.
    pub kind: &'static str,
    /// A short description: `agent writer`, `POST http://…`.
    pub does: String,
    /// Its depth: steps of a branch are one level deeper.
    pub depth: usize,
    /// The question and the approvers, if it is a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// The command of its container with the arguments; empty for that of the image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The names that its templates and conditions refer to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// The objects of the namespace that its container uses: `Secret models`. Only the cluster knows whether they
    /// exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
    /// The condition under which it is skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_if: Option<String>,
    /// The condition without which the gate is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_if: Option<String>,
}

/// An edge of a flow: a step and a possible next step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// The id of a step; empty for the beginning.
    pub from: String,
    /// The id of a step; empty for the end.
    pub to: String,
    /// The condition; missing if the run always continues there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

impl Flow {
    /// Returns the flow of a Workflow.
    #[must_use]
    pub fn of(workflow: &Workflow) -> Self {
        Self::with_catalogues(workflow, &Catalogues::new())
    }

    /// Returns the flow of a Workflow, with the tools of the servers whose catalogues are given.
    #[must_use]
    pub fn with_catalogues(workflow: &Workflow, catalogues: &Catalogues) -> Self {
        build::build_flow(workflow, catalogues)
    }

    /// Renders the flow for people: one paragraph for each step.
    #[must_use]
    pub fn to_text(&self) -> String {
        tell::render_text(self)
    }

    /// Renders the tools of each agent for people, with the gates before them.
    #[must_use]
    pub fn tools_to_text(&self) -> String {
        tell::render_tools(self)
    }

    /// Renders the flow as a Mermaid flowchart.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        draw::render_mermaid(self)
    }

    /// Renders the flow as a graph for Graphviz.
    #[must_use]
    pub fn to_dot(&self) -> String {
        draw::render_dot(self)
    }
}

#[cfg(test)]
mod tests;
