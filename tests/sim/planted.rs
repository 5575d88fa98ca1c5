//! Blobs and Events that another user created first, while the policies were absent, under a name which a value or an
//! Event of a run would have. None of them stops the run, removes a value or hides an Event from people.

use serde_json::{Value, json};
use signoff_api::{Digest, names, workflow::MAX_VALUE_NAMES};
use signoff_tests::sim::{Crash, Fault, On, Request, Resource};

use crate::{
    harness::{Harness, Life, NAMESPACE, OPERATOR, workflows},
    people::verdict,
    scenario_runner::TINY,
    scenarios::{RUN, chain, gate, post, set},
};

fn blobs() -> Resource {
    Resource::new("signoff.dev", "blobs")
}

/// Applies a run that pays a deposit, asks alice, and pays the rest; its journal moves into Blobs at once.
fn apply_two_payments(harness: &Harness) {
    let steps = [post("deposit", "7 EUR", "fail"), gate("review", json!({})), post("pay", "42 EUR", "fail")];
    harness.apply(RUN, &chain(json!(steps)));
}

async fn begin_and_wait_for_gate(harness: &Harness) -> Life {
    let life = harness.begin(OPERATOR);
    harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    life
}

/// Returns the only Blob of an undisturbed run with two payments. Other runs of this kind need a Blob of the same name.
async fn blob_of_undisturbed_run() -> Value {
    let twin = Harness { room: TINY, ..Harness::new() };
    apply_two_payments(&twin);
    let life = begin_and_wait_for_gate(&twin).await;
    let [blob] = &twin.server.values(&blobs(), Some(NAMESPACE))[..] else { panic!("not one Blob") };
    life.crash().await;
    blob.clone()
}

/// Returns a copy of the Blob with `change`, as another user can create it before the run exists, whose uid is unknown.
fn plantable_copy(blob: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut blob = blob.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        blob["metadata"].as_object_mut().unwrap().shift_remove(field);
    }
    blob["metadata"]["ownerReferences"][0]["uid"] = json!("00000000-0000-4000-8000-000000000077");
    change(&mut blob);
    blob
}

fn name_of_blob(blob: &Value) -> &str {
    blob["metadata"]["name"].as_str().unwrap()
}

