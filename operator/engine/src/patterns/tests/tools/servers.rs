//! Tests of servers of models, as far as the journal records their behavior: opaque parts that they need back, empty
//! answers, and turns that are repeated automatically.

use serde_json::{Value, json};
use signoff_api::{
    Verdict,
    journal::{FACT_TRUNCATED, Usage},
    turn::{OpaquePart, OpaqueParts},
};

use super::{equal::CALL, gates, meanwhile::fail_call, messages_to_agent, result, spec, turn, turn_with};
use crate::{
    Fact,
    tests::test_run::{TestRun, decided, gate, hitl, set},
    transition::{Message, Reply, Role},
};

const PAY: &str = "handle/.turn-1/.call-1/pay";

/// Returns a spec whose agent uses a live provider, not a script.
fn live_spec(change: impl Fn(&mut Value)) -> Value {
    let mut spec = spec(gates(json!([])));
    spec["providers"] = json!([{"name": "models", "openai": {}}]);
    spec["agents"][0]["model"] = json!("m");
    change(&mut spec);
    spec
}

/// Returns a run whose agent has paid.
fn run_after_payment(change: impl Fn(&mut Value)) -> TestRun {
    let mut run = TestRun::of(live_spec(change));
    turn(&mut run, "handle", &[("c1", "refund", CALL)]);
    run.reply(PAY, 1, "paid");
    run
}

