//! Objects and their versions: one counter for all kinds, and the history that watches read. No write is refused here;
//! the callers check requests first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

/// A kind of object as a path names it, without the version, because each kind is served in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The API group, empty for the core.
    pub group: String,
    /// The plural, in lower case.
    pub plural: String,
}

impl Resource {
    /// Returns a resource, for example `Resource::new("signoff.dev", "approvals")`.
    pub fn new(group: impl Into<String>, plural: impl Into<String>) -> Self {
        Self { group: group.into(), plural: plural.into() }
    }

    /// Returns the resource of a kube type.
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self::new(K::group(&()), K::plural(&()))
    }

    /// Returns the resource of an object that names its own apiVersion and kind; the plural is formed as in English.
    pub fn of_object(object: &Value) -> Self {
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let kind = text("kind").to_lowercase();
        let plural = match kind.strip_suffix('y') {
            Some(stem) if !kind.ends_with("ey") => format!("{stem}ies"),
            _ if kind.ends_with('s') => format!("{kind}es"),
            _ => format!("{kind}s"),
        };
        Self::new(group, plural)
    }

    /// Returns whether the kind comes from a CustomResourceDefinition, judging by its group.
    pub(crate) fn is_custom(&self) -> bool {
        let built_in = ["apps", "batch", "autoscaling", "policy", "extensions"];
        !self.group.is_empty() && !self.group.ends_with(".k8s.io") && !built_in.contains(&self.group.as_str())
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

/// The key of an object. The order is that of lists: by kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The kind of the object.
    pub resource: Resource,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name, unique for its kind and namespace.
    pub name: String,
}

/// One version of one object. It is serialized once, at the write: reads and watches share the text.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) object: Value,
    pub(crate) json: Bytes,
}

impl Version {
    /// Returns a version that is sent to a client and never stored.
    pub(crate) fn draft(object: Value) -> Arc<Self> {
        let json = Bytes::from(object.to_string());
        Arc::new(Self { object, json })
    }

    pub(crate) fn meta(&self, field: &str) -> &str {
        self.object["metadata"][field].as_str().unwrap_or_default()
    }

    /// Returns the uids of the owners of the object.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &str> {
        let owners = self.object["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str())
    }
}

/// One change in the history. A deletion has its own number and the last state of the object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) number: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Version>>,
    pub(crate) after: Arc<Version>,
    pub(crate) deleted: bool,
    pub(crate) at: Instant,
}

/// All objects, and the history of their changes.
#[derive(Debug, Default)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Arc<Version>>,
    /// The uids of the objects.
    alive: BTreeSet<String>,
    history: Vec<Change>,
    /// The newest resourceVersion.
    number: u64,
    /// The oldest resourceVersion from which a watch can begin.
    oldest: u64,
    /// The number of uids so far.
    uids: u64,
    /// The number of generated names so far.
    names: u64,
}

impl Store {
    /// Returns the newest resourceVersion.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the oldest resourceVersion from which a watch can begin.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Version>> {
        self.objects.get(key)
    }

    /// Returns the objects of a kind, of one namespace or of all, in the order of their keys.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &'a Resource,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Version>)> {
        let first = Key {
            resource: resource.clone(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: String::new(),
        };
        let is_listed =
            move |key: &Key| key.resource == *resource && namespace.is_none_or(|namespace| key.namespace == namespace);
        self.objects.range(first..).take_while(move |(key, _)| is_listed(key))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Version>)> {
        self.objects.iter()
    }

    /// Writes an object under a new resourceVersion; the caller ensured that `metadata` is an object.
    pub(crate) fn put(&mut self, key: &Key, object: Value) -> Arc<Version> {
        let before = self.objects.get(key).cloned();
        let after = self.next_version(object);
        self.alive.insert(after.meta("uid").to_owned());
        self.record(key, before, &after, false);
        self.objects.insert(key.clone(), Arc::clone(&after));
        after
    }

    /// Removes an object and returns it with the deletion's resourceVersion.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Version>> {
        let before = self.objects.remove(key)?;
        self.alive.remove(before.meta("uid"));
        let after = self.next_version(before.object.clone());
        self.record(key, Some(before), &after, true);
        Some(after)
    }

    /// Forgets all history: every earlier resourceVersion is now too old for a watch.
    pub(crate) fn compact(&mut self) {
        self.number += 1;
        self.oldest = self.number;
    }

    /// Returns the index in the history of the first change after a resourceVersion.
    pub(crate) fn position_after(&self, number: u64) -> usize {
        self.history.partition_point(|change| change.number <= number)
    }

    pub(crate) fn change(&self, position: usize) -> Option<&Change> {
        self.history.get(position)
    }

    /// Returns whether an object has owners and none of them exists.
    pub(crate) fn is_orphan(&self, version: &Version) -> bool {
        version.owners().next().is_some() && !version.owners().any(|uid| self.alive.contains(uid))
    }

    /// Returns whether the last change may have left work for the garbage collector.
    pub(crate) fn left_garbage(&self) -> bool {
        self.history.last().is_some_and(|change| change.deleted || self.is_orphan(&change.after))
    }

    /// Returns a new uid, which ends with the number of uids so far.
    pub(crate) fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    /// Returns the five characters after `generateName`.
    pub(crate) fn next_suffix(&mut self) -> String {
        self.names += 1;
        format!("{:05x}", self.names)
    }

    fn next_version(&mut self, mut object: Value) -> Arc<Version> {
        self.number += 1;
        object["metadata"]["resourceVersion"] = json!(self.number.to_string());
        Version::draft(object)
    }

    fn record(&mut self, key: &Key, before: Option<Arc<Version>>, after: &Arc<Version>, deleted: bool) {
        self.history.push(Change {
            number: self.number,
            key: key.clone(),
            before,
            after: Arc::clone(after),
            deleted,
            at: Instant::now(),
        });
    }
}
