//! Blobs and Events that another user made first, while the policies were absent, at a name which a value or an Event of a run would have. None stops
//! the run, takes a value away or keeps an Event from people.

use serde_json::{Value, json};
use signoff_api::{Digest, names, workflow::MAX_VALUE_NAMES};
use signoff_tests::sim::{Crash, Fault, On, Request, Resource};

use crate::{
    harness::{Life, NAMESPACE, OPERATOR, Stage, workflows},
    people::verdict,
    scenario_runner::TINY,
    scenarios::{RUN, chain, gate, post, set},
};

fn blobs() -> Resource {
    Resource::new("signoff.dev", "blobs")
}

/// A run that pays a deposit, asks alice, and pays the rest; its journal moves into Blobs at once.
fn pays_twice(stage: &Stage) {
    let steps = [post("deposit", "7 EUR", "fail"), gate("review", json!({})), post("pay", "42 EUR", "fail")];
    stage.apply(RUN, &chain(json!(steps)));
}

async fn waits(stage: &Stage) -> Life {
    let life = stage.begin(OPERATOR);
    stage.people().asked("review").await;
    stage.pass(10).await;
    life
}

/// The only Blob of such a run that nobody disturbs: every twin of it will want the same one.
async fn expected() -> Value {
    let twin = Stage { room: TINY, ..Stage::new() };
    pays_twice(&twin);
    let life = waits(&twin).await;
    let [blob] = &twin.server.values(&blobs(), Some(NAMESPACE))[..] else { panic!("not one Blob") };
    life.crash().await;
    blob.clone()
}

/// What another user can make of it while the policies are absent, for a run whose uid is not yet known.
fn planted(blob: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut blob = blob.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        blob["metadata"].as_object_mut().unwrap().shift_remove(field);
    }
    blob["metadata"]["ownerReferences"][0]["uid"] = json!("00000000-0000-4000-8000-000000000077");
    change(&mut blob);
    blob
}

fn named(blob: &Value) -> &str {
    blob["metadata"]["name"].as_str().unwrap()
}

