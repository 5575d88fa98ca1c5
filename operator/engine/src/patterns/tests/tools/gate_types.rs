//! Tests of each type of gate before calls: the calls that it asks about.

use serde_json::{Value, json};
use signoff_api::gate::GateType;

use super::{GATE, PAY, gates, money, run, spec, turn};
use crate::tests::test_run::{TestRun, decided, gate, in_branch};

/// Returns a gate of a type, with further fields.
fn gate_of_type(type_: &str, more: Value) -> Value {
    let mut gate_value = json!({"name": "own", "type": type_, "hitl": gate(json!({}))});
    for (field, value) in more.as_object().unwrap() {
        gate_value[field] = value.clone();
    }
    gate_value
}

/// Returns for each tool of `tools` the reason why a gate asks about its calls, or `None`.
fn reasons_to_ask(gate_value: Value, tools: &[(&str, &str)]) -> Vec<Option<String>> {
    let mut spec = spec(gates(json!([gate_value])));
    // One tool of each effect, and one without declared effects.
    for (name, effects) in [("mail", json!("write")), ("call", Value::Null), ("web_search", json!("read"))] {
        let mut tool = json!({"name": name, "step": format!("do-{}", name.replace('_', "-")), "description": name,
            "parameters": {"type": "object"}});
        if !effects.is_null() {
            tool["effects"] = effects;
        }
        spec["steps"].as_array_mut().unwrap().push(json!({"name": tool["step"], "set": {"value": "done"}}));
        spec["tools"].as_array_mut().unwrap().push(tool);
    }
    spec["agents"][0]["tools"] = json!(["*", "ask-human"]);
    let mut run = TestRun::of(spec);
    let calls: Vec<_> = (0..tools.len()).map(|number| format!("c{number}")).collect();
    let calls: Vec<_> =
        calls.iter().zip(tools).map(|(id, (tool, arguments))| (id.as_str(), *tool, *arguments)).collect();
    turn(&mut run, "handle", &calls);
    let because = |number: usize| {
        let path = format!("handle/.turn-1/.call-{number}/.gate");
        let is_open = run.open().contains(&path);
        is_open.then(|| {
            run.asked(&path)
                .request
                .action
                .as_ref()
                .unwrap()
                .gates
                .first()
                .map_or(String::new(), |gate| gate.because.clone())
        })
    };
    (1..=tools.len()).map(because).collect()
}

