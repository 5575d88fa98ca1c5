//! Tests of the semantics of the evaluator-optimizer.

use serde_json::{Value, json};
use signoff_api::Verdict;

use crate::tests::test_run::{TestRun, decided, gate, of_pattern};

fn run_of_evaluator(more: Value) -> TestRun {
    let mut pattern = json!({
        "producer": "a", "input": "write about {{ inputs.topic }}",
        "evaluator": {"agent": "judge", "input": "judge {{ draft }} ({{ iteration }})"},
        "accept": {"minScore": 80, "maxIterations": 3},
        "revisePrompt": "revise {{ draft }} by {{ evaluation.issues | join(',') }}{% if hitl_response %} and {{ hitl_response }}{% endif %}",
    });
    for (key, value) in more.as_object().unwrap() {
        pattern[key] = value.clone();
    }
    // `reviewGate` has the `hitl` fields of the gate here, and its name in the spec.
    let review_hitl = pattern.get("reviewGate").cloned();
    if review_hitl.is_some() {
        pattern["reviewGate"] = json!("review");
    }
    let gates: Vec<_> = review_hitl.into_iter().map(|hitl| json!({"name": "review", "hitl": hitl})).collect();
    TestRun::of(of_pattern(json!({"pattern": {"evaluatorOptimizer": pattern}, "gates": gates})))
}

fn judge(run: &mut TestRun, path: &str, score: i32) {
    run.reply(path, 1, &format!("{{\"score\": {score}, \"issues\": [\"dull\"], \"fixes\": []}}"));
}

#[test]
fn a_draft_of_the_producer_with_a_sufficient_score_is_accepted() {
    let mut run = run_of_evaluator(json!({}));
    assert_eq!(run.prompt_at(".producer"), "write about tea");
    run.reply(".producer", 1, "tea!");
    assert!(run.prompt_at(".evaluator").starts_with("judge tea! (1)"));
    judge(&mut run, ".evaluator", 80);
    assert_eq!(run.expect_success(), "tea!");
}

#[test]
fn a_producer_without_input_receives_its_rendered_system_prompt() {
    let mut spec =
        of_pattern(json!({"pattern": {"evaluatorOptimizer": {"producer": "a", "evaluator": {"agent": "judge"}}}}));
    spec["agents"][0]["system"] = json!("write about {{ inputs.topic }}");
    let run = TestRun::of(spec);
    assert_eq!(run.prompt_at(".producer"), "write about tea");
}

#[test]
fn a_draft_below_the_minimum_score_is_revised_and_judged_again() {
    let mut run = run_of_evaluator(json!({}));
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 10);
    assert_eq!(run.prompt_at(".reviser"), "revise d1 by dull");
    run.reply(".reviser", 1, "d2");
    assert!(run.prompt_at(".evaluator#2").starts_with("judge d2 (2)"));
    judge(&mut run, ".evaluator#2", 90);
    assert_eq!(run.expect_success(), "d2");
}

#[test]
fn a_malformed_evaluation_is_requested_again_once() {
    let mut run = run_of_evaluator(json!({}));
    run.reply(".producer", 1, "d1");
    run.reply(".evaluator", 1, "great");
    assert_eq!(run.calls(), [".evaluator/.ask-2@1"]);
    run.reply(".evaluator/.ask-2", 1, r#"{"score": 101}"#);
    assert!(run.expect_failure().contains("0 to 100"), "{}", run.expect_failure());
}

#[test]
fn the_run_fails_after_max_iterations_without_acceptance() {
    let mut run = run_of_evaluator(json!({}));
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 10);
    run.reply(".reviser", 1, "d2");
    judge(&mut run, ".evaluator#2", 20);
    run.reply(".reviser#2", 1, "d3");
    judge(&mut run, ".evaluator#3", 30);
    assert!(run.expect_failure().contains("3 were judged"), "{}", run.expect_failure());
}

#[test]
fn accept_best_accepts_the_draft_with_the_highest_score() {
    let mut run =
        run_of_evaluator(json!({"onExhausted": "acceptBest", "accept": {"minScore": 90, "maxIterations": 2}}));
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 50);
    run.reply(".reviser", 1, "d2");
    judge(&mut run, ".evaluator#2", 20);
    assert_eq!(run.expect_success(), "d1");
}

