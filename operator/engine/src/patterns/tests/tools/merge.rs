//! Tests of several gates about one call: which of them ask, and their common request.

use serde_json::{Value, json};
use signoff_api::{ApprovalRequest, Verdict, gate::TimeoutAction};

use super::{GATE, PAY, result, run, turn};
use crate::tests::test_run::{TestRun, decided, gate};

/// Returns a gate before `refund`.
fn refund_gate(name: &str, hitl: Value) -> Value {
    json!({"name": name, "type": "specificTools", "tools": ["refund"], "hitl": gate(hitl)})
}

/// Returns a run with these gates in which an agent calls `refund`.
fn call_refund(gates: Value) -> TestRun {
    let mut run = run(gates);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    run
}

/// Returns the common request of two gates with these `hitl` fields.
fn merged_request(one: Value, two: Value) -> ApprovalRequest {
    let run = call_refund(json!([refund_gate("one", one), refund_gate("two", two)]));
    assert_eq!(run.open(), [GATE]);
    run.asked(GATE).request.clone()
}

#[test]
fn a_call_is_asked_about_if_one_gate_asks() {
    let tools_gate = |name: &str, allowed: Value| json!({"name": name, "type": "toolExecution", "allowedTools": allowed, "hitl": gate(json!({}))});
    let (open, other) = (tools_gate("open", json!(["*"])), tools_gate("other", json!(["refund"])));
    let run = call_refund(json!([open, tools_gate("closed", json!([])), other]));
    let action = run.asked(GATE).request.action.clone().unwrap();
    assert_eq!(action.gates.iter().map(|gate| gate.name.as_str()).collect::<Vec<_>>(), ["closed"]);
    assert_eq!(call_refund(json!([open, other])).open(), [""; 0]);
}

#[test]
fn an_exclusion_wins_over_a_name_and_a_name_over_a_glob() {
    let because = |allowed: Value| {
        let tools_gate =
            json!({"name": "every", "type": "toolExecution", "allowedTools": allowed, "hitl": gate(json!({}))});
        let run = call_refund(json!([tools_gate]));
        run.open().first().map(|path| run.asked(path).request.action.clone().unwrap().gates[0].because.clone())
    };
    assert_eq!(
        because(json!(["refund", "!re*"])).as_deref(),
        Some("!re* in allowedTools: the gate always asks about it")
    );
    assert_eq!(
        because(json!(["*", "refund", "!*", "!refund"])).as_deref(),
        Some("!refund in allowedTools: the gate always asks about it")
    );
    assert_eq!(because(json!(["re*"])), None);
}

#[test]
fn the_reason_of_each_gate_is_shown_in_the_order_of_the_spec() {
    let tools_gate = json!({"name": "every", "type": "toolExecution", "hitl": gate(json!({}))});
    let run = call_refund(json!([tools_gate, refund_gate("money", json!({}))]));
    let action = run.asked(GATE).request.action.clone().unwrap();
    let reasons: Vec<_> = action.gates.iter().map(|gate| (gate.name.as_str(), gate.because.as_str())).collect();
    assert_eq!(
        reasons,
        [("every", "the gate asks about every call except those of allowedTools"), ("money", "refund is listed")]
    );
}

#[test]
fn the_quorums_of_all_gates_must_be_met() {
    let bob = json!([{"kind": "User", "name": "bob"}]);
    let request = merged_request(json!({}), json!({"approvers": bob}));
    let quorums: Vec<_> = request.quorums.iter().map(|q| (q.source.as_str(), q.approvers[0].name.as_str())).collect();
    assert_eq!(quorums, [("gate one", "alice"), ("gate two", "bob")]);
}

#[test]
fn the_verdicts_are_those_that_all_gates_allow() {
    let request = merged_request(
        json!({"allowedVerdicts": ["Reject", "Approve", "Skip", "Modify"]}),
        json!({"allowedVerdicts": ["Approve", "Reject", "Defer", "Modify"]}),
    );
    assert_eq!(request.allowed_verdicts, [Verdict::Reject, Verdict::Approve, Verdict::Modify]);
}

