//! The clock of the API server, from the `Date` of its answers.
//!
//! **Invariant:** after the first answer, the wall clock of this machine is used only for reports. The time since the
//! newest answer is measured by the machine's monotonic clock.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, StatusCode, header::DATE};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The clock of a machine, which may be wrong and may jump.
pub type MachineClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The largest difference of a machine's clock from the API server's that is not reported.
pub const LARGEST_SKEW: Duration = Duration::from_secs(5);

/// The API server's clock. Clones share it.
#[derive(Clone)]
pub struct ServerClock {
    machine: MachineClock,
    reading: Arc<Mutex<Option<Reading>>>,
    outages: Arc<Mutex<Outages>>,
}

/// The times in which the API server did not answer.
#[derive(Default)]
struct Outages {
    /// The outage that has not ended: its beginning, and the last time of a failure.
    open: Option<(Timestamp, Timestamp)>,
    /// The ended outages with their beginning and end, the newest last.
    ended: Vec<(Timestamp, Timestamp)>,
}

/// The longest time for which a request waits for its answer.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(310);
/// The longest time for which an outage lasts after its last failure. Broken watches are tried again within it.
const OUTAGE_AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(30);
/// The largest number of outages that are kept.
const MAX_OUTAGES: usize = 64;

/// The time of the newest answer.
#[derive(Clone, Copy)]
struct Reading {
    /// The server's time at the instant `at`. It is at most a second early, because a `Date` has whole seconds.
    time: Timestamp,
    at: Instant,
    /// The `Date` of the newest answer, which was read at the instant `read`.
    date: Timestamp,
    read: Instant,
}

impl Reading {
    fn now(&self) -> Timestamp {
        self.now_at(Instant::now())
    }

    fn now_at(&self, instant: Instant) -> Timestamp {
        let passed = SignedDuration::try_from(instant.duration_since(self.at)).unwrap_or(SignedDuration::ZERO);
        self.time.checked_add(passed).unwrap_or(self.time)
    }
}

impl ServerClock {
    /// Returns a clock that has the time of this machine until the first answer.
    #[must_use]
    pub fn new(machine: MachineClock) -> Self {
        Self { machine, reading: Arc::default(), outages: Arc::default() }
    }

