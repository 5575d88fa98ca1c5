//! Tests of the notices of stored objects after a start, and of events that wait for the labels of their namespace.
#![allow(clippy::unwrap_used)]

use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use serde_json::{Value, json};
use signoff_api::announce::About;
use signoff_notify::{
    Channel, ChannelConfig, Config, MessageHandle, Notice, NoticeEvent, NoticeResult, Recipient, SendError, StateStore,
    delivery::{NoticeParts, StoredState},
    queue::{GIVEN_UP, LONGEST_PAUSE},
    routes::{DeliveryKey, notice_id},
};
use tokio::time::sleep;

use super::{
    tests::{UID, approval, at},
    *,
};

/// A route to `all`, and one of productive namespaces to `prod`.
const ROUTES: &str = "routes: [{to: [all]}, {namespaces: {env: prod}, to: [prod]}]";
const APPROVAL: &str = "w-review-0123456789";

/// The notices that arrived, with the names of their channels.
type Arrivals = Arc<Mutex<Vec<(String, Notice)>>>;

struct RecordingChannel {
    name: String,
    arrivals: Arrivals,
}

#[async_trait]
impl Channel for RecordingChannel {
    async fn send(
        &self,
        notice: &Notice,
        _: &Recipient,
        _: Option<&MessageHandle>,
    ) -> Result<Option<MessageHandle>, SendError> {
        self.arrivals.lock().unwrap().push((self.name.clone(), notice.clone()));
        Ok(None)
    }
}

/// The state that an earlier process stored.
struct EarlierState(StoredState);

#[async_trait]
impl StateStore for EarlierState {
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

/// The desk of an operator that starts at two o'clock, with its cached objects.
struct BegunDesk {
    desk: NoticeDesk,
    objects: CachedObjects,
    queue: Queue,
    arrivals: Arrivals,
    lost: Arc<AtomicUsize>,
    folder: PathBuf,
}

impl Drop for BegunDesk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl BegunDesk {
    /// Returns the desk after a process that delivered everything up to `through`, except the transitions `open` of the
    /// Approval.
    async fn new(through: &str, open: &[&str]) -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("signoff-desk-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (url, file) = (folder.join("url"), folder.join("notices.yaml"));
        std::fs::write(&url, "https://hook.example.com").unwrap();
        let channel =
            |name: &str| format!("{{name: {name}, webhook: {{urlFile: {}, format: cloudevents}}}}", url.display());
        let channels = format!("channels: [{}, {}]\n{ROUTES}", channel("all"), channel("prod"));
        std::fs::write(&file, channels).unwrap();
        let key = |key: &&str| DeliveryKey::new(&notice_id("uid-1", key), &Recipient::Channel).as_str().to_owned();
        let open: Vec<_> = open.iter().map(key).collect();
        let mark = |open: &[String]| json!({"through": through, "open": open}).to_string();
        let marks = BTreeMap::from([("all".to_owned(), mark(&open)), ("prod".to_owned(), mark(&[]))]);
        let (arrivals, lost) = (Arrivals::default(), Arc::new(AtomicUsize::new(0)));
        let (received, counted, began) = (Arc::clone(&arrivals), Arc::clone(&lost), Instant::now());
        let start = at("2030-01-01T02:00:00Z");
        let notices = Arc::new(Notices::new(NoticeParts {
            file,
            clock: Arc::new(move || start.after(began.elapsed()).timestamp()),
            store: Arc::new(EarlierState(StoredState { marks, handles: BTreeMap::new() })),
            build: Arc::new(move |channel: &ChannelConfig, _: &Config| {
                let arrivals = Arc::clone(&received);
                let channel: Arc<dyn Channel> = Arc::new(RecordingChannel { name: channel.name.clone(), arrivals });
                Ok(channel)
            }),
            count: Arc::new(move |_, result| {
                counted.fetch_add(usize::from(result == NoticeResult::Lost), Ordering::Relaxed);
            }),
        }));
        notices.load().await;
        Self {
            desk: NoticeDesk::new(notices),
            objects: CachedObjects::default(),
            queue: Queue::default(),
            arrivals,
            lost,
            folder,
        }
    }

