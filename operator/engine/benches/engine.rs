//! The time that the engine takes for runs of a thousand steps, and their size: a line of JSON a run.
//!
//! Arguments are names of runs; without any, all are measured.
//! Reports times only and needs no cluster: `cargo xtask bench engine` builds it in the release profile and prints the
//! numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures the engine from outside")]
#![allow(clippy::print_stdout, reason = "its output is the result")]

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use signoff_api::{Moment, Workflow, WorkflowStatus};
use signoff_engine::{
    Blobs, Command, Control, Fact, Journal, JournalLimits, Now, Plan, Settings, advance, transition::Reply,
};

/// The number of repetitions of each run. The fastest counts, because other programs only slow one down.
const TIMES: usize = 5;
/// The approximate lengths of the journals, in records, at which a transition is timed.
const LENGTHS: [usize; 3] = [10, 100, 1000];

fn main() {
    // Cargo adds `--bench`.
    let wanted: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for (name, spec) in [
        ("chain of 1,000 calls", chain(1000, call)),
        ("chain of 1,000 set steps", chain(1000, set)),
        ("chain of 100 calls", chain(100, call)),
        ("parallel, 100 branches of 10 calls", parallel(100, 10)),
        ("graph, 1,000 visits of calls", graph(1000)),
    ] {
        if !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            continue;
        }
        let plan = plan(&spec);
        let runs: Vec<Measured> = (0..TIMES).map(|_| run(&plan)).collect();
        println!("{}", report(name, &runs));
    }
}

/// The first step has no step before it.
fn newest(at: usize) -> &'static str {
    if at == 0 { "" } else { "{{ last_response[:9] }}" }
}

fn call(at: usize) -> Value {
    json!({"name": format!("step-{at}"), "http": {"url": format!("http://x/{}", newest(at))}})
}

fn set(at: usize) -> Value {
    json!({"name": format!("step-{at}"), "set": {"value": format!("{} and on", newest(at))}})
}

fn chain(steps: usize, step: fn(usize) -> Value) -> Value {
    json!({"steps": (0..steps).map(step).collect::<Vec<_>>()})
}

fn parallel(branches: usize, steps: usize) -> Value {
    let step = |branch: usize, at: usize| {
        let mut step = call(at);
        step["branch"] = json!(format!("branch-{branch}"));
        step
    };
    let all = (0..branches).flat_map(|branch| (0..steps).map(move |at| step(branch, at)));
    json!({"pattern": {"parallel": {}}, "steps": all.collect::<Vec<_>>()})
}

/// Returns a graph that goes to and fro until its limit of visits.
fn graph(visits: usize) -> Value {
    let node = |name| json!({"name": name, "http": {"url": "http://x/"}});
    let edge = |from, to| json!({"from": from, "choose": [{"when": format!("steps.{from}.status == 'succeeded'"), "to": to}, {"when": "else", "to": "end"}]});
    let edges = [edge("ping", "pong"), edge("pong", "ping")];
    json!({
        "pattern": {"graph": {"edges": edges, "maxIterations": visits, "maxSteps": visits}},
        "steps": [node("ping"), node("pong"), {"name": "end", "set": {"value": "done"}}],
    })
}

fn plan(spec: &Value) -> Plan {
    let mut spec = spec.clone();
    spec["requestedBy"] = json!("dana");
    let workflow: Workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "uid": "u"}, "spec": spec,
    }))
    .unwrap();
    Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap_or_else(|why| panic!("{why:?}"))
}

/// The measurements of one run.
struct Measured {
    turns: Vec<(usize, Duration)>,
    records: usize,
    settling: Duration,
    /// The maximum size of the journal inside of the Workflow object, in bytes.
    object: usize,
    segments: i64,
}

/// Runs to the end with one result for each transition, and folds the journal after each.
fn run(plan: &Plan) -> Measured {
    let now = Now::new(Moment::from(jiff::Timestamp::UNIX_EPOCH), "e");
    let (mut journal, mut facts, mut answered) = (Journal::default(), Vec::new(), BTreeSet::new());
    let (mut turns, mut settling, mut object) = (Vec::new(), Duration::ZERO, 0);
    let mut blobs = Blobs::new();
    loop {
        let before = journal.records().len();
        let begun = Instant::now();
        let mut transition = advance(plan, Control::default(), journal, facts, &blobs, &now);
        turns.push((before, begun.elapsed()));
        assert!(transition.missing.is_empty(), "all that was stored is at hand");
        blobs.extend(std::mem::take(&mut transition.blobs));
        let begun = Instant::now();
        transition.journal.fold_finished(&JournalLimits::default()).unwrap();
        settling += begun.elapsed();
        let next = transition.commands.iter().find_map(|command| match command {
            Command::Call(call) if answered.insert((call.path.clone(), call.attempt)) => Some(call),
            _ => None,
        });
        // A transition finishes the calls that the one before began. Only some are measured, because measuring takes
        // longer than the transition.
        if turns.len() % 50 == 0 || transition.end.is_some() {
            object = object.max(serde_json::to_vec(&status(&transition.journal)).unwrap().len());
        }
        let Some(call) = next.filter(|_| transition.end.is_none()) else {
            let segments = transition.journal.segments().iter().map(|segment| segment.size).sum();
            return Measured { turns, records: transition.journal.records().len(), settling, object, segments };
        };
        let reply = Reply { response: "x".repeat(200).into(), ..Reply::default() };
        facts =
            vec![Fact::CallFinished { path: call.path.clone(), attempt: call.attempt, result: Ok(reply), at: now.at }];
        journal = transition.journal;
    }
}

/// Returns the part of the status that a commit writes for the journal.
fn status(journal: &Journal) -> WorkflowStatus {
    WorkflowStatus {
        seq: journal.seq(),
        steps: journal.steps(),
        segments: journal.segments().to_vec(),
        ..WorkflowStatus::default()
    }
}

fn report(name: &str, runs: &[Measured]) -> Value {
    let total = |run: &Measured| run.turns.iter().map(|(_, took)| *took).sum::<Duration>();
    let best = runs.iter().min_by_key(|run| total(run)).unwrap();
    let at = |length: usize| {
        let near = |(records, _): &&(usize, Duration)| (length * 8 / 10..=length * 12 / 10).contains(records);
        let of_run = |run: &Measured| {
            let took: Vec<_> = run.turns.iter().filter(near).map(|(_, took)| took.as_secs_f64() * 1e6).collect();
            (!took.is_empty()).then(|| took.iter().sum::<f64>() / took.len() as f64)
        };
        runs.iter().filter_map(of_run).reduce(f64::min)
    };
    json!({
        "name": name, "records": best.records, "seconds": total(best).as_secs_f64(),
        "settling": best.settling.as_secs_f64(), "advance": LENGTHS.map(at), "object": best.object, "segments": best.segments,
    })
}
