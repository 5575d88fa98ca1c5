//! The store of long values, as Blobs that the Workflow owns *(I/O)*.
//!
//! Every user who knows a value can compute its usual name, so a user may have created an object of that name while the
//! policies were absent. A Blob counts only if the Workflow is its controller and its bytes have the digest. Otherwise
//! the value is stored under a name with a random suffix, which the run's status records (`status.valueNames`).
//!
//! **Invariant:** returns only bytes that have the requested digest, and changes no Blob.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kube::{
    Client, Resource,
    api::{GetParams, PostParams},
    core::Request,
};
use serde::de::IgnoredAny;
use signoff_api::{Blob, Digest, names};
use signoff_cluster::{
    error::{Plain, status_code},
    fair_budget::FairBudget,
};
use signoff_executor::{
    BlobStore, Owner,
    blobs::{BlobError, verify},
};

use crate::metrics::SharedMetrics;

/// The time limit of an answer of the API server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The store of Blobs through a client.
pub struct ClusterBlobs {
    client: Client,
    metrics: SharedMetrics,
    /// The budget by which namespaces write in turn.
    turns: Arc<FairBudget>,
    /// The secret of this process, from which random names are computed. A value that is stored twice gets the same
    /// name.
    secret: RandomState,
}

impl ClusterBlobs {
    /// Returns a store that reads and writes through `client`.
    #[must_use]
    pub fn new(client: Client, metrics: SharedMetrics, turns: Arc<FairBudget>) -> Self {
        Self { client, metrics, turns, secret: RandomState::new() }
    }

    /// Returns the name of a value whose usual name is taken.
    fn other_name(&self, usual: &str) -> String {
        let [.., a, b, c, d] = self.secret.hash_one(usual).to_be_bytes();
        names::other_blob(usual, u32::from_be_bytes([a, b, c, d]))
    }

    /// Sends a request, and parses the answer.
    async fn send_request<T: serde::de::DeserializeOwned>(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<T, kube::Error> {
        let text = tokio::time::timeout(ANSWER_TIMEOUT, self.client.request_text(request)).await;
        let text = text.map_err(|_| kube::Error::Service(format!("no answer within {ANSWER_TIMEOUT:?}").into()))??;
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }
}

/// Returns the usual name of the Blob of a value.
pub(crate) fn usual_name(owner: &Owner, digest: &str) -> Result<String, BlobError> {
    let parsed: Result<Digest, _> = serde_json::from_value(digest.into());
    let parsed = parsed.map_err(|_| BlobError::NotADigest(digest.to_owned()))?;
    Ok(names::blob(&owner.workflow, &owner.uid, &parsed))
}

fn store_error(digest: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> BlobError {
    BlobError::Store { digest: digest.to_owned(), cause: cause.into() }
}

impl ClusterBlobs {
    /// Returns the bytes of the run's Blob with the name, or `None` if the run has no such Blob.
    async fn read(&self, owner: &Owner, digest: &str, name: &str) -> Result<Option<Bytes>, BlobError> {
        let path = Request::new(Blob::url_path(&(), Some(&owner.namespace)));
        let request = path.get(name, &GetParams::default()).map_err(|why| store_error(digest, why))?;
        let blob: Blob = match self.send_request(request).await {
            Ok(blob) => blob,
            Err(error) if status_code(&error) == Some(404) => return Ok(None),
            Err(error) => return Err(store_error(digest, Plain(error))),
        };
        if !blob.is_of_run(&owner.workflow, &owner.uid) {
            tracing::warn!(
                namespace = owner.namespace,
                name,
                workflow = owner.workflow,
                "a Blob of another run has the name of a value of this Workflow: it is passed over"
            );
            return Ok(None);
        }
        let bytes = Bytes::from(blob.spec.into_bytes());
        verify(owner, digest, &bytes)?;
        Ok(Some(bytes))
    }

    /// Creates the Blob. Returns false if another object has the name.
    async fn create(&self, owner: &Owner, digest: &str, object: &Blob) -> Result<bool, BlobError> {
        let body = serde_json::to_vec(object).map_err(|why| store_error(digest, why))?;
        let path = Request::new(Blob::url_path(&(), Some(&owner.namespace)));
        let request = path.create(&PostParams::default(), body).map_err(|why| store_error(digest, why))?;
        let turn = self.turns.take(&owner.namespace.as_str().into(), 1).await;
        let answer = self.send_request::<IgnoredAny>(request).await;
        drop(turn);
        self.metrics.requests().count_write("Blob", "create", if answer.is_ok() { "ok" } else { "refused" });
        match answer {
            Ok(_) => Ok(true),
            Err(error) if status_code(&error) == Some(409) => Ok(false),
            Err(error) => Err(store_error(digest, Plain(error))),
        }
    }
}

#[async_trait]
impl BlobStore for ClusterBlobs {
    async fn put(&self, owner: &Owner, digest: &str, bytes: Bytes) -> Result<Option<String>, BlobError> {
        verify(owner, digest, &bytes)?;
        let usual = usual_name(owner, digest)?;
        let other = self.other_name(&usual);
        let mut object = Blob::of_run(&owner.namespace, &owner.workflow, &owner.uid, bytes.into());
        for name in [&usual, &other] {
            object.metadata.name = Some(name.clone());
            let is_stored = self.create(owner, digest, &object).await?
                // An earlier attempt has created it, or another object has the name.
                || match self.read(owner, digest, name).await {
                    Ok(found) => found.is_some(),
                    Err(BlobError::Mismatch { .. }) => false,
                    Err(error) => return Err(error),
                };
            if is_stored {
                return Ok((*name == other).then(|| other.clone()));
            }
        }
        Err(store_error(
            digest,
            format!(
                "its names {usual:?} and {other:?} belong to objects that this run did not create; find out who created them, and delete them"
            ),
        ))
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
