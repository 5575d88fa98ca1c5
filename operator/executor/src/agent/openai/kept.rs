//! The part of an answer that is kept while it is received: texts that no turn may have are dropped piece by piece.
//!
//! Whether the answer is JSON is judged where what was kept is read. **Invariant:** what was kept reads like the
//! answer, but that arguments which are too long are their length, and of other texts which are too long only the
//! beginning is there.

use signoff_api::turn::RequestedArguments;

use super::super::requested::{MAX_ARGUMENTS_OF_ANSWER, MAX_NAME};
use crate::{
    http::{AnswerBody, BodyRefused},
    room::AnswerRoom,
};

/// The member of the object that stands for arguments which are too long. No server sends it.
pub(super) const TOO_LONG: &str = "signoff.dev/too-long";

/// The most bytes of a text in a field that is not the answer's own text.
const MAX_TEXT: usize = RequestedArguments::MAX_BYTES;

/// The most bytes of the beginning that is kept of such a text. They hold the characters of a name, of four bytes each.
const MAX_BEGINNING: usize = 4 * MAX_NAME;

/// A text of so many bytes is not dropped: what stands for arguments that are too long is shorter.
const SHORT: usize = 64;

/// The room is asked for so many bytes at once.
const PIECE: usize = 64 * 1024;

/// What is kept in memory is there twice when it is read.
const COPIES: usize = 2;

/// The part of an answer that is kept.
pub(super) struct KeptAnswer<'r> {
    room: &'r dyn AnswerRoom,
    /// The most bytes that are received.
    limit: usize,
    received: usize,
    /// The bytes for which there is room.
    room_for: usize,
    kept: Vec<u8>,
    /// Where the last text begins in `kept`, with its quotation mark, and what it belongs to.
    text: Text,
    field: Field,
    /// How many bytes of arguments can still be kept, written as JSON strings: as those who bound the calls count them.
    arguments_left: usize,
}

/// The field whose value follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    /// The arguments of a call.
    Arguments,
    /// A text of the answer itself, which is kept as far as the answer is not too long.
    Content,
    Other,
}

/// A text of the answer.
struct Text {
    /// Where it begins in what is kept, with its quotation mark.
    start: usize,
    /// Its bytes, read.
    length: usize,
    /// Its bytes, written as a JSON string.
    written: usize,
    is_dropped: bool,
    /// Where what is kept ends if only the beginning of the text is kept: between two characters.
    beginning: usize,
    /// Whether the last character is the first half of a pair.
    is_half: bool,
    at: Position,
}

/// The position in relation to texts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Outside,
    Inside,
    AfterBackslash,
    /// After so many digits of an escaped character, with their value.
    Escaped(u8, u32),
}

impl<'r> KeptAnswer<'r> {
    pub(super) fn new(room: &'r dyn AnswerRoom, limit: usize) -> Self {
        let text = Text { at: Position::Outside, ..Text::begin(0) };
        let (field, arguments_left) = (Field::Other, MAX_ARGUMENTS_OF_ANSWER);
        Self { room, limit, received: 0, room_for: 0, kept: Vec::new(), text, field, arguments_left }
    }

