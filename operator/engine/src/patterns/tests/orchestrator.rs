//! Tests of the semantics of orchestrator and workers.

use serde_json::{Value, json};
use signoff_api::Verdict;

use crate::tests::test_run::{TestRun, agent, decided, gate, hitl, of_pattern, set};

/// Returns a spec. `reduce` and `writeup` are given as steps, reviews as the fields of their gates.
fn spec(more: Value) -> Value {
    let mut pattern = json!({
        "orchestrator": {"agent": "boss", "input": "divide {{ inputs.topic }}"},
        "worker": {"agent": "a", "input": "do {{ task }} ({{ index }})"},
    });
    let (mut steps, mut gates) = (Vec::new(), Vec::new());
    let mut review = |name: &str, hitl: &Value| {
        gates.push(json!({"name": name, "hitl": hitl}));
        json!(name)
    };
    for (key, value) in more.as_object().unwrap() {
        pattern[key] = match key.as_str() {
            "reduce" | "writeup" => {
                steps.push(value.clone());
                value["name"].clone()
            }
            "decompositionReview" => review("decomposition", value),
            "reduceReview" => review("reduce-review", value),
            _ => value.clone(),
        };
    }
    of_pattern(json!({"pattern": {"orchestratorWorkers": pattern}, "steps": steps, "gates": gates}))
}