const ONE_OF_EACH: [(&str, &str); 5] =
    [("lookup", "{}"), ("mail", "{}"), ("refund", r#"{"amount":1}"#), ("call", "{}"), ("web_search", "{}")];

/// Returns the tools of [`ONE_OF_EACH`] about which a gate asks.
fn tools_asked_about(gate_value: Value) -> Vec<&'static str> {
    let reasons = reasons_to_ask(gate_value, &ONE_OF_EACH);
    ONE_OF_EACH.iter().zip(reasons).filter(|(_, reason)| reason.is_some()).map(|((tool, _), _)| *tool).collect()
}

mod tool_execution {
    use super::*;

    #[test]
    fn it_asks_about_every_call_whatever_its_effects() {
        assert_eq!(
            tools_asked_about(gate_of_type("toolExecution", json!({}))),
            ["lookup", "mail", "refund", "call", "web_search"]
        );
    }

    #[test]
    fn it_does_not_ask_about_an_allowed_tool() {
        assert_eq!(
            tools_asked_about(gate_of_type("toolExecution", json!({"allowedTools": ["lookup", "mail"]}))),
            ["refund", "call", "web_search"]
        );
    }

    #[test]
    fn it_does_not_ask_about_a_question() {
        let reasons = reasons_to_ask(
            gate_of_type("toolExecution", json!({})),
            &[("ask-human", r#"{"questions":[{"question":"?"}]}"#)],
        );
        assert_eq!(reasons, [Some(String::new())], "only the gate of questions asks");
    }
}

mod specific_tools {
    use super::*;

    #[test]
    fn it_asks_about_listed_tools_and_about_no_other() {
        assert_eq!(
            tools_asked_about(gate_of_type("specificTools", json!({"tools": ["mail", "lookup"]}))),
            ["lookup", "mail"]
        );
    }

    #[test]
    fn it_asks_about_every_tool_that_a_glob_matches() {
        assert_eq!(
            tools_asked_about(gate_of_type("specificTools", json!({"tools": ["*a*"]}))),
            ["mail", "call", "web_search"]
        );
        assert_eq!(tools_asked_about(gate_of_type("specificTools", json!({"tools": ["*"]}))).len(), 5);
    }

    #[test]
    fn it_does_not_ask_about_a_tool_that_its_list_excludes() {
        assert_eq!(
            tools_asked_about(gate_of_type("specificTools", json!({"tools": ["*", "!mail", "!web_*"]}))),
            ["lookup", "refund", "call"]
        );
    }
}

mod destructive_actions {
    use super::*;

    #[test]
    fn it_asks_about_all_effects_except_reading() {
        assert_eq!(tools_asked_about(gate_of_type("destructiveActions", json!({}))), ["mail", "refund", "call"]);
    }

    #[test]
    fn it_asks_about_an_excluded_tool_and_not_about_an_allowed_one() {
        let gate_value = gate_of_type("destructiveActions", json!({"allowedTools": ["*", "!lookup", "!refund"]}));
        assert_eq!(tools_asked_about(gate_value), ["lookup", "refund"]);
    }

    #[test]
    fn it_gives_the_reason_for_each_tool() {
        let reasons =
            reasons_to_ask(gate_of_type("destructiveActions", json!({"allowedTools": ["!lookup"]})), &ONE_OF_EACH);
        let reasons: Vec<_> = reasons.iter().map(|reason| reason.as_deref().unwrap_or("-")).collect();
        assert_eq!(
            reasons,
            [
                "!lookup in allowedTools: the gate always asks about it",
                "the effects of the tool are write",
                "the effects of the tool are irreversible",
                "what the call can change is not known",
                "-"
            ]
        );
    }
}

mod custom {
    use super::*;

    #[test]
    fn it_asks_only_if_its_condition_is_true() {
        let tools_for = |condition: &str| tools_asked_about(gate_of_type("custom", json!({"condition": condition})));
        assert_eq!(tools_for("tool == 'mail'"), ["mail"]);
        assert_eq!(tools_for("effects == 'read'"), ["lookup", "web_search"]);
        assert_eq!(tools_for("effects == 'irreversible'"), ["refund", "call"], "unknown effects count as irreversible");
        assert_eq!(tools_for("agent == 'clerk' && has(args.amount)"), ["refund"]);
        assert_eq!(tools_for("agent == 'boss'"), [""; 0]);
    }

    #[test]
    fn its_condition_and_the_schema_read_the_cleaned_arguments() {
        let custom = gate_of_type("custom", json!({"condition": "has(args.to) && args.to.contains('KILL')"}));
        let mut spec = spec(gates(json!([custom])));
        spec["tools"][1]["parameters"]["properties"]["to"] = json!({"type": "string", "not": {"pattern": "bob"}});
        let mut run = TestRun::of(spec);
        let hidden = r#"{"amount":1,"to":"\u212aI\u007fLL\u0000"}"#;
        turn(&mut run, "handle", &[("c1", "refund", hidden), ("c2", "refund", r#"{"amount":1,"to":"b\u0085ob"}"#)]);
        assert_eq!((run.open(), run.calls()), (vec![GATE.to_owned()], Vec::new()));
        assert_eq!(run.asked(GATE).request.reviews.clone().unwrap().response, r#"{"amount":1,"to":"KILL"}"#);
        run.decide(GATE, decided(signoff_api::Verdict::Skip));
        let refused = super::super::result(&run, "handle/.turn-2", "c2");
        assert!(refused.starts_with("Error: the arguments do not fit the tool refund: /to "), "{refused}");
    }

    #[test]
    fn it_asks_with_a_reason_if_its_condition_cannot_be_evaluated() {
        let reasons =
            reasons_to_ask(gate_of_type("custom", json!({"condition": "args.amount > 50"})), &ONE_OF_EACH[..3]);
        assert_eq!(
            reasons[0].as_deref(),
            Some(
                "its condition could not be evaluated, so it asks: spec.gates[1].condition: column 5: a map has no member `amount`; it has 0 element(s)"
            )
        );
        assert_eq!(reasons[2], None, "an amount of 1 is not above 50");
        let listing_gate = gate_of_type("specificTools", json!({"tools": ["lookup"], "condition": "args.amount > 50"}));
        let reason = reasons_to_ask(listing_gate, &ONE_OF_EACH[..1])[0].clone().unwrap();
        assert!(reason.starts_with("lookup is listed; its condition could not be evaluated, so it asks: "), "{reason}");
    }
}

#[test]
fn a_gate_of_any_type_does_not_ask_if_its_condition_is_false() {
    for type_ in ["toolExecution", "specificTools", "destructiveActions"] {
        let mut fields = json!({"condition": "tool == 'mail'"});
        if type_ == "specificTools" {
            fields["tools"] = json!(["*"]);
        }
        assert_eq!(tools_asked_about(gate_of_type(type_, fields)), ["mail"], "{type_}");
    }
}

#[test]
fn a_true_condition_does_not_make_a_gate_ask_about_an_allowed_tool() {
    assert_eq!(
        tools_asked_about(gate_of_type("toolExecution", json!({"allowedTools": ["*"], "condition": "true"}))),
        [""; 0]
    );
}

mod presets {
    use super::*;

    fn preset(name: &str) -> Value {
        json!({"name": "own", "preset": name, "hitl": gate(json!({}))})
    }

    #[test]
    fn minimal_asks_about_every_tool_that_does_not_only_read() {
        assert_eq!(tools_asked_about(preset("minimal")), ["mail", "refund", "call"]);
    }

    #[test]
    fn standard_also_asks_about_names_on_its_list() {
        assert_eq!(tools_asked_about(preset("standard")), ["mail", "refund", "call", "web_search"]);
    }

    #[test]
    fn strict_and_paranoid_ask_about_every_call() {
        for name in ["strict", "paranoid"] {
            assert_eq!(tools_asked_about(preset(name)).len(), 5, "{name}");
        }
    }

    #[test]
    fn allowed_tools_do_not_override_the_list_of_names_of_a_preset() {
        let mut gate_value = preset("standard");
        gate_value["allowedTools"] = json!(["*"]);
        assert_eq!(tools_asked_about(gate_value), ["web_search"]);
    }

    #[test]
    fn strict_also_asks_about_the_final_response() {
        for (name, open) in [("strict", vec![".final".to_owned()]), ("minimal", Vec::new())] {
            let mut run = run(json!([preset(name)]));
            run.reply("handle", 1, "done");
            assert_eq!((run.open(), run.transition.end.is_some()), (open.clone(), open.is_empty()), "{name}");
        }
    }

    #[test]
    fn paranoid_also_asks_about_a_plan() {
        for (name, open) in [("paranoid", vec![".review".to_owned()]), ("strict", Vec::new())] {
            let mut spec = spec(gates(json!([preset(name)])));
            spec["pattern"] = json!({"routing": {"router": {"agent": "clerk", "input": "where?"}}});
            let steps = spec["steps"].as_array_mut().unwrap();
            steps[0] = in_branch("desk", steps[0].clone());
            steps.push(in_branch("back", json!({"name": "end", "set": {"value": "nothing"}})));
            let mut run = TestRun::of(spec);
            run.reply(".router", 1, r#"{"route": "desk"}"#);
            assert_eq!(run.open(), open, "{name}");
        }
    }
}

mod question {
    use super::*;

    #[test]
    fn it_asks_about_a_question_and_not_about_a_call() {
        let mut run = run(json!([]));
        turn(&mut run, "handle", &[("c1", "ask-human", r#"{"questions":[{"question":"?"}]}"#), ("c2", "lookup", "{}")]);
        assert_eq!(run.open(), [GATE]);
        assert_eq!(run.asked(GATE).request.gate.type_, GateType::Question);
    }
}

mod step_start {
    use super::*;

    #[test]
    fn it_asks_about_the_request_after_the_gates_before_the_call() {
        let mut run =
            run(json!([money(), {"name": "start", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))}]));
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
        assert_eq!(run.open(), [GATE], "the call first");
        run.approve(GATE);
        let start = format!("{PAY}/.start");
        assert_eq!((run.open(), run.calls()), (vec![start.clone()], Vec::new()));
        let request = &run.asked(&start).request;
        assert_eq!(request.gate.type_, GateType::StepStart);
        assert!(request.reviews.as_ref().unwrap().response.contains("https://bank.example/refunds"));
        run.approve(&start);
        assert_eq!(run.calls(), [format!("{PAY}@1")]);
    }

    #[test]
    fn it_does_not_offer_modify() {
        let hitl = gate(json!({"allowedVerdicts": ["Approve", "Modify", "Reject"]}));
        let mut run = run(json!([{"name": "start", "type": "stepStart", "steps": ["pay"], "hitl": hitl}]));
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
        let request = &run.asked(&format!("{PAY}/.start")).request;
        assert!(request.context.as_ref().unwrap().starts_with("A call of the tool refund by the agent clerk\n"));
        assert_eq!(request.allowed_verdicts, [signoff_api::Verdict::Approve, signoff_api::Verdict::Reject]);
    }

    #[test]
    fn it_asks_only_about_its_steps_and_skip_skips_the_call() {
        let start = json!({"name": "start", "type": "stepStart", "steps": ["pay"],
            "hitl": gate(json!({"allowedVerdicts": ["Approve", "Skip", "Reject"]}))});
        let mut run = run(json!([start]));
        turn(&mut run, "handle", &[("c1", "lookup", "{}"), ("c2", "refund", r#"{"amount":1}"#)]);
        let gate_path = "handle/.turn-1/.call-2/pay/.start";
        assert_eq!(run.open(), [gate_path]);
        run.decide(gate_path, decided(signoff_api::Verdict::Skip));
        assert_eq!(super::super::result(&run, "handle/.turn-2", "c2"), "Skipped: the tool was left out");
    }
}

mod error_escalation {
    use super::*;

    #[test]
    fn it_asks_about_an_unknown_outcome_and_not_about_a_known_failure() {
        let errors = json!({"name": "errors", "type": "errorEscalation", "hitl": gate(json!({}))});
        for (unknown, open) in [(true, vec![format!("{PAY}/.error")]), (false, Vec::new())] {
            let mut run = run(json!([errors]));
            turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
            run.fail(PAY, 1, false, unknown);
            assert_eq!(run.open(), open, "unknown: {unknown}");
            if unknown {
                let context = run.asked(&open[0]).request.context.clone().unwrap();
                assert_eq!(
                    context,
                    "A call of the tool refund by the agent clerk\ntarget: POST https://bank.example/refunds\neffects, as the author declares: irreversible\narguments (12 bytes): {\"amount\":1}"
                );
            }
        }
    }
}

#[test]
fn destructive_actions_do_not_ask_about_a_tool_that_reads() {
    let gate_list = json!([{"name": "d", "type": "destructiveActions", "hitl": gate(json!({}))}]);
    let mut run = run(gate_list);
    turn(&mut run, "handle", &[("c1", "lookup", "{}"), ("c2", "refund", r#"{"amount":1}"#)]);
    assert_eq!(run.open(), ["handle/.turn-1/.call-2/.gate"]);
}