    fn scope(&self) -> NoticeScope<'_> {
        NoticeScope { desk: &self.desk, objects: &self.objects, queue: &self.queue }
    }

    fn list_run(&self, run: Workflow) {
        run.queue_derived(&self.scope());
        self.objects.workflows.list(run);
    }

    fn list_approval(&self, approval: Approval) {
        approval.queue_derived(&self.scope());
        self.objects.approvals.list(approval);
    }

    /// Ends the first lists. Returns the events that arrive at the channel `all`, with their outcomes.
    async fn recover(&self) -> Vec<(NoticeEvent, Option<String>)> {
        self.objects.policies.add_namespace("pay", BTreeMap::new());
        self.scope().end_recovery();
        self.deliver().await;
        let arrivals = self.arrivals.lock().unwrap();
        arrivals.iter().map(|(_, notice)| (notice.event, notice.outcome.clone())).collect()
    }

    /// Delivers for three seconds. Returns the channels that got notices.
    async fn deliver(&self) -> Vec<String> {
        let task = tokio::spawn(Arc::clone(&self.desk.notices).run());
        sleep(Duration::from_secs(3)).await;
        task.abort();
        self.arrivals.lock().unwrap().iter().map(|(channel, _)| channel.clone()).collect()
    }

    fn lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Returns an Approval of the run as its operator stored it, with a status.
fn stored_approval(status: Value) -> Approval {
    let mut approval = approval(status);
    approval.metadata.resource_version = Some("1".to_owned());
    seal(approval)
}

/// Returns the Approval with the digest of its request.
fn seal(mut approval: Approval) -> Approval {
    approval.spec.request.digest = approval.spec.request.digest_of_the_rest().unwrap();
    approval
}

/// Returns the status of an Approval that ended at one o'clock.
fn ended_status(phase: &str) -> Value {
    json!({"phase": phase, "outcome": {"phase": phase, "source": "Human", "decidedAt": "2030-01-01T01:00:00Z"}})
}

/// Returns the run with a uid, which took the outcomes `taken` at 01:00:01.
fn run(uid: &str, taken: &[&str]) -> Workflow {
    let record = |phase: &&str| {
        json!({
            "path": "review", "attempt": 1, "kind": "hitl", "phase": "Succeeded", "seq": 2, "done": 3,
            "at": "2030-01-01T00:00:00Z", "finishedAt": "2030-01-01T01:00:01Z", "object": APPROVAL,
            "decision": {"phase": phase, "source": "Human"},
        })
    };
    let records: Vec<_> = taken.iter().map(record).collect();
    serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {
            "name": "w", "namespace": "pay", "uid": uid, "resourceVersion": "1",
            "creationTimestamp": "2030-01-01T00:00:00Z",
        },
        "spec": {"requestedBy": "dana", "steps": []},
        "status": {"phase": "Running", "seq": 7, "startedAt": "2030-01-01T00:00:00Z", "steps": records},
    }))
    .unwrap()
}

fn with_creation_time(mut approval: Approval, created: &str) -> Approval {
    approval.metadata.creation_timestamp = serde_json::from_value(json!(created)).unwrap();
    approval
}

fn taken_notice(outcome: &str) -> Vec<(NoticeEvent, Option<String>)> {
    vec![(NoticeEvent::Taken, Some(outcome.to_owned()))]
}

