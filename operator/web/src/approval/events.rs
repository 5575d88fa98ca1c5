//! `…/events`: that the request, or the decisions on it, have changed, as server-sent events.
//!
//! It must not say what has changed: that comes with an ordinary request.

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

/// How often a quiet stream says that it lives.
const BEAT: Duration = Duration::from_secs(25);

/// What the page has shown already.
#[derive(Deserialize)]
pub struct SeenVersion {
    /// The version that it has read.
    #[serde(default)]
    seen: String,
}

/// Streams `changed` as often as the Approval is not the version that the reader has seen.
///
/// # Errors
/// As every request; too many streams.
pub async fn events(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Query(shown): Query<SeenVersion>,
) -> Result<Response, PageError> {
    let place = state.streams.place(&caller)?;
    let api = Api::<PartialObjectMeta<Approval>>::namespaced(caller.client.clone(), &namespace);
    // Who must not read it, reads that now, and not as a stream that ends.
    api.get_metadata(&name).await?;
    let changes = watcher(api, Config::default().fields(&format!("metadata.name={name}"))).map(version).boxed();
    Ok(Sse::new(told(changes, shown.seen, place)).keep_alive(KeepAlive::new().interval(BEAT)).into_response())
}

/// The version after a change: none where nothing can have changed, an empty one where the Approval is gone.
fn version(
    change: Result<WatchEvent<PartialObjectMeta<Approval>>, watcher::Error>,
) -> Result<Option<String>, watcher::Error> {
    Ok(match change? {
        WatchEvent::Init | WatchEvent::InitDone => None,
        WatchEvent::InitApply(object) | WatchEvent::Apply(object) => object.metadata.resource_version,
        WatchEvent::Delete(_) => Some(String::new()),
    })
}

/// Returns an event for each version that was not seen. A watch that breaks ends the stream: the browser opens another.
fn told(
    changes: BoxStream<'static, Result<Option<String>, watcher::Error>>,
    seen: String,
    place: Place,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((changes, seen, place), async |(mut changes, seen, mut place)| {
        loop {
            let change = tokio::select! {
                change = changes.next() => change?,
                () = place.over() => return None,
            };
            if let Some(version) = change.ok()?.filter(|version| *version != seen) {
                let event = Event::default().event("changed").data("{}");
                return Some((Ok(event), (changes, version, place)));
            }
        }
    })
}
