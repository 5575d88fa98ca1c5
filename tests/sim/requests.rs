//! What a run costs the API server, and what waiting costs: a bound on requests, counted.

use signoff_tests::sim::{Entry, Verb};

use crate::{
    scenarios::{ONE_GATE, RUN},
    stage::{OPERATOR, Stage},
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
    assert!(watches <= 5 * 13, "{watches} watches were opened in an hour");
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
