//! `dag`: each task as soon as those it waits for are done, not layer by layer.

use std::{cell::RefCell, future::poll_fn, rc::Rc, task::Poll};

use super::{Done, last_response, together::Member, together::together};
use crate::{
    activity::Run,
    plan::{PlannedDag, PlannedTask},
    scope::{Frame, Listed},
    steps::{self, Next, Stop},
};

pub(super) async fn run<'a>(run: &Run<'a>, dag: &'a PlannedDag) -> Result<Done<'a>, Stop> {
    let whole = || Frame::of("", Listed::Named, dag.tasks.iter().map(|task| &task.step));
    let done = RefCell::new(vec![false; dag.tasks.len()]);
    let members = dag.tasks.iter().enumerate().map(|(at, task)| -> Member<'_, ()> {
        let frame = frame(&whole(), dag, task);
        let done = &done;
        Box::pin(async move {
            poll_fn(|_| {
                let ready = task.deps.iter().all(|dep| done.borrow()[*dep]);
                if ready { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            perform(run, dag, task, &frame).await?;
            done.borrow_mut()[at] = true;
            Ok(())
        })
    });
    together(members.collect(), dag.fail_fast).await?;
    let last = last(dag);
    let (frame, own) = (whole(), Frame { sees: Some(Rc::from([last])), ..whole() });
    Ok(Done { frame, result: Rc::new(move |run, seq| last_response(run, &own, seq)) })
}

/// A task, and once more what a gate sends back, in an order in which it can run.
async fn perform<'a>(run: &Run<'a>, dag: &'a PlannedDag, task: &'a PlannedTask, own: &Frame<'a>) -> Result<(), Stop> {
    loop {
        match steps::step(run, own, &task.step).await? {
            Next::On => return Ok(()),
            Next::Refused(why) => return Err(Stop::Rejected(why)),
            Next::Again(None) => {}
            Next::Again(Some(_)) => {
                for again in task.again.iter().filter_map(|at| dag.tasks.get(*at)) {
                    // It hears what was said at the gate, though it does not wait for it.
                    let frame = Frame { hears: Some(task.step.path.clone()), ..frame(own, dag, again) };
                    Box::pin(perform(run, dag, again, &frame)).await?;
                }
            }
        }
    }
}

/// What a task sees: those it waits for. What it remembers is its own.
fn frame<'a>(whole: &Frame<'a>, dag: &PlannedDag, task: &PlannedTask) -> Frame<'a> {
    Frame {
        sees: Some(Rc::from(task.before.as_slice())),
        memory: task.step.path.clone(),
        hears: None,
        limit: dag.max_parallel.map(|most| (String::new(), most)),
        ..whole.clone()
    }
}

/// The only task that no other waits for, else the last declared one of them.
fn last(dag: &PlannedDag) -> usize {
    let is_sink = |at: &usize| !dag.tasks.iter().any(|task| task.deps.contains(at));
    (0..dag.tasks.len()).rev().find(is_sink).unwrap_or(0)
}
