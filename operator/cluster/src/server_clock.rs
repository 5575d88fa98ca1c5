//! The clock of the API server, as the `Date` of its answers tells it.
//!
//! **Invariant:** once an answer was read, the wall clock of this machine decides nothing. Only the time that has passed since that answer
//! is measured here, by a clock that nobody sets.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, header::DATE};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The clock of a machine, which may be wrong and may jump.
pub type MachineClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The largest difference of a machine's clock from the API server's that nobody is told of.
pub const LARGEST_SKEW: Duration = Duration::from_secs(5);

/// The API server's clock. Clones are one clock.
#[derive(Clone)]
pub struct ServerClock {
    machine: MachineClock,
    reading: Arc<Mutex<Option<Reading>>>,
    outages: Arc<Mutex<Outages>>,
}

/// The times in which the API server did not answer.
#[derive(Default)]
struct Outages {
    /// Since when it does not, if it does not.
    since: Option<Timestamp>,
    /// The ended ones, the newest last: from, to.
    ended: Vec<(Timestamp, Timestamp)>,
}

/// The largest number of outages that are remembered.
const OUTAGES: usize = 64;

/// What the last answer told.
#[derive(Clone, Copy)]
struct Reading {
    /// The time at `at`, at most a second early: a `Date` has whole seconds.
    time: Timestamp,
    at: Instant,
    /// The `Date` of the newest answer, and when it was read.
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

    /// Returns the time: the newest `Date` and the time that has passed since, at most a second early.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.reading().map_or_else(|| (self.machine)(), |reading| reading.now())
    }

    /// Returns the newest `Date` of an answer that was read since an instant.
    #[must_use]
    pub fn date_since(&self, since: Instant) -> Option<Timestamp> {
        self.reading().filter(|reading| reading.read >= since).map(|reading| reading.date)
    }

    /// Returns by how much the clock of this machine is ahead of the API server's, to a second; negative where it is behind.
    #[must_use]
    pub fn machine_ahead(&self) -> SignedDuration {
        self.reading().map_or(SignedDuration::ZERO, |reading| (self.machine)().duration_since(reading.now()))
    }

    /// Returns whether the clock of this machine is ahead of the API server's, where it differs by more than [`LARGEST_SKEW`].
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

    /// Returns the times in which the API server did not answer, the newest last: from, to.
    #[must_use]
    pub fn outages(&self) -> Vec<(Timestamp, Timestamp)> {
        let outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        outages.ended.clone()
    }

    /// Notes that a request has no answer: there is none since the newest that was read, as far as anybody knows.
    pub(crate) fn note_no_answer(&self) {
        let since = self.reading().map_or_else(|| self.now(), |reading| reading.now_at(reading.read));
        self.outages.lock().unwrap_or_else(PoisonError::into_inner).since.get_or_insert(since);
    }

    fn note_answer(&self) {
        let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = outages.since.take() {
            outages.ended.push((since, self.now()));
            if outages.ended.len() > OUTAGES {
                // Many short ones must not hide a long one.
                let shortest = outages.ended.iter().enumerate().min_by_key(|(_, (from, to))| to.duration_since(*from));
                if let Some(shortest) = shortest.map(|(at, _)| at) {
                    outages.ended.remove(shortest);
                }
            }
        }
    }

    /// Reads the `Date` of an answer, if it has one.
    pub(crate) fn read(&self, headers: &HeaderMap) {
        self.read_date(headers);
        self.note_answer();
    }

    fn read_date(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else { return };
        let (date, read) = (date.timestamp(), Instant::now());
        let mut known = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // The `Date` is the time without its fraction: a time within that second is as good, and does not jump back.
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
        clock.read(&headers);
    }

    fn time(clock: &ServerClock) -> String {
        clock.now().to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_the_servers_whatever_this_machine_says() {
        let clock = clock();
        assert_eq!(time(&clock), FAST, "nothing better is known");
        answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
        assert_eq!(time(&clock), "2026-11-22T12:00:00Z");
        advance(Duration::from_secs(90)).await;
        assert_eq!(time(&clock), "2026-11-22T12:01:30Z");
        assert_eq!(clock.machine_ahead(), SignedDuration::from_secs(25 * 3600 - 90));
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_answer_counts_and_a_second_is_never_told_twice() {
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
        clock.read(&HeaderMap::new());
        assert_eq!(time(&clock), "2026-11-22T11:00:00Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_outage_is_remembered_whatever_short_ones_follow() {
        let clock = clock();
        answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
        advance(Duration::from_secs(5)).await;
        for seconds in [3600].into_iter().chain([1; 200]) {
            clock.note_no_answer();
            advance(Duration::from_secs(seconds)).await;
            clock.read(&HeaderMap::new());
            answer(&clock, &jiff::fmt::rfc2822::to_string(&clock.now().to_zoned(jiff::tz::TimeZone::UTC)).unwrap());
        }
        let outages = clock.outages();
        assert_eq!(outages.len(), OUTAGES);
        assert_eq!(outages[0].1.duration_since(outages[0].0).as_secs(), 3605, "since the last answer");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_proves_the_time_only_since_it_was_read() {
        let clock = clock();
        let before = Instant::now();
        assert_eq!(clock.date_since(before), None);
        answer(&clock, "Sun, 22 Nov 2026 12:00:00 GMT");
        assert_eq!(clock.date_since(before), Some("2026-11-22T12:00:00Z".parse().unwrap()));
        advance(Duration::from_secs(1)).await;
        assert_eq!(clock.date_since(Instant::now()), None, "the time goes on, but no answer says so");
    }
}
