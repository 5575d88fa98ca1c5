//! Receivers of notices in a simulation: they outlive operators, answer as a test decides, and record arrivals and
//! their times.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use signoff_api::Moment;
use signoff_cluster::ServerClock;
use signoff_controller::{metrics::SharedMetrics, notices::ConfigMapStore};
use signoff_notify::{
    Channel, ChannelConfig, Config, MessageHandle, Notice, NoticeEvent, Notices, Recipient, SendError,
    delivery::NoticeParts,
};
use signoff_tests::sim::{Clock, Incarnation};
use tempfile::TempDir;

/// The namespace of the operator's own objects.
pub const OPERATORS_NAMESPACE: &str = "signoff-system";
/// The longest time from a delivery until it is stored.
pub const UNSTORED: Duration = Duration::from_millis(1100);

/// The answer of a receiver to one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// The notice is delivered.
    Taken,
    /// A later attempt may succeed.
    Busy,
    /// No attempt will succeed.
    Refused,
    /// The operator dies before the notice arrives.
    DiesBefore,
    /// The notice arrives, and the operator dies before it gets the answer.
    DiesAfter,
}

/// An attempt, as the receiver sees it.
pub struct Attempted<'a> {
    pub to: &'a Recipient,
    pub notice: &'a Notice,
    /// The number of the attempt, from 1.
    pub number: usize,
}

/// A notice that was received.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub channel: String,
    pub to: Recipient,
    pub notice: Notice,
    pub at: Moment,
}

impl Arrival {
    /// Returns the channel, the user who got it (empty for the channel itself) and the event.
    pub fn line(&self) -> (&str, &str, NoticeEvent) {
        (&self.channel, user(&self.to), self.notice.event)
    }
}

/// Returns the user to whom an address belongs.
pub fn user(to: &Recipient) -> &str {
    match to {
        Recipient::Channel => "",
        Recipient::Person(address) => address.split('@').next().unwrap_or_default(),
    }
}

