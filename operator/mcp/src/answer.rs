//! The answer of a server over HTTP while it is received: one message, or a stream of events of which one is the
//! answer.
//!
//! The first byte shows which of the two it is. Reading ends with the answer, and then the connection is closed.

use signoff_executor::http::{AnswerBody, BodyRefused};

use crate::message::{self, Answered, Unreadable};

/// The maximum size of a stream of events, in bytes. It is large because each event has much overhead.
const MAX_STREAM: usize = 16 * 1024 * 1024;

/// The framing of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// Unknown, because only white space was received.
    Unknown,
    /// The whole answer is one message.
    Whole,
    /// Server-sent events.
    Events,
}

/// An answer while it is received.
pub(crate) struct AnswerReader {
    /// The number of the request.
    id: u64,
    /// The maximum size of a message, in bytes.
    limit: usize,
    received: usize,
    framing: Framing,
    /// The current line, or the whole answer if it is one message.
    line: Vec<u8>,
    /// The data of the current event.
    data: Vec<u8>,
    /// Whether the event has a type of its own, and therefore no message.
    is_other_event: bool,
    /// Whether the last byte was a carriage return: a line feed after it ends no further line.
    after_return: bool,
    found: Option<Answered>,
    failed: Option<Unreadable>,
}

impl AnswerReader {
    /// Returns an empty answer to request `id`. `limit` is the maximum size of a message, in bytes.
    pub(crate) fn new(id: u64, limit: usize) -> Self {
        Self {
            id,
            limit,
            received: 0,
            framing: Framing::Unknown,
            line: Vec::new(),
            data: Vec::new(),
            is_other_event: false,
            after_return: false,
            found: None,
            failed: None,
        }
    }

    /// Returns the reason why the answer is not read any further, or `None`.
    pub(crate) fn failure(&self) -> Option<Unreadable> {
        self.failed
    }

    /// Ends the answer: parses a message that is complete only at the end of the body, and returns the answer.
    ///
    /// # Errors
    /// The answer cannot be read, or does not answer the request.
    pub(crate) fn end(mut self) -> Result<Answered, Unreadable> {
        if self.found.is_none() && self.failed.is_none() {
            match self.framing {
                Framing::Events => {
                    self.end_line();
                    self.end_event();
                }
                Framing::Whole => {
                    let message = std::mem::take(&mut self.line);
                    self.read(&message);
                }
                Framing::Unknown => {}
            }
        }
        match self.failed {
            Some(why) => Err(why),
            None => self.found.ok_or(Unreadable::Missing),
        }
    }

    fn read(&mut self, message: &[u8]) {
        match message::read(message, self.id) {
            Ok(answered) => self.found = answered,
            Err(why) => self.failed = Some(why),
        }
    }

    fn is_ended(&self) -> bool {
        self.found.is_some() || self.failed.is_some()
    }

    /// Reads a piece of the body, up to the answer.
    fn read_piece(&mut self, mut piece: &[u8]) {
        if self.framing == Framing::Whole {
            return self.keep(piece);
        }
        while !piece.is_empty() && !self.is_ended() {
            if std::mem::take(&mut self.after_return) && piece.first() == Some(&b'\n') {
                piece = piece.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                return self.keep(piece);
            };
            let (line, rest) = piece.split_at(end);
            self.keep(line);
            self.after_return = rest.first() == Some(&b'\r');
            piece = rest.get(1..).unwrap_or_default();
            if self.failed.is_none() {
                self.end_line();
            }
        }
    }

    /// Adds bytes to the current line. The answer fails if the message becomes longer than the limit.
    fn keep(&mut self, bytes: &[u8]) {
        if self.line.len() + self.data.len() + bytes.len() > self.limit {
            self.fail_by_size(self.limit);
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn fail_by_size(&mut self, limit: usize) {
        self.line = Vec::new();
        self.data = Vec::new();
        self.failed = Some(Unreadable::TooLarge(limit));
    }

    /// Ends the current line: adds its data to the event, or ends the event at an empty line.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let value = |name: &[u8]| {
            let value = line.strip_prefix(name)?;
            Some(value.strip_prefix(b" ").unwrap_or(value))
        };
        if line.is_empty() {
            self.end_event();
        } else if let Some(data) = value(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data);
        } else if let Some(kind) = value(b"event:") {
            self.is_other_event = kind != b"message";
        }
    }

    /// Ends the current event, whose data is a message unless the event has another type.
    fn end_event(&mut self) {
        let data = std::mem::take(&mut self.data);
        let is_other = std::mem::take(&mut self.is_other_event);
        if !is_other && !data.is_empty() {
            self.read(&data);
        }
    }
}

