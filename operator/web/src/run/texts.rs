//! The texts of a record: short ones with a label that names their source, long ones as links.
//!
//! **Invariant:** every text of others has a label with its source.

use serde_json::Value;
use signoff_api::journal::{BlobRef, StepKind, StepRecord};
use signoff_expr::text::display;
use signoff_review::run::{Detail, turn};

use super::address::Address;
use crate::page::Instant;

/// The longest text on the page, in characters.
const LONGEST: usize = 20_000;

/// A text of people, models or tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The source of the text.
    pub label: String,
    /// The text in a form that can be shown.
    pub text: String,
}

/// A long value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The address of the value.
    pub href: String,
    /// The words of the link.
    pub what: String,
    /// The size of the value, in bytes.
    pub size: i64,
}

/// A sentence on a step. The instant is shown in the time zone of the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSentence {
    /// The text before the instant, or the whole text if there is no instant.
    pub text: String,
    /// The instant, and the text after it.
    pub instant: Option<(Instant, String)>,
}

impl From<Detail> for StepSentence {
    fn from(detail: Detail) -> Self {
        let instant = detail.instant.map(|(at, after)| (Instant::from(at), after));
        Self { text: detail.text, instant }
    }
}

impl Fenced {
    /// Returns a text in a form that can be shown.
    pub fn new(label: &str, text: &str) -> Self {
        Self { label: label.to_owned(), text: display(text, LONGEST) }
    }
}

impl Link {
    /// Returns the link to a long value of a run.
    pub fn new(address: &Address, what: &str, value: &BlobRef) -> Self {
        Self { href: address.value(&value.digest), what: what.to_owned(), size: value.size }
    }
}

/// Returns the short texts of a record, each with a label that names its source.
pub fn short_texts(record: &StepRecord) -> Vec<Fenced> {
    let mut texts = Vec::new();
    if let Some(calls) = turn::of(record) {
        if !calls.text.trim().is_empty() {
            texts.push(Fenced::new("Text of a model beside its calls (not checked)", &calls.text));
        }
        if !calls.calls.is_empty() {
            texts.push(Fenced::new("Calls, as the model made them (not checked)", &turn::lines(&calls)));
        }
    } else if let Some(response) = &record.response {
        let text = match &response.0 {
            Value::String(text) => text.clone(),
            other => serde_json::to_string_pretty(other).unwrap_or_default(),
        };
        texts.push(Fenced::new(label_of_response(record.kind), &text));
    }
    if let Some(error) = &record.error {
        texts.push(Fenced::new("Error, in the words of what failed", &error.message));
    }
    if let Some(log) = record.log.as_ref().filter(|log| !log.tail.trim().is_empty()) {
        texts.push(Fenced::new("End of its log, text of a program (not checked)", &log.tail));
    }
    texts
}

fn label_of_response(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Agent => "Answer, text of a model (not checked)",
        StepKind::Pod => "Result, text of a program (not checked)",
        StepKind::Http | StepKind::Mcp => "Answer, text of another server (not checked)",
        StepKind::Set => "Text of the run, of models, tools and people (not checked)",
        StepKind::Hitl => "Result, text of people and models (not checked)",
        StepKind::Condition => "Value of the run (not checked)",
    }
}

/// Returns the long values that a record names, each with its words.
pub fn values(record: &StepRecord) -> Vec<(&'static str, &BlobRef)> {
    let response = record.response_ref.iter().map(|value| ("the whole answer", value));
    let decision = record.decision_ref.iter().map(|value| ("the whole decision", value));
    let log = record.log.iter().flat_map(|log| &log.ref_).map(|value| ("the end of the log", value));
    let shown = record.request.iter().flat_map(|request| &request.shows).map(|value| ("what people were shown", value));
    response.chain(decision).chain(log).chain(shown).collect()
}
