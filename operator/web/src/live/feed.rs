//! The open Approvals that one token may see, followed while somebody looks.
//!
//! **Invariant:** a feed holds what the API server has sent to its own token, and nothing else. It ends at sign-out,
//! after ten minutes, after five minutes without a reader, and within half a minute of its session; whoever looks then
//! opens a new one.

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

/// The longest life of a watch: it is not authorised again meanwhile.
const LONGEST: Duration = Duration::from_secs(600);
/// The shortest life of a watch: a token in its leeway is still accepted, and what is over at once would be opened in a
/// loop.
const SHORTEST: Duration = Duration::from_secs(30);
/// The time that a reader waits for the list.
const PATIENCE: Duration = Duration::from_secs(30);
/// The names that are kept of Approvals that cannot be read.
pub const UNREADABLE: usize = 100;

/// One copy of the facts of each version of an object, by uid and version, for all who see it.
pub(super) type SharedRows = Mutex<HashMap<(String, String), Weak<Row>>>;

/// The open Approvals that one token may see.
pub struct Feed {
    pub(super) me: Me,
    held: Mutex<Held>,
    /// Counts the changes; `None` before the list is complete.
    version: watch::Sender<Option<u64>>,
    ended: watch::Sender<Option<Ended>>,
    opened: Instant,
    used: Mutex<Instant>,
    /// The namespaces that the reader asked for, whether they may be listed or not.
    asked: Vec<String>,
    /// The namespaces that are followed, or `None` for all.
    pub namespaces: Option<Vec<String>>,
    task: Mutex<Option<AbortHandle>>,
}

/// What the API server has sent, by uid.
#[derive(Default)]
struct Held {
    rows: HashMap<String, Waiting>,
    unreadable: BTreeMap<String, Unreadable>,
}

/// An Approval that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreadable {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Why a feed has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its time is over: open a new one.
    Over,
    /// The watch broke.
    Broken(String),
}

/// Returns how long a watch may last for a session that ends then.
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

    /// Returns everything that is open, in no order.
    #[must_use]
    pub fn rows(&self) -> Vec<Waiting> {
        lock(&self.held).rows.values().cloned().collect()
    }

    /// Returns what this version cannot read, by name; not more than [`UNREADABLE`].
    #[must_use]
    pub fn unreadable(&self) -> Vec<Unreadable> {
        let mut all: Vec<_> = lock(&self.held).unreadable.values().cloned().collect();
        all.sort();
        all
    }

    /// Returns the number of changes so far, and those to come.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Option<u64>> {
        self.version.subscribe()
    }

    /// Returns why it has ended, as soon as it has.
    #[must_use]
    pub fn ending(&self) -> watch::Receiver<Option<Ended>> {
        self.ended.subscribe()
    }

    /// Marks it as looked at.
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

    /// Whether it still runs, and follows what a reader who asks for these namespaces may see.
    pub(super) fn serves(&self, asked: &[String]) -> bool {
        !self.has_ended() && (self.namespaces.is_none() || self.asked == asked)
    }

    /// Whether the list is there.
    pub(super) fn is_complete(&self) -> bool {
        self.version.borrow().is_some()
    }

    /// Waits for the list. Returns whether it is complete: if not, the feed was over before, and another is to be
    /// opened.
    pub(super) async fn complete(&self) -> Result<bool, PageError> {
        let (mut version, mut ended) = (self.version.subscribe(), self.ended.subscribe());
        let listed = async {
            // A list that is complete can be shown, even if the feed has ended since.
            tokio::select! {
                biased;
                _ = version.wait_for(Option::is_some) => None,
                why = ended.wait_for(Option::is_some) => Some(why.map(|why| why.clone())),
            }
        };
        match tokio::time::timeout(PATIENCE, listed).await {
            Ok(None) => Ok(true),
            Ok(Some(Ok(Some(Ended::Broken(why))))) => {
                Err(PageError::Away(format!("the Approvals cannot be followed: {why}")))
            }
            Ok(Some(_)) => Ok(false),
            Err(_) => Err(PageError::Away(format!(
                "the API server has not listed the Approvals within {PATIENCE:?}: try again"
            ))),
        }
    }

    /// Keeps the task that follows: it ends with the feed, also if that has ended meanwhile.
    pub(super) fn runs(&self, task: AbortHandle) {
        *lock(&self.task) = Some(task);
        if self.has_ended() {
            self.stop();
        }
    }

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

    /// Puts a row in, and returns whether a reader sees a difference.
    pub(super) fn put(&self, shared: &SharedRows, approval: &Approval) -> bool {
        let one = Waiting::of(approval, interned(shared, Row::of(approval)), &self.me);
        let mut held = lock(&self.held);
        let was_unreadable = held.unreadable.remove(&one.row.uid).is_some();
        let before = held.rows.insert(one.row.uid.clone(), one.clone());
        was_unreadable || before.is_none_or(|before| before.standing != one.standing || *before.row != *one.row)
    }

    /// Keeps the name of what cannot be read, and not what it was before; returns whether a reader sees a difference.
    pub(crate) fn put_unreadable(&self, meta: &ObjectMeta) -> bool {
        let shown = |text: Option<&String>| display(text.map_or("", String::as_str), 253);
        let one = Unreadable { namespace: shown(meta.namespace.as_ref()), name: shown(meta.name.as_ref()) };
        let uid = meta.uid.clone().unwrap_or_else(|| format!("{}/{}", one.namespace, one.name));
        let mut held = lock(&self.held);
        let was_readable = held.rows.remove(&uid).is_some();
        let is_kept = held.unreadable.len() < UNREADABLE || held.unreadable.contains_key(&uid);
        let is_new = is_kept && held.unreadable.insert(uid, one.clone()).is_none_or(|before| before != one);
        was_readable || is_new
    }

    /// Takes an object out, and returns whether a reader sees a difference.
    pub(super) fn remove(&self, meta: &ObjectMeta) -> bool {
        let uid = meta.uid.as_deref().unwrap_or_default();
        let mut held = lock(&self.held);
        let was_unreadable = held.unreadable.remove(uid).is_some();
        held.rows.remove(uid).is_some() || was_unreadable
    }

    pub(crate) fn changed(&self) {
        self.version.send_modify(|version| *version = Some(version.unwrap_or(0) + 1));
    }
}

#[cfg(test)]
impl Feed {
    /// A feed of all namespaces that is complete with these, and ends with nothing.
    pub(crate) fn sample(me: Me, readable: &[Approval], unreadable: &[ObjectMeta]) -> Self {
        let feed = Self::new(me, Vec::new(), None);
        for approval in readable {
            feed.put(&SharedRows::default(), approval);
        }
        for meta in unreadable {
            feed.put_unreadable(meta);
        }
        feed.changed();
        feed
    }
}

/// One copy of the facts for all who see the same version of the same object.
fn interned(shared: &SharedRows, row: Row) -> Arc<Row> {
    let key = (row.uid.clone(), row.version.clone());
    let mut all = lock(shared);
    if let Some(known) = all.get(&key).and_then(Weak::upgrade).filter(|known| **known == row) {
        return known;
    }
    let row = Arc::new(row);
    all.insert(key, Arc::downgrade(&row));
    if all.len().is_power_of_two() {
        all.retain(|_, known| known.strong_count() > 0);
    }
    row
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
