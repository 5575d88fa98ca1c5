//! Tests of several gates about one call: which of them ask, and their common request.

use serde_json::{Value, json};
use signoff_api::{ApprovalRequest, Verdict, gate::TimeoutAction};

use super::{GATE, PAY, result, run, turn};
use crate::tests::test_run::{TestRun, decided, gate};

/// Returns a gate before `refund`.
fn own(name: &str, hitl: Value) -> Value {
    json!({"name": name, "type": "specificTools", "tools": ["refund"], "hitl": gate(hitl)})
}

/// Returns a run with a call of `refund` under these gates.
fn call(gates: Value) -> TestRun {
    let mut run = run(gates);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    run
}

/// Returns the common request of two gates.
fn request(one: Value, two: Value) -> ApprovalRequest {
    let run = call(json!([own("one", one), own("two", two)]));
    assert_eq!(run.open(), [GATE]);
    run.asked(GATE).request.clone()
}

#[test]
fn one_gate_that_asks_is_enough_whatever_the_others_allow() {
    let every = |name: &str, allowed: Value| json!({"name": name, "type": "toolExecution", "allowedTools": allowed, "hitl": gate(json!({}))});
    let run = call(json!([every("open", json!(["*"])), every("closed", json!([])), every("other", json!(["refund"]))]));
    let action = run.asked(GATE).request.action.clone().unwrap();
    assert_eq!(action.gates.iter().map(|gate| gate.name.as_str()).collect::<Vec<_>>(), ["closed"]);
    assert_eq!(call(json!([every("open", json!(["*"])), every("other", json!(["refund"]))])).open(), [""; 0]);
}

#[test]
fn an_exclusion_comes_before_a_name_and_a_name_before_a_glob() {
    let because = |allowed: Value| {
        let every = json!({"name": "every", "type": "toolExecution", "allowedTools": allowed, "hitl": gate(json!({}))});
        let run = call(json!([every]));
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
    let every = json!({"name": "every", "type": "toolExecution", "hitl": gate(json!({}))});
    let run = call(json!([every, own("money", json!({}))]));
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
    let request = request(json!({}), json!({"approvers": bob}));
    let quorums: Vec<_> = request.quorums.iter().map(|q| (q.source.as_str(), q.approvers[0].name.as_str())).collect();
    assert_eq!(quorums, [("gate one", "alice"), ("gate two", "bob")]);
}

#[test]
fn the_verdicts_are_those_that_all_gates_allow() {
    let request = request(
        json!({"allowedVerdicts": ["Reject", "Approve", "Skip", "Modify"]}),
        json!({"allowedVerdicts": ["Approve", "Reject", "Defer", "Modify"]}),
    );
    assert_eq!(request.allowed_verdicts, [Verdict::Reject, Verdict::Approve, Verdict::Modify]);
}

#[test]
fn gates_with_only_refusals_in_common_ask_one_after_the_other_and_both_must_approve() {
    let only = |name: &str, verdict: &str| own(name, json!({"allowedVerdicts": [verdict, "Reject", "Abort"]}));
    let mut run = call(json!([only("one", "Approve"), only("two", "Modify"), only("three", "Approve")]));
    let names = |run: &TestRun, path: &str| -> Vec<String> {
        run.asked(path).request.action.clone().unwrap().gates.into_iter().map(|gate| gate.name).collect()
    };
    assert_eq!(names(&run, GATE), ["one", "three"], "those that fit together ask together");
    run.approve(GATE);
    let second = format!("{GATE}#2");
    assert_eq!((names(&run, &second), run.calls()), (vec!["two".to_owned()], Vec::new()));
    run.decide(&second, decided(Verdict::Reject));
    assert_eq!(run.calls(), ["handle/.turn-2@1"], "the second refused");
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "Denied by a human: no reason was given");
}

