//! Tests of the semantics of a graph.

use serde_json::{Value, json};
use signoff_api::Verdict;

use crate::tests::test_run::{TestRun, agent, decided, errors, gate, hitl, of_pattern, set};

fn graph_spec(nodes: Value, edges: Value) -> Value {
    of_pattern(json!({"pattern": {"graph": {"edges": edges}}, "steps": nodes}))
}

fn spec_with_review_loop() -> Value {
    graph_spec(
        json!([
            agent("plan", "a", "plan"),
            hitl("review", json!({"onReject": "stop", "approveText": "approve"})),
            agent("revise", "a", "revise by {{ hitl_response }}"),
            set("execute", "done {{ steps.plan.response }} {{ steps.review.visits | length }}"),
            set("archive", "no"),
        ]),
        json!([
            {"from": "plan", "to": "review"},
            {"from": "review", "choose": [
                {"when": "hitl_response == 'approve'", "to": "execute"},
                {"when": "hitl_response == 'rejected'", "to": "archive"},
                {"when": "else", "to": "revise"},
            ]},
            {"from": "revise", "to": "review"},
        ]),
    )
}

#[test]
fn a_run_follows_the_first_matching_edge_and_ends_without_one() {
    let mut run = TestRun::of(spec_with_review_loop());
    assert_eq!(run.calls(), ["plan@1"]);
    run.reply("plan", 1, "p");
    run.approve("review");
    assert_eq!(run.expect_success(), "done p 1");
    assert_eq!(run.response("review/.next"), "execute", "what an edge came to is a record");
}

#[test]
fn each_visit_of_a_gate_is_a_new_approval() {
    let mut run = TestRun::of(spec_with_review_loop());
    run.reply("plan", 1, "p");
    run.respond("review", "cheaper");
    assert!(run.prompt_at("revise").starts_with("revise by cheaper"));
    run.reply("revise", 1, "r");
    assert_eq!(run.open(), ["review#2"]);
    assert_ne!(run.record("review").object, run.record("review#2").object);
    run.approve("review#2");
    assert_eq!(run.expect_success(), "done p 2");
}

#[test]
fn edges_of_a_gate_are_evaluated_after_a_reject() {
    let mut run = TestRun::of(spec_with_review_loop());
    run.reply("plan", 1, "p");
    run.decide("review", decided(Verdict::Reject));
    assert_eq!(run.expect_success(), "no");
}

#[test]
fn a_reject_without_a_matching_edge_ends_the_run() {
    let mut run = TestRun::of(graph_spec(
        json!([hitl("ask", json!({})), set("go", "gone")]),
        json!([{"from": "ask", "choose": [{"when": "hitl_response == 'approved'", "to": "go"}]}]),
    ));
    run.decide("ask", decided(Verdict::Reject));
    run.expect_rejection();
}

#[test]
fn an_edge_without_a_condition_is_not_followed_after_a_reject() {
    let run_at_gate = || {
        TestRun::of(graph_spec(
            json!([hitl("ask", json!({})), set("go", "gone")]),
            json!([{"from": "ask", "to": "go"}]),
        ))
    };
    let mut run = run_at_gate();
    run.decide("ask", decided(Verdict::Reject));
    run.expect_rejection();
    let mut run = run_at_gate();
    run.approve("ask");
    assert_eq!(run.expect_success(), "gone");
}

#[test]
fn a_condition_of_an_edge_reads_the_chosen_option() {
    let form = json!({"questions": [{"id": "how", "options": [{"id": "fast", "label": "Fast"}, {"id": "slow", "label": "Slow"}]}]});
    let mut run = TestRun::of(graph_spec(
        json!([hitl("ask", json!({"form": form})), set("hare", "h"), set("tortoise", "t")]),
        json!([{"from": "ask", "choose": [
            {"when": "hitl_response == 'Fast'", "to": "hare"},
            {"when": "hitl_response.lowerAscii().contains('slow')", "to": "tortoise"}]}]),
    ));
    run.respond("ask", "Slow");
    assert_eq!(run.expect_success(), "t");
}

