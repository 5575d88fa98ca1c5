//! Many calls at once: which run, which wait and say so, and how long one may last.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_engine::Settings;
use signoff_tests::sim::Answer;

use crate::{
    ending::list,
    harness::{NAMESPACE, OPERATOR, Stage, condition, is_status_write, workflows},
    scenarios::chain,
};

/// As many http requests at once, to one host; each may take an hour.
fn branches(count: usize, host: &str) -> Value {
    let steps: Vec<Value> = (0..count)
        .map(|n| {
            let http = json!({"method": "GET", "url": format!("http://{host}/{n}")});
            json!({"name": "get", "branch": format!("b{n}"), "timeout": "1h", "http": http})
        })
        .collect();
    json!({"requestedBy": "dana", "pattern": {"parallel": {"maxParallel": 128}}, "steps": steps})
}

/// A Workflow with so many calls, each of which takes so long.
fn crowd(stage: &Stage, namespace: &str, name: &str, count: usize, minutes: u64) {
    for n in 0..count {
        let answer = Answer::value("done").after(Duration::from_secs(60 * minutes));
        stage.world.answers(format!("{name}/b{n}/get"), answer);
    }
    stage.apply_in(namespace, name, &branches(count, &format!("{name}.test")));
}

/// A Workflow with one call that is answered at once.
fn single(stage: &Stage, namespace: &str, name: &str) {
    let step = json!({"name": "get", "http": {"method": "GET", "url": format!("http://{name}.test/")}});
    stage.apply_in(namespace, name, &chain(json!([step])));
}

fn of(stage: &Stage, namespace: &str, name: &str) -> Value {
    stage.server.value(&workflows(), namespace, name).unwrap()
}

fn in_flight(stage: &Stage, workflow: &str) -> usize {
    let prefix = format!("{workflow}/");
    stage.world.effects().iter().filter(|e| e.answered.is_none() && e.key.path.starts_with(&prefix)).count()
}

