//! Tests of runs that continue after a Reject: refused under a policy that demands an end, allowed by default, and
//! always shown.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use serde_json::{Value, json};
use signoff_api::{Verdict, Workflow};

use super::{
    run_tests::{PolicyRun, gate},
    tests::cluster,
    *,
};
use crate::{Plan, Settings, tests::test_run::in_branch};

fn hitl(name: &str, more: Value) -> Value {
    json!({"name": name, "hitl": gate(more)})
}

fn send() -> Value {
    json!({"name": "send", "http": {"method": "POST", "url": "https://a.org/"}})
}

/// Returns a spec with these fields.
fn spec(fields: Value) -> Value {
    let mut spec = json!({
        "requestedBy": "dana",
        "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}], "agents": [{"name": "writer"}],
    });
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec
}

/// Returns all ways in which a run can continue after a Reject: the spec, the path of the gate, and the next steps.
fn ways() -> Vec<(&'static str, Value, &'static str, Vec<&'static str>)> {
    let goes_on = || json!({"onReject": "continue"});
    let when = |to: &str| json!({"when": "else", "to": to});
    let write = |more: Value| {
        let mut step = json!({"name": "write", "set": {"value": "x"}, "outputSchema": {"type": "object"}});
        for (field, value) in more.as_object().unwrap() {
            step[field] = value.clone();
        }
        step
    };
    let validated = |step: Value| {
        let mut spec = spec(json!({"steps": [step, send()]}));
        spec["gates"] = json!([
            {"name": "check", "type": "outputValidation", "hitl": gate(json!({}))},
            {"name": "help", "type": "errorEscalation", "hitl": gate(json!({}))},
        ]);
        if spec["steps"][0]["onError"] != "escalate" {
            spec["gates"].as_array_mut().unwrap().pop();
        }
        spec
    };
    vec![
        ("a chain", spec(json!({"steps": [hitl("review", goes_on()), send()]})), "review", vec!["send"]),
        (
            "the last step of a chain",
            spec(json!({"steps": [hitl("review", goes_on())]})),
            "review",
            vec!["the end of the run"],
        ),
        (
            "a dag",
            spec(json!({"pattern": {"dag": {}},
                    "steps": [hitl("review", goes_on()), {"name": "send", "dependsOn": ["review"], "set": {"value": "x"}}]})),
            "review",
            vec!["send"],
        ),
        (
            "an edge of a graph that has a condition",
            spec(json!({"pattern": {"graph": {"edges": [{"from": "review", "choose": [when("send")]}]}},
                "steps": [hitl("review", json!({})), send()]})),
            "review",
            vec!["send"],
        ),
        (
            "an edge of a graph without one",
            spec(json!({"pattern": {"graph": {"edges": [{"from": "review", "to": "send"}]}},
                    "steps": [hitl("review", goes_on()), send()]})),
            "review",
            vec!["send"],
        ),
        (
            "a branch",
            spec(json!({"pattern": {"parallel": {"reduce": "sum"}},
                "steps": [in_branch("a", hitl("review", goes_on())), {"name": "x", "branch": "b", "set": {"value": "x"}},
                    {"name": "sum", "set": {"value": "x"}}]})),
            "a/review",
            vec!["sum"],
        ),
        (
            "a reduce",
            spec(json!({"pattern": {"parallel": {"reduce": "review"}},
                "steps": [{"name": "x", "branch": "a", "set": {"value": "x"}}, {"name": "x", "branch": "b", "set": {"value": "x"}},
                    hitl("review", goes_on())]})),
            "review",
            vec!["the end of the run"],
        ),
        (
            "an answer of a router",
            {
                let mut spec = spec(json!({"pattern": {"routing": {"router": {"agent": "writer", "input": "where?"}}},
                    "steps": [in_branch("a", send()), in_branch("b", send())]}));
                spec["gates"] = json!([
                    {"name": "check", "type": "outputValidation", "steps": ["router"], "hitl": gate(json!({}))},
                    {"name": "help", "type": "errorEscalation", "steps": ["router"], "hitl": gate(json!({}))},
                ]);
                spec
            },
            ".router/.output",
            vec!["router", "the route"],
        ),
        ("an answer that may fail", validated(write(json!({"onError": "continue"}))), "write/.output", vec!["send"]),
        (
            "an answer about which people are asked again",
            validated(write(json!({"onError": "escalate"}))),
            "write/.output",
            vec!["write", "send"],
        ),
    ]
}

