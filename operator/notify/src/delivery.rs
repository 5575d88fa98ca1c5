//! The notices of an operator, and the task that sends them: `tell` -> queue *(pure)* -> channel *(I/O)* -> ledger
//! *(pure)* -> stored state *(I/O)*.
//!
//! **Invariant:** `tell` never waits. Each channel has a queue of its own, so that a channel that is unreachable, slow
//! or full does not delay the others. Without events there are no requests.

mod derived;
mod hold;
mod pending;
mod reload;
mod standing;
mod state_store;

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use signoff_api::Moment;
use signoff_executor::{Clock, clock::wake_up};
use tokio::{
    sync::Notify,
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    channel::{Channel, MessageHandle, SendError},
    config::{ChannelConfig, Config, ConfigFile, FileState, LoadedConfig, NamespaceLabels},
    failures::Failures,
    notice::Notice,
    queue::{Expired, Finished, LaneId, Queue, Start},
    routes::{self, DeliveryKey, Occasion},
    state::{Handles, Ledger, Mark},
};
use pending::PendingEvents;
use state_store::UnfinishedWrites;

pub use hold::Hold;
pub use standing::{ChangedApprovals, NoticeStanding};
pub use state_store::{StateStore, StoredState};

/// The longest time of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between two reads of the administrator's files. The kubelet replaces mounted files without informing the
/// process.
const BETWEEN_READS: Duration = Duration::from_secs(10);
/// The reason for giving up a delivery that was never attempted.
const NOT_ATTEMPTED: &str = "the channel has failed for a day";

/// The longest time for which the deletion of a run waits for the notices of the run.
pub const DELETION_WAITS: Duration = Duration::from_secs(600);

/// A function that builds the channel of a configuration. Its error names the field below the channel, and the remedy.
pub type BuildChannel = dyn Fn(&ChannelConfig, &Config) -> Result<Arc<dyn Channel>, String> + Send + Sync;

/// A function that counts the result of a delivery under the name of the channel.
pub type CountResult = dyn Fn(&str, NoticeResult) + Send + Sync;

/// The results of deliveries and attempts, for a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeResult {
    /// Delivered.
    Delivered,
    /// The attempt failed, and is repeated later.
    Later,
    /// Given up: the receiver refused it for good, or it failed for a day.
    Dead,
    /// Dropped, because too many deliveries waited.
    Dropped,
    /// Lost: the object of the notice was deleted before the delivery.
    Lost,
}

impl NoticeResult {
    /// Returns the name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Later => "later",
            Self::Dead => "dead",
            Self::Dropped => "dropped",
            Self::Lost => "lost",
        }
    }
}

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The event has just happened.
    Live,
    /// The event is derived from a stored object. An earlier process may have queued its notices already.
    Derived,
}

/// The parts from which an operator builds its notices.
pub struct NoticeParts {
    /// The path of the administrator's file.
    pub file: PathBuf,
    /// The clock that dates events and retries.
    pub clock: Arc<dyn Clock>,
    /// The store of the state that outlives the process.
    pub store: Arc<dyn StateStore>,
    /// The function that builds each configured channel.
    pub build: Arc<BuildChannel>,
    /// The function that counts the result of each delivery and attempt.
    pub count: Arc<CountResult>,
}

/// The notices of an operator.
pub struct Notices {
    parts: NoticeParts,
    file: Mutex<ConfigFile>,
    inner: Mutex<Inner>,
    /// Signals that a delivery may be possible.
    news: Notify,
    /// Signals that the state has changed and is to be stored.
    changed: Notify,
    /// Signals that [`Notices::take_changed`] returns something.
    standings: Notify,
    /// The unfinished writes of the state. The lock is held while the state is written.
    unfinished: tokio::sync::Mutex<UnfinishedWrites>,
}

#[derive(Default)]
struct Inner {
    loaded: Arc<LoadedConfig>,
    /// Whether a valid configuration was ever read.
    is_configured: bool,
    /// The Approvals whose condition may have to change.
    changed: ChangedApprovals,
    /// The runs whose deletion waits for their notices, by namespace and name, with the start of the wait.
    awaited: BTreeMap<(String, String), Moment>,
    lines: BTreeMap<String, Line>,
    /// The stored states of channels that are not configured yet.
    stored: BTreeMap<String, Mark>,
    handles: Handles,
    /// The start times of all [`Hold`]s, with the number of holds of each.
    held: BTreeMap<Moment, usize>,
    /// Whether the stored state was loaded. Until then no state is written over it.
    is_loaded: bool,
    /// The reason why the last attempt to load the state failed.
    load_problem: Option<String>,
    /// Whether every stored object was reconciled once in this process. Until then the stored watermarks stay.
    has_recovered: bool,
    /// The events that wait for the state and the configuration.
    pending: PendingEvents,
}

