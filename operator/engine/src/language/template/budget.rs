//! What one rendering may cost beyond the steps that the template engine counts: the bytes that
//! filters, tests and methods read and make.
//!
//! What is left is kept with the rendering. Nothing here may outlive it.

use crate::language::budget;
use minijinja::{Error, ErrorKind, State, Value};

/// How every message about a bound begins.
pub(super) const TOO_MUCH: &str = "too much";
/// Bytes read and made in one rendering.
pub(in crate::language) const MAX_WORK: usize = 64 << 20;
/// Bytes of a text that is made.
pub(in crate::language) const MAX_TEXT: usize = 1 << 20;

/// How the message begins that the driver's flag stopped the rendering.
pub(super) const STOPPED: &str = "stopped";

/// Counts work and ends the rendering where the driver's flag is set.
pub(super) fn go_on(bytes: usize) -> Result<(), Error> {
    budget::charge(bytes).map_err(|_| Error::new(ErrorKind::InvalidOperation, STOPPED))
}

pub(super) fn too_much(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{TOO_MUCH}: {problem}"))
}

/// Pays for reading or making `bytes` of text.
pub(super) fn spend(state: &mut State, bytes: usize) -> Result<(), Error> {
    const LEFT: &str = "work left";
    go_on(bytes)?;
    let left = state.get_temp(LEFT).and_then(|left| left.as_usize()).unwrap_or(MAX_WORK);
    let left = left.checked_sub(bytes).ok_or_else(|| {
        too_much("filters read or make more than 64 MiB in this rendering; loop over less or truncate first")
    })?;
    state.set_temp(LEFT, Value::from(left));
    Ok(())
}

/// Pays for reading all of a value once.
pub(super) fn pay_for(state: &mut State, value: &Value) -> Result<(), Error> {
    let size = value.as_str().map_or_else(|| value.len().unwrap_or(0).saturating_mul(16), str::len);
    spend(state, size)
}

/// Pays for a text that is about to be made.
pub(super) fn making(state: &mut State, bytes: usize) -> Result<(), Error> {
    if bytes > MAX_TEXT {
        return Err(too_much("a text made here would be larger than 1 MiB; truncate first"));
    }
    spend(state, bytes)
}

/// A text that stops growing at the bound instead of after it.
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

/// A text writer as a byte writer. JSON is written in pieces that are UTF-8 each.
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
