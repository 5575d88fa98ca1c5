//! Specs that call the tenant's own server: answers that are long, late or failures, agents, and a long journal.

use serde_json::{Value, json};

use super::load::MODEL;
use crate::agents;
use crate::server::Server;

/// Calls at once of a run of long or late answers. Four runs exceed the limit of a namespace.
const BRANCHES: usize = 12;
/// Records of a long journal. Each call after them replays all.
const RECORDS: usize = 900;
const CALLS: usize = 90;
/// The characters of the response of each record: together less than the 256 KiB that are kept in the journal.
const RESPONSE: usize = 270;

/// Returns an agent with tools, as in `cargo xtask bench agents`.
pub(super) fn agents(server: &Server) -> Value {
    let (turns, calls, _) = MODEL;
    agents::workflow("", server, turns, calls)["spec"].take()
}

/// Returns agents with a tool, whose model answers with calls of 8 MiB.
pub(super) fn answers(server: &Server) -> Value {
    let mut spec = agents(server);
    spec["providers"][0]["openai"]["baseURL"] = json!(server.provider_of_long_answers());
    let tool = spec["steps"][1].take();
    let ask = json!({"agent": {"name": "clerk", "input": "help"}, "onError": "continue", "timeout": "30s"});
    let mut steps = branches(&ask);
    steps.push(tool);
    spec["steps"] = json!(steps);
    spec["pattern"] = json!({"parallel": {"failFast": false}});
    spec
}

/// Returns requests that get no answer within their time.
pub(super) fn slow(server: &Server) -> Value {
    let request = json!({"http": {"url": server.never()}, "timeout": "3s", "onError": "continue"});
    json!({"pattern": {"parallel": {"failFast": false}}, "steps": branches(&request)})
}

/// Returns requests that fail, and are retried after a tenth of a second.
pub(super) fn failing(server: &Server) -> Value {
    let retry = json!({"limit": 20, "backoff": {"base": "100ms", "factor": 1, "jitter": 0}});
    let request = json!({"http": {"url": server.failing()}, "retry": retry, "onError": "continue"});
    json!({"pattern": {"parallel": {"failFast": false}}, "steps": branches(&request)})
}

/// Returns a loop that fills the journal, and then calls: each call is a transition that replays all records.
pub(super) fn journal(server: &Server) -> Value {
    json!({
        "pattern": {"graph": {"maxIterations": 1000, "maxSteps": 1000, "edges": [
            {"from": "fill", "choose": [
                {"when": format!("size(steps.fill.visits) < {RECORDS}"), "to": "fill"},
                {"when": "else", "to": "call"},
            ]},
            {"from": "call", "choose": [
                {"when": format!("size(steps.call.visits) < {CALLS}"), "to": "call"},
                {"when": "else", "to": "end"},
            ]},
        ]}},
        "steps": [
            {"name": "fill", "set": {"value": "x".repeat(RESPONSE)}},
            {"name": "call", "http": {"url": format!("{}1", server.tool())}},
            {"name": "end", "set": {"value": "done"}},
        ],
    })
}

fn branches(step: &Value) -> Vec<Value> {
    let branch = |index: usize| {
        let mut step = step.clone();
        step["name"] = json!(format!("s{index}"));
        step["branch"] = json!(format!("b{index}"));
        step
    };
    (0..BRANCHES).map(branch).collect()
}
