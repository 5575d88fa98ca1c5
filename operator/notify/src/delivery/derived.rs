//! Notices that are derived from stored objects after a start: the ones that an earlier process left open, and the ones
//! that are settled or dropped without a delivery *(pure)*.

use std::sync::Arc;

use super::{NoticeResult, Notices};
use crate::{
    config::NamespaceLabels,
    routes::{self, Occasion},
};

impl Notices {
    /// Whether an earlier process left undelivered notices whose objects this process has not reconciled yet.
    #[must_use]
    pub fn has_open(&self) -> bool {
        self.lock().lines.values().any(|line| line.ledger.has_open())
    }

    /// Settles the undelivered notices that an earlier process queued for an event. Call this when a later event of the
    /// same object supersedes the event.
    pub fn settle_open(&self, uid: &str, key: &str) {
        let id = routes::notice_id(uid, key);
        let mut has_settled = false;
        for line in self.lock().lines.values_mut() {
            has_settled |= line.ledger.settle_open(&id);
        }
        if has_settled {
            self.changed.notify_one();
        }
    }

    /// Whether some channel shows the question and the arguments of a call.
    #[must_use]
    pub fn want_details(&self) -> bool {
        self.lock().loaded.config.channels.iter().any(|channel| channel.has_details)
    }

    /// Counts the notices of an event as dropped, because there are too many events. `labels`: the labels of the
    /// namespace.
    pub fn count_dropped(&self, occasion: &Occasion, labels: &NamespaceLabels) {
        let loaded = Arc::clone(&self.lock().loaded);
        for addressed in routes::route(&loaded.config, &loaded.people, labels, occasion) {
            (self.parts.count)(&addressed.channel, NoticeResult::Dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };

    use async_trait::async_trait;
    use signoff_api::Moment;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{
        channel::{Channel, MessageHandle, Recipient, SendError},
        delivery::{NoticeParts, Origin, StateStore, StoredState},
        notice::{Notice, NoticeEvent},
        routes::{DeliveryKey, notice_id},
    };

    /// A channel whose attempts fail while the flag is set.
    struct AwayChannel(Arc<AtomicBool>);

    #[async_trait]
    impl Channel for AwayChannel {
        async fn send(
            &self,
            _: &Notice,
            _: &Recipient,
            _: Option<&MessageHandle>,
        ) -> Result<Option<MessageHandle>, SendError> {
            match self.0.load(Ordering::Relaxed) {
                true => Err(SendError::Later { why: "away".to_owned(), after: None }),
                false => Ok(None),
            }
        }
    }

    /// A store that returns a fixed state and drops all writes.
    struct FixedState(StoredState);

    #[async_trait]
    impl StateStore for FixedState {
        async fn load(&self) -> Result<StoredState, String> {
            Ok(self.0.clone())
        }

        async fn store_marks(&self, _: &BTreeMap<String, String>) -> Result<(), String> {
            Ok(())
        }

        async fn store_handles(&self, _: usize, _: &BTreeMap<String, String>) -> Result<(), String> {
            Ok(())
        }
    }

    fn at(seconds: u64) -> Moment {
        let start: Moment = serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap();
        start.after(Duration::from_secs(seconds))
    }

    fn occasion(run: &str) -> Occasion {
        Occasion {
            event: NoticeEvent::Asked,
            uid: format!("uid-of-{run}"),
            key: "asked".to_owned(),
            namespace: "pay".to_owned(),
            run: run.to_owned(),
            approval: Some(format!("{run}-review")),
            digest: None,
            gate: None,
            gate_type: None,
            requester: "dana".to_owned(),
            deadline: None,
            then: None,
            outcome: None,
            details: None,
            audience: Vec::new(),
            added: Vec::new(),
            at: at(1),
        }
    }

    /// The notices of a process with one webhook channel, the flag that makes its attempts fail, and the counted
    /// results.
    struct ProcessNotices {
        notices: Arc<Notices>,
        is_away: Arc<AtomicBool>,
        results: Arc<Mutex<Vec<NoticeResult>>>,
        _folder: tempfile::TempDir,
    }

    /// Loads the notices of a process after an earlier process left the deliveries in `open`.
    async fn start_process(open: &[DeliveryKey]) -> ProcessNotices {
        let folder = tempfile::tempdir().unwrap();
        let (url, file) = (folder.path().join("url"), folder.path().join("notices.yaml"));
        std::fs::write(&url, "https://hook.example.com").unwrap();
        let channel = format!("{{name: hook, webhook: {{urlFile: {}, format: cloudevents}}}}", url.display());
        std::fs::write(&file, format!("channels: [{channel}]\nroutes: [{{to: [hook]}}]")).unwrap();
        let open: Vec<_> = open.iter().map(DeliveryKey::as_str).collect();
        let mark = serde_json::json!({"through": at(3600), "open": open}).to_string();
        let state = StoredState { marks: BTreeMap::from([("hook".to_owned(), mark)]), handles: BTreeMap::new() };
        let (is_away, results) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
        let (channel_is_away, counted, start) = (Arc::clone(&is_away), Arc::clone(&results), Instant::now());
        let notices = Arc::new(Notices::new(NoticeParts {
            file,
            clock: Arc::new(move || at(3600).after(start.elapsed()).timestamp()),
            store: Arc::new(FixedState(state)),
            build: Arc::new(move |_, _| {
                let channel: Arc<dyn Channel> = Arc::new(AwayChannel(Arc::clone(&channel_is_away)));
                Ok(channel)
            }),
            count: Arc::new(move |_, result| counted.lock().unwrap().push(result)),
        }));
        notices.load().await;
        ProcessNotices { notices, is_away, results, _folder: folder }
    }

    fn key(run: &str) -> DeliveryKey {
        DeliveryKey::new(&notice_id(&format!("uid-of-{run}"), "asked"), &Recipient::Channel)
    }

    #[tokio::test(start_paused = true)]
    async fn settled_open_event_is_neither_sent_nor_lost() {
        let process = start_process(&[key("settled"), key("kept"), key("gone")]).await;
        let notices = &process.notices;
        assert!(notices.has_open() && notices.is_open("uid-of-settled", "asked"));
        notices.settle_open("uid-of-settled", "asked");
        assert!(!notices.is_open("uid-of-settled", "asked"));
        for run in ["settled", "kept"] {
            notices.tell(&occasion(run), &NamespaceLabels::new(), Origin::Derived);
        }
        assert_eq!(notices.waiting().get("hook"), Some(&1), "only the one that is still open");
        notices.end_recovery();
        assert_eq!(*process.results.lock().unwrap(), [NoticeResult::Lost], "the one whose object is gone");
        assert!(!notices.has_open());
    }

    #[tokio::test(start_paused = true)]
    async fn event_that_is_not_sent_is_counted_as_dropped() {
        let process = start_process(&[]).await;
        process.notices.count_dropped(&occasion("one"), &NamespaceLabels::new());
        assert_eq!(*process.results.lock().unwrap(), [NoticeResult::Dropped]);
        assert!(!process.notices.want_details(), "the channel has none");
    }

    #[tokio::test(start_paused = true)]
    async fn awaited_run_is_returned_after_its_notices_are_delivered() {
        let process = start_process(&[]).await;
        let notices = &process.notices;
        notices.end_recovery();
        let task = tokio::spawn(Arc::clone(notices).run());
        for run in ["awaited", "other"] {
            notices.tell(&occasion(run), &NamespaceLabels::new(), Origin::Live);
        }
        assert!(notices.are_waiting("pay", "awaited"));
        sleep(Duration::from_secs(5)).await;
        assert_eq!(notices.take_changed().runs, BTreeSet::new(), "the receiver is away");
        process.is_away.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(notices.take_changed().runs, BTreeSet::from([("pay".to_owned(), "awaited".to_owned())]));
        assert!(!notices.are_waiting("pay", "awaited"));
        task.abort();
    }
}
