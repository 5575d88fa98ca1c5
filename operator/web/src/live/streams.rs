//! The places of streams of events, by which their number and their life are bounded.
//!
//! **Invariant:** a stream ends with its session, at sign-out and after ten minutes. There are never more streams than
//! places.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tokio::{sync::watch, time::Instant};

use super::feed::life;
use crate::{
    error::PageError,
    session::{Caller, TokenId, now},
};

/// The most streams of one token.
const MOST_OF_TOKEN: usize = 8;

/// All streams by token. Each stream holds a receiver of its token, so the receivers are the number of streams.
pub struct Streams {
    most: usize,
    open: Mutex<HashMap<TokenId, watch::Sender<()>>>,
}

/// A place for one stream. Dropping it frees the place.
pub struct Place {
    signed_in: watch::Receiver<()>,
    over: Instant,
}

impl Streams {
    /// Returns an empty set of streams. `most`: the most streams at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, open: Mutex::default() }
    }

    /// Returns a place for a stream of a caller.
    ///
    /// # Errors
    /// There are too many streams.
    pub fn acquire_place(&self, caller: &Caller) -> Result<Place, PageError> {
        self.take_place(&caller.token, Instant::now() + life(caller.ends, now()))
    }

    /// Takes a place for a stream that ends at `over` at the latest. Fails if the token, or all tokens together, have
    /// too many streams.
    fn take_place(&self, token: &TokenId, over: Instant) -> Result<Place, PageError> {
        // No code panics while it holds the lock, so the lock is not poisoned.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, streams| streams.receiver_count() > 0);
        let all: usize = open.values().map(watch::Sender::receiver_count).sum();
        let own = open.get(token).map_or(0, watch::Sender::receiver_count);
        if own >= MOST_OF_TOKEN {
            let why = format!(
                "this session follows {MOST_OF_TOKEN} such pages already: close one of them, or reload this page to see its state"
            );
            return Err(PageError::TooMany(why));
        }
        if all >= self.most {
            let why = format!(
                "{all} such pages are followed already, and no more can be (--max-live): reload this one to see its state"
            );
            return Err(PageError::TooMany(why));
        }
        let signed_in = open.entry(token.clone()).or_insert_with(|| watch::Sender::new(())).subscribe();
        Ok(Place { signed_in, over })
    }

    /// Ends the streams of a token.
    pub fn end(&self, token: &TokenId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
    }

    /// Ends all streams, because the page is shutting down.
    pub fn end_all(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Place {
    /// Waits until the stream must end: at sign-out, or when its time is over.
    pub async fn wait_for_end(&mut self) {
        tokio::select! {
            // Nothing is ever sent: this returns when the sender is dropped at sign-out.
            _ = self.signed_in.changed() => {}
            () = tokio::time::sleep_until(self.over) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use secrecy::SecretString;

    use super::*;

    fn token(text: &str) -> TokenId {
        TokenId::of(&SecretString::from(text))
    }

    #[tokio::test]
    async fn streams_are_bounded_for_a_token_and_in_all() {
        let streams = Streams::new(10);
        let later = Instant::now() + Duration::from_secs(60);
        let mut own: Vec<_> = (0..MOST_OF_TOKEN).map(|_| streams.take_place(&token("a"), later).unwrap()).collect();
        assert!(
            matches!(streams.take_place(&token("a"), later), Err(PageError::TooMany(why)) if why.contains("this session"))
        );
        let others = [streams.take_place(&token("b"), later).unwrap(), streams.take_place(&token("b"), later).unwrap()];
        assert!(
            matches!(streams.take_place(&token("c"), later), Err(PageError::TooMany(why)) if why.contains("--max-live"))
        );
        drop(others);
        assert!(streams.take_place(&token("c"), later).is_ok(), "a stream that ended frees its place");
        own.pop();
        assert!(streams.take_place(&token("a"), later).is_ok());
    }

    #[tokio::test]
    async fn stream_ends_at_sign_out_and_after_its_time() {
        let streams = Streams::new(10);
        let later = Instant::now() + Duration::from_secs(3600);
        let mut first = streams.take_place(&token("a"), later).unwrap();
        let mut second = streams.take_place(&token("b"), later).unwrap();
        let mut third = streams.take_place(&token("c"), Instant::now()).unwrap();
        streams.end(&token("a"));
        let soon = Duration::from_secs(5);
        tokio::time::timeout(soon, first.wait_for_end()).await.unwrap();
        tokio::time::timeout(soon, third.wait_for_end()).await.unwrap();
        assert!(futures::poll!(std::pin::pin!(second.wait_for_end())).is_pending());
    }
}
