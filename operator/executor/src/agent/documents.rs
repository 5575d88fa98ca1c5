//! The documents of an answer: the whole of it, the events of a stream, or its lines. Each is read when it is there,
//! and then forgotten.
//!
//! Whether a server streams is seen by what it sends, not by what it says: some stream although they were not asked to,
//! some do not although they were. **Invariant:** what is kept, with its copies, never exceeds the room for it.

use super::protocol::{Reading, Unreadable};
use crate::{
    http::{AnswerBody, BodyRefused},
    room::AnswerRoom,
};

/// The room is asked for so many bytes at once.
const PIECE: usize = 64 * 1024;

/// The copies in memory of what is kept, when it is read.
const COPIES: usize = 2;

/// The most bytes of a stream: the little that an event says has much around it.
const MAX_STREAM: usize = 256 * 1024 * 1024;

/// The data of the last event of some streams.
const DONE: &[u8] = b"[DONE]";

/// The way in which an answer is divided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// Not known: only white space was received.
    Unknown,
    /// All of it is one document.
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
    /// Whether an answer that begins like JSON is a document a line.
    has_lines: bool,
    /// The most bytes that are kept.
    limit: usize,
    received: usize,
    /// The bytes for which there is room.
    room_for: usize,
    framing: Framing,
    /// The line that is received; the whole answer where it is one document.
    line: Vec<u8>,
    /// The data of the event that is received.
    data: Vec<u8>,
    /// Whether the last byte ended a line as a carriage return does: a line feed after it ends none.
    after_return: bool,
    /// Whether the last event said that the stream has ended.
    is_done: bool,
    failed: Option<Unreadable>,
}

impl<'r> Documents<'r> {
    /// Returns an answer of which nothing is there. `limit`: the most bytes that are kept of it.
    pub(super) fn new(room: &'r dyn AnswerRoom, reading: Box<dyn Reading>, has_lines: bool, limit: usize) -> Self {
        Self {
            room,
            reading,
            has_lines,
            limit,
            received: 0,
            room_for: 0,
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
    /// It cannot be read, or not all of it is there.
    pub(super) fn end(mut self) -> Result<super::collected::Collected, Unreadable> {
        if self.failed.is_none() {
            self.end_of_body();
        }
        match self.failed {
            Some(why) => Err(why),
            None => self.reading.end(self.is_done),
        }
    }

    /// Returns why it cannot be read, if that is known before its end.
    pub(super) fn failure(&mut self) -> Option<Unreadable> {
        self.failed.take()
    }

    fn end_of_body(&mut self) {
        match self.framing {
            Framing::Events => {
                self.end_line();
                self.end_event();
            }
            Framing::Unknown | Framing::Whole | Framing::Lines => {
                let document = std::mem::take(&mut self.line);
                let is_rest = self.framing == Framing::Lines && document.iter().all(u8::is_ascii_whitespace);
                if !is_rest {
                    self.read(&document);
                }
            }
        }
    }

    fn read(&mut self, document: &[u8]) {
        if self.failed.is_none() && !self.is_done {
            self.failed = self.reading.take(document).err();
        }
    }

    /// Takes bytes whose framing is known.
    fn take(&mut self, mut piece: &[u8]) {
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
                self.read(&line);
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
            self.read(&data);
        }
    }

    /// Returns how the answer is divided, by its first byte that is no white space.
    fn framing_of(&self, piece: &[u8]) -> Framing {
        match piece.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => Framing::Unknown,
            // The beginning of a field of an event, of a comment, or of the mark of the order of bytes.
            Some(b'd' | b'e' | b'i' | b'r' | b':' | 0xEF) => Framing::Events,
            Some(_) if self.has_lines => Framing::Lines,
            Some(_) => Framing::Whole,
        }
    }
}

/// Whether an answer begins as a page of HTML does, and as no JSON.
pub(super) fn is_page(beginning: &[u8]) -> bool {
    let text = beginning.strip_prefix("\u{feff}".as_bytes()).unwrap_or(beginning);
    text.trim_ascii_start().starts_with(b"<")
}

impl AnswerBody for Documents<'_> {
    fn limit(&self) -> usize {
        MAX_STREAM
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), BodyRefused> {
        self.received = self.received.saturating_add(piece.len());
        if self.framing == Framing::Unknown {
            if is_page(piece) {
                self.failed = Some(Unreadable::Page);
                return Err(BodyRefused::Unreadable);
            }
            self.framing = self.framing_of(piece);
            if self.framing == Framing::Events {
                self.reading.begin_stream();
            }
        }
        let most = if matches!(self.framing, Framing::Events | Framing::Lines) { MAX_STREAM } else { self.limit };
        let kept = self.line.len() + self.data.len() + self.reading.bytes() + piece.len();
        if self.received > most || kept > self.limit {
            self.line = Vec::new();
            return Err(BodyRefused::TooLarge(if kept > self.limit { self.limit } else { most }));
        }
        if kept > self.room_for {
            let room_for = kept.next_multiple_of(PIECE);
            if !self.room.has_room_for(room_for * COPIES) {
                self.line = Vec::new();
                self.data = Vec::new();
                return Err(BodyRefused::NoRoom);
            }
            self.room_for = room_for;
        }
        if self.framing == Framing::Unknown {
            return Ok(());
        }
        self.take(piece.strip_prefix("\u{feff}".as_bytes()).filter(|_| self.received == piece.len()).unwrap_or(piece));
        if self.failed.is_some() { Err(BodyRefused::Unreadable) } else { Ok(()) }
    }
}
