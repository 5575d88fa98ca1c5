//! Loading and storing the state of notices *(I/O)*.
//!
//! **Invariant:** no state is stored before the state of the earlier process is loaded. No stored watermark advances
//! before every stored object was reconciled once.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use signoff_api::Moment;
use tokio::time::{sleep, timeout};

use super::{ATTEMPT_TIMEOUT, ChangedApprovals, Line, Notices};

/// The shortest time between two writes of the state.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// The time between a failed write of the state and the next attempt.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// The longest time of the first attempt to load the state. The start of the operator waits for this attempt.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time between two attempts to load the state.
const BETWEEN_LOADS: Duration = Duration::from_secs(30);
/// The longest time of the last write before the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The stored state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// The state of each channel, as JSON.
    pub marks: BTreeMap<String, String>,
    /// The ids of sent messages, by the number of the object that stores them.
    pub handles: BTreeMap<usize, BTreeMap<String, String>>,
}

/// A store of the state.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Loads the whole state. Without a stored state the result is empty.
    async fn load(&self) -> Result<StoredState, String>;
    /// Stores the state of all channels.
    async fn store_marks(&self, marks: &BTreeMap<String, String>) -> Result<(), String>;
    /// Stores one object with ids of messages.
    async fn store_handles(&self, number: usize, handles: &BTreeMap<String, String>) -> Result<(), String>;
}

/// The writes that began and did not succeed, because they failed or were cancelled.
#[derive(Debug, Default)]
pub(super) struct UnfinishedWrites {
    marks: bool,
    /// The number of the object with ids of messages whose write is unfinished.
    handles: Option<usize>,
}

impl Notices {
    /// Loads the state and reads the files. If the state cannot be loaded, the operator starts anyway: [`Self::run`]
    /// tries again, and derived events wait until then.
    pub async fn load(&self) {
        self.load_state(LOAD_TIMEOUT).await;
        self.refresh();
        // At the start every Approval is reconciled anyway.
        self.lock().changed = ChangedApprovals::default();
        // Stores the mark of a new channel before any event. Without a stored mark, a crash would lose the first events
        // of the channel.
        self.store_within(LOAD_TIMEOUT).await;
    }

    /// Loads the state once, within `time_limit`, and adds it to the state of this process. A failure is logged when
    /// its reason has changed.
    async fn load_state(&self, time_limit: Duration) {
        let loaded = timeout(time_limit, self.parts.store.load()).await;
        let loaded = loaded.unwrap_or_else(|_| Err(format!("no answer within {time_limit:?}")));
        let mut inner = self.lock();
        match loaded {
            Ok(state) => {
                inner.adopt(state);
                inner.catch_up(self.now(), &*self.parts.count);
                drop(inner);
                self.news.notify_one();
                self.changed.notify_one();
            }
            Err(why) => {
                if inner.load_problem.as_ref() != Some(&why) {
                    tracing::error!(
                        "the state of notices cannot be loaded, and is asked for again; what an earlier process did not \
                         deliver waits for it, and no state is stored: {why}"
                    );
                }
                inner.load_problem = Some(why);
            }
        }
    }

    /// Loads the state if the load at the start failed. Then stores the state after each change, at most once a second.
    /// Never returns.
    pub(super) async fn keep_state(&self) {
        let mut pause = BETWEEN_WRITES;
        while !self.is_loaded() {
            sleep(pause).await;
            pause = (pause * 2).min(BETWEEN_LOADS);
            self.load_state(ATTEMPT_TIMEOUT).await;
        }
        // `load` may just have stored the state.
        sleep(BETWEEN_WRITES).await;
        loop {
            self.changed.notified().await;
            match self.store().await {
                Ok(has_more) => {
                    if has_more {
                        self.changed.notify_one();
                    }
                    sleep(BETWEEN_WRITES).await;
                }
                Err(why) => {
                    tracing::warn!("the state of notices is not stored, and is written again: {why}");
                    sleep(AFTER_FAILURE).await;
                    self.changed.notify_one();
                }
            }
        }
    }

    fn is_loaded(&self) -> bool {
        self.lock().is_loaded
    }

    /// Stores the state a last time before the process ends, within five seconds. All watermarks advance, so that the
    /// next process sends no old events if its configuration has other routes.
    pub async fn flush(&self) {
        self.lock().lines.values_mut().for_each(|line| line.ledger.mark_changed());
        self.store_within(FLUSH_TIMEOUT).await;
    }

    /// Stores all changes of the state within `time_limit`. A failure is logged.
    async fn store_within(&self, time_limit: Duration) {
        let stored = timeout(time_limit, async {
            while self.store().await? {}
            Ok::<(), String>(())
        });
        let stored = stored.await.unwrap_or_else(|_| Err(format!("no answer within {time_limit:?}")));
        if let Err(why) = stored {
            tracing::warn!("the state of notices is not stored, so that a crash may repeat or lose some: {why}");
        }
    }

    /// Stores all marks if one has changed, and one changed object of message ids. Returns whether a further object may
    /// have changed. Stores nothing before the state and the configuration are loaded.
    async fn store(&self) -> Result<bool, String> {
        // The lock allows one write at a time, so that an older state never replaces a newer one.
        let mut unfinished = self.unfinished.lock().await;
        let (marks, messages) = {
            let now = self.now();
            let mut inner = self.lock();
            if !inner.is_ready() {
                return Ok(false);
            }
            if let Some(number) = unfinished.handles {
                inner.handles.mark_changed(number);
            }
            // Before the end of the recovery, any stored object may have an event to send.
            let held_by_recovery = (!inner.has_recovered).then(|| Moment::from(jiff::Timestamp::UNIX_EPOCH));
            let held = held_by_recovery.or_else(|| inner.held.first_key_value().map(|(since, _)| *since));
            let is_changed = unfinished.marks || inner.lines.values().any(|line| line.ledger.is_changed());
            let marks = is_changed.then(|| {
                let take_json =
                    |line: &mut Line| serde_json::to_string(&line.ledger.take_mark(now, held)).unwrap_or_default();
                inner.lines.iter_mut().map(|(name, line)| (name.clone(), take_json(line))).collect::<BTreeMap<_, _>>()
            });
            (marks, inner.handles.take_changed())
        };
        unfinished.marks = marks.is_some();
        unfinished.handles = messages.as_ref().map(|(number, _)| *number);
        let has_more = messages.is_some();
        let mut result = Ok(has_more);
        if let Some((number, messages)) = messages {
            match self.parts.store.store_handles(number, &messages).await {
                Ok(()) => unfinished.handles = None,
                // Without a stored id a later notice becomes a new message. The marks are stored anyway, because they
                // are more important.
                Err(why) => result = Err(why),
            }
        }
        if let Some(marks) = marks {
            self.parts.store.store_marks(&marks).await?;
            unfinished.marks = false;
        }
        result
    }
}
