//! The limits on the bytes of long values of runs and namespaces: the counter, and the refusals.

use serde_json::{Value, json};
use signoff_controller::ValueSettings;
use signoff_tests::sim::Resource;

use crate::{
    ending::list,
    harness::{Harness, NAMESPACE, OPERATOR, workflows},
    people::verdict,
    scenarios::{RUN, chain, gate, set},
};

fn harness_with_limits(per_workflow: u64, per_namespace: u64) -> Harness {
    Harness { values: ValueSettings { per_workflow, per_namespace }, ..Harness::new() }
}

/// Returns a run with one value of `bytes` bytes.
fn run_of_bytes(bytes: usize, letter: &str) -> Value {
    chain(json!([set("only", &letter.repeat(bytes))]))
}

fn bytes_of(workflow: &Value) -> u64 {
    workflow["status"]["valueBytes"].as_u64().unwrap_or(0)
}

/// Returns the bytes of the Blobs of a run.
fn stored_bytes(harness: &Harness, workflow: &Value) -> u64 {
    let blobs = harness.server.values(&Resource::new("signoff.dev", "blobs"), None);
    let its =
        |blob: &&Value| list(&blob["metadata"]["ownerReferences"]).any(|o| o["uid"] == workflow["metadata"]["uid"]);
    blobs.iter().filter(its).map(|blob| blob["spec"]["data"].as_str().unwrap().len() as u64).sum()
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_a_limit_of_bytes_that_a_deleted_workflow_frees() {
    let harness = harness_with_limits(100_000, 10_000);
    let life = harness.begin_and_settle(OPERATOR).await;
    harness.apply("first", &run_of_bytes(6000, "x"));
    let first = harness.wait_for_end("first").await;
    assert_eq!((bytes_of(&first), stored_bytes(&harness, &first)), (6000, 6000), "the output is the same value");
    // The next operator counts the same, from the Workflows.
    life.crash().await;
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.apply("second", &run_of_bytes(6000, "y"));
    let second = harness.wait_for_end("second").await;
    assert_eq!((&second["status"]["phase"], stored_bytes(&harness, &second)), (&json!("Failed"), 0));
    let [record] = &list(&second["status"]["steps"]).collect::<Vec<_>>()[..] else { panic!("{second}") };
    assert_eq!(record["error"]["class"], "TooLarge");
    for words in ["leave 4000 in this namespace", "delete Workflows that have ended", "--max-value-bytes-per-namespace"]
    {
        assert!(second["status"]["message"].as_str().unwrap().contains(words), "{words} in {second}");
    }
    harness.apply("short", &run_of_bytes(4000, "z"));
    assert_eq!(harness.wait_for_end("short").await["status"]["phase"], "Succeeded", "what fits is not refused");
    harness.apply_in("elsewhere", "second", &run_of_bytes(6000, "y"));
    let over = |workflow: &Value| workflow["status"]["phase"] == "Succeeded";
    harness.server.until(&workflows(), "elsewhere", "second", over).await;

    assert!(harness.server.remove(&workflows(), NAMESPACE, "first"));
    harness.pass(1).await;
    harness.apply("third", &run_of_bytes(6000, "y"));
    assert_eq!(harness.wait_for_end("third").await["status"]["phase"], "Succeeded", "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn runs_that_store_values_at_the_same_moment_do_not_pass_the_limit_together() {
    let harness = harness_with_limits(100_000, 10_000);
    for n in 0..20_u8 {
        harness.apply(&format!("w{n}"), &run_of_bytes(2000, &char::from(b'a' + n).to_string()));
    }
    let _life = harness.begin_and_settle(OPERATOR).await;
    let (mut sum, mut succeeded) = (0, 0);
    for n in 0..20 {
        let ended = harness.wait_for_end(&format!("w{n}")).await;
        sum += stored_bytes(&harness, &ended);
        succeeded += usize::from(ended["status"]["phase"] == "Succeeded");
    }
    assert_eq!((sum, succeeded), (10_000, 5), "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_workflow_has_a_limit_of_bytes_that_includes_gate_contexts() {
    let harness = harness_with_limits(10_000, 1_000_000);
    let _life = harness.begin_and_settle(OPERATOR).await;
    let shown = gate("review", json!({"contextDisplay": "{{ steps.first.response }}, {{ steps.first.response }}"}));
    harness.apply(RUN, &chain(json!([set("first", &"x".repeat(2500)), shown, set("last", &"y".repeat(3000))])));
    harness.people().wait_for_gate("review").await;
    harness.pass(1).await;
    assert_eq!(harness.approval()["spec"]["request"]["contextRef"]["size"], 5002);
    let waiting = harness.workflow(RUN);
    assert_eq!((bytes_of(&waiting), stored_bytes(&harness, &waiting)), (7502, 7502));
    harness.people().decide("alice", "review", 60, verdict("Approve")).await;
    let ended = harness.wait_for_end(RUN).await;
    assert_eq!(ended["status"]["phase"], "Failed");
    let why = ended["status"]["message"].as_str().unwrap();
    assert!(why.contains("10502 bytes") && why.contains("--max-value-bytes-per-workflow"), "{why}");
    assert_eq!((bytes_of(&ended), stored_bytes(&harness, &ended)), (7502, 7502));
}
