//! The interface of a protocol of model servers: how a turn is written, and how its answer is read.

use serde_json::value::RawValue;
use signoff_api::turn::{OpaquePart, OpaqueParts};
use signoff_engine::transition::Message;

use super::{TurnRequest, collected::Collected, dialect::LeftOut, fields::Fields};
use crate::{
    error::CallError,
    secrets::{ExposeSecret as _, SecretText},
};

/// A protocol. Everything that is special about a kind of server is in the file of its protocol.
pub(super) trait Protocol: Sync {
    /// Returns the name of an answer in errors: `a chat completion`.
    fn answer(&self) -> &'static str;

    /// Whether an answer that begins like JSON has a document a line.
    fn has_lines(&self) -> bool {
        false
    }

    /// Writes a turn. `left_out`: the fields that the server does not take.
    ///
    /// # Errors
    /// The turn cannot be written.
    fn write(&self, turn: &TurnRequest, left_out: &LeftOut) -> Result<Written, CallError>;

    /// Returns the headers with the key, and those that every request has. Their values are secret.
    fn headers(&self, key: Option<&SecretText>) -> Vec<(String, String)> {
        // Keys read from files and Secrets often end in a line break, which no header may hold.
        key.map(|key| ("authorization".to_owned(), format!("Bearer {}", key.expose_secret().trim())))
            .into_iter()
            .collect()
    }

    /// Returns where the list of models is.
    fn models(&self) -> ModelList;

    /// Returns the reading of one answer.
    fn reading(&self) -> Box<dyn Reading>;
}

/// A list of models: its path after the base URL, its field, and the field of a model's name.
pub(super) struct ModelList {
    pub(super) path: &'static str,
    pub(super) list: &'static str,
    pub(super) name: &'static str,
}

/// A turn as it is sent.
pub(super) struct Written {
    /// The path after the base URL.
    pub(super) path: String,
    /// The headers beside the content type: names and values. Their values are secret.
    pub(super) headers: Vec<(String, String)>,
    /// The body, JSON.
    pub(super) body: String,
    /// The fields that can be left out where the server does not take them.
    pub(super) optional: Vec<String>,
}

/// The reading of one answer, document by document.
pub(super) trait Reading: Send {
    /// Learns that the answer is a stream of events, before the first of its documents.
    fn begin_stream(&mut self) {}

    /// Takes the next document.
    ///
    /// # Errors
    /// It cannot be read, or is an error of the provider.
    fn take(&mut self, document: &[u8]) -> Result<(), Unreadable>;

    /// Returns the bytes that are kept of what was taken.
    fn bytes(&self) -> usize;

    /// Returns the answer. `is_done`: whether the stream said that it has ended.
    ///
    /// # Errors
    /// Some of it is missing.
    fn end(self: Box<Self>, is_done: bool) -> Result<Collected, Unreadable>;
}

/// The reason why an answer is not used.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// It is not of the form of the protocol: the line and the column where that was seen. The text of the parser could
    /// quote the answer.
    Form(usize, usize),
    /// It is a page of HTML, or XML.
    Page,
    /// The reason: what follows "model m at u ".
    Because(String),
    /// The provider's own error, as JSON.
    Failed(String),
    /// The reason why it is not used, and why the turn is not repeated by itself.
    Refused(String),
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self::Form(error.line(), error.column())
    }
}

/// Returns the document as an object, or the error of the provider that it is.
pub(super) fn object(document: &[u8]) -> Result<Fields<'_>, Unreadable> {
    let text = std::str::from_utf8(document).map_err(|_| Unreadable::Form(1, 1))?;
    let fields = Fields::of(text)?;
    match fields.get("error") {
        Some(_) => Err(Unreadable::Failed(text.to_owned())),
        None => Ok(fields),
    }
}

/// Returns a word of a server for an error; it may be anything, so that only a word is shown.
pub(super) fn word(text: &str) -> &str {
    let is_word = |character: char| character.is_ascii_alphanumeric() || "_.- ".contains(character);
    if (1..=64).contains(&text.len()) && text.chars().all(is_word) { text } else { "a word that is not shown" }
}

/// The end of an answer that is not complete.
pub(super) fn incomplete() -> Unreadable {
    Unreadable::Because("ended before its answer did".to_owned())
}

/// An answer with an item of a tool that is not a call of ours: the provider runs it, or nothing does.
pub(super) fn foreign_tool(kind: &str) -> Unreadable {
    let kind = word(kind);
    Unreadable::Refused(format!(
        "answered with {kind}, which is no call of a tool of this Workflow: such tools are never used"
    ))
}

/// Returns the opaque parts of a message, if the provider and the model of this turn wrote them.
pub(super) fn opaque_of<'m>(message: &'m Message, turn: &TurnRequest) -> &'m [OpaquePart] {
    let is_own = |parts: &&OpaqueParts| parts.provider == turn.provider.name && parts.model == turn.model;
    message.opaque.as_deref().filter(is_own).map_or(&[], |parts| &parts.parts)
}

/// Returns the arguments of a call as an object, for protocols that have no other.
pub(super) fn arguments_object(arguments: &str) -> Box<RawValue> {
    let object =
        RawValue::from_string(arguments.to_owned()).ok().filter(|json| json.get().trim_start().starts_with('{'));
    object.unwrap_or_else(|| {
        let text = serde_json::json!({"arguments": arguments}).to_string();
        RawValue::from_string(text).unwrap_or_default()
    })
}
