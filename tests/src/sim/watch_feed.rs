//! Wakes tasks when the server has changed, in the order in which they began to listen, so that every run is the same.
//! tokio's own `watch` wakes in random order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The sender of notices that something has changed.
#[derive(Default)]
pub(crate) struct News {
    told: AtomicU64,
    wake: Notify,
}

impl News {
    /// Wakes all listeners.
    pub(crate) fn tell(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.wake.notify_waiters();
    }

    /// Returns a listener to all changes from now on.
    pub(crate) fn listener(self: &Arc<Self>) -> Listener {
        Listener { news: Arc::clone(self), heard: self.told.load(Ordering::Relaxed) }
    }
}

/// A task that listens.
pub(crate) struct Listener {
    news: Arc<News>,
    heard: u64,
}

impl Listener {
    /// Marks all changes so far as heard.
    pub(crate) fn hear(&mut self) {
        self.heard = self.news.told.load(Ordering::Relaxed);
    }

    /// Waits until there was a change since the last [`Self::hear`].
    pub(crate) async fn heard(&self) {
        loop {
            let wake = self.news.wake.notified();
            if self.news.told.load(Ordering::Relaxed) != self.heard {
                return;
            }
            wake.await;
        }
    }
}
