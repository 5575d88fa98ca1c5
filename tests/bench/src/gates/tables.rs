//! The tables of `cargo xtask bench gates`, each at most 100 columns wide.

use super::goals::goals;
use super::long_runs::LongRuns;
use super::open_loop::{OpenLoop, Phase};
use super::pending::Pending;
use super::report::Measured;
use super::requests::{CountedRun, Loop};
use crate::audit::{Sort, sort};
use crate::ceiling::{CLIENTS, Ceiling, Rates};
use crate::crowd::percentile;
use crate::goal::render_table;
use crate::table::{hundredths, machine, milliseconds, percent, seconds, table, tenths, whole};

/// Renders all parts that were measured, and the goals last.
pub(super) fn render(measured: &Measured) -> String {
    let build = if measured.is_debug { "debug" } else { "release" };
    let mut parts = vec![format!("\nOne-gate workflows, {build} build.\n{}.", machine())];
    if let (Some(ceilings), Some(sizes)) = (&measured.ceiling, measured.sizes) {
        parts.push(render_ceiling(ceilings, sizes));
    }
    if !measured.open.is_empty() {
        parts.push(render_open_loop(measured));
    }
    if !measured.closed.is_empty() {
        parts.push(render_closed_loop(measured));
    }
    if !measured.counted.is_empty() {
        parts.push(render_requests(&measured.counted));
    }
    if !measured.pending.is_empty() {
        parts.push(render_pending(&measured.pending));
    }
    parts.extend(measured.long.as_ref().map(render_long_runs));
    parts.push(render_goals(measured));
    parts.join("\n\n")
}

fn clients(number: usize) -> String {
    if number == 1 { "1 client".to_owned() } else { format!("{number} clients") }
}

/// One kind of write.
type Rate = fn(&Rates) -> f64;

fn render_ceiling([before, after]: &[Ceiling; 2], sizes: [usize; 2]) -> String {
    let kinds: [(&str, Rate); 6] = [
        ("create Workflow", |rates| rates.workflow_create),
        ("create Approval", |rates| rates.approval_create),
        ("decision (merge patch)", |rates| rates.decision),
        ("status of Approval", |rates| rates.approval_status),
        ("status of Workflow", |rates| rates.workflow_status),
        ("create Event", |rates| rates.event_create),
    ];
    let row = |rate: Rate| {
        let rates = [before, after].map(|ceiling| whole(rate(&ceiling.rates)));
        let costs = [before, after].map(|ceiling| hundredths(rate(&ceiling.cost_ms)));
        rates.into_iter().chain(costs).collect()
    };
    let others = [before, after].map(|ceiling| hundredths(ceiling.others));
    let rows = kinds.map(|(name, rate)| (name, row(rate)));
    let row_of_others =
        ("processors used by others", others.into_iter().chain([String::new(), String::new()]).collect());
    let head = ["The ceiling: writes a second", "before", "after", "CPU ms, before", "after"].map(str::to_owned);
    let [workflow, approval] = sizes.map(|bytes| tenths(bytes as f64 / 1024.0));
    format!(
        "{}\nThe API server alone, {CLIENTS} clients, no operator running; before and after the open loop.\n\
         A finished Workflow has {workflow} KiB, its Approval {approval}.",
        table(&head, rows.into_iter().chain([row_of_others]))
    )
}

/// One row of the table of the open loop.
type OpenRow<'a> = (String, Box<dyn Fn(&OpenLoop) -> String + 'a>);

