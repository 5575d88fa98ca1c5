//! The API itself: answers a request from the store. Faults and crashes are handled before a request arrives here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::clock::Clock;
use super::garbage::{self, Garbage};
use super::log::{Request, Verb};
use super::objects::{Defaults, Deleted, Preconditions, Writes, metadata};
use super::patch::apply_patch;
use super::projection::Projection;
use super::rules;
use super::select::Filter;
use super::status::Refusal;
use super::store::{Key, Store, Version};
use super::watch::Opening;

/// An answer before it is sent.
pub(crate) enum Answer {
    Body(u16, Bytes),
    Refused(Refusal),
    Watch(Box<Opening>),
}

impl Answer {
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Body(code, _) => *code,
            Self::Refused(refusal) => refusal.code,
            Self::Watch(_) => 200,
        }
    }

    fn of(answer: Result<Self, Refusal>) -> Self {
        answer.unwrap_or_else(Self::Refused)
    }
}

/// The rest of a list that is read in pages, as it was when the first page was read.
#[derive(Clone)]
pub(crate) struct Page {
    number: u64,
    rest: VecDeque<Bytes>,
}

/// The store with the settings that shape its answers.
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) defaults: Defaults,
    pub(crate) garbage: Garbage,
    pub(crate) pages: BTreeMap<String, Page>,
    /// The logs of containers, by the uids of their Pods.
    pub(crate) logs: BTreeMap<String, String>,
}

impl Api {
    /// Applies a request, and collects the garbage that it leaves.
    pub(crate) fn apply(&mut self, request: &Request) -> Answer {
        let before = self.store.number();
        let answer = Answer::of(self.answer(request));
        if self.garbage == Garbage::AtOnce && self.store.number() != before && self.store.left_garbage() {
            garbage::collect(&mut self.store, self.clock);
        }
        answer
    }

    fn answer(&mut self, request: &Request) -> Result<Answer, Refusal> {
        if request.resource.plural.is_empty() {
            let version =
                json!({"major": "1", "minor": "36", "gitVersion": "v1.36.2-simulated", "platform": "simulated"});
            return Ok(Answer::Body(200, version.to_string().into()));
        }
        let status = match request.subresource.as_deref() {
            None => false,
            Some("log") if request.verb == Verb::Get && request.resource.plural == "pods" => {
                return self.read_log(request);
            }
            Some("status") if request.verb != Verb::Create => true,
            Some(other) => return Err(Refusal::unsupported(&format!("the subresource {other}"))),
        };
        match request.verb {
            Verb::Get => self.get(request),
            Verb::List => self.list(request),
            Verb::Watch => Ok(Answer::Watch(Box::new(Opening::read(&self.store, request, parse_filter(request)?)?))),
            Verb::Create
                if matches!(request.resource.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io") =>
            {
                review(request)
            }
            Verb::Create => {
                let object = parse_body(request)?;
                rules::check(&self.store, &request.resource, &object)?;
                let namespace = request.namespace.clone().unwrap_or_default();
                let name = request.name.as_deref().unwrap_or_default();
                rules::check_namespace(&self.store, &request.resource, name, &namespace)?;
                let created = self.writes(request).create(&request.resource, &namespace, object)?;
                Ok(Answer::Body(201, Projection::of(request).bytes(&created)))
            }
            Verb::Update => {
                let (key, object) = (key_of(request)?, parse_body(request)?);
                let version = self.writes(request).update(&key, status, object)?;
                Ok(Answer::Body(200, Projection::of(request).bytes(&version)))
            }
            Verb::Patch => {
                let key = key_of(request)?;
                let current = Arc::clone(self.store.get(&key).ok_or_else(|| Refusal::not_found(&key))?);
                let object = apply_patch(&current.object, request)?;
                let version = self.writes(request).update(&key, status, object)?;
                Ok(Answer::Body(200, Projection::of(request).bytes(&version)))
            }
            Verb::Delete => self.delete(request, &key_of(request)?),
            Verb::DeleteCollection => self.delete_collection(request),
        }
    }

    fn get(&self, request: &Request) -> Result<Answer, Refusal> {
        let key = key_of(request)?;
        let version = self.store.get(&key).ok_or_else(|| Refusal::not_found(&key))?;
        Ok(Answer::Body(200, Projection::of(request).bytes(version)))
    }

    /// Returns the last lines of a container's log, or an error before the container has ended.
    fn read_log(&self, request: &Request) -> Result<Answer, Refusal> {
        let key = key_of(request)?;
        let pod = self.store.get(&key).ok_or_else(|| Refusal::not_found(&key))?;
        let Some(log) = self.logs.get(pod.meta("uid")) else {
            let why = format!("container \"step\" in pod \"{}\" is waiting to start: ContainerCreating", key.name);
            return Err(Refusal::bad_request(why));
        };
        let lines: Vec<&str> = log.split_inclusive('\n').collect();
        let last = request.parameter("tailLines").parse().unwrap_or(usize::MAX).min(lines.len());
        Ok(Answer::Body(200, lines[lines.len() - last..].concat().into()))
    }

    /// Returns the objects that are left to send: all selected ones, or the rest of an earlier page.
    fn read_page(&self, request: &Request, projection: Projection) -> Result<Page, Refusal> {
        match request.parameter("continue") {
            "" => {
                let filter = parse_filter(request)?;
                let selected = self.store.list(&filter.resource, filter.namespace.as_deref());
                let selected = selected.filter(|(_, version)| filter.selects(version));
                let rest = selected.map(|(_, version)| projection.bytes(version)).collect();
                Ok(Page { number: self.store.number(), rest })
            }
            // The page stays, because the client may read it again.
            token => self.pages.get(token).cloned().ok_or_else(|| {
                Refusal::new(
                    410,
                    "Expired",
                    "The provided continue parameter is too old to display a consistent list result.",
                )
            }),
        }
    }

    fn list(&mut self, request: &Request) -> Result<Answer, Refusal> {
        let projection = Projection::of(request);
        let mut page = self.read_page(request, projection)?;
        let limit = request.parameter("limit").parse().ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let items: Vec<Bytes> = page.rest.drain(..limit.min(page.rest.len())).collect();
        let mut list_meta = json!({"resourceVersion": page.number.to_string()});
        if !page.rest.is_empty() {
            let token = format!("{}-{}-{}", page.number, self.pages.len(), page.rest.len());
            list_meta["continue"] = json!(token);
            list_meta["remainingItemCount"] = json!(page.rest.len());
            self.pages.insert(token, page);
        }
        let kind = projection.kind(&self.store, request);
        let mut text = format!(
            "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{}\",\"metadata\":{list_meta},\"items\":[",
            projection.api_version(request)
        )
        .into_bytes();
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(item);
        }
        text.extend_from_slice(b"]}");
        Ok(Answer::Body(200, text.into()))
    }

