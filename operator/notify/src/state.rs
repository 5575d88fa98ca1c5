//! The state of a channel beyond this process: up to when all is delivered, and what is not *(pure)*.
//!
//! A delivery counts as made where its event is not after the watermark `through` and its key is not among the open
//! ones, or where its key is among those that ran ahead of the watermark. The watermark stays a minute behind, and two
//! seconds in a flood, so that an event that is stored late is still found; what was delivered meanwhile runs ahead.
//! It is stored further back where more is open than there is room for.
//!
//! **Invariant:** an event that is stored and not delivered is told again after a crash, as long as its object exists.

mod handles;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use signoff_api::Moment;

use crate::routes::DeliveryKey;

pub use handles::{Handles, MAX_HANDLES, SHARD};

/// The most keys of each list that are stored.
pub const MAX_KEYS: usize = 500;
/// The time by which the watermark stays behind.
pub const BEHIND: Duration = Duration::from_secs(60);
/// The time by which the watermark stays behind in any case: objects have whole seconds of the API server's clock.
const LEAST_BEHIND: Duration = Duration::from_secs(2);
/// The most deliveries ahead of the watermark that are remembered in this process.
const MAX_AHEAD: usize = 10_000;

/// The state of a channel as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The watermark.
    through: Moment,
    /// The keys of deliveries that are not made: all up to the watermark, and of later ones as many as there is room
    /// for.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    open: BTreeSet<String>,
    /// The keys of deliveries after the watermark that are made, with the times of their events in milliseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ahead: BTreeMap<String, i64>,
}

/// The deliveries of a channel: those that are made, and those that are not.
#[derive(Debug)]
pub struct Ledger {
    through: Moment,
    /// The deliveries that wait, with the times of their events.
    waiting: BTreeMap<DeliveryKey, Moment>,
    /// The deliveries that are made, by the times of their events: all after the watermark, and as many before it as
    /// may have to be stored.
    ahead: BTreeSet<(Moment, DeliveryKey)>,
    ahead_keys: BTreeSet<DeliveryKey>,
    /// The open keys of an earlier process whose objects were not seen yet.
    unseen: BTreeSet<DeliveryKey>,
    is_changed: bool,
}

impl Ledger {
    /// Returns the ledger of a channel that has no state: what was before is not told.
    #[must_use]
    pub fn begin(now: Moment) -> Self {
        // An event of the same second may be stored with the whole second only.
        Self::of(Mark { through: before(now.floor_to_second()), open: BTreeSet::new(), ahead: BTreeMap::new() }, true)
    }

    /// Returns the ledger that an earlier process stored.
    #[must_use]
    pub fn restore(mark: Mark) -> Self {
        Self::of(mark, false)
    }

    /// Adds the state that an earlier process stored, and that was loaded late.
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

    /// Whether a delivery that is derived from a stored object has to be made.
    #[must_use]
    pub fn is_due(&self, key: &DeliveryKey, at: Moment) -> bool {
        !self.is_known(key) && (at > self.through || self.unseen.contains(key))
    }

    /// Whether an earlier process did not make a delivery that is not told yet.
    #[must_use]
    pub fn was_open(&self, key: &DeliveryKey) -> bool {
        self.unseen.contains(key)
    }

    /// Whether some delivery of a notice with this id may have to be made, whatever its recipients.
    #[must_use]
    pub fn may_be_due(&self, id: &str, at: Moment) -> bool {
        at > self.through || self.is_open(id)
    }

    /// Whether an earlier process told a notice with this id and did not deliver it, and its object was not seen since.
    #[must_use]
    pub fn is_open(&self, id: &str) -> bool {
        let next = self.unseen.range(DeliveryKey::before_all_of(id)..).next();
        next.is_some_and(|key| key.is_of(id))
    }

    /// Whether deliveries of an earlier process are open whose objects were not seen since.
    #[must_use]
    pub fn has_open(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Settles the deliveries of an earlier process with this id, without making them. Returns whether there were any.
    pub fn settle_open(&mut self, id: &str) -> bool {
        if !self.is_open(id) {
            return false;
        }
        self.unseen.retain(|key| !key.is_of(id));
        self.is_changed = true;
        true
    }

    /// Whether a delivery waits, or was made a short time ago.
    #[must_use]
    pub fn is_known(&self, key: &DeliveryKey) -> bool {
        self.waiting.contains_key(key) || self.ahead_keys.contains(key)
    }

    /// Adds a delivery that waits from now on.
    pub fn add(&mut self, key: DeliveryKey, at: Moment) {
        self.unseen.remove(&key);
        self.waiting.insert(key, at);
        self.is_changed = true;
    }

    /// Settles a delivery: it is made, or given up.
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

    /// Forgets the open deliveries of an earlier process whose objects are gone. Returns their number.
    pub fn forget_unseen(&mut self) -> usize {
        let lost = std::mem::take(&mut self.unseen).len();
        self.is_changed |= lost > 0;
        lost
    }

    /// Returns the number of deliveries that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is a state to be stored.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Marks the state as not stored.
    pub fn mark_changed(&mut self) {
        self.is_changed = true;
    }

    /// Advances the watermark and returns the state to be stored. `held`: the time since which an event may be stored
    /// that nothing has told yet.
    pub fn take_mark(&mut self, now: Moment, held: Option<Moment>) -> Mark {
        let latest = held.map_or(now, |held| held.min(now)).before(LEAST_BEHIND);
        let usual = now.before(BEHIND).min(latest);
        // Nearer where more would run ahead of it than are stored.
        let nearer = self.ahead.iter().rev().nth(MAX_KEYS).map_or(usual, |(at, _)| (*at).min(latest));
        self.through = self.through.max(usual).max(nearer);
        while self.ahead.len() > MAX_KEYS && self.ahead.first().is_some_and(|(at, _)| *at <= self.through) {
            let Some((_, key)) = self.ahead.pop_first() else { break };
            self.ahead_keys.remove(&key);
        }
        self.is_changed = false;
        let through = self.through_with_room();
        let text = |key: &DeliveryKey| key.as_str().to_owned();
        // First those that only their keys tell. Those ahead are found anyway, unless their objects are deleted,
        // which is counted.
        let (behind, ahead_of): (Vec<_>, Vec<_>) = self.waiting.iter().partition(|(_, at)| **at <= through);
        let waiting = behind.into_iter().chain(ahead_of).map(|(key, _)| text(key));
        // Where there are more, the newest ones ahead: the others are told again after a crash.
        let ahead = self.ahead.iter().rev().take_while(|(at, _)| *at > through).take(MAX_KEYS);
        Mark {
            through,
            open: self.unseen.iter().map(text).chain(waiting).take(MAX_KEYS).collect(),
            ahead: ahead.map(|(at, key)| (text(key), at.timestamp().as_millisecond())).collect(),
        }
    }

    /// Returns the watermark to be stored: further back than that of this process where more is open than there is room
    /// for, so that the next process finds the others by their times.
    fn through_with_room(&self) -> Moment {
        let room = MAX_KEYS.saturating_sub(self.unseen.len());
        let mut open: Vec<_> = self.waiting.values().copied().filter(|at| *at <= self.through).collect();
        if open.len() <= room {
            return self.through;
        }
        open.sort_unstable();
        open.get(room).map_or(self.through, |first_without_room| before(*first_without_room))
    }
}

/// Returns the last moment before a moment.
fn before(moment: Moment) -> Moment {
    moment.before(Duration::from_millis(1))
}

#[cfg(test)]
mod tests;