/// The names that the run records of values whose usual name is taken.
fn recorded(stage: &Stage) -> Vec<String> {
    let names = stage.workflow(RUN)["status"]["valueNames"].clone();
    let names = names.as_object().cloned().unwrap_or_default();
    names.values().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_blob_made_first_at_the_name_of_a_value_neither_stops_its_run_nor_takes_the_value_away() {
    let blob = expected().await;
    let garbage = planted(&blob, |blob| blob["spec"]["data"] = json!("garbage"));
    let empty = planted(&blob, |blob| blob["spec"] = json!({}));
    let same_bytes = planted(&blob, |_| {});
    let without_an_owner = planted(&blob, |blob| {
        blob["metadata"].as_object_mut().unwrap().shift_remove("ownerReferences");
    });
    for theirs in [garbage, empty, same_bytes, without_an_owner] {
        for taken_away in [false, true] {
            let stage = Stage { room: TINY, ..Stage::new() };
            pays_twice(&stage);
            let theirs = stage.server.insert(theirs.clone()).unwrap();
            let life = waits(&stage).await;
            let [other] = &recorded(&stage)[..] else { panic!("no other name is recorded:\n{}", stage.server.story()) };
            assert!(other.starts_with(named(&blob)) && other != named(&blob), "{other}");
            let ours = stage.server.value(&blobs(), NAMESPACE, other).unwrap();
            assert_eq!(ours["metadata"]["labels"], blob["metadata"]["labels"]);
            assert_eq!(ours["spec"], blob["spec"]);
            assert_eq!(stage.server.value(&blobs(), NAMESPACE, named(&blob)).unwrap(), theirs, "it is not the run's");
            // The next operator has nothing cached.
            life.crash().await;
            if taken_away {
                assert!(stage.server.remove(&blobs(), NAMESPACE, named(&blob)));
            }
            let life = stage.begin(OPERATOR);
            stage.people().decides("alice", "review", 60, verdict("Approve")).await;
            assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
            assert_eq!(stage.world.effects().len(), 2, "{}", stage.server.story());
            life.crash().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_made_first_at_the_name_of_one_of_a_run_keeps_nothing_from_people() {
    let events = Resource::new("events.k8s.io", "events");
    let run = async |planted: &[Value]| {
        let stage = Stage::new();
        pays_twice(&stage);
        for theirs in planted {
            stage.server.insert(theirs.clone()).unwrap();
        }
        let life = waits(&stage).await;
        stage.people().decides("alice", "review", 60, verdict("Approve")).await;
        stage.ended(RUN).await;
        stage.pass(60).await;
        life.crash().await;
        stage.server.values(&events, Some(NAMESPACE))
    };
    let told = run(&[]).await;
    assert_eq!(told.len(), 3, "{told:#?}");
    let theirs = |event: &Value| {
        let mut event = event.clone();
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            event["metadata"].as_object_mut().unwrap().shift_remove(field);
        }
        event["note"] = json!("all is well");
        event
    };
    let planted: Vec<Value> = told.iter().map(theirs).collect();
    let said = |event: &Value| (event["reason"].clone(), event["note"].clone());
    let after = run(&planted).await;
    assert_eq!(after.len(), 2 * told.len(), "{after:#?}");
    for event in &told {
        let same = after.iter().filter(|other| said(other) == said(event));
        assert_eq!(same.count(), 1, "{event}\n{after:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_after_it_stored_a_value_under_another_name_stores_it_again() {
    let stage = Stage::new();
    let long = "All that was said about ACME. ".repeat(200);
    stage.apply(RUN, &chain(json!([set("report", &long), gate("review", json!({})), post("pay", "42 EUR", "fail")])));
    let uid = stage.workflow(RUN)["metadata"]["uid"].as_str().unwrap().to_owned();
    let name = names::blob(RUN, &uid, &Digest::of_bytes(long.as_bytes()));
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let theirs = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Blob", "metadata": metadata, "spec": {"data": "garbage"}});
    stage.server.insert(theirs).unwrap();
    let written = |request: &Request| request.resource == blobs() && request.verb.writes();
    // The first write meets the other object, the second stores the value; the status that names it is never written.
    stage.server.fault(On::writes_of(OPERATOR).only(written).nth(2), Fault::Crash(Crash::Applied));
    let story = async {
        stage.people().decides("alice", "review", 60, verdict("Approve")).await;
        stage.ended(RUN).await
    };
    let (ended, deaths) = stage.keep_alive(&[OPERATOR], story).await;
    assert_eq!((deaths, &ended["status"]["phase"]), (1, &json!("Succeeded")), "{}", stage.server.story());
    assert_eq!(stage.world.effects().len(), 1, "{}", stage.server.story());
    let [other] = &recorded(&stage)[..] else { panic!("not one other name:\n{}", stage.server.story()) };
    assert!(other.starts_with(&name) && *other != name, "{other}");
    assert_eq!(stage.server.value(&blobs(), NAMESPACE, other).unwrap()["spec"]["data"], long);
}

#[tokio::test(start_paused = true)]
async fn a_run_of_which_too_many_values_have_other_names_says_so_and_goes_on_when_one_is_free() {
    let blob = expected().await;
    let stage = Stage { room: TINY, ..Stage::new() };
    pays_twice(&stage);
    stage.server.insert(planted(&blob, |_| {})).unwrap();
    let many = (0..MAX_VALUE_NAMES).map(|n| (Digest::of_bytes(&n.to_be_bytes()).to_string(), json!("elsewhere")));
    let many = many.collect::<serde_json::Map<_, _>>();
    let full = json!({"phase": "Pending", "seq": 0, "valueNames": many});
    stage.server.edit(&workflows(), NAMESPACE, RUN, |run| run["status"] = full.clone()).unwrap();
    let life = stage.begin(OPERATOR);
    stage.pass(3600).await;
    assert_eq!(stage.condition("ValueUnavailable"), ("True".to_owned(), "NamesTaken".to_owned()));
    let [told] = &stage.events("NamesTaken")[..] else { panic!("{:?}", stage.events("NamesTaken")) };
    let says = |what: &str| told["note"].as_str().is_some_and(|note| note.contains(what));
    assert!(says(named(&blob)) && says("delete them"), "{told}");

    assert!(stage.server.remove(&blobs(), NAMESPACE, named(&blob)));
    stage.pass(700).await;
    stage.people().decides("alice", "review", 60, verdict("Approve")).await;
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
    assert_eq!(stage.condition("ValueUnavailable"), Default::default());
    assert_eq!(stage.world.effects().len(), 2, "{}", stage.server.story());
    life.crash().await;
}