#[test]
fn an_edit_at_a_later_gate_is_asked_about_at_the_earlier_ones_again() {
    let only = |name: &str, verdict: &str| own(name, json!({"allowedVerdicts": [verdict, "Reject", "Abort"]}));
    let mut run = call(json!([only("one", "Approve"), only("two", "Modify")]));
    run.approve(GATE);
    run.modify(&format!("{GATE}#2"), json!({"arguments": {"amount": 42}}));
    let third = format!("{GATE}#3");
    assert_eq!((run.open(), run.calls()), (vec![third.clone()], Vec::new()));
    assert_eq!(run.asked(&third).request.gate.name, "one");
}

#[test]
fn the_shortest_timeout_wins() {
    let timeout = |after: &str| json!({"timeout": {"after": after}});
    for (one, two) in [("10m", "5m"), ("5m", "10m")] {
        assert_eq!(request(timeout(one), timeout(two)).timeout.after.unwrap().duration().as_secs(), 300);
    }
}

#[test]
fn the_longest_timeout_wins_where_every_deadline_approves() {
    let timeout = |after: &str| json!({"timeout": {"after": after, "action": "Approve"}});
    for (one, two) in [("24h", "1s"), ("1s", "24h")] {
        assert_eq!(request(timeout(one), timeout(two)).timeout.after.unwrap().duration().as_secs(), 24 * 3600);
    }
}

#[test]
fn the_request_says_whose_time_and_whose_action_it_has() {
    let timeout = |after: &str, action: &str| json!({"timeout": {"after": after, "action": action}});
    let said = |one: Value, two: Value| {
        let request = request(one, two);
        request.action.unwrap().gates.into_iter().map(|gate| gate.because).collect::<Vec<_>>()
    };
    let listed = "refund is listed";
    assert_eq!(
        said(timeout("1h", "Reject"), timeout("2h", "Approve")),
        [format!("{listed}; its time and its action at the deadline apply"), listed.to_owned()]
    );
    assert_eq!(
        said(timeout("1h", "Approve"), timeout("2h", "Reject")),
        [format!("{listed}; its time applies"), format!("{listed}; its action at the deadline applies")]
    );
    let alone = call(json!([own("one", timeout("1h", "Reject"))]));
    assert_eq!(alone.asked(GATE).request.action.as_ref().unwrap().gates[0].because, listed);
}

#[test]
fn the_most_careful_action_of_a_timeout_wins_in_each_pair() {
    let all = ["Abort", "Reject", "Expire", "Escalate", "Retry", "Skip", "Default", "Approve"];
    let with = |action: &str| {
        let mut timeout = json!({"after": "5m", "action": action});
        match action {
            "Escalate" => timeout["escalation"] = json!([{"to": [{"kind": "User", "name": "olga"}]}]),
            "Default" => timeout["default"] = json!("the old one"),
            _ => {}
        }
        json!({"allowedVerdicts": ["Approve", "Respond", "Skip", "Reject", "Abort"], "timeout": timeout})
    };
    for (at, careful) in all.iter().enumerate() {
        for other in &all[at..] {
            for (one, two) in [(careful, other), (other, careful)] {
                let expected: TimeoutAction = serde_json::from_value(json!(careful)).unwrap();
                assert_eq!(request(with(one), with(two)).timeout.action, Some(expected), "{one} and {two}");
            }
        }
    }
}

#[test]
fn the_levels_of_an_escalation_are_those_of_the_gate_whose_action_won() {
    let to = |name: &str| json!([{"after": "5m", "to": [{"kind": "User", "name": name}]}]);
    let one = json!({"timeout": {"after": "5m", "action": "Escalate", "escalation": to("olga")}});
    let two = json!({"timeout": {"after": "9m", "action": "Retry", "escalation": to("otto")}});
    let request = request(two, one);
    assert_eq!(request.timeout.escalation.len(), 1);
    assert_eq!(request.timeout.escalation[0].to[0].name, "olga");
    assert_eq!(request.quorums[0].source, "gate two", "the levels add people to its own quorum");
}

