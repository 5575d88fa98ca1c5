//! The times of partial tallies, which end no gate and are only displayed.
//!
//! **Invariant:** bounded by the number of Approvals written in the last second. The first partial tally of an Approval
//! is written at once, and the last one within a second.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use signoff_cluster::kinds::Name;
use tokio::time::Instant;

/// The least time between two partial tallies of one Approval.
const INTERVAL: Duration = Duration::from_secs(1);

/// The times of the last partial tallies, by Approval.
#[derive(Default)]
pub(crate) struct PartialTallies(Mutex<HashMap<Name, Instant>>);

impl PartialTallies {
    /// Returns how long a partial tally has to wait, or `None` if it is written now.
    pub(crate) fn time_to_wait(&self, approval: &Name, now: Instant) -> Option<Duration> {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(*written.get(approval)?);
        INTERVAL.checked_sub(passed).filter(|wait| !wait.is_zero())
    }

    /// Records that a partial tally was stored.
    pub(crate) fn add(&self, approval: &Name, now: Instant) {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|_, at| now.saturating_duration_since(*at) < INTERVAL);
        written.insert(approval.clone(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_partial_tally_waits_for_a_second() {
        let (tallies, start) = (PartialTallies::default(), Instant::now());
        let (one, other) = (Name::new("n", "one"), Name::new("n", "other"));
        let after = |millis| start + Duration::from_millis(millis);
        assert_eq!(tallies.time_to_wait(&one, start), None);
        tallies.add(&one, start);
        assert_eq!(tallies.time_to_wait(&one, after(400)), Some(Duration::from_millis(600)));
        assert_eq!(tallies.time_to_wait(&other, after(400)), None, "each Approval by itself");
        assert_eq!(tallies.time_to_wait(&one, after(1000)), None);
        tallies.add(&one, after(1000));
        assert_eq!(tallies.time_to_wait(&one, after(1001)), Some(Duration::from_millis(999)));
    }

    #[test]
    fn times_older_than_the_interval_are_removed() {
        let (tallies, start) = (PartialTallies::default(), Instant::now());
        for n in 0..1000 {
            tallies.add(&Name::new("n", &format!("gate-{n}")), start);
        }
        tallies.add(&Name::new("n", "later"), start + INTERVAL);
        assert_eq!(tallies.0.lock().map(|written| written.len()).ok(), Some(1));
    }
}
