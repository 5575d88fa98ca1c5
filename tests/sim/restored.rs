//! Runs that are copies from a backup: the operator starts nothing of them, whatever people set, and only a cancel ends
//! them.

use serde_json::json;

use crate::{
    ending::list,
    harness::{Harness, NAMESPACE, OPERATOR, workflows},
    people::verdict,
    scenarios::{RUN, chain, gate, post},
};

/// Returns a payment behind a gate that approves itself, as a run or as a copy from a backup.
fn payment(restored: bool) -> serde_json::Value {
    let approves = json!({"timeout": {"after": "1m", "action": "Approve"}});
    let mut spec =
        chain(json!([post("pay", "42 EUR", "fail"), gate("review", approves), post("tell", "paid", "fail")]));
    if restored {
        spec["restored"] = json!(true);
    }
    spec
}

#[tokio::test(start_paused = true)]
async fn a_restored_run_opens_no_record_for_any_value_of_suspend() {
    let harness = Harness::new();
    harness.apply(RUN, &payment(true));
    for suspend in [json!(null), json!(true), json!(false)] {
        harness.people().set_field(RUN, "suspend", suspend.clone());
        let life = harness.begin(OPERATOR);
        harness.pass(3600).await;
        let run = harness.workflow(RUN);
        assert_eq!(harness.condition("Restored"), ("True".to_owned(), "NotResumed".to_owned()), "{run:#}");
        assert_eq!((&run["status"]["phase"], list(&run["status"]["steps"]).count()), (&json!("Pending"), 0), "{run:#}");
        assert!(run["status"]["specDigest"].is_null(), "it is not accepted: {run:#}");
        let message = run["status"]["message"].as_str().unwrap();
        assert!(message.contains("never continues: cancel it") && message.contains("rerun"), "{message}");
        assert_eq!((harness.approvals().len(), harness.world.effects().len()), (0, 0), "{suspend}");
        life.crash().await;
    }
    assert_eq!(harness.events("Restored").len(), 1, "it is told once");
}

#[tokio::test(start_paused = true)]
async fn a_restored_run_ends_when_it_is_cancelled() {
    for restored in [true, false] {
        let harness = Harness::new();
        harness.apply(RUN, &payment(restored));
        let life = harness.begin(OPERATOR);
        harness.pass(600).await;
        harness.people().set_field(RUN, "cancel", true);
        let ended = harness.wait_for_end(RUN).await;
        let (phase, effects) = if restored { ("Cancelled", 0) } else { ("Succeeded", 2) };
        assert_eq!(ended["status"]["phase"], phase, "{ended:#}");
        assert_eq!(harness.world.effects().len(), effects, "{}", harness.server.story());
        assert_eq!(harness.condition("Restored"), Default::default());
        life.crash().await;
    }
}

/// Starts a run that has paid and waits, and whose operator is gone.
async fn crash_after_payment() -> Harness {
    let harness = Harness::new();
    harness.apply(RUN, &payment(false));
    let life = harness.begin(OPERATOR);
    harness.people().wait_for_gate("review").await;
    life.crash().await;
    assert_eq!(harness.world.effects().len(), 1, "{}", harness.server.story());
    harness
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_created_with_the_status_of_an_older_object_never_continues() {
    for (suspend, cancel) in [(json!(null), false), (json!(true), false), (json!(null), true)] {
        let harness = crash_after_payment().await;
        let mut copy = harness.workflow(RUN);
        harness.server.remove(&workflows(), NAMESPACE, RUN);
        harness.pass(10).await;
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            copy["metadata"].as_object_mut().unwrap().shift_remove(field);
        }
        copy["spec"]["suspend"] = suspend;
        harness.server.insert(copy).unwrap();
        let life = harness.begin(OPERATOR);
        harness.pass(3600).await;
        let run = harness.workflow(RUN);
        assert_eq!(harness.condition("Restored"), ("True".to_owned(), "NotResumed".to_owned()), "{run:#}");
        let message = run["status"]["message"].as_str().unwrap();
        assert!(message.contains("status.startedAt is before its creation"), "{message}");
        if cancel {
            harness.people().set_field(RUN, "cancel", true);
            assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
            harness.pass(600).await;
        }
        let asked = harness.approvals().into_iter().filter(|one| one["status"]["outcome"].is_null()).count();
        assert_eq!((asked, harness.world.effects().len()), (0, 1), "{}", harness.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_status_began_seconds_before_it_continues() {
    let harness = crash_after_payment().await;
    let life = harness.begin(OPERATOR);
    harness.server.edit(&workflows(), NAMESPACE, RUN, |run| {
        let created: jiff::Timestamp = run["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
        run["status"]["startedAt"] = json!((created - jiff::SignedDuration::from_secs(4)).to_string());
    });
    harness.people().decide("alice", "review", 10, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!(harness.world.effects().len(), 2, "{}", harness.server.story());
    assert_eq!(harness.condition("Restored"), Default::default());
    life.crash().await;
}
