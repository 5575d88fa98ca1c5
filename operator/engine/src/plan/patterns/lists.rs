//! Chains, routes and branches in a plan: lists of steps that run one after the other.
//!
//! **Invariant:** a list cannot see the records of another list.

use std::collections::BTreeSet;

use signoff_api::pattern::{Parallel, Routing};
use signoff_expr::Members;

use super::{
    Known, PlanContext, PlannedBranch, PlannedParallel, PlannedPattern, PlannedRouting, SpecSteps, Validator,
    agents::PatternAgent, count,
};

use crate::{
    gate::subject::GateSubject,
    plan::{
        references::{with_decision, with_records},
        spec_steps::SpecBranch,
        step::StepContext,
    },
};

/// The default number of further requests after a router's answer that does not parse.
const ROUTER_RETRIES: i32 = 2;
/// The maximum number of routes.
const MOST_ROUTES: usize = 32;
/// The maximum number of parallel branches.
const MOST_BRANCHES: usize = 128;

impl Validator<'_> {
    pub(super) fn chain(
        &mut self,
        plan: &PlanContext<'_>,
        steps: &SpecSteps<'_>,
        base: &Known,
    ) -> (PlannedPattern, Known) {
        self.check_no_branches(steps);
        let steps = steps.all();
        if steps.is_empty() {
            let message = "a run needs at least one step: add it to spec.steps, whatever the pattern";
            self.error("spec.steps", message);
        }
        let planned = self.plan_list(plan, steps, "", base);
        let known = Self::known_in_list(base, steps, steps.len());
        (PlannedPattern::Chain(planned), known)
    }

    fn branches(&mut self, plan: &PlanContext<'_>, branches: &[SpecBranch<'_>], base: &Known) -> Vec<PlannedBranch> {
        let mut planned = Vec::new();
        for branch in branches {
            let steps = self.plan_list(plan, &branch.steps, &format!("{}/", branch.name), base);
            planned.push(PlannedBranch { name: branch.name.to_owned(), steps });
        }
        planned
    }

    pub(super) fn routing(
        &mut self,
        plan: &PlanContext<'_>,
        routing: &Routing,
        steps: &SpecSteps<'_>,
        base: &Known,
    ) -> Option<(PlannedPattern, Known)> {
        let field = "spec.pattern.routing";
        let routes = self.check_branches(steps, &BTreeSet::new());
        match routes.len() {
            0 => self.error("spec.steps", "a router needs at least one route to choose: a step says `branch: <route>`"),
            count if count > MOST_ROUTES => {
                self.error(
                    "spec.steps",
                    format!("a router chooses among at most {MOST_ROUTES} routes; this one has {count}"),
                );
            }
            _ => {}
        }
        let names: Vec<String> = routes.iter().map(|route| route.name.to_owned()).collect();
        let known_router = || base.clone().with("router", Members::fields(["chosen_route", "response"]));
        let context = StepContext::new(plan, format!("{field}.router"), "", with_decision(base.clone()));
        let addition = format!(
            "Answer with JSON and nothing else: {{\"route\": \"<name>\"}}, where <name> is one of {}.",
            names.join(", ")
        );
        let agent = PatternAgent::of(&routing.router.agent, Some(&routing.router.input), Some(addition));
        let router = self.pattern_agent("router", agent, &context);
        let subject = GateSubject::Route(names);
        let review = self.plan_review(
            plan,
            routing.router.review.as_deref(),
            (".review", &format!("{field}.router.review")),
            &known_router(),
            subject,
        );
        let mut known = known_router();
        if review.is_some() {
            known = with_decision(known);
        }
        let routes = self.branches(plan, &routes, &known);
        let planned = PlannedRouting {
            router: router?,
            max_retries: routing.router.max_retries.unwrap_or(ROUTER_RETRIES),
            review,
            routes,
        };
        let after = with_decision(known).with("steps", Members::Open).with("last_response", Members::Open);
        Some((PlannedPattern::Routing(Box::new(planned)), after))
    }

    pub(super) fn parallel(
        &mut self,
        plan: &PlanContext<'_>,
        parallel: &Parallel,
        steps: &SpecSteps<'_>,
        base: &Known,
    ) -> Option<(PlannedPattern, Known)> {
        let named: BTreeSet<&str> = parallel.reduce.as_deref().into_iter().collect();
        let spec_branches = self.check_branches(steps, &named);
        match spec_branches.len() {
            0 | 1 => {
                let message =
                    "at least two branches run in parallel: one alone is a chain; a step says `branch: <name>`";
                self.error("spec.steps", message);
            }
            count if count > MOST_BRANCHES => {
                self.error(
                    "spec.steps",
                    format!("at most {MOST_BRANCHES} branches run in parallel; this pattern has {count}"),
                );
            }
            _ => {}
        }
        let branches = self.branches(plan, &spec_branches, base);
        let shape = Members::fields(["response", "status", "steps"]);
        let branch_shapes = Members::shapes(spec_branches.iter().map(|branch| (branch.name.to_owned(), shape.clone())));
        let mut known = base.clone().with("branches", branch_shapes).with("last_response", Members::Open);
        if spec_branches.iter().flat_map(|branch| &branch.steps).any(|spec_step| spec_step.step.hitl.is_some()) {
            known = with_decision(known);
        }
        let spec_reduce = self.find_named_step(steps, parallel.reduce.as_deref(), "spec.pattern.parallel.reduce");
        let reduce = spec_reduce.as_ref().and_then(|spec_step| self.single_step(plan, spec_step, &known));
        if let Some(spec_step) = &spec_reduce {
            known = with_records(known, [spec_step].into_iter(), &[]);
            if spec_step.step.hitl.is_some() {
                known = with_decision(known);
            }
        }
        let planned = PlannedParallel {
            branches,
            reduce,
            max_parallel: count(parallel.max_parallel),
            fail_fast: parallel.fail_fast.unwrap_or(true),
        };
        Some((PlannedPattern::Parallel(Box::new(planned)), known))
    }
}
