//! The seven patterns: what runs in which order, and where people look at what agents decide.
//!
//! A pattern says what shall happen and holds nothing of what did: that is the journal's.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    step::{HitlStep, OnError, Retry, Step},
    values::Span,
};

/// What runs in which order. Exactly one of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new(
    "oldSelf.hasValue() || (has(self.chain) ? 1 : 0) + (has(self.dag) ? 1 : 0) + (has(self.routing) ? 1 : 0) + (has(self.parallel) ? 1 : 0) + (has(self.evaluatorOptimizer) ? 1 : 0) + (has(self.orchestratorWorkers) ? 1 : 0) + (has(self.graph) ? 1 : 0) == 1")
    .optional_old_self(true).message("a run has exactly one pattern: give one of chain, dag, routing, parallel, evaluatorOptimizer, orchestratorWorkers and graph"))]
pub struct Pattern {
    /// One step after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Chain>,
    /// Tasks that begin as soon as those they depend on are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dag: Option<Box<Dag>>,
    /// An agent chooses one of several chains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Box<Routing>>,
    /// Chains that know nothing of each other, all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<Box<Parallel>>,
    /// An agent drafts, another judges, until the draft is good enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluator_optimizer: Option<Box<EvaluatorOptimizer>>,
    /// An agent divides the work, others do the parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestrator_workers: Option<Box<OrchestratorWorkers>>,
    /// Nodes and edges, loops included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Box<Graph>>,
}

/// One step after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    /// The steps, in their order.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub steps: Vec<Step>,
}

/// Tasks that begin as soon as those they depend on are done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dag {
    /// The tasks; `deps` says which others each of them waits for. Templates say `tasks.<name>`.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub tasks: Vec<Step>,
    /// How many calls may be in flight at once; gates do not count. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_parallel: Option<i32>,
    /// Whether a failing task ends the run at once, or only when nothing else is under way. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
}

/// An agent chooses one of several chains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Routing {
    /// Who chooses.
    pub router: Router,
    /// What can be chosen.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub routes: Vec<Branch>,
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
    /// A gate before anything of the route runs: Modify takes `parameters: {route: <name>}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Box<HitlStep>>,
}

/// A named chain: a route, or a branch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    /// Unique in its list; a DNS label.
    #[schemars(length(min = 1, max = 63), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The steps, in their order.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub steps: Vec<Step>,
}

/// Chains that know nothing of each other, all at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parallel {
    /// The chains. Templates of `reduce` say `branches.<name>`.
    #[schemars(length(min = 2, max = 128))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub branches: Vec<Branch>,
    /// What becomes of their results. Default: they are joined, each under its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce: Option<Step>,
    /// How many calls may be in flight at once; gates do not count. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_parallel: Option<i32>,
    /// Whether a failing branch ends the run at once, or only when all have ended. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
}

/// An agent drafts, another judges, until the draft is good enough.
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
    /// A gate after each judgement below the score: Approve ends the run well with the current draft, Modify takes
    /// `parameters: {draft: <text>}`, which is judged next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review_gate: Option<Box<HitlStep>>,
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

/// An agent divides the work, others do the parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrchestratorWorkers {
    /// Who divides the work. It answers `[{"task": "..."}, ...]`.
    pub orchestrator: Orchestrator,
    /// A gate before any worker begins: Modify takes `parameters: {subtasks: [{task: <text>}, ...]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decomposition_review: Option<Box<HitlStep>>,
    /// Who does a part. Templates of its agent say `task` and `index`.
    pub worker: Worker,
    /// A gate when all parts are done: Modify takes `parameters: {workers: {<number>: <text>}}`, Retry takes
    /// `parameters: {workers: [<number>, ...]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce_review: Option<Box<HitlStep>>,
    /// What becomes of the parts. Default: they are joined. Templates say `workers`, `num_workers`, `subtasks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce: Option<Step>,
    /// What is made of that at last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writeup: Option<Step>,
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

/// Nodes and edges, loops included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Graph {
    /// The node that runs first. Default: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub entry: Option<String>,
    /// The nodes. Templates say `nodes.<name>`: the latest visit, with all of them under `visits`.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub nodes: Vec<Step>,
    /// Where the run goes on after a node: by the first edge that matches; it ends where none does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub edges: Vec<Edge>,
    /// How often one node may run. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_iterations: Option<i32>,
    /// How many nodes may run in all. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_steps: Option<i32>,
}

/// Where the run goes on after a node. Exactly one of `to` and `choose`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.to) != has(self.choose)").message("an edge has exactly one of to and choose"))]
pub struct Edge {
    /// The node that ended.
    #[schemars(length(min = 1, max = 63))]
    pub from: String,
    /// The node that is next, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub to: Option<String>,
    /// The node that is next is that of the first condition that holds.
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
    /// The node that is next where it holds.
    #[schemars(length(min = 1, max = 63))]
    pub to: String,
}
