//! All feeds: at most one for each token. They are opened, shared, bounded and ended here.
//!
//! **Invariant:** a feed belongs to one token and ends at its sign-out. The number of feeds is bounded in total and for
//! each person.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use lru::LruCache;
use signoff_api::Approval;
use tokio::{task::AbortHandle, time::Instant};

use super::{
    feed::{Ended, Feed, SharedRows, life, lock},
    follow::follow,
    streams::{Place, Streams},
};
use crate::{
    error::PageError,
    scope::{NAMESPACES, scope},
    session::{Caller, TokenId, now},
};

/// The most feeds of one person, each with another token.
const MOST_OF_PERSON: usize = 8;
/// The most feeds that one request opens, if they end before their lists are complete.
const TRIES: usize = 3;
/// The most sign-outs that are remembered, because requests from before a sign-out may still be in flight.
const SIGN_OUTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_023);

/// All feeds.
pub struct Feeds {
    most: usize,
    open: Mutex<Open>,
    rows: Arc<SharedRows>,
    /// The streams of events about the feeds.
    streams: Streams,
}

struct Open {
    feeds: HashMap<TokenId, Arc<Feed>>,
    /// The time at which each token was signed out.
    signed_out: LruCache<TokenId, Instant>,
    /// Whether the page is shutting down.
    is_closed: bool,
}

impl Feeds {
    /// Returns an empty set of feeds. `most`: the most feeds at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let open = Open { feeds: HashMap::new(), signed_out: LruCache::new(SIGN_OUTS), is_closed: false };
        Self {
            most,
            open: Mutex::new(open),
            rows: Arc::default(),
            streams: Streams::new(most.saturating_mul(MOST_OF_PERSON)),
        }
    }

    /// Returns the feed of a caller with a complete list. Opens a feed if the caller has none for the namespaces.
    ///
    /// # Errors
    /// Too many feeds; and as every request.
    pub async fn complete_feed(&self, caller: &Caller, namespaces: &[String]) -> Result<Arc<Feed>, PageError> {
        let asked = distinct_namespaces(namespaces);
        for _ in 0..TRIES {
            let known = lock(&self.open).feeds.get(&caller.token).filter(|feed| feed.serves(&asked)).cloned();
            let feed = match known {
                Some(feed) => feed,
                None => self.open(caller, &asked).await?,
            };
            feed.touch();
            if feed.wait_until_complete().await? {
                return Ok(feed);
            }
        }
        Err(PageError::Away(format!(
            "the list of the Approvals had to begin anew {TRIES} times before it was complete: try again"
        )))
    }

    /// Returns the complete feed of a caller, if one is open. Sends no request.
    #[must_use]
    pub fn find_complete(&self, caller: &Caller) -> Option<Arc<Feed>> {
        let feed = lock(&self.open).feeds.get(&caller.token).cloned()?;
        (feed.is_complete() && !feed.has_ended()).then_some(feed)
    }

    /// Returns a place for a stream of events about a feed.
    ///
    /// # Errors
    /// There are too many streams.
    pub fn acquire_place(&self, caller: &Caller) -> Result<Place, PageError> {
        self.streams.acquire_place(caller)
    }

    /// Ends the feed of a token at sign-out. Requests that arrived before the sign-out open no new feed.
    pub fn end(&self, token: &TokenId) {
        let mut open = lock(&self.open);
        open.signed_out.put(token.clone(), Instant::now());
        open.end(token);
        self.streams.end(token);
    }

    /// Ends all feeds, because the page is shutting down.
    pub fn end_all(&self) {
        let mut open = lock(&self.open);
        open.is_closed = true;
        for (_, feed) in open.feeds.drain() {
            feed.end(Ended::Over);
        }
        self.streams.end_all();
    }

    /// Returns the number of open feeds.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.open).feeds.len()
    }

    /// Opens a feed of the namespaces that the caller may list, and starts to follow them.
    async fn open(&self, caller: &Caller, asked: &[String]) -> Result<Arc<Feed>, PageError> {
        let scope = scope::<Approval>(&caller.client, asked).await?;
        self.admit(caller, asked, scope, |feed| {
            let left = life(caller.ends, now());
            tokio::spawn(follow(caller.client.clone(), feed, Arc::clone(&self.rows), left)).abort_handle()
        })
    }

    /// Adds a new feed and starts it, or returns the feed that another request has added in the meantime. Fails after a
    /// sign-out, during the shutdown, and if there are too many feeds.
    fn admit(
        &self,
        caller: &Caller,
        asked: &[String],
        scope: Option<Vec<String>>,
        start: impl FnOnce(Arc<Feed>) -> AbortHandle,
    ) -> Result<Arc<Feed>, PageError> {
        let mut open = lock(&self.open);
        if open.is_closed {
            return Err(PageError::Away("this page is being restarted: try again in a moment".to_owned()));
        }
        if open.signed_out.peek(&caller.token).is_some_and(|at| *at >= caller.arrived) {
            return Err(PageError::SignIn);
        }
        open.feeds.retain(|_, feed| !feed.has_ended());
        if let Some(other) = open.feeds.get(&caller.token).filter(|feed| feed.serves(asked)) {
            return Ok(Arc::clone(other));
        }
        open.end(&caller.token);
        open.end_surplus(&caller.me.user, self.most)?;
        let feed = Arc::new(Feed::new(caller.me.clone(), asked.to_vec(), scope));
        feed.set_task(start(Arc::clone(&feed)));
        open.feeds.insert(caller.token.clone(), Arc::clone(&feed));
        Ok(feed)
    }
}

impl Open {
    fn end(&mut self, token: &TokenId) {
        if let Some(feed) = self.feeds.remove(token) {
            feed.end(Ended::Over);
        }
    }

    /// Ends the oldest feed of a person who has too many. If there are too many feeds in total, ends the least recently
    /// used one without a reader, or fails if each has a reader.
    fn end_surplus(&mut self, user: &str, most: usize) -> Result<(), PageError> {
        let of_person = || self.feeds.iter().filter(|(_, feed)| feed.me.user == user);
        if of_person().count() >= MOST_OF_PERSON
            && let Some(oldest) = of_person().min_by_key(|(_, feed)| feed.opened()).map(|(token, _)| token.clone())
        {
            self.end(&oldest);
        }
        if self.feeds.len() < most {
            return Ok(());
        }
        let silent = self.feeds.iter().filter(|(_, feed)| !feed.has_reader()).min_by_key(|(_, feed)| feed.used());
        let Some(silent) = silent.map(|(token, _)| token.clone()) else {
            return Err(PageError::TooMany(format!(
                "{most} people look at this page, and it follows no more (--max-live): try again in a few minutes, or use kubectl approve list"
            )));
        };
        self.end(&silent);
        Ok(())
    }
}

/// Returns the named namespaces, each once, at most [`NAMESPACES`].
fn distinct_namespaces(namespaces: &[String]) -> Vec<String> {
    let mut asked: Vec<String> = Vec::new();
    for name in namespaces {
        if asked.len() < NAMESPACES && !asked.contains(name) {
            asked.push(name.clone());
        }
    }
    asked
}

#[cfg(test)]
#[path = "feeds_tests.rs"]
mod tests;