type Answers = dyn FnMut(&Attempted<'_>) -> Reception + Send;

struct State {
    arrived: Vec<Arrival>,
    attempts: usize,
    /// The times at which operators began.
    began: Vec<Moment>,
    answers: Box<Answers>,
    /// The time that each attempt takes.
    takes: Duration,
}

/// The receivers of all channels; clones are the same receivers.
#[derive(Clone)]
pub struct Receivers {
    state: Arc<Mutex<State>>,
    /// The folder of the administrator's files.
    folder: Arc<TempDir>,
    clock: Clock,
}

impl Receivers {
    /// Returns receivers that accept everything, with routes to these channels. `mail` goes to people, every other
    /// channel is a webhook; `finance` has no route, and authors may add it.
    pub fn new(clock: Clock, channels: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let people = "users:\n  alice: {mail: alice@example.com}\n  bob: {mail: bob@example.com}\n  dana: {mail: dana@example.com}\n  \
                      olga: {mail: olga@example.com}\n";
        for (name, text) in [("url", "https://hook.example.com"), ("people.yaml", people)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        std::fs::write(folder.path().join("notices.yaml"), config(folder.path(), channels)).unwrap();
        let answers = Box::new(|_: &Attempted<'_>| Reception::Taken);
        let takes = Duration::from_millis(1);
        let state = State { arrived: Vec::new(), attempts: 0, began: Vec::new(), answers, takes };
        Self { state: Arc::new(Mutex::new(state)), folder: Arc::new(folder), clock }
    }

    /// Returns the path of the administrator's file.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("notices.yaml")
    }

    /// Sets how attempts are answered from now on.
    pub fn answer(&self, answers: impl FnMut(&Attempted<'_>) -> Reception + Send + 'static) {
        self.state.lock().unwrap().answers = Box::new(answers);
    }

    /// Accepts everything from now on.
    pub fn heal(&self) {
        self.answer(|_| Reception::Taken);
    }

    /// Sets how long each attempt takes.
    pub fn take(&self, time: Duration) {
        self.state.lock().unwrap().takes = time;
    }

    /// Returns the notices that arrived so far, in order.
    pub fn arrived(&self) -> Vec<Arrival> {
        self.state.lock().unwrap().arrived.clone()
    }

    /// Returns the number of attempts so far.
    pub fn attempts(&self) -> usize {
        self.state.lock().unwrap().attempts
    }

    /// Returns the notices of one operator.
    pub fn notices(
        &self,
        life: &Incarnation,
        client: kube::Client,
        clock: &ServerClock,
        metrics: &SharedMetrics,
    ) -> Arc<Notices> {
        self.state.lock().unwrap().began.push(self.clock.now().into());
        let (receivers, life, clock) = (self.clone(), life.clone(), clock.clone());
        let metrics = SharedMetrics::clone(metrics);
        Arc::new(Notices::new(NoticeParts {
            file: self.file(),
            clock: Arc::new(move || clock.now()),
            store: Arc::new(ConfigMapStore::new(client, OPERATORS_NAMESPACE)),
            build: Arc::new(move |channel: &ChannelConfig, _: &Config| {
                let (receivers, life, name) = (receivers.clone(), life.clone(), channel.name.clone());
                let channel: Arc<dyn Channel> = Arc::new(SimulatedChannel { receivers, life, name });
                Ok(channel)
            }),
            count: Arc::new(move |channel: &str, result| metrics.count_notice(channel, result)),
        }))
    }

    fn receive(&self, channel: &str, notice: &Notice, to: &Recipient) -> Reception {
        let mut locked = self.state.lock().unwrap();
        let state = &mut *locked;
        state.attempts += 1;
        let number = state.attempts;
        let reception = (state.answers)(&Attempted { to, notice, number });
        if matches!(reception, Reception::Taken | Reception::DiesAfter) {
            let (channel, to, notice) = (channel.to_owned(), to.clone(), notice.clone());
            state.arrived.push(Arrival { channel, to, notice, at: self.clock.now().into() });
        }
        reception
    }

    /// Asserts the laws after any deaths of operators: the notices of one Approval or run arrived in their order, and
    /// only those that arrived at most a second before a death arrived again.
    pub fn check(&self, what: &str) {
        let state = self.state.lock().unwrap();
        let mut first_of: BTreeMap<_, &Arrival> = BTreeMap::new();
        let mut latest_of: BTreeMap<_, &Arrival> = BTreeMap::new();
        for arrival in &state.arrived {
            let Arrival { channel, to, notice, at } = arrival;
            let first = *first_of.entry((channel, to, &notice.id)).or_insert(arrival);
            if !std::ptr::eq(first, arrival) {
                let is_unstored = |began: &Moment| *began >= first.at && began.since(first.at) <= UNSTORED;
                let line = arrival.line();
                assert!(state.began.iter().any(is_unstored), "{what}: {line:?} at {at} again: {first:?}");
                let repeated = Notice { at: first.notice.at, ..notice.clone() };
                assert_eq!(repeated, first.notice, "{what}: a repetition is equal");
                continue;
            }
            let latest = latest_of.entry((channel, to, &notice.correlation)).or_insert(arrival);
            let lines = (latest.line(), arrival.line());
            assert!(latest.notice.at <= notice.at, "{what}: out of order: {lines:?}");
            *latest = arrival;
        }
    }
}

/// Returns the text of the administrator's file.
fn config(folder: &Path, channels: &[&str]) -> String {
    let (url, people) = (folder.join("url"), folder.join("people.yaml"));
    let channel = |name: &&str| match *name {
        "mail" => "- {name: mail, smtp: {url: \"smtps://mail.example.com\", from: signoff@example.com}}\n".to_owned(),
        name => format!(
            "- {{name: {name}, authors: {}, webhook: {{urlFile: {}, format: cloudevents}}}}\n",
            name == "finance",
            url.display()
        ),
    };
    let all: String = channels.iter().map(channel).collect();
    let routed: Vec<_> = channels.iter().filter(|name| **name != "finance").copied().collect();
    let routes = if routed.is_empty() { String::new() } else { format!("routes: [{{to: [{}]}}]\n", routed.join(", ")) };
    let people = people.display();
    format!("inbox: https://signoff.example.com\nchannels:\n{all}people: {{file: {people}}}\n{routes}")
}

/// A channel of one operator.
struct SimulatedChannel {
    receivers: Receivers,
    life: Incarnation,
    name: String,
}

#[async_trait]
impl Channel for SimulatedChannel {
    async fn send(
        &self,
        notice: &Notice,
        to: &Recipient,
        _: Option<&MessageHandle>,
    ) -> Result<Option<MessageHandle>, SendError> {
        let takes = self.receivers.state.lock().unwrap().takes;
        tokio::time::sleep(takes).await;
        // A dead process sends nothing.
        if !self.life.is_alive() {
            return std::future::pending().await;
        }
        match self.receivers.receive(&self.name, notice, to) {
            Reception::Taken => Ok(None),
            Reception::Busy => Err(SendError::Later { why: "busy".to_owned(), after: None }),
            Reception::Refused => Err(SendError::Dead { why: "refused".to_owned() }),
            Reception::DiesBefore | Reception::DiesAfter => {
                self.life.kill();
                std::future::pending().await
            }
        }
    }
}
