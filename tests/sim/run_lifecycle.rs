//! The life of a run beside its steps: cancelled, suspended, deleted, recreated, over time, over.
//! What a person took back never happens, and what was meant for one run never meets another.

use serde_json::{Value, json};
use signoff_tests::sim::{Garbage, Verb};

use crate::{
    harness::{NAMESPACE, OPERATOR, Stage, approvals, workflows},
    people::verdict,
    scenarios::{RUN, chain, gate, post, set},
};

/// A gate before a payment.
fn payment() -> Value {
    chain(json!([gate("review", json!({})), post("pay", "42 EUR", "fail")]))
}

async fn asked(stage: &Stage) -> String {
    stage.apply(RUN, &payment());
    stage.people().asked("review").await
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_never_executes_after_a_late_approval() {
    // However close the approval comes to the cancellation, and whoever sees which first.
    for milliseconds in [0, 1, 50, 400, 5000] {
        let stage = Stage::new();
        stage.server.delay_events(OPERATOR, std::time::Duration::from_millis(200));
        let _life = stage.begin(OPERATOR);
        let approval = asked(&stage).await;
        stage.pass(10).await;
        stage.people().sets(RUN, "cancel", true);
        stage.server.clock().pass(std::time::Duration::from_millis(milliseconds)).await;
        stage.people().votes("alice", &approval, verdict("Approve"));
        assert_eq!(stage.ended(RUN).await["status"]["phase"], "Cancelled");
        stage.pass(3600).await;
        assert_eq!(stage.world.effects().len(), 0, "{milliseconds} ms:\n{}", stage.server.story());
        assert!(stage.approval()["status"]["outcome"].is_object(), "it may not stay open");
    }
}

#[tokio::test(start_paused = true)]
async fn the_approval_of_a_deleted_run_is_cancelled_even_where_the_garbage_collector_is_late() {
    let stage = Stage::new();
    stage.server.garbage(Garbage::WhenTold);
    let _life = stage.begin(OPERATOR);
    let approval = asked(&stage).await;
    stage.pass(10).await;
    assert!(stage.server.remove(&workflows(), NAMESPACE, RUN));
    stage.pass(10).await;
    assert_eq!(stage.approval()["status"]["phase"], "Cancelled", "{}", stage.server.story());
    stage.people().votes("alice", &approval, verdict("Approve"));
    stage.pass(10).await;
    assert_eq!(stage.approval()["status"]["phase"], "Cancelled");
    assert_eq!(stage.server.collect_garbage(), 1);
    stage.pass(3600).await;
    assert_eq!(stage.world.effects().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_recreated_run_never_meets_its_predecessors_approval() {
    for operator_lives in [true, false] {
        let stage = Stage::new();
        stage.server.garbage(Garbage::WhenTold);
        let mut life = stage.begin(OPERATOR);
        let old = asked(&stage).await;
        stage.pass(10).await;
        if !operator_lives {
            life.crash().await;
            life = stage.begin("nobody");
        }
        stage.people().votes("alice", &old, verdict("Approve"));
        stage.server.remove(&workflows(), NAMESPACE, RUN);
        stage.apply(RUN, &payment());
        if !operator_lives {
            life.crash().await;
            life = stage.begin(OPERATOR);
        }
        stage.pass(60).await;
        let new = stage.people().asked("review").await;
        assert_ne!(old, new, "the uid is in the digest, and the digest in the name");
        assert_eq!(stage.workflow(RUN)["status"]["pending"], json!([new]), "{}", stage.server.story());
        assert_eq!(stage.world.effects().len(), 0, "that approval was for another run");
        stage.people().votes("alice", &new, verdict("Approve"));
        assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded");
        assert_eq!(stage.world.effects().len(), 1);
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_was_deleted_is_asked_again_and_its_vote_is_not_assumed() {
    for operator_lives in [true, false] {
        let stage = Stage::new();
        let mut life = stage.begin(OPERATOR);
        let approval = asked(&stage).await;
        stage.pass(10).await;
        let asked = stage.approval();
        if !operator_lives {
            life.crash().await;
            stage.people().votes("alice", &approval, verdict("Approve"));
            life = stage.begin("nobody");
        }
        assert!(stage.server.remove(&approvals(), NAMESPACE, &approval));
        if !operator_lives {
            life.crash().await;
            life = stage.begin(OPERATOR);
        }
        stage.pass(600).await;
        let again = stage.approval();
        assert_eq!(
            again["spec"]["request"], asked["spec"]["request"],
            "exactly the same question, the deadline included"
        );
        assert_ne!(again["metadata"]["uid"], asked["metadata"]["uid"]);
        assert_eq!(again["spec"]["decisions"].as_object().map_or(0, serde_json::Map::len), 0);
        assert_eq!(stage.world.effects().len(), 0);
        stage.people().votes("bob", &approval, verdict("Approve"));
        assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded");
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_starts_nothing_however_long_and_whoever_comes() {
    let stage = Stage::new();
    let mut spec = payment();
    spec["suspend"] = json!(true);
    stage.apply(RUN, &spec);
    for _ in 0..2 {
        let life = stage.begin(OPERATOR);
        stage.pass(3600).await;
        life.crash().await;
    }
    assert_eq!(stage.approvals().len(), 0);
    let life = stage.begin(OPERATOR);
    stage.people().sets(RUN, "suspend", false);
    let approval = stage.people().asked("review").await;
    stage.people().sets(RUN, "suspend", true);
    stage.people().votes("alice", &approval, verdict("Approve"));
    stage.pass(3600).await;
    assert_eq!(stage.workflow(RUN)["status"]["phase"], "Suspended");
    assert_eq!(stage.approval()["status"]["phase"], "Approved", "gates stay decidable");
    assert_eq!(stage.world.effects().len(), 0);
    stage.people().sets(RUN, "suspend", false);
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded");
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_finished_run_is_deleted_at_the_instant_its_time_is_over() {
    for operator_lives in [true, false] {
        let stage = Stage::new();
        let mut spec = chain(json!([set("only", "x")]));
        spec["ttlAfterFinished"] = json!("1h");
        stage.apply(RUN, &spec);
        let mut life = stage.begin(OPERATOR);
        stage.ended(RUN).await;
        let finished = stage.server.clock().now();
        if !operator_lives {
            stage.pass(1800).await;
            life.crash().await;
            life = stage.begin(OPERATOR);
        }
        stage.server.until_all(|_| stage.workflow(RUN).is_null()).await;
        let took = stage.server.clock().now().duration_since(finished);
        assert_eq!((took.as_secs(), took.subsec_millis() < 5), (3600, true), "{took:?}");
        stage.pass(3600).await;
        assert_eq!(stage.server.count(|entry| entry.verb == Verb::Delete), 1);
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_active_deadline_counts_work_and_no_human_time() {
    use signoff_tests::sim::Answer;
    let run = |first: u64, second: u64| async move {
        let stage = Stage::new();
        let get = |name: &str| json!({"name": name, "http": {"url": "http://slow.test/"}, "timeout": "10m"});
        let mut spec = chain(json!([get("one"), gate("review", json!({})), get("two")]));
        spec["activeDeadline"] = json!("60s");
        for (step, seconds) in [("refund/one", first), ("refund/two", second)] {
            stage.world.answers(step, Answer::value("ok").after(std::time::Duration::from_secs(seconds)));
        }
        stage.apply(RUN, &spec);
        let life = stage.begin(OPERATOR);
        stage.people().decides("alice", "review", 20 * 3600, verdict("Approve")).await;
        let decided = stage.server.clock().now();
        let ended = stage.ended(RUN).await;
        let took = stage.server.clock().now().duration_since(decided).as_secs();
        life.crash().await;
        (ended["status"]["phase"].clone(), ended["status"]["message"].clone(), took)
    };
    let (phase, _, _) = run(25, 25).await;
    assert_eq!(phase, "Succeeded", "a day at the gate is nobody's work");
    let (phase, message, took) = run(25, 300).await;
    assert_eq!((phase, took), (json!("Failed"), 35), "it ends to the second: {message}");
    assert!(message.as_str().unwrap_or_default().contains("activeDeadline"), "{message}");
}
