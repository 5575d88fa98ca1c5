//! What every request can use: the settings, the way to the API server, the sessions and what is followed live.
//!
//! It must not hold an identity: that is the session's.

use std::sync::Arc;

use axum::extract::FromRef;
use axum_extra::extract::cookie::Key;

use signoff_review::foreseen::Counter;

use crate::{
    connection::Connection,
    live::{Feeds, Streams},
    session::{Overviews, Sessions},
    settings::Settings,
};

/// The state of the page. Clones share it.
#[derive(Clone)]
pub struct PageState(Arc<Parts>);

/// The parts of the state.
pub struct Parts {
    /// The command line.
    pub settings: Settings,
    /// The way to the API server.
    pub connection: Connection,
    /// Sign-in, and what a session is.
    pub sessions: Sessions,
    /// What waits for whom.
    pub feeds: Feeds,
    /// The streams that follow one run each.
    pub streams: Streams,
    /// The facts on every page of each reader.
    pub overviews: Overviews,
    /// Counts decisions, to say what one would come to.
    pub counter: Counter,
    /// The key of the cookies.
    pub key: Key,
}

impl PageState {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl std::ops::Deref for PageState {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl FromRef<PageState> for Key {
    fn from_ref(state: &PageState) -> Self {
        state.key.clone()
    }
}
