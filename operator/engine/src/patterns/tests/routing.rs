//! Tests of the semantics of routing.

use serde_json::{Value, json};
use signoff_api::Verdict;

use crate::tests::test_run::{TestRun, agent, decided, errors, gate, hitl, in_branch, of_pattern, set};

fn routing_spec(review: Option<Value>) -> Value {
    let mut spec = of_pattern(json!({
        "pattern": {"routing": {"router": {"agent": "router", "input": "where to with {{ inputs.topic }}?"}}},
        "steps": [
            in_branch("billing", agent("bill", "a", "{{ router.chosen_route }}")),
            in_branch("billing", set("end", "billed {{ steps.bill.response }}")),
            in_branch("support", hitl("ask", json!({}))),
            in_branch("support", set("end", "{{ hitl_response }}")),
        ],
    }));
    if let Some(review) = review {
        spec["pattern"]["routing"]["router"]["review"] = json!("review");
        spec["gates"] = json!([{"name": "review", "hitl": gate(review)}]);
    }
    spec
}

#[test]
fn the_router_answers_with_a_route_and_its_steps_run_as_a_chain() {
    let mut run = TestRun::of(routing_spec(None));
    assert_eq!(run.calls(), [".router@1"]);
    assert!(
        run.prompt_at(".router").contains("where to with tea?")
            && run.prompt_at(".router").contains("billing, support")
    );
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    assert!(run.prompt_at("billing/bill").starts_with("billing"));
    run.reply("billing/bill", 1, "7 EUR");
    assert_eq!(run.expect_success(), "billed 7 EUR");
}

#[test]
fn a_route_is_read_from_json_with_or_without_text_around_it() {
    for text in [
        r#" {"route": "billing"} "#,
        "I think {\"route\": \"support\"} no:\n```json\n{\"route\": \"billing\"}\n```",
        r#"See [1] and {"x": 2}. So {"route": "billing", "why": "money"}."#,
    ] {
        let mut run = TestRun::of(routing_spec(None));
        run.reply(".router", 1, text);
        assert_eq!(run.calls(), ["billing/bill@1"], "{text}");
    }
}

#[test]
fn an_invalid_route_is_requested_again_up_to_max_retries() {
    let mut run = TestRun::of(routing_spec(None));
    run.reply(".router", 1, "billing, I guess");
    assert_eq!(run.calls(), [".router/.ask-2@1"]);
    assert!(run.prompt_at(".router/.ask-2").contains("no JSON object with a route"));
    assert!(run.conversation(".router/.ask-2").contains(&"billing, I guess".to_owned()), "it sees what it said");
    run.reply(".router/.ask-2", 1, r#"{"route": "sales"}"#);
    assert!(run.prompt_at(".router/.ask-3").contains("\"sales\" is none of the routes billing, support"));
    run.reply(".router/.ask-3", 1, "?");
    assert!(run.expect_failure().contains("not as it should be"), "{}", run.expect_failure());
}

#[test]
fn a_gate_about_failures_asks_after_the_last_invalid_route() {
    let mut spec = routing_spec(None);
    spec["pattern"]["routing"]["router"]["maxRetries"] = json!(0);
    spec["gates"] = json!([{"name": "help", "type": "errorEscalation", "steps": ["router"],
        "hitl": gate(json!({"prompt": "{{ error.message }}"}))}]);
    let mut run = TestRun::of(spec);
    run.reply(".router", 1, "?");
    assert_eq!(run.open(), [".router/.error"]);
    run.decide(".router/.error", decided(Verdict::Retry));
    run.reply(".router", 2, r#"{"route": "billing"}"#);
    assert_eq!(run.calls(), ["billing/bill@1"]);
}

#[test]
fn approve_at_the_review_runs_the_chosen_route() {
    let mut run = TestRun::of(routing_spec(Some(json!({"contextDisplay": "{{ router.chosen_route }}"}))));
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    assert!(run.calls().is_empty());
    let request = &run.asked(".review").request;
    assert_eq!(request.context.as_deref(), Some("billing"));
    assert_eq!(request.reviews.as_ref().unwrap().response, "billing");
    assert_eq!(serde_json::to_value(request.gate.type_).unwrap(), "planApproval");
    run.approve(".review");
    assert_eq!(run.calls(), ["billing/bill@1"]);
}

#[test]
fn modify_replaces_the_route_by_an_existing_one() {
    let mut run = TestRun::of(routing_spec(Some(json!({}))));
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    let schema = run.asked(".review").request.parameters.clone().unwrap();
    assert_eq!(schema.0["Modify"]["properties"]["route"]["enum"], json!(["billing", "support"]));
    run.modify(".review", json!({"route": "support"}));
    assert_eq!(run.open(), ["support/ask"]);
}

#[test]
fn reject_at_the_review_ends_the_run_before_the_route() {
    let mut run = TestRun::of(routing_spec(Some(json!({}))));
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    run.decide(".review", decided(Verdict::Reject));
    run.expect_rejection();
    assert!(run.calls().is_empty());
}

#[test]
fn abort_at_the_review_ends_the_run_before_the_route() {
    let mut run = TestRun::of(routing_spec(Some(json!({}))));
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    run.decide(".review", decided(Verdict::Abort));
    assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))) && run.calls().is_empty());
}