fn run_at_review() -> TestRun {
    let verdicts = json!(["Approve", "Reject", "Modify", "Respond", "Defer", "Retry", "Abort"]);
    let context = "{{ iteration }} {{ current_draft }} {{ current_evaluation.score }} {{ iterations | length }}";
    let mut run =
        run_of_evaluator(json!({"reviewGate": gate(json!({"allowedVerdicts": verdicts, "contextDisplay": context}))}));
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 10);
    run
}

#[test]
fn approve_at_the_review_gate_accepts_the_current_draft() {
    let mut run = run_at_review();
    let request = &run.asked(".review").request;
    assert_eq!(request.context.as_deref(), Some("1 d1 10 1"));
    assert_eq!(request.reviews.as_ref().unwrap().response, "d1");
    run.approve(".review");
    assert_eq!(run.expect_success(), "d1");
}

#[test]
fn a_review_gate_with_a_false_condition_approves_no_draft() {
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
    assert_eq!(run.expect_success(), "d2");
}

#[test]
fn respond_and_defer_revise_the_draft_with_the_text() {
    let mut run = run_at_review();
    run.respond(".review", "more sugar");
    assert!(run.prompt_at(".reviser").starts_with("revise d1 by dull and more sugar"), "{}", run.prompt_at(".reviser"));
    let mut run = run_at_review();
    run.defer(".review", "more milk");
    assert!(run.prompt_at(".reviser").contains("more milk"), "{}", run.prompt_at(".reviser"));
}

#[test]
fn retry_revises_the_draft_without_a_text() {
    let mut run = run_at_review();
    run.decide(".review", decided(Verdict::Retry));
    assert!(run.prompt_at(".reviser").starts_with("revise d1 by dull"), "{}", run.prompt_at(".reviser"));
}

#[test]
fn a_modified_draft_is_evaluated_next_and_counts_as_an_iteration() {
    let mut run = run_at_review();
    run.modify(".review", json!({"draft": "mine"}));
    assert!(run.prompt_at(".evaluator#2").starts_with("judge mine (2)"));
    judge(&mut run, ".evaluator#2", 99);
    assert_eq!(run.expect_success(), "mine");
}

#[test]
fn reject_ends_the_run_and_so_does_abort() {
    let mut run = run_at_review();
    run.decide(".review", decided(Verdict::Reject));
    run.expect_rejection();
    let mut run = run_at_review();
    run.decide(".review", decided(Verdict::Abort));
    assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
}

#[test]
fn max_iterations_limits_the_drafts_that_people_request() {
    let review = gate(json!({"allowedVerdicts": ["Approve", "Retry"]}));
    let mut run = run_of_evaluator(json!({"accept": {"minScore": 80, "maxIterations": 6}, "reviewGate": review}));
    run.reply(".producer", 1, "d");
    for visit in 1..=6 {
        let path_of_visit =
            |path: &str, visit: usize| if visit == 1 { path.to_owned() } else { format!("{path}#{visit}") };
        judge(&mut run, &path_of_visit(".evaluator", visit), 10);
        if visit < 6 {
            run.decide(&path_of_visit(".review", visit), decided(Verdict::Retry));
            run.reply(&path_of_visit(".reviser", visit), 1, "d");
        }
    }
    assert!(run.expect_failure().contains("6 were judged"), "{}", run.expect_failure());
}

#[test]
fn each_iteration_has_its_own_request_and_counts() {
    let mut run = run_at_review();
    run.decide(".review", decided(Verdict::Retry));
    run.reply(".reviser", 1, "d2");
    judge(&mut run, ".evaluator#2", 20);
    assert_eq!(run.open(), [".review#2"]);
    run.decide(".review#2", decided(Verdict::Retry));
    run.reply(".reviser#2", 1, "d3");
    judge(&mut run, ".evaluator#3", 20);
    assert!(run.expect_failure().contains("3 were judged"));
}
