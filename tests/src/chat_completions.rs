//! OpenAI's chat completions as a test server answers them, and the tool results in the model's requests.

use std::collections::{BTreeSet, VecDeque};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Returns a completion with a text, calls (each an id, a tool and arguments), and a finish reason.
#[must_use]
pub fn completion(text: Option<&str>, calls: &[(&str, &str, &str)], finish: &str) -> Value {
    let calls: Vec<_> = calls
        .iter()
        .map(|(id, name, arguments)| {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    of_message(&message, finish)
}

/// Returns a completion with a message of the assistant and a finish reason, such as `stop`.
#[must_use]
pub fn of_message(message: &Value, finish: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "test",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    })
}

/// A call in a conversation, with the result that the model gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The id of the call.
    pub id: String,
    /// The tool, as the conversation names it.
    pub tool: String,
    /// The result that the conversation has for the call.
    pub result: String,
}

/// Returns the calls of a request with their results, turn by turn.
///
/// # Errors
/// A call of the conversation does not have exactly one result, results are not in the order of the calls, or two calls
/// have the same id.
pub fn told(request: &Value) -> Result<Vec<Vec<Told>>> {
    let messages = request["messages"].as_array().context("the request has no messages")?;
    let (mut turns, mut ids) = (Vec::new(), BTreeSet::new());
    let mut open: VecDeque<(String, String)> = VecDeque::new();
    for message in messages {
        if message["role"] == "tool" {
            let (id, tool) = open.pop_front().context("a result without a call")?;
            ensure!(message["tool_call_id"] == id.as_str(), "the result of {id} stands elsewhere: {message}");
            let result = message["content"].as_str().context("a result is no text")?.to_owned();
            let turn: &mut Vec<Told> = turns.last_mut().context("a result before any call")?;
            turn.push(Told { id, tool, result });
            continue;
        }
        ensure!(open.is_empty(), "calls without a result: {open:?}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (id, tool) = (text(&call["id"]), text(&call["function"]["name"]));
            ensure!(!id.is_empty() && ids.insert(id.clone()), "the id {id:?} is there twice, or empty");
            open.push_back((id, tool));
        }
        if !open.is_empty() {
            turns.push(Vec::new());
        }
    }
    ensure!(open.is_empty(), "calls without a result: {open:?}");
    Ok(turns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn conversation(ids: &[&str], results: &[&str]) -> Value {
        let calls: Vec<_> =
            ids.iter().map(|id| json!({"id": id, "function": {"name": "t", "arguments": "{}"}})).collect();
        let results = results.iter().map(|id| json!({"role": "tool", "tool_call_id": id, "content": "done"}));
        let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
        json!({"messages": std::iter::once(message).chain(results).collect::<Vec<_>>()})
    }

    #[test]
    fn a_conversation_has_one_result_for_each_call_in_order() {
        assert_eq!(told(&conversation(&["a", "b"], &["a", "b"])).unwrap()[0].len(), 2);
        for (ids, results) in [
            (&["a", "b"][..], &["a"][..]),
            (&["a", "b"], &["b", "a"]),
            (&["a", "a"], &["a", "a"]),
            (&["a"], &["a", "a"]),
            (&[""], &[""]),
        ] {
            assert!(told(&conversation(ids, results)).is_err(), "{ids:?} {results:?}");
        }
    }
}