#[test]
fn a_gate_without_a_timeout_does_not_end_what_another_one_keeps_asking() {
    let to_olga = json!([{"after": "5m", "to": [{"kind": "User", "name": "olga"}]}]);
    let with = |action: &str| {
        let mut timeout = json!({"after": "1h", "action": action});
        if action == "Escalate" {
            timeout["escalation"] = to_olga.clone();
        }
        json!({"allowedVerdicts": ["Approve", "Skip", "Reject", "Abort"], "timeout": timeout})
    };
    let none = json!({"allowedVerdicts": ["Approve", "Skip", "Reject", "Abort"]});
    for (action, expected, seconds) in [
        ("Escalate", TimeoutAction::Escalate, 3600),
        ("Expire", TimeoutAction::Expire, 3600),
        ("Retry", TimeoutAction::Retry, 3600),
        // The action at the deadline stays as cautious as before.
        ("Abort", TimeoutAction::Abort, 3600),
        ("Skip", TimeoutAction::Reject, 3600),
        ("Approve", TimeoutAction::Reject, 3600),
    ] {
        for merged in [request(none.clone(), with(action)), request(with(action), none.clone())] {
            let timeout = merged.timeout;
            let after = timeout.after.unwrap().duration().as_secs();
            assert_eq!((timeout.action.unwrap_or_default(), after), (expected, seconds), "{action}");
        }
    }
}

#[test]
fn prompts_and_contexts_are_joined_and_each_is_shown_once() {
    let shown = |prompt: &str| json!({"prompt": prompt, "contextDisplay": "{{ args.amount }} EUR"});
    let two = request(shown("Refund?"), shown("Is it in the budget?"));
    assert_eq!((two.prompt.as_str(), two.context.as_deref()), ("Refund?\n\nIs it in the budget?", Some("420 EUR")));
    assert_eq!(request(shown("Refund?"), shown("Refund?")).prompt, "Refund?");
}

#[test]
fn a_reason_is_needed_and_a_reject_stops_where_one_gate_says_so() {
    for (one, two) in [
        (json!({"requireReason": true, "onReject": "stop"}), json!({})),
        (json!({}), json!({"requireReason": true, "onReject": "stop"})),
    ] {
        let mut run = call(json!([own("one", one), own("two", two)]));
        assert_eq!(run.asked(GATE).request.require_reason, Some(true));
        run.decide(GATE, decided(Verdict::Reject));
        assert!(run.rejected().contains("Reject"), "{}", run.rejected());
    }
}

#[test]
fn whom_one_gate_excludes_cannot_decide_at_any() {
    let finance = json!([{"kind": "Group", "name": "finance"}]);
    let hitl = |excluded: &[&str]| json!({"approvers": finance, "excluded": excluded});
    assert_eq!(request(hitl(&["bob", "carol"]), hitl(&["bob", "dana"])).excluded, ["bob", "carol", "dana"]);
}

#[test]
fn a_requester_that_one_gate_excludes_is_excluded_in_its_quorum() {
    let finance = json!([{"kind": "Group", "name": "finance"}]);
    let request = request(json!({"approvers": finance, "excludeRequester": true}), json!({"approvers": finance}));
    assert_eq!(request.quorums.iter().map(|q| q.exclude_requester).collect::<Vec<_>>(), [Some(true), None]);
}

#[test]
fn the_form_of_one_gate_is_asked_and_two_forms_ask_one_after_the_other() {
    let form = |id: &str| {
        let questions = json!({"questions": [{"id": id}]});
        json!({"allowedVerdicts": ["Approve", "Respond", "Reject"], "allowUnanswered": true, "form": questions})
    };
    let plain = json!({"allowedVerdicts": ["Approve", "Respond", "Reject"]});
    assert_eq!(request(plain.clone(), form("why")).form.unwrap().questions[0].id, "why");
    let mut run = call(json!([own("one", form("why")), own("two", form("how")), own("three", plain)]));
    assert_eq!(run.asked(GATE).request.action.as_ref().unwrap().gates.len(), 2);
    run.approve(GATE);
    let second = run.asked(&format!("{GATE}#2")).request.clone();
    assert_eq!(second.form.unwrap().questions[0].id, "how");
}

