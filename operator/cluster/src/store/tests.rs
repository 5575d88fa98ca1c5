//! Tests of the cache of one kind.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::json;
use signoff_api::Workflow;

use kube::ResourceExt as _;

use super::{state::MOST_SMALL, *};

fn workflow(version: &str, phase: &str) -> Workflow {
    serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": version},
        "spec": {"requestedBy": "dana", "steps": [{"name": "a", "set": {"value": "x"}}]},
        "status": {"phase": phase, "seq": 1},
    }))
    .unwrap()
}

fn version(store: &Store<Workflow>) -> String {
    match store.find(&Name::new("n", "w")) {
        Found::Here(object) => object.resource_version().unwrap(),
        other => format!("{other:?}"),
    }
}

#[test]
fn an_own_write_stays_cached_until_a_newer_watch_event() {
    let store = Store::default();
    assert!(store.apply(workflow("8", "Running")));
    store.record(workflow("10", "Waiting"));
    assert!(!store.apply(workflow("9", "Running")), "older than what was written");
    assert_eq!(version(&store), "10");
    assert!(!store.apply(workflow("10", "Waiting")), "the write's own echo");
    assert!(store.apply(workflow("11", "Waiting")));
    assert_eq!(version(&store), "11");
}

#[test]
fn an_object_that_is_newer_than_a_list_stays_cached() {
    let store = Store::default();
    store.record(workflow("10", "Waiting"));
    store.begin_list();
    assert_eq!(store.finish_list("9"), []);
    store.begin_list();
    assert_eq!(
        store.finish_list("12"),
        [DeletedObject { name: Name::new("n", "w"), uid: "u".to_owned(), owner: None }]
    );
    assert!(matches!(store.find(&Name::new("n", "w")), Found::NotFound));
}

#[test]
fn mark_absent_and_remove_keep_a_newer_object_of_the_same_name() {
    let store = Store::default();
    let name = Name::new("n", "w");
    store.apply(workflow("8", "Running"));
    let known = store.version_of(&name);
    let mut other = workflow("10", "Pending");
    other.metadata.uid = Some("other".to_owned());
    assert!(store.apply(other));
    store.mark_absent(&name, known.as_deref());
    store.mark_absent(&name, None);
    assert_eq!(store.remove(name.clone(), "u"), None, "word of its predecessor");
    assert_eq!(version(&store), "10");
    store.mark_absent(&name, store.version_of(&name).as_deref());
    assert!(matches!(store.find(&name), Found::NotFound));
}

#[test]
fn a_stale_object_stays_stale_until_it_is_read() {
    let store = Store::default();
    store.apply(workflow("8", "Running"));
    store.mark_stale(&Name::new("n", "w"));
    assert!(store.apply(workflow("9", "Running")));
    assert!(matches!(store.find(&Name::new("n", "w")), Found::Stale), "a watch may lag behind the lost write");
    store.record(workflow("9", "Running"));
    assert_eq!(version(&store), "9");
}

#[test]
fn a_released_object_is_whole_and_a_summary_is_finished() {
    let store = Store::default();
    let name = Name::new("n", "w");
    store.apply(workflow("8", "Waiting"));
    store.release(&name);
    assert!(matches!(store.find(&name), Found::Here(object) if *object == workflow("8", "Waiting")));
    store.keep_summary(&name);
    assert_eq!(version(&store), "8", "it is not over");
    store.apply(workflow("9", "Succeeded"));
    store.keep_summary(&name);
    assert!(matches!(store.find(&name), Found::Finished { .. }));
    assert!(!store.is_open(&name, "u"));
}

/// Returns a waiting Workflow with a repetitive prompt of `bytes`.
fn large(name: &str, bytes: usize) -> Workflow {
    let prompt = "Decide whether the attached report may be sent to the customer as it stands. ";
    let prompt: String = prompt.chars().cycle().take(bytes).collect();
    let steps = json!([{"name": "review", "hitl": {"prompt": prompt, "approvers": []}}]);
    let object = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
        "spec": {"requestedBy": "dana", "steps": steps}, "status": {"phase": "Waiting"},
    });
    serde_json::from_value::<crate::kinds::Decoded<Workflow>>(object).unwrap().0
}

