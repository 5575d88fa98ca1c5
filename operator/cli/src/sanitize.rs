//! The display of others' text on a terminal: cut, stripped of characters that move the cursor or hide text, and
//! fenced.
//!
//! **Invariant:** sanitized text is only shown, never stored, compared or sent.

use serde::Serialize;
use signoff_expr::text::display;
use signoff_review::text::is_hidden;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use signoff_review::text::{hides, one_line, quoted};

/// The columns of fenced text. With its margin it fits a terminal of 80 columns, which therefore never wraps it. A
/// wrapped line would continue at the left edge, where only lines of the program begin.
const WIDTH: usize = 74;

/// The mark at the beginning of every fenced line.
const MARGIN: &str = "  | ";

/// Returns a text as lines that all begin with a margin, so that none of them looks like a line of the program.
pub fn fence(text: &str, max_chars: usize) -> String {
    let shown = display(text, max_chars).replace('\t', "    ");
    let mut out = String::new();
    for line in shown.trim_end().split('\n').flat_map(|line| wrap(line, WIDTH)) {
        out.push_str(format!("{MARGIN}{line}").trim_end());
        out.push('\n');
    }
    out
}

/// Breaks a line into parts of at most `most` columns: at spaces, or within a word that is wider.
pub fn wrap(line: &str, most: usize) -> Vec<String> {
    let (mut lines, mut current, mut width, mut space) = (Vec::new(), String::new(), 0, None);
    for c in line.chars() {
        let columns = c.width().unwrap_or(0);
        if width + columns > most {
            let rest = space.map_or_else(String::new, |at| current.split_off(at));
            lines.push(std::mem::replace(&mut current, rest.trim_start().to_owned()));
            (width, space) = (current.width(), None);
        }
        if c == ' ' && !current.trim().is_empty() {
            space = Some(current.len());
        }
        current.push(c);
        width += columns;
    }
    lines.push(current);
    lines
}

/// Returns the text, shortened to at most `room` columns. A shortened text ends with `…`.
pub fn shorten(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut width = 0;
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        if width + 1 > room {
            break;
        }
        short.push(c);
    }
    short.trim_end().to_owned() + "…"
}

/// Returns a value as indented JSON that is also safe on a terminal.
///
/// # Errors
/// The value cannot be serialized.
pub fn json<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
    Ok(escape_hidden(&serde_json::to_string_pretty(value)?) + "\n")
}

/// Writes every character of the JSON that moves the cursor, hides text or changes its direction as `\uXXXX`. The value
/// stays equal.
fn escape_hidden(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // Outside strings, line ends are the only such characters of JSON. Within strings serde_json escapes line ends.
        if c == '\n' || !is_hidden(c) {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_text_cannot_leave_its_margin() {
        let hostile = "first\r\n\u{1b}[2Jsecond\rthird\n\nPhase: Approved";
        assert_eq!(fence(hostile, 1000), "  | first\n  | [2Jsecond⟨U+000D⟩third\n  |\n  | Phase: Approved\n");
        let padded = format!("{}Phase:        Approved", " ".repeat(76));
        assert!(fence(&padded, 1000).lines().all(|line| line.starts_with("  |") && line.width() <= 78));
        let wide = "審".repeat(200);
        assert!(fence(&wide, 1000).lines().all(|line| line.width() <= 78));
    }

    #[test]
    fn long_lines_break_at_spaces_and_long_words_anywhere() {
        let sentence = ["word"; 30].join(" ");
        let lines = wrap(&sentence, WIDTH);
        assert_eq!(lines.join(" "), sentence);
        assert!(lines.iter().all(|line| line.width() <= WIDTH));
        assert_eq!(wrap(&"x".repeat(100), WIDTH).iter().map(String::len).collect::<Vec<_>>(), [74, 26]);
    }

    #[test]
    fn a_shortened_text_has_at_most_the_given_columns() {
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("abc def", 5), "abc…");
        assert_eq!(shorten(&"審".repeat(9), 6), "審審…");
        assert_eq!(shorten("abc", 0), "…");
    }

    #[test]
    fn json_keeps_its_value_and_escapes_hidden_characters() {
        let value = serde_json::json!({"a": "x\u{202e}y\u{e0041}\u{9b}\u{7f}é\n"});
        let text = json(&value).unwrap_or_default();
        assert_eq!(text, "{\n  \"a\": \"x\\u202ey\\udb40\\udc41\\u009b\\u007fé\\n\"\n}\n");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).ok(), Some(value));
    }
}
