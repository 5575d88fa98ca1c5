//! The memory that waiting runs cost the operator, and runs that are too large to be accepted.

use serde_json::{Value, json};

use crate::{
    harness::{Harness, NAMESPACE, OPERATOR, approvals, condition},
    people::verdict,
    scenarios::gate,
};

/// Returns a gate in a Workflow whose spec has exactly `bytes` bytes as JSON.
fn run_of_bytes(bytes: usize) -> Value {
    let of = |report: &str| {
        json!({
            "requestedBy": "dana", "inputs": [{"name": "report", "value": report}],
            "steps": [gate("review", json!({}))],
        })
    };
    let parsed: signoff_api::WorkflowSpec = serde_json::from_value(of("")).unwrap();
    let rest = signoff_engine::plan::spec_bytes(&parsed);
    let words = "The customer ordered twelve crates and received eleven; the twelfth was damaged. ";
    of(&words.chars().cycle().take(bytes - rest).collect::<String>())
}

#[tokio::test(start_paused = true)]
async fn forty_large_waiting_workflows_take_a_tenth_of_their_bytes() {
    let harness = Harness::new();
    const BYTES: usize = 300_000;
    for n in 0..40 {
        harness.apply(&format!("w{n}"), &run_of_bytes(BYTES));
    }
    for _ in 0..2 {
        // The first operator starts the runs, and the second one finds them waiting.
        let life = harness.begin_and_settle(OPERATOR).await;
        harness.pass(60).await;
        let waiting = harness.server.values(&approvals(), Some(NAMESPACE)).len();
        assert_eq!(waiting, 40, "{}", harness.server.story());
        assert_eq!(harness.metric("signoff_objects_in_use"), 0);
        let bytes = harness.metric("signoff_rest_bytes");
        assert!(bytes > 0 && bytes < 40 * i64::try_from(BYTES).unwrap() / 10, "{bytes} bytes");
        life.crash().await;
    }
    // The runs are complete: a vote is counted, and its run goes on.
    let _life = harness.begin_and_settle(OPERATOR).await;
    let first = harness.workflow("w0")["status"]["pending"][0].as_str().unwrap().to_owned();
    harness.people().vote("alice", &first, verdict("Approve"));
    assert_eq!(harness.wait_for_end("w0").await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_workflow_one_byte_too_large_is_refused_and_one_just_below_runs() {
    let harness = Harness::new();
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.apply("below", &run_of_bytes(512 * 1024));
    harness.apply("above", &run_of_bytes(512 * 1024 + 1));
    let refused = harness.wait_for_end("above").await;
    assert_eq!(condition(&refused, "Accepted"), ("False".to_owned(), "TooLarge".to_owned()));
    let why = refused["status"]["message"].as_str().unwrap_or_default();
    assert!(
        why.starts_with("spec: it has 524289 bytes, 524") && why.contains("the maximum is 524288; let a step"),
        "{why}"
    );
    harness.wait_for_phase("below", "Waiting").await;
    assert_eq!(condition(&harness.workflow("below"), "Accepted").0, "True");
}
