//! The source of time: times written into objects come from a `Clock`, waiting is tokio's.

use std::time::Duration;

use signoff_api::Moment;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> jiff::Timestamp;
}

impl<F: Fn() -> jiff::Timestamp + Send + Sync> Clock for F {
    fn now(&self) -> jiff::Timestamp {
        self()
    }
}

/// A wall clock may be set while something sleeps, so nothing sleeps longer than this without looking again.
/// Looking costs a comparison and no request.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);

/// When to look at the clock again so as not to miss `due`.
#[must_use]
pub fn wake_up(due: Moment, now: Moment) -> tokio::time::Instant {
    tokio::time::Instant::now() + due.since(now).min(LONGEST_SLEEP)
}
