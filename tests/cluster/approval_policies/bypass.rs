//! Attempts of an author to bypass the people of a policy, on a real API server with the real operator: each is asked
//! again or refused, and an honest run succeeds.

use serde_json::{Value, json};
use signoff_api::{Workflow, conditions, journal::StepRecord, workflow::WorkflowPhase};

use super::harness::{Harness, approve, gate, message, reason};

/// Returns a policy whose people are asked before every call that leaves the operator.
fn policy_before_egress() -> Value {
    let hitl = json!({"prompt": "Let it through?", "approvers": [{"kind": "Group", "name": "sre"}]});
    json!({"steps": [{"name": "release", "before": {"kinds": ["egress"]}, "hitl": hitl}], "allowedHosts": ["*.example.com"]})
}

/// Returns a step with a POST to a host without a server. The step fails, and it is certain that nothing was sent.
fn pay() -> Value {
    json!({"name": "pay", "http": {"method": "POST", "url": "https://pay.example.com/", "body": "420"}})
}

fn gate_of_author(type_: &str, verdicts: Value) -> Value {
    let hitl = gate("own", json!({"allowedVerdicts": verdicts}))["hitl"].clone();
    json!([{"name": "own", "type": type_, "steps": ["pay"], "hitl": hitl}])
}

fn record(run: &Workflow, path: &str) -> Option<StepRecord> {
    run.status.as_ref().and_then(|status| status.steps.iter().find(|record| record.path == path)).cloned()
}

#[tokio::test]
async fn a_change_after_the_gate_of_a_policy_is_approved_again() {
    let harness = Harness::open("bypass").await;
    harness.create_cluster_policy("alpha", policy_before_egress()).await;
    let gates = gate_of_author("stepStart", json!(["Approve", "Modify", "Reject"]));
    harness.create_run_as("dana", "refund", json!({"steps": [pay()], "gates": gates})).await;
    let (approval, _) = harness.wait_for_gate("refund", "pay/.start").await;
    let modify =
        json!({"verdict": "Modify", "groups": ["finance"], "parameters": {"url": "https://other.example.com/"}});
    harness.decide("bob", &approval, modify).await.unwrap();
    let (approval, request) = harness.wait_for_gate("refund", "release-pay").await;
    let shown = request.reviews.unwrap().response;
    assert!(shown.contains("https://other.example.com/") && shown.starts_with("attempts: 1\n"), "{shown}");
    let waiting = harness.workflows().get("refund").await.unwrap();
    assert!(record(&waiting, "pay").is_none(), "nothing is sent before the yes");
    let refused = harness.decide("bob", &approval, approve(&["finance"])).await.unwrap_err();
    assert!(refused.contains("is not an approver of this gate"), "{refused}");
    harness.decide("erin", &approval, approve(&["sre"])).await.unwrap();
    let run = harness.wait_for_end("refund").await;
    let digest = |path: &str| record(&run, path).unwrap().input_digest;
    assert!(digest("pay").is_some());
    assert_eq!(digest("pay"), digest("release-pay"), "what runs is what was approved");
}

#[tokio::test]
async fn each_retry_is_approved_again_at_the_gate_of_a_policy() {
    let harness = Harness::open("bypass").await;
    harness.create_cluster_policy("alpha", policy_before_egress()).await;
    let mut gates = gate_of_author("errorEscalation", json!(["Retry", "Modify", "Reject"]));
    gates[0]["afterAttempts"] = json!(1);
    harness.create_run_as("dana", "refund", json!({"steps": [pay()], "gates": gates})).await;
    let (approval, _) = harness.wait_for_gate("refund", "release-pay").await;
    harness.decide("erin", &approval, approve(&["sre"])).await.unwrap();
    let (error, _) = harness.wait_for_gate("refund", "pay/.error").await;
    harness.decide("bob", &error, json!({"verdict": "Retry", "groups": ["finance"]})).await.unwrap();
    let (again, request) = harness.wait_for_gate("refund", "release-pay#2").await;
    assert_ne!(again, approval);
    assert_eq!(request.gate.visit, 2);
    harness.decide("erin", &again, approve(&["sre"])).await.unwrap();
    let (error, _) = harness.wait_for_gate("refund", "pay/.error#2").await;
    let modify = json!({"verdict": "Modify", "groups": ["finance"], "parameters": {"body": "42000"}});
    harness.decide("bob", &error, modify).await.unwrap();
    let (third, request) = harness.wait_for_gate("refund", "release-pay#3").await;
    assert!(request.reviews.unwrap().response.contains("42000"));
    harness.decide("erin", &third, json!({"verdict": "Reject", "groups": ["sre"]})).await.unwrap();
    let run = harness.wait_for_end("refund").await.status.unwrap();
    assert_eq!(run.phase, WorkflowPhase::Rejected);
    let attempts = run.steps.iter().filter(|record| record.path == "pay").count();
    assert_eq!(attempts, 2, "the third was rejected");
}

