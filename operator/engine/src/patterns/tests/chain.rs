//! Tests of the semantics of a chain. Verdicts at its gates are tested in `advance_tests.rs`.

use serde_json::json;

use crate::tests::test_run::{TestRun, agent, chain_of, hitl, set};

#[test]
fn steps_run_one_after_the_other_in_order() {
    let mut run = TestRun::new(json!([agent("draft", "writer", "write"), agent("check", "writer", "check")]));
    assert_eq!(run.calls(), ["draft@1"]);
    run.reply("draft", 1, "Dear all");
    assert_eq!(run.calls(), ["check@1"]);
}

#[test]
fn a_step_is_found_by_position_and_by_name() {
    let template = "{{ steps[0].name }} {{ steps[0].type }} {{ steps.first.response }} {{ steps[-1].response }}";
    let run = TestRun::new(json!([set("first", "one"), set("second", "two"), set("say", template)]));
    assert_eq!(run.expect_success(), "first set one two");
}

#[test]
fn the_result_is_the_last_response_of_a_step_or_a_person() {
    let mut run = TestRun::new(json!([set("first", "one"), hitl("ask", json!({"reviews": "first"}))]));
    run.respond("ask", "two");
    assert_eq!(run.expect_success(), "two");
}

#[test]
fn the_decision_of_a_gate_can_be_read_by_its_name() {
    let say = "{{ steps.ask.decision }} {{ steps.ask.decidedBy | join(',') }}";
    let mut run = TestRun::of(chain_of(json!([set("first", "one"), hitl("ask", json!({})), set("say", say)])));
    run.approve("ask");
    assert_eq!(run.expect_success(), "approved alice");
}
