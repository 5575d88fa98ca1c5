//! Drivers of the engine: any bytes as a whole Workflow, or as a decision about an Approval.

use serde_json::json;
use signoff_api::{Approval, Decision, Digest, Moment, Workflow};
use signoff_engine::{
    Control, Journal, Now, Plan, Settings, advance,
    approval::{OwnerState, tally},
    transition::Blobs,
};

fn now() -> Now {
    Now::new(Moment::from(jiff::Timestamp::UNIX_EPOCH), "e")
}

/// Decodes a Workflow from JSON, plans it, and computes its first transition.
pub fn spec(data: &[u8]) {
    let Ok(workflow) = serde_json::from_slice::<Workflow>(data) else { return };
    if let Ok(plan) = Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()) {
        let transition = advance(&plan, Control::default(), Journal::default(), Vec::new(), &Blobs::new(), &now());
        let _ = advance(&plan, Control::default(), transition.journal, Vec::new(), &Blobs::new(), &now());
    }
}

/// Decodes a decision from JSON and counts it at a gate whose request has every part.
pub fn decision(data: &[u8]) {
    let Ok(decision) = serde_json::from_slice::<Decision>(data) else { return };
    let request = json!({
        "workflow": {"name": "w", "uid": "00000000-0000-0000-0000-000000000001"},
        "gate": {"name": "g", "type": "step", "path": "g", "visit": 1},
        "specDigest": Digest::of_bytes(b""), "guardEpoch": "e", "deadline": "2030-01-01T00:00:00Z", "prompt": "?",
        "allowedVerdicts": signoff_api::Verdict::ALL,
        "quorums": [{"source": "gate g", "approvers": [{"kind": "User", "name": "alice"}], "threshold": 1}],
        "requestedBy": "dana", "timeout": {"after": "1h"}, "digest": Digest::of_bytes(b""),
        "escalateTo": [{"kind": "User", "name": "olga"}],
        "form": {"questions": [
            {"id": "a", "pattern": "[a-z]+", "maxLength": 9, "required": false},
            {"id": "b", "options": [{"id": "x"}, {"id": "y"}], "multiple": true, "required": false},
            {"id": "c", "schema": {"type": "object"}, "required": false},
        ]},
    });
    let object = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "a"}, "spec": {"request": request},
    });
    let Ok(mut approval) = serde_json::from_value::<Approval>(object) else { return };
    approval.spec.decisions.insert("alice".into(), decision);
    let result = tally(&approval, OwnerState::Live, &now());
    approval.status = Some(result.status);
    let _ = tally(&approval, OwnerState::Live, &now());
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::mutations::survives;

    /// Returns the seeds of both drivers: valid objects, and shapes that have broken other projects.
    fn corpus() -> (Vec<Value>, Vec<Value>) {
        let workflow = |steps: Value| {
            json!({
                "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
                "spec": {
                    "requestedBy": "dana",
                    "inputs": [{"name": "n", "type": "integer", "value": 9_007_199_254_740_993_u64}],
                    "providers": [{"name": "p", "scripted": {"replies": [{"text": "hi"}]}}],
                    "agents": [{"name": "a", "system": "{{ inputs.n }}"}],
                    "steps": steps,
                },
            })
        };
        let specs = vec![
            workflow(json!([
                {"name": "one", "agent": {"name": "a", "input": "x"}, "retry": {"limit": 2, "backoff": {"base": "1s"}}},
                {"name": "ask", "hitl": {"prompt": "{{ steps.one.response }}", "approvers": [{"kind": "Group", "name": "g"}],
                    "timeout": {"after": "1h", "action": "Default", "default": "x"}}},
                {"name": "two", "http": {"url": "http://{{ steps[0].response }}/"}, "skipIf": "hitl_response == 'rejected'"},
            ])),
            workflow(json!([{"name": "sum", "set": {"value": "x"}, "skipIf": vec!["1"; 4000].join("+")}])),
            workflow(json!([{"name": "map", "set": {"value": "x"},
            "skipIf": "[1,2,3].map(a, [1,2,3].map(b, [1,2,3].map(c, a*b*c))) == []"}])),
            workflow(
                json!([{"name": "deep", "set": {"value": format!("{{{{ {}1{} }}}}", "(".repeat(900), ")".repeat(900))}}]),
            ),
            workflow(json!([{"name": "huge", "set": {"value": "{{ 'x' * 1000000000 }}"}}])),
        ];
        let decisions = vec![
            json!({"verdict": "Approve", "reason": "ok", "groups": ["g"]}),
            json!({"verdict": "Modify", "parameters": {"response": {"a": [1, 2.5, null]}}}),
            json!({"verdict": "Respond", "answers": {"a": {"text": "abc"}, "b": {"options": ["x"]}, "c": {"text": "{}"}}}),
            json!({"verdict": "Escalate", "escalateTo": [{"kind": "User", "name": "olga"}]}),
            json!({"verdict": "Defer", "guidance": "\u{1b}[31m\u{202e}{{ x }}"}),
        ];
        (specs, decisions)
    }

    fn texts(seeds: &[Value]) -> Vec<String> {
        seeds.iter().map(Value::to_string).collect()
    }

    #[test]
    fn no_workflow_panics() {
        assert!(survives(texts(&corpus().0), 4000, spec));
    }

    #[test]
    fn no_decision_panics() {
        assert!(survives(texts(&corpus().1), 4000, decision));
    }
}
