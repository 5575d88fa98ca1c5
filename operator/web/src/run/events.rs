//! `…/events`: server-sent events about changes of a Workflow and its Approvals.
//!
//! **Invariant:** an event has no content of the run. The browser fetches the content with an ordinary request.

use std::{convert::Infallible, pin::Pin, time::Duration};

use axum::{
    extract::{Path, Query, State},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt, stream};
use kube::{
    Api, Client,
    core::{ObjectMeta, PartialObjectMeta},
    runtime::watcher::{self, Config, Event as WatchEvent, watcher},
};
use serde::Deserialize;
use signoff_api::{Approval, Workflow};
use signoff_review::run;

use super::{
    address::Address,
    read::{self, Versions},
};
use crate::{error::PageError, live::Place, session::Caller, state::PageState};

/// The time between two comments in a stream without events, so that proxies keep its connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(25);
/// The most changes that become one event, if they arrive together.
const MOST_AT_ONCE: usize = 64;

/// The versions of the run that the page shows.
#[derive(Deserialize)]
pub struct SeenVersions {
    /// The word of the versions that the page has read; empty if the address has none.
    #[serde(default)]
    seen: String,
}

/// The Workflow, or the Approvals of its gates.
#[derive(Clone, Copy)]
enum WatchedKind {
    Workflow,
    Approvals,
}

type Changes = Pin<Box<dyn Stream<Item = Result<(WatchedKind, ObjectChange), watcher::Error>> + Send>>;

/// A change of a watched object.
enum ObjectChange {
    Listing,
    Listed,
    Put(ObjectMeta),
    Gone(ObjectMeta),
}

/// Streams an event `changed` whenever the run has other versions than those that the page shows.
///
/// # Errors
/// As every request; too many streams.
pub async fn events(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Query(shown): Query<SeenVersions>,
) -> Result<Response, PageError> {
    let address = Address::of(&namespace, &name)?;
    let place = state.streams.acquire_place(&caller)?;
    let workflow = read::fetch_workflow(&caller.client, &address).await?;
    let changes = follow(&caller.client, &address, &workflow);
    Ok(Sse::new(change_events(changes, shown.seen, place))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response())
}

/// Follows the versions of a run's objects.
fn follow(client: &Client, address: &Address, workflow: &Workflow) -> Changes {
    let run_selector = Config::default().fields(&format!("metadata.name={}", address.name));
    let approvals_selector = Config::default().labels(&run::approvals(workflow));
    let workflows = Api::<PartialObjectMeta<Workflow>>::namespaced(client.clone(), &address.namespace);
    let approvals = Api::<PartialObjectMeta<Approval>>::namespaced(client.clone(), &address.namespace);
    let workflows = watcher(workflows, run_selector).map(|event| Ok((WatchedKind::Workflow, object_change(event?))));
    let approvals =
        watcher(approvals, approvals_selector).map(|event| Ok((WatchedKind::Approvals, object_change(event?))));
    Box::pin(stream::select(workflows, approvals))
}

fn object_change<K>(event: WatchEvent<PartialObjectMeta<K>>) -> ObjectChange {
    match event {
        WatchEvent::Init => ObjectChange::Listing,
        WatchEvent::InitDone => ObjectChange::Listed,
        WatchEvent::InitApply(object) | WatchEvent::Apply(object) => ObjectChange::Put(object.metadata),
        WatchEvent::Delete(object) => ObjectChange::Gone(object.metadata),
    }
}

/// The versions of the objects of a run, and whether each list is complete.
#[derive(Default)]
struct Known {
    workflow: (Versions, bool),
    approvals: (Versions, bool),
}

impl Known {
    /// Applies a change of the Workflow or of an Approval. A new list replaces the versions of the list before.
    fn apply(&mut self, kind: WatchedKind, change: ObjectChange) {
        let (versions, is_listed) = match kind {
            WatchedKind::Workflow => &mut self.workflow,
            WatchedKind::Approvals => &mut self.approvals,
        };
        match change {
            ObjectChange::Listing => (*versions, *is_listed) = (Versions::default(), false),
            ObjectChange::Listed => *is_listed = true,
            ObjectChange::Put(meta) => versions.put(&meta),
            ObjectChange::Gone(meta) => versions.remove(&meta),
        }
    }

    /// Returns the word of the versions, or `None` before both lists are complete.
    fn word(&self) -> Option<String> {
        (self.workflow.1 && self.approvals.1).then(|| self.workflow.0.clone().and(&self.approvals.0).word())
    }
}

/// Streams an event for each word other than `seen`. A broken watch ends the stream, and the browser opens another
/// stream.
fn change_events(changes: Changes, seen: String, place: Place) -> impl Stream<Item = Result<Event, Infallible>> {
    let changes = changes.ready_chunks(MOST_AT_ONCE);
    stream::unfold((changes, Known::default(), seen, place), async |(mut changes, mut known, seen, mut place)| {
        loop {
            let batch = tokio::select! {
                batch = changes.next() => batch?,
                () = place.wait_for_end() => return None,
            };
            for change in batch {
                let (kind, change) = change.ok()?;
                known.apply(kind, change);
            }
            if let Some(word) = known.word().filter(|word| *word != seen) {
                let event = Event::default().event("changed").data("{}");
                return Some((Ok(event), (changes, known, word, place)));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, version: &str) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()), ..ObjectMeta::default() }
    }

    #[test]
    fn word_is_known_after_both_lists_and_differs_after_a_change() {
        let mut read = Versions::default();
        let objects = [meta("w", "1"), meta("a", "7")];
        objects.iter().for_each(|object| read.put(object));
        let mut known = Known::default();
        let [workflow, approval] = objects;
        known.apply(WatchedKind::Workflow, ObjectChange::Put(workflow));
        known.apply(WatchedKind::Workflow, ObjectChange::Listed);
        assert_eq!(known.word(), None, "one of the lists is not complete");
        known.apply(WatchedKind::Approvals, ObjectChange::Put(approval));
        known.apply(WatchedKind::Approvals, ObjectChange::Listed);
        assert_eq!(known.word(), Some(read.word()));
        known.apply(WatchedKind::Approvals, ObjectChange::Put(meta("a", "8")));
        assert_ne!(known.word(), Some(read.word()), "a vote is a change");
        known.apply(WatchedKind::Approvals, ObjectChange::Listing);
        assert_eq!(known.word(), None, "a list begins anew");
    }
}
