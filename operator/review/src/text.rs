//! Text of others within a line of ours, and commands as a shell reads them.
//!
//! Nothing here may be stored, compared or sent: it is for eyes only.

use signoff_expr::text::display;

/// Text as part of a line of ours, at most `max_chars` characters long.
pub fn one_line(text: &str, max_chars: usize) -> String {
    display(text, max_chars).replace(['\n', '\t'], " ").trim().to_owned()
}

/// Words as a shell reads them as exactly these words. What no shell takes, and what a terminal would not show as it
/// is, is shown as something else: such a command is not to be copied.
pub fn quoted<S: AsRef<str>>(words: &[S]) -> String {
    let one = |word: &S| {
        let safe = one_line(word.as_ref(), 4096);
        shlex::try_quote(&safe).map_or_else(|_| "'?'".to_owned(), std::borrow::Cow::into_owned)
    };
    words.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Whether the text has a character that is not shown as itself.
pub fn hides(text: &str) -> bool {
    text.chars().any(|c| !matches!(c, '\n' | '\t') && is_hidden(c))
}

/// Whether the character is not shown as itself: it moves, hides or changes direction.
pub fn is_hidden(c: char) -> bool {
    let mut buffer = [0; 4];
    let itself: &str = c.encode_utf8(&mut buffer);
    (!c.is_ascii() || c.is_ascii_control()) && display(itself, 16) != itself
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_shown_is_read_as_it_was_meant() {
        let words = ["signoff", "run", "--hitl-response", "it's $HOME; `rm`\"", "--gate", "a b"];
        assert_eq!(shlex::split(&quoted(&words)).unwrap_or_default(), words);
        assert!(!quoted(&["x\u{1b}[2J\ny\u{202e}"]).contains(['\u{1b}', '\n', '\u{202e}']));
    }

    #[test]
    fn a_cell_is_one_line() {
        assert_eq!(one_line("Send\nthis\tletter? \u{202e}", 60), "Send this letter? ⟨U+202E⟩");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }
}
