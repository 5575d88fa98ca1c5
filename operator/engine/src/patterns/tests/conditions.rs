//! Tests of conditions that cannot be evaluated: no error lets a step with an effect run.

use serde_json::{Value, json};
use signoff_api::{
    Outcome, Verdict,
    approval::Source,
    gate::TimeoutAction,
    journal::{StepPhase, StepRecord},
};

use crate::{
    End, Fact,
    tests::test_run::{TestRun, agent, chain_of, decided, gate, of_pattern, set},
};

const SKIPS: &str = "steps.look.response.status == 'refunded'";

fn pay(more: Value) -> Value {
    let mut step =
        json!({"name": "pay", "skipIf": SKIPS, "http": {"method": "POST", "url": "https://bank.example/pay"}});
    for (key, value) in more.as_object().unwrap() {
        step[key] = value.clone();
    }
    step
}

/// Returns a run in which the step `look` has answered. The step `pay` follows unless the answer is a refund.
fn run_with_answer(answer: &str, pay: Value, gates: Value) -> TestRun {
    let mut run = TestRun::of(spec(answer, pay, gates));
    run.reply("look", 1, answer);
    run
}

/// Returns the spec of `run_with_answer`. If the answer is a JSON object, the step `look` has a schema.
fn spec(answer: &str, pay: Value, gates: Value) -> Value {
    let mut look = json!({"name": "look", "http": {"url": "https://bank.example/look"}});
    if answer.starts_with('{') {
        look["outputSchema"] = json!({"type": "object"});
    }
    let mut spec = chain_of(json!([look, pay]));
    spec["gates"] = gates;
    spec
}

fn has_failed_condition(record: &StepRecord) -> bool {
    record.phase == StepPhase::Failed && record.error.as_ref().is_some_and(|error| error.class == "Condition")
}

