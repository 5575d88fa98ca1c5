//! The approval policies and labels of each namespace, from the watches of policies and namespaces.
//!
//! **Invariant:** while a policy that can apply, or the labels of a namespace, cannot be read, the policies of the
//! namespace are an error, never an incomplete list.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use signoff_api::{
    ApprovalPolicy, ClusterApprovalPolicy,
    policy::{ApprovalPolicySpec, ClusterApprovalPolicySpec},
};
use signoff_cluster::{
    kinds::{DecodedKind, Name},
    watch::{WatchEvent, follow, name_of},
};
use signoff_engine::Policies;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{deleted_namespaces::DeletedNamespaces, exit_reason::ExitReason, metrics::SharedMetrics};

/// The approval policies of a namespace, or the reason why they are unknown.
pub(crate) type KnownPolicies = Result<Arc<Policies>, String>;

/// The approval policies and the labels of all namespaces.
#[derive(Default)]
pub(crate) struct PolicyIndex {
    inner: Mutex<IndexState>,
}

#[derive(Default)]
struct IndexState {
    cluster: WatchedSet<ClusterApprovalPolicySpec>,
    own: WatchedSet<ApprovalPolicySpec>,
    namespaces: WatchedSet<BTreeMap<String, String>>,
    /// The policies that were returned last, by namespace. They show which namespaces a change affects.
    last_returned: BTreeMap<Arc<str>, KnownPolicies>,
}

/// The needed parts of the objects of one kind.
struct WatchedSet<T> {
    objects: BTreeMap<Name, Result<T, String>>,
    /// The names in the list that is being read, so far.
    listed: Option<BTreeSet<Name>>,
    /// Whether the first list is complete.
    complete: bool,
}

impl<T> Default for WatchedSet<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: None, complete: false }
    }
}

impl<T> WatchedSet<T> {
    fn apply<K: DecodedKind>(&mut self, event: WatchEvent<K>, metrics: &SharedMetrics, keep: impl Fn(K) -> T) {
        match event {
            WatchEvent::Listing => self.listed = Some(BTreeSet::new()),
            WatchEvent::Listed(object) => {
                let name = Name::of(&*object);
                if let Some(listed) = &mut self.listed {
                    listed.insert(name.clone());
                }
                self.objects.insert(name, Ok(keep(*object)));
            }
            WatchEvent::ListDone(_) => {
                if let Some(listed) = self.listed.take() {
                    self.objects.retain(|name, _| listed.contains(name));
                }
                self.complete = true;
            }
            WatchEvent::Applied(object) => {
                self.objects.insert(Name::of(&*object), Ok(keep(*object)));
            }
            WatchEvent::Deleted(meta) => {
                self.objects.remove(&name_of(&meta));
            }
            WatchEvent::Unreadable { meta, why, .. } => {
                let name = name_of(&meta);
                metrics.count_unreadable(K::KIND);
                tracing::error!(kind = K::KIND, %name, "cannot be read, so nothing begins where it might hold: {why}");
                if let Some(listed) = &mut self.listed {
                    listed.insert(name.clone());
                }
                self.objects.insert(name, Err(why));
            }
            WatchEvent::Broken { why, unknown_kind: true } => {
                tracing::info!(kind = K::KIND, "waiting until the API server knows the kind: {why}");
            }
            WatchEvent::Broken { why, .. } => {
                tracing::warn!(kind = K::KIND, "the watch broke and is opened again: {why}");
            }
        }
    }
}

impl PolicyIndex {
    fn lock(&self) -> MutexGuard<'_, IndexState> {
        // Every change leaves the maps consistent, so a poisoned lock can be used.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every first list is complete. No policy is read before.
    pub(crate) fn is_complete(&self) -> bool {
        let inner = self.lock();
        inner.cluster.complete && inner.own.complete && inner.namespaces.complete
    }

