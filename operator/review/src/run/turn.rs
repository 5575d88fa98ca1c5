//! The turn of an agent that called tools, as text: the text of the model, and its calls.

use serde::Deserialize;
use serde_json::Value;
use signoff_api::{
    RecordPath, Seq,
    journal::StepRecord,
    record_path::RecordPathBuf,
    turn::{RequestedArguments, RequestedCall, TurnCalls},
};
use signoff_engine::tools::MOST_CALLS;

use super::tree::base;

/// Returns the turn of a record, or `None` if it called no tools. A turn whose response is in a Blob, or cannot be
/// parsed, has no calls here.
pub fn of(record: &StepRecord) -> Option<TurnCalls> {
    record.calls_tools().then(|| {
        let read = |response: &Value| match response {
            Value::String(text) => serde_json::from_str(text).ok(),
            other => TurnCalls::deserialize(other).ok(),
        };
        record.response.as_ref().and_then(|response| read(&response.0)).unwrap_or_default()
    })
}

/// Returns the calls of a turn as lines: the number, the tool and the arguments as the model wrote them. If the answer
/// was cut, the last line says so.
pub fn lines(turn: &TurnCalls) -> String {
    let line = |(index, call): (usize, &RequestedCall)| {
        let arguments = match &call.arguments {
            RequestedArguments::Text(arguments) => arguments.clone(),
            RequestedArguments::TooLong(bytes) => format!("(arguments of {bytes} bytes: too long)"),
        };
        format!("{}. {} {arguments}", index + 1, call.tool)
    };
    let mut lines: Vec<_> = turn.calls.iter().enumerate().map(line).collect();
    lines.extend(turn.truncated.then(|| "The answer was cut: none of its calls ran.".to_owned()));
    lines.join("\n")
}

/// A call of a turn.
pub struct CallOfTurn {
    /// The path of the call, as rows have it.
    pub path: String,
    /// The tool, as the model named it.
    pub tool: String,
    /// Whether the call was refused before it began. Such a call has no record, and its turn was answered or has too
    /// many calls.
    pub is_refused: bool,
}

/// Returns the calls of the turn of a record, in the order of the model. Empty if the turn called no tools, or if its
/// response cannot be read here.
pub fn calls(records: &[StepRecord], record: &StepRecord) -> Vec<CallOfTurn> {
    let Some(turn) = of(record) else { return Vec::new() };
    let path = of_path(&base(&record.path));
    let is_answered = is_answered(records, path.path(), record.seq);
    let later_records = records.iter().filter(|other| other.seq > record.seq);
    let later_paths: Vec<_> = later_records.map(|other| base(&other.path)).collect();
    let has_record = |call: &str| later_paths.iter().any(|path| RecordPath::new(path).beneath(call).is_some());
    let calls = turn.calls.into_iter().enumerate();
    let call = |(index, call): (usize, RequestedCall)| {
        let path = path.path().call_at(index).into_string();
        CallOfTurn { is_refused: (is_answered || index >= MOST_CALLS) && !has_record(&path), path, tool: call.tool }
    };
    calls.map(call).collect()
}

/// Returns the path of the turn of a record. The record of an agent is its first turn.
pub fn of_path(path: &str) -> RecordPathBuf {
    let path = RecordPath::new(path);
    if path.is_turn() { path.to_buf() } else { path.turn(1) }
}

/// Whether the next turn of the agent, which reads the results of `turn`, has begun. `began`: the number of the event
/// that started `turn`.
pub fn is_answered(records: &[StepRecord], turn: RecordPath<'_>, began: Seq) -> bool {
    let Some((agent, number)) = turn.agent_of_turn() else { return false };
    let next = agent.turn(i64::from(number) + 1);
    records.iter().any(|record| record.seq > began && base(&record.path) == *next)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn record(response: &Value, facts: &Value) -> StepRecord {
        serde_json::from_value(json!({
            "path": "handle", "attempt": 1, "kind": "agent", "phase": "Succeeded", "seq": 1, "at": "2026-11-22T10:00:00Z",
            "facts": facts, "response": response,
        }))
        .unwrap()
    }

    #[test]
    fn the_calls_of_a_turn_are_lines_and_no_json_of_the_journal() {
        let response = json!({"text": "I look it up.", "truncated": true, "calls": [
            {"id": "call_1", "tool": "lookup", "arguments": "{\"id\": 1}"}, {"id": "call_2", "tool": "letter", "tooLong": 70000},
        ]});
        for response in [response.clone(), Value::String(response.to_string())] {
            let turn = of(&record(&response, &json!({"calls": "2"}))).unwrap();
            assert_eq!(turn.text, "I look it up.");
            let expected = "1. lookup {\"id\": 1}\n2. letter (arguments of 70000 bytes: too long)\nThe answer was cut: none of its calls ran.";
            assert_eq!(lines(&turn), expected);
        }
    }

    #[test]
    fn calls_beyond_the_limit_of_a_turn_are_refused_before_the_turn_is_answered() {
        let requested: Vec<_> =
            (1..=40).map(|id| json!({"id": id.to_string(), "tool": "pay", "arguments": "{}"})).collect();
        let turn = record(&json!({"text": "", "calls": requested}), &json!({"calls": "40"}));
        let check = StepRecord {
            path: "handle/.turn-1/.call-33/.check".to_owned(),
            seq: Seq::from(2),
            ..record(&json!(""), &json!({}))
        };
        let all = calls(&[turn.clone(), check], &turn);
        let refused: Vec<_> = all.iter().filter(|call| call.is_refused).map(|call| call.path.as_str()).collect();
        // The record of the first refused call has the reason.
        assert_eq!((all.len(), refused.len(), refused[0]), (40, 7, "handle/.turn-1/.call-34"));
    }

    #[test]
    fn a_turn_without_calls_is_an_answer_and_an_unreadable_turn_is_empty() {
        let text = json!({"text": "x", "calls": []}).to_string();
        assert_eq!(of(&record(&json!(text), &json!({}))), None);
        assert_eq!(of(&record(&json!("{\"text\": "), &json!({"calls": "1"}))), Some(TurnCalls::default()));
    }
}
