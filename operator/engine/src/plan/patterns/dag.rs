//! A dag in a plan: what waits for what, without a circle, and what each task can see.
//!
//! It may not decide when a task begins.

use std::collections::BTreeSet;

use signoff_api::{Verdict, pattern::Dag};

use super::{Check, Ground, Known, PlannedDag, PlannedPattern, PlannedTask, count};
use crate::{
    language::Members,
    plan::{
        references::{defers, with_decision, with_records},
        step::Place,
    },
};

impl Check<'_> {
    pub(super) fn dag(&mut self, ground: &Ground<'_>, dag: &Dag, base: &Known) -> Option<(PlannedPattern, Known)> {
        let field = "spec.pattern.dag.tasks";
        if dag.tasks.is_empty() {
            self.complain(field, "a dag needs at least one task");
        }
        self.unique(dag.tasks.iter().map(|task| task.name.as_str()), field);
        let deps = self.deps(dag, field);
        let order = self.order(dag, &deps, field)?;
        let before = before(&deps, &order);
        let mut planned: Vec<Option<PlannedTask>> = vec![None; dag.tasks.len()];
        for at in order.iter().copied() {
            let (task, seen) = (&dag.tasks[at], &before[at]);
            let mut known = with_records(base.clone(), "tasks", seen.iter().map(|at| &dag.tasks[*at]), &[]);
            if !seen.is_empty() {
                known = known.with("last_response", Members::Open);
            }
            if seen.iter().any(|at| dag.tasks[*at].hitl.is_some()) || dag.tasks.iter().any(defers) {
                known = with_decision(known);
            }
            let mut place = Place::new(ground, format!("{field}[{at}]"), "", known);
            let earlier = order.iter().filter(|other| seen.contains(other));
            place.earlier = earlier.filter_map(|at| Some((*at, &planned[*at].as_ref()?.step))).collect();
            let Some(step) = self.step(task, &place) else { continue };
            let reviewed = step.gate().and_then(|gate| gate.reviews());
            let between = |other: &&usize| {
                reviewed
                    .is_some_and(|from| **other == from || (before[**other].contains(&from) && seen.contains(other)))
            };
            let again: Vec<usize> = order.iter().filter(between).copied().collect();
            if step.gate().is_some_and(|gate| gate.allowed.contains(&Verdict::Defer)) {
                self.nobody_else_saw(dag, &before, at, &again, &format!("{field}[{at}]"));
            }
            planned[at] = Some(PlannedTask { step, deps: deps[at].clone(), before: seen.clone(), again });
        }
        let known = with_records(base.clone(), "tasks", dag.tasks.iter(), &[]).with("last_response", Members::Open);
        let known = if dag.tasks.iter().any(|task| task.hitl.is_some()) { with_decision(known) } else { known };
        let tasks = planned.into_iter().collect::<Option<Vec<_>>>()?;
        let (max_parallel, fail_fast) = (count(dag.max_parallel), dag.fail_fast.unwrap_or(true));
        Some((PlannedPattern::Dag(PlannedDag { tasks, max_parallel, fail_fast }), known))
    }

    fn deps(&mut self, dag: &Dag, field: &str) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for (at, task) in dag.tasks.iter().enumerate() {
            let mut deps = BTreeSet::new();
            for name in &task.deps {
                match dag.tasks.iter().position(|other| other.name == *name) {
                    Some(dep) => {
                        deps.insert(dep);
                    }
                    None => {
                        let names: Vec<_> = dag.tasks.iter().map(|task| task.name.as_str()).take(10).collect();
                        let message = format!("there is no task {name}; there are {}", names.join(", "));
                        self.complain(format!("{field}[{at}].deps"), message);
                    }
                }
            }
            all.push(deps.into_iter().collect());
        }
        all
    }

    /// An order in which every task comes after those it waits for: as declared, where that is one.
    fn order(&mut self, dag: &Dag, deps: &[Vec<usize>], field: &str) -> Option<Vec<usize>> {
        let mut order = Vec::new();
        let mut placed = vec![false; deps.len()];
        while let Some(next) = (0..deps.len()).find(|at| !placed[*at] && deps[*at].iter().all(|dep| placed[*dep])) {
            placed[next] = true;
            order.push(next);
        }
        let stuck: Vec<_> = (0..deps.len()).filter(|at| !placed[*at]).map(|at| dag.tasks[at].name.as_str()).collect();
        if stuck.is_empty() {
            return Some(order);
        }
        self.complain(field, format!("{} wait for each other in a circle: remove one of their deps", stuck.join(", ")));
        None
    }

    /// What a gate sends back must not have been seen by anybody who does not wait for the gate.
    fn nobody_else_saw(&mut self, dag: &Dag, before: &[Vec<usize>], gate: usize, again: &[usize], field: &str) {
        for (other, seen) in before.iter().enumerate() {
            let saw = again.iter().any(|at| seen.contains(at));
            if saw && other != gate && !again.contains(&other) && !seen.contains(&gate) {
                let message = format!(
                    "Defer runs {} again, and task {} goes by it without waiting for {}: let it depend on {}, or leave Defer out",
                    again.iter().map(|at| dag.tasks[*at].name.as_str()).collect::<Vec<_>>().join(", "),
                    dag.tasks[other].name,
                    dag.tasks[gate].name,
                    dag.tasks[gate].name
                );
                self.complain(format!("{field}.hitl.allowedVerdicts"), message);
            }
        }
    }
}

/// What each task waits for, directly or not, in the order of the list.
fn before(deps: &[Vec<usize>], order: &[usize]) -> Vec<Vec<usize>> {
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); deps.len()];
    for at in order {
        let all = deps[*at].iter().flat_map(|dep| before[*dep].iter().copied().chain([*dep])).collect();
        before[*at] = all;
    }
    before.into_iter().map(|set| set.into_iter().collect()).collect()
}
