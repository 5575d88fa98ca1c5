//! The source of time: times written into objects come from a `Clock`, waiting is tokio's.

use std::time::Duration;

use signoff_api::Moment;

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> jiff::Timestamp;
}

impl<F: Fn() -> jiff::Timestamp + Send + Sync> Clock for F {
    fn now(&self) -> jiff::Timestamp {
        self()
    }
}

/// The maximum time of a sleep. A wall clock can be set meanwhile, so it is read again after this time, which costs a
/// comparison and no request.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);

/// Returns the time at which to read the clock again so that `due` is not missed.
#[must_use]
pub fn wake_up(due: Moment, now: Moment) -> tokio::time::Instant {
    tokio::time::Instant::now() + due.since(now).min(LONGEST_SLEEP)
}
