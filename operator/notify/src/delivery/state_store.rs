//! The state of notices as it is loaded and stored *(I/O)*.
//!
//! **Invariant:** no state is stored before that of the earlier process is loaded, and no watermark advances before
//! every stored object was seen once.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use signoff_api::Moment;
use tokio::time::{sleep, timeout};

use super::{ChangedApprovals, Line, Notices, PATIENCE};

/// The shortest time between two writes of the state.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// The time after a write that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// The longest time of the first attempt to load the state, for which the operator waits.
const LOAD_PATIENCE: Duration = Duration::from_secs(5);
/// The longest time between two attempts to load the state.
const BETWEEN_LOADS: Duration = Duration::from_secs(30);
/// The longest time of the last write before the process ends.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// The state as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// The state of each channel, as JSON.
    pub marks: BTreeMap<String, String>,
    /// The messages that later notices change, by the number of their object.
    pub handles: BTreeMap<usize, BTreeMap<String, String>>,
}

/// The place of the state.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Loads all of it; empty where there is none.
    async fn load(&self) -> Result<StoredState, String>;
    /// Stores the state of all channels.
    async fn store_marks(&self, marks: &BTreeMap<String, String>) -> Result<(), String>;
    /// Stores one object of messages.
    async fn store_handles(&self, number: usize, handles: &BTreeMap<String, String>) -> Result<(), String>;
}

/// The writes that began and did not succeed: they failed, or were cut off.
#[derive(Debug, Default)]
pub(super) struct UnfinishedWrites {
    marks: bool,
    /// The number of an object of messages.
    handles: Option<usize>,
}

impl Notices {
    /// Loads the state and reads the files. Without an answer the operator goes on: [`Self::run`] asks again, and what
    /// is derived from stored objects waits for it.
    pub async fn load(&self) {
        self.load_state(LOAD_PATIENCE).await;
        self.refresh();
        // Every Approval is reconciled at the start anyway.
        self.lock().changed = ChangedApprovals::default();
        // The mark of a new channel, before there is something to tell that it would not cover.
        self.store_within(LOAD_PATIENCE).await;
    }

    async fn load_state(&self, patience: Duration) {
        let loaded = timeout(patience, self.parts.store.load()).await;
        let loaded = loaded.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
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

    /// Loads the state where that failed at the start. Then writes it whenever it changed, and never twice within a
    /// second.
    pub(super) async fn keep_state(&self) {
        let mut pause = BETWEEN_WRITES;
        while !self.is_loaded() {
            sleep(pause).await;
            pause = (pause * 2).min(BETWEEN_LOADS);
            self.load_state(PATIENCE).await;
        }
        // The state may have been stored a moment ago.
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

    /// Stores the state a last time, before the process ends, within five seconds. All watermarks advance: under
    /// another configuration the next process tells nothing that is long past.
    pub async fn flush(&self) {
        self.lock().lines.values_mut().for_each(|line| line.ledger.mark_changed());
        self.store_within(FLUSH_PATIENCE).await;
    }

    async fn store_within(&self, patience: Duration) {
        let stored = timeout(patience, async {
            while self.store().await? {}
            Ok::<(), String>(())
        });
        let stored = stored.await.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
        if let Err(why) = stored {
            tracing::warn!("the state of notices is not stored, so that a crash may repeat or lose some: {why}");
        }
    }

    /// Stores what changed: all marks, and one object of messages. Returns whether there may be more of these.
    async fn store(&self) -> Result<bool, String> {
        // One at a time, so that an older state never replaces a newer one.
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
            // Of objects that were not seen yet anything may have to be told.
            let unknown = (!inner.has_recovered).then(|| Moment::from(jiff::Timestamp::UNIX_EPOCH));
            let held = unknown.or_else(|| inner.held.first_key_value().map(|(since, _)| *since));
            let is_changed = unfinished.marks || inner.lines.values().any(|line| line.ledger.is_changed());
            let marks = is_changed.then(|| {
                let text =
                    |line: &mut Line| serde_json::to_string(&line.ledger.take_mark(now, held)).unwrap_or_default();
                inner.lines.iter_mut().map(|(name, line)| (name.clone(), text(line))).collect::<BTreeMap<_, _>>()
            });
            (marks, inner.handles.take_changed())
        };
        unfinished.marks = marks.is_some();
        unfinished.handles = messages.as_ref().map(|(number, _)| *number);
        let has_more = messages.is_some();
        let mut stored = Ok(has_more);
        if let Some((number, messages)) = messages {
            match self.parts.store.store_handles(number, &messages).await {
                Ok(()) => unfinished.handles = None,
                // Without them a later notice is a new message. The marks matter more.
                Err(why) => stored = Err(why),
            }
        }
        if let Some(marks) = marks {
            self.parts.store.store_marks(&marks).await?;
            unfinished.marks = false;
        }
        stored
    }
}
