//! Texts of models, tools and people that are expensive only together: they fail steps, and quarantine a run for a
//! while after three stopped evaluations. In real time, because evaluations are limited by CPU time.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_expr::{Scope, Template};
use signoff_tests::sim::Answer;

use crate::{
    endless::{harness_with_limit, wait_until_quarantined},
    harness::{Harness, OPERATOR, condition},
    people::verdict,
    scenario_runner::ENOUGH,
    scenarios::{RUN, chain, gate, of_model, set},
};

/// The number of slow evaluations of a test.
const SLOW: u32 = 64;

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Returns an eighth of the time that all slow evaluations of a test take together on this machine.
fn limit() -> Duration {
    let template = Template::parse("[[slow:render]]", "spec").unwrap();
    let (began, mut times) = (cpu_time(), 0);
    // The kernel may report CPU time ten milliseconds late.
    while cpu_time() - began < Duration::from_millis(100) {
        template.render(&Scope::new()).unwrap();
        times += 1;
    }
    (cpu_time() - began) / times * (SLOW / 8)
}

fn records(workflow: &Value) -> impl Iterator<Item = &Value> {
    workflow["status"]["steps"].as_array().into_iter().flatten()
}

fn too_costly(workflow: &Value) -> usize {
    records(workflow).filter(|record| record["error"]["class"] == "TooCostly").count()
}

fn assert_never_aside(harness: &Harness, workflow: &Value) {
    assert_eq!(condition(workflow, "Quarantined"), (String::new(), String::new()));
    assert_eq!(harness.events("Quarantined"), Vec::<Value>::new());
}

/// Applies a run of agents, one after the other, whose answers take long to check, and a gate after them.
fn answers_that_are_slow_to_judge(harness: &Harness) {
    let answer = |number: u32| {
        let name = format!("s{number}");
        harness.world.answers(format!("{RUN}/{name}"), Answer::value("{} [[slow:output]]"));
        json!({"name": name, "agent": {"name": "writer", "input": "go"}, "outputSchema": {"type": "object"}})
    };
    let mut steps: Vec<Value> = (0..SLOW).map(answer).collect();
    steps.push(gate("review", json!({})));
    harness.apply(RUN, &of_model(chain(json!(steps))));
}

#[tokio::test]
async fn answers_that_were_judged_are_not_judged_again() {
    let harness = harness_with_limit(limit());
    answers_that_are_slow_to_judge(&harness);
    let life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("review").await;
    assert_eq!(harness.metric("signoff_quarantined"), 0);
    let stopped = harness.metrics();
    assert!(!stopped.contains("signoff_evaluations_stopped_total{"), "nothing was stopped: {stopped}");
    // The next process has checked no answer, and checks them in as many evaluations as it needs.
    life.crash().await;
    let _life = harness.begin(OPERATOR);
    harness.people().vote("bob", &approval, verdict("Approve"));
    let workflow = harness.wait_for_end(RUN).await;
    assert_eq!((&workflow["status"]["phase"], too_costly(&workflow)), (&json!("Succeeded"), 0), "{workflow:#}");
    assert_never_aside(&harness, &workflow);
}

#[tokio::test]
async fn a_run_is_quarantined_after_three_stopped_evaluations_of_its_answers() {
    let harness = Harness { room: ENOUGH, ..harness_with_limit(limit()) };
    let branch = |number: u32| {
        let step = |name: &str, input: &str| {
            let agent = json!({"name": "writer", "input": input});
            json!({"name": name, "branch": format!("b{number}"), "agent": agent, "onError": "continue"})
        };
        [step("ask", "go"), step("use", "{{ last_response }} [[slow:render]]")]
    };
    let steps: Vec<Value> = (0..SLOW).flat_map(branch).collect();
    let mut spec = of_model(chain(json!(steps)));
    spec["pattern"] = json!({"parallel": {"maxParallel": 128}});
    harness.apply(RUN, &spec);
    let _life = harness.begin(OPERATOR);
    let workflow = wait_until_quarantined(&harness, RUN).await;
    let quarantine = &workflow["status"]["quarantine"];
    assert_eq!(quarantine["failures"], 3, "{workflow:#}");
    assert!(quarantine["until"].is_string(), "what others wrote stops no run for good");
    let asks =
        records(&workflow).filter(|r| r["path"].as_str().unwrap().ends_with("/ask") && r["phase"] == "Succeeded");
    assert!(asks.count() > 0, "what was cheap is not to blame");
}

#[tokio::test]
async fn a_run_is_quarantined_when_its_own_text_costs_too_much_after_an_answer() {
    let harness = harness_with_limit(limit());
    let draft = json!({"name": "draft", "agent": {"name": "writer", "input": "go"}});
    harness.apply(RUN, &chain(json!([draft, set("one", "[[endless:render]]")])));
    let _life = harness.begin(OPERATOR);
    let workflow = wait_until_quarantined(&harness, RUN).await;
    assert_eq!(too_costly(&workflow), 0, "{workflow:#}");
}