fn message(workflow: &Value) -> String {
    let said = list(&workflow["status"]["conditions"]).find(|c| c["type"] == "CallsPending").cloned();
    said.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn one_workflow_with_eighty_slow_calls_leaves_places_to_every_other_run() {
    let stage = Stage::new();
    let _life = stage.begin_and_settle(OPERATOR).await;
    crowd(&stage, "crowded", "big", 80, 30);
    stage.pass(10).await;
    assert_eq!(in_flight(&stage, "big"), 16, "a quarter of 64");
    assert_eq!(condition(&of(&stage, "crowded", "big"), "CallsPending"), ("True".to_owned(), "Queued".to_owned()));
    let said = message(&of(&stage, "crowded", "big"));
    assert!(said.starts_with("step b16/get: 16 calls of its Workflow run") && said.contains("63 more"), "{said}");
    // The honest twins: in another namespace, and beside it.
    for (namespace, name) in [("other", "alone"), ("crowded", "beside")] {
        single(&stage, namespace, name);
        stage.pass(1).await;
        let run = of(&stage, namespace, name);
        assert_eq!(run["status"]["phase"], "Succeeded", "{}", stage.server.story());
        assert_eq!(message(&run), "");
    }
    let ended = |run: &Value| run["status"]["finishedAt"].is_string();
    let run = stage.server.until(&workflows(), "crowded", "big", ended).await;
    assert_eq!(run["status"]["phase"], "Succeeded");
    assert_eq!(condition(&run, "CallsPending"), Default::default());
    // Five rounds of sixteen calls, half an hour each: no place was left free.
    let took = stage.server.clock().elapsed().as_secs();
    assert!((5 * 1800..5 * 1800 + 60).contains(&took), "{took} s");
    assert_eq!((stage.world.effects().len(), stage.world.repeated().len()), (82, 0));
    let writes = stage.server.count(is_status_write);
    assert!(writes <= 2 * 82 + 10, "{writes} status writes");
}

#[tokio::test(start_paused = true)]
async fn where_all_places_are_taken_the_next_is_that_of_the_namespace_that_had_none() {
    let stage = Stage::new();
    let _life = stage.begin_and_settle(OPERATOR).await;
    // Two namespaces fill their half each, and a thousand further calls of theirs wait.
    for n in 0..8 {
        crowd(&stage, "one", &format!("a{n}"), 128, 10);
        crowd(&stage, "two", &format!("b{n}"), 128, 20);
    }
    stage.pass(60).await;
    let running: usize = (0..8).flat_map(|n| [format!("a{n}"), format!("b{n}")]).map(|w| in_flight(&stage, &w)).sum();
    assert_eq!(running, 64);
    single(&stage, "three", "alone");
    stage.pass(60).await;
    let waits = of(&stage, "three", "alone");
    assert_eq!(condition(&waits, "CallsPending"), ("True".to_owned(), "Queued".to_owned()));
    assert!(message(&waits).contains("64 calls of the operator run") && message(&waits).contains("(--max-calls)"));
    // The first calls end after ten minutes.
    let ended = |run: &Value| run["status"]["finishedAt"].is_string();
    let run = stage.server.until(&workflows(), "three", "alone", ended).await;
    assert_eq!(run["status"]["phase"], "Succeeded");
    let took = stage.server.clock().elapsed().as_secs();
    assert!((600..610).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_wait_for_the_next_operator_too_and_none_is_lost() {
    let stage = Stage::new();
    crowd(&stage, NAMESPACE, "big", 40, 1);
    for _ in 0..3 {
        let life = stage.begin_and_settle(OPERATOR).await;
        stage.pass(90).await;
        life.crash().await;
    }
    let _life = stage.begin(OPERATOR);
    assert_eq!(stage.ended("big").await["status"]["phase"], "Succeeded", "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_suspended_or_cancelled_while_its_calls_wait_holds_up_nothing() {
    for field in ["suspend", "cancel"] {
        let stage = Stage::new();
        let _life = stage.begin_and_settle(OPERATOR).await;
        crowd(&stage, NAMESPACE, "big", 32, 1);
        stage.pass(10).await;
        stage.people().sets("big", field, true);
        stage.pass(120).await;
        assert_eq!(stage.world.effects().len(), 16, "{field}: nothing more begins");
        crowd(&stage, NAMESPACE, "next", 16, 1);
        assert_eq!(stage.ended("next").await["status"]["phase"], "Succeeded");
        if field == "suspend" {
            stage.people().sets("big", field, false);
            assert_eq!(stage.ended("big").await["status"]["phase"], "Succeeded");
        }
    }
}

fn timeout(step: &str) -> Value {
    let http = json!({"method": "GET", "url": "http://slow.test/"});
    chain(json!([{"name": "get", "timeout": step, "http": http}]))
}

#[tokio::test(start_paused = true)]
async fn a_timeout_beyond_the_operators_setting_is_refused_with_its_remedy() {
    let stage = Stage::new();
    let _life = stage.begin_and_settle(OPERATOR).await;
    stage.apply("long", &timeout("61m"));
    let refused = stage.ended("long").await;
    assert_eq!(condition(&refused, "Accepted"), ("False".to_owned(), "Invalid".to_owned()));
    let why = refused["status"]["message"].as_str().unwrap_or_default();
    let expected = "spec.steps[0].timeout: 1h1m is longer than a call may take: give at most 1h, or ask an administrator to raise --max-call-timeout";
    assert_eq!(why, expected);
    stage.apply("short", &timeout("1h"));
    assert_eq!(stage.ended("short").await["status"]["phase"], "Succeeded");
    // Containers are not calls of the operator.
    let pod = json!({"image": "tool@sha256:1", "command": ["tool"]});
    stage.apply("container", &chain(json!([{"name": "build", "timeout": "3h", "pod": pod}])));
    assert_eq!(stage.ended("container").await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_accepted_under_a_longer_setting_is_cut_short() {
    let mut stage = Stage::new();
    stage.settings = Settings { max_call_timeout: Duration::from_secs(5 * 3600), ..Settings::default() };
    stage.world.answers("long/get", Answer::value("late").after(Duration::from_secs(3 * 3600)));
    stage.apply("long", &timeout("4h"));
    let life = stage.begin_and_settle(OPERATOR).await;
    life.crash().await;
    stage.settings = Settings::default();
    let _life = stage.begin_and_settle(OPERATOR).await;
    let ended = stage.ended("long").await;
    assert_eq!(ended["status"]["phase"], "Failed", "{}", stage.server.story());
    let took = stage.server.clock().elapsed().as_secs();
    assert!((3600..3610).contains(&took), "{took} s");
}
