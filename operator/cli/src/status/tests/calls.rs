//! The rows of an agent's calls of tools.

use super::*;

#[test]
fn each_call_of_an_agent_has_a_row_with_its_outcome() {
    let turn = |calls: &Value| {
        let calls: Vec<_> =
            calls.as_array().unwrap().iter().map(|tool| json!({"id": tool, "tool": tool, "arguments": "{}"})).collect();
        json!({"response": json!({"text": "", "calls": calls}).to_string(), "facts": {"calls": calls.len().to_string()}})
    };
    let decided = |phase: &str, verdict: &str| json!({"decision": {"phase": phase, "verdict": verdict, "source": "Human", "decidedBy": ["bob"]}});
    let first = turn(&json!(["lookup", "nosuch", "refund", "letter"]));
    let spec = json!({
        "tools": [{"name": "lookup", "step": "find", "description": "Finds.", "effects": "read"}],
        "agents": [{"name": "clerk", "tools": ["lookup"]}],
        "steps": [
            {"name": "handle", "agent": {"name": "clerk", "input": "Help"}},
            {"name": "find", "set": {"value": "found"}},
        ],
    });
    let status = json!({"phase": "Running", "startedAt": ago(1800), "steps": [
        merge(record(1, "handle", "agent", "Succeeded", 100, Some(2)), &merge(json!({"done": 2}), &first)),
        record(3, "handle/.turn-1/.call-1/find", "set", "Succeeded", 98, Some(0)),
        merge(record(4, "handle/.turn-1/.call-3/.gate", "hitl", "Succeeded", 98, Some(10)), &decided("Skipped", "Skip")),
        merge(record(5, "handle/.turn-1/.call-4/.gate", "hitl", "Succeeded", 98, Some(20)), &decided("Rejected", "Reject")),
        merge(record(9, "handle/.turn-2", "agent", "Succeeded", 70, Some(2)), &merge(json!({"done": 10}), &turn(&json!(["lookup"])))),
    ]});
    let page = render(&workflow(&spec, &status), &[], now(), TERMINAL);
    let tree = page.split_once("\n\n").unwrap().1;
    assert_eq!(
        tree,
        "\
STEP            KIND    STATE       STARTED    TOOK
● handle        agent   Running     100s ago
├─✔ .call-1     call    Succeeded   98s ago    0s
│ │   calls lookup
│ └─✔ find      set     Succeeded   98s ago    0s
├─· .call-2     call    Not run
│     calls nosuch
│     refused before it began; the agent was told why
├─· .call-3     call    Skipped     98s ago    10s
│ │   calls refund
│ └─· .gate     gate    Skipped     98s ago    10s
│       by bob
├─✖ .call-4     call    Rejected    98s ago    20s
│ │   calls letter
│ └─✖ .gate     gate    Rejected    98s ago    20s
│       by bob
└─● .turn-2     agent   Running     70s ago
  └─· .call-1   call    Pending
        calls lookup
"
    );
}

#[test]
fn an_agent_whose_run_ended_at_a_call_is_not_succeeded() {
    let turn = json!({"response": json!({"text": "", "calls": [{"id": "1", "tool": "refund", "arguments": "{}"}]}).to_string(),
        "facts": {"calls": "1"}, "done": 2});
    let gate = |phase: &str, verdict: &str| {
        let outcome =
            json!({"decision": {"phase": phase, "verdict": verdict, "source": "Human", "decidedBy": ["bob"]}});
        merge(record(3, "handle/.turn-1/.call-1/pay/.start", "hitl", "Succeeded", 98, Some(20)), &outcome)
    };
    let agent = merge(record(1, "handle", "agent", "Succeeded", 100, Some(2)), &turn);
    let spec = json!({"steps": [{"name": "handle", "agent": {"name": "clerk", "input": "Help"}}]});
    let tree = |phase: &str, steps: &Value| {
        let status = json!({"phase": phase, "startedAt": ago(1800), "steps": steps});
        let page = render(&workflow(&spec, &status), &[], now(), TERMINAL);
        page.split_once("\n\n").unwrap().1.to_owned()
    };
    assert_eq!(
        tree("Rejected", &json!([agent, gate("Rejected", "Reject")])),
        "\
STEP             KIND     STATE      STARTED    TOOK
✖ handle         agent    Rejected   100s ago   22s
└─✖ .call-1      call     Rejected   98s ago    20s
  │   calls refund
  └─✖ pay        branch   Rejected   98s ago    20s
    └─✖ .start   gate     Rejected   98s ago    20s
          by bob
"
    );
    let skipped = record(4, "handle/.turn-1/.call-1/pay", "http", "Skipped", 78, Some(0));
    let next = record(5, "handle/.turn-2", "agent", "Succeeded", 78, Some(1));
    assert_eq!(
        tree("Succeeded", &json!([agent, gate("Skipped", "Skip"), skipped, next])),
        "\
STEP             KIND    STATE       STARTED    TOOK
✔ handle         agent   Succeeded   100s ago   23s
├─· .call-1      call    Skipped     78s ago    0s
│ │   calls refund
│ └─· pay        http    Skipped     78s ago    0s
│   └─· .start   gate    Skipped     98s ago    20s
│         by bob
└─✔ .turn-2      agent   Succeeded   78s ago    1s
"
    );
}
