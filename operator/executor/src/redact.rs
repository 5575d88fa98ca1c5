//! Excerpts of foreign text for error messages: one short line without invisible characters and known secrets.
//!
//! For messages only: a run sees the whole answer.

use signoff_expr::text::is_invisible;

/// The maximum length of foreign text in an error message, in characters.
const LIMIT: usize = 200;

/// The minimum length of a replaced secret: replacing every `a` would tell more than it hides.
const SHORTEST_SECRET: usize = 6;

/// Returns the beginning of `text` on one line: secrets replaced, control and invisible characters dropped, at most 200
/// characters.
pub fn excerpt<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = text.to_owned();
    for secret in secrets {
        // For `Bearer <key>` the key alone is replaced too, because a server may quote either.
        for part in [Some(secret), secret.split_once(' ').map(|(_, rest)| rest)].into_iter().flatten() {
            if part.len() >= SHORTEST_SECRET {
                text = text.replace(part, "[redacted]");
            }
        }
    }
    let mut characters = iter_one_line(&text);
    let mut line: String = characters.by_ref().take(LIMIT).collect();
    if characters.next().is_some() {
        line.push('…');
    }
    line.trim_end().to_owned()
}

/// Returns the characters of a text on one line: without invisible characters, and with one space for each gap.
pub(crate) fn iter_one_line(text: &str) -> impl Iterator<Item = char> {
    let mut after_gap = true;
    text.chars().filter(|character| !is_removed(*character)).filter_map(move |character| {
        let is_gap = character.is_whitespace();
        let is_shown = !(is_gap && after_gap);
        after_gap = is_gap;
        is_shown.then_some(if is_gap { ' ' } else { character })
    })
}

/// Whether a character is dropped from an excerpt, because it is invisible or changes the output of a terminal. White
/// space is not dropped: it becomes a space.
fn is_removed(character: char) -> bool {
    !character.is_whitespace() && (character.is_control() || is_invisible(character))
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn foreign_text_becomes_one_short_visible_line() {
        assert_eq!(excerpt(" a\r\n\tb\u{1b}[31m \u{202e}c\u{200b} ", []), "a b[31m c");
        // Line and paragraph separators become spaces; blank letters and fillers are removed.
        assert_eq!(excerpt("a\u{2028}b\u{2029}c\u{3164}d\u{115F}e\u{2800}f\u{34F}g", []), "a b cdefg");
        let long = excerpt(&"x".repeat(5000), []);
        assert_eq!(long.chars().count(), 201);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn a_secret_that_the_server_quotes_is_not_repeated() {
        let quoted = excerpt("bad header 'Bearer sk-12345678' and key sk-12345678", ["Bearer sk-12345678"]);
        assert_eq!(quoted, "bad header '[redacted]' and key [redacted]");
    }

    #[test]
    fn a_secret_at_the_cut_is_not_half_shown() {
        let text = format!("{}sk-12345678", "x".repeat(196));
        assert!(!excerpt(&text, ["sk-12345678"]).contains("sk-"));
    }
}