    /// Returns the approval policies of a namespace, and keeps them to find the namespaces that a later change affects.
    pub(crate) fn known_policies(&self, namespace: &Arc<str>) -> KnownPolicies {
        let mut inner = self.lock();
        if let Some(known) = inner.last_returned.get(namespace) {
            return known.clone();
        }
        let known = inner.policies_of(namespace);
        inner.last_returned.insert(Arc::clone(namespace), known.clone());
        known
    }

    /// Returns the labels of a namespace, or `None` if the watch has not received it. A namespace that cannot be read
    /// has no labels.
    pub(crate) fn labels(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        let inner = self.lock();
        let received = inner.namespaces.objects.get(&Name::new("", namespace))?;
        Some(received.as_ref().ok().cloned().unwrap_or_default())
    }

    /// Applies a change. Computes the policies of each namespace whose policies were returned before, and returns the
    /// namespaces whose policies have changed.
    fn apply_change(&self, take: impl FnOnce(&mut IndexState)) -> Vec<Arc<str>> {
        let mut inner = self.lock();
        take(&mut inner);
        let mut changed = Vec::new();
        for namespace in inner.last_returned.keys().cloned().collect::<Vec<_>>() {
            let known = inner.policies_of(&namespace);
            if inner.last_returned.get(&namespace) != Some(&known) {
                changed.push(Arc::clone(&namespace));
                inner.last_returned.insert(namespace, known);
            }
        }
        changed
    }
}

#[cfg(test)]
impl PolicyIndex {
    /// Adds a namespace, as its watch does.
    pub(crate) fn add_namespace(&self, name: &str, labels: BTreeMap<String, String>) {
        self.lock().namespaces.objects.insert(Name::new("", name), Ok(labels));
    }
}

impl IndexState {
    /// Returns the policies of a namespace, or the reason why they are unknown.
    fn policies_of(&self, namespace: &str) -> KnownPolicies {
        let unreadable = |kind: &str, name: &str, why: &str| {
            format!("{kind} {name} cannot be read, so its requirements are unknown: correct or delete it ({why})")
        };
        let mut cluster = Vec::new();
        for (name, policy) in &self.cluster.objects {
            let spec = policy.as_ref().map_err(|why| unreadable(ClusterApprovalPolicy::KIND, &name.name, why))?;
            cluster.push((&*name.name, spec));
        }
        let mut own = Vec::new();
        for (name, policy) in self.own.objects.iter().filter(|(name, _)| &*name.namespace == namespace) {
            let spec = policy.as_ref().map_err(|why| unreadable(ApprovalPolicy::KIND, &name.name, why))?;
            own.push((&*name.name, spec));
        }
        let selects = |spec: &ClusterApprovalPolicySpec| {
            spec.match_.as_ref().is_some_and(|scope| scope.namespace_selector.is_some())
        };
        let none = BTreeMap::new();
        let labels = match self.namespaces.objects.get(&Name::new("", namespace)) {
            Some(Ok(labels)) => labels,
            // Labels that no policy selects by are not needed.
            _ if !cluster.iter().any(|(_, spec)| selects(spec)) => &none,
            Some(Err(why)) => return Err(format!("the labels of namespace {namespace} cannot be read: {why}")),
            None => return Err(format!("the labels of namespace {namespace} have not been read yet")),
        };
        Ok(Arc::new(Policies::of(labels, cluster, own)))
    }
}

/// The watches of approval policies and namespaces.
pub(crate) struct PolicyWatches {
    cluster: mpsc::Receiver<WatchEvent<ClusterApprovalPolicy>>,
    own: mpsc::Receiver<WatchEvent<ApprovalPolicy>>,
    namespaces: mpsc::Receiver<WatchEvent<Namespace>>,
}

