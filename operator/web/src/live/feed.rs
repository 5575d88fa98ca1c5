//! A feed: the open Approvals that the holder of one token may list, followed by watches.
//!
//! **Invariant:** a feed has only objects that the API server sent to its own token. It ends at sign-out, after ten
//! minutes, after five minutes without a reader, and within half a minute after its session. The next request opens a
//! new one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{Approval, Moment};
use signoff_expr::text::display;
use tokio::{sync::watch, task::AbortHandle, time::Instant};

use super::row::{Row, Waiting};
use crate::{error::PageError, session::Me};

/// The longest life of a watch, which the API server does not authorize again.
const LONGEST: Duration = Duration::from_secs(600);
/// The shortest life of a watch. A token in its leeway is still accepted, and a watch that ended at once would be
/// opened in a loop.
const SHORTEST: Duration = Duration::from_secs(30);
/// The longest time for which a reader waits for the list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// The most names of Approvals that cannot be read.
pub const UNREADABLE: usize = 100;

/// The rows that all feeds share, one for each version of an object, by uid and version.
pub(super) type SharedRows = Mutex<HashMap<(String, String), Weak<Row>>>;

/// The open Approvals that the holder of one token may list.
pub struct Feed {
    pub(super) me: Me,
    held: Mutex<Held>,
    /// The number of changes, or `None` before the list is complete.
    version: watch::Sender<Option<u64>>,
    ended: watch::Sender<Option<Ended>>,
    opened: Instant,
    used: Mutex<Instant>,
    /// The namespaces that the reader asked for, with those that the reader may not list.
    asked: Vec<String>,
    /// The namespaces that are followed, or `None` for all.
    pub namespaces: Option<Vec<String>>,
    task: Mutex<Option<AbortHandle>>,
}

/// The objects that the API server has sent, by uid.
#[derive(Default)]
struct Held {
    rows: HashMap<String, Waiting>,
    unreadable: BTreeMap<String, Unreadable>,
}

/// An Approval that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreadable {
    /// The namespace of the Approval, as text for a page.
    pub namespace: String,
    /// The name of the Approval, as text for a page.
    pub name: String,
}

/// The reason why a feed has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The time of the feed has passed. The next request opens a new feed.
    Over,
    /// The watch broke.
    Broken(String),
}

/// Returns the life of a watch for a session that ends at `ends`.
#[must_use]
pub fn life(ends: Moment, at: Moment) -> Duration {
    ends.since(at).clamp(SHORTEST, LONGEST)
}

impl Feed {
    pub(super) fn new(me: Me, asked: Vec<String>, namespaces: Option<Vec<String>>) -> Self {
        let at = Instant::now();
        Self {
            me,
            held: Mutex::default(),
            version: watch::Sender::new(None),
            ended: watch::Sender::new(None),
            opened: at,
            used: Mutex::new(at),
            asked,
            namespaces,
            task: Mutex::default(),
        }
    }

    /// Returns the open Approvals, in no order.
    #[must_use]
    pub fn rows(&self) -> Vec<Waiting> {
        lock(&self.held).rows.values().cloned().collect()
    }

    /// Returns the Approvals that this version cannot read, sorted by name, at most [`UNREADABLE`].
    #[must_use]
    pub fn unreadable(&self) -> Vec<Unreadable> {
        let mut all: Vec<_> = lock(&self.held).unreadable.values().cloned().collect();
        all.sort();
        all
    }

