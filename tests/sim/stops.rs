//! The consequences of stopped evaluations: three of a run, or of votes on it, quarantine it, and an evaluation whose
//! result could not be used does not begin. In real time, because evaluations are limited by CPU time.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_controller::{Evaluator, EvaluatorSettings};
use signoff_expr::endless;
use signoff_tests::sim::{Answer, Fault, On, Refusal};

use crate::{
    endless::{HONEST, harness_with_limit, honest, is_quarantined, wait_until_quarantined},
    harness::{Harness, NAMESPACE, OPERATOR, approvals, workflows},
    people::verdict,
    scenarios::{RUN, chain, gate, of_model, set},
};

fn harness() -> Harness {
    harness_with_limit(Duration::from_millis(100))
}

/// Returns an agent whose answer is checked, and whose failure does not end the run.
fn agent_step(name: &str) -> Value {
    json!({"name": name, "agent": {"name": "writer", "input": "go"}, "onError": "continue",
        "outputSchema": {"type": "object"}})
}

/// Lets the agents give answers whose check never ends.
fn answer_without_end(harness: &Harness, names: &[&str]) {
    for name in names {
        harness.world.answers(format!("{RUN}/{name}"), Answer::value("{} [[endless:output]]"));
    }
}

fn too_costly_steps(workflow: &Value) -> Vec<&str> {
    let records = workflow["status"]["steps"].as_array().into_iter().flatten();
    let failed = records.filter(|record| record["error"]["class"] == "TooCostly");
    failed.filter_map(|record| record["path"].as_str()).collect()
}

/// Returns the message of the condition `Quarantined`; empty without the condition.
fn message(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let quarantined = conditions.filter(|condition| condition["type"] == "Quarantined");
    quarantined.filter_map(|condition| condition["message"].as_str()).collect()
}

#[tokio::test]
async fn a_scripted_answer_that_never_ends_quarantines_its_run() {
    let harness = harness();
    harness.apply(RUN, &chain(json!([agent_step("draft"), set("after", "on")])));
    answer_without_end(&harness, &["draft"]);
    let _life = harness.begin(OPERATOR);
    let workflow = wait_until_quarantined(&harness, RUN).await;
    assert_eq!(too_costly_steps(&workflow), Vec::<&str>::new(), "no step is to blame: {workflow:#}");
    assert_eq!(workflow["status"]["quarantine"]["failures"], 1);
}

#[tokio::test]
async fn the_third_answer_that_never_ends_quarantines_its_run() {
    let harness = harness();
    let steps = json!([
        agent_step("one"),
        agent_step("two"),
        gate("review", json!({})),
        agent_step("three"),
        set("after", "on")
    ]);
    harness.apply(RUN, &of_model(chain(steps)));
    answer_without_end(&harness, &["one", "two", "three"]);
    let life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("review").await;
    assert_eq!(too_costly_steps(&harness.workflow(RUN)).len(), 2, "each fails its step");
    assert!(!is_quarantined(&harness.workflow(RUN)));
    // The next process reads the stopped evaluations from the journal.
    life.crash().await;
    let _life = harness.begin(OPERATOR);
    harness.people().vote("bob", &approval, verdict("Approve"));
    let workflow = wait_until_quarantined(&harness, RUN).await;
    assert_eq!(workflow["status"]["quarantine"]["failures"], 3, "{workflow:#}");
    assert!(workflow["status"]["quarantine"]["until"].is_string(), "what others wrote stops no run for good");
    assert!(message(&workflow).contains("tried again after"), "{}", message(&workflow));
    honest(&harness);
    assert_eq!(harness.wait_for_end(HONEST).await["status"]["phase"], "Succeeded");
    harness.people().set_field(RUN, "cancel", true);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
}

#[tokio::test]
async fn two_answers_that_never_end_fail_their_steps_and_the_run_goes_on() {
    let harness = harness();
    harness.apply(RUN, &of_model(chain(json!([agent_step("one"), agent_step("two"), set("after", "on")]))));
    answer_without_end(&harness, &["one", "two"]);
    let _life = harness.begin(OPERATOR);
    let workflow = harness.wait_for_end(RUN).await;
    assert_eq!(
        (&workflow["status"]["phase"], too_costly_steps(&workflow).len()),
        (&json!("Succeeded"), 2),
        "{workflow:#}"
    );
    assert!(!is_quarantined(&workflow));
}

#[tokio::test]
async fn a_run_is_not_retried_after_its_text_was_stopped_three_times() {
    let harness = harness();
    harness.apply(RUN, &chain(json!([set("one", "[[endless:render]]")])));
    let life = harness.begin(OPERATOR);
    wait_until_quarantined(&harness, RUN).await;
    for (failures, ttl) in [(2, "1h"), (3, "2h")] {
        harness.people().set_field(RUN, "ttlAfterFinished", ttl);
        let counted = |workflow: &Value| workflow["status"]["quarantine"]["failures"] == failures;
        harness.server.until(&workflows(), NAMESPACE, RUN, counted).await;
    }
    let workflow = harness.workflow(RUN);
    assert_eq!(workflow["status"]["quarantine"]["until"], Value::Null, "{workflow:#}");
    let message = message(&workflow);
    let remedies = ["not tried again by itself after 3 attempts", "create it again", "cancel it", "evaluationLimit"];
    assert!(remedies.iter().all(|remedy| message.contains(remedy)), "{message}");
    // An edited run is not evaluated at once.
    let evaluated = harness.evaluator.begun();
    harness.people().set_field(RUN, "ttlAfterFinished", "3h");
    honest(&harness);
    harness.wait_for_end(HONEST).await;
    let of_honest = harness.evaluator.begun() - evaluated;
    assert_eq!(harness.workflow(RUN)["status"]["quarantine"]["failures"], 3);
    // The next process does not evaluate the run either.
    life.crash().await;
    let _life = harness.begin(OPERATOR);
    harness.apply("second-honest", &chain(json!([set("one", "1"), set("two", "2")])));
    harness.wait_for_end("second-honest").await;
    assert!(of_honest <= 3, "{of_honest} evaluations beside the run that is set aside");
    harness.people().set_field(RUN, "cancel", true);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
}

