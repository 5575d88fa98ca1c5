//! A dag in a plan: the dependencies of each step, without a circle, and the records that each step can see.

use std::{collections::BTreeSet, sync::Arc};

use signoff_api::{Verdict, pattern::Dag};
use signoff_expr::Members;

use super::{Known, PlanContext, PlannedDag, PlannedPattern, PlannedTask, SpecStep, SpecSteps, Validator, count};

use crate::plan::{
    references::{defers, with_decision, with_records},
    step::StepContext,
};

/// The maximum number of steps of a dag.
const MOST_STEPS: usize = 256;

impl Validator<'_> {
    pub(super) fn dag(
        &mut self,
        plan: &PlanContext<'_>,
        dag: &Dag,
        steps: &SpecSteps<'_>,
        base: &Known,
    ) -> Option<(PlannedPattern, Known)> {
        self.check_no_branches(steps);
        self.check_count(steps, MOST_STEPS, "dag");
        let steps = steps.all();
        if steps.is_empty() {
            self.error("spec.steps", "a dag needs at least one step");
        }
        let deps = self.resolve_dependencies(steps);
        let order = self.sort_by_dependencies(steps, &deps)?;
        let before = all_dependencies(&deps, &order);
        let names = Arc::new(steps.iter().map(|spec_step| spec_step.step.name.clone()).collect());
        let mut planned: Vec<Option<PlannedTask>> = vec![None; steps.len()];
        for at in order.iter().copied() {
            let (SpecStep { field, step: task, .. }, seen) = (&steps[at], &before[at]);
            let mut known = with_records(base.clone(), seen.iter().map(|at| &steps[*at]), &[]);
            if !seen.is_empty() {
                known = known.with("last_response", Members::Open);
            }
            if seen.iter().any(|at| steps[*at].step.hitl.is_some())
                || steps.iter().any(|spec_step| defers(spec_step.step))
            {
                known = with_decision(known);
            }
            let known = known.of_step(&task.name, &names);
            let mut context = StepContext::new(plan, field, "", known);
            let earlier = order.iter().filter(|other| seen.contains(other));
            context.earlier = earlier.filter_map(|at| Some((*at, &planned[*at].as_ref()?.step))).collect();
            let Some(step) = self.plan_step(task, &context) else { continue };
            let reviewed = step.gate().and_then(|gate| gate.reviews());
            let between = |other: &&usize| {
                reviewed
                    .is_some_and(|from| **other == from || (before[**other].contains(&from) && seen.contains(other)))
            };
            let again: Vec<usize> = order.iter().filter(between).copied().collect();
            if step.gate().is_some_and(|gate| gate.allowed.contains(&Verdict::Defer)) {
                self.check_readers_wait_for_gate(steps, &before, at, &again);
            }
            planned[at] = Some(PlannedTask { step, deps: deps[at].clone(), before: seen.clone(), again });
        }
        let known = with_records(base.clone(), steps.iter(), &[]);
        let known = known.with("last_response", Members::Open);
        let known =
            if steps.iter().any(|spec_step| spec_step.step.hitl.is_some()) { with_decision(known) } else { known };
        let tasks = planned.into_iter().collect::<Option<Vec<_>>>()?;
        let (max_parallel, fail_fast) = (count(dag.max_parallel), dag.fail_fast.unwrap_or(true));
        Some((PlannedPattern::Dag(PlannedDag { tasks, max_parallel, fail_fast }), known))
    }

    /// Returns the positions of the direct dependencies of each step. Reports names that are not a step.
    fn resolve_dependencies(&mut self, steps: &[SpecStep<'_>]) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for SpecStep { field, step, .. } in steps {
            let mut deps = BTreeSet::new();
            for name in &step.depends_on {
                match steps.iter().position(|other| other.step.name == *name) {
                    Some(dep) => {
                        deps.insert(dep);
                    }
                    None => {
                        let names: Vec<_> =
                            steps.iter().map(|spec_step| spec_step.step.name.as_str()).take(10).collect();
                        let hint = self.did_you_mean(name, steps.iter().map(|spec_step| spec_step.step.name.as_str()));
                        let message = format!("there is no step {name}; there are {}{hint}", names.join(", "));
                        self.error(format!("{field}.dependsOn"), message);
                    }
                }
            }
            all.push(deps.into_iter().collect());
        }
        all
    }

    /// Returns an order in which every step comes after its dependencies. The order of declaration is kept if possible.
    fn sort_by_dependencies(&mut self, steps: &[SpecStep<'_>], deps: &[Vec<usize>]) -> Option<Vec<usize>> {
        let mut order = Vec::new();
        let mut placed = vec![false; deps.len()];
        while let Some(next) = (0..deps.len()).find(|at| !placed[*at] && deps[*at].iter().all(|dep| placed[*dep])) {
            placed[next] = true;
            order.push(next);
        }
        let stuck: Vec<_> = (0..deps.len()).filter(|at| !placed[*at]).map(|at| steps[at].step.name.as_str()).collect();
        if stuck.is_empty() {
            return Some(order);
        }
        let message = format!("{} depend on each other in a cycle: remove one from dependsOn", stuck.join(", "));
        self.error("spec.steps", message);
        None
    }

    /// Reports steps that use the response of a repeated step without waiting for the gate. `again` are the steps that
    /// a Defer at the gate repeats.
    fn check_readers_wait_for_gate(
        &mut self,
        steps: &[SpecStep<'_>],
        before: &[Vec<usize>],
        gate: usize,
        again: &[usize],
    ) {
        let name = |at: usize| steps[at].step.name.as_str();
        for (other, seen) in before.iter().enumerate() {
            let saw = again.iter().any(|at| seen.contains(at));
            if saw && other != gate && !again.contains(&other) && !seen.contains(&gate) {
                let message = format!(
                    "Defer runs {} again, but step {} uses its response without waiting for {}: add {} to its dependsOn, or leave Defer out",
                    again.iter().map(|at| name(*at)).collect::<Vec<_>>().join(", "),
                    name(other),
                    name(gate),
                    name(gate)
                );
                self.error(format!("{}.hitl.allowedVerdicts", steps[gate].field), message);
            }
        }
    }
}

/// Returns the direct and indirect dependencies of each step, in the order of the list.
fn all_dependencies(deps: &[Vec<usize>], order: &[usize]) -> Vec<Vec<usize>> {
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); deps.len()];
    for at in order {
        let indirect = deps[*at].iter().flat_map(|dep| before[*dep].iter().copied().chain([*dep])).collect();
        before[*at] = indirect;
    }
    before.into_iter().map(|set| set.into_iter().collect()).collect()
}
