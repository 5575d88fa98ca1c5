//! Tests of whole processes on a simulated clock: crashes between a commit and a send, crashes between a send and the
//! write of the watermark, and many notices of which a part fails.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use signoff_api::{Moment, gate::GateType};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    channel::{Channel, MessageHandle, Recipient, SendError},
    delivery::{ChangedApprovals, NoticeParts, NoticeResult, NoticeStanding, Notices, Origin, StateStore, StoredState},
    failures::Failure,
    notice::{Notice, NoticeEvent},
    routes::Occasion,
};

/// A receiver of notices, which outlives the processes.
#[derive(Default)]
struct Receiver {
    got: Mutex<Vec<(Notice, Moment)>>,
    /// The runs whose notices fail.
    refused: Mutex<BTreeSet<String>>,
    /// The share of attempts that fail.
    percent_failing: u8,
    dice: Mutex<Option<fastrand::Rng>>,
    is_away: Mutex<bool>,
}

struct SimulatedChannel {
    receiver: Arc<Receiver>,
    start: Instant,
}

#[async_trait]
impl Channel for SimulatedChannel {
    async fn send(
        &self,
        notice: &Notice,
        _: &Recipient,
        _: Option<&MessageHandle>,
    ) -> Result<Option<MessageHandle>, SendError> {
        sleep(Duration::from_millis(1)).await;
        let busy = || Err(SendError::Later { why: "busy".to_owned(), after: None });
        if *self.receiver.is_away.lock().unwrap() || self.receiver.refused.lock().unwrap().contains(&notice.run) {
            return busy();
        }
        let roll = self.receiver.dice.lock().unwrap().get_or_insert_with(|| fastrand::Rng::with_seed(43)).u8(0..100);
        if roll < self.receiver.percent_failing {
            return busy();
        }
        self.receiver.got.lock().unwrap().push((notice.clone(), now(self.start)));
        Ok(None)
    }
}

/// The stored state in the cluster, with the times of its writes.
#[derive(Default)]
struct SimulatedStore {
    state: Mutex<StoredState>,
    writes: Mutex<Vec<Instant>>,
    /// The number of next loads that fail.
    failing_loads: Mutex<usize>,
    /// The number of next writes that fail.
    failing_writes: Mutex<usize>,
}

#[async_trait]
impl StateStore for SimulatedStore {
    async fn load(&self) -> Result<StoredState, String> {
        let mut failing = self.failing_loads.lock().unwrap();
        if *failing > 0 {
            *failing -= 1;
            return Err("no answer".to_owned());
        }
        Ok(self.state.lock().unwrap().clone())
    }

    async fn store_marks(&self, marks: &BTreeMap<String, String>) -> Result<(), String> {
        sleep(Duration::from_millis(20)).await;
        let mut failing = self.failing_writes.lock().unwrap();
        if *failing > 0 {
            *failing -= 1;
            return Err("busy".to_owned());
        }
        self.writes.lock().unwrap().push(Instant::now());
        self.state.lock().unwrap().marks = marks.clone();
        Ok(())
    }

    async fn store_handles(&self, number: usize, handles: &BTreeMap<String, String>) -> Result<(), String> {
        self.state.lock().unwrap().handles.insert(number, handles.clone());
        Ok(())
    }
}

fn now(start: Instant) -> Moment {
    let begin: Moment = serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap();
    begin.after(start.elapsed())
}

/// A cluster: the stored objects, the receiver and the stored state, which outlive the processes.
struct Cluster {
    start: Instant,
    folder: tempfile::TempDir,
    receiver: Arc<Receiver>,
    store: Arc<SimulatedStore>,
    results: Arc<Mutex<BTreeMap<NoticeResult, usize>>>,
    stored: Vec<Occasion>,
}

/// A process of the operator.
struct Process {
    notices: Arc<Notices>,
    task: JoinHandle<()>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn config(folder: &Path) -> String {
    let url = folder.join("url");
    format!(
        "channels: [{{name: hook, webhook: {{urlFile: {}, format: cloudevents}}}}]\nroutes: [{{to: [hook]}}]",
        url.display()
    )
}

impl Cluster {
    fn new(percent_failing: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("url"), "https://hook.example.com").unwrap();
        std::fs::write(folder.path().join("notices.yaml"), config(folder.path())).unwrap();
        Self {
            start: Instant::now(),
            folder,
            receiver: Arc::new(Receiver { percent_failing, ..Receiver::default() }),
            store: Arc::default(),
            results: Arc::default(),
            stored: Vec::new(),
        }
    }

