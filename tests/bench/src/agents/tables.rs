//! The tables of `cargo xtask bench agents`, and whether its goals were met.

use signoff_tests::mcp::McpVersion;

use super::run::{CalledBy, Run};
use super::{CALLS, Load, Measured};
use crate::engine::AgentReplay;
use crate::table::{hundredths, machine, percent, table, tenths, whole};

/// The processors that others may use when a figure is judged.
const OTHERS: f64 = 0.2;
/// The calls of the journal whose replay has a goal.
const REPLAYED: usize = 200;

pub(super) fn render(measured: &Measured) -> String {
    let mut parts = vec![machine(), render_replays(&measured.replays)];
    if !measured.runs.is_empty() {
        parts.extend([render_runs(measured), render_goals(measured)]);
    }
    parts.join("\n\n")
}

fn render_replays(replays: &[AgentReplay]) -> String {
    let head = ["a journal of an agent", "turns", "calls", "records", "replay, ms", "the whole run, ms"];
    let row = |replay: &AgentReplay| {
        vec![
            replay.turns.to_string(),
            replay.calls.to_string(),
            replay.records.to_string(),
            hundredths(replay.replay_ms),
            tenths(replay.run_ms),
        ]
    };
    table(&head.map(str::to_owned), replays.iter().map(|replay| ("", row(replay))))
}

fn render_runs(measured: &Measured) -> String {
    let load = measured.load;
    let head =
        ["", "turns a second", "operator CPU a turn, ms", "API server CPU", "state writes a turn", "reads", "others"];
    let bare = measured.bare.iter().map(|bare| {
        let cells = vec![whole(bare.turns_per_second(load)), dash(), dash(), dash(), dash(), hundredths(bare.others)];
        (format!("a bare loop, {} call a turn", CALLS[0]), cells)
    });
    let runs = measured.runs.iter().chain(&measured.runs_of_servers).map(|run| {
        let cells = vec![
            whole(run.turns_per_second(load)),
            hundredths(run.operator_ms(load)),
            hundredths(run.api_server_ms(load)),
            hundredths(run.state_writes / load.turns() as f64),
            hundredths(run.reads / load.turns() as f64),
            hundredths(run.used.others()),
        ];
        (row_name(run), cells)
    });
    let rows: Vec<_> = bare.chain(runs).collect();
    let Load { agents, turns, latency } = load;
    let title = format!("{agents} agents of {turns} turns, a provider that answers after {} ms", latency.as_millis());
    format!(
        "{title}\n{}",
        table(&head.map(str::to_owned), rows.iter().map(|(name, cells)| (name.as_str(), cells.clone())))
    )
}

fn row_name(run: &Run) -> String {
    match run.called_by {
        CalledBy::Http => format!("operator, calls of a turn: {}", run.calls),
        CalledBy::Mcp(version) => format!("operator, by MCP {}: {}", version.text(), run.calls),
    }
}

fn render_goals(measured: &Measured) -> String {
    let Load { agents, turns, latency } = measured.load;
    let is_usual = agents == 50 && turns == 20 && latency.is_zero();
    let others = measured.runs.iter().chain(&measured.runs_of_servers).map(|run| run.used.others());
    let others = others.chain(measured.bare.iter().map(|bare| bare.others)).fold(0.0, f64::max);
    let verdict = |is_met: bool| match () {
        () if measured.is_debug => "not judged: a debug build".to_owned(),
        () if !is_usual => "not judged: the goals are for 50 agents of 20 turns, without latency".to_owned(),
        () if others > OTHERS => format!("not judged: others used {others:.2} processors"),
        () if is_met => "met".to_owned(),
        () => "missed".to_owned(),
    };
    let mut rows = Vec::new();
    if let Some(share) = measured.share_of_bare_loop() {
        rows.push(("rate, of the bare loop's", vec![percent(share), "≥ 40 %".to_owned(), verdict(share >= 0.4)]));
    }
    if let Some((turn, call)) = measured.operator_ms() {
        rows.push((
            "operator CPU a turn with a call, ms",
            vec![hundredths(turn), "≤ 2.00".to_owned(), verdict(turn <= 2.0)],
        ));
        rows.push((
            "operator CPU a further call, ms",
            vec![hundredths(call), "≤ 0.50".to_owned(), verdict(call <= 0.5)],
        ));
    }
    if let Some(share) = measured.share_of_http(McpVersion::Stateless) {
        let row = vec![hundredths(share), "≤ 1.30".to_owned(), verdict(share <= 1.3)];
        rows.push(("operator CPU a turn by MCP 2026-07-28, of that by HTTP", row));
    }
    if let Some(share) = measured.share_of_http(McpVersion::Session) {
        rows.push(("operator CPU a turn by MCP 2025-11-25, of that by HTTP", vec![hundredths(share), dash(), dash()]));
    }
    let of_200 = measured.replays.iter().filter(|replay| replay.calls <= REPLAYED);
    let slowest = of_200.map(|replay| replay.replay_ms).fold(0.0, f64::max);
    rows.push(("replay of 200 calls, ms", vec![hundredths(slowest), "≤ 10".to_owned(), verdict(slowest <= 10.0)]));
    table(&["figure", "measured", "goal", ""].map(str::to_owned), rows)
}

fn dash() -> String {
    "–".to_owned()
}
