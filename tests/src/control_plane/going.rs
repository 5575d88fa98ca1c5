//! Shows the progress of a long operation: one line that is rewritten on a terminal, or a line each minute elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

use super::progress;

/// The shortest pause between two lines on a terminal.
const ON_A_TERMINAL: Duration = Duration::from_millis(200);
/// The shortest pause between two lines elsewhere, such as in the log of a CI run.
const ELSEWHERE: Duration = Duration::from_secs(60);
/// The escape sequence that moves to the beginning of the terminal's line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The progress of work in equal parts.
pub(super) struct ProgressLine {
    began: Instant,
    printed: Instant,
    done: usize,
    all: usize,
    is_terminal: bool,
}

impl ProgressLine {
    /// Returns the progress of `all` parts, none of which is done yet.
    pub(super) fn new(all: usize) -> Self {
        let now = Instant::now();
        Self { began: now, printed: now, done: 0, all, is_terminal: stderr().is_terminal() }
    }

    /// Counts one more finished part, and prints the line when it is due.
    pub(super) fn count_part(&mut self) {
        self.done += 1;
        let pause = if self.is_terminal { ON_A_TERMINAL } else { ELSEWHERE };
        if self.printed.elapsed() < pause {
            return;
        }
        self.printed = Instant::now();
        let line = line(self.done, self.all, self.began.elapsed());
        if self.is_terminal {
            // The width may have changed. An error of the terminal does not end the work.
            let columns = tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col));
            let _ = write!(stderr(), "{CLEAR}{}", cut_to_width(&format!("control plane: {line}"), columns));
        } else {
            progress(&line);
        }
    }
}

impl Drop for ProgressLine {
    /// Clears the line of a terminal, so that the next output begins in its first column.
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(stderr(), "{CLEAR}");
        }
    }
}

/// Returns the beginning of an ASCII line that leaves the last column free, because a terminal that wraps lines would
/// keep the rest. A terminal that does not know its width reports 0.
fn cut_to_width(line: &str, columns: usize) -> &str {
    let columns = if columns == 0 { 80 } else { columns };
    line.get(..columns - 1).unwrap_or(line)
}

/// Returns a line such as `compiled 812 of 3076 packages, about 5 min left`.
fn line(done: usize, all: usize, took: Duration) -> String {
    let left = took.as_secs_f64() / done.max(1) as f64 * all.saturating_sub(done) as f64;
    let left = if left < 60.0 { "less than a minute".to_owned() } else { format!("about {:.0} min", left / 60.0) };
    format!("compiled {done} of {all} packages, {left} left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_before_the_last_column() {
        assert_eq!(cut_to_width("compiled", 80), "compiled");
        assert_eq!(cut_to_width("compiled", 9), "compiled");
        assert_eq!(cut_to_width("compiled", 8), "compile");
        assert_eq!(cut_to_width("compiled", 1), "");
        assert_eq!(cut_to_width("compiled", 0), "compiled");
    }

    #[test]
    fn the_time_left_follows_from_the_time_taken() {
        let took = Duration::from_secs(120);
        assert_eq!(line(1000, 3500, took), "compiled 1000 of 3500 packages, about 5 min left");
        assert_eq!(line(3400, 3500, took), "compiled 3400 of 3500 packages, less than a minute left");
        assert_eq!(line(0, 3500, Duration::ZERO), "compiled 0 of 3500 packages, less than a minute left");
    }
}
