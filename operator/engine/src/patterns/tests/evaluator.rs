//! Tests of the semantics of the evaluator-optimizer.

use serde_json::{Value, json};
use signoff_api::Verdict;

use crate::tests::test_run::{TestRun, decided, gate, of_pattern};

fn evaluator(more: Value) -> TestRun {
    let mut pattern = json!({
        "producer": "a", "input": "write about {{ inputs.topic }}",
        "evaluator": {"agent": "judge", "input": "judge {{ draft }} ({{ iteration }})"},
        "accept": {"minScore": 80, "maxIterations": 3},
        "revisePrompt": "revise {{ draft }} by {{ evaluation.issues | join(',') }}{% if hitl_response %} and {{ hitl_response }}{% endif %}",
    });
    for (key, value) in more.as_object().unwrap() {
        pattern[key] = value.clone();
    }
    // `reviewGate` has the fields of the gate.
    let asked = pattern.get("reviewGate").cloned();
    if asked.is_some() {
        pattern["reviewGate"] = json!("review");
    }
    let gates: Vec<_> = asked.into_iter().map(|hitl| json!({"name": "review", "hitl": hitl})).collect();
    TestRun::of(of_pattern(json!({"pattern": {"evaluatorOptimizer": pattern}, "gates": gates})))
}

fn judge(run: &mut TestRun, path: &str, score: i32) {
    run.reply(path, 1, &format!("{{\"score\": {score}, \"issues\": [\"dull\"], \"fixes\": []}}"));
}

#[test]
fn the_first_draft_is_the_producers_and_a_score_that_suffices_accepts_it() {
    let mut run = evaluator(json!({}));
    assert_eq!(run.prompt_at(".producer"), "write about tea");
    run.reply(".producer", 1, "tea!");
    assert!(run.prompt_at(".evaluator").starts_with("judge tea! (1)"));
    judge(&mut run, ".evaluator", 80);
    assert_eq!(run.succeeded(), "tea!");
}

#[test]
fn without_input_the_producer_goes_by_its_own_rendered_prompt() {
    let mut spec =
        of_pattern(json!({"pattern": {"evaluatorOptimizer": {"producer": "a", "evaluator": {"agent": "judge"}}}}));
    spec["agents"][0]["system"] = json!("write about {{ inputs.topic }}");
    let run = TestRun::of(spec);
    assert_eq!(run.prompt_at(".producer"), "write about tea");
}

#[test]
fn below_the_score_the_draft_is_revised_and_judged_again() {
    let mut run = evaluator(json!({}));
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 10);
    assert_eq!(run.prompt_at(".reviser"), "revise d1 by dull");
    run.reply(".reviser", 1, "d2");
    assert!(run.prompt_at(".evaluator#2").starts_with("judge d2 (2)"));
    judge(&mut run, ".evaluator#2", 90);
    assert_eq!(run.succeeded(), "d2");
}

#[test]
fn an_answer_that_makes_no_sense_is_asked_for_once_more() {
    let mut run = evaluator(json!({}));
    run.reply(".producer", 1, "d1");
    run.reply(".evaluator", 1, "great");
    assert_eq!(run.calls(), [".evaluator/.ask-2@1"]);
    run.reply(".evaluator/.ask-2", 1, r#"{"score": 101}"#);
    assert!(run.failed().contains("0 to 100"), "{}", run.failed());
}

#[test]
fn at_max_iterations_evaluations_without_acceptance_the_run_fails_after_one_revision_less() {
    let mut run = evaluator(json!({}));
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 10);
    run.reply(".reviser", 1, "d2");
    judge(&mut run, ".evaluator#2", 20);
    run.reply(".reviser#2", 1, "d3");
    judge(&mut run, ".evaluator#3", 30);
    assert!(run.failed().contains("3 were judged"), "{}", run.failed());
}

#[test]
fn on_exhausted_accept_best_takes_the_draft_with_the_highest_score() {
    let mut run = evaluator(json!({"onExhausted": "acceptBest", "accept": {"minScore": 90, "maxIterations": 2}}));
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 50);
    run.reply(".reviser", 1, "d2");
    judge(&mut run, ".evaluator#2", 20);
    assert_eq!(run.succeeded(), "d1");
}

