//! Tests that the gates ahead are those at which the engine asks.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};
use signoff_api::Workflow;

use super::*;
use crate::{
    Settings,
    tests::test_run::{chain_of, gate, hitl, workflow},
};

/// Returns the plan of an accepted run with `added` as the gates of policies.
fn plan_with_added_gates(spec: Value, added: Value) -> Plan {
    let mut workflow: Workflow = workflow(spec);
    let digest = crate::plan::spec_digest(&workflow.spec).unwrap();
    workflow.status = serde_json::from_value(json!({"specDigest": digest, "addedSteps": added})).unwrap();
    Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap_or_else(|why| panic!("{why:?}"))
}

fn added_gate(name: &str, place: (&str, Value)) -> Value {
    let mut step = json!({"name": name, "hitl": gate(json!({}))});
    step[place.0] = place.1;
    json!({"source": "ClusterApprovalPolicy prod", "step": step})
}

fn names_of(gates: &[GateAhead<'_>]) -> Vec<(String, bool)> {
    gates.iter().map(|gate| (gate.name.to_owned(), gate.is_certain)).collect()
}

fn named_gate(name: &str, certain: bool) -> (String, bool) {
    (name.to_owned(), certain)
}

/// Returns a plan with gates of the author and of policies before the step `apply` and at the end of the run.
/// `condition`: the condition of the author's gate before the step.
fn plan_with_gates(apply: Value, condition: Option<&str>) -> Plan {
    let mut look = json!({"name": "look", "type": "stepStart", "steps": ["apply"], "hitl": gate(json!({}))});
    if let Some(condition) = condition {
        look["condition"] = json!(condition);
    }
    let release = json!({"name": "release", "type": "finalResponse", "hitl": gate(json!({}))});
    let mut spec = chain_of(json!([hitl("review", json!({})), apply]));
    spec["gates"] = json!([look, release]);
    let http = json!({"kinds": ["http"]});
    let added_gates = [
        added_gate("intake", ("at", json!("Start"))),
        added_gate("one", ("before", http.clone())),
        added_gate("two", ("before", http)),
        added_gate("exit", ("at", json!("End"))),
        added_gate("last", ("at", json!("End"))),
    ];
    plan_with_added_gates(spec, json!(added_gates))
}

fn post() -> Value {
    json!({"name": "apply", "http": {"method": "POST", "url": "http://x/"}})
}

#[test]
fn the_gates_before_a_step_are_of_the_author_and_then_of_policies() {
    let plan = plan_with_gates(post(), None);
    let gates = plan.gates_of_step("apply#2").unwrap();
    assert_eq!(
        names_of(&gates.before),
        [named_gate("look", true), named_gate("one-apply", true), named_gate("two-apply", true)]
    );
    assert_eq!(gates.before.iter().filter(|gate| gate.added_by.is_some()).count(), 2);
    assert!(gates.output.is_none() && gates.failure.is_none() && !gates.asks_about_calls);
    assert_eq!(
        names_of(&plan.gates_at_end()),
        [named_gate("release", true), named_gate("exit", true), named_gate("last", true)]
    );
    assert!(plan.gates_of_step("review").is_none(), "a gate has none");
    assert!(plan.gate_at("review#3").unwrap().is_certain);
}

#[test]
fn a_gate_with_a_condition_is_not_certain() {
    let plan = plan_with_gates(post(), Some("inputs.customer == 'ACME'"));
    let gates = plan.gates_of_step("apply").unwrap();
    assert_eq!(
        names_of(&gates.before),
        [named_gate("look", false), named_gate("one-apply", true), named_gate("two-apply", true)]
    );
    let mut skipped = post();
    skipped["skipIf"] = json!("inputs.customer == 'ACME'");
    let plan = plan_with_gates(skipped, None);
    assert!(plan.gates_of_step("apply").unwrap().before.iter().all(|gate| !gate.is_certain));
}

#[test]
fn the_place_of_a_gate_has_the_gates_that_ask_after_it() {
    let plan = plan_with_gates(post(), None);
    let then = |path: &str| match plan.place_of_gate(path).unwrap() {
        GatePlace::Start(then) | GatePlace::Step { then, .. } | GatePlace::End(then) => names_of(&then),
    };
    assert!(then("intake").is_empty());
    assert_eq!(then("apply/.start#2"), [named_gate("one-apply", true), named_gate("two-apply", true)]);
    assert_eq!(then("one-apply#2"), [named_gate("two-apply", true)]);
    assert!(then("two-apply").is_empty());
    assert_eq!(then(".final"), [named_gate("exit", true), named_gate("last", true)]);
    assert_eq!(then("exit"), [named_gate("last", true)]);
    let Some(GatePlace::Step { path, after_change, .. }) = plan.place_of_gate("two-apply") else { panic!() };
    assert_eq!((path, after_change.len()), ("apply", 2));
    assert_eq!(plan.place_of_gate("review"), None);
}