#[test]
fn a_step_whose_condition_cannot_be_evaluated_fails_and_sends_nothing() {
    for answer in ["it was refunded", "{}", r#"{"status": 5}"#, r#"{"state": "refunded"}"#, "[]", ""] {
        let run = run_with_answer(answer, pay(json!({})), json!([]));
        if answer.contains('5') {
            // Values of two types are not equal, which is a valid result.
            assert_eq!(run.calls(), ["pay@1"]);
            continue;
        }
        assert_eq!(run.calls(), Vec::<String>::new(), "{answer}");
        assert!(has_failed_condition(run.record("pay")), "{answer}: {:?}", run.record("pay"));
        assert!(
            run.expect_failure().contains("step pay: ") && run.expect_failure().contains("skipIf"),
            "{}",
            run.expect_failure()
        );
    }
    assert_eq!(run_with_answer(r#"{"status": "paid"}"#, pay(json!({})), json!([])).calls(), ["pay@1"]);
    let refunded = run_with_answer(r#"{"status": "refunded"}"#, pay(json!({})), json!([]));
    assert_eq!(refunded.record("pay").phase, StepPhase::Skipped);
}

#[test]
fn a_step_of_any_kind_fails_when_its_condition_cannot_be_evaluated() {
    let kinds = [
        json!({"agent": {"name": "writer", "input": "x"}}),
        json!({"pod": {"image": "busybox"}}),
        json!({"set": {"value": "x"}}),
        json!({"http": {"url": "https://bank.example/"}}),
    ];
    for kind in kinds {
        let mut step = json!({"name": "pay", "skipIf": SKIPS});
        step.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        let run = run_with_answer("no JSON", step, json!([]));
        assert!(has_failed_condition(run.record("pay")), "{kind}");
        assert!(matches!(run.transition.end, Some(End::Failed(_))));
    }
}

#[test]
fn a_failed_condition_is_not_retried() {
    let retry = json!({"limit": 5, "onReasons": ["Condition"], "backoff": {"base": "1s"}});
    let run = run_with_answer("no JSON", pay(json!({"retry": retry})), json!([]));
    assert!(matches!(run.transition.end, Some(End::Failed(_))), "{:?}", run.transition.wake_at);
    let run = run_with_answer("no JSON", pay(json!({"onError": "continue"})), json!([]));
    assert!(run.transition.end.is_some() && has_failed_condition(run.record("pay")));
}

fn error_gates(more: Value) -> Value {
    let verdicts = json!(["Retry", "Modify", "Defer", "Respond", "Skip", "Reject", "Abort", "Escalate"]);
    let mut hitl = json!({"allowedVerdicts": verdicts, "escalateTo": [{"kind": "User", "name": "olga"}]});
    for (key, value) in more.as_object().unwrap() {
        hitl[key] = value.clone();
    }
    json!([{"name": "help", "type": "errorEscalation", "steps": ["pay"], "hitl": gate(hitl)}])
}

#[test]
fn people_can_skip_but_not_run_a_step_whose_condition_failed() {
    let run = run_with_answer("no JSON", pay(json!({})), error_gates(json!({})));
    let request = &run.asked("pay/.error").request;
    let mut verdicts = request.allowed_verdicts.clone();
    verdicts.sort_by_key(|verdict| verdict.to_string());
    assert_eq!(verdicts, [Verdict::Abort, Verdict::Escalate, Verdict::Reject, Verdict::Skip]);
    assert_eq!(request.form, None);

    let mut run = run_with_answer("no JSON", pay(json!({})), error_gates(json!({})));
    run.decide("pay/.error", decided(Verdict::Skip));
    assert!(run.calls().is_empty() && matches!(run.transition.end, Some(End::Succeeded(_))));
    let mut run = run_with_answer("no JSON", pay(json!({})), error_gates(json!({})));
    run.decide("pay/.error", decided(Verdict::Reject));
    run.expect_failure();
    // For another failure of the same step the gate allows the verdicts that its author lists.
    let mut run = run_with_answer(r#"{"status": "paid"}"#, pay(json!({})), error_gates(json!({})));
    run.fail("pay", 1, false, false);
    assert!(run.asked("pay/.error").request.allowed_verdicts.contains(&Verdict::Retry));
}

#[test]
fn no_deadline_runs_a_step_whose_condition_failed() {
    let form = json!({"questions": [{"id": "q", "question": "why?", "options": [{"id": "a", "label": "a"}]}]});
    for (action, expected) in [
        ("Retry", TimeoutAction::Reject),
        ("Default", TimeoutAction::Reject),
        ("Expire", TimeoutAction::Reject),
        ("Skip", TimeoutAction::Skip),
        ("Abort", TimeoutAction::Abort),
        ("Escalate", TimeoutAction::Escalate),
    ] {
        let mut timeout = json!({"after": "1m", "action": action});
        let mut hitl_fields = json!({});
        match action {
            "Default" => {
                timeout["default"] = json!("a");
                hitl_fields["form"] = form.clone();
            }
            "Escalate" => timeout["escalation"] = json!([{"to": [{"kind": "User", "name": "olga"}], "after": "1m"}]),
            _ => {}
        }
        hitl_fields["timeout"] = timeout;
        let run = run_with_answer("no JSON", pay(json!({})), error_gates(hitl_fields));
        assert_eq!(run.asked("pay/.error").request.timeout.action, Some(expected), "{action}");
    }
}

#[test]
fn a_verdict_that_would_run_the_step_evaluates_its_condition_again() {
    // No Approval allows Retry here, so the decision of a forged object has no effect.
    let mut run = run_with_answer("no JSON", pay(json!({})), error_gates(json!({})));
    run.decide("pay/.error", decided(Verdict::Retry));
    assert_eq!(run.calls(), Vec::<String>::new());
    assert_eq!(run.open(), ["pay/.error#2"]);
}

#[test]
fn an_attempt_after_a_costly_one_evaluates_the_condition() {
    for (answer, is_run) in [(r#"{"status": "paid"}"#, true), (r#"{"status": "refunded"}"#, false), ("no JSON", false)]
    {
        let mut run = TestRun::of(spec(answer, pay(json!({})), error_gates(json!({}))));
        let stopped = Fact::TooCostly { path: "pay".into(), attempt: 1, why: "it was stopped".into() };
        let at = run.clock;
        let reply = crate::transition::Reply { response: json!(answer), ..Default::default() };
        run.take(vec![stopped, Fact::CallFinished { path: "look".into(), attempt: 1, result: Ok(reply), at }]);
        assert_eq!(run.record("pay").error.as_ref().unwrap().class, "TooCostly");
        run.decide("pay/.error", decided(Verdict::Retry));
        assert_eq!(run.calls() == ["pay@2"], is_run, "{answer}: {:?}", run.calls());
    }
}

#[test]
fn a_call_in_flight_is_not_skipped_by_its_condition() {
    let mut run = run_with_answer(
        r#"{"status": "paid"}"#,
        pay(json!({"http": {"method": "PUT", "url": "https://bank.example/pay"}})),
        json!([]),
    );
    assert_eq!(run.calls(), ["pay@1"]);
    // After a crash the same call is repeated, even if its condition would now skip it.
    let mut records = run.journal.records().to_vec();
    records[0].response = Some(signoff_api::Json(json!(r#"{"state": 1}"#)));
    run.journal = crate::Journal::new(run.journal.seq(), records);
    run.take(Vec::new());
    assert_eq!(run.calls(), ["pay@1"], "{:?}", run.transition.end);
}

#[test]
fn a_gate_before_a_step_does_not_ask_when_its_condition_fails() {
    let start = json!([{"name": "start", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))}]);
    let run = run_with_answer("no JSON", pay(json!({})), start.clone());
    assert_eq!(run.open(), Vec::<String>::new());
    assert!(has_failed_condition(run.record("pay")));
    assert_eq!(run_with_answer(r#"{"status": "paid"}"#, pay(json!({})), start).open(), ["pay/.start"]);
}

#[test]
fn a_gate_whose_condition_cannot_be_evaluated_asks() {
    let ask = json!({"name": "ask", "skipIf": "steps.look.response.status == 'ok'", "hitl": gate(json!({}))});
    let run = run_with_answer("no JSON", ask, json!([]));
    assert_eq!(run.open(), ["ask"]);
}

#[test]
fn an_edge_that_cannot_be_evaluated_fails_the_run_and_names_both_ends() {
    let spec = |answer: &str| {
        let edges = json!([{"from": "look", "choose": [
            {"when": "steps.look.response.status == 'refunded'", "to": "archive"}, {"when": "else", "to": "pay"}]}]);
        let nodes = json!([set("look", answer), set("pay", "paid"), set("archive", "kept")]);
        of_pattern(json!({"pattern": {"graph": {"edges": edges}}, "steps": nodes}))
    };
    let run = TestRun::of(spec("no JSON"));
    assert!(run.expect_failure().starts_with("edge from look to archive: "), "{}", run.expect_failure());
    assert_eq!(run.record("look/.next").error.as_ref().unwrap().class, "Condition");
}

#[test]
fn an_artifact_whose_condition_cannot_be_evaluated_is_left_out_and_named() {
    let mut spec = chain_of(json!([agent("draft", "writer", "write")]));
    spec["outputs"] = json!({"artifacts": [
        {"path": "secret.md", "from": "{{ last_response }}", "skipIf": "steps.draft.response.secret"},
        {"path": "letter.md", "from": "{{ last_response }}"},
    ]});
    let mut run = TestRun::of(spec.clone());
    run.reply("draft", 1, "Dear all");
    assert_eq!(run.expect_success(), "Dear all");
    assert_eq!(run.transition.artifacts, [("letter.md".to_owned(), "Dear all".to_owned())]);
    let workflow = crate::tests::test_run::workflow(spec);
    let status = crate::status::after(&workflow, &run.plan, &run.transition, false, run.clock);
    let message = status.message.unwrap();
    assert!(message.contains("artifacts were left out: secret.md (spec.outputs.artifacts[0].skipIf: "), "{message}");
}

#[test]
fn a_call_of_a_tool_whose_condition_cannot_be_evaluated_is_not_made() {
    let spec = json!({
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": [{"name": "clerk", "tools": ["refund"]}],
        "tools": [{"name": "refund", "step": "pay", "description": "Pays back.", "parameters": {"type": "object"}}],
        "steps": [
            agent("handle", "clerk", "help"),
            {"name": "pay", "skipIf": "args.amount < 10", "http": {"method": "POST", "url": "https://bank.example/"}},
        ],
    });
    let mut run = TestRun::of(spec);
    let calls = json!([{"id": "c", "tool": "refund", "arguments": "{\"amount\": \"many\"}"}]);
    let facts = std::collections::BTreeMap::from([("calls".to_owned(), "1".to_owned())]);
    let reply = crate::transition::Reply { response: json!({"text": "", "calls": calls}), facts, ..Default::default() };
    let at = run.clock;
    run.take(vec![Fact::CallFinished { path: "handle".into(), attempt: 1, result: Ok(reply), at }]);
    assert!(has_failed_condition(run.record("handle/.turn-1/.call-1/pay")));
    assert_eq!(run.calls(), ["handle/.turn-2@1"], "the agent is told, and nothing was sent");
}

#[test]
fn a_deadline_that_skips_ends_the_step_without_a_call() {
    let mut run =
        run_with_answer("no JSON", pay(json!({})), error_gates(json!({"timeout": {"after": "1m", "action": "Skip"}})));
    run.decide("pay/.error", Outcome { source: Source::Timeout, ..decided(Verdict::Skip) });
    assert!(run.calls().is_empty() && matches!(run.transition.end, Some(End::Succeeded(_))));
}

#[test]
fn a_condition_reads_the_json_that_the_schema_accepted() {
    let schema = json!({"type": "object", "required": ["status"], "additionalProperties": false,
        "properties": {"status": {"enum": ["refunded"]}}});
    let look = json!({"name": "look", "http": {"url": "https://bank.example"}, "outputSchema": schema});
    let pay = json!({"name": "pay", "skipIf": "steps.look.response.status == 'refunded'",
        "http": {"method": "POST", "url": "https://bank.example"}});
    let mut run = TestRun::of(chain_of(json!([look, pay])));
    run.reply("look", 1, r#"{"status": "open"} {"status": "refunded"}"#);
    assert_eq!(run.calls(), Vec::<String>::new(), "the only status that the schema takes is `refunded`");
}
