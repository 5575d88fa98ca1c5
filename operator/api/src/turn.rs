//! The response of a turn of an agent that called tools: the JSON that the executor writes into the journal, and that the engine
//! and clients read; and the path of a turn.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A turn with calls. Its `Debug` shows lengths only: it is as confidential as an answer.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnCalls {
    /// The text of the model beside its calls; empty where it wrote none.
    pub text: String,
    /// The calls, in the order of the model.
    pub calls: Vec<RequestedCall>,
    /// Whether the answer was cut at its largest length, so that its last call can be incomplete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A call of a tool, as the model asked for it. Its `Debug` shows lengths only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// The id that the model gave it, at most 128 characters; empty where it gave none. Not necessarily unique.
    pub id: String,
    /// The name of the tool on the wire, at most 128 characters; not necessarily that of a tool that was offered.
    pub tool: String,
    /// The arguments.
    #[serde(flatten)]
    pub arguments: RequestedArguments,
}

/// The arguments of a call: text of the model, which is not necessarily JSON.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestedArguments {
    /// The text as the model wrote it, at most 64 KiB.
    #[serde(rename = "arguments")]
    Text(String),
    /// The length in bytes of a text that was not kept: longer than 64 KiB, or more than the whole answer may have.
    #[serde(rename = "tooLong")]
    TooLong(usize),
}

impl TurnCalls {
    /// The largest number of calls that are kept of one turn. Further ones are dropped: an answer within its token limit has few,
    /// and the engine makes fewer still.
    pub const MAX_CALLS: usize = 256;

    /// Returns the calls that have a place in the turn with this number, each with an id of its own: one without an id gets one, and a
    /// further one with an id of this turn is dropped, because it could not be answered.
    #[must_use]
    pub fn distinct(self, turn: i32) -> Vec<RequestedCall> {
        let mut distinct: Vec<RequestedCall> = Vec::new();
        for (at, mut call) in self.calls.into_iter().enumerate() {
            if call.id.is_empty() {
                call.id = format!("turn-{turn}-call-{}", at + 1);
            }
            if distinct.iter().all(|known| known.id != call.id) {
                distinct.push(call);
            }
        }
        distinct
    }
}

impl RequestedArguments {
    /// The longest arguments that are kept, in bytes.
    pub const MAX_BYTES: usize = 64 * 1024;
}

/// Splits the path of a record or a gate at its innermost call: the turn of the agent, and the number of the call.
#[must_use]
pub fn turn_of(path: &str) -> Option<(&str, u32)> {
    let at = path.rfind("/.call-")?;
    let (turn, rest) = path.split_at(at);
    let is_turn = turn.rsplit('/').next().is_some_and(|name| name.starts_with(".turn-"));
    let digits = rest.trim_start_matches("/.call-").split(['/', '#']).next()?;
    Some((turn, digits.parse().ok()?)).filter(|_| is_turn)
}

impl fmt::Debug for TurnCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnCalls").field("bytes", &self.text.len()).field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl fmt::Debug for RequestedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestedCall").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

impl fmt::Debug for RequestedArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::TooLong(length) => write!(f, "TooLong({length})"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_turn_is_read_as_it_was_written() {
        let call = |arguments| RequestedCall { id: "a".into(), tool: "letter".into(), arguments };
        let calls =
            vec![call(RequestedArguments::Text("no JSON".into())), call(RequestedArguments::TooLong(5_242_880))];
        let turn = TurnCalls { text: "I write.".into(), calls, truncated: false };
        let written = json!({"text": "I write.", "calls": [
            {"id": "a", "tool": "letter", "arguments": "no JSON"}, {"id": "a", "tool": "letter", "tooLong": 5_242_880},
        ]});
        assert_eq!(serde_json::to_value(&turn).unwrap(), written);
        assert_eq!(serde_json::from_value::<TurnCalls>(written).unwrap(), turn);
        let cut = TurnCalls { truncated: true, ..turn };
        assert_eq!(serde_json::to_value(&cut).unwrap()["truncated"], true);
    }

    #[test]
    fn the_turn_of_a_call_is_the_innermost_one() {
        assert_eq!(turn_of("handle/.turn-2/.call-11/.gate#2"), Some(("handle/.turn-2", 11)));
        let nested = "handle/.turn-2/.call-1/critic/.turn-1/.call-3/.gate";
        assert_eq!(turn_of(nested), Some(("handle/.turn-2/.call-1/critic/.turn-1", 3)));
        for other in ["review", "handle/.call-1/.gate", "handle/.turn-2/.gate", "handle/.turn-2/.call-x/.gate"] {
            assert_eq!(turn_of(other), None, "{other}");
        }
    }

    #[test]
    fn debug_shows_lengths_only() {
        let call = RequestedCall {
            id: "call_1".into(),
            tool: "letter".into(),
            arguments: RequestedArguments::Text("ACME".into()),
        };
        let shown = format!("{:?}", TurnCalls { text: "secret".into(), calls: vec![call], truncated: false });
        assert!(shown.contains("Text(4 bytes)"), "{shown}");
        assert!(["ACME", "letter", "secret"].iter().all(|word| !shown.contains(word)), "{shown}");
    }
}
