//! Tests of the simulation itself, through kube's own typed client, watcher and reflector: the simulated server answers
//! as a real one does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crashes;
mod crud;
mod effects;
mod operator_restarts;
mod patches;
mod selecting;
mod watches;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use super::{ApiServer, Resource};

pub(super) fn configmap(name: &str, value: &str) -> ConfigMap {
    let data = BTreeMap::from([("value".to_owned(), value.to_owned())]);
    ConfigMap {
        metadata: kube::core::ObjectMeta { name: Some(name.into()), ..Default::default() },
        data: Some(data),
        ..Default::default()
    }
}

pub(super) fn signoff_kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("signoff.dev", "v1alpha1", kind))
}

pub(super) fn workflow(name: &str) -> DynamicObject {
    DynamicObject::new(name, &signoff_kind("Workflow")).data(json!({"spec": {"suspend": false}}))
}

pub(super) fn workflows(client: kube::Client) -> Api<DynamicObject> {
    Api::namespaced_with(client, "default", &signoff_kind("Workflow"))
}

pub(super) fn configmaps(client: kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

pub(super) async fn create_configmap(api: &Api<ConfigMap>, name: &str) -> ConfigMap {
    api.create(&PostParams::default(), &configmap(name, "1")).await.unwrap()
}

pub(super) fn stored(server: &ApiServer, plural: &str, name: &str) -> Option<Value> {
    let group = if plural == "configmaps" { "" } else { "signoff.dev" };
    server.value(&Resource::new(group, plural), "default", name)
}

/// Returns the code and reason of a refusal.
#[track_caller]
pub(super) fn refusal<T>(answer: Result<T, kube::Error>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        Err(error) => panic!("the error is not the API's: {error:?}"),
        Ok(_) => panic!("the request was not refused"),
    }
}

/// Asserts that an answer never comes, by waiting an hour of virtual time for it.
#[track_caller]
pub(super) fn unanswered<T>(request: impl Future<Output = T>) -> impl Future<Output = ()> {
    let waiting = tokio::time::timeout(std::time::Duration::from_secs(3600), request);
    async { assert!(waiting.await.is_err(), "it was answered") }
}
