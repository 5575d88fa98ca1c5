//! `dag`: each task runs as soon as its dependencies are done, independent of other tasks.

use std::{cell::RefCell, future::poll_fn, rc::Rc, task::Poll};

use super::{PatternResult, last_response};
use crate::steps::join::{Member, join_all};
use crate::{
    plan::{PlannedDag, PlannedTask},
    replay::{
        run::Run,
        scope::{RecordNamespace, StepScope},
    },
    steps::{self, EarlyEnd, StepFlow},
};

pub(super) async fn run<'a>(run: &Run<'a>, dag: &'a PlannedDag) -> Result<PatternResult<'a>, EarlyEnd> {
    let whole = || StepScope::of("", RecordNamespace::Named, dag.tasks.iter().map(|task| &task.step));
    let done = RefCell::new(vec![false; dag.tasks.len()]);
    let members = dag.tasks.iter().enumerate().map(|(at, task)| -> Member<'_, ()> {
        let step_scope = scope_of_task(&whole(), dag, task);
        let done = &done;
        Box::pin(async move {
            poll_fn(|_| {
                let ready = task.deps.iter().all(|dep| done.borrow()[*dep]);
                if ready { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            perform(run, dag, task, &step_scope).await?;
            done.borrow_mut()[at] = true;
            Ok(())
        })
    });
    join_all(members.collect(), dag.fail_fast).await?;
    let last = last(dag);
    let (step_scope, own) = (whole(), StepScope { visible: Some(Rc::from([last])), ..whole() });
    Ok(PatternResult { step_scope, result: Rc::new(move |run, seq| last_response(run, &own, seq)) })
}

/// Performs a task, and after a Defer repeats the reviewed tasks in an order in which they can run.
async fn perform<'a>(
    run: &Run<'a>,
    dag: &'a PlannedDag,
    task: &'a PlannedTask,
    own: &StepScope<'a>,
) -> Result<(), EarlyEnd> {
    loop {
        match steps::step(run, own, &task.step).await? {
            StepFlow::Continue => return Ok(()),
            StepFlow::Refused(why) => return Err(EarlyEnd::Rejected(why)),
            StepFlow::Repeat(None) => {}
            StepFlow::Repeat(Some(_)) => {
                for again in task.again.iter().filter_map(|at| dag.tasks.get(*at)) {
                    // The agent of the repeated task receives the feedback of the gate, although the task does not
                    // depend on it.
                    let step_scope =
                        StepScope { feedback_from: Some(task.step.path.clone()), ..scope_of_task(own, dag, again) };
                    Box::pin(perform(run, dag, again, &step_scope)).await?;
                }
            }
        }
    }
}

/// Returns the scope of a task: it sees the tasks that it waits for, and its agents remember only their own turns.
fn scope_of_task<'a>(whole: &StepScope<'a>, dag: &PlannedDag, task: &PlannedTask) -> StepScope<'a> {
    StepScope {
        visible: Some(Rc::from(task.before.as_slice())),
        conversation: task.step.path.clone(),
        feedback_from: None,
        limit: dag.max_parallel.map(|most| (String::new(), most)),
        ..whole.clone()
    }
}

/// Returns the only task on which no other depends, or the last declared one of several.
fn last(dag: &PlannedDag) -> usize {
    let is_sink = |at: &usize| !dag.tasks.iter().any(|task| task.deps.contains(at));
    (0..dag.tasks.len()).rev().find(is_sink).unwrap_or(0)
}
