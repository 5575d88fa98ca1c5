//! The virtual clock: a fixed epoch plus tokio's own elapsed time, so that paused time and the objects' timestamps
//! agree.
//!
//! **Invariant:** the machine's clock is never read.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The time at which every simulation begins: 2026-01-01T00:00:00Z.
pub const EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The clock of a controller, in place of the machine's.
pub type NowFn = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A clock that begins at [`EPOCH`] when it is created and then follows tokio's time.
///
/// Under `#[tokio::test(start_paused = true)]` it moves only when every task waits, and then straight to the next
/// timer.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts a clock; a test creates one and shares it.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Returns the time of day in the simulation.
    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// Returns the time of day at a tokio instant of this simulation.
    pub fn at(&self, instant: Instant) -> Timestamp {
        let elapsed =
            SignedDuration::try_from(instant.saturating_duration_since(self.start)).unwrap_or(SignedDuration::MAX);
        EPOCH.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// Returns the duration of the simulation so far.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns this clock as a closure for controllers.
    pub fn closure(&self) -> NowFn {
        let clock = *self;
        Arc::new(move || clock.now())
    }

    /// Waits until every task of the runtime waits: paused time moves only then.
    ///
    /// A call takes one millisecond of virtual time and no real time.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Lets `span` of virtual time pass; every timer that is due in it fires in its order.
    pub async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}
