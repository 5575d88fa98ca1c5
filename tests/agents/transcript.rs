//! A transcript: the answers of a hostile model, and the expected results.
//!
//! | text | stands for |
//! |---|---|
//! | `<x*300>` | 300 times `x` |
//! | `<n>` | the number of a call that is written once for many: `from`, `to` |
//! | `<turn>` | the number of the model's answer, from 1 |
//!
//! In an expected text, `…` stands for any text.

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use signoff_tests::chat_completions::of_message;

use crate::clerk::Answer;

/// A file of `hostile/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transcript {
    /// Changes of the Workflow, as a JSON merge patch of its spec.
    #[serde(default)]
    pub spec: Map<String, Value>,
    /// The answers of the clerk's model.
    pub turns: Vec<Turn>,
    /// Whether the last answer is repeated endlessly.
    #[serde(default)]
    pub endless: bool,
    /// The answers of the cashier's model.
    #[serde(default)]
    pub cashier: Vec<Turn>,
    /// The answers of tools that differ from the usual ones.
    #[serde(default)]
    pub tools: Vec<ToolAnswer>,
    /// The answers of people.
    #[serde(default)]
    pub people: Vec<Answer>,
    /// The requests to people, in order.
    #[serde(default)]
    pub asked: Vec<Asked>,
    /// The answers of people that were refused.
    #[serde(default)]
    pub refused: Vec<String>,
    /// The results in the last request to the clerk's model, turn by turn.
    #[serde(default)]
    pub told: Vec<Vec<ToldCall>>,
    /// The results in the last request to the cashier's model, turn by turn.
    #[serde(default)]
    pub told_cashier: Vec<Vec<ToldCall>>,
    /// Every request that the tools got, in any order.
    #[serde(default)]
    pub ran: Vec<Ran>,
    /// The phase of the run and its text: `Succeeded: done`; or `Waiting`.
    pub ends: String,
}

/// An answer of a model. Without a body: a message.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    pub text: Option<String>,
    #[serde(default)]
    pub calls: Vec<Call>,
    pub finish: Option<String>,
    /// A whole message, instead of text and calls.
    pub message: Option<Value>,
    /// A whole body, instead of a completion.
    pub body: Option<String>,
    pub status: Option<u16>,
}

/// A call of a model, or several that differ by a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    id: Option<String>,
    tool: Option<String>,
    arguments: Option<String>,
    from: Option<u32>,
    to: Option<u32>,
}

/// The answer of a tool to a request: method and path.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolAnswer {
    pub to: String,
    #[serde(default)]
    pub text: String,
    /// Bytes in hexadecimal, instead of a text.
    pub bytes: Option<String>,
    pub status: Option<u16>,
}

/// A request to a person.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    pub gate: String,
    /// The canonical arguments.
    pub arguments: Option<String>,
    /// The agent's own words, or `None`.
    pub says: Option<String>,
    /// The questions.
    #[serde(default)]
    pub questions: Vec<String>,
    #[serde(default)]
    pub excluded: Vec<String>,
}

/// A call of the conversation with its result; or several that differ by a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToldCall {
    id: String,
    /// The name of the tool, if it matters.
    tool: Option<String>,
    result: String,
    from: Option<u32>,
    to: Option<u32>,
}

/// A request that a tool got, or several that differ by a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Ran {
    One(String),
    Many { each: String, from: u32, to: u32 },
}

/// A call with its expected result.
#[derive(Clone, Debug)]
pub struct Expected {
    pub id: String,
    pub tool: Option<String>,
    pub result: String,
}

impl Turn {
    /// Returns the status and the body of the answer. `number`: that of the answer, from 1.
    pub fn answer(&self, number: usize) -> (u16, String) {
        let numbered = |text: &str| expanded(&text.replace("<turn>", &number.to_string()));
        let status = self.status.unwrap_or(200);
        if let Some(body) = &self.body {
            return (status, numbered(body));
        }
        let calls: Vec<_> = self.calls.iter().flat_map(|call| call.all(&numbered)).collect();
        let usual = if calls.is_empty() { "stop" } else { "tool_calls" };
        let message = self.message.clone().unwrap_or_else(|| {
            let mut message = json!({"role": "assistant", "content": self.text.as_deref().map(numbered)});
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
            }
            message
        });
        (status, of_message(&message, self.finish.as_deref().unwrap_or(usual)).to_string())
    }
}

impl Call {
    fn all<'a>(&'a self, numbered: &'a impl Fn(&str) -> String) -> impl Iterator<Item = Value> + 'a {
        numbers(self.from, self.to).map(move |number| {
            let text = |text: &Option<String>| text.as_ref().map(|text| numbered(&with_number(text, number)));
            let mut call = json!({"type": "function", "function": {}});
            for (pointer, key, value) in [
                ("", "id", text(&self.id)),
                ("/function", "name", text(&self.tool)),
                ("/function", "arguments", text(&self.arguments)),
            ] {
                if let Some(value) = value {
                    call.pointer_mut(pointer).unwrap()[key] = value.into();
                }
            }
            call
        })
    }
}

impl ToldCall {
    pub fn all(&self) -> impl Iterator<Item = Expected> + '_ {
        numbers(self.from, self.to).map(|number| Expected {
            id: expanded(&with_number(&self.id, number)),
            tool: self.tool.clone(),
            result: expanded(&with_number(&self.result, number)),
        })
    }
}

impl Ran {
    pub fn all(&self) -> Vec<String> {
        match self {
            Self::One(text) => vec![expanded(text)],
            Self::Many { each, from, to } => (*from..=*to).map(|n| expanded(&with_number(each, n))).collect(),
        }
    }
}

impl ToolAnswer {
    pub fn body(&self) -> Vec<u8> {
        match &self.bytes {
            Some(bytes) => hex::decode(bytes).unwrap(),
            None => expanded(&self.text).into_bytes(),
        }
    }
}

fn numbers(from: Option<u32>, to: Option<u32>) -> std::ops::RangeInclusive<u32> {
    from.unwrap_or(0)..=to.unwrap_or(0)
}

fn with_number(text: &str, number: u32) -> String {
    text.replace("<n>", &number.to_string())
}

/// Replaces `<x*300>`.
pub fn expanded(text: &str) -> String {
    let repeated = Regex::new(r"<([^<>*]+)\*([0-9]+)>").unwrap();
    repeated.replace_all(text, |found: &regex::Captures<'_>| found[1].repeat(found[2].parse().unwrap())).into_owned()
}

/// Returns whether a text matches the expected one.
pub fn is_like(expected: &str, found: &str) -> bool {
    let mut parts: Vec<_> = expected.split('…').collect();
    let last = parts.pop().unwrap_or_default();
    let Some((first, middle)) = parts.split_first() else { return expected == found };
    let Some(mut rest) = found.strip_prefix(first) else { return false };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}
