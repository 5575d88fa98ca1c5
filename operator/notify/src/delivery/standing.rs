//! The state of the notices about one Approval, for its condition *(pure)*.

use std::collections::BTreeSet;

use super::Notices;
use crate::{
    config::NamespaceLabels,
    failures::Failure,
    notice::Notice,
    routes::{self, Refusal},
};

/// The failed and waiting notices about one open Approval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeStanding {
    /// The failures, with the names of their channels.
    pub failures: Vec<(String, Failure)>,
    /// Whether a notice waits or is in flight.
    pub is_waiting: bool,
}

/// The Approvals whose condition may have to change, and the runs whose last waiting notice is settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedApprovals {
    /// The namespaces and names of the Approvals.
    pub names: BTreeSet<(String, String)>,
    /// The namespaces and names of the runs for which [`Notices::are_waiting`] returned `true` before.
    pub runs: BTreeSet<(String, String)>,
    /// Whether the configuration has changed, so that the condition of any Approval may have to change.
    pub is_reloaded: bool,
}

impl Notices {
    /// Returns the failed and waiting notices about the Approval with this uid.
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

    /// Returns why a workflow author cannot add a channel in a namespace with these labels; or `None` if the author
    /// can, or if no configuration was read yet.
    #[must_use]
    pub fn refusal(&self, channel: &str, labels: &NamespaceLabels) -> Option<Refusal> {
        let inner = self.lock();
        let loaded = inner.is_configured.then_some(&inner.loaded)?;
        routes::refusal(&loaded.config, channel, labels)
    }

    /// Whether a valid configuration was ever read.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.lock().is_configured
    }

    /// Waits until [`Self::take_changed`] returns something.
    pub async fn changed(&self) {
        self.standings.notified().await;
    }

    /// Returns the changes since the last call. After a change of the configuration, also returns all runs whose
    /// deletion waits for notices.
    #[must_use]
    pub fn take_changed(&self) -> ChangedApprovals {
        let mut inner = self.lock();
        let mut changed = std::mem::take(&mut inner.changed);
        if changed.is_reloaded {
            // The notices of the awaited runs may have waited for a channel that is no longer configured.
            changed.runs.extend(std::mem::take(&mut inner.awaited).into_keys());
        }
        changed
    }
}

impl ChangedApprovals {
    /// Adds the Approval of a notice, if the notice has one.
    pub(super) fn add(&mut self, notice: &Notice) {
        self.names.extend(notice.approval.as_ref().map(|name| (notice.namespace.clone(), name.clone())));
    }
}
