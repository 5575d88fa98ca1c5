//! Many calls at once: which run, which wait and show it, and how long one may last.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_engine::Settings;
use signoff_tests::sim::Answer;

use crate::{
    ending::list,
    harness::{Harness, NAMESPACE, NO_ROOM, OPERATOR, condition, is_status_write, workflows},
    scenarios::chain,
};

/// Returns `count` concurrent http requests to one host; each may take an hour.
fn branches(count: usize, host: &str) -> Value {
    let steps: Vec<Value> = (0..count)
        .map(|n| {
            let http = json!({"method": "GET", "url": format!("http://{host}/{n}")});
            json!({"name": "get", "branch": format!("b{n}"), "timeout": "1h", "http": http})
        })
        .collect();
    json!({"requestedBy": "dana", "pattern": {"parallel": {"maxParallel": 128}}, "steps": steps})
}

/// Applies a Workflow with `count` calls, each of which takes `minutes`.
fn apply_slow_calls(harness: &Harness, namespace: &str, name: &str, count: usize, minutes: u64) {
    for n in 0..count {
        let answer = Answer::value("done").after(Duration::from_secs(60 * minutes));
        harness.world.answers(format!("{name}/b{n}/get"), answer);
    }
    harness.apply_in(namespace, name, &branches(count, &format!("{name}.test")));
}

/// Applies a Workflow with one call that is answered at once.
fn apply_one_call(harness: &Harness, namespace: &str, name: &str) {
    let step = json!({"name": "get", "http": {"method": "GET", "url": format!("http://{name}.test/")}});
    harness.apply_in(namespace, name, &chain(json!([step])));
}

fn read_workflow(harness: &Harness, namespace: &str, name: &str) -> Value {
    harness.server.value(&workflows(), namespace, name).unwrap()
}

fn count_in_flight(harness: &Harness, workflow: &str) -> usize {
    let prefix = format!("{workflow}/");
    harness.world.effects().iter().filter(|e| e.answered.is_none() && e.key.path.starts_with(&prefix)).count()
}