    /// Returns the notices of a new process.
    fn new_notices(&self) -> Arc<Notices> {
        let (start, receiver, results) = (self.start, Arc::clone(&self.receiver), Arc::clone(&self.results));
        let store: Arc<dyn StateStore> = self.store.clone();
        Arc::new(Notices::new(NoticeParts {
            file: self.folder.path().join("notices.yaml"),
            clock: Arc::new(move || now(start).timestamp()),
            store,
            build: Arc::new(move |_, _| {
                let channel: Arc<dyn Channel> = Arc::new(SimulatedChannel { receiver: Arc::clone(&receiver), start });
                Ok(channel)
            }),
            count: Arc::new(move |_, result| *results.lock().unwrap().entry(result).or_default() += 1),
        }))
    }

    /// Starts a process, which first derives the events of all stored objects.
    async fn start_process(&self) -> Process {
        let notices = self.new_notices();
        notices.load().await;
        for occasion in &self.stored {
            if notices.may_be_due(&occasion.uid, &occasion.key, occasion.at) {
                notices.tell(occasion, &BTreeMap::new(), Origin::Derived);
            }
        }
        notices.end_recovery();
        let task = tokio::spawn(Arc::clone(&notices).run());
        Process { notices, task }
    }

    /// Stores an event without reporting it.
    fn commit(&mut self, object: usize, event: NoticeEvent) -> Occasion {
        let occasion = Occasion {
            event,
            uid: format!("uid-{object}"),
            key: format!("{event:?}"),
            namespace: format!("n{}", object % 7),
            run: format!("run-{object}"),
            approval: Some(format!("approval-{object}")),
            digest: None,
            gate: Some("review".to_owned()),
            gate_type: Some(GateType::Step),
            requester: "dana".to_owned(),
            deadline: None,
            then: None,
            outcome: None,
            details: None,
            audience: Vec::new(),
            added: Vec::new(),
            at: now(self.start),
        };
        self.stored.push(occasion.clone());
        occasion
    }

    /// Stores an event, and reports it to a process.
    fn report(&mut self, process: &Process, object: usize, event: NoticeEvent) {
        let occasion = self.commit(object, event);
        process.notices.tell(&occasion, &BTreeMap::new(), Origin::Live);
    }

    /// Returns the number of received notices, by run and event.
    fn count_received(&self) -> BTreeMap<(String, NoticeEvent), usize> {
        let mut received = BTreeMap::new();
        for (notice, _) in self.receiver.got.lock().unwrap().iter() {
            *received.entry((notice.run.clone(), notice.event)).or_default() += 1;
        }
        received
    }

    /// Returns the number of received `Asked` notices of a run.
    fn count_asked(&self, object: usize) -> usize {
        self.count_received().get(&(format!("run-{object}"), NoticeEvent::Asked)).copied().unwrap_or(0)
    }

    fn configure(&self, text: &str) {
        std::fs::write(self.folder.path().join("notices.yaml"), text).unwrap();
    }

    fn writes(&self) -> usize {
        self.store.writes.lock().unwrap().len()
    }

    fn count(&self, result: NoticeResult) -> usize {
        self.results.lock().unwrap().get(&result).copied().unwrap_or(0)
    }
}

#[tokio::test(start_paused = true)]
async fn each_notice_arrives_once_and_in_order_if_a_third_of_the_attempts_fail() {
    let mut cluster = Cluster::new(30);
    let process = cluster.start_process().await;
    for object in 0..5000 {
        cluster.report(&process, object, NoticeEvent::Asked);
        cluster.report(&process, object, NoticeEvent::Taken);
    }
    assert_eq!(process.notices.waiting().values().sum::<usize>(), 10_000);
    sleep(Duration::from_secs(3 * 3600)).await;
    let received = cluster.count_received();
    assert_eq!((received.len(), cluster.count(NoticeResult::Delivered)), (10_000, 10_000));
    assert!(received.values().all(|times| *times == 1));
    assert!(cluster.count(NoticeResult::Later) > 3000 && cluster.count(NoticeResult::Dropped) == 0);
    let mut asked = BTreeSet::new();
    for (notice, _) in cluster.receiver.got.lock().unwrap().iter() {
        let is_in_order = match notice.event == NoticeEvent::Asked {
            true => asked.insert(notice.run.clone()),
            false => asked.contains(&notice.run),
        };
        assert!(is_in_order, "{:?} of {}", notice.event, notice.run);
    }
    assert_eq!(process.notices.waiting().values().sum::<usize>(), 0);
    let writes = cluster.store.writes.lock().unwrap();
    let is_apart = |pair: &[Instant]| matches!(pair, [one, next] if *next - *one >= Duration::from_secs(1));
    assert!(writes.windows(2).all(is_apart), "at most one write a second");
}