#[test]
fn two_hundred_released_workflows_take_a_tenth_of_their_bytes() {
    let store = Store::default();
    const BYTES: usize = 400_000;
    for n in 0..200 {
        store.apply(large(&format!("w{n}"), BYTES));
        store.release(&Name::new("n", &format!("w{n}")));
    }
    let (bytes, full) = store.memory_use();
    assert_eq!(full, 0);
    assert!(bytes < 200 * BYTES / 10, "{bytes} bytes");
    let Found::Here(found) = store.find(&Name::new("n", "w7")) else { panic!("it is lost") };
    assert_eq!(*found, large("w7", BYTES), "and none of them is lost");
}

#[test]
fn small_objects_are_compressed_after_many_others_were_released() {
    let store = Store::default();
    let name = |n: usize| Name::new("n", &format!("w{n}"));
    let others = MOST_SMALL.get();
    for n in 0..=others {
        store.apply(large(&format!("w{n}"), 1_000));
        store.release(&name(n));
        store.release(&name(n));
    }
    assert!(matches!(store.lock().entries[&name(0)].body, Body::Packed(..)), "the oldest made room");
    let held = store.memory_use();
    assert!(held.0 > others * 1_000 && held.1 == 0, "they are at rest: {held:?}");
    let Found::Here(found) = store.find(&name(0)) else { panic!("it is lost") };
    assert_eq!(*found, large("w0", 1_000), "and is not lost");
}

#[test]
fn an_object_that_changed_while_it_was_compressed_stays_the_newest() {
    let store = Store::default();
    store.apply(workflow("8", "Waiting"));
    store.release(&Name::new("n", "w"));
    store.apply(workflow("9", "Waiting"));
    assert_eq!(store.memory_use().1, 1);
    assert_eq!(version(&store), "9");
}

fn status(store: &Store<Workflow>, name: &str) -> String {
    match store.find(&Name::new("n", name)) {
        Found::Here(object) => object.status.as_ref().map(|status| format!("{:?}", status.phase)).unwrap_or_default(),
        other => format!("{other:?}"),
    }
}

/// Returns the object with another status message, as if a webhook had changed it.
fn with_changed_message(mut object: Workflow) -> Workflow {
    object.status.get_or_insert_default().message = Some("changed on its way".to_owned());
    object
}

fn message(store: &Store<Workflow>, name: &str) -> Option<String> {
    let Found::Here(object) = store.find(&Name::new("n", name)) else { panic!("it is not there") };
    object.status.as_ref().and_then(|status| status.message.clone())
}

#[test]
fn the_watch_event_of_a_sent_object_is_no_news() {
    let store = Store::default();
    let (small, big) = (workflow("10", "Waiting"), large("big", 100_000));
    store.record_sent(small.clone());
    store.record_sent(big.clone());
    store.release(&Name::new("n", "big"));
    assert!(matches!(store.lock().entries[&Name::new("n", "big")].body, Body::Packed(..)));
    for object in [small, big] {
        let name = Name::of(&object);
        assert!(!store.apply(object.clone()), "{name}");
        assert!(!store.lock().entries[&name].sent);
        assert!(store.is_own(&name, &object.resource_version().unwrap()));
        assert!(!store.apply(object), "and once more");
    }
}

