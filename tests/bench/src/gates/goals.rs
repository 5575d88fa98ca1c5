//! The goals of `cargo xtask bench gates`, with the figures of a run. Pure.

use super::report::Measured;
use super::requests::{CountedRun, Loop};
use crate::audit::Sort;
use crate::goal::{Figure, Goal};
use crate::table::whole;

/// Returns every goal with the figure of this run.
pub(super) fn goals(measured: &Measured) -> Vec<Goal> {
    let mut goals = vec![
        Goal::at_most(
            "api_cpu_workflow_in_events",
            "API server CPU a Workflow, in Events",
            40.0,
            find_worst(measured.open.iter().map(|run| Figure::new(run.api_server_in_events(), run.others))),
        ),
        Goal::at_least(
            "open_16_deciding_of_ceiling",
            "open, 16 clients: share, deciding",
            0.85,
            share(measured, 16, |run| &run.deciding),
        ),
        Goal::at_least(
            "open_16_opening_of_ceiling",
            "open, 16 clients: share, opening",
            0.85,
            share(measured, 16, |run| &run.opening),
        ),
        Goal::at_most(
            "operator_cpu_ms",
            "operator CPU a Workflow, ms",
            4.0,
            find_worst(measured.open.iter().map(|run| Figure::new(run.operator_ms(), run.others))),
        ),
        Goal::at_most("state_writes", "state writes a Workflow", 4.0, most_requests(measured, Sort::State, |_| true)),
        Goal::at_most("events", "Events a Workflow", 3.0, most_requests(measured, Sort::Event, |_| true)),
        Goal::at_most(
            "reads_1",
            "reads a decision, 1 client",
            6.0,
            most_requests(measured, Sort::Read, |run| run.clients == 1),
        ),
        Goal::at_most(
            "reads_16",
            "reads a decision, 16 clients, open",
            1.0,
            most_requests(measured, Sort::Read, |run| run.clients == 16 && run.loop_ == Loop::Open),
        ),
    ];
    goals.extend(further(measured));
    goals
}

/// Returns the goals that are not in the object `goals` of `--json`: of gates held open, and of long runs.
fn further(measured: &Measured) -> Vec<Goal> {
    let pending = |count| measured.pending.iter().find(|pending| pending.count == count);
    let memory = [(5_000, 100.0), (20_000, 150.0)].map(|(count, most)| {
        let figure = pending(count).map(|pending| Figure::new(pending.held_mib(), pending.others));
        Goal::further(format!("{} gates open, MiB", whole(count as f64)), most, figure)
    });
    let idle = find_worst(measured.pending.iter().map(|held| Figure::new(held.idle_requests_per_min(), held.others)));
    let caught_up = pending(5_000).map(|held| Figure::new(held.caught_up.as_secs_f64(), held.others));
    let long = measured.long.as_ref().filter(|long| long.looped.a_run == 1_000);
    let looped =
        long.map(|long| Figure::new(long.ratio_of_the_loop(), long.short.used.others().max(long.looped.used.others())));
    let replay = measured.replay.map(|replay| Figure::new(replay.ms, replay.others));
    memory
        .into_iter()
        .chain([
            Goal::further("gates open: idle requests a minute".to_owned(), 0.0, idle),
            Goal::further("5,000 gates open: caught up after, s".to_owned(), 5.0, caught_up),
            Goal::further("loop of 1,000, in steps of 10".to_owned(), 3.0, looped),
            Goal::further("replay of 1,000 records, ms".to_owned(), 10.0, replay),
        ])
        .collect()
}

/// Returns the worst figure, or `None` without figures.
fn find_worst(figures: impl Iterator<Item = Figure>) -> Option<Figure> {
    figures.reduce(Figure::worse)
}

/// Returns the mean of a phase's shares of the ceiling before and after the runs, without Events.
fn share(
    measured: &Measured,
    clients: usize,
    phase: fn(&super::open_loop::OpenLoop) -> &super::open_loop::Phase,
) -> Option<Figure> {
    let run = measured.open.iter().find(|run| run.clients == clients)?;
    let [before, after] = measured.ceiling.as_ref()?;
    let [one, two] = [before, after].map(|ceiling| phase(run).shares(&ceiling.rates)[0]);
    Some(Figure::new(f64::midpoint(one, two), run.others.max(before.others).max(after.others)))
}

/// Returns the largest number of requests of one sort for a Workflow in the audit log, among the selected runs.
fn most_requests(measured: &Measured, sort: Sort, is_selected: fn(&CountedRun) -> bool) -> Option<Figure> {
    let runs = measured.counted.iter().filter(|run| is_selected(run));
    find_worst(runs.map(|run| Figure {
        value: run.per_workflow(sort),
        others: run.others,
        is_counted_alike: run.is_counted_alike(),
    }))
}