#[test]
fn gates_with_only_refusals_in_common_ask_one_after_the_other() {
    let gate_with_verdict =
        |name: &str, verdict: &str| refund_gate(name, json!({"allowedVerdicts": [verdict, "Reject", "Abort"]}));
    let gates = [("one", "Approve"), ("two", "Modify"), ("three", "Approve")];
    let mut run = call_refund(json!(gates.map(|(name, verdict)| gate_with_verdict(name, verdict))));
    let names = |run: &TestRun, path: &str| -> Vec<String> {
        run.asked(path).request.action.clone().unwrap().gates.into_iter().map(|gate| gate.name).collect()
    };
    assert_eq!(names(&run, GATE), ["one", "three"], "those that fit together ask together");
    run.approve(GATE);
    let second_gate = format!("{GATE}#2");
    assert_eq!((names(&run, &second_gate), run.calls()), (vec!["two".to_owned()], Vec::new()));
    run.decide(&second_gate, decided(Verdict::Reject));
    assert_eq!(run.calls(), ["handle/.turn-2@1"], "the second refused");
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "Denied by a human: no reason was given");
}

#[test]
fn an_edit_at_a_later_gate_is_asked_about_at_the_earlier_gates() {
    let gate_with_verdict =
        |name: &str, verdict: &str| refund_gate(name, json!({"allowedVerdicts": [verdict, "Reject", "Abort"]}));
    let mut run = call_refund(json!([gate_with_verdict("one", "Approve"), gate_with_verdict("two", "Modify")]));
    run.approve(GATE);
    run.modify(&format!("{GATE}#2"), json!({"arguments": {"amount": 42}}));
    let third_gate = format!("{GATE}#3");
    assert_eq!((run.open(), run.calls()), (vec![third_gate.clone()], Vec::new()));
    assert_eq!(run.asked(&third_gate).request.gate.name, "one");
}

#[test]
fn the_shortest_timeout_wins() {
    let timeout = |after: &str| json!({"timeout": {"after": after}});
    for (one, two) in [("10m", "5m"), ("5m", "10m")] {
        assert_eq!(merged_request(timeout(one), timeout(two)).timeout.after.unwrap().duration().as_secs(), 300);
    }
}

#[test]
fn the_longest_timeout_wins_where_every_deadline_approves() {
    let timeout = |after: &str| json!({"timeout": {"after": after, "action": "Approve"}});
    for (one, two) in [("24h", "1s"), ("1s", "24h")] {
        assert_eq!(merged_request(timeout(one), timeout(two)).timeout.after.unwrap().duration().as_secs(), 24 * 3600);
    }
}

#[test]
fn the_request_names_the_gates_of_its_time_and_its_action() {
    let timeout = |after: &str, action: &str| json!({"timeout": {"after": after, "action": action}});
    let reasons = |one: Value, two: Value| {
        let request = merged_request(one, two);
        request.action.unwrap().gates.into_iter().map(|gate| gate.because).collect::<Vec<_>>()
    };
    let listed = "refund is listed";
    assert_eq!(
        reasons(timeout("1h", "Reject"), timeout("2h", "Approve")),
        [format!("{listed}; its time and its action at the deadline apply"), listed.to_owned()]
    );
    assert_eq!(
        reasons(timeout("1h", "Approve"), timeout("2h", "Reject")),
        [format!("{listed}; its time applies"), format!("{listed}; its action at the deadline applies")]
    );
    let run_with_one_gate = call_refund(json!([refund_gate("one", timeout("1h", "Reject"))]));
    assert_eq!(run_with_one_gate.asked(GATE).request.action.as_ref().unwrap().gates[0].because, listed);
}

#[test]
fn the_most_careful_action_of_a_timeout_wins_in_each_pair() {
    let actions_by_care = ["Abort", "Reject", "Expire", "Escalate", "Retry", "Skip", "Default", "Approve"];
    let hitl_with = |action: &str| {
        let mut timeout = json!({"after": "5m", "action": action});
        match action {
            "Escalate" => timeout["escalation"] = json!([{"to": [{"kind": "User", "name": "olga"}]}]),
            "Default" => timeout["default"] = json!("the old one"),
            _ => {}
        }
        json!({"allowedVerdicts": ["Approve", "Respond", "Skip", "Reject", "Abort"], "timeout": timeout})
    };
    for (rank, careful) in actions_by_care.iter().enumerate() {
        for other in &actions_by_care[rank..] {
            for (one, two) in [(careful, other), (other, careful)] {
                let expected: TimeoutAction = serde_json::from_value(json!(careful)).unwrap();
                assert_eq!(
                    merged_request(hitl_with(one), hitl_with(two)).timeout.action,
                    Some(expected),
                    "{one} and {two}"
                );
            }
        }
    }
}

