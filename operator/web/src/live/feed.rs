//! The open Approvals that one token may see, followed while somebody looks.
//!
//! **Invariant:** a feed holds what the API server has sent to its own token, and nothing else. It ends with the session, at
//! sign-out, after ten minutes, and after five minutes without a reader; whoever looks then opens a new one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use kube::Client;
use signoff_api::Approval;
use signoff_cluster::{
    metrics::RequestMetrics,
    watch::{WatchEvent, follow_selected},
};
use signoff_review::seen::still_open;
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use super::row::{Row, Standing, Waiting};
use crate::{
    error::PageError,
    scope::{NAMESPACES, scope},
    session::{Caller, Me, TokenId, now},
};

/// The longest life of a watch: it is not authorised again meanwhile.
pub const LONGEST: Duration = Duration::from_secs(600);
/// The time without a reader after which a feed ends.
const IDLE: Duration = Duration::from_secs(300);
/// The time that a reader waits for the list.
const PATIENCE: Duration = Duration::from_secs(30);
/// Events on their way from a watch.
const QUEUE: usize = 64;

/// One copy of the facts of each version of an object, by uid and version, for all who see it.
type SharedRows = Mutex<HashMap<(String, String), Weak<Row>>>;

/// All feeds.
pub struct Feeds {
    most: usize,
    open: Mutex<HashMap<TokenId, Arc<Feed>>>,
    rows: Arc<SharedRows>,
}

/// The open Approvals that one token may see.
pub struct Feed {
    me: Me,
    rows: Mutex<HashMap<String, Waiting>>,
    /// Counts the changes; `None` before the list is complete; closed when the feed ends.
    version: watch::Sender<Option<u64>>,
    ended: watch::Sender<Option<Ended>>,
    used: Mutex<Instant>,
    /// The namespaces that are followed, or `None` for all.
    pub namespaces: Option<Vec<String>>,
    task: Mutex<Option<AbortHandle>>,
}

/// Why a feed has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its time is over: open a new one.
    Over,
    /// The watch broke.
    Broken(String),
}

impl Feeds {
    /// Returns no feeds. `most`: how many may be open at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, open: Mutex::default(), rows: Arc::default() }
    }

    /// Returns the feed of a caller, complete with its list.
    ///
    /// # Errors
    /// Too many feeds; and as every request.
    pub async fn of(&self, caller: &Caller, namespaces: &[String]) -> Result<Arc<Feed>, PageError> {
        let found = lock(&self.open).get(&caller.token).filter(|feed| feed.serves(namespaces)).cloned();
        let feed = match found {
            Some(feed) => feed,
            None => self.open(caller, namespaces).await?,
        };
        *lock(&feed.used) = Instant::now();
        feed.complete().await?;
        Ok(feed)
    }

    /// Ends the feed of a token.
    pub fn end(&self, token: &TokenId) {
        if let Some(feed) = lock(&self.open).remove(token) {
            feed.end(Ended::Over);
        }
    }

    /// Ends all feeds: the page ends.
    pub fn end_all(&self) {
        for (_, feed) in lock(&self.open).drain() {
            feed.end(Ended::Over);
        }
    }

    /// Returns the number of open feeds.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.open).len()
    }

    async fn open(&self, caller: &Caller, namespaces: &[String]) -> Result<Arc<Feed>, PageError> {
        let scope = scope::<Approval>(&caller.client, namespaces).await?;
        let feed = Arc::new(Feed::new(caller.me.clone(), scope.clone()));
        {
            let mut open = lock(&self.open);
            open.retain(|_, feed| feed.ended.borrow().is_none());
            if open.len() >= self.most && !open.contains_key(&caller.token) {
                return Err(PageError::TooMany(format!(
                    "{} people look at this page, and it follows no more (--max-live): try again in a few minutes, or use kubectl approve list",
                    self.most
                )));
            }
            if let Some(before) = open.insert(caller.token.clone(), Arc::clone(&feed)) {
                before.end(Ended::Over);
            }
        }
        let left = caller.ends.since(now()).min(LONGEST);
        let task = tokio::spawn(follow(caller.client.clone(), scope, Arc::clone(&feed), Arc::clone(&self.rows), left));
        *lock(&feed.task) = Some(task.abort_handle());
        Ok(feed)
    }
}

