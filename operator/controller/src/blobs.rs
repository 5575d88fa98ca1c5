//! Large values of a run as immutable ConfigMaps that the Workflow owns.
//!
//! The usual name can be computed by every user who knows the value, so another object may stand there first. A ConfigMap
//! counts only with the label of the Workflow, which admission lets no other user write, the Workflow as its owner, and the
//! right bytes. Every other object counts as absent: the name then gets a random suffix, which the run's status records
//! (`status.valueNames`).
//!
//! It must not serve bytes that do not have the digest they were asked by, and never changes a ConfigMap.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

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
    /// Random, and the same as long as this process lives: who stores a value twice meets what it stored first.
    secret: RandomState,
}

impl ConfigMapBlobs {
    /// ConfigMaps through this client.
    #[must_use]
    pub fn new(client: Client, metrics: Shared) -> Self {
        Self { client, metrics, secret: RandomState::new() }
    }

    /// A name for the value whose usual name is taken.
    fn other_name(&self, usual: &str) -> String {
        let [.., a, b, c, d] = self.secret.hash_one(usual).to_be_bytes();
        names::other_blob(usual, u32::from_be_bytes([a, b, c, d]))
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
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(default)]
    binary_data: BTreeMap<String, ByteString>,
}

impl Found {
    /// Whether the operator made it for this Workflow.
    fn is_of(&self, owner: &Owner) -> bool {
        let label = |key: &str| self.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        label(names::LABEL_WORKFLOW) == Some(&owner.workflow)
            && label(names::LABEL_WORKFLOW_UID) == Some(&owner.uid)
            && owners.iter().any(|reference| reference.uid == owner.uid)
    }

    fn bytes(mut self) -> Bytes {
        let text = self.data.remove(KEY).map(Bytes::from);
        text.or_else(|| self.binary_data.remove(KEY).map(|ByteString(bytes)| bytes.into())).unwrap_or_default()
    }
}

/// The usual name of the ConfigMap of a value.
pub(crate) fn usual_name(owner: &Owner, digest: &str) -> Result<String, BlobError> {
    let parsed: Result<Digest, _> = serde_json::from_value(digest.into());
    let parsed = parsed.map_err(|_| BlobError::NotADigest(digest.to_owned()))?;
    Ok(names::blob(&owner.workflow, &owner.uid, &parsed))
}

fn config_map(owner: &Owner, bytes: Bytes) -> ConfigMap {
    let (data, binary_data) = match String::from_utf8(bytes.to_vec()) {
        Ok(text) => (Some(BTreeMap::from([(KEY.to_owned(), text)])), None),
        Err(other) => (None, Some(BTreeMap::from([(KEY.to_owned(), ByteString(other.into_bytes()))]))),
    };
    ConfigMap {
        metadata: ObjectMeta {
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

impl ConfigMapBlobs {
    /// The operator's ConfigMap of this name: its bytes, or why they are not those of the digest.
    async fn read(&self, owner: &Owner, digest: &str, name: &str) -> Result<Option<Bytes>, BlobError> {
        let path = Request::new(ConfigMap::url_path(&(), Some(&owner.namespace)));
        let request = path.get(name, &GetParams::default()).map_err(|why| store(digest, why))?;
        let found: Found = match self.ask(request).await {
            Ok(found) => found,
            Err(error) if status_code(&error) == Some(404) => return Ok(None),
            Err(error) => return Err(store(digest, error)),
        };
        if !found.is_of(owner) {
            tracing::warn!(
                namespace = owner.namespace,
                name,
                workflow = owner.workflow,
                "a ConfigMap of another user has the name of a value of this Workflow: it is passed over"
            );
            return Ok(None);
        }
        let bytes = found.bytes();
        verify(owner, digest, &bytes)?;
        Ok(Some(bytes))
    }

    /// Creates the ConfigMap. False where another object has the name.
    async fn create(&self, owner: &Owner, digest: &str, object: &ConfigMap) -> Result<bool, BlobError> {
        let body = serde_json::to_vec(object).map_err(|why| store(digest, why))?;
        let path = Request::new(ConfigMap::url_path(&(), Some(&owner.namespace)));
        let request = path.create(&PostParams::default(), body).map_err(|why| store(digest, why))?;
        let answer = self.ask::<IgnoredAny>(request).await;
        self.metrics.wrote("ConfigMap", "create", if answer.is_ok() { "ok" } else { "refused" });
        match answer {
            Ok(_) => Ok(true),
            Err(error) if status_code(&error) == Some(409) => Ok(false),
            Err(error) => Err(store(digest, error)),
        }
    }
}

#[async_trait]
impl BlobStore for ConfigMapBlobs {
    async fn put(&self, owner: &Owner, digest: &str, bytes: Bytes) -> Result<Option<String>, BlobError> {
        verify(owner, digest, &bytes)?;
        let usual = usual_name(owner, digest)?;
        let other = self.other_name(&usual);
        let mut object = config_map(owner, bytes);
        for name in [&usual, &other] {
            object.metadata.name = Some(name.clone());
            let is_stored = self.create(owner, digest, &object).await?
                // An earlier attempt made it, or another object has the name.
                || match self.read(owner, digest, name).await {
                    Ok(found) => found.is_some(),
                    Err(BlobError::Mismatch { .. }) => false,
                    Err(error) => return Err(error),
                };
            if is_stored {
                return Ok((*name == other).then(|| other.clone()));
            }
        }
        Err(store(digest, format!("other objects have its names {usual:?} and {other:?}")))
    }

    async fn get(&self, owner: &Owner, digest: &str, name: Option<&str>) -> Result<Option<Bytes>, BlobError> {
        let usual = usual_name(owner, digest)?;
        let name = name.unwrap_or(&usual);
        if !names::is_blob(&usual, name) {
            return Err(BlobError::NotAName(name.to_owned()));
        }
        self.read(owner, digest, name).await
    }
}
