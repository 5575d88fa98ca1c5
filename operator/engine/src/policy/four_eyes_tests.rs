//! Tests of four eyes: people who decided or edited earlier in a run cannot decide again, if a gate or a policy demands
//! it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, approval::ApprovalPhase};

use super::{
    calls_tests::{GATE, last_result, spec, turn},
    run_tests::{PolicyRun, gate, no_policies},
    tests::cluster,
    *,
};
use crate::{Fact, Plan, Settings, tests::test_run::workflow};

/// Returns the steps of a draft that is reviewed at the gates `sql` and `prod`. `prod`: fields of the second gate.
fn reviewed_steps(prod: Value) -> Value {
    json!([
        {"name": "draft", "set": {"value": "select 1"}},
        {"name": "sql", "hitl": gate(json!({}))},
        {"name": "prod", "hitl": gate(prod)},
        {"name": "done", "set": {"value": "{{ steps.draft.response }}"}},
    ])
}

fn policy_for_gates(gates: Value) -> Policies {
    cluster(&[("prod", json!({"gates": gates}))])
}

/// Returns the outcome of a decision by the people `by`, sent by the accounts `via`.
fn outcome_of(verdict: Verdict, by: &[&str], via: &[&str]) -> Outcome {
    let parameters =
        (verdict == Verdict::Modify).then(|| serde_json::from_value(json!({"response": "select 2"})).unwrap());
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    Outcome {
        verdict: Some(verdict),
        phase: ApprovalPhase::of(verdict),
        parameters,
        decided_by: names(by),
        via: names(via),
        ..Outcome::default()
    }
}

fn decide(run: &mut PolicyRun, policies: &Policies, path: &str, outcome: Outcome) {
    run.take(policies, vec![Fact::ApprovalDecided { path: path.into(), outcome: Box::new(outcome) }]);
}

/// Returns the names that the gate `prod` excludes after the decision `decided` at the gate `sql`.
fn excluded_at_prod(policies: &Policies, prod: Value, decided: Outcome) -> Vec<String> {
    let mut run = PolicyRun::start(policies, reviewed_steps(prod));
    decide(&mut run, policies, "sql", decided);
    run.asked("prod").excluded.clone()
}

#[test]
fn a_gate_excludes_the_deciders_of_the_gates_that_it_names() {
    let approved = || outcome_of(Verdict::Approve, &["alice", "bob"], &[]);
    for names in [json!(["sql"]), json!(["*"])] {
        assert_eq!(
            excluded_at_prod(&no_policies(), json!({"excludeDeciders": names}), approved()),
            ["alice", "bob"],
            "{names}"
        );
    }
    for names in [json!([]), json!(["prod"])] {
        assert_eq!(excluded_at_prod(&no_policies(), json!({"excludeDeciders": names}), approved()), [""; 0], "{names}");
    }
    let more = json!({"excludeDeciders": ["sql"], "excluded": ["zoe", "alice"]});
    assert_eq!(
        excluded_at_prod(&no_policies(), more, approved()),
        ["alice", "bob", "zoe"],
        "in addition to its own list"
    );
}

#[test]
fn a_request_names_the_decision_that_excludes_a_user() {
    let mut run = PolicyRun::start(
        &policy_for_gates(json!({"minThreshold": 1})),
        reviewed_steps(json!({"excludeDeciders": ["sql"]})),
    );
    decide(&mut run, &policy_for_gates(json!({"minThreshold": 1})), "sql", outcome_of(Verdict::Modify, &["bob"], &[]));
    let because = serde_json::to_value(&run.asked("prod").excluded_because).unwrap();
    assert_eq!(because, json!([{"user": "bob", "gate": "sql", "edited": true}]));
    let mut run = PolicyRun::start(&no_policies(), reviewed_steps(json!({"excludeDeciders": ["*"]})));
    decide(&mut run, &no_policies(), "sql", outcome_of(Verdict::Approve, &["bob"], &[]));
    let because = serde_json::to_value(&run.asked("prod").excluded_because).unwrap();
    assert_eq!(because, json!([{"user": "bob", "gate": "sql"}]));
}

