//! Runs that name the run that they repeat: the operator accepts the requesters that they list only if it can verify
//! them.

use serde_json::{Value, json};

use crate::{
    ending::list,
    harness::{Harness, OPERATOR},
    people::verdict,
    scenarios::{RUN, chain, gate, post},
};

/// Returns the spec of a run of `requester` that names the run that it repeats, with its requesters.
fn rerun_spec(requester: &str, rerun_of: Value) -> Value {
    let mut spec = chain(json!([gate("review", json!({"excludeRequester": true})), post("pay", "42 EUR", "fail")]));
    spec["requestedBy"] = json!(requester);
    spec["rerunOf"] = rerun_of;
    spec
}

/// Returns the field `rerunOf` for a stored run.
fn rerun_of(harness: &Harness, name: &str, requesters: &[&str]) -> Value {
    json!({"name": name, "uid": harness.workflow(name)["metadata"]["uid"], "requesters": requesters})
}

/// Plays a run of dana to its end.
async fn play_first_run(harness: &Harness) {
    harness.apply(RUN, &chain(json!([post("pay", "42 EUR", "fail")])));
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_rerun_with_a_wrong_requester_is_refused() {
    let harness = Harness::new();
    let life = harness.begin(OPERATOR);
    play_first_run(&harness).await;
    let other_uid = json!({"name": RUN, "uid": "00000000-0000-4000-8000-000000000077", "requesters": ["dana"]});
    let not_there = json!({"name": "x", "uid": "00000000-0000-4000-8000-000000000077", "requesters": ["bob"]});
    let elsewhere = json!({"name": "../approvals/x", "uid": "00000000-0000-4000-8000-000000000077"});
    for (name, said, words) in [
        ("bob", rerun_of(&harness, RUN, &["bob"]), "bob requested neither Workflow refund"),
        ("too", rerun_of(&harness, RUN, &["dana", "bob"]), "bob requested neither Workflow refund"),
        ("other", other_uid, "this namespace has no Workflow refund with the uid"),
        ("none", not_there, "this namespace has no Workflow x with the uid"),
        ("path", elsewhere, "this namespace has no Workflow ../approvals/x with the uid"),
        ("itself", json!({"name": "itself", "uid": "0", "requesters": ["bob"]}), "no Workflow itself with the uid"),
    ] {
        harness.apply(name, &rerun_spec("mallory", said));
        let run = harness.wait_for_end(name).await;
        let accepted = list(&run["status"]["conditions"]).find(|one| one["type"] == "Accepted").unwrap();
        assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("Invalid")), "{run:#}");
        let message = accepted["message"].as_str().unwrap();
        assert!(message.starts_with("spec.rerunOf") && message.contains(words), "{message}");
        assert!(message.contains("leave rerunOf out, or use `kubectl approve rerun"), "{message}");
    }
    // A run that was refused lends its list to none.
    harness.apply("second", &rerun_spec("mallory", rerun_of(&harness, "bob", &["bob"])));
    let run = harness.wait_for_end("second").await;
    assert!(run["status"]["message"].as_str().unwrap().contains("names bob, and was not accepted"), "{run:#}");
    assert_eq!((harness.approvals().len(), harness.world.effects().len()), (0, 1), "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_rerun_names_the_requesters_of_all_earlier_runs() {
    let harness = Harness::new();
    let life = harness.begin(OPERATOR);
    play_first_run(&harness).await;
    for (name, requester, of, requesters, gate) in [
        ("again", "erin", RUN, &["dana"][..], "review"),
        // A requester who repeats a run is not named as an earlier one.
        ("third", "dana", "again", &["erin"], "review"),
        ("fourth", "carol", "third", &["erin", "dana"], "review"),
    ] {
        harness.apply(name, &rerun_spec(requester, rerun_of(&harness, of, requesters)));
        let is_asked = |harness: &Harness| {
            let asks = |one: &&Value| one["spec"]["request"]["workflow"]["name"] == name;
            harness.approvals().iter().find(asks).cloned()
        };
        harness.server.until_all(|_| is_asked(&harness).is_some()).await;
        let asked = is_asked(&harness).unwrap();
        let mut named = requesters.to_vec();
        named.sort_unstable();
        assert_eq!(asked["spec"]["request"]["earlierRequesters"], json!(named), "{asked:#}");
        assert_eq!(asked["spec"]["request"]["gate"]["path"], gate);
        // A verified run is not read again: the repeated run can be deleted.
        harness.server.remove(&crate::harness::workflows(), crate::harness::NAMESPACE, of);
        harness.people().vote("alice", asked["metadata"]["name"].as_str().unwrap(), verdict("Approve"));
        assert_eq!(harness.wait_for_end(name).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    }
    assert_eq!(harness.world.effects().len(), 4, "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_rerun_of_a_run_from_a_backup_is_accepted() {
    let harness = Harness::new();
    let life = harness.begin(OPERATOR);
    let gone = json!({"name": "gone", "uid": "00000000-0000-4000-8000-000000000077", "requesters": ["erin"]});
    let mut copy = rerun_spec("dana", gone);
    copy["restored"] = json!(true);
    harness.apply(RUN, &copy);
    harness.apply("again", &rerun_spec("carol", rerun_of(&harness, RUN, &["dana", "erin"])));
    harness.apply("forged", &rerun_spec("carol", rerun_of(&harness, RUN, &["dana", "bob"])));
    harness.people().decide("alice", "review", 60, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end("again").await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!(harness.wait_for_end("forged").await["status"]["phase"], "Failed");
    assert_eq!(harness.world.effects().len(), 1, "{}", harness.server.story());
    life.crash().await;
}