impl PolicyWatches {
    /// Starts the watches, as tasks that do not end by themselves.
    pub(crate) fn start(client: &Client, metrics: &SharedMetrics, tasks: &mut JoinSet<ExitReason>) -> Self {
        let cluster = start_watch(client, metrics, tasks, "watch of ClusterApprovalPolicies");
        let own = start_watch(client, metrics, tasks, "watch of ApprovalPolicies");
        let namespaces = start_watch(client, metrics, tasks, "watch of Namespaces");
        Self { cluster, own, namespaces }
    }

    /// Waits for the next watch event, and applies it. Returns the namespaces with other policies, and the namespace
    /// whose deletion has begun or is over. Cancel safe: no event is lost if the future is dropped.
    pub(crate) async fn apply_next_event(
        &mut self,
        index: &PolicyIndex,
        deleted: &DeletedNamespaces,
        metrics: &SharedMetrics,
    ) -> ChangedNamespaces {
        let policies = tokio::select! {
            biased;
            Some(event) = self.cluster.recv() => {
                index.apply_change(|inner| inner.cluster.apply(event, metrics, |policy| policy.spec))
            }
            Some(event) = self.own.recv() => {
                index.apply_change(|inner| inner.own.apply(event, metrics, |policy| policy.spec))
            }
            Some(event) = self.namespaces.recv() => {
                let labels = |namespace: Namespace| namespace.metadata.labels.unwrap_or_default();
                let deletions = deleted.apply(&event);
                let policies = index.apply_change(|inner| inner.namespaces.apply(event, metrics, labels));
                return ChangedNamespaces { policies, deletions };
            }
            // The sending tasks have ended, which their owner handles.
            else => std::future::pending().await,
        };
        ChangedNamespaces { policies, deletions: None }
    }
}

/// The namespaces that a watch event changed.
pub(crate) struct ChangedNamespaces {
    /// The namespaces with other policies.
    pub(crate) policies: Vec<Arc<str>>,
    /// The namespace whose deletion has begun or is over.
    pub(crate) deletions: Option<Arc<str>>,
}

