//! The CPU time of one thread, read from any other.
//!
//! On Linux the time is read from `/proc`. Without `/proc` the wall clock is used instead: an evaluation is then also
//! charged for the time in which other threads had the CPU.

use std::{
    fs,
    io::Read as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The duration of one tick of `/proc/…/stat`: Linux reports 100 a second to programs on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// A thread whose CPU time can be read.
#[derive(Clone, Debug)]
pub(super) struct ThreadClock {
    /// The folder of the thread in `/proc`, or `None` if the wall clock is used.
    folder: Option<PathBuf>,
    began: Instant,
    /// The last read value, in nanoseconds.
    last: Arc<AtomicU64>,
}

impl ThreadClock {
    /// Returns the clock of the calling thread.
    pub(super) fn current() -> Self {
        let folder = fs::read_link("/proc/thread-self").ok().map(|link| PathBuf::from("/proc").join(link));
        let mut clock = Self { folder, began: Instant::now(), last: Arc::default() };
        if clock.read_cpu_time().is_none() {
            clock.folder = None;
        }
        clock
    }

    /// Whether CPU time is measured, and not the wall clock.
    pub(super) fn is_cpu(&self) -> bool {
        self.folder.is_some()
    }

    /// Returns the time that the thread has used so far.
    pub(super) fn used(&self) -> Duration {
        if self.folder.is_none() {
            return self.began.elapsed();
        }
        // For a thread that has ended, or whose file cannot be opened at the moment, the last value counts.
        match self.read_cpu_time() {
            Some(used) => {
                self.last.store(u64::try_from(used.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
                used
            }
            None => Duration::from_nanos(self.last.load(Ordering::Relaxed)),
        }
    }

    /// Reads the CPU time of the thread from `/proc`.
    fn read_cpu_time(&self) -> Option<Duration> {
        let folder = self.folder.as_ref()?;
        read(folder.join("schedstat"))
            .and_then(|text| parse_schedstat(&text))
            .or_else(|| parse_stat(&read(folder.join("stat"))?))
    }
}

fn read(file: PathBuf) -> Option<String> {
    let mut text = String::new();
    fs::File::open(file).ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Parses the first number: nanoseconds on a CPU.
fn parse_schedstat(text: &str) -> Option<Duration> {
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Parses fields 14 and 15, counted from behind the name, which can contain spaces and parentheses.
fn parse_stat(text: &str) -> Option<Duration> {
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TICK * user.saturating_add(system))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_files_schedstat_and_stat_are_parsed() {
        assert_eq!(parse_schedstat("219327 7 1\n"), Some(Duration::from_nanos(219_327)));
        let line = "10440 (a ) b) R 10437 10437 6952 0 -1 4194304 101 0 0 0 12 30 0 0 20 0 1 0 166078 3133440";
        assert_eq!(parse_stat(line), Some(Duration::from_millis(420)));
        assert_eq!((parse_schedstat(""), parse_stat("1 (x")), (None, None));
    }

    #[test]
    fn only_a_thread_that_computes_uses_cpu_time() {
        let clock = ThreadClock::current();
        assert!(clock.is_cpu(), "this machine's /proc tells it");
        let idle = clock.used();
        std::thread::sleep(Duration::from_millis(150));
        assert!(clock.used() - idle < Duration::from_millis(100));
        let before = clock.used();
        while clock.used() - before < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
    }
}
