//! A Kubernetes API server in memory, a world of effects beside it, and the failures between them, under paused time.
//! Admission, schemas and authentication are not simulated: they are tested on a real control plane.
//!
//! ```text
//! let server = ApiServer::new();
//! let world = World::new(server.clock());
//! server.crash_after_write(3, "operator");
//! let operator = |life: Incarnation| run(server.client_of(&life), world.seat(&life), server.clock().closure());
//! server.keep_alive(&["operator"], Duration::from_secs(3600), operator, |server| all_done(server)).await?;
//! ```
//!
//! Everything happens in the order in which the tasks of one thread are polled, so a test that fails fails again. Two
//! things outside of this module have no fixed order: `tokio::select!` without `biased`, and the objects that one
//! `kube::runtime::Controller` works on at the same time, which it keeps in a hash map.

mod api;
mod clock;
mod fault_controls;
mod faults;
mod garbage;
mod kubelet;
mod life;
mod log;
mod objects;
mod operator_process;
mod patch;
mod people;
mod projection;
mod route;
mod rules;
mod select;
mod serve;
mod status;
mod store;
mod watch;
mod watch_feed;
mod world;

#[cfg(test)]
mod tests;

pub use clock::{Clock, EPOCH, NowFn};
pub use faults::{Crash, EVERYONE, Fault, Hook, On};
pub use garbage::Garbage;
pub use kubelet::{KUBELET, Kubelet, Turn};
pub use life::Incarnation;
pub use log::{Entry, Outcome, Request, Verb};
pub use operator_process::Stuck;
pub use people::Person;
pub use serve::Connection;
pub use status::Refusal;
pub use store::{Key, Resource};
pub use watch::Ending;
pub use world::{Answer, Effect, EffectCrash, EffectKey, Failure, Seat, World};

use std::collections::BTreeMap;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The server; clones are the same server.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    feed: Arc<watch_feed::ChangeFeed>,
    clock: Clock,
    /// The seconds by which the clocks of the operators' machines are ahead of the server's.
    machines_ahead: AtomicI64,
}

pub(crate) struct State {
    api: api::Api,
    faults: faults::Faults,
    streams: watch::Streams,
    log: log::Log,
    lives: BTreeMap<String, Vec<Incarnation>>,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl ApiServer {
    /// Returns an empty server whose clock starts now; call it inside of a runtime with paused time.
    pub fn new() -> Self {
        // The jitter of kube's backoffs comes from this thread's generator.
        fastrand::seed(0);
        let clock = Clock::start();
        let api = api::Api {
            store: store::Store::default(),
            clock,
            defaults: Arc::new(objects::defaults),
            garbage: Garbage::default(),
            pages: BTreeMap::new(),
            logs: BTreeMap::new(),
        };
        let state = State {
            api,
            faults: faults::Faults::default(),
            streams: watch::Streams::default(),
            log: log::Log::default(),
            lives: BTreeMap::new(),
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                feed: Arc::default(),
                clock,
                machines_ahead: AtomicI64::new(0),
            }),
        }
    }

    /// Returns the simulation's clock, which is the server's.
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// Returns the clock of an operator's machine, which can be wrong.
    pub fn machine_clock(&self) -> NowFn {
        let server = self.clone();
        Arc::new(move || {
            let ahead = SignedDuration::from_secs(server.inner.machines_ahead.load(Ordering::Relaxed));
            server.clock().now() + ahead
        })
    }

    /// Sets the clocks of all machines but the server's, by the seconds that they are ahead.
    pub fn set_machines_ahead(&self, seconds: i64) {
        self.inner.machines_ahead.store(seconds, Ordering::Relaxed);
    }

    /// Begins an actor's next life. An earlier life of the actor goes on until it is killed, so that two operators can
    /// run at once.
    pub fn incarnation(&self, actor: &str) -> Incarnation {
        self.with(|state| {
            let lives = state.lives.entry(actor.to_owned()).or_default();
            let life = Incarnation::new(actor, lives.len() as u64 + 1);
            lives.push(life.clone());
            life
        })
    }

    /// Returns a client of a new incarnation of `actor`, in the namespace `default`.
    pub fn client(&self, actor: &str) -> kube::Client {
        self.client_of(&self.incarnation(actor))
    }

    /// Returns a client of this life; all clients of one life die together.
    pub fn client_of(&self, life: &Incarnation) -> kube::Client {
        kube::Client::new(self.connection(life), "default")
    }

    /// Returns the service under a client, for callers that add layers of their own.
    pub fn connection(&self, life: &Incarnation) -> Connection {
        Connection::new(self.clone(), life.clone())
    }

    /// Returns every request so far, in order.
    pub fn log(&self) -> Vec<Entry> {
        self.with(|state| state.log.entries().to_vec())
    }

    /// Returns every request so far that could change an object, whatever its outcome.
    pub fn writes(&self) -> Vec<Entry> {
        self.with(|state| state.log.entries().iter().filter(|entry| entry.verb.writes()).cloned().collect())
    }

    /// Returns the number of requests so far for which `wanted` is true.
    pub fn count(&self, wanted: impl Fn(&Entry) -> bool) -> usize {
        self.with(|state| state.log.entries().iter().filter(|entry| wanted(entry)).count())
    }

    /// Returns the log in readable form, a line for each request.
    pub fn story(&self) -> String {
        self.with(|state| state.log.entries().iter().map(|entry| entry.line() + "\n").collect())
    }

    /// Returns the number of watches that are open now.
    pub fn open_watches(&self) -> usize {
        self.with(|state| state.streams.open)
    }

    /// Returns an object as it is stored, without faults and without a line in the log.
    pub fn value(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        let key = Key { resource: resource.clone(), namespace: namespace.to_owned(), name: name.to_owned() };
        self.with(|state| state.api.store.get(&key).map(|version| version.object.clone()))
    }

    /// Returns all objects of a kind, of one namespace or of all (`None`), ordered by namespace and name.
    pub fn values(&self, resource: &Resource, namespace: Option<&str>) -> Vec<Value> {
        self.with(|state| {
            state.api.store.list(resource, namespace).map(|(_, version)| version.object.clone()).collect()
        })
    }

    /// Returns an object as its type, or `None` if it does not exist.
    ///
    /// # Errors
    /// The object cannot be read as `K`.
    pub fn get<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, serde_json::Error>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.value(&Resource::of::<K>(), namespace, name).map(serde_json::from_value).transpose()
    }

    /// Waits until an object exists for which `done` is true, and returns the object. Checks after each change of the
    /// server, and never because time passes.
    pub async fn until(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        done: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut changes = self.listen();
        loop {
            changes.mark_seen();
            if let Some(object) = self.value(resource, namespace, name).filter(|object| done(object)) {
                return object;
            }
            changes.changed().await;
        }
    }

    /// Waits until `done` is true for the server as a whole. Checks after each change and each new fault, and never
    /// because time passes.
    pub async fn until_all(&self, done: impl Fn(&Self) -> bool) {
        let mut changes = self.listen();
        loop {
            changes.mark_seen();
            if done(self) {
                return;
            }
            changes.changed().await;
        }
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // A test that panicked under the lock has failed already; the other tests can still use the state.
        act(&mut self.inner.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state, and wakes all tasks that wait for a change.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let value = self.with(act);
        self.inner.feed.notify();
        value
    }

    pub(crate) fn listen(&self) -> watch_feed::Listener {
        self.inner.feed.listener()
    }
}