/// A channel with its waiting deliveries and its state.
struct Line {
    channel: Arc<dyn Channel>,
    queue: Queue,
    ledger: Ledger,
    failures: Failures,
    failing_since: Option<Moment>,
}

/// An attempt that is about to begin.
struct Attempt {
    name: String,
    channel: Arc<dyn Channel>,
    start: Start,
    earlier: Option<MessageHandle>,
}

type SendResult = Result<Option<MessageHandle>, SendError>;

impl Notices {
    /// Returns notices without state and configuration. Call [`Self::load`] next, and then [`Self::run`].
    #[must_use]
    pub fn new(parts: NoticeParts) -> Self {
        let file = Mutex::new(ConfigFile::new(parts.file.clone()));
        let (news, changed, standings) = (Notify::new(), Notify::new(), Notify::new());
        let unfinished = tokio::sync::Mutex::default();
        Self { parts, file, inner: Mutex::default(), news, changed, standings, unfinished }
    }

    fn now(&self) -> Moment {
        self.parts.clock.now().into()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_file(&self) -> MutexGuard<'_, ConfigFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the notices of an event. `labels`: the labels of the namespace.
    pub fn tell(&self, occasion: &Occasion, labels: &NamespaceLabels, origin: Origin) {
        let now = self.now();
        let is_news = self.lock().tell(occasion, labels, origin, now, &*self.parts.count);
        if is_news {
            self.news.notify_one();
            self.changed.notify_one();
        }
    }

    /// Whether the notices of a derived event may still have to be sent to some channel. A cheap check before the event
    /// itself is derived.
    #[must_use]
    pub fn may_be_due(&self, uid: &str, key: &str, at: Moment) -> bool {
        let (id, now) = (routes::notice_id(uid, key), self.now());
        let inner = self.lock();
        if !inner.is_ready() {
            return PendingEvents::is_sent_later(at, now);
        }
        inner.lines.values().any(|line| line.ledger.may_be_due(&id, at))
    }

    /// Whether an earlier process queued a notice of an event and did not deliver it.
    #[must_use]
    pub fn is_open(&self, uid: &str, key: &str) -> bool {
        let id = routes::notice_id(uid, key);
        self.lock().lines.values().any(|line| line.ledger.is_open(&id))
    }

    /// Ends the recovery, after every stored object was reconciled once. Undelivered notices of objects that no longer
    /// exist are counted as lost. From now on the stored watermarks advance.
    pub fn end_recovery(&self) {
        let now = self.now();
        let mut inner = self.lock();
        inner.has_recovered = true;
        inner.catch_up(now, &*self.parts.count);
        drop(inner);
        self.changed.notify_one();
    }

    /// Whether a notice of a run waits to be delivered. If so, remembers the run: [`Self::take_changed`] returns the
    /// run after its last notice is delivered or given up.
    #[must_use]
    pub fn are_waiting(&self, namespace: &str, run: &str) -> bool {
        let now = self.now();
        let mut inner = self.lock();
        let are_queued = inner.lines.values().any(|line| line.queue.has_run(namespace, run));
        let are_waiting = are_queued || inner.pending.has_run(namespace, run);
        if are_waiting {
            inner.awaited.entry((namespace.to_owned(), run.to_owned())).or_insert(now);
        }
        are_waiting
    }

    /// Returns the channels whose last attempt failed, with the time of the first failure in a row.
    #[must_use]
    pub fn failing(&self) -> BTreeMap<String, Moment> {
        let inner = self.lock();
        inner.lines.iter().filter_map(|(name, line)| Some((name.clone(), line.failing_since?))).collect()
    }

    /// Returns the number of deliveries that wait, by channel.
    #[must_use]
    pub fn waiting(&self) -> BTreeMap<String, usize> {
        self.lock().lines.iter().map(|(name, line)| (name.clone(), line.ledger.waiting())).collect()
    }

    /// Returns the state of the configuration, for probes.
    #[must_use]
    pub fn file_state(&self) -> FileState {
        self.lock_file().state(self.now())
    }

    /// Sends notices until the future is dropped, which aborts all attempts.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(self.deliver(), self.keep_state());
    }

