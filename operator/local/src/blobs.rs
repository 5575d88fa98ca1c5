//! The large values of local runs, as files.
//!
//! **Invariant:** bytes that do not have the requested digest are not returned, and no file is written outside of the
//! folder.

use std::{fs, io, path::PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use signoff_executor::{
    BlobStore, Owner,
    blobs::{BlobError, verify},
};

use crate::atomic_file;

/// Blobs as files `<root>/<namespace>/<uid>/<hex>`.
#[derive(Clone, Debug)]
pub struct FolderBlobs {
    root: PathBuf,
}

impl FolderBlobs {
    /// Returns a store in `root`. Folders are created with the first blob.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the path of a blob. The path has only checked segments, so it is always inside of `root`.
    fn blob_path(&self, owner: &Owner, digest: &str) -> Result<PathBuf, BlobError> {
        let hex = digest
            .strip_prefix("sha256:")
            .filter(|hex| hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        let hex = hex.ok_or_else(|| BlobError::NotADigest(digest.chars().take(80).collect()))?;
        Ok(self.root.join(check_segment(&owner.namespace)?).join(check_segment(&owner.uid)?).join(hex))
    }
}

#[async_trait]
impl BlobStore for FolderBlobs {
    async fn put(&self, owner: &Owner, digest: &str, bytes: Bytes) -> Result<Option<String>, BlobError> {
        verify(owner, digest, &bytes)?;
        let file = self.blob_path(owner, digest)?;
        run_blocking(digest, move || atomic_file::write(&file, &bytes)).await?;
        Ok(None)
    }

    async fn get(&self, owner: &Owner, digest: &str, _name: Option<&str>) -> Result<Option<Bytes>, BlobError> {
        let file = self.blob_path(owner, digest)?;
        let found = run_blocking(digest, move || match fs::read(&file) {
            Ok(bytes) => Ok(Some(Bytes::from(bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .await?;
        if let Some(bytes) = &found {
            verify(owner, digest, bytes)?;
        }
        Ok(found)
    }
}

/// Runs file operations outside of the asynchronous threads.
async fn run_blocking<T: Send + 'static>(
    digest: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, BlobError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten();
    done.map_err(|error| BlobError::Store { digest: digest.to_owned(), cause: Box::new(error) })
}

/// Returns a name if it is a single segment of a path: not empty, not hidden, and without a separator.
fn check_segment(name: &str) -> Result<&str, BlobError> {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let is_segment = !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && name.bytes().all(is_allowed);
    if is_segment { Ok(name) } else { Err(BlobError::NotAnOwner(name.chars().take(80).collect())) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::Digest;

    use super::*;

    fn owner() -> Owner {
        Owner { namespace: "finance".into(), workflow: "refund".into(), uid: "0b5e-1".into() }
    }

    fn blob(text: &str) -> (String, Bytes) {
        (Digest::of_bytes(text.as_bytes()).to_string(), Bytes::copy_from_slice(text.as_bytes()))
    }

    #[tokio::test]
    async fn a_stored_blob_is_returned_unchanged_and_can_be_stored_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderBlobs::new(folder.path());
        let (digest, bytes) = blob("a long letter");
        assert!(store.get(&owner(), &digest, None).await.unwrap().is_none());
        for _ in 0..2 {
            store.put(&owner(), &digest, bytes.clone()).await.unwrap();
            assert_eq!(store.get(&owner(), &digest, None).await.unwrap().unwrap(), bytes);
        }
        let other = Owner { uid: "0b5e-2".into(), ..owner() };
        assert!(store.get(&other, &digest, None).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn nothing_but_whole_blobs_is_left_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderBlobs::new(folder.path());
        let (digest, bytes) = blob("x");
        let writers = (0..8).map(|_| {
            let (store, digest, bytes) = (store.clone(), digest.clone(), bytes.clone());
            tokio::spawn(async move { store.put(&owner(), &digest, bytes).await })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap().unwrap();
        }
        let names: Vec<_> = fs::read_dir(folder.path().join("finance/0b5e-1"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, [digest.strip_prefix("sha256:").unwrap()]);
    }

    #[tokio::test]
    async fn changed_bytes_are_not_returned_and_wrong_bytes_are_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderBlobs::new(folder.path());
        let (digest, bytes) = blob("approved: 420 EUR");
        store.put(&owner(), &digest, bytes.clone()).await.unwrap();
        fs::write(store.blob_path(&owner(), &digest).unwrap(), "approved: 420000 EUR").unwrap();
        let refused = store.get(&owner(), &digest, None).await.unwrap_err();
        assert!(matches!(&refused, BlobError::Mismatch { .. }), "{refused}");
        assert!(refused.to_string().contains("finance/refund"), "{refused}");

        let wrong = store.put(&owner(), &digest, Bytes::from_static(b"other")).await.unwrap_err();
        assert!(matches!(wrong, BlobError::Mismatch { .. }), "{wrong}");
        // Storing the original bytes again repairs the blob.
        store.put(&owner(), &digest, bytes.clone()).await.unwrap();
        assert_eq!(store.get(&owner(), &digest, None).await.unwrap().unwrap(), bytes);
    }

    #[tokio::test]
    async fn no_name_leads_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderBlobs::new(folder.path().join("blobs"));
        let (digest, _) = blob("x");
        for name in ["", ".", "..", "../x", "a/b", "/etc", "a\\b", ".hidden", "A", "a\0b", &"x".repeat(300)] {
            for owner in [Owner { namespace: name.into(), ..owner() }, Owner { uid: name.into(), ..owner() }] {
                let refused = store.get(&owner, &digest, None).await.unwrap_err();
                assert!(matches!(refused, BlobError::NotAnOwner(_)), "{name:?}: {refused}");
            }
        }
        let upper = digest.to_uppercase();
        let hex = digest.strip_prefix("sha256:").unwrap();
        for digest in ["", "sha256:", "sha256:../../etc/passwd", hex, upper.as_str(), "md5:00"] {
            let refused = store.get(&owner(), digest, None).await.unwrap_err();
            assert!(matches!(refused, BlobError::NotADigest(_)), "{digest:?}: {refused}");
        }
    }
}