#[test]
fn the_levels_of_an_escalation_are_those_of_the_gate_whose_action_won() {
    let level_with = |name: &str| json!([{"after": "5m", "to": [{"kind": "User", "name": name}]}]);
    let escalating = json!({"timeout": {"after": "5m", "action": "Escalate", "escalation": level_with("olga")}});
    let retrying = json!({"timeout": {"after": "9m", "action": "Retry", "escalation": level_with("otto")}});
    let request = merged_request(retrying, escalating);
    assert_eq!(request.timeout.escalation.len(), 1);
    assert_eq!(request.timeout.escalation[0].to[0].name, "olga");
    assert_eq!(request.quorums[0].source, "gate two", "the levels add people to its own quorum");
}

#[test]
fn a_gate_without_a_timeout_does_not_replace_a_careful_action() {
    let to_olga = json!([{"after": "5m", "to": [{"kind": "User", "name": "olga"}]}]);
    let hitl_with = |action: &str| {
        let mut timeout = json!({"after": "1h", "action": action});
        if action == "Escalate" {
            timeout["escalation"] = to_olga.clone();
        }
        json!({"allowedVerdicts": ["Approve", "Skip", "Reject", "Abort"], "timeout": timeout})
    };
    let hitl_without_timeout = json!({"allowedVerdicts": ["Approve", "Skip", "Reject", "Abort"]});
    for (action, expected, seconds) in [
        ("Escalate", TimeoutAction::Escalate, 3600),
        ("Expire", TimeoutAction::Expire, 3600),
        ("Retry", TimeoutAction::Retry, 3600),
        // The action at the deadline stays as cautious as before.
        ("Abort", TimeoutAction::Abort, 3600),
        ("Skip", TimeoutAction::Reject, 3600),
        ("Approve", TimeoutAction::Reject, 3600),
    ] {
        for merged in [
            merged_request(hitl_without_timeout.clone(), hitl_with(action)),
            merged_request(hitl_with(action), hitl_without_timeout.clone()),
        ] {
            let timeout = merged.timeout;
            let after = timeout.after.unwrap().duration().as_secs();
            assert_eq!((timeout.action.unwrap_or_default(), after), (expected, seconds), "{action}");
        }
    }
}

#[test]
fn prompts_and_contexts_are_joined_and_each_is_shown_once() {
    let hitl_with_prompt = |prompt: &str| json!({"prompt": prompt, "contextDisplay": "{{ args.amount }} EUR"});
    let merged = merged_request(hitl_with_prompt("Refund?"), hitl_with_prompt("Is it in the budget?"));
    assert_eq!(
        (merged.prompt.as_str(), merged.context.as_deref()),
        ("Refund?\n\nIs it in the budget?", Some("420 EUR"))
    );
    assert_eq!(merged_request(hitl_with_prompt("Refund?"), hitl_with_prompt("Refund?")).prompt, "Refund?");
}

#[test]
fn one_gate_can_require_a_reason_and_stop_on_reject() {
    for (one, two) in [
        (json!({"requireReason": true, "onReject": "stop"}), json!({})),
        (json!({}), json!({"requireReason": true, "onReject": "stop"})),
    ] {
        let mut run = call_refund(json!([refund_gate("one", one), refund_gate("two", two)]));
        assert_eq!(run.asked(GATE).request.require_reason, Some(true));
        run.decide(GATE, decided(Verdict::Reject));
        assert!(run.expect_rejection().contains("Reject"), "{}", run.expect_rejection());
    }
}

#[test]
fn users_that_one_gate_excludes_are_excluded_at_all_gates() {
    let finance = json!([{"kind": "Group", "name": "finance"}]);
    let hitl = |excluded: &[&str]| json!({"approvers": finance, "excluded": excluded});
    assert_eq!(merged_request(hitl(&["bob", "carol"]), hitl(&["bob", "dana"])).excluded, ["bob", "carol", "dana"]);
}

#[test]
fn a_requester_that_one_gate_excludes_is_excluded_in_its_quorum() {
    let finance = json!([{"kind": "Group", "name": "finance"}]);
    let request =
        merged_request(json!({"approvers": finance, "excludeRequester": true}), json!({"approvers": finance}));
    assert_eq!(request.quorums.iter().map(|q| q.exclude_requester).collect::<Vec<_>>(), [Some(true), None]);
}

