//! What a run costs the API server, and what waiting costs: a bound on requests, counted.

use serde_json::json;
use signoff_tests::sim::{Entry, Verb};

use crate::{
    harness::{OPERATOR, Stage},
    scenarios::{ONE_GATE, PODS, RUN, chain, pod},
};

async fn until_asked(stage: &Stage) {
    stage.apply(RUN, &(ONE_GATE.spec)());
    stage.people().asked("review").await;
    stage.pass(1).await;
}

#[tokio::test(start_paused = true)]
async fn one_gate_costs_at_most_four_state_writes_and_three_events() {
    let stage = Stage::new();
    let _life = stage.begin(OPERATOR);
    until_asked(&stage).await;
    (ONE_GATE.people)(stage.people()).await;
    stage.ended(RUN).await;
    stage.pass(3600).await;
    let events = |entry: &Entry| entry.verb.writes() && entry.resource.plural == "events";
    let (states, events) = (stage.server.count(Entry::is_state_write), stage.server.count(events));
    assert!(states <= 4 && events <= 3, "{states} state writes and {events} Events:\n{}", stage.server.story());
    let reads = stage.server.count(|entry| entry.verb == Verb::Get);
    assert_eq!(reads, 0, "watches say everything:\n{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn state_writes_and_events_send_and_fetch_no_more_than_they_need() {
    let stage = Stage::new();
    let _life = stage.begin(OPERATOR);
    until_asked(&stage).await;
    (ONE_GATE.people)(stage.people()).await;
    stage.ended(RUN).await;
    stage.pass(60).await;
    let writes = stage.operators_writes();
    let (states, others): (Vec<_>, Vec<_>) = writes.iter().partition(|entry| entry.subresource.is_some());
    assert!(states.len() >= 3 && others.len() >= 2, "{}", stage.server.story());
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
    let mut stage = Stage::new();
    stage.lease = true;
    let _life = stage.begin(OPERATOR);
    until_asked(&stage).await;
    let before = stage.server.log().len();
    stage.pass(3600).await;
    let log = stage.server.log();
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
    let stage = Stage::new();
    let life = stage.begin(OPERATOR);
    until_asked(&stage).await;
    life.crash().await;
    let writes = stage.server.writes().len();
    for _ in 0..3 {
        let life = stage.begin(OPERATOR);
        stage.pass(600).await;
        life.crash().await;
    }
    assert_eq!(stage.server.writes().len(), writes, "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_container_costs_a_creation_a_deletion_a_look_at_its_log_and_two_state_writes() {
    let stage = Stage::new();
    let _life = stage.begin_and_settle(OPERATOR).await;
    let before = stage.server.log().len();
    stage.apply(RUN, &chain(json!([pod("build", json!({}))])));
    stage.ended(RUN).await;
    stage.pass(3600).await;
    let log = stage.server.log();
    let asked: Vec<_> = log[before..]
        .iter()
        .filter(|entry| entry.verb != Verb::Watch && entry.resource.plural != "events")
        .map(|entry| {
            format!("{:?} {} {}", entry.verb, entry.resource.plural, entry.subresource.as_deref().unwrap_or("-"))
        })
        .collect();
    let expected =
        ["Update workflows status", "Create pods -", "Get pods log", "Update workflows status", "Delete pods -"];
    assert_eq!(asked, expected, "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_runs_for_hours_costs_nothing_but_watches() {
    let stage = Stage::new();
    (PODS.world)(&stage.world);
    stage
        .world
        .answers("refund/build", signoff_tests::sim::Answer::value("x").after(std::time::Duration::from_secs(7200)));
    let mut spec = (PODS.spec)();
    spec["steps"][1]["timeout"] = json!("3h");
    stage.apply(RUN, &spec);
    let _life = stage.begin(OPERATOR);
    stage.pass(60).await;
    let before = stage.server.log().len();
    stage.pass(3600).await;
    let log = stage.server.log();
    let asked: Vec<_> = log[before..].iter().filter(|e| e.verb != Verb::Watch).map(Entry::line).collect();
    assert!(asked.is_empty(), "{asked:#?}");
}
