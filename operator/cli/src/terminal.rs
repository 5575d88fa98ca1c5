//! The one place that writes to the terminal or reads from it.
//!
//! It must not choose words, and text of others must have passed the fence before it comes here.

use std::io::{self, BufRead, IsTerminal, Write};

use signoff_api::verdict::{Verdict, Word};

/// Writes results to standard output. A reader that went away (`| head`) has read all it wanted: what the program did,
/// and how it ends, is the same.
///
/// # Errors
/// Full disks.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Says something beside the result, on standard error. Whether anybody reads it changes nothing.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", text.trim_end());
}

/// Writes the beginning of a line on standard error, behind which somebody types.
///
/// # Errors
/// When nobody can read it.
pub fn prompt(text: &str) -> io::Result<()> {
    let mut err = io::stderr().lock();
    err.write_all(text.as_bytes())?;
    err.flush()
}

/// Whether somebody is there to be asked.
pub fn is_manned() -> bool {
    io::stdin().is_terminal()
}

/// Whether somebody sees what is asked: standard error, for standard output may go elsewhere.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Whether results are read by eyes and not by a program.
pub fn is_shown() -> bool {
    io::stdout().is_terminal()
}

/// Asks a question whose answer is no unless the person says yes.
///
/// # Errors
/// When standard input cannot be read.
pub fn ask(question: &str) -> io::Result<bool> {
    let mut err = io::stderr().lock();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(is_yes(&line))
}

fn is_yes(line: &str) -> bool {
    Word::read(line) == Word::Verdict(Verdict::Approve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_word_for_yes_is_a_yes() {
        assert!(is_yes("y\n") && is_yes(" Yes\r\n"));
        for line in ["", "\n", "n\n", "yes, but\n", "Y!\n", "no\n", "trust\n"] {
            assert!(!is_yes(line), "{line:?}");
        }
    }
}