    fn delete(&mut self, request: &Request, key: &Key) -> Result<Answer, Refusal> {
        let options = if request.body.is_empty() { Value::Null } else { parse_body(request)? };
        let precondition = |field: &str| options["preconditions"][field].as_str().map(str::to_owned);
        let grace = options["gracePeriodSeconds"].as_i64();
        let only_if = Preconditions { uid: precondition("uid"), version: precondition("resourceVersion"), grace };
        let orphan = options["propagationPolicy"] == "Orphan" || options["orphanDependents"] == true;
        let deleted = self.writes(request).delete(key, &only_if)?;
        match deleted {
            Deleted::Waiting(version) => Ok(Answer::Body(200, Projection::of(request).bytes(&version))),
            Deleted::Gone(version) => {
                if orphan && !request.flag("dryRun") {
                    self.release_dependents(version.meta("uid"));
                }
                let details = json!({"name": key.name, "group": key.resource.group, "kind": key.resource.plural, "uid": version.meta("uid")});
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
                Ok(Answer::Body(200, status.to_string().into()))
            }
        }
    }

    fn delete_collection(&mut self, request: &Request) -> Result<Answer, Refusal> {
        let filter = parse_filter(request)?;
        let selected = self.store.list(&filter.resource, filter.namespace.as_deref());
        let keys: Vec<Key> =
            selected.filter(|(_, version)| filter.selects(version)).map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.delete(request, key)?;
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        Ok(Answer::Body(200, status.to_string().into()))
    }

    /// Removes an owner, by its uid, from the objects that depend on it, so that they stay.
    fn release_dependents(&mut self, uid: &str) {
        let dependents = self.store.all().filter(|(_, version)| version.owners().any(|owner| owner == uid));
        let dependents: Vec<(Key, Arc<Version>)> =
            dependents.map(|(key, version)| (key.clone(), Arc::clone(version))).collect();
        for (key, version) in dependents {
            let mut object = version.object.clone();
            if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
                owners.retain(|owner| owner["uid"] != uid);
            }
            self.store.put(&key, object);
        }
    }

    fn writes(&mut self, request: &Request) -> Writes<'_> {
        let dry_run = request.parameter("dryRun") == "All";
        Writes { store: &mut self.store, clock: self.clock, defaults: &self.defaults, dry_run }
    }
}

fn key_of(request: &Request) -> Result<Key, Refusal> {
    request.key().ok_or_else(|| {
        Refusal::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    })
}

fn parse_filter(request: &Request) -> Result<Filter, Refusal> {
    let mut fields = request.parameter("fieldSelector").to_owned();
    if let Some(name) = &request.name {
        // The path of one object selects that object by its name.
        fields = format!("metadata.name={name},{fields}");
    }
    Filter::new(request.resource.clone(), request.namespace.clone(), request.parameter("labelSelector"), &fields)
}

fn parse_body(request: &Request) -> Result<Value, Refusal> {
    let object: Value = serde_json::from_slice(&request.body).map_err(|error| {
        Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error}",
            request.resource
        ))
    })?;
    if object.is_object() { Ok(object) } else { Err(Refusal::bad_request("the object provided is no object")) }
}

/// Answers an access review, which is not stored. Everything is allowed, because no authorization is simulated.
fn review(request: &Request) -> Result<Answer, Refusal> {
    let mut review = parse_body(request)?;
    metadata(&mut review)?;
    let mut user = json!({"username": *request.actor, "groups": ["system:authenticated"]});
    if request.actor.starts_with("system:serviceaccount:") {
        // Tokens of service accounts are bound to a pod, and each life has its own.
        let pod = format!("pod-{}", request.incarnation);
        user["extra"] = json!({"authentication.kubernetes.io/pod-name": [pod]});
    }
    review["status"] = json!({"allowed": true, "userInfo": user});
    Ok(Answer::Body(201, review.to_string().into()))
}
