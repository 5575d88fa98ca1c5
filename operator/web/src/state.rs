//! The state that all requests share: the settings, the connection to the API server, the sessions, and the watches.
//!
//! **Invariant:** the state has no identity of a user; each session brings its own.

use std::sync::Arc;

use axum::extract::FromRef;
use axum_extra::extract::cookie::Key;

use signoff_review::foreseen::Counter;

use crate::{
    api_server::Connection,
    live::{Feeds, Streams},
    session::{Overviews, Sessions},
    settings::Settings,
};

/// The state of the page. Clones share it.
#[derive(Clone)]
pub struct PageState(Arc<Parts>);

/// The parts of [`PageState`], which all requests share.
pub struct Parts {
    /// The options of the command line and of the environment.
    pub settings: Settings,
    /// The connection to the API server.
    pub connection: Connection,
    /// The verification of sessions.
    pub sessions: Sessions,
    /// The open Approvals by token.
    pub feeds: Feeds,
    /// The streams that follow one run each.
    pub streams: Streams,
    /// The cached facts that every page of a reader shows.
    pub overviews: Overviews,
    /// The counter of decisions, which computes the effect of one.
    pub counter: Counter,
    /// The key of the cookies.
    pub key: Key,
}

impl PageState {
    /// Returns the state with its parts.
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
