//! `dag`: each task runs as soon as its dependencies are done, independent of other tasks.

use std::{cell::RefCell, future::poll_fn, rc::Rc, task::Poll};

use super::{LazyValue, PatternResult, last_response};
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
    let scope_of_all = || StepScope::of("", RecordNamespace::Named, dag.tasks.iter().map(|task| &task.step));
    let done = RefCell::new(vec![false; dag.tasks.len()]);
    let members = dag.tasks.iter().enumerate().map(|(index, task)| -> Member<'_, ()> {
        let task_scope = scope_of_task(&scope_of_all(), dag, task);
        let done = &done;
        Box::pin(async move {
            poll_fn(|_| {
                let ready = task.deps.iter().all(|dep| done.borrow()[*dep]);
                if ready { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            perform(run, dag, task, &task_scope).await?;
            done.borrow_mut()[index] = true;
            Ok(())
        })
    });
    join_all(members.collect(), dag.fail_fast).await?;
    let result_scope = StepScope { visible: Some(Rc::from([find_result_task(dag)])), ..scope_of_all() };
    let result: LazyValue<'a> = Rc::new(move |run, seq| last_response(run, &result_scope, seq));
    Ok(PatternResult { step_scope: scope_of_all(), result })
}

/// Performs a task, and after a Defer repeats the reviewed tasks in an order in which they can run.
async fn perform<'a>(
    run: &Run<'a>,
    dag: &'a PlannedDag,
    task: &'a PlannedTask,
    task_scope: &StepScope<'a>,
) -> Result<(), EarlyEnd> {
    loop {
        match steps::run_step(run, task_scope, &task.step).await? {
            StepFlow::Continue => return Ok(()),
            StepFlow::Refused(why) => return Err(EarlyEnd::Rejected(why)),
            StepFlow::Repeat(None) => {}
            StepFlow::Repeat(Some(_)) => {
                for repeated in task.again.iter().filter_map(|index| dag.tasks.get(*index)) {
                    // The agent of the repeated task receives the feedback of the gate, although the task does not
                    // depend on it.
                    let scope_of_repeated = StepScope {
                        feedback_from: Some(task.step.path.clone()),
                        ..scope_of_task(task_scope, dag, repeated)
                    };
                    Box::pin(perform(run, dag, repeated, &scope_of_repeated)).await?;
                }
            }
        }
    }
}

/// Returns the scope of a task: it sees the tasks that it waits for, and its agents remember only their own turns.
fn scope_of_task<'a>(scope_of_all: &StepScope<'a>, dag: &PlannedDag, task: &PlannedTask) -> StepScope<'a> {
    StepScope {
        visible: Some(Rc::from(task.before.as_slice())),
        conversation: task.step.path.clone(),
        feedback_from: None,
        limit: dag.max_parallel.map(|most| (String::new(), most)),
        ..scope_of_all.clone()
    }
}

/// Returns the index of the task on which no other task depends. Of several such tasks it is the last declared one.
fn find_result_task(dag: &PlannedDag) -> usize {
    let is_sink = |index: &usize| !dag.tasks.iter().any(|task| task.deps.contains(index));
    (0..dag.tasks.len()).rev().find(is_sink).unwrap_or(0)
}
