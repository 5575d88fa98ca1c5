//! The documents of an answer: the whole answer, the events of a stream, or its lines. Each is read as soon as it is
//! complete, and then dropped.
//!
//! The framing is detected from the received bytes, because some servers stream without being asked and others do not
//! although they were asked. **Invariant:** the kept bytes, with their copies, never exceed the reserved memory.

use super::protocol::{Reading, Unreadable};
use crate::{
    http::{AnswerBody, BodyRefused},
    room::AnswerRoom,
};

/// The step by which memory is reserved, in bytes.
const PIECE: usize = 64 * 1024;

/// The number of copies in memory when the kept bytes are read.
const COPIES: usize = 2;

/// The maximum size of a stream, in bytes. It is large because each event has much overhead.
const MAX_STREAM: usize = 256 * 1024 * 1024;

/// The data of the last event of some streams.
const DONE: &[u8] = b"[DONE]";

/// The UTF-8 byte order mark, which some servers send first.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The framing of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// Unknown, because only white space was received.
    Unknown,
    /// The whole answer is one document.
    Whole,
    /// Server-sent events.
    Events,
    /// Each line is a document.
    Lines,
}

/// An answer while it is received.
pub(super) struct Documents<'r> {
    room: &'r dyn AnswerRoom,
    reading: Box<dyn Reading>,
    /// Whether an answer that begins like JSON has one document in each line.
    has_lines: bool,
    /// The maximum number of kept bytes.
    limit: usize,
    received: usize,
    /// The number of kept bytes for which `room` has reserved memory.
    reserved: usize,
    framing: Framing,
    /// The current line, or the whole answer if it is one document.
    line: Vec<u8>,
    /// The data of the current event.
    data: Vec<u8>,
    /// Whether the last byte was a carriage return: a line feed after it ends no further line.
    after_return: bool,
    /// Whether the last event was the end of the stream.
    is_done: bool,
    failed: Option<Unreadable>,
}

impl<'r> Documents<'r> {
    /// Returns an empty answer. `limit` is the maximum number of kept bytes.
    pub(super) fn new(room: &'r dyn AnswerRoom, reading: Box<dyn Reading>, has_lines: bool, limit: usize) -> Self {
        Self {
            room,
            reading,
            has_lines,
            limit,
            received: 0,
            reserved: 0,
            framing: Framing::Unknown,
            line: Vec::new(),
            data: Vec::new(),
            after_return: false,
            is_done: false,
            failed: None,
        }
    }

    /// Ends the answer.
    ///
    /// # Errors
    /// The answer cannot be read, or is incomplete.
    pub(super) fn end(mut self) -> Result<super::collected::Collected, Unreadable> {
        if self.failed.is_none() {
            self.finish_body();
        }
        match self.failed {
            Some(why) => Err(why),
            None => self.reading.end(self.is_done),
        }
    }

    /// Takes the error, if it is known before the end of the answer.
    pub(super) fn take_failure(&mut self) -> Option<Unreadable> {
        self.failed.take()
    }

    /// Reads the bytes after the last complete document.
    fn finish_body(&mut self) {
        match self.framing {
            Framing::Events => {
                self.end_line();
                self.end_event();
            }
            Framing::Unknown | Framing::Whole | Framing::Lines => {
                let document = std::mem::take(&mut self.line);
                let is_rest = self.framing == Framing::Lines && document.iter().all(u8::is_ascii_whitespace);
                if !is_rest {
                    self.read_document(&document);
                }
            }
        }
    }

    /// Reads a document, unless an earlier one failed or was the last.
    fn read_document(&mut self, document: &[u8]) {
        if self.failed.is_none() && !self.is_done {
            self.failed = self.reading.take(document).err();
        }
    }

    /// Splits bytes of a known framing into lines, and reads each document that they complete.
    fn split(&mut self, mut piece: &[u8]) {
        if self.framing == Framing::Whole {
            return self.line.extend_from_slice(piece);
        }
        while !piece.is_empty() && self.failed.is_none() {
            if std::mem::take(&mut self.after_return) && piece.first() == Some(&b'\n') {
                piece = piece.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', piece) else {
                return self.line.extend_from_slice(piece);
            };
            let (line, rest) = piece.split_at(end);
            self.line.extend_from_slice(line);
            self.after_return = rest.first() == Some(&b'\r');
            piece = rest.get(1..).unwrap_or_default();
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if self.framing == Framing::Lines {
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.read_document(&line);
            }
        } else if line.is_empty() {
            self.end_event();
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
    }

    fn end_event(&mut self) {
        let data = std::mem::take(&mut self.data);
        if data.trim_ascii() == DONE {
            self.is_done = true;
        } else if !data.is_empty() {
            self.read_document(&data);
        }
    }

    /// Sets the framing by the first bytes of the answer.
    fn detect_framing(&mut self, piece: &[u8]) -> Result<(), BodyRefused> {
        if is_page(piece) {
            self.failed = Some(Unreadable::Page);
            return Err(BodyRefused::Unreadable);
        }
        self.framing = self.framing_of(piece);
        if self.framing == Framing::Events {
            self.reading.begin_stream();
        }
        Ok(())
    }

    /// Checks the limits, and reserves memory for `more` bytes in addition to the kept bytes.
    fn reserve_memory(&mut self, more: usize) -> Result<(), BodyRefused> {
        let is_stream = matches!(self.framing, Framing::Events | Framing::Lines);
        let max_received = if is_stream { MAX_STREAM } else { self.limit };
        let kept = self.line.len() + self.data.len() + self.reading.bytes() + more;
        if self.received > max_received || kept > self.limit {
            self.line = Vec::new();
            return Err(BodyRefused::TooLarge(if kept > self.limit { self.limit } else { max_received }));
        }
        if kept > self.reserved {
            let reserved = kept.next_multiple_of(PIECE);
            if !self.room.has_room_for(reserved * COPIES) {
                self.line = Vec::new();
                self.data = Vec::new();
                return Err(BodyRefused::NoRoom);
            }
            self.reserved = reserved;
        }
        Ok(())
    }

    /// Returns the framing by the first byte that is not white space.
    fn framing_of(&self, piece: &[u8]) -> Framing {
        match piece.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => Framing::Unknown,
            // The beginning of a field of an event, of a comment, or of a byte order mark.
            Some(b'd' | b'e' | b'i' | b'r' | b':' | 0xEF) => Framing::Events,
            Some(_) if self.has_lines => Framing::Lines,
            Some(_) => Framing::Whole,
        }
    }
}

/// Whether an answer begins like a page of HTML.
pub(super) fn is_page(beginning: &[u8]) -> bool {
    let text = beginning.strip_prefix(BYTE_ORDER_MARK).unwrap_or(beginning);
    text.trim_ascii_start().starts_with(b"<")
}

impl AnswerBody for Documents<'_> {
    fn limit(&self) -> usize {
        MAX_STREAM
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), BodyRefused> {
        self.received = self.received.saturating_add(piece.len());
        if self.framing == Framing::Unknown {
            self.detect_framing(piece)?;
        }
        self.reserve_memory(piece.len())?;
        if self.framing == Framing::Unknown {
            return Ok(());
        }
        let is_first = self.received == piece.len();
        self.split(piece.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first).unwrap_or(piece));
        if self.failed.is_some() { Err(BodyRefused::Unreadable) } else { Ok(()) }
    }
}
