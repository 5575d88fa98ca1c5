//! The patterns of a plan: the steps of the spec are grouped, parsed and checked, with the names that each step can
//! use.
//!
//! The order in which a pattern runs its steps is in [`crate::patterns`].

mod agents;
mod dag;
mod evaluator;
mod graph;
mod lists;

use signoff_api::pattern::Pattern;

use super::{
    PlannedStep, Validator,
    spec_steps::{MOST_STEPS, SpecStep, SpecSteps},
    step::PlanContext,
};

use signoff_expr::{Condition, Known};

/// The pattern of a run, which determines the order of the steps.
#[derive(Clone, Debug)]
pub(crate) enum PlannedPattern {
    Chain(Vec<PlannedStep>),
    Dag(PlannedDag),
    Routing(Box<PlannedRouting>),
    Parallel(Box<PlannedParallel>),
    Evaluator(Box<PlannedEvaluator>),
    Orchestrator(Box<PlannedOrchestrator>),
    Graph(PlannedGraph),
}

/// The steps of a dag, each with the steps it depends on.
#[derive(Clone, Debug)]
pub(crate) struct PlannedDag {
    pub(crate) tasks: Vec<PlannedTask>,
    pub(crate) max_parallel: Option<usize>,
    pub(crate) fail_fast: bool,
}

/// A step of a dag.
#[derive(Clone, Debug)]
pub(crate) struct PlannedTask {
    pub(crate) step: PlannedStep,
    /// The positions of its direct dependencies.
    pub(crate) deps: Vec<usize>,
    /// The positions of all its dependencies, direct or not, in the order of the list.
    pub(crate) before: Vec<usize>,
    /// The tasks that run again after a Defer of this gate: the reviewed task and all tasks between, in the order of
    /// their dependencies.
    pub(crate) again: Vec<usize>,
}

/// A router with its routes.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRouting {
    pub(crate) router: PlannedStep,
    pub(crate) max_retries: i32,
    pub(crate) review: Option<PlannedStep>,
    pub(crate) routes: Vec<PlannedBranch>,
}

/// A named chain.
#[derive(Clone, Debug)]
pub(crate) struct PlannedBranch {
    pub(crate) name: String,
    pub(crate) steps: Vec<PlannedStep>,
}

/// Branches that run in parallel, and the step that combines their results.
#[derive(Clone, Debug)]
pub(crate) struct PlannedParallel {
    pub(crate) branches: Vec<PlannedBranch>,
    pub(crate) reduce: Option<PlannedStep>,
    pub(crate) max_parallel: Option<usize>,
    pub(crate) fail_fast: bool,
}

/// A producer whose drafts an evaluator scores until one is good enough.
#[derive(Clone, Debug)]
pub(crate) struct PlannedEvaluator {
    pub(crate) producer: PlannedStep,
    pub(crate) evaluator: PlannedStep,
    pub(crate) reviser: PlannedStep,
    pub(crate) review: Option<PlannedStep>,
    pub(crate) min_score: f64,
    pub(crate) max_iterations: usize,
    pub(crate) accepts_best: bool,
}

/// An orchestrator that divides the work, and the worker of each part.
#[derive(Clone, Debug)]
pub(crate) struct PlannedOrchestrator {
    pub(crate) orchestrator: PlannedStep,
    pub(crate) max_workers: Option<usize>,
    pub(crate) max_tasks: usize,
    pub(crate) decomposition_review: Option<PlannedStep>,
    pub(crate) worker: PlannedStep,
    pub(crate) reduce_review: Option<PlannedStep>,
    pub(crate) reduce: Option<PlannedStep>,
    pub(crate) writeup: Option<PlannedStep>,
    pub(crate) fail_fast: bool,
}

/// Nodes with edges between them, which can lead back.
#[derive(Clone, Debug)]
pub(crate) struct PlannedGraph {
    pub(crate) nodes: Vec<PlannedStep>,
    pub(crate) entry: usize,
    /// The edges by the position of their source node.
    pub(crate) edges: Vec<Vec<PlannedEdge>>,
    pub(crate) max_iterations: i32,
    pub(crate) max_steps: i32,
}

