//! Large values of a run as immutable ConfigMaps that the Workflow owns.
//!
//! It may not serve bytes that do not have the digest they were asked by, and never changes a ConfigMap: what is
//! there under the name and is right is a success.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use k8s_openapi::{
    ByteString,
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Client, Resource,
    api::{GetParams, PostParams},
    core::Request,
};
use serde::{Deserialize, de::IgnoredAny};
use signoff_api::{Digest, Workflow, names};
use signoff_runtime::{
    BlobStore, Owner,
    blobs::{BlobError, verify},
};

use crate::{error::status_code, metrics::Shared};

/// The key of the value in its ConfigMap.
const KEY: &str = "value";
const PATIENCE: Duration = Duration::from_secs(30);

/// ConfigMaps through a client.
pub struct ConfigMapBlobs {
    client: Client,
    metrics: Shared,
}

impl ConfigMapBlobs {
    /// ConfigMaps through this client.
    #[must_use]
    pub fn new(client: Client, metrics: Shared) -> Self {
        Self { client, metrics }
    }

    async fn ask<T: serde::de::DeserializeOwned>(&self, request: http::Request<Vec<u8>>) -> Result<T, kube::Error> {
        let text = tokio::time::timeout(PATIENCE, self.client.request_text(request)).await;
        let text = text.map_err(|_| kube::Error::Service(format!("no answer within {PATIENCE:?}").into()))??;
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }
}

/// What is read of a ConfigMap.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(default)]
    binary_data: BTreeMap<String, ByteString>,
}

/// The name of the ConfigMap that holds a value.
pub(crate) fn place(owner: &Owner, digest: &str) -> Option<String> {
    let digest: Digest = serde_json::from_value(digest.into()).ok()?;
    Some(names::blob(&owner.workflow, &owner.uid, &digest))
}

fn config_map(owner: &Owner, name: String, bytes: Bytes) -> ConfigMap {
    let (data, binary_data) = match String::from_utf8(bytes.to_vec()) {
        Ok(text) => (Some(BTreeMap::from([(KEY.to_owned(), text)])), None),
        Err(other) => (None, Some(BTreeMap::from([(KEY.to_owned(), ByteString(other.into_bytes()))]))),
    };
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(owner.namespace.clone()),
            labels: Some(BTreeMap::from([
                (names::LABEL_WORKFLOW.to_owned(), owner.workflow.clone()),
                (names::LABEL_WORKFLOW_UID.to_owned(), owner.uid.clone()),
            ])),
            owner_references: Some(vec![OwnerReference {
                api_version: Workflow::api_version(&()).into_owned(),
                kind: Workflow::kind(&()).into_owned(),
                name: owner.workflow.clone(),
                uid: owner.uid.clone(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        data,
        binary_data,
        immutable: Some(true),
    }
}

fn store(digest: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> BlobError {
    BlobError::Store { digest: digest.to_owned(), cause: cause.into() }
}

#[async_trait]
impl BlobStore for ConfigMapBlobs {
    async fn put(&self, owner: &Owner, digest: &str, bytes: Bytes) -> Result<(), BlobError> {
        verify(owner, digest, &bytes)?;
        let name = place(owner, digest).ok_or_else(|| BlobError::NotADigest(digest.to_owned()))?;
        let object = config_map(owner, name.clone(), bytes);
        let body = serde_json::to_vec(&object).map_err(|why| store(digest, why))?;
        let path = Request::new(ConfigMap::url_path(&(), Some(&owner.namespace)));
        let request = path.create(&PostParams::default(), body).map_err(|why| store(digest, why))?;
        let answer = self.ask::<IgnoredAny>(request).await;
        self.metrics.wrote("ConfigMap", "create", if answer.is_ok() { "ok" } else { "refused" });
        match answer {
            Ok(_) => Ok(()),
            // An earlier attempt made it, or somebody else put something in its place.
            Err(error) if status_code(&error) == Some(409) => match self.get(owner, digest).await? {
                Some(_) => Ok(()),
                None => Err(store(digest, format!("ConfigMap {name} was there and is not any more"))),
            },
            Err(error) => Err(store(digest, error)),
        }
    }

    async fn get(&self, owner: &Owner, digest: &str) -> Result<Option<Bytes>, BlobError> {
        let name = place(owner, digest).ok_or_else(|| BlobError::NotADigest(digest.to_owned()))?;
        let path = Request::new(ConfigMap::url_path(&(), Some(&owner.namespace)));
        let request = path.get(&name, &GetParams::default()).map_err(|why| store(digest, why))?;
        self.metrics.read("ConfigMap");
        let found: Found = match self.ask(request).await {
            Ok(found) => found,
            Err(error) if status_code(&error) == Some(404) => return Ok(None),
            Err(error) => return Err(store(digest, error)),
        };
        let Found { mut data, mut binary_data } = found;
        let text = data.remove(KEY).map(Bytes::from);
        let bytes = text.or_else(|| binary_data.remove(KEY).map(|ByteString(bytes)| bytes.into())).unwrap_or_default();
        verify(owner, digest, &bytes)?;
        Ok(Some(bytes))
    }
}
