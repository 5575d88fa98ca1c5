//! Votes that are void because the admission policies were changed, or because they are too old: the gate asks again
//! with the time that was left, and names the Approval that it repeats.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_api::{Moment, names::ANNOTATION_ASKS_AGAIN};
use signoff_tests::sim::{Crash, Fault, On};

use crate::{
    guarded::{guarded_with, set_actions},
    harness::{Harness, OPERATOR, approvals},
    people::verdict,
    scenarios::{RUN, chain, gate, post, set},
};

/// Returns the Approval of a visit of a gate.
fn approval_of(harness: &Harness, path: &str) -> Value {
    let all = harness.approvals();
    let found = all.into_iter().find(|approval| approval["spec"]["request"]["gate"]["path"] == path);
    found.unwrap_or_else(|| panic!("{path} was never asked:\n{}", harness.server.story()))
}

fn deadline(approval: &Value) -> Moment {
    serde_json::from_value(approval["spec"]["request"]["deadline"].clone()).unwrap()
}

/// Returns the time that a request had when it was created.
fn time_given(approval: &Value) -> Duration {
    let created: Moment = serde_json::from_value(approval["metadata"]["creationTimestamp"].clone()).unwrap();
    deadline(approval).since(created)
}

#[tokio::test(start_paused = true)]
async fn a_gate_keeps_its_remaining_time_when_its_votes_are_void() {
    let review = gate("review", json!({"threshold": 2, "timeout": {"after": "24h"}}));
    let (harness, operator) = guarded_with(json!([review, post("pay", "42 EUR", "fail")])).await;
    let life = harness.begin(&operator);
    harness.people().decide("alice", "review", 4 * 3600, verdict("Approve")).await;
    harness.pass(10).await;
    let enforced = set_actions(&harness, json!(["Warn"]));
    harness.server.clock().settle().await;
    set_actions(&harness, enforced);
    harness.people().wait_for_gate("review#2").await;
    let (first, second) = (approval_of(&harness, "review"), approval_of(&harness, "review#2"));
    assert_eq!(second["metadata"]["annotations"][ANNOTATION_ASKS_AGAIN], first["metadata"]["name"]);
    assert!(first["metadata"]["annotations"].is_null(), "the first asks nothing again");
    let left = deadline(&second).since(deadline(&first));
    assert!(left < Duration::from_secs(5), "{left:?}: it keeps the time that was left");
    assert!(time_given(&second) > Duration::from_secs(19 * 3600), "{second}");
    for (reason, words) in [("VotesVoided", "the votes of alice (Approve)"), ("GateSuperseded", "the votes of alice ")]
    {
        let events = harness.events(reason);
        assert_eq!(events.len(), 1, "{reason}: {events:?}");
        assert!(events[0]["note"].as_str().unwrap().contains(words), "{events:?}");
    }
    // No vote is removed, and the people who decided are asked again.
    assert_eq!(first["spec"]["decisions"]["alice"]["verdict"], "Approve");
    harness.people().decide("alice", "review#2", 10, verdict("Approve")).await;
    harness.people().decide("bob", "review#2", 10, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!(harness.world.effects().len(), 1);
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_gets_an_event_when_policies_are_enforced_again() {
    let (harness, operator) = guarded_with(json!([gate("review", json!({})), set("end", "done")])).await;
    let life = harness.begin(&operator);
    harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    assert!(harness.events("Guarded").is_empty());
    let enforced = set_actions(&harness, json!(["Warn"]));
    harness.pass(60).await;
    assert_eq!((harness.events("Unguarded").len(), harness.events("Guarded").len()), (1, 0));
    set_actions(&harness, enforced);
    harness.pass(60).await;
    let events = harness.events("Guarded");
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0]["note"].as_str().unwrap().contains("in force again"), "{events:?}");
    assert!(events[0]["note"].as_str().unwrap().ends_with(": decisions count"), "no vote was void: {events:?}");
    harness.people().decide("alice", "review", 10, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    life.crash().await;
}

fn limit_vote_age(harness: &Harness, age: &str) {
    let spec = json!({"gates": {"maxVoteAge": age}});
    let policy = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": "policy"}, "spec": spec,
    });
    harness.server.insert(policy).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_gate_with_a_vote_that_is_too_old_is_asked_again() {
    for crash in [Crash::NotApplied, Crash::Applied] {
        for n in 1.. {
            let harness = Harness::new();
            limit_vote_age(&harness, "4h");
            harness.server.fault(On::writes_of(OPERATOR).nth(n), Fault::Crash(crash));
            let review = gate("review", json!({"threshold": 2, "timeout": {"after": "24h", "action": "Approve"}}));
            let story = async {
                harness.apply(RUN, &chain(json!([review, set("end", "done")])));
                let people = harness.people();
                people.decide("alice", "review", 60, verdict("Approve")).await;
                people.wait_for_gate("review#2").await;
                people.decide("bob", "review#2", 60, verdict("Approve")).await;
                people.decide("alice", "review#2", 3600, verdict("Approve")).await;
                harness.wait_for_end(RUN).await
            };
            let (run, crashes) = harness.keep_alive(&[OPERATOR], story).await;
            let story = harness.server.story();
            assert_eq!(run["status"]["phase"], "Succeeded", "{crash:?} at write {n}:\n{story}");
            let (first, second) = (approval_of(&harness, "review"), approval_of(&harness, "review#2"));
            assert_eq!(first["spec"]["request"]["maxVoteAge"], "4h");
            assert_eq!(first["status"]["phase"], "Superseded", "{story}");
            let why = first["status"]["outcome"]["reason"].as_str().unwrap();
            assert!(why.contains("a vote became too old") && why.contains("the votes of alice;"), "{why}");
            let voted: Moment = serde_json::from_value(first["status"]["votes"][0]["at"].clone()).unwrap();
            let ended: Moment = serde_json::from_value(first["status"]["outcome"]["decidedAt"].clone()).unwrap();
            assert!(ended.since(voted) >= Duration::from_secs(4 * 3600), "{first}");
            assert_eq!(second["status"]["phase"], "Approved", "{story}");
            assert_eq!(second["metadata"]["annotations"][ANNOTATION_ASKS_AGAIN], first["metadata"]["name"]);
            assert!(time_given(&second) <= Duration::from_secs(20 * 3600), "{second}");
            assert_eq!(harness.approvals().len(), 2, "{story}");
            if crashes == 0 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn votes_within_the_span_complete_a_quorum() {
    let harness = Harness::new();
    limit_vote_age(&harness, "4h");
    let life = harness.begin(OPERATOR);
    harness.apply(RUN, &chain(json!([gate("review", json!({"threshold": 2})), set("end", "done")])));
    let approval = harness.people().wait_for_gate("review").await;
    harness.people().vote("alice", &approval, verdict("Approve"));
    harness.pass(4 * 3600 - 60).await;
    harness.people().vote("bob", &approval, verdict("Approve"));
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!(harness.server.value(&approvals(), "default", &approval).unwrap()["status"]["phase"], "Approved");
    life.crash().await;
}
