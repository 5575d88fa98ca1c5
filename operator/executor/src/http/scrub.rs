//! Answers without the values of the Secrets that were sent with their requests *(pure)*.
//!
//! A value is found in plain form, in base64, and behind the escapes of JSON and of URLs. A server that wants to hide
//! the value can encode it in another way.

use std::ops::Range;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use signoff_expr::text;

use super::HeaderSecret;

/// The text in place of a value.
const REDACTED: &str = "[redacted]";

/// The minimum length of the beginning of a value that is removed at the end of a cut text, in bytes.
const LEAST_PART: usize = 4;

/// The remover of the values of the Secrets of one request.
pub struct Scrubber {
    /// Each value with its spellings in base64.
    spellings: Vec<String>,
}

impl Scrubber {
    /// Returns a scrubber for the values that these headers send.
    pub fn of_headers<'h>(headers: impl IntoIterator<Item = &'h HeaderSecret>) -> Self {
        Self::new(headers.into_iter().map(HeaderSecret::value))
    }

    /// Returns a scrubber for values of visible ASCII characters.
    fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let spellings =
            values.into_iter().flat_map(|value| [value.to_owned()].into_iter().chain(spell_in_base64(value)));
        Self { spellings: spellings.collect() }
    }

    /// Returns a text without the values.
    #[must_use]
    pub fn scrub(&self, text: String) -> String {
        self.redact_found(text, |spelling, text| find_whole(spelling, text).collect())
    }

    /// Returns the beginning of a text without the values, and without the beginning of a value at its end.
    #[must_use]
    pub fn scrub_beginning(&self, text: String) -> String {
        self.redact_found(text, |spelling, text| {
            find_whole(spelling, text).chain(find_part_at_end(spelling, text)).collect()
        })
    }

    /// Replaces the ranges that `find` returns for a spelling of a value and a form of the text.
    fn redact_found(&self, text: String, find: impl Fn(&str, &str) -> Vec<Range<usize>>) -> String {
        if self.spellings.is_empty() { text } else { redact(&text, self.find_in_all_forms(&text, find)) }
    }

    /// Returns the ranges of the values in a text: in plain form, and behind the escapes of JSON and of URLs.
    fn find_in_all_forms(&self, text: &str, find: impl Fn(&str, &str) -> Vec<Range<usize>>) -> Vec<Range<usize>> {
        let mut found_ranges: Vec<_> = self.spellings.iter().flat_map(|spelling| find(spelling, text)).collect();
        let mut search = |plain: Unescaped| {
            for spelling in &self.spellings {
                let ranges = find(spelling, &plain.text).into_iter();
                found_ranges.extend(
                    ranges.map(|range| plain.original_position(range.start)..plain.original_position(range.end)),
                );
            }
        };
        if text.contains('\\') {
            search(Unescaped::of(text, '\\', parse_json_escape));
        }
        if text.contains('%') {
            search(Unescaped::of(text, '%', parse_url_escape));
        }
        if text.contains('+') && self.spellings.iter().any(|spelling| spelling.contains(' ')) {
            // Forms write a space as `+`.
            search(Unescaped::of(&text.replace('+', " "), '%', parse_url_escape));
        }
        found_ranges
    }
}

/// Replaces the ranges of a text, which can overlap, by [`REDACTED`].
fn redact(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_by_key(|range| range.start);
    let (mut scrubbed, mut until) = (String::new(), 0);
    for range in ranges {
        if range.start >= until {
            scrubbed.push_str(text.get(until..range.start).unwrap_or_default());
            scrubbed.push_str(REDACTED);
        }
        until = until.max(range.end);
    }
    scrubbed.push_str(text.get(until..).unwrap_or_default());
    scrubbed
}

/// Returns the positions of a whole value.
fn find_whole(spelling: &str, text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices(spelling).map(|(start, found)| start..start + found.len())
}

/// Returns the position of the beginning of a value at the end of a text.
fn find_part_at_end(spelling: &str, end: &str) -> Option<Range<usize>> {
    let lengths = LEAST_PART..spelling.len().min(end.len() + 1);
    let length = lengths.rev().find(|length| end.ends_with(text::first(spelling, *length)))?;
    Some(end.len() - length..end.len())
}

/// Returns the spellings of a value in base64 for every position in the encoded bytes, without the characters at both
/// ends that also encode neighboring bytes.
fn spell_in_base64(value: &str) -> impl Iterator<Item = String> {
    (0..3).flat_map(move |before: usize| {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(value.as_bytes());
        let own = (before * 8).div_ceil(6)..bytes.len() * 8 / 6;
        let usual = STANDARD_NO_PAD.encode(&bytes).get(own).unwrap_or_default().to_owned();
        let of_url = usual.replace('+', "-").replace('/', "_");
        [usual, of_url]
    })
}

/// A text with its escapes decoded.
struct Unescaped {
    text: String,
    /// The end of each escape: in `text`, and in the original text.
    ends: Vec<(usize, usize)>,
}

impl Unescaped {
    /// Decodes escapes. `read` gets the text after `mark`, and returns the character and the length of the escape in
    /// bytes.
    fn of(original: &str, mark: char, read: fn(&str) -> Option<(char, usize)>) -> Self {
        let mut plain = Self { text: String::new(), ends: Vec::new() };
        let mut rest = original;
        while let Some((before, after)) = rest.split_once(mark) {
            plain.text.push_str(before);
            rest = after;
            let Some((character, length)) = read(after) else {
                plain.text.push(mark);
                continue;
            };
            plain.text.push(character);
            rest = after.get(length..).unwrap_or_default();
            plain.ends.push((plain.text.len(), original.len() - rest.len()));
        }
        plain.text.push_str(rest);
        plain
    }