#[test]
fn respond_defer_and_retry_repeat_the_router_with_the_feedback() {
    let review_hitl = json!({"allowedVerdicts": ["Approve", "Respond", "Defer", "Retry"]});
    let mut run = TestRun::of(routing_spec(Some(review_hitl)));
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    run.respond(".review", "they are angry");
    assert!(run.prompt_at(".router#2").contains("they are angry"));
    run.reply(".router#2", 1, r#"{"route": "billing"}"#);
    run.defer(".review#2", "calm them first");
    assert!(run.prompt_at(".router#3").contains("calm them first"));
    run.reply(".router#3", 1, r#"{"route": "support"}"#);
    run.decide(".review#3", decided(Verdict::Retry));
    run.reply(".router#4", 1, r#"{"route": "support"}"#);
    run.approve(".review#4");
    assert_eq!(run.open(), ["support/ask"]);
}

#[test]
fn the_router_is_repeated_at_most_three_times() {
    let mut run = TestRun::of(routing_spec(Some(json!({"allowedVerdicts": ["Approve", "Respond"]}))));
    for visit in 1..=4 {
        let path_of_visit = |path: &str| if visit == 1 { path.to_owned() } else { format!("{path}#{visit}") };
        run.reply(&path_of_visit(".router"), 1, r#"{"route": "billing"}"#);
        run.respond(&path_of_visit(".review"), "think again");
    }
    assert!(run.expect_rejection().contains("asked again 3 times"), "{}", run.expect_rejection());
}

#[test]
fn a_gate_in_a_route_asks_without_repeating_the_router() {
    let mut run = TestRun::of(routing_spec(None));
    run.reply(".router", 1, r#"{"route": "support"}"#);
    assert_eq!(run.open(), ["support/ask"]);
    run.respond("support/ask", "patience");
    assert_eq!(run.expect_success(), "patience");
    assert_eq!(run.journal.records().iter().filter(|r| r.path.starts_with(".router")).count(), 1);
}

#[test]
fn a_plan_approval_gate_reviews_a_router_without_a_review() {
    let mut spec = routing_spec(None);
    spec["gates"] = json!([{"name": "plan", "type": "planApproval", "hitl": gate(json!({}))}]);
    let mut run = TestRun::of(spec.clone());
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    assert_eq!(run.open(), [".review"]);
    spec["pattern"]["routing"]["router"]["review"] = json!("review");
    spec["gates"].as_array_mut().unwrap().push(json!({"name": "review", "hitl": gate(json!({}))}));
    assert!(errors(spec)[0].contains("keep one of them"));
}