#[test]
fn a_policy_with_gates_excludes_editors_by_default() {
    let edited = || outcome_of(Verdict::Modify, &["bob"], &["flux"]);
    for (policies, names) in [
        (no_policies(), vec![]),
        (cluster(&[("prod", json!({"allowedHosts": []}))]), vec![]),
        (policy_for_gates(json!({"minThreshold": 1})), vec!["bob", "flux"]),
        (policy_for_gates(json!({"excludeEditors": true})), vec!["bob", "flux"]),
        (policy_for_gates(json!({"minThreshold": 1, "excludeEditors": false})), vec![]),
    ] {
        assert_eq!(excluded_at_prod(&policies, json!({}), edited()), names, "{policies:?}");
    }
    // A policy does not loosen another one.
    let two =
        cluster(&[("a", json!({"gates": {"excludeEditors": false}})), ("b", json!({"gates": {"minThreshold": 1}}))]);
    assert_eq!(excluded_at_prod(&two, json!({}), edited()), ["bob", "flux"]);
    // An approver who changed nothing is not an editor.
    assert_eq!(
        excluded_at_prod(
            &policy_for_gates(json!({"minThreshold": 1})),
            json!({}),
            outcome_of(Verdict::Approve, &["bob"], &[])
        ),
        [""; 0]
    );
}

#[test]
fn a_policy_excludes_the_deciders_of_every_other_gate() {
    let approved = || outcome_of(Verdict::Approve, &["bob"], &["flux"]);
    assert_eq!(
        excluded_at_prod(&policy_for_gates(json!({"excludeDeciders": true})), json!({}), approved()),
        ["bob"],
        "several approvals through one account stay possible"
    );
    assert_eq!(excluded_at_prod(&policy_for_gates(json!({"excludeDeciders": false})), json!({}), approved()), [""; 0]);
    let said = PolicyRun::start(&policy_for_gates(json!({"excludeDeciders": true})), reviewed_steps(json!({})));
    assert!(
        said.asked("sql").required_by[0]
            .rules
            .contains(&"those who decided at another gate before do not decide".to_owned())
    );
}

#[test]
fn a_repeated_gate_excludes_its_own_deciders_only_if_it_names_itself() {
    for (names, people) in [(json!(["*"]), vec![]), (json!(["prod"]), vec!["bob"])] {
        let retry = json!({"excludeDeciders": names, "allowedVerdicts": ["Approve", "Reject", "Retry"]});
        let mut run = PolicyRun::start(&no_policies(), reviewed_steps(retry));
        decide(&mut run, &no_policies(), "sql", outcome_of(Verdict::Approve, &[], &[]));
        decide(&mut run, &no_policies(), "prod", outcome_of(Verdict::Retry, &["bob"], &[]));
        assert_eq!(run.asked("prod#2").excluded, people, "{names}");
    }
}

#[test]
fn more_excluded_people_than_a_request_can_name_block_the_run() {
    let names: Vec<String> = (0..33).map(|n| format!("user-{n:02}")).collect();
    let people = |count: usize| names.iter().take(count).map(String::as_str).collect::<Vec<_>>();
    let four_eyes = || json!({"excludeDeciders": ["*"]});
    let mut run = PolicyRun::start(&no_policies(), reviewed_steps(four_eyes()));
    decide(&mut run, &no_policies(), "sql", outcome_of(Verdict::Approve, &people(33), &[]));
    assert!(run.asks().is_empty());
    assert_eq!(run.transition.end, None, "the run waits");
    let blocked = &run.transition.blocked[0];
    assert_eq!((blocked.reason, blocked.message.contains("at most 32 people")), ("TooManyExcluded", true));
    assert_eq!(excluded_at_prod(&no_policies(), four_eyes(), outcome_of(Verdict::Approve, &people(32), &[])).len(), 32);
    let long = "x".repeat(254);
    let mut run = PolicyRun::start(&no_policies(), reviewed_steps(four_eyes()));
    decide(&mut run, &no_policies(), "sql", outcome_of(Verdict::Approve, &[&long], &[]));
    assert_eq!(run.transition.blocked.len(), 1, "a name that a request cannot hold is not left out");
}

