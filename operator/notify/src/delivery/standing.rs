//! Answers about the notices of one Approval, for its condition *(pure)*.

use std::collections::BTreeSet;

use super::Notices;
use crate::{
    config::NamespaceLabels,
    failures::Failure,
    notice::Notice,
    routes::{self, Refusal},
};

/// The notices about one open Approval, as far as they failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeStanding {
    /// The failures, with the names of their channels.
    pub failures: Vec<(String, Failure)>,
    /// Whether a notice waits or is in flight.
    pub is_waiting: bool,
}

/// The Approvals whose condition may have to change, and the runs of which no notice waits any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedApprovals {
    /// Their namespaces and names.
    pub names: BTreeSet<(String, String)>,
    /// The namespaces and names of the runs that were found waiting before.
    pub runs: BTreeSet<(String, String)>,
    /// Whether the configuration changed, which concerns every Approval.
    pub is_reloaded: bool,
}

impl Notices {
    /// Returns what is known of the notices about the Approval with this uid.
    #[must_use]
    pub fn standing(&self, uid: &str) -> NoticeStanding {
        let inner = self.lock();
        let mut standing = NoticeStanding::default();
        for (name, line) in &inner.lines {
            if line.failures.is_empty() && line.queue.is_empty() {
                continue;
            }
            let correlation = routes::correlation(uid, name);
            standing.is_waiting |= line.queue.has_notices_about(&correlation);
            let failures = line.failures.about(&correlation).map(|(lane, failure)| match failure {
                Failure::Retried { .. } if !line.queue.has_lane(lane) => {
                    Failure::GivenUp { why: "too many notices wait for this channel".to_owned() }
                }
                Failure::Retried { .. } | Failure::GivenUp { .. } | Failure::Recovered => failure.clone(),
            });
            standing.failures.extend(failures.map(|failure| (name.clone(), failure)));
        }
        standing
    }

    /// Returns why a channel takes no notices that an author adds in a namespace with these labels; `None` where it
    /// takes them, or where no configuration was ever read.
    #[must_use]
    pub fn refusal(&self, channel: &str, labels: &NamespaceLabels) -> Option<Refusal> {
        let inner = self.lock();
        let loaded = inner.is_configured.then_some(&inner.loaded)?;
        routes::refusal(&loaded.config, channel, labels)
    }

    /// Whether a configuration was read.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.lock().is_configured
    }

    /// Waits until there is something for [`Self::take_changed`].
    pub async fn changed(&self) {
        self.standings.notified().await;
    }

    /// Returns the Approvals whose condition may have to change, and the runs whose notices wait no more, each once.
    #[must_use]
    pub fn take_changed(&self) -> ChangedApprovals {
        let mut inner = self.lock();
        let mut changed = std::mem::take(&mut inner.changed);
        if changed.is_reloaded {
            // The channel that they waited for may be gone.
            changed.runs.extend(std::mem::take(&mut inner.awaited).into_keys());
        }
        changed
    }
}

impl ChangedApprovals {
    /// Adds the Approval of a notice.
    pub(super) fn add(&mut self, notice: &Notice) {
        self.names.extend(notice.approval.as_ref().map(|name| (notice.namespace.clone(), name.clone())));
    }
}