fn start_watch<K: DecodedKind>(
    client: &Client,
    metrics: &SharedMetrics,
    tasks: &mut JoinSet<ExitReason>,
    what: &'static str,
) -> mpsc::Receiver<WatchEvent<K>> {
    let (to, from) = mpsc::channel(64);
    tasks.spawn(follow(client.clone(), to, metrics.requests()).map(move |()| ExitReason::Task(what)));
    from
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, spec: Value) -> ClusterApprovalPolicy {
        let mut policy = ClusterApprovalPolicy::new(name, serde_json::from_value(spec).unwrap());
        policy.metadata.uid = Some(name.to_owned());
        policy
    }

    fn meta_named(name: &str) -> ObjectMeta {
        ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
    }

    fn namespace_with_env(name: &str, env: &str) -> Namespace {
        let labels = BTreeMap::from([("env".to_owned(), env.to_owned())]);
        Namespace { metadata: ObjectMeta { labels: Some(labels), ..meta_named(name) }, ..Namespace::default() }
    }

    fn apply_policy(index: &PolicyIndex, event: WatchEvent<ClusterApprovalPolicy>) -> Vec<Arc<str>> {
        index.apply_change(|inner| inner.cluster.apply(event, &Arc::default(), |policy| policy.spec))
    }

    fn apply_namespace(index: &PolicyIndex, namespace: Namespace) -> Vec<Arc<str>> {
        let event = WatchEvent::Applied(Box::new(namespace));
        index.apply_change(|inner| {
            inner.namespaces.apply(event, &Arc::default(), |n| n.metadata.labels.unwrap_or_default())
        })
    }

    fn prod() -> ClusterApprovalPolicy {
        policy("prod", json!({"match": {"namespaceSelector": {"matchLabels": {"env": "prod"}}}, "allowedHosts": []}))
    }

    #[test]
    fn a_change_affects_only_the_namespaces_with_other_policies() {
        let index = PolicyIndex::default();
        let (pay, lab): (Arc<str>, Arc<str>) = ("pay".into(), "lab".into());
        apply_namespace(&index, namespace_with_env("pay", "prod"));
        apply_namespace(&index, namespace_with_env("lab", "dev"));
        assert_eq!((index.known_policies(&pay), index.known_policies(&lab)), (Ok(Arc::default()), Ok(Arc::default())));
        assert_eq!(apply_policy(&index, WatchEvent::Applied(Box::new(prod()))), [Arc::clone(&pay)]);
        assert_ne!(index.known_policies(&pay), Ok(Arc::default()));
        assert_eq!(apply_namespace(&index, namespace_with_env("lab", "prod")), [Arc::clone(&lab)]);
        assert_eq!(apply_namespace(&index, namespace_with_env("lab", "prod")), [] as [Arc<str>; 0], "nothing is new");
        assert_eq!(apply_policy(&index, WatchEvent::Deleted(prod().metadata)), [lab, pay]);
    }

    #[test]
    fn an_unreadable_policy_is_an_error_where_it_can_apply() {
        let index = PolicyIndex::default();
        let (pay, lab): (Arc<str>, Arc<str>) = ("pay".into(), "lab".into());
        assert!(index.known_policies(&pay).is_ok());
        let unreadable =
            |listed| WatchEvent::Unreadable { meta: prod().metadata, why: "no such verdict".into(), listed };
        assert_eq!(apply_policy(&index, unreadable(false)), [Arc::clone(&pay)]);
        assert!(index.known_policies(&lab).unwrap_err().contains("ClusterApprovalPolicy prod cannot be read"));
        for event in [WatchEvent::Listing, unreadable(true), WatchEvent::ListDone("2".into())] {
            apply_policy(&index, event);
        }
        assert!(index.known_policies(&pay).is_err(), "it is still there");
        for event in [WatchEvent::Listing, WatchEvent::ListDone("3".into())] {
            apply_policy(&index, event);
        }
        assert!(index.known_policies(&pay).is_ok(), "it was deleted while nobody watched");
    }

    #[test]
    fn policies_are_an_error_while_the_needed_labels_are_unknown() {
        let index = PolicyIndex::default();
        let new: Arc<str> = "new".into();
        assert!(index.known_policies(&new).is_ok(), "no policy asks for labels");
        apply_policy(&index, WatchEvent::Applied(Box::new(prod())));
        assert!(index.known_policies(&new).unwrap_err().contains("labels of namespace new have not been read yet"));
        assert_eq!(apply_namespace(&index, namespace_with_env("new", "dev")), [Arc::clone(&new)]);
        assert!(index.known_policies(&new).is_ok());
    }

    #[test]
    fn labels_of_a_namespace_that_was_not_received_are_unknown_and_not_empty() {
        let index = PolicyIndex::default();
        assert_eq!(index.labels("pay"), None);
        apply_namespace(&index, namespace_with_env("pay", "prod"));
        assert_eq!(index.labels("pay"), Some(BTreeMap::from([("env".to_owned(), "prod".to_owned())])));
        apply_namespace(&index, Namespace { metadata: meta_named("lab"), ..Namespace::default() });
        assert_eq!(index.labels("lab"), Some(BTreeMap::new()));
        let event = WatchEvent::<Namespace>::Unreadable { meta: meta_named("odd"), why: "odd".into(), listed: false };
        index.apply_change(|inner| inner.namespaces.apply(event, &Arc::default(), |_| BTreeMap::new()));
        assert_eq!(index.labels("odd"), Some(BTreeMap::new()), "to wait for them does not help");
    }

    #[test]
    fn nothing_is_complete_before_every_list_was_read() {
        let index = PolicyIndex::default();
        apply_policy(&index, WatchEvent::Listing);
        apply_policy(&index, WatchEvent::ListDone("1".into()));
        assert!(!index.is_complete());
    }
}
