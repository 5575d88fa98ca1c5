//! The response of a turn of an agent that called tools: the JSON that the executor writes into the journal, and that
//! the engine and clients read; and the path of a turn.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::record_path::RecordPath;

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
    /// The number of further calls that were not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: usize,
}

/// The parts of an answer that only the provider that wrote them can read, such as thinking, its signatures and
/// encrypted reasoning. They go back to it unchanged with the calls of the answer, and to no other provider or model.
/// The journal refers to them as a value of their own, which no page shows. At most 128 KiB, written as JSON. Its
/// `Debug` shows lengths only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpaqueParts {
    /// The name of the provider.
    pub provider: String,
    /// The name of the model at the provider.
    pub model: String,
    /// The parts, in the order of the answer.
    pub parts: Vec<OpaquePart>,
}

/// A part of an answer that only its provider can read, as JSON text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OpaquePart {
    /// An item of its own.
    Item(String),
    /// An object with fields of the message.
    Message(String),
    /// The number of a call, from 0, and an object with fields of it.
    Call(usize, String),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
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
    /// The maximum number of kept calls of one turn. Further ones are only counted. An answer within its token limit
    /// has few calls, and the engine makes even fewer.
    pub const MAX_CALLS: usize = 256;

    /// The characters that are kept of an id to which a number is added.
    const ID_BEGINNING: usize = 112;

    /// Returns a turn as it is recorded: at most [`TurnCalls::MAX_CALLS`] calls, each with an id of its own. A call
    /// without an id, or with the id of an earlier call of the turn, gets a new one, so that each has exactly one
    /// result. `dropped`: the number of calls that are not kept already.
    #[must_use]
    pub fn recorded(text: String, calls: Vec<RequestedCall>, truncated: bool, dropped: usize) -> Self {
        let dropped = dropped + calls.len().saturating_sub(Self::MAX_CALLS);
        let given: BTreeSet<String> = calls.iter().map(|call| call.id.clone()).collect();
        let mut used: BTreeSet<String> = BTreeSet::new();
        let name = |(at, mut call): (usize, RequestedCall)| {
            if call.id.is_empty() || used.contains(&call.id) {
                // An id that the model gave to another call is not taken from that one.
                let beginning: String = call.id.chars().take(Self::ID_BEGINNING).collect();
                let first =
                    if beginning.is_empty() { format!("call-{}", at + 1) } else { format!("{beginning}-{}", at + 1) };
                let mut id = first.clone();
                let mut number = 1;
                while used.contains(&id) || given.contains(&id) {
                    number += 1;
                    id = format!("{first}-{number}");
                }
                call.id = id;
            }
            used.insert(call.id.clone());
            call
        };
        let calls = calls.into_iter().take(Self::MAX_CALLS).enumerate().map(name).collect();
        Self { text, calls, truncated, dropped }
    }
}

impl OpaqueParts {
    /// Returns the bytes of the parts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.json().len()).sum()
    }
}

impl OpaquePart {
    /// Returns the JSON text.
    #[must_use]
    pub fn json(&self) -> &str {
        match self {
            Self::Item(json) | Self::Message(json) | Self::Call(_, json) => json,
        }
    }
}

impl RequestedArguments {
    /// The maximum size of kept arguments, in bytes.
    pub const MAX_BYTES: usize = 64 * 1024;
    /// The maximum nesting of objects and arrays; the arguments themselves are level 1.
    pub const MAX_LEVELS: usize = 64;
}

/// Splits the path of a record or a gate at its innermost call: the turn of the agent, and the number of the call.
#[must_use]
pub fn turn_of(path: &str) -> Option<(&str, u32)> {
    RecordPath::new(path).call_around().map(|call| (call.turn.as_str(), call.number))
}

impl fmt::Debug for TurnCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnCalls").field("bytes", &self.text.len()).field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl fmt::Debug for OpaqueParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpaqueParts({} bytes)", self.bytes())
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
        let turn = TurnCalls { text: "I write.".into(), calls, truncated: false, dropped: 0 };
        let written = json!({"text": "I write.", "calls": [
            {"id": "a", "tool": "letter", "arguments": "no JSON"}, {"id": "a", "tool": "letter", "tooLong": 5_242_880},
        ]});
        assert_eq!(serde_json::to_value(&turn).unwrap(), written);
        assert_eq!(serde_json::from_value::<TurnCalls>(written).unwrap(), turn);
        let cut = TurnCalls { truncated: true, ..turn };
        assert_eq!(serde_json::to_value(&cut).unwrap()["truncated"], true);
    }

    #[test]
    fn every_call_of_a_recorded_turn_has_an_id_of_its_own() {
        let ids = |given: &[&str]| {
            let call = |id: &&str| RequestedCall {
                id: (*id).to_owned(),
                tool: "pay".into(),
                arguments: RequestedArguments::Text("{}".into()),
            };
            let turn = TurnCalls::recorded(String::new(), given.iter().map(call).collect(), false, 0);
            turn.calls.into_iter().map(|call| call.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&["a", "b"]), ["a", "b"]);
        assert_eq!(ids(&["a", "a", "a"]), ["a", "a-2", "a-3"]);
        assert_eq!(ids(&["", ""]), ["call-1", "call-2"]);
        assert_eq!(ids(&["a", "a", "a-2"]), ["a", "a-2-2", "a-2"], "a later call keeps its id");
        assert_eq!(ids(&["call-2", ""]), ["call-2", "call-2-2"]);
        let many: Vec<String> = (0..300).map(|at| at.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(ids(&many).len(), TurnCalls::MAX_CALLS);
    }

    #[test]
    fn calls_that_are_not_kept_are_counted() {
        let call =
            RequestedCall { id: "a".into(), tool: "pay".into(), arguments: RequestedArguments::Text("{}".into()) };
        let turn = TurnCalls::recorded(String::new(), vec![call; 260], false, 40);
        assert_eq!((turn.calls.len(), turn.dropped), (TurnCalls::MAX_CALLS, 44));
        assert_eq!(serde_json::to_value(&turn).unwrap()["dropped"], 44);
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
        let shown =
            format!("{:?}", TurnCalls { text: "secret".into(), calls: vec![call], truncated: false, dropped: 0 });
        assert!(shown.contains("Text(4 bytes)"), "{shown}");
        assert!(["ACME", "letter", "secret"].iter().all(|word| !shown.contains(word)), "{shown}");
    }
}
