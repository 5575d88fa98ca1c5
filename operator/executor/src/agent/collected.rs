//! The answer of a model while it is received: its text, its calls, and the parts that only its provider can read.
//!
//! **Invariant:** each part stays within its bound, however many pieces it comes in. A call whose arguments are too
//! long is kept with their length.

use signoff_api::{
    journal::Usage,
    turn::{OpaquePart, RequestedArguments, RequestedCall, TurnCalls},
};

use super::requested::written;

/// The most bytes of the parts of one answer that only its provider can read, written as JSON strings.
pub(super) const MAX_OPAQUE: usize = 128 * 1024;

/// The reason for which an answer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Finish {
    /// By itself, or for a reason that changes nothing. The provider's word, or nothing.
    #[default]
    Usual,
    /// It was cut at its largest length.
    Cut,
    /// The model or its provider declined; the provider's word.
    Declined(String),
}

/// An answer, as far as it was received.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) text: String,
    calls: Vec<CollectedCall>,
    /// The number of further calls, which are not kept.
    dropped: usize,
    /// The place and the id of the last of these.
    last_dropped: Option<String>,
    opaque: Vec<OpaquePart>,
    /// The bytes of the opaque parts, also of those that are not kept.
    opaque_bytes: usize,
    pub(super) usage: Option<Usage>,
    pub(super) finish: Option<Finish>,
    /// Whether nothing is missing at its end.
    pub(super) is_complete: bool,
}

/// A call, as far as it was received.
struct CollectedCall {
    /// The number of the call in the stream, which its pieces have in common.
    place: Option<u64>,
    id: String,
    tool: String,
    arguments: String,
    /// The bytes of the arguments, also of those that are not kept.
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
    /// Returns the bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        let of_call = |call: &CollectedCall| call.id.len() + call.tool.len() + call.arguments.len();
        self.text.len() + self.opaque_bytes.min(MAX_OPAQUE) + self.calls.iter().map(of_call).sum::<usize>()
    }

    /// Adds a piece of a call: to the call of its place, or as a new one. Returns the number of the call, from 0, if it
    /// is kept. A piece with another id than its place is another call, because some servers give all calls one number.
    pub(super) fn add_call(&mut self, piece: CallPiece) -> Option<usize> {
        let continues = |call: &CollectedCall| match (piece.place, call.place) {
            (Some(place), Some(other)) => {
                place == other && (piece.id.is_empty() || piece.id == call.id || call.id.is_empty())
            }
            (None, _) => piece.id.is_empty() && piece.tool.is_empty(),
            (Some(_), None) => false,
        };
        let last = self.calls.len().checked_sub(1);
        let found = match piece.place {
            Some(_) => self.calls.iter().rposition(continues),
            None => last.filter(|last| self.calls.get(*last).is_some_and(continues)),
        };
        let at = match found {
            Some(at) => at,
            None if self.calls.len() == TurnCalls::MAX_CALLS => {
                let key = format!("{:?} {}", piece.place, piece.id);
                let is_same = piece.id.is_empty() && piece.tool.is_empty() && self.last_dropped.is_some();
                if !is_same && self.last_dropped.as_ref() != Some(&key) {
                    self.dropped += 1;
                    self.last_dropped = Some(key);
                }
                return None;
            }
            None => {
                let (id, tool, arguments) = Default::default();
                self.calls.push(CollectedCall { place: piece.place, id, tool, arguments, length: 0 });
                self.calls.len() - 1
            }
        };
        let call = self.calls.get_mut(at)?;
        if call.id.is_empty() {
            call.id = piece.id;
        }
        // Some servers repeat the name with each piece.
        if call.tool != piece.tool {
            call.tool.push_str(&piece.tool);
        }
        call.length += piece.arguments.len();
        if call.length <= RequestedArguments::MAX_BYTES {
            call.arguments.push_str(&piece.arguments);
        } else {
            call.arguments = String::new();
        }
        Some(at)
    }

    /// Adds the number of calls that were not even read.
    pub(super) fn add_dropped(&mut self, count: usize) {
        self.dropped += count;
    }

    /// Adds a part that only the provider can read.
    pub(super) fn add_opaque(&mut self, part: OpaquePart) {
        let (OpaquePart::Item(json) | OpaquePart::Message(json) | OpaquePart::Call(_, json)) = &part;
        self.opaque_bytes = self.opaque_bytes.saturating_add(written(json));
        if self.opaque_bytes <= MAX_OPAQUE {
            self.opaque.push(part);
        }
    }

    /// Adds fields that only the provider can read, or the length of such ones that were not kept.
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

    /// Adds to the tokens that were used: a number that is given later replaces the earlier one.
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

    /// Returns the calls, the number of those that are not kept, and the parts that only the provider can read, or
    /// their length where they are too long.
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

    /// Returns the number of calls that are kept.
    pub(super) fn count(&self) -> usize {
        self.calls.len()
    }
}
