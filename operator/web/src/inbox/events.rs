//! `/events`: server-sent events about changes of the open requests.
//!
//! **Invariant:** an event has numbers and fingerprints only, and no text of people, models or tools.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, stream};

use super::{Places, fingerprint::fingerprint, waiting_requests};
use crate::{
    error::PageError,
    live::{Feed, Place},
    session::Caller,
    state::PageState,
};

/// The time between two comments in a stream without events, so that proxies keep its connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(25);

/// Streams an event for each change: the number of requests that wait for the caller, their fingerprint, and the
/// fingerprint of all open requests.
///
/// # Errors
/// As every request; too many streams.
pub async fn events(
    State(state): State<PageState>,
    caller: Caller,
    Places(places): Places,
) -> Result<Response, PageError> {
    let place = state.feeds.acquire_place(&caller)?;
    let feed = state.feeds.complete_feed(&caller, &places).await?;
    Ok(Sse::new(change_events(feed, place)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Streams an event at once and then for each change of a feed, until the feed or the place of the stream ends.
pub(super) fn change_events(feed: Arc<Feed>, place: Place) -> impl Stream<Item = Result<Event, Infallible>> {
    let (version, ended) = (feed.changes(), feed.ending());
    stream::unfold((feed, place, version, ended, true), async |(feed, mut place, mut version, mut ended, is_first)| {
        if !is_first {
            tokio::select! {
                changed = version.changed() => changed.ok()?,
                _ = ended.wait_for(Option::is_some) => return None,
                () = place.wait_for_end() => return None,
            }
        }
        version.mark_unchanged();
        let event = Event::default().event("inbox").data(event_data(&feed).to_string());
        Some((Ok(event), (feed, place, version, ended, false)))
    })
}

fn event_data(feed: &Feed) -> serde_json::Value {
    let (asked, unreadable) = (waiting_requests(feed), feed.unreadable());
    let (version, all) = (fingerprint(&asked, &unreadable), fingerprint(&feed.rows(), &unreadable));
    serde_json::json!({"waiting": asked.len(), "version": version, "all": all})
}
