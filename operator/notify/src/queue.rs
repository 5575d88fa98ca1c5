//! The queue of one channel: it orders the waiting deliveries, repeats failed ones after a pause, and gives them up
//! after a day *(pure)*.
//!
//! **Invariant:** the notices about one Approval to one recipient are sent in the order of their events. Namespaces
//! take turns, so that many notices of one namespace do not delay the others.

mod pause;
mod share;
mod window;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry as MapEntry},
    sync::Arc,
    time::Duration,
};

use signoff_api::Moment;

use crate::{
    channel::{Recipient, SendError},
    notice::{Notice, NoticeEvent},
    routes::{Addressed, DeliveryKey},
};
use pause::{Pause, backoff};
use share::{Share, bytes_of};
use window::{Window, Windows, is_folded};

/// The time after which a failing delivery is given up.
pub const GIVEN_UP: Duration = Duration::from_secs(24 * 3600);
/// The longest time between two attempts, whatever the receiver asks for.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// The length of a window, in which many notices are folded into one.
const WINDOW: Duration = Duration::from_secs(60);

/// The limits of the queue of a channel.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most waiting deliveries.
    pub entries: usize,
    /// The most bytes of waiting deliveries.
    pub bytes: usize,
    /// The most deliveries in flight. Deliveries of one namespace take at most half of these places, so that slow
    /// recipients of one namespace do not block the others.
    pub at_once: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 16_384, bytes: 16 * 1024 * 1024, at_once: 8 }
    }
}

/// The id of a lane: the notices about one object to one recipient, which are sent one after another. The lanes of one
/// object sort together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneId {
    correlation: String,
    to: Recipient,
}

impl LaneId {
    /// Returns the lane of the notices with this correlation to a recipient.
    #[must_use]
    pub fn new(correlation: &str, to: Recipient) -> Self {
        Self { correlation: correlation.to_owned(), to }
    }

    /// Returns the id that sorts before all other lanes with this correlation.
    #[must_use]
    pub fn first_about(correlation: &str) -> Self {
        Self::new(correlation, Recipient::Channel)
    }

    /// Whether the notices of the lane have this correlation.
    #[must_use]
    pub fn is_about(&self, correlation: &str) -> bool {
        self.correlation == correlation
    }

    /// Returns the key under which the id of the lane's sent message is stored. Later notices change or answer this
    /// message.
    #[must_use]
    pub fn handle_key(&self) -> DeliveryKey {
        DeliveryKey::new(&self.correlation, &self.to)
    }
}

/// An attempt that begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// The lane of the delivery, for [`Queue::finish`].
    pub lane: LaneId,
    /// The notice and its recipient.
    pub addressed: Addressed,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The delivery succeeded, or is given up.
    Settled {
        /// The keys of the settled deliveries.
        keys: Vec<DeliveryKey>,
        /// The reason for giving up; `None`: the delivery succeeded.
        dead: Option<String>,
    },
    /// The delivery is tried again.
    Later {
        /// The time of the next attempt.
        at: Moment,
        /// The reason of the failure.
        why: String,
    },
}

/// A delivery that was given up without a further attempt.
#[derive(Clone, Debug)]
pub struct Expired {
    /// The lane of the delivery.
    pub lane: LaneId,
    /// The notice that was not delivered.
    pub notice: Arc<Notice>,
    /// The keys of the given-up delivery and of the deliveries that it replaced.
    pub keys: Vec<DeliveryKey>,
}

#[derive(Debug)]
struct Entry {
    addressed: Addressed,
    /// The keys of this delivery and of the folded deliveries that it replaced.
    covers: Vec<DeliveryKey>,
    /// The start of the delivery. If an attempt fails [`GIVEN_UP`] after this time, the delivery is given up.
    since: Moment,
    /// The time at which this process queued the delivery.
    queued: Moment,
    attempts: u32,
}

