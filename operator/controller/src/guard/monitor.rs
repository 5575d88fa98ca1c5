//! Inspects the admission policies whenever one of their objects changes *(I/O)*. After a change they count as in force
//! only when every API server refuses a forged request.
//!
//! After a gap in a watch everything is inspected again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, Stream, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use signoff_admission::policies::Identity;
use signoff_admission::{Inspection, inspect, probe, serves_mutating_policies};
use signoff_cluster::{
    ServerClock,
    error::{plain, status_code},
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{Baseline, GuardEpoch, GuardMode, GuardSettings, GuardStatus, persisted_state::PersistedState, publish};
use crate::metrics::SharedMetrics;

/// The delay of the probe after a change, because each API server receives the change by a watch of its own.
const SETTLE: Duration = Duration::from_secs(5);
/// The time limit of the answer to a forged request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The result that another server answered requests for objects of Signoff, so that this process must end.
pub(crate) struct ForeignApiServer;

/// The task that inspects the admission policies and publishes their status.
pub(crate) struct GuardMonitor {
    pub(crate) client: Client,
    pub(crate) mode: GuardMode,
    pub(crate) status: watch::Sender<GuardStatus>,
    pub(crate) doubt: Arc<Notify>,
    pub(crate) clock: ServerClock,
    pub(crate) metrics: SharedMetrics,
}

/// The kind of the object that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyChange {
    /// An object of the guard, or an object that may belong to the guard. No decision is counted until the inspection.
    Ours,
    /// A mutating webhook or policy of others.
    External,
}

type ChangeStream = stream::BoxStream<'static, PolicyChange>;

impl GuardMonitor {
    /// Runs until another server has answered requests for objects of Signoff.
    pub(crate) async fn run(self) -> ForeignApiServer {
        match &self.mode {
            GuardMode::Assumed(epoch) => {
                let epoch = epoch.as_str().into();
                self.publish(GuardStatus::InForce(GuardEpoch {
                    epoch,
                    since: Timestamp::MIN,
                    external_mutators: Arc::default(),
                    baseline: None,
                }));
                std::future::pending().await
            }
            GuardMode::Checked(settings) => {
                let mutating = self.retry(|| serves_mutating_policies(&self.client)).await;
                let changes = watch_changes(&self.client, mutating);
                let state = MonitorState {
                    monitor: &self,
                    settings,
                    mutating,
                    changes,
                    changed: None,
                    tried: None,
                    memory: None,
                };
                state.run().await
            }
        }
    }

    /// Publishes a status, also to the metrics.
    fn publish(&self, now: GuardStatus) {
        self.metrics.set_guard_status(&now);
        publish(&self.status, now);
    }