#[test]
fn more_excluded_people_than_a_request_can_name_fail_the_call() {
    let names: Vec<String> = (0..33).map(|n| format!("user-{n:02}")).collect();
    let people: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut spec = spec(
        [None; 3],
        json!([{"name": "own", "type": "toolExecution", "hitl": gate(json!({"excludeDeciders": ["early"]}))}]),
    );
    spec["steps"].as_array_mut().unwrap().insert(0, json!({"name": "early", "hitl": gate(json!({}))}));
    let started = |people: &[&str]| {
        let mut run = PolicyRun::of(&no_policies(), spec.clone());
        decide(&mut run, &no_policies(), "early", outcome_of(Verdict::Approve, people, &[]));
        turn(&mut run, &no_policies(), "handle", &[("refund", "{}")]);
        run
    };
    assert!(last_result(&started(&people)).contains("at most 32 people"));
    assert_eq!(started(&["bob"]).asked(GATE).excluded, ["bob"]);
}

#[test]
fn an_account_that_sent_an_edit_does_not_send_the_approval_of_the_call() {
    let own = json!([{"name": "own", "type": "toolExecution", "hitl": gate(json!({}))}]);
    let mut run = PolicyRun::of(&no_policies(), spec([None; 3], own));
    turn(&mut run, &no_policies(), "handle", &[("refund", r#"{"to":"me"}"#)]);
    let mut edited = super::bypass_tests::modify_outcome(json!({"arguments": {"to": "you"}}));
    (edited.decided_by, edited.via) = (vec!["alice".to_owned()], vec!["flux".to_owned()]);
    decide(&mut run, &no_policies(), GATE, edited);
    assert_eq!(run.asked(&format!("{GATE}#2")).excluded, ["alice", "flux"]);
}

#[test]
fn a_plan_names_gates_that_do_not_exist_and_advises_four_eyes() {
    let planned = |prod: Value, policies: &Policies| {
        let spec = json!({"requestedBy": "dana", "steps": reviewed_steps(prod)});
        Plan::of(&workflow(spec), &Settings::default(), &Arc::new(policies.clone()))
    };
    let refused = planned(json!({"excludeDeciders": ["sqll"]}), &no_policies()).unwrap_err();
    let found: Vec<_> = refused.iter().map(|error| (error.field.as_str(), error.message.as_str())).collect();
    assert!(
        found[0].0.ends_with("hitl.excludeDeciders[0]") && found[0].1.contains("there is no gate sqll"),
        "{found:?}"
    );
    let advice = |prod: Value, policies: &Policies| {
        planned(prod, policies).unwrap().warnings().join("\n").contains("add excludeDeciders: [sql]")
    };
    assert!(advice(json!({}), &no_policies()));
    for prod in [
        json!({"excludeDeciders": ["sql"]}),
        json!({"excludeDeciders": ["*"]}),
        json!({"threshold": 2, "allowedVerdicts": ["Approve", "Reject"]}),
        json!({"approvers": [{"kind": "Group", "name": "sre"}]}),
    ] {
        assert!(!advice(prod.clone(), &no_policies()), "{prod}");
    }
    assert!(!advice(json!({}), &policy_for_gates(json!({"minThreshold": 1}))), "a policy sees to it");
    assert!(advice(json!({}), &policy_for_gates(json!({"excludeEditors": false}))));
}

#[test]
fn the_name_of_a_policys_gate_excludes_its_deciders() {
    let policies = cluster(&[(
        "prod",
        json!({"steps": [{"name": "release", "before": {"kinds": ["http"]}, "hitl": gate(json!({}))}]}),
    )]);
    let spec = |name: &str| {
        json!({"requestedBy": "dana", "steps": [
            {"name": "pay", "http": {"method": "POST", "url": "https://a.org/pay", "body": "420"}},
            {"name": "prod", "hitl": gate(json!({"excludeDeciders": [name]}))},
        ]})
    };
    let is_taken =
        |name: &str| Plan::of(&workflow(spec(name)), &Settings::default(), &Arc::new(policies.clone())).is_ok();
    assert!(!is_taken("release-look"), "there is no step look");
    for name in ["release", "release-pay"] {
        assert!(is_taken(name), "{name}");
        let mut run = PolicyRun::of(&policies, spec(name));
        decide(&mut run, &policies, "release-pay", outcome_of(Verdict::Approve, &["bob"], &[]));
        run.reply(&policies, "pay", "paid");
        assert_eq!(run.asked("prod").excluded, ["bob"], "excludeDeciders: [{name}] is taken by the plan");
    }
}

#[test]
fn gates_of_the_same_name_in_two_branches_are_two_gates() {
    let policies = cluster(&[("prod", json!({"gates": {"excludeDeciders": true}}))]);
    let in_branch = |branch: &str, mut step: serde_json::Value| {
        step["branch"] = json!(branch);
        step
    };
    let review = || json!({"name": "review", "hitl": gate(json!({}))});
    let spec = json!({"requestedBy": "dana", "pattern": {"parallel": {}}, "steps": [
        in_branch("left", review()),
        in_branch("right", json!({"name": "look", "http": {"url": "https://a.org"}})),
        in_branch("right", review()),
    ]});
    let mut run = PolicyRun::of(&policies, spec);
    decide(&mut run, &policies, "left/review", outcome_of(Verdict::Approve, &["bob"], &[]));
    run.reply(&policies, "right/look", "x");
    assert_eq!(run.asked("right/review").excluded, ["bob"]);
}

#[test]
fn a_policy_excludes_the_editor_of_a_request_from_the_gate_about_its_failure() {
    let policies = cluster(&[("prod", json!({"gates": {"minThreshold": 1}}))]);
    let hitl = gate(json!({"allowedVerdicts": ["Retry", "Modify", "Skip", "Reject"]}));
    let spec = json!({"requestedBy": "dana", "steps": [
            {"name": "pay", "http": {"method": "POST", "url": "https://a.org/pay", "body": "420"}}],
        "gates": [{"name": "errors", "type": "errorEscalation", "steps": ["pay"], "afterAttempts": 1, "hitl": hitl}]});
    let mut run = PolicyRun::of(&policies, spec);
    let fails = |run: &mut PolicyRun, attempt: i32| {
        let failure = crate::transition::Failure {
            class: "Status".into(),
            message: "500".into(),
            retryable: false,
            unknown: false,
            not_before: None,
            facts: [("statusCode".to_owned(), "500".to_owned())].into(),
            log: None,
        };
        let at = super::run_tests::moment();
        run.take(&policies, vec![Fact::CallFinished { path: "pay".into(), attempt, result: Err(failure), at }]);
    };
    fails(&mut run, 1);
    let edited = super::bypass_tests::modify_outcome(json!({"body": "1000000"}));
    decide(&mut run, &policies, "pay/.error", Outcome { decided_by: vec!["bob".into()], ..edited });
    fails(&mut run, 2);
    assert_eq!(run.asked("pay/.error#2").excluded, ["bob"]);
}

#[test]
fn a_policy_excludes_the_editor_of_the_released_text_of_a_dag() {
    let policies = cluster(&[("prod", json!({"gates": {"minThreshold": 1}}))]);
    let spec = json!({"requestedBy": "dana", "pattern": {"dag": {}}, "steps": [
            {"name": "draft", "set": {"value": "select 1"}},
            {"name": "sql", "dependsOn": ["draft"], "hitl": gate(json!({"reviews": "draft"}))},
            {"name": "last", "dependsOn": ["sql", "draft"], "set": {"value": "{{ steps.draft.response }}"}}],
        "gates": [{"name": "out", "type": "finalResponse", "hitl": gate(json!({}))}]});
    let mut run = PolicyRun::of(&policies, spec);
    let edited = super::bypass_tests::modify_outcome(json!({"response": "drop table audit"}));
    decide(&mut run, &policies, "sql", Outcome { decided_by: vec!["bob".into()], ..edited });
    assert_eq!(run.asked(".final").excluded, ["bob"]);
}

#[test]
fn a_policy_excludes_the_editor_of_a_text_in_the_prompt() {
    let policies = policy_for_gates(json!({"minThreshold": 1}));
    let excluded_editors = |prompt: &str| {
        let mut steps = reviewed_steps(json!({"prompt": prompt}));
        steps.as_array_mut().unwrap().insert(2, json!({"name": "own", "set": {"value": "x"}}));
        let mut run = PolicyRun::start(&policies, steps);
        decide(&mut run, &policies, "sql", outcome_of(Verdict::Modify, &["bob"], &[]));
        run.asked("prod").excluded.clone()
    };
    assert_eq!(excluded_editors("Run {{ steps.draft.response }}?"), ["bob"]);
    assert_eq!(excluded_editors("Run it?"), [""; 0]);
}

#[test]
fn a_policy_excludes_the_editor_of_an_earlier_prompt_of_a_conversation() {
    let hitl = gate(json!({}));
    let policies = cluster(&[(
        "prod",
        json!({"gates": {"minThreshold": 1}, "steps": [{"name": "check", "before": {"kinds": ["agent"]}, "hitl": hitl}]}),
    )]);
    let spec = json!({
        "requestedBy": "dana",
        "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}], "agents": [{"name": "writer"}],
        "steps": [
            {"name": "draft", "set": {"value": "select 1"}},
            {"name": "sql", "hitl": gate(json!({}))},
            {"name": "run", "agent": {"name": "writer", "input": "{{ steps.draft.response }}"}},
            {"name": "again", "agent": {"name": "writer", "input": "once more"}},
        ],
    });
    let mut run = PolicyRun::of(&policies, spec);
    decide(&mut run, &policies, "sql", outcome_of(Verdict::Modify, &["bob"], &[]));
    assert_eq!(run.asked("check-run").excluded, ["bob"]);
    decide(&mut run, &policies, "check-run", outcome_of(Verdict::Approve, &["carol"], &[]));
    run.reply(&policies, "run", "done");
    assert!(run.asked("check-again").reviews.as_ref().unwrap().response.contains("select 2"), "the premise");
    assert_eq!(run.asked("check-again").excluded, ["bob"]);
}

/// Two gates with the same name stay two gates.
#[test]
fn a_gate_of_a_list_and_a_step_of_the_same_name_are_two_gates() {
    let policies = policy_for_gates(json!({"excludeDeciders": true}));
    let spec = json!({"requestedBy": "dana", "steps": [
            {"name": "review", "hitl": gate(json!({}))},
            {"name": "pay", "http": {"method": "POST", "url": "https://a.org/pay", "body": "420"}}],
        "gates": [{"name": "review", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))}]});
    let mut run = PolicyRun::of(&policies, spec);
    decide(&mut run, &policies, "review", outcome_of(Verdict::Approve, &["bob"], &[]));
    assert_eq!(run.asked("pay/.start").excluded, ["bob"]);
}

#[test]
fn the_name_of_an_added_gate_does_not_match_a_longer_gate_name() {
    let policies = cluster(&[(
        "prod",
        json!({"steps": [{"name": "release", "before": {"kinds": ["http"]}, "hitl": gate(json!({}))}]}),
    )]);
    let spec = json!({"requestedBy": "dana", "steps": [
            {"name": "release-notes", "hitl": gate(json!({}))},
            {"name": "prod", "hitl": gate(json!({"excludeDeciders": ["release"]}))}]});
    let mut run = PolicyRun::of(&policies, spec);
    decide(&mut run, &policies, "release-notes", outcome_of(Verdict::Approve, &["bob"], &[]));
    assert_eq!(run.asked("prod").excluded, [""; 0]);
}
