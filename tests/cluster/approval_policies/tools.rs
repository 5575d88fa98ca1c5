//! Policies for the tools of agents, with the real operator: an author's gates and declarations never answer a policy's
//! gate.

use serde_json::{Value, json};
use signoff_api::{conditions, workflow::WorkflowPhase};

use super::{
    harness::{Harness, approve, gate, message, reason},
    phase,
};

/// Returns an agent with a tool that pays back and claims to read, and with a gate that lets every call pass.
fn refund(gates: Value) -> Value {
    json!({
        "providers": [{"name": "models", "scripted": {"replies": [
            {"contains": "help", "calls": [{"tool": "refund", "arguments": {"amount": 420}}]},
            {"contains": "paid 420", "text": "It was paid."},
            {"contains": "Error", "text": "It could not be paid."},
        ]}}],
        "tools": [{"name": "refund", "step": "pay", "description": "Pays back.", "effects": "read",
                   "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}}}],
        "agents": [{"name": "clerk", "tools": ["refund"]}],
        "gates": gates,
        "steps": [
            {"name": "handle", "agent": {"name": "clerk", "input": "help"}},
            {"name": "pay", "set": {"value": "paid {{ args.amount }}"}},
        ],
    })
}

fn own(more: Value) -> Value {
    let mut gate = json!({"name": "own", "type": "toolExecution", "hitl": gate("x", json!({}))["hitl"]});
    for (field, value) in more.as_object().into_iter().flatten() {
        gate[field] = value.clone();
    }
    json!([gate])
}

#[tokio::test]
async fn a_policy_asks_about_a_call_that_its_author_allows_and_says_to_read() {
    let harness = Harness::open("policies").await;
    let before = json!({"kinds": ["tool"], "calls": {"changes": true}});
    let step = json!({"name": "guard", "before": before, "hitl": gate("x", json!({}))["hitl"]});
    harness.create_cluster_policy("alpha", json!({"steps": [step], "tools": {"requireGate": true}})).await;
    harness.create_run_as("admin", "refund", refund(own(json!({"allowedTools": ["*"]})))).await;
    let (approval, request) = harness.wait_for_gate("refund", "handle/.turn-1/.call-1/.gate").await;
    let action = request.action.unwrap();
    let source = format!("ClusterApprovalPolicy {}", harness.policy_name("alpha"));
    assert_eq!(action.gates.len(), 1, "the author's gate does not ask: {action:?}");
    assert_eq!(action.gates[0].source.as_ref(), Some(&source));
    assert_eq!(action.gates[0].because, "it asks about calls of tools, that can change something");
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    let run = harness.wait_for_end("refund").await;
    assert_eq!(run.status.unwrap().outputs.as_deref(), Some("It was paid."));
}

#[tokio::test]
async fn a_policy_forbids_calls_and_requires_gates() {
    let harness = Harness::open("policies").await;
    harness.create_cluster_policy("alpha", json!({"tools": {"requireGate": true}})).await;
    harness.create_run_as("admin", "bare", refund(own(json!({"allowedTools": ["refund"]})))).await;
    let refused = harness.wait_for_end("bare").await;
    assert_eq!(reason(&refused, conditions::ACCEPTED).as_deref(), Some("NotAllowed"));
    assert!(
        message(&refused).contains("requires that people are asked about every call of refund"),
        "{}",
        message(&refused)
    );

    harness.create_run_as("admin", "asked", refund(own(json!({})))).await;
    let (approval, _) = harness.wait_for_gate("asked", "handle/.turn-1/.call-1/.gate").await;
    // A call that becomes forbidden while people are asked does not run, although they approve it.
    harness.create_cluster_policy("beta", json!({"tools": {"never": [{"kinds": ["set"]}]}})).await;
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    let run = harness.wait_for_end("asked").await;
    assert_eq!(phase(&run), WorkflowPhase::Succeeded);
    let record = run.status.unwrap().steps.into_iter().find(|record| record.path.ends_with("/pay")).unwrap();
    assert_eq!(record.error.unwrap().class, "NotAllowed");

    harness.create_run_as("admin", "never", refund(own(json!({})))).await;
    let refused = harness.wait_for_end("never").await;
    assert!(message(&refused).contains("forbids calls of tools that are set steps"), "{}", message(&refused));
}
