//! Specs of gates: many, with timers, with reminders, and with long votes.

use serde_json::{Value, json};

/// The number of Workflows, and of gates of each, of the load `Gates`.
pub(super) const WORKFLOWS: usize = 40;
const GATES: usize = 24;
/// The number of people who vote. Their votes fill the 96 KiB that the small decisions of an Approval may have
/// together.
pub(super) const VOTERS: usize = 6;
/// Gates of a run with long votes.
const VOTED: usize = 12;
/// The characters of the text of a vote. With the rest of the vote they are less than 16 KiB.
const VOTE: usize = 15_500;

/// Returns gates that are open at once, without decisions.
pub(super) fn gates() -> Value {
    parallel(&json!({"timeout": {"after": "30s", "action": "Reject"}}))
}

/// Returns gates that send a reminder each second.
pub(super) fn reminders() -> Value {
    let timeout = json!({"after": "21s", "action": "Reject", "reminderInterval": "1s", "maxReminders": 20});
    parallel(&json!({"timeout": timeout}))
}

/// Returns a loop of a gate that is open for a second.
pub(super) fn timers() -> Value {
    let gate = json!({"timeout": {"after": "1s", "action": "Skip"}});
    json!({
        "pattern": {"graph": {"maxIterations": 100, "maxSteps": 100, "edges": [
            {"from": "ask", "choose": [
                {"when": "size(steps.ask.visits) < 50", "to": "ask"},
                {"when": "else", "to": "end"},
            ]},
        ]}},
        "steps": [gate_step("ask", &gate), {"name": "end", "set": {"value": "done"}}],
    })
}

/// Returns gates on a text each, which all voters must edit alike.
pub(super) fn long_votes(voters: &[String]) -> Value {
    let approvers: Vec<Value> = voters.iter().map(|name| json!({"kind": "User", "name": name})).collect();
    let gate = json!({
        "approvers": approvers, "threshold": VOTERS, "allowedVerdicts": ["Approve", "Modify", "Reject"],
        "timeout": {"after": "1h", "action": "Reject"},
    });
    let branch = |index: usize| {
        let draft = json!({"name": format!("d{index}"), "set": {"value": "a draft"}});
        [draft, gate_step(&format!("g{index}"), &gate)].map(|mut step| {
            step["branch"] = json!(format!("b{index}"));
            step
        })
    };
    json!({"pattern": {"parallel": {}}, "steps": (0..VOTED).flat_map(branch).collect::<Vec<_>>()})
}

/// Returns the merge patch of a vote with a text of 16 KiB.
pub(super) fn long_vote(voter: &str) -> Value {
    json!({"spec": {"decisions": {voter: {"verdict": "Modify", "parameters": {"response": "x".repeat(VOTE)}}}}})
}

fn parallel(fields: &Value) -> Value {
    let gate = |index: usize| {
        let mut step = gate_step(&format!("g{index}"), fields);
        step["branch"] = json!(format!("b{index}"));
        step
    };
    json!({"pattern": {"parallel": {}}, "steps": (0..GATES).map(gate).collect::<Vec<_>>()})
}

fn gate_step(name: &str, fields: &Value) -> Value {
    let mut hitl = json!({"prompt": "Go on?", "approvers": [{"kind": "User", "name": "nobody@example.com"}]});
    for (field, value) in fields.as_object().into_iter().flatten() {
        hitl[field] = value.clone();
    }
    json!({"name": name, "hitl": hitl})
}