fn run_with_subtasks(more: Value) -> TestRun {
    let mut run = TestRun::of(spec(more));
    run.reply(".orchestrator", 1, r#"[{"task": "boil"}, {"task": "pour"}]"#);
    run
}

fn all_verdicts() -> Value {
    json!(["Approve", "Reject", "Modify", "Respond", "Defer", "Retry", "Abort"])
}

#[test]
fn each_worker_does_one_part_of_the_work() {
    let mut run = run_with_subtasks(json!({}));
    assert_eq!(run.calls(), [".worker-0@1", ".worker-1@1"]);
    assert_eq!(run.prompt_at(".worker-1"), "do pour (1)");
    run.reply(".worker-1", 1, "poured");
    run.reply(".worker-0", 1, "boiled");
    assert_eq!(run.expect_success(), "Worker 0: boiled\n\nWorker 1: poured");
}

#[test]
fn a_malformed_division_is_requested_again_twice() {
    let mut run = TestRun::of(spec(json!({"orchestrator": {"agent": "boss", "input": "x", "maxTasks": 1}})));
    run.reply(".orchestrator", 1, "boil it");
    assert!(run.prompt_at(".orchestrator/.ask-2").contains("no JSON array"));
    run.reply(".orchestrator/.ask-2", 1, r#"[{"job": "x"}]"#);
    assert!(run.prompt_at(".orchestrator/.ask-3").contains("part 0 is not an object with a text `task`"));
    run.reply(".orchestrator/.ask-3", 1, r#"[{"task": "x"}, {"task": "y"}]"#);
    assert!(run.expect_failure().contains("2 parts; the maximum is 1"), "{}", run.expect_failure());
}

#[test]
fn a_division_without_parts_succeeds_without_workers() {
    let mut run = TestRun::of(spec(json!({"reduce": set("sum", "x")})));
    run.reply(".orchestrator", 1, "[]");
    assert_eq!(run.expect_success(), "");
}

#[test]
fn max_workers_limits_the_workers_at_the_same_time() {
    let mut run = run_with_subtasks(json!({"orchestrator": {"agent": "boss", "input": "x", "maxWorkers": 1}}));
    assert_eq!(run.calls(), [".worker-0@1"]);
    run.reply(".worker-0", 1, "boiled");
    assert_eq!(run.calls(), [".worker-1@1"]);
}

#[test]
fn approve_runs_exactly_the_stored_subtasks() {
    let mut run = run_with_subtasks(
        json!({"decompositionReview": gate(json!({"contextDisplay": "{{ task_count }} {{ subtasks[0].task }}"}))}),
    );
    let request = &run.asked(".decomposition").request;
    assert_eq!(request.context.as_deref(), Some("2 boil"));
    assert_eq!(serde_json::to_value(request.gate.type_).unwrap(), "planApproval");
    assert!(run.calls().is_empty());
    run.approve(".decomposition");
    assert_eq!(run.calls(), [".worker-0@1", ".worker-1@1"]);
}

#[test]
fn modify_replaces_the_subtasks() {
    let mut run = run_with_subtasks(json!({"decompositionReview": gate(json!({}))}));
    run.modify(".decomposition", json!({"subtasks": [{"task": "stir"}]}));
    assert_eq!(run.calls(), [".worker-0@1"]);
    assert_eq!(run.prompt_at(".worker-0").lines().next(), Some("do stir (0)"));
}

#[test]
fn defer_and_respond_divide_again_with_the_feedback() {
    let mut run = run_with_subtasks(json!({"decompositionReview": gate(json!({"allowedVerdicts": all_verdicts()}))}));
    run.defer(".decomposition", "smaller");
    assert!(run.prompt_at(".orchestrator#2").contains("smaller"));
    run.reply(".orchestrator#2", 1, r#"[{"task": "sip"}]"#);
    run.respond(".decomposition#2", "and a biscuit");
    assert!(run.prompt_at(".orchestrator#3").contains("and a biscuit"));
    run.reply(".orchestrator#3", 1, r#"[{"task": "sip"}]"#);
    assert_eq!(run.open(), [".decomposition#3"]);
}

#[test]
fn retry_divides_again_without_guidance() {
    let mut run = run_with_subtasks(json!({"decompositionReview": gate(json!({"allowedVerdicts": all_verdicts()}))}));
    run.decide(".decomposition", decided(Verdict::Retry));
    assert!(run.prompt_at(".orchestrator#2").starts_with("divide tea"));
    assert!(!run.prompt_at(".orchestrator#2").contains("What people decided"));
}

#[test]
fn abort_at_either_review_ends_the_run_as_aborted() {
    let mut run = run_with_subtasks(json!({"decompositionReview": gate(json!({}))}));
    run.decide(".decomposition", decided(Verdict::Abort));
    assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
    let mut run = run_at_reduce_review(json!({}));
    run.decide(".reduce-review", decided(Verdict::Abort));
    assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
}

#[test]
fn reject_at_the_reduce_review_ends_the_run_as_rejected() {
    let mut run = run_at_reduce_review(json!({"reduce": set("sum", "x")}));
    run.decide(".reduce-review", decided(Verdict::Reject));
    run.expect_rejection();
}

#[test]
fn reject_of_the_division_ends_the_run_before_the_workers() {
    let mut run = run_with_subtasks(json!({"decompositionReview": gate(json!({}))}));
    run.decide(".decomposition", decided(Verdict::Reject));
    run.expect_rejection();
}

fn run_at_reduce_review(more: Value) -> TestRun {
    let verdicts = json!(["Approve", "Reject", "Modify", "Retry", "Defer", "Abort"]);
    let mut pattern = json!({"reduceReview": gate(json!({"allowedVerdicts": verdicts, "contextDisplay": "{{ workers[1].task }}={{ workers[1].response }} {{ num_workers }}"}))});
    for (key, value) in more.as_object().unwrap() {
        pattern[key] = value.clone();
    }
    let mut run = run_with_subtasks(pattern);
    run.reply(".worker-0", 1, "boiled");
    run.reply(".worker-1", 1, "poured");
    run
}

#[test]
fn approve_at_the_reduce_review_runs_the_reduce_step() {
    let reduce = set("sum", "{% for w in workers %}{{ w.response }}/{{ w.status }};{% endfor %}");
    let mut run = run_at_reduce_review(
        json!({"reduce": reduce, "writeup": agent("write", "b", "write up {{ reduce.response }}")}),
    );
    assert_eq!(run.asked(".reduce-review").request.context.as_deref(), Some("pour=poured 2"));
    run.approve(".reduce-review");
    assert_eq!(run.prompt_at("write"), "write up boiled/succeeded;poured/succeeded;");
    run.reply("write", 1, "tea is ready");
    assert_eq!(run.expect_success(), "tea is ready", "the writeup is the result");
}

#[test]
fn a_writeup_and_outputs_read_the_reduce_step_by_name() {
    let mut spec = spec(json!({"reduce": set("sum", "S"), "writeup": set("write", "{{ steps.sum.response }}!")}));
    spec["outputs"] = json!({"from": "{{ steps.sum.status }} {{ steps.write.response }}"});
    let mut run = TestRun::of(spec);
    run.reply(".orchestrator", 1, r#"[{"task": "boil"}]"#);
    run.reply(".worker-0", 1, "boiled");
    assert_eq!(run.expect_success(), "succeeded S!");
}

#[test]
fn modify_replaces_the_results_of_workers() {
    let mut run = run_at_reduce_review(json!({}));
    run.modify(".reduce-review", json!({"workers": {"1": "spilt"}}));
    assert_eq!(run.expect_success(), "Worker 0: boiled\n\nWorker 1: spilt");
}

#[test]
fn only_existing_workers_can_be_named() {
    let run = run_at_reduce_review(json!({}));
    let schemas = run.asked(".reduce-review").request.parameters.clone().unwrap();
    let is_valid_for = |verdict: &str, workers: Value| {
        let schema = serde_json::from_value(schemas.0[verdict].clone()).unwrap();
        crate::schema::Schema::compile(&schema).unwrap().is_valid(&json!({"workers": workers})).unwrap()
    };
    assert!(is_valid_for("Modify", json!({"0": "a", "1": "b"})) && is_valid_for("Retry", json!([0, 1])));
    assert!(!is_valid_for("Modify", json!({"2": "c"})) && !is_valid_for("Modify", json!({"01": "c"})));
    assert!(!is_valid_for("Retry", json!([2])) && !is_valid_for("Retry", json!([])));
}

#[test]
fn retry_repeats_the_named_workers_and_asks_again() {
    let mut run = run_at_reduce_review(json!({}));
    let parameters = Some(serde_json::from_value(json!({"workers": [1]})).unwrap());
    run.decide(".reduce-review", signoff_api::Outcome { parameters, ..decided(Verdict::Retry) });
    assert_eq!(run.calls(), [".worker-1#2@1"]);
    run.reply(".worker-1#2", 1, "poured better");
    assert_eq!(run.open(), [".reduce-review#2"]);
    run.approve(".reduce-review#2");
    assert_eq!(run.expect_success(), "Worker 0: boiled\n\nWorker 1: poured better");
}

#[test]
fn defer_repeats_all_workers_with_the_guidance() {
    let mut run = run_at_reduce_review(json!({}));
    run.defer(".reduce-review", "slower");
    assert_eq!(run.calls(), [".worker-0#2@1", ".worker-1#2@1"]);
    assert!(run.prompt_at(".worker-0#2").contains("slower"));
    assert_eq!(run.conversation(".worker-0#2")[..2], ["do boil (0)", "boiled"], "a worker remembers its own part");
}

#[test]
fn a_gate_can_be_the_reduce_step() {
    let mut run = run_with_subtasks(json!({"reduce": hitl("sum", json!({}))}));
    run.reply(".worker-0", 1, "x");
    run.reply(".worker-1", 1, "y");
    run.respond("sum", "enough");
    assert_eq!(run.expect_success(), "enough");
}

#[test]
fn a_run_can_continue_after_a_failed_worker() {
    let mut run = run_with_subtasks(
        json!({"worker": {"agent": "a", "onError": "continue"}, "reduce": set("sum", "{{ workers[0].status }} {{ workers[1].status }}")}),
    );
    run.fail(".worker-0", 1, false, false);
    run.reply(".worker-1", 1, "y");
    assert_eq!(run.expect_success(), "failed succeeded");
}
