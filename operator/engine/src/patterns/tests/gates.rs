//! Tests of the semantics of each verdict at the gates of `spec.gates`: one test for each pair.

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, journal::StepPhase};

use crate::tests::test_run::{TestRun, agent, chain_of, decided, errors, gate, hitl, in_branch, of_pattern, set};

fn with_gate(type_: &str, verdicts: &[&str], steps: Value, more: Value) -> TestRun {
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

    fn finished() -> TestRun {
        let mut run = with_gate("finalResponse", &ALL, json!([agent("draft", "writer", "write")]), json!({}));
        run.reply("draft", 1, "Dear all");
        assert_eq!(run.asked(".final").request.reviews.as_ref().unwrap().response, "Dear all");
        run
    }

    #[test]
    fn approve_releases_it() {
        let mut run = finished();
        run.approve(".final");
        assert_eq!(run.succeeded(), "Dear all");
    }

    #[test]
    fn reject_withholds_it() {
        let mut run = finished();
        run.decide(".final", decided(Verdict::Reject));
        run.rejected();
    }

    #[test]
    fn modify_publishes_the_edited_text() {
        let mut run = finished();
        run.modify(".final", json!({"response": "Dear friends"}));
        assert_eq!(run.succeeded(), "Dear friends");
    }

    #[test]
    fn respond_replaces_it_only_if_allowed() {
        let mut run = finished();
        run.respond(".final", "Hello");
        assert_eq!(run.succeeded(), "Hello");
        let mut spec = chain_of(json!([{"name": "s", "set": {"value": "x"}}]));
        spec["gates"] = json!([{"name": "human", "type": "finalResponse", "hitl": gate(json!({}))}]);
        let run = TestRun::of(spec);
        assert!(!run.asked(".final").request.allowed_verdicts.contains(&Verdict::Respond));
    }

    #[test]
    fn defer_revises_with_the_guidance_and_asks_in_a_new_approval() {
        let mut run = finished();
        run.defer(".final", "warmer");
        assert!(run.prompt_at(".revision").contains("Dear all") && run.prompt_at(".revision").contains("warmer"));
        run.reply(".revision", 1, "Dearest");
        assert_eq!(run.open(), [".final#2"]);
        run.approve(".final#2");
        assert_eq!(run.succeeded(), "Dearest");
    }

    #[test]
    fn retry_generates_it_again() {
        let mut run = finished();
        run.decide(".final", decided(Verdict::Retry));
        run.reply(".revision", 1, "Dear you");
        run.approve(".final#2");
        assert_eq!(run.succeeded(), "Dear you");
    }

    #[test]
    fn skip_ends_without_publishing() {
        let mut run = finished();
        run.decide(".final", decided(Verdict::Skip));
        assert_eq!(run.succeeded(), "");
    }

    #[test]
    fn abort_aborts() {
        let mut run = finished();
        run.decide(".final", decided(Verdict::Abort));
        assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
    }

    #[test]
    fn nothing_leaves_before_the_yes_and_files_hold_the_edited_text() {
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

    fn wrong() -> TestRun {
        let mut run = with_gate("outputValidation", &ALL, steps(), json!({}));
        run.reply("rate", 1, "good");
        run.reply("rate/.ask-2", 1, r#"{"stars": "many"}"#);
        run.reply("rate/.ask-3", 1, r#"{"stars": 4.5}"#);
        assert_eq!(run.open(), ["rate/.output"]);
        run
    }

    #[test]
    fn an_answer_that_fits_its_schema_is_json_and_nobody_is_asked() {
        let mut run = with_gate(
            "outputValidation",
            &ALL,
            json!([steps()[0], {"name": "say", "set": {"value": "{{ steps.rate.response.stars + 1 }}"}}]),
            json!({}),
        );
        run.reply("rate", 1, "Sure:\n```json\n{\"stars\": 4}\n```");
        assert_eq!(run.succeeded(), "5");
    }

    #[test]
    fn an_agent_is_asked_twice_more_quoting_the_problem_before_anybody_is() {
        let mut run = with_gate("outputValidation", &ALL, steps(), json!({}));
        run.reply("rate", 1, "good");
        assert!(run.prompt_at("rate/.ask-2").contains("there is no JSON in it"));
        run.reply("rate/.ask-2", 1, r#"{"stars": 3}"#);
        assert_eq!(run.succeeded(), "{\"stars\":3}|null", "the newest answer counts");
    }

    #[test]
    fn approve_accepts_it_as_it_is() {
        let mut run = wrong();
        run.approve("rate/.output");
        assert_eq!(run.succeeded(), "{\"stars\":4.5}|null");
    }

    #[test]
    fn reject_discards_it_and_the_step_has_failed() {
        let mut run = wrong();
        run.decide("rate/.output", decided(Verdict::Reject));
        assert!(run.failed().contains("step rate"), "{}", run.failed());
    }

    #[test]
    fn modify_replaces_it_and_the_original_is_kept() {
        let mut run = wrong();
        run.modify("rate/.output", json!({"response": {"stars": 5}}));
        assert_eq!(run.succeeded(), "{\"stars\":5}|{\"stars\":4.5}");
    }

    #[test]
    fn respond_is_a_note_and_the_run_goes_on() {
        let mut run = wrong();
        run.respond("rate/.output", "close enough");
        assert_eq!(run.succeeded(), "{\"stars\":4.5}|null");
    }

    #[test]
    fn defer_revises_with_the_guidance() {
        let mut run = wrong();
        run.defer("rate/.output", "whole stars");
        assert_eq!(run.calls(), ["rate@2"]);
        assert!(run.prompt_at("rate").contains("whole stars"));
        run.reply("rate", 2, r#"{"stars": 2}"#);
        assert!(run.succeeded().starts_with("{\"stars\":2}"));
    }

    #[test]
    fn skip_accepts_it_unvalidated() {
        let mut run = wrong();
        run.decide("rate/.output", decided(Verdict::Skip));
        assert!(run.succeeded().starts_with("{\"stars\":4.5}"));
        assert_eq!(run.record("rate/.output").phase, StepPhase::Skipped, "and it is flagged");
    }

    #[test]
    fn retry_runs_the_producer_again() {
        let mut run = wrong();
        run.decide("rate/.output", decided(Verdict::Retry));
        assert_eq!(run.calls(), ["rate@2"]);
    }

    #[test]
    fn abort_aborts() {
        let mut run = wrong();
        run.decide("rate/.output", decided(Verdict::Abort));
        assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
    }

    #[test]
    fn without_a_gate_a_step_whose_answer_does_not_fit_fails() {
        let mut run = TestRun::new(steps());
        for path in ["rate", "rate/.ask-2", "rate/.ask-3"] {
            run.reply(path, 1, "good");
        }
        assert!(run.failed().contains("not as it should be"), "{}", run.failed());
    }

    fn borne(verdicts: &[&str], more: Value) -> TestRun {
        let mut rate = steps()[0].clone();
        rate["onError"] = json!("continue");
        let say = "{{ steps.rate.status }}|{{ steps.rate.response }}|{{ steps.rate.error }}|{{ last_response }}";
        let steps = json!([set("before", "early"), rate, set("say", say)]);
        with_gate(if verdicts.is_empty() { "finalResponse" } else { "outputValidation" }, verdicts, steps, more)
    }

    #[test]
    fn an_answer_that_people_discarded_is_nowhere_to_be_seen() {
        let mut run = borne(&ALL, json!({"steps": ["rate"]}));
        run.reply("rate", 1, r#"{"stars": 1}"#);
        run.decide("rate/.output", Outcome { reason: Some("too harsh".into()), ..decided(Verdict::Reject) });
        assert_eq!(
            run.succeeded(),
            "failed|null|gate human: Reject, decided by alice: too harsh|early",
            "neither as its response nor as the last one"
        );
    }

    #[test]
    fn an_answer_that_never_fitted_is_nowhere_to_be_seen() {
        let mut run = borne(&[], json!({}));
        for path in ["rate", "rate/.ask-2", "rate/.ask-3"] {
            run.reply(path, 1, "good");
        }
        run.approve(".final");
        assert_eq!(run.succeeded(), "failed|null|its answer is not as it should be: there is no JSON in it|early");
    }

    #[test]
    fn a_further_attempt_is_given_what_the_first_one_was_given() {
        let mut draft = agent("draft", "writer", "improve on {{ last_response }}");
        draft["skipIf"] = json!("last_response == 'late'");
        let steps = json!([set("before", "early"), draft]);
        let mut run = with_gate("outputValidation", &ALL, steps, json!({"steps": ["draft"]}));
        run.reply("draft", 1, "late");
        run.decide("draft/.output", decided(Verdict::Retry));
        assert!(run.prompt_at("draft").starts_with("improve on early"), "{}", run.prompt_at("draft"));
        run.reply("draft", 2, "later");
        run.approve("draft/.output#2");
        assert_eq!(run.succeeded(), "later");
    }

    #[test]
    fn whether_a_step_is_left_out_is_not_asked_again_when_its_answer_is() {
        let mut rate = steps()[0].clone();
        rate["skipIf"] = json!("last_response == 'good'");
        let mut run = TestRun::new(json!([set("before", "early"), rate]));
        run.reply("rate", 1, "good");
        assert_eq!(run.calls(), ["rate/.ask-2@1"]);
        run.reply("rate/.ask-2", 1, r#"{"stars": 2}"#);
        assert!(run.succeeded().contains("2"));
    }

    #[test]
    fn a_gate_that_names_a_step_asks_about_every_answer() {
        let steps = json!([agent("draft", "writer", "write")]);
        let mut run = with_gate("outputValidation", &ALL, steps, json!({"steps": ["draft"]}));
        run.reply("draft", 1, "fine");
        assert_eq!(run.open(), ["draft/.output"]);
        run.modify("draft/.output", json!({"response": "finer"}));
        assert_eq!(run.succeeded(), "finer");
    }

    #[test]
    fn a_condition_that_does_not_hold_asks_nobody_and_one_without_a_value_asks() {
        let steps = || json!([agent("draft", "writer", "write")]);
        let mut run =
            with_gate("outputValidation", &ALL, steps(), json!({"steps": ["draft"], "condition": "size(output) > 3"}));
        run.reply("draft", 1, "ok");
        assert_eq!(run.succeeded(), "ok");
        let mut run =
            with_gate("outputValidation", &ALL, steps(), json!({"steps": ["draft"], "condition": "output > 3"}));
        run.reply("draft", 1, "ok");
        assert_eq!(run.open(), ["draft/.output"]);
        let condition = json!({"steps": ["draft"], "condition": "size(output) > 3 // only long ones"});
        let mut run = with_gate("outputValidation", &ALL, steps(), condition);
        run.reply("draft", 1, "ok");
        assert_eq!(run.succeeded(), "ok", "a comment in a condition changes nothing");
    }
}

mod error_escalation {
    use super::*;

    const ALL: [&str; 7] = ["Reject", "Modify", "Respond", "Defer", "Retry", "Skip", "Abort"];

    fn failed() -> TestRun {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        let steps =
            json!([step, {"name": "say", "set": {"value": "{{ steps.draft.status }} {{ steps.draft.response }}"}}]);
        let mut run = with_gate("errorEscalation", &ALL, steps, json!({}));
        run.fail("draft", 1, false, false);
        assert_eq!(run.open(), ["draft/.error"]);
        run
    }

    #[test]
    fn it_asks_after_so_many_attempts_or_where_no_further_one_would_help() {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        step["retry"] = json!({"limit": 9, "backoff": {"base": "1s", "jitter": 0}});
        let mut run = with_gate("errorEscalation", &ALL, json!([step]), json!({"afterAttempts": 2}));
        run.fail("draft", 1, true, false);
        assert!(run.open().is_empty());
        run.later(1);
        run.fail("draft", 2, true, false);
        assert_eq!(run.open(), ["draft/.error"]);
    }

    #[test]
    fn where_nothing_is_said_of_retries_it_is_tried_as_often_as_it_takes_until_people_are_asked() {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        let mut run = with_gate("errorEscalation", &ALL, json!([step]), json!({}));
        for attempt in 1..=2 {
            run.fail("draft", attempt, true, false);
            assert!(run.open().is_empty(), "after {attempt}");
            run.later(10);
        }
        run.fail("draft", 3, true, false);
        assert_eq!(run.open(), ["draft/.error"]);
    }

    #[test]
    fn an_outcome_that_is_not_known_is_never_repeated_without_a_person() {
        let steps = json!([{"name": "pay", "http": {"method": "POST", "url": "http://x/"}, "onError": "escalate", "retry": {"limit": 5}}]);
        let mut run = with_gate("errorEscalation", &["Retry", "Skip"], steps, json!({}));
        run.take(vec![crate::Fact::CallLost { path: "pay".into(), attempt: 1 }]);
        assert!(run.calls().is_empty());
        assert_eq!(run.open(), ["pay/.error"]);
        run.decide("pay/.error", decided(Verdict::Retry));
        assert_eq!(run.calls(), ["pay@2"]);
    }

    #[test]
    fn approve_means_nothing_here_and_is_refused_at_apply() {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        let mut spec = chain_of(json!([step]));
        spec["gates"] =
            json!([{"name": "h", "type": "errorEscalation", "hitl": gate(json!({"allowedVerdicts": ["Approve"]}))}]);
        let found = errors(spec);
        assert!(found[0].contains("a failure cannot be approved"), "{found:?}");
    }

    #[test]
    fn reject_gives_up_and_both_reasons_are_kept() {
        let mut run = failed();
        run.decide("draft/.error", Outcome { reason: Some("too costly".into()), ..decided(Verdict::Reject) });
        assert!(run.failed().contains("503") && run.failed().contains("too costly"), "{}", run.failed());
    }

    #[test]
    fn modify_runs_it_again_with_these_parameters() {
        let mut run = failed();
        run.modify("draft/.error", json!({"input": "write {{ less }}"}));
        assert!(run.prompt_at("draft").starts_with("write {{ less }}"), "a person's text is never rendered");
        run.reply("draft", 2, "ok");
        assert_eq!(run.succeeded(), "succeeded ok");
    }

    #[test]
    fn respond_is_a_hint_for_the_agent_which_runs_again() {
        let mut run = failed();
        run.respond("draft/.error", "use less sugar");
        assert!(run.prompt_at("draft").contains("use less sugar"));
    }

    #[test]
    fn defer_runs_it_again_with_the_guidance() {
        let mut run = failed();
        run.defer("draft/.error", "try the other one");
        assert!(run.prompt_at("draft").contains("try the other one"));
    }

    #[test]
    fn retry_runs_it_once_more_with_the_same_parameters() {
        let mut run = failed();
        run.decide("draft/.error", decided(Verdict::Retry));
        assert_eq!(run.calls(), ["draft@2"]);
        assert!(run.prompt_at("draft").starts_with("write"));
        run.fail("draft", 2, true, false);
        assert_eq!(run.open(), ["draft/.error#2"], "once, and then they are asked again");
    }

    #[test]
    fn a_timeout_cannot_make_it_run_again_for_ever_and_a_person_who_mends_it_is_not_held_back() {
        for verdict in [Verdict::Retry, Verdict::Defer, Verdict::Respond] {
            let mut run = failed();
            for attempt in 2..=4 {
                run.decide(&run.open()[0].clone(), decided(verdict));
                run.fail("draft", attempt, false, false);
            }
            run.decide("draft/.error#4", decided(verdict));
            assert!(run.rejected().contains("asked again 3 times"), "{verdict}: {}", run.rejected());
        }
        let mut run = failed();
        for attempt in 2..=6 {
            run.modify(&run.open()[0].clone(), json!({"input": format!("attempt {attempt}")}));
            run.fail("draft", attempt, false, false);
        }
        assert_eq!(run.open(), ["draft/.error#6"]);
    }

    #[test]
    fn skip_leaves_the_step_out_and_the_run_goes_on() {
        let mut run = failed();
        run.decide("draft/.error", decided(Verdict::Skip));
        assert_eq!(run.succeeded(), "skipped null");
    }

    #[test]
    fn abort_aborts() {
        let mut run = failed();
        run.decide("draft/.error", decided(Verdict::Abort));
        assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
    }

    #[test]
    fn a_step_that_escalates_needs_somebody_to_ask() {
        let mut step = agent("draft", "writer", "write");
        step["onError"] = json!("escalate");
        let found = errors(chain_of(json!([step])));
        assert!(found[0].contains("steps[0].onError") && found[0].contains("errorEscalation"), "{found:?}");
    }
}

#[test]
fn what_a_gate_could_not_do_is_refused_at_apply() {
    let made = json!([set("s", "x")]);
    let mut spec = chain_of(made);
    let verdicts = json!(["Approve", "Retry", "Defer"]);
    spec["gates"] = json!([{"name": "fin", "type": "finalResponse",
        "hitl": gate(json!({"allowedVerdicts": verdicts, "onReject": "continue"}))}]);
    let found = errors(spec).join("\n");
    for words in [
        "spec.gates[0].hitl.onReject: no step could run after a Reject",
        "spec.gates[0].hitl.allowedVerdicts: Retry has no effect at this gate: no agent",
        "spec.gates[0].hitl.allowedVerdicts: Defer has no effect at this gate: no agent",
    ] {
        assert!(found.contains(words), "{words}\n{found}");
    }
    let reduce = hitl("sum", json!({"allowedVerdicts": ["Approve", "Defer"]}));
    let spec = of_pattern(json!({
        "pattern": {"parallel": {"reduce": "sum"}},
        "steps": [in_branch("a", set("s", "x")), in_branch("b", set("s", "x")), reduce],
    }));
    let found = errors(spec).join("\n");
    assert!(found.contains("Defer has no effect at this gate: there is no single step"), "{found}");
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
    let found = errors(spec).join("\n");
    for words in [
        "spec.gates[0].type: planApproval asks about a route",
        "spec.gates[1].steps: there is no step nobody",
        "spec.gates[1].afterAttempts",
        "spec.gates[2].steps",
        "spec.gates[3].type: there is already a gate of this type",
        "spec.gates[3].name: duplicate name fin",
        "spec.gates[4].steps: the gate would never ask, because no step has an outputSchema",
        "spec.gates[5].steps: the gate would never ask, because no step has `onError: escalate`",
    ] {
        assert!(found.contains(words), "{words}\n{found}");
    }
}

#[test]
fn a_gate_names_a_step_of_every_branch_or_of_one() {
    let asked_about = |name: &str| {
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
    assert_eq!(asked_about("draft"), ["x/draft/.output", "y/draft/.output"]);
    assert_eq!(asked_about("y/draft"), ["y/draft/.output"]);
}