#[tokio::test(start_paused = true)]
async fn next_process_sends_notices_of_committed_events() {
    let mut cluster = Cluster::new(0);
    let process = cluster.start_process().await;
    cluster.report(&process, 1, NoticeEvent::Asked);
    sleep(Duration::from_secs(100)).await;
    cluster.commit(2, NoticeEvent::Asked);
    drop(process);
    let _process = cluster.start_process().await;
    sleep(Duration::from_secs(10)).await;
    let times: Vec<_> = cluster.count_received().into_values().collect();
    assert_eq!(times, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn crash_repeats_at_most_the_notices_since_the_last_write() {
    let mut cluster = Cluster::new(0);
    cluster.receiver.refused.lock().unwrap().insert("run-0".to_owned());
    let mut process = cluster.start_process().await;
    cluster.report(&process, 0, NoticeEvent::Asked);
    let (mut object, mut crashes) = (1, 0);
    // The delivery of the refused run stays open through all crashes.
    for milliseconds in (0..3000).step_by(97) {
        for _ in 0..20 {
            cluster.report(&process, object, NoticeEvent::Asked);
            object += 1;
        }
        sleep(Duration::from_millis(milliseconds)).await;
        process = cluster.start_process().await;
        crashes += 1;
        sleep(Duration::from_secs(30)).await;
    }
    let received = cluster.count_received();
    assert_eq!(received.len(), object - 1, "each but the refused one");
    let mut first: BTreeMap<String, Moment> = BTreeMap::new();
    for (notice, at) in cluster.receiver.got.lock().unwrap().iter() {
        let first = *first.entry(notice.id.clone()).or_insert(*at);
        // A delivery is stored within a second, so that only a crash within that second repeats the notice.
        assert!(at.since(first) <= Duration::from_millis(1100), "{} after {:?}", notice.run, at.since(first));
    }
    assert!(received.values().all(|times| *times <= 2) && crashes == 31);
    cluster.receiver.refused.lock().unwrap().clear();
    sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!(cluster.count_received().get(&("run-0".to_owned(), NoticeEvent::Asked)), Some(&1));
    drop(process);
}

#[tokio::test(start_paused = true)]
async fn receiver_that_was_away_gets_all_notices_afterwards() {
    let mut cluster = Cluster::new(0);
    *cluster.receiver.is_away.lock().unwrap() = true;
    let process = cluster.start_process().await;
    for object in 0..400 {
        cluster.report(&process, object, NoticeEvent::Asked);
        cluster.report(&process, object, NoticeEvent::Taken);
    }
    sleep(Duration::from_secs(3600)).await;
    assert!(process.notices.failing().contains_key("hook") && process.notices.are_waiting("n1", "run-1"));
    drop(process);
    *cluster.receiver.is_away.lock().unwrap() = false;
    let process = cluster.start_process().await;
    sleep(Duration::from_secs(2 * 3600)).await;
    let received = cluster.count_received();
    assert!(received.len() == 800 && received.values().all(|times| *times == 1), "{} received", received.len());
    assert!(process.notices.failing().is_empty() && !process.notices.are_waiting("n1", "run-1"));
}

#[tokio::test(start_paused = true)]
async fn notice_is_given_up_after_a_day_across_a_crash() {
    let mut cluster = Cluster::new(0);
    cluster.receiver.refused.lock().unwrap().extend(["run-0".to_owned(), "run-1".to_owned()]);
    let process = cluster.start_process().await;
    cluster.report(&process, 0, NoticeEvent::Asked);
    cluster.report(&process, 1, NoticeEvent::Asked);
    sleep(Duration::from_secs(12 * 3600)).await;
    drop(process);
    cluster.stored.retain(|occasion| occasion.run != "run-1");
    let process = cluster.start_process().await;
    assert_eq!(cluster.count(NoticeResult::Lost), 1);
    sleep(Duration::from_secs(14 * 3600)).await;
    assert_eq!((cluster.count(NoticeResult::Dead), cluster.count(NoticeResult::Delivered)), (1, 0));
    assert!(process.notices.waiting().values().all(|waiting| *waiting == 0));
}

#[tokio::test(start_paused = true)]
async fn standing_reports_a_failing_notice_until_its_delivery() {
    let mut cluster = Cluster::new(0);
    cluster.receiver.refused.lock().unwrap().insert("run-1".to_owned());
    let process = cluster.start_process().await;
    cluster.report(&process, 1, NoticeEvent::Asked);
    cluster.report(&process, 2, NoticeEvent::Asked);
    sleep(Duration::from_secs(1)).await;
    let changed = process.notices.take_changed();
    assert_eq!(changed.names, BTreeSet::from([("n1".to_owned(), "approval-1".to_owned())]));
    assert_eq!(process.notices.take_changed(), ChangedApprovals::default());
    sleep(Duration::from_secs(90)).await;
    let standing = process.notices.standing("uid-1");
    assert!(
        standing.is_waiting && matches!(standing.failures.as_slice(), [(_, Failure::Retried { .. })]),
        "{standing:?}"
    );
    assert_eq!(process.notices.standing("uid-2"), NoticeStanding::default());
    drop(process);
    let process = cluster.start_process().await;
    assert!(process.notices.standing("uid-1").is_waiting, "what an earlier process told is kept");
    cluster.receiver.refused.lock().unwrap().clear();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(process.notices.take_changed().names.len(), 1);
    let standing = process.notices.standing("uid-1");
    assert!(!standing.is_waiting && standing.failures == [("hook".to_owned(), Failure::Recovered)], "{standing:?}");
}

#[tokio::test(start_paused = true)]
async fn state_is_not_written_without_events() {
    let mut cluster = Cluster::new(0);
    let process = cluster.start_process().await;
    cluster.report(&process, 1, NoticeEvent::Asked);
    sleep(Duration::from_secs(60)).await;
    let writes = || cluster.store.writes.lock().unwrap().len();
    let before = writes();
    sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(writes(), before);
    drop(process);
}

#[tokio::test(start_paused = true)]
async fn sending_stops_ten_minutes_after_the_file_became_invalid() {
    let mut cluster = Cluster::new(0);
    let process = cluster.start_process().await;
    let file = cluster.folder.path().join("notices.yaml");
    std::fs::write(&file, "channels: 7").unwrap();
    sleep(Duration::from_secs(60)).await;
    cluster.report(&process, 1, NoticeEvent::Asked);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.count_received().len(), 1);
    sleep(Duration::from_secs(600)).await;
    cluster.report(&process, 2, NoticeEvent::Asked);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.count_received().len(), 1);
    std::fs::write(&file, config(cluster.folder.path())).unwrap();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.count_received().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn crash_during_the_recovery_loses_and_repeats_no_notice() {
    let mut cluster = Cluster::new(0);
    let process = cluster.start_process().await;
    cluster.report(&process, 1, NoticeEvent::Asked);
    sleep(Duration::from_secs(100)).await;
    cluster.commit(2, NoticeEvent::Asked);
    drop(process);
    sleep(Duration::from_secs(200)).await;
    let notices = cluster.new_notices();
    notices.load().await;
    let task = tokio::spawn(Arc::clone(&notices).run());
    let process = Process { notices, task };
    cluster.report(&process, 3, NoticeEvent::Asked);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.count_asked(3), 1, "it is told at once");
    drop(process);
    let _process = cluster.start_process().await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!((cluster.count_asked(1), cluster.count_asked(2), cluster.count_asked(3)), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn unreadable_state_is_not_overwritten_and_is_loaded_later() {
    let mut cluster = Cluster::new(0);
    let process = cluster.start_process().await;
    cluster.report(&process, 1, NoticeEvent::Asked);
    sleep(Duration::from_secs(100)).await;
    cluster.commit(2, NoticeEvent::Asked);
    drop(process);
    let (before, begin) = (cluster.writes(), Instant::now());
    *cluster.store.failing_loads.lock().unwrap() = 4;
    let process = cluster.start_process().await;
    assert!(begin.elapsed() < Duration::from_secs(1), "the operator does not wait for further attempts");
    cluster.report(&process, 3, NoticeEvent::Asked);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        (cluster.count_asked(1), cluster.count_asked(2), cluster.count_asked(3)),
        (1, 0, 1),
        "what is new is told"
    );
    assert_eq!(cluster.writes(), before);
    sleep(Duration::from_secs(60)).await;
    assert!(cluster.writes() > before);
    drop(process);
    let _process = cluster.start_process().await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!((cluster.count_asked(1), cluster.count_asked(2), cluster.count_asked(3)), (1, 1, 1));
    assert_eq!(cluster.count(NoticeResult::Lost), 0);
}

#[tokio::test(start_paused = true)]
async fn events_before_the_first_valid_configuration_are_sent_later() {
    let mut cluster = Cluster::new(0);
    let process = cluster.start_process().await;
    cluster.report(&process, 1, NoticeEvent::Asked);
    sleep(Duration::from_secs(100)).await;
    cluster.commit(2, NoticeEvent::Asked);
    drop(process);
    cluster.configure("channels: 7");
    let process = cluster.start_process().await;
    cluster.report(&process, 3, NoticeEvent::Asked);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.count_received().len(), 1);
    cluster.configure(&config(cluster.folder.path()));
    sleep(Duration::from_secs(20)).await;
    assert_eq!((cluster.count_asked(1), cluster.count_asked(2), cluster.count_asked(3)), (1, 1, 1));
    drop(process);
}

