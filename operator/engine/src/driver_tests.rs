//! Tests of the driver of transitions: lost, fetched and kept values between an evaluation and its commit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;

use super::*;
use crate::{
    tests::test_run::{TestRun, agent, gate},
    transition::Reply,
};

/// Returns a run with a single call that must not be repeated and that the process `first` started.
fn run_with_started_call() -> TestRun {
    let mut run = TestRun::new(json!([{"name": "pay", "http": {"url": "http://x/", "method": "POST"}}]));
    run.transition.mark_started("pay", 1, "first");
    run.commit();
    assert_eq!((run.record("pay").phase, run.record("pay").by.as_deref()), (StepPhase::Started, Some("first")));
    run
}

/// Returns the loop of transitions of a run, with the values that it has cached.
fn drive(run: &TestRun, values: Blobs) -> TransitionLoop {
    let now = Now::new(run.clock, "epoch");
    TransitionLoop::new(Arc::new(run.plan.clone()), run.control, run.journal.clone(), Vec::new(), Arc::new(values), now)
}

/// Evaluates one round of a loop. `in_flight`: whether the process has every call in flight.
fn evaluate_round(rounds: &mut TransitionLoop, process: &str, in_flight: bool) -> Round {
    let transition = rounds.evaluation()();
    rounds.on_evaluated(transition, process, |_| in_flight).unwrap()
}

#[test]
fn a_call_of_an_earlier_process_that_must_not_be_repeated_has_an_unknown_outcome() {
    let mut rounds = drive(&run_with_started_call(), Blobs::new());
    assert!(matches!(evaluate_round(&mut rounds, "second", false), Round::Evaluate));
    let Round::Commit(transition) = evaluate_round(&mut rounds, "second", false) else { panic!("no transition") };
    assert_eq!(transition.journal.get("pay", 1).unwrap().phase, StepPhase::Unknown);
    assert_eq!(transition.calls().count(), 0, "it is not started again");
}

#[test]
fn a_call_in_flight_of_this_process_continues() {
    let mut rounds = drive(&run_with_started_call(), Blobs::new());
    let Round::Commit(transition) = evaluate_round(&mut rounds, "first", true) else { panic!("no transition") };
    assert_eq!(transition.calls().map(Call::key).collect::<Vec<_>>(), [("pay".to_owned(), 1)]);
}

#[test]
fn a_missing_value_is_fetched_before_anything_is_committed() {
    let mut run = TestRun::new(json!([
        {"name": "get", "http": {"url": "http://x/"}},
        {"name": "then", "http": {"url": "http://y/", "body": "{{ steps.get.response }}"}},
    ]));
    let long = "x".repeat(5000);
    run.reply("get", 1, &long);
    let mut rounds = drive(&run, Blobs::new());
    let Round::Fetch(missing) = evaluate_round(&mut rounds, "one", false) else { panic!("nothing is missing") };
    for digest in missing {
        let text = run.blobs[&digest].clone();
        rounds.add_value(digest, text);
    }
    assert!(matches!(evaluate_round(&mut rounds, "one", false), Round::Commit(_)));
    assert!(rounds.into_values().values().any(|value| *value == long), "it is cached for the next transition");
}

#[test]
fn a_value_that_is_never_fetched_ends_the_loop_with_an_error() {
    let mut run = TestRun::new(json!([
        {"name": "get", "http": {"url": "http://x/"}},
        {"name": "then", "http": {"url": "http://y/", "body": "{{ steps.get.response }}"}},
    ]));
    run.reply("get", 1, &"x".repeat(5000));
    let mut rounds = drive(&run, Blobs::new());
    for _ in 0..MAX_ROUNDS {
        assert!(matches!(evaluate_round(&mut rounds, "one", false), Round::Fetch(_)));
    }
    let transition = rounds.evaluation()();
    assert!(rounds.on_evaluated(transition, "one", |_| false).unwrap_err().contains("64 rounds"));
}

