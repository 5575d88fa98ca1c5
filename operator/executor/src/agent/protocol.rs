//! The interface of a protocol of model servers, which writes turns and reads answers. `protocol_of` in `agent.rs`
//! chooses the protocol of a provider.

use serde_json::value::RawValue;
use signoff_api::turn::{OpaquePart, OpaqueParts};
use signoff_engine::transition::Message;

use super::{TurnRequest, collected::Collected, dialect::LeftOut, fields::Fields};
use crate::{
    error::CallError,
    secrets::{ExposeSecret as _, SecretText},
};

/// A protocol. All peculiarities of a kind of server are in the file of its protocol.
pub(super) trait Protocol: Sync {
    /// Returns the name of an answer for errors, as in "a chat completion".
    fn answer(&self) -> &'static str;

    /// Whether an answer that begins like JSON has one document in each line.
    fn has_lines(&self) -> bool {
        false
    }

    /// Writes a turn. `left_out` are the fields that the server does not accept.
    ///
    /// # Errors
    /// The turn cannot be written.
    fn write(&self, turn: &TurnRequest, left_out: &LeftOut) -> Result<Written, CallError>;

    /// Returns the headers with the key, and the headers of every request. The values are secret.
    fn headers(&self, key: Option<&SecretText>) -> Vec<(String, String)> {
        // Keys from files and Secrets often end in a line break, which is not allowed in a header.
        key.map(|key| ("authorization".to_owned(), format!("Bearer {}", key.expose_secret().trim())))
            .into_iter()
            .collect()
    }

    /// Returns the address of the list of models.
    fn models(&self) -> ModelList;

    /// Returns a reader for one answer.
    fn reading(&self) -> Box<dyn Reading>;
}

/// The maximum length of a word of the server that an error shows, in bytes. A longer word is replaced.
const MAX_WORD_BYTES: usize = 64;

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
    /// The names and values of the headers besides the content type. The values are secret.
    pub(super) headers: Vec<(String, String)>,
    /// The JSON body of the request.
    pub(super) body: String,
    /// The fields that can be left out if the server does not accept them.
    pub(super) optional: Vec<String>,
}

/// A reader of one answer, document by document.
pub(super) trait Reading: Send {
    /// Notes that the answer is a stream of events, before its first document.
    fn begin_stream(&mut self) {}

    /// Reads the next document.
    ///
    /// # Errors
    /// The document cannot be read, or is an error of the provider.
    fn take(&mut self, document: &[u8]) -> Result<(), Unreadable>;

    /// Returns the number of kept bytes.
    fn bytes(&self) -> usize;

    /// Returns the answer. `is_done` says whether the stream had its final event.
    ///
    /// # Errors
    /// The answer is incomplete.
    fn end(self: Box<Self>, is_done: bool) -> Result<Collected, Unreadable>;
}

/// The reason why an answer is not used.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The answer does not have the form of the protocol. The numbers are the line and the column of the error, because
    /// the text of the parser could quote the answer.
    Form(usize, usize),
    /// The answer is a page of HTML, or XML.
    Page,
    /// Another reason, which completes "model m at u …".
    Because(String),
    /// The provider's own error, as JSON.
    Failed(String),
    /// The reason why the answer is not used and the turn is not repeated automatically.
    Refused(String),
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self::Form(error.line(), error.column())
    }
}

/// Parses a document as an object.
///
/// # Errors
/// The document is not an object, or contains an error of the provider.
pub(super) fn parse_object(document: &[u8]) -> Result<Fields<'_>, Unreadable> {
    let text = std::str::from_utf8(document).map_err(|_| Unreadable::Form(1, 1))?;
    let fields = Fields::of(text)?;
    match fields.get("error") {
        Some(_) => Err(Unreadable::Failed(text.to_owned())),
        None => Ok(fields),
    }
}

/// Returns a text of a server for use in an error, if it consists of plain words. Any other text is replaced, because
/// it could quote the answer.
pub(super) fn printable_word(text: &str) -> &str {
    let is_word = |character: char| character.is_ascii_alphanumeric() || "_.- ".contains(character);
    if (1..=MAX_WORD_BYTES).contains(&text.len()) && text.chars().all(is_word) {
        text
    } else {
        "a word that is not shown"
    }
}

/// Returns the error of an incomplete answer.
pub(super) fn incomplete() -> Unreadable {
    Unreadable::Because("ended before its answer did".to_owned())
}

/// Returns the error of an answer that uses a tool of the provider instead of a tool of the Workflow.
pub(super) fn foreign_tool(kind: &str) -> Unreadable {
    let kind = printable_word(kind);
    Unreadable::Refused(format!(
        "answered with {kind}, which is no call of a tool of this Workflow: such tools are never used"
    ))
}

/// Returns the opaque parts of a message, if the provider and the model of `turn` wrote them.
pub(super) fn opaque_of<'m>(message: &'m Message, turn: &TurnRequest) -> &'m [OpaquePart] {
    let is_own = |parts: &&OpaqueParts| parts.provider == turn.provider.name && parts.model == turn.model;
    message.opaque.as_deref().filter(is_own).map_or(&[], |parts| &parts.parts)
}

/// Returns the arguments of a call as an object, for protocols that accept only objects.
pub(super) fn arguments_object(arguments: &str) -> Box<RawValue> {
    let object =
        RawValue::from_string(arguments.to_owned()).ok().filter(|json| json.get().trim_start().starts_with('{'));
    object.unwrap_or_else(|| {
        let text = serde_json::json!({"arguments": arguments}).to_string();
        RawValue::from_string(text).unwrap_or_default()
    })
}
