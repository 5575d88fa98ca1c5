//! Places for readers of long lists, of decisions, of runs, or of many requests with their runs: a number for all readers,
//! and a smaller one for each token.
//!
//! It must not let one reader, with whatever number of tabs, keep all others from their histories.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{error::PageError, session::TokenId};

/// The readers at once: one response of the API server can have many megabytes.
const READERS: usize = 8;
/// Those of one token.
const OF_ONE: usize = 2;
/// The time that a reader waits for a turn.
const PATIENCE: Duration = Duration::from_secs(30);

/// The turns of the readers of this page.
pub static TURNS: LazyLock<Turns> = LazyLock::new(Turns::default);

/// The turns. Clones share them.
#[derive(Clone)]
pub struct Turns {
    all: Arc<Semaphore>,
    /// Only of tokens that read or wait now.
    tokens: Arc<Mutex<HashMap<TokenId, Arc<Semaphore>>>>,
}

/// The right to read, until it is dropped.
pub struct Turn {
    _all: OwnedSemaphorePermit,
    _own: Own,
}

/// A place among those of one token.
struct Own {
    turns: Turns,
    token: TokenId,
    /// `None` once it was given back, or while it is waited for.
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(READERS)), tokens: Arc::default() }
    }
}

impl Turns {
    /// Waits for a turn.
    ///
    /// # Errors
    /// Others read for so long that there is none.
    pub async fn wait(&self, token: &TokenId) -> Result<Turn, PageError> {
        let turn = async {
            let (mut own, places) = self.own(token);
            own.permit = places.acquire_owned().await.ok();
            let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Turn { _all: all, _own: own })
        };
        let found = tokio::time::timeout(PATIENCE, turn).await.ok().flatten();
        found.ok_or_else(|| {
            PageError::Away(format!(
                "you, or others, read so many long lists and requests now that yours had no turn within {PATIENCE:?}: try again"
            ))
        })
    }

    /// Returns a turn if nobody has to be waited for.
    pub fn now(&self, token: &TokenId) -> Option<Turn> {
        let (mut own, places) = self.own(token);
        own.permit = Some(places.try_acquire_owned().ok()?);
        Some(Turn { _all: Arc::clone(&self.all).try_acquire_owned().ok()?, _own: own })
    }

    fn own(&self, token: &TokenId) -> (Own, Arc<Semaphore>) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let places = tokens.entry(token.clone()).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE)));
        (Own { turns: self.clone(), token: token.clone(), permit: None }, Arc::clone(places))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut tokens = self.turns.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        self.permit = None;
        // A permit and whoever waits for one hold the places too: the last one forgets the token.
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
    async fn one_token_has_two_turns_and_the_third_waits_while_others_read() {
        let turns = Turns::default();
        let (first, _second) = (turns.wait(&token("a")).await.unwrap(), turns.wait(&token("a")).await.unwrap());
        assert!(turns.now(&token("a")).is_none());
        let own = token("a");
        let mut third = Box::pin(turns.wait(&own));
        assert!(third.as_mut().now_or_never().is_none(), "it waits");
        assert!(turns.now(&token("b")).is_some(), "another does not");
        drop(first);
        assert!(third.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_a_token_that_reads_nothing_is_forgotten() {
        let turns = Turns::default();
        let held: Vec<_> = (0..READERS).map(|at| turns.now(&token(&at.to_string())).unwrap()).collect();
        assert!(turns.now(&token("late")).is_none(), "all are taken");
        let begun = tokio::time::Instant::now();
        assert!(matches!(turns.wait(&token("late")).await, Err(PageError::Away(_))));
        assert_eq!(begun.elapsed(), PATIENCE);
        assert_eq!(turns.tokens.lock().unwrap().len(), READERS, "who gave up is forgotten");
        drop(held);
        assert!(turns.tokens.lock().unwrap().is_empty());
        assert!(turns.now(&token("late")).is_some());
    }
}
