//! Tests of the semantics of a dag.

use serde_json::{Value, json};
use signoff_api::{Verdict, workflow::WorkflowPhase};

use crate::tests::test_run::{TestRun, agent, decided, errors, gate, of_pattern, set};

fn after(mut step: Value, others: &[&str]) -> Value {
    step["dependsOn"] = json!(others);
    step
}

fn hitl(name: &str, more: Value) -> Value {
    json!({"name": name, "hitl": gate(more)})
}

fn dag(tasks: Value) -> Value {
    of_pattern(json!({"pattern": {"dag": {}}, "steps": tasks}))
}

#[test]
fn a_step_starts_when_its_own_deps_are_done_and_not_layer_by_layer() {
    let mut run = TestRun::of(dag(json!([
        agent("one", "a", "1"),
        agent("two", "b", "2"),
        after(agent("three", "a", "3"), &["one"]),
        after(agent("four", "b", "4"), &["three", "two"]),
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
fn several_gates_may_pend_at_once_and_block_only_their_descendants() {
    let mut run = TestRun::of(dag(json!([
        hitl("left", json!({})),
        hitl("right", json!({})),
        after(set("after-left", "{{ steps.left.response }}"), &["left"]),
        after(set("after-right", "{{ hitl_response }}"), &["right"]),
        after(
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
    assert_eq!(run.succeeded(), "L+R");
}

#[test]
fn max_parallel_bounds_the_calls_in_flight_and_gates_do_not_count() {
    let mut spec =
        dag(json!(
            [hitl("gate", json!({})), agent("one", "a", "1"), agent("two", "a", "2"), agent("three", "a", "3"),]
        ));
    spec["pattern"]["dag"]["maxParallel"] = json!(2);
    let mut run = TestRun::of(spec);
    assert_eq!(run.calls(), ["one@1", "two@1"]);
    assert_eq!(run.open(), ["gate"]);
    run.reply("two", 1, "x");
    assert_eq!(run.calls(), ["one@1", "three@1"]);
}

#[test]
fn names_are_unique_deps_are_known_and_there_is_no_circle() {
    let found = errors(dag(json!([after(set("one", "x"), &["nobody"]), set("one", "y"),])));
    assert!(found.iter().any(|c| c.contains("steps[1].name: duplicate name one")), "{found:?}");
    assert!(
        found.iter().any(|c| c.contains("steps[0].dependsOn: there is no step nobody; there are one")),
        "{found:?}"
    );
    let found =
        errors(dag(json!([after(set("one", "x"), &["two"]), after(set("two", "x"), &["one"]), set("three", "x"),])));
    assert!(found[0].contains("one, two depend on each other in a cycle"), "{found:?}");
}

#[test]
fn a_task_may_refer_only_to_tasks_it_depends_on_directly_or_not() {
    let found = errors(dag(json!([
        set("one", "x"),
        after(set("two", "{{ steps.one.response }}"), &["one"]),
        after(set("three", "{{ steps.one.response }}"), &["two"]),
        set("four", "{{ steps.one.response }}"),
    ])));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("steps[3].set.value") && found[0].contains("steps.one"), "{found:?}");
}

#[test]
fn the_result_is_the_only_sink_else_the_last_declared_sink() {
    let run = TestRun::of(dag(json!([after(set("end", "end"), &["begin"]), set("begin", "begin")])));
    assert_eq!(run.succeeded(), "end");
    let run = TestRun::of(dag(json!([set("one", "1"), set("two", "2")])));
    assert_eq!(run.succeeded(), "2");
}

#[test]
fn the_result_may_be_put_together_by_outputs_from() {
    let mut spec = dag(json!([set("one", "1"), set("two", "2")]));
    spec["outputs"] = json!({"from": "{{ steps.one.response }}{{ steps.two.response }}"});
    assert_eq!(TestRun::of(spec).succeeded(), "12");
}

#[test]
fn a_gate_that_defers_runs_what_it_reviews_and_all_between_again() {
    let mut run = TestRun::of(dag(json!([
        agent("draft", "a", "write"),
        after(agent("polish", "a", "polish {{ steps.draft.response }}"), &["draft"]),
        after(hitl("review", json!({"reviews": "draft", "allowedVerdicts": ["Approve", "Defer"]})), &["polish"]),
        after(set("end", "{{ steps.polish.response }}"), &["review"]),
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
    assert_eq!(run.succeeded(), "p2");
}

#[test]
fn a_gate_does_not_defer_what_others_go_by_without_waiting_for_it() {
    let found = errors(dag(json!([
        agent("draft", "a", "write"),
        after(hitl("review", json!({"allowedVerdicts": ["Approve", "Defer"]})), &["draft"]),
        after(set("other", "{{ steps.draft.response }}"), &["draft"]),
    ])));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("step other uses its response without waiting for review"), "{found:?}");
}

#[test]
fn a_failing_task_ends_the_run_at_once_or_when_nothing_else_is_under_way() {
    let tasks = json!([agent("one", "a", "1"), agent("two", "a", "2")]);
    let mut run = TestRun::of(dag(tasks.clone()));
    run.fail("one", 1, false, false);
    assert!(run.failed().contains("step one: 503"));
    let mut spec = dag(tasks);
    spec["pattern"]["dag"]["failFast"] = json!(false);
    let mut run = TestRun::of(spec);
    run.fail("one", 1, false, false);
    assert_eq!(run.transition.end, None);
    run.reply("two", 1, "x");
    assert!(run.failed().contains("step one: 503"));
}

#[test]
fn an_agent_remembers_only_its_own_step() {
    let mut run = TestRun::of(dag(json!([agent("one", "a", "first"), after(agent("two", "a", "second"), &["one"])])));
    run.reply("one", 1, "said");
    assert_eq!(run.conversation("two"), ["second"]);
}

#[test]
fn what_was_said_at_a_gate_that_a_task_waits_for_reaches_its_agent() {
    let mut run = TestRun::of(dag(json!([
        hitl("go", json!({})),
        hitl("elsewhere", json!({})),
        after(agent("work", "a", "work"), &["go"]),
    ])));
    run.respond("elsewhere", "not for you");
    run.respond("go", "mind the gap");
    let told = run.prompt_at("work");
    assert!(told.contains("mind the gap") && !told.contains("not for you"), "{told}");
}

#[test]
fn a_no_ends_the_run_as_rejected_and_the_other_gates_are_cancelled() {
    let mut run = TestRun::of(dag(json!([hitl("one", json!({})), hitl("two", json!({}))])));
    run.decide("two", decided(Verdict::Reject));
    run.rejected();
    assert!(run.open().is_empty());
}
