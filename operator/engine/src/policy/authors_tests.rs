//! Tests with authors who try to answer or avoid a policy's gate about calls of tools: nothing runs without the
//! approval of the policy's approvers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::{Value, json};
use signoff_api::{Approval, ApprovalRequest, Verdict, journal::StepPhase};

use super::{
    calls_tests::{
        GATE, errors, is_of_policy, policy_about_calls, policy_about_calls_with, run_with_calls, spec, turn,
    },
    run_tests::{PolicyRun, gate, moment, no_policies},
    *,
};
use crate::{
    Now,
    approval::{
        OwnerState,
        eligibility::{Voter, ineligible},
        tally,
    },
};

/// The gate of the policy is called `guard`, and the group finance decides it. These people vote at every gate that
/// allows it. One member of finance only asks for more people; the others are the author's.
const VOTERS: [(&str, &[&str], Verdict); 4] = [
    ("fred", &["finance"], Verdict::Escalate),
    ("erin", &[], Verdict::Escalate),
    ("olga", &[], Verdict::Approve),
    ("owen", &[], Verdict::Approve),
];

/// Whether deadlines and people of the author approve a request alone.
fn is_approved_without_finance(request: &ApprovalRequest) -> bool {
    let mut approval: Approval = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "a", "generation": 1},
        "spec": {"request": request},
    }))
    .unwrap();
    let mut now = Now::new(moment(), "epoch");
    for _ in 0..32 {
        for (user, groups, verdict) in VOTERS {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            let is_offered = approval.spec.request.allowed_verdicts.contains(&verdict);
            if is_offered && ineligible(&approval, &Voter::new(user, &groups), now.at).is_none() {
                let decision = serde_json::from_value(json!({"verdict": verdict, "groups": groups})).unwrap();
                approval.spec.decisions.insert(user.to_owned(), decision);
            }
        }
        let result = tally(&approval, OwnerState::Live, &now);
        if let Some(outcome) = &result.status.outcome {
            return outcome.verdict == Some(Verdict::Approve);
        }
        approval.status = Some(result.status);
        let Some(next) = result.wake_at else { return false };
        now.at = next;
    }
    false
}

/// Returns the `hitl` of a gate of an author that lets other people or deadlines decide. `how` is below 6.
fn author_hitl(how: usize) -> Value {
    let escalates = json!(["Approve", "Reject", "Escalate", "Abort"]);
    let to = |name: &str| json!([{"kind": "User", "name": name}]);
    gate(match how {
        0 => json!({"onReject": "continue"}),
        1 => json!({"timeout": {"after": "1s", "action": "Approve"}}),
        2 => {
            json!({"timeout": {"after": "1s", "action": "Escalate", "escalation": [{"to": to("olga")}, {"to": to("owen")}]}})
        }
        3 => {
            json!({"allowedVerdicts": escalates, "escalateTo": to("olga"), "timeout": {"after": "9h", "action": "Abort"}})
        }
        4 => json!({"approvers": to("olga"), "timeout": {"after": "1s", "action": "Retry"}}),
        _ => json!({"allowedVerdicts": escalates, "approvers": to("erin"), "escalateTo": to("owen"),
                    "timeout": {"after": "1s", "action": "Escalate", "escalation": [{"to": to("olga")}]}}),
    })
}

/// Returns the `hitl` of the policy's gate. `how` is below 4.
fn policy_hitl(how: usize) -> Value {
    let boss = json!([{"kind": "User", "name": "boss"}]);
    match how {
        0 => json!({}),
        1 => json!({"timeout": {"action": "Skip"}}),
        2 => json!({"allowedVerdicts": ["Approve", "Reject", "Escalate"], "escalateTo": boss}),
        _ => json!({"timeout": {"after": "1h", "action": "Escalate", "escalation": [{"to": boss}]}}),
    }
}

/// Returns the gates of an author: one with the name of the policy's gate.
fn namesake_gates(how: usize) -> Value {
    json!([{"name": "guard", "type": "toolExecution", "hitl": author_hitl(how)}])
}

#[test]
fn an_escalation_of_the_author_does_not_answer_an_equal_gate_of_a_policy() {
    for own in 0..6 {
        for how in 0..4 {
            let policies = policy_about_calls_with(json!({}), policy_hitl(how));
            let run = run_with_calls(&policies, spec([None; 3], namesake_gates(own)), &["refund"]);
            let asked = run.asked(GATE);
            assert!(!is_approved_without_finance(asked), "{own} against {how}: {:?}", asked.quorums);
        }
    }
}

