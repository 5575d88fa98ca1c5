//! Tests of numbers in answers that a double cannot hold: the rest of the answer is readable, and an error names such a
//! number when it is read.

use serde_json::{Value, json};

use crate::tests::test_run::{TestRun, agent, hitl, of_pattern, set};

const ANSWER: &str = r#"{"state": "paid", "customer": {"id": 123456789012345678901234567890}, "rate": 1e400}"#;
const PROBLEM: &str = "is beyond ±2^53, where JSON readers round differently; write it as a text";

fn run_with_answer(schema: Value, later_steps: Value) -> TestRun {
    let mut look = agent("look", "writer", "look it up");
    look["outputSchema"] = schema;
    let mut steps = vec![look];
    steps.extend(later_steps.as_array().cloned().unwrap_or_default());
    let mut run = TestRun::new(json!(steps));
    run.reply("look", 1, ANSWER);
    run
}

fn state_schema() -> Value {
    json!({"type": "object", "required": ["state"], "properties": {"state": {"type": "string"}}})
}

#[test]
fn an_answer_with_an_unreadable_number_is_otherwise_readable() {
    let run = run_with_answer(
        state_schema(),
        json!([{"name": "say", "skipIf": "steps.look.response.state != 'paid'",
            "set": {"value": "it is {{ steps.look.response.state }}"}}]),
    );
    assert_eq!(run.expect_success(), "it is paid");
}

#[test]
fn an_agent_is_asked_again_if_the_schema_reads_the_number() {
    let schema = json!({"type": "object", "properties": {"customer": {"properties": {"id": {"type": "integer"}}}}});
    let mut run = run_with_answer(schema, json!([set("say", "{{ steps.look.response.customer.id }}")]));
    let second_prompt = run.prompt_at("look/.ask-2");
    assert!(second_prompt.contains(&format!("the number at /customer/id {PROBLEM}")), "{second_prompt}");
    run.reply("look/.ask-2", 1, r#"{"customer": {"id": 4711}}"#);
    assert_eq!(run.expect_success(), "4711");
}

#[test]
fn a_template_that_reads_the_number_fails_its_step_and_names_the_pointer() {
    for value in ["{{ steps.look.response.customer.id }}", "{{ steps.look.response }}", "{{ last_response | tojson }}"]
    {
        let run = run_with_answer(state_schema(), json!([set("say", value)]));
        let failed = run.expect_failure();
        assert!(failed.contains("the number at /customer/id of `") && failed.contains(PROBLEM), "{value}: {failed}");
        assert!(!failed.contains("12345678"), "{value}: {failed}");
    }
}

#[test]
fn a_result_with_an_unreadable_number_fails_the_run() {
    let run = run_with_answer(state_schema(), json!([]));
    assert!(
        run.expect_failure().contains(&format!("the number at /customer/id {PROBLEM}")),
        "{}",
        run.expect_failure()
    );
    // Without a schema the answer is a text, and stays as it was written.
    let mut run = TestRun::new(json!([agent("look", "writer", "look it up")]));
    run.reply("look", 1, ANSWER);
    assert_eq!(run.expect_success(), ANSWER);
}

#[test]
fn people_see_the_answer_as_it_was_written() {
    let run = run_with_answer(state_schema(), json!([hitl("check", json!({})), set("say", "x")]));
    let request = serde_json::to_string(&run.asked("check").request).unwrap();
    assert!(request.contains("123456789012345678901234567890") && request.contains("1e400"), "{request}");
}

#[test]
fn a_decision_with_an_unreadable_number_does_not_count() {
    let mut run = run_with_answer(
        state_schema(),
        json!([hitl("check", json!({"allowedVerdicts": ["Approve", "Modify"]})), set("say", "x")]),
    );
    let request = run.asked("check").request.clone();
    let check_decision = |response: Value| {
        let decision = json!({"verdict": "Modify", "parameters": {"response": response}});
        crate::gate::payload::parse(&request, &serde_json::from_value(decision).unwrap()).map(drop)
    };
    let problem = check_decision(json!({"id": [1e20]})).unwrap_err();
    assert_eq!(problem, format!("parameters: the number at /response/id/0 {PROBLEM}"));
    assert_eq!(check_decision(json!({"id": ["100000000000000000000", 5]})), Ok(()));
    run.approve("check");
    assert_eq!(run.expect_success(), "x");
}

#[test]
fn an_unreadable_route_is_requested_again() {
    // A route or a score that a double cannot hold is requested again. Beside them such a number is ignored.
    let route =
        of_pattern(json!({"pattern": {"routing": {"router": {"agent": "a", "input": "choose", "maxRetries": 1}}},
        "steps": [{"name": "pay", "branch": "billing", "set": {"value": "paid"}}]}));
    let mut run = TestRun::of(route.clone());
    run.reply(".router", 1, r#"{"route": "billing", "certainty": 1e400}"#);
    assert_eq!(run.expect_success(), "paid");
    let mut run = TestRun::of(route);
    run.reply(".router", 1, r#"{"route": 123456789012345678901234567890}"#);
    let second_prompt = run.prompt_at(".router/.ask-2");
    assert!(second_prompt.contains(&format!("the number at /route {PROBLEM}")), "{second_prompt}");
}

#[test]
fn a_part_with_an_unreadable_number_is_requested_again() {
    let mut run = TestRun::of(of_pattern(json!({"pattern": {"orchestratorWorkers": {
        "orchestrator": {"agent": "a", "input": "divide"}, "worker": {"agent": "a", "input": "{{ task }}"}}}})));
    run.reply(".orchestrator", 1, r#"[{"task": "one", "id": 1234567890123456789}]"#);
    let second_prompt = run.prompt_at(".orchestrator/.ask-2");
    assert!(second_prompt.contains(&format!("the number at /0/id {PROBLEM}")), "{second_prompt}");
    run.reply(".orchestrator/.ask-2", 1, r#"[{"task": "one", "id": "1234567890123456789"}]"#);
    assert_eq!(run.prompt_at(".worker-0"), "one");
}
