//! The numbers for people: ours, the goals, and what others do.
//! It may not measure; what others do was measured separately and stands here as it was found.

use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::NOTHING};

use super::audit::{Sort, sort};
use super::ceiling::{CLIENTS, Rates};
use super::counters::Requests;
use super::gates::{Counted, Run};
use super::pending::Pending;
use super::report::{Measured, RunReport, milliseconds, shares};

/// Two controllers that hold one gate a workflow, 16 clients, on a machine of this kind, measured separately in November 2026:
/// Argo Workflows 4.1.2 with its requeue interval at its floor of one second (the gate is a part of its Workflow: no object of
/// its own, no approvers), and manual-approval-gate (the gate is an object, a webhook checks who approves).
const PEERS: [&str; 2] = ["Argo 4.1.2*", "manual-approval-gate*"];

/// All of it.
pub(super) fn render(measured: &Measured, debug: bool) -> String {
    let build = if debug { "a debug build: these numbers say little about what is shipped" } else { "a release build" };
    let mut parts = vec![
        format!("\nOne-gate workflows on {}; the operator is {build}.", machine()),
        ceiling(measured),
        runs(measured),
        counted(&measured.counted),
    ];
    parts.extend(measured.pending.as_ref().map(pending));
    parts.push(
        "*  measured separately, on a machine of this kind, 16 clients; Argo holds its gate inside its Workflow and does not \
         know who approves."
            .to_owned(),
    );
    parts.join("\n\n")
}

pub(super) fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let gibibytes = kibibytes.unwrap_or(0.0_f64) / 1024.0 / 1024.0;
    format!("{processors} processors and {gibibytes:.0} GiB, shared by everything here, clients included")
}

fn ceiling(measured: &Measured) -> String {
    let ceiling = &measured.ceiling;
    let of = |pick: fn(&Rates) -> f64| {
        vec![whole(pick(&ceiling.alone)), whole(pick(&ceiling.crowd)), hundredths(pick(&ceiling.cost_ms))]
    };
    let both = |pick: fn(&Rates) -> f64| vec![whole(pick(&ceiling.alone)), whole(pick(&ceiling.crowd)), String::new()];
    let rows: [(&str, Vec<String>); 8] = [
        ("create Workflow", of(|rates| rates.workflow_create)),
        ("create Approval", of(|rates| rates.approval_create)),
        ("decide (merge patch)", of(|rates| rates.decision)),
        ("status of Approval", of(|rates| rates.approval_status)),
        ("status of Workflow", of(|rates| rates.workflow_status)),
        ("create Event", of(|rates| rates.event_create)),
        ("creates, both kinds", both(Rates::create)),
        ("status writes, both kinds", both(Rates::status_write)),
    ];
    let head = [
        "the API server alone, a second".to_owned(),
        "1 client".to_owned(),
        format!("{CLIENTS} clients"),
        "its CPU, ms a write".to_owned(),
    ];
    let (again, p50) = (&measured.ceiling_again, milliseconds(ceiling.write_p50));
    let [workflow, approval] = measured.sizes.map(|bytes| bytes as f64 / 1024.0);
    format!(
        "{}\none write at a time: p50 {p50:.1} ms; a finished Workflow has {workflow:.1} KiB, its Approval {approval:.1}\n\
         after the runs the same again, with {CLIENTS} clients: {} creates, {} status writes a second",
        table(&head, rows),
        whole(again.create()),
        whole(again.status_write()),
    )
}