fn render_open_loop(measured: &Measured) -> String {
    let mut rows: Vec<OpenRow<'_>> = Vec::new();
    let per_minute = |run: &OpenLoop, phase: &Phase| whole(run.workflows as f64 * 60.0 / phase.took.as_secs_f64());
    rows.push(("created → waiting, a minute".to_owned(), Box::new(move |run| per_minute(run, &run.opening))));
    rows.push(("decided → done, a minute".to_owned(), Box::new(move |run| per_minute(run, &run.deciding))));
    if let Some(ceilings) = &measured.ceiling {
        for (name, phase) in PHASES {
            for (note, index) in [("", 0), (", with Events", 1)] {
                let show = move |run: &OpenLoop| {
                    let [before, after] = ceilings.each_ref().map(|ceiling| phase(run).shares(&ceiling.rates)[index]);
                    format!("{} ({}, {})", percent(f64::midpoint(before, after)), percent(before), percent(after))
                };
                rows.push((format!("share of the ceiling, {name}{note}"), Box::new(show)));
            }
        }
    }
    let mut row = |name: &str, show: fn(&OpenLoop) -> String| rows.push((name.to_owned(), Box::new(show)));
    row("API server CPU a Workflow, ms", |run| tenths(run.api_server_ms()));
    row("  CPU of an Event's create, median, ms", |run| hundredths(run.event_median_ms()));
    row("    lowest and highest batch", |run| {
        let select = |choose: fn(f64, f64) -> f64| run.event_ms.iter().copied().reduce(choose).unwrap_or_default();
        format!("{}, {}", hundredths(select(f64::min)), hundredths(select(f64::max)))
    });
    row("  API server CPU a Workflow, in Events", |run| tenths(run.api_server_in_events()));
    row("operator CPU a Workflow, ms", |run| hundredths(run.operator_ms()));
    row("operator's memory at most, MiB", |run| tenths(run.peak_mib));
    row("Events not written", |run| whole(run.requests.events_failed + run.requests.events_dropped));
    row("reads a decision, by the operator", |run| hundredths(run.requests.reads / run.workflows as f64));
    let names = measured.open.first().map(|run| run.used.processors()).unwrap_or_default();
    for (index, (name, _)) in names.into_iter().enumerate() {
        let show = move |run: &OpenLoop| {
            run.used.processors().get(index).map(|(_, used)| hundredths(*used)).unwrap_or_default()
        };
        rows.push((format!("processors used by {name}"), Box::new(show)));
    }
    let workflows = measured.open.first().map_or(0, |run| run.workflows);
    let mut head = vec![format!("Open loop: {} Workflows", whole(workflows as f64))];
    head.extend(measured.open.iter().map(|run| clients(run.clients)));
    let rows = rows.iter().map(|(name, show)| (name.as_str(), measured.open.iter().map(show).collect()));
    format!(
        "{}\nClients wait for the answer to each request, not for Workflows.\n\
         Share of the ceiling: the time that these writes take at the ceiling's rates, by the time they\n\
         took; the mean of before and after (each in parentheses).",
        table(&head, rows)
    )
}

type SelectPhase = fn(&OpenLoop) -> &Phase;
const PHASES: [(&str, SelectPhase); 2] = [("opening", |run| &run.opening), ("deciding", |run| &run.deciding)];

fn render_closed_loop(measured: &Measured) -> String {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let sent = measured.closed.iter().map(|run| tenths(milliseconds(percentile(&run.latencies.from_sent, share))));
        rows.push((format!("{name}, ms"), sent.collect()));
        let answered =
            measured.closed.iter().map(|run| tenths(milliseconds(percentile(&run.latencies.from_answer, share))));
        rows.push((format!("  of it after the answer, {name}, ms"), answered.collect()));
    }
    let per_minute = measured
        .closed
        .iter()
        .map(|run| whole(run.latencies.from_sent.len() as f64 * 60.0 / run.latencies.took.as_secs_f64()));
    rows.push(("decisions a minute".to_owned(), per_minute.collect()));
    let others = measured.closed.iter().map(|run| hundredths(run.used.others()));
    rows.push(("processors used by others".to_owned(), others.collect()));
    let workflows = measured.closed.first().map_or(0, |run| run.latencies.from_sent.len());
    let mut head = vec![format!("Closed loop: {} Workflows, decision → Succeeded", whole(workflows as f64))];
    head.extend(measured.closed.iter().map(|run| {
        if run.pause.is_zero() {
            clients(run.clients)
        } else {
            format!("1, pause {} ms", whole(milliseconds(run.pause)))
        }
    }));
    format!(
        "{}\nA client sends a decision, waits for the watch event of its Workflow, then sends its next.",
        table(&head, rows.iter().map(|(name, cells)| (name.as_str(), cells.clone()))),
    )
}

