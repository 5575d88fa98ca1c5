//! How far a long piece of work is: one line that is rewritten on a terminal, a line a minute elsewhere.
//! It may not know what is being done.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use super::progress;

const ON_A_TERMINAL: Duration = Duration::from_millis(200);
const ELSEWHERE: Duration = Duration::from_secs(60);

/// Work in equal parts.
pub(super) struct Going {
    began: Instant,
    told: Instant,
    done: usize,
    all: usize,
    is_terminal: bool,
}

impl Going {
    /// Nothing of `all` is done yet.
    pub(super) fn new(all: usize) -> Self {
        let now = Instant::now();
        Self { began: now, told: now, done: 0, all, is_terminal: stderr().is_terminal() }
    }

    /// One more part is done.
    pub(super) fn one_more(&mut self) {
        self.done += 1;
        let pause = if self.is_terminal { ON_A_TERMINAL } else { ELSEWHERE };
        if self.told.elapsed() < pause {
            return;
        }
        self.told = Instant::now();
        let line = line(self.done, self.all, self.began.elapsed());
        if self.is_terminal {
            // Who cannot be told goes on without.
            let _ = write!(stderr(), "\r\x1b[Kcontrol plane: {line}");
        } else {
            progress(&line);
        }
    }

    /// Takes the line away again.
    pub(super) fn finish(self) {
        if self.is_terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// `compiled 812 of 3076 packages, about 5 min left`
fn line(done: usize, all: usize, took: Duration) -> String {
    let left = took.as_secs_f64() / done.max(1) as f64 * all.saturating_sub(done) as f64;
    let left = if left < 60.0 { "less than a minute".to_owned() } else { format!("about {:.0} min", left / 60.0) };
    format!("compiled {done} of {all} packages, {left} left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_by_what_was_done() {
        let took = Duration::from_secs(120);
        assert_eq!(line(1000, 3500, took), "compiled 1000 of 3500 packages, about 5 min left");
        assert_eq!(line(3400, 3500, took), "compiled 3400 of 3500 packages, less than a minute left");
        assert_eq!(line(0, 3500, Duration::ZERO), "compiled 0 of 3500 packages, less than a minute left");
    }
}
