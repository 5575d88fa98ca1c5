//! Word that something has happened: whoever listens is woken in the order of listening, so that a run is the same
//! every time. It says that there is news and never what; tokio's own `watch` wakes in an order drawn by chance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Where word comes from.
#[derive(Default)]
pub(crate) struct News {
    told: AtomicU64,
    wake: Notify,
}

impl News {
    /// Something has happened.
    pub(crate) fn tell(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.wake.notify_waiters();
    }

    /// Somebody who hears of everything that happens from now on.
    pub(crate) fn listener(self: &Arc<Self>) -> Listener {
        Listener { news: Arc::clone(self), heard: self.told.load(Ordering::Relaxed) }
    }
}

/// Somebody who listens.
pub(crate) struct Listener {
    news: Arc<News>,
    heard: u64,
}

impl Listener {
    /// What has happened by now is no news any more.
    pub(crate) fn hear(&mut self) {
        self.heard = self.news.told.load(Ordering::Relaxed);
    }

    /// Waits until something has happened since this was last heard.
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