    /// Returns the position in the original text of a position in the decoded text.
    fn original_position(&self, position: usize) -> usize {
        let escapes = self.ends.partition_point(|(end, _)| *end <= position);
        let last = escapes.checked_sub(1).and_then(|last| self.ends.get(last));
        let (end, original) = last.copied().unwrap_or_default();
        original + (position - end)
    }
}

/// Reads the text after the backslash of an escape of JSON: `"`, `\`, `/` or `u002f`.
fn parse_json_escape(after: &str) -> Option<(char, usize)> {
    match after.chars().next()? {
        character @ ('"' | '\\' | '/') => Some((character, 1)),
        'u' => Some((parse_ascii(after.get(1..5)?)?, 5)),
        _ => None,
    }
}

/// Reads the two digits of an escape of URLs.
fn parse_url_escape(after: &str) -> Option<(char, usize)> {
    Some((parse_ascii(after.get(..2)?)?, 2))
}

/// Returns the ASCII character with a number of hexadecimal digits.
fn parse_ascii(digits: &str) -> Option<char> {
    let number = u32::from_str_radix(digits, 16).ok().filter(|_| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    char::from_u32(number).filter(char::is_ascii)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const VALUE: &str = r#"s3cr3t+tok/en="\~ 42"#;

    fn scrub_value(text: &str) -> String {
        Scrubber::new([VALUE]).scrub(text.to_owned())
    }

    fn percent(lower: bool, is_kept: fn(u8) -> bool) -> String {
        let encode = |byte: u8| match (is_kept(byte), lower) {
            (true, _) => char::from(byte).to_string(),
            (false, true) => format!("%{byte:02x}"),
            (false, false) => format!("%{byte:02X}"),
        };
        VALUE.bytes().map(encode).collect()
    }

    #[test]
    fn a_value_is_removed_in_every_spelling() {
        let json = serde_json::to_string(VALUE).unwrap();
        let json = json.trim_matches('"');
        let all_escaped: String = VALUE.bytes().map(|byte| format!("\\u{byte:04X}")).collect();
        let mixed = percent(false, |byte| byte.is_ascii_alphanumeric());
        for spelled in [
            VALUE.to_owned(),
            json.to_owned(),
            json.replace('/', r"\/"),
            all_escaped,
            percent(false, |_| false),
            percent(true, |byte| byte.is_ascii_alphanumeric()),
            percent(false, |byte| !matches!(byte, b'"' | b' ' | b'\\')),
            mixed.replace("%20", "+"),
        ] {
            assert_eq!(scrub_value(&format!("ü <{spelled}> ü")), "ü <[redacted]> ü", "{spelled}");
            assert_eq!(scrub_value(&format!("{spelled}{spelled}")), "[redacted][redacted]", "{spelled}");
        }
    }

    #[test]
    fn a_value_in_base64_is_removed_wherever_it_begins() {
        use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
        for before in ["", "u", "us", "user:", "Bearer "] {
            for after in ["", "!", "!!", ", and more"] {
                let whole = format!("{before}{VALUE}{after}");
                for encoded in [STANDARD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
                    for spelled in [encoded.clone(), encoded.replace('/', r"\/"), encoded.replace('/', "%2F")] {
                        let found = scrub_value(&spelled);
                        assert!(found.contains(REDACTED), "{spelled}: {found}");
                        // The rest of the value are bits that it shares with its neighbors.
                        assert!(found.len() <= spelled.len() - VALUE.len() + REDACTED.len(), "{spelled}: {found}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_answer_without_a_value_is_unchanged() {
        for text in ["", "s3cr3t", "a%zz\\x%", "\\u00", "%", "100 % \\\\ \\u00e9 ü+%C3%BC", text::first(VALUE, 19)] {
            assert_eq!(scrub_value(text), text);
        }
        assert_eq!(Scrubber::new([]).scrub(VALUE.to_owned()), VALUE);
    }

    #[test]
    fn a_part_of_a_value_where_a_text_is_cut_is_removed() {
        let beginning = |text: &str| Scrubber::new([VALUE]).scrub_beginning(text.to_owned());
        for length in LEAST_PART..VALUE.len() {
            assert_eq!(beginning(&format!("key {}", text::first(VALUE, length))), "key [redacted]", "{length}");
        }
        assert_eq!(beginning("key s3cr3t%2Btok%2F"), "key [redacted]");
        assert_eq!(beginning("a secret"), "a secret");
        assert_eq!(beginning(&format!("{VALUE} is unknown")), "[redacted] is unknown");
    }

    #[test]
    fn an_answer_of_repetitions_is_read_to_its_end() {
        // A comparison of each place with the whole value would take minutes in a debug build.
        let value = format!("{}b", "a".repeat(4096));
        let text = "a".repeat(1 << 20);
        let scrubber = Scrubber::new([value.as_str()]);
        assert_eq!(scrubber.scrub(text.clone()), text);
        assert!(scrubber.scrub_beginning("a".repeat(16 * 1024)).starts_with('a'));
    }
}
