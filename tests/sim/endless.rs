//! Text that takes forever to evaluate, in both reconciles: it stops only its author. In real time, because evaluations
//! are limited by CPU time.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_controller::{Evaluator, EvaluatorSettings, ExitReason};
use signoff_expr::endless;
use signoff_tests::sim::Answer;

use crate::{
    harness::{Harness, NAMESPACE, OPERATOR, approvals, condition, workflows},
    people::verdict,
    scenarios::{RUN, chain, gate, of_model, post, set},
    withdrawal,
};

pub const HONEST: &str = "honest";

/// Returns a harness whose evaluations have this limit, and as much grace.
pub fn harness_with_limit(limit: Duration) -> Harness {
    let settings = EvaluatorSettings { limit, grace: limit, ..EvaluatorSettings::default() };
    Harness { evaluator: Evaluator::start(settings).unwrap(), ..Harness::new() }
}

fn harness() -> Harness {
    harness_with_limit(Duration::from_millis(100))
}

pub fn honest(harness: &Harness) {
    harness.apply(HONEST, &chain(json!([set("one", "1"), post("send", "{{ steps.one.response }}", "fail")])));
}

pub fn is_quarantined(workflow: &Value) -> bool {
    condition(workflow, "Quarantined").0 == "True"
}

pub async fn wait_until_quarantined(harness: &Harness, name: &str) -> Value {
    harness.server.until(&workflows(), NAMESPACE, name, is_quarantined).await
}

#[tokio::test]
async fn a_run_whose_text_never_ends_is_quarantined_alone() {
    for (place, reason) in
        [("endless:render", "TooCostly"), ("endless:parse", "TooCostly"), ("deaf:render", "NotStopped")]
    {
        let harness = harness();
        harness.apply(RUN, &chain(json!([set("one", &format!("alone: [[{place}]]"))])));
        let _life = harness.begin(OPERATOR);
        honest(&harness);
        assert_eq!(harness.wait_for_end(HONEST).await["status"]["phase"], "Succeeded", "{place}");
        let workflow = wait_until_quarantined(&harness, RUN).await;
        endless::release(&format!("alone: [[{place}"));
        assert_eq!(condition(&workflow, "Quarantined"), ("True".to_owned(), reason.to_owned()), "{place}");
        let quarantine = &workflow["status"]["quarantine"];
        assert_eq!((&quarantine["failures"], &quarantine["generation"]), (&json!(1), &json!(1)), "{place}");
        assert!(quarantine["operatorVersion"].is_string(), "{place}");
        assert_eq!(workflow["status"]["finishedAt"], Value::Null, "{place}: it is set aside, not failed");
        let is_told = |harness: &Harness| !harness.events("Quarantined").is_empty();
        harness.server.until_all(|_| is_told(&harness)).await;
    }
}

#[tokio::test]
async fn a_quarantined_run_is_cancelled_without_an_evaluation() {
    let harness = harness();
    harness.apply(RUN, &chain(json!([set("one", "[[endless:render]]")])));
    let _life = harness.begin(OPERATOR);
    wait_until_quarantined(&harness, RUN).await;
    let evaluated = harness.evaluator.begun();
    harness.people().set_field(RUN, "suspend", true);
    harness.wait_for_phase(RUN, "Suspended").await;
    harness.people().set_field(RUN, "cancel", true);
    let workflow = harness.wait_for_end(RUN).await;
    assert_eq!(workflow["status"]["phase"], "Cancelled");
    assert_eq!(condition(&workflow, "Quarantined"), Default::default());
    assert_eq!(harness.evaluator.begun(), evaluated, "nothing of it was evaluated");
}

