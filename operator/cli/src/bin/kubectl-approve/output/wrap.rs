//! Lines of prose that fit a terminal of 80 columns.

use unicode_width::UnicodeWidthStr;

/// The columns of a line.
const WIDTH: usize = 79;

/// Breaks a text into lines at spaces. The first line is indented by `indent` columns, the others by two more. A word
/// that is longer than a line stays whole.
pub fn wrap(indent: usize, text: &str) -> String {
    let (mut page, mut line, mut is_first) = (String::new(), " ".repeat(indent), true);
    for word in text.split_whitespace() {
        let gap = usize::from(!is_first);
        if !is_first && line.width() + gap + word.width() > WIDTH {
            page.push_str(&line);
            page.push('\n');
            line = format!("{}{word}", " ".repeat(indent + 2));
        } else {
            line.push_str(&" ".repeat(gap));
            line.push_str(word);
        }
        is_first = false;
    }
    page + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_at_spaces_and_indented() {
        let text = wrap(2, &["word"; 30].join(" "));
        assert!(text.lines().all(|line| line.width() <= WIDTH), "{text}");
        assert!(text.starts_with("  word") && text.lines().skip(1).all(|line| line.starts_with("    word")), "{text}");
        assert_eq!(text.split_whitespace().count(), 30);
    }

    #[test]
    fn a_word_that_is_longer_than_a_line_stays_whole() {
        let long = "x".repeat(100);
        assert_eq!(wrap(0, &format!("a {long} b")), format!("a\n  {long}\n  b\n"));
    }
}