#[tokio::test(start_paused = true)]
async fn flush_stores_a_state_whose_write_was_cancelled() {
    let mut cluster = Cluster::new(0);
    let process = cluster.start_process().await;
    sleep(Duration::from_secs(2)).await;
    let before = cluster.writes();
    cluster.report(&process, 1, NoticeEvent::Asked);
    // The delivery takes a millisecond, and the write of the state takes 20.
    sleep(Duration::from_millis(10)).await;
    let notices = Arc::clone(&process.notices);
    drop(process);
    sleep(Duration::from_millis(50)).await;
    assert_eq!((cluster.count_asked(1), cluster.writes()), (1, before), "its write did not end");
    notices.flush().await;
    let _process = cluster.start_process().await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.count_asked(1), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_write_is_repeated_without_a_new_event() {
    let mut cluster = Cluster::new(0);
    let process = cluster.start_process().await;
    sleep(Duration::from_secs(2)).await;
    cluster.report(&process, 1, NoticeEvent::Asked);
    // The state with the delivery is written a second after the state in which the notice waited.
    sleep(Duration::from_millis(500)).await;
    *cluster.store.failing_writes.lock().unwrap() = 1;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(*cluster.store.failing_writes.lock().unwrap(), 0);
    drop(process);
    let _process = cluster.start_process().await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.count_asked(1), 1);
}

