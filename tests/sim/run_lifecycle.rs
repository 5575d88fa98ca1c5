//! The life of a run beside its steps: cancelled, suspended, deleted, recreated, over time, ended. A decision that a
//! person took back has no effect, and nothing meant for one run reaches another.

use serde_json::{Value, json};
use signoff_tests::sim::{Garbage, Verb};

use crate::{
    harness::{Harness, NAMESPACE, OPERATOR, approvals, workflows},
    people::{name, verdict, was_asked_late},
    scenarios::{RUN, chain, gate, post, set},
};

/// Returns a gate before a payment.
fn payment() -> Value {
    chain(json!([gate("review", json!({})), post("pay", "42 EUR", "fail")]))
}

async fn apply_and_wait_for_gate(harness: &Harness) -> String {
    harness.apply(RUN, &payment());
    harness.people().wait_for_gate("review").await
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_never_executes_after_a_late_approval() {
    // However short the time between approval and cancellation, and whichever the operator sees first.
    for milliseconds in [0, 1, 50, 400, 5000] {
        let harness = Harness::new();
        harness.server.delay_events(OPERATOR, std::time::Duration::from_millis(200));
        let _life = harness.begin(OPERATOR);
        let approval = apply_and_wait_for_gate(&harness).await;
        harness.pass(10).await;
        harness.people().set_field(RUN, "cancel", true);
        harness.server.clock().pass(std::time::Duration::from_millis(milliseconds)).await;
        harness.people().vote("alice", &approval, verdict("Approve"));
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
        harness.pass(3600).await;
        assert_eq!(harness.world.effects().len(), 0, "{milliseconds} ms:\n{}", harness.server.story());
        assert!(harness.approval()["status"]["outcome"].is_object(), "it may not stay open");
    }
}

#[tokio::test(start_paused = true)]
async fn the_approval_of_a_deleted_run_is_cancelled_before_garbage_collection() {
    let harness = Harness::new();
    harness.server.garbage(Garbage::WhenTold);
    let _life = harness.begin(OPERATOR);
    let approval = apply_and_wait_for_gate(&harness).await;
    harness.pass(10).await;
    assert!(harness.server.remove(&workflows(), NAMESPACE, RUN));
    harness.pass(10).await;
    assert_eq!(harness.approval()["status"]["phase"], "Cancelled", "{}", harness.server.story());
    harness.people().vote("alice", &approval, verdict("Approve"));
    harness.pass(10).await;
    assert_eq!(harness.approval()["status"]["phase"], "Cancelled");
    assert_eq!(harness.server.collect_garbage(), 1);
    harness.pass(3600).await;
    assert_eq!(harness.world.effects().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_recreated_run_never_uses_the_approval_of_the_deleted_run() {
    for operator_lives in [true, false] {
        let harness = Harness::new();
        harness.server.garbage(Garbage::WhenTold);
        let mut life = harness.begin(OPERATOR);
        let old = apply_and_wait_for_gate(&harness).await;
        harness.pass(10).await;
        if !operator_lives {
            life.crash().await;
            life = harness.begin("nobody");
        }
        harness.people().vote("alice", &old, verdict("Approve"));
        harness.server.remove(&workflows(), NAMESPACE, RUN);
        harness.apply(RUN, &payment());
        if !operator_lives {
            life.crash().await;
            life = harness.begin(OPERATOR);
        }
        harness.pass(60).await;
        let new = harness.people().wait_for_gate("review").await;
        assert_ne!(old, new, "the uid is in the digest, and the digest in the name");
        assert_eq!(harness.workflow(RUN)["status"]["pending"], json!([new]), "{}", harness.server.story());
        assert_eq!(harness.world.effects().len(), 0, "that approval was for another run");
        harness.people().vote("alice", &new, verdict("Approve"));
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
        assert_eq!(harness.world.effects().len(), 1);
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_was_deleted_is_asked_again_and_its_vote_is_not_assumed() {
    for operator_lives in [true, false] {
        let harness = Harness::new();
        let mut life = harness.begin(OPERATOR);
        let approval = apply_and_wait_for_gate(&harness).await;
        harness.pass(10).await;
        let asked = harness.approval();
        if !operator_lives {
            life.crash().await;
            harness.people().vote("alice", &approval, verdict("Approve"));
            life = harness.begin("nobody");
        }
        assert!(harness.server.remove(&approvals(), NAMESPACE, &approval));
        if !operator_lives {
            life.crash().await;
            life = harness.begin(OPERATOR);
        }
        harness.pass(600).await;
        // Recreated as it was, it is past its own deadline: the question is asked again with the full time.
        let (late, again): (Vec<_>, Vec<_>) = harness.approvals().into_iter().partition(was_asked_late);
        let ([late], [again]) = (&late[..], &again[..]) else { panic!("{late:#?} {again:#?}") };
        assert_eq!(
            late["spec"]["request"], asked["spec"]["request"],
            "exactly the same question, the deadline included"
        );
        let question = |approval: &Value| {
            let mut request = approval["spec"]["request"].clone();
            for field in ["gate", "deadline", "closesAt", "digest"] {
                request[field] = Value::Null;
            }
            request
        };
        assert_eq!(question(again), question(&asked), "the same question");
        assert_ne!(again["metadata"]["uid"], asked["metadata"]["uid"]);
        assert_eq!(again["spec"]["decisions"].as_object().map_or(0, serde_json::Map::len), 0);
        assert_eq!(harness.world.effects().len(), 0);
        harness.people().vote("bob", &name(again), verdict("Approve"));
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_starts_nothing_until_it_is_resumed() {
    let harness = Harness::new();
    let mut spec = payment();
    spec["suspend"] = json!(true);
    harness.apply(RUN, &spec);
    for _ in 0..2 {
        let life = harness.begin(OPERATOR);
        harness.pass(3600).await;
        life.crash().await;
    }
    assert_eq!(harness.approvals().len(), 0);
    let life = harness.begin(OPERATOR);
    harness.people().set_field(RUN, "suspend", false);
    let approval = harness.people().wait_for_gate("review").await;
    harness.people().set_field(RUN, "suspend", true);
    harness.people().vote("alice", &approval, verdict("Approve"));
    harness.pass(3600).await;
    assert_eq!(harness.workflow(RUN)["status"]["phase"], "Suspended");
    assert_eq!(harness.approval()["status"]["phase"], "Approved", "gates stay decidable");
    assert_eq!(harness.world.effects().len(), 0);
    harness.people().set_field(RUN, "suspend", false);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_finished_run_is_deleted_at_the_instant_its_time_is_over() {
    for operator_lives in [true, false] {
        let harness = Harness::new();
        let mut spec = chain(json!([set("only", "x")]));
        spec["ttlAfterFinished"] = json!("1h");
        harness.apply(RUN, &spec);
        let mut life = harness.begin(OPERATOR);
        harness.wait_for_end(RUN).await;
        let finished = harness.server.clock().now();
        if !operator_lives {
            harness.pass(1800).await;
            life.crash().await;
            life = harness.begin(OPERATOR);
        }
        harness.server.until_all(|_| harness.workflow(RUN).is_null()).await;
        let took = harness.server.clock().now().duration_since(finished);
        assert_eq!((took.as_secs(), took.subsec_millis() < 5), (3600, true), "{took:?}");
        harness.pass(3600).await;
        assert_eq!(harness.server.count(|entry| entry.verb == Verb::Delete), 1);
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_active_deadline_counts_work_and_no_human_time() {
    use signoff_tests::sim::Answer;
    let run = |first: u64, second: u64| async move {
        let harness = Harness::new();
        let get = |name: &str| json!({"name": name, "http": {"url": "http://slow.test/"}, "timeout": "10m"});
        let mut spec = chain(json!([get("one"), gate("review", json!({})), get("two")]));
        spec["activeDeadline"] = json!("60s");
        for (step, seconds) in [("refund/one", first), ("refund/two", second)] {
            harness.world.answers(step, Answer::value("ok").after(std::time::Duration::from_secs(seconds)));
        }
        harness.apply(RUN, &spec);
        let life = harness.begin(OPERATOR);
        harness.people().decide("alice", "review", 20 * 3600, verdict("Approve")).await;
        let decided = harness.server.clock().now();
        let ended = harness.wait_for_end(RUN).await;
        let took = harness.server.clock().now().duration_since(decided).as_secs();
        life.crash().await;
        (ended["status"]["phase"].clone(), ended["status"]["message"].clone(), took)
    };
    let (phase, _, _) = run(25, 25).await;
    assert_eq!(phase, "Succeeded", "a day at the gate is nobody's work");
    let (phase, message, took) = run(25, 300).await;
    assert_eq!((phase, took), (json!("Failed"), 35), "it ends to the second: {message}");
    assert!(message.as_str().unwrap_or_default().contains("activeDeadline"), "{message}");
}