impl Entry {
    fn bytes(&self) -> usize {
        bytes_of(&self.addressed) + self.covers.iter().map(|key| key.as_str().len()).sum::<usize>()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneState {
    Ready,
    InFlight,
    Waiting(Moment),
}

#[derive(Debug)]
struct Lane {
    namespace: String,
    entries: VecDeque<Entry>,
    state: LaneState,
}

/// The queue of one channel.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    /// `Some` if many notices are folded into one, with the URL of the inbox if there is one.
    folds: Option<Option<String>>,
    lanes: BTreeMap<LaneId, Lane>,
    /// The lanes that are ready for an attempt, by namespace.
    ready: BTreeMap<String, VecDeque<LaneId>>,
    /// The namespaces with ready lanes, in the order of their turns.
    turns: VecDeque<String>,
    waiting: BTreeSet<(Moment, LaneId)>,
    windows: Windows,
    /// The earliest end of a window.
    window_ends: Option<Moment>,
    /// The size of the deliveries of each namespace.
    shares: BTreeMap<String, Share>,
    /// The sum of all shares.
    total: Share,
    in_flight: usize,
    pause: Pause,
}

impl Queue {
    /// Returns an empty queue. `folds`: `Some` if many notices are folded into one, with the URL of the inbox if there
    /// is one.
    #[must_use]
    pub fn new(limits: Limits, folds: Option<Option<String>>) -> Self {
        Self {
            limits,
            folds,
            lanes: BTreeMap::new(),
            ready: BTreeMap::new(),
            turns: VecDeque::new(),
            waiting: BTreeSet::new(),
            windows: Windows::new(),
            window_ends: None,
            shares: BTreeMap::new(),
            total: Share::default(),
            in_flight: 0,
            pause: Pause::default(),
        }
    }

    /// Applies a changed configuration. `folds` as in [`Self::new`].
    pub fn set_folds(&mut self, folds: Option<Option<String>>) {
        self.folds = folds;
    }

    /// Removes the details from all waiting notices, after the channel was configured to show none.
    pub fn drop_details(&mut self) {
        let mut freed = Vec::new();
        for lane in self.lanes.values_mut() {
            for entry in lane.entries.iter_mut().filter(|entry| entry.addressed.notice.details.is_some()) {
                let before = entry.bytes();
                Arc::make_mut(&mut entry.addressed.notice).details = None;
                freed.push((lane.namespace.clone(), before.saturating_sub(entry.bytes())));
            }
        }
        freed.iter().for_each(|(namespace, bytes)| self.shrink(namespace, 0, *bytes));
    }

    /// Returns the number of deliveries that wait or are in flight, including folded ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shares.values().map(|share| share.entries).sum()
    }

    /// Whether no delivery waits or is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    /// Whether notices of a lane wait or are in flight.
    #[must_use]
    pub fn has_lane(&self, lane: &LaneId) -> bool {
        self.lanes.contains_key(lane)
    }

    /// Whether notices with this correlation wait or are in flight.
    #[must_use]
    pub fn has_notices_about(&self, correlation: &str) -> bool {
        let next = self.lanes.range(LaneId::first_about(correlation)..).next();
        next.is_some_and(|(lane, _)| lane.is_about(correlation))
    }

    /// Whether a notice of a run waits or is in flight.
    #[must_use]
    pub fn has_run(&self, namespace: &str, run: &str) -> bool {
        let is_of_run = |entry: &Entry| entry.addressed.notice.run == run;
        let mut lanes = self.lanes.values().filter(|lane| lane.namespace == namespace);
        self.shares.contains_key(namespace) && lanes.any(|lane| lane.entries.iter().any(is_of_run))
    }

    /// Adds a delivery. If the queue would exceed its limits, deliveries of the namespace with the largest share are
    /// dropped, which may be the new one. Returns the keys of the dropped deliveries. `since`: the time from which the
    /// day of failures counts.
    pub fn push(&mut self, addressed: Addressed, since: Moment, now: Moment) -> Vec<DeliveryKey> {
        let namespace = addressed.notice.namespace.as_str();
        let added = Share { entries: 1, bytes: bytes_of(&addressed), in_flight: 0 };
        let mut dropped = Vec::new();
        while let Some(size) = self.exceeded_limit(added) {
            let own = size(&added) + self.shares.get(namespace).map_or(0, size);
            let others = self.shares.iter().filter(|(name, share)| name.as_str() != namespace && size(share) > own);
            let largest = others.max_by_key(|(_, share)| size(share)).map(|(name, _)| name.clone());
            match largest.and_then(|largest| self.drop_last(&largest)) {
                Some(keys) => dropped.extend(keys),
                None => {
                    dropped.push(addressed.key());
                    return dropped;
                }
            }
        }
        self.enqueue(addressed, since, now);
        dropped
    }