/// An edge of a graph: its condition, and the position of its target.
#[derive(Clone, Debug)]
pub(crate) enum PlannedEdge {
    Always(usize),
    Choose(Vec<(Condition, usize)>),
}

impl PlannedPattern {
    /// Returns every step that can have records, with its gates.
    pub(crate) fn steps(&self) -> Vec<&PlannedStep> {
        let own: Vec<&PlannedStep> = match self {
            Self::Chain(steps) => steps.iter().collect(),
            Self::Dag(dag) => dag.tasks.iter().map(|task| &task.step).collect(),
            Self::Routing(routing) => [Some(&routing.router), routing.review.as_ref()]
                .into_iter()
                .flatten()
                .chain(routing.routes.iter().flat_map(|route| &route.steps))
                .collect(),
            Self::Parallel(parallel) => {
                parallel.branches.iter().flat_map(|branch| &branch.steps).chain(&parallel.reduce).collect()
            }
            Self::Evaluator(evaluator) => [&evaluator.producer, &evaluator.evaluator, &evaluator.reviser]
                .into_iter()
                .chain(&evaluator.review)
                .collect(),
            Self::Orchestrator(all) => [&all.orchestrator, &all.worker]
                .into_iter()
                .chain([&all.decomposition_review, &all.reduce_review, &all.reduce, &all.writeup].into_iter().flatten())
                .collect(),
            Self::Graph(graph) => graph.nodes.iter().collect(),
        };
        own.into_iter().flat_map(PlannedStep::with_its_gates).collect()
    }
}

impl Validator<'_> {
    /// Plans the pattern of a spec. Returns also the names that exist at its end.
    pub(super) fn plan_pattern(&mut self, plan: &PlanContext<'_>) -> Option<(PlannedPattern, Known)> {
        let base = Self::known_everywhere(plan.spec);
        let steps = SpecSteps::new(plan.spec);
        if steps.all().len() > MOST_STEPS {
            let message = format!("a Workflow has at most {MOST_STEPS} steps, here are {}", steps.all().len());
            self.error("spec.steps", message);
            return None;
        }
        let Some(pattern) = &plan.spec.pattern else { return Some(self.chain(plan, &steps, &base)) };
        let names = names_of_patterns(pattern);
        if names.len() != 1 {
            let message = match names.as_slice() {
                [] => "no pattern is set: set one of dag, graph, parallel, routing, evaluatorOptimizer and orchestratorWorkers, or leave pattern out for a chain; the steps are in spec.steps".to_owned(),
                several => format!("a run has one pattern; this one has {}: keep one of them", several.join(" and ")),
            };
            self.error("spec.pattern", message);
            return None;
        }
        if let Some(dag) = &pattern.dag {
            return self.dag(plan, dag, &steps, &base);
        }
        if let Some(routing) = &pattern.routing {
            return self.routing(plan, routing, &steps, &base);
        }
        if let Some(parallel) = &pattern.parallel {
            return self.parallel(plan, parallel, &steps, &base);
        }
        if let Some(evaluator) = &pattern.evaluator_optimizer {
            return self.evaluator(plan, evaluator, &steps, &base);
        }
        if let Some(orchestrator) = &pattern.orchestrator_workers {
            return self.orchestrator(plan, orchestrator, &steps, &base);
        }
        self.graph(plan, pattern.graph.as_ref()?, &steps, &base)
    }
}

/// Returns the names of the patterns that a spec has.
fn names_of_patterns(pattern: &Pattern) -> Vec<&'static str> {
    [
        ("dag", pattern.dag.is_some()),
        ("graph", pattern.graph.is_some()),
        ("parallel", pattern.parallel.is_some()),
        ("routing", pattern.routing.is_some()),
        ("evaluatorOptimizer", pattern.evaluator_optimizer.is_some()),
        ("orchestratorWorkers", pattern.orchestrator_workers.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
    .collect()
}

/// Returns a declared limit as a count.
fn count(limit: Option<i32>) -> Option<usize> {
    limit.and_then(|limit| usize::try_from(limit).ok()).map(|limit| limit.max(1))
}
