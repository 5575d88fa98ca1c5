//! The patterns: the order of the steps, the agents that a pattern calls itself, and the gates it names.
//!
//! A pattern contains no step and no gate: it names those of `spec.steps` and `spec.gates`. A chain has no pattern.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    step::{OnError, Retry},
    values::Span,
};

/// The order of the steps. Exactly one of them; a chain needs none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new(
    "(has(self.dag) ? 1 : 0) + (has(self.routing) ? 1 : 0) + (has(self.parallel) ? 1 : 0) + (has(self.evaluatorOptimizer) ? 1 : 0) + (has(self.orchestratorWorkers) ? 1 : 0) + (has(self.graph) ? 1 : 0) == 1")
    .message("pattern is exactly one of dag, graph, parallel, routing, evaluatorOptimizer and orchestratorWorkers; a chain needs no pattern: its steps are in spec.steps"))]
pub struct Pattern {
    /// Each step begins as soon as the steps in its `dependsOn` have finished, such as `{maxParallel: 4}` or `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dag: Option<Box<Dag>>,
    /// An agent chooses one of several chains: the steps whose `branch` it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Box<Routing>>,
    /// Independent chains that run concurrently: the steps of each `branch`. Such as `{reduce: merge}` or `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<Box<Parallel>>,
    /// One agent drafts and another one scores the draft, until the score is high enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluator_optimizer: Option<Box<EvaluatorOptimizer>>,
    /// One agent divides the work into parts, another one does each part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestrator_workers: Option<Box<OrchestratorWorkers>>,
    /// The steps are the nodes of a graph, which may have loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Box<Graph>>,
}

/// The pattern `dag`: each step begins as soon as the steps it depends on have finished. At most 256 steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dag {
    /// The largest number of calls that are in flight at once; gates do not count. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_parallel: Option<i32>,
    /// Whether a failed step ends the run at once; otherwise it ends when nothing else is in flight. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
}

/// The pattern `routing`: an agent chooses one of several chains. The routes are the values of `branch` among the
/// steps, in order of appearance: 1 to 32, each with at most 64 steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Routing {
    /// The agent that chooses.
    pub router: Router,
}

/// The agent that chooses a route. It answers `{"route": "<name>"}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Router {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub agent: String,
    /// The message to the agent, a template.
    #[schemars(length(min = 1, max = 16384))]
    pub input: String,
    /// The number of times the agent is asked again when its answer names no route. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub max_retries: Option<i32>,
    /// The name of a gate of `spec.gates` without a type. It asks before any step of the route runs. Modify takes
    /// `parameters: {route: <name>}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub review: Option<String>,
}

/// The pattern `parallel`: independent chains that run concurrently. The branches are the values of `branch` among the
/// steps, in order of appearance: 2 to 128, each with at most 64 steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parallel {
    /// The name of the step that combines the results of the branches: a step without a branch, whose templates read
    /// `branches.<name>`. Default: the results are joined, each under the name of its branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub reduce: Option<String>,
    /// The largest number of calls that are in flight at once; gates do not count. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_parallel: Option<i32>,
    /// Whether a failed branch ends the run at once; otherwise it ends when all branches have ended. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
}

/// The pattern `evaluatorOptimizer`: one agent drafts and another one scores the draft, until the score is high enough.
/// `spec.steps` is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluatorOptimizer {
    /// The agent that drafts and revises: one of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub producer: String,
    /// The first message to the producer, a template. Default: its own instructions, rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub input: Option<String>,
    /// The agent that scores a draft. It answers `{"score": 0-100, "issues": [...], "fixes": [...]}`.
    pub evaluator: Evaluator,
    /// The score that suffices, and the number of drafts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<Accept>,
    /// The message to the producer to revise a draft, a template over `draft`, `evaluation`, `iteration` and
    /// `hitl_response`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub revise_prompt: Option<String>,
    /// The name of a gate of `spec.gates` without a type. It asks after each draft below the score. Approve ends the
    /// run with the current draft as its result; Modify takes `parameters: {draft: <text>}`, which is scored next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub review_gate: Option<String>,
    /// The consequence when no draft reached the score. Default: fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
}

