//! The tables of `cargo xtask bench tenants`, each at most 100 columns wide.

use std::time::Duration;

use super::report::{Measured, Run};
use crate::goal::render_table;
use crate::processors::{API_SERVER, OPERATOR};
use crate::table::{hundredths, machine, milliseconds, percent, seconds, table, tenths, whole};

/// Renders all tables, with the goals last.
pub(super) fn render(measured: &Measured) -> String {
    let build = if measured.is_debug { "debug" } else { "release" };
    let parts = [
        format!("\nA victim's gate alone and beside hostile namespaces, {build} build.\n{}.", machine()),
        render_gates(measured),
        render_operator(measured),
        render_tenants(measured),
        render_table(&measured.goals(), measured.is_debug),
    ];
    parts.join("\n\n")
}

/// Renders the figures that have goals in one line.
pub(super) fn line(run: &Run) -> String {
    let [p50, p99] = [0.5, 0.99].map(|share| whole(milliseconds(run.time_of_share(share))));
    let gates = whole(run.gates.gates.len() as f64);
    let (memory, ended) = (whole(run.needed.peak_mib), run.needed.restarts);
    format!(
        "{}: {gates} gates, p50 {p50} ms, p99 {p99} ms; the operator: {memory} MiB, ended {ended} times",
        run.name()
    )
}

fn rows_of_runs<'a>(measured: &'a Measured, cells: impl Fn(&Run) -> Vec<String> + 'a) -> Vec<(String, Vec<String>)> {
    measured.alone.iter().chain(&measured.beside).map(|run| (run.name(), cells(run))).collect()
}

fn render_rows(head: &[&str], rows: &[(String, Vec<String>)]) -> String {
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    table(&head, rows.iter().map(|(name, cells)| (name.as_str(), cells.clone())))
}

fn render_gates(measured: &Measured) -> String {
    let alone = measured.alone_p99().as_secs_f64();
    let ms = |time: Duration| whole(milliseconds(time));
    let rows = rows_of_runs(measured, |run| {
        let [p50, p99] = [0.5, 0.99].map(|share| run.time_of_share(share));
        let gates = whole(run.gates.gates.len() as f64);
        let times = format!("{}×", tenths(p99.as_secs_f64() / alone));
        vec![gates, ms(p50), ms(p99), times, percent(run.share_of_requests())]
    });
    let problems = measured.alone.iter().chain(&measured.beside);
    let problems: Vec<String> =
        problems.filter_map(|run| Some(format!("\n{}: {}", run.name(), cut(run.gates.problem.as_deref()?)))).collect();
    format!(
        "{}\nFrom the create request to the watch event of the Workflow Succeeded; one gate after another.\n\
         Own requests: the share of this time in which the victim waited for answers to its own two\n\
         requests (create, decision), which the API server handles without the operator.{}",
        render_rows(&["A gate", "gates", "p50, ms", "p99, ms", ": alone", "own requests"], &rows),
        problems.concat()
    )
}

fn render_operator(measured: &Measured) -> String {
    let rows = rows_of_runs(measured, |run| {
        let used = |name: &str| {
            let processors = run.used.processors();
            let used = processors.iter().find(|(other, _)| *other == name).map_or(0.0, |(_, used)| *used);
            hundredths(used)
        };
        vec![
            whole(run.needed.peak_mib),
            percent(run.share_of_limit()),
            run.needed.restarts.to_string(),
            run.stopped.map_or_else(|| "–".to_owned(), whole),
            match (run.load, run.idle_after) {
                (None, _) => String::new(),
                (_, Some(time)) => seconds(time),
                (_, None) => "never".to_owned(),
            },
            used(OPERATOR),
            used(API_SERVER),
            used("others"),
        ]
    });
    let head = ["The operator", "MiB", "limit", "ended", "stopped", "idle, s", "CPU", "API CPU", "others"];
    format!(
        "{}\nMiB: its peak. Ended: it was started again. Stopped: evaluations. Idle: after the deletion of the\n\
         hostile namespaces. CPU: processors that it, the API server and others used during the gates.",
        render_rows(&head, &rows)
    )
}

fn render_tenants(measured: &Measured) -> String {
    let rows: Vec<(String, Vec<String>)> = measured
        .beside
        .iter()
        .map(|run| {
            let deeds = &run.deeds;
            let ended: Vec<String> = deeds.ended.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
            let counts = [deeds.created, deeds.votes, deeds.refused].map(|count| whole(count as f64));
            (run.name(), counts.into_iter().chain([cut(&ended.join(", "))]).collect())
        })
        .collect();
    render_rows(&["Hostile tenants", "runs", "votes", "refused", ""], &rows)
}

/// Returns the beginning of a text that is too long for a line.
fn cut(text: &str) -> String {
    const MOST: usize = 40;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= MOST { line.to_owned() } else { line.chars().take(MOST - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::hostile::Deeds;
    use crate::tenants::load::Load;
    use crate::tenants::report::tests::{measured, run};

    #[test]
    fn no_line_is_wider_than_a_hundred_columns_and_problems_are_shown() {
        let mut beside = run(Some(Load::Conditions), 10, 123_456, 512.0, 20);
        beside.gates.problem = Some("a gate was not done after 60 s; ".repeat(9));
        beside.deeds = Deeds { created: 123_456, votes: 123_456, refused: 123_456, ..Deeds::default() };
        beside.deeds.ended = [("Quarantined".to_owned(), 12_345), ("Succeeded".to_owned(), 12_345)].into();
        let text = render(&measured(30, vec![beside]));
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        assert!(text.contains("conditions, beside 10: a gate was not done"), "{text}");
        assert!(text.contains("missed"), "{text}");
    }
}
