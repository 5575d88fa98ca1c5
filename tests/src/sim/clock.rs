//! The virtual clock: a fixed epoch plus tokio's own elapsed time, so that paused time and the objects' timestamps
//! agree. It never reads the machine's clock of day, and it never moves time by itself.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The instant every simulation begins at: 2026-01-01T00:00:00Z.
pub const EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// What a controller takes in place of the clock of day.
pub type NowFn = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A clock that stands at [`EPOCH`] when it is made and then follows tokio's time.
///
/// Under `#[tokio::test(start_paused = true)]` it moves only when every task waits, and then straight to the next
/// timer.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts a clock; make one a test and share it.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The time of day in the simulation.
    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The time of day at a tokio instant of this simulation.
    pub fn at(&self, instant: Instant) -> Timestamp {
        let elapsed =
            SignedDuration::try_from(instant.saturating_duration_since(self.start)).unwrap_or(SignedDuration::MAX);
        EPOCH.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// How long the simulation has run.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// This clock as the closure that controllers are given.
    pub fn closure(&self) -> NowFn {
        let clock = *self;
        Arc::new(move || clock.now())
    }

    /// Returns once every task of the runtime waits for something: paused time moves only then.
    ///
    /// Not a sleep in the wall clock's sense: it costs one virtual millisecond and no real one.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Lets `span` of virtual time pass; every timer that is due meanwhile fires in its order.
    pub async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}