fn runs(measured: &Measured) -> String {
    let reports: Vec<_> = measured.runs.iter().map(|run| (run, RunReport::new(run, &measured.ceiling))).collect();
    let phase = |run: &Run| {
        let opening = shares(&measured.ceiling, run.opening, run.pending_in);
        let deciding = shares(&measured.ceiling, run.deciding, run.done_in);
        (opening, deciding)
    };
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    let mut row = |name, show: &dyn Fn(&Run, &RunReport) -> String, goal: &str, peers: [&str; 2]| {
        let mut cells: Vec<_> = reports.iter().map(|(run, report)| show(run, report)).collect();
        cells.extend([goal, peers[0], peers[1]].map(str::to_owned));
        rows.push((name, cells));
    };
    let none = ["", ""];
    row("created → pending, a minute", &|_, r| whole(r.created_to_pending_per_min), "", ["11,600", "2,900"]);
    row("approved → done, a minute", &|_, r| whole(r.approved_to_done_per_min), "", ["9,200", "3,570"]);
    row("decision → next, p50 ms", &|_, r| tenths(r.decision_to_next_ms.p50), "10 (1)", ["1,190", "4,100"]);
    row("decision → next, p99 ms", &|_, r| tenths(r.decision_to_next_ms.p99), "50 (1), 250 (16)", none);
    row("operator CPU, ms", &|_, r| tenths(r.operator_cpu_ms_per_workflow), "2", ["7.1–11", "6.8"]);
    row("API server CPU, ms", &|run, _| tenths(run.cpu_ms("kube-apiserver")), "", none);
    row("state writes", &|_, r| hundredths(r.state_writes_per_workflow), "4", ["3", "12.7 requests"]);
    row("Events", &|_, r| hundredths(r.events_per_workflow), "3", ["2.1", ""]);
    row("Events dropped or repeated", &|run, _| whole(run.requests.events_lost), "", none);
    row("reads", &|_, r| hundredths(r.reads_per_workflow), "", none);
    row("operator RSS at most, MiB", &|_, r| tenths(r.rss_mib), "", none);
    row("of the ceiling", &|_, r| percent(r.throughput_ratio), "80 %", none);
    row("of the ceiling, with Events", &|_, r| percent(r.throughput_ratio_with_events), "", none);
    row("  while opening", &|run, _| percent(phase(run).0.0), "", none);
    row("  while deciding", &|run, _| percent(phase(run).1.0), "", none);
    row("  while opening, each write at its own rate, with Events", &|run, _| percent(phase(run).0.1), "", none);
    row("  while deciding, each write at its own rate, with Events", &|run, _| percent(phase(run).1.1), "", none);
    let processes: Vec<String> =
        measured.runs.first().map(|run| run.shares.iter().map(|(name, _)| name.clone()).collect()).unwrap_or_default();
    let names: Vec<String> = processes.iter().map(|name| format!("processors used by {name}")).collect();
    for (index, name) in names.iter().enumerate() {
        row(name, &|run, _| run.shares.get(index).map(|(_, share)| hundredths(*share)).unwrap_or_default(), "", none);
    }
    let workflows = measured.runs.first().map_or(0, |run| run.workflows);
    let mut head = vec![format!("{workflows} workflows, a workflow:")];
    head.extend(
        measured.runs.iter().map(|run| format!("{} client{}", run.clients, if run.clients == 1 { "" } else { "s" })),
    );
    head.push("goal".to_owned());
    head.extend(PEERS.map(str::to_owned));
    table(&head, rows)
}

fn counted(counted: &Counted) -> String {
    let workflows = counted.workflows as f64;
    let lines: Vec<_> = counted
        .audited
        .iter()
        .filter(|(what, _)| sort(what) != Sort::Upkeep)
        .map(|(what, count)| format!("  {:>6.2}  {what}", *count as f64 / workflows))
        .collect();
    let audited = [Sort::State, Sort::Event, Sort::Read].map(|sort| super::audit::count(&counted.audited, sort) as f64);
    let Requests { events, events_lost, reads, .. } = counted.requests;
    let own = [counted.requests.state_writes(), events + events_lost, reads];
    let verdict = if audited == own { "the same" } else { "NOT the same" };
    format!(
        "requests of the operator a workflow, by the API server's audit log of {} runs (watches and Lease left out):\n{}\n\
         state writes {}, Events {}, reads {}; the operator itself counts {verdict}: {}, {}, {}",
        counted.workflows,
        lines.join("\n"),
        audited[0],
        audited[1],
        audited[2],
        own[0],
        own[1],
        own[2],
    )
}

fn pending(pending: &Pending) -> String {
    let rows: [(&str, Vec<String>); 6] = [
        ("operator RSS after an idle minute, MiB", vec![tenths(pending.rss_mib), "100".into(), "256".into()]),
        ("  at most, MiB", vec![tenths(pending.peak_mib), String::new(), String::new()]),
        (
            "  of an operator that found them open, MiB",
            vec![tenths(pending.rss_restarted_mib), String::new(), String::new()],
        ),
        ("idle requests a minute", vec![whole(pending.idle_requests_per_min()), "0".into(), "0".into()]),
        ("idle CPU, ms a minute", vec![whole(pending.idle_cpu.as_secs_f64() * 1000.0), String::new(), String::new()]),
        ("from start to caught up, s", vec![seconds(pending.caught_up), String::new(), String::new()]),
    ];
    let head = [
        format!("{} gates open", pending.count),
        "measured".into(),
        "goal (5,000)".into(),
        "Argo 4.1.2* (5,000)".into(),
    ];
    let idle: Vec<_> = pending.idle.iter().map(|(what, count)| format!("{count} {what}")).collect();
    format!(
        "{}\nin the idle minute: {}",
        table(&head, rows),
        if idle.is_empty() { "nothing".into() } else { idle.join(", ") }
    )
}

pub(super) fn table<'a>(head: &[String], rows: impl IntoIterator<Item = (&'a str, Vec<String>)>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head.to_vec());
    for (name, mut cells) in rows {
        cells.insert(0, name.to_owned());
        table.add_row(cells);
    }
    for index in 0..head.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 3));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table.trim_fmt()
}

/// A whole number in groups of three digits.
fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

pub(super) fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

pub(super) fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}

fn seconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            ["0", "999", "1,000", "11,600", "1,234,567"],
            [0.0, 999.0, 1000.0, 11600.0, 1_234_567.0].map(whole).each_ref().map(String::as_str)
        );
    }
}