#[test]
fn a_condition_can_read_a_node_that_has_not_run() {
    let run = TestRun::of(graph_spec(
        json!([
            set("one", "{{ steps.two.status }} {{ steps.two.response is none }} {{ steps.two.visits | length }}"),
            set("two", "x")
        ]),
        json!([{"from": "one", "choose": [{"when": "steps.two.response == null", "to": "two"}]}]),
    ));
    assert_eq!(run.response("one"), "not_executed true 0");
    assert_eq!(run.expect_success(), "x");
}

#[test]
fn max_iterations_limits_each_node_and_max_steps_the_run() {
    let nodes = json!([hitl("ask", json!({})), set("again", "x")]);
    let edges = json!([{"from": "ask", "choose": [{"when": "hitl_response != 'stop'", "to": "again"}]}, {"from": "again", "to": "ask"}]);
    let run_with_limit = |field: &str, limit: i32| {
        let mut spec = graph_spec(nodes.clone(), edges.clone());
        spec["pattern"]["graph"][field] = json!(limit);
        TestRun::of(spec)
    };
    let mut run = run_with_limit("maxIterations", 2);
    run.respond("ask", "on");
    run.respond("ask#2", "on");
    assert!(run.expect_failure().contains("step ask has run 2 times"), "{}", run.expect_failure());
    let mut run = run_with_limit("maxSteps", 3);
    run.respond("ask", "on");
    run.respond("ask#2", "on");
    assert!(run.expect_failure().contains("3 steps have run"), "{}", run.expect_failure());
    let mut run = run_with_limit("maxSteps", 3);
    run.respond("ask", "on");
    run.respond("ask#2", "stop");
    assert_eq!(run.expect_success(), "stop", "neither fails a run that just ended");
}

#[test]
fn entry_defaults_to_the_first_node() {
    let mut spec = graph_spec(json!([set("one", "1"), set("two", "2")]), json!([{"from": "two", "to": "one"}]));
    assert!(errors(spec.clone())[0].contains("no edge leads to two"));
    spec["pattern"]["graph"]["entry"] = json!("two");
    assert_eq!(TestRun::of(spec).expect_success(), "1");
}

#[test]
fn unknown_targets_and_graphs_without_an_end_are_refused() {
    let found_errors = errors(graph_spec(json!([set("one", "1")]), json!([{"from": "one", "to": "nowhere"}])));
    assert!(found_errors[0].contains("edges[0].to: there is no step nowhere"), "{found_errors:?}");
    let found_errors = errors(graph_spec(
        json!([set("one", "1"), set("two", "2")]),
        json!([{"from": "one", "to": "two"}, {"from": "two", "to": "one"}]),
    ));
    assert!(found_errors[0].contains("the run could never end"), "{found_errors:?}");
}

#[test]
fn a_condition_without_a_value_fails_the_run_naming_the_edge() {
    let run = TestRun::of(graph_spec(
        json!([set("one", "text"), set("two", "2")]),
        json!([{"from": "one", "choose": [{"when": "steps.one.response < 5", "to": "two"}]}]),
    ));
    assert!(run.expect_failure().contains("edge from one"), "{}", run.expect_failure());
}

#[test]
fn a_choice_without_else_is_a_warning() {
    let run = TestRun::of(graph_spec(
        json!([set("one", "x"), set("two", "2")]),
        json!([{"from": "one", "choose": [{"when": "steps.one.response == 'y'", "to": "two"}]}]),
    ));
    assert!(run.plan.warnings().iter().any(|warning| warning.contains("without an else")), "{:?}", run.plan.warnings());
    assert_eq!(run.expect_success(), "x");
}

#[test]
fn retry_asks_again_and_defer_repeats_the_reviewed_node() {
    let verdicts = gate(json!({"allowedVerdicts": ["Approve", "Retry", "Defer"]}));
    let mut run = TestRun::of(graph_spec(
        json!([agent("plan", "a", "plan"), {"name": "review", "hitl": verdicts}, set("end", "{{ steps.plan.response }}")]),
        json!([{"from": "plan", "to": "review"}, {"from": "review", "to": "end"}]),
    ));
    run.reply("plan", 1, "p1");
    run.decide("review", decided(Verdict::Retry));
    assert_eq!(run.open(), ["review#2"]);
    run.defer("review#2", "bolder");
    assert!(run.prompt_at("plan#2").contains("bolder"));
    run.reply("plan#2", 1, "p2");
    run.approve("review#3");
    assert_eq!(run.expect_success(), "p2");
}