    /// Returns what was kept.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.kept
    }

    /// Takes the bytes at the beginning of `piece` that are nothing but characters of the text, as many as are known to
    /// be kept or dropped together. Returns how many.
    fn take_plain(&mut self, piece: &[u8]) -> usize {
        // Where its beginning may end, each character is looked at.
        if self.text.at != Position::Inside || self.text.length <= MAX_BEGINNING || self.text.is_half {
            return 0;
        }
        let most = if self.text.is_dropped { usize::MAX } else { self.bytes_until_too_long() };
        let piece = piece.get(..most).unwrap_or(piece);
        let plain = memchr::memchr2(b'"', b'\\', piece).unwrap_or(piece.len());
        self.text.count(plain, plain);
        if !self.text.is_dropped {
            self.kept.extend_from_slice(&piece[..plain]);
        }
        plain
    }

    fn take(&mut self, byte: u8) {
        match self.text.at {
            Position::Outside => return self.take_outside(byte),
            Position::Inside => match byte {
                b'"' => return self.end_text(),
                b'\\' => {
                    self.text.begin_character(self.kept.len());
                    self.text.at = Position::AfterBackslash;
                }
                0x80..0xC0 => self.text.count(1, 1),
                _ => {
                    self.text.begin_character(self.kept.len());
                    self.text.count(1, 1);
                }
            },
            Position::AfterBackslash if byte == b'u' => self.text.at = Position::Escaped(0, 0),
            Position::AfterBackslash => {
                self.text.count(1, if byte == b'/' { 1 } else { 2 });
                self.text.at = Position::Inside;
            }
            Position::Escaped(digits, value) => {
                let value = value * 16 + char::from(byte).to_digit(16).unwrap_or_default();
                self.text.at = Position::Escaped(digits + 1, value);
                if digits == 3 {
                    self.text.count(length_of(value), written_length_of(value));
                    self.text.is_half = (0xD800..0xDC00).contains(&value);
                    self.text.at = Position::Inside;
                }
            }
        }
        if !self.text.is_dropped {
            self.kept.push(byte);
            self.drop_if_too_long();
        }
    }

    fn take_outside(&mut self, byte: u8) {
        match byte {
            b'"' => self.text = Text::begin(self.kept.len()),
            b':' => {
                self.field = Field::of(self.kept.get(self.text.start..).unwrap_or_default());
                // It is read once, however many colons follow.
                self.text.start = self.kept.len();
            }
            b',' | b'{' | b'[' => self.field = Field::Other,
            _ => {}
        }
        self.kept.push(byte);
    }

    /// Returns how many more bytes the text can have before it is too long.
    fn bytes_until_too_long(&self) -> usize {
        let left = MAX_TEXT.saturating_sub(self.text.length);
        match self.field {
            Field::Arguments => left.min(self.arguments_left.saturating_sub(self.text.written)),
            Field::Content => usize::MAX,
            Field::Other => left,
        }
    }

    fn drop_if_too_long(&mut self) {
        let is_too_long = match self.field {
            Field::Arguments => self.text.length > MAX_TEXT || self.text.written > self.arguments_left,
            Field::Content => false,
            Field::Other => self.text.length > MAX_TEXT,
        };
        if is_too_long && self.text.length > SHORT {
            self.text.is_dropped = true;
            let end = if self.field == Field::Arguments { self.text.start } else { self.text.beginning };
            self.kept.truncate(end);
        }
    }

    fn end_text(&mut self) {
        self.text.at = Position::Outside;
        match (self.text.is_dropped, self.field) {
            (true, Field::Arguments) => {
                let instead = format!("{{\"{TOO_LONG}\":{}}}", self.text.length);
                self.kept.extend_from_slice(instead.as_bytes());
            }
            // A text still, so that a field that must be another value, or none, is refused as it would have been.
            (true, _) => self.kept.push(b'"'),
            (false, field) => {
                self.kept.push(b'"');
                if field == Field::Arguments {
                    // Short ones that do not fit either are left to those who bound the calls.
                    self.arguments_left =
                        self.arguments_left.checked_sub(self.text.written).unwrap_or(self.arguments_left);
                }
            }
        }
    }
}

impl Text {
    /// A text whose quotation mark comes next.
    fn begin(start: usize) -> Self {
        // Its quotation marks are written too.
        let beginning = start + 1;
        Self { start, length: 0, written: 2, is_dropped: false, beginning, is_half: false, at: Position::Inside }
    }

    /// Tells the text that a character begins at `position` of what is kept.
    fn begin_character(&mut self, position: usize) {
        if self.length <= MAX_BEGINNING && !self.is_half {
            self.beginning = position;
        }
        self.is_half = false;
    }

    fn count(&mut self, length: usize, written: usize) {
        self.length += length;
        self.written += written;
    }
}

impl AnswerBody for KeptAnswer<'_> {
    fn limit(&self) -> usize {
        self.limit
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), BodyRefused> {
        self.received += piece.len();
        if self.received > self.limit {
            return Err(BodyRefused::TooLarge(self.limit));
        }
        for part in piece.chunks(PIECE) {
            // A byte takes the place of one byte at most: what is dropped is longer than what stands for it.
            let needed = self.kept.len() + part.len();
            if needed > self.room_for {
                let room_for = needed.next_multiple_of(PIECE);
                if !self.room.has_room_for(room_for * COPIES) {
                    self.kept = Vec::new();
                    return Err(BodyRefused::NoRoom);
                }
                self.kept.reserve_exact(room_for - self.kept.len());
                self.room_for = room_for;
            }
            let mut rest = part;
            while let Some((first, after)) = rest.split_first() {
                match self.take_plain(rest) {
                    0 => {
                        self.take(*first);
                        rest = after;
                    }
                    taken => rest = rest.split_at(taken).1,
                }
            }
        }
        Ok(())
    }
}

