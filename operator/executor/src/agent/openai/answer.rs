//! The answer of chat completions, read in bounded memory.
//!
//! **Invariant:** lists are never collected beyond their limit, and unknown fields never at all: an answer of many tiny values
//! must not take many times its size.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use signoff_api::turn::{RequestedArguments, RequestedCall, TurnCalls};

use super::kept::TOO_LONG;

/// An answer; every field may be absent.
#[derive(Deserialize)]
pub(super) struct Completion {
    /// The first choice.
    #[serde(default)]
    pub(super) choices: AtMost<Choice, 1>,
    pub(super) usage: Option<Tokens>,
    /// Some gateways answer 200 and put the failure here.
    pub(super) error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct Choice {
    pub(super) message: Option<Answered>,
    pub(super) finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Answered {
    /// The text, also of an answer in parts.
    #[serde(default, deserialize_with = "text")]
    pub(super) content: Option<String>,
    pub(super) refusal: Option<String>,
    /// The first [`TurnCalls::MAX_CALLS`] calls.
    #[serde(default)]
    pub(super) tool_calls: AtMost<Called, { TurnCalls::MAX_CALLS }>,
}

/// A call; a field that is absent or null is empty. Calls of another type than `function` have no name.
#[derive(Deserialize)]
pub(super) struct Called {
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Default, Deserialize)]
struct Function {
    name: Option<String>,
    #[serde(default, deserialize_with = "arguments")]
    arguments: Option<RequestedArguments>,
}

#[derive(Deserialize)]
pub(super) struct Tokens {
    #[serde(default)]
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) completion_tokens: u64,
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

impl From<Called> for RequestedCall {
    fn from(call: Called) -> Self {
        let function = call.function.unwrap_or_default();
        Self {
            id: call.id.unwrap_or_default(),
            tool: function.name.unwrap_or_default(),
            arguments: function.arguments.unwrap_or_else(|| RequestedArguments::Text(String::new())),
        }
    }
}

/// The first `N` values of a list, and the number of further ones; null is an empty list.
pub(super) struct AtMost<T, const N: usize> {
    pub(super) kept: Vec<T>,
    pub(super) dropped: usize,
}

impl<T, const N: usize> Default for AtMost<T, N> {
    fn default() -> Self {
        Self { kept: Vec::new(), dropped: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for AtMost<T, N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List<T, const N: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for List<T, N> {
            type Value = AtMost<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(AtMost::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut read = AtMost::default();
                while read.kept.len() < N {
                    match list.next_element()? {
                        Some(value) => read.kept.push(value),
                        None => return Ok(read),
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    read.dropped += 1;
                }
                Ok(read)
            }
        }

        from.deserialize_any(List::<T, N>(PhantomData))
    }
}

/// Reads the text of arguments, or the length that stands for those which are too long.
fn arguments<'de, D: Deserializer<'de>>(from: D) -> Result<Option<RequestedArguments>, D::Error> {
    struct Arguments;

    impl<'de> Visitor<'de> for Arguments {
        type Value = Option<RequestedArguments>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(RequestedArguments::Text(text.to_owned())))
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            match map.next_entry::<String, usize>()? {
                Some((name, length)) if name == TOO_LONG && map.next_key::<String>()?.is_none() => {
                    Ok(Some(RequestedArguments::TooLong(length)))
                }
                _ => Err(Error::custom("an object instead of a text")),
            }
        }
    }

    from.deserialize_any(Arguments)
}

/// Reads a text, or the texts of a list of parts as one.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    struct Text;

    impl<'de> Visitor<'de> for Text {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a list of parts")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(text.to_owned()))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
            let mut text = String::new();
            while let Some(part) = parts.next_element::<Part>()? {
                text.push_str(&part.text);
            }
            Ok(Some(text))
        }
    }

    from.deserialize_any(Text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn calls(json: &str) -> Vec<RequestedCall> {
        let message: Answered = serde_json::from_str(json).unwrap();
        message.tool_calls.kept.into_iter().map(RequestedCall::from).collect()
    }

    #[test]
    fn lists_are_read_up_to_their_limit_and_to_their_end() {
        let many = vec!["{}"; TurnCalls::MAX_CALLS + 44].join(",");
        assert_eq!(calls(&format!(r#"{{"tool_calls": [{many}]}}"#)).len(), TurnCalls::MAX_CALLS);
        let completion: Completion = serde_json::from_str(r#"{"choices": [{"finish_reason": "a"}, 1, "x"]}"#).unwrap();
        assert_eq!((completion.choices.kept.len(), completion.choices.dropped), (1, 2));
        assert_eq!(completion.choices.kept[0].finish_reason.as_deref(), Some("a"));
        // A list that breaks after the limit is still broken.
        assert!(serde_json::from_str::<Completion>(r#"{"choices": [{}, {]}"#).is_err());
    }

    #[test]
    fn a_field_that_is_absent_or_null_is_empty() {
        assert!(calls("{}").is_empty() && calls(r#"{"tool_calls": null}"#).is_empty());
        let empty = RequestedCall {
            id: String::new(),
            tool: String::new(),
            arguments: RequestedArguments::Text(String::new()),
        };
        for call in ["{}", r#"{"id": null, "function": null}"#, r#"{"function": {"name": null, "arguments": null}}"#] {
            assert!(calls(&format!(r#"{{"tool_calls": [{call}]}}"#)) == [empty.clone()], "{call}");
        }
    }

    #[test]
    fn arguments_that_are_not_a_string_make_the_answer_invalid() {
        for arguments in [r#"{"a": 1}"#, "{}", r#"{"signoff.dev/too-long": 1, "a": 1}"#, "[]", "1"] {
            let json = format!(r#"{{"tool_calls": [{{"function": {{"name": "a", "arguments": {arguments}}}}}]}}"#);
            assert!(serde_json::from_str::<Answered>(&json).is_err(), "{json}");
        }
    }

    #[test]
    fn content_is_a_text_or_parts_or_nothing() {
        let content =
            |json: &str| serde_json::from_str::<Answered>(&format!(r#"{{"content": {json}}}"#)).unwrap().content;
        assert_eq!(content(r#""a\nb""#).as_deref(), Some("a\nb"));
        assert_eq!(content(r#"[{"type": "text", "text": "a"}, {}, {"text": "b"}]"#).as_deref(), Some("ab"));
        assert_eq!(content("null"), None);
        assert!(serde_json::from_str::<Answered>(r#"{"content": 1}"#).is_err());
    }
}