#[test]
fn two_gates_with_forms_ask_one_after_the_other() {
    let hitl_with_form = |id: &str| {
        let questions = json!({"questions": [{"id": id}]});
        json!({"allowedVerdicts": ["Approve", "Respond", "Reject"], "allowUnanswered": true, "form": questions})
    };
    let hitl_without_form = json!({"allowedVerdicts": ["Approve", "Respond", "Reject"]});
    assert_eq!(merged_request(hitl_without_form.clone(), hitl_with_form("why")).form.unwrap().questions[0].id, "why");
    let mut run = call_refund(json!([
        refund_gate("one", hitl_with_form("why")),
        refund_gate("two", hitl_with_form("how")),
        refund_gate("three", hitl_without_form),
    ]));
    assert_eq!(run.asked(GATE).request.action.as_ref().unwrap().gates.len(), 2);
    run.approve(GATE);
    let second_request = run.asked(&format!("{GATE}#2")).request.clone();
    assert_eq!(second_request.form.unwrap().questions[0].id, "how");
}

#[test]
fn respond_is_offered_only_where_all_gates_allow_it() {
    let request = merged_request(json!({"allowedVerdicts": ["Approve", "Respond", "Reject"]}), json!({}));
    assert_eq!((request.allowed_verdicts, request.form), (vec![Verdict::Approve, Verdict::Reject], None));
}

#[test]
fn gates_beyond_the_maximum_of_quorums_ask_one_after_the_other() {
    let twelve_gates: Vec<_> = (0..12).map(|at| refund_gate(&format!("gate-{at}"), json!({}))).collect();
    let mut run = call_refund(json!(twelve_gates));
    assert_eq!(run.asked(GATE).request.quorums.len(), ApprovalRequest::MAX_QUORUMS);
    run.approve(GATE);
    let second_gate = format!("{GATE}#2");
    assert_eq!(
        (run.asked(&second_gate).request.quorums.len(), run.calls()),
        (12 - ApprovalRequest::MAX_QUORUMS, Vec::new())
    );
    run.approve(&second_gate);
    assert_eq!(run.calls(), [format!("{PAY}@1")]);
}

#[test]
fn gates_that_exclude_too_many_people_ask_one_after_the_other() {
    let finance = json!([{"kind": "Group", "name": "finance"}]);
    let names = |from: usize| (from..from + 20).map(|n| format!("user-{n}")).collect::<Vec<_>>();
    let hitl = |from: usize| json!({"approvers": finance, "excluded": names(from)});
    let run = call_refund(json!([refund_gate("one", hitl(0)), refund_gate("two", hitl(100))]));
    assert_eq!(run.asked(GATE).request.excluded.len(), 20);
    let overlapping = call_refund(json!([refund_gate("one", hitl(0)), refund_gate("two", hitl(10))]));
    assert_eq!(overlapping.asked(GATE).request.excluded.len(), 30);
    assert_eq!(run.asked(GATE).request.action.as_ref().unwrap().gates.len(), 1);
}

#[test]
fn an_edited_call_is_refused_if_its_editor_cannot_be_excluded() {
    let finance = json!([{"kind": "Group", "name": "finance"}]);
    let names: Vec<_> = (0..32).map(|n| format!("user-{n}")).collect();
    let mut run = call_refund(json!([refund_gate("one", json!({"approvers": finance, "excluded": names}))]));
    run.modify(GATE, json!({"arguments": {"amount": 42}}));
    assert_eq!((run.open().len(), run.calls()), (0, vec!["handle/.turn-2@1".to_owned()]));
    let tool_result = result(&run, "handle/.turn-2", "c1");
    assert!(
        tool_result.starts_with("Error: people cannot be asked about this: a request can exclude at most 32"),
        "{tool_result}"
    );
}

#[test]
fn modify_is_not_offered_if_the_schema_is_too_long_for_a_request() {
    let description = "x".repeat(17 * 1024);
    let mut spec = super::spec(super::gates(json!([refund_gate("one", json!({}))])));
    spec["tools"][1]["parameters"]["properties"]["to"]["description"] = json!(description);
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    let request = &run.asked(GATE).request;
    assert_eq!((request.allowed_verdicts.contains(&Verdict::Modify), &request.parameters), (false, &None));
    assert!(request.allowed_verdicts.contains(&Verdict::Approve));
}

#[test]
fn groups_that_a_gate_requires_are_required_only_in_its_quorum() {
    let groups = json!([{"kind": "Group", "name": "finance"}, {"kind": "Group", "name": "legal"}]);
    let hitl_with_required_group =
        |group: &str| json!({"approvers": groups, "requiredFrom": [{"group": group, "min": 1}]});
    let request = merged_request(hitl_with_required_group("finance"), hitl_with_required_group("legal"));
    let required: Vec<_> =
        request.quorums.iter().map(|q| (q.source.as_str(), q.required_from[0].group.as_str())).collect();
    assert_eq!(required, [("gate one", "finance"), ("gate two", "legal")]);
}