#[test]
fn an_escalation_of_the_author_answers_a_gate_of_the_author() {
    let run = run_with_calls(&no_policies(), spec([None; 3], namesake_gates(2)), &["refund"]);
    assert!(is_approved_without_finance(run.asked(GATE)));
    let run = run_with_calls(&no_policies(), spec([None; 3], namesake_gates(3)), &["refund"]);
    assert!(is_approved_without_finance(run.asked(GATE)), "fred asks for olga");
}

#[test]
fn an_escalation_of_one_policy_does_not_answer_an_equal_gate_of_another() {
    let step = |hitl: Value| json!({"steps": [{"name": "guard", "before": {"kinds": ["tool"]}, "hitl": hitl}]});
    let policies = super::tests::cluster(&[("one", step(gate(policy_hitl(1)))), ("two", step(author_hitl(2)))]);
    let run = run_with_calls(&policies, spec([None; 3], json!([])), &["refund"]);
    assert!(!is_approved_without_finance(run.asked(GATE)));
    let sources: Vec<_> = run.asked(GATE).quorums.iter().map(|quorum| quorum.source.as_str()).collect();
    assert_eq!(sources, ["gate guard of ClusterApprovalPolicy two", "gate guard of ClusterApprovalPolicy one"]);
}

#[test]
fn an_escalation_of_a_tool_needs_the_quorum_of_an_equal_policy_gate() {
    let mut own = author_hitl(2);
    own["allowedVerdicts"] = json!(["Retry", "Skip", "Reject", "Abort"]);
    let own = json!([{"name": "guard", "type": "errorEscalation", "hitl": own}]);
    let policies = policy_about_calls(json!({}));
    let mut run = PolicyRun::of(&policies, spec([None; 3], own));
    for number in 1..=4 {
        let place = if number == 1 { "handle".to_owned() } else { format!("handle/.turn-{number}") };
        turn(&mut run, &policies, &place, &[("refund", &format!(r#"{{"to":"{number}"}}"#))]);
        if number < 4 {
            run.decide(&policies, &format!("handle/.turn-{number}/.call-1/.gate"), Verdict::Reject);
        }
    }
    let asked = run.asked("handle/.turn-4/.call-1/.error");
    let sources: Vec<_> = asked.quorums.iter().map(|quorum| quorum.source.as_str()).collect();
    assert_eq!(sources, ["gate guard", "gate guard of ClusterApprovalPolicy prod"]);
}

/// Whether a call of the step `pay` may be sent twice under `policies`. `step`: further fields of the request of `pay`.
fn is_repeatable(policies: &Policies, step: Value) -> bool {
    let mut spec = spec([None; 3], json!([]));
    for (field, value) in step.as_object().unwrap() {
        spec["steps"][3]["http"][field] = value.clone();
    }
    let mut run = run_with_calls(policies, spec, &["refund"]);
    if !run.asks().is_empty() {
        run.decide(policies, GATE, Verdict::Approve);
    }
    let [call] = run.calls()[..] else { panic!("{:?}", run.asks()) };
    let plan = super::run_tests::plan(&run.workflow, policies);
    let planned = plan.step_of(&call.path).unwrap().is_idempotent();
    assert_eq!(call.idempotent, planned, "the call and what is recorded of it agree");
    planned
}

#[test]
fn the_author_cannot_declare_calls_idempotent_after_a_policys_gate() {
    let idempotent = || json!({"idempotent": true});
    assert!(is_repeatable(&no_policies(), idempotent()), "without a policy the author may say so");
    assert!(!is_repeatable(&policy_about_calls(json!({})), idempotent()));
    assert!(!is_repeatable(&policy_about_calls(json!({"methods": ["POST"]})), idempotent()));
    // The host is known only at the call, so the gate can ask about it before.
    assert!(!is_repeatable(&policy_about_calls(json!({"hosts": ["other.example"]})), idempotent()));
    assert!(
        is_repeatable(&policy_about_calls(json!({"kinds": ["pod"]})), idempotent()),
        "the gate never asks about it"
    );
    assert!(is_repeatable(&policy_about_calls(json!({})), json!({"method": "PUT"})), "the method says so");
    assert!(!is_repeatable(&policy_about_calls(json!({})), json!({"method": "PUT", "idempotent": false})));
}

/// Generates an addition of an author to a Workflow: its kind, its tool, the manner of its decision, and whether it has
/// the name of the policy's gate.
fn addition() -> impl Strategy<Value = (usize, usize, usize, bool)> {
    (0_usize..10, 0_usize..3, 0_usize..6, any::<bool>())
}

/// Applies an addition to the spec of a Workflow. `number` is unique among the additions.
fn apply_addition(spec: &mut Value, (what, tool, how, is_namesake): (usize, usize, usize, bool), number: usize) {
    let names = ["note", "lookup", "refund"];
    let steps = ["write-note", "find", "pay"];
    let is_taken = spec["gates"].as_array().unwrap().iter().any(|gate| gate["name"] == "guard");
    let name = if is_namesake && !is_taken { "guard".to_owned() } else { format!("own-{number}") };
    let flag = how % 2 == 0;
    let allowed = if flag { json!(["*"]) } else { json!([names[tool]]) };
    let condition = if flag { "false" } else { "args.to == 'me'" };
    let hitl = author_hitl(how);
    let add_gate = |spec: &mut Value, gate: Value| spec["gates"].as_array_mut().unwrap().push(gate);
    match what {
        0 => add_gate(spec, json!({"name": name, "type": "toolExecution", "allowedTools": allowed, "hitl": hitl})),
        1 => add_gate(spec, json!({"name": name, "type": "custom", "condition": condition, "hitl": hitl})),
        2 => add_gate(spec, json!({"name": name, "type": "destructiveActions", "allowedTools": allowed, "hitl": hitl})),
        3 => add_gate(spec, json!({"name": name, "preset": "standard", "allowedTools": allowed, "hitl": hitl})),
        4 => spec["tools"][tool]["effects"] = json!("read"),
        5 => spec["steps"][tool + 1]["retry"] = json!({"limit": 2}),
        6 => spec["steps"][tool + 1]["onError"] = json!("continue"),
        7 => {
            let other = json!({"name": name, "step": steps[tool], "description": "The same.", "effects": "read"});
            spec["tools"].as_array_mut().unwrap().push(other);
        }
        8 => {
            let hitl = gate(json!({"timeout": {"after": "1s", "action": "Retry"}}));
            add_gate(spec, json!({"name": name, "type": "errorEscalation", "hitl": hitl}));
        }
        _ => add_gate(spec, json!({"name": name, "type": "specificTools", "tools": [names[tool]], "hitl": hitl})),
    }
}

/// Calls every tool in one turn and approves everything. Returns the first call that ran or could be approved without
/// the policy's approvers.
fn find_unasked_call(policies: &Policies, spec: Value, is_meant: impl Fn(&str) -> bool) -> Option<String> {
    let names: Vec<String> =
        spec["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    let mut run = run_with_calls(policies, spec, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut approved = std::collections::BTreeSet::new();
    for _ in 0..30 {
        let is_weak = |ask: &&ApprovalRequest| is_of_policy(ask) && is_approved_without_finance(ask);
        if let Some(ask) = run.asks().into_iter().find(is_weak) {
            return Some(ask.gate.path.clone());
        }
        let asks: Vec<(String, bool)> =
            run.asks().into_iter().map(|ask| (ask.gate.path.clone(), is_of_policy(ask))).collect();
        for record in run.journal.records().iter().filter(|record| record.phase != StepPhase::Waiting) {
            let Some((call, step)) = record.path.rsplit_once('/').filter(|(call, _)| call.contains("/.call-")) else {
                continue;
            };
            if !step.starts_with('.') && is_meant(step) && !approved.contains(call) {
                return Some(record.path.clone());
            }
        }
        let (path, is_of_policy) = asks.into_iter().next()?;
        if is_of_policy {
            approved.insert(path.rsplit_once("/.gate").unwrap().0.to_owned());
        }
        run.decide(policies, &path, Verdict::Approve);
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_addition_of_an_author_removes_the_gate_of_a_policy(additions in proptest::collection::vec(addition(), 0..6), how in 0_usize..4) {
        println!("tried: 1 property cases");
        let mut spec = spec([None; 3], json!([]));
        for (number, addition) in additions.into_iter().enumerate() {
            apply_addition(&mut spec, addition, number);
        }
        let found = errors(&no_policies(), spec.clone());
        prop_assume!(found.is_empty());
        let find_unasked = |calls: Value, is_meant: fn(&str) -> bool| {
            find_unasked_call(&policy_about_calls_with(calls, policy_hitl(how)), spec.clone(), is_meant)
        };
        prop_assert_eq!(find_unasked(json!({}), |_| true), None);
        prop_assert_eq!(find_unasked(json!({"changes": true}), |step| step != "find"), None);
        prop_assert_eq!(find_unasked(json!({"hosts": ["bank.example"]}), |step| step == "pay"), None);
    }
}

#[test]
fn calls_run_without_an_approval_if_there_is_no_policy() {
    let mut spec = spec([None; 3], json!([]));
    apply_addition(&mut spec, (0, 2, 0, false), 0);
    assert!(find_unasked_call(&no_policies(), spec, |_| true).is_some());
}
