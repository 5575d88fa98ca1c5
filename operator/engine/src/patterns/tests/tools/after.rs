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
enum Follows {
    /// The agent receives this in its second turn, and nothing runs again.
    Told(&'static str),
    /// The gates before the tool ask again, and nothing runs before that.
    AskedAgain,
    Failed,
    Rejected,
    Aborted,
}

fn own(type_: &str, verdicts: Value) -> Value {
    json!({"name": "after", "type": type_, "steps": ["pay"], "hitl": gate(json!({"allowedVerdicts": verdicts}))})
}

/// Returns an outcome with these texts of people.
fn said(verdict: Verdict) -> Outcome {
    let text = |is: bool, text: &str| is.then(|| text.to_owned());
    let replaced = json!({"response": "a receipt"});
    Outcome {
        response: text(verdict == Verdict::Respond, "ask the bank"),
        guidance: text(verdict == Verdict::Defer, "once more"),
        parameters: (verdict == Verdict::Modify).then(|| serde_json::from_value(replaced).unwrap()),
        ..decided(verdict)
    }
}

fn follows(run: &TestRun) -> Follows {
    match &run.transition.end {
        Some(End::Failed(_)) => return Follows::Failed,
        Some(End::Rejected(_)) => return Follows::Rejected,
        Some(End::Aborted(_)) => return Follows::Aborted,
        Some(other) => panic!("{other:?}"),
        None => {}
    }
    if run.open() == [format!("{GATE}#2")] {
        assert!(run.calls().is_empty(), "{:?}", run.calls());
        return Follows::AskedAgain;
    }
    assert_eq!((run.open(), run.calls()), (Vec::new(), vec!["handle/.turn-2@1".to_owned()]));
    Follows::Told(result(run, "handle/.turn-2", "c1").leak())
}

/// Returns a run whose approved call waits at the gate after it.
fn after(gate: Value, ended: impl Fn(&mut TestRun)) -> TestRun {
    let mut spec = spec(gates(json!([money(), gate.clone()])));
    if gate["type"] == "errorEscalation" {
        spec["steps"][2]["onError"] = json!("escalate");
    }
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    ended(&mut run);
    assert_eq!((run.open().len(), run.calls()), (1, Vec::new()));
    run
}

#[test]
fn each_verdict_on_a_failed_or_unknown_call() {
    let verdicts = json!(["Retry", "Defer", "Respond", "Skip", "Reject", "Abort"]);
    for is_unknown in [true, false] {
        for (verdict, wanted) in [
            (Verdict::Retry, Follows::AskedAgain),
            (Verdict::Defer, Follows::Told("Not now. Try another approach: once more")),
            (Verdict::Respond, Follows::Told("ask the bank")),
            (Verdict::Skip, Follows::Told("Skipped: the tool was left out")),
            (Verdict::Reject, Follows::Failed),
            (Verdict::Abort, Follows::Aborted),
        ] {
            let mut run = after(own("errorEscalation", verdicts.clone()), |run| {
                run.fail(PAY, 1, false, is_unknown);
            });
            run.decide(&format!("{PAY}/.error"), said(verdict));
            assert_eq!(follows(&run), wanted, "{verdict:?}, unknown: {is_unknown}");
        }
    }
}

#[test]
fn each_verdict_on_the_output_of_a_call() {
    let verdicts = json!(["Approve", "Modify", "Respond", "Skip", "Retry", "Defer", "Reject", "Abort"]);
    for (verdict, wanted) in [
        (Verdict::Approve, Follows::Told("paid")),
        (Verdict::Modify, Follows::Told("a receipt")),
        (Verdict::Respond, Follows::Told("ask the bank")),
        (Verdict::Retry, Follows::AskedAgain),
        (Verdict::Defer, Follows::AskedAgain),
        (Verdict::Abort, Follows::Aborted),
    ] {
        let mut run = after(own("outputValidation", verdicts.clone()), |run| {
            run.reply(PAY, 1, "paid");
        });
        run.decide(&format!("{PAY}/.output"), said(verdict));
        assert_eq!(follows(&run), wanted, "{verdict:?}");
    }
}

#[test]
fn a_deadline_that_asks_again_about_the_output_of_a_call_does_not_make_it_again() {
    let mut run = after(own("outputValidation", json!(["Approve", "Retry", "Reject"])), |run| {
        run.reply(PAY, 1, "paid");
    });
    let by_timeout = || Outcome { source: Source::Timeout, decided_by: Vec::new(), ..decided(Verdict::Retry) };
    run.decide(&format!("{PAY}/.output"), by_timeout());
    assert_eq!((run.open(), run.calls()), (vec![format!("{PAY}/.output#2")], Vec::new()));
    run.decide(&format!("{PAY}/.output#2"), decided(Verdict::Approve));
    assert_eq!(follows(&run), Follows::Told("paid"));
}

/// The agent must not confuse the refusal of another attempt with the result of the attempt that paid.
#[test]
fn what_people_say_of_a_further_attempt_is_told_beside_the_one_that_succeeded() {
    for verdict in [Verdict::Reject, Verdict::Defer, Verdict::Skip, Verdict::Respond] {
        let hitl = gate(json!({"allowedVerdicts": ["Approve", "Reject", "Defer", "Skip", "Respond"]}));
        let asks = json!({"name": "money", "type": "specificTools", "tools": ["refund"], "hitl": hitl});
        let mut run = TestRun::of(spec(gates(json!([asks, own("outputValidation", json!(["Approve", "Retry"]))]))));
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
        run.approve(GATE);
        run.reply(PAY, 1, "paid");
        run.decide(&format!("{PAY}/.output"), decided(Verdict::Retry));
        run.decide(&format!("{GATE}#2"), said(verdict));
        let told = result(&run, "handle/.turn-2", "c1");
        assert!(told.ends_with("[attempt 1 at this call succeeded; this is about a further one]"), "{verdict}: {told}");
    }
}

#[test]
fn what_people_discard_of_the_output_of_a_call_is_not_told() {
    let mut run = TestRun::of(spec(gates(json!([money(), own("outputValidation", json!(["Approve", "Reject"]))]))));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    run.reply(PAY, 1, "a secret");
    run.decide(&format!("{PAY}/.output"), said(Verdict::Reject));
    let told = result(&run, "handle/.turn-2", "c1");
    assert!(told.starts_with("Error: ") && !told.contains("a secret"), "{told}");
}

#[test]
fn what_people_change_of_a_failed_call_is_not_what_runs() {
    let mut run = after(own("errorEscalation", json!(["Modify", "Retry"])), |run| {
        run.fail(PAY, 1, false, true);
    });
    run.modify(&format!("{PAY}/.error"), json!({"url": "https://other.example/", "body": "999"}));
    assert_eq!(follows(&run), Follows::AskedAgain);
    assert_eq!(run.asked(&format!("{GATE}#2")).request.reviews.as_ref().unwrap().response, r#"{"amount":1}"#);
    run.approve(&format!("{GATE}#2"));
    assert_eq!((run.calls(), run.prompt()), (vec![format!("{PAY}@2")], "1".to_owned()));
}

/// Returns a run whose approved call answered with valid JSON, and waits at the gate after it.
fn with_schema(verdicts: Value) -> TestRun {
    let mut spec = spec(gates(json!([money(), own("outputValidation", verdicts)])));
    spec["steps"][2]["outputSchema"] = json!({"type": "object", "required": ["receipt"]});
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    run.approve(GATE);
    run.reply(PAY, 1, r#"{"receipt": 1}"#);
    run
}

#[test]
fn a_response_instead_of_the_output_of_a_call_has_its_schema_in_the_request() {
    let run = with_schema(json!(["Approve", "Respond"]));
    let request = run.asked(&format!("{PAY}/.output")).request.clone();
    let schema = json!({"Respond": {"type": "object", "required": ["receipt"]}});
    assert_eq!(serde_json::to_value(&request.parameters).unwrap(), schema);
    let mut without = request.clone();
    without.parameters = None;
    assert_ne!(without.digest_of_the_rest().unwrap(), request.digest, "the digest covers it");
    let run = with_schema(json!(["Approve", "Reject"]));
    assert_eq!(run.asked(&format!("{PAY}/.output")).request.parameters, None, "nobody can respond");
}

#[test]
fn a_response_that_does_not_fit_the_schema_of_the_step_is_no_output_of_a_call() {
    let respond = |text: &str| Outcome { response: Some(text.to_owned()), ..decided(Verdict::Respond) };
    let mut run = with_schema(json!(["Approve", "Respond"]));
    run.decide(&format!("{PAY}/.output"), respond("ask the bank"));
    let error = run.record(&format!("{PAY}/.answer")).error.clone().unwrap();
    assert_eq!(error.class, "Malformed");
    let told = result(&run, "handle/.turn-2", "c1");
    assert!(told.starts_with("Error: ") && told.contains("there is no JSON in it"), "{told}");
    let mut run = with_schema(json!(["Approve", "Respond"]));
    run.decide(&format!("{PAY}/.output"), respond(r#"{"receipt": 2}"#));
    assert_eq!(follows(&run), Follows::Told(r#"{"receipt": 2}"#));
}