/// Returns the message of the condition `CallsPending`; empty without the condition.
fn pending_message(workflow: &Value) -> String {
    let condition = list(&workflow["status"]["conditions"]).find(|c| c["type"] == "CallsPending").cloned();
    condition.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn eighty_slow_calls_of_a_workflow_do_not_block_other_runs() {
    let harness = Harness::new();
    let _life = harness.begin_and_settle(OPERATOR).await;
    apply_slow_calls(&harness, "crowded", "big", 80, 30);
    harness.pass(10).await;
    assert_eq!(count_in_flight(&harness, "big"), 16, "a quarter of 64");
    assert_eq!(
        condition(&read_workflow(&harness, "crowded", "big"), "CallsPending"),
        ("True".to_owned(), "Queued".to_owned())
    );
    let said = pending_message(&read_workflow(&harness, "crowded", "big"));
    assert!(
        said.starts_with("step b16/get: its Workflow has 16 calls in flight") && said.contains("63 more"),
        "{said}"
    );
    // The honest twins: in another namespace, and beside it.
    for (namespace, name) in [("other", "alone"), ("crowded", "beside")] {
        apply_one_call(&harness, namespace, name);
        harness.pass(1).await;
        let run = read_workflow(&harness, namespace, name);
        assert_eq!(run["status"]["phase"], "Succeeded", "{}", harness.server.story());
        assert_eq!(pending_message(&run), "");
    }
    let ended = |run: &Value| run["status"]["finishedAt"].is_string();
    let run = harness.server.until(&workflows(), "crowded", "big", ended).await;
    assert_eq!(run["status"]["phase"], "Succeeded");
    assert_eq!(condition(&run, "CallsPending"), Default::default());
    // Five rounds of sixteen calls, half an hour each: no slot stayed free.
    let took = harness.server.clock().elapsed().as_secs();
    assert!((5 * 1800..5 * 1800 + 60).contains(&took), "{took} s");
    assert_eq!((harness.world.effects().len(), harness.world.repeated().len()), (82, 0));
    let writes = harness.server.count(is_status_write);
    assert!(writes <= 2 * 82 + 10, "{writes} status writes");
}

#[tokio::test(start_paused = true)]
async fn a_new_namespace_gets_a_call_slot_beside_a_thousand_waiting_calls() {
    let harness = Harness::new();
    let _life = harness.begin_and_settle(OPERATOR).await;
    for n in 0..8 {
        apply_slow_calls(&harness, "one", &format!("a{n}"), 128, 10);
        apply_slow_calls(&harness, "two", &format!("b{n}"), 128, 20);
    }
    harness.pass(60).await;
    let running = |crowd: &str| (0..8).map(|n| count_in_flight(&harness, &format!("{crowd}{n}"))).sum::<usize>();
    let (one, two) = (running("a"), running("b"));
    assert!(one.min(two) >= 16 && one + two <= 44, "{one} and {two} of 64");
    let share = format!("the namespace one has {one} calls in flight, which is its share");
    assert!(
        (0..8).any(|n| pending_message(&read_workflow(&harness, "one", &format!("a{n}"))).contains(&share)),
        "{share}"
    );
    apply_one_call(&harness, "three", "alone");
    harness.pass(1).await;
    assert_eq!(read_workflow(&harness, "three", "alone")["status"]["phase"], "Succeeded");
    // Enough namespaces that their first calls take all slots.
    for n in 0..40 {
        apply_slow_calls(&harness, &format!("further-{n}"), &format!("c{n}"), 2, 20);
    }
    harness.pass(60).await;
    apply_one_call(&harness, "four", "alone");
    harness.pass(60).await;
    let waits = read_workflow(&harness, "four", "alone");
    assert_eq!(condition(&waits, "CallsPending"), ("True".to_owned(), "Queued".to_owned()));
    assert!(
        pending_message(&waits).contains("the operator has 64 calls in flight")
            && pending_message(&waits).contains("(--max-calls)")
    );
    // The first calls end after ten minutes.
    let ended = |run: &Value| run["status"]["finishedAt"].is_string();
    let run = harness.server.until(&workflows(), "four", "alone", ended).await;
    assert_eq!(run["status"]["phase"], "Succeeded");
    let took = harness.server.clock().elapsed().as_secs();
    assert!((600..610).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_are_made_after_a_crash() {
    let harness = Harness::new();
    apply_slow_calls(&harness, NAMESPACE, "big", 40, 1);
    for _ in 0..3 {
        let life = harness.begin_and_settle(OPERATOR).await;
        harness.pass(90).await;
        life.crash().await;
    }
    let _life = harness.begin(OPERATOR);
    assert_eq!(harness.wait_for_end("big").await["status"]["phase"], "Succeeded", "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_of_a_stopped_run_block_no_other_run() {
    for field in ["suspend", "cancel"] {
        let harness = Harness::new();
        let _life = harness.begin_and_settle(OPERATOR).await;
        apply_slow_calls(&harness, NAMESPACE, "big", 32, 1);
        harness.pass(10).await;
        harness.people().set_field("big", field, true);
        harness.pass(120).await;
        assert_eq!(harness.world.effects().len(), 16, "{field}: nothing more begins");
        apply_slow_calls(&harness, NAMESPACE, "next", 16, 1);
        assert_eq!(harness.wait_for_end("next").await["status"]["phase"], "Succeeded");
        if field == "suspend" {
            harness.people().set_field("big", field, false);
            assert_eq!(harness.wait_for_end("big").await["status"]["phase"], "Succeeded");
        }
    }
}

fn timeout(step: &str) -> Value {
    let http = json!({"method": "GET", "url": "http://slow.test/"});
    chain(json!([{"name": "get", "timeout": step, "http": http}]))
}

#[tokio::test(start_paused = true)]
async fn a_timeout_beyond_the_operators_setting_is_refused_with_its_remedy() {
    let harness = Harness::new();
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.apply("long", &timeout("61m"));
    let refused = harness.wait_for_end("long").await;
    assert_eq!(condition(&refused, "Accepted"), ("False".to_owned(), "Invalid".to_owned()));
    let why = refused["status"]["message"].as_str().unwrap_or_default();
    let expected = "spec.steps[0].timeout: 1h1m is longer than a call may take: give at most 1h, or ask an administrator to raise --max-call-timeout; correct the file, check it with `signoff validate FILE`, and run it with `kubectl replace --force -f FILE`";
    assert_eq!(why, expected);
    harness.apply("short", &timeout("1h"));
    assert_eq!(harness.wait_for_end("short").await["status"]["phase"], "Succeeded");
    // Containers are not calls of the operator.
    let pod = json!({"image": "tool@sha256:1", "command": ["tool"]});
    harness.apply("container", &chain(json!([{"name": "build", "timeout": "3h", "pod": pod}])));
    assert_eq!(harness.wait_for_end("container").await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_accepted_under_a_longer_setting_is_cut_short() {
    let mut harness = Harness::new();
    harness.settings = Settings { max_call_timeout: Duration::from_secs(5 * 3600), ..Settings::default() };
    harness.world.answers("long/get", Answer::value("late").after(Duration::from_secs(3 * 3600)));
    harness.apply("long", &timeout("4h"));
    let life = harness.begin_and_settle(OPERATOR).await;
    life.crash().await;
    harness.settings = Settings::default();
    let _life = harness.begin_and_settle(OPERATOR).await;
    let ended = harness.wait_for_end("long").await;
    assert_eq!(ended["status"]["phase"], "Failed", "{}", harness.server.story());
    let took = harness.server.clock().elapsed().as_secs();
    assert!((3600..3610).contains(&took), "{took} s");
}

/// Applies a Workflow that sends a long text `count` times at once; each call takes ten minutes.
fn apply_long_texts(harness: &Harness, namespace: &str, name: &str, count: usize) {
    let steps: Vec<Value> = (0..count)
        .map(|n| {
            harness.world.answers(format!("{name}/b{n}/send"), Answer::value("sent").after(Duration::from_secs(600)));
            let http =
                json!({"method": "POST", "url": format!("http://{name}.test/{n}"), "body": "{{ inputs.report }}"});
            json!({"name": "send", "branch": format!("b{n}"), "timeout": "1h", "http": http})
        })
        .collect();
    let report = json!({"name": "report", "value": "x".repeat(260_000)});
    let pattern = json!({"parallel": {"maxParallel": 128}});
    let spec = json!({"requestedBy": "dana", "pattern": pattern, "inputs": [report], "steps": steps});
    harness.apply_in(namespace, name, &spec);
}

#[tokio::test(start_paused = true)]
async fn ten_namespaces_that_send_long_texts_leave_memory_to_another() {
    const HELD: &str = "signoff_held_bytes{of=\"calls\"}";
    let mut harness = Harness::new();
    harness.memory.calls = 16 * 1024 * 1024;
    let most = i64::try_from(harness.memory.calls).unwrap();
    let _life = harness.begin_and_settle(OPERATOR).await;
    for n in 0..10 {
        apply_long_texts(&harness, &format!("hostile-{n}"), &format!("h{n}"), 12);
    }
    harness.pass(5).await;
    let held = harness.metric(HELD);
    assert!(held > most / 2 && held <= most, "{held} of {most}");
    let runs: Vec<_> = (0..10).map(|n| read_workflow(&harness, &format!("hostile-{n}"), &format!("h{n}"))).collect();
    assert!(
        runs.iter().any(|run| pending_message(run).contains("there is no memory for")),
        "{:?}",
        runs.iter().map(pending_message).collect::<Vec<_>>()
    );
    assert!((0..10).all(|n| count_in_flight(&harness, &format!("h{n}")) > 0), "each has some");
    // The honest twins: one that needs no more than its own share, and one that sends a long text itself.
    apply_one_call(&harness, "other", "alone");
    apply_long_texts(&harness, "another", "long", 2);
    harness.pass(1).await;
    assert_eq!(read_workflow(&harness, "other", "alone")["status"]["phase"], "Succeeded");
    assert!(count_in_flight(&harness, "long") > 0);
    let ended = |run: &Value| run["status"]["finishedAt"].is_string();
    for n in 0..10 {
        let run = harness.server.until(&workflows(), &format!("hostile-{n}"), &format!("h{n}"), ended).await;
        assert_eq!(run["status"]["phase"], "Succeeded");
    }
    harness.pass(5).await;
    assert_eq!((harness.metric(HELD), harness.world.repeated().len()), (0, 0), "all of it is free again");
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_repeated_only_once_memory_for_its_answer_is_free() {
    let mut harness = Harness::new();
    harness.memory.calls = 32 * 1024 * 1024;
    let _life = harness.begin_and_settle(OPERATOR).await;
    for attempt in 1..=2 {
        harness.world.answers_attempt("w/ask", attempt, Answer::failure(NO_ROOM, "there is no memory for the answer"));
    }
    harness.world.answers_attempt("w/ask", 3, Answer::value("a long text").after(Duration::from_secs(120)));
    let mut spec = chain(json!([{"name": "ask", "retry": {"limit": 0}, "agent": {"name": "writer", "input": "Go."}}]));
    spec["providers"] = json!([{"name": "models", "openai": {"baseURL": "http://models.test/v1"}}]);
    spec["agents"] = json!([{"name": "writer", "model": "small", "provider": "models"}]);
    harness.apply("w", &spec);
    harness.pass(90).await;
    assert_eq!(harness.world.effects().len(), 3, "{}", harness.workflow("w"));
    let held = harness.metric("signoff_held_bytes{of=\"calls\"}");
    assert_eq!(held, 15 * 1024 * 1024, "the longest answer with its copy, without the mebibyte of its own");
    assert_eq!(harness.wait_for_end("w").await["status"]["phase"], "Succeeded");
    assert_eq!(harness.metric("signoff_held_bytes{of=\"calls\"}"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_secret_is_repeated_after_a_crash() {
    let harness = Harness::new();
    let life = harness.begin_and_settle(OPERATOR).await;
    harness.world.answers("keyed/look", Answer::value("done").after(Duration::from_secs(60)));
    let header = json!({"name": "Authorization", "prefix": "Bearer ", "from": "crm"});
    let http = json!({"url": "https://crm.test/orders", "secretHeaders": [header]});
    let mut spec = chain(json!([{"name": "look", "timeout": "5m", "http": http}]));
    spec["secrets"] = json!([{"name": "crm", "secret": "vault", "key": "token"}]);
    harness.apply("keyed", &spec);
    harness.pass(10).await;
    life.crash().await;
    let _life = harness.begin_and_settle(OPERATOR).await;
    assert_eq!(harness.wait_for_end("keyed").await["status"]["phase"], "Succeeded");
    let effects = harness.world.effects();
    assert_eq!(effects.len(), 2, "{effects:?}");
    for effect in &effects {
        let expected = json!([{
            "header": "Authorization", "prefix": "Bearer ",
            "entry": {"name": "crm", "secret": "vault", "key": "token"},
        }]);
        assert_eq!(effect.input["what"]["secret_headers"], expected);
        assert_eq!(effect.digest, effects[0].digest, "the same names each time");
    }
}
