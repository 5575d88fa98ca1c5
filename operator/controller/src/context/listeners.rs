//! The listeners of announcements: Kubernetes Events, notices and further listeners. The metrics listen too.

use std::{future::pending, sync::Arc};

use signoff_api::announce::Listener;
use signoff_cluster::events::Reporter;
use tokio::time::Instant;

use crate::notices::NoticeDesk;

/// The listeners of announcements, beside the metrics.
pub(crate) struct Listeners {
    /// The queue of Kubernetes Events.
    pub(crate) reporter: Reporter,
    /// The notices, or `None` if the administrator has configured none.
    pub(crate) notices: Option<NoticeDesk>,
    /// The listeners of `Config::listeners`.
    pub(crate) further: Vec<Arc<dyn Listener>>,
}

impl Listeners {
    /// Waits until there is something for `Context::enqueue_notified`.
    pub(crate) async fn notices_changed(&self) {
        match &self.notices {
            Some(desk) => desk.changed().await,
            None => pending().await,
        }
    }

    /// Returns when `Context::queue_unrouted` is due, or `None` if no event waits for the labels of its namespace.
    pub(crate) fn unrouted_until(&self) -> Option<Instant> {
        self.notices.as_ref().and_then(NoticeDesk::unrouted_until)
    }
}