#[test]
fn a_watch_event_with_keys_in_another_order_is_no_news() {
    let read = |parameters: &str| {
        let request = json!({
            "workflow": {"name": "w", "uid": "u"}, "gate": {"name": "g", "path": "g", "visit": 1, "type": "step"},
            "specDigest": format!("sha256:{}", "0".repeat(64)), "guardEpoch": "e", "deadline": "2026-01-01T00:00:00Z",
            "prompt": "Go on?", "allowedVerdicts": ["Modify"], "quorums": [], "requestedBy": "dana",
            "parameters": serde_json::from_str::<serde_json::Value>(parameters).unwrap(),
            "timeout": {"action": "Reject"}, "digest": format!("sha256:{}", "0".repeat(64)),
        });
        let metadata = json!({"name": "a", "namespace": "n", "uid": "v", "resourceVersion": "10"});
        let object = json!({"metadata": metadata, "spec": {"request": request}, "status": {}});
        serde_json::from_value::<crate::kinds::Decoded<signoff_api::Approval>>(object).unwrap().0
    };
    let sent = read(r#"{"Modify": {"type": "object", "required": ["route"]}}"#);
    let stored = read(r#"{"Modify": {"required": ["route"], "type": "object"}}"#);
    assert_ne!(serde_json::to_string(&sent).unwrap(), serde_json::to_string(&stored).unwrap());
    let name = Name::of(&sent);
    for is_packed in [false, true] {
        let store = Store::default();
        store.record_sent(sent.clone());
        if is_packed {
            store.compress(&name);
        }
        assert!(!store.apply(stored.clone()), "packed: {is_packed}");
        assert!(store.is_own(&name, "10"), "packed: {is_packed}");
    }
}

#[test]
fn a_stored_object_that_differs_from_the_sent_object_is_news() {
    for by_list in [false, true] {
        let store = Store::default();
        let (small, big) = (workflow("10", "Waiting"), large("big", 100_000));
        store.record_sent(small.clone());
        store.record_sent(big.clone());
        store.release(&Name::new("n", "big"));
        for object in [small, big] {
            let name = Name::of(&object);
            let version = object.resource_version().unwrap();
            let object = with_changed_message(object);
            assert!(if by_list { store.list(object.clone()) } else { store.apply(object.clone()) }, "{name}");
            assert_eq!(message(&store, &name.name).as_deref(), Some("changed on its way"));
            assert!(!store.is_own(&name, &version), "whoever wrote it looks again");
            assert!(!store.apply(object), "it is news once");
        }
    }
}

#[test]
fn a_changed_spec_of_the_same_version_is_news_too() {
    let store = Store::default();
    store.record_sent(workflow("10", "Waiting"));
    let mut other = workflow("10", "Waiting");
    other.spec.cancel = Some(true);
    assert!(store.apply(other));
    assert!(matches!(store.find(&Name::new("n", "w")), Found::Here(object) if object.spec.cancel == Some(true)));
}

#[test]
fn only_the_end_of_a_sent_object_is_compared_with_a_summary() {
    let store = Store::default();
    let name = Name::new("n", "w");
    store.record_sent(workflow("10", "Succeeded"));
    store.keep_summary(&name);
    assert!(!store.apply(with_changed_message(workflow("10", "Succeeded"))), "nothing of what was sent is kept");
    store.record_sent(workflow("11", "Succeeded"));
    store.keep_summary(&name);
    assert!(store.apply(workflow("11", "Waiting")), "it is not over as it is stored");
    assert_eq!(status(&store, "w"), "Waiting");
    assert!(store.is_open(&name, "u"));
}

#[test]
fn an_answer_after_its_watch_event_keeps_the_stored_object() {
    let store = Store::default();
    let name = Name::new("n", "w");
    store.apply(workflow("9", "Running"));
    assert!(store.apply(workflow("10", "Waiting")));
    store.record_sent(workflow("10", "Waiting"));
    assert!(store.is_own(&name, "10"), "it is what was sent");
    assert!(store.apply(with_changed_message(workflow("11", "Waiting"))));
    let recorded = store.record_sent(workflow("11", "Waiting"));
    assert_eq!(*recorded, with_changed_message(workflow("11", "Waiting")), "the write works on with what is stored");
    assert_eq!(message(&store, "w").as_deref(), Some("changed on its way"));
    assert!(!store.is_own(&name, "11"));
}

#[test]
fn a_read_replaces_the_sent_object() {
    let store = Store::default();
    let name = Name::new("n", "w");
    store.record_sent(workflow("10", "Waiting"));
    store.record(with_changed_message(workflow("10", "Waiting")));
    assert_eq!(message(&store, "w").as_deref(), Some("changed on its way"));
    assert!(store.is_own(&name, "10"), "whoever asked knows it");
}

#[test]
fn the_size_of_each_version_is_counted_once() {
    let store = Store::default();
    let name = Name::new("n", "w");
    store.apply(workflow("9", "Waiting"));
    let memory = |workflow: &Workflow| JsonSize::of(workflow).memory();
    assert_eq!(store.memory_of(&name), memory(&workflow("9", "Waiting")));
    assert!(store.lock().entries[&name].counted);
    store.record_sent(with_changed_message(workflow("10", "Waiting")));
    assert!(!store.lock().entries[&name].counted);
    store.release(&name);
    assert_eq!(store.memory_of(&name), memory(&with_changed_message(workflow("10", "Waiting"))));
}

#[test]
fn a_compressed_object_that_is_in_use_is_not_decompressed_again() {
    let (store, name) = (Store::default(), Name::new("n", "w"));
    let mut large = workflow("8", "Waiting");
    large.spec.steps = (0..1000).map(|_| large.spec.steps[0].clone()).collect();
    store.apply(large);
    store.release(&name);
    let found = || match store.find(&name) {
        Found::Here(object) => object,
        other => panic!("{other:?}"),
    };
    assert!(matches!(store.lock().entries[&name].body, Body::Packed(..)));
    let used = found();
    assert!(Arc::ptr_eq(&used, &found()), "it is looked at again while it is used");
    drop(used);
    store.release(&name);
    assert!(matches!(&store.lock().entries[&name].body, Body::Packed(_, whole) if whole.upgrade().is_none()));
    // Another version is another object.
    let used = found();
    store.apply(workflow("9", "Waiting"));
    assert!(!Arc::ptr_eq(&used, &found()));
    assert_eq!(found().resource_version().as_deref(), Some("9"));
}

#[test]
fn memory_of_an_object_of_many_short_values_counts_each_value() {
    let (store, name) = (Store::default(), Name::new("n", "w"));
    let with = |version: &str, value: serde_json::Value| {
        let mut object = serde_json::to_value(workflow(version, "Waiting")).unwrap();
        object["spec"]["steps"][0]["outputSchema"] = json!({"enum": value});
        serde_json::from_value::<Workflow>(object).unwrap()
    };
    store.apply(with("1", json!(["x".repeat(100_000)])));
    assert!((100_000..110_000).contains(&store.memory_of(&name)), "a text: {}", store.memory_of(&name));
    // The JSON is as long as that of the text.
    store.apply(with("2", json!(vec![0; 50_000])));
    let least = 50_000 * size_of::<serde_json::Value>();
    assert!((least..least + 200_000).contains(&store.memory_of(&name)), "{}", store.memory_of(&name));
    let before = store.memory_of(&name);
    store.release(&name);
    assert_eq!(store.memory_of(&name), before, "also once it is compressed");
}

#[test]
fn only_large_objects_are_compressed_when_they_are_received() {
    let store = Store::default();
    for number in 0..16 {
        let mut large = serde_json::to_value(workflow("1", "Waiting")).unwrap();
        large["metadata"]["name"] = json!(format!("w-{number}"));
        large["spec"]["steps"][0]["outputSchema"] = json!({"enum": vec![0; 20_000]});
        assert!(store.apply(serde_json::from_value(large).unwrap()));
    }
    assert_eq!(store.memory_use().1, 0, "none is whole");
    assert!(store.memory_use().0 < 100_000, "{:?}", store.memory_use());
    assert!(matches!(store.find(&Name::new("n", "w-7")), Found::Here(_)));
    store.apply(workflow("1", "Waiting"));
    assert_eq!(store.memory_use().1, 1, "a small one is about to be used");
}
