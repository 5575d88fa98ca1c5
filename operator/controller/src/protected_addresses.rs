//! Watches the addresses that runs cannot call from the operator's network *(I/O)*: nodes, the API server, and the
//! Services and pods of the operator's namespace.
//!
//! **Invariant:** decodes only addresses. Logs once each kind that RBAC does not let it read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    pin::pin,
};

use futures::{FutureExt, StreamExt, future::BoxFuture};
use k8s_openapi::{
    api::{
        core::v1::{Node, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use serde::{Deserialize, de::DeserializeOwned};
use signoff_cluster::error::{plain, status_code};
use signoff_executor::ProtectedSet;
use signoff_expr::text;

use crate::metrics::SharedMetrics;

/// The namespace and name of the API server's own Service and endpoints.
const KUBERNETES: (&str, &str) = ("default", "kubernetes");

/// The namespace whose Services and pods are watched, and the set that receives the addresses of all watches.
#[derive(Clone, Debug)]
pub struct ProtectedAddresses {
    /// The operator's own namespace.
    pub namespace: String,
    /// The set in which the watches store the addresses, and which the HTTP client reads.
    pub protected: ProtectedSet,
}

/// A kind of object that has addresses.
trait AddressedKind: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static {
    const KIND: &'static str;
    /// Returns the addresses as written. Entries that are not IP addresses are ignored later.
    fn addresses(&self) -> Vec<&str>;
}

/// The decoded part of a Node.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = Node)]
struct NodeObject {
    metadata: ObjectMeta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    addresses: Vec<NodeAddress>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeAddress {
    address: String,
}

impl AddressedKind for NodeObject {
    const KIND: &'static str = "Node";

    fn addresses(&self) -> Vec<&str> {
        self.status.addresses.iter().map(|address| address.address.as_str()).collect()
    }
}

/// The decoded part of a Service.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = Service)]
struct ServiceObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceSpec {
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<String>,
}

impl AddressedKind for ServiceObject {
    const KIND: &'static str = "Service";

    fn addresses(&self) -> Vec<&str> {
        self.spec.cluster_ips.iter().chain(&self.spec.external_ips).map(String::as_str).collect()
    }
}

/// The decoded part of an EndpointSlice.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = EndpointSlice)]
struct SliceObject {
    metadata: ObjectMeta,
    // Both null and a missing field mean that there are no endpoints.
    endpoints: Option<Vec<SliceEndpoint>>,
}

#[derive(Clone, Debug, Deserialize)]
struct SliceEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
}

impl AddressedKind for SliceObject {
    const KIND: &'static str = "EndpointSlice";

    fn addresses(&self) -> Vec<&str> {
        self.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses).map(String::as_str).collect()
    }
}

/// Watches the objects with protected addresses. The kinds of addresses are announced before the first addresses
/// arrive.
pub fn watch(
    client: &Client,
    targets: &ProtectedAddresses,
    metrics: &SharedMetrics,
) -> impl Future<Output = ()> + Send + use<> {
    let (server_namespace, server_name) = KUBERNETES;
    let every_object = watcher::Config::default;
    let only_server = || watcher::Config::default().fields(&format!("metadata.name={server_name}"));
    let own_namespace = &targets.namespace;
    let publisher = |what| {
        targets.protected.announce(what);
        AddressPublisher { what, protected: targets.protected.clone(), metrics: SharedMetrics::clone(metrics) }
    };
    let watches: Vec<BoxFuture<'static, ()>> = vec![
        watch_kind::<NodeObject>(Api::all(client.clone()), every_object(), publisher("a node of the cluster")).boxed(),
        watch_kind::<ServiceObject>(
            Api::namespaced(client.clone(), own_namespace),
            every_object(),
            publisher("a Service of the operator's own namespace"),
        )
        .boxed(),
        watch_kind::<SliceObject>(
            Api::namespaced(client.clone(), own_namespace),
            every_object(),
            publisher("a pod of the operator's own namespace"),
        )
        .boxed(),
        watch_kind::<ServiceObject>(
            Api::namespaced(client.clone(), server_namespace),
            only_server(),
            publisher("the Service of the API server"),
        )
        .boxed(),
        watch_kind::<SliceObject>(
            Api::namespaced(client.clone(), server_namespace),
            only_server(),
            publisher("the API server"),
        )
        .boxed(),
    ];
    futures::future::join_all(watches).map(drop)
}

/// The publisher of the addresses of one watch.
struct AddressPublisher {
    what: &'static str,
    protected: ProtectedSet,
    metrics: SharedMetrics,
}

/// Watches the objects of one kind, and publishes their addresses after each change.
async fn watch_kind<K: AddressedKind>(api: Api<K>, config: watcher::Config, to: AddressPublisher) {
    let mut known = AddressSet::default();
    let mut events = pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if known.apply(event) {
                    to.protected.set_addresses(to.what, known.addresses());
                }
            }
            Err(error) => to.on_watch_failed::<K>(&error),
        }
    }
}

