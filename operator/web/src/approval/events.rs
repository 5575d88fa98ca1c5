//! `…/events`: server-sent events about changes of a request and of the decisions on it.
//!
//! **Invariant:** an event has no content of the request. The browser fetches the content with an ordinary request.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::{Path, Query, State},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt, stream, stream::BoxStream};
use kube::{
    Api,
    core::PartialObjectMeta,
    runtime::watcher::{self, Config, Event as WatchEvent, watcher},
};
use serde::Deserialize;
use signoff_api::Approval;

use crate::{error::PageError, live::Place, session::Caller, state::PageState};

/// The time between two comments in a stream without events, so that proxies keep its connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(25);

/// The version of the request that the page shows.
#[derive(Deserialize)]
pub struct SeenVersion {
    /// The resource version of the shown Approval; empty if the address has none.
    #[serde(default)]
    seen: String,
}

/// Streams an event `changed` for each version of the Approval that the page does not show.
///
/// # Errors
/// As every request; too many streams.
pub async fn events(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Query(shown): Query<SeenVersion>,
) -> Result<Response, PageError> {
    let place = state.streams.acquire_place(&caller)?;
    let api = Api::<PartialObjectMeta<Approval>>::namespaced(caller.client.clone(), &namespace);
    // A reader without the right gets an error now, and not a stream that ends.
    api.get_metadata(&name).await?;
    let changes = watcher(api, Config::default().fields(&format!("metadata.name={name}"))).map(version).boxed();
    Ok(Sse::new(change_events(changes, shown.seen, place))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response())
}

/// Returns the version after a watch event: `None` if the event is not about a version, an empty text if the Approval
/// was deleted.
fn version(
    change: Result<WatchEvent<PartialObjectMeta<Approval>>, watcher::Error>,
) -> Result<Option<String>, watcher::Error> {
    Ok(match change? {
        WatchEvent::Init | WatchEvent::InitDone => None,
        WatchEvent::InitApply(object) | WatchEvent::Apply(object) => object.metadata.resource_version,
        WatchEvent::Delete(_) => Some(String::new()),
    })
}

/// Streams an event for each version other than `seen`. A broken watch ends the stream, and the browser opens another
/// stream.
fn change_events(
    changes: BoxStream<'static, Result<Option<String>, watcher::Error>>,
    seen: String,
    place: Place,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((changes, seen, place), async |(mut changes, seen, mut place)| {
        loop {
            let change = tokio::select! {
                change = changes.next() => change?,
                () = place.wait_for_end() => return None,
            };
            if let Some(version) = change.ok()?.filter(|version| *version != seen) {
                let event = Event::default().event("changed").data("{}");
                return Some((Ok(event), (changes, version, place)));
            }
        }
    })
}
