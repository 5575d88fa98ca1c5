//! The task that fills a feed from the watches of its namespaces.
//!
//! **Invariant:** the list is complete only after that of each namespace. After a gap in a watch the feed ends.

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
    let over = Instant::now() + left;
    let mut lists = Lists::new(places.len());
    if lists.are_complete() {
        feed.changed();
    }
    let has_lists = !places.is_empty();
    // Dropping the set ends the watches with this task.
    let mut watches = JoinSet::new();
    let all = places.into_iter().enumerate().map(|(list, place)| {
        let (to, mut from) = mpsc::channel(QUEUE);
        let selected = Some(still_open());
        watches.spawn(follow_selected::<Approval>(client.clone(), place, selected, to, RequestMetrics::default()));
        // The end of a watch is an event too, because the feed ends with each of its watches.
        poll_fn(move |context| from.poll_recv(context).map(|event| Some((list, event))))
    });
    let mut events = select_all(all);
    let why = loop {
        let idle = feed.used() + IDLE;
        let event = tokio::select! {
            event = events.next(), if has_lists => event,
            () = tokio::time::sleep_until(over.min(idle)) => {
                if Instant::now() >= over {
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
        match take(&feed, &shared, &mut lists, list, event) {
            Then::Nothing => {}
            Then::Changed => feed.changed(),
            Then::End(why) => break why,
        }
    };
    feed.end(why);
}

/// The consequence of an event for the feed.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    Changed,
    End(Ended),
}

/// The lists of the watches: which have begun, and which are complete.
struct Lists {
    most: usize,
    begun: HashSet<usize>,
    done: HashSet<usize>,
}

impl Lists {
    fn new(most: usize) -> Self {
        Self { most, begun: HashSet::new(), done: HashSet::new() }
    }

    fn are_complete(&self) -> bool {
        self.done.len() == self.most
    }

    /// Returns the consequence of a change. Changes before all lists are complete have none, because the complete list
    /// is a change itself.
    fn told(&self, is_different: bool) -> Then {
        if is_different && self.are_complete() { Then::Changed } else { Then::Nothing }
    }
}

fn take(feed: &Feed, shared: &SharedRows, lists: &mut Lists, list: usize, event: WatchEvent<Approval>) -> Then {
    match event {
        // After a second list events may have been missed, so the feed ends and a new one is opened.
        WatchEvent::Listing if !lists.begun.insert(list) => Then::End(Ended::Over),
        WatchEvent::Listing => Then::Nothing,
        WatchEvent::ListDone(_) => {
            let is_new = lists.done.insert(list);
            lists.told(is_new)
        }
        WatchEvent::Listed(approval) | WatchEvent::Applied(approval) => lists.told(feed.put(shared, &approval)),
        WatchEvent::Unreadable { meta, why, .. } => {
            let is_different = feed.put_unreadable(&meta);
            if is_different {
                tracing::warn!(namespace = meta.namespace, approval = meta.name, %why, "an Approval cannot be read");
            }
            lists.told(is_different)
        }
        WatchEvent::Deleted(meta) => lists.told(feed.remove(&meta)),
        WatchEvent::Broken { why, .. } => Then::End(Ended::Broken(why)),
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