    /// Returns a receiver of the number of changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Option<u64>> {
        self.version.subscribe()
    }

    /// Returns a receiver of the reason why the feed has ended.
    #[must_use]
    pub fn ending(&self) -> watch::Receiver<Option<Ended>> {
        self.ended.subscribe()
    }

    /// Notes that a reader uses the feed now.
    pub(super) fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    pub(super) fn used(&self) -> Instant {
        *lock(&self.used)
    }

    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    pub(super) fn has_reader(&self) -> bool {
        self.version.receiver_count() > 0
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Whether the feed still runs, and follows the namespaces that a reader asks for.
    pub(super) fn serves(&self, asked: &[String]) -> bool {
        !self.has_ended() && (self.namespaces.is_none() || self.asked == asked)
    }

    /// Whether the list is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.version.borrow().is_some()
    }

    /// Waits until the list is complete. Returns `false` if the feed ended before; then the caller opens a new feed.
    ///
    /// # Errors
    /// The watch broke, or the list is not complete in time.
    pub(super) async fn wait_until_complete(&self) -> Result<bool, PageError> {
        let (mut version, mut ended) = (self.version.subscribe(), self.ended.subscribe());
        let first_event = async {
            // A complete list can be shown even if the feed has ended since.
            tokio::select! {
                biased;
                _ = version.wait_for(Option::is_some) => None,
                why = ended.wait_for(Option::is_some) => Some(why.map(|why| why.clone())),
            }
        };
        match tokio::time::timeout(LIST_TIMEOUT, first_event).await {
            Ok(None) => Ok(true),
            Ok(Some(Ok(Some(Ended::Broken(why))))) => {
                Err(PageError::Away(format!("the Approvals cannot be followed: {why}")))
            }
            Ok(Some(_)) => Ok(false),
            Err(_) => Err(PageError::Away(format!(
                "the API server has not listed the Approvals within {LIST_TIMEOUT:?}: try again"
            ))),
        }
    }

    /// Keeps the task that fills the feed. The task ends with the feed, and at once if the feed has ended already.
    pub(super) fn set_task(&self, task: AbortHandle) {
        *lock(&self.task) = Some(task);
        if self.has_ended() {
            self.stop();
        }
    }

    /// Ends the feed, and stops its task. The reason of the first call stays.
    pub(super) fn end(&self, why: Ended) {
        self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            if is_first {
                *ended = Some(why);
            }
            is_first
        });
        self.stop();
    }

    fn stop(&self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }

    /// Adds or replaces a row, and returns whether a reader sees a difference.
    pub(super) fn put(&self, shared: &SharedRows, approval: &Approval) -> bool {
        let waiting = Waiting::of(approval, intern(shared, Row::of(approval)), &self.me);
        let mut held = lock(&self.held);
        let was_unreadable = held.unreadable.remove(&waiting.row.uid).is_some();
        let before = held.rows.insert(waiting.row.uid.clone(), waiting.clone());
        was_unreadable || before.is_none_or(|before| before.standing != waiting.standing || *before.row != *waiting.row)
    }

    /// Removes the row of an object that cannot be read, and keeps its name, up to [`UNREADABLE`] names. Returns
    /// whether a reader sees a difference.
    pub(crate) fn put_unreadable(&self, meta: &ObjectMeta) -> bool {
        let shown = |text: Option<&String>| display(text.map_or("", String::as_str), 253);
        let unreadable = Unreadable { namespace: shown(meta.namespace.as_ref()), name: shown(meta.name.as_ref()) };
        let uid = meta.uid.clone().unwrap_or_else(|| format!("{}/{}", unreadable.namespace, unreadable.name));
        let mut held = lock(&self.held);
        let was_readable = held.rows.remove(&uid).is_some();
        let is_kept = held.unreadable.len() < UNREADABLE || held.unreadable.contains_key(&uid);
        let is_new =
            is_kept && held.unreadable.insert(uid, unreadable.clone()).is_none_or(|before| before != unreadable);
        was_readable || is_new
    }

    /// Removes an object, and returns whether a reader sees a difference.
    pub(super) fn remove(&self, meta: &ObjectMeta) -> bool {
        let uid = meta.uid.as_deref().unwrap_or_default();
        let mut held = lock(&self.held);
        let was_unreadable = held.unreadable.remove(uid).is_some();
        held.rows.remove(uid).is_some() || was_unreadable
    }

    /// Counts a change, which wakes the streams of the readers. The first change says that the list is complete.
    pub(crate) fn notify_readers(&self) {
        self.version.send_modify(|version| *version = Some(version.unwrap_or(0) + 1));
    }
}

#[cfg(test)]
impl Feed {
    /// Returns a complete feed of all namespaces with the given objects, and without watches.
    pub(crate) fn sample(me: Me, readable: &[Approval], unreadable: &[ObjectMeta]) -> Self {
        let feed = Self::new(me, Vec::new(), None);
        for approval in readable {
            feed.put(&SharedRows::default(), approval);
        }
        for meta in unreadable {
            feed.put_unreadable(meta);
        }
        feed.notify_readers();
        feed
    }
}

/// Returns the shared row of a version of an object, and shares the row if it is new. Rows that no feed has are dropped
/// from time to time.
fn intern(shared: &SharedRows, row: Row) -> Arc<Row> {
    let key = (row.uid.clone(), row.version.clone());
    let mut rows = lock(shared);
    if let Some(known) = rows.get(&key).and_then(Weak::upgrade).filter(|known| **known == row) {
        return known;
    }
    let row = Arc::new(row);
    rows.insert(key, Arc::downgrade(&row));
    if rows.len().is_power_of_two() {
        rows.retain(|_, known| known.strong_count() > 0);
    }
    row
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds a lock, so no lock is poisoned.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