/// Returns the recorded names of values whose usual name is taken.
fn recorded_names(harness: &Harness) -> Vec<String> {
    let names = harness.workflow(RUN)["status"]["valueNames"].clone();
    let names = names.as_object().cloned().unwrap_or_default();
    names.values().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_planted_blob_neither_stops_a_run_nor_replaces_its_value() {
    let blob = blob_of_undisturbed_run().await;
    let garbage = plantable_copy(&blob, |blob| blob["spec"]["data"] = json!("garbage"));
    let empty = plantable_copy(&blob, |blob| blob["spec"] = json!({}));
    let same_bytes = plantable_copy(&blob, |_| {});
    let without_an_owner = plantable_copy(&blob, |blob| {
        blob["metadata"].as_object_mut().unwrap().shift_remove("ownerReferences");
    });
    for theirs in [garbage, empty, same_bytes, without_an_owner] {
        for taken_away in [false, true] {
            let harness = Harness { room: TINY, ..Harness::new() };
            apply_two_payments(&harness);
            let theirs = harness.server.insert(theirs.clone()).unwrap();
            let life = begin_and_wait_for_gate(&harness).await;
            let [other] = &recorded_names(&harness)[..] else {
                panic!("no other name is recorded:\n{}", harness.server.story())
            };
            assert!(other.starts_with(name_of_blob(&blob)) && other != name_of_blob(&blob), "{other}");
            let ours = harness.server.value(&blobs(), NAMESPACE, other).unwrap();
            assert_eq!(ours["metadata"]["labels"], blob["metadata"]["labels"]);
            assert_eq!(ours["spec"], blob["spec"]);
            assert_eq!(
                harness.server.value(&blobs(), NAMESPACE, name_of_blob(&blob)).unwrap(),
                theirs,
                "it is not the run's"
            );
            // The next operator has nothing cached.
            life.crash().await;
            if taken_away {
                assert!(harness.server.remove(&blobs(), NAMESPACE, name_of_blob(&blob)));
            }
            let life = harness.begin(OPERATOR);
            harness.people().decide("alice", "review", 60, verdict("Approve")).await;
            assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
            assert_eq!(harness.world.effects().len(), 2, "{}", harness.server.story());
            life.crash().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_planted_event_hides_no_event_of_a_run() {
    let events = Resource::new("events.k8s.io", "events");
    let run = async |planted: &[Value]| {
        let harness = Harness::new();
        apply_two_payments(&harness);
        for theirs in planted {
            harness.server.insert(theirs.clone()).unwrap();
        }
        let life = begin_and_wait_for_gate(&harness).await;
        harness.people().decide("alice", "review", 60, verdict("Approve")).await;
        harness.wait_for_end(RUN).await;
        harness.pass(60).await;
        life.crash().await;
        harness.server.values(&events, Some(NAMESPACE))
    };
    let undisturbed = run(&[]).await;
    assert_eq!(undisturbed.len(), 3, "{undisturbed:#?}");
    let theirs = |event: &Value| {
        let mut event = event.clone();
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            event["metadata"].as_object_mut().unwrap().shift_remove(field);
        }
        event["note"] = json!("all is well");
        event
    };
    let planted: Vec<Value> = undisturbed.iter().map(theirs).collect();
    let content = |event: &Value| (event["reason"].clone(), event["note"].clone());
    let after = run(&planted).await;
    assert_eq!(after.len(), 2 * undisturbed.len(), "{after:#?}");
    for event in &undisturbed {
        let same = after.iter().filter(|other| content(other) == content(event));
        assert_eq!(same.count(), 1, "{event}\n{after:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_under_another_name_is_stored_again_after_a_crash() {
    let harness = Harness::new();
    let long = "All that was said about ACME. ".repeat(200);
    harness.apply(RUN, &chain(json!([set("report", &long), gate("review", json!({})), post("pay", "42 EUR", "fail")])));
    let uid = harness.workflow(RUN)["metadata"]["uid"].as_str().unwrap().to_owned();
    let name = names::blob(RUN, &uid, &Digest::of_bytes(long.as_bytes()));
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let theirs = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Blob", "metadata": metadata, "spec": {"data": "garbage"}});
    harness.server.insert(theirs).unwrap();
    let written = |request: &Request| request.resource == blobs() && request.verb.writes();
    // The first write meets the other object, the second stores the value; the status that names it is never written.
    harness.server.fault(On::writes_of(OPERATOR).only(written).nth(2), Fault::Crash(Crash::Applied));
    let story = async {
        harness.people().decide("alice", "review", 60, verdict("Approve")).await;
        harness.wait_for_end(RUN).await
    };
    let (ended, deaths) = harness.keep_alive(&[OPERATOR], story).await;
    assert_eq!((deaths, &ended["status"]["phase"]), (1, &json!("Succeeded")), "{}", harness.server.story());
    assert_eq!(harness.world.effects().len(), 1, "{}", harness.server.story());
    let [other] = &recorded_names(&harness)[..] else { panic!("not one other name:\n{}", harness.server.story()) };
    assert!(other.starts_with(&name) && *other != name, "{other}");
    assert_eq!(harness.server.value(&blobs(), NAMESPACE, other).unwrap()["spec"]["data"], long);
}

#[tokio::test(start_paused = true)]
async fn a_run_continues_once_a_name_for_its_value_is_free() {
    let blob = blob_of_undisturbed_run().await;
    let harness = Harness { room: TINY, ..Harness::new() };
    apply_two_payments(&harness);
    harness.server.insert(plantable_copy(&blob, |_| {})).unwrap();
    let many = (0..MAX_VALUE_NAMES).map(|n| (Digest::of_bytes(&n.to_be_bytes()).to_string(), json!("elsewhere")));
    let many = many.collect::<serde_json::Map<_, _>>();
    let full = json!({"phase": "Pending", "seq": 0, "valueNames": many});
    harness.server.edit(&workflows(), NAMESPACE, RUN, |run| run["status"] = full.clone()).unwrap();
    let life = harness.begin(OPERATOR);
    harness.pass(3600).await;
    assert_eq!(harness.condition("ValueUnavailable"), ("True".to_owned(), "NamesTaken".to_owned()));
    let [event] = &harness.events("NamesTaken")[..] else { panic!("{:?}", harness.events("NamesTaken")) };
    let says = |text: &str| event["note"].as_str().is_some_and(|note| note.contains(text));
    assert!(says(name_of_blob(&blob)) && says("delete them"), "{event}");

    assert!(harness.server.remove(&blobs(), NAMESPACE, name_of_blob(&blob)));
    harness.pass(700).await;
    harness.people().decide("alice", "review", 60, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!(harness.condition("ValueUnavailable"), Default::default());
    assert_eq!(harness.world.effects().len(), 2, "{}", harness.server.story());
    life.crash().await;
}