#[tokio::test(start_paused = true)]
async fn an_undelivered_outcome_is_announced_as_the_run_took_it() {
    // The run took no vote of this Approval, whatever its status says.
    let superseded = taken_notice("its votes are void, and it is asked again");
    let cases: [(&str, &[&str]); 2] = [("2030-01-01T00:30:00Z", &[]), ("2030-01-01T01:30:00Z", &[occasion::TAKEN])];
    for (through, open) in cases {
        let begun = BegunDesk::new(through, open).await;
        begun.list_approval(stored_approval(ended_status("Approved")));
        begun.list_run(run(UID, &["Superseded"]));
        assert_eq!(begun.recover().await, superseded, "{through}");
        let begun = BegunDesk::new(through, open).await;
        begun.list_run(run(UID, &["Superseded"]));
        begun.list_approval(stored_approval(ended_status("Cancelled")));
        assert_eq!(begun.recover().await, superseded, "{through}, in another order");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_without_a_record_is_announced_only_if_it_was_open() {
    let begun = BegunDesk::new("2030-01-01T00:30:00Z", &[]).await;
    begun.list_approval(stored_approval(ended_status("Approved")));
    begun.list_run(run(UID, &[]));
    assert_eq!(begun.recover().await, [], "the run has not taken it");
    let begun = BegunDesk::new("2030-01-01T00:30:00Z", &[]).await;
    begun.list_approval(stored_approval(ended_status("Approved")));
    begun.list_run(run("another", &["Rejected"]));
    assert_eq!(begun.recover().await, [], "another run of this name took another one");
    let begun = BegunDesk::new("2030-01-01T01:30:00Z", &[occasion::TAKEN]).await;
    begun.list_approval(stored_approval(ended_status("Approved")));
    begun.list_run(run(UID, &[]));
    assert_eq!(begun.recover().await, [(NoticeEvent::Taken, None)]);
}

#[tokio::test(start_paused = true)]
async fn only_an_open_gate_is_announced_again_after_a_start() {
    for through in ["2029-12-31T23:00:00Z", "2030-01-01T01:30:00Z"] {
        let begun = BegunDesk::new(through, &["asked"]).await;
        begun.list_run(run(UID, &[]));
        begun.list_approval(stored_approval(json!({})));
        assert_eq!(begun.recover().await, [(NoticeEvent::Asked, None)], "{through}");
        let begun = BegunDesk::new(through, &["asked"]).await;
        begun.list_run(run(UID, &[]));
        begun.list_approval(stored_approval(ended_status("Approved")));
        assert_eq!((begun.recover().await, begun.lost()), (Vec::new(), 0), "{through}: settled, and not lost");
    }
    let begun = BegunDesk::new("2030-01-01T01:30:00Z", &["asked"]).await;
    begun.list_run(run(UID, &[]));
    assert_eq!((begun.recover().await, begun.lost()), (Vec::new(), 1), "its Approval is gone");
}

#[tokio::test(start_paused = true)]
async fn the_latest_of_several_reminders_is_sent_again() {
    let reminded = || {
        let mut approval = stored_approval(json!({"reminders": 2}));
        approval.spec.request.timeout.reminder_interval = serde_json::from_value(json!("20m")).unwrap();
        seal(approval)
    };
    // Both notices are open, the second was never queued, or all are delivered.
    let cases: [(&str, &[&str], Option<&str>); 3] = [
        ("2030-01-01T01:30:00Z", &["reminder-0-1", "reminder-0-2"], Some("reminder-0-2")),
        ("2030-01-01T00:30:00Z", &["reminder-0-1"], Some("reminder-0-2")),
        ("2030-01-01T01:30:00Z", &[], None),
    ];
    for (through, open, expected) in cases {
        let begun = BegunDesk::new(through, open).await;
        begun.list_run(run(UID, &[]));
        begun.list_approval(reminded());
        begun.recover().await;
        let arrivals = begun.arrivals.lock().unwrap();
        let ids: Vec<_> = arrivals.iter().map(|(_, notice)| (notice.event, notice.id.clone())).collect();
        let expected = expected.map(|key| (NoticeEvent::Reminded, notice_id("uid-1", key)));
        assert_eq!((ids, begun.lost()), (expected.into_iter().collect(), 0), "{through}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_from_a_backup_causes_no_notice() {
    let restored = "2030-01-01T01:59:00Z";
    // The run has another uid, or was not restored. The copy has no status, or the status of the original.
    for run_uid in [Some("another"), None] {
        for status in [json!({}), ended_status("Superseded"), ended_status("Cancelled"), ended_status("Approved")] {
            let begun = BegunDesk::new("2030-01-01T00:30:00Z", &[]).await;
            run_uid.into_iter().for_each(|uid| begun.list_run(run(uid, &["Approved"])));
            begun.list_approval(with_creation_time(stored_approval(status.clone()), restored));
            assert_eq!(begun.recover().await, [], "{run_uid:?} {status}");
        }
    }
    // The operator ends the copy, but the original may have ended otherwise.
    let begun = BegunDesk::new("2030-01-01T00:30:00Z", &[]).await;
    begun.recover().await;
    let mut copy = with_creation_time(stored_approval(ended_status("Cancelled")), restored);
    copy.status.as_mut().unwrap().outcome.as_mut().unwrap().decided_at = Some(at("2030-01-01T02:00:00Z"));
    announce(&begun, &copy, GateEvent::Decided(ApprovalPhase::Cancelled));
    assert!(begun.deliver().await.is_empty());
}

fn announce(begun: &BegunDesk, approval: &Approval, event: GateEvent) {
    let announcement = Announcement::about(About::Approval(&approval.metadata))
        .gate(Occurrence::stored(event, approval))
        .object(StoredObject::Approval(approval));
    assert!(announcement.event.is_some());
    begun.scope().on_announcement(&announcement);
}

#[tokio::test(start_paused = true)]
async fn an_approval_announces_its_cancellation_only_without_a_run() {
    for (run_uid, expected) in [(Some(UID), 0), (None, 1)] {
        let begun = BegunDesk::new("2030-01-01T01:30:00Z", &[]).await;
        run_uid.into_iter().for_each(|uid| begun.list_run(run(uid, &[])));
        assert_eq!(begun.recover().await, []);
        announce(&begun, &stored_approval(ended_status("Cancelled")), GateEvent::Decided(ApprovalPhase::Cancelled));
        assert_eq!(begun.deliver().await.len(), expected, "{run_uid:?}: a run that is there tells it itself");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_waits_for_the_labels_of_its_namespace_for_a_time() {
    let asked = stored_approval(json!({}));
    for labels in [Some("prod"), None] {
        let begun = BegunDesk::new("2030-01-01T01:30:00Z", &[]).await;
        begun.scope().end_recovery();
        announce(&begun, &asked, GateEvent::Asked);
        let until = begun.desk.unrouted_until().unwrap();
        assert!(begun.deliver().await.is_empty() && begun.desk.are_waiting(&Name::new("pay", "w")), "{labels:?}");
        begun.scope().queue_unrouted();
        assert_eq!(begun.desk.unrouted_until(), Some(until), "nothing is known yet");
        match labels {
            Some(env) => {
                begun.objects.policies.add_namespace("pay", BTreeMap::from([("env".to_owned(), env.to_owned())]))
            }
            None => tokio::time::sleep_until(until).await,
        }
        begun.scope().queue_unrouted();
        assert_eq!(begun.desk.unrouted_until(), None);
        let mut channels = begun.deliver().await;
        channels.sort_unstable();
        let expected: &[&str] = if labels.is_some() { &["all", "prod"] } else { &["all"] };
        assert_eq!(channels, expected, "{labels:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_wait_for_labels_are_bounded() {
    let begun = BegunDesk::new("2030-01-01T01:30:00Z", &[]).await;
    begun.scope().end_recovery();
    let asked = stored_approval(json!({}));
    let request = occasion::of_gate(&Occurrence::stored(GateEvent::Asked, &asked).unwrap(), &asked).unwrap();
    let large = "x".repeat(10 * 1024 * 1024);
    for number in 0..1001 {
        begun.scope().enqueue(Occasion { uid: format!("uid-{number}"), ..request.clone() }, Origin::Live);
    }
    let waiting = || begun.desk.waiting().get("all").copied();
    assert_eq!(waiting(), Some(1), "the oldest of 1,001");
    for number in 0..2 {
        let (uid, details) = (format!("large-{number}"), Some(large.clone()));
        begun.scope().enqueue(Occasion { uid, details, ..request.clone() }, Origin::Live);
    }
    assert_eq!(waiting(), Some(1002), "all but the last, which is large");
}

#[test]
fn outcomes_are_read_for_as_long_as_a_notice_can_be_open() {
    assert!(OPEN_WITHIN > GIVEN_UP + LONGEST_PAUSE);
}
