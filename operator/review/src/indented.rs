//! JSON with line ends and spaces between its tokens. Every other character stays as it is.
//!
//! **Invariant:** without white space outside of strings, the result is equal to the text.

use serde::de::IgnoredAny;

/// The maximum size of the indented form, as a multiple of the size of the text. Without this limit, deeply nested JSON
/// would fill pages with spaces.
pub(crate) const MOST_INDENTED: usize = 8;

/// Returns JSON with line ends and spaces. Returns `None` if the text is neither an object nor a list, or would become
/// far longer.
#[must_use]
pub fn indented(text: &str) -> Option<String> {
    if !text.trim_start().starts_with(['{', '[']) || serde_json::from_str::<IgnoredAny>(text).is_err() {
        return None;
    }
    let most = MOST_INDENTED.saturating_mul(text.len());
    let (mut shown, mut depth) = (String::new(), 0_usize);
    let (mut is_in_string, mut is_escaped) = (false, false);
    let mut rest = text.chars().filter(|c| !matches!(c, '\n' | '\r' | '\t')).peekable();
    while let Some(c) = rest.next() {
        if shown.len() > most {
            return None;
        }
        if is_in_string {
            (is_in_string, is_escaped) = (is_escaped || c != '"', c == '\\' && !is_escaped);
            shown.push(c);
            continue;
        }
        match c {
            ' ' => {}
            '{' | '[' => {
                shown.push(c);
                while rest.next_if_eq(&' ').is_some() {}
                match rest.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => shown.push(end),
                    None => {
                        depth += 1;
                        begin_line(&mut shown, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                begin_line(&mut shown, depth);
                shown.push(c);
            }
            ',' => {
                shown.push(c);
                begin_line(&mut shown, depth);
            }
            ':' => shown.push_str(": "),
            _ => {
                is_in_string = c == '"';
                shown.push(c);
            }
        }
    }
    (shown.len() <= most).then_some(shown)
}

fn begin_line(shown: &mut String, depth: usize) {
    shown.push('\n');
    shown.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_keep_their_order_and_duplicates_and_numbers_their_text() {
        let text = "{\"b\":1.0,\t\"a\" : [ ],\r\n\"b\": [1e2, {\"x y\":\"\\\"{,: \\\\\"}], \"e\":{ } }";
        let shown = "{\n  \"b\": 1.0,\n  \"a\": [],\n  \"b\": [\n    1e2,\n    {\n      \"x y\": \"\\\"{,: \\\\\"\n    }\n  ],\n  \"e\": {}\n}";
        assert_eq!(indented(text).unwrap(), shown);
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(bare(text), bare(shown));
    }

    #[test]
    fn only_an_object_or_a_list_is_indented() {
        for text in ["", "a letter", "{a: 1}", "17", "\"{}\"", "{} {}", "[1"] {
            assert_eq!(indented(text), None, "{text}");
        }
        assert_eq!(indented(" [] ").as_deref(), Some("[]"));
    }

    #[test]
    fn deep_nesting_stays_as_it_is() {
        assert_eq!(indented(&format!("{}1{}", "[".repeat(100), "]".repeat(100))), None);
    }
}