fn errors(policies: &Policies, spec: &Value) -> Vec<(String, &'static str)> {
    let workflow: Workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "n", "uid": "00000000-0000-0000-0000-000000000001"}, "spec": spec,
    }))
    .unwrap();
    match Plan::of(&workflow, &Settings::default(), &Arc::new(policies.clone())) {
        Ok(_) => Vec::new(),
        Err(found) => found.iter().map(|one| (one.to_string(), one.reason)).collect(),
    }
}

#[test]
fn a_policy_with_deciders_refuses_to_continue_after_a_reject() {
    let demands = [
        json!({"deciders": {"approvers": [{"kind": "Group", "name": "sre"}]}}),
        json!({"minThreshold": 2}),
        json!({"timeoutActions": ["Reject", "Abort"]}),
    ];
    for (what, spec, _, targets) in ways() {
        for demand in &demands {
            let found = errors(&cluster(&[("prod", json!({"gates": demand}))]), &spec);
            let [(message, reason)] = found.as_slice() else { panic!("{what} under {demand}: {found:?}") };
            assert_eq!(*reason, "PolicyConflict");
            let said = format!(
                "after a Reject here the run continues with {}, and ClusterApprovalPolicy prod",
                targets.join(", ")
            );
            assert!(message.contains(&said), "{what}: {message}");
            let mut allows = demand.clone();
            allows["allowContinueAfterReject"] = json!(true);
            assert_eq!(errors(&cluster(&[("prod", json!({"gates": allows}))]), &spec), [], "{what}: it is allowed");
            // A policy that allows it does not speak for another one.
            let both = cluster(&[("prod", json!({"gates": allows})), ("two", json!({"gates": demand}))]);
            assert_eq!(errors(&both, &spec).len(), 1, "{what}");
        }
        let other = cluster(&[("prod", json!({"gates": {"maxTimeout": "1h"}}))]);
        assert_eq!(errors(&other, &spec), [], "{what}: a policy about something else");
    }
}

#[test]
fn a_request_names_the_steps_after_a_reject_under_its_digest() {
    for (what, spec, path, targets) in ways() {
        let mut run = PolicyRun::of(&Policies::default(), spec);
        if path.starts_with(".router") {
            run.reply(&Policies::default(), ".router", r#"{"route": "a"}"#);
        }
        let request = run.asked(path);
        assert_eq!(request.after_reject, targets, "{what}");
        let mut other = request.clone();
        other.after_reject.clear();
        assert_ne!(other.digest_of_the_rest().unwrap(), request.digest, "{what}");
    }
    let run = PolicyRun::of(&Policies::default(), spec(json!({"steps": [hitl("review", json!({})), send()]})));
    assert!(run.asked("review").after_reject.is_empty(), "a Reject ends this run");
}

#[test]
fn a_new_policy_blocks_a_gate_that_continues_after_a_reject() {
    let steps = json!([hitl("one", json!({})), hitl("two", json!({"onReject": "continue"})), send()]);
    let none = Policies::default();
    let mut run = PolicyRun::start(&none, steps);
    let strict = cluster(&[("prod", json!({"gates": {"minThreshold": 2}}))]);
    run.decide(&strict, "one", Verdict::Approve);
    assert!(run.asks().is_empty(), "nobody is asked");
    assert!(
        run.transition.blocked[0].message.contains("after a Reject here the run continues with send"),
        "{:?}",
        run.transition.blocked
    );
    run.take(&none, Vec::new());
    run.asked("two");
}

#[test]
fn a_reject_of_a_failure_ends_parallel_branches_without_fail_fast() {
    let ask =
        |name: &str| json!({"name": name, "http": {"method": "POST", "url": "https://a.org/"}, "onError": "escalate"});
    let mut spec = spec(json!({"pattern": {"parallel": {"failFast": false}},
        "steps": [in_branch("a", ask("call")), in_branch("b", hitl("wait", json!({}))), in_branch("b", send())]}));
    spec["gates"] = json!([{"name": "help", "type": "errorEscalation", "afterAttempts": 1, "hitl": gate(json!({}))}]);
    let none = Policies::default();
    let mut run = PolicyRun::of(&none, spec);
    let failure = crate::transition::Failure {
        class: "Status".into(),
        message: "503".into(),
        retryable: false,
        unknown: false,
        not_before: None,
        facts: BTreeMap::new(),
        log: None,
    };
    let at = super::run_tests::moment();
    run.take(&none, vec![crate::Fact::CallFinished { path: "a/call".into(), attempt: 1, result: Err(failure), at }]);
    run.decide(&none, "a/call/.error", Verdict::Reject);
    assert!(matches!(run.transition.end, Some(crate::End::Failed(_))), "{:?}", run.transition.end);
}
