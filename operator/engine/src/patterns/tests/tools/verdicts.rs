//! Tests of all verdicts, for calls of tools and for questions of agents.

use serde_json::{Value, json};
use signoff_api::{Approval, Outcome, Verdict, approval::Source};

use super::{GATE, PAY, gates, messages_to_agent, result, run, spec, turn};
use crate::{
    End, Now,
    approval::{OwnerState, tally},
    tests::test_run::{TestRun, decided, errors, gate},
};

const ALL_OF_A_CALL: [&str; 7] = ["Approve", "Reject", "Modify", "Respond", "Defer", "Skip", "Abort"];

/// Returns a run with a call of `refund` that waits at a gate.
fn run_with_call(more: Value) -> TestRun {
    let mut run = run(json!([{"name": "money", "type": "specificTools", "tools": ["refund"], "hitl": gate(more)}]));
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
    assert_eq!((run.open(), run.calls()), (vec![GATE.to_owned()], Vec::new()));
    run
}

/// Returns a run with a question of an agent that waits at a gate.
fn run_with_question(more: Value) -> TestRun {
    let mut run = TestRun::of(spec(json!([{"name": "questions", "type": "question", "hitl": gate(more)}])));
    turn(&mut run, "handle", &[("c1", "ask-human", r#"{"questions":[{"question":"How much?"}]}"#)]);
    assert_eq!((run.open(), run.calls()), (vec![GATE.to_owned()], Vec::new()));
    run
}

/// Returns the result that the agent receives in its second turn.
fn result_in_second_turn(run: &TestRun) -> String {
    result(run, "handle/.turn-2", "c1")
}

/// Returns an outcome with the reason, the response or the guidance that people give with this verdict.
fn outcome_with_texts(verdict: Verdict) -> Outcome {
    let text_if = |is_given: bool, text: &str| is_given.then(|| text.to_owned());
    Outcome {
        reason: text_if(verdict == Verdict::Reject, "not this customer"),
        response: text_if(verdict == Verdict::Respond, "use the old one"),
        guidance: text_if(verdict == Verdict::Defer, "ask first"),
        ..decided(verdict)
    }
}

/// Returns the outcome of a timeout action.
fn outcome_by_deadline(verdict: Verdict) -> Outcome {
    Outcome { source: Source::Timeout, decided_by: Vec::new(), ..decided(verdict) }
}

/// Returns the Approval of an open gate with these votes.
fn approval_after_votes(run: &TestRun, votes: &[(&str, Value)]) -> Approval {
    let request = serde_json::to_value(&run.asked(GATE).request).unwrap();
    let mut approval: Approval = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "a", "generation": 1},
        "spec": {"request": request},
    }))
    .unwrap();
    for (user, decision) in votes {
        approval.spec.decisions.insert((*user).to_owned(), serde_json::from_value(decision.clone()).unwrap());
        let now = Now::new(run.clock, "epoch");
        approval.status = Some(tally(&approval, OwnerState::Live, &now).status);
    }
    approval
}

/// Returns the errors of a gate that allows a verdict.
fn errors_of_verdict(type_: &str, verdict: &str) -> Vec<String> {
    let tools = if type_ == "question" { json!([]) } else { json!(["refund"]) };
    let hitl = gate(json!({"allowedVerdicts": [verdict, "Skip"]}));
    let gate_with_verdict = json!({"name": "own", "type": type_, "tools": tools, "hitl": hitl});
    let gate_list = if type_ == "question" { json!([gate_with_verdict]) } else { gates(json!([gate_with_verdict])) };
    errors(spec(gate_list))
}

mod of_a_call {
    use super::*;

