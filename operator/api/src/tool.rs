//! The tools of agents: a tool is a step of the Workflow, with a description and a schema of its parameters for the
//! model.
//!
//! The step defines the action; the tool defines the description, the schema and the effects for models and gates.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{sent_method::SentMethod, step::Step, values::JsonObject};

/// The maximum length of the name of a tool, in characters: that of a server, a dot, and the server's own name.
pub const MAX_TOOL_NAME: usize = 85;

/// A tool: a step that agents can call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// The name by which agents, gates and models know the tool, unique in the list.
    #[schemars(length(min = 1, max = 64), pattern("^[A-Za-z0-9_-]+$"))]
    pub name: String,
    /// The step of `spec.steps` that runs: an `http`, `mcp`, `pod`, `agent` or `set` step. It runs only as this tool,
    /// and its templates read `args`, `inputs` and `run`.
    #[schemars(length(min = 1, max = 63))]
    pub step: String,
    /// The description of the tool for the model.
    #[schemars(length(min = 1, max = 1024))]
    pub description: String,
    /// The JSON Schema of the arguments, of type object. Default: no arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<JsonObject>,
    /// The effects of a call. Default: unknown, which counts as `irreversible`. `read` is not believed of a request
    /// that cannot only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// Whether an equal call can be made again without people. Default: false; a gate of a policy ignores true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeatable: Option<bool>,
}

impl Tool {
    /// Returns the declared effects of a call that runs `step`, or `None` if they are unknown, or if its request cannot
    /// be `read`.
    #[must_use]
    pub fn effects_of(&self, step: &Step) -> Option<Effects> {
        let can_read = step.http.as_ref().is_none_or(|http| SentMethod::of_step(http).can_read());
        self.effects.filter(|effects| *effects != Effects::Read || can_read)
    }
}

/// The effects of a call of a tool, from the least to the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Effects {
    /// Nothing.
    Read,
    /// Something that can be changed back.
    Write,
    /// Something that cannot be changed back.
    Irreversible,
}

impl Effects {
    /// Returns the name as it is stored in objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Irreversible => "irreversible",
        }
    }
}

/// The limits of an agent in one step. They hold for everything that its tools call, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentLimits {
    /// The largest number of turns of the model in one step. Default: 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub turns: Option<i32>,
    /// The largest number of calls in one step, with those of agents that it calls. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub calls: Option<i32>,
}

/// A combination of gates in front of tools; each gate has the `hitl` of the entry, and the name `<name>.<gate>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Preset {
    /// `destructiveActions`.
    Minimal,
    /// `minimal`, and `specificTools` for `web_search`, `send_email` and `api_call`.
    Standard,
    /// `toolExecution` and `finalResponse`.
    Strict,
    /// `strict`, and `planApproval` where the pattern has a plan.
    Paranoid,
}