/// The agent that scores drafts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evaluator {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub agent: String,
    /// The message to the agent, a template over `draft` and `iteration`. Default: the draft and the form of the
    /// answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub input: Option<String>,
}

/// The score that suffices, and the number of drafts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accept {
    /// The score that suffices, 0 to 100. Default: 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub min_score: Option<i32>,
    /// The largest number of drafts that are scored. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_iterations: Option<i32>,
}

/// The consequence when no draft reached the score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnExhausted {
    /// The run fails.
    #[default]
    Fail,
    /// The draft with the highest score is the result; of equals, the latest.
    AcceptBest,
}

/// The pattern `orchestratorWorkers`: one agent divides the work into parts, another one does each part. `spec.steps`
/// has only the steps that `reduce` and `writeup` name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrchestratorWorkers {
    /// The agent that divides the work. It answers `[{"task": "..."}, ...]`.
    pub orchestrator: Orchestrator,
    /// The name of a gate of `spec.gates` without a type. It asks before any worker begins. Modify takes
    /// `parameters: {subtasks: [{task: <text>}, ...]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub decomposition_review: Option<String>,
    /// The agent that does a part. Its templates read `task` and `index`.
    pub worker: Worker,
    /// The name of a gate of `spec.gates` without a type. It asks when all parts are done. Modify takes
    /// `parameters: {workers: {<number>: <text>}}`, Retry takes `parameters: {workers: [<number>, ...]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub reduce_review: Option<String>,
    /// The name of the step that combines the parts. Its templates read `workers`, `num_workers` and
    /// `subtasks`. Default: the parts are joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub reduce: Option<String>,
    /// The name of the step that runs last. Its templates also read `reduce`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub writeup: Option<String>,
    /// Whether a failed worker ends the run at once; otherwise it ends when all workers have ended. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
}

/// The agent that divides the work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Orchestrator {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub agent: String,
    /// The message to the agent, a template. Default: its own instructions, rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub input: Option<String>,
    /// The largest number of calls of workers that are in flight at once. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_workers: Option<i32>,
    /// The largest number of parts; the agent is asked again when its answer has more. Default: 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_tasks: Option<i32>,
}

/// The agent that does a part of the work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub agent: String,
    /// The message to the agent, a template over `task` and `index`. Default: the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub input: Option<String>,
    /// The further attempts after a failure. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The longest duration of one attempt. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The consequence of a failure for the run. Default: fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
}

/// The pattern `graph`: the steps are the nodes of a graph, which may have loops. 1 to 128 steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Graph {
    /// The name of the step that runs first. Default: the first of `spec.steps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub entry: Option<String>,
    /// The edges between steps. After a step the run continues with the first edge that matches, and ends if none does.
    /// In templates and conditions `steps.<name>` is the latest visit, and its `visits` has all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub edges: Vec<Edge>,
    /// The largest number of times that one step runs. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_iterations: Option<i32>,
    /// The largest number of steps that run in all. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_steps: Option<i32>,
}

/// The step that runs after another one. Exactly one of `to` and `choose`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.to) != has(self.choose)").message("an edge has exactly one of to and choose"))]
pub struct Edge {
    /// The name of the step that ended.
    #[schemars(length(min = 1, max = 63))]
    pub from: String,
    /// The name of the next step, without a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub to: Option<String>,
    /// The conditions that choose the next step: the first one that is true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub choose: Vec<ChooseEdge>,
}

/// One condition of an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChooseEdge {
    /// A CEL condition, or `else`, which is always true.
    #[schemars(length(min = 1, max = 1024))]
    pub when: String,
    /// The name of the next step when the condition is true.
    #[schemars(length(min = 1, max = 63))]
    pub to: String,
}
