//! The answer of a model while it is received: its text, its calls, and the parts that only its provider can read.
//!
//! **Invariant:** each part stays within its limit, in however many pieces it arrives. Of too long arguments only the
//! length is kept.

use signoff_api::{
    journal::Usage,
    turn::{OpaquePart, RequestedArguments, RequestedCall, TurnCalls},
};

use super::requested::written_size;

/// The maximum size of the parts of one answer that only its provider can read, written as JSON strings, in bytes.
pub(super) const MAX_OPAQUE: usize = 128 * 1024;

/// The reason for the end of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Finish {
    /// Normal, or for a reason without consequences.
    #[default]
    Usual,
    /// Cut at the maximum length.
    Cut,
    /// Declined by the model or its provider, with the provider's word for it.
    Declined(String),
}

/// An answer, as far as it was received.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) text: String,
    calls: Vec<CollectedCall>,
    /// The number of further calls, which were dropped.
    dropped: usize,
    /// The position and the id of the last dropped call.
    last_dropped: Option<String>,
    opaque: Vec<OpaquePart>,
    /// The size of the opaque parts in bytes, including parts that are not kept.
    opaque_bytes: usize,
    pub(super) usage: Option<Usage>,
    pub(super) finish: Option<Finish>,
    /// Whether the answer arrived completely.
    pub(super) is_complete: bool,
}

/// A call, as far as it was received.
struct CollectedCall {
    /// The number of the call in the stream, which its pieces share.
    place: Option<u64>,
    id: String,
    tool: String,
    arguments: String,
    /// The size of the arguments in bytes, including arguments that are not kept.
    length: usize,
}

/// A piece of a call.
#[derive(Default)]
pub(super) struct CallPiece {
    /// The number of the call in the stream.
    pub(super) place: Option<u64>,
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) arguments: String,
}

impl Collected {
    /// Returns the number of kept bytes.
    pub(super) fn bytes(&self) -> usize {
        let bytes_of_call = |call: &CollectedCall| call.id.len() + call.tool.len() + call.arguments.len();
        self.text.len() + self.opaque_bytes.min(MAX_OPAQUE) + self.calls.iter().map(bytes_of_call).sum::<usize>()
    }

    /// Adds a piece of a call: to the call with its number, or as a new call. Returns the position of the call, from 0,
    /// if it is kept. A piece with another id but the same number is another call, because some servers give all calls
    /// one number.
    pub(super) fn add_call(&mut self, piece: CallPiece) -> Option<usize> {
        let position = match self.position_of(&piece) {
            Some(position) => position,
            None if self.calls.len() == TurnCalls::MAX_CALLS => {
                self.count_dropped(&piece);
                return None;
            }
            None => {
                let (id, tool, arguments) = Default::default();
                self.calls.push(CollectedCall { place: piece.place, id, tool, arguments, length: 0 });
                self.calls.len() - 1
            }
        };
        self.calls.get_mut(position)?.append(piece);
        Some(position)
    }

    /// Returns the position of the call that a piece continues, or `None` if the piece begins a new call.
    fn position_of(&self, piece: &CallPiece) -> Option<usize> {
        match piece.place {
            Some(_) => self.calls.iter().rposition(|call| call.is_continued_by(piece)),
            None => {
                let last = self.calls.len().checked_sub(1)?;
                self.calls.get(last).filter(|call| call.is_continued_by(piece)).map(|_| last)
            }
        }
    }

    /// Counts a dropped call once, in however many pieces it arrives.
    fn count_dropped(&mut self, piece: &CallPiece) {
        let key = format!("{:?} {}", piece.place, piece.id);
        let is_same = piece.id.is_empty() && piece.tool.is_empty() && self.last_dropped.is_some();
        if !is_same && self.last_dropped.as_ref() != Some(&key) {
            self.dropped += 1;
            self.last_dropped = Some(key);
        }
    }

    /// Adds to the number of dropped calls.
    pub(super) fn add_dropped(&mut self, count: usize) {
        self.dropped += count;
    }

    /// Adds a part that only the provider can read.
    pub(super) fn add_opaque(&mut self, part: OpaquePart) {
        let (OpaquePart::Item(json) | OpaquePart::Message(json) | OpaquePart::Call(_, json)) = &part;
        self.opaque_bytes = self.opaque_bytes.saturating_add(written_size(json));
        if self.opaque_bytes <= MAX_OPAQUE {
            self.opaque.push(part);
        }
    }

    /// Adds fields that only the provider can read, or the length of such fields that were not kept.
    pub(super) fn add_fields(
        &mut self,
        fields: Option<Result<String, usize>>,
        part: impl FnOnce(String) -> OpaquePart,
    ) {
        match fields {
            None => {}
            Some(Ok(json)) => self.add_opaque(part(json)),
            Some(Err(bytes)) => self.opaque_bytes = self.opaque_bytes.saturating_add(bytes),
        }
    }

    /// Updates the used tokens: a later number replaces an earlier one.
    pub(super) fn set_usage(&mut self, usage: Usage) {
        let known = self.usage.unwrap_or_default();
        let later = |known: i64, now: i64| if now == 0 { known } else { now };
        self.usage = Some(Usage {
            input_tokens: later(known.input_tokens, usage.input_tokens),
            output_tokens: later(known.output_tokens, usage.output_tokens),
            cached_tokens: later(known.cached_tokens, usage.cached_tokens),
            reasoning_tokens: later(known.reasoning_tokens, usage.reasoning_tokens),
            cost: None,
        });
    }

    /// Returns the calls, the number of dropped ones, and the parts that only the provider can read, or their length if
    /// they are too long.
    pub(super) fn into_parts(self) -> (Vec<RequestedCall>, usize, Result<Vec<OpaquePart>, usize>) {
        let call = |call: CollectedCall| RequestedCall {
            id: call.id,
            tool: call.tool,
            arguments: match call.length > RequestedArguments::MAX_BYTES {
                true => RequestedArguments::TooLong(call.length),
                false => RequestedArguments::Text(call.arguments),
            },
        };
        let opaque = if self.opaque_bytes > MAX_OPAQUE { Err(self.opaque_bytes) } else { Ok(self.opaque) };
        (self.calls.into_iter().map(call).collect(), self.dropped, opaque)
    }

    /// Returns the number of kept calls.
    pub(super) fn count(&self) -> usize {
        self.calls.len()
    }
}

impl CollectedCall {
    /// Whether a piece belongs to the call. Without a number, only a piece without an id and a tool does.
    fn is_continued_by(&self, piece: &CallPiece) -> bool {
        match (piece.place, self.place) {
            (Some(place), Some(other)) => {
                place == other && (piece.id.is_empty() || piece.id == self.id || self.id.is_empty())
            }
            (None, _) => piece.id.is_empty() && piece.tool.is_empty(),
            (Some(_), None) => false,
        }
    }

    /// Appends a piece. Some servers repeat the name of the tool with each piece.
    fn append(&mut self, piece: CallPiece) {
        if self.id.is_empty() {
            self.id = piece.id;
        }
        if self.tool != piece.tool {
            self.tool.push_str(&piece.tool);
        }
        self.length += piece.arguments.len();
        if self.length <= RequestedArguments::MAX_BYTES {
            self.arguments.push_str(&piece.arguments);
        } else {
            self.arguments = String::new();
        }
    }
}