impl Feed {
    fn new(me: Me, namespaces: Option<Vec<String>>) -> Self {
        Self {
            me,
            rows: Mutex::default(),
            version: watch::Sender::new(None),
            ended: watch::Sender::new(None),
            used: Mutex::new(Instant::now()),
            namespaces,
            task: Mutex::default(),
        }
    }

    /// Returns everything that is open, in no order.
    #[must_use]
    pub fn rows(&self) -> Vec<Waiting> {
        lock(&self.rows).values().cloned().collect()
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
    pub fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// Whether it still runs, and follows what a reader with these namespaces asks for.
    fn serves(&self, namespaces: &[String]) -> bool {
        let follows = |name: &String| self.namespaces.as_ref().is_none_or(|followed| followed.contains(name));
        self.ended.borrow().is_none() && namespaces.iter().take(NAMESPACES).all(follows)
    }

    async fn complete(&self) -> Result<(), PageError> {
        let (mut version, mut ended) = (self.version.subscribe(), self.ended.subscribe());
        let listed = async {
            tokio::select! {
                _ = version.wait_for(Option::is_some) => Ok(()),
                _ = ended.wait_for(Option::is_some) => Err(()),
            }
        };
        let slow =
            || PageError::Away(format!("the API server has not listed the Approvals within {PATIENCE:?}: try again"));
        match tokio::time::timeout(PATIENCE, listed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(())) => Err(match self.ended.borrow().clone() {
                Some(Ended::Broken(why)) => PageError::Away(format!("the Approvals cannot be followed: {why}")),
                _ => slow(),
            }),
            Err(_) => Err(slow()),
        }
    }

    fn end(&self, why: Ended) {
        self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            if is_first {
                *ended = Some(why);
            }
            is_first
        });
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }

    /// Puts a row in, and returns whether a reader sees a difference.
    fn put(&self, shared: &SharedRows, approval: &Approval) -> bool {
        let standing = Standing::of(approval, &self.me);
        let row = interned(shared, Row::of(approval));
        let before = lock(&self.rows).insert(row.uid.clone(), Waiting { row: Arc::clone(&row), standing });
        before.is_none_or(|before| before.standing != standing || *before.row != *row)
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version = Some(version.unwrap_or(0) + 1));
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

/// Follows the open Approvals until the feed's time is over.
async fn follow(client: Client, scope: Option<Vec<String>>, feed: Arc<Feed>, shared: Arc<SharedRows>, left: Duration) {
    let places: Vec<Option<String>> = scope.map_or_else(|| vec![None], |all| all.into_iter().map(Some).collect());
    if places.is_empty() {
        feed.changed();
    }
    let over = Instant::now() + left;
    let lists = places.len();
    let mut done = 0;
    let (sender, mut events) = mpsc::channel(QUEUE);
    // The watches end with this task.
    let mut watches = JoinSet::new();
    for place in places {
        let to = sender.clone();
        watches.spawn(follow_selected::<Approval>(
            client.clone(),
            place,
            Some(still_open()),
            to,
            RequestMetrics::default(),
        ));
    }
    let why = loop {
        let idle = *lock(&feed.used) + IDLE;
        let event = tokio::select! {
            event = events.recv(), if lists > 0 => event,
            () = tokio::time::sleep_until(over.min(idle)) => {
                if Instant::now() >= over {
                    break Ended::Over;
                }
                if feed.version.receiver_count() > 0 {
                    feed.touch();
                } else if *lock(&feed.used) + IDLE <= Instant::now() {
                    break Ended::Over;
                }
                continue;
            }
        };
        match event {
            Some(WatchEvent::Listing | WatchEvent::Unreadable { .. }) => {}
            Some(WatchEvent::Listed(approval)) => {
                feed.put(&shared, &approval);
            }
            Some(WatchEvent::ListDone(_)) => {
                done += 1;
                if done == lists {
                    feed.changed();
                }
                // A second list means that something may have been missed: whoever looks begins anew.
                if done > lists {
                    break Ended::Over;
                }
            }
            Some(WatchEvent::Applied(approval)) => {
                if feed.put(&shared, &approval) {
                    feed.changed();
                }
            }
            Some(WatchEvent::Deleted(meta)) => {
                if lock(&feed.rows).remove(meta.uid.as_deref().unwrap_or_default()).is_some() {
                    feed.changed();
                }
            }
            Some(WatchEvent::Broken { why, .. }) => break Ended::Broken(why),
            None => break Ended::Over,
        }
    };
    feed.end(why);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