    /// Attempts deliveries and applies their results. Reads the files every [`BETWEEN_READS`]. Never returns.
    async fn deliver(&self) {
        let mut sending: JoinSet<SendResult> = JoinSet::new();
        let mut in_flight: HashMap<Id, (String, LaneId, Arc<Notice>)> = HashMap::new();
        let mut next_read = Instant::now() + BETWEEN_READS;
        loop {
            if Instant::now() >= next_read {
                self.refresh();
                self.give_up();
                next_read = Instant::now() + BETWEEN_READS;
            }
            let (attempts, next_attempt) = self.begin_attempts();
            for Attempt { name, channel, start, earlier } in attempts {
                let Start { lane, addressed } = start;
                let notice = Arc::clone(&addressed.notice);
                let task = sending.spawn(async move {
                    let sent = channel.send(&addressed.notice, &addressed.to, earlier.as_ref());
                    let timed_out =
                        |_| SendError::Later { why: format!("no answer within {ATTEMPT_TIMEOUT:?}"), after: None };
                    timeout(ATTEMPT_TIMEOUT, sent).await.map_err(timed_out)?
                });
                in_flight.insert(task.id(), (name, lane, notice));
            }
            let wake = next_attempt.map_or(next_read, |moment| wake_up(moment, self.now()).min(next_read));
            tokio::select! {
                Some(done) = sending.join_next_with_id() => {
                    let (id, result) = id_and_result(done);
                    if let Some((name, lane, notice)) = in_flight.remove(&id) {
                        self.finish(&name, &lane, &notice, result);
                    }
                }
                () = self.news.notified() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Begins the attempts that can begin now, and returns them with the time at which a further attempt can begin
    /// without a new event. Begins none while sending is stopped because of an invalid file.
    fn begin_attempts(&self) -> (Vec<Attempt>, Option<Moment>) {
        let now = self.now();
        let (mut attempts, mut next_attempt) = (Vec::new(), None);
        if matches!(self.file_state(), FileState::Stopped { .. }) {
            return (attempts, next_attempt);
        }
        let mut inner = self.lock();
        let Inner { lines, handles, .. } = &mut *inner;
        for (name, line) in lines {
            while let Some(start) = line.queue.begin_next(now) {
                let earlier = handles.get(name, &start.lane.handle_key());
                attempts.push(Attempt { name: name.clone(), channel: Arc::clone(&line.channel), start, earlier });
            }
            next_attempt = [next_attempt, line.queue.wake_at(now)].into_iter().flatten().min();
        }
        (attempts, next_attempt)
    }

    /// Gives up the deliveries that the channels have not attempted for a day, and stops the waits for the notices of
    /// runs after [`DELETION_WAITS`].
    fn give_up(&self) {
        let now = self.now();
        let (mut given_up, mut is_news) = (0, false);
        let mut inner = self.lock();
        let Inner { lines, changed, awaited, .. } = &mut *inner;
        awaited.retain(|_, since| now.since(*since) < DELETION_WAITS);
        for (name, line) in lines {
            for Expired { lane, notice, keys } in line.queue.expire(now) {
                keys.iter().for_each(|_| (self.parts.count)(name, NoticeResult::Dead));
                given_up += keys.len();
                if line.settle(&lane, &notice, &keys, Some(NOT_ATTEMPTED), now) {
                    changed.add(&notice);
                    is_news = true;
                }
            }
        }
        drop(inner);
        if given_up > 0 {
            tracing::error!(given_up, "notices are given up: {NOT_ATTEMPTED}");
            self.changed.notify_one();
        }
        if is_news {
            self.standings.notify_one();
        }
    }

    /// Applies the result of an attempt of the channel `name`: to its queue, to the state, to the metrics, and to the
    /// Approvals and runs that wait for the notice.
    fn finish(&self, name: &str, lane: &LaneId, notice: &Notice, result: SendResult) {
        let now = self.now();
        let mut inner = self.lock();
        let Inner { lines, handles, changed, awaited, .. } = &mut *inner;
        let Some(line) = lines.get_mut(name) else { return };
        let (handle, result) = match result {
            Ok(handle) => (handle, Ok(())),
            Err(error) => (None, Err(error)),
        };
        if let Some(handle) = handle {
            handles.put(name, &lane.handle_key(), handle);
        }
        let is_news = match line.queue.finish(lane, result, now) {
            Finished::Settled { keys, dead } => {
                let result = if dead.is_some() { NoticeResult::Dead } else { NoticeResult::Delivered };
                keys.iter().for_each(|_| (self.parts.count)(name, result));
                match &dead {
                    Some(why) => tracing::error!(channel = name, "a notice is given up: {why}"),
                    None => line.failing_since = None,
                }
                line.settle(lane, notice, &keys, dead.as_deref(), now)
            }
            Finished::Later { at, why } => {
                if line.failing_since.is_none() {
                    tracing::warn!(channel = name, until = %at, "a notice is not delivered, and is tried again: {why}");
                }
                line.failing_since.get_or_insert(now);
                (self.parts.count)(name, NoticeResult::Later);
                line.failures.note_retry(lane, notice, &why, now)
            }
        };
        if is_news {
            changed.add(notice);
        }
        let run = (notice.namespace.clone(), notice.run.clone());
        let is_released = awaited.contains_key(&run) && !lines.values().any(|line| line.queue.has_run(&run.0, &run.1));
        if is_released {
            awaited.remove(&run);
            changed.runs.insert(run);
        }
        drop(inner);
        self.changed.notify_one();
        if is_news || is_released {
            self.standings.notify_one();
        }
    }
}

impl Inner {
    /// Whether the state and the configuration are loaded. Until then it is unclear which derived events were already
    /// sent.
    fn is_ready(&self) -> bool {
        self.is_loaded && self.is_configured
    }

    /// Queues the notices of an event, or keeps the event until the state and the configuration are loaded. Returns
    /// whether a delivery was queued.
    fn tell(
        &mut self,
        occasion: &Occasion,
        labels: &NamespaceLabels,
        origin: Origin,
        now: Moment,
        count: &CountResult,
    ) -> bool {
        let can_be_sent = match origin {
            Origin::Live => self.is_configured,
            Origin::Derived => self.is_ready(),
        };
        if !can_be_sent {
            self.pending.add(occasion, labels);
            return false;
        }
        let mut is_news = false;
        for addressed in routes::route(&self.loaded.config, &self.loaded.people, labels, occasion) {
            let Some(line) = self.lines.get_mut(&addressed.channel) else { continue };
            let key = addressed.key();
            let (is_due, since) = match origin {
                Origin::Live => (!line.ledger.is_known(&key), now),
                Origin::Derived => {
                    // After a change of the routes a channel would get outcomes of long ago. Outcomes older than a day
                    // are not sent.
                    let is_news = occasion.event.is_open() || PendingEvents::is_sent_later(occasion.at, now);
                    let is_due = line.ledger.is_due(&key, occasion.at) && (is_news || line.ledger.was_open(&key));
                    (is_due, occasion.at.min(now))
                }
            };
            if !is_due {
                continue;
            }
            is_news = true;
            line.ledger.add(key, occasion.at);
            let name = addressed.channel.clone();
            for dropped in line.queue.push(addressed, since, now) {
                line.ledger.settle(&dropped);
                count(&name, NoticeResult::Dropped);
            }
        }
        is_news
    }

    /// Adds the state that an earlier process stored to the state of this process.
    fn adopt(&mut self, state: StoredState) {
        self.is_loaded = true;
        self.handles.adopt(state.handles);
        for (name, text) in state.marks {
            match serde_json::from_str::<Mark>(&text) {
                Ok(mark) => match self.lines.get_mut(&name) {
                    Some(line) => line.ledger.adopt(mark),
                    None => drop(self.stored.insert(name, mark)),
                },
                Err(error) => {
                    tracing::error!(channel = name, %error, "the state of the channel cannot be read, and begins anew");
                }
            }
        }
        if self.is_configured {
            // A channel that is configured again later starts without a state.
            self.stored.clear();
        }
    }

    /// Queues the notices of the events that waited for the state and the configuration. After the recovery, also
    /// counts the undelivered notices of deleted objects as lost. Does nothing before [`Self::is_ready`].
    fn catch_up(&mut self, now: Moment, count: &CountResult) {
        if !self.is_ready() {
            return;
        }
        for (occasion, labels) in self.pending.take(now) {
            self.tell(&occasion, &labels, Origin::Derived, now, count);
        }
        if !self.has_recovered {
            return;
        }
        for (name, line) in &mut self.lines {
            let lost = line.ledger.forget_unseen();
            if lost > 0 {
                tracing::warn!(channel = name, lost, "notices are lost, because their objects were deleted");
            }
            (0..lost).for_each(|_| count(name, NoticeResult::Lost));
        }
    }
}

impl Line {
    /// Settles the deliveries `keys`, which succeeded or were given up. Returns whether the condition of the Approval
    /// may have to change. `given_up`: the reason for giving up; `None`: the notice was delivered.
    fn settle(
        &mut self,
        lane: &LaneId,
        notice: &Notice,
        keys: &[DeliveryKey],
        given_up: Option<&str>,
        now: Moment,
    ) -> bool {
        keys.iter().for_each(|key| self.ledger.settle(key));
        self.failures.note_end(lane, notice, given_up, now)
    }
}

/// Returns the id and the result of a finished task. After a panic the attempt is repeated later.
fn id_and_result(done: Result<(Id, SendResult), JoinError>) -> (Id, SendResult) {
    match done {
        Ok(done) => done,
        Err(panicked) => {
            let why = "internal error in the channel; report this as a bug".to_owned();
            (panicked.id(), Err(SendError::Later { why, after: None }))
        }
    }
}