    /// Returns the measure (entries or bytes) whose limit a further delivery would exceed, or `None` if there is room
    /// for it.
    fn exceeded_limit(&self, added: Share) -> Option<fn(&Share) -> usize> {
        let entries: fn(&Share) -> usize = |share| share.entries;
        let bytes: fn(&Share) -> usize = |share| share.bytes;
        let is_exceeded = |size: fn(&Share) -> usize, limit: usize| size(&added) + size(&self.total) > limit;
        if is_exceeded(entries, self.limits.entries) {
            return Some(entries);
        }
        is_exceeded(bytes, self.limits.bytes).then_some(bytes)
    }

    /// Adds a delivery to the open window of its recipient, or to its lane. An outcome replaces the folded notices that
    /// asked for the decision.
    fn enqueue(&mut self, addressed: Addressed, since: Moment, now: Moment) {
        self.close_windows(now);
        let notice = &addressed.notice;
        let mut covers = vec![addressed.key()];
        let recipient = (addressed.to.clone(), notice.namespace.clone());
        if notice.event == NoticeEvent::Taken
            && let Some(window) = self.windows.get_mut(&recipient)
        {
            let (replaced, bytes) = window.remove(&notice.correlation);
            self.shrink(&notice.namespace, replaced.len(), bytes);
            covers.extend(replaced);
        }
        if self.folds.is_some() && is_folded(notice.event) {
            // The end is rounded to a whole second, so that many windows end together.
            let ends = now.floor_to_second().after(WINDOW);
            let window = self.windows.entry(recipient).or_insert_with(|| Window::new(ends));
            self.window_ends = Some(self.window_ends.map_or(window.ends, |first| first.min(window.ends)));
            if let Some(bytes) = window.fold(&addressed) {
                return self.grow(&notice.namespace, 1, bytes);
            }
        }
        self.append_to_lane(Entry { addressed, covers, since, queued: now, attempts: 0 });
    }

    /// Adds a delivery to the end of its lane. A new lane is ready for an attempt.
    fn append_to_lane(&mut self, entry: Entry) {
        let notice = &entry.addressed.notice;
        let id = LaneId::new(&notice.correlation, entry.addressed.to.clone());
        let namespace = notice.namespace.clone();
        self.grow(&namespace, entry.covers.len(), entry.bytes());
        match self.lanes.entry(id.clone()) {
            MapEntry::Occupied(mut lane) => lane.get_mut().entries.push_back(entry),
            MapEntry::Vacant(place) => {
                place.insert(Lane { namespace: namespace.clone(), entries: [entry].into(), state: LaneState::Ready });
                self.make_ready(namespace, id);
            }
        }
    }

    /// Adds a lane to the ready lanes of its namespace, and gives the namespace a turn if it has none.
    fn make_ready(&mut self, namespace: String, id: LaneId) {
        let lanes = self.ready.entry(namespace.clone()).or_default();
        lanes.push_back(id);
        if lanes.len() == 1 {
            self.turns.push_back(namespace);
        }
    }