#[test]
fn a_step_that_costs_too_much_fails_once() {
    let mut rounds = drive(&run_with_started_call(), Blobs::new());
    let part = Part::step("pay", 1);
    let fact = Fact::TooCostly { path: "pay".into(), attempt: 1, why: "too long".into() };
    assert_eq!(rounds.on_stopped(true, None, "too long"), AfterStop::GiveUp, "no step is to blame");
    assert_eq!(rounds.on_stopped(true, Some(&part), "too long"), AfterStop::Failed(Box::new(fact)));
    assert_eq!(rounds.on_stopped(true, Some(&part), "too long"), AfterStop::GiveUp);
}

#[test]
fn a_result_is_kept_until_the_journal_that_holds_it_is_committed() {
    let run = run_with_started_call();
    let key = ("pay".to_owned(), 1);
    let ended = Fact::CallFinished { path: "pay".into(), attempt: 1, result: Ok(Reply::default()), at: run.clock };
    let mut calls = CallsInFlight::default();
    assert!(!calls.finish(key.clone(), ended.clone()), "a result of a call that is not in flight is dropped");
    calls.start(key.clone(), ());
    assert!(calls.contains(&key) && calls.finish(key.clone(), ended.clone()));
    for _ in 0..2 {
        assert_eq!(calls.facts(&run.journal), std::slice::from_ref(&ended), "a lost transition does not lose it");
        assert!(calls.contains(&key), "the call is not started again meanwhile");
    }
    let mut after = run;
    after.take(vec![ended]);
    calls.drop_committed(&after.journal);
    assert!(calls.is_empty());
}

/// Returns a run after a turn in which an agent called each of the tools `tools` once. The calls without a gate are in
/// flight. The calls of `read` and `also` can be repeated, and a call of `write` cannot. A gate asks about `asked`.
fn run_with_calls(tools: &[&str]) -> TestRun {
    let tool = |name: &str| json!({"name": name, "step": format!("{name}-it"), "description": name, "effects": "read"});
    let all_tools = ["read", "also", "write", "asked"].map(tool);
    let get = |name: &str| json!({"name": format!("{name}-it"), "http": {"url": "http://x/"}});
    let mut run = TestRun::of(json!({
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": [{"name": "clerk", "tools": ["read", "also", "write", "asked"]}],
        "tools": all_tools,
        "gates": [{"name": "one", "type": "specificTools", "tools": ["asked"], "hitl": gate(json!({}))}],
        "steps": [
            agent("handle", "clerk", "help"), get("read"), get("also"), get("asked"),
            {"name": "write-it", "http": {"url": "http://x/", "method": "POST"}},
        ],
    }));
    let calls: Vec<_> = tools.iter().map(|tool| json!({"id": tool, "tool": tool, "arguments": "{}"})).collect();
    let facts = BTreeMap::from([("calls".to_owned(), calls.len().to_string())]);
    let reply = Reply { response: json!({"text": "", "calls": calls}), facts, ..Reply::default() };
    run.take(vec![Fact::CallFinished { path: "handle".into(), attempt: 1, result: Ok(reply), at: run.clock }]);
    start_all(&mut run);
    run
}

/// Marks every call of the transition as started by the process `first`.
fn start_all(run: &mut TestRun) {
    let keys: Vec<_> = run.transition.calls().map(Call::key).collect();
    keys.into_iter().for_each(|(path, attempt)| run.transition.mark_started(&path, attempt, "first"));
    run.commit();
}

/// Returns the number and bytes of the results that can wait for a commit, after `calls` of the turn ended with `text`.
fn results_that_can_wait(run: &TestRun, calls: &[&str], text: &str) -> Option<(usize, usize)> {
    let end = |call: &&str| {
        let reply = Reply { response: json!(text), ..Reply::default() };
        let path = format!("handle/.turn-1/{call}");
        Fact::CallFinished { path, attempt: 1, result: Ok(reply), at: run.clock }
    };
    let now = Now::new(run.clock, "epoch");
    let facts = calls.iter().map(end).collect();
    advance(&run.plan, run.control, run.journal.clone(), facts, &run.blobs, &now)
        .repeatable_ends(&run.journal, &run.plan)
}

