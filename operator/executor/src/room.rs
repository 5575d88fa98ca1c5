//! Memory for the answers of calls: its limits, and the interface that reserves it.

/// The maximum size of the answer of an http call in memory, in bytes.
pub const HTTP_ANSWER_BYTES: usize = 1024 * 1024;

/// The maximum size of the answer of a turn in memory, in bytes: as received and as read.
pub const TURN_ANSWER_BYTES: usize = 2 * MAX_TURN_ANSWER;

/// The maximum size of the answer of a turn if tools are offered, in bytes. A call with too long arguments does not
/// fail the turn; the model is told instead.
pub(crate) const MAX_TURN_ANSWER: usize = 8 * 1024 * 1024;

/// The memory for the answer of one call.
pub trait AnswerRoom: Send + Sync {
    /// Whether there is memory for `bytes` bytes of the answer with its copies. The bytes are reserved until the call
    /// has ended.
    fn has_room_for(&self, bytes: usize) -> bool;
}

/// Memory without a bound beyond the limit of each answer, for runs on a person's own machine.
pub struct UnboundedRoom;

impl AnswerRoom for UnboundedRoom {
    fn has_room_for(&self, _bytes: usize) -> bool {
        true
    }
}