fn render_requests(runs: &[CountedRun]) -> String {
    let mut kinds: Vec<&str> = runs.iter().flat_map(|run| run.audited.keys().map(String::as_str)).collect();
    kinds.retain(|what| sort(what) != Sort::Upkeep);
    kinds.sort_unstable();
    kinds.dedup();
    let cells = |show: &dyn Fn(&CountedRun) -> String| runs.iter().map(show).collect::<Vec<_>>();
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    for what in kinds {
        let count = |run: &CountedRun| run.audited.get(what).copied().unwrap_or_default();
        rows.push((what, cells(&|run| hundredths(count(run) as f64 / run.workflows as f64))));
    }
    for (name, sort) in [("all state writes", Sort::State), ("all Events", Sort::Event), ("all reads", Sort::Read)] {
        rows.push((name, cells(&|run| hundredths(run.per_workflow(sort)))));
    }
    rows.push((
        "the operator counts the same",
        cells(&|run| if run.is_counted_alike() { "yes" } else { "NO" }.to_owned()),
    ));
    rows.push(("processors used by others", cells(&|run| hundredths(run.others))));
    let workflows = runs.first().map_or(0, |run| run.workflows);
    let mut head = vec![format!("Requests a Workflow, of {workflows}")];
    head.extend(runs.iter().map(|run| {
        let loop_ = if run.loop_ == Loop::Open { "open" } else { "closed" };
        format!("{}, {loop_}", run.clients)
    }));
    let different = runs.iter().filter(|run| !run.is_counted_alike()).map(|run| {
        let [audited, own] = run.audited_and_own();
        format!(
            "\n{}: state writes, Events, reads by the audit log {audited:?},\n  by the operator {own:?}.",
            clients(run.clients)
        )
    });
    format!(
        "{}\nOf the operator, by the API server's audit log, without watches and the Lease; columns: clients,\n\
         loop.{}",
        table(&head, rows),
        different.collect::<String>()
    )
}

fn render_pending(all: &[Pending]) -> String {
    let cells = |show: fn(&Pending) -> String| all.iter().map(show).collect::<Vec<_>>();
    let rows = [
        ("operator's memory after an idle minute, MiB", cells(|held| tenths(held.rss_mib))),
        ("  of an operator that found them open, MiB", cells(|held| tenths(held.rss_restarted_mib))),
        ("  at most, MiB", cells(|held| tenths(held.peak_mib))),
        ("idle requests a minute", cells(|held| whole(held.idle_requests_per_min()))),
        ("operator's idle CPU, ms a minute", cells(|held| whole(held.idle_cpu.as_secs_f64() * 1000.0))),
        ("from start to caught up, s", cells(|held| seconds(held.caught_up))),
        ("processors used by others", cells(|held| hundredths(held.others))),
    ];
    let mut head = vec!["Gates held open".to_owned()];
    head.extend(all.iter().map(|held| whole(held.count as f64)));
    let idle = all.iter().map(|held| {
        let requests: Vec<_> = held.idle.iter().map(|(what, count)| format!("{count} {what}")).collect();
        let requests = if requests.is_empty() { "nothing".to_owned() } else { requests.join(", ") };
        format!("\nIn the idle minute with {}: {requests}.", whole(held.count as f64))
    });
    format!(
        "{}\nCaught up: 16 gates were decided while no operator ran; until all 16 Workflows are done.{}",
        table(&head, rows),
        idle.collect::<String>()
    )
}

fn render_long_runs(long: &LongRuns) -> String {
    let all = [&long.short, &long.looped];
    let cells =
        |show: &dyn Fn(&super::long_runs::Steps) -> String| all.iter().map(|steps| show(steps)).collect::<Vec<_>>();
    let rows = [
        ("API server CPU a step, ms", cells(&|steps| tenths(steps.api_server_ms()))),
        ("state writes a step", cells(&|steps| hundredths(steps.state_writes / steps.all as f64))),
        ("time a step, ms", cells(&|steps| tenths(steps.took.as_secs_f64() * 1000.0 / steps.all as f64))),
        ("processors used by others", cells(&|steps| hundredths(steps.used.others()))),
    ];
    let head = [
        "Long runs: calls".to_owned(),
        format!("{} chains of {}", long.short.all / long.short.a_run, whole(long.short.a_run as f64)),
        format!("1 loop, {} visits", whole(long.looped.a_run as f64)),
    ];
    format!(
        "{}\nOne run at a time. A step of the loop costs the API server {} × one of a short run.",
        table(&head, rows),
        hundredths(long.ratio_of_the_loop())
    )
}

