//! The patterns: the order of the steps, the agents that a pattern asks itself, and the gates it has a place for.
//!
//! A pattern holds no step and no gate: it names those of `spec.steps` and `spec.gates`. A chain has no pattern.

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
    .message("pattern is exactly one of dag, graph, parallel, routing, evaluatorOptimizer and orchestratorWorkers; a chain needs no pattern: its steps stand in spec.steps"))]
pub struct Pattern {
    /// Each step begins as soon as those that its `dependsOn` names are done, such as `{maxParallel: 4}` or `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dag: Option<Box<Dag>>,
    /// An agent chooses one of several chains: the steps whose `branch` it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Box<Routing>>,
    /// Chains that know nothing of each other, all at once: the steps of each `branch`. Such as `{reduce: merge}` or `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<Box<Parallel>>,
    /// An agent drafts, another judges, until the draft is good enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluator_optimizer: Option<Box<EvaluatorOptimizer>>,
    /// An agent divides the work, others do the parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestrator_workers: Option<Box<OrchestratorWorkers>>,
    /// The steps are nodes, joined by edges, loops included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Box<Graph>>,
}

/// Steps that begin as soon as those they depend on are done. At most 256.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dag {
    /// The largest number of calls that are in flight at once; gates do not count. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_parallel: Option<i32>,
    /// Whether a failing step ends the run at once, or only when nothing else is in flight. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
}

/// An agent chooses one of several chains. The routes are the values of `branch` among the steps, in order of appearance:
/// 1 to 32, each with at most 64 steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Routing {
    /// The agent that chooses.
    pub router: Router,
}

/// Who chooses a route. It answers `{"route": "<name>"}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Router {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub agent: String,
    /// What it is told, a template.
    #[schemars(length(min = 1, max = 16384))]
    pub input: String,
    /// How often it is asked again where its answer names no route. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub max_retries: Option<i32>,
    /// A gate of `spec.gates` without a type, by its name. It asks before any step of the route runs: Modify takes
    /// `parameters: {route: <name>}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub review: Option<String>,
}

/// Chains that know nothing of each other, all at once. The branches are the values of `branch` among the steps, in order
/// of appearance: 2 to 128, each with at most 64 steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parallel {
    /// The step that makes one result of those of the branches, by its name: a step without a branch, whose templates say
    /// `branches.<name>`. Default: the results are joined, each under its branch's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub reduce: Option<String>,
    /// The largest number of calls that are in flight at once; gates do not count. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_parallel: Option<i32>,
    /// Whether a failing branch ends the run at once, or only when all have ended. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
}

/// An agent drafts, another judges, until the draft is good enough. `spec.steps` is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluatorOptimizer {
    /// Who drafts and revises: one of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub producer: String,
    /// What the producer is told first, a template. Default: its own instructions, rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub input: Option<String>,
    /// Who judges. It answers `{"score": 0-100, "issues": [...], "fixes": [...]}`.
    pub evaluator: Evaluator,
    /// What is good enough, and how often it is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<Accept>,
    /// What the producer is told to revise a draft, a template over `draft`, `evaluation`, `iteration` and `hitl_response`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub revise_prompt: Option<String>,
    /// A gate of `spec.gates` without a type, by its name. It asks after each judgement below the score: Approve ends the
    /// run well with the current draft, Modify takes `parameters: {draft: <text>}`, which is judged next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub review_gate: Option<String>,
    /// What happens when no draft was good enough. Default: fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
}

/// Who judges drafts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evaluator {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub agent: String,
    /// What it is told, a template over `draft` and `iteration`. Default: the draft, and what to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub input: Option<String>,
}

/// What is good enough, and how often it is tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accept {
    /// The score that suffices, 0 to 100. Default: 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub min_score: Option<i32>,
    /// How many judgements there may be. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_iterations: Option<i32>,
}

/// What happens when no draft was good enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnExhausted {
    /// The run fails.
    #[default]
    Fail,
    /// The draft with the highest score is the result; of equals, the latest.
    AcceptBest,
}

/// An agent divides the work, others do the parts. `spec.steps` has the steps that `reduce` and `writeup` name, and no
/// other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrchestratorWorkers {
    /// Who divides the work. It answers `[{"task": "..."}, ...]`.
    pub orchestrator: Orchestrator,
    /// A gate of `spec.gates` without a type, by its name. It asks before any worker begins: Modify takes
    /// `parameters: {subtasks: [{task: <text>}, ...]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub decomposition_review: Option<String>,
    /// Who does a part. Templates of its agent say `task` and `index`.
    pub worker: Worker,
    /// A gate of `spec.gates` without a type, by its name. It asks when all parts are done: Modify takes
    /// `parameters: {workers: {<number>: <text>}}`, Retry takes `parameters: {workers: [<number>, ...]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub reduce_review: Option<String>,
    /// The step that makes one result of the parts, by its name. Its templates say `workers`, `num_workers` and
    /// `subtasks`. Default: the parts are joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub reduce: Option<String>,
    /// The step that runs last, by its name. Its templates also say `reduce`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub writeup: Option<String>,
    /// Whether a failing worker ends the run at once, or only when all have ended. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
}

/// Who divides the work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Orchestrator {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub agent: String,
    /// What it is told, a template. Default: its own instructions, rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub input: Option<String>,
    /// How many calls of workers may be in flight at once. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_workers: Option<i32>,
    /// How many parts there may be; an answer with more is asked for again. Default: 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_tasks: Option<i32>,
}

/// Who does a part of the work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub agent: String,
    /// What it is told, a template over `task` and `index`. Default: the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub input: Option<String>,
    /// How often it is tried again when it failed. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long one attempt may take. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// What a failure means for the run. Default: fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
}

/// The steps are nodes, joined by edges, loops included. 1 to 128 steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Graph {
    /// The step that runs first, by its name. Default: the first of `spec.steps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub entry: Option<String>,
    /// Where the run goes on after a step: by the first edge that matches; it ends where none does. Templates and
    /// conditions say `steps.<name>`: the latest visit, with all of them under `visits`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub edges: Vec<Edge>,
    /// How often one step may run. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_iterations: Option<i32>,
    /// How many steps may run in all. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_steps: Option<i32>,
}

/// Where the run goes on after a step. Exactly one of `to` and `choose`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.to) != has(self.choose)").message("an edge has exactly one of to and choose"))]
pub struct Edge {
    /// The name of the step that ended.
    #[schemars(length(min = 1, max = 63))]
    pub from: String,
    /// The name of the step that is next, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub to: Option<String>,
    /// The next step is that of the first condition that holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub choose: Vec<ChooseEdge>,
}

/// One condition of an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChooseEdge {
    /// A CEL condition, a template in `{{ }}` that renders to `true` or `false`, or `else`, which always holds.
    #[schemars(length(min = 1, max = 1024))]
    pub when: String,
    /// The name of the step that is next where it holds.
    #[schemars(length(min = 1, max = 63))]
    pub to: String,
}
