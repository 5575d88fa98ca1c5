//! The turn of an agent that called tools, as text: the text of the model, and its calls.
//!
//! It must not show the JSON of the journal as an answer.

use serde::Deserialize;
use serde_json::Value;
use signoff_api::{
    journal::StepRecord,
    turn::{RequestedArguments, RequestedCall, TurnCalls},
};

use super::tree::base;

/// Returns the turn of a record; `None` where it called no tools. A turn whose response is stored elsewhere, or that cannot be read,
/// has no calls here.
pub fn of(record: &StepRecord) -> Option<TurnCalls> {
    record.calls_tools().then(|| {
        let read = |response: &Value| match response {
            Value::String(text) => serde_json::from_str(text).ok(),
            other => TurnCalls::deserialize(other).ok(),
        };
        record.response.as_ref().and_then(|response| read(&response.0)).unwrap_or_default()
    })
}

/// Returns the calls as lines: the number, the tool and the arguments as the model wrote them.
pub fn lines(turn: &TurnCalls) -> String {
    let line = |(at, call): (usize, &RequestedCall)| {
        let arguments = match &call.arguments {
            RequestedArguments::Text(arguments) => arguments.clone(),
            RequestedArguments::TooLong(bytes) => format!("(arguments of {bytes} bytes: too long)"),
        };
        format!("{}. {} {arguments}", at + 1, call.tool)
    };
    let mut lines: Vec<_> = turn.calls.iter().enumerate().map(line).collect();
    lines.extend(turn.truncated.then(|| "The answer was cut: none of its calls ran.".to_owned()));
    lines.join("\n")
}

/// Returns the paths of the calls of a turn, as rows have them; none where it called no tools.
pub fn paths_of_calls(record: &StepRecord) -> impl Iterator<Item = String> {
    let turn = of_path(&base(&record.path));
    let calls = of(record).map_or(0, |turn| turn.calls.len());
    (1..=calls).map(move |at| format!("{turn}/.call-{at}"))
}

/// Returns the path of the turn of a record: that of an agent is its first turn.
pub fn of_path(path: &str) -> String {
    if number(path).is_some() { path.to_owned() } else { format!("{path}/.turn-1") }
}

/// Whether the turn that reads the results of a turn has begun.
pub fn is_answered(records: &[StepRecord], turn: &str) -> bool {
    let Some((agent, number)) = number(turn) else { return false };
    let next = format!("{agent}/.turn-{}", number + 1);
    records.iter().any(|record| base(&record.path) == next)
}

/// Returns the agent and the number of a turn.
fn number(path: &str) -> Option<(&str, u32)> {
    let (agent, number) = path.rsplit_once("/.turn-")?;
    Some((agent, number.parse().ok()?))
}

/// Returns the calls of the latest attempt at a turn; the first turn is the record of the agent itself.
pub fn calls_at(records: &[StepRecord], turn: &str) -> Vec<RequestedCall> {
    let own = turn.strip_suffix("/.turn-1").unwrap_or(turn);
    let attempts = records.iter().filter(|record| record.path == own);
    attempts.max_by_key(|record| record.attempt).and_then(of).unwrap_or_default().calls
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
    fn a_turn_without_calls_is_an_answer_and_one_that_cannot_be_read_shows_nothing() {
        let text = json!({"text": "x", "calls": []}).to_string();
        assert_eq!(of(&record(&json!(text), &json!({}))), None);
        assert_eq!(of(&record(&json!("{\"text\": "), &json!({"calls": "1"}))), Some(TurnCalls::default()));
    }
}