    /// Asks, and asks again after a pause until the API server answers. Publishes meanwhile that the policies cannot be
    /// read.
    async fn retry<T, F: Future<Output = Result<T, kube::Error>>>(&self, ask: impl Fn() -> F) -> T {
        let mut pause = Duration::from_millis(250);
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => {
                    let why = format!("the admission policies cannot be read: {}", plain(&error));
                    // If the server cannot be reached, the objects are only compared again later.
                    let refused = status_code(&error).is_some_and(|code| code < 500 && code != 429);
                    self.publish(if refused { GuardStatus::broken(why) } else { GuardStatus::inspecting(why) });
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The state of the running monitor.
struct MonitorState<'k> {
    monitor: &'k GuardMonitor,
    settings: &'k GuardSettings,
    mutating: bool,
    changes: ChangeStream,
    /// The time at which this process last received a change.
    changed: Option<Instant>,
    /// The epoch in which this process saw every API server refuse a forged request.
    tried: Option<String>,
    memory: Option<PersistedState>,
}

impl MonitorState<'_> {
    async fn run(mut self) -> ForeignApiServer {
        let mut was_elsewhere = false;
        loop {
            let (client, mutating) = (&self.monitor.client, self.mutating);
            let inspection = self.monitor.retry(|| inspect(client, mutating)).await;
            if was_elsewhere && !inspection.is_elsewhere() {
                return ForeignApiServer;
            }
            was_elsewhere = inspection.is_elsewhere();
            let problems = self.problems_of(&inspection);
            let effect = match &inspection.identity {
                Some(identity) if problems.is_empty() => self.establish(&inspection, identity).await,
                Some(identity) => self.publish_not_in_force(problems, identity).await,
                None => {
                    self.monitor.publish(GuardStatus::Broken(problems.into()));
                    InspectionEffect::Applied
                }
            };
            if effect == InspectionEffect::Applied {
                self.wait_for_change().await;
            }
        }
    }

    /// Returns the problems of an inspection. In strict mode, a mutating webhook or policy of others is a problem.
    fn problems_of(&self, inspection: &Inspection) -> Vec<String> {
        let mut problems = inspection.problems();
        if self.settings.strict && !inspection.external_mutators.is_empty() {
            problems.push(format!(
                "{} can change a vote before it is stored: exclude the API group signoff.dev in its rules",
                inspection.external_mutators.join(", ")
            ));
        }
        problems
    }

    /// Waits for the next change, and drops the further changes that have arrived. Publishes that the policies are
    /// inspected if the change can concern them.
    async fn wait_for_change(&mut self) {
        let mut change = tokio::select! {
            Some(change) = self.changes.next() => change,
            () = self.monitor.doubt.notified() => PolicyChange::Ours,
        };
        // One upgrade changes many objects. One inspection covers all changes so far.
        while let Some(Some(more)) = self.changes.next().now_or_never() {
            change = if more == PolicyChange::Ours { more } else { change };
        }
        if change == PolicyChange::Ours || self.settings.strict {
            self.changed = Some(Instant::now());
            if self.monitor.status.borrow().is_in_force() {
                self.monitor.publish(GuardStatus::inspecting("the admission policies may have been changed"));
            }
        }
    }

    /// Publishes that the policies are not in force, and stores the interruption, because not every cause changes an
    /// object.
    async fn publish_not_in_force(&mut self, problems: Vec<String>, identity: &Identity) -> InspectionEffect {
        self.monitor.publish(GuardStatus::Broken(problems.into()));
        let memory = self.load_state(identity).await;
        if memory.in_force.take().is_some() {
            memory.interruptions += 1;
            self.store_state(identity).await;
        }
        InspectionEffect::Applied
    }

    /// Publishes that the policies are in force. A new epoch first needs a refusal by every API server, and is stored.
    /// Publishes nothing if an object changes meanwhile.
    async fn establish(&mut self, inspection: &Inspection, identity: &Identity) -> InspectionEffect {
        let memory = self.load_state(identity).await.clone();
        let epoch = match inspection.versions.epoch(memory.interruptions) {
            Ok(epoch) => epoch,
            Err(why) => {
                self.monitor.publish(GuardStatus::broken(format!("the guard's epoch cannot be generated: {why}")));
                return InspectionEffect::Applied;
            }
        };
        let known = memory.in_force.filter(|(known, _)| *known == epoch).map(|(_, since)| since);
        let first = inspection.changed_at.filter(|_| memory.blank);
        if self.tried.as_ref() != Some(&epoch) {
            let wait = match (known, first) {
                (Some(_), _) => Duration::ZERO,
                (None, Some(changed)) => SETTLE.saturating_sub(self.age(changed)),
                (None, None) => SETTLE.saturating_sub(self.changed.map_or(Duration::ZERO, |at| at.elapsed())),
            };
            let Some(refused) = self.wait_until_refused(wait, identity).await else {
                return InspectionEffect::Interrupted;
            };
            self.tried = Some(epoch.clone());
            if known.is_none() {
                let since = first.map_or(refused, |changed| refused.min(changed + SETTLE));
                let memory = self.load_state(identity).await;
                memory.in_force = Some((epoch.clone(), since));
                memory.blank = false;
                self.store_state(identity).await;
            }
        }
        let since = self.load_state(identity).await.in_force.as_ref().map_or(Timestamp::MAX, |(_, since)| *since);
        let baseline = Baseline { versions: inspection.versions.clone(), mutating: self.mutating };
        self.monitor.publish(GuardStatus::InForce(GuardEpoch {
            epoch: epoch.into(),
            since,
            external_mutators: inspection.external_mutators.clone().into(),
            baseline: Some(Arc::new(baseline)),
        }));
        InspectionEffect::Applied
    }

    /// Returns the time since `at` by the operator's clock, or zero if `at` is in the future.
    fn age(&self, at: Timestamp) -> Duration {
        self.monitor.clock.now().duration_since(at).try_into().unwrap_or(Duration::ZERO)
    }

    /// Waits, then sends forged requests until every API server refuses them. Returns the time of the refusal, or
    /// `None` if an object changed meanwhile.
    async fn wait_until_refused(&mut self, wait: Duration, identity: &Identity) -> Option<Timestamp> {
        let mut again = Instant::now() + wait;
        let mut pause = Duration::from_secs(1);
        if !wait.is_zero() {
            let why = format!("the admission policies were changed; they are tested in {} s", wait.as_secs() + 1);
            self.monitor.publish(GuardStatus::inspecting(why));
        }
        loop {
            let monitor = self.monitor;
            let each = self.settings.each_server.as_ref();
            let attempt = async {
                sleep_until(again).await;
                probe_every_server(&monitor.client, each, identity).await
            };
            tokio::select! {
                () = self.wait_for_change() => return None,
                tried = attempt => match tried {
                    Ok(at) => return Some(at.unwrap_or_else(|| monitor.clock.now())),
                    Err(why) => monitor.publish(GuardStatus::broken(why)),
                },
            }
            again = Instant::now() + pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Returns the persisted state, loaded once by this process.
    async fn load_state(&mut self, identity: &Identity) -> &mut PersistedState {
        let remembered = match self.memory.take() {
            Some(memory) => memory,
            None => {
                let (client, namespace) = (&self.monitor.client, &identity.namespace);
                self.monitor.retry(|| PersistedState::load(client, namespace)).await
            }
        };
        self.memory.insert(remembered)
    }

    /// Stores the persisted state.
    async fn store_state(&mut self, identity: &Identity) {
        let (client, memory) = (&self.monitor.client, self.load_state(identity).await.clone());
        self.monitor.retry(|| memory.store(client, &identity.namespace)).await;
    }
}

/// Whether the result of an inspection was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InspectionEffect {
    /// The result was published.
    Applied,
    /// An object changed before the result was published.
    Interrupted,
}

/// Sends forged requests to each API server. Returns the time of the refusals, by the earliest of their clocks.
async fn probe_every_server(
    client: &Client,
    each: Option<&kube::Config>,
    operator: &Identity,
) -> Result<Option<Timestamp>, String> {
    let mut earliest: Option<Timestamp> = None;
    for (name, client) in probe::servers(client, each).await? {
        let answer = timeout(ANSWER_TIMEOUT, probe::forged(&client, operator)).await;
        let answer = answer.map_err(|_| format!("{name} does not answer within {ANSWER_TIMEOUT:?}"))?;
        match answer.map_err(|error| format!("{name} cannot be asked: {}", plain(&error)))? {
            probe::Answer::Refused(at) => earliest = earliest.into_iter().chain(at).min(),
            probe::Answer::Otherwise(what) => return Err(format!("{name} does not enforce the policies: {what}")),
        }
    }
    Ok(earliest)
}

/// Watches the kinds of the guard's objects, and the kinds by which others can change a vote.
fn watch_changes(client: &Client, mutating: bool) -> ChangeStream {
    let mut all: Vec<ChangeStream> = vec![
        watch_kind::<ValidatingAdmissionPolicy>(client, None),
        watch_kind::<ValidatingAdmissionPolicyBinding>(client, None),
        watch_kind::<CustomResourceDefinition>(client, None),
        watch_kind::<APIService>(client, None),
        watch_kind::<MutatingWebhookConfiguration>(client, Some(PolicyChange::External)),
    ];
    if mutating {
        all.push(watch_kind::<MutatingAdmissionPolicy>(client, Some(PolicyChange::External)));
        all.push(watch_kind::<MutatingAdmissionPolicyBinding>(client, Some(PolicyChange::External)));
    }
    stream::select_all(all).boxed()
}

/// Returns the changes of a kind's objects. `others`: the change that an object of others means, if any.
fn watch_kind<K>(client: &Client, others: Option<PolicyChange>) -> ChangeStream
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let events =
        watcher(Api::<PartialObjectMeta<K>>::all(client.clone()), watcher::Config::default()).default_backoff();
    changes_of(events, signoff_admission::names(), others).boxed()
}

/// Converts the events of a watch to changes. `ours`: the names of the guard's objects.
fn changes_of<K: ResourceExt + Send>(
    events: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send,
    ours: &'static BTreeSet<String>,
    others: Option<PolicyChange>,
) -> impl Stream<Item = PolicyChange> + Send {
    events.filter_map(move |event| {
        let change =
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => {
                    if ours.contains(&object.name_any()) { Some(PolicyChange::Ours) } else { others }
                }
                // The whole list was read again, so any object may have changed.
                Ok(watcher::Event::InitDone) => Some(PolicyChange::Ours),
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) | Err(_) => None,
            };
        futures::future::ready(change)
    })
}