fn render_goals(measured: &Measured) -> String {
    format!(
        "{}\nIn Events: in creates of one Event. Where no number of clients or loop is named, the worst\n\
         counts. Nothing is said where others used more than\n\
         0.2 processors while it was measured.",
        render_table(&goals(measured), measured.is_debug)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::audit::Tally;
    use crate::ceiling::Writes;
    use crate::counters::Requests;
    use crate::gates::closed_loop::{ClosedLoop, Latencies};
    use crate::gates::long_runs::Steps;
    use crate::gates::report::Replay;
    use crate::processors::{API_SERVER, Used};

    const RATES: Rates = Rates {
        workflow_create: 1600.0,
        approval_create: 1300.0,
        decision: 1200.0,
        approval_status: 1500.0,
        workflow_status: 1500.0,
        event_create: 11_000.0,
    };

    /// Returns the largest possible figures.
    fn full() -> Measured {
        let ceiling = Ceiling { rates: RATES, cost_ms: RATES, others: 1.25 };
        let writes = Writes { workflow_creates: 20_000.0, events: 60_000.0, ..Writes::default() };
        let phase = || Phase { took: Duration::from_secs(9), writes };
        let used = || Used::of_one(API_SERVER, Duration::from_secs(1900));
        let open = |clients| OpenLoop {
            clients,
            workflows: 20_000,
            opening: phase(),
            deciding: phase(),
            used: used(),
            event_ms: vec![10.55, 12.25],
            peak_mib: 1048.5,
            requests: Requests::default(),
            others: 1.25,
        };
        let times = || vec![Duration::from_millis(123_456); 20_000];
        let closed = |clients, pause| ClosedLoop {
            clients,
            pause,
            latencies: Latencies { took: Duration::from_secs(9), from_sent: times(), from_answer: times() },
            used: used(),
        };
        let counted = |clients, loop_| CountedRun {
            clients,
            loop_,
            workflows: 200,
            audited: Tally::from([("list mutatingadmissionpolicybindings".to_owned(), 25_000)]),
            own: Requests::default(),
            others: 1.25,
        };
        let pending = |count| Pending {
            count,
            rss_mib: 1025.5,
            peak_mib: 1048.5,
            rss_restarted_mib: 1025.5,
            idle: Tally::from([("update leases".to_owned(), 12)]),
            idle_cpu: Duration::from_secs(12),
            caught_up: Duration::from_secs(100),
            others: 1.25,
        };
        let steps =
            |a_run| Steps { a_run, all: 1_000, took: Duration::from_secs(99), used: used(), state_writes: 1_001.0 };
        Measured {
            is_debug: false,
            sizes: Some([3_189, 2_943]),
            ceiling: Some([ceiling, ceiling]),
            open: vec![open(1), open(16)],
            closed: vec![closed(1, Duration::ZERO), closed(16, Duration::ZERO), closed(1, Duration::from_millis(150))],
            counted: vec![
                counted(1, Loop::Open),
                counted(1, Loop::Closed),
                counted(16, Loop::Open),
                counted(16, Loop::Closed),
            ],
            pending: vec![pending(5_000), pending(20_000)],
            long: Some(LongRuns { short: steps(10), looped: steps(1_000) }),
            replay: Some(Replay { ms: 1_234.5, others: 1.25 }),
        }
    }

    #[test]
    fn no_line_is_wider_than_a_hundred_columns() {
        for line in render(&full()).lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
    }

    #[test]
    fn parts_that_were_not_measured_have_no_table_and_their_goals_say_so() {
        let text = render(&Measured::default());
        assert!(!text.contains("Closed loop:") && !text.contains("The ceiling:"), "{text}");
        assert_eq!(text.matches("not measured").count(), goals(&Measured::default()).len(), "{text}");
    }

    #[test]
    fn counters_that_differ_from_the_audit_log_are_shown() {
        let text = render(&full());
        assert!(text.contains("NO") && text.contains("[0.0, 0.0, 25000.0]"), "{text}");
    }
}