#[test]
fn respond_is_offered_only_where_all_gates_allow_it() {
    let request = request(json!({"allowedVerdicts": ["Approve", "Respond", "Reject"]}), json!({}));
    assert_eq!((request.allowed_verdicts, request.form), (vec![Verdict::Approve, Verdict::Reject], None));
}

#[test]
fn more_quorums_than_a_request_has_ask_one_after_the_other() {
    let all: Vec<_> = (0..12).map(|at| own(&format!("gate-{at}"), json!({}))).collect();
    let mut run = call(json!(all));
    assert_eq!(run.asked(GATE).request.quorums.len(), ApprovalRequest::MAX_QUORUMS);
    run.approve(GATE);
    let second = format!("{GATE}#2");
    assert_eq!(
        (run.asked(&second).request.quorums.len(), run.calls()),
        (12 - ApprovalRequest::MAX_QUORUMS, Vec::new())
    );
    run.approve(&second);
    assert_eq!(run.calls(), [format!("{PAY}@1")]);
}

#[test]
fn gates_that_exclude_more_people_than_a_request_can_name_ask_one_after_the_other() {
    let finance = json!([{"kind": "Group", "name": "finance"}]);
    let names = |from: usize| (from..from + 20).map(|n| format!("user-{n}")).collect::<Vec<_>>();
    let hitl = |from: usize| json!({"approvers": finance, "excluded": names(from)});
    let run = call(json!([own("one", hitl(0)), own("two", hitl(100))]));
    assert_eq!(run.asked(GATE).request.excluded.len(), 20);
    assert_eq!(call(json!([own("one", hitl(0)), own("two", hitl(10))])).asked(GATE).request.excluded.len(), 30);
    assert_eq!(run.asked(GATE).request.action.as_ref().unwrap().gates.len(), 1);
}

#[test]
fn editors_that_a_request_cannot_exclude_any_more_keep_the_call_from_running() {
    let finance = json!([{"kind": "Group", "name": "finance"}]);
    let names: Vec<_> = (0..32).map(|n| format!("user-{n}")).collect();
    let mut run = call(json!([own("one", json!({"approvers": finance, "excluded": names}))]));
    run.modify(GATE, json!({"arguments": {"amount": 42}}));
    assert_eq!((run.open().len(), run.calls()), (0, vec!["handle/.turn-2@1".to_owned()]));
    let told = result(&run, "handle/.turn-2", "c1");
    assert!(told.starts_with("Error: people cannot be asked about this: a request can exclude at most 32"), "{told}");
}

#[test]
fn edits_are_not_offered_where_the_schema_is_too_long_for_a_request() {
    let description = "x".repeat(17 * 1024);
    let mut spec = super::spec(super::gates(json!([own("one", json!({}))])));
    spec["tools"][1]["parameters"]["properties"]["to"]["description"] = json!(description);
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    let request = &run.asked(GATE).request;
    assert_eq!((request.allowed_verdicts.contains(&Verdict::Modify), &request.parameters), (false, &None));
    assert!(request.allowed_verdicts.contains(&Verdict::Approve));
}

#[test]
fn the_groups_that_one_gate_requires_are_required_in_its_quorum_only() {
    let groups = json!([{"kind": "Group", "name": "finance"}, {"kind": "Group", "name": "legal"}]);
    let from = |group: &str| json!({"approvers": groups, "requiredFrom": [{"group": group, "min": 1}]});
    let request = request(from("finance"), from("legal"));
    let required: Vec<_> =
        request.quorums.iter().map(|q| (q.source.as_str(), q.required_from[0].group.as_str())).collect();
    assert_eq!(required, [("gate one", "finance"), ("gate two", "legal")]);
}