    #[test]
    fn approve_runs_exactly_the_shown_call() {
        let mut run = run_with_call(json!({}));
        assert_eq!(run.asked(GATE).request.reviews.as_ref().unwrap().response, r#"{"amount":420}"#);
        run.approve(GATE);
        assert_eq!((run.calls(), run.prompt()), (vec![format!("{PAY}@1")], "420".to_owned()));
        run.reply(PAY, 1, "paid");
        assert_eq!(result_in_second_turn(&run), "paid");
    }

    #[test]
    fn reject_tells_the_agent_the_reason_and_the_call_does_not_run() {
        let mut run = run_with_call(json!({}));
        run.decide(GATE, outcome_with_texts(Verdict::Reject));
        assert_eq!(result_in_second_turn(&run), "Denied by a human: not this customer");
    }

    #[test]
    fn reject_without_a_reason_says_so() {
        let mut run = run_with_call(json!({}));
        run.decide(GATE, decided(Verdict::Reject));
        assert_eq!(result_in_second_turn(&run), "Denied by a human: no reason was given");
        turn(&mut run, "handle/.turn-2", &[("c2", "refund", r#"{"amount":420}"#)]);
        assert_eq!(result(&run, "handle/.turn-3", "c2"), "Already refused by a human: no reason was given");
    }

    #[test]
    fn reject_ends_the_run_where_the_gate_says_stop() {
        let mut run = run_with_call(json!({"onReject": "stop"}));
        run.decide(GATE, outcome_with_texts(Verdict::Reject));
        assert!(run.expect_rejection().contains("not this customer"), "{}", run.expect_rejection());
    }

    #[test]
    fn modify_asks_again_and_the_result_names_the_new_arguments() {
        let mut run = run_with_call(json!({"approvers": [{"kind": "Group", "name": "finance"}]}));
        run.modify(GATE, json!({"arguments": {"amount": 42}}));
        assert_eq!((run.open(), run.calls()), (vec![format!("{GATE}#2")], Vec::new()));
        run.approve(&format!("{GATE}#2"));
        run.reply(PAY, 1, "paid");
        assert_eq!(result_in_second_turn(&run), "A human changed the arguments. This ran: {\"amount\":42}\npaid");
    }

    #[test]
    fn modify_into_arguments_that_do_not_fit_is_an_error_result() {
        let mut run = run_with_call(json!({}));
        run.modify(GATE, json!({"arguments": {"amount": "much"}}));
        assert_eq!((run.open().len(), run.calls()), (0, vec!["handle/.turn-2@1".to_owned()]));
        assert!(
            result_in_second_turn(&run)
                .contains("the changed call was refused. Error: the arguments do not fit the tool refund")
        );
    }

    #[test]
    fn modify_into_an_unreadable_number_is_an_invalid_vote() {
        let run = run_with_call(json!({}));
        let modify =
            |amount: Value| ("alice", json!({"verdict": "Modify", "parameters": {"arguments": {"amount": amount}}}));
        let status = approval_after_votes(&run, &[modify(json!(1e20))]).status.unwrap();
        assert_eq!(status.outcome, None);
        assert!(status.invalid["alice"].why.contains("parameters.arguments"), "{:?}", status.invalid);
        let counted = approval_after_votes(&run, &[modify(json!(42))]).status.unwrap();
        assert_eq!(counted.outcome.unwrap().verdict, Some(Verdict::Modify));
    }

    #[test]
    fn modify_is_checked_by_a_schema_with_definitions() {
        let mut spec = spec(gates(
            json!([{"name": "money", "type": "specificTools", "tools": ["refund"], "hitl": gate(json!({}))}]),
        ));
        spec["tools"][1]["parameters"] = json!({"type": "object", "$defs": {"amount": {"type": "number", "maximum": 500}},
            "properties": {"amount": {"$ref": "#/$defs/amount"}}});
        let mut run = TestRun::of(spec);
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":420}"#)]);
        let modify =
            |amount: i32| ("alice", json!({"verdict": "Modify", "parameters": {"arguments": {"amount": amount}}}));
        assert!(approval_after_votes(&run, &[modify(42)]).status.unwrap().outcome.is_some());
        assert!(approval_after_votes(&run, &[modify(501)]).status.unwrap().invalid.contains_key("alice"));
    }

    #[test]
    fn modify_into_a_call_that_was_rejected_before_is_refused() {
        let mut run = run_with_call(json!({}));
        run.decide(GATE, outcome_with_texts(Verdict::Reject));
        turn(&mut run, "handle/.turn-2", &[("c2", "refund", r#"{"amount":1}"#)]);
        run.modify("handle/.turn-2/.call-1/.gate", json!({"arguments": {"amount": 420}}));
        assert_eq!(run.open(), Vec::<String>::new());
        assert_eq!(result(&run, "handle/.turn-3", "c2"), "Already refused by a human: not this customer");
    }

    #[test]
    fn respond_is_the_result_and_the_call_does_not_run() {
        let mut run = run_with_call(json!({"allowedVerdicts": ALL_OF_A_CALL}));
        run.decide(GATE, outcome_with_texts(Verdict::Respond));
        assert_eq!(
            (run.calls(), result_in_second_turn(&run)),
            (vec!["handle/.turn-2@1".to_owned()], "use the old one".to_owned())
        );
    }

    #[test]
    fn respond_is_not_offered_by_default() {
        let run = run_with_call(json!({}));
        let offered: Vec<_> = run.asked(GATE).request.allowed_verdicts.iter().map(|verdict| verdict.name()).collect();
        assert_eq!(offered, ["Approve", "Modify", "Reject", "Defer", "Skip", "Abort"]);
        assert_eq!(run.asked(GATE).request.form, None);
    }

    #[test]
    fn defer_sends_the_guidance_and_an_equal_call_is_asked_about() {
        let mut run = run_with_call(json!({}));
        run.decide(GATE, outcome_with_texts(Verdict::Defer));
        assert_eq!(result_in_second_turn(&run), "Not now. Try another approach: ask first");
        turn(&mut run, "handle/.turn-2", &[("c2", "refund", r#"{"amount":420}"#)]);
        assert_eq!(run.open(), ["handle/.turn-2/.call-1/.gate"]);
    }

    #[test]
    fn escalate_adds_approvers_whose_approval_counts() {
        let olga = json!([{"kind": "User", "name": "olga"}]);
        let run = run_with_call(json!({"allowedVerdicts": ["Approve", "Escalate", "Reject"], "escalateTo": olga}));
        let escalated = approval_after_votes(&run, &[("alice", json!({"verdict": "Escalate"}))]).status.unwrap();
        assert_eq!((escalated.level, escalated.outcome), (Some(1), None));
        assert_eq!(escalated.approvers.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["alice", "olga"]);
        let votes = [("alice", json!({"verdict": "Escalate"})), ("olga", json!({"verdict": "Approve"}))];
        let outcome = approval_after_votes(&run, &votes).status.unwrap().outcome.unwrap();
        assert_eq!((outcome.verdict, outcome.decided_by), (Some(Verdict::Approve), vec!["olga".to_owned()]));
    }

    #[test]
    fn escalate_without_further_people_is_refused_before_the_run() {
        assert!(errors_of_verdict("specificTools", "Escalate")[0].contains("Escalate needs further approvers"));
    }

    #[test]
    fn escalate_at_merged_gates_adds_approvers_to_one_gate_only() {
        let olga = json!([{"kind": "User", "name": "olga"}]);
        let allowed = json!(["Approve", "Escalate", "Reject"]);
        let gate_of_user = |name: &str, user: &str, action: &str| {
            json!({"name": name, "type": "specificTools", "tools": ["refund"], "hitl": gate(json!({
                "approvers": [{"kind": "User", "name": user}], "allowedVerdicts": allowed, "escalateTo": olga,
                "timeout": {"after": "5m", "action": action}}))})
        };
        let mut run = run(json!([gate_of_user("one", "alice", "Reject"), gate_of_user("two", "bob", "Abort")]));
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
        let mut votes = vec![("bob", json!({"verdict": "Escalate"})), ("olga", json!({"verdict": "Approve"}))];
        let olga_alone = approval_after_votes(&run, &votes).status.unwrap();
        assert_eq!((olga_alone.level, olga_alone.outcome), (Some(1), None), "the quorum of the gate one is not met");
        votes.push(("alice", json!({"verdict": "Approve"})));
        let outcome = approval_after_votes(&run, &votes).status.unwrap().outcome.unwrap();
        assert_eq!(outcome.verdict, Some(Verdict::Approve), "olga in the place of bob");
    }

    #[test]
    fn abort_ends_the_run_and_no_call_of_the_turn_runs_any_more() {
        let mut run = run_with_call(json!({}));
        run.decide(GATE, Outcome { reason: Some("stop it".into()), ..decided(Verdict::Abort) });
        assert!(matches!(&run.transition.end, Some(End::Aborted(why)) if why.contains("stop it")));
        assert_eq!(run.calls(), Vec::<String>::new());
    }

    #[test]
    fn skip_tells_the_agent_and_the_call_does_not_run() {
        let mut run = run_with_call(json!({}));
        run.decide(GATE, decided(Verdict::Skip));
        assert_eq!(
            (run.calls(), result_in_second_turn(&run)),
            (vec!["handle/.turn-2@1".to_owned()], "Skipped by a human".to_owned())
        );
    }

    #[test]
    fn retry_is_refused_at_a_gate_before_a_call() {
        let found_errors = errors_of_verdict("specificTools", "Retry");
        assert!(
            found_errors[0].contains("Retry has no effect at this gate: the agent decides what it calls next"),
            "{found_errors:?}"
        );
        assert_eq!(errors_of_verdict("specificTools", "Approve"), [""; 0]);
    }
}

mod of_a_question {
    use super::*;

    #[test]
    fn respond_is_the_answer_under_the_call_id() {
        let mut run = run_with_question(json!({}));
        let id = run.asked(GATE).request.form.as_ref().unwrap().questions[0].id.clone();
        let answers = serde_json::from_value(json!({id: {"text": "420"}})).map(Some).unwrap();
        run.decide(GATE, Outcome { answers, ..decided(Verdict::Respond) });
        assert_eq!(result_in_second_turn(&run), "420");
    }

    #[test]
    fn a_request_about_a_question_says_what_follows_a_reject() {
        let after_reject = |more: Value| run_with_question(more).asked(GATE).request.after_reject.clone();
        assert_eq!(after_reject(json!({})), ["the agent, which is told the reason"]);
        assert_eq!(after_reject(json!({"onReject": "stop"})), [""; 0]);
    }

    #[test]
    fn skip_lets_the_agent_go_on_without_an_answer() {
        let mut run = run_with_question(json!({}));
        run.decide(GATE, decided(Verdict::Skip));
        assert_eq!(result_in_second_turn(&run), "Skipped by a human");
    }

    #[test]
    fn abort_ends_the_run() {
        let mut run = run_with_question(json!({}));
        run.decide(GATE, decided(Verdict::Abort));
        assert!(matches!(run.transition.end, Some(End::Aborted(_))));
    }

    #[test]
    fn an_equal_question_is_not_asked_again_after_a_reject() {
        let mut run = run_with_question(json!({"allowedVerdicts": ["Respond", "Reject"]}));
        run.decide(GATE, outcome_with_texts(Verdict::Reject));
        assert_eq!(result_in_second_turn(&run), "Denied by a human: not this customer");
        let arguments = |text: &str| json!({"questions": [{"question": text}]}).to_string();
        let (equal, other) = (arguments("How much?"), arguments("To whom?"));
        turn(&mut run, "handle/.turn-2", &[("c2", "ask-human", &equal), ("c3", "ask-human", &other)]);
        assert_eq!(run.open(), ["handle/.turn-2/.call-2/.gate"], "another question is asked");
        run.decide("handle/.turn-2/.call-2/.gate", decided(Verdict::Skip));
        assert_eq!(result(&run, "handle/.turn-3", "c2"), "Already refused by a human: not this customer");
    }

    #[test]
    fn reject_ends_the_run_where_the_gate_says_stop() {
        let mut run = run_with_question(json!({"allowedVerdicts": ["Respond", "Reject"], "onReject": "stop"}));
        run.decide(GATE, outcome_with_texts(Verdict::Reject));
        assert!(run.expect_rejection().contains("not this customer"));
    }

    #[test]
    fn escalate_adds_approvers_whose_answer_counts() {
        let olga = json!([{"kind": "User", "name": "olga"}]);
        let run = run_with_question(json!({"allowedVerdicts": ["Respond", "Escalate"], "escalateTo": olga}));
        let id = run.asked(GATE).request.form.as_ref().unwrap().questions[0].id.clone();
        let escalates = ("alice", json!({"verdict": "Escalate"}));
        assert_eq!(approval_after_votes(&run, std::slice::from_ref(&escalates)).status.unwrap().outcome, None);
        let answers = ("olga", json!({"verdict": "Respond", "answers": {id: {"text": "420"}}}));
        let outcome = approval_after_votes(&run, &[escalates, answers]).status.unwrap().outcome.unwrap();
        assert_eq!((outcome.verdict, outcome.response.as_deref()), (Some(Verdict::Respond), Some("420")));
    }

    #[test]
    fn approve_modify_defer_and_retry_are_refused_at_a_question() {
        for (verdict, remedy) in [
            ("Approve", "an answer approves nothing"),
            ("Modify", "there is nothing to change"),
            ("Defer", "the agent waits for an answer"),
            ("Retry", "the agent waits for an answer"),
        ] {
            let found_errors = errors_of_verdict("question", verdict);
            assert!(
                found_errors[0].contains(&format!("{verdict} has no effect at this gate: {remedy}")),
                "{found_errors:?}"
            );
        }
        assert_eq!(errors_of_verdict("question", "Respond"), [""; 0]);
    }
}

mod of_a_deadline {
    use super::*;

    #[test]
    fn reject_names_the_deadline_and_an_equal_call_is_refused() {
        let mut run = run_with_call(json!({}));
        run.decide(GATE, outcome_by_deadline(Verdict::Reject));
        assert_eq!(result_in_second_turn(&run), "Denied: no human decided before the deadline");
        turn(&mut run, "handle/.turn-2", &[("c2", "refund", r#"{"amount":420}"#)]);
        let second_result = result(&run, "handle/.turn-3", "c2");
        assert_eq!(second_result, "Already refused: no human decided about this call before the deadline");
    }

    #[test]
    fn skip_and_abort_act_like_the_verdicts_of_people() {
        let mut run = run_with_call(json!({"timeout": {"after": "5m", "action": "Skip"}}));
        run.decide(GATE, outcome_by_deadline(Verdict::Skip));
        assert_eq!(result_in_second_turn(&run), "Skipped: no human decided before the deadline");
        let mut run = run_with_call(json!({"timeout": {"after": "5m", "action": "Abort"}}));
        run.decide(GATE, outcome_by_deadline(Verdict::Abort));
        assert!(matches!(run.transition.end, Some(End::Aborted(_))));
    }

    #[test]
    fn retry_asks_again_at_most_three_times_and_the_call_does_not_run() {
        let mut run = run_with_call(json!({"timeout": {"after": "5m", "action": "Retry"}}));
        for visit in ["", "#2", "#3"] {
            run.decide(&format!("{GATE}{visit}"), outcome_by_deadline(Verdict::Retry));
            assert_eq!((run.open().len(), run.calls()), (1, Vec::new()), "{visit}");
        }
        run.decide(&format!("{GATE}#4"), outcome_by_deadline(Verdict::Retry));
        assert!(run.transition.end.is_some() && run.calls().is_empty(), "{:?}", run.open());
    }

    #[test]
    fn retry_asks_a_question_again() {
        let mut run = run_with_question(json!({"timeout": {"after": "5m", "action": "Retry"}}));
        run.decide(GATE, outcome_by_deadline(Verdict::Retry));
        assert_eq!(run.open(), [format!("{GATE}#2")]);
        run.decide(&format!("{GATE}#2"), decided(Verdict::Skip));
        assert_eq!(
            messages_to_agent(&run, "handle/.turn-2").iter().filter(|message| message.answers.is_some()).count(),
            1
        );
    }

    #[test]
    fn default_answers_a_call_and_is_refused_for_questions() {
        let timeout = json!({"after": "5m", "action": "Default", "default": "the old one"});
        let mut run = run_with_call(json!({"allowedVerdicts": ALL_OF_A_CALL, "timeout": timeout}));
        run.decide(GATE, Outcome { response: Some("the old one".into()), ..outcome_by_deadline(Verdict::Respond) });
        assert_eq!(result_in_second_turn(&run), "the old one");
        let question_gates =
            json!([{"name": "questions", "type": "question", "hitl": gate(json!({"timeout": timeout}))}]);
        assert!(errors(spec(question_gates)).iter().any(|error| error.contains("have no default answer")));
    }

    #[test]
    fn approve_is_refused_for_questions() {
        let gates_with_action = |action: &str| {
            let hitl = gate(json!({"timeout": {"after": "1s", "action": action}}));
            json!([{"name": "questions", "type": "question", "hitl": hitl}])
        };
        let found_errors = errors(spec(gates_with_action("Approve")));
        assert!(found_errors.iter().any(|error| error.contains("an answer approves nothing")), "{found_errors:?}");
        assert_eq!(errors(spec(gates_with_action("Skip"))), [""; 0]);
    }

    #[test]
    fn the_default_deadline_of_calls_and_questions_is_a_day() {
        let minutes = |run: &TestRun| run.asked(GATE).request.deadline.since(run.clock).as_secs() / 60;
        let (call_run, question_run) = (run_with_call(json!({})), run_with_question(json!({})));
        assert_eq!((minutes(&call_run), minutes(&question_run)), (24 * 60, 24 * 60));
        assert_eq!(minutes(&run_with_call(json!({"timeout": {"after": "72h"}}))), 3 * 24 * 60);
    }

    #[test]
    fn approve_at_the_deadline_runs_the_call_and_is_a_warning() {
        let timeout = json!({"after": "5m", "action": "Approve"});
        let mut run = run_with_call(json!({"timeout": timeout}));
        let warnings = run.plan.warnings().iter().any(|warning| warning.contains("continue without a decision"));
        assert!(warnings, "{:?}", run.plan.warnings());
        run.decide(GATE, outcome_by_deadline(Verdict::Approve));
        assert_eq!(run.calls(), [format!("{PAY}@1")]);
    }
}