impl Field {
    /// The most bytes of a name that is looked for, with its quotation marks: of nine letters, each of which can be
    /// escaped.
    const LONGEST_NAME: usize = 9 * 6 + 2;

    /// Returns the field of a name, which is kept with its quotation marks.
    fn of(name: &[u8]) -> Self {
        let end = name.iter().take(Self::LONGEST_NAME).skip(1).position(|byte| *byte == b'"');
        let name = end.and_then(|end| serde_json::from_slice::<String>(name.get(..end + 2)?).ok());
        match name.as_deref() {
            Some("arguments") => Self::Arguments,
            Some("content" | "text" | "refusal") => Self::Content,
            _ => Self::Other,
        }
    }
}

/// Returns the bytes of a character of this number in UTF-8, or of half a pair of them.
fn length_of(character: u32) -> usize {
    match character {
        0..0x80 => 1,
        0x80..0x800 | 0xD800..0xE000 => 2,
        _ => 3,
    }
}

/// Returns the bytes of a character of this number, or of half a pair, in a JSON string that this process writes.
fn written_length_of(character: u32) -> usize {
    match character {
        0x08..=0x0A | 0x0C | 0x0D | 0x22 | 0x5C => 2,
        0..0x20 => 6,
        _ => length_of(character),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};
    use signoff_api::turn::RequestedCall;

    use super::{super::super::requested::bounded, super::answer::Completion, *};
    use crate::room::UnboundedRoom;

    struct Room {
        most: usize,
        held: AtomicUsize,
    }

    impl AnswerRoom for Room {
        fn has_room_for(&self, bytes: usize) -> bool {
            self.held.fetch_max(bytes.min(self.most), Ordering::Relaxed);
            bytes <= self.most
        }
    }

    fn kept(answer: &str, piece: usize) -> String {
        let mut kept = KeptAnswer::new(&UnboundedRoom, usize::MAX);
        for piece in answer.as_bytes().chunks(piece) {
            kept.add(piece).unwrap();
        }
        String::from_utf8(kept.bytes().to_vec()).unwrap()
    }

    #[test]
    fn what_is_not_too_long_is_kept_to_the_byte() {
        let answer = r#" {"choices" : [ {"message": {"content": "a\"b\\", "tool_calls":[{"id":"1","function":
            {"name":"pay","arguments":"{\"to\": \"\u00e9\ud83d\ude00\"}"}}]} } ], "x":[1.5e3,null,true,{}]}"#;
        for piece in [1, 2, 7, 1000] {
            assert_eq!(kept(answer, piece), answer);
        }
    }

    #[test]
    fn arguments_that_are_too_long_are_their_length_in_whatever_pieces_and_notation() {
        let escaped = r"\u00e9".repeat(MAX_TEXT / 2);
        let cases = [
            ("x".repeat(MAX_TEXT), None),
            ("x".repeat(MAX_TEXT + 1), Some(MAX_TEXT + 1)),
            (escaped.clone(), None),
            (format!("{escaped}x"), Some(MAX_TEXT + 1)),
            (r"\ud83d\ude00".repeat(MAX_TEXT / 4), None),
            (r"\n".repeat(MAX_TEXT + 7), Some(MAX_TEXT + 7)),
        ];
        for (arguments, too_long) in cases {
            let answer = format!(r#"{{"arguments" : "{arguments}","id":"a"}}"#);
            let expected = match too_long {
                Some(length) => format!(r#"{{"arguments" : {{"{TOO_LONG}":{length}}},"id":"a"}}"#),
                None => answer.clone(),
            };
            for piece in [13, 4096, usize::MAX] {
                assert!(kept(&answer, piece) == expected, "{piece} {too_long:?}");
            }
        }
    }

    #[test]
    fn arguments_of_many_calls_are_kept_up_to_the_limit_of_all() {
        let text = "x".repeat(MAX_TEXT);
        let call = json!({"arguments": text});
        let answer = json!([call, call, call, call, call, call, call, call, call, {"arguments": ""}]).to_string();
        let read: Value = serde_json::from_str(&kept(&answer, 5000)).unwrap();
        assert!((0..7).all(|n| read[n]["arguments"].is_string()));
        assert_eq!(read[7], json!({"arguments": {TOO_LONG: MAX_TEXT}}));
        assert_eq!(read[9], json!({"arguments": ""}));
    }

    #[test]
    fn the_answers_own_text_is_kept_and_of_other_long_texts_the_beginning() {
        let long = "y".repeat(MAX_TEXT + 1);
        let message =
            json!({"content": long, "reasoning": long, "refusal": long, "list": [long, {"text": long}], "id": long});
        let read: Value = serde_json::from_str(&kept(&message.to_string(), 999)).unwrap();
        let cut = "y".repeat(MAX_BEGINNING);
        let expected =
            json!({"content": long, "reasoning": cut, "refusal": long, "list": [cut, {"text": long}], "id": cut});
        assert!(read == expected);
    }

    #[test]
    fn room_is_asked_for_what_is_kept_and_not_for_what_is_dropped() {
        let answer = json!({"arguments": "x".repeat(5 << 20)}).to_string();
        let room = Room { most: 4 * PIECE * COPIES, held: AtomicUsize::new(0) };
        let mut kept = KeptAnswer::new(&room, 8 << 20);
        answer.as_bytes().chunks(16 * 1024).for_each(|piece| kept.add(piece).unwrap());
        assert!(room.held.load(Ordering::Relaxed) <= 3 * PIECE * COPIES);
        assert!(kept.kept.capacity() <= 3 * PIECE);

        let mut kept = KeptAnswer::new(&room, 8 << 20);
        let content = json!({"content": "x".repeat(5 << 20)}).to_string();
        let ends = content.as_bytes().chunks(16 * 1024).find_map(|piece| kept.add(piece).err());
        assert_eq!(ends, Some(BodyRefused::NoRoom));
        assert_eq!(kept.kept.capacity(), 0, "what nobody reads is free at once");
    }

    #[test]
    fn more_bytes_than_the_limit_are_too_large_also_where_they_are_dropped() {
        let mut kept = KeptAnswer::new(&UnboundedRoom, 1 << 20);
        let answer = json!({"arguments": "x".repeat(2 << 20)}).to_string();
        let ends = answer.as_bytes().chunks(16 * 1024).find_map(|piece| kept.add(piece).err());
        assert_eq!(ends, Some(BodyRefused::TooLarge(1 << 20)));
    }

    #[test]
    fn any_bytes_are_kept_as_they_are_where_no_text_is_long() {
        let mut dice = 1_u32;
        let mut roll = || {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (dice >> 16) as usize
        };
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..roll() % 300).map(|_| b"\"\\:,{}[]u0an/ \xc3\xa9"[roll() % 16]).collect();
            let mut kept = KeptAnswer::new(&UnboundedRoom, usize::MAX);
            bytes.chunks(1 + roll() % 50).for_each(|piece| kept.add(piece).unwrap());
            assert_eq!(kept.bytes(), bytes);
        }
    }

    /// Returns the reading of an answer: whether it is an error, its use of tokens, and of its first choice why it
    /// ended, its texts and its calls.
    fn told(answer: &[u8]) -> Option<(bool, Option<u64>, Option<String>)> {
        let read: Completion = serde_json::from_slice(answer).ok()?;
        let choice = read.choices.kept.into_iter().next().map(|choice| {
            let message = choice.message.map(|message| {
                let calls = bounded(message.tool_calls.kept.into_iter().map(RequestedCall::from));
                (message.content, message.refusal, calls, message.tool_calls.dropped)
            });
            format!(
                "{:?} {message:?}",
                choice.finish_reason.filter(|reason| !reason.is_empty() && reason.len() <= MAX_TEXT)
            )
        });
        Some((read.error.is_some(), read.usage.map(|usage| usage.prompt_tokens), choice))
    }

    /// Whether the same is made of what is kept of an answer as of all of it.
    fn reads_the_same(answer: &str) -> bool {
        told(kept(answer, 3000).as_bytes()) == told(answer.as_bytes())
    }

    #[test]
    fn a_long_text_where_it_does_not_belong_changes_nothing_else() {
        let long = "y".repeat(MAX_TEXT + 1);
        let message = r#"{"content": "a"}"#;
        let cases = [
            ("an error", format!(r#"{{"error": "{long}", "choices": [{{"message": {message}}}]}}"#)),
            ("a name", format!(r#"{{"{long}": 1, "choices": [{{"message": {message}}}]}}"#)),
            ("a use", format!(r#"{{"usage": "{long}", "choices": [{{"message": {message}}}]}}"#)),
            ("calls", format!(r#"{{"choices": [{{"message": {{"content": "a", "tool_calls": "{long}"}}}}]}}"#)),
            ("a function", format!(r#"{{"choices": [{{"message": {{"tool_calls": [{{"function": "{long}"}}]}}}}]}}"#)),
        ];
        for (what, answer) in cases {
            assert!(reads_the_same(&answer), "{what}");
        }
    }

    #[test]
    fn long_names_of_calls_begin_as_they_were_written() {
        for unit in
            ["x", "\u{e9}", "\u{20ac}", "\u{1f600}", r"\n", r"\u0001", r"\u00e9", r"\u20ac", r"\ud83d\ude00", r#"\""#]
        {
            for shift in ["", "x", "xy", "xyz"] {
                let name = shift.to_owned() + &unit.repeat(MAX_TEXT);
                let call = format!(r#"{{"id": "{name}", "function": {{"name": "{name}", "arguments": "{{}}"}}}}"#);
                let answer = format!(r#"{{"choices": [{{"message": {{"tool_calls": [{call}]}}}}]}}"#);
                assert!(reads_the_same(&answer), "{shift}{unit}");
            }
        }
    }

    fn answer_with(arguments: &[String]) -> String {
        let calls: Vec<_> =
            arguments.iter().map(|text| format!(r#"{{"function": {{"name": "pay", {text}}}}}"#)).collect();
        format!(r#"{{"choices": [{{"message": {{"tool_calls": [{}]}}}}]}}"#, calls.join(","))
    }

    #[test]
    fn arguments_are_known_by_their_name_however_it_is_written() {
        for name in ["arguments", r"\u0061rguments", r"argument\u0073", &r"\u0061".repeat(MAX_TEXT + 1)] {
            assert!(
                reads_the_same(&answer_with(&[format!(r#""{name}": "{}""#, "x".repeat(MAX_TEXT + 1))])),
                "{}",
                name.len()
            );
        }
    }

    #[test]
    fn arguments_count_as_they_are_counted_when_the_calls_are_bounded() {
        let controls = |count| format!(r#""arguments": "{}""#, r"\u0001".repeat(count));
        let mut arguments = vec![controls(60_000); 12];
        arguments.push(r#""arguments": "{}""#.to_owned());
        arguments.push(controls(20_000));
        assert!(reads_the_same(&answer_with(&arguments)));
    }

    #[test]
    fn random_answers_read_as_if_all_of_them_was_kept() {
        let mut dice = 7_u32;
        let mut roll = |most: usize| {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (dice >> 16) as usize % most
        };
        let unit = ["x", r"\n", r"\u0001", "\u{e9}", r"\ud83d\ude00", r"\/", r#"\""#, r"\u00e9"];
        for number in 0..150 {
            let text = |roll: &mut dyn FnMut(usize) -> usize| {
                let unit = unit[roll(unit.len())];
                unit.repeat([0, 1, 20, 70, 9000, MAX_TEXT / 2, MAX_TEXT - 1, MAX_TEXT, MAX_TEXT + 1][roll(9)])
            };
            let value = |roll: &mut dyn FnMut(usize) -> usize| match roll(8) {
                0 => "null".to_owned(),
                1 => "3".to_owned(),
                2 => "{}".to_owned(),
                3 => format!(r#"[{{"text": "{}"}}]"#, text(roll)),
                _ => format!(r#""{}""#, text(roll)),
            };
            let mut calls = Vec::new();
            for _ in 0..roll(14) {
                let name = ["arguments", "arguments", "arguments", "other", r"\u0061rguments"][roll(5)];
                calls.push(format!(
                    r#""{name}": {}"#,
                    if roll(9) == 0 { value(&mut roll) } else { format!(r#""{}""#, text(&mut roll)) }
                ));
            }
            let calls: Vec<_> =
                calls
                    .into_iter()
                    .map(|one| {
                        if roll(6) == 0 {
                            (text(&mut roll), text(&mut roll), one)
                        } else {
                            ("a".into(), "b".into(), one)
                        }
                    })
                    .map(|(id, tool, one)| format!(r#"{{"id": "{id}", "function": {{"name": "{tool}", {one}}}}}"#))
                    .collect();
            let (content, other) = (value(&mut roll), value(&mut roll));
            let place = ["error", "unknown", "usage", "x"][roll(4)];
            let message = format!(r#"{{"content": {content}, "tool_calls": [{}]}}"#, calls.join(", "));
            let choice = format!(r#"{{"message": {message}, "finish_reason": "stop"}}"#);
            let answer = format!(r#"{{"choices": [{choice}], "{place}": {other}}}"#);
            assert!(reads_the_same(&answer), "{number}");
        }
    }
}
