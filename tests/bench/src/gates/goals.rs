//! The goals: a bound for a figure, and whether the run met it. Pure.
//! Must not call a goal met or missed where the run cannot say so: others used the machine, or the operator's counters are wrong.

use super::long_runs::{LongRuns, Steps};
use super::report::Measured;
use super::requests::{CountedRun, Loop};
use crate::audit::Sort;
use crate::crowd::percentile;
use crate::table::{hundredths, percent, tenths, whole};

/// Processors that others may use while a figure is measured.
const OTHERS: f64 = 0.2;

/// One goal and what the run says of it.
#[derive(Debug)]
pub(super) struct Goal {
    /// The figure's name in `--json`; `None` for figures that have a place of their own there.
    pub(super) key: Option<&'static str>,
    pub(super) name: String,
    bound: Bound,
    pub(super) figure: Option<Figure>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    /// A share, shown in percent.
    AtLeast(f64),
}

/// One measured number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) value: f64,
    /// Processors that others used while it was measured, or while what it is compared with was measured.
    pub(super) others: f64,
    /// Whether the operator's counters equal the audit log's; true of what is not counted.
    pub(super) is_counted_alike: bool,
}

/// What a run says of a goal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    Met,
    Missed,
    NotMeasured,
    /// Others used so many processors.
    NotSaid(f64),
    DebugBuild,
    CountedOtherwise,
}

impl Figure {
    fn new(value: f64, others: f64) -> Self {
        Self { value, others, is_counted_alike: true }
    }