#[tokio::test]
async fn a_quarantined_run_is_retried_after_a_minute_or_an_edit() {
    let harness = harness();
    harness.apply(RUN, &chain(json!([set("one", "[[endless:render]]")])));
    let life = harness.begin(OPERATOR);
    let first = wait_until_quarantined(&harness, RUN).await["status"]["quarantine"].clone();
    // The next process finds the run quarantined, and does not evaluate it.
    life.crash().await;
    let _life = harness.begin(OPERATOR);
    honest(&harness);
    harness.wait_for_end(HONEST).await;
    assert_eq!(harness.workflow(RUN)["status"]["quarantine"], first);
    harness.people().set_field(RUN, "ttlAfterFinished", "1h");
    let again = |workflow: &Value| workflow["status"]["quarantine"]["generation"] == 2;
    let second = harness.server.until(&workflows(), NAMESPACE, RUN, again).await["status"]["quarantine"].clone();
    assert_eq!(second["failures"], 2, "stopped evaluations count whatever the generation");
}

#[tokio::test]
async fn an_answer_that_never_ends_fails_its_step_and_not_the_run() {
    let harness = harness();
    let answers = json!({"name": "draft", "agent": {"name": "writer", "input": "go"}, "onError": "continue",
        "outputSchema": {"type": "object"}});
    harness.apply(RUN, &of_model(chain(json!([answers, set("after", "on")]))));
    harness.world.answers(format!("{RUN}/draft"), Answer::value("{} [[endless:output]]"));
    let _life = harness.begin(OPERATOR);
    let workflow = harness.wait_for_end(RUN).await;
    assert_eq!(workflow["status"]["phase"], "Succeeded", "{workflow:#}");
    let classes: Vec<_> =
        workflow["status"]["steps"].as_array().unwrap().iter().map(|s| &s["error"]["class"]).collect();
    assert!(classes.contains(&&json!("TooCostly")), "{classes:?}");
    assert!(!is_quarantined(&workflow));
}

#[tokio::test]
async fn a_vote_that_never_ends_is_invalid_and_the_others_count() {
    for mark in ["endless", "deaf"] {
        let harness = harness();
        let form = json!({"questions": [{"id": "why", "question": "Why?"}]});
        let asks = gate(
            "ask",
            json!({"allowedVerdicts": ["Approve", "Reject", "Respond"], "form": form, "allowUnanswered": true}),
        );
        harness.apply(RUN, &chain(json!([asks])));
        let _life = harness.begin(OPERATOR);
        let approval = harness.people().wait_for_gate("ask").await;
        harness.people().vote(
            "alice",
            &approval,
            json!({"verdict": "Respond", "response": format!("[[{mark}:answer]]")}),
        );
        let invalid = |approval: &Value| approval["status"]["invalid"]["alice"]["why"].is_string();
        harness.server.until(&approvals(), NAMESPACE, &approval, invalid).await;
        endless::release(&format!("{mark}:answer"));
        harness.people().vote("bob", &approval, verdict("Approve"));
        let workflow = harness.wait_for_end(RUN).await;
        assert_eq!(workflow["status"]["phase"], "Succeeded", "{mark}");
    }
}

#[tokio::test]
async fn the_evaluation_of_a_withdrawn_or_suspended_run_ends_at_once() {
    for way in ["deleted", "namespace", "suspended", "cancelled"] {
        // One thread, which an evaluation may have for longer than this test waits.
        let limit = Duration::from_secs(60);
        let settings = EvaluatorSettings { threads: 1, limit, grace: limit, ..EvaluatorSettings::default() };
        let harness = Harness { evaluator: Evaluator::start(settings).unwrap(), ..Harness::new() };
        harness.apply(RUN, &chain(json!([set("one", "withdrawn: [[endless:render]]")])));
        let _life = harness.begin(OPERATOR);
        while harness.evaluator.begun() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        match way {
            "deleted" => assert!(harness.server.remove(&workflows(), NAMESPACE, RUN)),
            "namespace" => withdrawal::delete_namespace(&harness.server),
            "suspended" => harness.people().set_field(RUN, "suspend", true),
            _ => harness.people().set_field(RUN, "cancel", true),
        }
        // The honest twin waits for the thread.
        harness.apply_in("other", HONEST, &chain(json!([set("one", "1")])));
        let ended = |workflow: &Value| workflow["status"]["phase"] == "Succeeded";
        let kind = workflows();
        let twin = harness.server.until(&kind, "other", HONEST, ended);
        assert!(tokio::time::timeout(Duration::from_secs(20), twin).await.is_ok(), "{way}");
        endless::release("withdrawn");
        if way == "cancelled" {
            assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
        } else if way == "suspended" {
            harness.wait_for_phase(RUN, "Suspended").await;
        }
        assert!(!is_quarantined(&harness.workflow(RUN)), "{way}");
    }
}