    /// Returns the server's time: the newest `Date` plus the time since. It is at most a second early.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.reading().map_or_else(|| (self.machine)(), |reading| reading.now())
    }

    /// Returns the `Date` of the newest answer, or `None` if it was read before `since`.
    #[must_use]
    pub fn date_since(&self, since: Instant) -> Option<Timestamp> {
        self.reading().filter(|reading| reading.read >= since).map(|reading| reading.date)
    }

    /// Returns by how much the clock of this machine is ahead of the API server's, to a second. Negative if it is
    /// behind.
    #[must_use]
    pub fn machine_ahead(&self) -> SignedDuration {
        self.reading().map_or(SignedDuration::ZERO, |reading| (self.machine)().duration_since(reading.now()))
    }

    /// Whether the clock of this machine is ahead of the API server's. `None` if they differ by at most
    /// [`LARGEST_SKEW`].
    #[must_use]
    pub fn is_machine_ahead(&self) -> Option<bool> {
        let ahead = self.machine_ahead();
        (ahead.unsigned_abs() > LARGEST_SKEW).then(|| ahead.is_positive())
    }

    /// Returns the time of this machine's own clock.
    #[must_use]
    pub fn machine_now(&self) -> Timestamp {
        (self.machine)()
    }

    /// Returns the beginning and end of each time in which the API server did not answer, the newest last. An outage
    /// that has not ended ends now.
    #[must_use]
    pub fn outages(&self) -> Vec<(Timestamp, Timestamp)> {
        let now = self.now();
        let outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        let open = outages.open.map(|open| with_end(open, now));
        outages.ended.iter().copied().chain(open).collect()
    }

    /// Records a request without an answer. The outage begins with the newest answer, because no later one proves that
    /// the server worked.
    pub(crate) fn note_no_answer(&self) {
        let now = self.now();
        let since = self.reading().map_or(now, |reading| reading.now_at(reading.read));
        self.note_outage(since.max(now.checked_sub(LONGEST_WAIT).unwrap_or(now)), now);
    }

    /// Begins an outage at `since`, or continues the open one. `now`: the time of the failure.
    fn note_outage(&self, since: Timestamp, now: Timestamp) {
        let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        let since = outages.open.map_or(since, |(known, _)| known);
        outages.open = Some((since, now));
    }

    /// Ends the open outage, and drops the shortest outage above the number of kept ones.
    fn end_outage(&self) {
        let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = outages.open.take() {
            outages.ended.push(with_end(open, self.now()));
            if outages.ended.len() > MAX_OUTAGES {
                // Many short outages do not displace a long one.
                let shortest = outages.ended.iter().enumerate().min_by_key(|(_, (from, to))| to.duration_since(*from));
                if let Some(shortest) = shortest.map(|(at, _)| at) {
                    outages.ended.remove(shortest);
                }
            }
        }
    }

    /// Records an answer: sets the clock by its `Date`, if there is one, and ends an outage. After a 5xx status an
    /// outage begins or continues.
    pub(crate) fn record_answer(&self, status: StatusCode, headers: &HeaderMap) {
        self.read_date(headers);
        if status.is_server_error() {
            let now = self.now();
            self.note_outage(now, now);
        } else {
            self.end_outage();
        }
    }

    /// Sets the clock by the `Date` of an answer.
    fn read_date(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else { return };
        let (date, read) = (date.timestamp(), Instant::now());
        let mut known = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // A `Date` has no fraction of a second. A known time within that second is kept, so that the clock does not
        // jump back.
        let kept = known.filter(|known| {
            let ahead = known.now().duration_since(date);
            !ahead.is_negative() && ahead < SignedDuration::from_secs(1)
        });
        let (time, at) = kept.map_or((date, read), |kept| (kept.time, kept.at));
        *known = Some(Reading { time, at, date, read });
    }

    fn reading(&self) -> Option<Reading> {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an outage that has not ended, with its end at `now` or [`OUTAGE_AFTER_FAILURE`] after its last failure,
/// whichever is earlier.
fn with_end((since, last): (Timestamp, Timestamp), now: Timestamp) -> (Timestamp, Timestamp) {
    (since, last.checked_add(OUTAGE_AFTER_FAILURE).unwrap_or(last).min(now))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::time::advance;

    use super::*;

    const FAST: &str = "2026-11-23T13:00:00Z";

    fn clock() -> ServerClock {
        ServerClock::new(Arc::new(|| FAST.parse().unwrap()))
    }

    fn answer(clock: &ServerClock, date: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, date.parse().unwrap());
        clock.record_answer(StatusCode::OK, &headers);
    }

    fn time(clock: &ServerClock) -> String {
        clock.now().to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_that_of_the_newest_answer() {
        let clock = clock();
        assert_eq!(time(&clock), FAST, "nothing better is known");
        answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
        assert_eq!(time(&clock), "2026-11-22T12:00:00Z");
        advance(Duration::from_secs(90)).await;
        assert_eq!(time(&clock), "2026-11-22T12:01:30Z");
        assert_eq!(clock.machine_ahead(), SignedDuration::from_secs(25 * 3600 - 90));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_does_not_jump_back_within_the_second_of_a_date() {
        let clock = clock();
        answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
        advance(Duration::from_millis(700)).await;
        answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
        assert_eq!(time(&clock), "2026-11-22T12:00:00.7Z", "it does not jump back within the second of the Date");
        answer(&clock, "Sun, 22 Nov 2026 12:00:01 GMT");
        assert_eq!(time(&clock), "2026-11-22T12:00:01Z");
        answer(&clock, "Sun, 22 Nov 2026 11:00:00 GMT");
        assert_eq!(time(&clock), "2026-11-22T11:00:00Z", "the server's clock was set back");
        answer(&clock, "yesterday");
        clock.record_answer(StatusCode::OK, &HeaderMap::new());
        assert_eq!(time(&clock), "2026-11-22T11:00:00Z");
    }

    #[tokio::test(start_paused = true)]
    async fn short_outages_do_not_displace_a_long_one() {
        let clock = clock();
        answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
        advance(Duration::from_secs(5)).await;
        let fails_for = async |seconds: u64| {
            for _ in 0..seconds.div_ceil(20) {
                clock.note_no_answer();
                advance(Duration::from_secs(seconds.min(20))).await;
            }
            let now = clock.now().to_zoned(jiff::tz::TimeZone::UTC);
            answer(&clock, &jiff::fmt::rfc2822::to_string(&now).unwrap());
        };
        fails_for(3600).await;
        for _ in 0..200 {
            fails_for(1).await;
        }
        let outages = clock.outages();
        assert_eq!(outages.len(), MAX_OUTAGES);
        assert_eq!(outages[0].1.duration_since(outages[0].0).as_secs(), 3605, "since the last answer");
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_outage_counts_and_a_server_error_continues_it() {
        let clock = clock();
        answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
        let seconds_of_outages = |clock: &ServerClock| -> i64 {
            clock.outages().iter().map(|(from, to)| to.duration_since(*from).as_secs()).sum()
        };
        assert_eq!(seconds_of_outages(&clock), 0);
        clock.note_no_answer();
        advance(Duration::from_secs(20)).await;
        assert_eq!(seconds_of_outages(&clock), 20, "it goes on");
        clock.record_answer(StatusCode::SERVICE_UNAVAILABLE, &HeaderMap::new());
        advance(Duration::from_secs(20)).await;
        assert_eq!(seconds_of_outages(&clock), 40, "an answer that says that the server fails does not end it");
        clock.record_answer(StatusCode::FORBIDDEN, &HeaderMap::new());
        advance(Duration::from_secs(20)).await;
        assert_eq!(seconds_of_outages(&clock), 40, "a server that refuses works");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_failure_is_no_long_outage() {
        for status in [None, Some(StatusCode::INTERNAL_SERVER_ERROR)] {
            let clock = clock();
            answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
            advance(Duration::from_secs(3600)).await;
            match status {
                None => clock.note_no_answer(),
                Some(status) => clock.record_answer(status, &HeaderMap::new()),
            }
            advance(Duration::from_secs(3600)).await;
            clock.record_answer(StatusCode::OK, &HeaderMap::new());
            let (from, to) = clock.outages()[0];
            let expected = if status.is_none() { 340 } else { 30 };
            assert_eq!(to.duration_since(from).as_secs(), expected, "{status:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn date_since_returns_only_a_date_that_was_read_since() {
        let clock = clock();
        let before = Instant::now();
        assert_eq!(clock.date_since(before), None);
        answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
        assert_eq!(clock.date_since(before), Some("2026-11-22T12:00:00Z".parse().unwrap()));
        advance(Duration::from_secs(1)).await;
        assert_eq!(clock.date_since(Instant::now()), None, "the time goes on, but no answer says so");
    }
}
