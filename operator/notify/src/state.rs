//! The state of a channel that outlives the process: a watermark, and the deliveries around it *(pure)*.
//!
//! A delivery counts as settled in two cases: its event is not after the watermark `through` and its key is not in
//! `open`, or its key is in `ahead`. The watermark stays a minute behind the clock, or two seconds when many notices
//! are sent, so that an event that is stored late is still after the watermark. Deliveries that are settled in this
//! time are in `ahead`. When `open` has no room for all unsettled deliveries, an earlier watermark is stored.
//!
//! **Invariant:** after a crash, the notices of a stored event that were not delivered are sent again, as long as the
//! object exists.

mod handles;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use signoff_api::Moment;

use crate::routes::DeliveryKey;

pub use handles::{Handles, MAX_HANDLES, SHARD};

/// The most keys that are stored in each of `open` and `ahead`.
pub const MAX_KEYS: usize = 500;
/// The usual time by which the watermark stays behind the clock.
pub const BEHIND: Duration = Duration::from_secs(60);
/// The least time by which the watermark stays behind the clock. The times in objects are whole seconds of the API
/// server's clock.
const LEAST_BEHIND: Duration = Duration::from_secs(2);
/// The most settled deliveries that this process remembers.
const MAX_AHEAD: usize = 10_000;

/// The stored state of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The watermark: every delivery of an event up to this time is settled, or its key is in `open`.
    through: Moment,
    /// The keys of unsettled deliveries, at most [`MAX_KEYS`]: all up to the watermark, and then later ones.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    open: BTreeSet<String>,
    /// The keys of settled deliveries after the watermark, with the times of their events in milliseconds since the
    /// Unix epoch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ahead: BTreeMap<String, i64>,
}

/// The ledger of the waiting and the settled deliveries of a channel.
#[derive(Debug)]
pub struct Ledger {
    through: Moment,
    /// The waiting deliveries, with the times of their events.
    waiting: BTreeMap<DeliveryKey, Moment>,
    /// The settled deliveries, by the times of their events: all after the watermark, and some before it, because an
    /// earlier watermark may be stored.
    ahead: BTreeSet<(Moment, DeliveryKey)>,
    ahead_keys: BTreeSet<DeliveryKey>,
    /// The keys that an earlier process left open, and whose objects this process has not reconciled yet.
    unseen: BTreeSet<DeliveryKey>,
    is_changed: bool,
}

impl Ledger {
    /// Returns the ledger of a channel without a stored state. Notices of earlier events are not sent.
    #[must_use]
    pub fn begin(now: Moment) -> Self {
        // Objects store whole seconds, so an event after `now` may have the start of this second as its time.
        Self::of(
            Mark {
                through: last_millisecond_before(now.floor_to_second()),
                open: BTreeSet::new(),
                ahead: BTreeMap::new(),
            },
            true,
        )
    }

    /// Returns the ledger that an earlier process stored.
    #[must_use]
    pub fn restore(mark: Mark) -> Self {
        Self::of(mark, false)
    }

    /// Adds the state that an earlier process stored, if it was loaded only after this process began to send.
    pub fn adopt(&mut self, mark: Mark) {
        let earlier = Self::restore(mark);
        let unseen: Vec<_> = earlier.unseen.into_iter().filter(|key| !self.is_known(key)).collect();
        self.through = self.through.min(earlier.through);
        self.unseen.extend(unseen);
        self.ahead.extend(earlier.ahead);
        self.ahead_keys.extend(earlier.ahead_keys);
        self.is_changed = true;
    }

    fn of(mark: Mark, is_changed: bool) -> Self {
        let Mark { through, open, ahead } = mark;
        let moment = |milliseconds: i64| jiff::Timestamp::from_millisecond(milliseconds).map(Moment::from).ok();
        let ahead: BTreeSet<_> =
            ahead.iter().filter_map(|(key, at)| Some((moment(*at)?, DeliveryKey::from_stored(key)))).collect();
        Self {
            through,
            waiting: BTreeMap::new(),
            ahead_keys: ahead.iter().map(|(_, key)| key.clone()).collect(),
            ahead,
            unseen: open.iter().map(|key| DeliveryKey::from_stored(key)).collect(),
            is_changed,
        }
    }

    /// Whether a delivery for a derived event still has to be queued. `at`: the time of the event.
    #[must_use]
    pub fn is_due(&self, key: &DeliveryKey, at: Moment) -> bool {
        !self.is_known(key) && (at > self.through || self.unseen.contains(key))
    }

    /// Whether an earlier process left a delivery open that this process has not queued yet.
    #[must_use]
    pub fn was_open(&self, key: &DeliveryKey) -> bool {
        self.unseen.contains(key)
    }

    /// Whether a delivery of a notice with this id may still have to be queued, for any recipient. `at`: the time of
    /// the event.
    #[must_use]
    pub fn may_be_due(&self, id: &str, at: Moment) -> bool {
        at > self.through || self.is_open(id)
    }

