//! URLs from templates: the value of an expression stays a part of the path or the query, and cannot become another
//! path, another parameter or another host.
//!
//! rendering with every value framed *(pure)* -> pieces -> one URL. The rule for a value depends on its position:
//!
//! | place | rule |
//! |---|---|
//! | the beginning | unchanged: it is the URL's scheme and host, which `allowedHosts` checks |
//! | before the end of the host and port | characters of hosts and ports; only a port if a value began with the host |
//! | after that | percent-encoded, unless `urlencode` did it; no path segment becomes empty, `.` or `..` |

use std::ops::Range;

use minijinja::{Error, ErrorKind, Output, State, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use unicode_normalization::UnicodeNormalization;

use super::filters::render_text;
use super::meter::{charge_creation, count_output};
use crate::text::clean;

/// The first character of the frame of a value. `e` or `v`, the length in bytes, a colon and the value follow.
const MARK: char = '\u{1}';
/// All characters but those that RFC 3986 calls unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The maximum size of a scheme and host that contain a value, up to the value, in bytes.
const MAX_HOST: usize = 1024;
/// The number of times that a segment is decoded to find dots. A value is encoded once.
const DECODINGS: usize = 4;

/// Implements `urlencode`: percent-encodes all characters but letters, digits and `-._~`. In a URL the result is not
/// encoded again.
pub(super) fn urlencode(state: &mut State, value: &Value) -> Result<Value, Error> {
    charge_creation(state, value.as_str().map_or(0, str::len))?;
    if is_encoded(value) {
        return Ok(value.clone());
    }
    let encoded = encode(&render_text(state, value)?);
    charge_creation(state, encoded.len())?;
    Ok(Value::from_safe_string(encoded))
}

/// Prints a value inside of a frame, so that [`assemble`] can distinguish it from the template's own text.
pub(super) fn print_framed(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let kind = if is_encoded(value) { 'e' } else { 'v' };
    let text = render_text(state, value)?;
    count_output(state, text.len())?;
    write!(out, "{MARK}{kind}{}:{text}", text.len()).map_err(|_| Error::from(ErrorKind::WriteFailure))
}

fn encode(text: &str) -> String {
    utf8_percent_encode(&clean(text), ENCODED).to_string()
}

/// Whether a value is a result of [`urlencode`] and still has only the characters of such a result.
fn is_encoded(value: &Value) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
    value.is_safe() && value.as_str().is_some_and(|text| text.bytes().all(is_allowed))
}

/// Returns the URL of a rendering with frames, or the problem with a value and the remedy.
pub(super) fn assemble(framed: &str) -> Result<String, String> {
    let mut url = Url::default();
    let mut rest = framed;
    while let Some((literal, frame)) = rest.split_once(MARK) {
        url.push_literal(literal);
        let (kind, value, after) = unframe(frame).ok_or("the template's text has a control character; remove it")?;
        url.push_value(value, kind == 'e')?;
        rest = after;
    }
    url.push_literal(rest);
    url.check_host_end()?;
    url.check_segments()?;
    Ok(url.text)
}

/// Returns the kind of a frame, the framed value, and the text after the frame.
fn unframe(frame: &str) -> Option<(char, &str, &str)> {
    let kind = frame.chars().next().filter(|kind| matches!(kind, 'e' | 'v'))?;
    let (length, rest) = frame.get(1..)?.split_once(':')?;
    let (value, after) = rest.split_at_checked(length.parse().ok()?)?;
    Some((kind, value, after))
}

/// A URL during its assembly.
#[derive(Default)]
struct Url {
    text: String,
    /// The positions of the values without the one at the beginning. An empty value has a position, too.
    values: Vec<Range<usize>>,
    has_value: bool,
    /// Whether the value at the beginning contains the scheme, and with it the host.
    begins_host: bool,
}

impl Url {
    fn push_literal(&mut self, text: &str) {
        self.text.push_str(&clean(text));
    }

    fn push_value(&mut self, value: &str, was_encoded: bool) -> Result<(), String> {
        let first = !std::mem::replace(&mut self.has_value, true);
        let from = self.text.len();
        if first && self.text.trim().is_empty() {
            self.text.push_str(&clean(value));
            self.begins_host = value.contains(':');
            return Ok(());
        }
        if end_of_authority(&self.text).is_some() {
            let text = if was_encoded { value.to_owned() } else { encode(value) };
            self.text.push_str(&text);
        } else {
            self.check_host(value)?;
            self.text.push_str(value);
        }
        self.values.push(from..self.text.len());
        Ok(())
    }

