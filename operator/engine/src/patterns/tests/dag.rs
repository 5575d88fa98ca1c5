//! Tests of the semantics of a dag.

use serde_json::{Value, json};
use signoff_api::{Verdict, workflow::WorkflowPhase};

use crate::tests::test_run::{TestRun, agent, decided, errors, gate, of_pattern, set};

fn with_dependencies(mut step: Value, others: &[&str]) -> Value {
    step["dependsOn"] = json!(others);
    step
}

fn hitl(name: &str, more: Value) -> Value {
    json!({"name": name, "hitl": gate(more)})
}

fn dag_spec(tasks: Value) -> Value {
    of_pattern(json!({"pattern": {"dag": {}}, "steps": tasks}))
}

#[test]
fn a_step_starts_when_its_own_dependencies_are_done() {
    let mut run = TestRun::of(dag_spec(json!([
        agent("one", "a", "1"),
        agent("two", "b", "2"),
        with_dependencies(agent("three", "a", "3"), &["one"]),
        with_dependencies(agent("four", "b", "4"), &["three", "two"]),
    ])));
    assert_eq!(run.calls(), ["one@1", "two@1"]);
    run.reply("one", 1, "done");
    assert_eq!(run.calls(), ["two@1", "three@1"], "two is still under way");
    run.reply("three", 1, "done");
    assert_eq!(run.calls(), ["two@1"]);
    run.reply("two", 1, "done");
    assert_eq!(run.calls(), ["four@1"]);
}

#[test]
fn open_gates_block_only_their_descendants() {
    let mut run = TestRun::of(dag_spec(json!([
        hitl("left", json!({})),
        hitl("right", json!({})),
        with_dependencies(set("after-left", "{{ steps.left.response }}"), &["left"]),
        with_dependencies(set("after-right", "{{ hitl_response }}"), &["right"]),
        with_dependencies(
            set("both", "{{ steps['after-left'].response }}+{{ steps['after-right'].response }}"),
            &["after-left", "after-right"]
        ),
    ])));
    assert_eq!(run.open(), ["left", "right"]);
    assert_eq!(run.transition.phase, WorkflowPhase::Waiting);
    run.respond("right", "R");
    assert_eq!(run.response("after-right"), "R");
    assert_eq!(run.open(), ["left"]);
    run.respond("left", "L");
    assert_eq!(run.expect_success(), "L+R");
}

#[test]
fn max_parallel_bounds_the_calls_in_flight_and_gates_do_not_count() {
    let mut spec = dag_spec(json!([
        hitl("gate", json!({})),
        agent("one", "a", "1"),
        agent("two", "a", "2"),
        agent("three", "a", "3"),
    ]));
    spec["pattern"]["dag"]["maxParallel"] = json!(2);
    let mut run = TestRun::of(spec);
    assert_eq!(run.calls(), ["one@1", "two@1"]);
    assert_eq!(run.open(), ["gate"]);
    run.reply("two", 1, "x");
    assert_eq!(run.calls(), ["one@1", "three@1"]);
}

#[test]
fn duplicate_names_unknown_dependencies_and_cycles_are_refused() {
    let found_errors = errors(dag_spec(json!([with_dependencies(set("one", "x"), &["nobody"]), set("one", "y"),])));
    assert!(found_errors.iter().any(|c| c.contains("steps[1].name: duplicate name one")), "{found_errors:?}");
    assert!(
        found_errors.iter().any(|c| c.contains("steps[0].dependsOn: there is no step nobody; there are one")),
        "{found_errors:?}"
    );
    let found_errors = errors(dag_spec(json!([
        with_dependencies(set("one", "x"), &["two"]),
        with_dependencies(set("two", "x"), &["one"]),
        set("three", "x"),
    ])));
    assert!(found_errors[0].contains("one, two depend on each other in a cycle"), "{found_errors:?}");
}

#[test]
fn a_task_can_refer_only_to_tasks_that_it_waits_for() {
    let found_errors = errors(dag_spec(json!([
        set("one", "x"),
        with_dependencies(set("two", "{{ steps.one.response }}"), &["one"]),
        with_dependencies(set("three", "{{ steps.one.response }}"), &["two"]),
        set("four", "{{ steps.one.response }}"),
    ])));
    assert_eq!(found_errors.len(), 1, "{found_errors:?}");
    assert!(
        found_errors[0].contains("steps[3].set.value") && found_errors[0].contains("steps.one"),
        "{found_errors:?}"
    );
}

