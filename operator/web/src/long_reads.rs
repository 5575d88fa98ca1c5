//! Places for long reads: of decisions, of runs, or of many requests with their runs. The number is bounded for all
//! readers and for each token, so that the tabs of one reader leave places to others.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{error::PageError, session::TokenId};

/// The most long reads at once. One response of the API server can have many megabytes.
const READERS: usize = 8;
/// The most long reads of one token at once.
const MOST_OF_TOKEN: usize = 2;
/// The longest time for which a reader waits for a place.
const PLACE_TIMEOUT: Duration = Duration::from_secs(30);

/// The places of this process.
pub static LONG_READS: LazyLock<LongReads> = LazyLock::new(LongReads::default);

/// The places for long reads. Clones share them.
#[derive(Clone)]
pub struct LongReads {
    all: Arc<Semaphore>,
    /// The places of each token that reads or waits now.
    tokens: Arc<Mutex<HashMap<TokenId, Arc<Semaphore>>>>,
}

/// A place for a long read. Dropping it frees the place.
pub struct LongRead {
    _all: OwnedSemaphorePermit,
    _own: Own,
}

/// A place of one token.
struct Own {
    reads: LongReads,
    token: TokenId,
    /// The permit, or `None` while the reader waits for it.
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for LongReads {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(READERS)), tokens: Arc::default() }
    }
}

impl LongReads {
    /// Waits for a place.
    ///
    /// # Errors
    /// No place became free in time.
    pub async fn wait(&self, token: &TokenId) -> Result<LongRead, PageError> {
        let place = async {
            let (mut own, places) = self.own_places(token);
            own.permit = places.acquire_owned().await.ok();
            let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(LongRead { _all: all, _own: own })
        };
        let found = tokio::time::timeout(PLACE_TIMEOUT, place).await.ok().flatten();
        found.ok_or_else(|| {
            PageError::Away(format!(
                "you, or others, read so many long lists and requests now that yours had no place within {PLACE_TIMEOUT:?}: try again"
            ))
        })
    }

    /// Returns a place if one is free.
    pub fn now(&self, token: &TokenId) -> Option<LongRead> {
        let (mut own, places) = self.own_places(token);
        own.permit = Some(places.try_acquire_owned().ok()?);
        Some(LongRead { _all: Arc::clone(&self.all).try_acquire_owned().ok()?, _own: own })
    }

    fn own_places(&self, token: &TokenId) -> (Own, Arc<Semaphore>) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let places = tokens.entry(token.clone()).or_insert_with(|| Arc::new(Semaphore::new(MOST_OF_TOKEN)));
        (Own { reads: self.clone(), token: token.clone(), permit: None }, Arc::clone(places))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut tokens = self.reads.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        self.permit = None;
        // Permits and waiting readers hold the places too, so only the last of them removes the token.
        if tokens.get(&self.token).is_some_and(|places| Arc::strong_count(places) == 1) {
            tokens.remove(&self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt;
    use secrecy::SecretString;

    use super::*;

    fn token(text: &str) -> TokenId {
        TokenId::of(&SecretString::from(text.to_owned()))
    }

    #[tokio::test]
    async fn one_token_has_two_places_and_the_third_waits_while_others_read() {
        let reads = LongReads::default();
        let (first, _second) = (reads.wait(&token("a")).await.unwrap(), reads.wait(&token("a")).await.unwrap());
        assert!(reads.now(&token("a")).is_none());
        let own = token("a");
        let mut third = Box::pin(reads.wait(&own));
        assert!(third.as_mut().now_or_never().is_none(), "it waits");
        assert!(reads.now(&token("b")).is_some(), "another does not");
        drop(first);
        assert!(third.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_ends_in_time_and_an_idle_token_is_forgotten() {
        let reads = LongReads::default();
        let held: Vec<_> = (0..READERS).map(|at| reads.now(&token(&at.to_string())).unwrap()).collect();
        assert!(reads.now(&token("late")).is_none(), "all are taken");
        let begun = tokio::time::Instant::now();
        assert!(matches!(reads.wait(&token("late")).await, Err(PageError::Away(_))));
        assert_eq!(begun.elapsed(), PLACE_TIMEOUT);
        assert_eq!(reads.tokens.lock().unwrap().len(), READERS, "a reader who gave up is forgotten");
        drop(held);
        assert!(reads.tokens.lock().unwrap().is_empty());
        assert!(reads.now(&token("late")).is_some());
    }
}