    /// Refuses a value in the host or port that could end it, or that the following text could continue.
    fn check_host(&self, value: &str) -> Result<(), String> {
        let empty = value.is_empty() && self.text.ends_with(['/', '\\', ':']);
        let port = self.text.ends_with(':') && value.bytes().all(|byte| byte.is_ascii_digit());
        if is_host(value) && !empty && (port || !self.begins_host) && self.text.len() + value.len() <= MAX_HOST {
            return Ok(());
        }
        Err("a value in the host of the URL is not a host name, a port, or both; put what belongs to the path after a `/` \
             of the template, or begin the URL with one value that holds scheme and host"
            .to_owned())
    }

    /// Refuses values that continue the template's own host name and contain a dot: after `api.example.com` they would
    /// lead to a host of another domain.
    fn check_host_end(&self) -> Result<(), String> {
        let end = end_of_authority(&self.text).unwrap_or(self.text.len());
        let mut from = None;
        for value in self.values.iter().filter(|value| value.end <= end && !value.is_empty()) {
            // Adjacent values count as one.
            let start = match from {
                Some((start, before)) if before == value.start => start,
                _ => value.start,
            };
            from = Some((start, value.end));
            let continues_host =
                self.text.get(..start).is_some_and(|text| text.ends_with(|c: char| c.is_alphanumeric()));
            let ends_host = self.text.get(value.end..end).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
            if continues_host && ends_host && self.text.get(start..value.end).is_some_and(|text| text.contains('.')) {
                return Err(
                    "a value goes on with the host of the URL and holds a dot, which names another host; put a `/` \
                            before what belongs to the path, or a `.` before the rest of a host name"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    /// Refuses values that make a segment of the path `.`, `..` or empty, in any spelling that a server could read so.
    fn check_segments(&self) -> Result<(), String> {
        let Some(first) = end_of_authority(&self.text) else { return Ok(()) };
        let mut from = first;
        let path = self.text.get(from..).unwrap_or_default().split(['?', '#']).next().unwrap_or_default();
        for segment in path.split(['/', '\\']) {
            let to = from + segment.len();
            let index = self.values.partition_point(|value| value.end < from);
            if self.values.get(index).is_some_and(|value| value.start <= to) && has_dot_segment(segment) {
                return Err(
                    "a value makes a segment of the URL's path `.` or `..`, which leads to another path; check the \
                            value before this step, or put it into the query"
                        .to_owned(),
                );
            }
            let holds_value = self.values.iter().any(|value| value.start >= from && value.end <= to);
            if from > first && holds_value && is_blank(segment) {
                return Err(
                    "a value leaves a segment of the URL's path empty, which leads to another path; check the \
                            value before this step, or put it into the query"
                        .to_owned(),
                );
            }
            from = to + 1;
        }
        Ok(())
    }
}

/// Returns the end of scheme, host and port, if text follows them. As in parsers of URLs, any number of slashes of
/// either kind can precede the host.
fn end_of_authority(url: &str) -> Option<usize> {
    let (scheme, rest) = url.split_once(':')?;
    let host = rest.trim_start_matches(['/', '\\', '\t', '\n', '\r']);
    let end = host.find(['/', '\\', '?', '#'])?;
    Some(scheme.len() + 1 + (rest.len() - host.len()) + end)
}

/// Whether a text is a part of a host name, a port, an address, or one of these with a port.
fn is_host(text: &str) -> bool {
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
    match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((inside, "")) => is_address(inside),
        Some((inside, after)) => is_address(inside) && after.strip_prefix(':').is_some_and(is_port),
        None => text.split_once(':').map_or_else(|| is_name(text), |(host, after)| is_name(host) && is_port(after)),
    }
}

/// Whether a decoded segment contains only blank space.
fn is_blank(segment: &str) -> bool {
    percent_decode(segment.as_bytes()).decode_utf8_lossy().trim().is_empty()
}

/// Whether a decoded segment has a part between slashes of either kind that is `.` or `..`, also with parameters or
/// blank space.
fn has_dot_segment(segment: &str) -> bool {
    let mut bytes = segment.as_bytes().to_vec();
    for _ in 0..DECODINGS {
        bytes = percent_decode(&bytes).collect();
    }
    // Some servers normalize wide, small and doubled forms of dots and slashes.
    let decoded: String = String::from_utf8_lossy(&bytes).nfkc().collect();
    decoded.split(['/', '\\', '\u{2044}', '\u{2215}']).any(|part| {
        let part = part.split(';').next().unwrap_or_default();
        let part = part.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        matches!(part, "." | "..")
    })
}

#[cfg(test)]
#[path = "url/tests.rs"]
mod tests;