fn reviewed() -> TestRun {
    let all = json!(["Approve", "Reject", "Modify", "Respond", "Defer", "Retry", "Abort"]);
    let context = "{{ iteration }} {{ current_draft }} {{ current_evaluation.score }} {{ iterations | length }}";
    let mut run = evaluator(json!({"reviewGate": gate(json!({"allowedVerdicts": all, "contextDisplay": context}))}));
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 10);
    run
}

#[test]
fn the_review_gate_shows_the_iteration_and_approve_ends_successfully_with_the_current_draft() {
    let mut run = reviewed();
    let request = &run.asked(".review").request;
    assert_eq!(request.context.as_deref(), Some("1 d1 10 1"));
    assert_eq!(request.reviews.as_ref().unwrap().response, "d1");
    run.approve(".review");
    assert_eq!(run.succeeded(), "d1");
}

#[test]
fn a_review_gate_whose_condition_does_not_hold_approves_no_draft() {
    let pattern =
        json!({"producer": "a", "evaluator": {"agent": "judge"}, "reviewGate": "look", "accept": {"minScore": 80}});
    let gate = json!({"name": "look", "condition": "evaluation.score > 50", "hitl": gate(json!({}))});
    let mut run = TestRun::of(of_pattern(json!({"pattern": {"evaluatorOptimizer": pattern}, "gates": [gate]})));
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 10);
    assert_eq!((run.open(), run.calls()), (Vec::new(), vec![".reviser@1".to_owned()]), "nobody was asked");
    run.reply(".reviser", 1, "d2");
    judge(&mut run, ".evaluator#2", 60);
    assert_eq!(run.open(), [".review#2"]);
    run.approve(".review#2");
    assert_eq!(run.succeeded(), "d2");
}

#[test]
fn respond_and_defer_revise_now_with_that_text() {
    let mut run = reviewed();
    run.respond(".review", "more sugar");
    assert!(run.prompt_at(".reviser").starts_with("revise d1 by dull and more sugar"), "{}", run.prompt_at(".reviser"));
    let mut run = reviewed();
    run.defer(".review", "more milk");
    assert!(run.prompt_at(".reviser").contains("more milk"), "{}", run.prompt_at(".reviser"));
}

#[test]
fn retry_revises_without_text() {
    let mut run = reviewed();
    run.decide(".review", decided(Verdict::Retry));
    assert!(run.prompt_at(".reviser").starts_with("revise d1 by dull"), "{}", run.prompt_at(".reviser"));
}

#[test]
fn a_modified_draft_is_evaluated_next_and_counts_as_an_iteration() {
    let mut run = reviewed();
    run.modify(".review", json!({"draft": "mine"}));
    assert!(run.prompt_at(".evaluator#2").starts_with("judge mine (2)"));
    judge(&mut run, ".evaluator#2", 99);
    assert_eq!(run.succeeded(), "mine");
}

#[test]
fn reject_ends_the_run_and_so_does_abort() {
    let mut run = reviewed();
    run.decide(".review", decided(Verdict::Reject));
    run.rejected();
    let mut run = reviewed();
    run.decide(".review", decided(Verdict::Abort));
    assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
}

#[test]
fn so_many_drafts_are_judged_however_often_people_want_another() {
    let review = gate(json!({"allowedVerdicts": ["Approve", "Retry"]}));
    let mut run = evaluator(json!({"accept": {"minScore": 80, "maxIterations": 6}, "reviewGate": review}));
    run.reply(".producer", 1, "d");
    for visit in 1..=6 {
        let at = |path: &str, visit: usize| if visit == 1 { path.to_owned() } else { format!("{path}#{visit}") };
        judge(&mut run, &at(".evaluator", visit), 10);
        if visit < 6 {
            run.decide(&at(".review", visit), decided(Verdict::Retry));
            run.reply(&at(".reviser", visit), 1, "d");
        }
    }
    assert!(run.failed().contains("6 were judged"), "{}", run.failed());
}

#[test]
fn iterations_are_counted_across_pauses_and_each_asks_anew() {
    let mut run = reviewed();
    run.decide(".review", decided(Verdict::Retry));
    run.reply(".reviser", 1, "d2");
    judge(&mut run, ".evaluator#2", 20);
    assert_eq!(run.open(), [".review#2"]);
    run.decide(".review#2", decided(Verdict::Retry));
    run.reply(".reviser#2", 1, "d3");
    judge(&mut run, ".evaluator#3", 20);
    assert!(run.failed().contains("3 were judged"));
}
