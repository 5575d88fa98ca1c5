//! Keeps the guard's standing true: looks whenever one of its objects changes, and after a change trusts the rules
//! again only when every API server refuses a forged request by them.
//!
//! It may not honour anything, and takes nothing for granted that happened while nobody looked.

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
use signoff_api::policies::Identity;
use signoff_guard::{Look, look, probe, serves_mutating_policies};
use signoff_runtime::Clock;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{Ground, GuardMode, GuardSettings, Guarded, Standing, memory::Memory, tell};
use crate::{
    error::{plain, status_code},
    metrics::Shared,
};

/// How long after a change its effect is waited for: every API server learns of it by a watch of its own.
const SETTLE: Duration = Duration::from_secs(5);
/// How long an API server may take to answer the forged request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest pause between two attempts at what did not work.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why the keeper stopped: this process must not go on.
pub(crate) struct Misled;

/// The task that keeps the standing true.
pub(crate) struct Keeper {
    pub(crate) client: Client,
    pub(crate) mode: GuardMode,
    pub(crate) standing: watch::Sender<Standing>,
    pub(crate) doubt: Arc<Notify>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Shared,
}

/// What a change means for the standing while it was not looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// One of the guard's own objects, or perhaps one of them: nothing is honoured until it was looked at.
    Ours,
    /// What other people do to requests.
    Foreign,
}

type Changes = stream::BoxStream<'static, Change>;

impl Keeper {
    /// Runs until this process must not go on, because another server has answered for our objects.
    pub(crate) async fn run(self) -> Misled {
        match &self.mode {
            GuardMode::Assumed(epoch) => {
                let epoch = epoch.as_str().into();
                self.tell(Standing::InForce(Guarded {
                    epoch,
                    since: Timestamp::MIN,
                    foreign: Arc::default(),
                    ground: None,
                }));
                std::future::pending().await
            }
            GuardMode::Checked(settings) => {
                let mutating = self.until(|| serves_mutating_policies(&self.client)).await;
                let changes = changes(&self.client, mutating);
                let keeping =
                    Keeping { keeper: &self, settings, mutating, changes, changed: None, tried: None, memory: None };
                keeping.go_on().await
            }
        }
    }

    fn tell(&self, now: Standing) {
        self.metrics.guarded(&now);
        tell(&self.standing, now);
    }

