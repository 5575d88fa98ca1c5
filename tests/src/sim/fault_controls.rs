//! What a test may do to the server: set faults, end watches, edit objects behind everyone's back.
//! Each is one call in plain words; none of it goes through the log.

use std::time::Duration;

use serde_json::{Value, json};

use super::ApiServer;
use super::faults::{Crash, Fault, On};
use super::garbage::{self, Garbage};
use super::log::{Request, Verb};
use super::objects::{self, metadata};
use super::status::Refusal;
use super::store::{Key, Resource};
use super::watch::Ending;

/// Requests that go wrong.
impl ApiServer {
    /// Sets a fault; the requests it is about are counted from now.
    pub fn fault(&self, on: On, fault: Fault) {
        self.with(|state| state.faults.add(on, fault));
    }

    /// Nothing goes wrong any more, in requests and in streams.
    pub fn heal(&self) {
        self.change(|state| {
            state.faults.clear();
            state.streams.clear();
        });
    }

    /// The actor dies at its n-th write from now: the write is stored, its answer never comes.
    pub fn crash_after_write(&self, n: u64, actor: &str) {
        self.crash_at_write(n, actor, Crash::Applied);
    }

    /// The actor dies at its n-th write from now, in the way that `crash` says.
    pub fn crash_at_write(&self, n: u64, actor: &str, crash: Crash) {
        self.fault(On::writes_of(actor).nth(n), Fault::Crash(crash));
    }

    /// The n-th write from now is stored, its sender sees a broken connection.
    pub fn lose_response(&self, n: u64, actor: &str) {
        self.fault(On::writes_of(actor).nth(n), Fault::LoseResponse);
    }

    /// Each k-th PUT, PATCH or DELETE of the actor is refused as a conflict, though nobody changed anything.
    pub fn conflict_every(&self, k: u64, actor: &str) {
        self.fault(On::writes_of(actor).only(not_a_creation).every(k), Fault::Conflict);
    }

    /// Before each k-th PUT, PATCH or DELETE of the actor somebody edits a label of that object, so that it really
    /// conflicts.
    pub fn edit_labels_before_every(&self, k: u64, actor: &str) {
        self.fault(On::writes_of(actor).only(not_a_creation).every(k), Fault::LabelEdit);
    }

    /// Runs `hook` before the actor's n-th write from now is applied.
    pub fn before_write(&self, n: u64, actor: &str, hook: impl FnMut(&ApiServer) + Send + 'static) {
        self.fault(On::writes_of(actor).nth(n), Fault::before(hook));
    }

    /// The actor's next k requests, of any kind, are refused.
    pub fn refuse_next(&self, k: u64, actor: &str, refusal: Refusal) {
        self.fault(On::requests_of(actor).first(k), Fault::Refuse(refusal));
    }

    /// Answers to the actor's writes come this much after their effect; its watches may be ahead of them.
    pub fn slow_responses(&self, actor: &str, delay: Duration) {
        self.fault(On::writes_of(actor), Fault::SlowResponse(delay));
    }
}

/// Lives that end.
impl ApiServer {
    /// The actor dies now, whichever of its lives it is in.
    pub fn kill(&self, actor: &str) {
        let lives = self.with(|state| state.lives.get(actor).cloned().unwrap_or_default());
        for life in lives {
            life.kill();
        }
    }
}

/// Streams that go wrong. The actor may be [`super::EVERYONE`]; a rule for one actor hides everyone's.
impl ApiServer {
    /// Every open watch of the actor ends now.
    pub fn drop_watches(&self, actor: &str) {
        self.end_watches(actor, Ending::Closed);
    }

    /// Every open watch of the actor ends now, in the way that `ending` says.
    pub fn end_watches(&self, actor: &str, ending: Ending) {
        self.change(|state| state.streams.end(actor, ending));
    }

    /// Each watch of the actor ends after this many events; what comes first in a stream (a list) does not count.
    pub fn close_watches_after(&self, actor: &str, events: u64) {
        self.change(|state| state.streams.rule(actor).close_after = Some(events));
    }

    /// Every event comes twice.
    pub fn duplicate_events(&self, actor: &str) {
        self.change(|state| state.streams.rule(actor).duplicate = true);
    }

    /// Every event comes this much late: caches are stale by as much.
    pub fn delay_events(&self, actor: &str, delay: Duration) {
        self.change(|state| state.streams.rule(actor).delay = delay);
    }

    /// No events come until [`ApiServer::release_events`].
    pub fn hold_events(&self, actor: &str) {
        self.change(|state| state.streams.rule(actor).held = true);
    }

    /// No events of one kind come to the actor until [`ApiServer::release_events`].
    pub fn hold_events_of(&self, actor: &str, kind: &Resource) {
        self.change(|state| state.streams.held_kinds.push((actor.to_owned(), kind.clone())));
    }

