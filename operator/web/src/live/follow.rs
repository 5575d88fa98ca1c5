//! The task that fills a feed from the watches of its namespaces.
//!
//! **Invariant:** the list of a feed is complete only after the list of each namespace. After a gap in a watch the feed
//! ends.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    stream::{poll_fn, select_all},
};
use kube::Client;
use signoff_api::Approval;
use signoff_cluster::{
    metrics::RequestMetrics,
    watch::{WatchEvent, follow_selected},
};
use signoff_review::seen::still_open;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::feed::{Ended, Feed, SharedRows};
use crate::scope::places;

/// The time without a reader after which a feed ends.
const IDLE: Duration = Duration::from_secs(300);
/// The most events of a watch that wait to be applied.
const QUEUE: usize = 64;

/// Follows the open Approvals until the feed ends. `left`: the life of the feed.
pub(super) async fn follow(client: Client, feed: Arc<Feed>, shared: Arc<SharedRows>, left: Duration) {
    let places = places(feed.namespaces.as_deref());
    let deadline = Instant::now() + left;
    let mut lists = Lists::new(places.len());
    if lists.are_complete() {
        feed.notify_readers();
    }
    let has_lists = !places.is_empty();
    // Dropping the set ends the watches with this task.
    let mut watches = JoinSet::new();
    let streams = places.into_iter().enumerate().map(|(list, place)| {
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        let selected = Some(still_open());
        watches.spawn(follow_selected::<Approval>(client.clone(), place, selected, sender, RequestMetrics::default()));
        // The end of a watch is an event too, because the feed ends with each of its watches.
        poll_fn(move |context| receiver.poll_recv(context).map(|event| Some((list, event))))
    });
    let mut events = select_all(streams);
    let why = loop {
        let idle = feed.used() + IDLE;
        let event = tokio::select! {
            event = events.next(), if has_lists => event,
            () = tokio::time::sleep_until(deadline.min(idle)) => {
                if Instant::now() >= deadline {
                    break Ended::Over;
                }
                if feed.has_reader() {
                    feed.touch();
                } else if feed.used() + IDLE <= Instant::now() {
                    break Ended::Over;
                }
                continue;
            }
        };
        let Some((list, Some(event))) = event else { break Ended::Over };
        match apply(&feed, &shared, &mut lists, list, event) {
            Consequence::Nothing => {}
            Consequence::Changed => feed.notify_readers(),
            Consequence::End(why) => break why,
        }
    };
    feed.end(why);
}

/// The consequence of an event for the feed.
#[derive(Debug, PartialEq, Eq)]
enum Consequence {
    Nothing,
    Changed,
    End(Ended),
}

/// The lists of the watches: which have begun, and which are complete.
struct Lists {
    /// The number of watches.
    count: usize,
    begun: HashSet<usize>,
    done: HashSet<usize>,
}

impl Lists {
    fn new(count: usize) -> Self {
        Self { count, begun: HashSet::new(), done: HashSet::new() }
    }

    fn are_complete(&self) -> bool {
        self.done.len() == self.count
    }

    /// Returns the consequence of a change. A change before all lists are complete has no consequence, because the
    /// complete list is a change itself.
    fn consequence_of(&self, is_different: bool) -> Consequence {
        if is_different && self.are_complete() { Consequence::Changed } else { Consequence::Nothing }
    }
}

/// Applies an event of the watch with the number `list`.
fn apply(feed: &Feed, shared: &SharedRows, lists: &mut Lists, list: usize, event: WatchEvent<Approval>) -> Consequence {
    match event {
        // After a second list events may have been missed, so the feed ends and a new one is opened.
        WatchEvent::Listing if !lists.begun.insert(list) => Consequence::End(Ended::Over),
        WatchEvent::Listing => Consequence::Nothing,
        WatchEvent::ListDone(_) => {
            let is_new = lists.done.insert(list);
            lists.consequence_of(is_new)
        }
        WatchEvent::Listed(approval) | WatchEvent::Applied(approval) => {
            lists.consequence_of(feed.put(shared, &approval))
        }
        WatchEvent::Unreadable { meta, why, .. } => {
            let is_different = feed.put_unreadable(&meta);
            if is_different {
                tracing::warn!(namespace = meta.namespace, approval = meta.name, %why, "an Approval cannot be read");
            }
            lists.consequence_of(is_different)
        }
        WatchEvent::Deleted(meta) => lists.consequence_of(feed.remove(&meta)),
        WatchEvent::Broken { why, .. } => Consequence::End(Ended::Broken(why)),
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
