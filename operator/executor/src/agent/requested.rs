//! The calls of tools that a model asks for, bounded before anything reads them.
//!
//! **Invariant:** arguments are neither parsed nor changed here: they are the text that the model wrote, or only its length.

use std::fmt;

/// The largest number of calls that are kept of one answer. Further ones are dropped: an answer within its token limit has few,
/// and the engine takes fewer still.
pub const MAX_CALLS: usize = 256;

/// The most characters that are kept of the id of a call, and of the name of its tool.
const MAX_NAME: usize = 128;

/// The longest arguments that are kept, in bytes.
pub const MAX_ARGUMENTS: usize = 64 * 1024;

/// The most bytes of arguments that are kept of one answer, written as JSON strings: the answer has to fit into the journal,
/// which takes 900 KiB.
const MAX_ARGUMENTS_OF_ANSWER: usize = 512 * 1024;

/// A call of a tool that a model asks for.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestedCall {
    /// The id that the model gave it, at most 128 characters; empty where it gave none. Not necessarily unique.
    pub id: String,
    /// The name of the tool on the wire, at most 128 characters; not necessarily the name of a tool that was offered.
    pub tool: String,
    /// The arguments.
    pub arguments: Arguments,
}

/// The arguments of a call: text of the model, which is not necessarily JSON.
#[derive(Clone, PartialEq, Eq)]
pub enum Arguments {
    /// The text as the model wrote it, at most 64 KiB.
    Text(String),
    /// The length in bytes of a text that was not kept: longer than 64 KiB, or more than the whole answer may have.
    TooLong(usize),
}

/// Returns the calls as far as they are kept: at most [`MAX_CALLS`], with bounded names and arguments.
pub(super) fn bounded(calls: impl IntoIterator<Item = RequestedCall>) -> Vec<RequestedCall> {
    let mut left = MAX_ARGUMENTS_OF_ANSWER;
    let bound = |call: RequestedCall| RequestedCall {
        id: beginning(call.id),
        tool: beginning(call.tool),
        arguments: call.arguments.bounded(&mut left),
    };
    calls.into_iter().take(MAX_CALLS).map(bound).collect()
}

fn beginning(text: String) -> String {
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

impl Arguments {
    /// Returns the arguments if they are short enough and `left` is enough for them, otherwise their length.
    fn bounded(self, left: &mut usize) -> Self {
        let Self::Text(text) = self else { return self };
        let length = text.len();
        let rest = if length > MAX_ARGUMENTS { None } else { left.checked_sub(written(&text)) };
        match rest {
            Some(rest) => {
                *left = rest;
                Self::Text(text)
            }
            None => Self::TooLong(length),
        }
    }
}

/// Returns the bytes of a text as a JSON string, where a control character takes six.
fn written(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX, |text| text.len())
}

impl fmt::Debug for RequestedCall {
    /// Shows the length only: a call is as confidential as an answer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestedCall").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::TooLong(length) => write!(f, "TooLong({length})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: impl Into<String>) -> RequestedCall {
        RequestedCall { id: "call_1".into(), tool: "letter".into(), arguments: Arguments::Text(arguments.into()) }
    }

    #[test]
    fn arguments_are_kept_up_to_their_limit_to_the_byte() {
        let kept = bounded([call("x".repeat(MAX_ARGUMENTS)), call("x".repeat(MAX_ARGUMENTS + 1))]);
        assert_eq!(kept[0].arguments, Arguments::Text("x".repeat(MAX_ARGUMENTS)));
        assert_eq!(kept[1].arguments, Arguments::TooLong(MAX_ARGUMENTS + 1));
    }

    #[test]
    fn arguments_of_many_calls_are_kept_while_the_answer_fits_into_the_journal() {
        // Seven texts of 64 KiB and their quotation marks fit into 512 KiB, an eighth does not; a short one still does.
        let calls = (0..8).map(|_| call("x".repeat(MAX_ARGUMENTS))).chain([call("{}")]);
        let kept = bounded(calls);
        assert!(kept[..7].iter().all(|call| matches!(call.arguments, Arguments::Text(_))), "{kept:?}");
        assert_eq!(kept[7].arguments, Arguments::TooLong(MAX_ARGUMENTS));
        assert_eq!(kept[8].arguments, Arguments::Text("{}".into()));
        // A control character is six bytes in JSON.
        let kept = bounded([call("\u{1}".repeat(60_000)), call("\u{1}".repeat(60_000))]);
        assert!(matches!(kept[0].arguments, Arguments::Text(_)));
        assert_eq!(kept[1].arguments, Arguments::TooLong(60_000));
    }

    #[test]
    fn names_are_cut_between_characters_and_calls_above_the_limit_are_dropped() {
        let long = RequestedCall { id: "ü".repeat(129), tool: "x".repeat(128), ..call("{}") };
        let kept = bounded(std::iter::repeat_n(long, MAX_CALLS + 1));
        assert_eq!(kept.len(), MAX_CALLS);
        assert_eq!((kept[0].id.clone(), kept[0].tool.clone()), ("ü".repeat(128), "x".repeat(128)));
    }

    #[test]
    fn debug_shows_lengths_only() {
        let shown = format!("{:?}", call("ACME"));
        assert!(shown.contains("Text(4 bytes)") && !shown.contains("ACME") && !shown.contains("letter"), "{shown}");
    }
}
