//! The only module that writes to the terminal or reads from it.
//!
//! Text of others must have passed [`crate::sanitize`] before.

use std::io::{self, BufRead, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice, adapter::strip_str};
use rustix::termios::{Winsize, tcgetwinsize};
use signoff_api::verdict::{Verdict, Word};
use unicode_width::UnicodeWidthStr;

use crate::style::{PLAIN_WIDTH, Style, Tone};

/// Returns the control sequences that move the cursor up this number of rows (CPL), and clear the screen below (ED).
fn rewind(rows: usize) -> String {
    if rows == 0 { String::new() } else { format!("\u{1b}[{rows}F\u{1b}[J") }
}

/// Writes a result to standard output. A reader that closed the pipe (`| head`) is no error.
///
/// # Errors
/// Standard output cannot be written, such as on a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Writes a note to standard error. Errors are ignored.
pub fn note(text: &str) {
    let text = colour_prefix(text.trim_end(), note_style());
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes a note about the progress to standard error, if standard error is a terminal.
pub fn progress(text: &str) {
    if is_stderr_terminal() {
        note(text);
    }
}

/// Colours the prefix of an error or a refusal.
fn colour_prefix(text: &str, style: Style) -> String {
    const PREFIXES: [&str; 2] = ["error:", "refused:"];
    let prefixed = PREFIXES.iter().find_map(|prefix| Some((prefix, text.strip_prefix(prefix)?)));
    prefixed.map_or_else(|| text.to_owned(), |(prefix, rest)| style.paint(Tone::Bad, prefix) + rest)
}

/// Writes a prompt to standard error, without a line end.
///
/// # Errors
/// Standard error cannot be written.
pub fn prompt(text: &str) -> io::Result<()> {
    let mut err = io::stderr().lock();
    err.write_all(text.as_bytes())?;
    err.flush()
}

/// Whether there is a user to answer questions: standard input is a terminal.
pub fn is_stdin_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Whether a user sees questions: standard error is a terminal.
pub fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether a question can be asked: standard input and standard error are terminals.
pub fn can_ask() -> bool {
    are_terminals(&io::stdin(), &io::stderr())
}

fn are_terminals(input: &impl IsTerminal, output: &impl IsTerminal) -> bool {
    input.is_terminal() && output.is_terminal()
}

/// Whether a person reads the results, and not a program: standard output is a terminal.
pub fn is_stdout_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns the style of standard output. Honours NO_COLOR, CLICOLOR_FORCE and TERM=dumb.
pub fn style() -> Style {
    let colour = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
    let width = size().map_or(PLAIN_WIDTH, |size| usize::from(size.ws_col));
    Style { width, colour, signs: can_move(), ..Style::PLAIN }
}

/// Returns the style of [`note`].
pub fn note_style() -> Style {
    Style { colour: AutoStream::choice(&io::stderr()) != ColorChoice::Never, ..Style::PLAIN }
}

/// Returns the columns of the terminal on standard output, or `None` without a terminal.
pub fn width() -> Option<usize> {
    size().map(|size| usize::from(size.ws_col))
}

fn size() -> Option<Winsize> {
    let stdout = io::stdout();
    let size = if stdout.is_terminal() { tcgetwinsize(&stdout).ok() } else { None };
    size.filter(|size| size.ws_col > 0 && size.ws_row > 0)
}

/// Whether standard output is a terminal that can move its cursor.
fn can_move() -> bool {
    is_stdout_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// A page that is printed repeatedly: in place on a terminal, otherwise each time below the last one.
#[derive(Debug, Default)]
pub struct Screen {
    /// The rows of the page on the screen. `None` before the first page.
    shown: Option<usize>,
}

impl Screen {
    /// Whether pages replace one another.
    pub fn is_in_place() -> bool {
        can_move() && size().is_some()
    }

    /// Prints a page in place of the previous page, cropped to the terminal. Where pages cannot replace one another,
    /// prints the page after an empty line.
    ///
    /// # Errors
    /// As [`print()`].
    pub fn redraw(&mut self, page: &str) -> io::Result<()> {
        let Some(size) = size().filter(|_| can_move()) else {
            let gap = if self.shown.replace(0).is_some() { "\n" } else { "" };
            return print(&format!("{gap}{page}"));
        };
        let (text, rows) = crop(page, usize::from(size.ws_col), usize::from(size.ws_row).saturating_sub(1));
        let text = rewind(self.shown.replace(rows).unwrap_or(0)) + &text;
        print(&text)
    }
}

/// Returns the page, cropped to `max_rows` rows with a note at the end, and the number of its rows. A terminal cannot
/// replace rows that have scrolled out of it.
fn crop(page: &str, columns: usize, max_rows: usize) -> (String, usize) {
    // A line that is wider than the terminal takes several rows.
    let count_rows = |line: &str| strip_str(line).to_string().width().div_ceil(columns.max(1)).max(1);
    let all_rows: usize = page.lines().map(count_rows).sum();
    if all_rows <= max_rows {
        return (page.to_owned(), all_rows);
    }
    let (mut text, mut rows, mut lines) = (String::new(), 0, 0);
    for line in page.lines() {
        if rows + count_rows(line) >= max_rows {
            break;
        }
        (rows, lines) = (rows + count_rows(line), lines + 1);
        text += &format!("{line}\n");
    }
    let more = page.lines().count() - lines;
    (format!("{text}… {more} more lines\n"), rows + 1)
}

/// Asks a yes-or-no question. Any answer but yes is no.
///
/// # Errors
/// Standard error cannot be written, or standard input cannot be read.
pub fn ask(question: &str) -> io::Result<bool> {
    let mut err = io::stderr().lock();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    if Word::read(&line) == Word::Trust {
        writeln!(err, "{}: answer yes or no", Word::NO_TRUST)?;
    }
    Ok(is_yes(&line))
}

fn is_yes(line: &str) -> bool {
    Word::read(line) == Word::Verdict(Verdict::Approve)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;

    use super::*;

    #[test]
    fn a_question_needs_a_terminal_for_input_and_output() {
        let (terminal, file) = (File::open("/dev/ptmx").unwrap(), File::open("/dev/null").unwrap());
        assert!(are_terminals(&terminal, &terminal));
        assert!(!are_terminals(&terminal, &file) && !are_terminals(&file, &terminal));
    }

    #[test]
    fn only_the_prefix_of_an_error_is_coloured() {
        let style = Style { colour: true, ..Style::PLAIN };
        assert_eq!(colour_prefix("refused: no", style), "\u{1b}[1m\u{1b}[31mrefused:\u{1b}[0m no");
        assert_eq!(colour_prefix("refused: no", Style::PLAIN), "refused: no");
        assert_eq!(colour_prefix("an error: no", style), "an error: no");
    }

    #[test]
    fn a_page_is_cropped_to_the_lines_of_the_terminal() {
        assert_eq!(crop("a\nb\nc\n", 80, 3), ("a\nb\nc\n".into(), 3));
        assert_eq!(crop("a\nb\nc\n", 80, 2), ("a\n… 2 more lines\n".into(), 2));
        assert_eq!(crop("a\n\u{1b}[2mwide\u{1b}[0m\n\n", 2, 5), ("a\n\u{1b}[2mwide\u{1b}[0m\n\n".into(), 4));
        assert_eq!(crop("a\nwide\nc\n", 2, 3), ("a\n… 2 more lines\n".into(), 2));
        assert_eq!(rewind(0), "");
    }

    #[test]
    fn only_a_whole_word_for_yes_is_a_yes() {
        assert!(is_yes("y\n") && is_yes(" Yes\r\n"));
        for line in ["", "\n", "n\n", "yes, but\n", "Y!\n", "no\n", "trust\n"] {
            assert!(!is_yes(line), "{line:?}");
        }
    }
}