    /// Whether an earlier process left a delivery of a notice with this id open that this process has not queued yet.
    #[must_use]
    pub fn is_open(&self, id: &str) -> bool {
        let next = self.unseen.range(DeliveryKey::before_all_of(id)..).next();
        next.is_some_and(|key| key.is_of(id))
    }

    /// Whether an earlier process left deliveries open that this process has not queued yet.
    #[must_use]
    pub fn has_open(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Settles the deliveries of a notice with this id that an earlier process left open, without sending them. Returns
    /// whether there were any.
    pub fn settle_open(&mut self, id: &str) -> bool {
        if !self.is_open(id) {
            return false;
        }
        self.unseen.retain(|key| !key.is_of(id));
        self.is_changed = true;
        true
    }

    /// Whether a delivery waits, or was settled a short time ago.
    #[must_use]
    pub fn is_known(&self, key: &DeliveryKey) -> bool {
        self.waiting.contains_key(key) || self.ahead_keys.contains(key)
    }

    /// Adds a waiting delivery. `at`: the time of the event.
    pub fn add(&mut self, key: DeliveryKey, at: Moment) {
        self.unseen.remove(&key);
        self.waiting.insert(key, at);
        self.is_changed = true;
    }

    /// Settles a delivery that was delivered, given up or dropped. Does nothing if the delivery does not wait. Beyond
    /// `MAX_AHEAD` settled deliveries, the oldest is forgotten.
    pub fn settle(&mut self, key: &DeliveryKey) {
        let Some(at) = self.waiting.remove(key) else { return };
        self.is_changed = true;
        self.ahead_keys.insert(key.clone());
        self.ahead.insert((at, key.clone()));
        if self.ahead.len() > MAX_AHEAD
            && let Some((_, oldest)) = self.ahead.pop_first()
        {
            self.ahead_keys.remove(&oldest);
        }
    }

    /// Forgets the deliveries that an earlier process left open and that this process has not queued, because their
    /// objects were deleted. Returns their number.
    pub fn forget_unseen(&mut self) -> usize {
        let lost = std::mem::take(&mut self.unseen).len();
        self.is_changed |= lost > 0;
        lost
    }

    /// Returns the number of waiting deliveries.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the state has changed since the last [`Self::take_mark`].
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Marks the state as changed, so that it is stored.
    pub fn mark_changed(&mut self) {
        self.is_changed = true;
    }

    /// Advances the watermark, and returns the state to store. Forgets settled deliveries up to the watermark, as far
    /// as they are more than [`MAX_KEYS`]. `held`: the watermark stays before this time, because later events may still
    /// have to be queued.
    pub fn take_mark(&mut self, now: Moment, held: Option<Moment>) -> Mark {
        let latest = held.map_or(now, |held| held.min(now)).before(LEAST_BEHIND);
        let usual = now.before(BEHIND).min(latest);
        // The watermark is closer to the clock if otherwise `ahead` had more than [`MAX_KEYS`] keys.
        let nearer = self.ahead.iter().rev().nth(MAX_KEYS).map_or(usual, |(at, _)| (*at).min(latest));
        self.through = self.through.max(usual).max(nearer);
        while self.ahead.len() > MAX_KEYS && self.ahead.first().is_some_and(|(at, _)| *at <= self.through) {
            let Some((_, key)) = self.ahead.pop_first() else { break };
            self.ahead_keys.remove(&key);
        }
        self.is_changed = false;
        let through = self.through_with_room();
        let stored_key = |key: &DeliveryKey| key.as_str().to_owned();
        // Keys up to the watermark come first, because the next process finds those deliveries only by their keys. It
        // finds later deliveries by the times of their events, and needs later keys only to count lost notices.
        let (until_watermark, later): (Vec<_>, Vec<_>) = self.waiting.iter().partition(|(_, at)| **at <= through);
        let waiting = until_watermark.into_iter().chain(later).map(|(key, _)| stored_key(key));
        // Of too many keys only the newest are stored. After a crash, the notices of the other keys are sent again.
        let ahead = self.ahead.iter().rev().take_while(|(at, _)| *at > through).take(MAX_KEYS);
        Mark {
            through,
            open: self.unseen.iter().map(stored_key).chain(waiting).take(MAX_KEYS).collect(),
            ahead: ahead.map(|(at, key)| (stored_key(key), at.timestamp().as_millisecond())).collect(),
        }
    }

    /// Returns the watermark to store. If `open` has no room for all waiting deliveries up to the watermark of this
    /// process, returns an earlier watermark, so that the next process finds the other deliveries by their times.
    fn through_with_room(&self) -> Moment {
        let room = MAX_KEYS.saturating_sub(self.unseen.len());
        let mut open: Vec<_> = self.waiting.values().copied().filter(|at| *at <= self.through).collect();
        if open.len() <= room {
            return self.through;
        }
        open.sort_unstable();
        open.get(room).map_or(self.through, |first_without_room| last_millisecond_before(*first_without_room))
    }
}

/// Returns the last millisecond before a moment.
fn last_millisecond_before(moment: Moment) -> Moment {
    moment.before(Duration::from_millis(1))
}

#[cfg(test)]
mod tests;