    /// Events that were held back come now.
    pub fn release_events(&self, actor: &str) {
        self.change(|state| {
            state.streams.rule(actor).held = false;
            state.streams.held_kinds.retain(|(who, _)| who != actor);
        });
    }

    /// The next k events never come. A watch goes on as if nothing were missing; only a new list shows it.
    pub fn lose_events(&self, actor: &str, k: u64) {
        self.change(|state| state.streams.rule(actor).lose = k);
    }

    /// History is forgotten and all watches end: whoever opens one where it left off is told 410 and must list again.
    pub fn expire_resource_versions(&self) {
        self.change(|state| {
            state.api.store.compact();
            state.api.pages.clear();
            state.streams.end(super::EVERYONE, Ending::Closed);
        });
    }
}

/// Objects behind everyone's back.
impl ApiServer {
    /// Stores an object as it is, status included, under its own name and namespace; replaces one that is there.
    /// uid, creationTimestamp and generation are filled in where they are missing. The plural is formed from the kind.
    ///
    /// # Errors
    /// When the object has no kind, apiVersion or name.
    pub fn insert(&self, mut object: Value) -> Result<Value, Refusal> {
        let resource = Resource::of_object(&object);
        let created = self.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let given = metadata(&mut object)?;
        let text = |field: &str| given.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = Key { resource, namespace: text("namespace"), name: text("name") };
        if key.name.is_empty() {
            return Err(Refusal::invalid(&key, "metadata.name: Required value"));
        }
        Ok(self.change(|state| {
            let uid = state.api.store.get(&key).map(|version| version.meta("uid").to_owned());
            let uid = uid.unwrap_or_else(|| state.api.store.next_uid());
            for (field, value) in [("uid", json!(uid)), ("creationTimestamp", json!(created)), ("generation", json!(1))]
            {
                if object["metadata"][field].is_null() {
                    object["metadata"][field] = value;
                }
            }
            (state.api.defaults)(&key.resource, &mut object);
            state.api.store.put(&key, object).object.clone()
        }))
    }

    /// Edits an object in any way; returns it, or `None` if it is not there. A change of what is wanted is a new
    /// generation.
    pub fn edit(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Option<Value> {
        let key = Key { resource: resource.clone(), namespace: namespace.to_owned(), name: name.to_owned() };
        self.change(|state| {
            let old = state.api.store.get(&key)?.object.clone();
            let mut new = old.clone();
            edit(&mut new);
            objects::count_generation(&key.resource, &old, &mut new);
            Some(state.api.store.put(&key, new).object.clone())
        })
    }

    /// Takes an object away at once, past finalizers; its dependents go as the garbage collector is set. False if it
    /// was not there.
    pub fn remove(&self, resource: &Resource, namespace: &str, name: &str) -> bool {
        let key = Key { resource: resource.clone(), namespace: namespace.to_owned(), name: name.to_owned() };
        self.change(|state| {
            let gone = state.api.store.remove(&key).is_some();
            if gone && state.api.garbage == Garbage::AtOnce {
                garbage::collect(&mut state.api.store, state.api.clock);
            }
            gone
        })
    }

    /// Says when dependents follow their owners.
    pub fn garbage(&self, when: Garbage) {
        self.with(|state| state.api.garbage = when);
    }

    /// Runs the garbage collector once; returns how many objects went.
    pub fn collect_garbage(&self) -> usize {
        self.change(|state| garbage::collect(&mut state.api.store, state.api.clock))
    }

    /// Adds defaults that are applied to every object that is written, after those of Signoff's own kinds.
    pub fn default_with(&self, defaults: impl Fn(&Resource, &mut Value) + Send + Sync + 'static) {
        self.with(|state| {
            let before = std::sync::Arc::clone(&state.api.defaults);
            state.api.defaults = std::sync::Arc::new(move |resource, object| {
                before(resource, object);
                defaults(resource, object);
            });
        });
    }

    /// What the container of a Pod with this uid wrote.
    pub(crate) fn write_log(&self, uid: &str, text: &str) {
        self.with(|state| state.api.logs.insert(uid.to_owned(), text.to_owned()));
    }

    /// Somebody edits a label, as a person or a Git tool would: the version moves on, the generation does not.
    pub(crate) fn touch(&self, key: &Key) {
        self.change(|state| {
            let number = state.api.store.number();
            if let Some(version) = state.api.store.get(key) {
                let mut object = version.object.clone();
                object["metadata"]["labels"]["example.com/touched"] = json!(number.to_string());
                state.api.store.put(key, object);
            }
        });
    }
}

fn not_a_creation(request: &Request) -> bool {
    request.verb != Verb::Create
}
