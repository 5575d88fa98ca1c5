//! `/events`: what has changed, as server-sent events. They say that something changed, never what it says.
//!
//! It must not send text of people, models or tools.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, stream};

use super::{Places, asked};
use crate::{error::PageError, live::Feed, session::Caller, state::PageState};

/// How often a quiet stream says that it lives.
const BEAT: Duration = Duration::from_secs(25);

/// Streams the number of requests that wait for the caller, as often as it or one of them changes.
///
/// # Errors
/// As every request.
pub async fn events(
    State(state): State<PageState>,
    caller: Caller,
    Places(places): Places,
) -> Result<Response, PageError> {
    let feed = state.feeds.of(&caller, &places).await?;
    Ok(Sse::new(changes(feed)).keep_alive(KeepAlive::new().interval(BEAT)).into_response())
}

fn changes(feed: Arc<Feed>) -> impl Stream<Item = Result<Event, Infallible>> {
    let (version, ended) = (feed.changes(), feed.ending());
    stream::unfold((feed, version, ended, true), async |(feed, mut version, mut ended, is_first)| {
        if !is_first {
            tokio::select! {
                changed = version.changed() => changed.ok()?,
                _ = ended.wait_for(Option::is_some) => return None,
            }
        }
        version.mark_unchanged();
        let data = serde_json::json!({"waiting": asked(&feed).len(), "version": *version.borrow()});
        let event = Event::default().event("inbox").data(data.to_string());
        Some((Ok(event), (feed, version, ended, false)))
    })
}
