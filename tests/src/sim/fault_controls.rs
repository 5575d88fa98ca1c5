//! The controls of a test over the server: faults, the end of watches, and edits of objects. None of them is logged.

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

/// Faults of requests.
impl ApiServer {
    /// Sets a fault; the requests that match it are counted from now.
    pub fn fault(&self, on: On, fault: Fault) {
        self.with(|state| state.faults.add(on, fault));
    }

    /// Removes all faults of requests and streams.
    pub fn heal(&self) {
        self.change(|state| {
            state.faults.clear();
            state.streams.clear();
        });
    }

    /// Kills the actor at its n-th write from now: the write is stored, and its answer never comes.
    pub fn crash_after_write(&self, n: u64, actor: &str) {
        self.crash_at_write(n, actor, Crash::Applied);
    }

    /// Kills the actor at its n-th write from now, in the way of `crash`.
    pub fn crash_at_write(&self, n: u64, actor: &str, crash: Crash) {
        self.fault(On::writes_of(actor).nth(n), Fault::Crash(crash));
    }

    /// Breaks the connection at the actor's n-th write from now, after the write is stored.
    pub fn lose_response(&self, n: u64, actor: &str) {
        self.fault(On::writes_of(actor).nth(n), Fault::LoseResponse);
    }

    /// Refuses each k-th PUT, PATCH or DELETE of the actor as a conflict, although the object was not changed.
    pub fn conflict_every(&self, k: u64, actor: &str) {
        self.fault(On::writes_of(actor).only(not_a_creation).every(k), Fault::Conflict);
    }

    /// Edits a label of the object before each k-th PUT, PATCH or DELETE of the actor, so that the write really
    /// conflicts.
    pub fn edit_labels_before_every(&self, k: u64, actor: &str) {
        self.fault(On::writes_of(actor).only(not_a_creation).every(k), Fault::LabelEdit);
    }

    /// Runs `hook` before the actor's n-th write from now is applied.
    pub fn before_write(&self, n: u64, actor: &str, hook: impl FnMut(&ApiServer) + Send + 'static) {
        self.fault(On::writes_of(actor).nth(n), Fault::before(hook));
    }

    /// Refuses the actor's next k requests, of any kind.
    pub fn refuse_next(&self, k: u64, actor: &str, refusal: Refusal) {
        self.fault(On::requests_of(actor).first(k), Fault::Refuse(refusal));
    }

    /// Delays the answers to the actor's writes, so that its watches may be ahead of them.
    pub fn slow_responses(&self, actor: &str, delay: Duration) {
        self.fault(On::writes_of(actor), Fault::SlowResponse(delay));
    }
}

/// Ends of lives.
impl ApiServer {
    /// Kills all lives of the actor now.
    pub fn kill(&self, actor: &str) {
        let lives = self.with(|state| state.lives.get(actor).cloned().unwrap_or_default());
        for life in lives {
            life.kill();
        }
    }
}

/// Faults of streams. The actor may be [`super::EVERYONE`]; a rule for one actor hides the rule for all.
impl ApiServer {
    /// Ends every open watch of the actor now.
    pub fn drop_watches(&self, actor: &str) {
        self.end_watches(actor, Ending::Closed);
    }

    /// Ends every open watch of the actor now, in the way of `ending`.
    pub fn end_watches(&self, actor: &str, ending: Ending) {
        self.change(|state| state.streams.end(actor, ending));
    }

    /// Ends each watch of the actor after this many events; a list at the beginning of a stream does not count.
    pub fn close_watches_after(&self, actor: &str, events: u64) {
        self.change(|state| state.streams.rule(actor).close_after = Some(events));
    }

    /// Sends every event to the actor twice.
    pub fn duplicate_events(&self, actor: &str) {
        self.change(|state| state.streams.rule(actor).duplicate = true);
    }

    /// Delays every event to the actor, so that its caches are stale by this duration.
    pub fn delay_events(&self, actor: &str, delay: Duration) {
        self.change(|state| state.streams.rule(actor).delay = delay);
    }

    /// Holds back all events to the actor until [`ApiServer::release_events`].
    pub fn hold_events(&self, actor: &str) {
        self.change(|state| state.streams.rule(actor).held = true);
    }

    /// Holds back the actor's events of one kind until [`ApiServer::release_events`].
    pub fn hold_events_of(&self, actor: &str, kind: &Resource) {
        self.change(|state| state.streams.held_kinds.push((actor.to_owned(), kind.clone())));
    }

    /// Sends the actor the events that were held back, now.
    pub fn release_events(&self, actor: &str) {
        self.change(|state| {
            state.streams.rule(actor).held = false;
            state.streams.held_kinds.retain(|(held_for, _)| held_for != actor);
        });
    }

    /// Drops the next k events to the actor. The watch goes on as if nothing were missing; only a new list shows the
    /// changes.
    pub fn lose_events(&self, actor: &str, k: u64) {
        self.change(|state| state.streams.rule(actor).lose = k);
    }

    /// Forgets the history and ends all watches: a client that resumes a watch gets 410 and must list again.
    pub fn expire_resource_versions(&self) {
        self.change(|state| {
            state.api.store.compact();
            state.api.pages.clear();
            state.streams.end(super::EVERYONE, Ending::Closed);
        });
    }
}

/// Edits of objects without a request.
impl ApiServer {
    /// Stores an object as it is, status included, under its own name and namespace; replaces an existing one. A
    /// missing uid, creationTimestamp or generation is filled in. The plural is formed from the kind.
    ///
    /// # Errors
    /// The object has no kind, apiVersion or name.
    pub fn insert(&self, mut object: Value) -> Result<Value, Refusal> {
        let resource = Resource::of_object(&object);
        let created = self.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let metadata = metadata(&mut object)?;
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
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

    /// Edits an object in any way and returns it, or `None` if it does not exist. A change outside of metadata and
    /// status is a new generation.
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

    /// Removes an object at once, despite finalizers; its dependents follow according to the garbage setting. Returns
    /// false if it did not exist.
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

    /// Sets the time at which dependents follow their owners.
    pub fn garbage(&self, when: Garbage) {
        self.with(|state| state.api.garbage = when);
    }

    /// Runs the garbage collector once and returns the number of objects that were removed.
    pub fn collect_garbage(&self) -> usize {
        self.change(|state| garbage::collect(&mut state.api.store, state.api.clock))
    }

    /// Adds defaults for every written object, which are applied after the defaults of Signoff's own kinds.
    pub fn default_with(&self, defaults: impl Fn(&Resource, &mut Value) + Send + Sync + 'static) {
        self.with(|state| {
            let earlier = std::sync::Arc::clone(&state.api.defaults);
            state.api.defaults = std::sync::Arc::new(move |resource, object| {
                earlier(resource, object);
                defaults(resource, object);
            });
        });
    }

    /// Sets the log of the container of the Pod with this uid.
    pub(crate) fn write_log(&self, uid: &str, text: &str) {
        self.with(|state| state.api.logs.insert(uid.to_owned(), text.to_owned()));
    }

    /// Edits a label, as a person or a Git tool would: the version changes, and the generation does not.
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
