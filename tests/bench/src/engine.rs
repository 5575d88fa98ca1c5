//! The engine alone: steps a second, the time of a turn at a journal of 10, 100 and 1,000 records, and bytes a step.
//! The program `operator/engine/benches/engine.rs` measures it, built as the engine is shipped.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use signoff_tests::cargo::{cargo, output};
use signoff_tests::say;

use super::table::table;

const PROGRAM: [&str; 6] = ["bench", "--quiet", "--package", "signoff-engine", "--bench", "engine"];
/// The run whose replay is a goal.
const REPLAYED: &str = "chain of 1,000 calls";

/// A run, as the program reports it.
#[derive(Debug, Deserialize)]
struct Run {
    name: String,
    records: usize,
    seconds: f64,
    settling: f64,
    /// Microseconds a turn, at journals of about 10, 100 and 1,000 records.
    advance: [Option<f64>; 3],
    object: usize,
    segments: usize,
}

/// An agent, as the program `operator/engine/benches/agents.rs` reports it.
#[derive(Debug, Deserialize)]
pub(super) struct AgentReplay {
    pub(super) turns: usize,
    pub(super) calls: usize,
    pub(super) records: usize,
    /// The time of one transition at the end, which replays everything.
    pub(super) replay_ms: f64,
    /// The time of all transitions, from the beginning.
    pub(super) run_ms: f64,
}

/// Builds the engine as it is shipped, and measures replays of agents.
pub(super) fn agent_replays() -> Result<Vec<AgentReplay>> {
    let program = ["bench", "--quiet", "--package", "signoff-engine", "--bench", "agents"];
    lines(&output(&mut cargo(&program))?)
}

pub(super) fn measure() -> Result<String> {
    say::step("building the engine as it is shipped, and running it");
    Ok(render(&runs(&[])?))
}

/// Builds the engine's benchmark as the engine is shipped.
pub(super) fn build() -> Result<()> {
    output(&mut cargo(&[&PROGRAM[..], &["--no-run"]].concat())).map(drop)
}

/// Measures a turn of a chain of calls at a journal of a thousand records, which replays all of them; in milliseconds.
pub(super) fn replay_ms() -> Result<f64> {
    let runs = runs(&["--", REPLAYED])?;
    let at_a_thousand = runs.iter().find(|run| run.name == REPLAYED).and_then(|run| run.advance[2]);
    Ok(at_a_thousand.with_context(|| format!("the engine's benchmark has no turn at 1,000 records of a {REPLAYED}"))?
        / 1000.0)
}

fn runs(arguments: &[&str]) -> Result<Vec<Run>> {
    lines(&output(&mut cargo(&[&PROGRAM[..], arguments].concat()))?)
}

/// Reads the output of a program of the engine: a line of JSON for each run.
fn lines<T: DeserializeOwned>(text: &str) -> Result<Vec<T>> {
    let read = |line| serde_json::from_str(line).with_context(|| format!("the engine's benchmark says {line}"));
    let runs: Vec<T> = text.lines().map(read).collect::<Result<_>>()?;
    ensure!(!runs.is_empty(), "the engine's benchmark says nothing");
    Ok(runs)
}

fn render(runs: &[Run]) -> String {
    let head = [
        "a run, one result a turn",
        "steps",
        "steps a second",
        "µs a turn at 10",
        "100",
        "1,000 records",
        "1,000 : 100",
        "settling : turns",
        "bytes a step",
        "KiB in the Workflow",
        "in segments",
    ];
    let row = |run: &Run| {
        let [ten, hundred, thousand] = run.advance;
        vec![
            run.records.to_string(),
            format!("{:.0}", run.records as f64 / run.seconds),
            microseconds(ten),
            microseconds(hundred),
            microseconds(thousand),
            ratio(thousand, hundred),
            format!("{:.2}", run.settling / run.seconds),
            ((run.object + run.segments) / run.records.max(1)).to_string(),
            (run.object / 1024).to_string(),
            (run.segments / 1024).to_string(),
        ]
    };
    table(&head.map(str::to_owned), runs.iter().map(|run| (run.name.as_str(), row(run))))
}

fn microseconds(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.0}"))
}

fn ratio(one: Option<f64>, other: Option<f64>) -> String {
    one.zip(other).map_or_else(|| "–".to_owned(), |(one, other)| format!("{:.1}", one / other))
}

#[cfg(test)]
mod tests {
    use super::{Run, render};

    #[test]
    fn what_a_run_did_not_come_to_is_a_dash() {
        let line = r#"{"name": "a chain", "records": 100, "seconds": 0.5, "settling": 0.1,
            "advance": [10.0, 25.4, null], "object": 30720, "segments": 20480}"#;
        let run: Vec<Run> = serde_json::from_str(line).into_iter().collect();
        let shown = render(&run);
        for part in ["a chain", "200", "25", "–", "0.20", "512", "30", "20"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
