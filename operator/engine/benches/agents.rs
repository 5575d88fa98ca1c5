//! The time that the engine takes to replay an agent that called tools: a line of JSON a run.
//!
//! Reports times only and needs no cluster: `cargo xtask bench agents` builds it in the release profile and prints the
//! numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures the engine from outside")]
#![allow(clippy::print_stdout, reason = "its output is the result")]

use std::{collections::BTreeMap, time::Instant};

use serde_json::{Value, json};
use signoff_api::{Moment, Workflow};
use signoff_engine::{
    Blobs, Control, Fact, Journal, Now, Plan, Settings, Transition, advance,
    transition::{Call, CallContent, Reply},
};

/// The number of replays of each journal. The fastest counts, because other programs only slow one down.
const TIMES: usize = 50;
/// The numbers of turns and of calls in each: the same number of calls in few and in many turns, and half of it.
const SHAPES: [(usize, usize); 5] = [(10, 10), (20, 10), (99, 2), (7, 30), (19, 1)];
/// The length of a result, in characters.
const RESULT: usize = 300;

fn main() {
    let plan = plan();
    for (turns, calls) in SHAPES {
        println!("{}", measure(&plan, turns, calls));
    }
}

/// Returns the plan of an agent with a tool, a schema of its arguments, and a gate whose condition is evaluated at each
/// call.
fn plan() -> Plan {
    let parameters = json!({
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {"id": {"type": "integer"}, "why": {"type": "string", "maxLength": 500}},
    });
    let approvers = json!([{"kind": "User", "name": "alice"}]);
    let spec = json!({
        "requestedBy": "dana",
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": [{"name": "clerk", "tools": ["lookup"], "limits": {"turns": 100, "calls": 1000}}],
        "tools": [{"name": "lookup", "step": "find", "description": "Finds an order.", "effects": "read", "parameters": parameters}],
        "gates": [{"name": "large", "type": "custom", "condition": "args.id > 100000", "hitl": {"prompt": "Go on?", "approvers": approvers}}],
        "steps": [
            {"name": "handle", "agent": {"name": "clerk", "input": "help"}},
            {"name": "find", "http": {"url": "https://orders.example/{{ args.id }}"}},
        ],
    });
    let workflow: Workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "uid": "u"}, "spec": spec,
    }))
    .unwrap();
    Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap_or_else(|why| panic!("{why:?}"))
}

fn now() -> Now {
    Now::new(Moment::from(jiff::Timestamp::UNIX_EPOCH), "e")
}

fn step(plan: &Plan, journal: Journal, facts: Vec<Fact>, blobs: &mut Blobs) -> Transition {
    let mut transition = advance(plan, Control::default(), journal, facts, blobs, &now());
    assert!(transition.missing.is_empty(), "all that was stored is at hand");
    blobs.extend(std::mem::take(&mut transition.blobs));
    transition
}

fn reply(call: &Call, calls: usize, turn: usize) -> Reply {
    let CallContent::Agent(_) = call.content else {
        return Reply { response: "x".repeat(RESULT).into(), ..Reply::default() };
    };
    let asked = |at: usize| {
        let arguments = json!({"id": turn * 1000 + at, "why": "the customer asks where the parcel is"});
        json!({"id": format!("call_{turn}_{at}"), "tool": "lookup", "arguments": arguments.to_string()})
    };
    let response = json!({"text": "I look that up.", "calls": (0..calls).map(asked).collect::<Vec<Value>>()});
    Reply { response, facts: BTreeMap::from([("calls".to_owned(), calls.to_string())]), ..Reply::default() }
}

/// Returns the results of all calls in flight.
fn ends(transition: &Transition, calls: usize, turn: usize) -> Vec<Fact> {
    let end = |call: &Call| Fact::CallFinished {
        path: call.path.clone(),
        attempt: call.attempt,
        result: Ok(reply(call, calls, turn)),
        at: now().at,
    };
    transition.calls().map(end).collect()
}

fn measure(plan: &Plan, turns: usize, calls: usize) -> Value {
    let mut blobs = Blobs::new();
    let began = Instant::now();
    let mut transition = step(plan, Journal::default(), Vec::new(), &mut blobs);
    for turn in 1..=turns {
        for _ in 0..2 {
            let facts = ends(&transition, calls, turn);
            transition = step(plan, transition.journal, facts, &mut blobs);
        }
    }
    let run = began.elapsed();
    let replays = (0..TIMES).map(|_| {
        let began = Instant::now();
        let again = advance(plan, Control::default(), transition.journal.clone(), Vec::new(), &blobs, &now());
        let took = began.elapsed();
        assert_eq!(again.journal.records().len(), turns * (calls + 1) + 1);
        took
    });
    let fastest = replays.min().unwrap();
    json!({
        "turns": turns, "calls": turns * calls, "records": transition.journal.records().len(),
        "replay_ms": fastest.as_secs_f64() * 1000.0, "run_ms": run.as_secs_f64() * 1000.0,
    })
}
