//! Memory for the answers of calls: how much there is, and who is asked for it.

/// The most bytes that the answer of an http call takes in memory.
pub const HTTP_ANSWER_BYTES: usize = 1024 * 1024;

/// The most bytes that the answer of a turn takes in memory: as it is received and as it is read.
pub const TURN_ANSWER_BYTES: usize = 2 * MAX_TURN_ANSWER;

/// The most bytes of the answer of a turn where tools are offered: a call with arguments that are too long is told to
/// the model, and does not fail the turn.
pub(crate) const MAX_TURN_ANSWER: usize = 8 * 1024 * 1024;

/// The memory for the answer of one call.
pub trait AnswerRoom: Send + Sync {
    /// Whether the answer can take so many bytes in memory, with its copies. They are held until the call has ended.
    fn has_room_for(&self, bytes: usize) -> bool;
}

/// Room for every answer that is not too long: on a person's own machine.
pub struct UnboundedRoom;

impl AnswerRoom for UnboundedRoom {
    fn has_room_for(&self, _bytes: usize) -> bool {
        true
    }
}
