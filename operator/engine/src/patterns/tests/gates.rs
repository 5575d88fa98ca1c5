//! Tests of the semantics of each verdict at the gates of `spec.gates`: one test for each pair.

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, approval::Source, journal::StepPhase};

use crate::tests::test_run::{TestRun, agent, chain_of, decided, errors, gate, hitl, in_branch, of_pattern, set};

fn run_with_gate(type_: &str, verdicts: &[&str], steps: Value, more: Value) -> TestRun {
    let mut gate = json!({"name": "human", "type": type_, "hitl": gate(json!({"allowedVerdicts": verdicts}))});
    for (key, value) in more.as_object().unwrap() {
        gate[key] = value.clone();
    }
    let mut spec = chain_of(steps);
    spec["gates"] = json!([gate]);
    TestRun::of(spec)
}

mod final_response {
    use super::*;

    const ALL: [&str; 8] = ["Approve", "Reject", "Modify", "Respond", "Defer", "Retry", "Skip", "Abort"];

    fn run_at_final_gate() -> TestRun {
        let mut run = run_with_gate("finalResponse", &ALL, json!([agent("draft", "writer", "write")]), json!({}));
        run.reply("draft", 1, "Dear all");
        assert_eq!(run.asked(".final").request.reviews.as_ref().unwrap().response, "Dear all");
        run
    }

    #[test]
    fn approve_releases_the_response() {
        let mut run = run_at_final_gate();
        run.approve(".final");
        assert_eq!(run.expect_success(), "Dear all");
    }

    #[test]
    fn reject_withholds_the_response() {
        let mut run = run_at_final_gate();
        run.decide(".final", decided(Verdict::Reject));
        run.expect_rejection();
    }

    #[test]
    fn modify_publishes_the_edited_text() {
        let mut run = run_at_final_gate();
        run.modify(".final", json!({"response": "Dear friends"}));
        assert_eq!(run.expect_success(), "Dear friends");
    }

    #[test]
    fn respond_replaces_the_response_only_if_allowed() {
        let mut run = run_at_final_gate();
        run.respond(".final", "Hello");
        assert_eq!(run.expect_success(), "Hello");
        let mut spec = chain_of(json!([{"name": "s", "set": {"value": "x"}}]));
        spec["gates"] = json!([{"name": "human", "type": "finalResponse", "hitl": gate(json!({}))}]);
        let run = TestRun::of(spec);
        assert!(!run.asked(".final").request.allowed_verdicts.contains(&Verdict::Respond));
    }

    #[test]
    fn defer_revises_with_the_guidance_and_asks_in_a_new_approval() {
        let mut run = run_at_final_gate();
        run.defer(".final", "warmer");
        assert!(run.prompt_at(".revision").contains("Dear all") && run.prompt_at(".revision").contains("warmer"));
        run.reply(".revision", 1, "Dearest");
        assert_eq!(run.open(), [".final#2"]);
        run.approve(".final#2");
        assert_eq!(run.expect_success(), "Dearest");
    }

    #[test]
    fn retry_generates_the_response_again() {
        let mut run = run_at_final_gate();
        run.decide(".final", decided(Verdict::Retry));
        run.reply(".revision", 1, "Dear you");
        run.approve(".final#2");
        assert_eq!(run.expect_success(), "Dear you");
    }

    #[test]
    fn skip_ends_without_publishing() {
        let mut run = run_at_final_gate();
        run.decide(".final", decided(Verdict::Skip));
        assert_eq!(run.expect_success(), "");
    }

    #[test]
    fn abort_ends_the_run_as_aborted() {
        let mut run = run_at_final_gate();
        run.decide(".final", decided(Verdict::Abort));
        assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
    }

    #[test]
    fn files_are_released_after_the_decision_with_the_edited_text() {
        let mut spec = chain_of(json!([agent("draft", "writer", "write")]));
        spec["gates"] = json!([{"name": "human", "type": "finalResponse", "hitl": gate(json!({}))}]);
        spec["outputs"] = json!({"artifacts": [
            {"path": "out/{{ inputs.customer }}.md", "from": "{{ last_response }}"},
            {"path": "none.md", "from": "x", "skipIf": "last_response != 'x'"},
        ]});
        let mut run = TestRun::of(spec);
        run.reply("draft", 1, "one");
        assert!(run.transition.artifacts.is_empty());
        run.modify(".final", json!({"response": "two"}));
        assert_eq!(run.transition.artifacts, [("out/ACME.md".to_owned(), "two".to_owned())]);
    }
}

mod output_validation {
    use super::*;

