//! The driver of transitions: what is lost, fetched and kept between an evaluation and its commit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;

use super::*;
use crate::{tests::test_run::TestRun, transition::Reply};

/// A run whose only call must not be repeated and was started by the process `first`.
fn started() -> TestRun {
    let mut run = TestRun::new(json!([{"name": "pay", "http": {"url": "http://x/", "method": "POST"}}]));
    run.transition.mark_started("pay", 1, "first");
    run.commit();
    assert_eq!((run.record("pay").phase, run.record("pay").by.as_deref()), (StepPhase::Started, Some("first")));
    run
}

fn driven(run: &TestRun, values: Blobs) -> TransitionLoop {
    let now = Now { at: run.clock, guard_epoch: "epoch".into() };
    TransitionLoop::new(Arc::new(run.plan.clone()), run.control, run.journal.clone(), Vec::new(), Arc::new(values), now)
}

fn round(rounds: &mut TransitionLoop, process: &str, in_flight: bool) -> Round {
    let transition = rounds.evaluation()();
    rounds.on_evaluated(transition, process, |_| in_flight).unwrap()
}

#[test]
fn a_call_of_an_earlier_process_that_must_not_be_repeated_has_an_unknown_outcome() {
    let mut rounds = driven(&started(), Blobs::new());
    assert!(matches!(round(&mut rounds, "second", false), Round::Evaluate));
    let Round::Commit(transition) = round(&mut rounds, "second", false) else { panic!("no transition") };
    assert_eq!(transition.journal.get("pay", 1).unwrap().phase, StepPhase::Unknown);
    assert_eq!(transition.calls().count(), 0, "it is not started again");
}

#[test]
fn a_call_of_this_process_goes_on() {
    let mut rounds = driven(&started(), Blobs::new());
    let Round::Commit(transition) = round(&mut rounds, "first", true) else { panic!("no transition") };
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
    let mut rounds = driven(&run, Blobs::new());
    let Round::Fetch(missing) = round(&mut rounds, "one", false) else { panic!("nothing is missing") };
    for digest in missing {
        let text = run.blobs[&digest].clone();
        rounds.add_value(digest, text);
    }
    assert!(matches!(round(&mut rounds, "one", false), Round::Commit(_)));
    assert!(rounds.into_values().values().any(|value| *value == long), "it is cached for the next transition");
}

#[test]
fn a_value_that_is_never_fetched_ends_the_loop_with_an_error() {
    let mut run = TestRun::new(json!([
        {"name": "get", "http": {"url": "http://x/"}},
        {"name": "then", "http": {"url": "http://y/", "body": "{{ steps.get.response }}"}},
    ]));
    run.reply("get", 1, &"x".repeat(5000));
    let mut rounds = driven(&run, Blobs::new());
    for _ in 0..MAX_ROUNDS {
        assert!(matches!(round(&mut rounds, "one", false), Round::Fetch(_)));
    }
    let transition = rounds.evaluation()();
    assert!(rounds.on_evaluated(transition, "one", |_| false).unwrap_err().contains("64 rounds"));
}

#[test]
fn a_step_that_costs_too_much_is_blamed_once() {
    let mut rounds = driven(&started(), Blobs::new());
    let part = Part::step("pay", 1);
    let fact = Fact::TooCostly { path: "pay".into(), attempt: 1, why: "too long".into() };
    assert_eq!(rounds.on_stopped(true, None, "too long"), AfterStop::GiveUp, "no step is to blame");
    assert_eq!(rounds.on_stopped(true, Some(&part), "too long"), AfterStop::Failed(fact));
    assert_eq!(rounds.on_stopped(true, Some(&part), "too long"), AfterStop::GiveUp);
}

#[test]
fn a_result_is_kept_until_the_journal_that_holds_it_is_committed() {
    let run = started();
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
    calls.committed(&after.journal);
    assert!(calls.is_empty());
}