#[tokio::test(start_paused = true)]
async fn new_route_sends_no_old_events() {
    for is_reloaded in [true, false] {
        let mut cluster = Cluster::new(0);
        let all = config(cluster.folder.path());
        cluster.configure(&all.replace("{to:", "{events: [Ended], to:"));
        let process = cluster.start_process().await;
        cluster.report(&process, 1, NoticeEvent::Asked);
        sleep(Duration::from_secs(1000)).await;
        let before = cluster.writes();
        if is_reloaded {
            cluster.configure(&all);
            sleep(Duration::from_secs(100)).await;
            assert_eq!(cluster.writes(), before + 1, "one write for a new configuration");
        } else {
            process.notices.flush().await;
            cluster.configure(&all);
        }
        drop(process);
        let process = cluster.start_process().await;
        sleep(Duration::from_secs(10)).await;
        assert!(cluster.count_received().is_empty(), "reloaded: {is_reloaded}");
        cluster.report(&process, 2, NoticeEvent::Asked);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(cluster.count_asked(2), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn failing_channel_gives_up_all_its_notices_after_a_day() {
    let mut cluster = Cluster::new(0);
    *cluster.receiver.is_away.lock().unwrap() = true;
    let process = cluster.start_process().await;
    for object in 0..400 {
        cluster.report(&process, object, NoticeEvent::Asked);
    }
    sleep(Duration::from_secs(23 * 3600)).await;
    assert_eq!((cluster.count(NoticeResult::Dead), process.notices.waiting()["hook"]), (0, 400));
    sleep(Duration::from_secs(3 * 3600)).await;
    assert_eq!((cluster.count(NoticeResult::Dead), process.notices.waiting()["hook"]), (400, 0));
    for object in 0..400 {
        let standing = process.notices.standing(&format!("uid-{object}"));
        assert!(matches!(standing.failures.as_slice(), [(_, Failure::GivenUp { .. })]), "{object}: {standing:?}");
    }
}