#[tokio::test]
async fn two_lost_threads_end_the_process_after_both_runs_are_quarantined() {
    let harness = harness();
    for name in ["one", "two"] {
        harness.apply(name, &chain(json!([set("one", "two threads: [[deaf:render]]")])));
    }
    let life = harness.server.incarnation(OPERATOR);
    let ended = harness.operator_of(&life).run(std::future::pending()).await;
    endless::release("two threads");
    assert!(matches!(ended, Err(ExitReason::LostThreads(2))), "{ended:?}");
    for name in ["one", "two"] {
        assert!(is_quarantined(&harness.workflow(name)), "{name}");
    }
    // The next process begins clean, and leaves them quarantined.
    let next = Harness { evaluator: self::harness().evaluator, ..harness.clone() };
    let _life = next.begin(OPERATOR);
    honest(&next);
    assert_eq!(next.wait_for_end(HONEST).await["status"]["phase"], "Succeeded");
    assert!(["one", "two"].iter().all(|name| is_quarantined(&next.workflow(name))));
}

#[tokio::test]
async fn a_hundred_hostile_runs_quarantine_no_run_of_another_namespace() {
    check_a_hundred_beside_a_hundred("hostile").await;
}

#[tokio::test]
async fn a_hundred_hostile_runs_quarantine_no_honest_run_beside_them() {
    check_a_hundred_beside_a_hundred(NAMESPACE).await;
}

/// Checks a hundred endless runs in `namespace` beside a hundred honest ones.
async fn check_a_hundred_beside_a_hundred(namespace: &str) {
    const EACH: usize = 100;
    let harness = harness();
    for number in 0..EACH {
        let endless = chain(json!([set("one", "[[endless:render]]")]));
        harness.apply_in(namespace, &format!("hostile-{number}"), &endless);
        let rounds = "{% for i in range(200) %}{{ i }}{% endfor %}";
        harness.apply(&format!("honest-{number}"), &chain(json!([set("one", rounds), set("two", rounds)])));
    }
    let _life = harness.begin(OPERATOR);
    for number in 0..EACH {
        let workflow = harness.wait_for_end(&format!("honest-{number}")).await;
        assert_eq!(workflow["status"]["phase"], "Succeeded");
        assert_eq!(condition(&workflow, "Quarantined"), (String::new(), String::new()), "it was never set aside");
    }
    for number in 0..EACH {
        harness.server.until(&workflows(), namespace, &format!("hostile-{number}"), is_quarantined).await;
    }
}

#[tokio::test]
async fn only_the_run_that_ended_the_operator_is_quarantined() {
    let plain = Harness::new();
    let folder = tempfile::tempdir().unwrap();
    for (name, alone) in [("deadly", true), ("suspect", false)] {
        let stored = plain.apply(name, &chain(json!([set("one", "1")])));
        let subject = json!({"kind": "Workflow", "namespace": NAMESPACE, "name": name, "generation": 1,
            "uid": stored["metadata"]["uid"]});
        let mark = json!({"subject": subject, "alone": alone, "part": null});
        std::fs::write(folder.path().join(format!("evaluating-{name}")), mark.to_string()).unwrap();
    }
    let settings = EvaluatorSettings { marks: Some(folder.path().to_owned()), ..EvaluatorSettings::default() };
    let harness = Harness { evaluator: Evaluator::start(settings).unwrap(), ..plain };
    let _life = harness.begin(OPERATOR);
    honest(&harness);
    for name in [HONEST, "suspect"] {
        assert_eq!(harness.wait_for_end(name).await["status"]["phase"], "Succeeded", "{name}");
    }
    let deadly = wait_until_quarantined(&harness, "deadly").await;
    assert_eq!(condition(&deadly, "Quarantined"), ("True".to_owned(), "EndedOperator".to_owned()));
}