#[tokio::test]
async fn a_run_is_not_evaluated_again_when_the_quarantine_write_failed() {
    for fault in [Fault::Reset, Fault::Conflict, Fault::Refuse(Refusal::new(500, "InternalError", "broken"))] {
        let harness = harness();
        harness.apply(RUN, &chain(json!([set("one", "[[endless:render]]")])));
        let writes = On::writes_of(OPERATOR).only(|request| request.resource.plural == "workflows");
        let case = format!("{fault:?}");
        harness.server.fault(writes.first(4), fault);
        let _life = harness.begin(OPERATOR);
        let workflow = wait_until_quarantined(&harness, RUN).await;
        assert_eq!(workflow["status"]["quarantine"]["failures"], 1, "{case}: {workflow:#}");
        assert_eq!(harness.evaluator.begun(), 2, "{case}: its plan and one transition");
    }
}

#[tokio::test]
async fn votes_on_a_run_wait_after_three_that_never_end() {
    let harness = harness();
    let people = ["alice", "bob", "carol", "dave"];
    let approvers: Vec<Value> = people.iter().map(|name| json!({"kind": "User", "name": name})).collect();
    let form = json!({"questions": [{"id": "why", "question": "Why?"}]});
    let asks = json!({"approvers": approvers, "allowedVerdicts": ["Approve", "Respond"], "form": form,
        "allowUnanswered": true});
    harness.apply(RUN, &chain(json!([gate("ask", asks)])));
    let _life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("ask").await;
    let vote = || json!({"verdict": "Respond", "response": "[[endless:answer]]"});
    for user in &people[..2] {
        harness.people().vote(user, &approval, vote());
        let invalid = |approval: &Value| approval["status"]["invalid"][user]["why"].is_string();
        harness.server.until(&approvals(), NAMESPACE, &approval, invalid).await;
    }
    harness.people().vote("carol", &approval, vote());
    let stored = harness.server.until(&approvals(), NAMESPACE, &approval, is_quarantined).await;
    assert!(message(&stored).contains("tried again after"), "{stored:#}");
    // Another vote does not make the operator evaluate the votes again.
    let evaluated = harness.evaluator.begun();
    harness.people().vote("dave", &approval, verdict("Approve"));
    honest(&harness);
    harness.wait_for_end(HONEST).await;
    let of_honest = harness.evaluator.begun() - evaluated;
    assert!(of_honest <= 3, "{of_honest} evaluations beside the votes that wait");
    assert_eq!(harness.approval()["status"]["outcome"], Value::Null);
    harness.people().set_field(RUN, "cancel", true);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
}

#[tokio::test]
async fn votes_that_never_end_do_not_quarantine_their_run_forever() {
    let harness = harness();
    let approvers = ["alice", "bob", "carol"].map(|name| json!({"kind": "User", "name": name}));
    let form = json!({"questions": [{"id": "why", "question": "Why?"}]});
    let asks = json!({"approvers": approvers, "allowedVerdicts": ["Approve", "Respond"], "form": form,
        "allowUnanswered": true});
    harness.apply(RUN, &chain(json!([gate("ask", asks), set("after", "[[endless:render]]")])));
    let _life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("ask").await;
    for user in ["alice", "bob"] {
        harness.people().vote(user, &approval, json!({"verdict": "Respond", "response": "[[endless:answer]]"}));
        let invalid = |approval: &Value| approval["status"]["invalid"][user]["why"].is_string();
        harness.server.until(&approvals(), NAMESPACE, &approval, invalid).await;
    }
    harness.people().vote("carol", &approval, verdict("Approve"));
    let workflow = wait_until_quarantined(&harness, RUN).await;
    let quarantine = &workflow["status"]["quarantine"];
    assert!(quarantine["failures"] == 3 && quarantine["until"].is_string(), "{workflow:#}");
}

#[tokio::test]
async fn an_object_that_changes_during_a_reconcile_is_observed_again() {
    let limit = Duration::from_secs(60);
    let settings = EvaluatorSettings { limit, grace: limit, ..EvaluatorSettings::default() };
    let harness = Harness { evaluator: Evaluator::start(settings).unwrap(), ..Harness::new() };
    let life = harness.begin(OPERATOR);
    harness.apply(HONEST, &chain(json!([set("one", "observed: [[none:parse]]")])));
    harness.wait_for_end(HONEST).await;
    let undisturbed = harness.evaluator.begun();
    harness.apply(RUN, &chain(json!([set("one", "observed: [[deaf:parse]]")])));
    while harness.evaluator.begun() == undisturbed {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Its plan is evaluated, and in that time the operator learns that it has another spec.
    harness.people().set_field(RUN, "ttlAfterFinished", "1h");
    tokio::time::sleep(Duration::from_millis(300)).await;
    endless::release("observed: [[deaf");
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
    // Only the plan is evaluated again: no transition began that could not be written.
    assert_eq!(harness.evaluator.begun(), undisturbed * 2 + 1);
    life.crash().await;
}