    /// Begins the next attempt of the namespace whose turn it is, and marks its lane as in flight; or returns `None` if
    /// no attempt can begin now. [`Self::finish`] ends the attempt.
    pub fn begin_next(&mut self, now: Moment) -> Option<Start> {
        self.close_windows(now);
        self.wake_lanes(now);
        // After many failures, one attempt at a time checks whether the receiver is reachable again.
        let at_once = if self.pause.is_general() { 1 } else { self.limits.at_once };
        if self.in_flight >= at_once || self.pause.until(now).is_some() {
            return None;
        }
        let max_per_namespace = self.limits.at_once.div_ceil(2);
        let has_place = |name: &String| self.shares.get(name).is_none_or(|share| share.in_flight < max_per_namespace);
        let turn = self.turns.iter().position(has_place)?;
        let namespace = self.turns.remove(turn)?;
        let lanes = self.ready.get_mut(&namespace)?;
        let id = lanes.pop_front();
        if lanes.is_empty() {
            self.ready.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        let id = id?;
        let lane = self.lanes.get_mut(&id)?;
        let addressed = lane.entries.front()?.addressed.clone();
        lane.state = LaneState::InFlight;
        self.in_flight += 1;
        if let Some(share) = self.shares.get_mut(&lane.namespace) {
            share.in_flight += 1;
        }
        Some(Start { lane: id, addressed })
    }

    /// Returns the earliest time at which a further attempt can begin without a new event, or `None` if there is none.
    /// Call this after [`Self::begin_next`] has returned `None` for `now`; the returned time is later than `now`.
    #[must_use]
    pub fn wake_at(&self, now: Moment) -> Option<Moment> {
        let pause = self.pause.until(now);
        let resumes = pause.filter(|_| !self.ready.is_empty());
        let first = self.waiting.first().map(|(at, _)| pause.map_or(*at, |until| until.max(*at)));
        [first, resumes, self.window_ends].into_iter().flatten().min()
    }

    /// Ends an attempt: settles the delivery, or schedules a further attempt. A delivery that has failed for
    /// [`GIVEN_UP`] is settled as given up. A failure may pause the whole channel.
    pub fn finish(&mut self, id: &LaneId, result: Result<(), SendError>, now: Moment) -> Finished {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(lane) = self.lanes.get(id)
            && let Some(share) = self.shares.get_mut(&lane.namespace)
        {
            share.in_flight = share.in_flight.saturating_sub(1);
        }
        match result {
            Ok(()) => {
                self.pause.end_general();
                Finished::Settled { keys: self.settle(id), dead: None }
            }
            Err(SendError::Dead { why }) => {
                self.pause.end_general();
                Finished::Settled { keys: self.settle(id), dead: Some(why) }
            }
            Err(SendError::Later { why, after }) => {
                self.pause.fail(id, after, now);
                match self.schedule_retry(id, after, now) {
                    Some(at) => Finished::Later { at, why },
                    None => Finished::Settled { keys: self.settle(id), dead: Some(why) },
                }
            }
        }
    }

    /// Schedules the next attempt of a lane, and returns its time; or `None` if the delivery has failed for
    /// [`GIVEN_UP`]. `after`: the time for which the receiver asks to wait.
    fn schedule_retry(&mut self, id: &LaneId, after: Option<Duration>, now: Moment) -> Option<Moment> {
        let lane = self.lanes.get_mut(id)?;
        let entry = lane.entries.front_mut()?;
        if now.since(entry.since) >= GIVEN_UP {
            return None;
        }
        entry.attempts = entry.attempts.saturating_add(1);
        let requested = after.unwrap_or_default().min(LONGEST_PAUSE);
        let at = now.after(backoff(entry.attempts, &entry.addressed.key()).max(requested));
        lane.state = LaneState::Waiting(at);
        self.waiting.insert((at, id.clone()));
        Some(at)
    }

    /// Removes the delivery in flight of a lane, and returns its keys. The lane is ready again if it has a further
    /// delivery, and is removed otherwise.
    fn settle(&mut self, id: &LaneId) -> Vec<DeliveryKey> {
        let Some(mut lane) = self.lanes.remove(id) else { return Vec::new() };
        let Some(settled) = lane.entries.pop_front() else { return Vec::new() };
        self.shrink(&lane.namespace, settled.covers.len(), settled.bytes());
        if !lane.entries.is_empty() {
            lane.state = LaneState::Ready;
            let namespace = lane.namespace.clone();
            self.lanes.insert(id.clone(), lane);
            self.make_ready(namespace, id.clone());
        }
        settled.covers
    }

    /// Gives up the deliveries of ready lanes that were queued a day ago. While the whole channel pauses, most lanes
    /// get no attempt. A delivery in a waiting lane is given up when its next attempt fails.
    pub fn expire(&mut self, now: Moment) -> Vec<Expired> {
        let mut expired = Vec::new();
        let mut emptied: BTreeMap<String, BTreeSet<LaneId>> = BTreeMap::new();
        for (id, lane) in self.lanes.iter_mut().filter(|(_, lane)| lane.state == LaneState::Ready) {
            while lane.entries.front().is_some_and(|entry| now.since(entry.queued) >= GIVEN_UP)
                && let Some(entry) = lane.entries.pop_front()
            {
                expired.push((id.clone(), entry));
            }
            if lane.entries.is_empty() {
                emptied.entry(lane.namespace.clone()).or_default().insert(id.clone());
            }
        }
        for (namespace, lanes) in &emptied {
            self.remove_lanes(namespace, lanes);
        }
        let settled = expired.into_iter().map(|(lane, entry)| {
            let bytes = entry.bytes();
            let Entry { addressed: Addressed { notice, .. }, covers: keys, .. } = entry;
            self.shrink(&notice.namespace, keys.len(), bytes);
            Expired { lane, notice, keys }
        });
        settled.collect()
    }

    /// Adds deliveries to the share of a namespace and to the total.
    fn grow(&mut self, namespace: &str, entries: usize, bytes: usize) {
        let share = self.shares.entry(namespace.to_owned()).or_default();
        share.entries += entries;
        share.bytes += bytes;
        self.total.entries += entries;
        self.total.bytes += bytes;
    }

    /// Removes deliveries from the share of a namespace and from the total.
    fn shrink(&mut self, namespace: &str, entries: usize, bytes: usize) {
        let Some(share) = self.shares.get_mut(namespace) else { return };
        self.total.entries = self.total.entries.saturating_sub(entries);
        self.total.bytes = self.total.bytes.saturating_sub(bytes);
        share.entries = share.entries.saturating_sub(entries);
        share.bytes = share.bytes.saturating_sub(bytes);
        if share.entries == 0 {
            self.shares.remove(namespace);
        }
    }

    /// Makes each lane ready whose waiting time has ended.
    fn wake_lanes(&mut self, now: Moment) {
        while self.waiting.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, id)) = self.waiting.pop_first() else { return };
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            lane.state = LaneState::Ready;
            let namespace = lane.namespace.clone();
            self.make_ready(namespace, id);
        }
    }

    /// Ends the windows whose time has passed. The folded notices of a window become one delivery.
    fn close_windows(&mut self, now: Moment) {
        if self.window_ends.is_none_or(|first| first > now) {
            return;
        }
        let inbox = self.folds.clone().flatten();
        let (ended, open): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.windows).into_iter().partition(|(_, window)| window.ends <= now);
        self.windows = open.into_iter().collect();
        self.window_ends = self.windows.values().map(|window| window.ends).min();
        for ((_, namespace), window) in ended {
            if let Some((addressed, covers, bytes)) = window.close(inbox.as_deref()) {
                self.shrink(&namespace, covers.len(), bytes);
                self.append_to_lane(Entry { addressed, covers, since: now, queued: now, attempts: 0 });
            }
        }
    }

    /// Drops one delivery of a namespace, and returns its keys. Folded deliveries are dropped first; a delivery in
    /// flight is never dropped.
    fn drop_last(&mut self, namespace: &str) -> Option<Vec<DeliveryKey>> {
        let mut windows = self.windows.iter_mut().filter(|((_, name), _)| name == namespace);
        if let Some((key, bytes)) = windows.find_map(|(_, window)| window.pop()) {
            self.shrink(namespace, 1, bytes);
            return Some(vec![key]);
        }
        let is_idle = |lane: &Lane| lane.entries.len() > usize::from(lane.state == LaneState::InFlight);
        let mut lanes = self.lanes.iter().filter(|(_, lane)| lane.namespace == namespace && is_idle(lane));
        let id = lanes.next_back().map(|(id, _)| id.clone())?;
        let lane = self.lanes.get_mut(&id)?;
        let dropped = lane.entries.pop_back()?;
        if lane.entries.is_empty() {
            self.remove_lanes(namespace, &BTreeSet::from([id]));
        }
        self.shrink(namespace, dropped.covers.len(), dropped.bytes());
        Some(dropped.covers)
    }

    /// Removes empty lanes of a namespace.
    fn remove_lanes(&mut self, namespace: &str, emptied: &BTreeSet<LaneId>) {
        for id in emptied {
            if let Some(Lane { state: LaneState::Waiting(at), .. }) = self.lanes.remove(id) {
                self.waiting.remove(&(at, id.clone()));
            }
        }
        if let Some(ready) = self.ready.get_mut(namespace) {
            ready.retain(|id| !emptied.contains(id));
            if ready.is_empty() {
                self.ready.remove(namespace);
                self.turns.retain(|turn| turn != namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests;