    /// Asks until there is an answer. What was in force and cannot be read any more is not honoured.
    async fn until<T, F: Future<Output = Result<T, kube::Error>>>(&self, ask: impl Fn() -> F) -> T {
        let mut pause = Duration::from_millis(250);
        loop {
            match ask().await {
                Ok(found) => return found,
                Err(error) => {
                    let why = format!("the admission policies cannot be read: {}", plain(&error));
                    // A server that cannot be reached is nobody's attack: what its objects say then is compared again.
                    let refused = status_code(&error).is_some_and(|code| code < 500 && code != 429);
                    self.tell(if refused { Standing::broken(why) } else { Standing::looking(why) });
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// A keeper at work.
struct Keeping<'k> {
    keeper: &'k Keeper,
    settings: &'k GuardSettings,
    mutating: bool,
    changes: Changes,
    /// When a change was last seen, in this process.
    changed: Option<Instant>,
    /// The epoch in which every API server was found to refuse a forged request, in this process.
    tried: Option<String>,
    memory: Option<Memory>,
}

impl Keeping<'_> {
    async fn go_on(mut self) -> Misled {
        let mut elsewhere = false;
        loop {
            let (client, mutating) = (&self.keeper.client, self.mutating);
            let found = self.keeper.until(|| look(client, mutating)).await;
            if elsewhere && !found.is_elsewhere() {
                return Misled;
            }
            elsewhere = found.is_elsewhere();
            let wrong = self.problems(&found);
            let seen_to = match &found.identity {
                Some(identity) if wrong.is_empty() => self.establish(&found, identity).await,
                Some(identity) => self.lose(wrong, identity).await,
                None => {
                    self.keeper.tell(Standing::Broken(wrong.into()));
                    Seen::Through
                }
            };
            if seen_to == Seen::Through {
                self.news().await;
            }
        }
    }

    fn problems(&self, found: &Look) -> Vec<String> {
        let mut wrong = found.problems();
        if self.settings.strict && !found.foreign.is_empty() {
            wrong.push(format!(
                "{} can change a vote on its way: exclude the API group signoff.dev by its rules",
                found.foreign.join(", ")
            ));
        }
        wrong
    }

    /// Waits until something changes.
    async fn news(&mut self) {
        let mut change = tokio::select! {
            Some(change) = self.changes.next() => change,
            () = self.keeper.doubt.notified() => Change::Ours,
        };
        // One upgrade changes many objects: everything that has changed by now needs one look.
        while let Some(Some(more)) = self.changes.next().now_or_never() {
            change = if more == Change::Ours { more } else { change };
        }
        if change == Change::Ours || self.settings.strict {
            self.changed = Some(Instant::now());
            if self.keeper.standing.borrow().is_in_force() {
                self.keeper.tell(Standing::looking("the admission policies may have been changed"));
            }
        }
    }

    /// Says that nothing is honoured, and remembers that it was so: not every reason leaves a mark on an object.
    async fn lose(&mut self, wrong: Vec<String>, identity: &Identity) -> Seen {
        self.keeper.tell(Standing::Broken(wrong.into()));
        let memory = self.remember(identity).await;
        if memory.in_force.take().is_some() {
            memory.interruptions += 1;
            self.store(identity).await;
        }
        Seen::Through
    }

    /// Says that the rules are in force, once that is certain.
    async fn establish(&mut self, found: &Look, identity: &Identity) -> Seen {
        let memory = self.remember(identity).await.clone();
        let epoch = match found.marks.epoch(memory.interruptions) {
            Ok(epoch) => epoch,
            Err(why) => {
                self.keeper.tell(Standing::broken(format!("the guard's epoch cannot be drawn: {why}")));
                return Seen::Through;
            }
        };
        let known = memory.in_force.filter(|(known, _)| *known == epoch).map(|(_, since)| since);
        let first = found.changed_at.filter(|_| memory.blank);
        if self.tried.as_ref() != Some(&epoch) {
            let wait = match (known, first) {
                (Some(_), _) => Duration::ZERO,
                (None, Some(changed)) => SETTLE.saturating_sub(self.age(changed)),
                (None, None) => SETTLE.saturating_sub(self.changed.map_or(Duration::ZERO, |at| at.elapsed())),
            };
            let Some(refused) = self.until_refused(wait, identity).await else { return Seen::Interrupted };
            self.tried = Some(epoch.clone());
            if known.is_none() {
                let since = first.map_or(refused, |changed| refused.min(changed + SETTLE));
                let memory = self.remember(identity).await;
                memory.in_force = Some((epoch.clone(), since));
                memory.blank = false;
                self.store(identity).await;
            }
        }
        let since = self.remember(identity).await.in_force.as_ref().map_or(Timestamp::MAX, |(_, since)| *since);
        let ground = Ground { marks: found.marks.clone(), mutating: self.mutating };
        self.keeper.tell(Standing::InForce(Guarded {
            epoch: epoch.into(),
            since,
            foreign: found.foreign.clone().into(),
            ground: Some(Arc::new(ground)),
        }));
        Seen::Through
    }

    /// How long ago something was, by the operator's clock; an instant that is still to come is now.
    fn age(&self, at: Timestamp) -> Duration {
        self.keeper.clock.now().duration_since(at).try_into().unwrap_or(Duration::ZERO)
    }

    /// Waits, then until every API server refuses a forged request: at which instant. None where something changed
    /// meanwhile.
    async fn until_refused(&mut self, wait: Duration, identity: &Identity) -> Option<Timestamp> {
        let mut again = Instant::now() + wait;
        let mut pause = Duration::from_secs(1);
        if !wait.is_zero() {
            let why = format!("the admission policies were changed; they are tried in {} s", wait.as_secs() + 1);
            self.keeper.tell(Standing::looking(why));
        }
        loop {
            let keeper = self.keeper;
            let each = self.settings.each_server.as_ref();
            let attempt = async {
                sleep_until(again).await;
                every_server_refuses(&keeper.client, each, identity).await
            };
            tokio::select! {
                () = self.news() => return None,
                tried = attempt => match tried {
                    Ok(at) => return Some(at.unwrap_or_else(|| keeper.clock.now())),
                    Err(why) => keeper.tell(Standing::broken(why)),
                },
            }
            again = Instant::now() + pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn remember(&mut self, identity: &Identity) -> &mut Memory {
        let remembered = match self.memory.take() {
            Some(memory) => memory,
            None => {
                let (client, namespace) = (&self.keeper.client, &identity.namespace);
                self.keeper.until(|| Memory::load(client, namespace)).await
            }
        };
        self.memory.insert(remembered)
    }

    async fn store(&mut self, identity: &Identity) {
        let (client, memory) = (&self.keeper.client, self.remember(identity).await.clone());
        self.keeper.until(|| memory.store(client, &identity.namespace)).await;
    }
}

/// How far a look was seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// To its end.
    Through,
    /// Something changed meanwhile.
    Interrupted,
}

/// Whether a forged request is refused by each API server: when, by the earliest of their clocks.
async fn every_server_refuses(
    client: &Client,
    each: Option<&kube::Config>,
    operator: &Identity,
) -> Result<Option<Timestamp>, String> {
    let mut earliest: Option<Timestamp> = None;
    for (name, client) in probe::servers(client, each).await? {
        let answer = timeout(PATIENCE, probe::forged(&client, operator)).await;
        let answer = answer.map_err(|_| format!("{name} does not answer within {PATIENCE:?}"))?;
        match answer.map_err(|error| format!("{name} cannot be asked: {}", plain(&error)))? {
            probe::Answer::Refused(at) => earliest = earliest.into_iter().chain(at).min(),
            probe::Answer::Otherwise(what) => return Err(format!("{name} does not go by the rules: {what}")),
        }
    }
    Ok(earliest)
}

fn changes(client: &Client, mutating: bool) -> Changes {
    let mut all: Vec<Changes> = vec![
        of::<ValidatingAdmissionPolicy>(client, None),
        of::<ValidatingAdmissionPolicyBinding>(client, None),
        of::<CustomResourceDefinition>(client, None),
        of::<APIService>(client, None),
        of::<MutatingWebhookConfiguration>(client, Some(Change::Foreign)),
    ];
    if mutating {
        all.push(of::<MutatingAdmissionPolicy>(client, Some(Change::Foreign)));
        all.push(of::<MutatingAdmissionPolicyBinding>(client, Some(Change::Foreign)));
    }
    stream::select_all(all).boxed()
}

/// Changes of the objects of a kind; `others` is what those mean that are not ours.
fn of<K>(client: &Client, others: Option<Change>) -> Changes
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let events =
        watcher(Api::<PartialObjectMeta<K>>::all(client.clone()), watcher::Config::default()).default_backoff();
    meanings(events, signoff_guard::names(), others).boxed()
}

fn meanings<K: ResourceExt + Send>(
    events: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send,
    ours: &'static BTreeSet<String>,
    others: Option<Change>,
) -> impl Stream<Item = Change> + Send {
    events.filter_map(move |event| {
        let change =
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => {
                    if ours.contains(&object.name_any()) { Some(Change::Ours) } else { others }
                }
                // A whole list was read again: any of them may have changed.
                Ok(watcher::Event::InitDone) => Some(Change::Ours),
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) | Err(_) => None,
            };
        futures::future::ready(change)
    })
}
