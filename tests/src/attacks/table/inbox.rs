//! Attacks with the built-in role admin in the page's namespace on the page's cookies and on what people type when they
//! sign in. The objects of the page are tried as a dry run or created for the attack, so the page itself is not needed.

use serde_json::{Value, json};

use crate::attacks::Actor::{ClusterAdmin, GarbageCollector, Named, OperatorsNeighbour};
use crate::attacks::{Actor, Object, Row, Scene, Way};

const SIGN_IN: &str = "decide where people sign in";
const SECRETS: &str = "/api/v1/namespaces/signoff-system/secrets";
const CONFIG_MAPS: &str = "/api/v1/namespaces/signoff-system/configmaps";
const SERVICES: &str = "/api/v1/namespaces/signoff-system/services";
const ENDPOINTS: &str = "/api/v1/namespaces/signoff-system/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/signoff-system/endpointslices";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/signoff-system/ingresses";
/// The controller that writes EndpointSlices.
const SLICER: Actor = Named("system:serviceaccount:kube-system:endpointslice-controller");

pub(super) fn rows() -> Vec<Row> {
    [creations(), changes()].into_iter().flatten().collect()
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"cookie-key": "mine"}})
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"ca.crt": "mine"}})
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": "signoff"}, "ports": [{"port": 80}]}})
}

fn slice(name: &str, service: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"name": "http", "port": 80}]})
}

fn ingress(name: &str) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name},
        "spec": {"rules": [{"host": "signoff.example.com", "http": {"paths": [{"path": "/sign-in", "pathType": "Prefix",
            "backend": {"service": {"name": "mine", "port": {"number": 80}}}}]}}]}})
}

/// Returns attacks that create objects which would be read or routed by their name.
fn creations() -> Vec<Row> {
    let row = |what, path, object: Value, honest, own: Value| {
        Row::new(what, [OperatorsNeighbour], [Way::Create, Way::Apply], object)
            .with_scene(Scene::Nothing)
            .on(Object::Path(path))
            .dry_run()
            .refused(SIGN_IN)
            .honest(honest, own)
    };
    let endpoints = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name},
            "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]})
    };
    let own = "one of their own";
    vec![
        row(
            "chooses the cookie key of the page",
            SECRETS,
            secret("signoff-web-new-{case}"),
            own,
            secret("mine-{case}"),
        ),
        row(
            "chooses the CA of the page's issuer",
            CONFIG_MAPS,
            config_map("signoff-web-ca-new-{case}"),
            own,
            config_map("mine-{case}"),
        ),
        row("makes a Service of the page's name", SERVICES, service("signoff-web-{case}"), own, service("mine-{case}")),
        row(
            "gives a Service of the page an address",
            ENDPOINTS,
            endpoints("signoff-web-{case}"),
            own,
            endpoints("mine-{case}"),
        ),
        row(
            "gives the Service of the page an address",
            SLICES,
            slice("mine-{case}", "signoff-web"),
            own,
            slice("mine-{case}", "mine"),
        ),
        row(
            "makes a slice of the page's name",
            SLICES,
            slice("signoff-web-{case}", "mine"),
            "the controller's",
            slice("signoff-web-{case}", "signoff-web"),
        )
        .by(SLICER)
        .way(Way::Create),
        // The name is arbitrary: the attack takes the host.
        row(
            "takes a path of the page's host",
            INGRESSES,
            ingress("mine-{case}"),
            "the same from who holds the verb",
            ingress("mine-{case}"),
        )
        .by(ClusterAdmin),
    ]
}

/// Returns attacks that change existing objects.
fn changes() -> Vec<Row> {
    let delete = || json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    let changes = [Way::Merge, Way::Json, Way::Replace];
    let there = |path, object: Value| Scene::Object(ClusterAdmin, path, object);
    let finalizer = || json!({"metadata": {"finalizers": ["example.com/load-balancer"]}});
    let row = |what, scene, change: Value| {
        Row::new(what, [OperatorsNeighbour], changes, change).with_scene(scene).dry_run().refused(SIGN_IN)
    };
    let deleted = |what, scene| {
        Row::new(what, [OperatorsNeighbour], [Way::Delete], delete())
            .with_scene(scene)
            .refused(SIGN_IN)
            .honest("the same from who holds the verb", delete())
            .by(ClusterAdmin)
    };
    let of_service = |name| there(SERVICES, service(name));
    let same = "the same from who holds the verb";
    vec![
        row(
            "changes the cookie key",
            there(SECRETS, secret("signoff-web-key-{case}")),
            json!({"data": {"cookie-key": "bWluZQ=="}}),
        )
        .honest(same, json!({"data": {"cookie-key": "bWluZQ=="}}))
        .by(ClusterAdmin),
        row(
            "changes the CA of the issuer",
            there(CONFIG_MAPS, config_map("signoff-web-ca-{case}")),
            json!({"data": {"ca.crt": "another"}}),
        )
        .honest(same, json!({"data": {"ca.crt": "another"}}))
        .by(ClusterAdmin),
        row(
            "has the Service of the page select others",
            of_service("signoff-web-to-{case}"),
            json!({"spec": {"selector": {"app": "mine"}}}),
        )
        .honest("a finalizer, as load balancers put there", finalizer()),
        row(
            "has the Service of the page be another name",
            of_service("signoff-web-as-{case}"),
            json!({"spec": {"externalName": "example.com"}}),
        )
        .honest("a finalizer, as load balancers put there", finalizer()),
        row(
            "annotates an Ingress",
            there(INGRESSES, ingress("signoff-web-by-{case}")),
            json!({"metadata": {"annotations": {"example.com/to": "mine"}}}),
        )
        .honest("a finalizer, as load balancers put there", finalizer()),
        row(
            "takes a slice from its Service",
            there(SLICES, slice("from-{case}", "signoff-web")),
            json!({"metadata": {"labels": {"kubernetes.io/service-name": "mine"}}}),
        )
        .honest("the controller's change", json!({"metadata": {"annotations": {"x": "y"}}}))
        .by(SLICER)
        .way(Way::Replace),
        deleted("deletes the cookie key", there(SECRETS, secret("signoff-web-gone-{case}"))),
        deleted("deletes the CA of the issuer", there(CONFIG_MAPS, config_map("signoff-web-ca-gone-{case}"))),
        deleted("deletes an Ingress", there(INGRESSES, ingress("signoff-web-gone-{case}"))),
        deleted("deletes a slice of the page", there(SLICES, slice("gone-{case}", "signoff-web"))).by(GarbageCollector),
    ]
}
