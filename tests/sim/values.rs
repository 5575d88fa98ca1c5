//! How many bytes the long values of runs and namespaces may have: the counter, and what is refused.

use serde_json::{Value, json};
use signoff_controller::ValueSettings;
use signoff_tests::sim::Resource;

use crate::{
    ending::list,
    harness::{NAMESPACE, OPERATOR, Stage, workflows},
    people::verdict,
    scenarios::{RUN, chain, gate, set},
};

fn bounded(per_workflow: u64, per_namespace: u64) -> Stage {
    Stage { values: ValueSettings { per_workflow, per_namespace }, ..Stage::new() }
}

/// A run with one value of so many bytes.
fn of_bytes(bytes: usize, letter: &str) -> Value {
    chain(json!([set("only", &letter.repeat(bytes))]))
}

fn bytes_of(workflow: &Value) -> u64 {
    workflow["status"]["valueBytes"].as_u64().unwrap_or(0)
}

/// The bytes of the Blobs of a run.
fn stored(stage: &Stage, workflow: &Value) -> u64 {
    let blobs = stage.server.values(&Resource::new("signoff.dev", "blobs"), None);
    let its =
        |blob: &&Value| list(&blob["metadata"]["ownerReferences"]).any(|o| o["uid"] == workflow["metadata"]["uid"]);
    blobs.iter().filter(its).map(|blob| blob["spec"]["data"].as_str().unwrap().len() as u64).sum()
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_room_for_so_many_bytes_and_a_deleted_workflow_leaves_its_own() {
    let stage = bounded(100_000, 10_000);
    let life = stage.begin_and_settle(OPERATOR).await;
    stage.apply("first", &of_bytes(6000, "x"));
    let first = stage.ended("first").await;
    assert_eq!((bytes_of(&first), stored(&stage, &first)), (6000, 6000), "the output is the same value");
    // The next operator counts the same, from what the Workflows say.
    life.crash().await;
    let _life = stage.begin_and_settle(OPERATOR).await;
    stage.apply("second", &of_bytes(6000, "y"));
    let second = stage.ended("second").await;
    assert_eq!((&second["status"]["phase"], stored(&stage, &second)), (&json!("Failed"), 0));
    let [record] = &list(&second["status"]["steps"]).collect::<Vec<_>>()[..] else { panic!("{second}") };
    assert_eq!(record["error"]["class"], "TooLarge");
    for words in ["leave 4000 in this namespace", "delete Workflows that have ended", "--max-value-bytes-per-namespace"]
    {
        assert!(second["status"]["message"].as_str().unwrap().contains(words), "{words} in {second}");
    }
    stage.apply("short", &of_bytes(4000, "z"));
    assert_eq!(stage.ended("short").await["status"]["phase"], "Succeeded", "what fits is not refused");
    stage.apply_in("elsewhere", "second", &of_bytes(6000, "y"));
    let over = |workflow: &Value| workflow["status"]["phase"] == "Succeeded";
    stage.server.until(&workflows(), "elsewhere", "second", over).await;

    assert!(stage.server.remove(&workflows(), NAMESPACE, "first"));
    stage.pass(1).await;
    stage.apply("third", &of_bytes(6000, "y"));
    assert_eq!(stage.ended("third").await["status"]["phase"], "Succeeded", "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn runs_that_store_values_at_the_same_moment_do_not_pass_the_limit_together() {
    let stage = bounded(100_000, 10_000);
    for n in 0..20_u8 {
        stage.apply(&format!("w{n}"), &of_bytes(2000, &char::from(b'a' + n).to_string()));
    }
    let _life = stage.begin_and_settle(OPERATOR).await;
    let (mut sum, mut succeeded) = (0, 0);
    for n in 0..20 {
        let ended = stage.ended(&format!("w{n}")).await;
        sum += stored(&stage, &ended);
        succeeded += usize::from(ended["status"]["phase"] == "Succeeded");
    }
    assert_eq!((sum, succeeded), (10_000, 5), "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_workflow_has_room_for_so_many_bytes_and_what_a_gate_shows_is_counted() {
    let stage = bounded(10_000, 1_000_000);
    let _life = stage.begin_and_settle(OPERATOR).await;
    let shown = gate("review", json!({"contextDisplay": "{{ steps.first.response }}, {{ steps.first.response }}"}));
    stage.apply(RUN, &chain(json!([set("first", &"x".repeat(2500)), shown, set("last", &"y".repeat(3000))])));
    stage.people().asked("review").await;
    stage.pass(1).await;
    assert_eq!(stage.approval()["spec"]["request"]["contextRef"]["size"], 5002);
    let waiting = stage.workflow(RUN);
    assert_eq!((bytes_of(&waiting), stored(&stage, &waiting)), (7502, 7502));
    stage.people().decides("alice", "review", 60, verdict("Approve")).await;
    let ended = stage.ended(RUN).await;
    assert_eq!(ended["status"]["phase"], "Failed");
    let why = ended["status"]["message"].as_str().unwrap();
    assert!(why.contains("10502 bytes") && why.contains("--max-value-bytes-per-workflow"), "{why}");
    assert_eq!((bytes_of(&ended), stored(&stage, &ended)), (7502, 7502));
}