    const ALL: [&str; 8] = ["Approve", "Reject", "Modify", "Respond", "Defer", "Retry", "Skip", "Abort"];

    fn steps() -> Value {
        let mut step = agent("rate", "writer", "rate it");
        step["outputSchema"] =
            json!({"type": "object", "required": ["stars"], "properties": {"stars": {"type": "integer"}}});
        json!([step, {"name": "say", "set": {"value": "{{ steps.rate.response }}|{{ steps.rate.original }}"}}])
    }

    fn run_with_invalid_answer() -> TestRun {
        let mut run = run_with_gate("outputValidation", &ALL, steps(), json!({}));
        run.reply("rate", 1, "good");
        run.reply("rate/.ask-2", 1, r#"{"stars": "many"}"#);
        run.reply("rate/.ask-3", 1, r#"{"stars": 4.5}"#);
        assert_eq!(run.open(), ["rate/.output"]);
        run
    }

    #[test]
    fn an_answer_that_fits_its_schema_is_json_and_needs_no_decision() {
        let mut run = run_with_gate(
            "outputValidation",
            &ALL,
            json!([steps()[0], {"name": "say", "set": {"value": "{{ steps.rate.response.stars + 1 }}"}}]),
            json!({}),
        );
        run.reply("rate", 1, "Sure:\n```json\n{\"stars\": 4}\n```");
        assert_eq!(run.expect_success(), "5");
    }

    #[test]
    fn an_agent_is_asked_again_with_the_problem_before_people_are() {
        let mut run = run_with_gate("outputValidation", &ALL, steps(), json!({}));
        run.reply("rate", 1, "good");
        assert!(run.prompt_at("rate/.ask-2").contains("there is no JSON in it"));
        run.reply("rate/.ask-2", 1, r#"{"stars": 3}"#);
        assert_eq!(run.expect_success(), "{\"stars\":3}|null", "the newest answer counts");
    }

    #[test]
    fn approve_accepts_the_answer_as_it_is() {
        let mut run = run_with_invalid_answer();
        run.approve("rate/.output");
        assert_eq!(run.expect_success(), "{\"stars\":4.5}|null");
    }

    #[test]
    fn reject_discards_the_answer_and_fails_the_step() {
        let mut run = run_with_invalid_answer();
        run.decide("rate/.output", decided(Verdict::Reject));
        assert!(run.expect_failure().contains("step rate"), "{}", run.expect_failure());
    }

    #[test]
    fn modify_replaces_the_answer_and_keeps_the_original() {
        let mut run = run_with_invalid_answer();
        run.modify("rate/.output", json!({"response": {"stars": 5}}));
        assert_eq!(run.expect_success(), "{\"stars\":5}|{\"stars\":4.5}");
    }

    #[test]
    fn respond_is_a_note_and_the_run_continues() {
        let mut run = run_with_invalid_answer();
        run.respond("rate/.output", "close enough");
        assert_eq!(run.expect_success(), "{\"stars\":4.5}|null");
    }

    #[test]
    fn defer_revises_with_the_guidance() {
        let mut run = run_with_invalid_answer();
        run.defer("rate/.output", "whole stars");
        assert_eq!(run.calls(), ["rate@2"]);
        assert!(run.prompt_at("rate").contains("whole stars"));
        run.reply("rate", 2, r#"{"stars": 2}"#);
        assert!(run.expect_success().starts_with("{\"stars\":2}"));
    }

    #[test]
    fn skip_accepts_the_answer_unvalidated() {
        let mut run = run_with_invalid_answer();
        run.decide("rate/.output", decided(Verdict::Skip));
        assert!(run.expect_success().starts_with("{\"stars\":4.5}"));
        assert_eq!(run.record("rate/.output").phase, StepPhase::Skipped, "and it is flagged");
    }

    #[test]
    fn retry_runs_the_producer_again() {
        let mut run = run_with_invalid_answer();
        run.decide("rate/.output", decided(Verdict::Retry));
        assert_eq!(run.calls(), ["rate@2"]);
    }

    #[test]
    fn abort_ends_the_run_as_aborted() {
        let mut run = run_with_invalid_answer();
        run.decide("rate/.output", decided(Verdict::Abort));
        assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
    }

    #[test]
    fn a_step_whose_answer_does_not_fit_fails_without_a_gate() {
        let mut run = TestRun::new(steps());
        for path in ["rate", "rate/.ask-2", "rate/.ask-3"] {
            run.reply(path, 1, "good");
        }
        assert!(run.expect_failure().contains("not as it should be"), "{}", run.expect_failure());
    }

    fn run_that_continues_after_failure(verdicts: &[&str], more: Value) -> TestRun {
        let mut rate = steps()[0].clone();
        rate["onError"] = json!("continue");
        let template = "{{ steps.rate.status }}|{{ steps.rate.response }}|{{ steps.rate.error }}|{{ last_response }}";
        let steps = json!([set("before", "early"), rate, set("say", template)]);
        run_with_gate(if verdicts.is_empty() { "finalResponse" } else { "outputValidation" }, verdicts, steps, more)
    }

    #[test]
    fn a_rejected_answer_is_not_visible_to_later_steps() {
        let mut run = run_that_continues_after_failure(&ALL, json!({"steps": ["rate"]}));
        run.reply("rate", 1, r#"{"stars": 1}"#);
        run.decide("rate/.output", Outcome { reason: Some("too harsh".into()), ..decided(Verdict::Reject) });
        assert_eq!(
            run.expect_success(),
            "failed|null|gate human: Reject, decided by alice: too harsh|early",
            "neither as its response nor as the last one"
        );
    }

    #[test]
    fn an_answer_that_never_fitted_is_not_visible_to_later_steps() {
        let mut run = run_that_continues_after_failure(&[], json!({}));
        for path in ["rate", "rate/.ask-2", "rate/.ask-3"] {
            run.reply(path, 1, "good");
        }
        run.approve(".final");
        assert_eq!(run.expect_success(), "failed|null|its answer is not as it should be: there is no JSON in it|early");
    }

    #[test]
    fn a_retry_has_the_same_input_as_the_first_attempt() {
        let mut draft = agent("draft", "writer", "improve on {{ last_response }}");
        draft["skipIf"] = json!("last_response == 'late'");
        let steps = json!([set("before", "early"), draft]);
        let mut run = run_with_gate("outputValidation", &ALL, steps, json!({"steps": ["draft"]}));
        run.reply("draft", 1, "late");
        run.decide("draft/.output", decided(Verdict::Retry));
        assert!(run.prompt_at("draft").starts_with("improve on early"), "{}", run.prompt_at("draft"));
        run.reply("draft", 2, "later");
        run.approve("draft/.output#2");
        assert_eq!(run.expect_success(), "later");
    }

    #[test]
    fn a_condition_is_not_evaluated_again_for_a_repeated_request() {
        let mut rate = steps()[0].clone();
        rate["skipIf"] = json!("last_response == 'good'");
        let mut run = TestRun::new(json!([set("before", "early"), rate]));
        run.reply("rate", 1, "good");
        assert_eq!(run.calls(), ["rate/.ask-2@1"]);
        run.reply("rate/.ask-2", 1, r#"{"stars": 2}"#);
        assert!(run.expect_success().contains("2"));
    }

    #[test]
    fn a_gate_that_names_a_step_asks_about_every_answer() {
        let steps = json!([agent("draft", "writer", "write")]);
        let mut run = run_with_gate("outputValidation", &ALL, steps, json!({"steps": ["draft"]}));
        run.reply("draft", 1, "fine");
        assert_eq!(run.open(), ["draft/.output"]);
        run.modify("draft/.output", json!({"response": "finer"}));
        assert_eq!(run.expect_success(), "finer");
    }

    #[test]
    fn a_gate_asks_unless_its_condition_is_false() {
        let steps = || json!([agent("draft", "writer", "write")]);
        let mut run = run_with_gate(
            "outputValidation",
            &ALL,
            steps(),
            json!({"steps": ["draft"], "condition": "size(output) > 3"}),
        );
        run.reply("draft", 1, "ok");
        assert_eq!(run.expect_success(), "ok");
        let mut run =
            run_with_gate("outputValidation", &ALL, steps(), json!({"steps": ["draft"], "condition": "output > 3"}));
        run.reply("draft", 1, "ok");
        assert_eq!(run.open(), ["draft/.output"]);
        let condition = json!({"steps": ["draft"], "condition": "size(output) > 3 // only long ones"});
        let mut run = run_with_gate("outputValidation", &ALL, steps(), condition);
        run.reply("draft", 1, "ok");
        assert_eq!(run.expect_success(), "ok", "a comment in a condition changes nothing");
    }
}

mod error_escalation {
    use super::*;

    const ALL: [&str; 7] = ["Reject", "Modify", "Respond", "Defer", "Retry", "Skip", "Abort"];

    fn run_with_failed_step() -> TestRun {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        let steps =
            json!([step, {"name": "say", "set": {"value": "{{ steps.draft.status }} {{ steps.draft.response }}"}}]);
        let mut run = run_with_gate("errorEscalation", &ALL, steps, json!({}));
        run.fail("draft", 1, false, false);
        assert_eq!(run.open(), ["draft/.error"]);
        run
    }

    #[test]
    fn a_gate_asks_after_the_given_number_of_attempts() {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        step["retry"] = json!({"limit": 9, "backoff": {"base": "1s", "jitter": 0}});
        let mut run = run_with_gate("errorEscalation", &ALL, json!([step]), json!({"afterAttempts": 2}));
        run.fail("draft", 1, true, false);
        assert!(run.open().is_empty());
        run.wait(1);
        run.fail("draft", 2, true, false);
        assert_eq!(run.open(), ["draft/.error"]);
    }

    #[test]
    fn a_step_without_retry_has_three_attempts_before_people_are_asked() {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        let mut run = run_with_gate("errorEscalation", &ALL, json!([step]), json!({}));
        for attempt in 1..=2 {
            run.fail("draft", attempt, true, false);
            assert!(run.open().is_empty(), "after {attempt}");
            run.wait(10);
        }
        run.fail("draft", 3, true, false);
        assert_eq!(run.open(), ["draft/.error"]);
    }

    #[test]
    fn an_unknown_outcome_is_not_repeated_without_a_person() {
        let steps = json!([{"name": "pay", "http": {"method": "POST", "url": "http://x/"}, "onError": "escalate", "retry": {"limit": 5}}]);
        let mut run = run_with_gate("errorEscalation", &["Retry", "Skip"], steps, json!({}));
        run.take(vec![crate::Fact::CallLost { path: "pay".into(), attempt: 1 }]);
        assert!(run.calls().is_empty());
        assert_eq!(run.open(), ["pay/.error"]);
        run.decide("pay/.error", decided(Verdict::Retry));
        assert_eq!(run.calls(), ["pay@2"]);
    }

    #[test]
    fn approve_is_refused_at_a_gate_about_failures() {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        let mut spec = chain_of(json!([step]));
        spec["gates"] =
            json!([{"name": "h", "type": "errorEscalation", "hitl": gate(json!({"allowedVerdicts": ["Approve"]}))}]);
        let found_errors = errors(spec);
        assert!(found_errors[0].contains("a failure cannot be approved"), "{found_errors:?}");
    }

    #[test]
    fn reject_fails_the_step_with_both_reasons() {
        let mut run = run_with_failed_step();
        run.decide("draft/.error", Outcome { reason: Some("too costly".into()), ..decided(Verdict::Reject) });
        assert!(
            run.expect_failure().contains("503") && run.expect_failure().contains("too costly"),
            "{}",
            run.expect_failure()
        );
    }

    #[test]
    fn modify_repeats_the_step_with_the_given_parameters() {
        let mut run = run_with_failed_step();
        run.modify("draft/.error", json!({"input": "write {{ less }}"}));
        assert!(run.prompt_at("draft").starts_with("write {{ less }}"), "a person's text is never rendered");
        run.reply("draft", 2, "ok");
        assert_eq!(run.expect_success(), "succeeded ok");
    }

    #[test]
    fn respond_repeats_the_agent_with_the_text_as_a_hint() {
        let mut run = run_with_failed_step();
        run.respond("draft/.error", "use less sugar");
        assert!(run.prompt_at("draft").contains("use less sugar"));
    }

    #[test]
    fn defer_repeats_the_step_with_the_guidance() {
        let mut run = run_with_failed_step();
        run.defer("draft/.error", "try the other one");
        assert!(run.prompt_at("draft").contains("try the other one"));
    }

    #[test]
    fn retry_repeats_the_step_once_with_the_same_parameters() {
        let mut run = run_with_failed_step();
        run.decide("draft/.error", decided(Verdict::Retry));
        assert_eq!(run.calls(), ["draft@2"]);
        assert!(run.prompt_at("draft").starts_with("write"));
        run.fail("draft", 2, true, false);
        assert_eq!(run.open(), ["draft/.error#2"], "once, and then they are asked again");
    }

    #[test]
    fn a_step_is_repeated_at_most_three_times_without_an_edit() {
        let timeout = Outcome { source: Source::Timeout, ..decided(Verdict::Retry) };
        let by_people = [Verdict::Retry, Verdict::Defer, Verdict::Respond].map(decided);
        for outcome in by_people.into_iter().chain([timeout]) {
            let mut run = run_with_failed_step();
            for attempt in 2..=4 {
                run.decide(&run.open()[0].clone(), outcome.clone());
                run.fail("draft", attempt, false, false);
            }
            run.decide("draft/.error#4", outcome.clone());
            assert!(run.expect_rejection().contains("asked again 3 times"), "{outcome:?}: {}", run.expect_rejection());
        }
        let mut run = run_with_failed_step();
        for attempt in 2..=6 {
            run.modify(&run.open()[0].clone(), json!({"input": format!("attempt {attempt}")}));
            run.fail("draft", attempt, false, false);
        }
        assert_eq!(run.open(), ["draft/.error#6"]);
    }

    #[test]
    fn skip_skips_the_step_and_the_run_continues() {
        let mut run = run_with_failed_step();
        run.decide("draft/.error", decided(Verdict::Skip));
        assert_eq!(run.expect_success(), "skipped null");
    }

    #[test]
    fn abort_ends_the_run_as_aborted() {
        let mut run = run_with_failed_step();
        run.decide("draft/.error", decided(Verdict::Abort));
        assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
    }

    #[test]
    fn a_step_that_escalates_needs_a_gate_about_failures() {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        let found_errors = errors(chain_of(json!([step])));
        assert!(
            found_errors[0].contains("steps[0].onError") && found_errors[0].contains("errorEscalation"),
            "{found_errors:?}"
        );
    }
}

#[test]
fn verdicts_without_an_effect_at_a_gate_are_refused() {
    let mut spec = chain_of(json!([set("s", "x")]));
    let verdicts = json!(["Approve", "Retry", "Defer"]);
    spec["gates"] = json!([{"name": "fin", "type": "finalResponse",
        "hitl": gate(json!({"allowedVerdicts": verdicts, "onReject": "continue"}))}]);
    let found_errors = errors(spec).join("\n");
    for expected in [
        "spec.gates[0].hitl.onReject: no step could run after a Reject",
        "spec.gates[0].hitl.allowedVerdicts: Retry has no effect at this gate: no agent",
        "spec.gates[0].hitl.allowedVerdicts: Defer has no effect at this gate: no agent",
    ] {
        assert!(found_errors.contains(expected), "{expected}\n{found_errors}");
    }
    let reduce = hitl("sum", json!({"allowedVerdicts": ["Approve", "Defer"]}));
    let spec = of_pattern(json!({
        "pattern": {"parallel": {"reduce": "sum"}},
        "steps": [in_branch("a", set("s", "x")), in_branch("b", set("s", "x")), reduce],
    }));
    let found_errors = errors(spec).join("\n");
    assert!(found_errors.contains("Defer has no effect at this gate: there is no single step"), "{found_errors}");
}

#[test]
fn gates_that_could_never_ask_are_refused() {
    let mut spec = chain_of(json!([{"name": "s", "set": {"value": "x"}}]));
    spec["gates"] = json!([
        {"name": "plan", "type": "planApproval", "hitl": gate(json!({}))},
        {"name": "out", "type": "outputValidation", "steps": ["nobody"], "afterAttempts": 2, "hitl": gate(json!({}))},
        {"name": "fin", "type": "finalResponse", "steps": ["s"], "hitl": gate(json!({}))},
        {"name": "fin", "type": "finalResponse", "hitl": gate(json!({}))},
        {"name": "unmet", "type": "outputValidation", "hitl": gate(json!({}))},
        {"name": "idle", "type": "errorEscalation", "hitl": gate(json!({}))},
    ]);
    let found_errors = errors(spec).join("\n");
    for expected in [
        "spec.gates[0].type: planApproval asks about a route",
        "spec.gates[1].steps: there is no step nobody",
        "spec.gates[1].afterAttempts",
        "spec.gates[2].steps",
        "spec.gates[3].type: there is already a gate of this type",
        "spec.gates[3].name: duplicate name fin",
        "spec.gates[4].steps: the gate would never ask, because no step has an outputSchema",
        "spec.gates[5].steps: the gate would never ask, because no step has `onError: escalate`",
    ] {
        assert!(found_errors.contains(expected), "{expected}\n{found_errors}");
    }
}

#[test]
fn a_gate_can_name_a_step_of_one_branch_or_of_all_branches() {
    let open_gates_for = |name: &str| {
        let mut spec = of_pattern(json!({
            "pattern": {"parallel": {}},
            "steps": [in_branch("x", agent("draft", "a", "x")), in_branch("y", agent("draft", "a", "y"))],
        }));
        spec["gates"] = json!([{"name": "look", "type": "outputValidation", "steps": [name], "hitl": gate(json!({}))}]);
        let mut run = TestRun::of(spec);
        run.reply("x/draft", 1, "X");
        run.reply("y/draft", 1, "Y");
        run.open()
    };
    assert_eq!(open_gates_for("draft"), ["x/draft/.output", "y/draft/.output"]);
    assert_eq!(open_gates_for("y/draft"), ["y/draft/.output"]);
}
