//! Values that are too large for a Workflow object, stored under the digest of their content.
//!
//! **Invariant:** a blob never changes: the same name always means the same bytes, so a second write does no harm.

use async_trait::async_trait;
use bytes::Bytes;
use signoff_api::Digest;

/// The run of a blob. The blobs of a run are deleted with its Workflow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The Workflow's namespace.
    pub namespace: String,
    /// The Workflow's name.
    pub workflow: String,
    /// The Workflow's uid: a recreated Workflow of the same name is another owner.
    pub uid: String,
}

/// The error of a blob that was not stored or served.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// Not `sha256:` and 64 lower-case hex digits.
    #[error("{0:?} is not a digest: expected sha256: and 64 lower-case hex digits")]
    NotADigest(String),
    /// A namespace or uid that is not a single, plain path segment.
    #[error("{0:?} cannot be an owner's namespace or uid: expected lower-case letters, digits, '-' and '.'")]
    NotAnOwner(String),
    /// The bytes do not have the digest of their name.
    #[error(
        "blob {digest} of workflow {workflow} holds other bytes ({found}): \
         it was damaged or changed and is not served"
    )]
    Mismatch {
        /// The digest that names the blob.
        digest: String,
        /// The digest of the stored bytes.
        found: String,
        /// `namespace/name` of the owner.
        workflow: String,
    },
    /// Foreign objects have the default names of too many blobs of a run.
    #[error(
        "blob {digest} cannot be stored: objects that the operator did not create have the names of more than {most} \
         values of this run, among them {name:?}; find out who created them, and delete them"
    )]
    NamesTaken {
        /// The digest that names the blob.
        digest: String,
        /// The default name of the blob, which a foreign object has.
        name: String,
        /// The maximum number of values with another name.
        most: usize,
    },
    /// A text that is not the name of a blob.
    #[error("{0:?} is not the name of a blob")]
    NotAName(String),
    /// The store failed, such as the API server or the local disk.
    #[error("blob {digest}: {cause}")]
    Store {
        /// The digest that names the blob.
        digest: String,
        /// The error of the store.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The interface of a store of blobs.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Stores `bytes` under `digest`, durably before it returns. A repeated call is a success. Returns the name of the
    /// blob if it is not the default name; [`get`](Self::get) then needs the name.
    ///
    /// # Errors
    /// A digest that is not the digest of the bytes, and failures of the store.
    async fn put(&self, owner: &Owner, digest: &str, bytes: Bytes) -> Result<Option<String>, BlobError>;

    /// Returns the bytes under `digest`, or `None`. `name` is the result of [`put`](Self::put).
    ///
    /// # Errors
    /// Bytes that do not have the digest, and failures of the store.
    async fn get(&self, owner: &Owner, digest: &str, name: Option<&str>) -> Result<Option<Bytes>, BlobError>;
}

/// Checks that `bytes` have `digest`. Every store calls this before it stores and before it returns bytes.
///
/// # Errors
/// [`BlobError::Mismatch`] with the actual digest.
pub fn verify(owner: &Owner, digest: &str, bytes: &[u8]) -> Result<(), BlobError> {
    let found = Digest::of_bytes(bytes);
    if found.as_str() == digest {
        return Ok(());
    }
    Err(BlobError::Mismatch {
        digest: digest.to_owned(),
        found: found.to_string(),
        workflow: format!("{}/{}", owner.namespace, owner.workflow),
    })
}