impl AddressPublisher {
    /// Counts a failed watch. If the addresses cannot be read at all, calls to private addresses are refused.
    fn on_watch_failed<K: AddressedKind>(&self, error: &watcher::Error) {
        self.metrics.requests().count_failed_watch(K::KIND);
        let (code, why) = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => (status_code(error), plain(error)),
            other => (None, other.to_string()),
        };
        let why = text::display(&why, 300);
        // Other errors are transient, and calls can wait for the addresses.
        if matches!(code, Some(403 | 404)) && self.protected.set_unreadable(self.what, &why) {
            tracing::warn!(
                "whether an address is {} cannot be told, so calls to private addresses are refused: {why}",
                self.what
            );
        } else {
            tracing::debug!(kind = K::KIND, "the watch broke and is opened again: {why}");
        }
    }
}

/// The addresses of all objects of a watch, by namespace and name.
#[derive(Debug, Default)]
struct AddressSet {
    objects: BTreeMap<String, BTreeSet<IpAddr>>,
    listing: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl AddressSet {
    /// Applies a watch event. Returns whether the addresses may have changed.
    fn apply<K: AddressedKind>(&mut self, event: watcher::Event<K>) -> bool {
        let read = |object: &K| {
            let addresses = object.addresses().into_iter().filter_map(|text| text.parse().ok()).collect();
            (object.name_any(), addresses)
        };
        match event {
            watcher::Event::Init => {
                self.listing.clear();
                false
            }
            watcher::Event::InitApply(object) => {
                self.listing.extend([read(&object)]);
                false
            }
            watcher::Event::InitDone => {
                self.objects = std::mem::take(&mut self.listing);
                true
            }
            watcher::Event::Apply(object) => {
                let (name, addresses) = read(&object);
                // Nodes change every few minutes, but their addresses hardly ever do.
                self.objects.insert(name, addresses.clone()) != Some(addresses)
            }
            watcher::Event::Delete(object) => self.objects.remove(&object.name_any()).is_some(),
        }
    }

    fn addresses(&self) -> BTreeSet<IpAddr> {
        self.objects.values().flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn read<K: AddressedKind>(object: Value) -> Vec<String> {
        serde_json::from_value::<K>(object).unwrap().addresses().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn every_address_of_each_kind_is_read() {
        let meta = json!({"name": "a"});
        let node = json!({"metadata": meta, "spec": {}, "status": {"addresses": [
            {"type": "InternalIP", "address": "10.0.0.7"}, {"type": "Hostname", "address": "node-7"}]}});
        assert_eq!(read::<NodeObject>(node), ["10.0.0.7", "node-7"]);
        let service = json!({"metadata": meta, "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
            "externalIPs": ["192.0.2.1"]}, "status": {}});
        assert_eq!(read::<ServiceObject>(service), ["10.96.0.1", "fd00::1", "192.0.2.1"]);
        let slice = json!({"metadata": meta, "addressType": "IPv4", "ports": [], "endpoints": [
            {"addresses": ["10.1.0.1"], "conditions": {"ready": true}}, {"addresses": ["10.1.0.2"], "conditions": {"ready": false}}]});
        assert_eq!(read::<SliceObject>(slice), ["10.1.0.1", "10.1.0.2"]);
    }

    #[test]
    fn an_object_without_addresses_has_none() {
        let meta = json!({"name": "a"});
        assert!(read::<NodeObject>(json!({"metadata": meta})).is_empty());
        assert!(read::<ServiceObject>(json!({"metadata": meta, "spec": {"externalName": "example.com"}})).is_empty());
        assert!(read::<SliceObject>(json!({"metadata": meta, "endpoints": null})).is_empty());
    }

    #[test]
    fn the_known_addresses_follow_the_watch() {
        let node = |name: &str, address: &str| -> NodeObject {
            let addresses =
                [json!({"type": "InternalIP", "address": address}), json!({"type": "Hostname", "address": name})];
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"addresses": addresses}})).unwrap()
        };
        let texts = |known: &AddressSet| known.addresses().iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut known = AddressSet::default();
        assert!(!known.apply(watcher::Event::<NodeObject>::Init));
        assert!(!known.apply(watcher::Event::InitApply(node("a", "10.0.0.1"))));
        assert!(!known.apply(watcher::Event::InitApply(node("b", "10.0.0.2"))));
        assert!(known.apply(watcher::Event::<NodeObject>::InitDone));
        assert_eq!(texts(&known), ["10.0.0.1", "10.0.0.2"]);
        assert!(!known.apply(watcher::Event::Apply(node("a", "10.0.0.1"))), "only a heartbeat");
        assert!(known.apply(watcher::Event::Apply(node("a", "10.0.0.3"))));
        assert!(known.apply(watcher::Event::Delete(node("b", "10.0.0.2"))));
        assert_eq!(texts(&known), ["10.0.0.3"]);
        // A new list replaces all addresses.
        known.apply(watcher::Event::<NodeObject>::Init);
        assert!(known.apply(watcher::Event::<NodeObject>::InitDone));
        assert!(texts(&known).is_empty());
    }
}
