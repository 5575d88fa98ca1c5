//! Tests that a transition of an agent with many turns and calls costs in proportion to them. The cost is the number of
//! read records.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_api::{Moment, Workflow};

use crate::{
    Control, Fact, Journal, Now, Plan, Settings, Transition, advance,
    journal::reads,
    transition::{Blobs, Call, CallContent, Command, Reply},
};

/// Returns the plan of an agent that may look up and pay, with a gate about large payments that does not ask here.
fn plan() -> Plan {
    let parameters = json!({"type": "object", "properties": {"id": {"type": "integer"}}});
    let tool = |name: &str, step: &str| json!({"name": name, "step": step, "description": name, "effects": "read", "parameters": parameters});
    let approvers = json!([{"kind": "User", "name": "alice"}]);
    let spec = json!({
        "requestedBy": "dana",
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": [{"name": "clerk", "tools": ["lookup"], "limits": {"turns": 100, "calls": 1000}}],
        "tools": [tool("lookup", "find")],
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
    Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap()
}

fn step(plan: &Plan, journal: Journal, facts: Vec<Fact>, blobs: &mut Blobs) -> Transition {
    let now = Now::new(Moment::from(jiff::Timestamp::UNIX_EPOCH), "e");
    let transition = advance(plan, Control::default(), journal, facts, blobs, &now);
    assert!(transition.missing.is_empty(), "all that was stored is at hand");
    blobs.extend(transition.blobs.iter().cloned());
    transition
}

/// Returns the result of a call: a turn of the model calls `calls` tools, a tool answers.
fn finish_call(call: &Call, calls: usize, number: usize) -> Fact {
    let lookup_call =
        |at: usize| json!({"id": format!("{number}-{at}"), "tool": "lookup", "arguments": format!("{{\"id\":{at}}}")});
    let reply = match &call.content {
        CallContent::Agent(_) => Reply {
            response: json!({"text": "", "calls": (0..calls).map(lookup_call).collect::<Vec<Value>>()}),
            facts: BTreeMap::from([("calls".to_owned(), calls.to_string())]),
            ..Reply::default()
        },
        _ => Reply { response: "found".into(), ..Reply::default() },
    };
    let at = Moment::from(jiff::Timestamp::UNIX_EPOCH);
    Fact::CallFinished { path: call.path.clone(), attempt: call.attempt, result: Ok(reply), at }
}

fn finish_calls(transition: &Transition, calls: usize, number: usize) -> Vec<Fact> {
    let commands = transition.commands.iter();
    let calls_in_flight =
        commands.filter_map(|command| if let Command::Call(call) = command { Some(&**call) } else { None });
    calls_in_flight.map(|call| finish_call(call, calls, number)).collect()
}

/// Drives a run through `turns` turns with `calls` calls each. Returns the number of its records, and the number of
/// records that the next transition reads.
fn count_read_records(turns: usize, calls: usize) -> (usize, usize) {
    let (plan, mut blobs) = (plan(), Blobs::new());
    let mut transition = step(&plan, Journal::default(), Vec::new(), &mut blobs);
    for number in 1..=turns {
        let facts = finish_calls(&transition, calls, number);
        assert_eq!(facts.len(), 1, "the model is asked");
        transition = step(&plan, transition.journal, facts, &mut blobs);
        let facts = finish_calls(&transition, calls, number);
        assert_eq!(facts.len(), calls);
        transition = step(&plan, transition.journal, facts, &mut blobs);
    }
    let records = transition.journal.records().len();
    let journal = Journal::new(transition.journal.seq(), transition.journal.records().to_vec());
    let (_, reads_of_records) = reads::of(|| step(&plan, journal, Vec::new(), &mut blobs));
    (records, reads_of_records)
}

#[test]
fn a_transition_of_an_agent_reads_each_record_at_most_12_times() {
    for (turns, calls) in [(5, 2), (60, 2), (10, 32)] {
        let (records, reads_of_records) = count_read_records(turns, calls);
        assert_eq!(records, turns * (calls + 1) + 1);
        assert!(
            reads_of_records <= 12 * records,
            "{turns} turns of {calls} calls: {reads_of_records} looks at {records} records"
        );
    }
}
