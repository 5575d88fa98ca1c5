//! Chains, routes and branches in a plan: lists of steps that run one after the other.
//!
//! It may not let a list see the records of another.

use signoff_api::pattern::{Branch, Chain, Parallel, Routing};

use super::{
    Check, Ground, Known, PlannedBranch, PlannedParallel, PlannedPattern, PlannedRouting, agents::Made, count,
};
use crate::{
    language::Members,
    plan::{About, references::with_decision, step::Place},
};

/// How often a router is asked again where it is not said.
const ROUTER_RETRIES: i32 = 2;

impl Check<'_> {
    pub(super) fn chain(&mut self, ground: &Ground<'_>, chain: &Chain, base: &Known) -> (PlannedPattern, Known) {
        let steps = self.list(ground, &chain.steps, "spec.pattern.chain.steps", "", base);
        let known = Self::known_in_list(base, &chain.steps, chain.steps.len());
        (PlannedPattern::Chain(steps), known)
    }

    fn branches(&mut self, ground: &Ground<'_>, branches: &[Branch], field: &str, base: &Known) -> Vec<PlannedBranch> {
        self.unique(branches.iter().map(|branch| branch.name.as_str()), field);
        let mut planned = Vec::new();
        for (at, branch) in branches.iter().enumerate() {
            self.name(&branch.name, &format!("{field}[{at}].name"));
            let prefix = format!("{}/", branch.name);
            let steps = self.list(ground, &branch.steps, &format!("{field}[{at}].steps"), &prefix, base);
            planned.push(PlannedBranch { name: branch.name.clone(), steps });
        }
        planned
    }

    pub(super) fn routing(
        &mut self,
        ground: &Ground<'_>,
        routing: &Routing,
        base: &Known,
    ) -> Option<(PlannedPattern, Known)> {
        let field = "spec.pattern.routing";
        if routing.routes.is_empty() {
            self.complain(format!("{field}.routes"), "a router needs at least one route to choose");
        }
        let names: Vec<String> = routing.routes.iter().map(|route| route.name.clone()).collect();
        let known_router = || base.clone().with("router", Members::fields(["chosen_route", "response"]));
        let place = Place::new(ground, format!("{field}.router"), "", with_decision(base.clone()));
        let addition = format!(
            "Answer with JSON and nothing else: {{\"route\": \"<name>\"}}, where <name> is one of {}.",
            names.join(", ")
        );
        let made = Made::of(&routing.router.agent, Some(&routing.router.input), Some(addition));
        let router = self.made_agent("router", made, &place);
        let about = About::Route(names);
        let review = self.plan_review(
            ground,
            routing.router.review.as_deref(),
            ("review", &format!("{field}.router.review")),
            &known_router(),
            about,
        );
        let mut known = known_router();
        if review.is_some() {
            known = with_decision(known);
        }
        let routes = self.branches(ground, &routing.routes, &format!("{field}.routes"), &known);
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
        ground: &Ground<'_>,
        parallel: &Parallel,
        base: &Known,
    ) -> Option<(PlannedPattern, Known)> {
        let field = "spec.pattern.parallel";
        if parallel.branches.len() < 2 {
            self.complain(format!("{field}.branches"), "at least two branches run in parallel: one alone is a chain");
        }
        let branches = self.branches(ground, &parallel.branches, &format!("{field}.branches"), base);
        let shape = Members::fields(["response", "status", "steps"]);
        let all = Members::shapes(parallel.branches.iter().map(|branch| (branch.name.clone(), shape.clone())));
        let mut known = base.clone().with("branches", all).with("last_response", Members::Open);
        if parallel.branches.iter().flat_map(|branch| &branch.steps).any(|step| step.hitl.is_some()) {
            known = with_decision(known);
        }
        let reduce = parallel.reduce.as_ref().and_then(|step| {
            if parallel.branches.iter().any(|branch| branch.name == step.name) {
                self.complain(
                    format!("{field}.reduce.name"),
                    format!("{} is the name of a branch: choose another", step.name),
                );
            }
            self.alone(ground, step, &format!("{field}.reduce"), &known)
        });
        if parallel.reduce.as_ref().is_some_and(|step| step.hitl.is_some()) {
            known = with_decision(known);
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