impl AnswerBody for AnswerReader {
    fn limit(&self) -> usize {
        MAX_STREAM
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), BodyRefused> {
        self.received = self.received.saturating_add(piece.len());
        let mut piece = piece;
        if self.framing == Framing::Unknown {
            // White space and the byte order mark.
            let is_content = |byte: &u8| !byte.is_ascii_whitespace() && !matches!(byte, 0xEF | 0xBB | 0xBF);
            piece = piece.iter().position(is_content).and_then(|start| piece.get(start..)).unwrap_or_default();
            self.framing = match piece.first() {
                None => Framing::Unknown,
                // The beginning of a field of an event, or of a comment.
                Some(b'd' | b'e' | b'i' | b'r' | b':') => Framing::Events,
                Some(_) => Framing::Whole,
            };
        }
        let most = if self.framing == Framing::Events { MAX_STREAM } else { self.limit };
        if self.received > most {
            self.fail_by_size(most);
        } else {
            self.read_piece(piece);
        }
        match self.failed {
            Some(Unreadable::TooLarge(limit)) => Err(BodyRefused::TooLarge(limit)),
            Some(Unreadable::Form(_) | Unreadable::OtherId(_) | Unreadable::Missing) => Err(BodyRefused::Unreadable),
            None => Ok(()),
        }
    }

    fn is_complete(&self) -> bool {
        self.found.is_some()
    }
}

/// The body of an answer that is not read.
pub(crate) struct UnreadBody;

impl AnswerBody for UnreadBody {
    fn limit(&self) -> usize {
        usize::MAX
    }

    fn add(&mut self, _piece: &[u8]) -> Result<(), BodyRefused> {
        Ok(())
    }

    fn is_complete(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"ok":true}}"#;

    fn result() -> Result<Answered, Unreadable> {
        Ok(Answered::Result(r#"{"ok":true}"#.to_owned()))
    }

    /// Reads an answer that arrives in pieces of `size` bytes.
    fn read_in(text: &str, size: usize) -> Result<Answered, Unreadable> {
        let mut reader = AnswerReader::new(1, 1000);
        for piece in text.as_bytes().chunks(size) {
            if reader.is_complete() || reader.add(piece).is_err() {
                break;
            }
        }
        reader.end()
    }

    #[test]
    fn an_answer_in_pieces_of_any_size_is_read() {
        let notice = r#"data: {"jsonrpc":"2.0","method":"notifications/message"}"#;
        let ping = r#"data: {"jsonrpc":"2.0","id":"s1","method":"ping"}"#;
        let halves = ANSWER.replace(",\"result\"", ",\ndata: \"result\"");
        for text in [
            ANSWER.to_owned(),
            format!("\u{feff}  {ANSWER}\n"),
            format!("data: {ANSWER}\n\n"),
            format!("data:{ANSWER}"),
            format!(": here\r\n\r\nid: 1\r\nretry: 10\r\ndata:\r\n\r\nevent: message\r\ndata: {ANSWER}\r\n\r\n"),
            format!("{notice}\n\n{ping}\n\nevent: ping\ndata: now\n\ndata: {ANSWER}\n\n{notice}\n\n"),
            format!("data: {halves}\r\r"),
        ] {
            for size in [1, 2, 3, 7, 5000] {
                assert_eq!(read_in(&text, size), result(), "{size} {text}");
            }
        }
    }

    #[test]
    fn bytes_after_the_answer_are_not_read() {
        let mut reader = AnswerReader::new(1, 1000);
        reader.add(format!("data: {ANSWER}\n\ndata: nonsense").as_bytes()).unwrap();
        assert!(reader.is_complete());
        assert_eq!(reader.end(), result());
    }

    #[test]
    fn an_answer_that_is_cut_or_answers_another_request_is_refused() {
        for (text, why) in [
            ("", Unreadable::Missing),
            ("   \n", Unreadable::Missing),
            ("data: \n\n", Unreadable::Missing),
            (": nothing\n\n", Unreadable::Missing),
            ("data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n", Unreadable::OtherId(Some(2))),
        ] {
            assert_eq!(read_in(text, 3), Err(why), "{text}");
        }
        for text in ["<html>", "data: {\"jsonrpc\":", "data: hello\n\n", &ANSWER[..20]] {
            assert!(matches!(read_in(text, 3), Err(Unreadable::Form(_))), "{text}");
        }
    }

    #[test]
    fn a_message_or_stream_over_its_limit_is_refused() {
        let long = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":"{}"}}}}"#, "x".repeat(1000));
        for text in [long.clone(), format!("data: {long}\n\n"), " ".repeat(2000)] {
            assert_eq!(read_in(&text, 100), Err(Unreadable::TooLarge(1000)));
        }
        let mut reader = AnswerReader::new(1, 1000);
        let comment = b":\n\n".repeat(300);
        let added = (0..).map(|_| reader.add(&comment)).take_while(Result::is_ok).count() * comment.len();
        assert!(added > MAX_STREAM - comment.len() && added <= MAX_STREAM, "{added}");
        assert_eq!(reader.end(), Err(Unreadable::TooLarge(MAX_STREAM)));
    }
}
