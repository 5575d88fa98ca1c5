//! The pause of a whole channel, and the times between attempts *(pure)*.

use std::{collections::BTreeSet, time::Duration};

use signoff_api::{Digest, Moment};

use super::{LONGEST_PAUSE, LaneId};
use crate::{channel::Recipient, routes::DeliveryKey};

/// The number of lanes that fail in a row after which the whole channel pauses between attempts.
const LANES_IN_A_ROW: usize = 8;
/// The most lanes of one person that count. One person whose address is refused, even for many requests, does not make
/// the channel pause.
const LANES_OF_A_PERSON: usize = 2;
/// The longest pause for which the receiver has not asked.
const LONGEST_PROBE: Duration = Duration::from_secs(30);

/// The pause of the whole channel.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// The time until which the receiver asked to wait.
    requested: Option<Moment>,
    /// The time of the next attempt after many failures.
    probe: Option<Moment>,
    /// The counted lanes that failed since the last answer of the receiver.
    lanes: BTreeSet<LaneId>,
    /// The number of failures while the pause is general, which lengthens the pause.
    failures: u32,
}

impl Pause {
    /// Whether so many lanes failed that the receiver seems to be unreachable.
    pub(super) fn is_general(&self) -> bool {
        self.lanes.len() >= LANES_IN_A_ROW
    }

    /// Returns the end of the pause, or `None` if the channel does not pause.
    pub(super) fn until(&self, now: Moment) -> Option<Moment> {
        self.requested.max(self.probe).filter(|until| *until > now)
    }

    /// Records a failure of a lane. If enough lanes have failed in a row, lengthens the pause until the next attempt.
    /// `after`: the time for which the receiver asks to wait.
    pub(super) fn fail(&mut self, lane: &LaneId, after: Option<Duration>, now: Moment) {
        let requested = after.map(|after| now.after(after.min(LONGEST_PAUSE)));
        self.requested = self.requested.max(requested);
        if !self.is_general() && self.is_counted(lane) {
            self.lanes.insert(lane.clone());
        }
        if self.is_general() {
            self.probe = Some(now.after(seconds_doubled(self.failures).min(LONGEST_PROBE)));
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// Whether a failure of the lane counts: at most [`LANES_OF_A_PERSON`] lanes of one person do.
    fn is_counted(&self, lane: &LaneId) -> bool {
        match &lane.to {
            Recipient::Channel => true,
            person @ Recipient::Person(_) => {
                self.lanes.iter().filter(|known| known.to == *person).count() < LANES_OF_A_PERSON
            }
        }
    }

    /// Records that the receiver has answered. A pause for which the receiver asked goes on.
    pub(super) fn end_general(&mut self) {
        *self = Self { requested: self.requested, ..Self::default() };
    }
}

/// Returns the time between attempt `attempts` and the next attempt. The time doubles with each attempt, up to an hour.
/// Up to a quarter is added, which depends on the delivery, so that the attempts of many deliveries spread.
pub(super) fn backoff(attempts: u32, key: &DeliveryKey) -> Duration {
    let base = seconds_doubled(attempts.saturating_sub(1)).min(LONGEST_PAUSE);
    let digits = Digest::of_bytes(format!("{}/{attempts}", key.as_str()).as_bytes());
    let part = u32::from_str_radix(digits.short(2), 16).unwrap_or(0);
    (base + base / 4 * part / 256).min(LONGEST_PAUSE)
}

/// Returns one second, doubled `times` times.
fn seconds_doubled(times: u32) -> Duration {
    Duration::from_secs(1_u64.checked_shl(times.min(20)).unwrap_or(u64::MAX))
}
