//! The limits of one rendering beyond the steps that the template engine counts, and writers that enforce them.

use crate::budget;
use minijinja::{Error, ErrorKind};

/// The beginning of every message about a limit.
pub(super) const TOO_MUCH: &str = "too much";
/// The maximum number of bytes read and created in one rendering.
pub const MAX_WORK: usize = 64 << 20;
/// The maximum size of a created text, in bytes.
pub const MAX_TEXT: usize = 1 << 20;

/// The beginning of the message about a rendering that the driver's flag stopped.
pub(super) const STOPPED: &str = "stopped";

/// Charges work, and ends the rendering if the driver's flag is set.
pub(super) fn charge_budget(bytes: usize) -> Result<(), Error> {
    budget::charge(bytes).map_err(|_| Error::new(ErrorKind::InvalidOperation, STOPPED))
}

pub(super) fn too_much(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{TOO_MUCH}: {problem}"))
}

/// A text that stops growing at the limit.
pub(super) struct Bounded(pub(super) String);

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        if self.0.len() + piece.len() > MAX_TEXT {
            return Err(std::fmt::Error);
        }
        self.0.push_str(piece);
        Ok(())
    }
}

/// A writer that refuses to write more than the remaining bytes.
pub(super) struct Limited<'o, W> {
    pub(super) out: &'o mut W,
    pub(super) left: usize,
}

impl<W: std::fmt::Write> std::fmt::Write for Limited<'_, W> {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        self.left = self.left.checked_sub(piece.len()).ok_or(std::fmt::Error)?;
        self.out.write_str(piece)
    }
}

/// A text writer as a byte writer. JSON is written in pieces of valid UTF-8.
pub(super) struct Bytes<W>(pub(super) W);

impl<W: std::fmt::Write> std::io::Write for Bytes<W> {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        let text = std::str::from_utf8(piece).map_err(std::io::Error::other)?;
        self.0.write_str(text).map_err(std::io::Error::other)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
