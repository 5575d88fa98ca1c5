//! Texts of others as part of a line, and commands as a shell reads them.
//!
//! For display only: the results are not stored, compared or sent.

use signoff_expr::text::display;

/// The longest word of a command, in characters.
const LONGEST_WORD: usize = 4096;

/// Returns a text of others as part of a line, at most `max_chars` characters long.
pub fn one_line(text: &str, max_chars: usize) -> String {
    display(text, max_chars).replace(['\n', '\t'], " ").trim().to_owned()
}

/// Returns words quoted so that a shell reads exactly these words. Characters that no shell accepts, or that a terminal
/// would not show as themselves, are shown differently: such a command cannot be copied.
pub fn quoted<S: AsRef<str>>(words: &[S]) -> String {
    let quote = |word: &S| {
        let safe = one_line(word.as_ref(), LONGEST_WORD);
        shlex::try_quote(&safe).map_or_else(|_| "'?'".to_owned(), std::borrow::Cow::into_owned)
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Whether a text has a character that is not shown as itself. Line feeds and tabs do not count.
pub fn hides(text: &str) -> bool {
    text.chars().any(|c| !matches!(c, '\n' | '\t') && is_hidden(c))
}

/// Whether a character is not shown as itself: it moves the cursor, is invisible, or changes the direction of the text.
pub fn is_hidden(c: char) -> bool {
    let mut buffer = [0; 4];
    let itself: &str = c.encode_utf8(&mut buffer);
    (!c.is_ascii() || c.is_ascii_control()) && display(itself, 16) != itself
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_command_as_its_words() {
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
