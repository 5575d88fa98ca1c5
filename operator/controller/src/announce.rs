//! Sends announcements to the listeners of the operator: Kubernetes Events and metrics, both below, notices
//! (`notices.rs`), and the listeners of `Config::listeners` (`operator.rs`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{
    Approval, EventReason, Workflow,
    announce::{About, Announcement, Listener, Sentence, TypedEvent, announce},
    occurrence::RunEvent,
};
use signoff_cluster::{
    events::{Report, Reporter},
    kinds::ReconciledKind,
};

use crate::{context::Context, metrics::Metrics, notices::NoticeSource};

/// A kind that announcements are about.
pub(crate) trait AnnouncedKind: ReconciledKind + NoticeSource {
    /// Returns an object with this metadata as the subject of an announcement.
    fn about(meta: &ObjectMeta) -> About<'_>;
}

impl AnnouncedKind for Workflow {
    fn about(meta: &ObjectMeta) -> About<'_> {
        About::Workflow(meta)
    }
}

impl AnnouncedKind for Approval {
    fn about(meta: &ObjectMeta) -> About<'_> {
        About::Approval(meta)
    }
}

impl Context {
    /// Sends an announcement to every listener.
    pub(crate) fn announce(&self, announcement: &Announcement<'_>) {
        let events = KubernetesEvents { reporter: &self.listeners.reporter, now: self.api.clock.now() };
        let own: [&dyn Listener; 2] = [&events, &*self.metrics];
        let notices = self.notices();
        let notices = notices.iter().map(|notices| notices as &dyn Listener);
        let further = self.listeners.further.iter().map(|listener| &**listener as &dyn Listener);
        announce(own.into_iter().chain(notices).chain(further), announcement);
    }

    /// Announces a sentence about an object, without a typed event.
    pub(crate) fn say(&self, about: About<'_>, reason: EventReason, message: &str, key: &str) {
        self.announce(&Announcement::about(about).sentence(reason, message, key));
    }
}

/// The listener that queues a Kubernetes Event for each sentence.
struct KubernetesEvents<'a> {
    reporter: &'a Reporter,
    now: jiff::Timestamp,
}

impl Listener for KubernetesEvents<'_> {
    fn on_announcement(&self, announcement: &Announcement<'_>) {
        let Some(sentence) = &announcement.sentence else { return };
        let Sentence { reason, message, key, related } = *sentence;
        let report = match announcement.about {
            About::Workflow(meta) => Report::of_meta::<Workflow>(meta, reason, message, key, self.now),
            About::Approval(meta) => Report::of_meta::<Approval>(meta, reason, message, key, self.now),
        };
        self.reporter.report(match related {
            None => report,
            Some(About::Workflow(meta)) => report.related::<Workflow>(meta),
            Some(About::Approval(meta)) => report.related::<Approval>(meta),
        });
    }
}

/// Counts the ends of runs and Approvals.
impl Listener for Metrics {
    fn on_announcement(&self, announcement: &Announcement<'_>) {
        match &announcement.event {
            Some(TypedEvent::Gate(gate)) => {
                if let Some(phase) = gate.event.stored_end() {
                    self.count_finished("Approval", phase.name());
                }
            }
            Some(TypedEvent::Run(run)) => match run.event {
                RunEvent::Ended(phase) => self.count_finished("Workflow", phase.name()),
                RunEvent::Accepted => {}
            },
            None => {}
        }
    }
}
