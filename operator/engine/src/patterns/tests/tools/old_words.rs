//! Tests of errors that an earlier version of the operator worded differently. A replay uses the recorded wording for
//! the agent, because the digests of inputs contain it.

use serde_json::json;
use signoff_api::{Verdict, journal::StepRecord};

use super::{GATE, gates, money, result, run, spec, turn, with_boss};
use crate::{
    Journal,
    tests::test_run::{TestRun, decided},
};

const OLD_MESSAGE: &str = "the words of an earlier version";
const SUB: &str = "lead/.turn-1/.call-1/sub";

/// Replaces the error message of the record at `path`, and replays the journal up to that record. Checks that this
/// replay and a later one call the turn at `next`.
#[track_caller]
fn replay_with_message(run: &mut TestRun, path: &str, message: &str, next: &str) {
    let last = run.record(path).done.unwrap();
    let records = run.journal.records().iter().filter(|record| record.seq <= last);
    let mut records: Vec<StepRecord> = records.cloned().collect();
    let recorded = records.iter_mut().find(|record| record.path == path).and_then(|record| record.error.as_mut());
    recorded.unwrap().message = message.to_owned();
    run.journal = Journal::new(last, records);
    run.take(Vec::new());
    assert_eq!(run.calls(), [format!("{next}@1")]);
    run.wait(1);
    assert_eq!(run.calls(), [format!("{next}@1")]);
}

/// Returns a run in which an agent delegates to another one, whose answers have a schema.
fn run_with_delegation() -> TestRun {
    let mut spec = with_boss(spec(gates(json!([]))));
    spec["steps"][3]["outputSchema"] = json!({"type": "object", "required": ["stars"]});
    spec["steps"][3]["onError"] = json!("continue");
    spec["agents"][0]["limits"] = json!({"turns": 2});
    let mut run = TestRun::of(spec);
    turn(&mut run, "lead", &[("c1", "delegate", r#"{"task":"rate it"}"#)]);
    run
}

#[test]
fn a_recorded_malformed_answer_of_a_called_agent_keeps_its_wording() {
    let mut run = run_with_delegation();
    for path in [SUB.to_owned(), format!("{SUB}/.ask-2"), format!("{SUB}/.ask-3")] {
        run.reply(&path, 1, "good");
    }
    let tool_result = result(&run, "lead/.turn-2", "c1");
    assert!(tool_result.contains("its answer is not as it should be"), "{tool_result}");
    replay_with_message(&mut run, &format!("{SUB}/.answer"), OLD_MESSAGE, "lead/.turn-2");
    assert_eq!(result(&run, "lead/.turn-2", "c1"), format!("Error: {OLD_MESSAGE}"));
}

#[test]
fn a_recorded_turn_limit_of_a_called_agent_keeps_its_wording() {
    let mut run = run_with_delegation();
    turn(&mut run, SUB, &[("n1", "lookup", "{}")]);
    turn(&mut run, &format!("{SUB}/.turn-2"), &[("n2", "lookup", r#"{"name":"b"}"#)]);
    let tool_result = result(&run, "lead/.turn-2", "c1");
    assert!(tool_result.contains("its limit is 2 turns"), "{tool_result}");
    replay_with_message(&mut run, &format!("{SUB}/.answer"), OLD_MESSAGE, "lead/.turn-2");
    assert_eq!(result(&run, "lead/.turn-2", "c1"), format!("Error: {OLD_MESSAGE}"));
}

#[test]
fn calls_beyond_a_recorded_limit_keep_the_wording_of_the_first() {
    let mut spec = spec(gates(json!([])));
    spec["agents"][0]["limits"] = json!({"calls": 1});
    let mut run = TestRun::of(spec);
    let [a, b, c] = ["a", "b", "c"].map(|name| json!({"name": name}).to_string());
    turn(&mut run, "handle", &[("c1", "lookup", &a), ("c2", "lookup", &b), ("c3", "lookup", &c)]);
    let results = [result(&run, "handle/.turn-2", "c2"), result(&run, "handle/.turn-2", "c3")];
    assert!(results.iter().all(|result| result == "Error: the limit of 1 calls is reached: answer with what you have"));
    let recorded = format!("{OLD_MESSAGE} (1 more calls after it are not made)");
    replay_with_message(&mut run, "handle/.turn-1/.call-2/.check", &recorded, "handle/.turn-2");
    for id in ["c2", "c3"] {
        assert_eq!(result(&run, "handle/.turn-2", id), format!("Error: {OLD_MESSAGE}"));
    }
}

#[test]
fn a_recorded_refusal_of_a_rejected_call_keeps_its_wording() {
    let mut run = run(json!([money()]));
    let call = r#"{"amount":1}"#;
    turn(&mut run, "handle", &[("c1", "refund", call)]);
    run.decide(GATE, decided(Verdict::Reject));
    turn(&mut run, "handle/.turn-2", &[("c2", "refund", call)]);
    replay_with_message(&mut run, "handle/.turn-2/.call-1/.check", OLD_MESSAGE, "handle/.turn-3");
    assert_eq!(result(&run, "handle/.turn-3", "c2"), OLD_MESSAGE);
}

#[test]
fn a_recorded_refusal_of_a_rejected_tool_keeps_its_wording() {
    let mut run = run(json!([money()]));
    for number in 1..=4 {
        let path = if number == 1 { "handle".to_owned() } else { format!("handle/.turn-{number}") };
        turn(&mut run, &path, &[(&format!("c{number}"), "refund", &format!(r#"{{"amount":{number}}}"#))]);
        if number < 4 {
            run.decide(&format!("handle/.turn-{number}/.call-1/.gate"), decided(Verdict::Reject));
        }
    }
    replay_with_message(&mut run, "handle/.turn-4/.call-1/.check", OLD_MESSAGE, "handle/.turn-5");
    assert_eq!(result(&run, "handle/.turn-5", "c4"), format!("Refused: {OLD_MESSAGE}; do not call it again"));
}
