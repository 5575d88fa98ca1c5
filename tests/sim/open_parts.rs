//! The parts without a schema accept any value: a run with a forged journal does nothing and reports it once, and other
//! runs go on.

use serde_json::{Value, json};

use crate::{
    ending::list,
    harness::{Harness, NAMESPACE, OPERATOR, workflows},
    people::verdict,
    scenarios::{ONE_GATE, RUN, chain, gate, post},
};

fn record(more: Value) -> Value {
    let mut record = json!({"path": "forged", "kind": "set", "phase": "Succeeded", "attempt": 1, "seq": 1, "done": 2,
        "at": "2026-01-01T00:00:00Z"});
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    record
}

/// Returns values in place of a journal.
fn shapes() -> Vec<(&'static str, Value)> {
    let deep = (0..120).fold(json!("x"), |inner, _| json!({"a": [inner]}));
    vec![
        ("a text", json!("forged")),
        ("a number", json!(7)),
        ("true", json!(true)),
        ("an object", json!({"path": "forged"})),
        ("a list of nothing", json!([null])),
        ("a list of texts", json!(["forged"])),
        ("a list of lists", json!([[record(json!({}))]])),
        ("a record without a path", json!([{"phase": "Succeeded"}])),
        ("a path that is a number", json!([record(json!({"path": 7}))])),
        ("a phase of no version", json!([record(json!({"phase": "Dancing"}))])),
        ("a number that is too large", json!([record(json!({"seq": 1e300}))])),
        ("a text of 1 MiB in place of a number", json!([record(json!({"attempt": "x".repeat(1 << 20)}))])),
        ("no path", json!([record(json!({"path": ""}))])),
        ("100,000 names in a path", json!([record(json!({"path": "a/".repeat(100_000)}))])),
        ("an attempt below zero", json!([record(json!({"attempt": -1}))])),
        ("an attempt without end", json!([record(json!({"attempt": i32::MAX}))])),
        ("a path of 1 MiB", json!([record(json!({"path": "x".repeat(1 << 20)}))])),
        ("a response of 1 MiB", json!([record(json!({"response": "x".repeat(1 << 20)}))])),
        ("240 levels", json!([deep])),
        ("240 levels in a response", json!([record(json!({"response": deep}))])),
        ("10,000 times nothing", Value::from(vec![Value::Null; 10_000])),
        ("10,000 records of one path", Value::from(vec![record(json!({})); 10_000])),
        ("10,000 records", (0..10_000).map(|n| record(json!({"path": format!("forged-{n}")}))).collect()),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_forged_journal_is_reported_once_and_stops_no_other_run() {
    let mut unreadable = 0;
    for (what, shape) in shapes() {
        let harness = Harness::new();
        harness.apply(RUN, &chain(json!([gate("review", json!({})), post("pay", "42 EUR", "fail")])));
        harness.apply("another", &(ONE_GATE.spec)());
        let life = harness.begin(OPERATOR);
        harness.pass(10).await;
        let before = harness.workflow(RUN)["status"].clone();
        let asked = |run: &str| harness.workflow(run)["status"]["pending"][0].as_str().unwrap().to_owned();
        let (approval, other) = (asked(RUN), asked("another"));
        harness.server.edit(&workflows(), NAMESPACE, RUN, |object| object["status"]["steps"] = shape.clone());
        harness.people().vote("alice", &approval, verdict("Approve"));
        harness.people().vote("alice", &other, verdict("Approve"));
        harness.pass(3600).await;
        assert_eq!(harness.workflow("another")["status"]["phase"], "Succeeded", "{what}");
        assert_eq!(harness.world.effects().len(), 0, "{what}: {}", harness.server.story());
        let reports = harness.events("Unreadable").len();
        if reports == 0 {
            // It has the shape of a journal without the gate, so people are asked again.
            assert_ne!(asked(RUN), approval, "{what}");
        } else {
            unreadable += 1;
            let status = harness.workflow(RUN)["status"].clone();
            let was = |now: &Value| list(&before["conditions"]).any(|condition| condition == now);
            let new: Vec<_> = list(&status["conditions"]).filter(|condition| !was(condition)).collect();
            let [condition] = new[..] else { panic!("{what}: {new:#?}") };
            assert_eq!(
                (&condition["type"], &condition["reason"]),
                (&json!("Accepted"), &json!("Unreadable")),
                "{what}"
            );
            assert!(condition.to_string().len() < 4096, "{what}: {} bytes", condition.to_string().len());
            assert_eq!(
                (reports, &status["steps"], &status["seq"]),
                (1, &shape, &before["seq"]),
                "{what}: nothing is written into it"
            );
            harness
                .server
                .edit(&workflows(), NAMESPACE, RUN, |object| object["status"]["steps"] = before["steps"].clone());
            assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{what}");
            assert_eq!(harness.world.effects().len(), 1, "{what}: {}", harness.server.story());
        }
        life.crash().await;
    }
    assert_eq!(unreadable, shapes().len() - 4, "long responses and many records are read");
}