#[test]
fn the_result_is_that_of_the_last_declared_sink() {
    let run = TestRun::of(dag_spec(json!([with_dependencies(set("end", "end"), &["begin"]), set("begin", "begin")])));
    assert_eq!(run.expect_success(), "end");
    let run = TestRun::of(dag_spec(json!([set("one", "1"), set("two", "2")])));
    assert_eq!(run.expect_success(), "2");
}

#[test]
fn outputs_can_combine_the_responses_of_tasks() {
    let mut spec = dag_spec(json!([set("one", "1"), set("two", "2")]));
    spec["outputs"] = json!({"from": "{{ steps.one.response }}{{ steps.two.response }}"});
    assert_eq!(TestRun::of(spec).expect_success(), "12");
}

#[test]
fn defer_repeats_the_reviewed_task_and_all_tasks_up_to_the_gate() {
    let mut run = TestRun::of(dag_spec(json!([
        agent("draft", "a", "write"),
        with_dependencies(agent("polish", "a", "polish {{ steps.draft.response }}"), &["draft"]),
        with_dependencies(
            hitl("review", json!({"reviews": "draft", "allowedVerdicts": ["Approve", "Defer"]})),
            &["polish"]
        ),
        with_dependencies(set("end", "{{ steps.polish.response }}"), &["review"]),
    ])));
    run.reply("draft", 1, "d1");
    run.reply("polish", 1, "p1");
    run.defer("review", "shorter");
    assert_eq!(run.calls(), ["draft#2@1"]);
    assert!(run.prompt_at("draft#2").contains("shorter"));
    run.reply("draft#2", 1, "d2");
    assert!(run.prompt_at("polish#2").starts_with("polish d2"));
    run.reply("polish#2", 1, "p2");
    assert_eq!(run.open(), ["review#2"]);
    run.approve("review#2");
    assert_eq!(run.expect_success(), "p2");
}

#[test]
fn defer_over_a_task_that_others_use_without_waiting_is_refused() {
    let found_errors = errors(dag_spec(json!([
        agent("draft", "a", "write"),
        with_dependencies(hitl("review", json!({"allowedVerdicts": ["Approve", "Defer"]})), &["draft"]),
        with_dependencies(set("other", "{{ steps.draft.response }}"), &["draft"]),
    ])));
    assert_eq!(found_errors.len(), 1, "{found_errors:?}");
    assert!(found_errors[0].contains("step other uses its response without waiting for review"), "{found_errors:?}");
}

#[test]
fn a_failed_task_ends_the_run_at_once_or_after_the_other_tasks() {
    let tasks = json!([agent("one", "a", "1"), agent("two", "a", "2")]);
    let mut run = TestRun::of(dag_spec(tasks.clone()));
    run.fail("one", 1, false, false);
    assert!(run.expect_failure().contains("step one: 503"));
    let mut spec = dag_spec(tasks);
    spec["pattern"]["dag"]["failFast"] = json!(false);
    let mut run = TestRun::of(spec);
    run.fail("one", 1, false, false);
    assert_eq!(run.transition.end, None);
    run.reply("two", 1, "x");
    assert!(run.expect_failure().contains("step one: 503"));
}

#[test]
fn an_agent_remembers_only_its_own_step() {
    let mut run = TestRun::of(dag_spec(json!([
        agent("one", "a", "first"),
        with_dependencies(agent("two", "a", "second"), &["one"])
    ])));
    run.reply("one", 1, "said");
    assert_eq!(run.conversation("two"), ["second"]);
}

#[test]
fn an_agent_receives_only_the_feedback_of_gates_that_it_waits_for() {
    let mut run = TestRun::of(dag_spec(json!([
        hitl("go", json!({})),
        hitl("elsewhere", json!({})),
        with_dependencies(agent("work", "a", "work"), &["go"]),
    ])));
    run.respond("elsewhere", "not for you");
    run.respond("go", "mind the gap");
    let prompt = run.prompt_at("work");
    assert!(prompt.contains("mind the gap") && !prompt.contains("not for you"), "{prompt}");
}

#[test]
fn a_reject_ends_the_run_and_cancels_the_other_gates() {
    let mut run = TestRun::of(dag_spec(json!([hitl("one", json!({})), hitl("two", json!({}))])));
    run.decide("two", decided(Verdict::Reject));
    run.expect_rejection();
    assert!(run.open().is_empty());
}