#[tokio::test]
async fn a_request_to_a_model_is_gated_by_a_policy_about_egress() {
    let harness = Harness::open("bypass").await;
    harness.create_cluster_policy("alpha", policy_before_egress()).await;
    let spec = json!({
        "providers": [{"name": "p", "openai": {"baseURL": "https://pay.example.com/v1"}}],
        "agents": [{"name": "poster", "model": "small"}],
        "steps": [{"name": "pay", "agent": {"name": "poster", "input": "send 420"}}],
    });
    harness.create_run_as("dana", "refund", spec).await;
    let (approval, request) = harness.wait_for_gate("refund", "release-pay").await;
    let shown = request.reviews.unwrap().response;
    assert!(shown.contains("https://pay.example.com/v1") && shown.contains("send 420"), "{shown}");
    harness.decide("erin", &approval, json!({"verdict": "Reject", "groups": ["sre"]})).await.unwrap();
    let run = harness.wait_for_end("refund").await;
    assert!(record(&run, "pay").is_none(), "nothing was sent");
}

#[tokio::test]
async fn no_step_runs_after_a_reject_unless_the_policy_allows_it() {
    let harness = Harness::open("bypass").await;
    let mut policy = json!({"gates": {"deciders": {"approvers": [{"kind": "Group", "name": "sre"}]}}});
    harness.create_cluster_policy("alpha", policy.clone()).await;
    let set = |name: &str| json!({"name": name, "set": {"value": "sent"}});
    let choose = json!([{"from": "review", "choose": [{"when": "else", "to": "send"}]}]);
    let ways = [
        ("chain", json!({"steps": [gate("review", json!({"onReject": "continue"})), set("send")]})),
        ("edge", json!({"pattern": {"graph": {"edges": choose}}, "steps": [gate("review", json!({})), set("send")]})),
    ];
    for (name, spec) in &ways {
        harness.create_run_as("dana", name, spec.clone()).await;
        let refused = harness.wait_for_end(name).await;
        assert_eq!(reason(&refused, conditions::ACCEPTED).as_deref(), Some("PolicyConflict"));
        assert!(message(&refused).contains("after a Reject here the run continues with send"), "{}", message(&refused));
    }
    harness.delete_cluster_policy("alpha").await;
    policy["gates"]["allowContinueAfterReject"] = json!(true);
    harness.create_cluster_policy("beta", policy).await;
    for (name, spec) in &ways {
        let run = format!("{name}-allowed");
        harness.create_run_as("dana", &run, spec.clone()).await;
        let (approval, request) = harness.wait_for_gate(&run, "review").await;
        assert_eq!(request.after_reject, ["send"]);
        let page = harness.plugin("bob", &["show", &approval]).await.ok().unwrap();
        assert!(page.contains("After Reject: the run goes on with send\n"), "{page}");
        harness.decide("erin", &approval, json!({"verdict": "Reject", "groups": ["sre"]})).await.unwrap();
        let ended = harness.wait_for_end(&run).await;
        assert_eq!(ended.status.as_ref().unwrap().phase, WorkflowPhase::Succeeded, "{}", message(&ended));
    }
}
