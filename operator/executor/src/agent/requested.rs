//! The calls of tools in an answer of a model, limited before they are used.
//!
//! **Invariant:** arguments are neither parsed nor changed here: the text of the model is kept, or only its length.

use signoff_api::turn::{RequestedArguments, RequestedCall, TurnCalls};

/// The maximum number of kept characters of the id of a call, and of the name of its tool.
const MAX_NAME: usize = 128;

/// The maximum size of the kept arguments of one answer, written as JSON strings, in bytes. The answer has to fit into
/// the journal, which takes 900 KiB.
const MAX_ARGUMENTS_OF_ANSWER: usize = 512 * 1024;

/// Returns the kept calls: at most [`TurnCalls::MAX_CALLS`], with limited names and arguments.
pub(super) fn bound_calls(calls: impl IntoIterator<Item = RequestedCall>) -> Vec<RequestedCall> {
    let mut left = MAX_ARGUMENTS_OF_ANSWER;
    let bound = |call: RequestedCall| RequestedCall {
        id: cut_name(call.id),
        tool: cut_name(call.tool),
        arguments: bound_arguments(call.arguments, &mut left),
    };
    calls.into_iter().take(TurnCalls::MAX_CALLS).map(bound).collect()
}

/// Returns the first [`MAX_NAME`] characters.
fn cut_name(text: String) -> String {
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

/// Returns the arguments if they are short enough and fit into `left`, otherwise their length.
fn bound_arguments(arguments: RequestedArguments, left: &mut usize) -> RequestedArguments {
    let RequestedArguments::Text(text) = arguments else { return arguments };
    let length = text.len();
    let rest = if length > RequestedArguments::MAX_BYTES { None } else { left.checked_sub(written_size(&text)) };
    match rest {
        Some(rest) => {
            *left = rest;
            RequestedArguments::Text(text)
        }
        None => RequestedArguments::TooLong(length),
    }
}

/// Returns the size of a text as a JSON string in bytes. A control character takes six bytes.
pub(super) fn written_size(text: &str) -> usize {
    escaped_size(text) + 2
}

/// Returns the size of a text within a JSON string, in bytes.
pub(super) fn escaped_size(text: &str) -> usize {
    let bytes = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0C => 2,
        0x00..=0x1F => 6,
        _ => 1,
    };
    text.bytes().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: impl Into<String>) -> RequestedCall {
        RequestedCall {
            id: "call_1".into(),
            tool: "letter".into(),
            arguments: RequestedArguments::Text(arguments.into()),
        }
    }

    #[test]
    fn arguments_are_kept_up_to_their_limit_to_the_byte() {
        let kept = bound_calls([
            call("x".repeat(RequestedArguments::MAX_BYTES)),
            call("x".repeat(RequestedArguments::MAX_BYTES + 1)),
        ]);
        assert_eq!(kept[0].arguments, RequestedArguments::Text("x".repeat(RequestedArguments::MAX_BYTES)));
        assert_eq!(kept[1].arguments, RequestedArguments::TooLong(RequestedArguments::MAX_BYTES + 1));
    }

    #[test]
    fn arguments_of_many_calls_are_kept_while_the_answer_fits_into_the_journal() {
        // Seven texts of 64 KiB with their quotation marks fit into 512 KiB, an eighth does not, and a short one still
        // does.
        let calls = (0..8).map(|_| call("x".repeat(RequestedArguments::MAX_BYTES))).chain([call("{}")]);
        let kept = bound_calls(calls);
        assert!(kept[..7].iter().all(|call| matches!(call.arguments, RequestedArguments::Text(_))), "{kept:?}");
        assert_eq!(kept[7].arguments, RequestedArguments::TooLong(RequestedArguments::MAX_BYTES));
        assert_eq!(kept[8].arguments, RequestedArguments::Text("{}".into()));
        // A control character is six bytes in JSON.
        let kept = bound_calls([call("\u{1}".repeat(60_000)), call("\u{1}".repeat(60_000))]);
        assert!(matches!(kept[0].arguments, RequestedArguments::Text(_)));
        assert_eq!(kept[1].arguments, RequestedArguments::TooLong(60_000));
    }

    #[test]
    fn the_size_of_a_text_is_the_size_of_its_json() {
        for character in (0..0x300).filter_map(char::from_u32).chain(['€', '𝄞']) {
            let text = format!("{character}x{character}");
            assert_eq!(written_size(&text), serde_json::Value::from(text.as_str()).to_string().len(), "{text:?}");
        }
        assert_eq!((written_size(""), escaped_size("")), (2, 0));
    }

    #[test]
    fn names_are_cut_between_characters_and_calls_above_the_limit_are_dropped() {
        let long = RequestedCall { id: "ü".repeat(129), tool: "x".repeat(128), ..call("{}") };
        let kept = bound_calls(std::iter::repeat_n(long, TurnCalls::MAX_CALLS + 1));
        assert_eq!(kept.len(), TurnCalls::MAX_CALLS);
        assert_eq!((kept[0].id.clone(), kept[0].tool.clone()), ("ü".repeat(128), "x".repeat(128)));
    }
}
