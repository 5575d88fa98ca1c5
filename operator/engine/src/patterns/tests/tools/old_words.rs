//! Tests of errors that an earlier version of the operator worded differently. A replay uses the recorded wording for
//! the agent, because the digests of inputs contain it.

use serde_json::json;
use signoff_api::{Verdict, journal::StepRecord};

use super::{GATE, gates, money, result, run, spec, turn, with_boss};
use crate::{
    Journal,
    tests::test_run::{TestRun, decided},
};

const OLD: &str = "the words of an earlier version";
const SUB: &str = "lead/.turn-1/.call-1/sub";

/// Replays the journal up to the record at a path, with another message of its error. The turn at `next` follows, and a
/// later replay repeats it.
#[track_caller]
fn replay(run: &mut TestRun, path: &str, message: &str, next: &str) {
    let last = run.record(path).done.unwrap();
    let records = run.journal.records().iter().filter(|record| record.seq <= last);
    let mut records: Vec<StepRecord> = records.cloned().collect();
    let recorded = records.iter_mut().find(|record| record.path == path).and_then(|record| record.error.as_mut());
    recorded.unwrap().message = message.to_owned();
    run.journal = Journal::new(last, records);
    run.take(Vec::new());
    assert_eq!(run.calls(), [format!("{next}@1")]);
    run.later(1);
    assert_eq!(run.calls(), [format!("{next}@1")]);
}

/// Returns a run in which an agent delegates to another one, whose answers have a schema.
fn delegated() -> TestRun {
    let mut spec = with_boss(spec(gates(json!([]))));
    spec["steps"][3]["outputSchema"] = json!({"type": "object", "required": ["stars"]});
    spec["steps"][3]["onError"] = json!("continue");
    spec["agents"][0]["limits"] = json!({"turns": 2});
    let mut run = TestRun::of(spec);
    turn(&mut run, "lead", &[("c1", "delegate", r#"{"task":"rate it"}"#)]);
    run
}

#[test]
fn a_malformed_answer_of_a_called_agent_is_told_as_it_was_recorded() {
    let mut run = delegated();
    for path in [SUB.to_owned(), format!("{SUB}/.ask-2"), format!("{SUB}/.ask-3")] {
        run.reply(&path, 1, "good");
    }
    let told = result(&run, "lead/.turn-2", "c1");
    assert!(told.contains("its answer is not as it should be"), "{told}");
    replay(&mut run, &format!("{SUB}/.answer"), OLD, "lead/.turn-2");
    assert_eq!(result(&run, "lead/.turn-2", "c1"), format!("Error: {OLD}"));
}

#[test]
fn a_called_agent_at_its_limit_of_turns_is_told_as_it_was_recorded() {
    let mut run = delegated();
    turn(&mut run, SUB, &[("n1", "lookup", "{}")]);
    turn(&mut run, &format!("{SUB}/.turn-2"), &[("n2", "lookup", r#"{"name":"b"}"#)]);
    let told = result(&run, "lead/.turn-2", "c1");
    assert!(told.contains("its limit is 2 turns"), "{told}");
    replay(&mut run, &format!("{SUB}/.answer"), OLD, "lead/.turn-2");
    assert_eq!(result(&run, "lead/.turn-2", "c1"), format!("Error: {OLD}"));
}

#[test]
fn calls_beyond_a_limit_are_told_as_it_was_recorded_for_the_first_of_them() {
    let mut spec = spec(gates(json!([])));
    spec["agents"][0]["limits"] = json!({"calls": 1});
    let mut run = TestRun::of(spec);
    let [a, b, c] = ["a", "b", "c"].map(|name| json!({"name": name}).to_string());
    turn(&mut run, "handle", &[("c1", "lookup", &a), ("c2", "lookup", &b), ("c3", "lookup", &c)]);
    let told = [result(&run, "handle/.turn-2", "c2"), result(&run, "handle/.turn-2", "c3")];
    assert!(told.iter().all(|told| told == "Error: the limit of 1 calls is reached: answer with what you have"));
    let recorded = format!("{OLD} (1 more calls after it are not made)");
    replay(&mut run, "handle/.turn-1/.call-2/.check", &recorded, "handle/.turn-2");
    for id in ["c2", "c3"] {
        assert_eq!(result(&run, "handle/.turn-2", id), format!("Error: {OLD}"));
    }
}

#[test]
fn a_call_that_people_rejected_before_is_told_as_it_was_recorded() {
    let mut run = run(json!([money()]));
    let call = r#"{"amount":1}"#;
    turn(&mut run, "handle", &[("c1", "refund", call)]);
    run.decide(GATE, decided(Verdict::Reject));
    turn(&mut run, "handle/.turn-2", &[("c2", "refund", call)]);
    replay(&mut run, "handle/.turn-2/.call-1/.check", OLD, "handle/.turn-3");
    assert_eq!(result(&run, "handle/.turn-3", "c2"), OLD);
}

#[test]
fn a_tool_that_was_rejected_too_often_is_told_as_it_was_recorded() {
    let mut run = run(json!([money()]));
    for number in 1..=4 {
        let path = if number == 1 { "handle".to_owned() } else { format!("handle/.turn-{number}") };
        turn(&mut run, &path, &[(&format!("c{number}"), "refund", &format!(r#"{{"amount":{number}}}"#))]);
        if number < 4 {
            run.decide(&format!("handle/.turn-{number}/.call-1/.gate"), decided(Verdict::Reject));
        }
    }
    replay(&mut run, "handle/.turn-4/.call-1/.check", OLD, "handle/.turn-5");
    assert_eq!(result(&run, "handle/.turn-5", "c4"), format!("Refused: {OLD}; do not call it again"));
}