    /// Returns the larger of two figures; a reason for doubt about either is one about both.
    fn worse(self, other: Self) -> Self {
        Self {
            value: self.value.max(other.value),
            others: self.others.max(other.others),
            is_counted_alike: self.is_counted_alike && other.is_counted_alike,
        }
    }
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl Goal {
    fn at_most(key: &'static str, name: &str, most: f64, figure: Option<Figure>) -> Self {
        Self { key: Some(key), name: name.to_owned(), bound: Bound::AtMost(most), figure }
    }

    fn at_least(key: &'static str, name: &str, least: f64, figure: Option<Figure>) -> Self {
        Self { key: Some(key), name: name.to_owned(), bound: Bound::AtLeast(least), figure }
    }

    fn further(name: String, most: f64, figure: Option<Figure>) -> Self {
        Self { key: None, name, bound: Bound::AtMost(most), figure }
    }

    /// Judges the figure of a run of this build.
    pub(super) fn verdict(&self, is_debug: bool) -> Verdict {
        match self.figure {
            None => Verdict::NotMeasured,
            Some(figure) if figure.others > OTHERS => Verdict::NotSaid(figure.others),
            Some(_) if is_debug => Verdict::DebugBuild,
            Some(figure) if !figure.is_counted_alike => Verdict::CountedOtherwise,
            Some(figure) if self.bound.holds(figure.value) => Verdict::Met,
            Some(_) => Verdict::Missed,
        }
    }

    /// Returns the bound as text.
    pub(super) fn bound(&self) -> String {
        match self.bound {
            Bound::AtMost(most) => format!("≤ {}", whole(most)),
            Bound::AtLeast(least) => format!("≥ {}", percent(least)),
        }
    }

    /// Returns the figure as text.
    pub(super) fn measured(&self) -> String {
        match (self.figure, self.bound) {
            (None, _) => "–".to_owned(),
            (Some(figure), Bound::AtLeast(_)) => format!("{} %", tenths(figure.value * 100.0)),
            (Some(figure), Bound::AtMost(_)) => hundredths(figure.value),
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Met => f.write_str("met"),
            Self::Missed => f.write_str("missed"),
            Self::NotMeasured => f.write_str("not measured"),
            Self::NotSaid(others) => write!(f, "not judged: others used {others:.2} processors"),
            Self::DebugBuild => f.write_str("not judged: a debug build"),
            Self::CountedOtherwise => f.write_str("not judged: the counters differ"),
        }
    }
}

/// Returns every goal with the figure of this run.
pub(super) fn goals(measured: &Measured) -> Vec<Goal> {
    let mut goals = vec![
        Goal::at_most(
            "api_cpu_workflow_in_events",
            "API server CPU a Workflow, in Events",
            40.0,
            worst(measured.open.iter().map(|run| Figure::new(run.api_server_in_events(), run.others))),
        ),
        Goal::at_most("closed_1_p50_in_writes", "closed, 1 client: p50, in writes", 4.0, closed(measured, 1, 0.5)),
        Goal::at_most("closed_1_p99_in_writes", "closed, 1 client: p99, in writes", 12.0, closed(measured, 1, 0.99)),
        Goal::at_most(
            "closed_16_p99_in_writes",
            "closed, 16 clients: p99, in writes",
            40.0,
            closed(measured, 16, 0.99),
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
            worst(measured.open.iter().map(|run| Figure::new(run.operator_ms(), run.others))),
        ),
        Goal::at_most("state_writes", "state writes a Workflow", 4.0, counted(measured, Sort::State, |_| true)),
        Goal::at_most("events", "Events a Workflow", 3.0, counted(measured, Sort::Event, |_| true)),
        Goal::at_most(
            "reads_1",
            "reads a decision, 1 client",
            6.0,
            counted(measured, Sort::Read, |run| run.clients == 1),
        ),
        Goal::at_most(
            "reads_16",
            "reads a decision, 16 clients, open",
            1.0,
            counted(measured, Sort::Read, |run| run.clients == 16 && run.loop_ == Loop::Open),
        ),
    ];
    goals.extend(further(measured));
    goals
}

/// Returns the goals that are not among the object `goals` of `--json`: of gates held open, and of long runs.
fn further(measured: &Measured) -> Vec<Goal> {
    let pending = |count| measured.pending.iter().find(|pending| pending.count == count);
    let memory = [(5_000, 100.0), (20_000, 250.0)].map(|(count, most)| {
        let figure = pending(count).map(|pending| Figure::new(pending.held_mib(), pending.others));
        Goal::further(format!("{} gates open, MiB", whole(count as f64)), most, figure)
    });
    let idle = worst(measured.pending.iter().map(|held| Figure::new(held.idle_requests_per_min(), held.others)));
    let caught_up = pending(5_000).map(|held| Figure::new(held.caught_up.as_secs_f64(), held.others));
    let ratio = |long: &LongRuns, of: fn(&LongRuns) -> (&Steps, f64)| {
        let (steps, ratio) = of(long);
        Figure::new(ratio, long.short.used.others().max(steps.used.others()))
    };
    let long = measured.long.as_ref().filter(|long| long.long.a_run == 1_000);
    let chain = long.map(|long| ratio(long, |long| (&long.long, long.ratio())));
    let looped = long.map(|long| ratio(long, |long| (&long.looped, long.ratio_of_the_loop())));
    let replay = measured.replay.map(|replay| Figure::new(replay.ms, replay.others));
    memory
        .into_iter()
        .chain([
            Goal::further("gates open: idle requests a minute".to_owned(), 0.0, idle),
            Goal::further("5,000 gates open: caught up after, s".to_owned(), 5.0, caught_up),
            Goal::further("chain of 1,000, in steps of 10".to_owned(), 3.0, chain),
            Goal::further("loop of 1,000, in steps of 10".to_owned(), 3.0, looped),
            Goal::further("replay of 1,000 records, ms".to_owned(), 10.0, replay),
        ])
        .collect()
}

fn worst(figures: impl Iterator<Item = Figure>) -> Option<Figure> {
    figures.reduce(Figure::worse)
}

/// Returns a percentile of the closed loop by the p50 of one lone write.
fn closed(measured: &Measured, clients: usize, at: f64) -> Option<Figure> {
    let run = measured.closed.iter().find(|run| run.clients == clients && run.pause.is_zero())?;
    let lone = measured.lone.as_ref()?;
    let value = percentile(&run.latencies.from_sent, at).as_secs_f64() / lone.p50().as_secs_f64();
    Some(Figure::new(value, run.used.others().max(lone.others())))
}

/// Returns the mean of a phase's shares of the ceiling before and after the runs, Events left out.
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

/// Returns the most requests of one sort a Workflow, by the audit log, among the runs that are asked for.
fn counted(measured: &Measured, sort: Sort, is_asked_for: fn(&CountedRun) -> bool) -> Option<Figure> {
    let runs = measured.counted.iter().filter(|run| is_asked_for(run));
    worst(runs.map(|run| Figure { value: run.a_workflow(sort), others: run.others, is_counted_alike: run.agrees() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(bound: Bound, figure: Option<Figure>) -> Goal {
        Goal { key: None, name: "a figure".to_owned(), bound, figure }
    }

    #[test]
    fn a_goal_is_met_at_its_bound_and_missed_beyond_it() {
        let of = |bound, value| goal(bound, Some(Figure::new(value, 0.02))).verdict(false);
        assert_eq!(of(Bound::AtMost(4.0), 4.0), Verdict::Met);
        assert_eq!(of(Bound::AtMost(4.0), 4.001), Verdict::Missed);
        assert_eq!(of(Bound::AtLeast(0.85), 0.85), Verdict::Met);
        assert_eq!(of(Bound::AtLeast(0.85), 0.8499), Verdict::Missed);
        assert_eq!(of(Bound::AtMost(4.0), f64::NAN), Verdict::Missed);
        assert_eq!(of(Bound::AtLeast(0.85), f64::NAN), Verdict::Missed);
    }

    #[test]
    fn nothing_is_said_where_others_used_more_than_a_fifth_of_a_processor() {
        let of = |others| goal(Bound::AtMost(4.0), Some(Figure::new(1.0, others))).verdict(false);
        assert_eq!(of(0.2), Verdict::Met);
        assert_eq!(of(0.21).to_string(), "not judged: others used 0.21 processors");
        let missed = goal(Bound::AtMost(4.0), Some(Figure::new(9.0, 1.5))).verdict(false);
        assert_eq!(missed, Verdict::NotSaid(1.5));
    }

    #[test]
    fn nothing_is_said_of_a_debug_build_of_what_was_not_measured_or_of_wrong_counters() {
        let figure = Figure::new(1.0, 0.0);
        assert_eq!(goal(Bound::AtMost(4.0), Some(figure)).verdict(true), Verdict::DebugBuild);
        assert_eq!(goal(Bound::AtMost(4.0), None).verdict(false), Verdict::NotMeasured);
        let wrong = Figure { is_counted_alike: false, ..figure };
        assert_eq!(goal(Bound::AtMost(4.0), Some(wrong)).verdict(false), Verdict::CountedOtherwise);
    }

    #[test]
    fn the_worse_of_two_figures_keeps_every_reason_for_doubt() {
        let one = Figure { value: 2.0, others: 0.3, is_counted_alike: true };
        let two = Figure { value: 3.0, others: 0.1, is_counted_alike: false };
        let worse = one.worse(two);
        assert_eq!((worse.value, worse.others, worse.is_counted_alike), (3.0, 0.3, false));
    }

    #[test]
    fn figures_are_shown_in_the_unit_of_their_bound() {
        let share = goal(Bound::AtLeast(0.85), Some(Figure::new(0.7412, 0.0)));
        assert_eq!([share.bound(), share.measured()], ["≥ 85 %", "74.1 %"]);
        let ratio = goal(Bound::AtMost(40.0), Some(Figure::new(71.346, 0.0)));
        assert_eq!([ratio.bound(), ratio.measured()], ["≤ 40", "71.35"]);
        assert_eq!(goal(Bound::AtMost(40.0), None).measured(), "–");
    }
}
