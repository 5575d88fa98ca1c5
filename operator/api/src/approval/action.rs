//! The action of a request: the call of a tool or the question of an agent, as facts for approvers.
//!
//! **Invariant:** the operator computes every field. Text of the model is only in `ApprovalRequest::says` and in the
//! arguments.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    gate::GateType,
    tool::{Effects, MAX_TOOL_NAME},
};

/// A call of a tool, or a question of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// The kind of the action.
    pub kind: ActionKind,
    /// The agent that calls or asks.
    #[schemars(length(min = 1, max = 63))]
    pub agent: String,
    /// The name of the tool.
    #[schemars(length(min = 1, max = MAX_TOOL_NAME))]
    pub tool: String,
    /// The effects of the call, as its tool declares them. Absent effects are unknown and count as `irreversible`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// The target of the call, such as `POST https://bank.example/refunds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub target: Option<String>,
    /// The digest of the definition of the tool and its step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Digest>,
    /// The largest number of attempts at the call. Another attempt follows only on a known failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 21))]
    pub attempts: Option<i32>,
    /// The gates that ask, and the reason of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub gates: Vec<AskingGate>,
    /// The other calls of the same turn, in the order of the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub siblings: Vec<SiblingCall>,
    /// Earlier calls of the run with their arguments and outcomes, the newest last; then what is known of this call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 256)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub done: Vec<String>,
}

impl Action {
    /// The beginning of the line of `done` about an earlier equal call.
    pub const MADE_BEFORE: &str = "this call was made at ";
    /// The line of the context at a gate before the step of a tool, if a deadline cannot approve the call.
    pub const BY_PEOPLE: &str = "this call was made before: only people can let it be made again";
    /// The beginning of the line of `done` about the last attempt at this call.
    pub const LAST_ATTEMPT: &str = "this call, attempt ";

    /// Whether this call was made before, so that a deadline cannot approve it. The lines about other calls begin with
    /// the name of a tool, which contains no space.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        let is_own = |line: &String| line.starts_with(Self::MADE_BEFORE) || line.starts_with(Self::LAST_ATTEMPT);
        self.done.iter().any(is_own)
    }
}

/// The kinds of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ActionKind {
    /// A call of a tool.
    ToolCall,
    /// A question of an agent. An answer approves nothing.
    Question,
}

/// A gate that asks about an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskingGate {
    /// The name of the gate.
    #[schemars(length(min = 1, max = 95))]
    pub name: String,
    /// The type of the gate.
    #[serde(rename = "type")]
    pub type_: GateType,
    /// The approval policy that added the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 320))]
    pub source: Option<String>,
    /// The reason why the gate asks, for users.
    #[schemars(length(min = 1, max = 512))]
    pub because: String,
}

/// Another call of the same turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiblingCall {
    /// The path of the call in the journal.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// The tool, as the model named it.
    #[schemars(length(min = 1, max = 64))]
    pub tool: String,
}
