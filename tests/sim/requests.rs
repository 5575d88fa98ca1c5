//! The cost of a run and of waiting for the API server: a bound on requests, counted.

use serde_json::{Value, json};
use signoff_api::names::ANNOTATION_NOTIFY;
use signoff_tests::sim::{Entry, Verb};

use crate::{
    harness::{Harness, OPERATOR},
    people::verdict,
    scenarios::{ONE_GATE, PODS, RUN, chain, gate, pod, set},
};

async fn wait_until_asked(harness: &Harness) {
    harness.apply(RUN, &(ONE_GATE.spec)());
    harness.people().wait_for_gate("review").await;
    harness.pass(1).await;
}

#[tokio::test(start_paused = true)]
async fn one_gate_costs_at_most_four_state_writes_and_three_events() {
    let harness = Harness::new();
    let _life = harness.begin(OPERATOR);
    wait_until_asked(&harness).await;
    (ONE_GATE.people)(harness.people()).await;
    harness.wait_for_end(RUN).await;
    harness.pass(3600).await;
    let events = |entry: &Entry| entry.verb.writes() && entry.resource.plural == "events";
    let (states, events) = (harness.server.count(Entry::is_state_write), harness.server.count(events));
    assert!(states <= 4 && events <= 3, "{states} state writes and {events} Events:\n{}", harness.server.story());
    let reads = harness.server.count(|entry| entry.verb == Verb::Get);
    assert_eq!(reads, 0, "watches say everything:\n{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_gate_reports_unknown_channels_with_one_more_write() {
    let harness = Harness::new();
    let _life = harness.begin(OPERATOR);
    let review = gate("review", json!({"notify": ["finance", "mail"]}));
    harness.apply(RUN, &chain(json!([set("draft", "42 EUR"), review, set("send", "x")])));
    harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    let notified = |approval: &Value| {
        let mut conditions = approval["status"]["conditions"].as_array().into_iter().flatten();
        conditions.find(|condition| condition["type"] == "Notified").cloned()
    };
    let open = harness.approvals().remove(0);
    assert_eq!(open["metadata"]["annotations"][ANNOTATION_NOTIFY], "finance,mail");
    let condition = notified(&open).unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("UnknownChannel")));
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("channel finance: ") && message.contains("channel mail: "), "{message}");
    harness.people().decide("alice", "review", 60, verdict("Approve")).await;
    harness.wait_for_end(RUN).await;
    harness.pass(3600).await;
    assert_eq!(notified(&harness.approvals().remove(0)), None, "it is decided");
    let states = harness.server.count(Entry::is_state_write);
    assert!(states <= 5, "{states} state writes:\n{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn state_writes_and_events_send_and_fetch_no_more_than_they_need() {
    let harness = Harness::new();
    let _life = harness.begin(OPERATOR);
    wait_until_asked(&harness).await;
    (ONE_GATE.people)(harness.people()).await;
    harness.wait_for_end(RUN).await;
    harness.pass(60).await;
    let writes = harness.operators_writes();
    let (states, others): (Vec<_>, Vec<_>) = writes.iter().partition(|entry| entry.subresource.is_some());
    assert!(states.len() >= 3 && others.len() >= 2, "{}", harness.server.story());
    for write in &states {
        let body = write.json();
        let fields: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["apiVersion", "kind", "metadata", "status"], "{}", write.line());
        let fields: Vec<_> = body["metadata"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["name", "namespace", "uid", "resourceVersion"], "{}", write.line());
    }
    for write in &writes {
        assert!(write.accept.contains("as=PartialObjectMetadata"), "{} takes {}", write.line(), write.accept);
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_waiting_costs_nothing_but_watches_and_the_lease() {
    let mut harness = Harness::new();
    harness.lease = true;
    let _life = harness.begin(OPERATOR);
    wait_until_asked(&harness).await;
    let before = harness.server.log().len();
    harness.pass(3600).await;
    let log = harness.server.log();
    let asked: Vec<_> = log[before..]
        .iter()
        .filter(|e| e.verb != Verb::Watch && e.resource.plural != "leases")
        .map(Entry::line)
        .collect();
    assert!(asked.is_empty(), "{asked:#?}");
    let watches = log[before..].iter().filter(|entry| entry.verb == Verb::Watch).count();
    assert!(watches <= 6 * 13, "{watches} watches were opened in an hour");
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_comes_back_to_a_waiting_run_writes_nothing() {
    let harness = Harness::new();
    let life = harness.begin(OPERATOR);
    wait_until_asked(&harness).await;
    life.crash().await;
    let writes = harness.server.writes().len();
    for _ in 0..3 {
        let life = harness.begin(OPERATOR);
        harness.pass(600).await;
        life.crash().await;
    }
    assert_eq!(harness.server.writes().len(), writes, "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_container_costs_seven_requests() {
    let harness = Harness::new();
    let _life = harness.begin_and_settle(OPERATOR).await;
    let before = harness.server.log().len();
    harness.apply(RUN, &chain(json!([pod("build", json!({}))])));
    harness.wait_for_end(RUN).await;
    harness.pass(3600).await;
    let log = harness.server.log();
    let asked: Vec<_> = log[before..]
        .iter()
        .filter(|entry| entry.verb != Verb::Watch && entry.resource.plural != "events")
        .map(|entry| {
            format!("{:?} {} {}", entry.verb, entry.resource.plural, entry.subresource.as_deref().unwrap_or("-"))
        })
        .collect();
    let expected = [
        "Update workflows status",
        "Get workflows -",
        "Get namespaces -",
        "Create pods -",
        "Get pods log",
        "Update workflows status",
        "Delete pods -",
    ];
    assert_eq!(asked, expected, "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_runs_for_hours_costs_nothing_but_watches() {
    let harness = Harness::new();
    (PODS.world)(&harness.world);
    harness
        .world
        .answers("refund/build", signoff_tests::sim::Answer::value("x").after(std::time::Duration::from_secs(7200)));
    let mut spec = (PODS.spec)();
    spec["steps"][1]["timeout"] = json!("3h");
    harness.apply(RUN, &spec);
    let _life = harness.begin(OPERATOR);
    harness.pass(60).await;
    let before = harness.server.log().len();
    harness.pass(3600).await;
    let log = harness.server.log();
    let asked: Vec<_> = log[before..].iter().filter(|e| e.verb != Verb::Watch).map(Entry::line).collect();
    assert!(asked.is_empty(), "{asked:#?}");
}