#[test]
fn the_end_of_a_repeatable_call_can_wait_while_other_calls_run() {
    let run = run_with_calls(&["read", "also", "write"]);
    assert_eq!(results_that_can_wait(&run, &[".call-1/read-it"], "found"), Some((1, 5)));
    assert_eq!(
        results_that_can_wait(&run, &[".call-1/read-it", ".call-2/also-it"], &"x".repeat(2000)),
        Some((2, 4000))
    );
    assert_eq!(results_that_can_wait(&run, &[], ""), None, "nothing ended");
}

#[test]
fn the_end_of_a_call_that_must_not_be_repeated_cannot_wait() {
    let run = run_with_calls(&["read", "write", "also"]);
    assert_eq!(results_that_can_wait(&run, &[".call-2/write-it"], "done"), None);
    assert_eq!(
        results_that_can_wait(&run, &[".call-1/read-it", ".call-2/write-it"], "done"),
        None,
        "nor beside one that can"
    );
}

#[test]
fn the_end_of_a_call_that_people_approved_cannot_wait() {
    let mut run = run_with_calls(&["read", "asked"]);
    run.approve("handle/.turn-1/.call-2/.gate");
    start_all(&mut run);
    assert_eq!(results_that_can_wait(&run, &[".call-2/asked-it"], "done"), None);
    assert_eq!(results_that_can_wait(&run, &[".call-1/read-it"], "done"), Some((1, 4)));
}

#[test]
fn an_end_after_which_something_starts_cannot_wait() {
    let run = run_with_calls(&["read", "also"]);
    assert_eq!(
        results_that_can_wait(&run, &[".call-1/read-it", ".call-2/also-it"], "found"),
        None,
        "the next turn starts"
    );
}

#[test]
fn the_end_of_a_step_without_an_agent_cannot_wait() {
    let step = |branch: &str| json!({"name": "get", "branch": branch, "http": {"url": "http://x/"}});
    let mut run = TestRun::of(json!({"pattern": {"parallel": {}}, "steps": [step("one"), step("two")]}));
    start_all(&mut run);
    let reply = Reply { response: json!("found"), ..Reply::default() };
    let end = Fact::CallFinished { path: "one/get".into(), attempt: 1, result: Ok(reply), at: run.clock };
    let now = Now::new(run.clock, "epoch");
    let transition = advance(&run.plan, run.control, run.journal.clone(), vec![end], &run.blobs, &now);
    assert_eq!(transition.journal.get("one/get", 1).unwrap().phase, StepPhase::Succeeded);
    assert_eq!(transition.repeatable_ends(&run.journal, &run.plan), None);
}

#[test]
fn the_oldest_result_is_returned_while_further_results_follow() {
    let mut calls = CallsInFlight::<()>::default();
    let at = |seconds| crate::tests::test_run::start().after(std::time::Duration::from_secs(seconds));
    let key = |name: &str| (name.to_owned(), 1);
    let end = |name: &str, seconds| Fact::CallFinished {
        path: name.into(),
        attempt: 1,
        result: Ok(Reply::default()),
        at: at(seconds),
    };
    ["a", "b", "c"].into_iter().for_each(|name| calls.start(key(name), ()));
    assert_eq!(calls.oldest_result(0), None);
    calls.finish(key("b"), end("b", 7));
    calls.finish(key("a"), end("a", 9));
    assert_eq!(calls.oldest_result(2), Some(at(7)));
    calls.finish(key("c"), end("c", 11));
    assert_eq!(calls.oldest_result(3), None, "nothing follows");
    assert_eq!(calls.oldest_result(2), Some(at(7)), "the last one has ended since the others were taken");
}
