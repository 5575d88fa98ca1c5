//! Wakes tasks when the server has changed, in the order in which they began to listen, so that every run is the same.
//! tokio's own `watch` wakes in random order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The changes of the server, which tasks wait for.
#[derive(Default)]
pub(crate) struct ChangeFeed {
    /// The number of changes so far.
    changes: AtomicU64,
    wake: Notify,
}

impl ChangeFeed {
    /// Wakes all listeners.
    pub(crate) fn notify(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.wake.notify_waiters();
    }

    /// Returns a listener to all changes from now on.
    pub(crate) fn listener(self: &Arc<Self>) -> Listener {
        Listener { feed: Arc::clone(self), seen: self.changes.load(Ordering::Relaxed) }
    }
}

/// The subscription of a task that waits for changes.
pub(crate) struct Listener {
    feed: Arc<ChangeFeed>,
    /// The number of changes that the task has seen.
    seen: u64,
}

impl Listener {
    /// Marks all changes so far as seen.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.feed.changes.load(Ordering::Relaxed);
    }

    /// Waits until there was a change since the last [`Self::mark_seen`].
    pub(crate) async fn changed(&self) {
        loop {
            let wake = self.feed.wake.notified();
            if self.feed.changes.load(Ordering::Relaxed) != self.seen {
                return;
            }
            wake.await;
        }
    }
}
