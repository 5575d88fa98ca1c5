//! Tests of the gates after a call, about a failure of the step of its tool and about its output, with each verdict.

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, approval::Source};

use super::{GATE, PAY, gates, money, result, spec, turn};
use crate::{
    End,
    tests::test_run::{TestRun, decided, gate},
};

/// The consequence of a verdict.
#[derive(Debug, PartialEq)]
enum Consequence {
    /// The second turn of the agent receives this result, and no call runs again.
    ResultSent(&'static str),
    /// The gates before the tool ask again, and no call runs before they are decided.
    AskedAgain,
    Failed,
    Rejected,
    Aborted,
}

fn gate_after_pay(type_: &str, verdicts: Value) -> Value {
    json!({"name": "after", "type": type_, "steps": ["pay"], "hitl": gate(json!({"allowedVerdicts": verdicts}))})
}

/// Returns an outcome with the text or parameters that people give with this verdict.
fn outcome_with_texts(verdict: Verdict) -> Outcome {
    let text_if = |is_given: bool, text: &str| is_given.then(|| text.to_owned());
    let parameters = json!({"response": "a receipt"});
    Outcome {
        response: text_if(verdict == Verdict::Respond, "ask the bank"),
        guidance: text_if(verdict == Verdict::Defer, "once more"),
        parameters: (verdict == Verdict::Modify).then(|| serde_json::from_value(parameters).unwrap()),
        ..decided(verdict)
    }
}

fn consequence_of(run: &TestRun) -> Consequence {
    match &run.transition.end {
        Some(End::Failed(_)) => return Consequence::Failed,
        Some(End::Rejected(_)) => return Consequence::Rejected,
        Some(End::Aborted(_)) => return Consequence::Aborted,
        Some(other) => panic!("{other:?}"),
        None => {}
    }
    if run.open() == [format!("{GATE}#2")] {
        assert!(run.calls().is_empty(), "{:?}", run.calls());
        return Consequence::AskedAgain;
    }
    assert_eq!((run.open(), run.calls()), (Vec::new(), vec!["handle/.turn-2@1".to_owned()]));
    Consequence::ResultSent(result(run, "handle/.turn-2", "c1").leak())
}

/// Returns a run whose approved call waits at the gate after it.
fn run_at_gate_after_call(gate: Value, end_call: impl Fn(&mut TestRun)) -> TestRun {
    let mut spec = spec(gates(json!([money(), gate.clone()])));
    if gate["type"] == "errorEscalation" {
        spec["steps"][2]["onError"] = json!("escalate");
    }
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    end_call(&mut run);
    assert_eq!((run.open().len(), run.calls()), (1, Vec::new()));
    run
}

#[test]
fn each_verdict_on_a_failed_or_unknown_call_has_its_consequence() {
    let verdicts = json!(["Retry", "Defer", "Respond", "Skip", "Reject", "Abort"]);
    for is_unknown in [true, false] {
        for (verdict, wanted) in [
            (Verdict::Retry, Consequence::AskedAgain),
            (Verdict::Defer, Consequence::ResultSent("Not now. Try another approach: once more")),
            (Verdict::Respond, Consequence::ResultSent("ask the bank")),
            (Verdict::Skip, Consequence::ResultSent("Skipped: the tool was left out")),
            (Verdict::Reject, Consequence::Failed),
            (Verdict::Abort, Consequence::Aborted),
        ] {
            let mut run = run_at_gate_after_call(gate_after_pay("errorEscalation", verdicts.clone()), |run| {
                run.fail(PAY, 1, false, is_unknown);
            });
            run.decide(&format!("{PAY}/.error"), outcome_with_texts(verdict));
            assert_eq!(consequence_of(&run), wanted, "{verdict:?}, unknown: {is_unknown}");
        }
    }
}

#[test]
fn each_verdict_on_the_output_of_a_call_has_its_consequence() {
    let verdicts = json!(["Approve", "Modify", "Respond", "Skip", "Retry", "Defer", "Reject", "Abort"]);
    for (verdict, wanted) in [
        (Verdict::Approve, Consequence::ResultSent("paid")),
        (Verdict::Modify, Consequence::ResultSent("a receipt")),
        (Verdict::Respond, Consequence::ResultSent("ask the bank")),
        (Verdict::Retry, Consequence::AskedAgain),
        (Verdict::Defer, Consequence::AskedAgain),
        (Verdict::Abort, Consequence::Aborted),
    ] {
        let mut run = run_at_gate_after_call(gate_after_pay("outputValidation", verdicts.clone()), |run| {
            run.reply(PAY, 1, "paid");
        });
        run.decide(&format!("{PAY}/.output"), outcome_with_texts(verdict));
        assert_eq!(consequence_of(&run), wanted, "{verdict:?}");
    }
}

#[test]
fn a_deadline_that_repeats_an_output_gate_does_not_repeat_the_call() {
    let mut run =
        run_at_gate_after_call(gate_after_pay("outputValidation", json!(["Approve", "Retry", "Reject"])), |run| {
            run.reply(PAY, 1, "paid");
        });
    let by_timeout = || Outcome { source: Source::Timeout, decided_by: Vec::new(), ..decided(Verdict::Retry) };
    run.decide(&format!("{PAY}/.output"), by_timeout());
    assert_eq!((run.open(), run.calls()), (vec![format!("{PAY}/.output#2")], Vec::new()));
    run.decide(&format!("{PAY}/.output#2"), decided(Verdict::Approve));
    assert_eq!(consequence_of(&run), Consequence::ResultSent("paid"));
}

/// The agent must not confuse the refusal of another attempt with the result of the attempt that paid.
#[test]
fn a_refused_second_attempt_names_the_attempt_that_succeeded() {
    for verdict in [Verdict::Reject, Verdict::Defer, Verdict::Skip, Verdict::Respond] {
        let hitl = gate(json!({"allowedVerdicts": ["Approve", "Reject", "Defer", "Skip", "Respond"]}));
        let gate_before = json!({"name": "money", "type": "specificTools", "tools": ["refund"], "hitl": hitl});
        let mut run = TestRun::of(spec(gates(json!([
            gate_before,
            gate_after_pay("outputValidation", json!(["Approve", "Retry"]))
        ]))));
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
        run.approve(GATE);
        run.reply(PAY, 1, "paid");
        run.decide(&format!("{PAY}/.output"), decided(Verdict::Retry));
        run.decide(&format!("{GATE}#2"), outcome_with_texts(verdict));
        let tool_result = result(&run, "handle/.turn-2", "c1");
        assert!(
            tool_result.ends_with("[attempt 1 at this call succeeded; this is about a further one]"),
            "{verdict}: {tool_result}"
        );
    }
}

#[test]
fn an_output_that_people_reject_is_not_sent_to_the_agent() {
    let mut run =
        TestRun::of(spec(gates(json!([money(), gate_after_pay("outputValidation", json!(["Approve", "Reject"]))]))));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    run.reply(PAY, 1, "a secret");
    run.decide(&format!("{PAY}/.output"), outcome_with_texts(Verdict::Reject));
    let tool_result = result(&run, "handle/.turn-2", "c1");
    assert!(tool_result.starts_with("Error: ") && !tool_result.contains("a secret"), "{tool_result}");
}

#[test]
fn an_edit_at_the_error_gate_does_not_change_the_next_attempt() {
    let mut run = run_at_gate_after_call(gate_after_pay("errorEscalation", json!(["Modify", "Retry"])), |run| {
        run.fail(PAY, 1, false, true);
    });
    run.modify(&format!("{PAY}/.error"), json!({"url": "https://other.example/", "body": "999"}));
    assert_eq!(consequence_of(&run), Consequence::AskedAgain);
    assert_eq!(run.asked(&format!("{GATE}#2")).request.reviews.as_ref().unwrap().response, r#"{"amount":1}"#);
    run.approve(&format!("{GATE}#2"));
    assert_eq!((run.calls(), run.prompt()), (vec![format!("{PAY}@2")], "1".to_owned()));
}

/// Returns a run whose approved call answered with valid JSON, and waits at the gate after it.
fn run_with_output_schema(verdicts: Value) -> TestRun {
    let mut spec = spec(gates(json!([money(), gate_after_pay("outputValidation", verdicts)])));
    spec["steps"][2]["outputSchema"] = json!({"type": "object", "required": ["receipt"]});
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    run.reply(PAY, 1, r#"{"receipt": 1}"#);
    run
}

#[test]
fn a_request_about_an_output_has_the_schema_of_a_response() {
    let run = run_with_output_schema(json!(["Approve", "Respond"]));
    let request = run.asked(&format!("{PAY}/.output")).request.clone();
    let schema = json!({"Respond": {"type": "object", "required": ["receipt"]}});
    assert_eq!(serde_json::to_value(&request.parameters).unwrap(), schema);
    let mut without = request.clone();
    without.parameters = None;
    assert_ne!(without.digest_of_the_rest().unwrap(), request.digest, "the digest covers it");
    let run = run_with_output_schema(json!(["Approve", "Reject"]));
    assert_eq!(run.asked(&format!("{PAY}/.output")).request.parameters, None, "nobody can respond");
}

#[test]
fn a_response_that_does_not_fit_the_output_schema_is_an_error_result() {
    let respond = |text: &str| Outcome { response: Some(text.to_owned()), ..decided(Verdict::Respond) };
    let mut run = run_with_output_schema(json!(["Approve", "Respond"]));
    run.decide(&format!("{PAY}/.output"), respond("ask the bank"));
    let error = run.record(&format!("{PAY}/.answer")).error.clone().unwrap();
    assert_eq!(error.class, "Malformed");
    let tool_result = result(&run, "handle/.turn-2", "c1");
    assert!(tool_result.starts_with("Error: ") && tool_result.contains("there is no JSON in it"), "{tool_result}");
    let mut run = run_with_output_schema(json!(["Approve", "Respond"]));
    run.decide(&format!("{PAY}/.output"), respond(r#"{"receipt": 2}"#));
    assert_eq!(consequence_of(&run), Consequence::ResultSent(r#"{"receipt": 2}"#));
}
