//! Untrusted text: how much of it is stored, and how it is shown.
//!
//! Nothing here interprets text. The result of [`display`] is for people only: it must never be stored, compared or
//! hashed in place of the text.

use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization;

/// Cleans a text for storage: without control characters except tab, line feed and carriage return, and in Unicode
/// normal form C.
///
/// Cleaning a cleaned text does not change it.
pub fn clean(text: &str) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')) {
        return text.to_owned();
    }
    text.chars().filter(|&c| !c.is_control() || matches!(c, '\t' | '\n' | '\r')).nfc().collect()
}

/// Cleans all texts and keys of a JSON value like [`clean`], because escapes such as `\u007f` survive the cleaning of
/// JSON as a text. If keys become equal, the last one is kept.
#[must_use]
pub fn clean_json(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean(&text)),
        Value::Array(items) => items.into_iter().map(clean_json).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (clean(&key), clean_json(value))).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

/// Returns the beginning of a text, of at most `bytes` bytes, cut between characters.
pub fn first(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

/// Returns the end of a text, of at most `bytes` bytes, cut between characters.
#[must_use]
pub fn last(text: &str, bytes: usize) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(bytes))..).unwrap_or(text)
}

/// Renders a text for terminals, Events and conditions: at most `max_chars` characters, cut with `…`, and without
/// characters that move the cursor, change the direction of writing or hide text.
///
/// Control characters are dropped (so an ANSI sequence loses its escape and becomes plain letters). Invisible and
/// direction-changing characters become visible as `⟨U+202E⟩`. Tabs and line feeds stay. `\r\n` becomes `\n`, and a
/// lone carriage return, which would let text overwrite its line, becomes `⟨U+000D⟩`.
pub fn display(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    let mut count = 0;
    // The position at which a too long text is cut: the end of the last whole character that leaves room for the
    // ellipsis.
    let mut cut = 0;
    let mut source = text.chars().peekable();
    let mut piece = String::new();
    while let Some(c) = source.next() {
        piece.clear();
        match c {
            '\r' if source.peek() == Some(&'\n') => continue,
            '\t' | '\n' => piece.push(c),
            '\r' => push_name(&mut piece, c),
            c if c.is_control() => continue,
            c if is_invisible(c) => push_name(&mut piece, c),
            c => piece.push(c),
        }
        let length = piece.chars().count();
        if count + length > max_chars {
            shown.truncate(cut);
            if max_chars > 0 {
                shown.push('…');
            }
            return shown;
        }
        shown.push_str(&piece);
        count += length;
        if count < max_chars {
            cut = shown.len();
        }
    }
    shown
}

/// The maximum number of names that [`listed`] writes.
const LISTED_NAMES: usize = 3;

/// Returns the first three names in one line, each shown with at most `max_chars` characters, and the number of the
/// others: `a, b, c +4`. Returns `None` for an empty list.
#[must_use]
pub fn listed(names: &[String], max_chars: usize) -> Option<String> {
    let shown: Vec<String> = names.iter().take(LISTED_NAMES).map(|name| display(name, max_chars)).collect();
    let others = match names.len().saturating_sub(LISTED_NAMES) {
        0 => String::new(),
        number => format!(" +{number}"),
    };
    (!shown.is_empty()).then(|| shown.join(", ") + &others)
}

fn push_name(out: &mut String, c: char) {
    out.push_str(&format!("⟨U+{:04X}⟩", u32::from(c)));
}

/// Whether a character is invisible and changes the characters around it, or hides: the format characters of Unicode
/// (including bidirectional controls and zero-width characters), line and paragraph separators, variation selectors,
/// tags, and letters without a shape.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{0600}'..='\u{0605}' | '\u{061C}' | '\u{06DD}' | '\u{070F}'
        | '\u{0890}'..='\u{0891}' | '\u{08E2}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{2800}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
        | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{110BD}' | '\u{110CD}'
        | '\u{13430}'..='\u{1345F}' | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_text_loses_control_characters_but_keeps_tabs_and_line_ends() {
        assert_eq!(clean("a\u{0}b\u{7}c\u{1b}[31m\td\r\ne\u{9b}f\u{7f}"), "abc[31m\td\r\nef");
    }

    #[test]
    fn stored_text_is_in_normal_form_c_and_cleaning_is_idempotent() {
        assert_eq!(clean("e\u{301}"), "é");
        // A control character between a letter and its accent must not separate them.
        assert_eq!(clean("e\u{1}\u{301}"), "é");
        let once = clean("A\u{30a}\u{0}\u{327}ﬁ\u{202e}");
        assert_eq!(clean(&once), once);
    }

    #[test]
    fn shown_text_names_bidirectional_and_zero_width_characters() {
        assert_eq!(display("ev\u{202e}il", 80), "ev⟨U+202E⟩il");
        assert_eq!(display("a\u{200b}b\u{feff}c\u{2066}d", 80), "a⟨U+200B⟩b⟨U+FEFF⟩c⟨U+2066⟩d");
        assert_eq!(display("\u{e0041}", 80), "⟨U+E0041⟩");
    }

    #[test]
    fn shown_text_cannot_colour_move_or_overwrite() {
        assert_eq!(display("\u{1b}[2J\u{1b}[31mred\u{9b}0m", 80), "[2J[31mred0m");
        assert_eq!(display("approve\rreject\r\nend", 80), "approve⟨U+000D⟩reject\nend");
        assert_eq!(display("a\u{8}\u{8}b", 80), "ab");
    }

    #[test]
    fn shown_text_is_cut_at_a_character_with_an_ellipsis() {
        assert_eq!(display("abcdef", 6), "abcdef");
        assert_eq!(display("abcdefg", 6), "abcde…");
        assert_eq!(display("ééééééé", 3), "éé…");
        assert_eq!(display("abc", 0), "");
        assert_eq!(display("abc", 1), "…");
        assert_eq!(display("", 0), "");
    }

    #[test]
    fn a_named_character_is_never_cut_in_half() {
        assert_eq!(display("ab\u{202e}\u{202e}", 12), "ab⟨U+202E⟩…");
        assert_eq!(display("ab\u{202e}", 6), "ab…");
    }

    #[test]
    fn a_long_list_of_names_ends_with_the_number_of_the_others() {
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(listed(&[], 80), None);
        assert_eq!(listed(&names(&["a", "b\u{1b}"]), 80).as_deref(), Some("a, b"));
        assert_eq!(listed(&names(&["abc", "b", "c"]), 2).as_deref(), Some("a…, b, c"));
        assert_eq!(listed(&names(&["a", "b", "c", "d", "e"]), 80).as_deref(), Some("a, b, c +2"));
    }

    #[test]
    fn a_mebibyte_of_padding_costs_no_more_than_what_is_shown() {
        let padding = " ".repeat(1 << 20) + "rm -rf";
        let shown = display(&padding, 100);
        assert_eq!(shown.chars().count(), 100);
        assert!(shown.ends_with('…'));
    }
}