fn opaque_parts() -> OpaqueParts {
    let parts = vec![OpaquePart::Item(r#"{"thinking":"Secret thought"}"#.into()), OpaquePart::Call(0, "{}".into())];
    OpaqueParts { provider: "models".into(), model: "m".into(), parts }
}

/// Returns a run whose agent made calls in a turn, with or without opaque parts.
fn run_with_call(opaque: Option<OpaqueParts>) -> TestRun {
    let mut run = TestRun::of(live_spec(|_| {}));
    let calls = json!([{"id": "c1", "tool": "lookup", "arguments": "{}"}]);
    turn_with(&mut run, "handle", json!({"text": "", "calls": calls}), opaque);
    run
}

#[test]
fn opaque_parts_return_to_the_provider_and_are_in_no_digest_or_fact() {
    let (with_parts, without_parts) = (run_with_call(Some(opaque_parts())), run_with_call(None));
    let model_messages = |run: &TestRun| -> Vec<Message> {
        messages_to_agent(run, "handle/.turn-2").into_iter().filter(|message| message.role == Role::Assistant).collect()
    };
    assert_eq!(model_messages(&with_parts)[0].opaque.as_deref(), Some(&opaque_parts()));
    assert_eq!(model_messages(&without_parts)[0].opaque, None);
    let digest = |run: &TestRun| run.record("handle/.turn-2").input_digest.clone().unwrap();
    assert_eq!(digest(&with_parts), digest(&without_parts));
    assert!(!serde_json::to_string(&model_messages(&with_parts)).unwrap().contains("thought"));
    let facts = |run: &TestRun| json!(run.transition.journal.records().iter().map(|r| &r.facts).collect::<Vec<_>>());
    assert!(!facts(&with_parts).to_string().contains("thought"));
}

#[test]
fn opaque_parts_of_a_left_out_turn_are_left_out_too() {
    let mut run = TestRun::of(live_spec(|spec| spec["agents"][0]["limits"] = json!({"turns": 9})));
    for number in 1..=6 {
        let parts = vec![OpaquePart::Item(format!("\"{}\"", "x".repeat(60_000)))];
        let calls =
            json!([{"id": format!("c{number}"), "tool": "lookup", "arguments": format!(r#"{{"name":"{number}"}}"#)}]);
        let path = if number == 1 { "handle".to_owned() } else { format!("handle/.turn-{number}") };
        let opaque = Some(OpaqueParts { parts, ..opaque_parts() });
        turn_with(&mut run, &path, json!({"text": "", "calls": calls}), opaque);
    }
    let messages = messages_to_agent(&run, "handle/.turn-7");
    let kept = messages.iter().filter(|message| message.opaque.is_some()).count();
    assert_eq!((kept, messages.iter().filter(|message| !message.calls.is_empty()).count()), (4, 4));
    assert!(messages[1].text.starts_with("[the oldest 2 turns"), "{}", messages[1].text);
}

#[test]
fn an_empty_answer_is_requested_again_with_the_results_of_the_calls() {
    for answer in ["", " \n"] {
        let mut run = run_after_payment(|_| {});
        run.reply("handle/.turn-2", 1, answer);
        assert_eq!(run.calls(), ["handle/.ask-2@1"]);
        assert_eq!(result(&run, "handle/.ask-2", "c1"), "paid");
        let request = messages_to_agent(&run, "handle/.ask-2").pop().unwrap();
        assert!(request.text.contains("it is empty") && request.text.contains("Answer in words"), "{}", request.text);
        run.reply("handle/.ask-2", 1, "I paid.");
        assert_eq!(run.expect_success(), "I paid.");
    }
}

#[test]
fn a_second_empty_answer_fails_the_step_and_names_its_effects() {
    let mut run = run_after_payment(|_| {});
    turn(&mut run, "handle/.turn-2", &[("c2", "lookup", "{}"), ("c3", "refund", r#"{"amount":7}"#)]);
    run.reply("handle/.turn-2/.call-2/pay", 1, "paid");
    run.reply("handle/.turn-3", 1, "");
    run.reply("handle/.ask-2", 1, "");
    let problem = run.expect_failure();
    assert!(problem.ends_with("it is empty; before that, its agent called refund (2 times)"), "{problem}");
}

/// Finishes an answer. The last argument is the number of its output tokens, and how many of them were for reasoning.
fn finish_answer(
    run: &mut TestRun,
    path: &str,
    text: &str,
    is_cut: bool,
    (output_tokens, reasoning_tokens): (i64, i64),
) {
    let facts = is_cut.then(|| (FACT_TRUNCATED.to_owned(), "true".to_owned())).into_iter().collect();
    let usage = Some(Usage { output_tokens, reasoning_tokens, ..Usage::default() });
    let reply = Reply { response: json!(text), facts, usage, ..Reply::default() };
    let at = run.clock;
    run.take(vec![Fact::CallFinished { path: path.into(), attempt: 1, result: Ok(reply), at }]);
}

#[test]
fn the_failure_of_an_empty_answer_names_the_model_and_the_tokens() {
    for (is_cut, tokens, cause) in [
        (true, (64, 64), ": it was cut at maxTokens, reasoning used 64 of its 64 tokens"),
        (true, (64, 0), ": it was cut at maxTokens"),
        (false, (64, 64), ": reasoning used 64 of its 64 tokens"),
        (false, (64, 8), ""),
    ] {
        let remedy = if cause.is_empty() { "" } else { "; raise maxTokens of agent clerk" };
        let mut run = TestRun::of(live_spec(|_| {}));
        finish_answer(&mut run, "handle", "", is_cut, tokens);
        finish_answer(&mut run, "handle/.ask-2", "", is_cut, tokens);
        let problem = format!("its answer is not as it should be: it is empty{cause}{remedy}");
        assert!(
            run.expect_failure().ends_with(&format!("model m of provider models: {problem}")),
            "{}",
            run.expect_failure()
        );
    }
}

#[test]
fn the_failure_of_a_malformed_cut_answer_says_that_it_was_cut() {
    let mut run = TestRun::of(live_spec(|spec| spec["steps"][0]["outputSchema"] = json!({"type": "object"})));
    for path in ["handle", "handle/.ask-2", "handle/.ask-3"] {
        finish_answer(&mut run, path, r#"{"paid": "#, true, (64, 0));
    }
    assert!(
        run.expect_failure().ends_with(": it was cut at maxTokens; raise maxTokens of agent clerk"),
        "{}",
        run.expect_failure()
    );
}

/// Returns a run with a gate about the answer of its agent, and another about a text that is rendered from it.
fn run_with_review(is_cut: bool) -> TestRun {
    let final_gate = json!({"name": "out", "type": "finalResponse", "hitl": gate(json!({}))});
    let mut run = TestRun::of(live_spec(|spec| {
        spec["gates"] = gates(json!([final_gate]));
        let steps = spec["steps"].as_array_mut().unwrap();
        steps.insert(1, hitl("read", json!({"contextDisplay": "why"})));
        steps.insert(2, set("copy", "{{ steps.handle.response }}"));
    }));
    finish_answer(&mut run, "handle", "Dear AC", is_cut, (9, 0));
    run
}

#[test]
fn a_request_says_that_the_shown_answer_was_cut() {
    let context = |run: &TestRun, path: &str| run.asked(path).request.context.clone();
    let note = "cut at maxTokens: the answer of handle";
    let mut run = run_with_review(true);
    assert_eq!(context(&run, "read"), Some(format!("{note}\n\nwhy")));
    run.approve("read");
    assert_eq!(context(&run, ".final").as_deref(), Some(note), "it is made of the answer");
    // A person replaced the text.
    let mut run = run_with_review(true);
    run.modify("read", json!({"response": "Dear ACME"}));
    assert_eq!(context(&run, ".final"), None);
    let run = run_with_review(false);
    assert_eq!(context(&run, "read").as_deref(), Some("why"));
    let check = json!({"name": "check", "type": "outputValidation", "steps": ["handle"], "hitl": gate(json!({}))});
    let mut run = TestRun::of(live_spec(|spec| spec["gates"] = gates(json!([check]))));
    finish_answer(&mut run, "handle", "Dear AC", true, (9, 0));
    assert_eq!(context(&run, "handle/.output").as_deref(), Some(note));
}

#[test]
fn an_empty_answer_of_a_script_is_accepted() {
    let mut run = TestRun::of(spec(gates(json!([]))));
    run.reply("handle", 1, "");
    assert_eq!(run.expect_success(), "");
}

/// Fails each attempt at a turn until no further attempt follows, and returns the number of attempts.
fn count_attempts(run: &mut TestRun, path: &str, class: &str, facts: &[(&str, &str)]) -> i32 {
    for attempt in 1..=10 {
        if run.calls() != [format!("{path}@{attempt}")] {
            return attempt - 1;
        }
        fail_call(run, path, attempt, class, facts, true);
        run.wait(3600);
    }
    panic!("it never ends")
}

#[test]
fn a_turn_is_repeated_automatically_only_if_its_server_was_busy() {
    for (class, facts, expected) in [
        ("Status", &[("statusCode", "503")][..], 4),
        ("Status", &[("statusCode", "408")], 4),
        ("RateLimited", &[("statusCode", "429")], 4),
        ("Protocol", &[("outcomeUnknown", "true")], 4),
        ("Status", &[("statusCode", "400")], 1),
        ("Timeout", &[], 1),
        ("Unreachable", &[], 1),
    ] {
        assert_eq!(
            count_attempts(&mut run_after_payment(|_| {}), "handle/.turn-2", class, facts),
            expected,
            "{class} {facts:?}"
        );
    }
    let count_attempts_while_busy = |change: fn(&mut Value)| {
        count_attempts(&mut run_after_payment(change), "handle/.turn-2", "Status", &[("statusCode", "503")])
    };
    assert_eq!(
        count_attempts_while_busy(|spec| spec["steps"][0]["retry"] = json!({"limit": 0})),
        1,
        "the author said so"
    );
    assert_eq!(count_attempts_while_busy(|spec| spec["steps"][0]["retry"] = json!({"limit": 1})), 2);
    assert_eq!(
        count_attempts_while_busy(
            |spec| spec["providers"] = json!([{"name": "s", "scripted": {"replies": [{"text": "x"}]}}])
        ),
        1
    );
}

#[test]
fn a_fresh_agent_receives_its_own_step_when_it_is_asked_again() {
    let mut run = run_after_payment(|spec| spec["steps"][0]["agent"]["conversation"] = json!("fresh"));
    run.reply("handle/.turn-2", 1, "");
    assert_eq!(result(&run, "handle/.ask-2", "c1"), "paid");
    assert_eq!(messages_to_agent(&run, "handle/.ask-2")[0].text, "help");
    let schema = json!({"type": "object", "required": ["paid"]});
    let mut run = run_after_payment(|spec| {
        spec["steps"][0]["agent"]["conversation"] = json!("fresh");
        spec["steps"][0]["outputSchema"] = schema.clone();
    });
    run.reply("handle/.turn-2", 1, "no JSON");
    run.reply("handle/.ask-2", 1, "nor this");
    assert_eq!(messages_to_agent(&run, "handle/.ask-3")[0].text, "help");
    assert_eq!(result(&run, "handle/.ask-3", "c1"), "paid");
}

#[test]
fn the_fourth_request_about_a_failure_does_not_offer_retry() {
    let help = json!({"name": "help", "type": "errorEscalation", "afterAttempts": 1, "steps": ["handle"], "hitl": gate(json!({}))});
    let mut run = TestRun::of(live_spec(|spec| spec["gates"] = gates(json!([help]))));
    for visit in 1..=4 {
        fail_call(&mut run, "handle", visit, "Status", &[("statusCode", "400")], false);
        let path = if visit == 1 { "handle/.error".to_owned() } else { format!("handle/.error#{visit}") };
        let verdicts = run.asked(&path).request.allowed_verdicts.clone();
        assert_eq!(verdicts.contains(&Verdict::Retry), visit < 4, "{visit}: {verdicts:?}");
        assert!(verdicts.contains(&Verdict::Skip) && verdicts.contains(&Verdict::Reject), "{verdicts:?}");
        let verdict = if visit < 4 { Verdict::Retry } else { Verdict::Skip };
        run.decide(&path, decided(verdict));
    }
    assert_eq!(run.expect_success(), "");
}
