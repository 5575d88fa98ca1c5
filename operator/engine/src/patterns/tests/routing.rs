//! Tests of the semantics of routing.

use serde_json::{Value, json};
use signoff_api::Verdict;

use crate::tests::test_run::{TestRun, agent, decided, errors, gate, hitl, in_branch, of_pattern, set};

fn routing(review: Option<Value>) -> Value {
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
    let mut run = TestRun::of(routing(None));
    assert_eq!(run.calls(), [".router@1"]);
    assert!(
        run.prompt_at(".router").contains("where to with tea?")
            && run.prompt_at(".router").contains("billing, support")
    );
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    assert!(run.prompt_at("billing/bill").starts_with("billing"));
    run.reply("billing/bill", 1, "7 EUR");
    assert_eq!(run.succeeded(), "billed 7 EUR");
}

#[test]
fn the_route_is_the_whole_text_as_json_else_a_fenced_object_else_the_first_object_with_a_route() {
    for text in [
        r#" {"route": "billing"} "#,
        "I think {\"route\": \"support\"} no:\n```json\n{\"route\": \"billing\"}\n```",
        r#"See [1] and {"x": 2}. So {"route": "billing", "why": "money"}."#,
    ] {
        let mut run = TestRun::of(routing(None));
        run.reply(".router", 1, text);
        assert_eq!(run.calls(), ["billing/bill@1"], "{text}");
    }
}

#[test]
fn a_malformed_or_unknown_route_is_asked_for_again_quoting_the_problem_as_often_as_max_retries() {
    let mut run = TestRun::of(routing(None));
    run.reply(".router", 1, "billing, I guess");
    assert_eq!(run.calls(), [".router/.ask-2@1"]);
    assert!(run.prompt_at(".router/.ask-2").contains("no JSON object with a route"));
    assert!(run.conversation(".router/.ask-2").contains(&"billing, I guess".to_owned()), "it sees what it said");
    run.reply(".router/.ask-2", 1, r#"{"route": "sales"}"#);
    assert!(run.prompt_at(".router/.ask-3").contains("\"sales\" is none of the routes billing, support"));
    run.reply(".router/.ask-3", 1, "?");
    assert!(run.failed().contains("not as it should be"), "{}", run.failed());
}

#[test]
fn an_error_escalation_takes_over_where_the_router_gives_up() {
    let mut spec = routing(None);
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
fn the_review_comes_before_anything_runs_and_approve_keeps_the_route() {
    let mut run = TestRun::of(routing(Some(json!({"contextDisplay": "{{ router.chosen_route }}"}))));
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
fn modify_overrides_the_route_and_it_must_exist() {
    let mut run = TestRun::of(routing(Some(json!({}))));
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    let schema = run.asked(".review").request.parameters.clone().unwrap();
    assert_eq!(schema.0["Modify"]["properties"]["route"]["enum"], json!(["billing", "support"]));
    run.modify(".review", json!({"route": "support"}));
    assert_eq!(run.open(), ["support/ask"]);
}

#[test]
fn reject_stops_before_anything_runs() {
    let mut run = TestRun::of(routing(Some(json!({}))));
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    run.decide(".review", decided(Verdict::Reject));
    run.rejected();
    assert!(run.calls().is_empty());
}

#[test]
fn abort_at_the_review_aborts() {
    let mut run = TestRun::of(routing(Some(json!({}))));
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    run.decide(".review", decided(Verdict::Abort));
    assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))) && run.calls().is_empty());
}

#[test]
fn respond_defer_and_retry_let_the_router_choose_again_and_it_hears_why() {
    let all = json!({"allowedVerdicts": ["Approve", "Respond", "Defer", "Retry"]});
    let mut run = TestRun::of(routing(Some(all)));
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
fn the_router_does_not_choose_for_ever_whatever_answers_come() {
    let mut run = TestRun::of(routing(Some(json!({"allowedVerdicts": ["Approve", "Respond"]}))));
    for visit in 1..=4 {
        let at = |path: &str| if visit == 1 { path.to_owned() } else { format!("{path}#{visit}") };
        run.reply(&at(".router"), 1, r#"{"route": "billing"}"#);
        run.respond(&at(".review"), "think again");
    }
    assert!(run.rejected().contains("asked again 3 times"), "{}", run.rejected());
}

#[test]
fn gates_inside_routes_work_and_the_router_is_never_asked_again() {
    let mut run = TestRun::of(routing(None));
    run.reply(".router", 1, r#"{"route": "support"}"#);
    assert_eq!(run.open(), ["support/ask"]);
    run.respond("support/ask", "patience");
    assert_eq!(run.succeeded(), "patience");
    assert_eq!(run.journal.records().iter().filter(|r| r.path.starts_with(".router")).count(), 1);
}

#[test]
fn a_gate_of_the_spec_reviews_a_route_where_the_router_has_no_review() {
    let mut spec = routing(None);
    spec["gates"] = json!([{"name": "plan", "type": "planApproval", "hitl": gate(json!({}))}]);
    let mut run = TestRun::of(spec.clone());
    run.reply(".router", 1, r#"{"route": "billing"}"#);
    assert_eq!(run.open(), [".review"]);
    spec["pattern"]["routing"]["router"]["review"] = json!("review");
    spec["gates"].as_array_mut().unwrap().push(json!({"name": "review", "hitl": gate(json!({}))}));
    assert!(errors(spec)[0].contains("keep one of them"));
}
